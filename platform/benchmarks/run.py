"""Run benchmarks by name, or all of them; `--json FILE` keeps the figures."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import measure
from ageing import ageing, savepoint
from asked_lookups import asked_lookups
from evaluation import evaluate, load
from event_time import Memory, State, Why, event_time
from event_time_growth import Late, late_row
from feeds import avro_ingest, debezium_feed
from graphs import Rounds, graph_components, graph_ranks
from increments import increments
from joins import Kept, delta_join, lookup_join
from kafka import kafka_ingest, union_read
from keyed_log import keyed_log
from landing import landing
from many_tables import many_tables
from measure import Comparison, Cost, NotInstalledError, compare, cost_of, middle
from passing_time import temporal_filter
from patterns import Rate, long_key, matcher
from postgres import postgres_feed
from project import Project, refresh, same
from pyspark.sql import DataFrame, SparkSession
from rabbitmq import Throughput, rabbitmq_ingest
from sinks import Ratio, sink_kafka, sink_opensearch, sink_postgres
from tpch import SHARES, Share, tpch

from freshline.declare.project import read_settings
from freshline.engine.spark import build_session, stop_session
from freshline.run import Runtime
from freshline.values.names import TableName

EVENTS = "event_id STRING, customer_id STRING, kind STRING, at TIMESTAMP"
FILES = "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds');"
EVENT_SOURCE = f"CREATE SOURCE event ({EVENTS}) {FILES}"


def ingest(spark: SparkSession, folder: Path) -> Comparison:
    """A million events in files of 100,000, read by a log table and by hand."""
    columns = "event_id STRING, customer_id STRING, kind STRING, amount DOUBLE, at TIMESTAMP, note STRING"
    made = folder / "made"
    rows = spark.range(1_000_000).selectExpr(
        "concat('e', id) AS event_id",
        "concat('customer-', id % 50000) AS customer_id",
        "element_at(array('view', 'click', 'order'), CAST(id % 3 + 1 AS INT)) AS kind",
        "id / 7.0D AS amount",
        "TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) AS at",
        "repeat('x', 60) AS note",
    )
    rows.repartition(10).write.json(str(made))
    declared = f"CREATE SOURCE event ({columns}) {FILES}"
    projects: dict[int, tuple[Runtime, Path]] = {}
    for number in range(10):
        project = Project(folder / f"p{number}", {"event": declared})
        shutil.copytree(made, project.folder / "in", ignore=shutil.ignore_patterns("_*", ".*"))
        projects[number] = (project.open(spark), project.folder)

    def ours(number: int) -> None:
        refresh(projects[number][0], "event")

    def theirs(number: int) -> None:
        target = projects[number][1] / "by_hand"
        spark.read.schema(columns).json(str(projects[number][1] / "in")).write.format("delta").save(str(target))

    found = compare("ingest", ours, theirs, goal=1.3)
    names = ["event_id", "customer_id", "kind", "amount", "at", "note"]
    left = spark.read.format("delta").load(str(projects[0][0].warehouse.path(TableName.parse("event")))).select(*names)
    same(left, spark.read.format("delta").load(str(projects[1][1] / "by_hand")).select(*names))
    return found


def _landed(runtime: Runtime, folder: Path, rows: DataFrame, name: str) -> None:
    """Put rows into the landing directory as one portion, and ingest them."""
    part = folder / "portion"
    rows.coalesce(1).write.mode("overwrite").json(str(part))
    for file in part.glob("part-*.json"):
        file.rename(folder / "in" / f"{name}.json")
    refresh(runtime, "event")


def _events(spark: SparkSession, start: int, count: int, customers: int, shift: int) -> DataFrame:
    return spark.range(start, start + count).selectExpr(
        "concat('e', id) AS event_id",
        f"concat('customer-', pmod(hash(id), {customers})) AS customer_id",
        "element_at(array('view', 'click', 'order'), CAST(id % 3 + 1 AS INT)) AS kind",
        f"TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id + {shift}) AS at",
    )


def _merge(spark: SparkSession, folder: Path, kind: str) -> Comparison:
    order = "merge.order" if kind == "first_row" else "merge.sequence"
    sign = "<" if kind == "first_row" else ">"
    choose = "min_by" if kind == "first_row" else "max_by"
    project = Project(
        folder,
        {
            "event": EVENT_SOURCE,
            "latest": "CREATE MATERIALIZED TABLE latest (PRIMARY KEY (customer_id)) "
            f"WITH ('merge' = '{kind}', '{order}' = 'at', 'merge.tie-breaker' = 'event_id') "
            "FRESHNESS = INTERVAL '10' SECOND AS SELECT customer_id, event_id, kind, at FROM event;",
        },
    )
    (folder / "in").mkdir()
    runtime = project.open(spark)
    shift = 5_000_000 if kind == "first_row" else 0
    _landed(runtime, folder, _events(spark, 0, 600_000, 220_000, shift), "start")
    refresh(runtime, "latest")
    path = runtime.warehouse.path(TableName.parse("latest"))
    log = runtime.warehouse.path(TableName.parse("event"))
    hand = folder / "by_hand"
    spark.read.format("delta").load(str(path)).write.format("delta").option("delta.enableChangeDataFeed", "true").save(
        str(hand)
    )
    seen = {"seq": 1}

    def land(number: int) -> None:
        first = 600_000 + 10_000 * number
        back = -first - 5_000_000 + 10_000 * number if kind == "first_row" else 1_000_000
        _landed(runtime, folder, _events(spark, first, 10_000, 220_000, back), f"portion-{number}")
        seen["seq"] += 1

    def by_hand(seq: int) -> None:
        new = spark.read.format("delta").load(str(log)).where(f"_freshline_seq = {seq}")
        new.createOrReplaceTempView("new_events")
        spark.sql(
            f"MERGE INTO delta.`{hand}` t USING (SELECT r.* FROM "
            f"(SELECT {choose}(struct(customer_id, event_id, kind, at), struct(at, event_id)) AS r "
            "FROM new_events GROUP BY customer_id)) s ON t.customer_id = s.customer_id "
            f"WHEN MATCHED AND struct(s.at, s.event_id) {sign} struct(t.at, t.event_id) THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    # Both tables take in the same portions, each in its turn: a portion is landed outside the measured time.
    costs: dict[str, list[Cost]] = {"A": [], "B": []}
    for number, first in enumerate("ABBAABBA"):
        land(number)
        works: dict[str, Callable[[], object]] = {
            "A": lambda: refresh(runtime, "latest"),
            "B": lambda: by_hand(seen["seq"]),
        }
        for letter in (first, "B" if first == "A" else "A"):
            cost = cost_of(works[letter])
            if number >= 2:
                costs[letter].append(cost)
        same(spark.read.format("delta").load(str(path)), spark.read.format("delta").load(str(hand)))
    return Comparison(kind, middle(costs["A"]), middle(costs["B"]), 1.1)


def first_row(spark: SparkSession, folder: Path) -> Comparison:
    return _merge(spark, folder, "first_row")


def last_row(spark: SparkSession, folder: Path) -> Comparison:
    return _merge(spark, folder, "last_row")


def first_row_growth(spark: SparkSession, folder: Path) -> Iterator[Comparison]:
    """first_row of 10,000 events into 0.2, 2 and 20 million rows, beside a MERGE by hand."""
    for million in (0.2, 2, 20):
        yield _first_row_into(spark, folder / f"{million}", round(million * 1_000_000))


def _first_row_into(spark: SparkSession, folder: Path, rows: int) -> Comparison:
    source, hand = folder / "source", folder / "by_hand"
    folder.mkdir(parents=True)

    def events(start: int, count: int, keys: int, shift: int) -> DataFrame:
        return spark.range(start, start + count).selectExpr(
            "concat('e', id) AS event_id",
            f"concat('customer-', pmod(xxhash64(id, {shift}), {keys})) AS customer_id",
            "element_at(array('view', 'click', 'order'), CAST(id % 3 + 1 AS INT)) AS kind",
            f"TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id - {shift}) AS at",
        )

    def add(made: DataFrame) -> None:
        made.write.format("delta").mode("append").option("delta.enableChangeDataFeed", "true").save(str(source))

    add(events(0, rows, rows, 0))
    project = Project(
        folder / "project",
        {
            "event": f"CREATE SOURCE event ({EVENTS}) WITH ('connector' = 'delta', 'path' = '{source}');",
            "first": "CREATE MATERIALIZED TABLE first (PRIMARY KEY (customer_id)) "
            "WITH ('merge' = 'first_row', 'merge.order' = 'at', 'merge.tie-breaker' = 'event_id') "
            "FRESHNESS = INTERVAL '10' SECOND AS SELECT customer_id, event_id, kind, at FROM event;",
        },
    )
    runtime = project.open(spark)
    refresh(runtime, "first")
    path = runtime.warehouse.path(TableName.parse("first"))
    spark.read.format("delta").load(str(path)).write.format("delta").option("delta.enableChangeDataFeed", "true").save(
        str(hand)
    )

    def by_hand(new: DataFrame) -> None:
        new.createOrReplaceTempView("new_events")
        spark.sql(
            f"MERGE INTO delta.`{hand}` t USING (SELECT r.* FROM "
            "(SELECT min_by(struct(customer_id, event_id, kind, at), struct(at, event_id)) AS r "
            "FROM new_events GROUP BY customer_id)) s ON t.customer_id = s.customer_id "
            "WHEN MATCHED AND struct(s.at, s.event_id) < struct(t.at, t.event_id) THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    costs: dict[str, list[Cost]] = {"A": [], "B": []}
    for number in range(5):
        new = events(rows + 10_000 * number, 10_000, rows, 2 * rows * (number % 2))
        add(new.coalesce(1))
        works: dict[str, Callable[[], object]] = {
            "A": lambda: refresh(runtime, "first"),
            "B": lambda new=new: by_hand(new),  # type: ignore[misc]
        }
        for letter in "AB" if number % 2 else "BA":
            cost = cost_of(works[letter])
            if number >= 2:
                costs[letter].append(cost)
    same(spark.read.format("delta").load(str(path)), spark.read.format("delta").load(str(hand)))
    return Comparison(f"first_row into {rows / 1e6:g} million", middle(costs["A"]), middle(costs["B"]), 1.1)


def partition(spark: SparkSession, folder: Path) -> Comparison:
    """One day of thirty changes; its partition of an aggregate is computed again."""
    project = Project(
        folder,
        {
            "event": EVENT_SOURCE,
            "daily": "CREATE MATERIALIZED TABLE daily (PRIMARY KEY (customer_id, day)) PARTITIONED BY (day) "
            "FRESHNESS = INTERVAL '1' HOUR AS SELECT customer_id, CAST(at AS DATE) AS day, count(*) AS events, "
            "max(at) AS latest FROM event GROUP BY customer_id, CAST(at AS DATE);",
        },
    )
    (folder / "in").mkdir()
    runtime = project.open(spark)
    _landed(runtime, folder, _events(spark, 0, 2_592_000, 20_000, 0), "start")
    refresh(runtime, "daily")
    path = runtime.warehouse.path(TableName.parse("daily"))
    log = runtime.warehouse.path(TableName.parse("event"))
    hand = folder / "by_hand"
    spark.read.format("delta").load(str(path)).write.format("delta").partitionBy("day").save(str(hand))

    def by_hand() -> None:
        events = spark.read.format("delta").load(str(log)).where("CAST(at AS DATE) = DATE'2026-01-02'")
        events.createOrReplaceTempView("day_events")
        rows = spark.sql(
            "SELECT customer_id, CAST(at AS DATE) AS day, count(*) AS events, max(at) AS latest FROM day_events "
            "GROUP BY customer_id, CAST(at AS DATE)"
        )
        rows.write.format("delta").mode("overwrite").option("replaceWhere", "day = DATE'2026-01-02'").save(str(hand))

    costs: dict[str, list[Cost]] = {"A": [], "B": []}
    for number, first in enumerate("ABBAABBA"):
        _landed(runtime, folder, _events(spark, 86_400 + number * 500, 500, 20_000, 0), f"portion-{number}")
        works: dict[str, Callable[[], object]] = {"A": lambda: refresh(runtime, "daily"), "B": by_hand}
        for letter in (first, "B" if first == "A" else "A"):
            cost = cost_of(works[letter])
            if number >= 2:
                costs[letter].append(cost)
        same(spark.read.format("delta").load(str(path)), spark.read.format("delta").load(str(hand)))
    return Comparison("partition", middle(costs["A"]), middle(costs["B"]), 1.3)


def noop(spark: SparkSession, folder: Path) -> str:
    project = Project(
        folder,
        {
            "event": EVENT_SOURCE,
            "copy": "CREATE MATERIALIZED TABLE copy FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM event;",
        },
    )
    (folder / "in").mkdir()
    runtime = project.open(spark)
    _landed(runtime, folder, _events(spark, 0, 1000, 100, 0), "start")
    refresh(runtime, "copy")
    tracker = spark.sparkContext.statusTracker()
    before = len(tracker.getJobIdsForGroup(None))  # type: ignore[arg-type]
    started = time.perf_counter()
    runs = 20
    for _ in range(runs):
        assert refresh(runtime, "copy").strategy == "noop"
        assert refresh(runtime, "event").strategy == "noop"
    seconds = (time.perf_counter() - started) / runs / 2
    jobs = len(tracker.getJobIdsForGroup(None)) - before  # type: ignore[arg-type]
    verdict = "met" if seconds < 0.3 and jobs == 0 else "MISSED"
    return f"noop         {seconds * 1000:.1f} ms each, {jobs} Spark jobs   goal 300 ms and 0 jobs {verdict}"


def plan(spark: SparkSession, folder: Path) -> str:
    del spark
    declarations = {"event": EVENT_SOURCE}
    for number in range(200):
        reads = "event" if number < 20 else f"t{number - 20}"
        declarations[f"t{number}"] = (
            f"CREATE MATERIALIZED TABLE t{number} FRESHNESS = INTERVAL '{60 + number}' MINUTE AS\n"
            f"WITH x AS (SELECT customer_id, kind, at, event_id FROM {reads} WHERE kind <> 'z{number}')\n"
            "SELECT x.customer_id, x.kind, x.at, x.event_id FROM x"
        )
    Project(folder, declarations)
    command = [str(Path(sys.executable).parent / "freshline")]

    def seconds(*arguments: str) -> float:
        started = time.perf_counter()
        subprocess.run([*command, *arguments], cwd=folder, check=True, capture_output=True)
        return time.perf_counter() - started

    cold = seconds("plan")
    warm = sorted(seconds("plan") for _ in range(5))[2]
    help_text = sorted(seconds("--help") for _ in range(5))[2]
    verdict = "met" if cold < 5 and warm < 1 and help_text < 0.3 else "MISSED"
    return (
        f"plan         200 tables: cold {cold:.2f} s (goal 5), warm {warm:.2f} s (goal 1), "
        f"--help {help_text:.2f} s (goal 0.3) {verdict}"
    )


def evaluation(spark: SparkSession, folder: Path) -> str:
    del spark
    return "\n".join(found.line() for found in [*evaluate(folder), load(folder)])


Figure = Comparison | Share | Kept | State | Memory | Why | Late | Rate | Rounds | Throughput | Ratio | str
BENCHMARKS: dict[str, Callable[[SparkSession, Path], Figure | Iterator[Figure]]] = {
    "plan": plan,
    "evaluation": evaluation,
    "noop": noop,
    "ingest": ingest,
    "partition": partition,
    "first_row": first_row,
    "last_row": last_row,
    "first_row_growth": first_row_growth,
    "delta_join": delta_join,
    "lookup_join": lookup_join,
    "asked_lookups": asked_lookups,
    "kafka_ingest": kafka_ingest,
    "keyed_log": keyed_log,
    "union_read": union_read,
    "ageing": ageing,
    "many_tables": many_tables,
    "savepoint": savepoint,
    "matcher": matcher,
    "long_key": long_key,
    "temporal_filter": temporal_filter,
    "graph_components": graph_components,
    "graph_ranks": graph_ranks,
}
# These take a number of rows, events or messages: that of `--rows`, or this one.
SIZED: dict[str, tuple[int, Callable[[SparkSession, Path, int], Figure | Iterator[Figure]]]] = {
    "debezium_feed": (1_000_000, debezium_feed),
    "avro_ingest": (1_000_000, avro_ingest),
    "landing": (1_000_000, landing),
    "postgres_feed": (1_000_000, postgres_feed),
    "increments": (200_000, increments),
    "rabbitmq_ingest": (200_000, rabbitmq_ingest),
    "sink_postgres": (10_000_000, sink_postgres),
    "sink_kafka": (1_000_000, sink_kafka),
    "sink_opensearch": (200_000, sink_opensearch),
}
# These grow with a scale that is given on the command line.
SCALED = ("tpch", "event_time", "late_row")
PEERS = "peers"
PEERS_MAIN = Path(__file__).parent / "peers" / "main.py"


def main() -> int:
    if sys.argv[1:2] == [PEERS]:
        # It has options of its own, and sessions of its own, in other processes.
        return subprocess.run([sys.executable, str(PEERS_MAIN), *sys.argv[2:]], check=False).returncode
    parser = argparse.ArgumentParser(description=__doc__, epilog="`peers --help` shows the options of `peers`.")
    parser.add_argument("names", nargs="*", choices=[*BENCHMARKS, *SIZED, *SCALED], help="which ones; all without")
    parser.add_argument("--scale", type=float, default=0.1, help="of tpch, 1 is a gigabyte; default %(default)s")
    parser.add_argument("--shapes", nargs="*", default=[], help="of tpch, event_time and late_row: only these")
    parser.add_argument("--batches", type=int, default=100, help="of event_time: how many; default %(default)s")
    parser.add_argument("--size", type=int, default=10_000, help="of event_time: rows a batch; default %(default)s")
    parser.add_argument("--order", default="ABBA", help="of event_time: its runs, F is Flink; default %(default)s")
    parser.add_argument("--millions", nargs="*", type=float, default=(1, 30), help="of late_row: rows of history")
    parser.add_argument("--shares", nargs="*", type=float, default=SHARES, help="of tpch: of its rows that change")
    parser.add_argument("--rows", type=int, help=f"of {', '.join(SIZED)}: how many rows, events or messages")
    parser.add_argument("--profile", action="store_true", help="also show what the threads of both ways do")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory(prefix="freshline-benchmark-") as folder:
        base = Path(folder)
        (base / "session").mkdir()
        # Files are counted by what Spark keeps of its queries, and a refresh has tens of them.
        kept = 'spark-confs = {"spark.sql.ui.retainedExecutions" = "1000"}'
        (base / "session" / "pyproject.toml").write_text(f'[tool.freshline]\ndriver-memory = "6g"\n{kept}\n')
        spark = build_session(read_settings(base / "session", {}), app_name="benchmarks")
        measure.profiled = spark._jvm if arguments.profile else None
        for name in arguments.names or [*BENCHMARKS, *SIZED, *SCALED]:
            found: Figure | Iterator[Figure]
            if name == "tpch":
                found = tpch(spark, base / name, arguments.scale, shapes=arguments.shapes, shares=arguments.shares)
            elif name == "event_time":
                shapes, batches, size = tuple(arguments.shapes), arguments.batches, arguments.size
                found = event_time(spark, base / name, shapes, batches, size, arguments.order)
            elif name == "late_row":
                found = late_row(spark, base / name, tuple(arguments.millions), tuple(arguments.shapes))
            elif name in SIZED:
                usual, benchmark = SIZED[name]
                found = benchmark(spark, base / name, arguments.rows or usual)
            else:
                found = BENCHMARKS[name](spark, base / name)
            several = [found] if isinstance(found, Figure) else found
            try:
                for figure in several:
                    print(figure if isinstance(figure, str) else figure.line(), flush=True)
                    key = name if isinstance(figure, str) else figure.name
                    figures[key] = figure if isinstance(figure, str) else {**asdict(figure), "ratio": figure.ratio}
            except NotInstalledError as error:
                # Who asks for all has the others.
                if arguments.names:
                    raise SystemExit(f"{name}: {error}") from error
                print(f"{name}: not measured. {error}", flush=True)
        stop_session(spark)
    if arguments.json:
        arguments.json.write_text(json.dumps({"at": datetime.now(UTC).isoformat(), "figures": figures}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
