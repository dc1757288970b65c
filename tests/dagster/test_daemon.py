"""Dagster's real daemon with the sensors of a project, no engine and no JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.scheduler.instigation import InstigatorStatus
from deltalake import CommitProperties, write_deltalake

from freshline.cli.supervisor import dagster_yaml
from freshline.commit.control_store import ControlStore
from freshline.dagster.scheduler import SUPERVISOR, read_scheduler
from freshline.declare.project import read_settings
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from freshline.values.settings import Settings

WORKSPACE = """\
load_from:
  - python_module: {module_name: assets.definitions, working_directory: ., location_name: freshline}
"""
DEFINITIONS = """\
from pathlib import Path

from freshline.dagster import FreshlineProject, build_definitions

defs = build_definitions(FreshlineProject(Path(__file__).resolve().parent.parent))
"""
SECONDS = 90.0


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Settings]:
    """A project with one log table that was refreshed just now, and the daemon of its own Dagster."""
    (tmp_path / "assets").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "workspace.yaml").write_text(WORKSPACE)
    (tmp_path / "assets" / "definitions.py").write_text(DEFINITIONS)
    (tmp_path / "assets" / "live.sql").write_text(
        "CREATE MATERIALIZED TABLE live FRESHNESS = INTERVAL '5' MINUTE AS SELECT id FROM event"
    )
    (tmp_path / "assets" / "event.sql").write_text(
        "CREATE SOURCE event (id STRING) FRESHNESS = INTERVAL '5' MINUTE "
        "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')"
    )
    settings = read_settings(tmp_path, {})
    now = datetime.now(UTC)
    receipt = Receipt(
        table=TableName.parse("event"), fingerprint="f", epoch=1, seq=1, mode="incremental", strategy="append",
        reason="new files", data_timestamp=now, positions={}, rows_in=1, rows_out=1, attempt="a", seconds=0.1,
    )  # fmt: skip
    properties = CommitProperties(custom_metadata={"userMetadata": receipt.to_json()})
    write_deltalake(settings.warehouse / "event", pa.table({"id": ["a"]}), commit_properties=properties)
    home = settings.state / "dagster"
    home.mkdir(parents=True)
    (home / "dagster.yaml").write_text(dagster_yaml(settings))
    with (tmp_path / "daemon.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "freshline.dagster.daemon", "--project", str(tmp_path)],
            cwd=tmp_path, env={**os.environ, "DAGSTER_HOME": str(home)}, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
    try:
        yield settings
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)


def wait_until(met: Callable[[], bool], settings: Settings) -> None:
    deadline = time.monotonic() + SECONDS
    while not met():
        assert time.monotonic() < deadline, (settings.root / "daemon.log").read_text()
        time.sleep(0.3)


@pytest.mark.slow
def test_the_sensors_tick_from_the_start_and_a_switch_is_noticed(shop):
    control = ControlStore.open(shop.control_store)
    home = shop.state / "dagster"
    wait_until(lambda: "scheduler" in control.heartbeats.read(), shop)
    with DagsterInstance.from_config(str(home)) as instance:
        wait_until(lambda: instance.get_latest_materialization_event(AssetKey("event")) is not None, shop)
        event = instance.get_latest_materialization_event(AssetKey("event"))
        assert event is not None
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["version"].value == 0
        assert event.run_id == ""
        assert instance.get_runs() == []
        found = read_scheduler(shop)
        assert found is not None
        assert found.daemon_heartbeat is not None
        assert set(found.sensors.values()) == {"RUNNING"}

        def stopped() -> bool:
            # Dagster writes the whole state at the end of a tick, and so undoes a switch that fell into the tick.
            states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
            own = next(state for state in states if state.instigator_name == SUPERVISOR)
            if own.status is not InstigatorStatus.STOPPED:
                instance.update_instigator_state(own.with_status(InstigatorStatus.STOPPED))
            return bool(control.heartbeats.read()["scheduler"].detail["supervisor"] == "STOPPED")

        wait_until(stopped, shop)
        switched = read_scheduler(shop)
        assert switched is not None
        assert switched.sensors[SUPERVISOR] == "STOPPED"
        wait_until(lambda: "PAUSED" in json.dumps(paused(instance)), shop)
    assert "Warning:" not in (shop.root / "daemon.log").read_text()
    control.close()


def paused(instance: DagsterInstance) -> list[str]:
    found = instance.fetch_observations(AssetKey("live"), limit=5).records
    return [str(record.asset_observation.description) for record in found if record.asset_observation]


def code_servers(root: Path) -> set[tuple[int, float]]:
    """The code servers of the daemon, by number and moment of their start."""
    found = set()
    for process in psutil.process_iter(["cmdline", "create_time", "cwd"]):
        if "grpc" in (process.info["cmdline"] or []) and process.info["cwd"] == str(root):
            found.add((process.pid, process.info["create_time"]))
    return found


@pytest.mark.long
def test_code_servers_are_replaced_when_something_has_changed_and_not_each_minute(shop):
    control = ControlStore.open(shop.control_store)
    wait_until(lambda: "scheduler" in control.heartbeats.read(), shop)
    before = code_servers(shop.root)
    assert len(before) == 1

    # Dagster's own loop replaces them after sixty.
    time.sleep(75)
    assert code_servers(shop.root) == before
    (shop.root / "assets" / "later.sql").write_text(
        "CREATE MATERIALIZED TABLE later FRESHNESS = INTERVAL '5' MINUTE AS SELECT id FROM event"
    )

    wait_until(lambda: bool(code_servers(shop.root) - before), shop)
    # The one before ends when nobody asks it any more.
    wait_until(lambda: not code_servers(shop.root) & before, shop)


@pytest.mark.long
def test_a_code_server_of_the_daemon_that_was_killed_comes_back(shop):
    control = ControlStore.open(shop.control_store)
    wait_until(lambda: "scheduler" in control.heartbeats.read(), shop)
    before = code_servers(shop.root)
    assert before
    for number, _ in before:
        psutil.Process(number).kill()

    wait_until(lambda: bool(code_servers(shop.root) - before), shop)
    back_at = datetime.now(UTC)
    wait_until(lambda: control.heartbeats.read()["scheduler"].at > back_at, shop)
