"""EMIT FINAL over joins by time: pairs, rows without a partner, and rows that are joined with a version.

A pair of an interval join is final as soon as both rows are there, because nothing takes it away. It is new where one
of its rows came after the newest receipt. A row without a partner is final when the interval around it has passed. A
row of an as-of join is final when no version of its time can come any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from freshline.sql.select_reader import Select, SelectReader, Source
from freshline.sql.token_places import is_star_in_call, is_star_in_list
from freshline.sql.window_functions import WINDOWED, LoweredQuery
from freshline.values.closing import (
    ARRIVED,
    FINAL_TIME,
    TimedRows,
    came_in_time,
    from_time,
    is_closed,
    is_new,
    micros_of,
)
from freshline.values.names import quoted
from freshline.values.query import WindowTime


@dataclass(frozen=True)
class Side:
    """One table of a join, with the column by which its rows have a time, and that which says whether a row is new."""

    source: Source
    column: str
    new: str

    @property
    def time(self) -> str:
        return f"{self.source.alias}.{quoted(self.column)}"

    @property
    def is_new(self) -> str:
        return f"{self.source.alias}.{self.new}"


@dataclass
class JoinedRows:
    """`SELECT .. FROM a [LEFT | RIGHT | FULL] JOIN b ON .. [WHERE ..]`, and what is around it.

    The times of partners differ by `least` to `greatest` microseconds, as that of the second less that of the first.
    """

    read: SelectReader
    select: Select
    lateness: int

    def lower(self) -> LoweredQuery:
        read, select = self.read, self.select
        kind, sources, on = self._parts()
        self._check_calls()
        columns, least, greatest = self._interval(on, [source.alias for source in sources])
        first, second = (
            Side(source, column, f"freshline_new_{number}")
            for number, (source, column) in enumerate(zip(sources, columns, strict=True))
        )
        reach = max(greatest, 0) + max(-least, 0)
        tokens = read.tokens
        edits = [
            (tokens[side.source.first].start, tokens[side.source.last - 1].end, self._rows(side, number, reach))
            for number, side in enumerate((first, second))
        ]
        edits += self._hidden(first, second)
        written = self._is_written(kind, first, second, max(greatest, 0), max(-least, 0))
        where = select.clause("WHERE")
        if where is None:
            end = tokens[select.from_end - 1].end
            edits.append((end, end, f" WHERE {written}"))
        else:
            begin, end = tokens[where[0]].end, tokens[where[1] - 1].end
            edits += [(begin, begin, " ("), (end, end, f") AND {written}")]
        line = read.text.line(tokens[select.from_].start)
        times = tuple(WindowTime("JOIN", side.source.table, side.column, line) for side in (first, second))
        inputs = tuple(side.source.table for side in (first, second))
        aliases = [side.source.alias for side in (first, second)]
        late = " UNION ALL ".join(self._late(side, aliases) for side in (first, second))
        return LoweredQuery(read.edited(edits), times, late, timed=TimedRows("pairs", (), inputs))

    def _parts(self) -> tuple[str, tuple[Source, Source], tuple[int, int]]:
        """INNER, LEFT, RIGHT or FULL, the two tables, and the tokens of ON."""
        read, select = self.read, self.select
        joins = list(read.top(("JOIN", ","), select.from_ + 1, select.from_end))
        if len(joins) != 1 or read.word(joins[0]) != "JOIN":
            raise read.refuse(joins[-1] if joins else select.from_, "several JOINs, or a comma")
        join = joins[0]
        begin = join
        while read.word(begin - 1) in ("INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS", "SEMI", "ANTI", "NATURAL"):
            begin -= 1
        words = [read.word(index) for index in range(begin, join)]
        kind = words[0] if words else "INNER"
        if kind not in ("INNER", "LEFT", "RIGHT", "FULL") or words[1:] not in ([], ["OUTER"]):
            raise read.refuse(begin, f"{' '.join(words)} JOIN")
        on = next(read.top(("ON",), join, select.from_end), None)
        if on is None:
            raise read.refuse(join, "JOIN without ON")
        sources = read.source(select.from_ + 1, begin), read.source(join + 1, on)
        if select.clause("QUALIFY") is not None:
            raise read.refuse(select.first, "QUALIFY beside JOIN")
        return kind, sources, (on + 1, select.from_end)

    def _check_calls(self) -> None:
        """Require that no `*` is a part of a value, which would have our columns too."""
        read, depth = self.read, 0
        for index in range(self.select.first + 1, self.select.last):
            depth += (read.word(index) == "(") - (read.word(index) == ")")
            if depth and is_star_in_call(read.tokens, index):
                begin = read.name_begin(index)
                instead = "Name the columns in place of it, or leave EMIT FINAL out"
                raise read.refuse(begin, f"{read.written(begin, index + 1)} inside a call", instead)

    def _interval(self, on: tuple[int, int], aliases: Sequence[str]) -> tuple[tuple[str, str], int, int]:
        """The time columns of both tables, and how far they may be from each other in microseconds."""
        bounds: dict[tuple[str, str], list[list[int]]] = {}
        for left, sign, right in self._comparisons(*on):
            found = [self._moved(*part, aliases) for part in (left, right)]
            if None in found:
                continue
            (one, column, moved), (two, other, by) = found  # type: ignore[misc]  # None was left out
            if one == two:
                continue
            # The time of the one is at or behind that of the other, plus `by - moved`; or at or before it.
            columns, difference = ((column, other), moved - by) if one == 0 else ((other, column), by - moved)
            lower, upper = bounds.setdefault((columns[0].lower(), columns[1].lower()), [[], []])
            behind = sign in (">", ">=") if one == 1 else sign in ("<", "<=")
            (lower if behind else upper).append(difference)
        for times, (lower, upper) in bounds.items():
            if lower and upper:
                return times, max(lower), min(upper)
        raise self.read.refuse(on[0] - 1, "JOIN without an interval of time with two ends in ON")

    def _comparisons(
        self, first: int, last: int, *, nested: bool = False
    ) -> Iterator[tuple[tuple[int, int], str, tuple[int, int]]]:
        """The comparisons that are true for all partners, each with its two sides."""
        read, between = self.read, False
        parts, begin = [], first
        while self._is_inside(first, last):
            first, last = first + 1, last - 1
            begin = first
        for index in read.outside(first, last):
            word = read.word(index)
            if word == "OR":
                if nested:
                    return
                raise read.refuse(index, "JOIN with OR in ON")
            if word == "BETWEEN":
                between = True
            elif word == "AND":
                if not between:
                    parts.append((begin, index))
                    begin = index + 1
                between = False
        for start, end in [*parts, (begin, last)]:
            if self._is_inside(start, end):
                yield from self._comparisons(start, end, nested=True)
                continue
            signs = list(read.top(("BETWEEN", "<", "<=", ">", ">="), start, end))
            if len(signs) != 1 or read.word(start) == "NOT" or read.word(signs[0] - 1) == "NOT":
                continue
            (sign,) = signs
            if read.word(sign) == "BETWEEN":
                middle = next(read.top(("AND",), sign, end), end)
                yield (start, sign), ">=", (sign + 1, middle)
                yield (start, sign), "<=", (middle + 1, end)
            else:
                yield (start, sign), read.word(sign), (sign + 1, end)

    def _is_inside(self, first: int, last: int) -> bool:
        """Whether one pair of parentheses is around these tokens."""
        return first < last and self.read.word(first) == "(" and self.read.closing(first) == last - 1

    def _moved(self, first: int, last: int, aliases: Sequence[str]) -> tuple[int, str, int] | None:
        """`a.ts + INTERVAL .. - INTERVAL ..`: which of the tables, its column, and the microseconds; None otherwise."""
        read = self.read
        while self._is_inside(first, last):
            first, last = first + 1, last - 1
        signs = [*read.top(("+", "-"), first, last), last]
        column = read.column(first, signs[0])
        if column is None or signs[0] - first != 3:
            return None
        alias = quoted(read.tokens[first].value).lower()
        number = next((number for number, each in enumerate(aliases) if each.lower() == alias), None)
        moved = 0
        for sign, end in pairwise(signs):
            by = read.interval(sign + 1, end)
            if by is None:
                return None
            moved += by if read.word(sign) == "+" else -by
        return None if number is None else (number, column, moved)

    def _rows(self, side: Side, number: int, reach: int) -> str:
        """The rows of a table that came in time, and among them those that can be in pairs that are written now."""
        at = f"{WINDOWED}.{quoted(side.column)}"
        return (
            f"(SELECT {WINDOWED}.* EXCEPT ({', '.join(ARRIVED)}), {is_new(WINDOWED, number)} AS {side.new} "
            f"FROM {self.read.named(side.source)} AS {WINDOWED} WHERE {came_in_time(WINDOWED, at, self.lateness)} "
            f"AND {at} IS NOT NULL AND {from_time(at, self.lateness + reach)}) AS {side.source.alias}"
        )

    def _is_written(self, kind: str, first: Side, second: Side, ahead: int, back: int) -> str:
        """Whether a joined row is final and was not before; `ahead` and `back` are how far partners are from either."""
        cases = ""
        # Where the other has no time, there is no partner: rows without a time are left out.
        if kind in ("LEFT", "FULL"):
            closed = is_closed(micros_of(first.time), self.lateness + ahead)
            cases += f"WHEN {second.time} IS NULL THEN {closed} "
        if kind in ("RIGHT", "FULL"):
            closed = is_closed(micros_of(second.time), self.lateness + back)
            cases += f"WHEN {first.time} IS NULL THEN {closed} "
        pair = f"({first.is_new} OR {second.is_new})"
        return f"CASE {cases}ELSE {pair} END" if cases else pair

    def _hidden(self, first: Side, second: Side) -> Iterator[tuple[int, int, str]]:
        """The edits that keep our columns out of `*`."""
        read, select = self.read, self.select
        aliases = [side.source.alias.lower() for side in (first, second)]
        for begin, end in read.items(select.first + 1, select.from_):
            star = next(read.top(("*",), begin, end), None)
            if star is None or not is_star_in_list(read.tokens, star):
                continue
            named = read.name_begin(star)
            of = [quoted(read.tokens[index].value).lower() for index in range(named, star, 2)]
            # Behind an alias there is a field of a STRUCT; a table without one may be named with its namespace.
            table = of[-1:] if of and of[0] not in aliases else of
            sides = [side for side, alias in zip((first, second), aliases, strict=True) if not of or table == [alias]]
            if not sides:
                continue
            hidden = ", ".join(side.new for side in sides)
            excepting = read.word(star + 1) == "EXCEPT"
            place = read.tokens[star + 2 if excepting else star].end
            yield place, place, f"{hidden}, " if excepting else f" EXCEPT ({hidden})"

    def _late(self, side: Side, aliases: Sequence[str]) -> str:
        named = self.read.named(side.source)
        hidden = ", ".join(ARRIVED)
        return self.read.late_values(side.source.alias, side.time, named, aliases, self.lateness, hidden=hidden)


@dataclass
class AsOfRows:
    """`SELECT .. FROM rows [LEFT] JOIN versions FOR SYSTEM_TIME AS OF rows.time AS v ON .. [WHERE ..]`.

    A version that comes later is of a later time, or late. So a row is joined with its version for good when the
    watermark has passed its time.
    """

    read: SelectReader
    select: Select
    lateness: int

    def lower(self) -> LoweredQuery:
        read, select = self.read, self.select
        joins = list(read.top(("JOIN", ","), select.from_ + 1, select.from_end))
        begin = joins[0]
        while read.word(begin - 1) in ("INNER", "LEFT", "OUTER"):
            begin -= 1
        source = read.source(select.from_ + 1, begin)
        versions, columns = [], []
        for join, end in pairwise([*joins, select.from_end]):
            met, column = self._versions(join, end, source)
            versions.append(met)
            columns.append(column)
        if len({column.lower() for column in columns}) > 1:
            raise read.refuse(joins[1], f"FOR SYSTEM_TIME AS OF {' and of '.join(columns)}")
        if source.table in [each.table for each in versions]:
            raise read.refuse(joins[0], f"FOR SYSTEM_TIME AS OF the rows of {source.table} itself")
        (column, *_) = columns
        aliases = [source.alias, *(each.alias for each in versions)]
        hidden = ", ".join(ARRIVED)
        late = [
            read.late_values(
                source.alias, f"{source.alias}.{quoted(column)}", read.named(source), aliases, self.lateness,
                hidden=hidden,
            ),
            *(
                read.late_values(
                    each.alias, f"{each.alias}.{FINAL_TIME}", read.named(each), aliases, self.lateness,
                    hidden=f"{hidden}, {FINAL_TIME}",
                )
                for each in versions
            ),
        ]  # fmt: skip
        line = read.text.line(read.tokens[joins[0]].start)
        text = read.timed(select, source, column, self.lateness, before=0)
        times = (WindowTime("FOR SYSTEM_TIME AS OF", source.table, column, line),)
        timed = TimedRows("time", read.shown(select, column, source.alias, joined=True))
        return LoweredQuery(text, times, " UNION ALL ".join(late), timed=timed)

    def _versions(self, join: int, end: int, source: Source) -> tuple[Source, str]:
        """The table behind a JOIN, and the column of the rows by whose time it is asked."""
        read = self.read
        for_ = next(read.top(("FOR",), join, end), None)
        on = next(read.top(("ON",), join, end), None)
        if read.word(join) != "JOIN" or for_ is None or on is None or read.word(for_ + 5) != ".":
            raise read.refuse(join, "FOR SYSTEM_TIME AS OF beside another join")
        column = read.column(for_ + 4, for_ + 7)
        if column is None or quoted(read.tokens[for_ + 4].value).lower() != source.alias.lower():
            raise read.refuse(for_, f"FOR SYSTEM_TIME AS OF {read.written(for_ + 4, for_ + 7)}, of another table")
        named = read.source(join + 1, for_)
        alias = read.tokens[on - 1].value if on > for_ + 7 else named.table.name
        return Source(named.table, quoted(alias), join + 1, for_), column
