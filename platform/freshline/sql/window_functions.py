"""Window table functions in FROM: TUMBLE, HOP, CUMULATE, SESSION and COUNT_WINDOW, in Spark's SQL.

Neither Spark nor sqlglot reads them. Each call becomes a query in parentheses that has the rows of its input and the
columns `window_start`, `window_end` and `window_time`; line ends are kept, so that what follows stays on its line.

A window is [start, end). Windows count from an origin in both directions: from 1970-01-01 00:00 UTC in microseconds,
or, with a time zone, in local days or months of it, so that a day has 23 or 25 hours where clocks change. All of it is
arithmetic on whole numbers over one column of one row. So changes are followed through it like through any expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from freshline.errors import DeclarationError
from freshline.sql.call_reader import CallReader, Refuse
from freshline.sql.count_windows import NUMBER, CountCall
from freshline.sql.session_windows import SessionCall, except_columns
from freshline.sql.token_places import expects_operand, is_star_in_list
from freshline.sql.tokens import Text, Token, TokenKind
from freshline.values.closing import ARRIVED, Final, FinalRows, TimedRows, by_time, by_window, micros_of
from freshline.values.names import TableName, quoted
from freshline.values.query import WINDOW_BOUNDS, WindowTime
from freshline.values.rules import nearest
from freshline.values.time_zones import known_time_zones

# More windows for one row are taken for a mistake.
MOST_WINDOWS = 1000

# The alias of the input of a call.
WINDOWED = "freshline_rows"
_ROWS, _NUMBER, _WINDOWS, _PLACE = WINDOWED, "freshline_number", "freshline_windows", "freshline_place"
_MICROSECONDS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_DAYS = {"DAY": 1, "WEEK": 7}
_MONTHS = {"MONTH": 1, "YEAR": 12}
# 1969-12-29, the Monday of the week of 1970-01-01, in days.
_FIRST_MONDAY = -3
_PARAMETERS = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET", "TIME_ZONE"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET", "TIME_ZONE"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET", "TIME_ZONE"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
    "COUNT_WINDOW": ("DATA", "SIZE", "SLIDE"),
}
WINDOW_FUNCTIONS = frozenset(_PARAMETERS)
_OPTIONAL = {"OFFSET", "TIME_ZONE"}
_SHAPES = {
    "TUMBLE": "TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' MINUTES)",
    "HOP": "HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '10' MINUTES)",
    "CUMULATE": "CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY)",
    "SESSION": "SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTES)",
    "COUNT_WINDOW": "COUNT_WINDOW(TABLE t PARTITION BY k ORDER BY ts, id, SIZE => 100)",
}
# Those whose windows are of one key, which PARTITION BY behind the input names.
_BY_KEY = ("SESSION", "COUNT_WINDOW")
# The words of a query that make other rows than those that it reads.
_NOT_BY_ROW = tuple(
    "WITH DISTINCT JOIN LATERAL GROUP HAVING QUALIFY OVER WINDOW ORDER SORT CLUSTER DISTRIBUTE LIMIT OFFSET "
    "UNION INTERSECT EXCEPT MINUS PIVOT UNPIVOT TABLESAMPLE".split()
)
_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)")


def _may_miss(function: str, name: str) -> bool:
    return name in _OPTIONAL or (function, name) == ("COUNT_WINDOW", "SLIDE")


@dataclass(frozen=True)
class LoweredQuery:
    """A query in Spark's SQL, with as many lines as it was written in, and the times of its windows.

    Of FINAL rows, `late` is the query of those that came too late for their window, None where there is no window, and
    `ends` says where windows end, in microseconds: at a first place and every so many from there, None for others.
    `reach` is how long each of them is, None where they differ. `timed` says of rows that are final by their time what
    they are, None for windows. `spans` are the times by which WITHIN measures matches.
    """

    text: str
    times: tuple[WindowTime, ...] = ()
    late: str | None = None
    ends: tuple[int, int] | None = None
    reach: int | None = None
    timed: TimedRows | None = None
    spans: tuple[WindowTime, ...] = ()


# The columns of tables, where they are known.
Columns = Mapping[TableName, Sequence[str]]


def lower_windows(text: Text, final: Final | None = None, columns: Columns | None = None) -> LoweredQuery:
    """The query with each window table function as a query in parentheses; with `final`, of closed windows only.

    Of an input that has columns of the names of WINDOW_BOUNDS, by `columns`, those of the windows take their place.

    Raises DeclarationError: QUERY_SYNTAX for a call that is not one of the documented forms, WINDOW_SIZE for sizes
    that no windows have, WINDOW_TIME for a time zone that is not known, FINAL_INPUT for rows that cannot be final.
    """
    if not re.search(rf"\b({'|'.join(_PARAMETERS)})\b", text.text, re.IGNORECASE):
        return LoweredQuery(text.text)
    lowering = _Lowering(text, text.tokens(), final, columns or {})
    lowered = lowering.between(0, len(text.text), 0, len(lowering.tokens))
    return LoweredQuery(lowered, tuple(lowering.times), lowering.late, lowering.ends, lowering.reach)


def rows_of_logs(text: Text, tokens: Sequence[Token], first: int, last: int, refuse: Refuse) -> str:
    """A query in parentheses, the tokens [first, last), with what rows of log tables have beside their columns.

    Raises DeclarationError FINAL_INPUT for one whose rows are none of these.
    """
    return _Lowering(text, tokens)._arrived(first, last, refuse)


class _Lowering(CallReader):
    def __init__(
        self, text: Text, tokens: Sequence[Token], final: Final | None = None, columns: Columns | None = None
    ) -> None:
        super().__init__(text, tokens)
        self.final = final
        self.columns = columns or {}
        self.times: list[WindowTime] = []
        self.late: str | None = None
        self.ends: tuple[int, int] | None = None
        self.reach: int | None = None

    def between(self, start: int, end: int, first: int, last: int) -> str:
        """The characters [start, end), lowered; the tokens [first, last) stand in them."""
        parts: list[str] = []
        index = first
        while index < last:
            if not self._begins(index):
                index += 1
                continue
            wrapped = index >= 2 and self.word(index - 2) == "TABLE" and self.word(index - 1) == "("
            begin = index - 2 if wrapped else index
            closing = self.closing(index + 1)
            call = self._call(index, closing)
            if wrapped:
                closing += 1
                if self.word(closing) != ")":
                    raise self._refuse("QUERY_SYNTAX", index, f"TABLE({call.function}(..) is not closed by )")
            written = self.text.text[self.tokens[begin].start : self.tokens[closing].end]
            lowered = self._lowered(call, index)
            parts += [self.text.text[start : self.tokens[begin].start], lowered]
            parts.append("\n" * (written.count("\n") - lowered.count("\n")))
            start = self.tokens[closing].end
            index = closing + 1
        parts.append(self.text.text[start:end])
        return "".join(parts)

    def _lowered(self, call: _Call | SessionCall | CountCall, index: int) -> str:
        if self.final is None:
            return call.lower()
        if self.late is not None:
            raise self._refuse(
                "FINAL_INPUT",
                index,
                "EMIT FINAL is for a query with one window function. Declare one of them as a FINAL table of its own, "
                "and read that",
            )
        rows = self._final_rows(call, index, self.final.lateness)
        self.late = rows.late
        return rows.closed

    def _final_rows(self, call: _Call | SessionCall | CountCall, index: int, lateness: int) -> FinalRows:
        """The rows of closed windows, and those that came too late for theirs."""

        def lower(source: str) -> str:
            return replace(call, source=source).lower()

        if isinstance(call, _Call):
            self.ends = (call.grid.origin, call.grid.step) if call.zone is None else None
            self.reach = call.reach if self.ends is not None and call.function != "CUMULATE" else None
            return by_window(lower, call.source, call.time, lateness=lateness, reach=call.reach)
        if isinstance(call, SessionCall):
            return by_time(lower, call.source, call.time, lateness=lateness)
        if call.order[0] != call.time and call.order[0] != f"{call.time} ASC":
            raise self._refuse(
                "FINAL_INPUT",
                index,
                "COUNT_WINDOW of a FINAL table counts from the earliest row on: ORDER BY begins with the time, "
                "without DESC",
            )
        by = ", ".join((*call.keys, f"{WINDOWED}.{NUMBER}"))
        return by_time(lower, call.source, call.time, lateness=lateness, filled=(by, call.size))

    def _begins(self, index: int) -> bool:
        if self.word(index) not in _PARAMETERS or self.word(index + 1) != "(":
            return False
        # A function of that name is called by nobody: Spark has none.
        return (
            self.word(index + 2) in ("TABLE", "(")
            or self.word(index + 3) == "=>"
            or self.word(index - 1) in ("FROM", "JOIN")
            or (self.word(index - 2), self.word(index - 1)) == ("TABLE", "(")
        )

    def _call(self, index: int, closing: int) -> _Call | SessionCall | CountCall:
        function = self.word(index)
        given = self._arguments(function, index, closing)

        def refuse(rule: str, sentence: str) -> DeclarationError:
            return self._refuse(rule, index, f"{function}: {sentence}")

        missing = [name for name in _PARAMETERS[function] if name not in given and not _may_miss(function, name)]
        if missing:
            raise refuse("QUERY_SYNTAX", f"{', '.join(missing)} is missing. Write {_SHAPES[function]}")
        line = self.text.line(self.tokens[index].start)
        first, last = given["DATA"]
        order_begin = self._clause("ORDER", first, last) if function == "COUNT_WINDOW" else last
        data_end = self._clause("PARTITION", first, order_begin) if function in _BY_KEY else last
        table, source = self._input(first, data_end, refuse)
        if function == "COUNT_WINDOW":
            keys = self._columns("PARTITION", data_end, order_begin, refuse)
            order = self._order(order_begin, last, refuse)
            times = WindowTime(function, table, order[0][0], line, (*keys, *(name for name, _ in order)))
            self.times.append(times)
            size, slide = self._counts(given, refuse)
            return CountCall(
                source,
                WINDOWED,
                _column_of_rows(times.column),
                tuple(map(_column_of_rows, keys)),
                tuple(_column_of_rows(name) + direction for name, direction in order),
                size,
                slide,
                self._replaced(table, WINDOW_BOUNDS),
            )
        column = self._column(*given["TIMECOL"], refuse)
        self.times.append(WindowTime(function, table, column, line))
        sizes = {
            name: read_interval(self.tokens[slice(*given[name])], name, refuse)
            for name in ("SIZE", "SLIDE", "STEP", "OFFSET", "GAP")
            if name in given
        }
        hidden = self._replaced(table, [name for name in WINDOW_BOUNDS if name != NUMBER])
        if function == "SESSION":
            keys = tuple(map(_column_of_rows, self._columns("PARTITION", data_end, last, refuse)))
            return SessionCall(source, WINDOWED, _column_of_rows(column), keys, _gap(sizes["GAP"], refuse), hidden)
        zone = self._zone(*given["TIME_ZONE"], refuse) if "TIME_ZONE" in given else None
        return _Call(function, source, column, _grid(function, sizes, zone, refuse), zone, hidden)

    def _replaced(self, table: TableName | None, bounds: Sequence[str]) -> tuple[str, ...]:
        """The columns of the input whose place those of the windows take."""
        known = {name.lower() for name in (() if table is None else self.columns.get(table, ()))}
        return tuple(name for name in bounds if name in known)

    def _arguments(self, function: str, index: int, closing: int) -> Mapping[str, tuple[int, int]]:
        items = self.items(index + 2, closing)
        if function in _BY_KEY:
            items = self._with_columns(items)
        return self._named(function, index, items, _PARAMETERS[function], _SHAPES[function])

    def _with_columns(self, items: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The items, where names that follow a PARTITION BY or ORDER BY belong to it."""
        found: list[tuple[int, int]] = []
        for first, last in items:
            if found and self._is_column(first, last) and self._has_clause(*found[-1]):
                found[-1] = (found[-1][0], last)
            else:
                found.append((first, last))
        return found

    def _is_column(self, first: int, last: int) -> bool:
        """Whether tokens are a name, or one with a direction; no number is one."""
        token = self.tokens[first]
        is_name = token.kind is TokenKind.NAME or (token.kind is TokenKind.WORD and not token.raw[0].isdigit())
        words = [self.word(index) for index in range(first + 1, last)]
        # A clause can begin behind the last name of the one before it.
        return is_name and (words in ([], ["ASC"], ["DESC"]) or words[:2] == ["ORDER", "BY"])

    def _has_clause(self, first: int, last: int) -> bool:
        return any(self._clause(word, first, last) < last for word in ("PARTITION", "ORDER"))

    def _clause(self, word: str, first: int, last: int) -> int:
        """The place of PARTITION BY or ORDER BY among tokens, or their end."""
        depth = 0
        for index in range(first, last):
            depth += (self.word(index) == "(") - (self.word(index) == ")")
            if depth == 0 and (self.word(index), self.word(index + 1)) == (word, "BY"):
                return index
        return last

    def _columns(self, word: str, first: int, last: int, refuse: Refuse) -> tuple[str, ...]:
        """The columns of PARTITION BY, which may stand in parentheses."""
        if first == last:
            return ()
        names: list[str] = []
        for begin, end in self._listed(first + 2, last):
            if end - begin != 1 or not self._is_column(begin, end):
                raise refuse("QUERY_SYNTAX", f"{word} BY takes columns, such as {word} BY a, b")
            names.append(self.tokens[begin].value)
        return tuple(names)

    def _order(self, first: int, last: int, refuse: Refuse) -> tuple[tuple[str, str], ...]:
        """The columns of ORDER BY, each with its direction as SQL."""
        if first == last:
            raise refuse("QUERY_SYNTAX", f"ORDER BY is missing. Write {_SHAPES['COUNT_WINDOW']}")
        found: list[tuple[str, str]] = []
        for begin, end in self._listed(first + 2, last):
            if not 1 <= end - begin <= 2 or not self._is_column(begin, end):
                raise refuse("QUERY_SYNTAX", "ORDER BY takes columns, such as ORDER BY ts, id DESC")
            found.append((self.tokens[begin].value, f" {self.word(begin + 1)}" if end - begin == 2 else ""))
        return tuple(found)

    def _listed(self, first: int, last: int) -> list[tuple[int, int]]:
        """The items of a list, which may stand in parentheses; an empty list is an empty item."""
        if self.word(first) == "(" and self.word(last - 1) == ")":
            first, last = first + 1, last - 1
        return self.items(first, last) or [(first, last)]

    def _counts(self, given: Mapping[str, tuple[int, int]], refuse: Refuse) -> tuple[int, int]:
        """The rows that a window of COUNT_WINDOW has, and after how many the next one begins."""
        numbers: dict[str, int] = {}
        for name in ("SIZE", "SLIDE"):
            first, last = given.get(name, given["SIZE"])
            text = "".join(self.tokens[index].raw for index in range(first, last))
            if not re.fullmatch(r"[0-9]{1,9}", text) or int(text) == 0:
                raise refuse("WINDOW_SIZE", f"{name} {text} is no number of rows. Write one such as 100")
            numbers[name] = int(text)
        size, slide = numbers["SIZE"], numbers["SLIDE"]
        _require_windows(size, slide, "SLIDE", refuse)
        return size, slide

    def _column(self, first: int, last: int, refuse: Refuse) -> str:
        words = [self.word(index) for index in range(first, last)]
        named = last - first == 4 and words[0] == "DESCRIPTOR" and (words[1], words[3]) == ("(", ")")
        token = self.tokens[first + 2] if named else None
        if token is None or token.kind not in (TokenKind.WORD, TokenKind.NAME):
            raise refuse("QUERY_SYNTAX", "the time is one column. Write DESCRIPTOR(column)")
        return token.value

    def _input(self, first: int, last: int, refuse: Refuse) -> tuple[TableName | None, str]:
        if self.word(first) == "TABLE":
            first += 1
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        if self.word(first) == "(" and first < last - 1 and self.closing(first) == last - 1:
            if self.final is not None:
                return None, self._arrived(first, last, refuse)
            return None, self.between(start, end, first, last)
        return self._table(first, last, refuse), self.text.text[start:end]

    def _arrived(self, first: int, last: int, refuse: Refuse) -> str:
        """A query in parentheses with what its rows have beside their columns, because they are of log tables."""
        while self.word(first + 1) == "(" and self.closing(first + 1) == last - 2:
            first, last = first + 1, last - 1
        start, end = self.tokens[first].start, self.tokens[last - 1].end
        parts: list[str] = []
        for place, added in self._arrivals(first + 1, last - 1, refuse):
            parts += [self.text.text[start:place], added]
            start = place
        return "".join((*parts, self.text.text[start:end]))

    def _arrivals(self, first: int, last: int, refuse: Refuse) -> Iterator[tuple[int, str]]:
        """The text that is added to the SELECTs of a query, maybe in parentheses, and before which character."""
        self._require_rows(first, last, refuse)
        unions = [index for index in self.top(("UNION",), first, last) if not self._is_operand(first, index)]
        for begin, end in zip([first, *(index + 2 for index in unions)], [*unions, last], strict=True):
            if begin < end and self.word(begin) == "(" and self.closing(begin) == end - 1:
                yield from self._arrivals(begin + 1, end - 1, refuse)
            elif begin < end and self.word(begin) == "SELECT":
                yield from self._arrivals_of_select(begin, end, refuse)
            else:
                raise refuse(
                    "FINAL_INPUT",
                    "a query in parentheses of a FINAL table is a SELECT, or several with UNION ALL between them",
                )

    def _arrivals_of_select(self, first: int, last: int, refuse: Refuse) -> Iterator[tuple[int, str]]:
        from_ = next((each for each in self.top(("FROM",), first, last) if not self._is_distinct(each)), 0)
        if not from_:
            raise refuse("FINAL_INPUT", "a SELECT without FROM has no rows of a log table")
        table, alias = self._source_after(from_, last, refuse)
        hidden = ", ".join(ARRIVED)
        for begin, end in self.items(first + 1, from_):
            star = next(self.top(("*",), begin, end), None)
            if star is None or not is_star_in_list(self.tokens, star):
                continue
            named = self.name_begin(star)
            of = [self.tokens[index].value.lower() for index in range(named, star, 2)]
            if of not in ([], [alias.lower()], table):
                written = self.text.text[self.tokens[named].start : self.tokens[star].end]
                raise refuse(
                    "FINAL_INPUT",
                    f"{written} is no `*` of the table that is read. The fields of a STRUCT are not known before a "
                    "refresh, and the table of late rows has them as columns: name them in place of it",
                )
            if self.word(star + 1) == "EXCEPT":
                yield self.tokens[star + 2].end, f"{hidden}, "
            else:
                yield self.tokens[star].end, f" EXCEPT ({hidden})"
        yield self.tokens[from_ - 1].end, "".join(f", {quoted(alias)}.{name}" for name in ARRIVED)

    def _require_rows(self, first: int, last: int, refuse: Refuse) -> None:
        """Require that each row of a query is one row of what it reads."""
        for index in self.top(_NOT_BY_ROW, first, last):
            word = self.word(index)
            if self._is_operand(first, index) or (word == "DISTINCT" and self.word(index - 1) in ("IS", "NOT")):
                continue
            if word == "UNION" and self.word(index + 1) == "ALL":
                continue
            raise refuse(
                "FINAL_INPUT",
                f"the rows of a FINAL table are those of log tables, through columns, conditions and UNION ALL, and "
                f"this query has {word}. Declare a FINAL table for what it computes, or leave EMIT FINAL out",
            )

    def _is_operand(self, first: int, index: int) -> bool:
        """Whether the word of a clause is the name of a column, in a query whose first token is `first`."""
        before = self.word(index - 1)
        if index == first or (before == "SELECT" and self.word(index) == "DISTINCT"):
            return False
        begins_list = before == "SELECT" or (self.word(index - 2), before) == ("SELECT", "ALL")
        return begins_list or before == "AS" or expects_operand(self.tokens, index)

    def _is_distinct(self, index: int) -> bool:
        """Whether FROM is the end of IS [NOT] DISTINCT FROM."""
        return self.word(index - 1) == "DISTINCT" and self.word(index - 2) in ("IS", "NOT")

    def _source_after(self, from_: int, last: int, refuse: Refuse) -> tuple[list[str], str]:
        """The parts of the name of the one table behind FROM, in lower case, and by what its columns are named.

        The name is empty where the table has an alias, because nothing but that names its columns.
        """
        end = next(iter(self.top(("WHERE",), from_ + 2, last)), last)
        name_end = self.name_end(from_ + 1)
        alias = range(name_end + (self.word(name_end) == "AS"), end)
        if len(alias) > 1 or name_end > end or not all(self._is_of_name(index) for index in range(from_ + 1, end)):
            raise refuse("FINAL_INPUT", "a query in parentheses of a FINAL table reads one table by its name")
        if alias:
            return [], self.tokens[alias[0]].value
        table = [self.tokens[index].value for index in range(from_ + 1, name_end, 2)]
        return [part.lower() for part in table], table[-1]

    def _zone(self, first: int, last: int, refuse: Refuse) -> str:
        token = self.tokens[first]
        if last - first != 1 or token.kind is not TokenKind.STRING:
            raise refuse("WINDOW_TIME", "the time zone is a text. Write TIME_ZONE => 'Europe/Berlin'")
        known = known_time_zones()
        if token.value not in known:
            raise refuse(
                "WINDOW_TIME",
                f"{token.value!r} is no time zone.{nearest(token.value, known)} Write a name such as 'Europe/Berlin', "
                "or 'UTC'",
            )
        return token.value


