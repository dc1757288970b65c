"""Failpoints: named places of a refresh at which a test may kill the engine, as a power cut would.

They do nothing unless FRESHLINE_TEST is 1 and FRESHLINE_FAILPOINT names one: `name`, or `name:3` for its third passing.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping

TEST_FLAG = "FRESHLINE_TEST"
VARIABLE = "FRESHLINE_FAILPOINT"


def read_failpoint(environ: Mapping[str, str], kill: Callable[[], None] | None = None) -> Callable[[str], None]:
    """What a refresh calls with the name of each point that it passes. Raises ValueError for a count that is none."""
    chosen = environ.get(VARIABLE, "")
    if environ.get(TEST_FLAG) != "1" or not chosen:
        return _pass_by
    name, _, count = chosen.partition(":")
    left = int(count or 1)
    if left < 1:
        raise ValueError(f"{VARIABLE} = {chosen!r}: the count begins at 1")
    end = kill or kill_group
    lock = threading.Lock()

    def stop_here(point: str) -> None:
        nonlocal left
        if point != name:
            return
        with lock:
            left -= 1
            if left == 0:
                end()

    return stop_here


def kill_group() -> None:
    """Kill this process and, when it leads a group of its own, all that it started: no one may finish anything."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _pass_by(_point: str) -> None:
    return
