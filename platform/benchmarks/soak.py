"""An hour of the demo: the memory and the CPU of every process of it, and what Dagster's storage grows by.

A copy of the reference deployment in a temporary folder, `freshline demo` on it with everything that belongs to it, and
a look at all its processes every few seconds. Memory is what a process has for itself (USS: what its end would free)
and what is resident (RSS, pages shared with others included). The slope is a line of least squares through what was
seen after the warm-up. Run alone: `python platform/benchmarks/soak.py --minutes 60`; a stop from outside ends the demo
in order, and what was seen until then is told.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1_000_000
STORAGE_GOAL = 5 * MEGABYTE
# Code servers live for a minute: their CPU is read often enough that little of it goes unseen.
_CPU_SECONDS = 1.0
_STATE = Path(".freshline") / "demo"


@dataclass
class Role:
    """The memory of the processes of one role, together: a series of (seconds since the UI answered, bytes)."""

    uss: list[tuple[float, int]] = field(default_factory=list)
    rss: list[tuple[float, int]] = field(default_factory=list)
    cpu_seconds: float = 0.0


@dataclass
class Soak:
    """All samples so far; `heap` is the heap that the engine's JVM has in use, garbage included."""

    roles: dict[str, Role] = field(default_factory=lambda: defaultdict(Role))
    heap: list[tuple[float, int]] = field(default_factory=list)
    metaspace: list[tuple[float, int]] = field(default_factory=list)
    dagster: list[tuple[float, int]] = field(default_factory=list)
    control_store: list[tuple[float, int]] = field(default_factory=list)
    cpu_from: float = 0.0

    def text(self, warm_up: float) -> str:
        """The table of all roles, with Dagster's storage below it."""
        lines = [
            f"{'role':<26}{'MB after warm-up':>17}{'MB at the end':>15}{'MB an hour':>12}{'of RSS':>9}{'CPU-ms/s':>10}"
        ]
        checks = len(self.dagster)
        for name, role in sorted(self.roles.items()):
            # A role that comes and goes, as runs do, has no slope.
            if len(role.uss) < checks / 2:
                continue
            seconds = max(1e-9, role.uss[-1][0] - self.cpu_from)
            lines.append(
                f"{name:<26}{_around(role.uss, warm_up):>17.1f}{_around(role.uss, role.uss[-1][0]):>15.1f}"
                f"{_slope(role.uss, warm_up):>+12.1f}{_slope(role.rss, warm_up):>+9.1f}"
                f"{1000 * role.cpu_seconds / seconds:>10.1f}"
            )
        for name, series, near in (
            ("heap, least in 5 minutes", _least(self.heap, 300.0), 300.0),
            ("metaspace", self.metaspace, 60.0),
        ):
            if series:
                lines.append(
                    f"{'  ' + name:<26}{_around(series, warm_up, near):>17.1f}"
                    f"{_around(series, series[-1][0]):>15.1f}{_slope(series, warm_up):>+12.1f}"
                )
        for name, series in (("Dagster's storage", self.dagster), ("control store", self.control_store)):
            if series:
                grown = series[-1][1] - series[0][1]
                later = series[-1][1] - _at(series, warm_up)
                lines.append(
                    f"{name}: {series[0][1] / MEGABYTE:.2f} MB at the start, {series[-1][1] / MEGABYTE:.2f} MB at the "
                    f"end: {grown / MEGABYTE:+.2f} MB, {later / MEGABYTE:+.2f} MB of it after the warm-up"
                )
        if self.dagster:
            verdict = "met" if self.dagster[-1][1] - self.dagster[0][1] < STORAGE_GOAL else "MISSED"
            lines.append(
                f"goal: Dagster's storage grows by less than {STORAGE_GOAL / MEGABYTE:g} MB in an hour {verdict}"
            )
        return "\n".join(lines)


def _around(series: Sequence[tuple[float, int]], at: float, seconds: float = 60.0) -> float:
    """The median MB within a minute of a moment: one check may see a process between two."""
    near = [value for moment, value in series if abs(moment - at) <= seconds]
    return statistics.median(near or [series[-1][1]]) / MEGABYTE


