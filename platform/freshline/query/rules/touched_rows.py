"""The rows of a FROM and WHERE that changes of a relation may add, take away or alter.

For each relation that changed, the SELECT is read with the changed rows in its place: what it joins with is read
as it is now, and as it was. Where an outer join has the relation on its optional side, the rows that are kept without
a partner are affected too: they are those that a changed row would match. A relation inside EXISTS, IN or a scalar
subquery affects the rows for which the subquery would see a changed row. A subquery that is the same for every row
affects those for which its condition in WHERE or HAVING was true and is not, or the reverse. So does the time, for the
rows that a temporal filter lets through at one instant and not at the other.

Derived from the product rule for joins, d(L x R) = dL x R_new + L_old x dR, in the form that works for sets of
touched rows: dL with R at both times, and dR with L at both times, have every row of the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from freshline.query.clock import reads_clock
from freshline.query.exactness import Exactness, inexact
from freshline.query.functions import is_aggregate
from freshline.query.tree import (
    KINDS,
    NotDerivedError,
    RelationState,
    aliases_in,
    all_of,
    conjuncts,
    empty_source,
    fragment,
    item_expression,
    kind_of,
    own_nodes,
    own_queries,
    read_as,
    relations_in,
    sources_of,
    touched_mark,
    touched_source,
    unsupported,
)
from freshline.values.clock import CLOCK
from freshline.values.reason import Reason

# The parts of a SELECT in which queries inside expressions can stand.
PLACES = ("expressions", "where", "group", "having", "qualify", "windows", "order", "laterals")


@dataclass(frozen=True)
class Touched:
    """A FROM with joins, and conditions, whose rows include all that one change affects.

    `start` and `joins` are the parts of a SELECT; relations in it are still to be read as of one time. `both` says
    whether something else changed too, so that old and new times must both be read. `padded` are the aliases of
    sources that were emptied, for rows that are kept without a partner. With `having`, the rows are those of the groups
    by `group` that pass it. `source` is the source whose changed rows are read, None where it is none of the FROM.
    """

    start: exp.Expr
    joins: tuple[exp.Join, ...]
    laterals: tuple[exp.Expr, ...]
    where: tuple[exp.Expr, ...]
    both: bool
    padded: frozenset[str] = frozenset()
    group: exp.Expr | None = None
    having: exp.Expr | None = None
    source: exp.Expr | None = None

    def tables(self) -> list[exp.Expr]:
        """The sources in FROM and the joins, in order."""
        return [self.start, *(join.this for join in self.joins)]

    def select(self, items: Sequence[exp.Expr], group: exp.Expr | None = None) -> exp.Select:
        """A SELECT of these items over the rows."""
        group = group or self.group
        made = exp.Select(expressions=[item.copy() for item in items])
        made.set("from_", exp.From(this=self.start.copy()))
        made.set("joins", [join.copy() for join in self._needed((*items, group))])
        made.set("laterals", [lateral.copy() for lateral in self.laterals])
        condition = all_of(self.where)
        if condition is not None:
            made.set("where", exp.Where(this=condition))
        if group is not None:
            made.set("group", group.copy())
        if self.having is not None:
            made.set("having", exp.Having(this=self.having.copy()))
        return made

    def is_there(self) -> exp.Expr:
        """The condition that there is such a row."""
        return exp.Exists(this=self.select([exp.Literal.number(1)]))

    def looks_outside(self, inside: frozenset[str]) -> bool:
        """Whether a condition reads a column of another source than these."""
        parts = (*self.where, *self.joins, *([] if self.having is None else [self.having]))
        columns = [column for part in parts for column in part.find_all(exp.Column)]
        return any(column.table and column.table not in inside for column in columns)

    def adds(self, items: Sequence[exp.Expr]) -> bool:
        """Whether these items can differ from those of the rows that have a partner.

        A row without a partner differs from the same row with one only in what the partner gives.
        """
        if not self.padded:
            return True
        parts = (*items, *self.where, *self.laterals, *(join.args.get("on") for join in self.joins))
        return any(
            column.table in self.padded
            for part in parts
            if part is not None and part not in self._own_conditions()
            for column in _columns_outside(part)
        )

    def _own_conditions(self) -> tuple[exp.Expr | None, ...]:
        return tuple(join.args.get("on") for join in self.joins if join.this.alias_or_name in self.padded)

    def _needed(self, items: Sequence[exp.Expr | None]) -> list[exp.Join]:
        """The joins without those that only add columns which nothing here reads; a LEFT JOIN takes no row away."""
        joins = list(self.joins)
        if self.having is not None:
            return joins  # a partner more is a row more of the group
        for join in reversed(self.joins):
            if KINDS.get(((join.side or "").upper(), (join.kind or "").upper())) != "LEFT":
                continue
            others = (other.args.get("on") for other in joins if other is not join)
            alias = join.this.alias_or_name
            parts = (*items, *self.where, *self.laterals, *others, self.having)
            if not any(
                column.table == alias for part in parts if part is not None for column in part.find_all(exp.Column)
            ):
                joins.remove(join)
        return joins


def _columns_outside(part: exp.Expr) -> Iterator[exp.Column]:
    """The columns of an expression that are not of sources inside it."""
    inside = aliases_in(part)
    for column in part.find_all(exp.Column):
        if column.table not in inside:
            yield column


@dataclass(frozen=True)
class _Rows:
    """Some first sources of a FROM, and conditions on their rows."""

    start: exp.Expr
    joins: tuple[exp.Join, ...]
    where: tuple[exp.Expr, ...]
    padded: frozenset[str] = frozenset()


def touched_rows(
    select: exp.Select, changed: frozenset[str], guards: list[tuple[exp.Select, Reason]], exactness: Exactness
) -> list[Touched]:
    """All that changes of the relations `changed` may affect of the rows that the SELECT works on, before grouping.

    Guards are added to `guards` where an answer is right only while a query has no row. Conditions that are not exact
    are left out: a row that passed one when it was stored may not pass it when it is computed again.
    """
    _require_known(select, changed)
    start = select.args.get("from_")
    if start is None:
        return []
    joins: list[exp.Join] = list(select.args.get("joins") or ())
    laterals = tuple(exactness.exact_only(select.args.get("laterals") or (), select))
    timed = [part for part in _where(select) if CLOCK in changed and reads_clock(part)]
    still = (part for part in _where(select) if part not in timed and not _reads(part, changed))
    steady = tuple(exactness.exact_only(still, select))
    # A row that came or went counts if it was let through before, or is now.
    kept = (*steady, *(_at_either(part, changed) for part in exactness.exact_only(timed, select)))
    sources = sources_of(select)
    moved = [index for index, source in enumerate(sources) if isinstance(source, exp.Table) and source.name in changed]
    asked = exactness.asked_by_joins(select)
    inner = [*_changed_subqueries(select, changed), *_changed_in_joins(asked, changed)]
    both = sum(table.name in changed for part in (select, *asked) for table in part.find_all(exp.Table)) > 1
    found = [
        Touched(rows.start, rows.joins, laterals, (*rows.where, *kept), both, rows.padded, source=sources[index])
        for index in moved
        for rows in _changed_at(sources[0], joins, index)
    ]
    everything = Touched(start.this, tuple(joins), laterals, kept, both)
    if timed:
        crossing = _crossing(timed, select, changed, exactness)
        found.append(replace(everything, where=(*crossing, *steady), both=False))
    for inside in inner:
        known = exactness.within_joins() if inside.place == "on" else exactness
        conditions = _seen_by(inside, changed, guards, select, known)
        if conditions is None:
            found.append(_decided_by(inside, everything, select, changed, known))
        else:
            # The row is there before and after, and what the subquery gives for it may be part of its key.
            found += [replace(everything, where=(part, *kept), both=True) for part in conditions]
    return found


def _require_known(select: exp.Select, changed: frozenset[str]) -> None:
    for argument in ("limit", "offset", "match", "connect", "sample", "pivots"):
        if select.args.get(argument):
            found = select.args[argument]
            raise unsupported(fragment(found) if isinstance(found, exp.Expr) else argument.upper())
    for join in select.args.get("joins") or ():
        if own_queries(join.args.get("on")):
            raise unsupported(f"a subquery in {fragment(join)}")
    if select.args.get("from_") is None and relations_in(select) & changed:
        raise NotDerivedError(Reason("NO_KEY", f"{fragment(select)} has one row"))
    looked_at = [*sources_of(select), *(query for place in PLACES for query in _queries_at(select, place))]
    tables = {id(table) for part in looked_at for table in part.find_all(exp.Table) if table.name in changed}
    for table in select.find_all(exp.Table):
        if table.name in changed and id(table) not in tables:
            raise unsupported(f"{fragment(table)} where queries are not followed")


def _queries_at(select: exp.Select, place: str) -> list[exp.Query]:
    """The outermost queries in the expressions of one part of a SELECT."""
    value = select.args.get(place)
    nodes = [node for node in (value if isinstance(value, list) else [value]) if isinstance(node, exp.Expr)]
    return [query for node in nodes for query in own_queries(node)]


def kept_sources(select: exp.Select) -> frozenset[str]:
    """The aliases of the sources that no outer join pads with NULL."""
    sources = sources_of(select)
    kept = {sources[0].alias_or_name} if sources else set()
    for join in select.args.get("joins") or ():
        kind = kind_of(join)
        if kind in ("RIGHT", "FULL"):
            kept = set()
        if kind in ("INNER", "RIGHT"):
            kept.add(join.this.alias_or_name)
    return frozenset(kept)


def _where(select: exp.Select) -> list[exp.Expr]:
    return _conditions(select, "where")


def _conditions(select: exp.Select, place: str) -> list[exp.Expr]:
    """The conditions of WHERE or HAVING that must all be true."""
    clause = select.args.get(place)
    return conjuncts(clause.this) if clause is not None else []


def _reads(node: exp.Expr, changed: frozenset[str]) -> bool:
    return any(relations_in(query) & changed for query in own_queries(node))


# -- joins ---------------------------------------------------------------------------------------------------------


def _changed_at(start: exp.Expr, joins: Sequence[exp.Join], index: int) -> list[_Rows]:
    """The rows of a FROM that contain a changed row of the source `index`, or would but for it."""
    if not joins:
        return [_Rows(touched_source(start), (), (touched_mark(start),))]
    *before, join = joins
    kind = kind_of(join)
    on = join.args.get("on") or exp.true()
    source = join.this
    if index < len(joins):
        inner = _changed_at(start, before, index)
        found = [_Rows(rows.start, (*rows.joins, join), rows.where, rows.padded) for rows in inner]
        if kind in ("RIGHT", "FULL"):
            nothing = [_with_source(item, empty_source(item.this)) for item in before]
            found += [_Rows(empty_source(start), (*nothing, join), (_exists(rows, on),)) for rows in inner]
        return found
    changed = _Rows(touched_source(source), (), (touched_mark(source),))
    if kind in ("SEMI", "ANTI"):
        return [_Rows(start, tuple(before), (_exists(changed, on),))]
    found = [_Rows(start, (*before, _with_source(join, changed.start)), changed.where)]
    if kind in ("LEFT", "FULL"):
        padded = _with_source(join, empty_source(source))
        alias = frozenset({source.alias_or_name})
        found.append(_Rows(start, (*before, padded), (_exists(changed, on),), alias))
    return found


def _with_source(join: exp.Join, source: exp.Expr) -> exp.Join:
    copied = join.copy()
    copied.set("this", source.copy())
    assert isinstance(copied, exp.Join)
    return copied


def _exists(rows: _Rows, on: exp.Expr) -> exp.Expr:
    """Whether a join's condition is true for some of the rows with the row outside."""
    return Touched(rows.start, rows.joins, (), (*rows.where, on), False).is_there()


