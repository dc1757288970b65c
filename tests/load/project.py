"""A project under load, its processes, what they take, and a table beside the load that must keep its promise."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.chaos import storage
from tests.chaos.commands import Answer, Commands
from tests.chaos.parts import Parts

MEGABYTE = 1_000_000
FILES = "WITH ('connector' = 'files', 'format' = 'json', 'path' = '{path}', 'settle' = '0 seconds')"
# The table beside the load: one row a second, which must be there within its freshness and a refresh.
BEAT = {
    "beat": "CREATE SOURCE beat (n BIGINT) FRESHNESS = INTERVAL '5' SECOND " + FILES.format(path="landing/beat"),
    "heard": "CREATE MATERIALIZED TABLE heard FRESHNESS = INTERVAL '5' SECOND AS SELECT n FROM beat",
}
_SAMPLE_SECONDS = 0.5


@dataclass
class Peaks:
    """The most memory that the processes of one role had together, and the CPU time that all of them took."""

    resident: dict[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0

    def text(self) -> str:
        parts = ", ".join(f"{role} {size / MEGABYTE:,.0f} MB" for role, size in sorted(self.resident.items()))
        return f"most memory: {parts}; {self.cpu_seconds:,.0f} CPU-seconds"


class Loaded:
    """A project whose declarations were written, with commands on it."""

    def __init__(self, root: Path, declarations: dict[str, str]) -> None:
        self.root = root
        self.problems: list[str] = []
        self.peaks = Peaks()
        (root / "assets").mkdir(parents=True)
        (root / "landing" / "beat").mkdir(parents=True)
        text = '[tool.freshline]\ndagster-port = 0\ndriver-memory = "2g"\n'
        (root / "pyproject.toml").write_text(text, encoding="utf-8")
        for name, statement in {**BEAT, **declarations}.items():
            (root / "assets" / f"{name}.sql").write_text(statement + "\n", encoding="utf-8")
        self.parts = Parts(f"load-{root.name}-{random.SystemRandom().randrange(10**9)}")
        self.commands = Commands(
            lambda: root, self.parts, root / "commands.jsonl", self.parts.environ, self.problems.append
        )

    @property
    def warehouse(self) -> Path:
        return self.root / ".freshline" / "local" / "warehouse"

    def run(self, *arguments: str, seconds: float = 3_600.0) -> Answer:
        """Run a command; one that fails is a problem."""
        answer = self.commands.run(*arguments, seconds=seconds)
        if answer.code != 0:
            self.problems.append(f"freshline {' '.join(arguments)}: {(answer.err or answer.out)[-600:]}")
        return answer

    def rows(self, table: str, *columns: str) -> list[tuple[object, ...]]:
        """The rows of the newest version, read without freshline."""
        return storage.read_rows(self.warehouse / table, columns)

    @contextmanager
    def watched(self) -> Iterator[Beat]:
        """The engine with its loops, its memory sampled and the table beside the load fed, until the end."""
        self.run("engine", "start")
        done = threading.Event()
        beat = Beat(self)
        threads = [threading.Thread(target=self._sample, args=[done]), threading.Thread(target=beat.run, args=[done])]
        for thread in threads:
            thread.start()
        try:
            yield beat
        finally:
            done.set()
            for thread in threads:
                thread.join()
            if not self.parts.by_role().get("engine"):
                self.problems.append("the engine is dead")
            self.run("engine", "stop")
            self.parts.end()

    def _sample(self, done: threading.Event) -> None:
        while not done.wait(_SAMPLE_SECONDS):
            for role, processes in self.parts.by_role().items():
                size = 0
                for process in processes:
                    try:
                        size += process.memory_info().rss
                    except psutil.NoSuchProcess:
                        continue
                self.peaks.resident[role] = max(size, self.peaks.resident.get(role, 0))
            self.peaks.cpu_seconds = self.parts.cpu_seconds()


@dataclass
class Beat:
    """A row a second for the table `heard`, and how long each took to get there."""

    project: Loaded
    lags: list[float] = field(default_factory=list)

    def run(self, done: threading.Event) -> None:
        folder = self.project.root / "landing" / "beat"
        landed: dict[int, float] = {}
        while not done.wait(1.0):
            number = len(landed) + len(self.lags)
            hidden = folder / f"_{number}"
            hidden.write_text(json.dumps({"n": number}) + "\n", encoding="utf-8")
            hidden.rename(folder / f"{number}.json")
            landed[number] = time.monotonic()
            self._hear(landed)
        deadline = time.monotonic() + 120.0
        while landed and time.monotonic() < deadline:
            self._hear(landed)
            time.sleep(0.5)
        if landed:
            self.project.problems.append(f"{len(landed)} rows of the table beside the load did not arrive")

    def wait(self, count: int, seconds: float = 300.0) -> None:
        """Wait until so many rows more than now were heard; it is a problem where they are not in time."""
        wanted, deadline = len(self.lags) + count, time.monotonic() + seconds
        while len(self.lags) < wanted:
            if time.monotonic() > deadline:
                self.project.problems.append(f"the table beside the load stood still for {seconds:.0f} s")
                return
            time.sleep(_SAMPLE_SECONDS)

    def _hear(self, landed: dict[int, float]) -> None:
        if not storage.versions(self.project.warehouse / "heard"):
            return
        now = time.monotonic()
        for (number,) in self.project.rows("heard", "n"):
            if number in landed:
                self.lags.append(now - landed.pop(number))

    def text(self) -> str:
        if not self.lags:
            return "the table beside it: nothing arrived"
        lags = sorted(self.lags)
        return (
            f"the table beside it (freshness 5 s): {lags[len(lags) // 2]:.1f} s in the middle, "
            f"{lags[int(len(lags) * 0.95)]:.1f} s for 95 of 100, {lags[-1]:.1f} s at most"
        )
