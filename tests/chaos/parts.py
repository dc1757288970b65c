"""The parts that run: each is started by the harness or by one of its own, and only these are ended.

Every process that the harness starts, and all that such a process starts, has the mark of the run in its environment.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import psutil

MARK = "FRESHLINE_CHAOS_RUN"

# How a part is known by its command line. The order matters: the first that fits.
_ROLES: tuple[tuple[str, Callable[[list[str]], bool]], ...] = (
    ("engine", lambda line: "freshline.engine.main" in line),
    ("worker", lambda line: "freshline.engine.worker" in line),
    ("jvm", lambda line: any("org.apache.spark.deploy.SparkSubmit" in part for part in line)),
    ("broker", lambda line: "kafka.Kafka" in line),
    ("webserver", lambda line: "freshline.dagster.webserver" in line),
    ("code-server", lambda line: "grpc" in line and "api" in line),
    ("daemon", lambda line: "freshline.dagster.daemon" in line),
    ("watch", lambda line: "freshline.cli.main" in line and "watch" in line),
    ("up", lambda line: "freshline.cli.main" in line and "up" in line),
    ("command", lambda line: "freshline.cli.main" in line),
)


@dataclass
class Parts:
    """The processes of one run, by the mark in their environment; `cpu_seconds` counts those too that have ended."""

    run: str
    _cpu: dict[tuple[int, float], float] = field(default_factory=dict)
    _stopped: list[psutil.Process] = field(default_factory=list)

    def environ(self, **more: str) -> dict[str, str]:
        """The environment of a process that belongs to this run."""
        return {**os.environ, MARK: self.run, **more}

    def all(self) -> list[psutil.Process]:
        """Every living process of the run."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.run and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def by_role(self) -> Mapping[str, list[psutil.Process]]:
        """The living processes by their roles; those of no part are under `other`."""
        found: dict[str, list[psutil.Process]] = {}
        for process in self.all():
            try:
                line = process.cmdline()
            except psutil.NoSuchProcess:
                continue
            role = next((name for name, fits in _ROLES if fits(line)), "other")
            found.setdefault(role, []).append(process)
        return found

    def signal(self, roles: Iterable[str], number: int) -> list[str]:
        """Send a signal to all processes of these roles at once; returns the roles that were there."""
        found = self.by_role()
        hit = []
        for role in roles:
            for process in found.get(role, []):
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue
                if role not in hit:
                    hit.append(role)
                if number == signal.SIGSTOP:
                    self._stopped.append(process)
        return hit

    def go_on(self) -> None:
        """Let everything go on that was stopped."""
        for process in self._stopped:
            try:
                process.send_signal(signal.SIGCONT)
            except psutil.NoSuchProcess:
                continue
        self._stopped.clear()

    def end(self, seconds: float = 30.0) -> None:
        """End everything, as a power cut would. Raises RuntimeError for what lives on."""
        self.go_on()
        deadline = time.monotonic() + seconds
        while left := self.all():
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            psutil.wait_procs(left, timeout=2)
            if time.monotonic() > deadline:
                raise RuntimeError(f"still alive after kill -9: {left}")

    def cpu_seconds(self) -> float:
        """The CPU time of all processes of the run so far, as far as they were seen; it only grows."""
        for process in self.all():
            try:
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        return sum(self._cpu.values())
