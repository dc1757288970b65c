"""Where a small refresh goes: workload A of the peers, in one process, table by table and thread by thread.

    .venv/bin/python platform/benchmarks/run.py increments --rows 200000

`--rows` is the number of events of the first load. Increments of 1,000 events and 200 changes follow it; those after
the JVM knows the work are counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from measure import Cost, Profile, cost_of, parts_of
from peers.events import Sizes, land
from project import Project, refresh
from pyspark.sql import SparkSession

from freshline.run import Runtime

DECLARATIONS = Path(__file__).parent / "peers" / "ways" / "freshline"
# In the order of the waves in which an engine refreshes them.
TABLES = ("event", "customer_change", "first_event", "customer", "enriched", "revenue")
WARM_UP = 20
COUNTED = 20


def increments(spark: SparkSession, folder: Path, events: int) -> Iterator[str]:
    """CPU-seconds, seconds, jobs of Spark and calls into the JVM of each table's refresh, and what the threads do."""
    project = Project(folder, {file.stem: file.read_text() for file in DECLARATIONS.glob("*.sql")})
    runtime = project.open(spark)
    sizes = Sizes(events, events // 10)
    calls = _Calls(spark)
    costs: dict[str, list[Cost]] = defaultdict(list)
    asked: dict[str, int] = defaultdict(int)
    profile = Profile(spark._jvm)
    for step in range(WARM_UP + COUNTED + 1):
        land(folder / "landing", sizes, step)
        if step <= WARM_UP:
            for name in TABLES:
                refresh(runtime, name)
            continue
        profile.cost_of(lambda: _measured(runtime, calls, costs, asked))
    between = f"{WARM_UP + 1} to {WARM_UP + COUNTED}"
    yield f"{'table':<16} CPU-s     s   jobs   calls, each on average of increments {between}"
    for name in TABLES:
        cpu, wall = (sum(getattr(cost, what) for cost in costs[name]) / COUNTED for what in ("cpu", "wall"))
        yield f"{name:<16} {cpu:5.2f} {wall:5.2f} {asked[f'{name} jobs'] / COUNTED:6.1f} {asked[name] / COUNTED:7.0f}"
    total = sum(cost.cpu for of_table in costs.values() for cost in of_table) / COUNTED
    yield f"{'all':<16} {total:5.2f}{parts_of('threads', {k: v / COUNTED for k, v in profile.seconds.items()}, 2)}"


class _Calls:
    """How many jobs a session has run, and how many calls Python has made into its JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._scheduler = spark.sparkContext._jsc.sc().dagScheduler()
        client = spark.sparkContext._gateway._gateway_client
        send = client.send_command
        self.made = 0

        def counted(command: str, *rest: object, **named: object) -> object:
            # Objects are released whenever Python lets go of them, many at a time.
            if not command.startswith("m\n"):
                self.made += 1
            return send(command, *rest, **named)

        client.send_command = counted

    def jobs(self) -> int:
        return int(self._scheduler.numTotalJobs())


def _measured(runtime: Runtime, calls: _Calls, costs: dict[str, list[Cost]], asked: dict[str, int]) -> None:
    for name in TABLES:
        jobs, made = calls.jobs(), calls.made
        costs[name].append(cost_of(lambda name=name: refresh(runtime, name)))  # type: ignore[misc]
        asked[name] += calls.made - made
        asked[f"{name} jobs"] += calls.jobs() - jobs
