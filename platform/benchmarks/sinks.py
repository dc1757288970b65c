"""Sinks beside programs that an engineer would write by hand for the same system, and the memory of many changes.

The three comparisons are of `run.py`. The memory is measured alone, with the driver memory that projects have:

    .venv/bin/python platform/benchmarks/sinks.py postgres kafka opensearch --rows 5000000

Servers are real ones on this machine. Their CPU counts on both sides, and stands beside the figures without it, because
a server that does most of the work would hide what the two programs do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "platform"), str(Path(__file__).parent)]

import psutil  # noqa: E402 - after the path, with those that need it
import psycopg  # noqa: E402
import pyarrow as pa  # noqa: E402
from confluent_kafka import Consumer, Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from deltalake import DeltaTable, write_deltalake  # noqa: E402
from kafka import running_broker  # noqa: E402
from measure import Comparison, Cost, NotInstalledError, comparison, cost_of, tree_cpu_seconds, tree_memory  # noqa: E402
from project import Project, refresh  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from pyspark.sql import functions as F  # noqa: E402

from freshline.declare.project import read_settings  # noqa: E402
from freshline.engine.spark import build_session, stop_session  # noqa: E402
from freshline.run import Runtime  # noqa: E402
from freshline.values.names import TableName  # noqa: E402
from resources.broker import Broker  # noqa: E402
from tests.databases import Database  # noqa: E402
from tests.postgres import find_programs, running_server  # noqa: E402
from tests.servers.opensearch import OpenSearchServer, running_opensearch  # noqa: E402

COLUMNS = ("id", "customer", "amount", "at", "note")
CHANGES = 1_000
# As many refreshes are one run, because the clock of a process has ticks of a hundredth of a second.
STEPS = 4
ROUNDS = ("AB", "AB", "BA", "AB", "BA")
EXPORT_GOAL, BY_HAND_GOAL = 0.02, 1.2
# The environment that has opensearch-py, which freshline does not need.
HELPERS = ROOT / ".venv-peers" / "opensearch"
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

    def change_all(self) -> None:
        """Update every row and insert as many new ones, in one version."""
        rows = _orders(self.spark, 0, 2 * self.rows).withColumn("note", F.lit("x"))
        rows.createOrReplaceTempView("new_orders")
        self.spark.sql(
            f"MERGE INTO delta.`{self._source}` o USING new_orders n ON o.id = n.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        refresh(self.runtime, "t")

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, as a program without Spark reads them."""
        dataset = DeltaTable(str(self.path)).to_pyarrow_dataset()
        yield from dataset.to_batches(columns=list(COLUMNS), batch_size=20_000, batch_readahead=1, fragment_readahead=1)


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


# -- Kafka


def sink_kafka(spark: SparkSession, folder: Path, rows: int) -> Iterator[Comparison]:
    """All rows of a table into a new topic, beside a plain producer with one transaction."""
    runs = sum(order.count("A") for order in ROUNDS)
    with running_broker(spark, folder) as broker:
        orders = Orders(
            spark, folder, rows, {f"out{number}": kafka_sink(broker, f"o{number}") for number in range(runs)}
        )
        (server,) = broker_processes(broker)
        costs: dict[str, list[Served]] = {"A": [], "B": []}
        # As the sinks make theirs: the broker would give them two partitions.
        admin = AdminClient({"bootstrap.servers": broker.servers})
        made = admin.create_topics(
            [NewTopic(f"h{number}", 1, 1, config={"cleanup.policy": "compact"}) for number in range(runs)]
        )
        for each in made.values():
            each.result()
        for number, order in enumerate(ROUNDS):
            ways: Mapping[str, Callable[[], object]] = {
                "A": lambda number=number: refresh(orders.runtime, f"out{number}"),  # type: ignore[misc]
                "B": lambda number=number: produced_by_hand(orders, broker, f"h{number}"),  # type: ignore[misc]
            }
            for way in order:
                cost = served(ways[way], server)
                if number > 0:
                    costs[way].append(cost)
            if number == 0 and records_of(broker, "o0", rows) != records_of(broker, "h0", rows):
                raise SystemExit("the two ways gave different records")
        yield from compared("sink_kafka", costs, "by hand")
        orders.runtime.close_readers()


