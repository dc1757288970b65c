"""Five failures in a row over fifteen minutes suspend a table, retries within a tick are one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from freshline.freshness.failures import count_failure, is_to_suspend, suspension_reason
from freshline.freshness.intentions import FailureRow
from freshline.values.freshness import Freshness
from freshline.values.names import TableName

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
TABLE = TableName.parse("spend")
ERROR = {"code": "QUERY", "message": "division by zero"}


def failing(minutes: list[float], freshness: int) -> FailureRow:
    row: FailureRow | None = None
    for minute in minutes:
        row = count_failure(row, TABLE, ERROR, Freshness(freshness), NOW + timedelta(minutes=minute))
    assert row is not None
    return row


def test_five_failures_within_minutes_are_too_soon():
    assert failing([0, 1, 2, 3, 4], 10).count == 5
    assert not is_to_suspend(failing([0, 1, 2, 3, 4], 10))


def test_five_failures_over_fifteen_minutes_suspend():
    assert not is_to_suspend(failing([0, 5, 10, 15], 60))
    assert is_to_suspend(failing([0, 4, 8, 12, 15], 60))


def test_retries_within_a_tick_are_one_failure():
    row = failing([0, 0.02, 0.05, 0.1, 0.5, 1.5], 86_400)

    assert row.count == 1
    assert not is_to_suspend(failing([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14], 86_400))
    assert is_to_suspend(failing([float(minute) for minute in range(16)], 86_400))


def test_a_clock_that_is_put_back_neither_suspends_nor_stops_counting():
    row = failing([60, 0, 1, 2, 3], 30)

    assert row.count == 5
    assert not is_to_suspend(row)
    assert not is_to_suspend(failing([60, 0, 1, 2, 3, 8, 13], 30))
    assert is_to_suspend(failing([60, 0, 1, 2, 3, 8, 13, 15], 30))


def test_neither_a_clock_that_jumps_forward_nor_a_night_without_tries_counts_as_time_that_it_failed():
    row = failing([0, 0.2, 0.4, 0.6, 60.8], 10)

    assert row.count == 5
    assert not is_to_suspend(row)
    assert is_to_suspend(failing([0, 600, 1200, 1800, 2400], 86_400))


def test_the_reason_has_the_last_error():
    assert suspension_reason(failing([0, 4, 8, 12, 15], 60)) == (
        "5 failures in a row over 15 minutes that a retry cannot help, the last one QUERY: division by zero"
    )
