"""Everything that `freshline up` starts is restarted in any order: what was decided stays, and refreshes go on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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

SOURCE = (
    "CREATE SOURCE event (event_id STRING, k STRING) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in', 'settle' = '0 seconds')"
)
TABLE = "CREATE MATERIALIZED TABLE {name} (PRIMARY KEY (k)) FRESHNESS = INTERVAL '{seconds}' SECOND AS {query}"
COUNT = "SELECT k, count(*) AS n FROM event GROUP BY k"
# By the thresholds below, one table of each mode; `overridden` is declared in batch mode, and `held` continuous.
FRESHNESS = {"live": 5, "timed": 20, "nightly": 40, "overridden": 40, "held": 5}
THRESHOLDS = '[tool.freshline]\ncontinuous-below = "10 seconds"\nincremental-below = "30 seconds"\ndagster-port = 0\n'
KEPT = {"live": "continuous", "timed": "incremental", "nightly": "batch", "overridden": "incremental"}
GOES_ON_SECONDS = 240.0


class Project:
    """A project on disk, its processes, and what is known of it without them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landed = 0
        self.run("init", str(root), at=None)
        for file in (root / "assets").glob("*.sql"):
            file.unlink()
        (root / "pyproject.toml").write_text(THRESHOLDS)
        (root / "assets" / "event.sql").write_text(SOURCE)
        for name, seconds in FRESHNESS.items():
            text = TABLE.format(name=name, seconds=seconds, query=COUNT)
            (root / "assets" / f"{name}.sql").write_text(text)
        (root / "in").mkdir()
        self.settings = read_settings(root, {})
        self.graph = read_project(self.settings)

    def run(self, *arguments: str, at: str | None = "--project") -> str:
        command = [sys.executable, "-m", "freshline.cli.main", *arguments]
        command += [] if at is None else [at, str(self.root)]
        told = subprocess.run(command, capture_output=True, text=True, timeout=600)
        assert told.returncode == 0, f"{arguments}: {told.stdout[-2000:]} {told.stderr[-2000:]}"
        return told.stdout

    @contextmanager
    def arriving(self) -> Iterator[None]:
        done = threading.Event()

        def arrive() -> None:
            while not done.wait(0.5):
                self.land()

        thread = threading.Thread(target=arrive)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def land(self) -> None:
        events = [{"event_id": f"e{n:07d}", "k": f"k{n % 7}"} for n in range(self.landed, self.landed + 10)]
        hidden = self.root / "in" / f"_{self.landed}"
        hidden.write_text("".join(json.dumps(event) + "\n" for event in events))
        hidden.rename(self.root / "in" / f"part-{self.landed:07d}.json")
        self.landed += len(events)

    def statuses(self) -> dict[str, TableStatus]:
        store = ControlStore.open(self.settings.control_store)
        try:
            found = read_status(self.graph, store, Warehouse(self.settings.warehouse), datetime.now(UTC))
        finally:
            store.close()
        return {str(status.table): status for status in found}

    def child(self, name: str) -> ProcessId:
        record = UpRecord.read(record_file(self.settings))
        assert record is not None
        return record.supervisor if name == "up" else dict(record.children)[name]

    def engine(self) -> ProcessId | None:
        state = read_state(self.settings.state)
        return None if state is None else state.process

    def processes(self) -> list[psutil.Process]:
        """Everything that runs for this project, whoever its parent is."""
        return [
            process
            for process in psutil.process_iter(["cmdline"])
            if str(self.root) in " ".join(process.info["cmdline"] or ()) and process.pid != os.getpid()
        ]


def wait_for(condition: Callable[[], bool], what: str, seconds: float = GOES_ON_SECONDS) -> float:
    """Wait until it is so; returns the seconds that it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, f"after {seconds:.0f} s not yet: {what}"
        time.sleep(0.5)
    return time.monotonic() - begin


def end(project: Project, name: str, number: signal.Signals) -> None:
    """End one process of `up`, and see it back, which nobody here does."""
    before = project.engine() if name == "engine" else project.child(name)
    assert before is not None
    os.kill(before.pid, number)

    def is_back() -> bool:
        now = project.engine() if name == "engine" else project.child(name)
        return now is not None and now != before and now.alive

    wait_for(is_back, f"{name} is back after {number.name}")


def kill_code_servers(project: Project) -> None:
    """Kill the processes that have the declarations for Dagster; the daemon starts others when it notices."""
    record = UpRecord.read(record_file(project.settings))
    assert record is not None
    servers = [process for process in marked(f"{record.mark}/dagster") if "grpc" in process.cmdline()]
    assert servers
    for process in servers:
        process.kill()
    psutil.wait_procs(servers, timeout=30)


def restart_engine(project: Project) -> None:
    project.run("engine", "stop")
    project.run("engine", "start")


def kill_up(project: Project) -> None:
    """Kill `up`: the rest goes on without it, and the next `up` takes the place of all of it."""
    up = project.child("up")
    os.kill(up.pid, signal.SIGKILL)
    wait_for(lambda: not up.alive, "up is dead")
    goes_on(project)
    project.run("up", "--detach")


def restart_up(project: Project) -> None:
    project.run("down")
    project.run("up", "--detach")


RESTARTS: dict[str, Callable[[Project], None]] = {
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


def goes_on(project: Project) -> dict[str, float]:
    """See every table that is kept have what arrived since now; returns the seconds that each took."""
    since = datetime.now(UTC)
    taken = {}

    def has_what_arrived(name: str) -> bool:
        stamp = project.statuses()[name].data_timestamp
        return stamp is not None and stamp > since

    for name in KEPT:
        wait_for(partial(has_what_arrived, name), f"{name} has what arrived since {since}")
        taken[name] = (datetime.now(UTC) - since).total_seconds()
    return taken


@pytest.mark.spark
@pytest.mark.long
def test_restarts_in_any_order_leave_decisions_and_refreshes_as_they_were(tmp_path):
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    project = Project(tmp_path / "shop")
    restarts = list(RESTARTS.items())
    random.Random(seed).shuffle(restarts)
    project.land()
    project.run("up", "--detach")
    try:
        with project.arriving():
            goes_on(project)
            freshline.set_freshness("overridden", "20 seconds", for_="1 day", by="operator", project=project.settings)
            freshline.suspend("held", because="a look at it", by="bob", project=project.settings)
            decided = {name: (status.override, status.suspended) for name, status in project.statuses().items()}
            wait_for(lambda: project.statuses()["held"].state == "SUSPENDED", "held is not being refreshed")
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
    log = deltalake.DeltaTable(str(project.settings.warehouse / "event")).to_pyarrow_table(columns=["event_id"])
    assert sorted(log["event_id"].to_pylist()) == [f"e{n:07d}" for n in range(project.landed)]
    for name in KEPT:
        rows = deltalake.DeltaTable(str(project.settings.warehouse / name)).to_pyarrow_table(columns=["k", "n"])
        counts = {f"k{k}": len(range(k, project.landed, 7)) for k in range(7)}
        assert dict(zip(rows["k"].to_pylist(), rows["n"].to_pylist(), strict=True)) == counts
    psutil.wait_procs(project.processes(), timeout=30)
    assert project.processes() == []
