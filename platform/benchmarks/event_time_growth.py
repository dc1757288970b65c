"""A late row beside a row of now, over a history that grows: CPU-seconds, and the files that are read.

The history is thirty days of events in files of their own, as a log that was written day by day has them. A row of a
month ago and a row of the last hour arrive in turns, and each is refreshed alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measure import Cost, cost_of, middle
from project import Project, refresh
from pyspark.sql import DataFrame, SparkSession

DAYS = 30
ROUNDS = 10
WARM_UP = 3
# As many for each million rows, so that a key has as many rows in a longer history.
KEYS = 10_000
GOAL = 1.5
FIRST_DAY = "TIMESTAMP'2026-01-01 00:00:00'"
COLUMNS = "id BIGINT, k STRING, ts TIMESTAMP, v BIGINT"
TABLES = {
    "tumbling": "SELECT window_start, k, count(*) AS n, max(v) AS v "
    "FROM TUMBLE(TABLE event, DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start, k",
    "sliding": "SELECT window_start, k, count(*) AS n, max(v) AS v "
    "FROM HOP(TABLE event, DESCRIPTOR(ts), INTERVAL '20' MINUTES, INTERVAL '1' HOUR) GROUP BY window_start, k",
    "days": "SELECT window_start, k, count(*) AS n, max(v) AS v FROM TUMBLE(TABLE event, DESCRIPTOR(ts), "
    "INTERVAL '1' DAY, TIME_ZONE => 'America/New_York') GROUP BY window_start, k",
    "session": "SELECT window_start, window_end, k, count(*) AS n, max(v) AS v "
    "FROM SESSION(TABLE event PARTITION BY k, DESCRIPTOR(ts), INTERVAL '30' MINUTES) "
    "GROUP BY window_start, window_end, k",
    "frame": "SELECT id, k, ts, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '1' HOUR PRECEDING "
    "AND CURRENT ROW) AS v FROM event",
    "interval join": "SELECT a.id, b.id AS other, a.ts FROM event AS a JOIN event AS b ON a.k = b.k "
    "AND b.ts > a.ts AND b.ts <= a.ts + INTERVAL '10' MINUTES",
}


@dataclass(frozen=True)
class Late:
    """Medians of a refresh after a row of now and after one of a month ago, with the files that they read."""

    name: str
    now: Cost
    late: Cost
    now_files: int
    late_files: int

    @property
    def ratio(self) -> float:
        return self.late.cpu / self.now.cpu

    def line(self) -> str:
        verdict = "met" if self.ratio <= GOAL else "MISSED"
        return (
            f"{self.name:<34} now {self.now.cpu:5.2f} CPU-s {self.now_files:4d} files   "
            f"late {self.late.cpu:5.2f} CPU-s {self.late_files:4d} files   "
            f"ratio {self.ratio:4.2f}   goal {GOAL:.2f} {verdict}"
        )


def late_row(spark: SparkSession, folder: Path, millions: tuple[float, ...], names: tuple[str, ...]) -> Iterator[Late]:
    """One row of now, then one of a month ago, for each table over each history."""
    for million in millions:
        base = folder / f"{million:g}"
        base.mkdir(parents=True)
        rows, keys = round(million * 1_000_000) // DAYS, max(1, round(million * KEYS))
        for day in range(DAYS):
            at = f"{day} * 86400000000 + id % 86400 * 1000000"
            append(_events(spark, day * rows, rows, at, keys), base / "event")
        declared = {
            "event": f"CREATE SOURCE event ({COLUMNS}, PRIMARY KEY (id)) "
            f"WITH ('connector' = 'delta', 'path' = '{base / 'event'}');"
        }
        chosen = names or tuple(TABLES)
        for name in chosen:
            table = name.replace(" ", "_")
            declared[table] = f"CREATE MATERIALIZED TABLE {table} FRESHNESS = INTERVAL '10' MINUTE AS {TABLES[name]};"
        runtime = Project(base / "project", declared).open(spark)
        for name in chosen:
            refresh(runtime, name.replace(" ", "_"))
        costs: dict[tuple[str, bool], list[tuple[Cost, int]]] = {}
        for number in range(2 * (ROUNDS + WARM_UP)):
            late = bool(number % 2)
            at = f"{3_600_000_000 if late else DAYS * 86_400_000_000} + {number} * 1000000"
            append(_events(spark, 10**9 + number, 1, at, keys), base / "event")
            for name in chosen:
                before = _last_execution(spark)
                cost = cost_of(partial(refresh, runtime, name.replace(" ", "_"), strategy="keys"))
                if number >= 2 * WARM_UP:
                    costs.setdefault((name, late), []).append((cost, _files_read(spark, before)))
        for name in chosen:
            now, back = costs[name, False], costs[name, True]
            yield Late(
                f"{name}, {million:g} million rows",
                middle([cost for cost, _ in now]),
                middle([cost for cost, _ in back]),
                sorted(files for _, files in now)[len(now) // 2],
                sorted(files for _, files in back)[len(back) // 2],
            )


def _events(spark: SparkSession, first: int, count: int, micros: str, keys: int) -> DataFrame:
    return spark.range(first, first + count, numPartitions=1).selectExpr(
        "id",
        f"concat('key-', pmod(xxhash64(id), {keys})) AS k",
        f"timestamp_micros(unix_micros({FIRST_DAY}) + {micros}) AS ts",
        "id % 1000 AS v",
    )


def append(rows: DataFrame, path: Path) -> None:
    """Add rows to a Delta table that another job writes, with its change feed: a file for each partition."""
    rows.write.format("delta").mode("append").option("delta.enableChangeDataFeed", "true").save(str(path))


def _executions(spark: SparkSession) -> Iterator[tuple[int, object]]:
    """Spark's own record of the queries of this session's JVM, the newest first."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    for place in reversed(range(found.size())):
        execution = found.apply(place)
        yield execution.executionId(), execution


def _last_execution(spark: SparkSession) -> int:
    return next((number for number, _ in _executions(spark)), -1)


def _files_read(spark: SparkSession, before: int) -> int:
    """The files that scans have read in all queries after one, by Spark's metric."""
    store = spark._jsparkSession.sharedState().statusStore()
    total = 0
    for number, execution in _executions(spark):
        if number <= before:
            return total
        values = store.executionMetrics(number)
        metrics = execution.metrics()  # type: ignore[attr-defined]
        seen = set()
        for place in range(metrics.size()):
            metric = metrics.apply(place)
            accumulator = metric.accumulatorId()
            if metric.name() != "number of files read" or accumulator in seen or not values.contains(accumulator):
                continue
            seen.add(accumulator)
            digits = re.sub(r"[^0-9]", "", str(values.apply(accumulator)).split("\n")[-1].split("(")[0])
            total += int(digits or 0)
    raise SystemExit("Spark did not keep all queries of a refresh, so its files cannot be counted")
