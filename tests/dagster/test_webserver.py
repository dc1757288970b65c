"""The real webserver, asked as the UI asks it."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from freshline.cli.managing import answer_managing
from freshline.commit.control_store import ControlStore
from freshline.declare.project import read_settings
from freshline.engine.client import EngineClient
from freshline.freshness.intentions import FreshnessOverride
from freshline.sql.managing import read_managing
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from tests.dagster.served import Webserver, served, wait_until

pytestmark = pytest.mark.slow  # a webserver is started

ROOT = Path(__file__).parents[2]
LOG = "webserver.log"
RUN_SECONDS = 240.0
# The promised time. On a machine with much other work the load of a location alone takes longer.
PROMISED_SECONDS = 10.0
BUSY = 1.5
CHANGE_SECONDS = 60.0


@pytest.fixture(scope="module")
def root(write_project: Callable[..., Path], tmp_path_factory) -> Path:
    """The project that loads."""
    return write_project(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def webserver(root, write_project, tmp_path_factory) -> Iterator[Webserver]:
    """The webserver of a project that loads, and beside it of one that does not: each start takes seconds."""
    broken = write_project(tmp_path_factory.mktemp("broken"))
    with (broken / "pyproject.toml").open("a", encoding="utf-8") as settings:
        settings.write("umask = 'none'\n")
    with served(root, {"broken": broken}) as webserver:
        yield webserver


def test_the_ui_is_given_one_lineage_graph_with_kinds_modes_and_descriptions(webserver):
    nodes = webserver.ask("""{ assetNodes {
        assetKey { path } kinds description isMaterializable dependencyKeys { path } tags { key value }
        metadataEntries { label ... on MarkdownMetadataEntry { mdStr } ... on CodeReferencesMetadataEntry {
          codeReferences { ... on LocalFileCodeReference { filePath lineNumber } } } }
    } }""")["assetNodes"]

    shown = {"/".join(node["assetKey"]["path"]): node for node in nodes}
    assert {key: [dep["path"] for dep in node["dependencyKeys"]] for key, node in shown.items()} == {
        "touch_event": [],
        "campaign_load": [],
        "first_touch": [["touch_event"]],
        "sales/campaign": [["campaign_load"]],
    }
    first = shown["first_touch"]
    assert sorted(first["kinds"]) == ["deltalake", "spark", "sql"]
    assert first["description"] == "The first touch of each customer"
    [declared] = [entry["mdStr"] for entry in first["metadataEntries"] if entry["label"] == "declaration"]
    assert declared.startswith("```sql\nCREATE MATERIALIZED TABLE")
    assert {"key": "freshline/mode", "value": "continuous"} in first["tags"]
    [reference] = [entry["codeReferences"] for entry in first["metadataEntries"] if "codeReferences" in entry]
    assert reference[0]["lineNumber"] == 1
    assert reference[0]["filePath"].endswith("assets/first_touch.sql")
    assert {key for key, node in shown.items() if not node["isMaterializable"]} == {"campaign_load"}


def test_a_location_that_does_not_load_shows_file_and_line(webserver):
    entries = webserver.ask("""{ workspaceOrError { ... on Workspace { locationEntries { name
        locationOrLoadError { ... on PythonError { message causes { message } } } } } } }""")["workspaceOrError"]
    errors = {entry["name"]: entry["locationOrLoadError"] for entry in entries["locationEntries"]}

    assert errors["freshline"] == {}
    assert "umask" in json.dumps(errors["broken"])


def code_servers(root: Path) -> list[psutil.Process]:
    """The code servers of one location."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "grpc" in line and str(root) in line:
            found.append(process)
    return found


@pytest.mark.long
@pytest.mark.slow
def test_a_code_server_that_was_killed_comes_back(root, webserver):
    before = code_servers(root)
    assert before
    for process in before:
        process.kill()

    # Steps of runs are asked of the code server itself.
    wait_until(lambda: bool(set(code_servers(root)) - set(before)), 60.0, root / "webserver.log")
    asked = "mutation { reloadWorkspace { ... on Workspace { locationEntries { name loadStatus } } } }"
    entries = webserver.ask(asked)["reloadWorkspace"]["locationEntries"]
    assert {entry["name"]: entry["loadStatus"] for entry in entries} == {"freshline": "LOADED", "broken": "LOADED"}
    assert "has ended; the location is loaded again" in (root / "webserver.log").read_text()


