"""EMIT FINAL without windows, for rows that are final by time: with OVER, joins by an interval, and as-of joins.

Rows that came in time, and have the time up to which the watermark has come, are all that there will ever be of these
times. A row is written once when all rows are there that it follows from. Where the select list stands there is a
further column with the time of the row, which identifies the rows that are final since the newest receipt. Nobody else
sees it.

The tokens of the query are read, and the text is changed in its places only (`freshline.sql.select_reader`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from freshline.sql.final_joins import AsOfRows, JoinedRows
from freshline.sql.select_reader import Select, SelectReader, Source
from freshline.sql.tokens import Text
from freshline.sql.window_functions import LoweredQuery
from freshline.values.closing import ARRIVED, Final, TimedRows, late_by, micros_of
from freshline.values.names import TableName, quoted
from freshline.values.query import WindowTime

# Over a window of RANGE they may give another value for each order of rows that have one time, and the others give the
# same. An approximation keeps a part of many rows, which follows from their order too. `approx_count_distinct`,
# `count_min_sketch` and bitmaps keep the same in any order.
_BY_PLACE = (
    *("ROW_NUMBER", "LAG", "FIRST", "FIRST_VALUE", "LAST", "LAST_VALUE", "NTH_VALUE", "ANY_VALUE", "MODE"),
    *("ARRAY_AGG", "COLLECT_LIST", "COLLECT_SET", "LISTAGG", "STRING_AGG", "MAX_BY", "MIN_BY"),
    *("APPROX_PERCENTILE", "PERCENTILE_APPROX", "HISTOGRAM_NUMERIC"),
    *("APPROX_TOP_K", "APPROX_TOP_K_ACCUMULATE", "APPROX_TOP_K_COMBINE", "HLL_SKETCH_AGG", "HLL_UNION_AGG"),
    *(f"KLL_{what}_AGG_{of}" for what in ("SKETCH", "MERGE") for of in ("BIGINT", "DOUBLE", "FLOAT")),
    *(f"THETA_{what}_AGG" for what in ("SKETCH", "UNION", "INTERSECTION")),
    *(f"TUPLE_{what}_AGG_{of}" for what in ("SKETCH", "UNION", "INTERSECTION") for of in ("DOUBLE", "INTEGER")),
)
_PLACED = (*_BY_PLACE, "RANK", "DENSE_RANK")
# They follow from rows behind their own, or from all rows of the partition.
_AHEAD = ("LEAD", "NTILE", "PERCENT_RANK", "CUME_DIST")


def lower_final_rows(text: Text, final: Final) -> LoweredQuery | None:
    """The query of the rows that are final by time, and that of those that came too late; None for other queries.

    Raises DeclarationError FINAL_INPUT for rows that are never final.
    """
    reader = SelectReader(text, text.tokens())
    over = sorted({reader.select_of(index) for index in reader.windows()})
    joined = sorted({reader.select_of(index) for index in reader.words("JOIN")})
    if not over and (not joined or reader.words("PROCTIME")):
        return None
    if reader.word(0) == "WITH":
        raise reader.refuse(0, "WITH")
    selects = over or joined
    if len(selects) > 1:
        raise reader.refuse(selects[1], f"{'OVER' if over else 'JOIN'} in several SELECTs")
    select = reader.select(selects[0])
    if over:
        return _OverRows(reader, select, final.lateness).lower()
    if reader.words("SYSTEM_TIME"):
        return AsOfRows(reader, select, final.lateness).lower()
    return JoinedRows(reader, select, final.lateness).lower()


@dataclass(frozen=True)
class _Frame:
    """A call over a window: by which columns rows are put together and ordered, and how far a frame goes.

    `before` and `behind` are microseconds; `before` is None where the frame has all earlier rows, or so many.
    """

    name: str
    keys: tuple[str, ...]
    order: tuple[str, ...]
    before: int | None
    behind: int
    by_place: bool
    line: int

    def time(self, table: TableName, column: str) -> WindowTime:
        return WindowTime(
            f"{self.name}(..) OVER", table, column, self.line, (*self.keys, *self.order) if self.by_place else None
        )


@dataclass
class _OverRows:
    """`SELECT .., f(..) OVER (.. ORDER BY time ..) FROM t [WHERE ..] [QUALIFY ..]`, and what is around it."""

    read: SelectReader
    select: Select
    lateness: int
    source: Source = field(init=False)

    def __post_init__(self) -> None:
        read, select = self.read, self.select
        several = next(read.top(("JOIN", ","), select.from_ + 1, select.from_end), None)
        if several is not None:
            raise read.refuse(several, "JOIN beside OVER")
        self.source = read.source(select.from_ + 1, select.from_end)

    def lower(self) -> LoweredQuery:
        read, select, source = self.read, self.select, self.source
        frames = [self._frame(index) for index in read.windows()]
        times = {frame.order[0].lower() for frame in frames}
        if len(times) > 1:
            raise read.refuse(select.first, f"OVER by {' and by '.join(sorted(times))}")
        column = frames[0].order[0]
        time, behind = f"{source.alias}.{quoted(column)}", max(frame.behind for frame in frames)
        befores = [frame.before for frame in frames]
        reach = None if None in befores else max(each for each in befores if each is not None)
        text = read.timed(select, source, column, self.lateness, behind=behind, before=reach)
        places = [frame for frame in frames if frame.by_place] or frames[:1]
        return LoweredQuery(
            text,
            tuple(frame.time(source.table, column) for frame in places),
            self._late(time),
            timed=TimedRows("time", read.shown(select, column, source.alias), behind=behind),
        )

    def _late(self, time: str) -> str:
        alias = self.source.alias
        where = self.select.clause("WHERE")
        also = "" if where is None else f"({self.read.written(where[0] + 1, where[1])}\n) AND "
        by, is_late = late_by(alias, micros_of(time), self.lateness)
        return (
            f"SELECT {alias}.* EXCEPT ({', '.join(ARRIVED)}), {by} AS late_by, {alias}.{ARRIVED[1]} AS position "
            f"FROM {self.read.named(self.source)} AS {alias} WHERE {also}{is_late}"
        )

    def _frame(self, over: int) -> _Frame:
        """The frame behind OVER, with the function before it."""
        read = self.read
        name, arguments = self._called(over)
        shown = f"{name.lower()}(..) OVER"
        if read.word(over + 1) != "(":
            raise read.refuse(over, f"{shown} a window of WINDOW")
        first, last = over + 2, read.closing(over + 1)
        order = next(read.top(("ORDER",), first, last), None)
        if order is None:
            raise read.refuse(over, f"{shown} without ORDER BY, which takes later rows in")
        units = next(read.top(("RANGE", "ROWS", "GROUPS"), order, last), last)
        keys = () if order == first else self._columns(first + 2, order)
        by = self._order(order + 2, units, shown)
        name = name.upper()
        if name in _AHEAD or (name == "LAG" and not self._looks_back(arguments)):
            raise read.refuse(over, f"{shown}, which takes later rows in")
        before, behind = self._bounds(units, last, shown)
        by_rows = read.word(units) == "ROWS" if units < last else False
        if name in _PLACED or by_rows:
            before = None
        return _Frame(
            name.lower(),
            keys,
            by,
            before,
            behind,
            name in _BY_PLACE or by_rows,
            read.text.line(read.tokens[over].start),
        )

    def _called(self, over: int) -> tuple[str, tuple[int, int]]:
        """The function before OVER, and the tokens of its arguments."""
        read, closing = self.read, over - 1
        if read.word(closing) == "NULLS":
            closing -= 2
        opening = read.opening(closing)
        if read.word(opening - 1) == "FILTER":
            closing = opening - 2
            if read.word(closing) == "NULLS":
                closing -= 2
            opening = read.opening(closing)
        return read.tokens[opening - 1].value, (opening + 1, closing)

    def _looks_back(self, arguments: tuple[int, int]) -> bool:
        """Whether LAG reads earlier rows: by one, or by a number that is written."""
        items = list(self.read.items(*arguments))
        if len(items) < 2:
            return True
        first, last = items[1]
        return last - first == 1 and self.read.word(first).isdigit()

    def _columns(self, first: int, last: int) -> tuple[str, ...]:
        """The columns of the source among the items of a list."""
        found = (self.read.column(*item, self.source.alias) for item in self.read.items(first, last))
        return tuple(each for each in found if each is not None)

    def _order(self, first: int, last: int, shown: str) -> tuple[str, ...]:
        """The columns of ORDER BY, whose first is the time and ascends."""
        read = self.read
        found: list[str] = []
        for number, (begin, end) in enumerate(read.items(first, last)):
            name_end = next((each for each in range(begin, end) if read.word(each) in ("ASC", "DESC", "NULLS")), end)
            column = read.column(begin, name_end, self.source.alias)
            if number == 0 and (column is None or read.word(name_end) == "DESC"):
                raise read.refuse(begin, f"{shown} by no ascending column, but {read.written(begin, end)}")
            if column is not None:
                found.append(column)
        return tuple(found)

    def _bounds(self, units: int, last: int, shown: str) -> tuple[int | None, int]:
        """The microseconds that a frame goes before a row and behind it."""
        read = self.read
        if units >= last:
            return None, 0
        first = units + 1
        if read.word(first) != "BETWEEN":
            return self._before(units, first, last, shown), 0
        middle = next(read.top(("AND",), first, last), last)
        begin, end = (first + 1, middle), (middle + 1, last)
        before = self._before(units, *begin, shown)
        if read.word(last - 1) in ("ROW", "PRECEDING"):
            self._before(units, *end, shown)
            return before, 0
        behind = read.interval(end[0], last - 1) if read.word(units) == "RANGE" else None
        if behind is None or behind < 0:
            raise read.refuse(units, f"{shown} a frame up to {read.written(*end)}, of which no time is the end")
        return before, behind

    def _before(self, units: int, first: int, last: int, shown: str) -> int | None:
        """The microseconds that a bound goes back; 0 for one that does not, None where it is not known."""
        read = self.read
        of, amount = read.word(first), read.written(first, last)
        if read.word(last - 1) == "ROW" or of == "UNBOUNDED":
            return 0 if of == "CURRENT" else None
        # A bound that is less than nothing is on the other side of the row.
        is_interval = of == "INTERVAL" and "-" not in amount
        if not (is_interval if read.word(units) == "RANGE" else last - first == 2 and of.isdigit()):
            raise read.refuse(units, f"{shown} without a plain interval or number in its frame: {amount}")
        return 0 if read.word(last - 1) == "FOLLOWING" else read.interval(first, last - 1)
