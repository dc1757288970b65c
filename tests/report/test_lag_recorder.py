"""Checks of all tables become rows of the control store, a few a minute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshline.commit.control_store import ControlStore
from freshline.errors import StorageError
from freshline.report.lag_recorder import LagRecorder
from freshline.report.status import TableStatus
from freshline.values.names import TableName

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
SPEND, EMPTY = TableName.parse("spend"), TableName.parse("empty")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ControlStore]:
    store = ControlStore.open(f"sqlite:///{tmp_path / 'control.db'}")
    yield store
    store.close()


def status(name: TableName, lag: float | None, freshness: int = 60) -> TableStatus:
    return TableStatus(
        name, "table", "incremental", "", freshness, None, lag, "SUCCEEDED", 1, None, None, last_refresh=None
    )  # fmt: skip


def test_the_lag_that_is_seen_is_kept_and_a_restart_goes_on_with_it(store):
    recorder = LagRecorder(store.history)
    for second in range(0, 121, 10):
        recorder.record([status(SPEND, 40.0 + second), status(EMPTY, None)], NOON + timedelta(seconds=second))
    # Another watch, which remembers nothing.
    other = LagRecorder(store.history)
    other.record([status(SPEND, 170.0)], NOON + timedelta(seconds=130))
    other.record([status(SPEND, 2.0)], NOON + timedelta(seconds=140))

    now = NOON + timedelta(minutes=3)
    summary = store.history.summaries(now)
    assert set(summary) == {SPEND}
    spans = store.history.recent_spans(NOON, now)[SPEND]
    assert [(span.greatest_seconds, span.last_seconds) for span in spans] == [(70.0, 70.0), (170.0, 2.0)]
    # It was late from second 20 on, and newer data came between the last two checks.
    assert (summary[SPEND].judged_day, summary[SPEND].late_day) == (140.0, 115.0)


@pytest.mark.seconds
def test_a_span_that_could_not_be_written_is_written_by_the_next_check_and_counted_once(store, monkeypatch):
    names = [TableName.parse(f"t{n}") for n in range(120)]
    recorder = LagRecorder(store.history)
    recorder.record([status(name, 10.0) for name in names], NOON)
    add, calls = store.history.add_spans, []

    def fail_once(spans):
        calls.append(len(spans))
        if len(calls) == 2:
            raise StorageError("the control store is locked.")
        add(spans)

    monkeypatch.setattr(store.history, "add_spans", fail_once)
    with pytest.raises(StorageError):
        recorder.record([status(name, 70.0) for name in names], NOON + timedelta(seconds=60))
    recorder.record([status(name, 80.0) for name in names], NOON + timedelta(seconds=70))
    recorder.record([status(name, 1.0) for name in names], NOON + timedelta(seconds=80))

    assert calls == [50, 50, 50, 20, 50, 50, 20]
    summaries = store.history.summaries(NOON + timedelta(minutes=2))
    assert {(each.judged_day, each.late_day) for each in summaries.values()} == {(80.0, 25.0)}