def test_a_table_and_a_freshness_that_change_are_shown_without_a_reload(root, webserver):
    control = ControlStore.open(read_settings(root, {}).control_store)
    name = TableName.parse("first_touch")

    def shown() -> dict[str, str]:
        """The modes of the tables, by name."""
        nodes = webserver.ask("{ assetNodes { assetKey { path } tags { key value } } }")["assetNodes"]
        modes = {
            "/".join(node["assetKey"]["path"]): {tag["key"]: tag["value"] for tag in node["tags"]} for node in nodes
        }
        return {key: tags.get("freshline/mode", "") for key, tags in modes.items()}

    log = root / "webserver.log"
    assert shown()["first_touch"] == "continuous"
    control.intentions.change(set_overrides=[FreshnessOverride(name, Freshness(6 * 3600), "a", datetime.now(UTC))])
    wait_until(lambda: shown()["first_touch"] == "batch", CHANGE_SECONDS, log)

    declared = root / "assets" / "later.sql"
    declared.write_text(
        "CREATE MATERIALIZED TABLE later FRESHNESS = INTERVAL '1' HOUR AS SELECT event_id FROM touch_event;\n"
    )
    wait_until(lambda: "later" in shown(), CHANGE_SECONDS, log)

    control.intentions.change(remove_overrides=[name])
    declared.unlink()
    wait_until(lambda: "later" not in shown() and shown()["first_touch"] == "continuous", CHANGE_SECONDS, log)


FACTS = """query ($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
    tags { key value }
    internalFreshnessPolicy { ... on TimeWindowFreshnessPolicy { failWindowSeconds } }
    metadataEntries { label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue } }
    targetingInstigators { ... on Sensor { name } }
} } }"""


@pytest.mark.long
def test_a_freshness_that_is_changed_on_the_page_or_in_sql_shows_there_and_in_dagster(
    root, webserver, chromium, capsys
):
    settings, log = read_settings(root, {}), root / "webserver.log"

    def sql(statement: str) -> str:
        managing = read_managing(statement)
        assert managing is not None
        assert answer_managing(settings, None, managing, 100, as_json=True) == 0
        return str(capsys.readouterr().out)

    def in_sql() -> int:
        told = json.loads(sql("SHOW MATERIALIZED TABLES"))
        return next(int(table["freshness_seconds"]) for table in told if table["table"] == "first_touch")

    def in_dagster() -> tuple[str, int, set[str], set[str]]:
        """The mode of its tags, the window of its policy, its metadata as text, and the sensors that target it."""
        node = webserver.ask(FACTS, key={"path": ["first_touch"]})["assetNodeOrError"]
        sensors = {str(each["name"]) for each in node["targetingInstigators"] if "name" in each}
        tags = {tag["key"]: tag["value"] for tag in node["tags"]}
        shown = {str(entry.get("text", entry.get("intValue"))) for entry in node["metadataEntries"]}
        return tags["freshline/mode"], node["internalFreshnessPolicy"]["failWindowSeconds"], shown, sensors

    facts = "[...document.querySelectorAll('.facts div')].map(each => each.innerText)"
    promised = f"return {facts}.find(text => text.startsWith('Promise'))"
    before = in_dagster()
    assert before[0] == "continuous"
    assert "freshline_supervisor" in before[3]
    chromium.open(f"{webserver.url}/freshline/table/first_touch", 900)
    assert chromium.run(promised).endswith("10 s")
    chromium.run("window.same = true; document.querySelector('[data-action=freshness]').click()")
    chromium.run("document.querySelector('dialog input[name=freshness]').value = '6 hours'")
    chromium.run("document.querySelector('dialog button[value=yes]').click()")
    began = time.monotonic()
    wait_until(lambda: chromium.run(promised).endswith("6 h"), CHANGE_SECONDS, log)
    assert in_sql() == 6 * 3600
    wait_until(lambda: in_dagster()[0] == "batch", CHANGE_SECONDS, log)
    waited = [time.monotonic() - began]
    changed = in_dagster()
    assert changed[1] >= 6 * 3600 > before[1]
    assert changed[2] - before[2], "the metadata is what it was"
    assert "freshline_batch" in changed[3]
    assert "freshline_supervisor" not in changed[3]

    sql("ALTER MATERIALIZED TABLE first_touch SET FRESHNESS = INTERVAL '5' MINUTE")
    began = time.monotonic()
    wait_until(lambda: chromium.run(promised).endswith("5 min"), CHANGE_SECONDS, log)
    wait_until(lambda: in_dagster()[0] == "incremental", CHANGE_SECONDS, log)
    waited.append(time.monotonic() - began)
    assert 300 <= in_dagster()[1] < 6 * 3600

    sql("ALTER MATERIALIZED TABLE first_touch RESET FRESHNESS")
    began = time.monotonic()
    wait_until(lambda: in_dagster() == before, CHANGE_SECONDS, log)
    wait_until(lambda: chromium.run(promised).endswith("10 s"), CHANGE_SECONDS, log)
    waited.append(time.monotonic() - began)
    assert chromium.run("return window.same"), "the page was loaded again"
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert statistics.median(waited) <= PROMISED_SECONDS or load > BUSY, waited
    print(f"shown after {', '.join(f'{each:.1f}' for each in waited)} s, with a load of {load:.1f} for each processor")


