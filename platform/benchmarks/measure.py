"""Measuring: CPU-seconds of the whole process tree, and A B B A."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Cost:
    """What one piece of work cost: CPU-seconds of this process and all below it, and seconds on the wall."""

    cpu: float
    wall: float


def tree_cpu_seconds(root: psutil.Process | None = None) -> float:
    """CPU-seconds that a process (this one if none is given) and its descendants have used so far."""
    root = root or psutil.Process()
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


class PeakMemory:
    """The greatest memory of this process and all below it while the block runs, looked at twice a second.

    Pages that several processes share are counted once.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.5):
            self.bytes = max(self.bytes, _tree_memory())


def _tree_memory() -> int:
    root, total = psutil.Process(), 0
    for process in (root, *root.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def cost_of(work: Callable[[], object]) -> Cost:
    """Run the work once."""
    cpu, wall = tree_cpu_seconds(), time.perf_counter()
    work()
    return Cost(tree_cpu_seconds() - cpu, time.perf_counter() - wall)


def middle(costs: Sequence[Cost]) -> Cost:
    """The medians of several runs."""
    return Cost(statistics.median(cost.cpu for cost in costs), statistics.median(cost.wall for cost in costs))


@dataclass(frozen=True)
class Comparison:
    """Medians of freshline's cost and of that `beside` it, and their ratio in CPU-seconds."""

    name: str
    ours: Cost
    theirs: Cost
    goal: float
    beside: str = "by hand"

    @property
    def ratio(self) -> float:
        return self.ours.cpu / self.theirs.cpu

    def line(self) -> str:
        verdict = "met" if self.ratio <= self.goal else "MISSED"
        return (
            f"{self.name:<26} ours {self.ours.cpu:6.2f} CPU-s {self.ours.wall:6.2f} s   "
            f"{self.beside} {self.theirs.cpu:6.2f} CPU-s {self.theirs.wall:6.2f} s   "
            f"ratio {self.ratio:4.2f}   goal {self.goal:.2f} {verdict}"
        )


def compare(
    name: str,
    ours: Callable[[int], object],
    theirs: Callable[[int], object],
    *,
    goal: float,
    rounds: int = 2,
    warm_up: bool = True,
) -> Comparison:
    """Run A B B A `rounds` times after one warm-up of each; the number of the run is handed to the work.

    Run numbers grow from 0 and are shared, so that each run may take inputs of its own.
    """
    number = 0
    costs: dict[str, list[Cost]] = {"A": [], "B": []}
    for order in (["AB"] if warm_up else []) + ["ABBA"] * rounds:
        for letter in order:
            work, this = (ours if letter == "A" else theirs), number
            cost = cost_of(lambda work=work, this=this: work(this))  # type: ignore[misc]
            if order != "AB":
                costs[letter].append(cost)
            number += 1
    return Comparison(name, middle(costs["A"]), middle(costs["B"]), goal)
