"""The batch sensor: runs for what is due, and for nothing else."""

from __future__ import annotations

import itertools
import json
import os
import platform
import socket
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from dagster import (
    AssetCheckKey,
    AssetKey,
    AssetObservation,
    DagsterRun,
    DagsterRunStatus,
    MetadataValue,
    build_sensor_context,
)
from dagster import job as job_of_somebody
from dagster._core.events import EngineEventData
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteJobOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorStatus
from dagster._core.storage.tags import GRPC_INFO_TAG
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from freshline.dagster.materialize import PROCESS, SCHEDULED, own_process
from freshline.dagster.scheduler import SUPERVISOR
from freshline.dagster.sensors import batch_sensor
from freshline.dagster.sensors.batch import BatchCursor
from freshline.engine.process import ProcessId

pytestmark = pytest.mark.slow  # Dagster's own sensors are evaluated


def requested(result):
    """The assets of each run that is requested."""
    return [[key.to_user_string() for key in request.asset_selection] for request in result.run_requests]


def kept(bench):
    for name in ("event", "live", "hourly", "daily", "campaign"):
        bench.commit(name)
    bench.check("event", "live", "hourly", "daily", "campaign", "loads")


def start(bench, request, status=DagsterRunStatus.STARTED, process=None, **tags):
    """The run of a request, as the daemon makes it."""
    job = bench.loaded.resolve_implicit_global_asset_job_def()
    found = {**request.tags, **tags}
    place = InProcessCodeLocationOrigin(
        loadable_target_origin=LoadableTargetOrigin(module_name="m"), location_name="here"
    )
    repository = RemoteRepositoryOrigin(code_location_origin=place, repository_name="__repository__")
    run = bench.instance.create_run_for_job(
        job,
        asset_selection=frozenset(request.asset_selection),
        tags=found,
        status=status,
        remote_job_origin=RemoteJobOrigin(repository_origin=repository, job_name=job.name),
        job_code_origin=None,
    )
    if process is not None:
        bench.instance.add_run_tags(run.run_id, {PROCESS: f"{process} {run.run_id}"})
    return run


def end(bench, run):
    bench.instance.report_run_failed(run, "ended")


def test_a_table_that_was_never_refreshed_is_requested_upstreams_first_once_its_inputs_have_a_version(bench):
    assert requested(bench.request()) == [["campaign"]]
    bench.commit("live")

    result = bench.request()

    assert requested(result) == [["hourly", "daily"]]
    for request in result.run_requests:
        assert request.tags[SCHEDULED] == "true"
        assert request.asset_check_keys == []


def test_nothing_is_requested_while_everything_is_fresh(bench):
    kept(bench)

    result = bench.request()

    assert result.run_requests == []
    assert result.skip_reason.skip_message == "none of 3 batch tables is due"


def test_a_table_is_due_by_its_lag_and_early_enough_for_what_its_refreshes_take(bench):
    kept(bench)
    bench.record("hourly", committed=True, seconds=120.0)

    assert requested(bench.request(3600 - 120 - 20)) == []
    assert requested(bench.request(25)) == [["hourly"]]


def test_after_a_clock_that_was_put_back_a_table_is_requested_at_once(bench):
    kept(bench)

    assert sorted(requested(bench.request(-3600))) == sorted(requested(bench.request(90_000)))


def test_while_a_run_is_in_progress_there_is_no_other(bench):
    kept(bench)
    [request] = bench.request(3600).run_requests
    run = start(bench, request, process=own_process())

    result = bench.request(3600)

    assert requested(result) == []
    assert "a run of hourly is in progress" in result.skip_reason.skip_message
    end(bench, run)
    assert requested(bench.request()) == [["hourly"]]


@pytest.mark.parametrize(
    ("assets", "seconds", "expected"),
    [(["hourly"], 3600, []), (["campaign"], 3600, [["hourly"]]), (None, 3600 * 20, [])],
    ids=["of the table", "of something else", "of all assets"],
)
def test_a_run_that_a_person_started_counts_for_its_tables(bench, assets, seconds, expected):
    kept(bench)
    job = bench.loaded.resolve_implicit_global_asset_job_def()
    selection = None if assets is None else frozenset(map(AssetKey, assets))
    bench.instance.create_run_for_job(job, asset_selection=selection, status=DagsterRunStatus.STARTED)

    assert requested(bench.request(seconds)) == expected


