"""A thousand records into a log with a key that has ten million, beside the same into one of a hundred thousand.

    .venv/bin/python platform/benchmarks/run.py keyed_log

One in a hundred of the records came before. The cost must not grow with the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from measure import Comparison, compare
from project import Project, refresh
from pyspark.sql import DataFrame, SparkSession

from freshline.run import Runtime
from freshline.values.names import TableName

RECORDS = 1_000
SMALL = 100_000
EVENT = (
    "CREATE SOURCE event (event_id STRING, customer_id STRING, kind STRING, at TIMESTAMP, PRIMARY KEY (event_id)) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds');"
)


def keyed_log(spark: SparkSession, folder: Path) -> Iterator[Comparison]:
    """Logs of 1,000,000 and 10,000,000 records beside one of 100,000."""
    small = _log(spark, folder / "small", SMALL)
    for count in (1_000_000, 10_000_000):
        yield _beside(spark, small, _log(spark, folder / f"{count}", count), count)


def _log(spark: SparkSession, folder: Path, count: int) -> tuple[Runtime, int]:
    project = Project(folder, {"event": EVENT})
    (folder / "in").mkdir()
    runtime = project.open(spark)
    # Files as they come over time: of so many records each.
    for start in range(0, count, 500_000):
        rows = _events(spark, start, min(500_000, count - start))
        _land(rows, folder, f"start-{start}")
        refresh(runtime, "event")
    return runtime, count


def _beside(spark: SparkSession, small: tuple[Runtime, int], large: tuple[Runtime, int], count: int) -> Comparison:
    def records(log: tuple[Runtime, int], number: int) -> None:
        runtime, before = log
        first = before + (count + number) * RECORDS
        _land(_events(spark, first, RECORDS - 10).unionAll(_events(spark, before // 2, 10)), runtime.root, f"{first}")

    # Landed before, so that only the refresh is measured.
    for number in range(10):
        for log in (small, large):
            records(log, number)
            _hide(log[0].root)

    def take(log: tuple[Runtime, int]) -> None:
        _show(log[0].root)
        refresh(log[0], "event")

    found = compare(f"keyed_log {count:,}", lambda _: take(large), lambda _: take(small), goal=1.2)
    for log in (small, large):
        runtime, before = log
        rows = spark.read.format("delta").load(str(runtime.warehouse.path(TableName.parse("event"))))
        if rows.count() != rows.select("event_id").distinct().count() or rows.count() < before:
            raise SystemExit("a record is there twice, or lost")
    return Comparison(found.name, found.ours, found.theirs, found.goal, beside=f"into {SMALL:,}")


def _events(spark: SparkSession, start: int, count: int) -> DataFrame:
    return spark.range(start, start + count).selectExpr(
        "concat('e', sha1(cast(id AS STRING))) AS event_id",
        "concat('customer-', id % 50000) AS customer_id",
        "element_at(array('view', 'click', 'order'), CAST(id % 3 + 1 AS INT)) AS kind",
        "TIMESTAMP'2026-01-01 00:00:00' + make_dt_interval(0, 0, 0, id) AS at",
    )


def _land(rows: DataFrame, folder: Path, name: str) -> None:
    part = folder / "portion"
    rows.coalesce(1).write.mode("overwrite").json(str(part))
    for file in part.glob("part-*.json"):
        file.rename(folder / "in" / f"{name}.json")


def _hide(folder: Path) -> None:
    """Take the newest file out of the landing folder until its turn."""
    newest = max((folder / "in").glob("*.json"), key=os.path.getmtime)
    newest.rename(folder / "in" / f".{newest.name}")


def _show(folder: Path) -> None:
    oldest = min((folder / "in").glob(".*.json"), key=lambda file: int(file.name.strip(".").removesuffix(".json")))
    oldest.rename(folder / "in" / oldest.name.lstrip("."))
