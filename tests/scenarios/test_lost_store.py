"""The control store is deleted under a running engine, and again while nothing runs: no row is lost or repeated."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any

import pytest

import freshline
from freshline.commit.control_store import KEPT_REFRESHES, ControlStore
from freshline.commit.delta_log import newest_epoch
from freshline.commit.refresh_log import read_newest_records
from freshline.commit.warehouse import Warehouse
from freshline.values.names import TableName
from freshline.values.result import RefreshResult
from tests.scenarios.shop import repeated, wait_until
from tests.scenarios.test_restarts import RestartedProject

# Kept by the engine alone: one that commits wake, one that a timer does.
KEPT = ("event", "live", "timed")


def lose(project: RestartedProject) -> None:
    """Delete the store's file with what SQLite keeps beside it."""
    files = list(project.settings.state.glob("control.db*"))
    assert files
    for file in files:
        file.unlink()


def goes_on(project: RestartedProject) -> None:
    """See every table that the engine keeps have what arrived since now."""
    since = datetime.now(UTC)

    def has_what_arrived() -> bool:
        found = project.statuses()
        stamps = [found[name].data_timestamp for name in KEPT]
        return all(stamp is not None and stamp > since for stamp in stamps)

    wait_until(has_what_arrived, f"{KEPT} have what arrived since {since}")


def committed(project: RestartedProject) -> list[tuple[TableName, int]]:
    """The commits that the store knows of, the newest first."""
    return [(record.table, record.version or 0) for record in records(project) if record.committed]


def missing(
    before: Collection[tuple[TableName, int]], after: Collection[tuple[TableName, int]]
) -> set[tuple[TableName, int]]:
    """The commits that were known and are not, but for those older than all that are kept of a table."""
    oldest = {name: min(version for other, version in after if other == name) for name, _ in after}
    return {(name, version) for name, version in before if version >= oldest.get(name, 0)} - set(after)


def records(project: RestartedProject) -> list[RefreshResult]:
    store = ControlStore.open(project.settings.control_store)
    try:
        return store.refreshes(limit=10_000, checks=False)
    finally:
        store.close()


def logged(project: RestartedProject) -> set[str]:
    """The states in the refresh log, which stands beside the tables."""
    return {record.state for record in read_newest_records(project.settings.warehouse, KEPT_REFRESHES)}


@pytest.mark.spark
@pytest.mark.long
def test_a_store_that_is_deleted_while_the_engine_runs_is_rebuilt_and_loses_no_row(tmp_path):
    project = RestartedProject(tmp_path / "shop")
    warehouse = Warehouse(project.settings.warehouse)
    project.land()
    project.run("engine", "start")
    try:
        with repeated(project.land, 0.5):
            goes_on(project)
            freshline.suspend("held", because="wrong prices", by="bob", project=project.settings)
            wait_until(lambda: project.statuses()["held"].state == "SUSPENDED", "held is not being refreshed")
            # A decision of the half minute before a loss is forgotten with it.
            wait_until(lambda: "SUSPENDED" in logged(project), "the refresh log tells of the suspension")
            before = committed(project)
            engine = project.engine()

            lose(project)

            goes_on(project)
            assert project.engine() == engine, "the engine that lost its store was replaced"
            told = project.run("doctor", "--rebuild")
            # A decision is in no table: it is reported, for a person to state again.
            assert "held" in told
            assert "wrong prices" in told
            after = committed(project)
            assert missing(before, after) == set()
            assert len(after) == len(set(after)), "a commit is told twice"
            wait_until(lambda: project.statuses()["held"].state == "SUCCEEDED", "held is refreshed again")
            freshline.suspend("held", because="wrong prices", by="bob", project=project.settings)
            wait_until(lambda: project.statuses()["held"].state == "SUSPENDED", "what was stated again is in force")
            goes_on(project)

            # Killed with its store: nobody is left who could remember anything.
            engine = project.engine()
            assert engine is not None
            os.kill(engine.pid, signal.SIGKILL)
            wait_until(lambda: not engine.alive, "the engine is dead")
            lose(project)
            reached = max(map(newest_epoch, warehouse.tables()))
            project.run("doctor", "--fix", "--rebuild")
            assert missing(after, committed(project)) == set()
            project.run("engine", "start")
            goes_on(project)
            assert newest_epoch(warehouse.path(TableName.parse("live"))) > reached
        project.run("refresh")
        project.run("verify")
    finally:
        project.run("engine", "stop")
    project.require_each_event_once()
    assert project.processes() == []


@pytest.mark.spark
@pytest.mark.long
def test_status_names_what_blocks_a_table_while_the_engine_runs(tmp_path):
    project = RestartedProject(tmp_path / "shop")
    (project.root / "assets" / "below.sql").write_text(
        "CREATE MATERIALIZED TABLE below FRESHNESS = INTERVAL '5' SECOND AS SELECT k FROM live"
    )
    project.run("engine", "start")

    def told(name: str) -> dict[str, Any]:
        """The status of a table as the command line prints it."""
        found: dict[str, dict[str, Any]] = {each["table"]: each for each in json.loads(project.run("status", "--json"))}
        return found[name]

    def stands(name: str) -> tuple[str, str | None]:
        """The state, and the table that blocks this one."""
        found = told(name)
        return found["state"], found["blocked_by"]

    try:
        with repeated(project.land, 0.5):
            wait_until(lambda: stands("below") == ("SUCCEEDED", None), "below has a first version")
            project.run("suspend", "live", "--because", "wrong prices")
            wait_until(lambda: stands("below") == ("BLOCKED", "live"), "below is blocked")
            wait_until(lambda: stands("live") == ("SUSPENDED", None), "its last refresh has ended")
            # A table that has another way to its source goes on.
            since = datetime.now(UTC)
            wait_until(lambda: (project.statuses()["timed"].data_timestamp or since) > since, "timed goes on")
            assert stands("below") == ("BLOCKED", "live")
            held = told("below")["version"]

            project.run("resume", "live")

            wait_until(lambda: stands("below") == ("SUCCEEDED", None), "below goes on")
            wait_until(lambda: told("below")["version"] != held, "below has what arrived meanwhile")
    finally:
        project.run("engine", "stop")
