"""A part of a project under keys and groups of its own: it loads, ticks and materializes under these."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    AssetsDefinition,
    AssetSelection,
    DagsterInstance,
    Definitions,
    asset,
    build_sensor_context,
    materialize,
)
from deltalake import write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.dagster import (
    FreshlineProject,
    FreshlineTable,
    FreshlineTranslator,
    asset_key_for,
    build_asset_selection,
    build_assets,
    build_checks,
    build_definitions,
    build_sensors,
)
from freshline.engine.client import EngineClient
from freshline.errors import DeclarationError, SettingsError
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from tests.dagster.test_materialize import DONE, Engine, outcome

FILES = {
    "raw/orders.sql": "CREATE SOURCE raw.orders (order_id STRING, amount DECIMAL(10,2), PRIMARY KEY (order_id)) "
    "WITH ('connector' = 'files', 'format' = 'csv', 'path' = 'landing/orders')",
    "sales/revenue.sql": "CREATE MATERIALIZED TABLE sales.revenue FRESHNESS = INTERVAL '10' SECOND "
    "AS SELECT count(*) AS orders, sum(amount) AS total FROM raw.orders",
    "sales/daily.sql": "CREATE MATERIALIZED TABLE sales.daily FRESHNESS = INTERVAL '6' HOUR "
    "AS SELECT orders FROM sales.revenue",
}
REVENUE = AssetKey(["lake", "sales", "revenue"])
DAILY = AssetKey(["lake", "sales", "daily"])


class Lake(FreshlineTranslator):
    """All below one prefix, in one group a layer."""

    def get_asset_key(self, table: FreshlineTable) -> AssetKey:
        return super().get_asset_key(table).with_prefix("lake")

    def get_group_name(self, table: FreshlineTable) -> str:
        return f"layer_{table.namespace}"

    def get_tags(self, table: FreshlineTable) -> dict[str, str]:
        return {**super().get_tags(table), "team": "finance"}

    def get_owners(self, table: FreshlineTable) -> list[str]:
        return ["team:finance"]

    def get_kinds(self, table: FreshlineTable) -> set[str]:
        return {"gold"}

    def get_description(self, table: FreshlineTable) -> str:
        return f"{table} reads {', '.join(table.reads)}"

    def get_metadata(self, table: FreshlineTable) -> dict[str, object]:
        return {"mode": "as the lake says", "cost_center": 7}


@pytest.fixture
def project(tmp_path: Path) -> FreshlineProject:
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    for name, text in FILES.items():
        file = tmp_path / "assets" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return FreshlineProject(tmp_path)


@pytest.fixture
def engine(monkeypatch) -> Engine:
    """A stand-in that answers in place of the project's engine."""
    answers = Engine(outcome(table="sales.revenue", kind="table", data_timestamp=None), DONE)
    monkeypatch.setattr(EngineClient, "connect", lambda *given, **options: answers)
    return answers


def test_a_selected_asset_is_materialized_under_its_translated_key(project, engine):
    warehouse = Warehouse(project.settings.warehouse)
    write_deltalake(str(warehouse.path(TableName.parse("sales.revenue"))), pa.table({"orders": [1], "total": [2]}))
    made = build_assets(project, select="sales.revenue", translator=Lake())

    result = materialize(made)

    [event] = result.get_asset_materialization_events()
    assert result.success
    assert event.asset_key == REVENUE
    assert event.materialization.metadata["dagster/row_count"].value == 1
    [(kind, asked)] = engine.asked
    # The request has an id of its own, by which it goes on with another engine.
    assert asked.pop("id")
    assert (kind, asked) == ("refresh", {"tables": ["sales.revenue"], "upstreams": False, "cause": "manual"})


def test_each_fact_of_an_asset_is_the_translators(project):
    [made] = build_assets(project, select="sales.revenue", translator=Lake())

    assert isinstance(made, AssetsDefinition)
    [spec] = made.specs
    assert spec.key == REVENUE
    assert [dep.asset_key for dep in spec.deps] == [AssetKey(["lake", "raw", "orders"])]
    assert spec.group_name == "layer_sales"
    assert spec.owners == ["team:finance"]
    assert spec.kinds == {"gold"}
    assert spec.tags["team"] == "finance"
    assert spec.tags["freshline/mode"] == "continuous"
    assert spec.description == "sales.revenue reads raw.orders"
    assert spec.metadata["declaration"].value.startswith("```sql\nCREATE MATERIALIZED TABLE")
    assert (spec.metadata["mode"], spec.metadata["cost_center"]) == ("as the lake says", 7)
    [origin] = spec.metadata["dagster/column_lineage"].deps_by_column["total"]
    assert origin.asset_key == AssetKey(["lake", "raw", "orders"])


def test_the_definitions_of_a_selection_load_with_its_checks_and_sensors(project):
    loaded = build_definitions(project, select="sales.*", exclude="sales.daily", translator=Lake())

    Definitions.validate_loadable(loaded)
    graph = loaded.resolve_asset_graph()
    assert graph.executable_asset_keys == {REVENUE}
    assert {key.asset_key for key in graph.asset_check_keys} == {REVENUE}
    assert loaded.sensors is not None
    assert {sensor.name for sensor in loaded.sensors} == {
        "freshline_supervisor",
        "freshline_batch",
        "freshline_verify",
        "freshline_janitor",
    }


