"""EMIT FINAL: when a window is closed, and which rows come too late for it, as SQL over the rows of a log table.

A window is closed when its end, and the lateness that is allowed, are not behind the watermark of what was read. A row
is late for a window that was closed before the row's batch came. Both follow from the log alone, so a table of closed
windows is the same however often it was refreshed.

The watermark up to which windows were written and the one up to which they are closed are known to a refresh only. They
stand in the query as calls without a function, `freshline_closed_after(n)` and `freshline_closed_until(n)`, which
become whole microseconds since 1970, less n.

With WHEN a condition takes the place of closing. The query then gives the rows for which it is true, and
`freshline_watermark(0)` stands in it for the watermark of the refresh.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from freshline.values.clock import as_microseconds, from_microseconds
from freshline.values.connector import SEQ, WATERMARK
from freshline.values.location import Written
from freshline.values.names import TableName

AFTER, UNTIL, NOW = "freshline_closed_after", "freshline_closed_until", "freshline_watermark"
# The number of the newest batch of an input, by its place among those of a join, that the newest receipt has read.
READ = "freshline_batch_read"
# The columns of a log table's rows beside its own. A query of FINAL rows is given them and never yields them.
ARRIVED = (WATERMARK, SEQ)
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_ROWS = "freshline_rows"
# The alias of rows that are final by time, and their column with it.
TIMED, FINAL_TIME = "freshline_timed", "freshline_time"
# For whoever reads the query without a refresh: all windows are closed.
_BOUNDS = {AFTER: _LEAST, UNTIL: _GREATEST}


@dataclass(frozen=True)
class Final:
    """`EMIT FINAL [ALLOWED LATENESS .. | WHEN (..)]`: each row is written once and never changes.

    `lateness_seconds` is how long after its end a window still takes rows in. `condition` is that of WHEN, which says
    of a row whether it is written, None where windows are closed.
    """

    lateness_seconds: int = 0
    condition: Written[str] | None = None

    @property
    def lateness(self) -> int:
        """In microseconds."""
        return self.lateness_seconds * 1_000_000


@dataclass(frozen=True)
class Closing:
    """The windows that a refresh writes: those that one watermark closed and the other had not.

    Watermarks are in microseconds since 1970. `after` None stands for the beginning, `until` None for a watermark that
    is not there yet, which closes nothing. `read` are the numbers of the batches of a join's inputs that the newest
    receipt has read, empty for none. `ends` are the watermarks that close windows, where it is known: a first one, and
    every so many microseconds.
    """

    after: int | None
    until: int | None
    ends: tuple[int, int] | None = None
    read: tuple[int, ...] = ()

    @property
    def closes(self) -> bool:
        """Whether there can be a window between the two.

        >>> minute = 60_000_000
        >>> Closing(0, minute - 1, (0, minute)).closes, Closing(0, minute, (0, minute)).closes
        (False, True)
        """
        if self.until is None or self.after is None:
            return self.until is not None
        if self.ends is None:
            return self.until > self.after
        first, step = self.ends
        return (self.until - first) // step > (self.after - first) // step

    @property
    def forward(self) -> Closing:
        """The same, but where the watermark went back: then as if it had stood still.

        A table is final up to where it was, whatever its inputs know of their times now.
        """
        if self.after is None or (self.until is not None and self.until >= self.after):
            return self
        return replace(self, until=self.after)

    @property
    def until_time(self) -> datetime | None:
        """The watermark up to which windows are closed."""
        return None if self.until is None else from_microseconds(self.until)

    @property
    def text(self) -> str:
        """Up to when windows are closed, for people."""
        until = self.until_time
        return "none yet" if until is None else f"up to {until:%Y-%m-%d %H:%M:%S} UTC"

    @classmethod
    def between(cls, after: datetime | None, until: datetime | None, ends: tuple[int, int] | None = None) -> Closing:
        """The windows that one watermark has closed and an earlier one had not."""
        return cls(_microseconds(after), _microseconds(until), ends)

    def bound(self, name: str) -> int:
        """The number that one of the two calls stands for."""
        if name == AFTER:
            return _LEAST if self.after is None else self.after
        return _LEAST if self.until is None else self.until


def _microseconds(time: datetime | None) -> int | None:
    return None if time is None else as_microseconds(time)


def moment(closing: Closing | None, name: str, less: int) -> str:
    """The text that takes the place of a call in what Spark runs."""
    if name == NOW:
        until = None if closing is None else closing.until
        return "CAST(NULL AS TIMESTAMP)" if until is None else f"timestamp_micros(CAST('{until}' AS BIGINT))"
    if name == READ:
        number = closing.read[less] if closing is not None and closing.read else _LEAST
        return f"CAST('{number}' AS BIGINT)"
    bound = _BOUNDS[name] if closing is None else closing.bound(name)
    # Less than the least stays the least: what it stands for has no end.
    number = bound if bound in (_LEAST, _GREATEST) else max(_LEAST, min(_GREATEST, bound - less))
    return f"CAST('{number}' AS BIGINT)"


def written_moment(text: str) -> tuple[str, int]:
    """The name and the number of a call as it stands in a text."""
    name, number = re.fullmatch(r"(\w+)\((-?\d+)\)", text).groups()  # type: ignore[union-attr]
    return name, int(number)


@dataclass(frozen=True)
class FinalRows:
    """The two queries that one window function becomes: the rows of closed windows, and those that came too late."""

    closed: str
    late: str


@dataclass(frozen=True)
class TimedRows:
    """A query whose rows are final by time, and not by the end of a window.

    `kind` is what `freshline.plan.event_time` calls it. `times` are the columns of its result, in lower case, up to
    whose value all rows are there once the watermark is behind them. They are there `behind`
    microseconds after that. `inputs` are those of a join, whose pairs are final at once.
    """

    kind: str
    times: tuple[str, ...] = ()
    inputs: tuple[TableName, ...] = ()
    behind: int = 0


def by_window(lower: Callable[[str], str], source: str, time: str, *, lateness: int, reach: int) -> FinalRows:
    """For windows whose bounds follow from one row: a row is late for each of its windows that was closed before it.

    `lower` makes the query with windows of a source, `time` is the row's time, and `reach` the greatest distance of a
    window's end from it, in microseconds.
    """
    spanned = _spanned(source, time, lateness, reach)
    before = _before(_ROWS, lateness)
    end = f"unix_micros({_ROWS}.window_end)"
    in_time = f"({_ROWS}.{WATERMARK} IS NULL OR {end} > {before})"
    closed = (
        f"(SELECT {_ROWS}.* EXCEPT ({', '.join(ARRIVED)}) FROM {lower(spanned)} AS {_ROWS} "
        f"WHERE {in_time} AND {is_closed(end, lateness)})"
    )
    late = (
        f"SELECT {_ROWS}.* EXCEPT ({', '.join(ARRIVED)}, window_time), {_seconds(f'{before} - {end}')} AS late_by, "
        f"{_ROWS}.{SEQ} AS position FROM {lower(source)} AS {_ROWS} WHERE {end} <= {before}"
    )
    return FinalRows(closed, late)


def by_time(
    lower: Callable[[str], str], source: str, time: str, *, lateness: int, filled: tuple[str, int] | None = None
) -> FinalRows:
    """For windows that follow from several rows: a row is late by its own time, whatever its window would be.

    With `filled`, pairs of the columns that identify windows and a number, only windows of that many rows are closed.
    """
    # A row at the watermark keeps the session of one that is a gap before it from being closed.
    in_time = (
        f"(SELECT {_ROWS}.* FROM {source} AS {_ROWS} WHERE {came_in_time(_ROWS, time, lateness)} "
        f"AND {until_time(time, lateness)})"
    )
    rows, hidden, condition = lower(in_time), list(ARRIVED), is_closed(f"unix_micros({_ROWS}.window_end)", lateness)
    if filled is not None:
        by, size = filled
        rows = f"(SELECT {_ROWS}.*, count(*) OVER (PARTITION BY {by}) AS freshline_filled FROM {rows} AS {_ROWS})"
        hidden.append("freshline_filled")
        condition += f" AND {_ROWS}.freshline_filled = {size}"
    closed = f"(SELECT {_ROWS}.* EXCEPT ({', '.join(hidden)}) FROM {rows} AS {_ROWS} WHERE {condition})"
    none = "CAST(NULL AS TIMESTAMP)"
    by, is_late = late_by(_ROWS, micros_of(time), lateness)
    late = (
        f"SELECT {_ROWS}.* EXCEPT ({', '.join(ARRIVED)}), {none} AS window_start, {none} AS window_end, "
        f"{by} AS late_by, {_ROWS}.{SEQ} AS position FROM {source} AS {_ROWS} WHERE {is_late}"
    )
    return FinalRows(closed, late)


def micros_of(time: str) -> str:
    """The microseconds since 1970 of a time as SQL, in UTC where its type has no zone: Spark takes no TIMESTAMP_NTZ."""
    return f"unix_micros(CAST({time} AS TIMESTAMP))"


def _before(alias: str, lateness: int) -> str:
    return f"unix_micros({alias}.{WATERMARK}) - {lateness}"


def came_in_time(alias: str, time: str, lateness: int) -> str:
    """Whether a row of a log table, under an alias, was not late by its own time."""
    return f"({alias}.{WATERMARK} IS NULL OR {micros_of(time)} > {_before(alias, lateness)})"


def late_by(alias: str, at: str, lateness: int) -> tuple[str, str]:
    """The seconds by which a row is late, and whether it is; `at` are the microseconds of its time."""
    before = _before(alias, lateness)
    return _seconds(f"{before} - {at}"), f"{at} <= {before}"


def until_time(time: str, less: int) -> str:
    """Whether a time is at or before the watermark of the refresh, less so many microseconds; a NULL is not."""
    return f"{time} <= timestamp_micros({UNTIL}({less}))"


def from_time(time: str, less: int) -> str:
    """Whether a time is behind the watermark of the newest receipt, less so many microseconds."""
    return f"{time} > timestamp_micros({AFTER}({less}))"


def is_new(alias: str, number: int) -> str:
    """Whether a row of the input with a number is of a batch that the newest receipt has not read."""
    return f"coalesce({alias}.{SEQ}, 0) > {READ}({number})"


def is_closed(end: str, less: int) -> str:
    """Whether microseconds are between the watermark of the newest receipt and that of the refresh."""
    return f"{end} > {AFTER}({less}) AND {end} <= {UNTIL}({less})"


def _spanned(source: str, time: str, lateness: int, reach: int) -> str:
    """The rows of a source whose windows can be among the written ones, so that files of other times are not read."""
    within = (
        f"{time} >= timestamp_micros({AFTER}({lateness + reach})) AND {time} < timestamp_micros({UNTIL}({lateness}))"
    )
    return f"(SELECT {_ROWS}.* FROM {source} AS {_ROWS} WHERE {within})"


def _seconds(microseconds: str) -> str:
    return f"CAST(CAST({microseconds} AS DECIMAL(20, 0)) * 0.000001BD AS DECIMAL(20, 6))"
