"""Status is read from the tables' own logs and the control store, without Spark and without an engine."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from freshline.commit import delta_log
from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import read_newest
from freshline.commit.small import application
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.declare.project_settings import read_settings
from freshline.errors import FileChangedError, QueryError, error_from_json
from freshline.freshness.intentions import FreshnessOverride, Suspension
from freshline.report.status import LastRefresh, RowCounts, TableStatus, read_status
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.partition import PartitionSpan
from freshline.values.position import Position, TablePosition
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult

NOW = datetime.now(UTC)
ORDERS, PRICES, SPEND = TableName.parse("orders"), TableName.parse("prices"), TableName.parse("spend")
DECLARATIONS = {
    "orders.sql": "CREATE SOURCE orders (id STRING) WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing')",
    "prices.sql": "CREATE SOURCE prices (id STRING) WITH ('connector' = 'delta', 'path' = 'prices')",
    "spend.sql": "CREATE MATERIALIZED TABLE spend FRESHNESS = INTERVAL '10' MINUTE AS "
    "SELECT o.id FROM orders AS o JOIN prices AS p ON p.id = o.id",
}


def before(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


@dataclass
class Project:
    """A project whose tables are written by delta-rs, with receipts as an engine would write them."""

    graph: Graph
    warehouse: Warehouse
    control: ControlStore

    def path(self, name: TableName) -> Path:
        return self.warehouse.location(self.graph.spec(name))

    def commit(
        self,
        name: TableName,
        seq: int,
        rows: int,
        *,
        stamp: datetime | None = None,
        positions: dict[TableName, Position] | None = None,
        maintenance: bool = False,
        spans: tuple[PartitionSpan, ...] | None = None,
    ) -> None:
        receipt = Receipt(
            table=name, fingerprint="f", epoch=1, seq=seq, mode="batch", strategy="append", reason="new rows",
            data_timestamp=stamp, positions=positions or {}, rows_in=rows, rows_out=rows, attempt="a", seconds=1.5,
            maintenance=maintenance, spans=spans,
        )  # fmt: skip
        self.write(self.path(name), rows, receipt.to_json())

    def write(self, path: Path, rows: int, user_metadata: str | None = None) -> None:
        properties = (
            None if user_metadata is None else CommitProperties(custom_metadata={"userMetadata": user_metadata})
        )
        table = pa.table({"id": pa.array([str(i) for i in range(rows)], pa.string())})
        write_deltalake(path, table, mode="append", commit_properties=properties)

    def position(self, name: TableName, seq: int | None = None) -> TablePosition:
        table = DeltaTable(self.path(name))
        return TablePosition(str(table.metadata().id), table.version(), seq)

    def check(self, name: TableName, at: datetime) -> None:
        newest = read_newest(self.path(name))
        receipt = None if newest is None else newest.receipt
        known = self.position(name).as_json() if receipt is None else {"receipt": receipt.identity}
        self.control.record_check(name, at, json.dumps(known))

    def record(self, name: TableName, at: datetime, version: int | None, **changes: object) -> None:
        # A commit without rows says nothing of how long those with rows take.
        strategy = "keys" if changes.get("committed") else "noop"
        values: dict[str, object] = {
            "table": name, "at": at, "state": "SUCCEEDED", "strategy": strategy, "reason": "nothing new",
            "seconds": 0.1, "version": version, "rows_in": 0, "rows_out": 0, "rejected": 0, "committed": False,
            "fingerprint": "f", "data_timestamp": None, **changes,
        }  # fmt: skip
        if isinstance(error := values.get("error"), dict):
            values["error"] = error_from_json(error)
        self.control.record_refresh(RefreshResult(**values))  # type: ignore[arg-type]

    def status(self, **options: object) -> dict[TableName, TableStatus]:
        found = read_status(self.graph, self.control, self.warehouse, NOW, **options)  # type: ignore[arg-type]
        assert [status.table for status in found] == list(self.graph.order)
        return {status.table: status for status in found}


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    settings = read_settings(tmp_path, {})
    control = ControlStore.open(settings.control_store)
    yield Project(read_declarations(DECLARATIONS, settings), Warehouse(settings.warehouse), control)
    control.close()


def fresh(project: Project) -> None:
    """Orders and prices were read once, spend has the newest of both."""
    project.commit(ORDERS, 1, 3, stamp=before(60))
    project.write(project.path(PRICES), 2)
    project.commit(
        SPEND, 1, 2, stamp=before(60),
        positions={ORDERS: project.position(ORDERS, 1), PRICES: project.position(PRICES)},
    )  # fmt: skip
    project.check(ORDERS, before(2))
    project.check(PRICES, before(4))


def test_a_project_that_was_never_refreshed_is_scheduled(project: Project) -> None:
    status = project.status()

    assert {s.state for s in status.values()} == {"SCHEDULED"}
    assert [(s.kind, s.version, s.rows, s.lag_seconds, s.last_refresh) for s in status.values()] == [
        ("log", None, None, None, None),
        ("source", None, None, None, None),
        ("table", None, None, None, None),
    ]


def test_lag_is_that_of_the_slowest_source_and_not_the_time_of_the_last_run(project: Project) -> None:
    fresh(project)

    status = project.status()

    assert status[ORDERS].lag_seconds == pytest.approx(120)
    assert status[PRICES].lag_seconds == pytest.approx(240)
    assert status[SPEND].lag_seconds == pytest.approx(240)
    assert not status[SPEND].late


def test_a_table_behind_its_source_lags_since_its_own_data(project: Project) -> None:
    fresh(project)
    project.commit(ORDERS, 2, 1, stamp=before(1))

    status = project.status()

    assert status[SPEND].lag_seconds == pytest.approx(3600)
    assert status[SPEND].late
    assert status[ORDERS].lag_seconds == pytest.approx(60)


def test_a_refresh_of_a_table_that_found_nothing_new_moves_its_data_forward(project: Project) -> None:
    fresh(project)
    project.commit(ORDERS, 2, 1, stamp=before(1))
    project.check(SPEND, before(30))

    assert project.status()[SPEND].lag_seconds == pytest.approx(1800)


def test_maintenance_of_a_source_does_not_make_a_table_late(project: Project) -> None:
    fresh(project)
    project.commit(ORDERS, 1, 0, stamp=before(60), maintenance=True)

    assert project.status()[SPEND].lag_seconds == pytest.approx(240)


def test_rows_and_versions_are_those_of_the_tables(project: Project) -> None:
    fresh(project)
    project.commit(ORDERS, 2, 4, stamp=before(1))
    project.write(project.warehouse.quarantine(ORDERS), 5)

    status = project.status()

    assert (status[ORDERS].version, status[ORDERS].rows, status[ORDERS].quarantined) == (1, 7, 5)
    assert (status[PRICES].version, status[PRICES].rows, status[PRICES].quarantined) == (0, 2, None)
    assert (status[SPEND].version, status[SPEND].rows, status[SPEND].quarantined) == (0, 2, None)


def test_a_commit_without_a_record_counts(project: Project) -> None:
    fresh(project)

    spend = project.status()[SPEND]

    assert spend.state == "SUCCEEDED"
    assert spend.last_refresh is not None
    assert (spend.last_refresh.strategy, spend.last_refresh.seconds) == ("append", 1.5)


def test_a_refresh_that_found_nothing_new_is_the_newest(project: Project) -> None:
    fresh(project)
    at = datetime.now(UTC) + timedelta(seconds=1)
    project.record(SPEND, at, 0)

    assert project.status()[SPEND].last_refresh == LastRefresh("noop", "nothing new", 0.1, at)


def test_a_commit_that_the_engine_did_not_live_to_record_is_the_newest(project: Project) -> None:
    project.record(SPEND, before(30), None, state="FAILED", strategy=None, error={"code": "QUERY"})
    fresh(project)

    spend = project.status()[SPEND]

    assert spend.state == "SUCCEEDED"
    assert spend.error is None


def test_a_failed_refresh_is_reported_with_its_error(project: Project) -> None:
    fresh(project)
    error = QueryError("there is no column b.", where="spend").as_json()
    project.record(SPEND, datetime.now(UTC) + timedelta(seconds=1), 0, state="FAILED", error=error)

    spend = project.status()[SPEND]

    assert spend.state == "FAILED"
    assert spend.error == error
    assert spend.version == 0


def test_a_problem_that_needs_a_person_is_reported(project: Project) -> None:
    fresh(project)
    problem = FileChangedError("the file changed after it was read.", where="landing/a.csv")
    project.record(ORDERS, datetime.now(UTC) + timedelta(seconds=1), 0, problems=(problem,))

    assert project.status()[ORDERS].problems == (str(problem),)


def test_a_table_that_the_engine_refreshes_now_is_running(project: Project) -> None:
    fresh(project)

    status = project.status(running=[SPEND])

    assert (status[SPEND].state, status[ORDERS].state) == ("RUNNING", "SUCCEEDED")


def test_one_table_that_cannot_be_read_does_not_hide_the_others(project: Project) -> None:
    fresh(project)
    log = project.path(SPEND) / "_delta_log" / f"{0:020d}.json"
    log.write_text(log.read_text().replace('{\\"freshline\\":3', '{\\"freshline\\":99'))

    status = project.status()

    error = status[SPEND].error
    assert error is not None
    assert error["code"] == "FORMAT"
    assert status[ORDERS].rows == 3


def test_an_override_is_shown_with_the_mode_in_force(project: Project) -> None:
    override = FreshnessOverride(SPEND, Freshness(30), "operator", before(1), NOW + timedelta(hours=1))
    project.control.intentions.change(set_overrides=[override])

    spend = project.status()[SPEND]

    assert (spend.freshness_seconds, spend.mode, spend.override) == (30, "continuous", override)
    assert project.status()[ORDERS].freshness_seconds == 30


def test_an_override_that_has_ended_is_not_shown(project: Project) -> None:
    override = FreshnessOverride(SPEND, Freshness(30), "operator", before(2), before(1))
    project.control.intentions.change(set_overrides=[override])

    spend = project.status()[SPEND]

    assert (spend.freshness_seconds, spend.override) == (600, None)


def test_a_suspended_table_says_so_and_its_lag_is_shown(project: Project) -> None:
    fresh(project)
    suspension = Suspension(SPEND, "operator", before(10), reason="wrong prices")
    project.control.intentions.change(set_suspensions=[suspension])

    spend = project.status()[SPEND]

    assert (spend.state, spend.suspended, spend.blocked_by) == ("SUSPENDED", suspension, None)
    assert spend.lag_seconds == pytest.approx(240)
    assert project.status(running=[SPEND])[SPEND].state == "RUNNING"


def test_tables_whose_sensor_is_switched_off_are_paused(project: Project) -> None:
    project.control.heartbeats.beat("scheduler", NOW, {"supervisor": "STOPPED", "batch": "RUNNING"})

    status = project.status()

    assert (status[SPEND].state, status[ORDERS].state) == ("PAUSED", "SCHEDULED")
    assert status[SPEND].paused == "the supervisor sensor is switched off in Dagster: switch it on there"


def test_a_promise_is_judged_by_what_refreshes_took(project: Project) -> None:
    project.record(ORDERS, before(5), 2, committed=True, seconds=5.0)
    project.record(SPEND, before(5), 2, committed=True, seconds=900.0)

    spend = project.status()[SPEND]

    assert spend.feasible is False
    assert spend.feasible_reason == (
        "the refreshes from orders on take 905.0 s (orders 5.0 s, spend 900.0 s), longer than its freshness, 10 minutes"
    )
    assert project.status(seconds={ORDERS: 1.0, SPEND: 2.0})[SPEND].feasible


def test_the_json_has_the_documented_keys(project: Project) -> None:
    fresh(project)
    for status in project.status().values():
        value = json.loads(json.dumps(status.as_json()))
        assert list(value) == [
            "table", "kind", "mode", "mode_reason", "freshness_seconds", "data_timestamp", "lag_seconds", "state",
            "version", "rows", "quarantined", "last_refresh", "error", "problems", "declared_freshness_seconds",
            "override", "suspended", "blocked_by", "paused", "feasible", "feasible_reason", "event_timestamp",
            "event_lag_seconds", "watermark", "watermark_held_by", "watermark_moved_at",
            "late_rows", "ahead_rows", "late_by_seconds", "open_windows", "files", "size_bytes",
            "retained_bytes", "stands_still",
        ]  # fmt: skip
        assert value["last_refresh"] is None or list(value["last_refresh"]) == ["strategy", "reason", "seconds", "at"]


def test_each_version_is_counted_once(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(project)
    counted: list[Path] = []
    count = delta_log.count_rows

    def counting(path: Path, version: int) -> int | None:
        counted.append(path)
        return count(path, version)

    monkeypatch.setattr(delta_log, "count_rows", counting)
    rows = RowCounts()

    project.status(count_rows=rows)
    project.status(count_rows=rows)

    assert sorted(counted) == sorted({project.path(name) for name in (ORDERS, PRICES, SPEND)})


def test_a_status_without_counts_opens_no_log_and_reports_all_else(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh(project)
    counted = project.status()

    def opened(*_: object, **__: object) -> None:
        pytest.fail("a log was opened")

    monkeypatch.setattr("deltalake.DeltaTable", opened)
    found = project.status(counted=False)

    assert {status.rows for status in counted.values()} != {None}
    assert found == {
        name: replace(status, rows=None, quarantined=found[name].quarantined, files=None, size_bytes=None)
        for name, status in counted.items()
    }


def test_a_damaged_log_is_reported_on_its_line_and_hides_no_other(project: Project) -> None:
    fresh(project)
    (log,) = (project.path(ORDERS) / "_delta_log").glob("*0.json")
    log.write_text("not a commit")
    status = project.status()

    assert status[ORDERS].error == {
        "code": "SOURCE",
        "message": "the log of the table cannot be read: it is damaged.",
        "where": str(log),
        "retry_helps": True,
    }
    assert status[ORDERS].unreadable
    assert (status[SPEND].error, status[SPEND].unreadable) == (None, False)


def test_the_id_of_a_table_is_read_from_its_newest_commits_where_they_name_it(project: Project) -> None:
    path = project.path(ORDERS)
    project.commit(ORDERS, 1, 3)
    identity = delta_log.table_id(path)
    found = [delta_log.read_newest(path)]
    project.commit(ORDERS, 2, 1)
    found.append(delta_log.read_newest(path))
    said = CommitProperties(app_transactions=[Transaction(application(identity), 3)])
    write_deltalake(path, pa.table({"id": ["a"]}), mode="append", commit_properties=said)
    found.append(delta_log.read_newest(path))

    # The metadata names the id, then nothing does, then a transaction.
    assert [newest and newest.table_id for newest in found] == [identity, None, identity]


def test_a_table_that_somebody_replaced_has_its_new_id(project: Project) -> None:
    path = project.path(ORDERS)
    project.commit(ORDERS, 1, 3)
    before = delta_log.table_id(path)
    said = CommitProperties(app_transactions=[Transaction(application(before), 1)])
    write_deltalake(path, pa.table({"id": ["a"]}), mode="append", commit_properties=said)
    log = path / "_delta_log"
    metadata = next(line for line in (log / f"{0:020d}.json").read_text().splitlines() if '"metaData"' in line)
    (log / f"{2:020d}.json").write_text(metadata.replace(before, "another") + "\n")

    newest = delta_log.read_newest(path)

    assert newest is not None
    assert newest.table_id == "another"


def test_a_table_that_only_has_some_partitions_reports_no_lag(project):
    fresh(project)
    positions = {ORDERS: project.position(ORDERS, seq=1), PRICES: project.position(PRICES)}
    project.commit(SPEND, 9, 1, positions=positions, spans=(PartitionSpan(before(60), before(30), "f"),))
    assert project.status()[SPEND].lag_seconds is None

    project.commit(SPEND, 10, 1, stamp=before(4), positions=positions, spans=(PartitionSpan(before(60), NOW, "f"),))
    assert project.status()[SPEND].lag_seconds is not None


def test_the_status_of_tables_loads_no_library_for_their_rows():
    code = (
        "import sys; import freshline.report.status; "
        "print(sorted({'pandas', 'pyarrow.dataset', 'pyspark', 'dagster'} & set(sys.modules)))"
    )

    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
