"""Partitioned tables: the sensors request them as others, and make their bars true whoever did the partitions."""

from __future__ import annotations

import json
import logging
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    AssetMaterialization,
    DagsterEvent,
    DagsterEventType,
    DagsterRun,
    DagsterRunStatus,
    RunRequest,
    build_sensor_context,
)
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationPlanned
from deltalake import CommitProperties, write_deltalake

from freshline.commit.warehouse import Warehouse
from freshline.dagster import FreshlineProject, build_definitions
from freshline.dagster.checks import verify
from freshline.dagster.materialize import own_process
from freshline.dagster.sensors import batch_sensor, verification, verify_sensor
from freshline.dagster.sensors.verification import failed_partitions
from freshline.declare.project import read_project
from freshline.values.names import TableName
from freshline.values.partition import PartitionSpan
from freshline.values.receipt import Receipt
from tests.dagster.sensors.test_batch import requested, start
from tests.dagster.test_materialize import DONE, Engine

pytestmark = pytest.mark.seconds

FIRST = datetime(2026, 3, 1, tzinfo=UTC)
TABLE = (
    "CREATE MATERIALIZED TABLE {name} PARTITIONED BY (ds) WITH ('partition.unit' = '{unit}', "
    "'partition.start' = '2026-03-01{hour}') FRESHNESS = INTERVAL '{freshness} AS SELECT ds, n FROM {reads}"
)


@pytest.fixture
def shop(bench):
    """days, hours of the same source, and other, which reads days and has no partitions."""
    texts = {
        "raw": "CREATE SOURCE raw (ds TIMESTAMP, n INT) WITH ('connector' = 'delta', 'path' = 'raw')",
        "days": TABLE.format(name="days", unit="day", hour="", freshness="6' HOUR", reads="raw"),
        "hours": TABLE.format(name="hours", unit="hour", hour="-00:00", freshness="6' HOUR", reads="days"),
        "other": "CREATE MATERIALIZED TABLE other FRESHNESS = INTERVAL '6' HOUR AS SELECT n FROM hours",
    }
    for name, text in texts.items():
        (bench.settings.declarations / f"{name}.sql").write_text(text)
    bench.graph = read_project(bench.settings)
    bench.loaded = build_definitions(FreshlineProject(bench.settings.root))
    return bench


def hold(shop, name: str, *days: int, fingerprint: str | None = None) -> None:
    """A commit after which the table has these days."""
    spec = shop.graph.table(TableName.parse(name))
    own = spec.fingerprint if fingerprint is None else fingerprint
    spans = tuple(PartitionSpan(FIRST + timedelta(days=day), FIRST + timedelta(days=day + 1), own) for day in days)
    receipt = Receipt(
        table=spec.name, fingerprint=own, epoch=1, seq=1, mode="batch", strategy="partition", reason="REQUESTED",
        data_timestamp=None, rows_in=0, rows_out=1, attempt="a", positions={}, spans=spans,
    )  # fmt: skip
    write_deltalake(
        Warehouse(shop.settings.warehouse).path(spec.name), pa.table({"ds": [date(2026, 3, 1)], "n": [1]}),
        mode="append", commit_properties=CommitProperties(custom_metadata={"userMetadata": receipt.to_json()}),
    )  # fmt: skip


def told(result, name: str = "days") -> list[str]:
    events = [event for event in result.asset_events if isinstance(event, AssetMaterialization)]
    return [event.partition for event in events if event.asset_key.to_user_string() == name and event.partition]


def test_partitions_that_something_else_brought_in_are_reported_once_each(shop):
    hold(shop, "days", 0, 1)

    assert told(shop.supervise()) == ["2026-03-01", "2026-03-02"]
    assert told(shop.supervise()) == []
    hold(shop, "days", 0, 1, 2)
    assert told(shop.supervise()) == ["2026-03-03"]
    # Rows that another declaration made are not there as it is declared now.
    hold(shop, "days", 5, 6, fingerprint="another")
    assert told(shop.supervise()) == []


@pytest.mark.long
def test_many_partitions_are_reported_in_several_ticks(shop):
    hold(shop, "days", *range(250))

    first, second = told(shop.supervise()), told(shop.supervise())

    assert (len(first), len(second), len({*first, *second})) == (200, 50, 250)


def test_tables_of_different_partitions_are_requested_in_one_run_that_dagster_can_resolve(shop):
    sensor = batch_sensor(shop.settings, shop.graph, shop.keys, lambda: shop.now, lambda: 0.5)
    context = build_sensor_context(instance=shop.instance, repository_def=shop.loaded.get_repository_def())

    data = sensor.evaluate_tick(context)

    assert data.run_requests is not None
    selections = [request.asset_selection for request in data.run_requests if request.asset_selection is not None]
    assert len(selections) == len(data.run_requests)
    assert ["days", "hours", "other"] in [[key.to_user_string() for key in selected] for selected in selections]
    for selected in selections:
        job = shop.loaded.resolve_implicit_global_asset_job_def()
        assert job.get_subset(asset_selection=set(selected)).name


