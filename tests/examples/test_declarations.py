"""The declarations that are shipped can be read: the reference deployment and the example."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_project, read_settings
from freshline.sources.delta.connector import Delta
from freshline.sources.files.connector import Files
from freshline.values.connector import Connector
from freshline.values.names import TableName
from freshline.values.settings import Settings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "platform" / "examples"
FLIGHTS = EXAMPLES / "flights"


def settings_of(root: Path, state: Path) -> Settings:
    return replace(read_settings(root, {}), state=state)


@pytest.fixture
def reference(tmp_path: Path) -> Graph:
    return read_project(settings_of(ROOT, tmp_path), {})


@pytest.fixture
def flights(tmp_path: Path) -> Graph:
    return read_project(settings_of(FLIGHTS, tmp_path), {})


def test_the_reference_deployment_has_its_tables_in_their_modes(reference: Graph) -> None:
    modes = {str(spec.name): str(reference.mode(spec.name)) for spec in reference.tables}

    assert modes == {
        "customer": "continuous",
        "first_touch": "continuous",
        "enriched_orders": "incremental",
        "campaign": "batch",
        "customer_first_touch": "incremental",
        "campaign_revenue": "batch",
    }
    assert {str(spec.name) for spec in reference.sources} == {
        "customer_change",
        "touch_event",
        "sale_order",
        "campaign_load",
    }


def test_a_source_is_as_fresh_as_its_tightest_consumer(reference: Graph) -> None:
    seconds = {str(spec.name): reference.freshness(spec.name).seconds for spec in reference.sources}

    assert seconds == {"customer_change": 30, "touch_event": 10, "sale_order": 300, "campaign_load": 86_400}


def test_orders_carry_what_the_question_asks_for(reference: Graph) -> None:
    assert reference.columns(TableName.parse("enriched_orders")) == (
        "order_id",
        "customer_id",
        "total_amount",
        "order_ts",
        "order_date",
        "touch_ts",
        "campaign_id",
        "campaign_name",
        "channel",
        "seconds_from_first_touch",
        "dim_version",
    )


def test_the_example_is_a_project_of_its_own(flights: Graph) -> None:
    assert {str(spec.name) for spec in flights.tables} == {"plane", "departure", "airport_day"}
    assert not flights.consumers(TableName.parse("weather_record"))
    assert flights.freshness(TableName.parse("weather_record")).seconds == 86_400


def path_of(connection: Connector) -> str:
    assert isinstance(connection, Files | Delta), f"{connection.name} has no folder"
    return connection.path


@pytest.mark.parametrize(
    "root", [ROOT, FLIGHTS, *(EXAMPLES / name for name in ("alerting", "analytics", "enrichment", "etl"))]
)
def test_environments_share_no_landing_directory(root: Path, tmp_path: Path) -> None:
    settings = settings_of(root, tmp_path)
    local = read_project(settings, {})
    other = read_project(replace(settings, environment="trial"), {})

    def paths(graph: Graph) -> set[str]:
        return {path_of(spec.connection) for spec in graph.sources}

    assert all(path.startswith(str(root / ".freshline" / "local" / "landing")) for path in paths(local))
    assert not paths(local) & paths(other)
