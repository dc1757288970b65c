"""CPU-seconds of the engine's processes while one refresh ran alone.

Of work that ran side by side nobody can say whose the seconds were; then there is no figure rather than a wrong one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

# A JVM or a worker that was started meanwhile is found within so many seconds; looking for them reads all of /proc.
_LOOK_SECONDS = 60.0


class Measured:
    """CPU-seconds of one piece of work, None until it ended and where other work ran beside it."""

    def __init__(self) -> None:
        self.alone = True
        self.seconds: float | None = None


class CpuMeter:
    """Measures work in this process and in those that it started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Measured] = []
        self._processes: list[psutil.Process] = []
        self._looked_at = -_LOOK_SECONDS

    @contextmanager
    def measuring(self) -> Iterator[Measured]:
        """What the block takes is there when it has ended."""
        measured = Measured()
        with self._lock:
            self._running.append(measured)
            if len(self._running) > 1:
                for one in self._running:
                    one.alone = False
        before = self._used() if measured.alone else 0.0
        try:
            yield measured
        finally:
            with self._lock:
                self._running.remove(measured)
            if measured.alone:
                measured.seconds = max(0.0, self._used() - before)

    def _used(self) -> float:
        with self._lock:
            now = time.monotonic()
            if now - self._looked_at >= _LOOK_SECONDS:
                self._looked_at = now
                me = psutil.Process()
                self._processes = [me, *me.children(recursive=True)]
            processes = list(self._processes)
        total = 0.0
        for process in processes:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return total