def test_checks_and_sensors_can_be_left_out(project):
    loaded = build_definitions(project, checks=False, sensors=False)

    assert not loaded.asset_checks
    assert not loaded.sensors
    assert len(loaded.resolve_asset_graph().executable_asset_keys) == 3


def test_two_selections_of_one_project_make_one_graph(project):
    lake = Lake()
    loaded = Definitions(
        assets=[
            *build_assets(project, select="sales.*", translator=lake),
            *build_assets(project, select="raw.*", translator=lake),
        ],
        asset_checks=[
            *build_checks(project, select="sales.*", name="sales_checks", translator=lake),
            *build_checks(project, select="raw.*", name="raw_checks", translator=lake),
        ],
        sensors=build_sensors(project, translator=lake),
    )

    Definitions.validate_loadable(loaded)
    assert loaded.resolve_asset_graph().get(REVENUE).parent_keys == {AssetKey(["lake", "raw", "orders"])}


@pytest.mark.seconds
def test_sensors_request_and_report_only_what_is_selected(project):
    settings, now = project.settings, datetime.now(UTC)
    control = ControlStore.open(settings.control_store)
    for name in ("raw.orders", "sales.revenue"):
        path = Warehouse(settings.warehouse).path(TableName.parse(name))
        write_deltalake(str(path), pa.table({"orders": [1], "total": [2]}))
        control.record_check(TableName.parse(name), now, "{}")
        control.record_refresh(
            RefreshResult(
                table=TableName.parse(name), at=now, state=State.SUCCEEDED, strategy="append", reason="2 new files",
                seconds=0.5, version=0, fingerprint="f", committed=True,
            )
        )  # fmt: skip
    control.close()
    sensors = {sensor.name: sensor for sensor in build_sensors(project, select="sales.daily", translator=Lake())}
    others = {sensor.name: sensor for sensor in build_sensors(project, exclude="sales.daily", translator=Lake())}

    def tick(sensor):
        with DagsterInstance.local_temp(overrides={"telemetry": {"enabled": False}}) as instance:
            loaded = build_definitions(project, translator=Lake())
            return sensor(build_sensor_context(instance=instance, repository_def=loaded.get_repository_def()))

    requested = tick(sensors["freshline_batch"]).run_requests
    assert [list(request.asset_selection) for request in requested] == [[DAILY]]
    assert tick(others["freshline_batch"]).run_requests == []
    reported = {event.asset_key for event in tick(others["freshline_supervisor"]).asset_events}
    assert REVENUE in reported
    assert DAILY not in reported
    assert REVENUE not in {event.asset_key for event in tick(sensors["freshline_supervisor"]).asset_events}


def test_keys_for_assets_of_ones_own_are_those_of_the_tables(project):
    assert asset_key_for("sales.revenue") == AssetKey(["sales", "revenue"])
    assert asset_key_for("SALES.Revenue", project) == AssetKey(["sales", "revenue"])
    assert asset_key_for("sales.revenue", project, Lake()) == REVENUE
    with pytest.raises(SettingsError, match="there is no table or source sales.revnue. Did you mean sales.revenue?"):
        asset_key_for("sales.revnue", project)
    with pytest.raises(SettingsError, match="a translator needs the project"):
        asset_key_for("sales.revenue", translator=Lake())

    @asset(deps=[asset_key_for("sales.revenue", project, Lake())])
    def board() -> None: ...

    loaded = Definitions.merge(build_definitions(project, translator=Lake()), Definitions(assets=[board]))
    assert loaded.resolve_asset_graph().get(AssetKey("board")).parent_keys == {REVENUE}


def test_a_selection_for_jobs_has_what_can_be_materialized(project):
    chosen = build_asset_selection(project, "+sales.revenue", translator=Lake())

    assert isinstance(chosen, AssetSelection)
    graph = build_definitions(project, translator=Lake()).resolve_asset_graph()
    assert chosen.resolve(graph) == {REVENUE, AssetKey(["lake", "raw", "orders"])}


def test_two_tables_under_one_key_are_refused_with_the_place(project):
    class Flat(FreshlineTranslator):
        def get_asset_key(self, table: FreshlineTable) -> AssetKey:
            return AssetKey("all")

    with pytest.raises(DeclarationError, match=r"assets/sales/revenue.sql:1: the translator gives raw.orders and"):
        build_assets(project, translator=Flat())


def test_the_environment_is_that_of_the_project(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n[tool.freshline.environments.production]\n")
    (tmp_path / "assets").mkdir()

    assert FreshlineProject(tmp_path, environment="production").settings.environment == "production"
    assert FreshlineProject(str(tmp_path)).settings.environment == "local"


def test_the_version_that_the_engine_reported_is_stored_under_the_translated_key(project, engine):
    with DagsterInstance.ephemeral() as instance:
        write_deltalake(
            str(Warehouse(project.settings.warehouse).path(TableName.parse("sales.revenue"))),
            pa.table({"orders": [1], "total": [2]}),
        )
        materialize(build_assets(project, select="sales.revenue", translator=Lake()), instance=instance)

        event = instance.get_latest_materialization_event(REVENUE)
        assert event is not None
        assert isinstance(event.asset_materialization, AssetMaterialization)
        assert instance.get_latest_materialization_event(AssetKey(["sales", "revenue"])) is None
