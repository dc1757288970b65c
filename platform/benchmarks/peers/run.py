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


@dataclass(frozen=True)
class Run:
    """What the steps of one run of a peer cost, by their number: 0 is the first load, its start included.

    `why` says why the steps after the last one have no cost; None if there are none. `peak_bytes` is the greatest
    memory of its process tree.
    """

    peer: str
    costs: Mapping[int, Cost]
    peak_bytes: int
    why: str | None = None


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
) -> Run:
    """Take a peer through the steps, each of which lands its files first and is compared afterwards.

    `steps` are those that are made, `watched` those whose cost is kept: of a hundred increments most only make the
    tables older, and are not compared either. `folder` is new, and has all files of the run.
    """
    landing, own = folder / "landing", folder / OWN
    landing.mkdir(parents=True)
    own.mkdir(exist_ok=True)
    costs: dict[int, Cost] = {}
    peak = 0
    with (folder / "log").open("wb") as log:
        land(landing, 0)
        began = time.perf_counter()
        process = psutil.Popen(
            [str(python), str(peer.way / "drive.py"), str(landing), str(own), *peer.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=dict(variables),
            cwd=own,
        )
        why = None
        with PeakMemory(process) as memory:
            try:
                for step in steps:
                    if step:
                        land(landing, step)
                        began = time.perf_counter()
                    before = spent_cpu_seconds(process) if step else 0.0
                    why = _ask(process)
                    cost = Cost(spent_cpu_seconds(process) - before, time.perf_counter() - began)
                    if why is None and step in watched:
                        why = differences(landing, lambda table: peer.read(own, table))
                        if why is None:
                            costs[step] = cost
                            progress(f"{peer.name}: step {step}, {cost.cpu:.1f} CPU-s, {cost.wall:.1f} s")
                    if why is not None:
                        why = f"step {step}: {why}"
                        progress(f"{peer.name}: {why}")
                        break
            finally:
                _end(process)
        peak = memory.bytes
    return Run(peer.name, costs, peak, why)


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
