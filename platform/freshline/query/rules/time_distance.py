"""The distance from the time of an affected key to the rows that it follows from, for each input of a query.

A row of a result with the time v follows from rows of an input whose own times lie around v: in the window of v, in the
frame of a window function, in the interval of a join. So with the affected times known, an input needs to be read only
around them. The query itself stays as it is: it gives the rows of these times as from the whole inputs, and other rows
that nobody asks for.

The query is followed from the column of the result down to the inputs. At each SELECT the rows that are asked for are
those of one source within a range of times. Another source is needed where its time can match one of these:

- by a condition of WHERE or of an inner join, which is true of every row of the result
- by a condition of the outer join that brings the other source, for only rows of which it is true are partners
- by a condition of the join that brings the first source: a row without a partner there has no time, and is not asked
  for

All these conditions are NULL where a time is, so a missing partner passes none of them. Of an input that is read
several times all readings must be bounded. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from sqlglot import exp

from freshline.query.exactness import Exactness, read_exactness
from freshline.query.functions import is_aggregate
from freshline.query.resolved import Lifted, ResolvedQuery
from freshline.query.rules.frames import Frame, frame_of, windows_in
from freshline.query.rules.time_range import Lateral, Scale, TimeRange, range_of
from freshline.query.rules.touched_rows import kept_sources
from freshline.query.tree import (
    NotDerivedError,
    conjuncts,
    expression_queries,
    items_by_name,
    kind_of,
    relations_in,
    same,
    sources_of,
)

SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


@dataclass(frozen=True)
class TimeDistance:
    """Rows of a result whose column `key` is v follow from rows of `relation` whose `column` is near v.

    That is from v + `least` to v + `greatest`, in microseconds; an end may be infinite. `nulls` says that rows without
    a time are needed too. With `null_keys`, a row whose `key` is NULL follows from rows without a time.
    """

    key: str
    relation: str
    column: str
    least: float
    greatest: float
    nulls: bool = False
    null_keys: bool = True


@dataclass(frozen=True)
class _Span:
    """A column of times, and how far its values lie from those of the key."""

    column: str
    scale: Scale
    least: float
    greatest: float

    @property
    def width(self) -> float:
        return self.greatest - self.least

    @property
    def is_bounded(self) -> bool:
        return self.least > -math.inf or self.greatest < math.inf


def find_time_distances(query: ResolvedQuery, column: str) -> tuple[TimeDistance, ...]:
    """The spans around the times of a column of the result that each reading of an input is needed in.

    Inputs of which more is needed are left out. The first is the one that the column comes from.
    """
    try:
        exactness = read_exactness(query)
        walk = _Walk(exactness, column)
        walk.visit(exactness.lifted.top, _Span(column, Scale.TIME, 0, 0), own=True)
    except NotDerivedError:
        return ()
    return tuple(
        replace(reach, null_keys=walk.null_keys)
        for found in walk.found.values()
        if found is not None
        for reach in dict.fromkeys(found)
    )


class _Walk:
    """Follows a column down to the inputs. `found` has None for an input that is needed as a whole."""

    def __init__(self, exactness: Exactness, key: str) -> None:
        self.exactness = exactness
        self.stages = {item.relation: item for item in exactness.lifted.stages}
        self.key = key
        self.found: dict[str, list[TimeDistance] | None] = {}
        # NULL is a key like any other only while it comes from rows without a time.
        self.null_keys = True

    def visit(self, item: Lifted, span: _Span, *, own: bool, nulls: bool = False) -> None:
        """The rows of a query whose column lies in a span are needed, with `nulls` those without a time too.

        `own` says that the key comes from them.
        """
        if isinstance(item.query, exp.SetOperation):
            place = item.columns.index(span.column)
            for side in (item.query.this, item.query.expression):
                name = side.args["from_"].this.name
                named = replace(span, column=self.stages[name].columns[place])
                self._down(name, named, own=own, nulls=nulls)
            return
        select = item.query
        assert isinstance(select, exp.Select)
        written = self.exactness.written(item)
        assert isinstance(written, exp.Select)
        # Those that were taken from joins are read all the same.
        for inside in expression_queries(written):
            self._whole(relations_in(inside))
        sources = {source.alias_or_name: source.name for source in sources_of(select)}
        expression = items_by_name(select)[span.column]
        found = range_of(expression, span.scale, laterals_of(select))
        around = None
        if found is not None and found.table in sources:
            around = _around(select, expression, found, span)
        if found is None or around is None:
            self._whole(sources.values())
            return
        first, open_frame = around
        padded = found.table not in kept_sources(select)
        if padded and (nulls or open_frame):
            # Rows without a partner are among those without a time.
            self._whole(sources.values())
            return
        if own and (open_frame or padded):
            self.null_keys = False
        spans = _spread(select, found.table, first)
        for alias, relation in sources.items():
            if alias == found.table:
                self._down(relation, first, own=own, nulls=nulls or open_frame)
            elif alias in spans:
                self._down(relation, spans[alias], own=False, nulls=False)
            else:
                self._whole([relation])

    def _down(self, relation: str, span: _Span, *, own: bool, nulls: bool) -> None:
        if not span.is_bounded:
            self._whole([relation])
        elif relation in self.stages:
            self.visit(self.stages[relation], span, own=own, nulls=nulls)
        elif span.scale is not Scale.TIME:
            self._whole([relation])
        else:
            reach = TimeDistance(self.key, relation, span.column, span.least, span.greatest, nulls)
            known = self.found.setdefault(relation, [])
            if known is not None:
                known.append(reach)

    def _whole(self, relations: Iterable[str]) -> None:
        for relation in relations:
            if relation not in self.stages:
                self.found[relation] = None
                continue
            self._whole(relations_in(self.exactness.written(self.stages[relation])))


def laterals_of(select: exp.Select) -> Lateral:
    """The expression of the LATERAL VIEW that a column of a SELECT is of."""
    made = {
        (lateral.args["alias"].name, column.name): lateral.this
        for lateral in select.args.get("laterals") or ()
        if lateral.args.get("alias") and not lateral.args.get("outer")
        for column in lateral.args["alias"].args.get("columns") or ()
    }
    return lambda column: made.get((column.table, column.name))


def _around(select: exp.Select, item: exp.Expr, found: TimeRange, asked: _Span) -> tuple[_Span, bool] | None:
    """The times of the source that rows with these values follow from, and whether a frame has rows without a time.

    None where they follow from rows of other values too, however far from these.
    """
    group = select.args.get("group")
    if group is not None:
        if any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup", "all", "totals")):
            return None
        keys = group.expressions
        if any(isinstance(key, SETS) for key in keys) or not any(_is_of(item, key) for key in keys):
            return None
    elif any(is_aggregate(node) and not isinstance(node.parent, exp.Window) for node in _outside_windows(select)):
        return None
    # Whole numbers as long as there is an end: beyond the year 2255 a float has no microseconds.
    before: float = 0
    after: float = 0
    open_frame = False
    for window in windows_in(select):
        if any(_is_of(item, part) for part in window.args.get("partition_by") or ()):
            continue
        frame = frame_of(window)
        order = None if frame is None else _order(frame, item, found, select, grouped=group is not None)
        if frame is None or order is None:
            return None
        lag, lead = order
        before, after = max(before, frame.before + lag), max(after, frame.after + lead)
        open_frame |= frame.is_open
    least, greatest = asked.least - found.greatest - before, asked.greatest - found.least + after
    return _Span(found.column, found.scale, least, greatest), open_frame


def _outside_windows(select: exp.Select) -> Iterator[exp.Expr]:
    for part in (*select.expressions, select.args.get("having"), select.args.get("qualify")):
        if part is not None:
            yield from part.walk(prune=lambda node: isinstance(node, exp.Query | exp.Window))


def _is_of(item: exp.Expr, key: exp.Expr) -> bool:
    """Whether rows of one value of a key have one value of an item."""
    return same(item, key) or (isinstance(item, exp.Dot) and same(item.this, key))


def _order(
    frame: Frame, item: exp.Expr, found: TimeRange, select: exp.Select, *, grouped: bool
) -> tuple[int, int] | None:
    """The distance beyond its width that a frame reaches from the source's times, where it is ordered by these."""
    if same(frame.order, item):
        return 0, 0
    order = range_of(frame.order, frame.scale, laterals_of(select))
    if grouped or order is None or (order.table, order.column, order.scale) != (found.table, found.column, found.scale):
        return None
    return order.greatest - order.least, order.greatest - order.least


