"""What an engine takes while nothing arrives: its loops run, and every table is as fresh as its source.

One log table of files and many tables over it, all of one sort: continuous, or kept by timers and by Dagster in turn.
The engine makes one or two of them and the others are copies of their folders, because a thousand first refreshes take
longer than all else. CPU is that of the engine's process and its JVM. Run alone: `python platform/benchmarks/idle.py`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "platform"), str(Path(__file__).parent)]

import psutil  # noqa: E402 - after the path, with those that need it
from measure import tree_cpu_seconds  # noqa: E402
from project import Project  # noqa: E402

from freshline.commit.warehouse import Warehouse  # noqa: E402
from freshline.declare.graph import Graph  # noqa: E402
from freshline.engine.client import EngineClient  # noqa: E402
from freshline.plan.project import open_project  # noqa: E402
from freshline.values.names import TableName  # noqa: E402

SOURCE = "CREATE SOURCE event (k STRING, n BIGINT) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')"
TABLE = "CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL {freshness} AS SELECT k, n FROM event"
FRESHNESS = {"continuous": ("'10' SECOND",), "other": ("'20' MINUTE", "'1' DAY")}
GOALS = {"continuous": 2.0, "other": 0.05}  # CPU-milliseconds a second for each table
_START_SECONDS = 900.0


@dataclass(frozen=True)
class Idle:
    """CPU-milliseconds a second of an engine with so many tables of one sort, beside those without any."""

    sort: str
    tables: int
    engine: float
    alone: float

    @property
    def each(self) -> float:
        return (self.engine - self.alone) / self.tables

    def line(self) -> str:
        goal = GOALS[self.sort]
        return (
            f"idle         {self.tables} {self.sort} tables: {self.engine:.1f} CPU-ms/s, {self.alone:.1f} without any, "
            f"{self.each:.3f} for each   goal {goal:g} {'met' if self.each <= goal else 'MISSED'}"
        )


def measure(folder: Path, sort: str, tables: int, seconds: float) -> float:
    """CPU-milliseconds a second of an idle engine with so many tables."""
    names = [f"t{number}" for number in range(tables)]
    freshness = FRESHNESS[sort]
    texts = {
        name: TABLE.format(name=name, freshness=freshness[number % len(freshness)]) for number, name in enumerate(names)
    }
    made = names[: len(freshness)]
    project = Project(folder, {"event": SOURCE, **{name: texts[name] for name in made}})
    (folder / "in").mkdir()
    (folder / "in" / "first.json").write_text('{"k": "a", "n": 1}\n')
    client = EngineClient.connect(project.settings, start=True)
    for event in client.run("refresh", tables=[]):
        if event["type"] == "outcome" and event["outcome"]["state"] != "SUCCEEDED":
            raise SystemExit(str(event))
    client.stop()
    for name in names[len(made) :]:
        (folder / "assets" / f"{name}.sql").write_text(texts[name])
    _copy(Warehouse(project.settings.warehouse), open_project(project.settings), names, len(made))
    client = EngineClient.connect(project.settings, start=True, loops=True)
    try:
        process = psutil.Process(client.state.process.pid)
        _settle(client, process)
        cpu, begun = tree_cpu_seconds(process), time.monotonic()
        time.sleep(seconds)
        used = tree_cpu_seconds(process) - cpu
        return 1000 * used / (time.monotonic() - begun)
    finally:
        client.stop()


def _copy(warehouse: Warehouse, graph: Graph, names: Sequence[str], made: int) -> None:
    """Make the others from the first ones: their receipts name the declaration that each is of."""
    for number, text in enumerate(names[made:], made):
        first, name = TableName.parse(names[number % made]), TableName.parse(text)
        path = Path(shutil.copytree(warehouse.path(first), warehouse.path(name)))
        for commit in (path / "_delta_log").glob("*.json"):
            told = commit.read_text().replace(graph.spec(first).fingerprint, graph.spec(name).fingerprint)
            commit.write_text(told)


def _settle(client: EngineClient, process: psutil.Process) -> None:
    """Wait until every table was checked once since the start, and what followed from it has ended."""
    deadline = time.monotonic() + _START_SECONDS
    quiet = 0
    while quiet < 3:
        if time.monotonic() > deadline:
            raise SystemExit("the engine does not come to rest")
        found = client.status()
        failed = [each["table"] for each in found if each["error"] is not None]
        if failed:
            raise SystemExit(f"these fail, and are no idle tables: {failed[:5]}")
        late = [each["table"] for each in found if each["version"] is None or each["lag_seconds"] is None]
        cpu = tree_cpu_seconds(process)
        time.sleep(5.0)
        # An idle engine takes a tenth of a processor at most; one that still compiles and refreshes takes one.
        quiet = quiet + 1 if not late and tree_cpu_seconds(process) - cpu < 1.0 else 0


def idle(folder: Path, counts: Sequence[int], sorts: Sequence[str], seconds: float) -> list[Idle]:
    """All combinations, each in an engine of its own."""
    alone = measure(folder / "alone", "other", 0, seconds)
    found = []
    for sort in sorts:
        for tables in counts:
            found.append(Idle(sort, tables, measure(folder / f"{sort}-{tables}", sort, tables, seconds), alone))
            print(found[-1].line(), flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", type=int, default=[10, 100, 1000], help="how many declared tables")
    parser.add_argument("--sorts", nargs="*", choices=list(FRESHNESS), default=list(FRESHNESS), help="of which sort")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement; default %(default)g")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    given = parser.parse_args()
    # Ended from outside, it ends its engine too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="freshline-idle-") as folder:
        found = idle(Path(folder), given.tables, given.sorts, given.seconds)
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
