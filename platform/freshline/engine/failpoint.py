"""Failpoints: named places of a refresh at which a test may kill the engine, as a power cut would, or let it wait.

They do nothing unless FRESHLINE_TEST is 1. Then

- FRESHLINE_FAILPOINT names one at which the engine is killed: `name`, or `name:3` for its third passing.
- FRESHLINE_FAILPOINT_FOLDER is a folder by which a harness lets a running engine wait at a point, see `HeldPoint`.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

TEST_FLAG = "FRESHLINE_TEST"
VARIABLE = "FRESHLINE_FAILPOINT"
FOLDER_VARIABLE = "FRESHLINE_FAILPOINT_FOLDER"
_POLL_SECONDS = 0.02
# An engine waits at most so long: a harness that was killed lets nobody go.
_MOST_SECONDS = 600.0


def read_failpoint(environ: Mapping[str, str], kill: Callable[[], None] | None = None) -> Callable[[str], None]:
    """The function that a refresh calls with the name of each point. Raises ValueError for a count below one."""
    if environ.get(TEST_FLAG) != "1":
        return _pass_by
    folder = environ.get(FOLDER_VARIABLE, "")
    hold = HeldPoint(Path(folder)).reach if folder else _pass_by
    chosen = environ.get(VARIABLE, "")
    if not chosen:
        return hold
    name, _, count = chosen.partition(":")
    left = int(count or 1)
    if left < 1:
        raise ValueError(f"{VARIABLE} = {chosen!r}: the count begins at 1")
    end = kill or kill_group
    lock = threading.Lock()

    def stop_here(point: str) -> None:
        nonlocal left
        hold(point)
        if point != name:
            return
        with lock:
            left -= 1
            if left == 0:
                end()

    return stop_here


class HeldPoint:
    """A point at which a running engine waits for its harness.

    The harness writes the file `armed` into the folder: JSON with `id`, `point` and `passing` (from 1). The thread of
    the engine that passes the point for that time writes `reached` with the same `id`, the `point` and the `pid`, and
    waits until `armed` is gone or has another id. Meanwhile the harness kills or stops whatever it wants. Every passing
    of a point is a line of the file `passed`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._armed = ""
        self._left = 0

    def reach(self, point: str) -> None:
        """Pass a point, or wait there."""
        with self._lock:
            with (self._folder / "passed").open("a", encoding="utf-8") as passed:
                passed.write(f"{point}\n")
            armed = self._read("armed")
            if armed is None or armed["point"] != point:
                return
            if (reached := self._read("reached")) is not None and reached["id"] == armed["id"]:
                # Another engine waits there.
                return
            if armed["id"] != self._armed:
                self._armed, self._left = str(armed["id"]), int(str(armed["passing"]))
            self._left -= 1
            if self._left != 0:
                return
            hidden = self._folder / f".reached-{self._armed}"
            hidden.write_text(json.dumps({"id": self._armed, "point": point, "pid": os.getpid()}), encoding="utf-8")
            hidden.replace(self._folder / "reached")
            waits_for = self._armed
        until = time.monotonic() + _MOST_SECONDS
        while (armed := self._read("armed")) is not None and armed["id"] == waits_for and time.monotonic() < until:
            time.sleep(_POLL_SECONDS)

    def _read(self, name: str) -> dict[str, object] | None:
        try:
            found: dict[str, object] = json.loads((self._folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found


def kill_group() -> None:
    """Kill this process and, when it leads a group of its own, all that it started: no one may finish anything."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _pass_by(_point: str) -> None:
    return
