"""The processes that are silent, also when the clock jumps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from freshline.freshness.record import Heartbeat
from freshline.report.alerts.conditions import Voice
from freshline.report.alerts.silence import (
    Heard,
    Moment,
    engine_process,
    jump_seconds,
    listen,
    scheduler_process,
    sensor_states,
    switched_off,
)
from freshline.values.spec import Mode
from tests.report.alerts.situations import NOW

RUNNING = {"supervisor": "RUNNING", "batch": "RUNNING"}
STOPPED = {"supervisor": "STOPPED", "batch": "STOPPED"}


def moment(seconds: float, jump: float = 0.0) -> Moment:
    """So many seconds later, on a clock that jumped meanwhile."""
    return Moment(NOW + timedelta(seconds=seconds + jump), 1000.0 + seconds)


def heard(seconds_ago: float) -> Heard:
    return Heard(NOW - timedelta(seconds=seconds_ago), 1000.0 - seconds_ago)


@pytest.mark.parametrize(("jump", "told"), [(0.0, 0.0), (4.0, 0.0), (3600.0, 3600.0), (-3600.0, -3600.0)])
def test_a_jump_is_what_the_clock_moved_beside_the_time_that_passed(jump: float, told: float) -> None:
    assert jump_seconds(moment(0), moment(2, jump)) == told


def test_an_engine_that_was_never_there_or_was_stopped_is_not_silent() -> None:
    assert engine_process(None, None, moment(0), ended=False).voice is Voice.ABSENT


@pytest.mark.parametrize(
    ("silent", "ended", "voice"),
    [
        (9.0, False, Voice.HEARD),
        (11.0, False, Voice.SILENT),
        (3.0, True, Voice.HEARD),
        (5.0, True, Voice.SILENT),
    ],
)
def test_an_engine_is_silent_after_ten_seconds_or_earlier_when_its_process_has_ended(
    silent: float, ended: bool, voice: Voice
) -> None:
    heartbeat = Heartbeat(NOW, {"pid": 12})
    found = engine_process(heard(silent), heartbeat, moment(0), ended=ended)

    assert found.voice is voice
    if voice is Voice.SILENT:
        assert found.since == NOW - timedelta(seconds=silent)
        assert "the engine, process 12," in found.cause


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_jumps_neither_makes_silent_nor_hides_a_silence(jump: float) -> None:
    known = listen({}, {"engine": NOW}, moment(0), by_clock=True)
    known = listen(known, {"engine": NOW + timedelta(seconds=2)}, moment(2), by_clock=True)
    jumped = listen(known, {"engine": NOW + timedelta(seconds=2)}, moment(4, jump), by_clock=True)
    assert engine_process(jumped["engine"], None, moment(4, jump), ended=False).voice is Voice.HEARD

    later = listen(jumped, {"engine": NOW + timedelta(seconds=2)}, moment(14, jump), by_clock=True)
    assert engine_process(later["engine"], None, moment(14, jump), ended=False).voice is Voice.SILENT


@pytest.mark.parametrize("by_clock", [True, False])
def test_a_process_that_was_never_heard_before_is_as_old_as_the_clock_says_or_new(by_clock: bool) -> None:
    old = {"engine": NOW - timedelta(minutes=5)}
    known = listen({}, old, moment(0), by_clock=by_clock)
    at_once = engine_process(known["engine"], None, moment(0), ended=False)
    known = listen(known, old, moment(11), by_clock=by_clock)
    later = engine_process(known["engine"], None, moment(11), ended=False)

    assert at_once.voice is (Voice.SILENT if by_clock else Voice.UNKNOWN)
    # In either case it says when that was.
    assert (later.voice, later.since) == (Voice.SILENT, NOW - timedelta(minutes=5))


def test_last_words_are_not_heard_until_others_follow() -> None:
    known = listen({}, {"engine": NOW}, moment(0), by_clock=False)
    assert engine_process(known["engine"], None, moment(5), ended=False).voice is Voice.UNKNOWN
    known = listen(known, {"engine": NOW + timedelta(seconds=2)}, moment(5), by_clock=False)
    assert engine_process(known["engine"], None, moment(5), ended=False).voice is Voice.HEARD


def test_time_in_which_nobody_could_be_heard_is_no_silence() -> None:
    known = listen({}, {"engine": NOW}, moment(0), by_clock=True)
    known = listen(known, {"engine": NOW}, moment(120), by_clock=True, deaf=120.0)
    assert engine_process(known["engine"], None, moment(120), ended=False).voice is Voice.HEARD

    known = listen(known, {"engine": NOW}, moment(131), by_clock=True)
    found = engine_process(known["engine"], None, moment(131), ended=False)
    assert (found.voice, found.since) == (Voice.SILENT, NOW)


@pytest.mark.parametrize(("ticks", "sensors"), [(True, RUNNING), (False, RUNNING), (False, STOPPED)])
def test_a_scheduler_is_heard_when_all_that_should_be_was(ticks: bool, sensors: Mapping[str, str]) -> None:
    found = scheduler_process(replace(heard(10.0), changed=ticks), heard(10.0), sensors, moment(0), ended=False)

    assert found.voice is (Voice.HEARD if ticks or sensors is STOPPED else Voice.UNKNOWN)


@pytest.mark.parametrize(
    ("ticks", "daemon", "sensors", "ended", "said"),
    [
        (10.0, 10.0, RUNNING, False, None),
        (10.0, 95.0, RUNNING, False, "Dagster's daemon is silent"),
        (95.0, 10.0, RUNNING, False, "its sensors do not tick"),
        (9999.0, 10.0, STOPPED, False, None),
        (10.0, None, {}, False, None),
        (95.0, None, {}, False, "Dagster is silent"),
        (10.0, 10.0, RUNNING, True, "Dagster's daemon has ended"),
    ],
)
def test_the_scheduler_is_its_daemon_and_its_sensors(
    ticks: float, daemon: float | None, sensors: Mapping[str, str], ended: bool, said: str | None
) -> None:
    found = scheduler_process(heard(ticks), None if daemon is None else heard(daemon), sensors, moment(0), ended=ended)

    assert found.voice is (Voice.HEARD if said is None else Voice.SILENT)
    assert (said or "") in found.cause


def test_a_scheduler_that_nobody_heard_of_is_not_expected() -> None:
    assert scheduler_process(None, heard(9999.0), {}, moment(0), ended=True).voice is Voice.ABSENT


def test_sensors_that_are_switched_off_switch_off_their_modes() -> None:
    assert switched_off(RUNNING) == frozenset()
    assert switched_off({"supervisor": "STOPPED"}) == {Mode.CONTINUOUS, Mode.INCREMENTAL}
    assert switched_off(STOPPED) == set(Mode)


@dataclass(frozen=True)
class Look:
    daemon_heartbeat: datetime | None
    sensors: Mapping[str, str]


def test_sensors_are_known_by_what_they_are_for() -> None:
    check = Look(None, {"freshline_supervisor_sensor": "RUNNING", "batch": "STOPPED", "another": "STOPPED"})

    assert sensor_states(check) == {"supervisor": "RUNNING", "batch": "STOPPED"}
    assert sensor_states(None) == {}