def test_a_run_of_a_check_or_of_a_job_without_tables_does_not_count(bench):
    kept(bench)
    check = AssetCheckKey(AssetKey("hourly"), "freshness")
    selection: dict[str, Any] = {"asset_selection": frozenset(), "asset_check_selection": frozenset([check])}
    bench.instance.add_run(
        DagsterRun(job_name="__ASSET_JOB", run_id="check", status=DagsterRunStatus.STARTED, **selection)
    )

    @job_of_somebody
    def other():
        pass

    bench.instance.create_run_for_job(other, status=DagsterRunStatus.STARTED)

    assert requested(bench.request(3600)) == [["hourly"]]


def test_a_run_whose_process_was_killed_is_ended_and_the_table_requested_again(bench):
    kept(bench)
    [request] = bench.request(3600).run_requests
    host, pid, started = own_process().split(" ")
    run = start(bench, request, process=f"{host} {pid} {float(started) - 1000}")

    result = bench.request(3600)

    assert requested(result) == [["hourly"]]
    assert bench.instance.get_run_by_id(run.run_id).status is DagsterRunStatus.FAILURE


def test_a_run_that_is_executed_again_is_not_taken_for_the_one_that_was_killed(bench):
    kept(bench)
    [request] = bench.request(3600).run_requests
    host, pid, started = own_process().split(" ")
    killed = start(bench, request, process=f"{host} {pid} {float(started) - 1000}")
    bench.request(3600)
    killed = bench.instance.get_run_by_id(killed.run_id)
    assert killed.status is DagsterRunStatus.FAILURE

    # As Dagster makes it: with the tags of its parent, until its own process is there.
    again = bench.instance.add_run(
        DagsterRun(
            job_name="__ASSET_JOB",
            asset_selection=frozenset([AssetKey("hourly")]),
            status=DagsterRunStatus.STARTING,
            parent_run_id=killed.run_id,
            root_run_id=killed.run_id,
            tags={PROCESS: killed.tags[PROCESS]},
        )
    )
    bench.request(3600)

    assert bench.instance.get_run_by_id(again.run_id).status is DagsterRunStatus.STARTING


def test_a_run_whose_process_lives_or_is_elsewhere_is_left_in_peace(bench):
    kept(bench)
    [request] = bench.request(3600).run_requests
    run = start(bench, request, process=own_process())
    assert requested(bench.request(3600)) == []
    end(bench, run)
    run = start(bench, request, process="elsewhere 1 1.0")

    assert requested(bench.request(3600)) == []
    assert bench.instance.get_run_by_id(run.run_id).status is DagsterRunStatus.STARTED


def test_a_scheduled_run_that_never_began_is_given_up_but_not_one_that_waits_in_a_queue(bench):
    kept(bench)
    [request] = bench.request(3600).run_requests
    never = start(bench, request, DagsterRunStatus.STARTING)
    # Runs are made now, so the bench's clock is an hour ahead of them.
    assert requested(bench.request(90)) == [["hourly"]]
    assert bench.instance.get_run_by_id(never.run_id).status is DagsterRunStatus.FAILURE

    queued = start(bench, request, DagsterRunStatus.QUEUED)
    assert requested(bench.request(3600)) == []
    assert bench.instance.get_run_by_id(queued.run_id).status is DagsterRunStatus.QUEUED


def test_missed_ticks_are_one(bench):
    kept(bench)

    assert sorted(requested(bench.request(3600 * 20))) == [["campaign"], ["hourly"]]
    assert requested(bench.request()) == []


def test_a_run_that_did_not_help_is_requested_again_with_pauses_under_another_key(bench):
    kept(bench)
    keys = []
    times = []
    bench.request(3600)
    for _ in range(120):
        for request in bench.request(10).run_requests:
            keys.append(request.run_key)
            times.append(bench.now)

    gaps = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    assert gaps[:3] == [120, 240, 480]
    assert len(set(keys)) == len(keys)


def test_the_attempts_survive_in_the_cursor_and_a_broken_cursor_begins_anew(bench):
    kept(bench)
    [request] = bench.request(3600).run_requests
    cursor = BatchCursor.from_json(bench.cursors["batch"])

    assert [(str(name), attempt.count) for name, attempt in cursor.attempts.items()] == [("hourly", 1)]
    assert BatchCursor.from_json(cursor.to_json()) == cursor
    assert BatchCursor.from_json("nonsense") == BatchCursor.from_json('{"format": 99}') == BatchCursor()
    assert request.tags["freshline/attempt"] == "1"


def test_a_suspended_table_is_not_requested_nor_what_is_below_it(bench):
    kept(bench)
    bench.suspend("hourly")

    result = bench.request(3600 * 24)

    assert requested(result) == [["campaign"]]
    bench.control.intentions.change(remove_suspensions=[next(iter(bench.control.intentions.read().suspensions))])
    assert requested(bench.request()) == [["hourly", "daily"]]