# -- queries inside expressions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Inside:
    """A query that reads changed relations, inside an expression.

    `node` is EXISTS or IN around it, or the query itself. `condition` is the whole condition of `place`, WHERE, HAVING
    or ON, that it is a part of; None in other places.
    """

    node: exp.Expr
    place: str
    condition: exp.Expr | None

    @property
    def query(self) -> exp.Select:
        node = self.node
        query = node.args["query"] if isinstance(node, exp.In) else node.this if isinstance(node, exp.Exists) else node
        while isinstance(query, exp.Subquery):
            query = query.this
        if not isinstance(query, exp.Select):
            raise unsupported(fragment(query))
        return query


def _changed_subqueries(select: exp.Select, changed: frozenset[str]) -> list[_Inside]:
    """The queries inside expressions that read changed relations."""
    found: list[_Inside] = []
    for place in PLACES:
        if place in ("where", "having"):
            parts = _conditions(select, place)
            found += [
                _Inside(_around(query), place, part)
                for part in parts
                for query in own_queries(part)
                if relations_in(query) & changed
            ]
        else:
            queries = _queries_at(select, place)
            found += [_Inside(_around(query), place, None) for query in queries if relations_in(query) & changed]
    return found


def _changed_in_joins(asked: Sequence[exp.Expr], changed: frozenset[str]) -> list[_Inside]:
    """The same in conditions that were taken from joins, and queries: all rows that may match are read instead."""
    return [
        _Inside(query, "lateral", None) if part is query else _Inside(_around(query), "on", part)
        for part in asked
        for query in own_queries(part)
        if relations_in(query) & changed
    ]


