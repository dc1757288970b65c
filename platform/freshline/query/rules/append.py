"""Append: the inputs that may be replaced by their new rows, so that the query over them gives the result's new rows.

Read from the syntax alone. A query for which that is never so is refused with the operator that stands in the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from freshline.query.functions import is_aggregate
from freshline.query.query import Query
from freshline.query.tree import (
    NotDerivedError,
    expression_nodes,
    expression_queries,
    fragment,
    refuse_arguments,
    refuse_clauses,
    unsupported,
)
from freshline.values.names import TableName
from freshline.values.reason import Reason

# The parts of a SELECT by which a row of the result follows from more than one combination of rows.
NOT_BY_ROW = ("group", "having", "distinct", "limit", "offset", "qualify", "sort", "cluster", "distribute")


@dataclass(frozen=True)
class Branch:
    """One SELECT of a UNION ALL (or the only one).

    `products` are the inputs whose new rows give new rows (an input that is read twice stands twice); `fixed` are
    those that must not have changed for that.
    """

    products: tuple[TableName, ...]
    fixed: frozenset[TableName]


@dataclass(frozen=True)
class Branches:
    """The SELECTs whose rows together are those of the query, each of which turns new rows into new rows."""

    branches: tuple[Branch, ...]

    def delta_inputs(self, changed: frozenset[TableName]) -> frozenset[TableName] | Reason:
        """The inputs to be read as their new rows only, when exactly `changed` gained rows; or why that is wrong.

        Of every branch exactly one input is read as new rows: the one that changed, or one that did not and so
        makes the branch yield nothing. No input may be needed whole in one branch and new in another.
        """
        as_changes: set[TableName] = set()
        whole: set[TableName] = set()
        undecided: list[Branch] = []
        for branch in self.branches:
            if branch.fixed & changed:
                return Reason("UNSUPPORTED", f"{_shown(branch.fixed & changed)} changed inside a join or subquery")
            moved = [name for name in branch.products if name in changed]
            if len(moved) > 1:
                return Reason("UNSUPPORTED", f"join of {_shown(moved)}, which both changed")
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
            return Reason("UNSUPPORTED", f"{_shown(as_changes & whole)} is read more than once")
        return frozenset(as_changes)


@lru_cache(maxsize=2048)
def find_branches(query: Query) -> Branches | Reason:
    """The branches of a query that turns new rows into new rows, or the reason why it does not. Pure."""
    if query.volatile is not None:
        return Reason("NONDETERMINISTIC", query.volatile)
    try:
        return Branches(tuple(_branches(query.expanded, query)))
    except NotDerivedError as error:
        return error.reason


def _shown(names: Iterable[TableName]) -> str:
    return " and ".join(sorted(str(name) for name in names))


def _branches(node: exp.Expr, query: Query) -> Iterator[Branch]:
    """The branches of a query expression; raises NotDerivedError with the operator that gives more than new rows."""
    if isinstance(node, exp.Subquery):
        refuse_arguments(node, ("limit", "offset", "order"))
        yield from _branches(node.this, query)
        return
    if isinstance(node, exp.Union) and not isinstance(node, exp.Except | exp.Intersect):
        if node.args.get("distinct"):
            raise unsupported("UNION")
        refuse_arguments(node, ("limit", "offset"))
        yield from _branches(node.this, query)
        yield from _branches(node.expression, query)
        return
    if not isinstance(node, exp.Select):
        raise unsupported(node.key.upper())
    yield from _select_branches(node, query)


def _select_branches(select: exp.Select, query: Query) -> Iterator[Branch]:
    refuse_arguments(select, NOT_BY_ROW)
    for node in expression_nodes(select):
        if isinstance(node, exp.Window) or is_aggregate(node):
            raise unsupported(fragment(node))
    fixed = frozenset(name for inside in expression_queries(select) for name in query.inputs_in(inside))
    sides = _sides(select)
    combined = [Branch((), fixed)]
    for source, follows in sides:
        branches = _source_branches(source, follows, query)
        if len(branches) > 1 and len(sides) > 1:
            raise unsupported("a join with a UNION ALL")
        combined = [
            Branch(left.products + right.products, left.fixed | right.fixed) for left in combined for right in branches
        ]
    yield from combined


def _sides(select: exp.Select) -> list[tuple[exp.Expr, bool]]:
    """The sources in FROM and JOIN, each with whether its new rows give new rows of the join and change no other."""
    start = select.args.get("from_")
    if start is None:
        raise unsupported("SELECT without FROM")
    sides: list[tuple[exp.Expr, bool]] = [(start.this, True)]
    for join in select.args.get("joins") or ():
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if side in ("RIGHT", "FULL"):
            raise unsupported(f"{side} JOIN")
        follows = side == "" and kind in ("", "INNER", "CROSS") and join.args.get("method") is None
        sides.append((join.this, follows))
    return sides


def _source_branches(source: exp.Expr, follows: bool, query: Query) -> tuple[Branch, ...]:
    refuse_clauses(source)
    name = query.input_of(source)
    if name is not None:
        if name in query.lookups:
            return (Branch((), frozenset()),)
        return (Branch((name,), frozenset()) if follows else Branch((), frozenset({name})),)
    if not isinstance(source, exp.Subquery | exp.Select | exp.Union):
        raise unsupported(fragment(source))
    if follows:
        return tuple(_branches(source, query))
    return (Branch((), query.inputs_in(source)),)
