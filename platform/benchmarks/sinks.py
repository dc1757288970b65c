"""A sink to Postgres beside a program that an engineer would write by hand for the same table.

The server is a real one on this machine. Its CPU counts on both sides, and stands beside the figures without it,
because a server that does most of the work would hide what the two programs do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from measure import Comparison, Cost, NotInstalledError, comparison, cost_of, tree_cpu_seconds
from project import Project, refresh
from pyspark.sql import DataFrame, SparkSession

from freshline.run import Runtime
from freshline.values.names import TableName
from tests.databases import Database
from tests.postgres import find_programs, running_server

COLUMNS = ("id", "customer", "amount", "at", "note")
CHANGES = 1_000
# As many refreshes are one run, because the clock of a process has ticks of a hundredth of a second.
STEPS = 4
ROUNDS = ("AB", "AB", "BA", "AB", "BA")
EXPORT_GOAL, BY_HAND_GOAL = 0.02, 1.2
_URL = "BENCHMARK_DATABASE"
_TABLE = "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM o;"


@dataclass(frozen=True)
class Served:
    """Costs of work that a server has a part in: `whole` with the server, and the CPU-seconds without it."""

    whole: Cost
    alone: float


def served(work: Callable[[], object], server: psutil.Process) -> Served:
    """Do work once."""
    is_child = server in psutil.Process().children(recursive=True)
    before = tree_cpu_seconds(server)
    cost = cost_of(work)
    of_server = tree_cpu_seconds(server) - before
    alone = cost.cpu - of_server if is_child else cost.cpu
    return Served(Cost(alone + of_server, cost.wall), alone)


def added(parts: Sequence[Served]) -> Served:
    """The cost of one of several equal pieces of work, on average."""
    many = len(parts)
    whole = Cost(sum(part.whole.cpu for part in parts) / many, sum(part.whole.wall for part in parts) / many)
    return Served(whole, sum(part.alone for part in parts) / many)


def compared(name: str, costs: Mapping[str, Sequence[Served]], beside: str) -> Iterator[Comparison]:
    """The comparison with the server, whose ratio is the goal's, and that without it."""
    yield comparison(name, {way: [each.whole for each in costs[way]] for way in costs}, BY_HAND_GOAL, beside)
    alone = {way: [Cost(each.alone, each.whole.wall) for each in costs[way]] for way in costs}
    yield comparison(f"{name}, no server", alone, BY_HAND_GOAL, beside)


# -- the table


