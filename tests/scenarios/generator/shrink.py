"""A smaller case that is wrong in the same way.

Parts are left out one by one, as long as what is left still fails: tables, rounds, changes, rows, and pieces of the
query. The meaning of a smaller query does not matter, only whether it is still wrong; one that is not accepted is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError

from tests.scenarios.generator.case import Case
from tests.scenarios.generator.judge import Failure

Judge = Callable[[Case], Failure | None]


def shrink(case: Case, failure: Failure, judge: Judge, *, most: int) -> tuple[Case, Failure]:
    """The smallest case found with at most that many runs, and its failure."""
    runs = 0
    case = replace(case.only(failure.table), rounds=case.rounds[: failure.round])
    again = True
    while again and runs < most:
        again = False
        for smaller in _smaller(case):
            if runs >= most:
                break
            runs += 1
            found = judge(smaller)
            if found is not None and found.kind == failure.kind:
                case, failure, again = smaller, found, True
                break
    return case, failure


def told(case: Case, failure: Failure, judge: Judge, *, most: int) -> str:
    """A failure for people: what was drawn, and the smallest case that fails alike."""
    small, found = shrink(case, failure, judge, most=most)
    return (
        f"{failure.kind} of {failure.table} after round {failure.round}: {failure.detail}\n\n{case}\n\n"
        f"smaller, {found.kind} after round {found.round}: {found.detail}\n\n{small}"
    )


def _smaller(case: Case) -> Iterator[Case]:
    for number in range(len(case.rounds)):
        if len(case.rounds) > 1:
            yield replace(case, rounds=(*case.rounds[:number], *case.rounds[number + 1 :]))
    for number, changes in enumerate(case.rounds):
        for place in range(len(changes)):
            if len(changes) > 1:
                less = (*changes[:place], *changes[place + 1 :])
                yield replace(case, rounds=(*case.rounds[:number], less, *case.rounds[number + 1 :]))
    (table,) = case.tables
    # The lowered text of MATCH_RECOGNIZE cannot be declared.
    for query in _smaller_queries(table.lowered) if "MATCH_RECOGNIZE" not in table.query else ():
        tree = sqlglot.parse_one(query, dialect="spark")
        assert isinstance(tree, exp.Query)
        names = tuple(name.lower() for name in tree.named_selects)
        key = tuple(name for name in table.primary_key if name.lower() in names)
        parts = tuple(name for name in table.partitioned_by if name.lower() in names and len(names) > 1)
        whole_key = key if len(key) == len(table.primary_key) else ()
        smaller = replace(
            table,
            query=query,
            names=names,
            primary_key=whole_key,
            partitioned_by=parts,
            daily=table.daily and bool(parts),
            summed=tuple(name for name in table.summed if name in names),
        )
        yield replace(case, tables=(smaller,))
    if table.primary_key or table.partitioned_by:
        yield replace(case, tables=(replace(table, primary_key=(), partitioned_by=(), daily=False),))
    if table.outputs or table.expected:
        yield replace(case, tables=(replace(table, outputs=(), taken="", expected=""),))
    for place, change in enumerate(case.first):
        for row in range(len(change.rows)):
            rows = (*change.rows[:row], *change.rows[row + 1 :])
            less = (replace(change, rows=rows),) if rows else ()
            yield replace(case, first=(*case.first[:place], *less, *case.first[place + 1 :]))
    read = {name.lower() for name in _tables(table.lowered)}
    kept = tuple(relation for relation in case.relations if relation.name.lower() in read)
    if len(kept) < len(case.relations):
        names_kept = {relation.name for relation in kept}
        yield replace(
            case,
            relations=kept,
            first=tuple(change for change in case.first if change.source in names_kept),
            rounds=tuple(tuple(change for change in r if change.source in names_kept) for r in case.rounds),
        )


def _tables(query: str) -> list[str]:
    return [table.name for table in sqlglot.parse_one(query, dialect="spark").find_all(exp.Table)]


def _smaller_queries(query: str) -> Iterator[str]:
    """The query with one piece less, greater pieces first."""
    count = sum(1 for _ in sqlglot.parse_one(query, dialect="spark").walk())
    for place in range(count):
        for change in _PIECES:
            tree = sqlglot.parse_one(query, dialect="spark")
            node = next(node for number, node in enumerate(tree.walk()) if number == place)
            smaller = change(tree, node)
            if smaller is not None:
                text = smaller.sql(dialect="databricks")
                if len(text) < len(query) and _is_read(text):
                    yield text


def _is_read(query: str) -> bool:
    """Whether it is SQL still: a window's function may be gone from before its OVER."""
    try:
        sqlglot.parse_one(query, dialect="spark")
    except ParseError:
        return False
    return True


def _replaced(tree: exp.Expr, node: exp.Expr, by: exp.Expr) -> exp.Expr:
    if node is tree:
        return by
    node.replace(by)
    return tree


def _one_side(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    return _replaced(tree, node, node.this.copy()) if isinstance(node, exp.SetOperation | exp.And | exp.Or) else None


def _other_side(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.SetOperation | exp.And | exp.Or):
        return _replaced(tree, node, node.expression.copy())
    return None


def _without_clause(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    if not isinstance(node, exp.Select):
        return None
    for clause in ("where", "having", "qualify", "distinct", "laterals"):
        if node.args.get(clause):
            node.set(clause, None)
            return tree
    return None


def _without_where(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.Where | exp.Having | exp.Qualify | exp.Lateral | exp.CTE) and node.parent is not None:
        parent = node.parent
        node.pop()
        if isinstance(parent, exp.With) and not parent.expressions:
            parent.pop()
        return tree
    return None


def _without_join(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    if isinstance(node, exp.Join):
        node.pop()
        return tree
    return None


def _without_item(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    parent = node.parent
    if isinstance(parent, exp.Select) and node.arg_key == "expressions" and len(parent.expressions) > 1:
        node.pop()
        return tree
    return None


def _inside(tree: exp.Expr, node: exp.Expr) -> exp.Expr | None:
    """A function's first argument, what stands in parentheses or behind NOT."""
    if isinstance(node, exp.Func | exp.Paren | exp.Not) and isinstance(node.this, exp.Expr) and node is not tree:
        return _replaced(tree, node, node.this.copy())
    return None


_PIECES = (
    _one_side,
    _other_side,
    _without_where,
    _without_join,
    _without_clause,
    _without_item,
    _inside,
)
