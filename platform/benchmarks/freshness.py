"""Freshness at the reader: from a file that has landed to a Delta version that holds its rows.

A log table and keyed tables behind it (last_row), all of them continuous, kept by an engine with its loops; and the
same tables kept by a streaming query by hand (by_hand.py), in the same run: the same events land for one and for the
other, A B B A, while both processes run. The moment of a version is that of its commit's file. An event is held by the
first version that has it, or a later one of its key. CPU-seconds are those of each side's process tree, from the first
file until the last row can be read.

The second part asks the engine alone: what it can take in when there is always more, and for which share of the time
everything that landed more than ten seconds ago could be read, at shares of that rate.

Run alone: `python platform/benchmarks/freshness.py --rates 1 10 50 --tables 1 10 --shares 0.2 0.5 0.9`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(Path(__file__).parent)]

import psutil  # noqa: E402 - after the path, with those that need it
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from by_hand import COLUMNS  # noqa: E402
from measure import tree_cpu_seconds  # noqa: E402
from project import Project  # noqa: E402
from pyarrow import compute  # noqa: E402

from freshline.engine.client import EngineClient  # noqa: E402

PROMISE_SECONDS = 10.0
GOAL_RATIO = 1.1
GOAL_SHARE = 0.999
KEYS = 10_000
MOST_FILES_A_SECOND = 5.0
# Events that have landed and cannot be read yet while the capacity is measured: there is always more.
BACKLOG, BACKLOG_FILE = 200_000, 10_000
KEY_AND_NUMBER = pa.schema({"k": pa.string(), "n": pa.int64()})
_DRAIN_SECONDS = 900.0


class Arrivals:
    """Lands files of events below one folder, and knows when each did."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = itertools.count()
        self._next = 0
        self.landed: list[tuple[float, int, int, list[int]]] = []  # when, first number, after the last, keys
        folder.mkdir(parents=True, exist_ok=True)

    def land(self, count: int, keys: Callable[[int], int]) -> None:
        """Make one complete file with so many events appear."""
        first = self._next
        self._next += count
        chosen = [keys(number) for number in range(first, self._next)]
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        text = "".join(
            f'{{"k": "k{key}", "n": {number}, "at": "{at}", "v": {number / 7:.3f}}}\n'
            for number, key in enumerate(chosen, first)
        )
        hidden = self._folder / f"_{first}"
        hidden.write_text(text)
        hidden.rename(self._folder / f"part-{next(self._files):07d}.json")
        self.landed.append((time.time(), first, self._next, chosen))


@dataclass
class Reader:
    """Follows one table, and notes when each event could be read. `by_key`: a later event of its key will do."""

    path: Path
    by_key: bool
    _version: int = -1
    _given: int = 0
    _pending: dict[int, deque[tuple[int, float]]] = field(default_factory=lambda: defaultdict(deque))
    waiting: int = 0

    def expect(self, arrivals: Arrivals) -> None:
        """Wait for all that has landed since."""
        for at, first, _, keys in arrivals.landed[self._given :]:
            for number, key in enumerate(keys, first):
                self._pending[key if self.by_key else number].append((number, at))
            self.waiting += len(keys)
        self._given = len(arrivals.landed)

    def look(self) -> list[tuple[float, float]]:
        """The events readable since the last check: (landed, readable) of each, in seconds since 1970."""
        found: list[tuple[float, float]] = []
        while (commit := self.path / "_delta_log" / f"{self._version + 1:020d}.json").exists():
            self._version += 1
            readable = commit.stat().st_mtime
            least = min((waiting[0][0] for waiting in self._pending.values() if waiting), default=None)
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            added = [action["add"] for action in actions if "add" in action and action["add"]["dataChange"]]
            for add in added if least is not None else ():
                rows = pq.read_table(self.path / add["path"], columns=["k", "n"], partitioning=None)
                # Arrow cannot filter the views of text that some writers leave.
                rows = rows.cast(KEY_AND_NUMBER).filter(compute.greater_equal(rows["n"], least))
                for key, number in zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True):
                    waiting = self._pending[int(key[1:]) if self.by_key else number]
                    while waiting and waiting[0][0] <= number:
                        found.append((waiting.popleft()[1], readable))
        self.waiting -= len(found)
        return found


@dataclass
class Side:
    """One way to keep the tables: where its files land, what reads its tables, the process whose tree is measured."""

    arrivals: Arrivals
    log: Reader
    tables: list[Reader]
    process: psutil.Process

    @property
    def readers(self) -> list[Reader]:
        return [self.log, *self.tables]

    def drain(self) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
        """Wait until all that has landed can be read; the events that the log table and the others have got since."""
        log: list[tuple[float, float]] = []
        keyed: list[tuple[float, float]] = []
        for reader in self.readers:
            reader.expect(self.arrivals)
        deadline = time.monotonic() + _DRAIN_SECONDS
        while any(reader.waiting for reader in self.readers):
            if not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE:
                raise SystemExit(f"what keeps {self.log.path.parent} has ended; see the logs there")
            if time.monotonic() > deadline:
                late = {str(reader.path): reader.waiting for reader in self.readers if reader.waiting}
                raise SystemExit(f"after {_DRAIN_SECONDS:.0f} s these events cannot be read: {late}")
            log += self.log.look()
            for reader in self.tables:
                keyed += reader.look()
            time.sleep(0.1)
        return log, keyed


