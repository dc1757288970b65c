"""A thousand tables in Dagster, without Spark: one evaluation by each sensor, and what loading them takes.

A third each of the tables is continuous, incremental and batch, each with ten columns whose lineage is shown; every
log has ten commits with receipts and every table two hundred records in the control store. Run by `run.py evaluation`,
or alone: this file needs no engine and no JVM.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from dagster import DagsterInstance, SensorResult, build_sensor_context
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.small import application
from freshline.commit.warehouse import Warehouse
from freshline.dagster.keys import AssetKeys
from freshline.dagster.lineage import read_lineages, shown_lineages
from freshline.dagster.sensors.batch import request_batch
from freshline.dagster.sensors.supervisor import supervise
from freshline.declare.graph import Graph
from freshline.declare.project import read_settings
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, State
from freshline.values.settings import Settings

TABLES = 1000
RECORDS = 200
GOAL_SECONDS = 1.0
LOAD_GOAL_SECONDS = 10.0
COLUMNS = ("id", *(f"c{number}" for number in range(1, 10)))
# The work of a code server from its start until it can answer: the imports, the definitions, and their description.
LOADING = """
import sys
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster_shared.serdes import serialize_value
from freshline.dagster import FreshlineProject, build_definitions

repository = build_definitions(FreshlineProject(sys.argv[1])).get_repository_def()
serialize_value(RepositorySnap.from_def(repository))
"""
_EVENT = TableName.parse("event")


@dataclass(frozen=True)
class Evaluation:
    """Seconds of the first tick of one sensor (which reports most), and the median of those after it."""

    sensor: str
    first: float
    median: float

    def line(self) -> str:
        verdict = "met" if self.median < GOAL_SECONDS else "MISSED"
        return (
            f"evaluation   {self.sensor}: {TABLES} tables, first tick {self.first:.2f} s, then {self.median:.2f} s "
            f"(goal {GOAL_SECONDS:g} s) {verdict}"
        )


@dataclass(frozen=True)
class Load:
    """Seconds, and CPU-seconds, that a new process takes to load the project: with nothing in the cache, then warm."""

    cold: float
    warm: float
    warm_cpu: float

    def line(self) -> str:
        verdict = "met" if self.warm < LOAD_GOAL_SECONDS else "MISSED"
        return (
            f"load         {TABLES} tables with column lineage: cold {self.cold:.1f} s, then {self.warm:.1f} s, "
            f"{self.warm_cpu:.1f} CPU-s (goal {LOAD_GOAL_SECONDS:g} s) {verdict}"
        )


def load(folder: Path) -> Load:
    """Load a generated project four times, each in a process of its own; of the warm ones the fastest counts."""
    shutil.rmtree(read_settings(folder, {}).state / "cache", ignore_errors=True)
    found = []
    for _ in range(4):
        before, began = os.times(), time.perf_counter()
        subprocess.run([sys.executable, "-c", LOADING, str(folder)], check=True)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        found.append((time.perf_counter() - began, cpu))
    warm, cpu = min(found[1:])
    return Load(found[0][0], warm, cpu)


def evaluate(folder: Path, tables: int = TABLES) -> list[Evaluation]:
    """Generate the project below `folder`, and let each sensor tick six times, every ten seconds."""
    settings, graph = generate(folder, tables)
    keys = AssetKeys.of(graph)
    lineages = shown_lineages(read_lineages(graph, settings), keys)
    now = datetime.now(UTC)
    with DagsterInstance.local_temp(str(folder), overrides={"telemetry": {"enabled": False}}) as instance:

        def timed(name: str, tick: Callable[[str | None, datetime], SensorResult]) -> Evaluation:
            cursor: str | None = None
            seconds = []
            for number in range(6):
                began = time.perf_counter()
                result = tick(cursor, now + timedelta(seconds=10 * number))
                seconds.append(time.perf_counter() - began)
                cursor = result.cursor
            return Evaluation(name, seconds[0], statistics.median(seconds[1:]))

        return [
            timed(
                "freshline_supervisor",
                lambda cursor, at: supervise(
                    build_sensor_context(instance=instance, cursor=cursor), settings, graph, keys, at, lineages=lineages
                ),
            ),
            timed(
                "freshline_batch",
                lambda cursor, at: request_batch(
                    build_sensor_context(instance=instance, cursor=cursor),
                    settings,
                    graph,
                    keys,
                    # Late enough that what their refreshes take is asked for, and none is due.
                    at + timedelta(minutes=90),
                    0.5,
                ),
            ),
        ]


def generate(folder: Path, tables: int) -> tuple[Settings, Graph]:
    """A project of one log and many tables over it, with logs and a control store as an engine leaves them."""
    (folder / "assets").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.freshline]\n")
    (folder / "assets" / "event.sql").write_text(
        f"CREATE SOURCE event ({', '.join(f'{name} STRING' for name in COLUMNS)}) "
        "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')"
    )
    for number in range(tables):
        freshness = ("'10' SECOND", "'5' MINUTE", "'2' HOUR")[number % 3]
        (folder / "assets" / f"t{number}.sql").write_text(
            f"CREATE MATERIALIZED TABLE t{number} FRESHNESS = INTERVAL {freshness} "
            f"AS SELECT {', '.join(COLUMNS)} FROM event"
        )
    settings = read_settings(folder, {})
    graph = open_project(settings)
    warehouse = Warehouse(settings.warehouse)
    _commits(warehouse.path(_EVENT), _EVENT, {})
    position = TablePosition(str(DeltaTable(warehouse.path(_EVENT)).metadata().id), 9, 10)
    first = TableName.parse("t0")
    _commits(warehouse.path(first), first, {_EVENT: position})
    for number in range(1, tables):
        shutil.copytree(warehouse.path(first), warehouse.path(TableName.parse(f"t{number}")))
    _records(settings, graph)
    return settings, graph


def _commits(path: Path, name: TableName, positions: dict[TableName, TablePosition]) -> None:
    for seq in range(1, 11):
        receipt = Receipt(
            table=name, fingerprint="f", epoch=1, seq=seq, mode="batch", strategy="append", reason="new rows",
            data_timestamp=datetime.now(UTC), positions=dict(positions), rows_in=1, rows_out=1, attempt="a",
            seconds=1.5,
        )  # fmt: skip
        known = [Transaction(application(str(DeltaTable(path).metadata().id)), seq)] if path.exists() else []
        write_deltalake(
            path, pa.table({name: ["a"] for name in COLUMNS}), mode="append",
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": receipt.to_json()}, app_transactions=known
            ),
        )  # fmt: skip


def _records(settings: Settings, graph: Graph) -> None:
    """One record a table by the store itself, and the others beside it in one statement: each is a transaction."""
    control = ControlStore.open(settings.control_store)
    now = datetime.now(UTC)
    control.record_check(_EVENT, now, "{}")
    for name in graph.order:
        control.record_refresh(
            RefreshResult(
                table=name,
                at=now,
                state=State.SUCCEEDED,
                strategy="append",
                reason="new rows",
                seconds=1.5,
                version=9,
                fingerprint="f",
                committed=True,
                rows_in=1,
            )
        )
    control.close()
    with sqlite3.connect(settings.state / "control.db") as store:
        columns = [row[1] for row in store.execute("PRAGMA table_info(freshline_refresh)") if row[1] != "id"]
        listed = ", ".join(columns)
        store.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
            f"INSERT INTO freshline_refresh ({listed}) SELECT {listed} FROM freshline_refresh, n",
            (RECORDS - 1,),
        )
    store.close()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="freshline-benchmark-") as folder:
        project = Path(folder) / "project"
        for found in evaluate(project):
            print(found.line(), flush=True)
        print(load(project).line(), flush=True)


if __name__ == "__main__":
    main()
