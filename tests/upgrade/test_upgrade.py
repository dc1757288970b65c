"""A warehouse that an older freshline wrote is opened, read, refreshed, verified and restored.

Its control store is refused, and a new one is filled as the error says. `warehouse.tar.xz` is the reference deployment
after `make demo ARGS=--once`, with a savepoint, as commit ecd55fb wrote it; `make_warehouse.sh` made it.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable

from freshline.commit.control_rows import FORMAT as STORE_FORMAT
from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import read_newest
from freshline.commit.rebuild import rebuild
from freshline.commit.refresh_log import RefreshLog
from freshline.commit.warehouse import Warehouse
from freshline.compute.cancellation import Cancellation
from freshline.declare.project_settings import read_settings
from freshline.errors import FormatError
from freshline.plan.project import open_project
from freshline.plan.request import RefreshRequest
from freshline.refresh.runtime import Runtime, open_runtime
from freshline.report.status import read_status
from freshline.run import refresh_table
from freshline.run.savepoint import restore_savepoint
from freshline.run.verify import verify_table
from freshline.values.names import TableName
from freshline.values.receipt import FORMAT
from freshline.values.result import State
from freshline.values.settings import Settings

# Just after the archive's last refresh: on another day the table of daily partitions has one more to fill.
NOW = datetime(2026, 11, 23, 2, tzinfo=UTC)
ARCHIVE = Path(__file__).with_name("warehouse.tar.xz")
# The rows that the archive's tables have.
ROWS = {
    "campaign": 204, "customer": 1010, "first_touch": 1810, "customer_first_touch": 1810, "enriched_orders": 3000,
    "campaign_revenue": 137,
}  # fmt: skip
TOUCH = {
    "event_id": "T-after-the-upgrade", "customer_id": "C000001", "event_type": "view", "campaign_id": "CMP-01",
    "event_ts": "2024-01-01T00:00:00Z",
}  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The project of the archive, in a folder of its own."""
    root = tmp_path / "project"
    root.mkdir()
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(root, filter="data")
    for file, modified_ns in json.loads((root / ".freshline/demo/times.json").read_text()).items():
        os.utime(root / file, ns=(modified_ns, modified_ns))
    (root / "pyproject.toml").write_text("[tool.freshline]\n[tool.freshline.environments.demo]\n", encoding="utf-8")
    return root


def rebuild_store(settings: Settings) -> None:
    """Do what the error about the older control store says."""
    with pytest.raises(FormatError, match=r"has format 3, .* Move it away, and run freshline doctor --rebuild"):
        ControlStore.open(settings.control_store)
    (settings.state / "control.db").rename(settings.state / "control.db.before")
    assert rebuild(settings).problems == ()


@pytest.fixture
def runtime(project: Path, spark) -> Iterator[Runtime]:
    settings = read_settings(project, {"FRESHLINE_ENV": "demo"})
    rebuild_store(settings)
    control = ControlStore.open(settings.control_store)
    yield open_runtime(settings, open_project(settings), spark, control, clock=lambda: NOW)
    control.close()


def refresh_all(runtime: Runtime) -> dict[str, str | None]:
    """The strategy of each table's refresh, which must succeed."""
    strategies = {}
    for name in runtime.graph.order:
        result = refresh_table(
            runtime, name, RefreshRequest(), cancellation=Cancellation(), progress=lambda message: None
        )
        assert result.state == State.SUCCEEDED, (name, result.error)
        assert not result.problems, (name, result.problems)
        strategies[str(name)] = result.strategy
    return strategies


def differing(runtime: Runtime) -> list[str]:
    """The tables that are not equal to their queries at the positions in their receipts."""
    return [
        str(table.name)
        for table in runtime.graph.tables
        if not verify_table(runtime, table.name, cancellation=Cancellation(), progress=lambda message: None).equal
    ]


def rows(runtime: Runtime, name: str) -> int:
    return int(DeltaTable(str(runtime.warehouse.path(TableName.parse(name)))).to_pyarrow_dataset().count_rows())


@pytest.mark.seconds
def test_the_status_of_an_older_warehouse_is_read_before_anything_is_written(project):
    settings = read_settings(project, {"FRESHLINE_ENV": "demo"})
    rebuild_store(settings)
    graph = open_project(settings)
    control = ControlStore.open(settings.control_store)
    now = datetime.now(UTC)

    statuses = {str(status.table): status for status in read_status(graph, control, Warehouse(settings.warehouse), now)}

    assert {name: statuses[name].rows for name in ROWS} == ROWS
    assert {status.state for status in statuses.values()} == {"SUCCEEDED"}
    assert {status.error for status in statuses.values()} == {None}
    control.close()


@pytest.mark.slow
def test_an_older_warehouse_goes_on_incrementally_and_can_be_restored(runtime, project):
    first = TableName.parse("first_touch")
    older = read_newest(runtime.warehouse.path(first))
    assert older is not None
    assert older.receipt is not None
    assert {name: rows(runtime, name) for name in ROWS} == ROWS

    # Nothing has changed but freshline: nothing is computed again.
    assert set(refresh_all(runtime).values()) == {"noop"}

    landing = project / ".freshline/demo/landing/touch_event"
    (landing / "after-the-upgrade.jsonl").write_text(json.dumps(TOUCH) + "\n", encoding="utf-8")
    strategies = refresh_all(runtime)
    assert (strategies["touch_event"], strategies["first_touch"]) == ("append", "merge")
    assert differing(runtime) == []
    newest = read_newest(runtime.warehouse.path(first))
    assert newest is not None
    assert newest.receipt is not None
    assert newest.receipt.seq == older.receipt.seq + 1

    # The history of refreshes goes on in the same table, whose older rows lack the newer columns.
    log = RefreshLog(runtime.control, runtime.warehouse.root)
    before = DeltaTable(str(log.path)).to_pyarrow_dataset().count_rows()
    assert log.flush() > 0
    assert DeltaTable(str(log.path)).to_pyarrow_dataset().count_rows() > before

    restore_savepoint(runtime, "before_the_upgrade")
    assert {name: rows(runtime, name) for name in ROWS} == ROWS
    assert differing(runtime) == []
    (landing / "after-the-upgrade.jsonl").unlink()
    assert set(refresh_all(runtime).values()) <= {"noop", "append", "merge", "keys", "full"}
    assert differing(runtime) == []


def test_the_archive_is_of_older_formats(project):
    """Once it was made anew by a newer freshline, the stories above would show nothing."""
    log = project / ".freshline/demo/warehouse/first_touch/_delta_log"
    newest = max(log.glob("*.json")).read_text(encoding="utf-8")

    assert f'\\"freshline\\":{FORMAT}' not in newest
    assert STORE_FORMAT > 3
    assert shutil.which("tar") is None or ARCHIVE.stat().st_size < 2 << 20
