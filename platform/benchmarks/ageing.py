"""Tables that grow old: after thousands of small commits, and when all of them are saved and brought back."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from project import Project, refresh
from pyspark.sql import SparkSession

from freshline.commit.delta_log import read_newest
from freshline.commit.small import append_small
from freshline.run import Runtime, create_savepoint, maintain_table, restore_savepoint
from freshline.values.names import TableName

COMMITS = 5_000
FEW_COMMITS = 10
# The engine checks a table after so many commits.
BETWEEN_LOOKS = 20
TABLES = 20
T = TableName.parse("t")
SOURCE = "CREATE SOURCE s (id INT, n INT) WITH ('connector' = 'delta', 'path' = 's');"


def ageing(spark: SparkSession, folder: Path, commits: int = COMMITS) -> Iterator[str]:
    """A refresh and a read of a table after many small commits, maintenance included, against after ten."""
    young, old = _aged(spark, folder / "young", FEW_COMMITS), _aged(spark, folder / "old", commits)
    figures: dict[str, tuple[list[float], list[float]]] = {"read": ([], []), "refresh": ([], [])}
    for number in range(8):
        for place, (runtime, path) in enumerate((young, old)):
            _write(path / "s", 1_000_000 + number)
            started = time.perf_counter()
            refresh(runtime, "t")
            figures["refresh"][place].append(time.perf_counter() - started)
            started = time.perf_counter()
            spark.read.format("delta").load(str(runtime.warehouse.path(T))).selectExpr("sum(n)").collect()
            figures["read"][place].append(time.perf_counter() - started)
    for name, (few, many) in figures.items():
        ratio = statistics.median(many[2:]) / statistics.median(few[2:])
        verdict = "met" if ratio <= 1.2 else "MISSED"
        yield (
            f"ageing       {name} after {commits} commits {statistics.median(many[2:]):.2f} s, "
            f"after {FEW_COMMITS} {statistics.median(few[2:]):.2f} s, ratio {ratio:.2f}   goal 1.20 {verdict}"
        )


def _aged(spark: SparkSession, folder: Path, commits: int) -> tuple[Runtime, Path]:
    """A table with so many commits of one row each, kept as the engine keeps it."""
    runtime = _project(spark, folder, {"t": "SELECT id, n FROM s"})
    refresh(runtime, "t")
    path = runtime.warehouse.path(T)
    for number in range(commits):
        newest = read_newest(path)
        assert newest is not None
        assert newest.receipt is not None
        receipt = replace(newest.receipt, seq=newest.receipt.seq + 1, attempt=uuid4().hex, maintenance=False)
        append_small(DeltaTable(str(path)), _row(number), receipt)
        if number % BETWEEN_LOOKS == 0:
            maintain_table(runtime, T)
    return runtime, folder


def savepoint(spark: SparkSession, folder: Path) -> str:
    """Twenty tables saved, refreshed three times more, and brought back."""
    queries = {f"t{number}": f"SELECT id, n + {number} AS n FROM s" for number in range(TABLES)}
    runtime = _project(spark, folder, queries)
    for name in queries:
        refresh(runtime, name)
    started = time.perf_counter()
    create_savepoint(runtime, "calm")
    saved = time.perf_counter() - started
    for number in range(3):
        _write(folder / "s", 10 + number)
        for name in queries:
            refresh(runtime, name)
    started = time.perf_counter()
    restored = restore_savepoint(runtime, "calm")
    seconds = time.perf_counter() - started
    assert len(restored.tables) == TABLES
    verdict = "met" if saved < 5 and seconds < 30 else "MISSED"
    return (
        f"savepoint    {TABLES} tables saved in {saved:.2f} s (goal 5), restored in {seconds:.2f} s (goal 30) {verdict}"
    )


def _project(spark: SparkSession, folder: Path, queries: dict[str, str]) -> Runtime:
    tables = {
        name: f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '1' HOUR AS {query};"
        for name, query in queries.items()
    }
    project = Project(folder, {"s": SOURCE, **tables})
    DeltaTable.create(str(folder / "s"), _row(0).schema, configuration={"delta.enableChangeDataFeed": "true"})
    _write(folder / "s", 0)
    return project.open(spark)


def _write(path: Path, number: int) -> None:
    write_deltalake(str(path), _row(number), mode="append")


def _row(number: int) -> pa.Table:
    return pa.table({"id": pa.array([number], pa.int32()), "n": pa.array([number], pa.int32())})
