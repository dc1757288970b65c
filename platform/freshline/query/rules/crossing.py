"""Crossing: which times of an input decide whether rows enter or leave a table with temporal filters.

A filter compares a column with a moment that moves with the clock. Between two clocks it changes its value only for
rows whose time lies between the two moments. Where no file has such times, the table stands still, and statistics say
so without a read of rows. Of a filter that is not understood rows are read. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from freshline.query.clock import ClockSpan, as_written, is_clock, reads_clock
from freshline.query.query import Query
from freshline.query.rules.partition import column_of, trace_to_input
from freshline.query.rules.time_range import DAY, width_of
from freshline.query.tree import NotDerivedError, sources_of, sql, unsupported
from freshline.values.clock import as_microseconds
from freshline.values.names import TableName

_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ, exp.Between)
_TIMES = tuple(exp.DataType.Type[name] for name in ("TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPLTZ", "TIMESTAMPTZ"))


@dataclass(frozen=True)
class Move:
    """A step from the clock to a moment: so many microseconds further, at least and at most; `to_day` goes to 00:00."""

    least: int = 0
    greatest: int = 0
    to_day: bool = False


@dataclass(frozen=True)
class Crossing:
    """Rows of `input` whose `column` the moment passes enter or leave. `moment` is its text for people."""

    input: TableName
    column: str
    moves: tuple[Move, ...]
    moment: str

    def between(self, clock: ClockSpan) -> tuple[int, int] | None:
        """The times of rows that may cross, both ends included, in microseconds since 1970; None where none does."""
        assert clock.before is not None
        before, after = (self._moment(as_microseconds(time)) for time in (clock.before, clock.after))
        exact = all(move.least == move.greatest for move in self.moves)
        return None if exact and before == after else (before[0], after[1])

    def _moment(self, at: int) -> tuple[int, int]:
        least = greatest = at
        for move in self.moves:
            if move.to_day:
                least, greatest = least // DAY * DAY, greatest // DAY * DAY
            else:
                least, greatest = least + move.least, greatest + move.greatest
        return least, greatest

    def __str__(self) -> str:
        return f"{self.input}.{self.column} passes {self.moment}"


@lru_cache(maxsize=1024)
def find_crossings(query: Query) -> tuple[Crossing, ...] | None:
    """The crossings of the temporal filters of a query; None where one of them is not understood."""
    try:
        conditions: dict[int, exp.Expr] = {}
        for call in query.expanded.find_all(exp.Anonymous):
            if is_clock(call):
                condition = call.find_ancestor(*_COMPARED)
                if condition is None:
                    raise unsupported("now()")
                conditions[id(condition)] = condition
        return tuple(found for condition in conditions.values() for found in _of_condition(query, condition))
    except NotDerivedError:
        return None


def _of_condition(query: Query, condition: exp.Expr) -> Iterator[Crossing]:
    one, others = condition.this.unnest(), [condition.args.get(name) for name in ("expression", "low", "high")]
    for other in (each.unnest() for each in others if each is not None):
        moments = [side for side in (one, other) if reads_clock(side)]
        if not moments:
            continue
        columns = [side for side in (one, other) if isinstance(side, exp.Column)]
        if len(moments) > 1 or not columns:
            # A moment that is compared with a literal, for instance, may let any row in.
            raise unsupported(sql(condition))
        name, traced = _traced(query, condition, columns[0])
        yield Crossing(name, traced, _moves(moments[0])[0], as_written(sql(moments[0])))


def _traced(query: Query, condition: exp.Expr, column: exp.Column) -> tuple[TableName, str]:
    """The column of an input that a column in a condition is."""
    select = condition.parent_select
    assert select is not None
    if column.args.get("db"):
        # A field of a struct, or a column under the name of its database: only its rows show it.
        raise unsupported(sql(column))
    sources = {source.alias_or_name.lower(): source for source in sources_of(select)}
    if not column.table and (len(sources) != 1 or select.args.get("laterals")):
        raise unsupported(sql(column))
    source = next(iter(sources.values())) if not column.table else sources.get(column.table.lower())
    if source is None:
        raise unsupported(sql(column))
    name, expression = trace_to_input(source, query, column.name)
    return name, column_of(expression).lower()


def _moves(node: exp.Expr) -> tuple[tuple[Move, ...], bool]:
    """The steps from the clock to a moment, and whether it is a date."""
    node = node.unnest()
    if is_clock(node):
        return (), False
    if isinstance(node, exp.Cast):
        moves, is_date = _moves(node.this)
        if node.to.this == exp.DataType.Type.DATE:
            return (moves if is_date else (*moves, Move(to_day=True))), True
        if node.to.this in _TIMES:
            return moves, False
    if isinstance(node, exp.Add | exp.Sub):
        moves, is_date = _moves(node.this)
        width = width_of(node.expression)
        if width is None and is_date and isinstance(node.expression, exp.Literal) and node.expression.is_int:
            width = (int(node.expression.name) * DAY,) * 2
        if width is not None:
            least, greatest = width if isinstance(node, exp.Add) else (-width[1], -width[0])
            return (*moves, Move(least, greatest)), is_date and least % DAY == 0 == greatest % DAY
    raise unsupported(sql(node))