def _around(query: exp.Query) -> exp.Expr:
    """EXISTS or IN around a query; else the query."""
    around: exp.Expr = query
    while isinstance(around.parent, exp.Subquery | exp.Paren):
        around = around.parent
    parent = around.parent
    if isinstance(parent, exp.Exists) or (isinstance(parent, exp.In) and parent.args.get("query") is around):
        return parent
    return query


def _seen_by(
    inside: _Inside,
    changed: frozenset[str],
    guards: list[tuple[exp.Select, Reason]],
    select: exp.Select,
    exactness: Exactness,
) -> list[exp.Expr] | None:
    """Conditions on the outer row under which the subquery may see a changed row; None where no outer row matters."""
    node, query = inside.node, inside.query
    if query.args.get("qualify") or any(isinstance(part, exp.Window) for part in own_nodes(query)):
        raise unsupported(f"{fragment(query)}: a window function inside an expression")
    if isinstance(node, exp.Exists):
        # How many rows there are does not matter to EXISTS.
        query = query.copy()
        query.set("limit", None)
    also: list[exp.Expr] = []
    if isinstance(node, exp.In):
        _require_plain_in(node, query)
        selected = item_expression(query.expressions[0])
        if not (exactness.is_exact(selected, query) and exactness.is_exact(node.this, select)):
            raise inexact(node)
        also.append(exp.NullSafeEQ(this=selected.copy(), expression=exp.paren(node.this.copy())))
    found: list[exp.Expr] = []
    sources = aliases_in(query)
    for rows in touched_rows(query, changed, guards, exactness):
        seen = replace(rows, where=(*rows.where, *also))
        if not seen.looks_outside(sources):
            return None
        if any(is_aggregate(part) for condition in seen.where for part in own_nodes(condition)):
            raise unsupported(f"{fragment(query)}: an aggregate of the outer query")
        if isinstance(node, exp.In) and node is not inside.condition:
            condition = _not_in(node, query, rows, sources, guards)
        else:
            condition = seen.is_there()
        # Rows that match now need not have matched before, and the other way round: the outer row is read as of either
        # time, and at each of them it is affected by what its subquery saw at the other.
        found += (
            [read_as(condition, at, changed) for at in (RelationState.NEW, RelationState.OLD)]
            if rows.both
            else [condition]
        )
    return found


