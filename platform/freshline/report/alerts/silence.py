"""Who is silent, and whether the clock jumped. Pure: the heartbeats that were heard before are an argument.

A heartbeat is a time that its sender wrote. How long it is silent is measured from when its heartbeat was last seen to
change, in seconds that pass whatever the clock says: neither a clock that is set nor a machine that slept makes
everything silent at once, nor hides for an hour that somebody died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from freshline.freshness.record import Heartbeat
from freshline.report.alerts.conditions import Voice, WatchedProcess, moment_text
from freshline.values.spec import Mode

ENGINE_SILENT_SECONDS = 10.0  # it beats every two
ENGINE_ENDED_SECONDS = 4.0  # whose process is known to have ended; one that is taken over beats again before
# Dagster's daemon writes its heartbeat every 30 seconds, and late when a tick takes long (at most a minute).
SCHEDULER_SILENT_SECONDS = 90.0
JUMP_SECONDS = 5.0
# By then the engine has refreshed the tables that a jump of the clock makes late, or there is a reason to report them.
SETTLING_SECONDS = 60.0

SUPERVISOR, BATCH = "supervisor", "batch"
_STOPPED = "STOPPED"


class SchedulerCheck(Protocol):
    """The findings about Dagster: when its daemon last said that it runs, and the state of each sensor by name."""

    @property
    def daemon_heartbeat(self) -> datetime | None: ...

    @property
    def sensors(self) -> Mapping[str, str]: ...


@dataclass(frozen=True)
class Moment:
    """One moment on the clock, and in seconds that only ever pass."""

    now: datetime
    passed: float


def jump_seconds(before: Moment, after: Moment) -> float:
    """By how much the clock moved beside the time that passed; 0 for what clocks do every day."""
    moved = (after.now - before.now).total_seconds() - (after.passed - before.passed)
    return moved if abs(moved) > JUMP_SECONDS else 0.0


@dataclass(frozen=True)
class Heard:
    """The newest heartbeat of one name, and when it was first seen (seconds that pass).

    `changed`: it was seen to take the place of another, or its age is known from the clock. Until then it may be the
    last word of somebody who died long ago.
    """

    at: datetime
    seen: float
    changed: bool = True


def listen(
    before: Mapping[str, Heard],
    heartbeats: Mapping[str, datetime],
    moment: Moment,
    *,
    by_clock: bool,
    deaf: float = 0.0,
) -> dict[str, Heard]:
    """The heartbeats that are heard now; one that did not change keeps the time at which it was seen.

    The age of a heartbeat that was never seen before follows from the clock alone: with `by_clock` it is read, else the
    heartbeat counts as new. `deaf` are the seconds since the last check in which nobody could have been heard: they are
    no silence.
    """
    found = {}
    for name, at in heartbeats.items():
        known = before.get(name)
        if known is None:
            age = max(0.0, (moment.now - at).total_seconds()) if by_clock else 0.0
            found[name] = Heard(at, moment.passed - age, changed=by_clock)
        elif known.at == at:
            found[name] = replace(known, seen=known.seen + deaf)
        else:
            found[name] = Heard(at, moment.passed)
    return found


def _last_heard(heard: Heard, moment: Moment) -> datetime:
    """By its own words, unless those are of a clock that was set back since."""
    return min(heard.at, moment.now - timedelta(seconds=moment.passed - heard.seen))


def engine_process(heard: Heard | None, heartbeat: Heartbeat | None, moment: Moment, *, ended: bool) -> WatchedProcess:
    """Whether the engine is heard of. `ended`: the process of this heartbeat is known to have ended."""
    if heard is None:
        return WatchedProcess(Voice.ABSENT)
    silent = moment.passed - heard.seen
    if silent <= (ENGINE_ENDED_SECONDS if ended else ENGINE_SILENT_SECONDS):
        return WatchedProcess(Voice.HEARD if heard.changed else Voice.UNKNOWN)
    since = _last_heard(heard, moment)
    pid = None if heartbeat is None else heartbeat.detail.get("pid")
    who = "the engine" if pid is None else f"the engine, process {pid},"
    what = "ended without having been stopped" if ended else "is silent"
    cause = f"{who} {what}, last heard of {moment_text(since)}; `freshline engine start` starts one"
    return WatchedProcess(Voice.SILENT, since, cause)


def scheduler_process(
    ticks: Heard | None, daemon: Heard | None, sensors: Mapping[str, str], moment: Moment, *, ended: bool
) -> WatchedProcess:
    """Whether Dagster is heard of: its daemon, where its storage can be read, and the ticks of our sensors.

    `sensors` are states by `supervisor` and `batch`. `ended`: the daemon's process is known to have ended. Sensors that
    are switched off do not tick, and that is no silence.
    """
    if ticks is None:
        return WatchedProcess(Voice.ABSENT)
    if ended:
        since = _last_heard(daemon or ticks, moment)
        return WatchedProcess(Voice.SILENT, since, f"Dagster's daemon has ended, last heard of {moment_text(since)}")
    if daemon is not None and moment.passed - daemon.seen > SCHEDULER_SILENT_SECONDS:
        since = _last_heard(daemon, moment)
        return WatchedProcess(Voice.SILENT, since, f"Dagster's daemon is silent, last heard of {moment_text(since)}")
    expected = not sensors or any(state != _STOPPED for state in sensors.values())
    if expected and moment.passed - ticks.seen > SCHEDULER_SILENT_SECONDS:
        since = _last_heard(ticks, moment)
        what = "Dagster is silent" if daemon is None else "Dagster's daemon runs, and its sensors do not tick"
        return WatchedProcess(Voice.SILENT, since, f"{what}, last heard of {moment_text(since)}")
    # Each of those that should beat has to be heard again before the whole counts as heard.
    awaited = [*([] if daemon is None else [daemon]), *([ticks] if expected else [])]
    return WatchedProcess(Voice.HEARD if all(heard.changed for heard in awaited) else Voice.UNKNOWN)


def sensor_states(check: SchedulerCheck | None) -> dict[str, str]:
    """The states of our two sensors, by `supervisor` and `batch`."""
    if check is None:
        return {}
    found = {}
    for key in (SUPERVISOR, BATCH):
        for name, state in check.sensors.items():
            if key in name:
                found[key] = state
    return found


def switched_off(detail: Mapping[str, object]) -> frozenset[Mode]:
    """The modes whose sensor is switched off, by the detail of the scheduler's heartbeat."""
    off: set[Mode] = set()
    if detail.get(SUPERVISOR) == _STOPPED:
        off |= {Mode.CONTINUOUS, Mode.INCREMENTAL}
    if detail.get(BATCH) == _STOPPED:
        off.add(Mode.BATCH)
    return frozenset(off)