def kafka_sink(broker: Broker, topic: str) -> str:
    return (
        f"'connector' = 'kafka', 'topic' = '{topic}', 'bootstrap.servers' = '{broker.servers}', 'partitions' = '1', "
        "'replication' = '1'"
    )


def broker_processes(broker: Broker) -> list[psutil.Process]:
    assert broker._process is not None
    return broker._process.guarded()


def produced_by_hand(orders: Orders, broker: Broker, topic: str) -> None:
    """A plain producer: rows of Parquet as objects of JSON, by the module of Python, in one transaction."""
    producer = Producer(
        {
            "bootstrap.servers": broker.servers,
            "transactional.id": f"by-hand-{topic}",
            "transaction.timeout.ms": 900_000,
            "linger.ms": 20,
            "compression.type": "lz4",
        }
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    for batch in orders.batches():
        for row in batch.to_pylist():
            key, value = _as_json({"id": row["id"]}), _as_json(row)
            while True:
                try:
                    producer.produce(topic, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    producer.commit_transaction(60)


def _as_json(row: Mapping[str, Any]) -> bytes:
    return json.dumps(row, separators=(",", ":"), default=_time).encode()


def _time(value: datetime) -> str:
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def records_of(broker: Broker, topic: str, rows: int) -> tuple[int, int]:
    """How many records there are, and the sum of hashes of their keys and values."""
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "check", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = total = 0
    while count < rows:
        found = [message for message in consumer.consume(10_000, timeout=10) if message.error() is None]
        if not found:
            break
        count += len(found)
        total += sum(hash((message.key(), message.value())) for message in found)
    consumer.close()
    return count, total


# -- OpenSearch


def sink_opensearch(spark: SparkSession, folder: Path, rows: int) -> Iterator[Comparison]:
    """All rows of a table into a new index, beside opensearch-py's helper."""
    found = sorted(HELPERS.glob("lib/python3.*/site-packages"))
    if not found:
        make = (
            f"uv venv {HELPERS.relative_to(ROOT)} && uv pip install --python {HELPERS.relative_to(ROOT)} opensearch-py"
        )
        raise NotInstalledError(f"opensearch-py is not there. Run: {make}")
    # Behind everything else, so that only it and its own packages come from there.
    sys.path.append(str(found[-1]))
    from opensearchpy import OpenSearch
    from opensearchpy.helpers import bulk

    runs = sum(order.count("A") for order in ROUNDS)
    with running_opensearch() as node:
        orders = Orders(spark, folder, rows, {f"out{n}": opensearch_sink(node, f"o{n}") for n in range(runs)})
        server = opensearch_process(node)
        client = OpenSearch(node.url, timeout=60)
        costs: dict[str, list[Served]] = {"A": [], "B": []}

        def by_hand(number: int) -> None:
            _, index = node.ask("GET", f"/o{number}") if number == 0 else node.ask("GET", "/o0")
            (made,) = index.values()
            index = f"h{number}"
            client.indices.create(
                index=index, body={"mappings": {"properties": made["mappings"]["properties"], "dynamic": False}}
            )
            actions = (
                {"_index": index, "_id": str(row["id"]), "_source": {**row, "at": _time(row["at"])}}
                for batch in orders.batches()
                for row in batch.to_pylist()
            )
            done, _ = bulk(client, actions)
            client.indices.refresh(index=index)
            assert done == rows

        for number, order in enumerate(ROUNDS):
            ways: Mapping[str, Callable[[], object]] = {
                "A": lambda number=number: refresh(orders.runtime, f"out{number}"),  # type: ignore[misc]
                "B": lambda number=number: by_hand(number),  # type: ignore[misc]
            }
            for way in order:
                cost = served(ways[way], server)
                if number > 0:
                    costs[way].append(cost)
            if number == 0 and documents_of(node, "o0") != documents_of(node, "h0"):
                raise SystemExit("the two ways gave different documents")
            for index in (f"o{number}-*", f"h{number}") if number else ():
                node.ask("DELETE", f"/{index}")
        yield from compared("sink_opensearch", costs, "bulk helper")
        orders.runtime.close_readers()


def opensearch_sink(node: OpenSearchServer, index: str) -> str:
    return f"'connector' = 'opensearch', 'url' = '{node.url}', 'index' = '{index}'"


def opensearch_process(node: OpenSearchServer) -> psutil.Process:
    assert node.process._process is not None
    (found,) = node.process._process.guarded()
    return found


def documents_of(node: OpenSearchServer, index: str) -> tuple[int, int]:
    """How many documents there are, and the sum of hashes of their ids and sources."""
    count = total = 0
    _, page = node.ask("POST", f"/{index}/_search?scroll=1m", {"size": 10_000, "sort": ["_doc"]})
    while page["hits"]["hits"]:
        for hit in page["hits"]["hits"]:
            count += 1
            # Equal numbers have equal hashes, and may be written in two ways: 0 and 0.0.
            total += hash((hit["_id"], tuple(sorted(hit["_source"].items()))))
        _, page = node.ask("POST", "/_search/scroll", {"scroll": "1m", "scroll_id": page["_scroll_id"]})
    return count, total


# -- memory


class PeakWithout(threading.Thread):
    """The greatest memory of this process and all below it, without that of a server, while the block runs."""

    def __init__(self, server: psutil.Process) -> None:
        super().__init__(daemon=True)
        self.bytes = 0
        self._server = server
        self._ended = threading.Event()

    def __enter__(self) -> PeakWithout:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        is_child = self._server in psutil.Process().children(recursive=True)
        while not self._ended.wait(0.2):
            of_server = tree_memory(self._server) if is_child else 0
            self.bytes = max(self.bytes, tree_memory() - of_server)


def memory(system: str, folder: Path, rows: int) -> Iterator[str]:
    """So many changes of one version, half of them updates, through a sink: the most memory of engine and JVM."""
    (folder / "session").mkdir(parents=True)
    (folder / "session" / "pyproject.toml").write_text("[tool.freshline]\n")
    settings = read_settings(folder / "session", {})
    spark = build_session(settings, app_name="benchmarks")
    with running(system, spark, folder) as (options, server):
        orders = Orders(spark, folder, rows // 2, {"out": options})
        refresh(orders.runtime, "out")
        orders.change_all()
        orders.runtime.close_readers()
        stop_session(spark)
        # Whatever the making of the table took is no memory of the sink.
        spark = build_session(settings, app_name="benchmarks")
        runtime = orders.project.open(spark)
        with PeakWithout(server) as peak:
            found = []
            cost = served(lambda: found.append(refresh(runtime, "out")), server)
        (result,) = found
        if (result.strategy, result.rows_out) != ("changes", rows):
            raise SystemExit(f"the refresh sent {result.rows_out} rows by {result.strategy}")
        runtime.close_readers()
    stop_session(spark)
    yield (
        f"sink memory  {rows:,} changes of one version to {system}: at most {peak.bytes / 2**20:,.0f} MB of engine and "
        f"JVM (driver-memory {settings.driver_memory}), {cost.alone:.0f} CPU-s, and {cost.whole.cpu - cost.alone:.0f} "
        f"of the server, {cost.whole.wall:.0f} s"
    )


@contextmanager
def running(system: str, spark: SparkSession, folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A server, the options of a sink to it, and its first process."""
    if system == "postgres":
        with running_postgres() as (_, server):
            yield POSTGRES, server
    elif system == "kafka":
        with running_broker(spark, folder) as broker:
            yield kafka_sink(broker, "orders"), broker_processes(broker)[0]
    else:
        with running_opensearch() as node:
            yield opensearch_sink(node, "orders"), opensearch_process(node)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("systems", nargs="+", choices=("postgres", "kafka", "opensearch"))
    parser.add_argument("--rows", type=int, default=5_000_000, help="changes of one version; default %(default)s")
    arguments = parser.parse_args()
    for system in arguments.systems:
        with tempfile.TemporaryDirectory(prefix="freshline-benchmark-") as folder:
            for line in memory(system, Path(folder), arguments.rows):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
