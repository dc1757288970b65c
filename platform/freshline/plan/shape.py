"""The shape of a query: what its changes look like when its inputs change.

Two questions are answered from the syntax alone. Which inputs may be replaced by their new rows, so that the query
over them gives exactly the new rows of the result? And which input decides the partition that a row lands in, so that
only touched partitions need to be computed again? Where the answer is no, it comes with a reason code and the
fragment of SQL that stands in the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from freshline.declare.names import TableName
from freshline.declare.query import SqlQuery
from freshline.declare.query_parser import parse_sql
from freshline.declare.volatile import find_volatile
from freshline.plan.common_tables import RecursiveError, TooLargeError, inline_common_tables
from freshline.plan.functions import GENERATORS, is_aggregate, name_of
from freshline.plan.reason import Reason
from freshline.plan.written import is_same, written_text

DIALECT = "spark"
# These are functions where they stand without backquotes.
_CALLED_WITHOUT_PARENTHESES = frozenset(
    "current_catalog current_database current_date current_schema current_time current_timestamp current_user "
    "localtimestamp session_user user".split()
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# What a source may have and still be nothing but its rows.
_SOURCE_ARGUMENTS = frozenset({"this", "db", "catalog", "alias"})


@dataclass(frozen=True)
class Branch:
    """One SELECT of a UNION ALL (or the only one).

    `products` are the inputs whose new rows give new rows (an input that is read twice stands twice); `fixed` are
    those that must not have changed for that.
    """

    products: tuple[TableName, ...]
    fixed: frozenset[TableName]


@dataclass(frozen=True)
class Origin:
    """The input that decides the partition of a row.

    `expressions` give the partition's values from the input's own columns, in the order of the partition columns.
    """

    input: TableName
    expressions: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """What syntax tells about a query. `branches` or `not_monotone`, `origin` or `no_origin`: one of each is there."""

    branches: tuple[Branch, ...]
    not_monotone: Reason | None
    origin: Origin | None
    no_origin: Reason | None
    volatile: str | None

    def delta_inputs(self, changed: frozenset[TableName]) -> frozenset[TableName] | Reason:
        """The inputs to be read as their new rows only, when exactly `changed` gained rows; or why that is wrong.

        Of every branch exactly one input is read as new rows: the one that changed, or one that did not and so
        makes the branch yield nothing. No input may be needed whole in one branch and new in another.
        """
        if self.not_monotone is not None:
            return self.not_monotone
        as_changes: set[TableName] = set()
        whole: set[TableName] = set()
        undecided: list[Branch] = []
        for branch in self.branches:
            if branch.fixed & changed:
                return Reason("UNSUPPORTED", f"{_names(branch.fixed & changed)} changed inside a join or subquery")
            moved = [name for name in branch.products if name in changed]
            if len(moved) > 1:
                return Reason("UNSUPPORTED", f"join of {_names(moved)}, which both changed")
            whole |= branch.fixed
            if moved:
                as_changes.add(moved[0])
                whole |= {name for name in branch.products if name != moved[0]}
            else:
                undecided.append(branch)
        for branch in undecided:
            free = [name for name in branch.products if name in as_changes or name not in whole]
            if not free:
                return Reason("UNSUPPORTED", "a UNION ALL branch without an input that changed")
            as_changes.add(free[0])
            whole |= {name for name in branch.products if name != free[0]}
        if as_changes & whole:
            return Reason("UNSUPPORTED", f"{_names(as_changes & whole)} is read more than once")
        return frozenset(as_changes)


class _Refused(Exception):
    def __init__(self, reason: Reason) -> None:
        self.reason = reason


@lru_cache(maxsize=2048)
def read_shape(query: SqlQuery, partitioned_by: tuple[str, ...]) -> Shape:
    """The shape of a query; pure and cached."""
    views = {name.view.lower(): name for name in query.reads}
    text = query.render()
    tree = parse_sql(text)
    volatile = find_volatile(tree)
    if volatile is not None:
        reason = Reason("NONDETERMINISTIC", volatile)
        return Shape((), reason, None, reason, volatile)
    try:
        expanded = inline_common_tables(tree)
    except (RecursiveError, TooLargeError) as error:
        what = "WITH RECURSIVE" if isinstance(error, RecursiveError) else "common table expressions nested too often"
        reason = Reason("UNSUPPORTED", what)
        return Shape((), reason, None, reason, None)
    branches: tuple[Branch, ...] = ()
    not_monotone: Reason | None = None
    try:
        branches = tuple(_branches(expanded, views, query.lookups))
    except _Refused as refused:
        not_monotone = refused.reason
    origin: Origin | None = None
    no_origin: Reason | None = None
    if not partitioned_by:
        no_origin = Reason("UNSUPPORTED", "the table has no partitions")
    else:
        try:
            origin = _origin(expanded, views, partitioned_by, text)
        except _Refused as refused:
            no_origin = refused.reason
    return Shape(branches, not_monotone, origin, no_origin, None)


@lru_cache(maxsize=2048)
def groups_by(query: SqlQuery) -> frozenset[str] | None:
    """The output columns, in lower case, that the outermost GROUP BY or DISTINCT makes unique together.

    None where the outermost query is no plain grouping.
    """
    text = query.render()
    tree = parse_sql(text)
    if not isinstance(tree, exp.Select) or any(isinstance(node, exp.UDTF) for node in _own_nodes(tree)):
        return None
    if any(name_of(node) in GENERATORS for item in tree.expressions for node in item.walk()):
        return None  # several rows of each group
    if tree.args.get("distinct"):
        return frozenset(item.alias_or_name.lower() for item in tree.expressions)
    group = tree.args.get("group")
    if group is None or any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup", "all", "totals")):
        return None
    found = set()
    for key in group.expressions:
        if isinstance(key, exp.Literal) and key.is_int:
            found.add(tree.expressions[int(key.name) - 1].alias_or_name.lower())
            continue
        name = _shown_as(text, tree, key)
        if name is None:
            return None
        found.add(name)
    return frozenset(found)


def _shown_as(text: str, select: exp.Select, key: exp.Expr) -> str | None:
    """Under which name the select list has the grouping key, in lower case; None where it has not, or nobody knows."""
    for item in select.expressions:
        if is_same(text, item.this if isinstance(item, exp.Alias) else item, key):
            return str(item.alias_or_name.lower())
    if not isinstance(key, exp.Column) or key.table:
        return None
    for item in select.expressions:
        if item.alias_or_name.lower() == key.name.lower():
            if isinstance(item, exp.Column):
                return str(item.alias_or_name.lower())
            # An input's column of this name comes before the alias, and is another thing than what is made of it.
            made_of = {column.name.lower() for column in item.find_all(exp.Column)}
            return None if key.name.lower() in made_of else str(item.alias_or_name.lower())
    return None


def _names(names: frozenset[TableName] | Sequence[TableName] | set[TableName]) -> str:
    return " and ".join(sorted(str(name) for name in names))


def _fragment(node: exp.Expr) -> str:
    text = node.sql(dialect=DIALECT)
    return text if len(text) <= 60 else text[:57] + "..."


# -- insert-monotone queries ---------------------------------------------------------------------------------------


def _branches(
    node: exp.Expr,
    views: Mapping[str, TableName],
    lookups: frozenset[TableName],
) -> Iterator[Branch]:
    """The branches of a query expression, or _Refused with the operator whose result is not new rows only."""
    if isinstance(node, exp.Subquery):
        _refuse_if(node, ("limit", "offset", "order"))
        yield from _branches(node.this, views, lookups)
        return
    if isinstance(node, exp.Union) and not isinstance(node, exp.Except | exp.Intersect):
        if node.args.get("distinct"):
            raise _Refused(Reason("UNSUPPORTED", "UNION"))
        _refuse_if(node, ("limit", "offset"))
        yield from _branches(node.this, views, lookups)
        yield from _branches(node.expression, views, lookups)
        return
    if not isinstance(node, exp.Select):
        raise _Refused(Reason("UNSUPPORTED", node.key.upper()))
    yield from _select_branches(node, views, lookups)


def _select_branches(
    select: exp.Select,
    views: Mapping[str, TableName],
    lookups: frozenset[TableName],
) -> Iterator[Branch]:
    _refuse_if(select, ("group", "having", "distinct", "limit", "offset", "qualify", "sort", "cluster", "distribute"))
    for node in _own_nodes(select):
        if isinstance(node, exp.Window) or is_aggregate(node):
            raise _Refused(Reason("UNSUPPORTED", _fragment(node)))
    fixed = frozenset(name for subquery in _expression_subqueries(select) for name in _tables(subquery, views))
    sides = _sides(select)
    combined = [Branch((), fixed)]
    for source, follows in sides:
        branches = _source_branches(source, follows, views, lookups)
        if len(branches) > 1 and len(sides) > 1:
            raise _Refused(Reason("UNSUPPORTED", "a join with a UNION ALL"))
        combined = [
            Branch(left.products + right.products, left.fixed | right.fixed) for left in combined for right in branches
        ]
    yield from combined


def _sides(select: exp.Select) -> list[tuple[exp.Expr, bool]]:
    """What stands in FROM and JOIN, each with whether new rows of it give new rows of the join and change no other."""
    start = select.args.get("from_") or select.args.get("from")
    if start is None:
        raise _Refused(Reason("UNSUPPORTED", "SELECT without FROM"))
    sides: list[tuple[exp.Expr, bool]] = [(start.this, True)]
    for join in select.args.get("joins") or ():
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if side in ("RIGHT", "FULL"):
            raise _Refused(Reason("UNSUPPORTED", f"{side} JOIN"))
        follows = side == "" and kind in ("", "INNER", "CROSS") and join.args.get("method") is None
        sides.append((join.this, follows))
    return sides


def _source_branches(
    source: exp.Expr,
    follows: bool,
    views: Mapping[str, TableName],
    lookups: frozenset[TableName],
) -> tuple[Branch, ...]:
    _refuse_clauses(source)
    name = _input(source, views)
    if name is not None:
        if name in lookups:
            return (Branch((), frozenset()),)
        return (Branch((name,), frozenset()) if follows else Branch((), frozenset({name})),)
    if not isinstance(source, exp.Subquery | exp.Select | exp.Union):
        raise _Refused(Reason("UNSUPPORTED", _fragment(source)))
    if follows:
        return tuple(_branches(source, views, lookups))
    return (Branch((), _tables(source, views)),)


def _input(source: exp.Expr, views: Mapping[str, TableName]) -> TableName | None:
    """The declared table that is read here, None where it is something else."""
    return views.get(source.name.lower()) if isinstance(source, exp.Table) else None


def _refuse_clauses(source: exp.Expr) -> None:
    """Refuse what stands beside a source in FROM (PIVOT, TABLESAMPLE, ..): it makes other rows of those that it has."""
    for argument, value in source.args.items():
        if value and argument not in _SOURCE_ARGUMENTS:
            raise _Refused(Reason("UNSUPPORTED", _fragment(source)))


def _refuse_if(node: exp.Expr, arguments: Sequence[str]) -> None:
    for argument in arguments:
        found = node.args.get(argument)
        if found:
            about = _fragment(found) if isinstance(found, exp.Expr) else argument.upper()
            raise _Refused(Reason("UNSUPPORTED", about))


def _own_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """The expressions of this SELECT, without those of queries inside it."""
    for argument, value in select.args.items():
        if argument in ("with", "with_", "from", "from_"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, exp.Expr):
                yield from child.walk(prune=lambda node: isinstance(node, exp.Query | exp.Subquery))


def _expression_subqueries(select: exp.Select) -> Iterator[exp.Expr]:
    """Queries inside expressions (EXISTS, IN, scalar), not those that stand in FROM or JOIN."""
    for argument, value in select.args.items():
        if argument in ("with", "with_", "from", "from_"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, exp.Expr):
                continue
            roots = [child.args.get("on")] if isinstance(child, exp.Join) else [child]
            for root in roots:
                if root is not None:
                    yield from root.find_all(exp.Query)


def _tables(node: exp.Expr, views: Mapping[str, TableName]) -> frozenset[TableName]:
    found = (_input(table, views) for table in node.find_all(exp.Table))
    return frozenset(name for name in found if name is not None)


# -- partitions that follow from one input -------------------------------------------------------------------------


def _origin(tree: exp.Expr, views: Mapping[str, TableName], partitioned_by: tuple[str, ...], text: str) -> Origin:
    traced = [_trace(tree, views, column, text) for column in partitioned_by]
    inputs = {name for name, _ in traced}
    if len(inputs) != 1:
        raise _Refused(Reason("UNSUPPORTED", f"partition columns from {_names(inputs)}"))
    (name,) = inputs
    times = sum(1 for table in tree.find_all(exp.Table) if _input(table, views) == name)
    if times != 1:
        raise _Refused(Reason("UNSUPPORTED", f"{name} is read {times} times"))
    return Origin(name, tuple(expression for _, expression in traced))


def _trace(node: exp.Expr, views: Mapping[str, TableName], column: str, text: str) -> tuple[TableName, str]:
    """The input, and the expression over its columns, that an output column is; every operator on the way keeps
    rows of one value of it apart from rows of another."""
    if isinstance(node, exp.Subquery):
        _refuse_if(node, ("limit", "offset"))
        return _trace(node.this, views, column, text)
    if not isinstance(node, exp.Select):
        raise _Refused(Reason("UNSUPPORTED", node.key.upper()))
    _refuse_if(node, ("limit", "offset"))
    expression = _projected(node, column)
    source = _preserved_source(node, expression, column)
    _require_local(node, expression, column, text)
    if any(isinstance(node, exp.Window | exp.Query | exp.UDTF) or is_aggregate(node) for node in expression.walk()):
        raise _Refused(Reason("UNSUPPORTED", f"partition column {column} = {_fragment(expression)}"))
    name = _input(source, views)
    if name is not None:
        return name, _text_of(text, expression, _name_of)
    used = {found.name for found in expression.find_all(exp.Column)}
    traced = {name: _trace(source, views, name, text) for name in used}
    origins = {name for name, _ in traced.values()}
    if len(origins) != 1:
        raise _Refused(Reason("UNSUPPORTED", f"partition column {column} = {_fragment(expression)}"))
    if isinstance(expression, exp.Column):
        return traced[expression.name]
    return next(iter(origins)), _text_of(text, expression, lambda found: f"({traced[found.name][1]})")


def _text_of(text: str, expression: exp.Expr, name_of: Callable[[exp.Column], str]) -> str:
    """The expression as it was written: what the parser prints of it may be another one."""
    if isinstance(expression, exp.Column):
        return name_of(expression)
    found = written_text(text, expression, name_of)
    if found is None:
        raise _Refused(Reason("UNSUPPORTED", f"{_fragment(expression)}: it cannot be taken out of the query"))
    return found


def _name_of(column: exp.Column) -> str:
    """The column's name, in backquotes where it needs them: texts of expressions are compared and shown."""
    name = column.name
    plain = (
        _PLAIN.match(name) and name.lower() not in _CALLED_WITHOUT_PARENTHESES and not column.this.args.get("quoted")
    )
    return name if plain else f"`{name.replace('`', '``')}`"


