"""Rows leave tables with temporal filters as a minute passes, beside computing the tables again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from event_time_growth import append
from measure import Comparison, Cost, cost_of, middle
from project import Project, refresh, same_by_hash
from pyspark.sql import SparkSession

from freshline.commit.delta_log import newest_version
from freshline.values.names import TableName

ROWS = 10_000_000
LEAVE = 1_000
FILES = 100
# The refreshes of an engine that has just begun, whose JVM still compiles, and of the same one later.
FIRST, LATER = range(1, 6), range(20, 25)
FULL_ROUNDS = 1
START = datetime(2026, 1, 1, tzinfo=UTC)
# The oldest row leaves at the first minute.
KEEP = timedelta(minutes=ROWS // LEAVE)
WHERE = f"WHERE ts > now() - INTERVAL '{ROWS // LEAVE}' MINUTES"
TABLES = {
    "rows": f"(PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS SELECT id, k, ts, v FROM event {WHERE}",
    "counts": f"FRESHNESS = INTERVAL '1' MINUTE AS SELECT k, count(*) AS n, sum(v) AS s FROM event {WHERE} GROUP BY k",
}


def temporal_filter(spark: SparkSession, folder: Path) -> Iterator[Comparison]:
    """Ten million rows, of which a thousand leave in a minute in which nothing arrives."""
    source = folder / "event"
    step = timedelta(minutes=1) / LEAVE / timedelta(microseconds=1)
    # One file after another in the order of time.
    rows = spark.range(0, ROWS, numPartitions=FILES).selectExpr(
        "id",
        "concat('key-', pmod(xxhash64(id), 10000)) AS k",
        f"timestamp_micros(unix_micros(TIMESTAMP'2026-01-01 00:00:00Z') + CAST(id * {step:g} AS BIGINT)) AS ts",
        "id % 1000 AS v",
    )
    append(rows, source)
    declared = {
        "event": "CREATE SOURCE event (id BIGINT, k STRING, ts TIMESTAMP, v BIGINT, PRIMARY KEY (id)) "
        f"WITH ('connector' = 'delta', 'path' = '{source}');",
        **{name: f"CREATE MATERIALIZED TABLE {name} {text};" for name, text in TABLES.items()},
    }
    runtime = Project(folder / "project", declared).open(spark)
    costs: dict[tuple[str, str], list[Cost]] = {}
    for number in range(LATER.stop):
        now = START + KEEP + number * timedelta(minutes=1)
        runtime.clock = lambda now=now: now  # type: ignore[misc]
        for name in TABLES:
            cost = cost_of(partial(refresh, runtime, name))
            for stage, numbers in (("first", FIRST), ("later", LATER)):
                if number in numbers:
                    costs.setdefault((name, stage), []).append(cost)
    for name in TABLES:
        path = runtime.warehouse.path(TableName.parse(name))
        version = newest_version(path)
        for _ in range(FULL_ROUNDS):
            costs.setdefault((name, "full"), []).append(cost_of(partial(refresh, runtime, name, strategy="full")))
        table = spark.read.format("delta")
        same_by_hash(table.load(str(path)), table.option("versionAsOf", version).load(str(path)))
        full = middle(costs[name, "full"])
        yield Comparison(f"a minute passes, {name}", middle(costs[name, "later"]), full, 0.05, beside="full")
        yield Comparison(f"{name}, first refreshes", middle(costs[name, "first"]), full, 0.05, beside="full")