def _at(series: Sequence[tuple[float, int]], at: float) -> int:
    return next((value for moment, value in series if moment >= at), series[-1][1])


def _slope(series: Sequence[tuple[float, int]], warm_up: float) -> float:
    """MB an hour by least squares after the warm-up; not a number where there was no time for one."""
    later = [(moment / 3600, value / MEGABYTE) for moment, value in series if moment >= warm_up]
    if len(later) < 2:
        return float("nan")
    return statistics.linear_regression(*zip(*later, strict=True)).slope


def _least(series: Sequence[tuple[float, int]], seconds: float) -> list[tuple[float, int]]:
    """The least value of each stretch of so many seconds: the nearest to what is left after a collection."""
    stretches: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for moment, value in series:
        stretches[int(moment // seconds)].append((moment, value))
    return [(statistics.mean(at for at, _ in some), min(value for _, value in some)) for some in stretches.values()]


class Watcher:
    """Inspects the processes of one demo: itself, all below it, and the engine, wherever it was started from."""

    def __init__(self, demo: psutil.Process, state: Path) -> None:
        self._demo = demo
        self._state = state
        self._known: dict[tuple[int, float], tuple[str, float]] = {}
        self.soak = Soak()

    def read_cpu(self) -> None:
        """Add what each process has used since it was last seen; one that is new has used all of it since."""
        for process, role in self._processes():
            try:
                times, key = process.cpu_times(), (process.pid, process.create_time())
            except psutil.Error:
                continue
            used = times.user + times.system
            known = self._known.get(key)
            if known is not None:
                # A process that was forked shows another command line from when it has become itself.
                self.soak.roles[role].cpu_seconds += used - known[1]
            elif self.soak.dagster:
                self.soak.roles[role].cpu_seconds += used
            self._known[key] = (role, used)

    def look(self, at: float) -> dict[str, object]:
        """Read all sizes once; returns them as one value that can be kept."""
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for process, role in self._processes():
            try:
                memory = process.memory_full_info()
            except psutil.Error:
                continue
            for place, value in enumerate((memory.uss, memory.rss, 1)):
                found[role][place] += value
        for role, (uss, rss, _) in found.items():
            self.soak.roles[role].uss.append((at, uss))
            self.soak.roles[role].rss.append((at, rss))
        heap, metaspace = self._heap()
        if heap is not None:
            self.soak.heap.append((at, heap))
        if metaspace is not None:
            self.soak.metaspace.append((at, metaspace))
        self.soak.dagster.append((at, _size(self._state / "dagster")))
        self.soak.control_store.append((at, sum(_size(file) for file in self._state.glob("control.db*"))))
        return {
            "at": round(at, 1),
            "roles": found,
            "heap": heap,
            "metaspace": metaspace,
            "dagster": self.soak.dagster[-1][1],
            "control_store": self.soak.control_store[-1][1],
        }

    def _processes(self) -> Iterator[tuple[psutil.Process, str]]:
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = {process.pid: process for process in (self._demo, *self._demo.children(recursive=True))}
            for pid in self._engine():
                # An engine that Dagster's sensor started again has another parent.
                with contextlib.suppress(psutil.NoSuchProcess):
                    engine = psutil.Process(pid)
                    tree |= {process.pid: process for process in (engine, *engine.children(recursive=True))}
            for process in tree.values():
                with contextlib.suppress(psutil.Error):
                    yield process, self._role(process)

    def _engine(self) -> tuple[int, ...]:
        try:
            value = json.loads((self._state / "engine.json").read_text())
        except (FileNotFoundError, ValueError):
            return ()
        return int(value["pid"]), int(value["jvm_pid"])

    def _role(self, process: psutil.Process) -> str:
        words = process.cmdline()
        line = " ".join(words)
        if process.pid == self._demo.pid:
            return "demo (generator, display)"
        if process.pid in self._engine()[1:]:
            return "engine JVM"
        if "freshline.engine.main" in line:
            return "engine Python"
        if "pyspark.daemon" in line:
            return "Python workers"
        if "freshline.dagster.webserver" in line:
            return "webserver"
        if "freshline.dagster.daemon" in line:
            return "daemon"
        if "watch" in words:
            return "watch"
        if "grpc" in words:
            above = " ".join(word for parent in process.parents() for word in parent.cmdline())
            return f"code server of the {'daemon' if 'dagster._daemon' in above else 'webserver'}"
        if "multiprocessing" in line:
            return "runs"  # Dagster's launcher forks each from a code server
        return "others"

    def _heap(self) -> tuple[int | None, int | None]:
        """The heap and the metaspace that the engine has in use, where a JDK's jcmd is there to ask."""
        engine, command = self._engine(), shutil.which("jcmd")
        if not engine or command is None:
            return None, None
        asked = subprocess.run([command, str(engine[1]), "GC.heap_info"], capture_output=True, text=True)
        heap = re.search(r"heap\s+total \d+K, used (\d+)K", asked.stdout)
        metaspace = re.search(r"Metaspace\s+used (\d+)K", asked.stdout)
        return (
            None if heap is None else int(heap[1]) * 1024,
            None if metaspace is None else int(metaspace[1]) * 1024,
        )


def _size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    total = 0
    for file in [path] if path.is_file() else path.rglob("*"):
        with contextlib.suppress(FileNotFoundError):
            if file.is_file():
                total += file.stat().st_size
    return total


def reference_deployment(folder: Path) -> None:
    """Copy what the demo needs into a folder of its own."""
    for name in ("assets", "resources"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "workspace.yaml", folder)
    (folder / "pyproject.toml").write_text(
        '[tool.freshline]\ndeclarations = "assets"\n\n[tool.freshline.environments.demo]\n'
    )


def soak(folder: Path, minutes: float, every: float, warm_up: float, samples: Path | None) -> int:
    """Run the demo for so long and report what was seen, now and then and at the end; returns the demo's exit code."""
    reference_deployment(folder)
    log = folder / "demo.log"
    with log.open("wb") as output:
        demo = psutil.Popen(
            [sys.executable, "-m", "freshline.cli.main", "demo", "--minutes", f"{minutes:g}", "--port", "0"],
            cwd=folder,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT / "platform")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    watcher = Watcher(demo, folder / _STATE)
    try:
        while demo.poll() is None and b"Dagster UI:" not in log.read_bytes():
            time.sleep(0.5)
        watcher.read_cpu()
        begun = time.monotonic()
        looked_at = told_at = -every
        while demo.poll() is None and (at := time.monotonic() - begun) < minutes * 60:
            watcher.read_cpu()
            if at - looked_at >= every:
                looked_at = at
                seen = watcher.look(at)
                if samples is not None:
                    with samples.open("a") as kept:
                        kept.write(json.dumps(seen) + "\n")
            if at - told_at >= 300.0:
                told_at = at
                print(f"after {at / 60:.0f} minutes\n{watcher.soak.text(warm_up)}\n", flush=True)
            time.sleep(_CPU_SECONDS)
        code = int(demo.wait(600))
    finally:
        if demo.poll() is None:
            demo.send_signal(signal.SIGTERM)
            demo.wait(300)
        print("\n".join(log.read_text(errors="replace").splitlines()[-14:]), "\n", flush=True)
        print(watcher.soak.text(warm_up), flush=True)
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long; default %(default)g")
    parser.add_argument("--every", type=float, default=15.0, help="seconds between two looks; default %(default)g")
    parser.add_argument("--warm-up", type=float, default=10.0, help="minutes that do not count; default %(default)g")
    parser.add_argument("--samples", type=Path, help="append each look to this file, a JSON object a line")
    parser.add_argument("--keep", type=Path, help="an empty folder for the project, which is kept")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="freshline-soak-") as temporary:
        return soak(given.keep or Path(temporary), given.minutes, given.every, given.warm_up * 60, given.samples)


if __name__ == "__main__":
    raise SystemExit(main())
