"""The supervisor sensor: its reports to Dagster of tables that the engine keeps."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetCheckKey,
    AssetCheckSeverity,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    build_sensor_context,
)
from dagster._core.scheduler.instigation import InstigatorStatus

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.dagster.freshness import CHECK
from freshline.dagster.scheduler import BATCH
from freshline.dagster.sensors import supervisor_sensor
from freshline.dagster.sensors.janitor import forget_copies
from freshline.dagster.sensors.supervisor import turn_outcome
from freshline.report.status import read_status
from freshline.values.names import TableName

pytestmark = pytest.mark.slow  # Dagster's own sensors are evaluated


def kept(bench):
    """Everything was refreshed once, now."""
    for name in ("event", "live", "hourly", "daily"):
        bench.commit(name)
    bench.check("event", "live", "hourly", "daily")


def test_a_table_that_the_engine_keeps_is_materialized_without_a_run(bench, events):
    kept(bench)
    bench.supervise(0)
    bench.check("event", "live", "hourly", "daily")

    [event] = events(bench.supervise(65), AssetMaterialization, "live")

    shown = {key: value.value for key, value in event.metadata.items()}
    assert shown["version"] == 0
    assert (shown["strategy"], shown["reason"], shown["mode"]) == ("append", "2 new files", "continuous")
    assert (shown["refreshes"], shown["rows_in"], shown["rows_out"], shown["seconds"]) == (1, 2, 2, 0.5)
    assert shown["dagster/row_count"] == 2
    assert shown["lag_seconds"] == 65
    stored = bench.instance.get_latest_materialization_event(AssetKey("live"))
    assert stored.asset_materialization.tags["dagster/data_version"] == "0"
    assert bench.instance.get_runs() == []


def test_columns_stand_in_the_events_of_tables_and_in_the_definitions_of_sources(bench, events):
    kept(bench)

    result = bench.supervise()

    assert "dagster/column_schema" in events(result, AssetMaterialization, "live")[0].metadata
    assert "dagster/column_schema" not in events(result, AssetMaterialization, "event")[0].metadata
    assert "dagster/column_schema" in bench.loaded.get_assets_def("event").metadata_by_key[AssetKey("event")]


def test_a_tick_says_that_alerts_are_not_delivered(bench):
    kept(bench)
    bench.supervise()
    bench.control.heartbeats.beat("watch", bench.now, {"pid": 1, "channels": {"pager": "it answered 500"}})

    assert bench.supervise().skip_reason.skip_message.endswith("; channel pager takes no alert: it answered 500")


def test_the_second_copy_of_events_without_a_run_goes_and_dagster_knows_the_same(bench):
    kept(bench)
    bench.supervise()
    storage = bench.instance.event_log_storage

    def known() -> list[object]:
        keys = [AssetKey("event"), AssetKey("live")]
        shown: list[object] = [bench.instance.fetch_materializations(key, limit=100).records for key in keys]
        shown += [bench.instance.fetch_observations(key, limit=100).records for key in keys]
        checks = [AssetCheckKey(key, CHECK) for key in keys]
        return [*shown, storage.get_latest_asset_check_execution_by_key(checks), bench.instance.get_asset_records(keys)]

    before = known()

    assert forget_copies(bench.instance) > 0
    assert known() == before
    assert forget_copies(bench.instance) == 0
    # Each tick does so: its own reports are stored after it.
    bench.supervise(65)
    bench.supervise(65)
    assert forget_copies(bench.instance) < len(
        bench.instance.fetch_materializations(AssetKey("live"), limit=100).records
    )


def test_sources_read_in_place_and_batch_tables_are_not(bench, events):
    kept(bench)

    result = bench.supervise()

    keys = {
        event.asset_key.to_user_string() for event in result.asset_events if isinstance(event, AssetMaterialization)
    }
    assert keys == {"event", "live"}


@pytest.mark.long
def test_turns_sum_up_what_was_refreshed_each_refresh_once(bench, events):
    kept(bench)
    bench.supervise()
    found = []
    for _ in range(40):
        bench.now += timedelta(seconds=3.5)
        bench.record("live", committed=True, strategy="append", reason="1 new file", rows_in=3, rows_out=2)
        bench.check("event", "live")
        found += events(bench.supervise(8.3), AssetMaterialization, "live")

    counted = [event.metadata["refreshes"].value for event in found]
    assert len(found) in (7, 8)
    assert 40 - 2 * 6 <= sum(counted) <= 41
    assert all(event.metadata["rows_in"].value == 3 * event.metadata["refreshes"].value for event in found[1:])


def test_the_scheduler_beats_at_each_tick_and_notes_which_sensors_are_on(bench):
    bench.supervise()
    assert bench.control.heartbeats.read()["scheduler"].at == bench.now
    assert bench.control.heartbeats.read()["scheduler"].detail == {"supervisor": "RUNNING", "batch": "RUNNING"}

    bench.switch(BATCH, InstigatorStatus.STOPPED)
    bench.supervise()
    assert bench.control.heartbeats.read()["scheduler"].detail == {"supervisor": "RUNNING", "batch": "STOPPED"}


def test_a_failure_is_an_observation_at_once_and_never_a_materialization(bench, events):
    kept(bench)
    bench.supervise()
    error = {"code": "SOURCE", "message": "the landing folder is gone", "where": "in", "retry_helps": True}
    bench.record("live", state="FAILED", strategy=None, reason="SOURCE", error=error)

    result = bench.supervise()

    [event] = events(result, AssetObservation, "live")
    assert event.description == "FAILED: the landing folder is gone"
    shown = {key: value.value for key, value in event.metadata.items()}
    assert (shown["state"], shown["code"], shown["where"], shown["retry_helps"]) == ("FAILED", "SOURCE", "in", True)
    later = [bench.supervise() for _ in range(12)]
    assert not any(events(each, AssetMaterialization, "live") for each in later)
    assert not any(events(each, AssetObservation, "live") for each in later)
    stored = bench.instance.get_latest_materialization_event(AssetKey("live"))
    assert stored.timestamp < datetime.now(UTC).timestamp()


def test_the_check_fails_with_the_lag_and_the_cause_and_passes_again(bench, events):
    kept(bench)
    [first] = events(bench.supervise(), AssetCheckEvaluation, "live")
    assert first.passed
    bench.now += timedelta(seconds=100)
    bench.record("live", state="FAILED", strategy=None, reason="x", error={"code": "SOURCE", "message": "gone"})

    [late] = events(bench.supervise(), AssetCheckEvaluation, "live")

    assert (late.passed, late.severity, late.blocking) == (False, AssetCheckSeverity.ERROR, False)
    assert late.metadata["lag_seconds"].value == 120
    assert late.metadata["cause"].value == "SOURCE: gone"
    assert late.description == "lags 2 min; promised is 10 s: SOURCE: gone"
    bench.commit("live")
    bench.check("event", "live")
    again = [event for _ in range(7) for event in events(bench.supervise(1), AssetCheckEvaluation, "live")]
    assert again == []  # better news waits a minute after the last
    for _ in range(6):
        bench.check("event", "live")
        again += events(bench.supervise(9), AssetCheckEvaluation, "live")
    assert [event.passed for event in again] == [True]


def test_a_suspension_is_reported_with_what_is_below_it_and_so_is_its_end(bench, events):
    kept(bench)
    bench.supervise()
    bench.suspend("live", until=bench.now + timedelta(seconds=60))

    result = bench.supervise()

    [event] = events(result, AssetObservation, "live")
    assert event.description.startswith("SUSPENDED: suspended by operator since")
    [below] = events(result, AssetObservation, "daily")
    assert below.description == "BLOCKED: live, which drives it, is suspended"
    assert not events(result, AssetObservation, "event")
    assert not events(result, AssetObservation, "campaign")
    bench.now += timedelta(seconds=60)
    assert events(bench.supervise(), AssetMaterialization, "live")


def test_switching_the_batch_sensor_off_is_reported_at_its_tables(bench, events):
    kept(bench)
    bench.supervise()
    bench.switch(BATCH, InstigatorStatus.STOPPED)

    result = bench.supervise()

    [event] = events(result, AssetObservation, "hourly")
    assert event.description == "PAUSED: the sensor freshline_batch is switched off in Dagster"
    assert not events(result, AssetObservation, "live")


def test_decisions_about_tables_are_reported_once(bench, events):
    bench.supervise()
    bench.record("live", state="ALTERED", strategy=None, reason="freshness 10 seconds -> 5 seconds by operator")

    assert [event.description for event in events(bench.supervise(), AssetObservation, "live")] == [
        "ALTERED: freshness 10 seconds -> 5 seconds by operator"
    ]
    assert events(bench.supervise(), AssetObservation, "live") == []


def test_a_lost_control_store_only_repeats_all_reports(bench, events):
    kept(bench)
    for _ in range(3):
        bench.record("live")
    bench.supervise()
    bench.control.close()
    store = bench.settings.state / "control.db"
    for file in store.parent.glob("control.db*"):
        file.unlink()

    bench.supervise()
    bench.control = ControlStore.open(bench.settings.control_store)
    bench.record("live", state="ALTERED", strategy=None, reason="after")
    assert [event.description for event in events(bench.supervise(), AssetObservation, "live")] == ["ALTERED: after"]


def test_a_batch_table_that_was_refreshed_by_hand_is_materialized_and_one_of_a_run_is_not_twice(bench, events):
    kept(bench)
    bench.supervise()
    bench.commit("hourly")
    found = [event for _ in range(9) for event in events(bench.supervise(), AssetMaterialization, "hourly")]
    assert len(found) == 1

    bench.now = datetime.now(UTC)
    bench.supervise(0)
    bench.commit("hourly")
    bench.instance.report_runless_asset_event(AssetMaterialization("hourly"))  # as a run does a moment later
    found = [event for _ in range(9) for event in events(bench.supervise(), AssetMaterialization, "hourly")]
    assert found == []


def test_the_tick_says_how_the_tables_stand(bench):
    kept(bench)
    bench.suspend("live")

    assert bench.supervise().skip_reason.skip_message == ("2 blocked, 1 scheduled, 1 succeeded, 1 suspended; 11 events")


def test_the_sensor_itself_is_what_dagster_evaluates(bench):
    kept(bench)
    sensor = supervisor_sensor(bench.settings, bench.graph, bench.keys, lambda: bench.now)

    context = build_sensor_context(instance=bench.instance, repository_def=bench.loaded.get_repository_def())

    data = sensor.evaluate_tick(context)

    assert data.cursor
    assert data.run_requests == []
    assert len(data.asset_events) > 0


def test_the_check_can_be_run_by_hand(bench):
    kept(bench)
    job = bench.loaded.resolve_implicit_global_asset_job_def()
    keys = [key for key in bench.loaded.resolve_asset_graph().asset_check_keys if key.asset_key == AssetKey("live")]
    keys = [key for key in keys if key.name == "freshness"]
    result = job.get_subset(asset_selection=set(), asset_check_selection=set(keys)).execute_in_process(
        instance=bench.instance
    )

    [evaluation] = result.get_asset_check_evaluations()
    assert evaluation.check_name == "freshness"
    assert evaluation.metadata["freshness_seconds"].value == 10


def test_a_turn_without_a_refresh_has_the_last_ones_reason(bench):
    kept(bench)
    now = read_status(bench.graph, bench.control, Warehouse(bench.settings.warehouse), bench.now)

    outcome = turn_outcome(next(each for each in now if each.table == TableName.parse("live")), [])

    assert (outcome["strategy"], outcome["reason"]) == ("append", "2 new files")
    assert "rows_in" not in outcome


def test_a_turn_counts_the_rows_behind_a_watermark_where_there_is_one(bench):
    kept(bench)
    now = read_status(bench.graph, bench.control, Warehouse(bench.settings.warehouse), bench.now)
    status = next(each for each in now if each.table == TableName.parse("live"))
    [record] = [each for each in bench.control.last_refreshes().values() if each.table == status.table]
    record = replace(record, committed=True)

    first = replace(record, late_rows=2, ahead_rows=0, late_by_seconds=9.5)
    outcome = turn_outcome(status, [first, replace(record, late_rows=3, late_by_seconds=1.0)])

    assert (outcome["late_rows"], outcome["ahead_rows"], outcome["late_by_seconds"]) == (5, 0, 9.5)
    assert "late_rows" not in turn_outcome(status, [record])