def _decided_by(
    inside: _Inside, everything: Touched, select: exp.Select, changed: frozenset[str], exactness: Exactness
) -> Touched:
    """The rows (or groups, in HAVING) that a subquery lets through at one time and not at the other.

    Such a subquery is the same for every row. A row that it affects has not changed itself, so it is searched as of now
    only.
    """
    condition = inside.condition
    if condition is None or isinstance(inside.node, exp.In):
        raise NotDerivedError(Reason("NO_KEY", f"{fragment(inside.query)} is the same for every row"))
    if not exactness.is_exact(condition, select):
        raise inexact(condition)
    # Not written with NOT, below which Spark allows no IN.
    one, zero = exp.Literal.number(1), exp.Literal.number(0)
    new, old = (
        exp.Case(ifs=[exp.If(this=read_as(condition, reading, changed), true=one.copy())], default=zero.copy())
        for reading in (RelationState.NEW, RelationState.OLD)
    )
    differs = exp.EQ(this=exp.Add(this=new, expression=old), expression=one)
    if inside.place in ("where", "on"):
        return replace(everything, where=(differs, *everything.where), both=False)
    if not exactness.has_exact_groups(select):
        raise inexact(condition)
    kept = exactness.exact_only((part for part in _conditions(select, "having") if not _reads(part, changed)), select)
    # The aggregates of a group follow from just its rows, of which no condition may be left out.
    where, group = tuple(_where(select)), select.args.get("group")
    return replace(everything, where=where, both=False, group=group, having=all_of([differs, *kept]))