def _preserved_source(select: exp.Select, expression: exp.Expr, column: str) -> exp.Expr:
    """The one source whose columns the expression reads; refused where a join may put NULLs in their place."""
    sources = _sources(select)
    used = {reference.table.lower() for reference in expression.find_all(exp.Column)}
    if "" in used:
        if len(sources) != 1 or select.args.get("laterals"):
            raise _Refused(Reason("UNSUPPORTED", f"{_fragment(expression)}: qualify it with its table"))
        used = set(sources)
    if len(used) != 1:
        raise _Refused(Reason("UNSUPPORTED", f"partition column {column} = {_fragment(expression)}"))
    source, preserved = sources.get(next(iter(used)), (None, False))
    if source is None or not preserved:
        raise _Refused(Reason("UNSUPPORTED", f"partition column {column} from the optional side of a join"))
    _refuse_clauses(source)
    alias = source.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
        raise _Refused(Reason("UNSUPPORTED", f"{_fragment(alias)}: columns with other names"))
    return source


def _projected(select: exp.Select, column: str) -> exp.Expr:
    for item in select.expressions:
        if item.alias_or_name.lower() == column.lower():
            inner: exp.Expr = item.this if isinstance(item, exp.Alias) else item
            return inner
    if any(isinstance(item, exp.Star) or item.is_star for item in select.expressions):
        return exp.column(column)
    raise _Refused(Reason("UNSUPPORTED", f"partition column {column} is not in the select list"))


