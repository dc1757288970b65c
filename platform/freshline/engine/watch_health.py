"""Whether the alerts of a project would be sent, by the heartbeat of its watch and the record of `freshline up`."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from freshline.engine.process import ProcessId
from freshline.engine.up_record import UpRecord, record_file
from freshline.errors import FreshlineError
from freshline.freshness.record import Heartbeat
from freshline.report.alerts.watch_health import WATCH, EndedWatch, watch_problems
from freshline.values.settings import Settings


def read_watch_problems(settings: Settings, heartbeats: Mapping[str, Heartbeat], now: datetime) -> tuple[str, ...]:
    """The reasons why alerts are not sent, or not through every channel, a sentence each."""
    return watch_problems(heartbeats.get(WATCH), _ended(settings), now, lambda beat: is_gone(beat.detail))


def is_gone(detail: Mapping[str, Any]) -> bool:
    """Whether the process that beats with this detail is one of this machine that has ended."""
    try:
        process = ProcessId(int(detail["pid"]), float(detail["started"]), str(detail.get("mark", "")))
    except (KeyError, TypeError, ValueError):
        return False
    return detail.get("host") == platform.node() and not process.alive


def _ended(settings: Settings) -> EndedWatch | None:
    """The watch of a running `up` that does not stay."""
    # The commands that need the record report one that cannot be read.
    with suppress(FreshlineError):
        record = UpRecord.read(record_file(settings))
        if record is not None and record.supervisor.alive:
            own = dict(record.children).get(WATCH)
            for each in record.ended:
                if each.name == WATCH:
                    return EndedWatch(each.times, each.code, each.log, None if own is None else own.pid)
    return None
