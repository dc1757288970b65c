"""One evaluation of a thousand tables by each of Dagster's sensors, without Spark.

A third each of the tables is continuous, incremental and batch; every log has ten commits with receipts and every table
two hundred records in the control store. Run by `run.py evaluation`, or alone: this file needs no engine and no JVM.
"""

from __future__ import annotations

import shutil
import sqlite3
import statistics
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
from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.project import read_settings
from freshline.declare.settings import Settings
from freshline.orchestrate.sensors.batch import request_batch
from freshline.orchestrate.sensors.supervisor import supervise
from freshline.plan.position import TablePosition
from freshline.plan.project import open_project
from freshline.plan.receipt import Receipt
from freshline.plan.record import RefreshRecord

TABLES = 1000
RECORDS = 200
GOAL_SECONDS = 1.0
_EVENT = TableName.parse("event")


@dataclass(frozen=True)
class Evaluation:
    """Seconds of the first tick of one sensor (which tells most), and the median of those after it."""

    sensor: str
    first: float
    median: float

    def line(self) -> str:
        verdict = "met" if self.median < GOAL_SECONDS else "MISSED"
        return (
            f"evaluation   {self.sensor}: {TABLES} tables, first tick {self.first:.2f} s, then {self.median:.2f} s "
            f"(goal {GOAL_SECONDS:g} s) {verdict}"
        )


def evaluate(folder: Path, tables: int = TABLES) -> list[Evaluation]:
    """Generate the project below `folder`, and let each sensor tick six times, ten seconds apart."""
    settings, graph = generate(folder, tables)
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
                    build_sensor_context(instance=instance, cursor=cursor), settings, graph, at
                ),
            ),
            timed(
                "freshline_batch",
                lambda cursor, at: request_batch(
                    build_sensor_context(instance=instance, cursor=cursor),
                    settings,
                    graph,
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
        "CREATE SOURCE event (id STRING) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')"
    )
    for number in range(tables):
        freshness = ("'10' SECOND", "'5' MINUTE", "'2' HOUR")[number % 3]
        (folder / "assets" / f"t{number}.sql").write_text(
            f"CREATE MATERIALIZED TABLE t{number} FRESHNESS = INTERVAL {freshness} AS SELECT id FROM event"
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
            path, pa.table({"id": ["a"]}), mode="append",
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
            RefreshRecord(name, now, "SUCCEEDED", "append", "new rows", 1.5, 9, "f", committed=True, rows_in=1)
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
        for found in evaluate(Path(folder) / "project"):
            print(found.line(), flush=True)


if __name__ == "__main__":
    main()