def test_a_mistake_costs_one_table_and_is_shown_there_until_it_is_corrected(root, webserver):
    def shown() -> dict[str, tuple[set[str], str]]:
        """The kinds and the description of each asset."""
        nodes = webserver.ask("{ assetNodes { assetKey { path } kinds description } }")["assetNodes"]
        return {"/".join(node["assetKey"]["path"]): (set(node["kinds"]), node["description"]) for node in nodes}

    log, declared, before = root / "webserver.log", root / "assets" / "first_touch.sql", shown()
    text = declared.read_text()
    declared.write_text(text.replace("FRESHNESS", "FRESHNES"))
    wait_until(lambda: shown()["first_touch"][0] == {"mistake"}, CHANGE_SECONDS, log)

    mangled = shown()
    assert "`assets/first_touch.sql:" in mangled["first_touch"][1]
    assert {name: each for name, each in mangled.items() if name != "first_touch"} == {
        name: each for name, each in before.items() if name != "first_touch"
    }
    declared.write_text(text)
    wait_until(lambda: shown() == before, CHANGE_SECONDS, log)


@pytest.mark.long
def test_of_ten_tables_a_browser_shows_nine_as_they_were_and_the_mistake_of_the_tenth(tmp_path, chromium):
    """The reference deployment, of which somebody saves one file with a slip of the finger."""
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "assets").mkdir()
    for file in (ROOT / "assets").glob("*.sql"):
        shutil.copy(file, tmp_path / "assets")
    names = sorted(file.stem for file in (tmp_path / "assets").glob("*.sql"))
    assert len(names) == 10
    mangled = tmp_path / "assets" / "campaign_revenue.sql"
    others = tuple(name for name in names if name != mangled.stem)
    everything = "{ assetNodes { assetKey { path } kinds description groupName isMaterializable } }"

    with served(tmp_path) as server:

        def shown() -> dict[str, dict[str, Any]]:
            return {"/".join(node["assetKey"]["path"]): node for node in server.ask(everything)["assetNodes"]}

        before = shown()
        chromium.open(f"{server.url}/asset-groups", 1_200, 1_800)
        chromium.wait_for(tuple(names))

        mangled.write_text(mangled.read_text().replace("FRESHNESS", "FRESHNES"))
        told = "assets/campaign_revenue.sql:"
        wait_until(lambda: told in shown()[mangled.stem]["description"], CHANGE_SECONDS, tmp_path / LOG)
        after = shown()
        assert [name for name in names if after[name] == before[name]] == list(others)

        chromium.open(f"{server.url}/assets/{mangled.stem}?view=overview", 1_200, 1_800)
        assert "FRESHNES" in chromium.wait_for((told,))
        # The mistaken table stays in its group: of one group the graph shows no name.
        assert after[mangled.stem]["groupName"] == before[mangled.stem]["groupName"] == "attribution"
        chromium.open(f"{server.url}/asset-groups", 1_200, 1_800)
        lines = chromium.wait_for((*names, "mistake", "Materialize all")).split("\n")
        assert "default" not in lines
        chromium.open(f"{server.url}/assets/{others[0]}?view=overview", 1_200, 1_800)
        assert told not in chromium.wait_for((others[0], before[others[0]]["description"]))
        chromium.open(f"{server.url}/freshline/", 1_200)
        assert told in chromium.wait_for(tuple(names[:2]))