class Orders:
    """A table `t` of so many rows that is kept by freshline, over a Delta table that changes."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int, sinks: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.spark, self.rows, self._source = spark, rows, folder / "orders"
        self._next = 0
        made = _orders(spark, 0, rows)
        made.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(self._source))
        columns = "id BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP, note STRING, PRIMARY KEY (id)"
        declared = {"o": f"CREATE SOURCE o ({columns}) WITH ('connector' = 'delta', 'path' = '{self._source}');"}
        sending = {name: f"CREATE SINK {name} FROM t WITH ({options});" for name, options in sinks.items()}
        self.project = Project(folder / "project", {**declared, "t": _TABLE, **sending})
        self.runtime: Runtime = self.project.open(spark)
        refresh(self.runtime, "t")
        self.path = self.runtime.warehouse.path(TableName.parse("t"))

    def change(self, changes: int) -> None:
        """Eight tenths of so many changes update rows, a tenth delete some and a tenth insert new ones."""
        first, tenth = self._next, changes // 10
        self._next += changes
        updated, deleted = first + 8 * tenth, first + 9 * tenth
        # By delta-rs, because Spark takes many times as long, and none of it is measured.
        table = DeltaTable(str(self._source))
        table.update({"amount": "amount + 1", "note": "'x'"}, predicate=f"id >= {first} AND id < {updated}")
        table.delete(f"id >= {updated} AND id < {deleted}")
        new = range(self.rows + first, self.rows + first + tenth)
        rows = [[*new], [f"customer-{key % 50_000}" for key in new], [key / 8 for key in new]]
        rows += [[datetime(2026, 1, 1, tzinfo=UTC)] * tenth, ["new"] * tenth]
        schema = pa.schema(table.schema())
        columns = [pa.array(values, field.type) for values, field in zip(rows, schema, strict=True)]
        write_deltalake(table, pa.table(columns, schema=schema), mode="append")
        refresh(self.runtime, "t")


def _orders(spark: SparkSession, first: int, count: int) -> DataFrame:
    return spark.range(first, first + count).selectExpr(
        "id",
        "concat('customer-', id % 50000) AS customer",
        "id / 8.0D AS amount",
        "TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) AS at",
        "repeat('note ', 8) AS note",
    )


# -- Postgres


class InsertedByHand:
    """A program that keeps a table of Postgres equal to a Delta table, without Spark.

    It reads the change feed by delta-rs since the version that it has noted in the database, keeps the last state of
    each key, and writes with `INSERT .. ON CONFLICT` and `DELETE`, many rows at a time, in one transaction with the
    version. Its connection stays open.
    """

    def __init__(self, connection: psycopg.Connection[Any], path: Path) -> None:
        self._connection, self._path = connection, path
        with connection.transaction():
            connection.execute("CREATE TABLE by_hand AS SELECT * FROM public.orders")
            connection.execute("ALTER TABLE by_hand ADD PRIMARY KEY (id)")
            connection.execute("CREATE TABLE by_hand_version (version bigint)")
            connection.execute("INSERT INTO by_hand_version VALUES (%s)", (DeltaTable(str(path)).version(),))

    def send(self) -> None:
        """Send what is new."""
        names = ", ".join(COLUMNS)
        values = ", ".join(f"%({name})s" for name in COLUMNS)
        updates = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name != "id")
        with self._connection.transaction(), self._connection.cursor() as cursor:
            row = cursor.execute("SELECT version FROM by_hand_version FOR UPDATE").fetchone()
            assert row is not None
            table = DeltaTable(str(self._path))
            feed = pa.table(table.load_cdf(starting_version=row[0] + 1, ending_version=table.version()))
            last: dict[int, dict[str, Any]] = {}
            for change in sorted(feed.to_pylist(), key=lambda change: change["_commit_version"]):
                if change["_change_type"] != "update_preimage":
                    last[change["id"]] = change
            here = [change for change in last.values() if change["_change_type"] != "delete"]
            gone = [(key,) for key, change in last.items() if change["_change_type"] == "delete"]
            cursor.executemany("DELETE FROM by_hand WHERE id = %s", gone)
            cursor.executemany(
                f"INSERT INTO by_hand ({names}) VALUES ({values}) ON CONFLICT (id) DO UPDATE SET {updates}".encode(),
                here,
            )
            cursor.execute("UPDATE by_hand_version SET version = %s", (table.version(),))


@dataclass(frozen=True)
class Ratio:
    """CPU-seconds of a refresh of few changes beside those of all rows."""

    name: str
    ours: Cost
    theirs: Cost
    goal: float

    @property
    def ratio(self) -> float:
        return self.ours.cpu / self.theirs.cpu

    def line(self) -> str:
        verdict = "met" if self.ratio <= self.goal else "MISSED"
        return (
            f"{self.name:<26} changes {self.ours.cpu:.3f} CPU-s {self.ours.wall:.3f} s   --full {self.theirs.cpu:.1f} "
            f"CPU-s {self.theirs.wall:.1f} s   ratio {self.ratio:.4f}   goal {self.goal:.2f} {verdict}"
        )


@contextmanager
def running_postgres() -> Iterator[tuple[Database, psutil.Process]]:
    """A database in a server of its own, and the first process of that. Its address is in the variable _URL."""
    programs = find_programs()
    if programs is None:
        raise NotInstalledError("Postgres is not installed (on Debian: apt-get install postgresql)")
    with running_server(programs) as server:
        database = Database(server)
        os.environ[_URL] = database.url
        pid = int((server.folder / "data" / "postmaster.pid").read_text(encoding="utf-8").split()[0])
        try:
            yield database, psutil.Process(pid)
        finally:
            database.close()


POSTGRES = f"'connector' = 'jdbc', 'url' = '${{env:{_URL}}}', 'table' = 'orders'"


def sink_postgres(spark: SparkSession, folder: Path, rows: int) -> Iterator[Comparison | Ratio]:
    """1,000 changes of a table of so many rows, beside all of them and beside the same by hand."""
    with running_postgres() as (database, server):
        orders = Orders(spark, folder, rows, {"out": POSTGRES})
        refresh(orders.runtime, "out")
        with psycopg.connect(database.url, autocommit=True) as connection:
            by_hand = InsertedByHand(connection, orders.path)
            ways: Mapping[str, Callable[[], object]] = {"A": lambda: refresh(orders.runtime, "out"), "B": by_hand.send}
            costs: dict[str, list[Served]] = {"A": [], "B": []}
            for number, order in enumerate(ROUNDS):
                steps: dict[str, list[Served]] = {"A": [], "B": []}
                for _ in range(STEPS):
                    orders.change(CHANGES)
                    for way in order:
                        steps[way].append(served(ways[way], server))
                if number == 0:
                    same_in_postgres(database)
                    continue
                for way in order:
                    costs[way].append(added(steps[way]))
        yield from compared("sink_postgres", costs, "by hand")
        full = served(lambda: refresh(orders.runtime, "out", strategy="full"), server)
        same_in_postgres(database)
        few = comparison("", {way: [each.whole for each in costs[way]] for way in costs}, 1).ours
        yield Ratio("sink_postgres changes", few, full.whole, EXPORT_GOAL)
        orders.runtime.close_readers()


def same_in_postgres(database: Database) -> None:
    """Results are compared before a time counts."""
    asked = "SELECT count(*), sum(hashtextextended(({})::text, 0)::numeric) FROM {} o"
    row = f"ROW({', '.join(f'o.{name}' for name in COLUMNS)})"
    if database.ask(asked.format(row, "orders")) != database.ask(asked.format(row, "by_hand")):
        raise SystemExit("the two ways gave different rows")
