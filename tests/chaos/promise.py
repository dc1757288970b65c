"""Whether tables keep their promise while something else is attacked: how long rows take until they are committed.

Two tables have each row of one source once, the log `plain` and the lookup `found`. So the number of their rows says
which portions are there, and the file of a commit says when. Restores take rows away, and a portion counts once.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field

# The targets of these faults are not on the way of the rows of `plain`.
BESIDE = frozenset(
    {
        "kill-worker",
        "kill-webserver",
        "kill-code-server",
        "kill-daemon",
        "kill-watch",
        "kill-command",
        "kill-broker",
        "stop-worker",
        "read-only-tables",
        "log-short",
        "broken-records",
        "records-again",
    }
)
AFTER_SECONDS = 10.0
MEASURED = ("plain", "found")
ON_THE_WAY = frozenset({"plain", "found", "earliest", "event"})


def is_beside(kind: str, arguments: Mapping[str, object]) -> bool:
    """Whether a fault leaves the measured tables and all that they read alone."""
    tables = arguments.get("tables", (arguments.get("table"),))
    assert isinstance(tables, list | tuple)
    return kind in BESIDE and not ON_THE_WAY.intersection(tables)


@dataclass
class Promise:
    """When rows were sent and committed, in seconds of the wall clock, and when only something else was attacked."""

    _sent: list[tuple[float, int]] = field(default_factory=list)
    _arrived: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: {name: [] for name in MEASURED})
    _attacked: list[tuple[float, float]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def sent(self, at: float, rows: int) -> None:
        """So many rows were sent in all, the last ones at this time."""
        with self._lock:
            self._sent.append((at, rows))

    def arrived(self, table: str, at: float, rows: int) -> None:
        """A version with so many rows was committed."""
        with self._lock:
            known = self._arrived[table]
            if not known or rows > known[-1][1]:
                known.append((at, rows))

    def attacked(self, begin: float, end: float) -> None:
        """Between these times only something else was attacked; what was killed is missed for some seconds after."""
        with self._lock:
            self._attacked.append((begin, end + AFTER_SECONDS))

    def lags(self) -> dict[str, list[float]]:
        """By table, sorted: the seconds that each portion took which was sent while something else was attacked."""
        with self._lock:
            found = {}
            for table, arrived in self._arrived.items():
                counts = [rows for _, rows in arrived]
                found[table] = sorted(
                    max(0.0, arrived[place][0] - at)
                    for at, rows in self._sent
                    if any(begin <= at <= end for begin, end in self._attacked)
                    and (place := bisect_right(counts, rows - 1)) < len(arrived)
                )
            return found


def summary(lags: list[float]) -> dict[str, float]:
    """The middle, what 95 of 100 stay below, and the most; nothing of nothing."""
    if not lags:
        return {}
    return {
        "portions": len(lags),
        "median": round(lags[len(lags) // 2], 1),
        "95 of 100": round(lags[int(len(lags) * 0.95)], 1),
        "most": round(lags[-1], 1),
    }
