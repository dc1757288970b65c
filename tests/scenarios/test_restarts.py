"""Everything that `freshline up` starts is restarted in any order: what was decided stays, and refreshes go on."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import deltalake
import psutil
import pytest

import freshline
from freshline.cli.processes import marked
from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import newest_version
from freshline.commit.warehouse import Warehouse
from freshline.declare.project import read_project, read_settings
from freshline.engine.process import ProcessId
from freshline.engine.state_file import read_state
from freshline.engine.up_record import UpRecord, record_file
from freshline.report.status import TableStatus, read_status
from tests.scenarios.shop import FILES, Project, land_file, repeated, wait_until

SOURCE = f"CREATE SOURCE event (event_id STRING, k STRING) {FILES}"
TABLE = "CREATE MATERIALIZED TABLE {name} (PRIMARY KEY (k)) FRESHNESS = INTERVAL '{seconds}' SECOND AS {query}"
COUNT = "SELECT k, count(*) AS n FROM event GROUP BY k"
# By the thresholds below, one table of each mode; `overridden` is declared in batch mode, and `held` continuous.
FRESHNESS = {"live": 5, "timed": 20, "nightly": 40, "overridden": 40, "held": 5}
THRESHOLDS = 'continuous-below = "10 seconds"\nincremental-below = "30 seconds"\ndagster-port = 0\n'
KEPT = {"live": "continuous", "timed": "incremental", "nightly": "batch", "overridden": "incremental"}


class RestartedProject(Project):
    """A project whose files arrive, and what is known of it without its processes."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.landed = 0
        tables = {name: TABLE.format(name=name, seconds=seconds, query=COUNT) for name, seconds in FRESHNESS.items()}
        self.begin(THRESHOLDS, {"event": SOURCE, **tables})
        self.settings = read_settings(root, {})
        self.graph = read_project(self.settings)

    def land(self) -> None:
        events = [{"event_id": f"e{n:07d}", "k": f"k{n % 7}"} for n in range(self.landed, self.landed + 10)]
        land_file(self.root / "in", f"part-{self.landed:07d}", events)
        self.landed += len(events)

    def statuses(self) -> dict[str, TableStatus]:
        store = ControlStore.open(self.settings.control_store)
        try:
            found = read_status(self.graph, store, Warehouse(self.settings.warehouse), datetime.now(UTC))
        finally:
            store.close()
        return {str(status.table): status for status in found}

    def require_each_event_once(self) -> None:
        """The events that landed are in the log, and counted by the tables that are kept."""
        log, *tables = (
            deltalake.DeltaTable(str(self.settings.warehouse / name)).to_pyarrow_table() for name in ("event", *KEPT)
        )
        assert sorted(log["event_id"].to_pylist()) == [f"e{n:07d}" for n in range(self.landed)]
        counts = {f"k{k}": len(range(k, self.landed, 7)) for k in range(7)}
        for table in tables:
            assert dict(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True)) == counts

    def child(self, name: str) -> ProcessId:
        record = UpRecord.read(record_file(self.settings))
        assert record is not None
        return record.supervisor if name == "up" else dict(record.children)[name]

    def engine(self) -> ProcessId | None:
        state = read_state(self.settings.state)
        return None if state is None else state.process


def end(project: RestartedProject, name: str, number: signal.Signals) -> None:
    """End one process of `up`, and see it back, which nobody here does."""
    before = project.engine() if name == "engine" else project.child(name)
    assert before is not None
    os.kill(before.pid, number)

    def is_back() -> bool:
        now = project.engine() if name == "engine" else project.child(name)
        return now is not None and now != before and now.alive

    wait_until(is_back, f"{name} is back after {number.name}")


def kill_code_servers(project: RestartedProject) -> None:
    """Kill the processes that have the declarations for Dagster; the daemon starts others when it notices."""
    record = UpRecord.read(record_file(project.settings))
    assert record is not None
    servers = [process for process in marked(f"{record.mark}/dagster") if "grpc" in process.cmdline()]
    assert servers
    for process in servers:
        process.kill()
    psutil.wait_procs(servers, timeout=30)


