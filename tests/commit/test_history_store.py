"""The past of tables in the control store: what is kept of it, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import create_engine, func, select

from freshline.commit.control_store import ControlStore
from freshline.commit.control_store.history import add_refresh
from freshline.commit.control_store.schema import HOURS, MARKS, SPANS
from freshline.freshness.history import LagSample, LagSpan, RefreshSums
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SPEND, ORDERS = TableName.parse("sales.Spend"), TableName.parse("sales.orders")
RESULT = RefreshResult(
    table=SPEND, at=NOON, state=State.SUCCEEDED, strategy="append", reason="INSERTS_ONLY: rows were only added",
    committed=True, version=3, rows_in=4, rows_out=5, seconds=1.5, cpu_seconds=0.5, lag_seconds=2.0,
    freshness_seconds=60, mode="incremental", cause="live",
)  # fmt: skip


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        server = request.getfixturevalue("postgres")
        return str(server.new_database())
    return f"sqlite:///{tmp_path / 'control.db'}"


@pytest.fixture
def store(url: str) -> Iterator[ControlStore]:
    store = ControlStore.open(url)
    yield store
    store.close()


def span(seconds: float, lag: float, *, judged: float = 0.0, late: float = 0.0) -> LagSpan:
    return replace(
        LagSpan.of(LagSample(NOON + timedelta(seconds=seconds), lag, 60)), judged_seconds=judged, late_seconds=late
    )


def counts(url: str) -> dict[str, int]:
    with create_engine(url).connect() as connection:
        return {
            table.name: int(connection.execute(select(func.count()).select_from(table)).scalar_one())
            for table in (MARKS, SPANS, HOURS)
        }


def test_a_refresh_leaves_a_mark_a_lag_and_its_sums(store):
    store.record_refresh(RESULT)
    store.record_refresh(replace(RESULT, at=NOON + timedelta(minutes=2), state=State.FAILED, lag_seconds=None))

    now = NOON + timedelta(minutes=3)
    done, failed = store.history.marks(SPEND, NOON, now)
    (hour,) = store.history.hours(SPEND, NOON, now)
    assert (done.at, done.strategy, done.rows_out, done.lag_seconds, done.freshness_seconds) == (
        NOON,
        "append",
        5,
        2,
        60,
    )
    assert (failed.state, failed.committed) == ("FAILED", True)
    assert store.history.recent_spans(NOON, now) == {SPEND: [LagSpan.of(LagSample(NOON, 2.0, 60))]}
    assert hour.sums == RefreshSums(2, 0, 1, 8, 10, 3.0, 1.0, 2)
    assert hour.lag == LagSpan.of(LagSample(NOON, 2.0, 60))


def test_checks_that_found_nothing_are_counted_by_the_hour_and_have_no_mark(store, url):
    for second in range(3):
        at = NOON + timedelta(seconds=second)
        store.record_refresh(replace(RESULT, at=at, strategy="noop", committed=False))

    assert counts(url) == {"freshline_mark": 0, "freshline_span": 0, "freshline_hour": 1}
    (hour,) = store.history.hours(SPEND, NOON, NOON + timedelta(minutes=1))
    assert (hour.lag, hour.sums.refreshes, hour.sums.checks) == (None, 3, 3)


def test_decisions_are_marks_and_no_refreshes(store):
    store.record_refresh(replace(RESULT, state=State.ALTERED, strategy=None, committed=False, lag_seconds=None))

    (mark,) = store.history.marks(SPEND, NOON, NOON)
    assert mark.state == "ALTERED"
    assert store.history.summaries(NOON)[SPEND].day.refreshes == 0


def test_an_hour_keeps_the_first_the_last_and_the_greatest_lag_of_whoever_checked(store):
    store.history.add_spans({SPEND: span(60, 30, judged=60)})
    store.record_refresh(replace(RESULT, at=NOON + timedelta(seconds=90), lag_seconds=80.0))
    store.history.add_spans({SPEND: span(120, 5, judged=60, late=20), ORDERS: span(120, 1)})
    # The span of a process that was stopped for a while.
    store.history.add_spans({SPEND: span(0, 9)})

    (hour,) = store.history.hours(SPEND, NOON, NOON + timedelta(minutes=3))
    assert hour.lag == LagSpan(NOON, 9, NOON + timedelta(seconds=120), 5, 80, 60, 120, 20)
    assert [one.first_seconds for one in store.history.recent_spans(NOON, NOON + timedelta(minutes=3))[SPEND]] == [
        9,
        30,
        5,
    ]


def test_a_minute_has_one_row_whoever_writes_it(store, url):
    store.history.add_spans({SPEND: span(5, 1)})
    store.history.add_spans({SPEND: span(40, 7)})

    assert counts(url)["freshline_span"] == 1
    assert store.history.recent_spans(NOON, NOON + timedelta(minutes=1))[SPEND] == [span(5, 1).with_span(span(40, 7))]


def test_the_day_and_the_week_are_separate(store):
    store.history.add_spans({SPEND: span(0, 1, judged=100, late=50)})
    store.history.add_spans({SPEND: span(-3 * 86_400, 1, judged=300, late=0)})
    store.history.add_spans({SPEND: span(-20 * 86_400, 1, judged=9_000, late=9_000)})

    found = store.history.summaries(NOON + timedelta(minutes=1))[SPEND]

    assert (found.share_day, found.share_week) == (0.5, 0.875)


def test_where_another_watch_goes_on(store):
    store.history.add_spans({SPEND: span(-1_800, 40), ORDERS: span(-9_000, 3)})
    store.history.add_spans({SPEND: span(0, 5)})

    assert store.history.newest_samples(NOON + timedelta(seconds=10)) == {SPEND: LagSample(NOON, 5, 60)}


def test_a_record_that_seems_to_come_from_the_future_is_left_out_until_the_clock_has_passed_it(store):
    store.record_refresh(replace(RESULT, at=NOON + timedelta(days=2)))
    store.record_refresh(RESULT)

    assert [mark.at for mark in store.history.marks(SPEND, NOON - timedelta(days=7), NOON)] == [NOON]
    assert store.history.summaries(NOON)[SPEND].day.refreshes == 1
    assert len(store.history.recent_spans(NOON - timedelta(days=7), NOON)[SPEND]) == 1
    assert set(store.history.newest_samples(NOON)) == {SPEND}
    later = NOON + timedelta(days=2, seconds=1)
    assert len(store.history.marks(SPEND, NOON, later)) == 2


def test_a_clock_that_is_set_back_takes_nothing_away(store, url):
    store.record_refresh(RESULT)

    store.record_refresh(replace(RESULT, at=NOON - timedelta(days=400)))

    assert counts(url) == {"freshline_mark": 2, "freshline_span": 2, "freshline_hour": 2}


def test_a_table_that_is_gone_is_forgotten_too(store, url):
    store.record_refresh(replace(RESULT, table=ORDERS))
    for day in range(1, 32):
        store.record_refresh(replace(RESULT, at=NOON + timedelta(days=day)))

    later = NOON + timedelta(days=32)
    assert store.history.marks(ORDERS, NOON, later) == []
    assert store.history.hours(ORDERS, NOON, later) == []
    assert store.history.recent_spans(NOON, later, ORDERS) == {}
    assert len(store.history.marks(SPEND, NOON, later)) == 8


@pytest.mark.seconds
@pytest.mark.parametrize("seconds", [1_800, pytest.param(10, marks=pytest.mark.long)])
def test_thirty_days_of_refreshes_stay_within_a_kilobyte_each(tmp_path, seconds):
    """Also with the longest names and reasons. Of the first weeks the hours are left, with their extremes."""
    url, name = f"sqlite:///{tmp_path / 'control.db'}", TableName.parse(f"{'n' * 128}.{'t' * 128}")
    store = ControlStore.open(url)
    for day in range(30):
        # A day in one transaction, for the time of the test.
        with store._database.write() as connection:
            for second in range(0, 86_400, seconds):
                at = NOON + timedelta(days=day, seconds=second)
                lag = 500.0 if second % 3_600 == 1_800 else 2.0
                add_refresh(connection, replace(RESULT, table=name, at=at, reason="r" * 5_000, lag_seconds=lag))
    now = NOON + timedelta(days=30)
    hours = store.history.hours(name, NOON, now)
    store.close()

    a_week = 7 * 86_400
    found = counts(url)
    assert found["freshline_hour"] == 720
    assert 0 <= found["freshline_mark"] - a_week // seconds <= 3_600 // seconds
    assert 0 <= found["freshline_span"] - a_week // max(seconds, 60) <= 60
    last = 500.0 if seconds == 1_800 else 2.0
    lags = {(hour.lag.first_seconds, hour.lag.last_seconds, hour.lag.greatest_seconds) for hour in hours if hour.lag}
    assert lags == {(2.0, last, 500.0)}
    refreshes = 30 * 86_400 // seconds
    assert sum(hour.sums.refreshes for hour in hours) == refreshes
    assert (tmp_path / "control.db").stat().st_size <= 1_000 * refreshes
