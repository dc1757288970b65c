"""The board as one frozen value: all tables, the graph, and the page of each table that is asked for.

It is made of what status, the history and EXPLAIN say, and computes no lag and no promise of its own. Everything here
comes from the arguments, so a test may choose any moment. Its appearance is made elsewhere (`page.py`, `chart.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from freshline.declare.graph import Graph
from freshline.freshness.alert import Alert
from freshline.freshness.history import Hour, LagSpan, Mark, Summary
from freshline.report.board.calendar import Calendar
from freshline.report.samples import Sample
from freshline.report.status import TableStatus
from freshline.values.names import TableName
from freshline.values.result import State


class BoardState(StrEnum):
    """The state of a table in one word; where several are true, the first of these."""

    SUSPENDED = "suspended"
    BLOCKED = "blocked"
    FAILING = "failing"
    LATE = "late"
    EMPTY = "no data"
    FRESH = "fresh"


@dataclass(frozen=True)
class BoardRow:
    """One table or source in the list of all.

    `spans` are its lag in the last hours, the oldest first. `cause` says why it is not fresh, empty where that needs no
    words. `reads` are its inputs.
    """

    status: TableStatus
    state: BoardState
    cause: str
    summary: Summary
    spans: tuple[LagSpan, ...] = ()
    owner: str | None = None
    comment: str | None = None
    reads: tuple[TableName, ...] = ()

    @property
    def name(self) -> TableName:
        return self.status.table


@dataclass(frozen=True)
class ColumnFact:
    """A column: its Spark type, what it is (`key`, `partition`), and the columns of inputs that it is computed from."""

    name: str
    type: str
    roles: tuple[str, ...] = ()
    description: str = ""
    origins: tuple[tuple[TableName, str], ...] = ()


@dataclass(frozen=True)
class DeclarationPlace:
    """Where a table is declared: the file below the project, the line, and the text of the file, None if it is gone.

    `link` opens it in an editor or a repository, None where nothing does. `is_local` is a link for this machine only.
    """

    path: str
    line: int
    text: str | None
    link: str | None = None
    is_local: bool = False


@dataclass(frozen=True)
class TablePage:
    """All that the page of one table shows.

    `spans` and `hours` are its lag since the begin of the page and `marks` its refreshes and decisions, each the oldest
    first. `receipts` have the JSON of the receipts of its newest commits, by version. `critical_path` is the slowest
    way of new rows to the table, which is its end. `explained` and `promise` are the texts of EXPLAIN and EXPLAIN
    FRESHNESS, empty where there is none. `near` are the rows of all that it depends on, of itself, and of its readers.
    `sample` and `quarantine` are some of its rows and of what it rejected, None where there are none or none is shown;
    `unshown` says why where they cannot be read. `calendar` has its partitions in time, None for a table without.
    """

    row: BoardRow
    spans: tuple[LagSpan, ...] = ()
    hours: tuple[Hour, ...] = ()
    marks: tuple[Mark, ...] = ()
    receipts: Mapping[int, str] = field(default_factory=dict)
    columns: tuple[ColumnFact, ...] = ()
    alerts: tuple[Alert, ...] = ()
    critical_path: tuple[TableName, ...] = ()
    explained: str = ""
    promise: str = ""
    declaration: DeclarationPlace | None = None
    near: tuple[BoardRow, ...] = ()
    sample: Sample | None = None
    quarantine: Sample | None = None
    unshown: str = ""
    calendar: Calendar | None = None


@dataclass(frozen=True)
class Board:
    """The board of one environment at one moment. Lag and refreshes are shown from `since` on.

    `mistakes` are those of the declarations, each with file and line: their tables are shown as they were before them,
    or not at all. `untold` says why alerts are not sent, or not through every channel.
    """

    project: str
    environment: str
    at: datetime
    since: datetime
    rows: tuple[BoardRow, ...] = ()
    pages: tuple[TablePage, ...] = ()
    alerts: tuple[Alert, ...] = ()
    mistakes: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()

    def count(self, state: BoardState) -> int:
        """How many tables and sources are in a state."""
        return sum(row.state is state for row in self.rows)


SORTS = ("graph", "name", "state", "lag", "day", "week", "rows", "size", "cost")


@dataclass(frozen=True)
class Choice:
    """Which rows are shown, and in which order. Empty texts choose all; `search` is a part of a name in any case."""

    search: str = ""
    namespace: str = ""
    mode: str = ""
    owner: str = ""
    state: str = ""
    sort: str = "graph"


def board_rows(
    graph: Graph,
    statuses: Sequence[TableStatus],
    summaries: Mapping[TableName, Summary],
    spans: Mapping[TableName, Sequence[LagSpan]],
) -> tuple[BoardRow, ...]:
    """The rows of all tables and sources, in the order of the graph."""
    found = []
    for status in statuses:
        name, spec = status.table, graph.specs[status.table]
        state, cause = state_of(status)
        found.append(
            BoardRow(
                status,
                state,
                cause,
                summaries.get(name, Summary()),
                tuple(spans.get(name, ())),
                spec.owner,
                spec.comment,
                graph.reads(name),
            )
        )
    return tuple(found)


def state_of(status: TableStatus) -> tuple[BoardState, str]:
    """The state of a table and its cause."""
    if status.suspended is not None:
        reason = status.suspended.reason
        return BoardState.SUSPENDED, f"by {status.suspended.by}{f': {reason}' if reason else ''}"
    if status.blocked_by is not None:
        return BoardState.BLOCKED, f"{status.blocked_by}, which drives it, is suspended"
    if status.unreadable or status.state == State.FAILED:
        error = status.error or {}
        return BoardState.FAILING, f"{error.get('code', '')}: {error.get('message', '')}"
    if status.late:
        paused = "" if status.paused is None else status.paused
        infeasible = "" if status.feasible is not False else status.feasible_reason
        return BoardState.LATE, paused or status.stands_still or infeasible
    if status.lag_seconds is None:
        return BoardState.EMPTY, ""
    return BoardState.FRESH, ""


def chosen_rows(rows: Iterable[BoardRow], choice: Choice) -> list[BoardRow]:
    """The rows that are chosen, in the chosen order: the worst, the largest or the dearest first."""
    search = choice.search.strip().lower()
    found = [
        row
        for row in rows
        if search in str(row.name).lower()
        and choice.namespace in ("", row.name.namespace or "")
        and choice.mode in ("", row.status.mode)
        and choice.owner in ("", row.owner or "")
        and choice.state in ("", str(row.state))
    ]
    if choice.sort == "name":
        return sorted(found, key=lambda row: str(row.name).lower())
    if choice.sort in SORTS and choice.sort != "graph":
        # Equal ones stay in the order of the graph.
        return sorted(found, key=lambda row: sort_value(row, choice.sort), reverse=True)
    return found


def sort_value(row: BoardRow, sort: str) -> float:
    """The number by which a row is sorted; what is unknown comes last."""
    status, summary = row.status, row.summary
    match sort:
        case "state":
            return float(-list(BoardState).index(row.state))
        case "lag":
            # By the part of the promise that is used up: hours are nothing to a table of a day.
            return -1.0 if status.lag_seconds is None else status.lag_seconds / max(status.freshness_seconds, 1)
        case "day":
            return -2.0 if summary.share_day is None else -summary.share_day
        case "week":
            return -2.0 if summary.share_week is None else -summary.share_week
        case "rows":
            return -1.0 if status.rows is None else float(status.rows)
        case "size":
            return -1.0 if status.size_bytes is None else float(status.size_bytes)
        case "cost":
            return -1.0 if summary.cpu_seconds_a_day is None else summary.cpu_seconds_a_day
        case _:
            raise ValueError(f"rows are not sorted by {sort!r}")


def worst_first(rows: Sequence[BoardRow], most: int) -> list[TableName]:
    """At most so many tables: those that are not fresh, then the others, in the order of the graph."""
    ordered = sorted(rows, key=lambda row: row.state in (BoardState.FRESH, BoardState.EMPTY))
    return [row.name for row in ordered[:most]]
