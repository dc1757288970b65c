"""Time partitions in Dagster: the same keys, one run for a range, a bar that is true whatever becomes of the run."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetKey,
    AssetSpec,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    Definitions,
    Failure,
    TimeWindowPartitionsDefinition,
    materialize,
)
from dagster._core.definitions.partitions.context import partition_loading_context
from dagster._core.errors import DagsterInvalidInvocationError, DagsterUnknownPartitionError
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from freshline.commit.warehouse import Warehouse
from freshline.dagster.asset import asset_spec
from freshline.dagster.executable import executable_asset
from freshline.dagster.keys import AssetKeys
from freshline.dagster.materialize import Materialization, wait_for_steps
from freshline.dagster.partitions import backfill_of, partition_event, partitions_definition, read_partitioned
from freshline.dagster.translator import FreshlineTranslator
from freshline.declare.graph import Graph
from freshline.declare.project import read_project
from freshline.declare.project_settings import read_settings
from freshline.errors import EngineError
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import Mode, TableSpec
from freshline.values.time_partition import PartitionUnit, TimePartitions
from tests.dagster.test_materialize import DONE, Engine, failure_of

RANGE = {"dagster/asset_partition_range_start": "2026-02-27", "dagster/asset_partition_range_end": "2026-03-01"}
KEYS = ["2026-02-27", "2026-02-28", "2026-03-01"]


def outcome(key: str, **changes: Any) -> dict[str, Any]:
    values = {
        "table": "daily", "kind": "table", "state": "SUCCEEDED", "mode": "batch", "strategy": "partition",
        "reason": "REQUESTED", "version": 0, "rows_in": 0, "rows_out": 7, "rejected": 0, "seconds": 0.5,
        "data_timestamp": None, "error": None, "problems": [], "partition": key, "partitions": [key],
    }  # fmt: skip
    return {"type": "outcome", "outcome": {**values, **changes}}


def planned(*keys: str) -> dict[str, Any]:
    chunks = [{"table": "daily", "partition": key, "action": "replace", "why": "it is named"} for key in keys]
    return {"type": "plan", "id": "x", "chunks": chunks}


def ended(failed: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"type": "backfill", "done": [], "failed": failed or [], "left": [], "stale": []}


def spec_of(graph: Graph, name: TableName, project: Settings) -> AssetSpec:
    return asset_spec(graph, name, project, AssetKeys.of(graph), FreshlineTranslator())


def task_of(graph: Graph, spec: TableSpec, project: Settings) -> Materialization:
    keys = AssetKeys.of(graph)
    behind = {read: keys[read] for read in read_partitioned(graph, spec.name)}
    place = graph.order.index(spec.name)
    return Materialization(spec, keys[spec.name], Warehouse(project.warehouse), None, behind, place)


@pytest.fixture
def graph(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "s.sql").write_text(
        "CREATE SOURCE s (ds DATE, n INT) WITH ('connector' = 'delta', 'path' = 'landing/s')"
    )
    for name, zone, read in (("daily", "UTC", "s"), ("paris", "Europe/Paris", "daily")):
        (tmp_path / "assets" / f"{name}.sql").write_text(
            f"CREATE MATERIALIZED TABLE {name} PARTITIONED BY (ds) WITH ('partition.unit' = 'day', "
            f"'partition.start' = '2026-01-01', 'partition.time-zone' = '{zone}') "
            f"FRESHNESS = INTERVAL '6' HOUR AS SELECT ds, n FROM {read}"
        )
    return read_project(read_settings(tmp_path, {}), {})


@pytest.fixture
def asset(graph, tmp_path):
    project = read_settings(tmp_path, {})
    spec = next(table for table in graph.tables if table.name.name == "daily")
    path = Warehouse(project.warehouse).path(spec.name)
    write_deltalake(str(path), pa.table({"ds": [date(2026, 2, 27)], "n": [1]}), partition_by=["ds"])

    def of(engine: Any):
        connect = engine if callable(engine) else lambda progress: engine
        shown = spec_of(graph, spec.name, project)
        return executable_asset(shown, task_of(graph, spec, project), connect)

    return of


def bar(instance: DagsterInstance) -> set[str]:
    return instance.get_materialized_partitions(AssetKey("daily"))


@hypothesis_settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(list(PartitionUnit)),
    st.sampled_from(["UTC", "Europe/Paris", "America/Sao_Paulo", "America/New_York", "Asia/Kolkata", "Africa/Cairo"]),
    st.integers(0, 3000),
)
def test_dagster_has_the_same_partitions_with_the_same_keys(graph_of_one, unit, zone, offset):
    starts = {
        PartitionUnit.HOUR: "2016-01-01-00:00",
        PartitionUnit.DAY: "2016-01-01",
        PartitionUnit.WEEK: "2016-01-04",
        PartitionUnit.MONTH: "2016-01-01",
    }
    partitions = TimePartitions(unit, starts[unit], zone)
    begin = partitions.at(datetime.fromtimestamp(1_451_700_000 + offset * 86_400, UTC))
    partitions = replace(partitions, start=begin.key)
    later = {PartitionUnit.HOUR: 3, PartitionUnit.DAY: 40, PartitionUnit.WEEK: 90, PartitionUnit.MONTH: 400}[unit]
    now = begin.start + timedelta(days=later)
    definition = partitions_definition(*graph_of_one(partitions))
    assert isinstance(definition, TimeWindowPartitionsDefinition)

    with partition_loading_context(effective_dt=now):
        keys = definition.get_partition_keys()
        windows = [definition.time_window_for_partition_key(key) for key in (keys[0], keys[-1])]

    ours = partitions.begun(now)
    # At the very moment of a bound Dagster counts the open partition one earlier.
    assert keys == [item.key for item in ours][: len(keys)]
    assert len(ours) - len(keys) in (0, 1) if ours[-1].start == now else len(ours) == len(keys)
    for window, item in zip(windows, (ours[0], ours[len(keys) - 1]), strict=True):
        assert (window.start.timestamp(), window.end.timestamp()) == (item.start.timestamp(), item.end.timestamp())


@pytest.fixture(scope="module")
def graph_of_one(tmp_path_factory):
    """A graph of a table with other partitions each time, and that table."""
    root = tmp_path_factory.mktemp("one")
    (root / "pyproject.toml").write_text("[tool.freshline]\n")
    (root / "assets").mkdir()
    (root / "assets" / "s.sql").write_text(
        "CREATE SOURCE s (ds DATE, n INT) WITH ('connector' = 'delta', 'path' = 'landing/s')"
    )
    (root / "assets" / "t.sql").write_text("CREATE MATERIALIZED TABLE t PARTITIONED BY (ds) AS SELECT ds, n FROM s")
    graph = read_project(read_settings(root, {}), {})
    (table,) = graph.tables

    def of(partitions: TimePartitions):
        return graph, replace(table, time_partitions=partitions)

    return of


def test_the_open_partition_is_offered_where_a_refresh_brings_it_in(graph):
    table = graph.tables[0]
    now = datetime(2026, 1, 3, 12, tzinfo=UTC)

    def keys(seconds: int, mode: Mode) -> list[str]:
        other = replace(
            graph, freshnesses={**graph.freshnesses, table.name: Freshness(seconds)}, modes={table.name: (mode, "")}
        )
        definition = partitions_definition(other, table)
        assert definition is not None
        with partition_loading_context(effective_dt=now):
            return list(definition.get_partition_keys())

    assert keys(3600, Mode.BATCH)[-1] == "2026-01-03"
    assert keys(86_400, Mode.BATCH)[-1] == "2026-01-02"
    assert keys(86_400, Mode.INCREMENTAL)[-1] == "2026-01-03"


def test_a_range_is_one_request_and_each_partition_is_reported_when_it_is_done(asset):
    engine = Engine(planned(*KEYS), *[outcome(key) for key in KEYS], ended(), DONE)

    with DagsterInstance.ephemeral() as instance:
        result = materialize([asset(engine)], instance=instance, tags=RANGE, raise_on_error=False)
        assert bar(instance) == set(KEYS)

    assert result.success
    ((kind, asked),) = engine.asked
    assert (kind, asked["tables"], asked["ranges"]) == ("backfill", ["daily"], [[None, KEYS[0], KEYS[-1]]])
    assert (asked["again"], asked["resume"], asked["cause"], asked["id"]) == (True, False, "backfill", result.run_id)
    events = [event.materialization for event in result.get_asset_materialization_events()]
    assert {event.metadata["dagster/partition_row_count"].value for event in events} == {7}


def test_a_single_partition_is_a_manual_request_for_that_one(asset):
    engine = Engine(planned(KEYS[0]), outcome(KEYS[0]), ended(), DONE)

    with DagsterInstance.ephemeral() as instance:
        result = materialize([asset(engine)], instance=instance, partition_key=KEYS[0])
        assert bar(instance) == {KEYS[0]}

    assert engine.asked[0][1]["ranges"] == [[None, KEYS[0], KEYS[0]]]
    assert engine.asked[0][1]["cause"] == "manual"
    assert len(result.get_asset_materialization_events()) == 1


def test_a_run_that_fails_in_the_middle_leaves_what_is_done_and_the_next_goes_on(asset):
    error = {"code": "SOURCE", "message": "its history is gone", "where": "daily", "retry_helps": False}
    failed = outcome(KEYS[1], state="FAILED", error=error)
    engine = Engine(
        planned(*KEYS),
        outcome(KEYS[0]),
        failed,
        outcome(KEYS[2]),
        ended([{"table": "daily", "partition": KEYS[1], "error": error}]),
        {"type": "done", "state": "FAILED", "error": None},
    )

    with DagsterInstance.ephemeral() as instance:
        first = materialize([asset(engine)], instance=instance, tags=RANGE, raise_on_error=False)
        assert bar(instance) == {KEYS[0], KEYS[2]}
        assert "1 partitions failed (2026-02-28). The first: its history is gone" in str(failure_of(first).description)
        run = instance.get_run_by_id(first.run_id)
        assert run is not None
        assert run.tags["freshline/backfill"] == first.run_id


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (DagsterRunStatus.FAILURE, "first"),
        (DagsterRunStatus.CANCELED, "first"),
        # Who executes a run again that succeeded wants all of it again.
        (DagsterRunStatus.SUCCESS, None),
    ],
)
def test_a_run_that_is_tried_again_goes_on_with_the_backfill_of_the_one_that_failed(status, expected):
    with DagsterInstance.ephemeral() as instance:
        before = DagsterRun("job", status=status, tags={"freshline/backfill": "first"})
        instance.add_run(before)
        third = DagsterRun("job", parent_run_id=before.run_id, root_run_id=before.run_id)

        assert backfill_of(third, instance) == (expected or third.run_id, expected is not None)
        alone = DagsterRun("job")
        assert backfill_of(alone, instance) == (alone.run_id, False)


def test_a_killed_engine_is_asked_again_for_the_same_backfill(asset):
    first = Engine(planned(*KEYS), outcome(KEYS[0]), EngineError("the engine ended before it had answered."))
    second = Engine(planned(*KEYS), outcome(KEYS[1]), outcome(KEYS[2]), ended(), DONE)
    engines = [first, second]

    with DagsterInstance.ephemeral() as instance:
        result = materialize(
            [asset(lambda progress: engines.pop(0))], instance=instance, tags=RANGE, raise_on_error=False
        )
        assert bar(instance) == set(KEYS)

    assert result.success
    assert second.asked[0][1]["id"] == first.asked[0][1]["id"]
    assert (first.asked[0][1]["resume"], second.asked[0][1]["resume"]) == (False, True)


def test_partitions_that_the_engine_brought_in_by_itself_are_reported_one_by_one(asset):
    told = outcome("2026-02-01", partitions=["2026-02-01", "2026-02-02"])

    with DagsterInstance.ephemeral() as instance:
        materialize([asset(Engine(told, DONE))], instance=instance)
        assert bar(instance) == {"2026-02-01", "2026-02-02"}


def test_a_partition_that_the_sensor_reported_while_the_run_waited_is_not_reported_again(asset):
    told = outcome("2026-02-01", partitions=["2026-02-01", "2026-02-02"])

    class Waiting(Engine):
        def run(self, kind, **arguments):
            instance.report_runless_asset_event(partition_event(AssetKey("daily"), "2026-02-01", {}, 1))
            return super().run(kind, **arguments)

    with DagsterInstance.ephemeral() as instance:
        # Before the run, and therefore of an older version.
        instance.report_runless_asset_event(partition_event(AssetKey("daily"), "2026-02-02", {}, 0))
        result = materialize([asset(Waiting(told, DONE))], instance=instance)

    events = result.asset_materializations_for_node("daily")
    assert [event.partition for event in events if event.partition is not None] == ["2026-02-02"]


def test_a_scheduled_run_of_partitioned_tables_that_read_each_other_needs_no_partitions(graph, asset, tmp_path):
    project = read_settings(tmp_path, {})
    paris = graph.tables[1]
    asked = task_of(graph, paris, project)
    events = (outcome("2026-02-01"), outcome("2026-02-01", table="paris", version=None), DONE)
    daily_engine, paris_engine = Engine(*events, *events), Engine(*events, *events)
    below = executable_asset(
        spec_of(graph, paris.name, project),
        asked,
        lambda progress: paris_engine,
    )

    job = Definitions(assets=[asset(daily_engine), below]).resolve_implicit_global_asset_job_def()
    with DagsterInstance.ephemeral() as instance:
        for _ in range(2):
            assert job.execute_in_process(instance=instance, raise_on_error=False).success

    assert [given["tables"] for _, given in paris_engine.asked] == [["daily", "paris"]] * 2


@pytest.fixture
def two(tmp_path):
    """`z` and `a`, which reads it, by day; assets of both that ask one engine, and note in which order."""
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "s.sql").write_text(
        "CREATE SOURCE s (ds DATE, n INT) WITH ('connector' = 'delta', 'path' = 'landing/s')"
    )
    for name, read in (("z", "s"), ("a", "z")):
        (tmp_path / "assets" / f"{name}.sql").write_text(
            f"CREATE MATERIALIZED TABLE {name} PARTITIONED BY (ds) WITH ('partition.unit' = 'day', "
            f"'partition.start' = '2026-01-01') FRESHNESS = INTERVAL '6' HOUR AS SELECT ds, n FROM {read}"
        )
    project = read_settings(tmp_path, {})
    graph = read_project(project, {})
    warehouse = Warehouse(project.warehouse)
    asked: list[str] = []

    class Noting(Engine):
        def run(self, kind, **arguments):
            asked.extend(arguments["tables"])
            return super().run(kind, **arguments)

    def asset_of(name: str, events: list[Any]):
        spec = graph.table(TableName.parse(name))
        write_deltalake(str(warehouse.path(spec.name)), pa.table({"ds": [date(2026, 2, 27)], "n": [1]}))
        engine: Any = Noting(*events)  # it stands for the client of an engine
        return executable_asset(
            spec_of(graph, spec.name, project), task_of(graph, spec, project), lambda progress: engine
        )

    def assets(**events: list[Any]):
        return [asset_of(name, events[name]) for name in ("a", "z")]

    return assets, asked


def done(table: str) -> list[Any]:
    return [planned(*KEYS), *[outcome(key, table=table) for key in KEYS], ended(), DONE]


def test_of_two_tables_in_a_range_the_one_that_is_read_comes_first(two):
    assets, asked = two

    with DagsterInstance.ephemeral() as instance:
        result = materialize(assets(a=done("a"), z=done("z")), instance=instance, tags=RANGE, raise_on_error=False)

    assert result.success
    assert asked == ["z", "a"]


def test_a_table_is_not_done_over_one_that_failed_in_the_same_run(two):
    assets, asked = two
    error = {"code": "SOURCE", "message": "its history is gone", "where": "z", "retry_helps": False}
    failed = [planned(*KEYS), {"type": "done", "state": "FAILED", "error": error}]

    with DagsterInstance.ephemeral() as instance:
        result = materialize(assets(a=done("a"), z=failed), instance=instance, tags=RANGE, raise_on_error=False)

    assert not result.success
    assert asked == ["z"]
    said = [str(event.step_failure_data.error) for event in result.all_events if event.is_step_failure]
    assert any("z, which it reads, was not done" in text for text in said), said


def test_a_step_that_never_begins_because_another_failed_is_not_waited_for():
    def event(step: str, kind: DagsterEventType) -> Any:
        return SimpleNamespace(event_log_entry=SimpleNamespace(dagster_event=SimpleNamespace(
            step_key=step, event_type=kind)))  # fmt: skip

    records = [event("source", DagsterEventType.STEP_START), event("source", DagsterEventType.STEP_FAILURE)]
    context: Any = SimpleNamespace(
        run=SimpleNamespace(run_id="r", step_keys_to_execute=["source", "z", "a"]),
        instance=SimpleNamespace(get_records_for_run=lambda run, of_type: SimpleNamespace(records=records)),
    )

    with pytest.raises(Failure, match="z, which it reads, was not done"):
        wait_for_steps([TableName.parse("z")], context)


def test_tables_of_other_time_zones_load_beside_each_other(graph, tmp_path):
    project = read_settings(tmp_path, {})
    paris = spec_of(graph, graph.tables[1].name, project)

    (dep,) = paris.deps
    assert type(dep.partition_mapping).__name__ == "AllPartitionMapping"


COUNTRIES = ["de", "it's", "fr", "nl"]


@pytest.fixture
def countries(tmp_path):
    """The graph of a table with declared values, one with the same, one with others, and the first as an asset."""
    (tmp_path / "pyproject.toml").write_text("[tool.freshline]\n")
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "s.sql").write_text(
        "CREATE SOURCE s (c STRING, n INT) WITH ('connector' = 'delta', 'path' = 'landing/s')"
    )
    for name, values, read in (
        ("daily", "de, it''s, fr, nl", "s"),
        ("same", "de, it''s, fr, nl", "daily"),
        ("other", "de, fr", "daily"),
    ):
        (tmp_path / "assets" / f"{name}.sql").write_text(
            f"CREATE MATERIALIZED TABLE {name} PARTITIONED BY (c) WITH ('partition.values' = '{values}') "
            f"FRESHNESS = INTERVAL '6' HOUR AS SELECT c, n FROM {read}"
        )
    project = read_settings(tmp_path, {})
    graph = read_project(project, {})
    spec = graph.table(TableName.parse("daily"))
    write_deltalake(
        str(Warehouse(project.warehouse).path(spec.name)), pa.table({"c": ["de"], "n": [1]}), partition_by=["c"]
    )

    def asset(engine: Any):
        shown = spec_of(graph, spec.name, project)
        return executable_asset(
            shown,
            task_of(graph, spec, project),
            lambda progress: engine,
        )

    def deps(name: str) -> str:
        (dep,) = spec_of(graph, TableName.parse(name), project).deps
        return type(dep.partition_mapping).__name__

    return graph, asset, deps


def test_declared_values_are_partitions_in_their_order(countries):
    graph, _, deps = countries

    definition = partitions_definition(graph, graph.table(TableName.parse("daily")))

    assert definition is not None
    assert list(definition.get_partition_keys()) == COUNTRIES
    assert (deps("same"), deps("other")) == ("NoneType", "AllPartitionMapping")
    assert read_partitioned(graph, TableName.parse("other")) == (TableName.parse("daily"),)


def test_a_range_of_values_is_one_request_and_each_is_reported_when_it_is_done(countries):
    engine = Engine(planned(*COUNTRIES[1:3]), *[outcome(key) for key in COUNTRIES[1:3]], ended(), DONE)
    tags = {"dagster/asset_partition_range_start": COUNTRIES[1], "dagster/asset_partition_range_end": COUNTRIES[2]}

    with DagsterInstance.ephemeral() as instance:
        result = materialize([countries[1](engine)], instance=instance, tags=tags, raise_on_error=False)
        assert bar(instance) == set(COUNTRIES[1:3])

    assert result.success
    ((kind, asked),) = engine.asked
    assert (kind, asked["partitions"]) == ("backfill", [[["c", "it's"]], [["c", "fr"]]])
    assert (asked["again"], asked["resume"], asked["cause"], asked["id"]) == (True, False, "backfill", result.run_id)


@pytest.mark.seconds
def test_the_first_refresh_of_a_table_with_declared_values_fills_the_bar(countries):
    whole = outcome(COUNTRIES[0], partition=None, strategy="full", partitions=[])
    plan = {
        "type": "plan",
        "id": "x",
        "chunks": [{"table": "daily", "partition": None, "action": "refresh", "why": ""}],
    }

    with DagsterInstance.ephemeral() as instance:
        engine = Engine(plan, whole, ended(), DONE)
        assert materialize([countries[1](engine)], instance=instance, partition_key=COUNTRIES[2]).success
        assert bar(instance) == set(COUNTRIES)
        assert engine.asked[0][1]["cause"] == "manual"
    with DagsterInstance.ephemeral() as instance:
        for expected in (4, 0):
            result = materialize([countries[1](Engine(whole, DONE))], instance=instance)
            told = result.asset_materializations_for_node("daily")
            assert len([event for event in told if event.partition is not None]) == expected
        assert bar(instance) == set(COUNTRIES)


@pytest.mark.seconds
@pytest.mark.parametrize("key", ["xx", "DE", "de, it's", "../../etc", "it''s"])
def test_a_value_that_is_not_declared_is_an_error_before_the_engine_is_asked(countries, key):
    engine = Engine(DONE)
    with DagsterInstance.ephemeral() as instance:
        with pytest.raises(DagsterUnknownPartitionError, match=re.escape(key)):
            materialize([countries[1](engine)], instance=instance, partition_key=key)
        tags = {"dagster/asset_partition_range_start": "de", "dagster/asset_partition_range_end": key}
        with pytest.raises((DagsterInvalidInvocationError, DagsterUnknownPartitionError, ValueError)):
            materialize([countries[1](engine)], instance=instance, tags=tags)
    assert engine.asked == []


# A text that is no date is refused as the end of a range, too; of dates that are no partitions the engine refuses it.
NO_DATES = ["x'; DROP TABLE daily; --", 'a"b', "../../etc", "2026-02-30", "01.03.2026"]


@pytest.mark.seconds
@pytest.mark.parametrize("key", [*NO_DATES, "2025-12-31", "2999-01-01"])
def test_a_key_that_is_no_partition_is_an_error_before_the_engine_is_asked(asset, key):
    engine = Engine(DONE)
    with DagsterInstance.ephemeral() as instance:
        with pytest.raises(DagsterUnknownPartitionError, match=re.escape(key)):
            materialize([asset(engine)], instance=instance, partition_key=key)
        if key in NO_DATES:
            tags = {**RANGE, "dagster/asset_partition_range_end": key}
            with pytest.raises(ValueError, match=re.escape(key)):
                materialize([asset(engine)], instance=instance, tags=tags)
        assert bar(instance) == set()
    assert engine.asked == []


@pytest.mark.seconds
@pytest.mark.parametrize("tag", [*RANGE, "dagster/partition"])
def test_an_empty_key_is_not_a_request_for_the_whole_table(asset, tag):
    engine = Engine(DONE)
    tags = {**RANGE, tag: ""} if tag in RANGE else {tag: ""}

    with DagsterInstance.ephemeral() as instance, pytest.raises(ValueError, match="''"):
        materialize([asset(engine)], instance=instance, tags=tags)
    assert engine.asked == []
