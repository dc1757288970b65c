"""The lineage events of a refresh are valid, and say where each column comes from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import pyarrow
import pytest

from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations, read_project, read_settings
from freshline.errors import RefreshError
from freshline.report.telemetry.lineage import EventFile, LineageEvents
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State, TableKind
from freshline.values.settings import Settings
from tests.report.metrics.figures import HOSTILE
from tests.report.telemetry.openlineage_schema import check_event

ROOT = Path(__file__).parents[3]
AT = datetime(2026, 11, 1, 12, tzinfo=UTC)

ORDERS = """
CREATE SOURCE orders (id BIGINT, amount DECIMAL(10, 2), PRIMARY KEY (id))
WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing')
"""
CLICKS = """
CREATE SOURCE clicks (id BIGINT, page STRING)
WITH ('connector' = 'kafka', 'format' = 'json', 'topic' = 'clicks', 'bootstrap.servers' = 'broker:9092,other:9092')
"""
SPENT = """
CREATE MATERIALIZED TABLE spent (PRIMARY KEY (id)) COMMENT 'Money and pages' FRESHNESS = INTERVAL '10' SECOND
WITH ('owner' = 'data@example.com')
AS SELECT o.id, o.amount * 2 AS twice, c.page FROM orders o JOIN clicks c ON o.id = c.id
"""


@pytest.fixture
def graph(settings: Settings) -> Graph:
    return read_declarations({"orders.sql": ORDERS, "clicks.sql": CLICKS, "spent.sql": SPENT}, settings)


@pytest.fixture
def made(settings: Settings) -> LineageEvents:
    return LineageEvents(Warehouse(settings.warehouse), "freshline", "4.2.0")


def result_of(name: str, **changes: Any) -> RefreshResult:
    found = RefreshResult(
        table=TableName.parse(name), at=AT, state=State.SUCCEEDED, reason="NEW_ROWS: 3", strategy="append", version=4,
        committed=True, rows_in=3, rows_out=2, seconds=1.5, mode="continuous", cause="live", lag_seconds=0.5,
    )  # fmt: skip
    return replace(found, **changes)


def events(made: LineageEvents, graph: Graph, result: RefreshResult) -> list[dict[str, Any]]:
    return [check_event(line) for line in made.events(graph, result)]


def test_a_refresh_is_a_run_that_starts_and_completes(made, graph, settings):
    deltalake.write_deltalake(
        str(settings.warehouse / "spent"), pyarrow.table({"id": [1], "twice": [2.0], "page": ["a"]})
    )

    start, complete = events(made, graph, result_of("spent"))

    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert complete["eventTime"] == AT.isoformat()
    assert start["eventTime"] == "2026-11-01T11:59:58.500000+00:00"
    assert (complete["job"]["namespace"], complete["job"]["name"]) == ("freshline", "spent")
    facets = complete["job"]["facets"]
    assert facets["documentation"]["description"] == "Money and pages"
    assert facets["ownership"]["owners"] == [{"name": "data@example.com"}]
    assert facets["sql"]["query"].strip().startswith("SELECT o.id")
    refreshed = complete["run"]["facets"]["freshline_refresh"]
    assert (refreshed["strategy"], refreshed["reason"], refreshed["rowsIn"]) == ("append", "NEW_ROWS: 3", 3)
    output = complete["outputs"][0]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert output["facets"]["version"]["datasetVersion"] == "4"
    assert [(each["name"], each["type"]) for each in output["facets"]["schema"]["fields"]] == [
        ("id", "BIGINT"),
        ("twice", "DOUBLE"),
        ("page", "STRING"),
    ]


def test_each_column_names_the_columns_that_it_is_computed_from(made, graph, settings):
    _, complete = events(made, graph, result_of("spent"))
    output = complete["outputs"][0]
    orders, clicks = (str(settings.warehouse / name) for name in ("orders", "clicks"))

    assert {each["name"] for each in complete["inputs"]} == {orders, clicks}
    assert (output["namespace"], output["name"]) == ("file", str(settings.warehouse / "spent"))
    assert output["facets"]["symlinks"]["identifiers"] == [{"name": "spent", "namespace": "freshline", "type": "TABLE"}]
    fields = output["facets"]["columnLineage"]["fields"]
    assert {
        column: [(each["name"], each["field"]) for each in found["inputFields"]] for column, found in fields.items()
    } == {"id": [(orders, "id")], "twice": [(orders, "amount")], "page": [(clicks, "page")]}


@pytest.mark.parametrize(("name", "namespace"), [("clicks", "kafka://broker:9092"), ("orders", "file")])
def test_a_log_table_reads_what_is_outside(made, graph, settings, name, namespace):
    _, complete = events(made, graph, result_of(name, kind=TableKind.LOG))

    assert [(each["namespace"], Path(each["name"]).name) for each in complete["inputs"]] == [
        (namespace, "clicks" if name == "clicks" else "landing")
    ]


def test_a_failure_has_its_message_and_a_cancelled_refresh_is_aborted(made, graph):
    error = RefreshError("the disk is full")
    _, failed = events(
        made, graph, result_of("spent", state=State.FAILED, reason="REFRESH: the disk is full", error=error)
    )
    _, cancelled = events(made, graph, result_of("spent", state=State.CANCELLED, committed=False))

    assert failed["eventType"] == "FAIL"
    assert failed["run"]["facets"]["errorMessage"]["message"] == "REFRESH: the disk is full"
    assert cancelled["eventType"] == "ABORT"


def test_a_check_that_found_nothing_and_a_decision_are_no_runs(made, graph):
    assert made.events(graph, result_of("spent", strategy="noop", committed=False)) == []
    assert made.events(graph, result_of("spent", state=State.SUSPENDED)) == []
    assert made.events(graph, result_of("gone")) == []


def test_the_same_refresh_has_the_same_id_each_time_it_is_sent(made, graph):
    once, again = (made.events(graph, result_of("spent")) for _ in range(2))

    assert once == again
    assert events(made, graph, result_of("spent", seconds=2.0))[0]["run"] != json.loads(once[0])["run"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_are_texts(made, graph, text):
    for line in made.events(graph, result_of("spent", reason=text, mode=text or None, partitions=(text,))):
        assert "\n" not in line
        assert check_event(line)["run"]["facets"]["freshline_refresh"]["reason"] == text


def test_events_of_all_tables_of_the_reference_deployment_are_valid():
    project = read_settings(ROOT, {})
    graph = read_project(project)
    made = LineageEvents(Warehouse(project.warehouse), "freshline", "4.2.0")
    found = {str(name): events(made, graph, result_of(str(name)))[1] for name in graph.order}

    traced = [name for name, event in found.items() if "columnLineage" in event["outputs"][0]["facets"]]
    assert {str(spec.name) for spec in graph.tables if spec.columns is not None} >= set(traced)
    assert len(traced) >= len(graph.tables) // 2


def test_a_file_grows_to_its_bound_and_keeps_one_before(tmp_path):
    path = tmp_path / "lineage" / "events.jsonl"
    file = EventFile(path, 100)
    for number in range(10):
        file.append(["x" * 50, str(number)])

    assert path.stat().st_size < 200
    assert path.with_name("events.jsonl.1").exists()
    assert path.read_text().split("\n")[-2] == "9"
