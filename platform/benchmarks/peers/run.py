"""One run of one peer: its process, the steps that it is asked for, and what each of them cost.

A step has a cost only if the rows of all tables were right after it.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa

from benchmarks.measure import Cost, PeakMemory
from benchmarks.peers.catalog import Peer

OWN = "own"
"""The folder of a run where the peer keeps all that it makes; the files land beside it."""
STEP_SECONDS = 1800.0
_END_SECONDS = 120.0
_WARM_UP = 20


@dataclass(frozen=True)
class Run:
    """The costs of the steps of one run of a peer, by their number: 0 is the first load, its start included.

    `why` says why the steps after the last one have no cost; None if there are none. `peak_bytes` is the greatest
    memory of its process tree. `fresh` is the step that a new process made, its start included.
    """

    peer: str
    costs: Mapping[int, Cost]
    peak_bytes: int
    why: str | None = None
    fresh: int | None = None


def run_peer(
    peer: Peer,
    python: Path,
    variables: Mapping[str, str],
    folder: Path,
    land: Callable[[Path, int], None],
    differences: Callable[[Path, Callable[[str], pa.Table]], str | None],
    steps: Sequence[int],
    watched: frozenset[int],
    progress: Callable[[str], None],
    fresh: int | None = None,
) -> Run:
    """Take a peer through the steps, each of which lands its files first and is compared afterwards.

    `steps` are those that are made, `watched` those whose cost is kept: of a hundred increments most only make the
    tables older, and are not compared either. Of these a peer that computes everything again makes only the last ones,
    for its session to be warm: the others would change nothing. `folder` is new, and has all files of the run. Before
    the step `fresh` the peer's process ends, and another one goes on, of a peer whose program can.
    """
    landing, own = folder / "landing", folder / OWN
    landing.mkdir(parents=True)
    own.mkdir(exist_ok=True)
    command = [str(python), str(peer.way / "drive.py"), str(landing), str(own), *peer.arguments]
    made = _Made(peer, {}, 0)
    if fresh is not None and not peer.goes_on:
        steps, fresh = [step for step in steps if step != fresh], None
    parts = [steps] if fresh is None else [[s for s in steps if s != fresh], [fresh]]
    with (folder / "log").open("wb") as log:
        for part in parts:
            if made.why is not None:
                break
            land(landing, part[0])
            began = time.perf_counter()
            process = psutil.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=dict(variables), cwd=own
            )
            with PeakMemory(process) as memory:
                try:
                    for step in part:
                        if step != part[0]:
                            land(landing, step)
                            began = time.perf_counter()
                        if peer.recomputes and not watched & set(range(step, step + _WARM_UP + 1)):
                            continue
                        before = spent_cpu_seconds(process) if step != part[0] else 0.0
                        why = _ask(process)
                        cost = Cost(spent_cpu_seconds(process) - before, time.perf_counter() - began)
                        if why is None and step in watched:
                            why = differences(landing, lambda table: peer.read(own, table))
                        if not made.note(step, cost if step in watched else None, why, progress):
                            break
                finally:
                    _end(process)
            made.peak_bytes = max(made.peak_bytes, memory.bytes)
    return Run(peer.name, made.costs, made.peak_bytes, made.why, fresh)


@dataclass
class _Made:
    """The known part of a run that goes on."""

    peer: Peer
    costs: dict[int, Cost]
    peak_bytes: int
    why: str | None = None

    def note(self, step: int, cost: Cost | None, why: str | None, progress: Callable[[str], None]) -> bool:
        """Keep the cost of a step, None of one that is not watched, or why it has none; whether the run goes on."""
        if why is not None:
            self.why = f"step {step}: {why}"
            progress(f"{self.peer.name}: {self.why}")
            return False
        if cost is not None:
            self.costs[step] = cost
            progress(f"{self.peer.name}: step {step}, {cost.cpu:.1f} CPU-s, {cost.wall:.1f} s")
        return True


def spent_cpu_seconds(root: psutil.Process) -> float:
    """CPU-seconds of a process, of all below it, and of those below it that have ended and were waited for."""
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _ask(process: psutil.Popen) -> str | None:
    """Ask for one step; why it failed, or None."""
    timer = threading.Timer(STEP_SECONDS, lambda: _kill(process))
    timer.start()
    try:
        process.stdin.write(b"refresh\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except BrokenPipeError:
        answer = b""
    finally:
        timer.cancel()
    if not answer:
        return f"the process ended, or did not answer within {STEP_SECONDS:.0f} s"
    found = json.loads(answer)
    return None if found["ok"] else str(found["why"])


def _end(process: psutil.Popen) -> None:
    below = process.children(recursive=True) if process.is_running() else []
    process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except psutil.TimeoutExpired:
        _kill(process)
        process.wait()
    # A session that was killed leaves its JVM.
    for left in psutil.wait_procs(below, timeout=5)[1]:
        left.kill()


def _kill(process: psutil.Popen) -> None:
    for one in (*process.children(recursive=True), process):
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