@contextmanager
def ours(folder: Path, tables: int) -> Iterator[Side]:
    """The tables, kept by an engine of their own."""
    source = (
        f"CREATE SOURCE event ({COLUMNS}) "
        "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds')"
    )
    table = (
        "CREATE MATERIALIZED TABLE {name} (PRIMARY KEY (k)) "
        "WITH ('merge' = 'last_row', 'merge.sequence' = 'n', 'merge.tie-breaker' = 'at') "
        f"FRESHNESS = INTERVAL '{PROMISE_SECONDS:.0f}' SECOND AS SELECT k, n, at, v FROM event"
    )
    names = [f"t{number}" for number in range(tables)]
    project = Project(folder, {"event": source, **{name: table.format(name=name) for name in names}})
    arrivals = Arrivals(folder / "in")
    client = EngineClient.connect(project.settings, start=True, loops=True)
    warehouse = project.settings.warehouse
    try:
        yield Side(
            arrivals,
            Reader(warehouse / "event", by_key=False),
            [Reader(warehouse / name, by_key=True) for name in names],
            psutil.Process(client.state.process.pid),
        )
    finally:
        client.stop()


@contextmanager
def by_hand(folder: Path, tables: int) -> Iterator[Side]:
    """The tables, kept by the streaming query of by_hand.py."""
    (folder / "in").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.freshline]\n")
    with (folder / "by_hand.log").open("wb") as log:
        process = psutil.Popen(
            [sys.executable, str(Path(__file__).with_name("by_hand.py")), str(folder), str(tables)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    try:
        while (line := process.stdout.readline()) not in (b"ready\n", b""):
            pass
        if not line:
            raise SystemExit((folder / "by_hand.log").read_text()[-2000:])
        yield Side(
            Arrivals(folder / "in"),
            Reader(folder / "event", by_key=False),
            [Reader(folder / f"t{number}", by_key=True) for number in range(tables)],
            process,
        )
    finally:
        process.stdin.close()
        try:
            process.wait(60)
        except psutil.TimeoutExpired:
            process.kill()


@dataclass
class Seen:
    """Seconds from landed to readable of every event, and what keeping the tables took."""

    log: list[float] = field(default_factory=list)
    keyed: list[float] = field(default_factory=list)
    cpu: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Cell:
    """One rate and number of tables: p50 and p99 of the log table and of the keyed ones, and CPU-ms per second."""

    rate: float
    tables: int
    ours: dict[str, float]
    by_hand: dict[str, float]

    def line(self) -> str:
        def one(name: str) -> str:
            return (
                f"{name} p50 {self.ours[f'{name}_p50']:6.2f} s (by hand {self.by_hand[f'{name}_p50']:6.2f}) "
                f"p99 {self.ours[f'{name}_p99']:6.2f} s (by hand {self.by_hand[f'{name}_p99']:6.2f})"
            )

        met = all(self.ours[key] <= GOAL_RATIO * self.by_hand[key] for key in self.ours)
        return (
            f"{self.rate:g} events/s, {self.tables} tables: {one('log')}; {one('keyed')}; CPU {self.ours['cpu']:.0f} "
            f"CPU-ms/s (by hand {self.by_hand['cpu']:.0f})   goal {GOAL_RATIO:g} {'met' if met else 'MISSED'}"
        )


def cells(folder: Path, rates: Sequence[float], tables: int, seconds: float) -> Iterator[Cell]:
    """All rates for one number of tables, in the same two processes."""
    with ours(folder / "ours", tables) as first, by_hand(folder / "by_hand", tables) as second:
        for side in (first, second):
            warm_up(side)
        for rate in rates:
            seen = {id(first): Seen(), id(second): Seen()}
            for number, side in enumerate((first, second, second, first)):
                phase(side, rate, seconds, random.Random(number % 2), seen[id(side)])
            yield Cell(rate, tables, _figures(seen[id(first)]), _figures(seen[id(second)]))


def warm_up(side: Side) -> None:
    """A row for every key, and some small batches after it."""
    side.arrivals.land(KEYS, lambda number: number % KEYS)
    side.drain()
    for _ in range(5):
        side.arrivals.land(10, lambda number: number % KEYS)
        side.drain()


def phase(side: Side, rate: float, seconds: float, chance: random.Random, seen: Seen) -> list[tuple[float, float]]:
    """Land events at a rate, in files that come at random moments; returns (landed, readable) of the keyed tables."""
    files_a_second = min(rate, MOST_FILES_A_SECOND)
    cpu, begun = tree_cpu_seconds(side.process), time.monotonic()
    given, next_at = 0, begun
    while next_at < begun + seconds:
        time.sleep(max(0.0, next_at - time.monotonic()))
        # A file that comes late has what was to come meanwhile: the rate is kept.
        count = max(1, round(rate * (time.monotonic() - begun + 1 / files_a_second)) - given)
        side.arrivals.land(count, lambda _: chance.randrange(KEYS))
        given += count
        next_at = max(next_at, time.monotonic() - 1.0) + chance.expovariate(files_a_second)
    log, keyed = side.drain()
    seen.cpu += tree_cpu_seconds(side.process) - cpu
    seen.seconds += time.monotonic() - begun
    seen.log += [readable - landed for landed, readable in log]
    seen.keyed += [readable - landed for landed, readable in keyed]
    return keyed


def _figures(seen: Seen) -> dict[str, float]:
    found = {"cpu": 1000 * seen.cpu / seen.seconds}
    for name, taken in (("log", seen.log), ("keyed", seen.keyed)):
        cuts = statistics.quantiles(taken, n=100, method="inclusive")
        found |= {f"{name}_p50": cuts[49], f"{name}_p99": cuts[98]}
    return {key: round(value, 3) for key, value in found.items()}


@dataclass(frozen=True)
class Kept:
    """The share of time inside the promise at one share of the capacity (events a second)."""

    share: float
    capacity: float
    inside: float
    p50: float
    p99: float

    def line(self) -> str:
        verdict = (
            "" if self.share > 0.5 else f"   goal {GOAL_SHARE:.1%} {'met' if self.inside >= GOAL_SHARE else 'MISSED'}"
        )
        return (
            f"{self.share:g} of {self.capacity:.0f} events/s: inside {PROMISE_SECONDS:g} s for {self.inside:.2%} of "
            f"the time, p50 {self.p50:.2f} s, p99 {self.p99:.2f} s{verdict}"
        )


def promises(folder: Path, shares: Sequence[float], seconds: float) -> Iterator[Kept]:
    """The capacity, and how the promise is kept at shares of it; one keyed table behind the log."""
    with ours(folder, 1) as side:
        warm_up(side)
        capacity = measure_capacity(side, seconds)
        for share in shares:
            begun = time.time()
            seen = Seen()
            keyed = phase(side, share * capacity, seconds, random.Random(1), seen)
            figures = _figures(seen)
            inside = 1 - _outside(keyed, begun, begun + seconds) / seconds
            yield Kept(share, capacity, inside, figures["keyed_p50"], figures["keyed_p99"])


def measure_capacity(side: Side, seconds: float) -> float:
    """Events a second that reach the keyed table while there is always more."""
    chance = random.Random(2)
    (table,) = side.tables
    readable: list[float] = []
    begun = time.time()
    while time.time() < begun + seconds:
        table.expect(side.arrivals)
        readable += [at for _, at in table.look()]
        if table.waiting < BACKLOG:
            side.arrivals.land(BACKLOG_FILE, lambda _: chance.randrange(KEYS))
        else:
            time.sleep(0.05)
    counted = [at for at in readable if at <= begun + seconds]
    side.drain()
    # From commit to commit: what was read before the first is part of it, and there is none.
    return len(counted) / (max(counted, default=begun + seconds) - begun)


def _outside(found: Sequence[tuple[float, float]], begin: float, end: float) -> float:
    """Seconds of [begin, end) at which something had landed more than the promise ago and could not be read."""
    total, covered = 0.0, begin
    for late_from, until in sorted((landed + PROMISE_SECONDS, readable) for landed, readable in set(found)):
        first, last = max(late_from, covered), min(until, end)
        if last > first:
            total += last - first
            covered = last
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", nargs="*", type=float, default=[1, 10, 50], help="events a second")
    parser.add_argument("--tables", nargs="*", type=int, default=[1], help="keyed tables behind the log")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the four turns of a cell")
    parser.add_argument("--shares", nargs="*", type=float, default=[], help="of the capacity, for the second part")
    parser.add_argument("--promise-seconds", type=float, default=60.0, help="of each share; default %(default)g")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    # Ended from outside, it ends its engine and its query too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    found: list[Cell | Kept] = []
    with tempfile.TemporaryDirectory(prefix="freshline-freshness-") as temporary:
        folder = Path(temporary)
        parts = [
            cells(folder / f"{tables}", given.rates, tables, given.seconds) for tables in given.tables if given.rates
        ]
        if given.shares:
            parts.append(promises(folder / "promise", given.shares, given.promise_seconds))
        for one in itertools.chain(*parts):
            found.append(one)
            print(one.line(), flush=True)
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
