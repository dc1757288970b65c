"""The figures that must not grow in a long run: memory, threads, descriptors and files, whenever everything is healed.

A figure rises when the slope of the line of least squares through what was seen after the warm-up is above its own
standard error twice. Kills make new processes, so a figure belongs to the life of a process only where it says so.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.chaos.parts import Parts

# This share of what was seen is the warm-up.
_WARM_UP = 0.2
_LEAST_POINTS = 8
_ROLES = ("engine", "jvm", "worker", "webserver", "code-server", "daemon", "watch", "up")


@dataclass(frozen=True)
class Slope:
    """The change of a figure in an hour, with its standard error, in the unit of the figure."""

    per_hour: float
    error: float

    @property
    def rises(self) -> bool:
        """Whether it surely goes up."""
        return self.per_hour > 2 * self.error > 0


def slope_of(points: Sequence[tuple[float, float]]) -> Slope | None:
    """The line of least squares through (seconds, value); None for too few points to say anything."""
    later = list(points)[int(len(points) * _WARM_UP) :]
    if len(later) < _LEAST_POINTS:
        return None
    count = len(later)
    middle = sum(at for at, _ in later) / count
    level = sum(value for _, value in later) / count
    spread = sum((at - middle) ** 2 for at, _ in later)
    if spread == 0:
        return None
    slope = sum((at - middle) * (value - level) for at, value in later) / spread
    rest = sum((value - level - slope * (at - middle)) ** 2 for at, value in later)
    return Slope(slope * 3600, math.sqrt(rest / (count - 2) / spread) * 3600)


def look(parts: Parts, state: Path) -> dict[str, float]:
    """All figures now, by name: bytes, or how many there are."""
    found: dict[str, float] = {}
    for role, processes in parts.by_role().items():
        if role not in _ROLES:
            continue
        for process in processes:
            try:
                with process.oneshot():
                    values = {
                        "resident bytes": process.memory_info().rss,
                        "threads": process.num_threads(),
                        "descriptors": process.num_fds(),
                    }
            except psutil.NoSuchProcess:
                continue
            for name, value in values.items():
                found[f"{role}: {name}"] = found.get(f"{role}: {name}", 0) + value
        if role == "jvm" and len(processes) == 1 and (heap := heap_after_collection(processes[0].pid)) is not None:
            found["jvm: heap after a collection, bytes"] = heap
    warehouse = state / "warehouse"
    found["files of the warehouse"] = _count(warehouse.rglob("*"))
    found["files of the state beside it"] = _count(
        each for each in state.rglob("*") if not each.is_relative_to(warehouse)
    )
    return found


def heap_after_collection(pid: int) -> float | None:
    """The bytes of a JVM's heap in use after a full collection; None without the `jcmd` of a JDK."""
    command = shutil.which("jcmd")
    if command is None:
        return None
    subprocess.run([command, str(pid), "GC.run"], capture_output=True, check=False)
    told = subprocess.run([command, str(pid), "GC.heap_info"], capture_output=True, text=True, check=False).stdout
    # The serial collector reports each generation, the other ones report the heap.
    used = re.findall(r"(?:new generation|tenured generation|heap)\s+total \d+K, used (\d+)K", told)
    return 1024.0 * sum(map(int, used)) if used else None


@dataclass
class Figures:
    """The figures of a run, kept in a file, so that a run that goes on has those of before."""

    file: Path

    def keep(self, seconds: float, values: Mapping[str, float]) -> None:
        """Keep the figures of one moment; `seconds` count the time of all runs together in which something ran."""
        with self.file.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps({"seconds": round(seconds, 1), **values}) + "\n")

    def read(self) -> list[dict[str, float]]:
        """The figures of all moments so far."""
        if not self.file.exists():
            return []
        return [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]

    @property
    def seconds(self) -> float:
        """How long all runs so far have been."""
        seen = self.read()
        return seen[-1]["seconds"] if seen else 0.0

    def slopes(self) -> dict[str, tuple[float, float, Slope]]:
        """The first and last value of each figure, and its slope."""
        series: dict[str, list[tuple[float, float]]] = {}
        for each in self.read():
            for name, value in each.items():
                if name != "seconds":
                    series.setdefault(name, []).append((each["seconds"], value))
        found = {}
        for name, points in series.items():
            slope = slope_of(points)
            if slope is not None:
                found[name] = (points[0][1], points[-1][1], slope)
        return found


def _count(paths: Iterable[Path]) -> int:
    return sum(1 for _ in paths)