def test_a_backfill_that_goes_on_keeps_no_scheduled_run_waiting(shop):
    tags = {"dagster/asset_partition_range_start": "2026-03-01", "dagster/asset_partition_range_end": "2026-03-02"}
    run = start(shop, RunRequest(asset_selection=[AssetKey("days")], tags=tags), process=own_process())

    later = shop.request(7 * 3600)

    assert ["days", "hours", "other"] in requested(later)
    shop.instance.report_run_failed(run, "ended")
    assert shop.instance.get_run_by_id(run.run_id).status is DagsterRunStatus.FAILURE


def test_of_a_table_that_is_too_large_some_partitions_are_verified(shop, monkeypatch):
    hold(shop, "days", *range(12))
    monkeypatch.setattr(verification, "MOST_ROWS", 0.5)
    sensor = verify_sensor(shop.settings, shop.graph, shop.keys, lambda: shop.now)
    cursor, asked = None, []
    for hours in (0, 1, 6, 6, 6):
        shop.now += timedelta(hours=hours)
        context = build_sensor_context(
            instance=shop.instance, cursor=cursor, repository_def=shop.loaded.get_repository_def()
        )
        data = sensor.evaluate_tick(context)
        cursor = data.cursor
        assert data.run_requests is not None
        asked += [json.loads(request.tags["freshline/verify-partitions"]) for request in data.run_requests]

    chosen = [tuple(key for ((_, key),) in partitions) for partitions in asked]
    assert {column for partitions in asked for ((column, _),) in partitions} == {"ds"}
    assert [len(set(each)) for each in chosen] == [4, 4, 4, 4]
    assert {each[-1] for each in chosen} == {"2026-03-12"}, "the newest one is always among them"
    # Two may be equal: there are 165 ways to choose.
    assert len(set(chosen)) > 1, "chance chooses others each time"
    # Where the partitions are too large as well, nothing has a turn.
    monkeypatch.setattr(verification, "MOST_ROWS", 0.1)
    shop.now += timedelta(hours=6)
    context = build_sensor_context(
        instance=shop.instance, cursor=cursor, repository_def=shop.loaded.get_repository_def()
    )
    assert sensor.evaluate_tick(context).run_requests == []


def test_a_sample_that_failed_is_verified_again_with_the_next_one(shop, monkeypatch):
    hold(shop, "days", *range(12))
    monkeypatch.setattr(verification, "MOST_ROWS", 0.5)
    key = AssetCheckKey(AssetKey("days"), "verify")
    bad = [[["ds", "2026-03-02"]]]

    def told(passed: bool) -> None:
        tags = {"freshline/verify-partitions": json.dumps(bad)}
        run = DagsterRun("job", tags=tags, asset_check_selection=frozenset({key}))
        shop.instance.add_run(run)
        planned = AssetCheckEvaluationPlanned(asset_key=key.asset_key, check_name=key.name)
        report = shop.instance.report_dagster_event
        report(DagsterEvent(DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value, "job", event_specific_data=planned),
               run.run_id)  # fmt: skip
        evaluation = AssetCheckEvaluation(key.asset_key, key.name, passed, {}, severity=AssetCheckSeverity.ERROR)
        report(DagsterEvent(DagsterEventType.ASSET_CHECK_EVALUATION.value, "job", event_specific_data=evaluation),
               run.run_id)  # fmt: skip

    told(passed=False)
    assert list(failed_partitions(shop.instance, shop.keys.check(TableName.parse("days"), "verify"))) == bad
    told(passed=True)
    assert list(failed_partitions(shop.instance, shop.keys.check(TableName.parse("days"), "verify"))) == []


def test_a_check_of_some_partitions_asks_for_these_and_names_them(shop):
    partitions = [[["ds", "2026-03-01"]], [["ds", "2026-03-02"]]]
    found = {
        "table": "days", "partitions": ["ds=2026-03-01", "ds=2026-03-02"], "equal": True, "missing": 0, "extra": 0,
        "unverified": 0, "version": 3, "seconds": 0.5, "samples": [], "error": None, "detail": "",
    }  # fmt: skip
    engine = Engine({"type": "verification", "verification": found}, DONE)
    run = SimpleNamespace(tags={"freshline/verify-partitions": json.dumps(partitions)})
    context: Any = SimpleNamespace(run=run, log=logging.getLogger())

    verdict = verify(shop.graph.table(TableName.parse("days")), lambda progress: engine, context)

    assert engine.asked == [("verify", {"tables": ["days"], "partitions": partitions})]
    assert verdict.passed
    assert verdict.metadata["partitions"] == "ds=2026-03-01, ds=2026-03-02"
    assert "2 partitions" in verdict.description