def test_switching_the_supervisor_off_is_beaten_and_reported_at_its_tables_once(bench, events):
    kept(bench)
    bench.request()
    bench.switch(SUPERVISOR, InstigatorStatus.STOPPED)

    result = bench.request()

    assert bench.control.heartbeats.read()["scheduler"].detail == {"supervisor": "STOPPED", "batch": "RUNNING"}
    [event] = events(result, AssetObservation, "live")
    assert event.description == "PAUSED: the sensor freshline_supervisor is switched off in Dagster"
    assert not events(result, AssetObservation, "hourly")
    assert bench.request().asset_events == []
    bench.switch(SUPERVISOR, InstigatorStatus.RUNNING)
    bench.request()
    assert bench.control.heartbeats.read()["scheduler"].detail == {"supervisor": "RUNNING", "batch": "RUNNING"}


def test_the_sensor_itself_yields_requests_that_dagster_can_resolve(bench):
    bench.commit("live")
    sensor = batch_sensor(bench.settings, bench.graph, bench.keys, lambda: bench.now, lambda: 0.5)
    context = build_sensor_context(instance=bench.instance, repository_def=bench.loaded.get_repository_def())

    data = sensor.evaluate_tick(context)

    assert data.run_requests is not None
    assert {request.job_name for request in data.run_requests} == {"__ASSET_JOB"}
    assert all(request.tags[SCHEDULED] == "true" for request in data.run_requests)


def test_a_run_that_was_killed_before_it_could_name_itself_is_found_by_what_dagster_noted(bench):
    kept(bench)
    local = {GRPC_INFO_TAG: json.dumps({"host": "localhost", "port": 1})}
    elsewhere = {GRPC_INFO_TAG: json.dumps({"host": "another", "port": 1})}
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    found = {}
    for name, tags, pid in (("gone", local, ended.pid), ("goes on", local, os.getpid()), ("far", elsewhere, ended.pid)):
        run = bench.instance.add_run(
            DagsterRun(
                job_name="__ASSET_JOB",
                asset_selection=frozenset([AssetKey("hourly")]),
                status=DagsterRunStatus.STARTED,
                tags=tags,
            )
        )
        noted = EngineEventData({"pid": MetadataValue.text(str(pid))})
        bench.instance.report_engine_event("Started process for run", run, noted)
        found[name] = run.run_id

    bench.request(10)

    assert {name: bench.instance.get_run_by_id(run).status for name, run in found.items()} == {
        "gone": DagsterRunStatus.FAILURE,
        "goes on": DagsterRunStatus.STARTED,
        "far": DagsterRunStatus.STARTED,
    }


def test_a_run_whose_code_server_was_killed_before_it_could_start_it_ends(bench):
    kept(bench)
    [request] = bench.request(3600).run_requests
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports = {"there": listening.getsockname()[1], "gone": free.getsockname()[1]}
        # The daemon starts it beside the code server that answers then.
        gone = {GRPC_INFO_TAG: json.dumps({"host": "localhost", "port": ports["gone"]})}
        queued = start(bench, request, DagsterRunStatus.QUEUED, **gone)
        runs = {
            name: bench.instance.add_run(
                DagsterRun(
                    job_name="__ASSET_JOB",
                    asset_selection=frozenset([AssetKey("hourly")]),
                    status=DagsterRunStatus.STARTING,
                    tags={GRPC_INFO_TAG: json.dumps({"host": "localhost", "port": port})},
                )
            ).run_id
            for name, port in ports.items()
        }
        bench.now = datetime.now(UTC)
        bench.request(10)
        assert {bench.instance.get_run_by_id(run).status for run in runs.values()} == {DagsterRunStatus.STARTING}

        bench.request(60)

    found = {name: bench.instance.get_run_by_id(run).status for name, run in runs.items()}
    assert found == {"there": DagsterRunStatus.STARTING, "gone": DagsterRunStatus.FAILURE}
    assert bench.instance.get_run_by_id(queued.run_id).status is DagsterRunStatus.QUEUED


def test_a_run_of_checks_alone_that_was_killed_ends_too(bench):
    kept(bench)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    process = ProcessId.of(ended.pid)
    assert process is not None
    ended.wait()
    run = bench.instance.add_run(
        DagsterRun(
            job_name="__ASSET_JOB",
            asset_check_selection=frozenset([AssetCheckKey(AssetKey("live"), "verify")]),
            status=DagsterRunStatus.STARTED,
        )
    )
    bench.instance.add_run_tags(
        run.run_id, {PROCESS: f"{platform.node()} {process.pid} {process.started} {run.run_id}"}
    )

    bench.request(10)

    assert bench.instance.get_run_by_id(run.run_id).status is DagsterRunStatus.FAILURE
