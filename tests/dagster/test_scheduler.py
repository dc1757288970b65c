"""The state of the daemon and of the sensors, from Dagster's own storage."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from dagster import DagsterInstance
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._daemon.types import DaemonHeartbeat

from freshline.dagster.scheduler import BATCH, SUPERVISOR, SchedulerState, read_scheduler, sensor_states
from freshline.errors import StorageError
from freshline.values.settings import Settings

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
RUNNING = {SUPERVISOR: "RUNNING", BATCH: "RUNNING"}


@pytest.fixture
def home(settings: Settings) -> Path:
    folder = settings.state / "dagster"
    folder.mkdir(parents=True)
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return folder


def test_there_is_none_where_dagster_never_ran_and_none_is_made(settings, home):
    assert read_scheduler(settings) is None
    assert [file.name for file in home.iterdir()] == ["dagster.yaml"]


def scheduler_of(settings: Settings) -> SchedulerState:
    """The state of a Dagster that has run."""
    found = read_scheduler(settings)
    assert found is not None
    return found


def switch(instance, sensor, status, location="here", ticked=1.0):
    place = InProcessCodeLocationOrigin(
        loadable_target_origin=LoadableTargetOrigin(module_name="m"), location_name=location
    )
    repository = RemoteRepositoryOrigin(code_location_origin=place, repository_name="__repository__")
    origin = RemoteInstigatorOrigin(repository_origin=repository, instigator_name=sensor)
    data = SensorInstigatorData(last_tick_start_timestamp=ticked)
    instance.add_instigator_state(InstigatorState(origin, InstigatorType.SENSOR, status, data))


@pytest.mark.seconds
def test_the_newest_heartbeat_of_the_daemons_and_the_sensors_as_they_were_left(settings, home):
    with DagsterInstance.from_config(str(home)) as instance:
        assert scheduler_of(settings).daemon_heartbeat is None
        for kind, seconds in (("SENSOR", -40), ("BACKFILL", -5)):
            instance.add_daemon_heartbeat(DaemonHeartbeat(NOW.timestamp() + seconds, kind, "id", None))
        found = scheduler_of(settings)
        assert found.daemon_heartbeat is not None
        assert (found.daemon_heartbeat.timestamp() - NOW.timestamp(), found.sensors) == (-5, RUNNING)

        switch(instance, SUPERVISOR, InstigatorStatus.DECLARED_IN_CODE)
        switch(instance, "somebody_else", InstigatorStatus.STOPPED)
        assert scheduler_of(settings).sensors == RUNNING
        switch(instance, BATCH, InstigatorStatus.STOPPED)
        assert scheduler_of(settings).sensors == {SUPERVISOR: "RUNNING", BATCH: "STOPPED"}
        assert scheduler_of(settings).detail == {"supervisor": "RUNNING", "batch": "STOPPED"}


@pytest.mark.seconds
def test_states_that_a_location_of_another_name_left_do_not_count(settings, home):
    with DagsterInstance.from_config(str(home)) as instance:
        switch(instance, SUPERVISOR, InstigatorStatus.STOPPED, "old", ticked=1.0)
        switch(instance, SUPERVISOR, InstigatorStatus.DECLARED_IN_CODE, "new", ticked=2.0)

        assert scheduler_of(settings).sensors == RUNNING
        # A sensor knows where it is, and asks for its neighbour there.
        assert sensor_states(instance, "old") == {SUPERVISOR: "STOPPED", BATCH: "RUNNING"}
        assert sensor_states(instance, "elsewhere") == RUNNING


@pytest.mark.seconds
def test_a_storage_that_cannot_be_read_is_an_error_with_its_place(settings, home):
    with DagsterInstance.from_config(str(home)):
        pass
    for file in (home / "schedules").iterdir():
        file.write_text("not a database, and long enough to be looked at as one" * 20)

    with pytest.raises(StorageError) as told:
        read_scheduler(settings)

    assert told.value.where == str(home)
