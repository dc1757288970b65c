"""Starting again the engine that `freshline up` started, when it died.

Never two: an engine that runs, starts or stops is left alone, the lock of the warehouse lets only one in, and after a
start that failed the next one waits. An engine that somebody stopped in order is not started: it took its heartbeat
back.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from freshline.commit.control_store import ControlStore
from freshline.dagster.scheduler import ENGINE
from freshline.engine.client import EngineClient
from freshline.engine.lock import find_holder
from freshline.engine.state_file import read_state
from freshline.engine.up_record import MARK, UpRecord, record_file
from freshline.errors import EngineError
from freshline.freshness.record import Heartbeat
from freshline.values.settings import Settings, as_private

# The heartbeat by which starts are counted: it outlives a code server, which a memory would not.
STARTS = "engine-start"
_FIRST_PAUSE = timedelta(seconds=60)
_LONGEST_PAUSE = timedelta(minutes=30)

# Kept so that they are waited for; Python warns of a process that is forgotten while it runs.
_starting: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class EngineSigns:
    """The known facts of the engine: whether `up` started it, whether one is there, and its heartbeats."""

    started_by_up: bool
    there: bool
    heartbeat: Heartbeat | None
    starts: Heartbeat | None


def has_died(signs: EngineSigns, now: datetime) -> bool:
    """Whether the engine is to be started now."""
    if not signs.started_by_up or signs.there or signs.heartbeat is None:
        return False
    if signs.starts is None or now < signs.starts.at:
        return True
    count = int(signs.starts.detail.get("count", 1))
    return now - signs.starts.at >= min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(count - 1, 10))


def keep_engine(settings: Settings, control: ControlStore, now: datetime) -> str | None:
    """See to it that the engine of `up` runs its loops; returns what was done, or None. Does not wait for a start."""
    record = UpRecord.read(record_file(settings))
    if record is None or not record.started_engine:
        return None
    state = read_state(settings.state)
    holder = find_holder(settings.warehouse)
    running = state is not None and state.alive
    there = running or (holder is not None and holder.process.alive)
    beats = control.heartbeats.read()
    signs = EngineSigns(True, there, beats.get(ENGINE), beats.get(STARTS))
    if has_died(signs, now):
        count = 1 if signs.starts is None else int(signs.starts.detail.get("count", 1)) + 1
        # Written before the start: stopped in between, the next one only comes later.
        control.heartbeats.beat(STARTS, now, {"count": count})
        _start(settings, record)
        return "the engine had died and is started again"
    if running and signs.starts is not None and _has_beaten_since(signs):
        control.heartbeats.forget(STARTS)
    # An engine that a single command began serves requests only; while `up` runs it is to keep the tables.
    with suppress(EngineError):
        if running and state is not None:
            client = EngineClient(settings, state)
            health = client.health()
            if not health.get("loops") and not health.get("stopping"):
                client.set_loops(True)
                return "the engine keeps the tables again"
    return None


def _has_beaten_since(signs: EngineSigns) -> bool:
    return signs.heartbeat is not None and signs.starts is not None and signs.heartbeat.at > signs.starts.at


def _start(settings: Settings, record: UpRecord) -> None:
    """Start an engine in a process of its own, which `freshline down` finds by its mark."""
    _starting[:] = [process for process in _starting if process.poll() is None]
    logs = settings.state / "logs"
    with as_private(settings.umask):
        logs.mkdir(parents=True, exist_ok=True)
        opened = (logs / "engine.out").open("ab")
    with opened as output:
        _starting.append(
            subprocess.Popen(
                [sys.executable, "-m", "freshline.cli.main", "engine", "start", "--project", str(settings.root)],
                cwd=settings.root,
                env={
                    **os.environ,
                    MARK: f"{record.mark}/engine",
                    "FRESHLINE_ENV": settings.environment,
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # The code server may be replaced at any time; this start goes on.
                start_new_session=True,
            )
        )
