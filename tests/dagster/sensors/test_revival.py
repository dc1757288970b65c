"""An engine that died is started again, and no second one ever."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from freshline.dagster.scheduler import ENGINE
from freshline.dagster.sensors.revival import STARTS, EngineSigns, has_died, keep_engine
from freshline.engine.process import ProcessId
from freshline.engine.up_record import UpRecord, record_file
from freshline.freshness.record import Heartbeat

pytestmark = pytest.mark.seconds

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
BEAT = Heartbeat(NOW - timedelta(minutes=1), {})


def signs(**changes: object) -> EngineSigns:
    values: dict[str, object] = {"started_by_up": True, "there": False, "heartbeat": BEAT, "starts": None, **changes}
    return EngineSigns(**values)  # type: ignore[arg-type]


def test_one_that_died_is_started():
    assert has_died(signs(), NOW)


@pytest.mark.parametrize(
    "changes",
    [{"started_by_up": False}, {"there": True}, {"heartbeat": None}],
    ids=["that somebody else started", "that is there", "that was stopped in order"],
)
def test_one_is_not_started(changes):
    assert not has_died(signs(**changes), NOW)


def test_a_start_that_failed_is_tried_again_later_each_time():
    def at(count: int, seconds: float) -> bool:
        return has_died(signs(starts=Heartbeat(NOW - timedelta(seconds=seconds), {"count": count})), NOW)

    assert [at(1, 59), at(1, 60), at(2, 119), at(2, 120), at(99, 1799), at(99, 1800)] == [False, True] * 3
    assert at(1, -3600)  # the clock was set back


def test_the_start_is_a_process_of_its_own_with_the_mark_of_up(bench, monkeypatch):
    """The started program is a stand-in for Python itself, which writes down how it was called."""
    told = bench.settings.state / "told"
    stand_in = bench.settings.root / "python"
    stand_in.write_text(f'#!/bin/sh\necho "$FRESHLINE_UP|$*" >> {told}\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))
    own = ProcessId.own()
    UpRecord("mark", own, (), None, started_engine=True).write(record_file(bench.settings))
    bench.control.heartbeats.beat(ENGINE, bench.now)

    assert keep_engine(bench.settings, bench.control, bench.now) == "the engine had died and is started again"
    assert keep_engine(bench.settings, bench.control, bench.now + timedelta(seconds=10)) is None
    psutil.wait_procs(psutil.Process().children(), timeout=10)
    assert told.read_text() == (f"mark/engine|-m freshline.cli.main engine start --project {bench.settings.root}\n")
    assert bench.control.heartbeats.read()[STARTS].detail == {"count": 1}


def test_without_up_nothing_is_started(bench):
    bench.control.heartbeats.beat(ENGINE, bench.now)

    assert keep_engine(bench.settings, bench.control, bench.now) is None
    assert STARTS not in bench.control.heartbeats.read()
