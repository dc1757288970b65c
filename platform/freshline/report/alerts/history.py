"""The sums of a table's refresh records: failures in a row, and how many of the rows that arrived were rejected.

Records are taken in one after the other, each once; what is older than the hour falls out. Manual refreshes and
backfills have somebody who watches them: their failures do not count, their success does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from freshline.plan.request import BACKFILL, MANUAL
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

WINDOW = timedelta(hours=1)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class Failing:
    """Scheduled refreshes that failed in a row; `error` is the newest one's, as a JSON object."""

    count: int
    since: datetime
    error: Mapping[str, Any]

    @property
    def retry_helps(self) -> bool:
        return bool(self.error.get("retry_helps"))


@dataclass(frozen=True)
class Arrivals:
    """Rows that arrived within the window, those of them that were rejected, and those that were late."""

    rows: int = 0
    rejected: int = 0
    late: int = 0

    def __add__(self, other: Arrivals) -> Arrivals:
        return Arrivals(self.rows + other.rows, self.rejected + other.rejected, self.late + other.late)


NOTHING = Arrivals()


@dataclass(frozen=True)
class RecordHistory:
    """The records of one table, added up. `minutes` are the arrivals of each minute of the window that had any."""

    failing: Failing | None = None
    minutes: tuple[tuple[datetime, Arrivals], ...] = ()

    def arrivals(self, now: datetime) -> Arrivals:
        """The arrivals in the hour before `now`."""
        total = NOTHING
        for at, arrived in self.minutes:
            if now - WINDOW < at + _MINUTE:
                total += arrived
        return total


def add_record(history: RecordHistory, record: RefreshResult) -> RecordHistory:
    """The history with one more record, which is newer than all before."""
    history = replace(history, failing=_failing(history.failing, record))
    arrived = Arrivals(record.rows_in or 0, record.rejected, record.late_rows or 0)
    if not record.committed or arrived == NOTHING:
        return history
    minute = record.at.replace(second=0, microsecond=0)
    kept = [(at, known) for at, known in history.minutes if record.at - WINDOW < at + _MINUTE]
    if kept and kept[-1][0] == minute:
        arrived += kept.pop()[1]
    return replace(history, minutes=(*kept, (minute, arrived)))


def add_records(
    histories: Mapping[TableName, RecordHistory], records: Iterable[RefreshResult]
) -> dict[TableName, RecordHistory]:
    """All histories with more records, the oldest first."""
    found = dict(histories)
    for record in records:
        found[record.table] = add_record(found.get(record.table, RecordHistory()), record)
    return found


def _failing(before: Failing | None, record: RefreshResult) -> Failing | None:
    if record.state == State.SUCCEEDED:
        return None
    if record.state != State.FAILED or record.cause in (MANUAL, BACKFILL):
        return before
    count, since = (0, record.at) if before is None else (before.count, before.since)
    error = {} if record.error is None else record.error.as_json()
    return Failing(count + 1, since, error)
