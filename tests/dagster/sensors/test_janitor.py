"""The janitor: old runs of freshline's own sensors go, what a page shows and what a person did stays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from dagster import (
    AssetKey,
    AssetMaterialization,
    DagsterInstance,
    DagsterRunStatus,
    Output,
    RunsFilter,
    build_sensor_context,
    job,
    op,
)

from freshline.dagster.materialize import SCHEDULED
from freshline.dagster.sensors import janitor_sensor
from freshline.dagster.sensors.janitor import delete_old_runs

LIVE = AssetKey("live")


@op
def writes(context):
    context.log_event(AssetMaterialization(LIVE))
    yield Output(None)


@job
def refreshing():
    writes()


def ran(instance: DagsterInstance, **tags: str) -> str:
    result = refreshing.execute_in_process(instance=instance, tags=tags)
    assert result.success
    return result.run_id


def left(instance: DagsterInstance) -> set[str]:
    return {run.run_id for run in instance.get_runs()}


def test_old_runs_of_sensors_go_with_their_events_and_the_newest_of_an_asset_stays():
    with DagsterInstance.ephemeral() as instance:
        first = ran(instance, **{SCHEDULED: "true"})
        by_hand = ran(instance)
        newest = ran(instance, **{SCHEDULED: "true"})
        later = datetime.now(UTC) + timedelta(seconds=1)

        assert delete_old_runs(instance, [LIVE], [], later - timedelta(days=1)) == 0
        assert left(instance) == {first, by_hand, newest}
        assert delete_old_runs(instance, [LIVE], [], later) == 1
        assert left(instance) == {by_hand, newest}
        assert instance.all_logs(first) == []
        assert delete_old_runs(instance, [LIVE], [], later) == 0
        event = instance.get_latest_materialization_event(LIVE)
        assert event is not None
        assert event.run_id == newest


def test_a_run_that_goes_on_is_left_alone():
    with DagsterInstance.ephemeral() as instance:
        run = instance.create_run_for_job(refreshing, tags={SCHEDULED: "true"}, status=DagsterRunStatus.STARTED)

        assert delete_old_runs(instance, [], [], datetime.now(UTC) + timedelta(days=30)) == 0
        assert left(instance) == {run.run_id}


@pytest.mark.seconds
def test_the_sensor_reports_how_many(bench):
    sensor = janitor_sensor(bench.graph, bench.keys, lambda: datetime.now(UTC) + timedelta(days=8))
    ran(bench.instance, **{SCHEDULED: "true"})
    ran(bench.instance, **{SCHEDULED: "true"})

    context = build_sensor_context(instance=bench.instance, repository_def=bench.loaded.get_repository_def())
    data = sensor.evaluate_tick(context)

    assert data.skip_message == "1 old runs are deleted"
    assert len(bench.instance.get_runs(RunsFilter(tags={SCHEDULED: "true"}))) == 1