# -- from one source of a FROM to the others ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Condition:
    """A condition, and between which sources it can be relied on: all, or from sources of `left` to `right` alone.

    `right` is the source that a join brings, and `left` has those before it.
    """

    node: exp.Expr
    everywhere: bool
    left: frozenset[str] = frozenset()
    right: str = ""

    def leads(self, known: str, first: str, other: str) -> bool:
        """Whether the times of the source `known` decide which rows of `other` are needed for rows of `first`."""
        if self.everywhere or (other == self.right and known in self.left):
            return True
        return known == first == self.right and other in self.left


def _spread(select: exp.Select, first: str, span: _Span) -> dict[str, _Span]:
    """The times of each source that are needed for rows of the source `first` within a span."""
    conditions = list(_conditions(select))
    spans = {first: span}
    others: dict[tuple[str, str, Scale], _Span] = {}
    for _ in sources_of(select):
        for condition in conditions:
            for bound in comparisons(condition.node):
                for known, told in list(spans.items()):
                    for made in _told(bound, known, told):
                        if made.table != first and condition.leads(known, first, made.table):
                            place = (made.table, made.span.column, made.span.scale)
                            before = others.get(place, made.span)
                            others[place] = _Span(
                                made.span.column,
                                made.span.scale,
                                max(before.least, made.span.least),
                                min(before.greatest, made.span.greatest),
                            )
        for (table, _, _), found in others.items():
            known_span = spans.get(table)
            if known_span is None or found.width <= known_span.width:
                spans[table] = found
    return spans


