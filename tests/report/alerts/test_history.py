"""The sums of refresh records."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from freshline.errors import QueryError
from freshline.report.alerts.history import Arrivals, RecordHistory, add_record, add_records
from freshline.values.result import RefreshResult, State
from tests.report.alerts.situations import NOW, name

RECORD = RefreshResult(
    table=name("orders"), at=NOW, state=State.SUCCEEDED, strategy="append", reason="new rows", seconds=1.0, version=3
)
ERROR = QueryError("no such column", where="orders")


def after(*records: RefreshResult) -> RecordHistory:
    return add_records({}, records)[name("orders")]


def record(minutes: float = 0.0, **changes: Any) -> RefreshResult:
    return replace(RECORD, at=NOW + timedelta(minutes=minutes), **changes)


def failed(minutes: float = 0.0, **changes: Any) -> RefreshResult:
    return record(minutes, state="FAILED", error=ERROR, **changes)


def arrived(minutes: float, rows: int, rejected: int) -> RefreshResult:
    return record(minutes, rows_in=rows, rejected=rejected, committed=True)


def test_failures_in_a_row_are_counted_from_the_first() -> None:
    failing = after(failed(0), failed(1), failed(2)).failing

    assert failing is not None
    assert (failing.count, failing.since, failing.error) == (3, NOW, ERROR.as_json())


def test_a_success_ends_the_row() -> None:
    assert after(failed(), record(1)).failing is None


@pytest.mark.parametrize("state", ["BLOCKED", "SKIPPED", "CANCELLED", "ALTERED"])
def test_a_state_that_is_neither_success_nor_failure_changes_nothing(state: str) -> None:
    failing = after(failed(), record(1, state=state)).failing

    assert failing is not None
    assert failing.count == 1


@pytest.mark.parametrize("cause", ["manual", "backfill"])
def test_a_failure_that_somebody_watches_does_not_count_and_their_success_does(cause: str) -> None:
    assert after(failed(cause=cause)).failing is None
    assert after(failed(cause="live"), record(1, cause=cause)).failing is None


def test_arrivals_of_an_hour_are_added_up() -> None:
    history = after(arrived(0, 10, 1), arrived(0.5, 10, 2), arrived(59, 5, 0))

    assert history.arrivals(NOW + timedelta(minutes=59)) == Arrivals(25, 3)
    assert history.arrivals(NOW + timedelta(minutes=90)) == Arrivals(5, 0)
    assert history.arrivals(NOW + timedelta(minutes=121)) == Arrivals()


def test_a_busy_day_is_kept_in_an_hours_room() -> None:
    history = RecordHistory()
    moment: datetime = NOW
    for _ in range(2000):
        moment += timedelta(seconds=45)
        history = add_record(history, replace(arrived(0, 1, 0), at=moment))

    assert len(history.minutes) <= 61


def test_rows_that_were_not_committed_did_not_arrive() -> None:
    assert after(replace(arrived(0, 10, 10), committed=False)).minutes == ()
