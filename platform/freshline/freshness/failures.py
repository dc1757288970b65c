"""The failures in a row that suspend a table (rule 12 of docs/rules.md).

Counted are scheduled failures that a retry cannot help: not those of a store or broker that is away, of refreshes that
a person asked for, of backfills, nor of what the table reads. Attempts within one tick are one failure. Any success
ends the row. Everything here comes from the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from freshline.freshness.intentions import FailureRow
from freshline.values.freshness import Freshness
from freshline.values.names import TableName

# Rule 12 of docs/rules.md: this many failures in a row, over at least this long.
FAILURES = 5
SPAN = timedelta(minutes=15)
# A tick is as long as the table's freshness, and not longer than this: a table that is refreshed once a day and fails
# is tried again much sooner, and need not fail for five days.
LONGEST_TICK = SPAN / FAILURES
# Between two failures no more is counted as time in which it failed: the clock may have been set, or nothing was tried.
LONGEST_STEP = timedelta(minutes=5)


def tick_of(freshness: Freshness) -> timedelta:
    """The time within which failed attempts count as one failure.

    >>> tick_of(Freshness(10)), tick_of(Freshness(86400))
    (datetime.timedelta(seconds=10), datetime.timedelta(seconds=180))
    """
    return min(freshness.allowed_lag, LONGEST_TICK)


def count_failure(
    before: FailureRow | None, table: TableName, error: Mapping[str, Any], freshness: Freshness, now: datetime
) -> FailureRow:
    """The row of failures with this one in it; `before` is the row so far."""
    if before is None:
        return FailureRow(table, 1, now, now, dict(error))
    if timedelta() <= now - before.last_at < tick_of(freshness):
        return replace(before, error=dict(error))
    # A clock that was set must neither stretch the row nor delay its count.
    step = min(max(timedelta(), now - before.last_at), LONGEST_STEP)
    failed_for = before.last_at - before.first_at + step
    return FailureRow(table, before.count + 1, now - failed_for, now, dict(error))


def is_to_suspend(row: FailureRow) -> bool:
    """Whether the row is long enough for the table to be suspended."""
    return row.count >= FAILURES and row.last_at - row.first_at >= SPAN


def suspension_reason(row: FailureRow) -> str:
    """The reason for which the table was suspended, with its last error."""
    minutes = int((row.last_at - row.first_at).total_seconds() // 60)
    return (
        f"{row.count} failures in a row over {minutes} minutes that a retry cannot help, the last one "
        f"{row.error.get('code', 'FRESHLINE')}: {row.error.get('message', '')}"
    )
