"""Every button of the UI: the webserver and daemon of `up`, asked over GraphQL as the pages ask, and seen in a browser.

One project for all of them, because each start takes a minute; each test has tables of its own.
"""

from __future__ import annotations

import json
import os
import signal
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import newest_version, read_receipts
from freshline.commit.warehouse import Warehouse
from freshline.declare.project import read_settings
from freshline.engine.client import EngineClient
from freshline.engine.up_record import UpRecord, record_file
from freshline.plan.project import open_project
from freshline.report.status import read_status
from tests.browser import load_pictures, require_chromium
from tests.dagster.served import Webserver
from tests.scenarios.shop import FILES, Project, land_file, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long]

CANCEL_SECONDS = 10.0
# The most seconds that an open page of the board may be behind.
SHOWN_SECONDS = 5.0
# From a decision on, until the page, SQL and Dagster show it.
FOLLOWED_SECONDS = 10.0
ENDED = ("SUCCESS", "FAILURE", "CANCELED")
DAYS = 12

LAUNCH = """mutation ($asset: [AssetKeyInput!]!) { launchPipelineExecution(executionParams: {
  mode: "default", selector: { repositoryLocationName: "freshline", repositoryName: "__repository__",
  jobName: "__ASSET_JOB", assetSelection: $asset, assetCheckSelection: [] } }) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
LAUNCH_JOB = """mutation ($config: RunConfigData!) { launchPipelineExecution(executionParams: {
  mode: "default", runConfigData: $config, selector: { repositoryLocationName: "freshline",
  repositoryName: "__repository__", jobName: "freshline_set_freshness" } }) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message }
  ... on RunConfigValidationInvalid { errors { message } } } }"""
AGAIN = """mutation ($run: String!) { launchRunReexecution(reexecutionParams: {
  parentRunId: $run, strategy: FROM_FAILURE, useParentRunTags: true }) {
  __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
RUN = """query ($run: ID!) { runOrError(runId: $run) { ... on Run { status parentRunId tags { key value }
    assetMaterializations { partition metadataEntries { label ... on IntMetadataEntry { intValue } } } } }
  logsForRun(runId: $run) { ... on EventConnection { events {
    ... on MessageEvent { message } ... on ExecutionStepFailureEvent { error { message causes { message } } } } } } }"""
BACKFILL = """mutation ($asset: [AssetKeyInput!]!, $keys: [String!]!) { launchPartitionBackfill(backfillParams: {
  assetSelection: $asset, partitionNames: $keys }) {
  __typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
BACKFILL_STATE = """query ($id: String!) { partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill {
  status numPartitions runs { runId status } error { message } } } }"""
NODE = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  tags { key value } partitionStats { numMaterialized numPartitions numFailed }
  freshnessStatusInfo { freshnessStatus }
  assetObservations(limit: 5) { description }
  assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization {
    evaluation { success } } } } } } } }"""
SENSOR = """query ($sensor: SensorSelector!) { sensorOrError(sensorSelector: $sensor) {
  ... on Sensor { sensorState { id status } } } }"""
STOP = "mutation ($id: String!) { stopSensor(id: $id) { __typename ... on PythonError { message } } }"
START = """mutation ($sensor: SensorSelector!) { startSensor(sensorSelector: $sensor) {
  __typename ... on PythonError { message } } }"""
RELOAD = """mutation { reloadRepositoryLocation(repositoryLocationName: "freshline") { __typename
  ... on WorkspaceLocationEntry { loadStatus locationOrLoadError { __typename ... on PythonError {
  message errorChain { error { message } } } } } } }"""
ASSETS = "{ assetNodes { assetKey { path } } }"
TERMINATE = "mutation ($run: String!) { terminateRun(runId: $run) { __typename } }"


class Ui(Project):
    """The project, its `up`, and the UI's questions."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.first = datetime.now(UTC).date() - timedelta(days=DAYS)
        self.begin("dagster-port = 0\n", declarations(self.first))
        (root / "landing" / "load").mkdir(parents=True)
        self.fill(range(DAYS + 1))
        self.fill_countries(1)
        self.land(0)
        self.settings = read_settings(root, {})

    def fill(self, numbers: Sequence[int]) -> None:
        """The table that another job writes: one row a day."""
        days = [self.first + timedelta(days=day) for day in range(len(numbers))]
        rows = pa.table({"ds": pa.array(days, pa.date32()), "n": pa.array(numbers, pa.int64())})
        write_deltalake(
            str(self.root / "landing" / "load"),
            rows,
            mode="overwrite",
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def fill_countries(self, factor: int) -> None:
        """Another table of that job: a row for each country, one of them nobody has declared."""
        names = ["de", "fr", "it's", "nl", "xx"]
        rows = pa.table({"c": names, "n": pa.array([factor * len(name) for name in names], pa.int64())})
        write_deltalake(
            str(self.root / "landing" / "country"),
            rows,
            mode="overwrite",
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def land(self, number: int, n: int = 0) -> None:
        """A file of fifty events."""
        land_file(self.root / "in", str(number), [{"id": f"e{number}-{each}", "n": n} for each in range(50)])

    @property
    def url(self) -> str:
        record = UpRecord.read(record_file(self.settings))
        assert record is not None
        assert record.url is not None
        return record.url

    def ask(self, query: str, **variables: Any) -> Any:
        return Webserver(int(self.url.rsplit(":", 1)[1])).ask(query, **variables)

    def launch(self, *tables: str) -> str:
        return run_of(self.ask(LAUNCH, asset=[{"path": [table]} for table in tables])["launchPipelineExecution"])

    def again(self, run: str) -> str:
        return run_of(self.ask(AGAIN, run=run)["launchRunReexecution"])

    def told(self, run: str) -> dict[str, Any]:
        told = self.ask(RUN, run=run)
        return {**told["runOrError"], "events": told["logsForRun"]["events"]}

    def end(self, run: str) -> dict[str, Any]:
        wait_until(lambda: self.told(run)["status"] in ENDED, f"the run {run} has ended")
        return self.told(run)

    def node(self, table: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask(NODE, key={"path": [table]})["assetNodeOrError"]
        return found

    def begin_backfill(self, tables: Sequence[str], keys: Sequence[str]) -> str:
        assets = [{"path": [table]} for table in tables]
        launched = self.ask(BACKFILL, asset=assets, keys=keys)["launchPartitionBackfill"]
        assert "backfillId" in launched, launched
        return str(launched["backfillId"])

    def end_backfill(self, backfill: str) -> dict[str, Any]:
        def state() -> dict[str, Any]:
            found: dict[str, Any] = self.ask(BACKFILL_STATE, id=backfill)["partitionBackfillOrError"]
            return found

        wait_until(lambda: state()["status"] not in ("REQUESTED", "CANCELING"), "the backfill has ended")
        return state()

    def backfill(self, *tables: str, keys: Sequence[str]) -> dict[str, Any]:
        """Launch a backfill and wait for its end."""
        return self.end_backfill(self.begin_backfill(tables, keys))

    def days(self, first: int, last: int) -> list[str]:
        return [str(self.first + timedelta(days=day)) for day in range(first, last + 1)]

    def replaced(self, table: str, backfill: str) -> Counter[str]:
        found = read_receipts(self.settings.warehouse / table)
        return Counter(key for _, receipt in found if receipt.backfill == backfill for key in receipt.replaced)

    def engine_state(self, table: str) -> str:
        engine = EngineClient.connect(self.settings, start=False)
        return str(next(status["state"] for status in engine.status() if status["table"] == table))


def declarations(first: date) -> dict[str, str]:
    daily = f"PARTITIONED BY (ds) WITH ('partition.unit' = 'day', 'partition.start' = '{first}')"
    # A row takes about as many milliseconds as it says, and all rows are computed each time.
    works = "aggregate(sequence(1, n * 300), 0L * unix_seconds(now()), (a, x) -> (a + x) % 1000003)"
    return {
        "event": f"CREATE SOURCE event (id STRING, n BIGINT, PRIMARY KEY (id)) {FILES}",
        "load": "CREATE SOURCE load (ds DATE, n BIGINT) WITH ('connector' = 'delta', 'path' = 'landing/load')",
        "live": "CREATE MATERIALIZED TABLE live FRESHNESS = INTERVAL '5' SECOND AS SELECT id, n * 2 AS n FROM event",
        "total": (
            "CREATE MATERIALIZED TABLE total FRESHNESS = INTERVAL '10' DAY "
            "AS SELECT count(*) AS c, sum(n) AS n FROM event"
        ),
        "daily": f"CREATE MATERIALIZED TABLE daily {daily} FRESHNESS = INTERVAL '10' DAY AS SELECT ds, n FROM load",
        # Its name is before that of what it reads.
        "after": (
            f"CREATE MATERIALIZED TABLE after {daily} FRESHNESS = INTERVAL '10' DAY AS SELECT ds, -n AS n FROM daily"
        ),
        "country": (
            "CREATE SOURCE country (c STRING, n BIGINT) WITH ('connector' = 'delta', 'path' = 'landing/country')"
        ),
        "by_country": (
            "CREATE MATERIALIZED TABLE by_country PARTITIONED BY (c) WITH ('partition.values' = 'de, fr, it''s, nl') "
            "FRESHNESS = INTERVAL '10' DAY AS SELECT c, sum(n) AS n FROM country GROUP BY c"
        ),
        "checked": (
            f"CREATE MATERIALIZED TABLE checked (CONSTRAINT plausible EXPECT (n <> 103) ON VIOLATION FAIL) {daily} "
            "FRESHNESS = INTERVAL '10' DAY AS SELECT ds, n FROM load"
        ),
        "slow": (
            f"CREATE MATERIALIZED TABLE slow FRESHNESS = INTERVAL '10' DAY AS SELECT id, {works} AS waited FROM event"
        ),
    }


def run_of(launched: dict[str, Any]) -> str:
    assert "run" in launched, launched
    return str(launched["run"]["runId"])


@pytest.fixture(scope="module")
def ui(tmp_path_factory) -> Iterator[Ui]:
    found = Ui(tmp_path_factory.mktemp("ui") / "shop")
    # Nothing is due for days then: the batch sensor leaves the tables to the tests.
    found.run("refresh")
    found.run("up", "--detach")
    try:
        yield found
    finally:
        found.run("down")


def test_materialize_is_a_run_with_numbers_that_can_be_drawn(ui):
    found = ui.end(ui.launch("event", "total"))

    assert found["status"] == "SUCCESS", found
    numbers = {
        entry["label"]: entry.get("intValue")
        for event in found["assetMaterializations"]
        for entry in event["metadataEntries"]
    }
    assert {"dagster/row_count", "rows_in", "rows_out", "seconds", "lag_seconds", "version"} <= numbers.keys()


def test_a_range_of_partitions_is_one_run_and_the_bar_is_what_the_table_has(ui):
    asked = ui.days(2, 8)

    found = ui.backfill("daily", keys=asked)

    assert found["status"] == "COMPLETED_SUCCESS", found
    assert found["numPartitions"] == len(asked)
    (run,) = found["runs"]
    assert set(ui.replaced("daily", run["runId"])) == set(asked)
    told = ui.told(run["runId"])["assetMaterializations"]
    assert {event["partition"] for event in told} == set(asked)
    wait_until(lambda: ui.node("daily")["partitionStats"]["numMaterialized"] >= len(asked), "the bar is true")


def test_a_backfill_of_two_tables_does_the_one_that_is_read_first(ui):
    ui.fill([200 + day for day in range(DAYS + 1)])
    asked = ui.days(1, 3)

    found = ui.backfill("daily", "after", keys=asked)

    assert found["status"] == "COMPLETED_SUCCESS", found
    rows = DeltaTable(str(ui.settings.warehouse / "after")).to_pyarrow_table().to_pylist()
    assert sorted(row["n"] for row in rows if str(row["ds"]) in asked) == [-203, -202, -201]


def test_partitions_by_value_have_a_bar_and_backfills_too(ui):
    wait_until(lambda: ui.node("by_country")["partitionStats"]["numMaterialized"] == 4, "the bar is full")
    ui.fill_countries(10)

    found = ui.backfill("by_country", keys=["fr", "it's"])

    assert found["status"] == "COMPLETED_SUCCESS", found
    (run,) = found["runs"]
    assert ui.replaced("by_country", run["runId"]) == Counter(["fr", "it's"])
    rows = DeltaTable(str(ui.settings.warehouse / "by_country")).to_pyarrow_table().to_pylist()
    assert {row["c"]: row["n"] for row in rows} == {"de": 2, "fr": 20, "it's": 40, "nl": 2, "xx": 2}
    assert {event["partition"] for event in ui.told(run["runId"])["assetMaterializations"]} == {"fr", "it's"}


def test_a_backfill_that_fails_is_executed_again_and_only_what_failed_is_done(ui):
    """One day has a row that must not be: that day fails, the others are done; it is mended, and the run goes on."""
    numbers = list(range(DAYS + 1))
    ui.fill([103 if day == 4 else number for day, number in enumerate(numbers)])
    asked = ui.days(3, 6)
    (run,) = ui.backfill("checked", keys=asked)["runs"]
    failed = ui.told(run["runId"])
    assert failed["status"] == "FAILURE"
    assert "1 partitions failed" in json.dumps(failed["events"])
    assert "plausible" in json.dumps(failed["events"])
    first = ui.replaced("checked", run["runId"])
    assert set(first) == set(asked) - {asked[1]}

    ui.fill(numbers)
    again = ui.end(ui.again(run["runId"]))

    assert again["status"] == "SUCCESS", again
    assert again["parentRunId"] == run["runId"]
    assert ui.replaced("checked", run["runId"]) == Counter(dict.fromkeys(asked, 1))


def test_a_cancelled_run_has_no_work_in_spark_within_ten_seconds(ui):
    ui.land(1, n=1000)
    assert ui.end(ui.launch("event"))["status"] == "SUCCESS"
    before = newest_version(ui.settings.warehouse / "slow")
    run = ui.launch("slow")
    wait_until(lambda: ui.engine_state("slow") == "RUNNING", "the engine works on it")

    ui.ask(TERMINATE, run=run)
    took = wait_until(lambda: ui.engine_state("slow") != "RUNNING", "its work is gone", CANCEL_SECONDS)

    assert ui.engine_state("slow") == "CANCELLED"
    assert ui.end(run)["status"] == "CANCELED"
    # Nothing is left to commit: the engine's thread has let go of the table, and another refresh may have it.
    assert newest_version(ui.settings.warehouse / "slow") == before
    print(f"cancelled after {took:.1f} s")


def test_a_sensor_is_switched_off_and_on(ui):
    sensor = {
        "repositoryName": "__repository__",
        "repositoryLocationName": "freshline",
        "sensorName": "freshline_supervisor",
    }

    def state() -> dict[str, Any]:
        found: dict[str, Any] = ui.ask(SENSOR, sensor=sensor)["sensorOrError"]["sensorState"]
        return found

    assert state()["status"] == "RUNNING"
    assert "PythonError" not in str(ui.ask(STOP, id=state()["id"]))
    assert state()["status"] == "STOPPED"
    wait_until(lambda: ui.engine_state("live") == "PAUSED", "the engine leaves its table alone")
    wait_until(lambda: "PAUSED" in str(ui.node("live")["assetObservations"]), "it is told at the table")
    before = newest_version(ui.settings.warehouse / "live")

    assert "PythonError" not in str(ui.ask(START, sensor=sensor))
    assert state()["status"] == "RUNNING"
    ui.land(2)
    wait_until(lambda: newest_version(ui.settings.warehouse / "live") != before, "the table is kept again")


def test_freshness_fails_while_a_table_is_left_alone_and_passes_again(ui):
    def health() -> tuple[str, bool | None]:
        node = ui.node("live")
        checks = {
            check["name"]: check["executionForLatestMaterialization"] for check in node["assetChecksOrError"]["checks"]
        }
        told = checks["freshness"]
        evaluation = None if told is None else told["evaluation"]
        status = node["freshnessStatusInfo"]
        return str(status and status["freshnessStatus"]), None if evaluation is None else evaluation["success"]

    wait_until(lambda: health() == ("HEALTHY", True), "it is fresh")
    ui.run("suspend", "live", "--because", "to see it late")
    # A table that has all there is is not late, suspended or not.
    ui.land(7)
    # Dagster's window is the freshness and two turns of a minute, and its daemon checks every half minute.
    wait_until(lambda: health()[1] is False, "the check is red")
    wait_until(lambda: health()[0] in ("DEGRADED", "WARNING"), "Dagster's own state has changed")

    ui.run("resume", "live")
    wait_until(lambda: health() == ("HEALTHY", True), "it is fresh again")


def test_a_mistake_is_shown_at_its_table_and_the_streams_and_a_backfill_go_on(ui):
    def shown() -> dict[str, str]:
        nodes = ui.ask("{ assetNodes { assetKey { path } description } }")["assetNodes"]
        return {node["assetKey"]["path"][0]: node["description"] or "" for node in nodes}

    added = ui.root / "assets" / "added.sql"
    added.write_text("CREATE MATERIALIZED TABLE added FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM event")
    wait_until(lambda: "added" in shown(), "the table is shown")
    before = shown()

    # Without a daemon the backfill does not begin, and the next one finds the mistake when it starts.
    up = UpRecord.read(record_file(ui.settings))
    assert up is not None
    os.kill(dict(up.children)["dagster-daemon"].pid, signal.SIGKILL)
    backfill = ui.begin_backfill(["daily"], ui.days(4, 5))
    added.write_text("CREATE MATERIALIZED TABLE added\nFRESHNESS = INTERVAL '0' SECOND\nAS SELECT id FROM event")
    wait_until(lambda: "assets/added.sql:2" in shown()["added"], "its mistake is shown")
    assert {name: text for name, text in shown().items() if name != "added"} == {
        name: text for name, text in before.items() if name != "added"
    }
    version = newest_version(ui.settings.warehouse / "live")
    ui.land(3)
    wait_until(lambda: newest_version(ui.settings.warehouse / "live") != version, "the stream goes on")
    # The table of the backfill has no mistake.
    assert ui.end_backfill(backfill)["status"] == "COMPLETED_SUCCESS"
    assert ui.end(ui.launch("total"))["status"] == "SUCCESS"

    added.unlink()
    wait_until(lambda: bool(shown()) and "added" not in shown(), "the table is gone, and the others are shown")


def test_a_backfill_waits_while_the_location_does_not_load(ui):
    settings = ui.root / "pyproject.toml"
    good = settings.read_text()
    settings.write_text(f"{good}umask = 'none'\n")
    try:
        wait_until(lambda: "umask" in json.dumps(ui.ask(RELOAD)), "the mistake is shown")
        version = newest_version(ui.settings.warehouse / "live")
        ui.land(8)
        wait_until(lambda: newest_version(ui.settings.warehouse / "live") != version, "the stream goes on")
    finally:
        settings.write_text(good)
    wait_until(lambda: "daily" in json.dumps(ui.ask(ASSETS)), "the location is loaded again")


def test_a_table_is_late_on_an_open_page_when_its_source_stops_and_fresh_again(ui):
    require_chromium()
    state = "return document.querySelector('tr[data-name=\"live\"] .state').innerText"
    folder, gone = ui.root / "in", ui.root / "gone"
    control = ControlStore.open(ui.settings.control_store)
    graph, warehouse = open_project(ui.settings), Warehouse(ui.settings.warehouse)

    def late() -> bool:
        found = read_status(graph, control, warehouse, datetime.now(UTC), counted=False)
        return next(status.late for status in found if str(status.table) == "live")

    with load_pictures().browser() as window:
        window.open(f"{ui.url}/freshline/", 900)
        wait_until(lambda: window.run(state) == "fresh", "the page says that it is fresh")
        window.run("window.same = true")
        folder.rename(gone)
        wait_until(late, "its lag is above its promise")
        behind = wait_until(lambda: window.run(state) in ("late", "failing"), "the page says so")
        assert behind <= SHOWN_SECONDS
        gone.rename(folder)
        wait_until(lambda: not late(), "it is fresh")
        behind = wait_until(lambda: window.run(state) == "fresh", "the page says that it is fresh again")
        assert behind <= SHOWN_SECONDS
        assert window.run("return window.same"), "the page was loaded again"
    control.close()


def test_a_freshness_that_is_changed_in_dagster_shows_there_on_the_page_and_in_sql(ui):
    require_chromium()
    facts = "[...document.querySelectorAll('.facts div')].map(each => each.innerText)"
    promised = f"return {facts}.find(text => text.startsWith('Promise'))"
    control = ControlStore.open(ui.settings.control_store)

    def set_freshness(**config: str) -> dict[str, Any]:
        asked = json.dumps({"ops": {"set_freshness": {"config": {"table": "total", **config}}}})
        found: dict[str, Any] = ui.end(run_of(ui.ask(LAUNCH_JOB, config=asked)["launchPipelineExecution"]))
        return found

    def in_sql() -> int:
        told = json.loads(ui.run("sql", "SHOW MATERIALIZED TABLES", "--json"))
        return next(int(table["freshness_seconds"]) for table in told if table["table"] == "total")

    def mode() -> str:
        return str({tag["key"]: tag["value"] for tag in ui.node("total")["tags"]}["freshline/mode"])

    with load_pictures().browser() as window:
        window.open(f"{ui.url}/freshline/table/total", 900)
        wait_until(lambda: window.run(promised).endswith("10 d"), "the page has the freshness of the file")
        window.run("window.same = true")
        found = set_freshness(freshness="5 minutes")
        assert found["status"] == "SUCCESS", found
        took = wait_until(lambda: mode() == "incremental", "Dagster shows it")
        took += wait_until(lambda: window.run(promised).endswith("5 min"), "the page shows it")
        assert took <= FOLLOWED_SECONDS
        assert in_sql() == 300
        assert next(iter(control.intentions.read().overrides.values())).by.startswith("Dagster run ")
        found = set_freshness()
        assert found["status"] == "SUCCESS", found
        took = wait_until(lambda: mode() == "batch", "Dagster shows that of the file again")
        took += wait_until(lambda: window.run(promised).endswith("10 d"), "so does the page")
        assert took <= FOLLOWED_SECONDS
        assert in_sql() == 10 * 86400
        assert window.run("return window.same"), "the page was loaded again"
    control.close()


def test_a_browser_shows_the_graph_a_table_its_partitions_and_a_backfill(ui, tmp_path):
    require_chromium()
    steps = load_pictures()
    asked = ui.days(0, 3)
    ui.backfill("daily", keys=asked)
    ui.end(ui.launch("event", "total"))
    pages = {
        "graph": steps.Picture("asset-groups", ("event", "live", "daily", "checked", "total")),
        "table": steps.Picture("assets/total?view=overview", ("Row count", "Columns")),
        # CPU is known of refreshes that ran alone, which here none may have done.
        "plots": steps.Picture(
            "assets/live?view=overview", ("rows_in", "seconds", "lag_seconds"), steps.PLOTS, steps.SHOW_PLOTS
        ),
        "events": steps.Picture("assets/total?view=events", ("rows_in", "seconds", "lag_seconds")),
        "lineage": steps.Picture("assets/total?view=lineage", ("event", "total")),
        "checks": steps.Picture("assets/checked?view=checks", ("constraint_plausible", "freshness", "verify")),
        "partitions": steps.Picture("assets/daily?view=partitions", (asked[0],)),
        "backfill": steps.Picture(f"runs/b/{steps.newest_backfill(ui.url)}", ("daily", "100% completed")),
    }
    with steps.browser() as window:
        for name, page in pages.items():
            file = tmp_path / f"{name}.png"
            steps.take(window, ui.url, page, file)
            data = file.read_bytes()
            assert struct.unpack(">II", data[16:24])[0] == steps.WIDTH
            assert len(data) > 20_000, f"{name}: a page with something on it is more than this"