LAUNCH = """mutation ($asset: [AssetKeyInput!]!) {
  launchPipelineExecution(executionParams: {
    mode: "default",
    selector: {
      repositoryLocationName: "freshline", repositoryName: "__repository__", jobName: "__ASSET_JOB",
      assetSelection: $asset
    }
  }) { __typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } }
}"""
RUN = """query ($run: ID!) {
  runOrError(runId: $run) { ... on Run { status assetMaterializations {
    assetKey { path }
    tags { key value }
    metadataEntries { label ... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text } }
  } } }
  logsForRun(runId: $run) { ... on EventConnection { events { ... on MessageEvent { message } } } }
}"""
TERMINATE = "mutation ($run: String!) { terminateRun(runId: $run) { __typename } }"
SLOW = """
    CREATE MATERIALIZED TABLE slow FRESHNESS = INTERVAL '1' HOUR
    AS SELECT COUNT(*) AS n FROM touch_event AS a CROSS JOIN touch_event AS b CROSS JOIN touch_event AS c
    WHERE RAND() + LENGTH(CONCAT(a.event_id, b.event_id, c.event_id)) < 0;
"""


class Runs:
    """Starts runs of a served project, as the buttons of the UI do."""

    def __init__(self, root: Path, webserver: Webserver) -> None:
        self.root = root
        self.webserver = webserver

    def launch(self, *assets: str) -> str:
        keys = [{"path": [asset]} for asset in assets]
        return str(self.webserver.ask(LAUNCH, asset=keys)["launchPipelineExecution"]["run"]["runId"])

    def inspection(self, run: str) -> tuple[str, list[dict[str, Any]], list[str]]:
        """Status, materializations and messages of a run."""
        told = self.webserver.ask(RUN, run=run)
        messages = [event.get("message", "") for event in told["logsForRun"]["events"]]
        return told["runOrError"]["status"], told["runOrError"]["assetMaterializations"], messages

    def wait(self, met: Callable[[], bool], seconds: float = RUN_SECONDS) -> None:
        wait_until(met, seconds, self.root / "webserver.log")

    def end(self, run: str) -> tuple[str, list[dict[str, Any]], list[str]]:
        self.wait(lambda: self.inspection(run)[0] in ("SUCCESS", "FAILURE", "CANCELED"))
        return self.inspection(run)


@pytest.fixture(scope="module")
def runs(write_project, tmp_path_factory) -> Iterator[Runs]:
    """A project with events in its landing folder, served, with the engine that its first run starts."""
    root = write_project(tmp_path_factory.mktemp("served"), slow=SLOW)
    landing = root / "landing" / "touch_event"
    landing.mkdir(parents=True)
    touches = [(f"c{n % 500}", f"e{n}", f"2026-11-01T10:{n % 60:02d}:00Z") for n in range(5000)]
    (landing / "1.json").write_text(
        "".join(
            json.dumps({"customer_id": customer, "event_id": event, "event_ts": at}) + "\n"
            for customer, event, at in touches
        )
    )
    with served(root) as webserver:
        yield Runs(root, webserver)
    EngineClient.connect(read_settings(root, {}), start=False).stop()


@pytest.mark.spark
def test_materialize_refreshes_the_tables_in_order_and_shows_what_came_of_it(runs):
    status, materializations, messages = runs.end(runs.launch("first_touch", "touch_event"))

    assert status == "SUCCESS", "\n".join(messages)
    shown = {
        event["assetKey"]["path"][0]: {
            entry["label"]: entry.get("intValue", entry.get("text")) for entry in event["metadataEntries"]
        }
        for event in materializations
    }
    assert list(shown) == ["touch_event", "first_touch"]
    assert (shown["touch_event"]["strategy"], shown["touch_event"]["dagster/row_count"]) == ("append", 5000)
    assert (shown["first_touch"]["rows_in"], shown["first_touch"]["dagster/row_count"]) == (5000, 500)
    assert shown["first_touch"]["mode"] == "continuous"
    assert shown["first_touch"]["reason"]
    version = {"key": "dagster/data_version", "value": str(shown["first_touch"]["version"])}
    assert version in materializations[1]["tags"]
    assert any(message.startswith("first_touch: ") for message in messages)


@pytest.mark.spark
def test_a_cancelled_run_takes_its_refresh_back_and_leaves_the_table_as_it_was(runs):
    assert runs.end(runs.launch("touch_event"))[0] == "SUCCESS"
    run = runs.launch("slow")
    runs.wait(lambda: any(message.startswith("slow: ") for message in runs.inspection(run)[2]))

    runs.webserver.ask(TERMINATE, run=run)

    assert runs.end(run)[0] == "CANCELED"
    engine = EngineClient.connect(read_settings(runs.root, {}), start=False)

    def slow() -> dict[str, Any]:
        [status] = [status for status in engine.status() if status["table"] == "slow"]
        return status

    runs.wait(lambda: slow()["state"] != "RUNNING", 20)
    assert slow()["state"] == "CANCELLED"
    assert slow()["rows"] in (None, 0)
