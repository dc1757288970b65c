"""Measuring: CPU-seconds of the whole process tree, and A B B A."""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

# Of the names of threads that Linux shows, cut to 15 characters, by how they begin.
_THREADS = {
    "C1 CompilerThre": "compiler of the JVM",
    "C2 CompilerThre": "compiler of the JVM",
    "Sweeper thread": "compiler of the JVM",
    "G1 ": "garbage collection",
    "GC Thread": "garbage collection",
    "Executor task": "tasks of Spark",
    "Thread-": "planning and commits",
    "stream executio": "planning and commits",
    "Python runner": "tasks of Spark",
}
_OTHERS = "other threads of the JVM"
_SECONDS_PER_TICK = 0.01


class NotInstalledError(Exception):
    """A benchmark needs a program that this machine has not; the sentence says which, and how to get it."""


@dataclass(frozen=True)
class Cost:
    """The cost of one piece of work: CPU-seconds of this process and all below it, and seconds on the wall."""

    cpu: float
    wall: float


def tree_cpu_seconds(root: psutil.Process | None = None) -> float:
    """CPU-seconds that a process (this one if none is given) and its descendants have used so far.

    Those that have ended count too, with who waited for them. Without them, a worker of Python that Spark ends because
    it is idle would take its seconds out of what is measured just then.
    """
    root = root or psutil.Process()
    return _cpu_seconds(root) + _below(root)


def _below(root: psutil.Process) -> float:
    """Those of the descendants."""
    total = 0.0
    for process in root.children(recursive=True):
        try:
            total += _cpu_seconds(process)
        except psutil.NoSuchProcess:
            continue
    return total


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


# The gateway of a session whose threads `compare` inspects, None where it inspects none; set once for a program.
profiled: Any = None


class PeakMemory:
    """The greatest memory of a process (this one if none is given) and all below it while the block runs.

    It is read twice a second. Pages that several processes share are counted once.
    """

    def __init__(self, root: psutil.Process | None = None) -> None:
        self.bytes = 0
        self._root = root
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        # Work of a second must be seen too, hence no pause before the first checks.
        pause = 0.05
        while True:
            self.bytes = max(self.bytes, tree_memory(self._root))
            if self._ended.wait(pause):
                return
            pause = min(0.5, 2 * pause)


def tree_memory(root: psutil.Process | None = None) -> int:
    """Bytes that a process (this one if none is given) and its descendants have now; shared pages are counted once."""
    total = 0
    try:
        processes = [root or psutil.Process()]
        processes += processes[0].children(recursive=True)
    except psutil.NoSuchProcess:
        return 0
    for process in processes:
        try:
            total += process.memory_full_info().pss
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return total


def cost_of(work: Callable[[], object]) -> Cost:
    """Run the work once."""
    # To find all processes takes a hundredth of a second, which is no part of the work.
    root = psutil.Process()
    below = _below(root)
    own, wall = _cpu_seconds(root), time.perf_counter()
    work()
    own, wall = _cpu_seconds(root) - own, time.perf_counter() - wall
    return Cost(own + _below(root) - below, wall)


class Profile:
    """CPU-seconds of measured work by what the threads do, summed up, and what the JVM's memory was at most.

    Threads that end within the work are not seen, so the parts may add up to a little less than the cost.
    """

    def __init__(self, jvm: Any) -> None:
        """`jvm` is the gateway of a session."""
        self._jvm = jvm
        self._pid = int(jvm.java.lang.ProcessHandle.current().pid())
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def cost_of(self, work: Callable[[], object]) -> Cost:
        before, python = self._threads(), self._python()
        cost = cost_of(work)
        for thread, seconds in self._threads().items():
            spent = seconds - before.get(thread, 0.0)
            self.seconds[next((part for name, part in _THREADS.items() if thread[1].startswith(name)), _OTHERS)] += (
                spent
            )
        self.seconds["Python"] += self._python() - python
        return cost

    def memory(self) -> Mapping[str, int]:
        """Bytes: of the heap what was committed at the end and what a collection left, and what is not heap."""
        beans = self._jvm.java.lang.management.ManagementFactory
        heap = beans.getMemoryMXBean().getHeapMemoryUsage()
        live = 0
        for pool in beans.getMemoryPoolMXBeans():
            after = pool.getCollectionUsage()
            live += 0 if after is None else after.getUsed()
        return {
            "heap taken from the system": heap.getCommitted(),
            "left by the last collection": live,
            "not heap": beans.getMemoryMXBean().getNonHeapMemoryUsage().getCommitted(),
        }

    def _threads(self) -> dict[tuple[str, str], float]:
        found = {}
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            try:
                line = (task / "stat").read_text()
            except OSError:
                continue  # it has just ended
            times = line[line.rindex(")") + 2 :].split()[11:13]
            name = line[line.index("(") + 1 : line.rindex(")")]
            found[task.name, name] = sum(map(int, times)) * _SECONDS_PER_TICK
        return found

    def _python(self) -> float:
        times = psutil.Process(self._pid).cpu_times()
        return tree_cpu_seconds() - float(times.user + times.system)


