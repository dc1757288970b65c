"""Sixty days are replaced while events arrive, and while the engine, a command and a run that asked are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from freshline.commit.delta_log import read_receipts
from freshline.dagster.materialize import PROCESS, process_ended
from freshline.declare.project_settings import read_settings
from freshline.engine.client import EngineClient
from freshline.engine.lock import read_holder
from freshline.engine.state_file import read_state
from freshline.errors import EngineError
from tests.dagster.served import served
from tests.dagster.served import wait_until as wait_with_log
from tests.scenarios.shop import Project, land_file, wait_until

DAYS = 60
RATE = 100
MOST_GROWTH_SECONDS = 3.0
FRESHNESS_SECONDS = 20
RUN_DAYS = 20
RUN_SECONDS = 400.0
LAUNCH = """mutation ($tags: [ExecutionTag!]!) { launchPipelineExecution(executionParams: {
  mode: "default", executionMetadata: { tags: $tags }, selector: { repositoryLocationName: "freshline",
  repositoryName: "__repository__", jobName: "__ASSET_JOB", assetSelection: [{path: ["daily"]}],
  assetCheckSelection: [] } }) { ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
AGAIN = """mutation ($run: String!) { launchRunReexecution(reexecutionParams: {
  parentRunId: $run, strategy: FROM_FAILURE, useParentRunTags: true }) {
  ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
RUN = "query ($run: ID!) { runOrError(runId: $run) { ... on Run { status tags { key value } } } }"
TABLE = f"CREATE MATERIALIZED TABLE {{name}} {{header}} FRESHNESS = INTERVAL '{FRESHNESS_SECONDS}' SECOND AS {{query}}"


class DaysShop(Project):
    """A project with two log tables, one table of days, one beside it, and events that keep arriving."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.today = datetime.now(UTC).date()
        self.first = self.today - timedelta(days=DAYS)
        (root / "assets").mkdir(parents=True)
        (root / "pyproject.toml").write_text('[tool.freshline]\ndriver-memory = "1g"\nspark-master = "local[2]"\n')
        for name in ("a", "b"):
            (root / "landing" / name).mkdir(parents=True)
            (root / "assets" / f"{name}.sql").write_text(
                f"CREATE SOURCE {name} (id BIGINT, at TIMESTAMP, n BIGINT) WITH ('connector' = 'files', "
                f"'format' = 'json', 'path' = 'landing/{name}', 'settle' = '1 second')"
            )
        header = f"PARTITIONED BY (ds) WITH ('partition.unit' = 'day', 'partition.start' = '{self.first}')"
        query = "SELECT id, CAST(at AS DATE) AS ds, n FROM {read}"
        for name, text in {
            "daily": TABLE.format(name="daily", header=header, query=query.format(read="a")),
            "beside": TABLE.format(name="beside", header="", query=query.format(read="b")),
        }.items():
            (root / "assets" / f"{name}.sql").write_text(text)
        self.settings = read_settings(root, {})
        self.written = 0
        self.commands: list[subprocess.Popen[str]] = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._arrive, daemon=True)
        for day in range(DAYS):
            at = datetime.combine(self.first + timedelta(days=day), datetime.min.time(), UTC)
            self.land("a", f"day-{day:03d}", [at + timedelta(minutes=minute) for minute in range(200)])

    def land(self, source: str, name: str, moments: list[datetime]) -> None:
        lines = []
        for moment in moments:
            self.written += 1
            lines.append({"id": self.written, "at": moment.isoformat(), "n": self.written % 7})
        land_file(self.root / "landing" / source, name, lines)

    def _arrive(self) -> None:
        turn = 0
        while not self.stopped.wait(1.0):
            turn += 1
            for source in ("a", "b"):
                self.land(source, f"live-{turn:05d}", [datetime.now(UTC)] * RATE)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.commands.append(process)
        return process

    def run(self, *arguments: str) -> str:
        """The answer of a command in both of its outputs."""
        process = self.start(*arguments)
        output, _ = process.communicate(timeout=400)
        assert process.returncode == 0, output
        return output

    def commits(self, backfill: str) -> Counter[str]:
        found = read_receipts(self.settings.warehouse / "daily")
        return Counter(key for _, receipt in found if receipt.backfill == backfill for key in receipt.replaced)

    def wait_for(self, backfill: str, count: int) -> None:
        wait_until(lambda: len(self.commits(backfill)) >= count, f"{count} partitions of {backfill}")

    def lag_of(self, table: str) -> float | None:
        state = read_state(self.settings.state)
        if state is None or not state.alive:
            return None
        try:
            statuses = EngineClient(self.settings, state).status()
        except EngineError:
            return None
        lag = next(status["lag_seconds"] for status in statuses if status["table"] == table)
        return None if lag is None else float(lag)

    def checks(self, count: int) -> list[float]:
        """The lag of the table beside, at so many moments with about a third of a second between them."""
        found: list[float] = []
        ended = threading.Event()
        watcher = threading.Thread(target=self.lags_while, args=(ended, found))
        watcher.start()
        while len(found) < count:
            watcher.join(0.1)
        ended.set()
        watcher.join()
        return found

    def lags_while(self, ended: threading.Event, found: list[float], table: str = "beside") -> None:
        while not ended.wait(0.3):
            lag = self.lag_of(table)
            if lag is not None:
                found.append(lag)

    def end(self) -> None:
        self.stopped.set()
        for command in self.commands:
            # A command that lives would start the next engine.
            command.kill()
            command.wait()
        state, holder = read_state(self.settings.state), read_holder(self.settings.warehouse)
        for found in (state, holder):
            for process in (found.process, found.jvm) if found is not None else ():
                if process is not None:
                    process.end(grace_seconds=20.0)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[DaysShop]:
    shop = DaysShop(tmp_path / "shop")
    yield shop
    shop.end()


def percentile_99(values: list[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


def killed_and_executed_again(shop: DaysShop) -> None:
    """The same from Dagster: a run is killed in the middle, and its execution again does only what is left."""
    keys = [str(shop.first + timedelta(days=day)) for day in range(RUN_DAYS)]
    tags = [
        {"key": f"dagster/asset_partition_range_{end}", "value": key}
        for end, key in (("start", keys[0]), ("end", keys[-1]))
    ]
    with served(shop.root) as webserver:

        def look(run: str) -> dict[str, Any]:
            found: dict[str, Any] = webserver.ask(RUN, run=run)["runOrError"]
            return found

        def wait(met: Callable[[], bool]) -> None:
            wait_with_log(met, RUN_SECONDS, shop.root / "webserver.log")

        run = str(webserver.ask(LAUNCH, tags=tags)["launchPipelineExecution"]["run"]["runId"])
        wait(lambda: len(shop.commits(run)) >= RUN_DAYS // 4)
        process = next(tag["value"] for tag in look(run)["tags"] if tag["key"] == PROCESS)
        os.kill(int(process.split(" ")[1]), signal.SIGKILL)
        wait(lambda: process_ended(process))
        # The code server finds out by itself. To terminate the run before that would hang the code server: Dagster sets
        # an event for the run's process there, and Python waits for who waited for it and was killed.
        wait(lambda: look(run)["status"] == "FAILURE")
        done = shop.commits(run)
        assert len(done) < RUN_DAYS, "the kill came too late to tell anything"

        again = str(webserver.ask(AGAIN, run=run)["launchRunReexecution"]["run"]["runId"])
        wait(lambda: look(again)["status"] in ("SUCCESS", "FAILURE", "CANCELED"))
        assert look(again)["status"] == "SUCCESS"
    assert shop.commits(run) == Counter(dict.fromkeys(keys, 1)), "a finished partition was done again"
    assert not shop.commits(again)


@pytest.mark.long
def test_sixty_days_are_replaced_beside_live_tables_and_through_kills(shop):
    shop.run("engine", "start")
    shop.run("refresh")
    shop.thread.start()
    # The first refreshes of an engine are slow: they say nothing about what comes.
    shop.checks(80)
    before = shop.checks(120)

    last = shop.today - timedelta(days=1)
    asked = ("backfill", "daily", "--from", str(shop.first), "--to", str(last), "--again", "--id", "story")
    ended, during, own = threading.Event(), list[float](), list[float]()
    watchers = [
        threading.Thread(target=shop.lags_while, args=(ended, during)),
        threading.Thread(target=shop.lags_while, args=(ended, own, "daily")),
    ]
    first = shop.start(*asked)
    shop.wait_for("story", 2)
    for watcher in watchers:
        watcher.start()
    shop.wait_for("story", 20)
    ended.set()
    for watcher in watchers:
        watcher.join()

    growth = percentile_99(during) - percentile_99(before)
    print(
        f"\np99 lag before {percentile_99(before):.1f} s, during {percentile_99(during):.1f} s, "
        f"{len(before)} and {len(during)} looks; of the table itself during {percentile_99(own):.1f} s"
    )
    state = read_state(shop.settings.state)
    assert state is not None
    os.kill(state.process.pid, signal.SIGKILL)
    done = len(shop.commits("story"))
    shop.run("engine", "start")
    # The command goes on with the next engine by itself; then it is killed too.
    shop.wait_for("story", done + 8)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    text = shop.run(*asked)
    single = shop.run("backfill", "daily", "--from", str(shop.today), "--again", "--id", "today")

    counts = shop.commits("story")
    assert len(counts) == DAYS, text
    assert set(counts.values()) == {1}, "a finished partition was done again"
    assert "partitions are done and stay as they are" in text
    assert "1 done, 0 failed, 0 left" in single
    killed_and_executed_again(shop)
    shop.stopped.set()
    shop.thread.join()
    shop.run("refresh")
    assert shop.run("verify").count("equal") == 2
    assert growth <= MOST_GROWTH_SECONDS
    # Between two partitions its own live refreshes come first: it keeps its own promise meanwhile.
    assert percentile_99(own) <= FRESHNESS_SECONDS