def _at_either(condition: exp.Expr, changed: frozenset[str]) -> exp.Expr:
    """The condition that a temporal filter lets a row through at one of the two instants."""
    new, old = (read_as(condition, reading, changed) for reading in (RelationState.NEW, RelationState.OLD))
    return exp.or_(new, old, copy=False)


def _crossing(
    timed: Sequence[exp.Expr], select: exp.Select, changed: frozenset[str], exactness: Exactness
) -> list[exp.Expr]:
    """Conditions for the rows that all of the temporal filters let through at one instant and not at the other.

    They are comparisons with literals, so that scans can skip files by them.
    """
    for part in timed:
        if not exactness.is_exact(part, select):
            raise inexact(part)
    at_both = all_of(
        read_as(part, reading, changed) for part in timed for reading in (RelationState.NEW, RelationState.OLD)
    )
    assert at_both is not None
    return [*(_at_either(part, changed) for part in timed), exp.Not(this=exp.paren(at_both))]


def _require_plain_in(node: exp.In, query: exp.Select) -> None:
    """IN over one column that is a value of single rows; anything else is refused."""
    selected = item_expression(query.expressions[0])
    group = query.args.get("group")
    if len(query.expressions) != 1 or isinstance(node.this, exp.Tuple):
        raise unsupported(fragment(node))
    if any(is_aggregate(inner) for inner in selected.walk()):
        raise unsupported(f"IN over the aggregate {fragment(selected)}")
    if any(isinstance(inner, exp.Window) or is_aggregate(inner) for inner in own_nodes(node.this)):
        raise unsupported(f"{fragment(node.this)} IN a query")
    if group is not None and any(True for _ in group.find_all(exp.Rollup, exp.Cube, exp.GroupingSets)):
        # A NULL there is not one of any row.
        raise unsupported(f"IN over {fragment(group)}")


def _not_in(
    node: exp.In, query: exp.Select, rows: Touched, sources: frozenset[str], guards: list[tuple[exp.Select, Reason]]
) -> exp.Expr:
    """The condition on the outer row under which NOT IN, or IN in an expression, may see one of the rows.

    `x NOT IN (..)` is true for no x while there is a NULL among the values, so a NULL that comes or goes affects every
    row that sees it. Where x is NULL it matters whether there is any row at all.
    """
    selected = item_expression(query.expressions[0])
    same = exp.NullSafeEQ(this=selected.copy(), expression=exp.paren(node.this.copy()))
    null = exp.Is(this=selected.copy(), expression=exp.null())
    asked = exp.Is(this=exp.paren(node.this.copy()), expression=exp.null())
    if rows.looks_outside(sources):
        either = exp.paren(exp.or_(same, null, copy=False))
        return exp.or_(replace(rows, where=(*rows.where, either)).is_there(), asked, copy=False)
    # All rows see the same values: the guard asks once for what would affect them all.
    nothing = replace(rows, where=(*rows.where, null))
    guards.append((nothing.select([exp.Literal.number(1)]), Reason("NULLABLE_NOT_IN", fragment(node))))
    return exp.or_(replace(rows, where=(*rows.where, same)).is_there(), asked, copy=False)