def middle(costs: Sequence[Cost]) -> Cost:
    """The medians of several runs."""
    return Cost(statistics.median(cost.cpu for cost in costs), statistics.median(cost.wall for cost in costs))


@dataclass(frozen=True)
class Comparison:
    """Medians of freshline's cost and of that `beside` it, and their ratio in CPU-seconds.

    `our_range` and `their_range` are the least and the greatest CPU-seconds of a run, where they are known, `our_parts`
    and `their_parts` those of a run on average by what the threads do.
    """

    name: str
    ours: Cost
    theirs: Cost
    goal: float
    beside: str = "by hand"
    our_range: tuple[float, float] | None = None
    their_range: tuple[float, float] | None = None
    our_parts: Mapping[str, float] | None = None
    their_parts: Mapping[str, float] | None = None

    @property
    def ratio(self) -> float:
        return self.ours.cpu / self.theirs.cpu

    def line(self) -> str:
        verdict = "met" if self.ratio <= self.goal else "MISSED"
        return (
            f"{self.name:<26} ours {self.ours.cpu:6.2f} CPU-s{_shown(self.our_range)} {self.ours.wall:6.2f} s   "
            f"{self.beside} {self.theirs.cpu:6.2f} CPU-s{_shown(self.their_range)} {self.theirs.wall:6.2f} s   "
            f"ratio {self.ratio:4.2f}   goal {self.goal:.2f} {verdict}"
            f"{parts_of('ours', self.our_parts)}{parts_of(self.beside, self.their_parts)}"
        )


def range_of(costs: Sequence[Cost]) -> tuple[float, float]:
    """The least and the greatest CPU-seconds."""
    return min(cost.cpu for cost in costs), max(cost.cpu for cost in costs)


def parts_of(name: str, parts: Mapping[str, float] | None, digits: int = 1) -> str:
    """CPU-seconds by what the threads do, as a line of its own; nothing if they are not known."""
    if parts is None:
        return ""
    most = sorted(parts.items(), key=lambda part: -part[1])
    return f"\n  {name}: {', '.join(f'{part} {seconds:.{digits}f}' for part, seconds in most)}"


def _shown(between: tuple[float, float] | None) -> str:
    return "" if between is None else f" ({between[0]:.2f} to {between[1]:.2f})"


def compare(
    name: str,
    ours: Callable[[int], object],
    theirs: Callable[[int], object],
    *,
    goal: float,
    rounds: int = 2,
    warm_up: bool = True,
    check: Callable[[], object] = lambda: None,
) -> Comparison:
    """Run A B B A `rounds` times after one warm-up of each; the number of the run is handed to the work.

    Run numbers grow from 0 and are shared, so that each run may take inputs of its own. `check` compares the results
    of the warm-up, runs 0 and 1, before a time counts.
    """
    number = 0
    costs: dict[str, list[Cost]] = {"A": [], "B": []}
    profiles = {} if profiled is None else {letter: Profile(profiled) for letter in costs}
    for order in (["AB"] if warm_up else []) + ["ABBA"] * rounds:
        for letter in order:
            work, this = (ours if letter == "A" else theirs), number
            is_counted = order != "AB"
            measure = profiles[letter].cost_of if profiles and is_counted else cost_of
            cost = measure(lambda work=work, this=this: work(this))  # type: ignore[misc]
            if is_counted:
                costs[letter].append(cost)
            number += 1
        if order == "AB":
            check()
    found = comparison(name, costs, goal)
    if not profiles:
        return found
    our_parts, their_parts = (
        {part: seconds / len(costs[letter]) for part, seconds in profiles[letter].seconds.items()} for letter in "AB"
    )
    return replace(found, our_parts=our_parts, their_parts=their_parts)


def comparison(name: str, costs: Mapping[str, Sequence[Cost]], goal: float, beside: str = "by hand") -> Comparison:
    """The costs of runs of A, which is freshline, and of B."""
    ours, theirs = costs["A"], costs["B"]
    return Comparison(name, middle(ours), middle(theirs), goal, beside, range_of(ours), range_of(theirs))