def _conditions(select: exp.Select) -> Iterator[_Condition]:
    where = select.args.get("where")
    for node in conjuncts(where.this) if where is not None else ():
        yield _Condition(node, everywhere=True)
    start = select.args.get("from_")
    left = {start.this.alias_or_name} if start is not None else set()
    for join in select.args.get("joins") or ():
        right = join.this.alias_or_name
        for node in conjuncts(join.args.get("on")):
            yield _Condition(node, kind_of(join) == "INNER", frozenset(left), right)
        left.add(right)


@dataclass(frozen=True)
class Comparison:
    """`left` <= `right`; NULL in one of them does not pass it, but where `or_null`: then NULL as `right` does."""

    left: exp.Expr
    right: exp.Expr
    or_null: bool = False


def comparisons(node: exp.Expr) -> list[Comparison]:
    """The comparisons that a condition is made of; none for another condition."""
    node = node.unnest()
    match node:
        case exp.LT() | exp.LTE():
            return [Comparison(node.this, node.expression)]
        case exp.GT() | exp.GTE():
            return [Comparison(node.expression, node.this)]
        case exp.EQ():
            return [Comparison(node.this, node.expression), Comparison(node.expression, node.this)]
        case exp.Between():
            return [Comparison(node.args["low"], node.this), Comparison(node.this, node.args["high"])]
        case exp.Or():
            return _until(node.this.unnest(), node.expression.unnest())
        case _:
            return []


def _until(null: exp.Expr, compared: exp.Expr) -> list[Comparison]:
    """`until IS NULL OR ts < until`."""
    if not isinstance(null, exp.Is) or not isinstance(null.expression, exp.Null):
        return []
    return [
        Comparison(each.left, each.right, or_null=True)
        for each in comparisons(compared)
        if same(each.right, null.this) and len(comparisons(compared)) == 1
    ]


@dataclass(frozen=True)
class _Told:
    table: str
    span: _Span


def _told(bound: Comparison, known: str, span: _Span) -> Iterator[_Told]:
    """The spans of other sources that follow from a comparison with one whose span is known."""
    if bound.or_null:
        return
    for scale in (Scale.TIME, Scale.MICROSECONDS):
        left, right = range_of(bound.left, scale), range_of(bound.right, scale)
        if left is None or right is None or left.table == right.table:
            continue
        if _is_at(left, known, span):
            least = span.least + left.least - right.greatest
            yield _Told(right.table, _Span(right.column, right.scale, least, math.inf))
        if _is_at(right, known, span):
            greatest = span.greatest + right.greatest - left.least
            yield _Told(left.table, _Span(left.column, left.scale, -math.inf, greatest))


def _is_at(found: TimeRange, table: str, span: _Span) -> bool:
    return (found.table, found.column, found.scale) == (table, span.column, span.scale)