def _sources(select: exp.Select) -> dict[str, tuple[exp.Expr, bool]]:
    """Every source of the FROM by alias, with whether all its rows' columns survive the joins as they are."""
    start = select.args.get("from_") or select.args.get("from")
    if start is None:
        raise _Refused(Reason("UNSUPPORTED", "SELECT without FROM"))
    found: dict[str, tuple[exp.Expr, bool]] = {start.this.alias_or_name.lower(): (start.this, True)}
    for join in select.args.get("joins") or ():
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if kind in ("SEMI", "ANTI"):
            continue
        if side in ("RIGHT", "FULL"):
            found = {alias: (source, False) for alias, (source, _) in found.items()}
        found[join.this.alias_or_name.lower()] = (join.this, side in ("", "RIGHT"))
    return found


def _require_local(select: exp.Select, expression: exp.Expr, column: str, text: str) -> None:
    """Refuse operators that mix rows of different values of the partition column."""
    group = select.args.get("group")
    aggregated = any(is_aggregate(node) for node in _own_nodes(select))
    if group is not None:
        if any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup", "all", "totals")):
            raise _Refused(Reason("UNSUPPORTED", _fragment(group)))
        keys = []
        for key in group.expressions:
            if isinstance(key, exp.Literal) and key.is_int:
                item = select.expressions[int(key.name) - 1]
                keys.append(item.this if isinstance(item, exp.Alias) else item)
            else:
                keys.append(key)
        same_alias = any(isinstance(key, exp.Column) and key.name.lower() == column.lower() for key in keys)
        if not same_alias and not any(is_same(text, key, expression) for key in keys):
            raise _Refused(Reason("UNSUPPORTED", f"{_fragment(group)} without {column}"))
    elif aggregated:
        raise _Refused(Reason("UNSUPPORTED", "an aggregate over all rows"))
    for node in _own_nodes(select):
        if isinstance(node, exp.Window):
            keys = node.args.get("partition_by") or []
            if not any(is_same(text, key, expression) for key in keys):
                raise _Refused(Reason("WINDOW_WITHOUT_PARTITION", _fragment(node)))