def restart_engine(project: RestartedProject) -> None:
    project.run("engine", "stop")
    project.run("engine", "start")


def kill_up(project: RestartedProject) -> None:
    """Kill `up`: the rest goes on without it, and the next `up` takes the place of all of it."""
    up = project.child("up")
    os.kill(up.pid, signal.SIGKILL)
    wait_until(lambda: not up.alive, "up is dead")
    goes_on(project)
    project.run("up", "--detach")


def restart_up(project: RestartedProject) -> None:
    project.run("down")
    project.run("up", "--detach")


RESTARTS: dict[str, Callable[[RestartedProject], None]] = {
    "the engine is killed": lambda project: end(project, "engine", signal.SIGKILL),
    "the engine is restarted": restart_engine,
    "the daemon is killed": lambda project: end(project, "dagster-daemon", signal.SIGKILL),
    "the daemon is ended": lambda project: end(project, "dagster-daemon", signal.SIGTERM),
    "the webserver is killed": lambda project: end(project, "dagster-webserver", signal.SIGKILL),
    "the webserver is ended": lambda project: end(project, "dagster-webserver", signal.SIGTERM),
    "the code servers are killed": kill_code_servers,
    "the watch is killed": lambda project: end(project, "watch", signal.SIGKILL),
    "the watch is ended": lambda project: end(project, "watch", signal.SIGTERM),
    "up is killed": kill_up,
    "up is restarted": restart_up,
}


def goes_on(project: RestartedProject) -> dict[str, float]:
    """See every table that is kept have what arrived since now; returns the seconds that each took."""
    since = datetime.now(UTC)
    taken = {}

    def has_what_arrived(name: str) -> bool:
        stamp = project.statuses()[name].data_timestamp
        return stamp is not None and stamp > since

    for name in KEPT:
        wait_until(partial(has_what_arrived, name), f"{name} has what arrived since {since}")
        taken[name] = (datetime.now(UTC) - since).total_seconds()
    return taken


@pytest.mark.spark
@pytest.mark.long
def test_restarts_in_any_order_leave_decisions_and_refreshes_as_they_were(tmp_path):
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    project = RestartedProject(tmp_path / "shop")
    restarts = list(RESTARTS.items())
    random.Random(seed).shuffle(restarts)
    project.land()
    project.run("up", "--detach")
    try:
        with repeated(project.land, 0.5):
            goes_on(project)
            freshline.set_freshness("overridden", "20 seconds", for_="1 day", by="operator", project=project.settings)
            freshline.suspend("held", because="a look at it", by="bob", project=project.settings)
            decided = {name: (status.override, status.suspended) for name, status in project.statuses().items()}
            wait_until(lambda: project.statuses()["held"].state == "SUSPENDED", "held is not being refreshed")
            held = newest_version(project.settings.warehouse / "held")
            for what, restart in restarts:
                begin = time.monotonic()
                restart(project)
                taken = goes_on(project)
                print(f"{what}: back after {time.monotonic() - begin:.0f} s with", taken, flush=True)
                found = project.statuses()
                assert {name: (each.override, each.suspended) for name, each in found.items()} == decided, what
                assert {name: found[name].mode for name in KEPT} == KEPT
                assert found["held"].state == "SUSPENDED"
                assert newest_version(project.settings.warehouse / "held") == held
        store = ControlStore.open(project.settings.control_store)
        try:
            batch = [record for record in store.refreshes(limit=1000) if str(record.table) == "nightly"]
        finally:
            store.close()
        assert len(batch) > len(restarts)
        assert project.statuses()["overridden"].override is not None
        project.run("refresh")
    finally:
        project.run("down")
    project.require_each_event_once()
    project.require_no_process()