@dataclass(frozen=True)
class Interval:
    """A length of time: whole microseconds, and the same in days or months where it is written in such."""

    number: int
    unit: str
    microseconds: int | None

    @property
    def days(self) -> int | None:
        return self.number * _DAYS[self.unit] if self.unit in _DAYS else None

    @property
    def months(self) -> int | None:
        return self.number * _MONTHS[self.unit] if self.unit in _MONTHS else None


def read_interval(tokens: Sequence[Token], name: str, refuse: Refuse) -> Interval:
    """`INTERVAL '10' MINUTES`, `INTERVAL 10 MINUTES`, `INTERVAL '1 hour 30 minutes'`."""
    words = [token.value for token in tokens]
    wrong = refuse(
        "WINDOW_SIZE",
        f"{name} {' '.join(token.raw for token in tokens)} is no interval that windows have. Write one such as "
        "INTERVAL '10' MINUTES or INTERVAL '1 hour 30 minutes'",
    )
    if not words or words[0].upper() != "INTERVAL":
        raise wrong
    text = " ".join(words[1:])
    parts = list(_NUMBER_AND_UNIT.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text.rstrip():
        raise wrong
    total = Decimal(0)
    for part in parts:
        unit = part[2].upper().removesuffix("S")
        if unit in _MONTHS and len(parts) == 1 and "." not in part[1]:
            return Interval(int(part[1]), unit, None)
        if unit not in _MICROSECONDS:
            raise wrong
        total += Decimal(part[1]) * _MICROSECONDS[unit]
    if total != int(total) or abs(total) > 2**62:
        raise wrong
    alone = parts[0][2].upper().removesuffix("S") if len(parts) == 1 and "." not in parts[0][1] else ""
    return Interval(int(parts[0][1]) if alone else 0, alone, int(total))


def _gap(interval: Interval, refuse: Refuse) -> int:
    if interval.microseconds is None:
        raise refuse("WINDOW_SIZE", f"GAP is in {interval.unit.lower()}s, which have no fixed length. Write it in days")
    if interval.microseconds <= 0:
        raise refuse("WINDOW_SIZE", "GAP is not positive")
    return interval.microseconds


def _require_windows(size: int, step: int, step_name: str, refuse: Refuse) -> None:
    """Require that a whole number of steps makes a size, and not too many."""
    if size % step:
        raise refuse("WINDOW_SIZE", f"SIZE is not a multiple of {step_name}")
    if size // step > MOST_WINDOWS:
        raise refuse(
            "WINDOW_SIZE",
            f"a row would be in {size // step:,} windows, and at most {MOST_WINDOWS:,} are made. "
            f"Write a greater {step_name}",
        )


def _column_of_rows(name: str) -> str:
    return f"{WINDOWED}.{quoted(name)}"


@dataclass(frozen=True)
class _Grid:
    """Windows on whole numbers: they have `size`, begin every `step`, and one begins at `origin`.

    `months` says that the numbers are months; else they are days with a time zone, and microseconds without.
    """

    size: int
    step: int
    origin: int
    months: bool


def _grid(function: str, sizes: Mapping[str, Interval], zone: str | None, refuse: Refuse) -> _Grid:
    step_name = {"TUMBLE": "SIZE", "HOP": "SLIDE", "CUMULATE": "STEP"}[function]
    months = zone is not None and sizes["SIZE"].months is not None

    def numbers(name: str) -> int:
        interval = sizes[name]
        if zone is None:
            if interval.microseconds is None:
                raise refuse(
                    "WINDOW_SIZE", f"{name} is in {interval.unit.lower()}s, which have no fixed length. Add "
                    "TIME_ZONE => 'UTC', or the zone by whose calendar it is meant"
                )  # fmt: skip
            return interval.microseconds
        found = interval.months if months else interval.days
        if found is None:
            raise refuse(
                "WINDOW_SIZE",
                f"with TIME_ZONE all intervals are whole days and weeks, or all are whole months and years; {name} is "
                "another. Leave TIME_ZONE out, and write OFFSET for windows that begin at another time",
            )
        return found

    size, step = numbers("SIZE"), numbers(step_name)
    if size <= 0 or step <= 0:
        raise refuse("WINDOW_SIZE", f"{step_name if step <= 0 else 'SIZE'} is not positive")
    _require_windows(size, step, step_name, refuse)
    begins = "SLIDE" if function == "HOP" else "SIZE"
    origin = _FIRST_MONDAY if zone is not None and sizes[begins].unit == "WEEK" else 0
    return _Grid(size, step, origin + (numbers("OFFSET") if "OFFSET" in sizes else 0), months)


@dataclass(frozen=True)
class _Call:
    """One call, understood: `source` is the input in Spark's SQL."""

    function: str
    source: str
    column: str
    grid: _Grid
    zone: str | None
    hidden: tuple[str, ...] = ()

    def lower(self) -> str:
        """The query in parentheses that has the input's rows, once for each of their windows."""
        grid = self.grid
        place, source, without = self._place()
        hidden = except_columns((*without, *self.hidden))
        if self.function == "CUMULATE":
            start = self._before(place, grid.size)
            first = f"{place} - pmod({place} - {start}, {grid.step}) + {grid.step}"
            places = f"explode(sequence({first}, {start} + {grid.size}, {grid.step}))"
            bounds = (start, f"{_WINDOWS}.{_PLACE}")
        else:
            last = self._before(place, grid.step)
            places = f"explode(sequence({last} - {grid.size - grid.step}, {last}, {grid.step}))"
            bounds = (f"{_WINDOWS}.{_PLACE}", f"{_WINDOWS}.{_PLACE} + {grid.size}")
            if grid.size == grid.step:
                places, bounds = "", (last, f"{last} + {grid.size}")
        start, end = (self._instant(bound) for bound in bounds)
        view = f" LATERAL VIEW {places} {_WINDOWS} AS {_PLACE}" if places else ""
        return (
            f"(SELECT {_ROWS}.*{hidden}, {start} AS window_start, {end} AS window_end, "
            f"timestamp_micros(unix_micros({end}) - 1) AS window_time "
            f"FROM {source} AS {_ROWS}{view} WHERE {self.time} IS NOT NULL)"
        )

    @property
    def time(self) -> str:
        """The row's time as SQL."""
        return _column_of_rows(self.column)

    @property
    def reach(self) -> int:
        """At least the distance of the end of a row's window from its time, in microseconds."""
        if self.zone is None:
            return self.grid.size
        # The longest month, and what clocks are set by.
        return (self.grid.size * (31 if self.grid.months else 1) + 2) * _MICROSECONDS["DAY"]

    def _before(self, place: str, size: int) -> str:
        """The last begin of a window of this size at or before a place; pmod rounds down before the origin too."""
        origin = self.grid.origin
        shifted = place if not origin else f"{place} - {origin}" if origin > 0 else f"{place} + {-origin}"
        return f"({place} - pmod({shifted}, {size}))"

    def _place(self) -> tuple[str, str, tuple[str, ...]]:
        """The place of a row's time among the whole numbers of the grid, what to read for it, and what not to show."""
        if self.zone is None:
            return micros_of(self.time), self.source, ()
        place, hidden = f"{_ROWS}.{_NUMBER}", except_columns((_NUMBER,))

        def beside(value: str, source: str, without: str) -> str:
            return f"(SELECT {_ROWS}.*{without}, {value} AS {_NUMBER} FROM {source} AS {_ROWS})"

        local = f"datediff(to_date(from_utc_timestamp({self.time}, '{self.zone}')), DATE'1970-01-01')"
        source = beside(local, self.source, "")
        # Where clocks are set back over midnight, the last hour of a day comes again after the next day began.
        begun = f"{self.time} >= {self._midnight(f'{place} + 1')}"
        source = beside(f"{place} + CASE WHEN {begun} THEN 1 ELSE 0 END", source, hidden)
        if self.grid.months:
            date = f"date_add(DATE'1970-01-01', {place})"
            source = beside(f"year({date}) * 12 + month({date}) - {1970 * 12 + 1}", source, hidden)
        return place, source, (_NUMBER,)

    def _instant(self, place: str) -> str:
        """The instant of a whole number of the grid."""
        if self.zone is None:
            return f"timestamp_micros({place})"
        if self.grid.months:
            return self._at_midnight(f"add_months(DATE'1970-01-01', {place})")
        return self._midnight(place)

    def _midnight(self, day: str) -> str:
        return self._at_midnight(f"date_add(DATE'1970-01-01', {day})")

    def _at_midnight(self, date: str) -> str:
        """A local midnight; one that does not exist is the first instant of its day, as java.time has it."""
        return f"to_utc_timestamp(CAST({date} AS TIMESTAMP), '{self.zone}')"
