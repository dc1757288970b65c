"""Runs of Dagster whose processes are killed: the run ends as failed, nothing of it commits, one retry succeeds.

Twenty times a table is materialized through the webserver, and one process of those that have a part in it is killed at
some moment: the run's own, a code server, the daemon, or the engine. The table computes for some seconds, so that most
kills hit it at work.
"""

from __future__ import annotations

import json
import random
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from freshline.cli.processes import marked
from freshline.commit.delta_log import newest_version
from freshline.declare.project import read_settings
from freshline.engine.state_file import read_state
from freshline.engine.up_record import UpRecord, record_file
from tests.scenarios.shop import FILES, Project, land_file, wait_until

SOURCE = f"CREATE SOURCE event (event_id STRING, n BIGINT) {FILES}"
# Every row takes about a millisecond for each of its n, and all of them are computed each time.
SLOW = (
    "CREATE MATERIALIZED TABLE slow FRESHNESS = INTERVAL '10' DAY AS "
    "SELECT event_id, n, aggregate(sequence(1, n * 300), 0L * unix_seconds(now()), (a, x) -> (a + x) % 1000003) "
    "AS waited FROM event"
)
KILLS = 20
ENDS_SECONDS = 90.0
# The seconds that a run may take that no kill hits, the start of an engine with it.
GOES_ON_SECONDS = 240.0
# After this much of silence nothing that was under way can still commit.
QUIET_SECONDS = 15.0
LAUNCH = """mutation { launchPipelineExecution(executionParams: { mode: "default", selector: {
  repositoryLocationName: "LOCATION", repositoryName: "__repository__", jobName: "__ASSET_JOB",
  assetSelection: [{path: ["slow"]}], assetCheckSelection: [] } }) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
STATUS = "query ($run: ID!) { runOrError(runId: $run) { ... on Run { status startTime } } }"
LOCATIONS = "{ workspaceOrError { ... on Workspace { locationEntries { name } } } }"


class DagsterProject(Project):
    """A project with its `up`, asked as the UI asks it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begin("dagster-port = 0\n", {"event": SOURCE, "slow": SLOW})
        land_file(root / "in", "1", [{"event_id": f"e{n}", "n": 60} for n in range(100)])
        self.settings = read_settings(root, {})

    def record(self) -> UpRecord:
        found = UpRecord.read(record_file(self.settings))
        assert found is not None
        return found

    def ask(self, query: str, **variables: Any) -> Any:
        """Ask the webserver; it may be on its way back."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        deadline = time.monotonic() + ENDS_SECONDS
        while True:
            request = urllib.request.Request(f"{self.record().url}/graphql", body, {"Content-Type": "application/json"})
            try:
                # A launch that is given up here would begin its run all the same, beside the one of the next try.
                with urllib.request.urlopen(request, timeout=ENDS_SECONDS) as answer:
                    told = json.load(answer)
                if "errors" not in told:
                    return told["data"]
                problem: object = told["errors"]
            except (urllib.error.URLError, ConnectionError, TimeoutError) as error:
                problem = error
            assert time.monotonic() < deadline, problem
            time.sleep(1)

    def launch(self) -> str:
        (location,) = self.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
        deadline = time.monotonic() + ENDS_SECONDS
        while True:
            launched = self.ask(LAUNCH.replace("LOCATION", location["name"]))["launchPipelineExecution"]
            if "run" in launched:
                return str(launched["run"]["runId"])
            # The code server that was killed is not back yet.
            assert time.monotonic() < deadline, launched
            time.sleep(1)

    def status(self, run: str) -> str:
        return str(self.ask(STATUS, run=run)["runOrError"]["status"])

    def begins(self, run: str) -> bool:
        """Whether Dagster calls the run begun; its process may be seconds away."""
        return self.status(run) not in ("NOT_STARTED", "QUEUED")

    def began(self, run: str) -> bool:
        """Whether the run's own process is there."""
        return self.begins(run) and self.status(run) != "STARTING"

    def ended(self, run: str) -> bool:
        return self.status(run) in ("SUCCESS", "FAILURE", "CANCELED")

    def version(self) -> int | None:
        return newest_version(self.settings.warehouse / "slow")


def of_dagster(project: DagsterProject, word: str) -> list[psutil.Process]:
    """Processes of Dagster that have a word in their command lines."""
    found = marked(f"{project.record().mark}/dagster")
    return [process for process in found if any(word in part for part in process.cmdline())]


def runs(project: DagsterProject) -> list[psutil.Process]:
    """The processes of runs: children that a code server makes of itself, without a command line of their own."""
    servers = {process.pid for process in of_dagster(project, "grpc")}
    return [
        process
        for process in marked(f"{project.record().mark}/dagster")
        if process.ppid() in servers and "resource_tracker" not in " ".join(process.cmdline())
    ]


def engines(project: DagsterProject) -> list[psutil.Process]:
    state = read_state(project.settings.state)
    return [] if state is None or not state.alive else [psutil.Process(state.process.pid)]


VICTIMS: dict[str, Callable[[DagsterProject], list[psutil.Process]]] = {
    "the run": runs,
    "the code servers": lambda project: of_dagster(project, "grpc"),
    "the daemon": lambda project: [psutil.Process(dict(project.record().children)["dagster-daemon"].pid)],
    "the engine": engines,
    "the run and the code servers": lambda project: [*runs(project), *of_dagster(project, "grpc")],
}


@pytest.mark.spark
@pytest.mark.long
def test_a_run_that_is_killed_anywhere_ends_and_leaves_nothing_behind(tmp_path):
    seed = random.SystemRandom().randrange(10_000)
    print(f"seed {seed}")
    chance = random.Random(seed)
    project = DagsterProject(tmp_path / "shop")
    project.run("refresh")
    project.run("up", "--detach")
    try:
        first = project.launch()
        wait_until(lambda: project.ended(first), "the first run has ended", GOES_ON_SECONDS)
        assert project.status(first) == "SUCCESS"
        victims = [list(VICTIMS)[number % len(VICTIMS)] for number in range(KILLS)]
        chance.shuffle(victims)
        for number, what in enumerate(victims):
            land_file(project.root / "in", f"more{number}", [{"event_id": f"m{number}", "n": 60}])
            project.run("refresh", "event")
            run = project.launch()
            # Mostly at work, now and then before its process is there.
            there = chance.choice([project.began, project.began, project.begins])
            wait_until(partial(there, run), "the run begins", 120)
            time.sleep(chance.uniform(0, 12))  # the moment of the kill is what varies
            for process in VICTIMS[what](project):
                with_signal(process)
            killed = time.monotonic()
            wait_until(partial(project.ended, run), f"the run ends after {what} was killed", GOES_ON_SECONDS)
            status, took = project.status(run), time.monotonic() - killed
            # One that was not hit goes on to its end; it starts an engine where it had not asked the one before yet.
            assert status == "SUCCESS" or took <= ENDS_SECONDS, f"{status} {took:.0f} s after {what} was killed"
            print(f"{number}: {what} killed: {status} after {took:.0f} s", flush=True)
            if status == "FAILURE":
                # The engine checks the processes of askers about once a second.
                time.sleep(2)
                version = project.version()
                time.sleep(QUIET_SECONDS)
                assert project.version() == version, what
            again = project.launch()
            wait_until(partial(project.ended, again), "the retry ends", GOES_ON_SECONDS)
            assert project.status(again) == "SUCCESS", what
        counted = project.rows("SELECT count(*) AS n, count(DISTINCT event_id) AS u FROM slow")
        assert counted == [{"n": 100 + KILLS, "u": 100 + KILLS}]
    finally:
        project.run("down")
    project.require_no_process()


def with_signal(process: psutil.Process) -> None:
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return  # it had ended by itself
