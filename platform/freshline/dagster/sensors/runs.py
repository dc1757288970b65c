"""Dagster's runs that refresh tables: which go on, and which only seem to.

The default launcher of Dagster does not notice a run whose process was killed: it stays STARTED for ever, and a sensor
that waits for it would never request the table again. Each run of ours names its process, so it is found out here. One
that is killed before it could is known by the process that Dagster itself notes of runs on this machine.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import (
    AssetKey,
    DagsterEventType,
    DagsterInstance,
    DagsterRun,
    DagsterRunStatus,
    DefaultRunLauncher,
    RepositoryDefinition,
    RunRecord,
    RunsFilter,
)

from freshline.dagster.inspection import ProjectInspection
from freshline.dagster.internals import ASSET_PARTITION_RANGE_START_TAG, GRPC_INFO_TAG, PARTITION_NAME_TAG
from freshline.dagster.materialize import SCHEDULED, process_ended, process_of
from freshline.dagster.partitions import BACKFILL_RUN
from freshline.engine.process import ProcessId
from freshline.values.names import TableName

UNFINISHED = [
    DagsterRunStatus.NOT_STARTED,
    DagsterRunStatus.QUEUED,
    DagsterRunStatus.STARTING,
    DagsterRunStatus.STARTED,
    DagsterRunStatus.CANCELING,
]
# The job that Dagster makes for runs of assets that are in no job.
ASSET_JOB = "__ASSET_JOB"
# A run's process is there within a minute on a slow machine.
_START = timedelta(minutes=10)
# Dagster notes the process in the first few.
_ENGINE_EVENTS = 5
# Before that, a run is in the hands of the code server that is to start it.
_NOTED_AFTER = timedelta(seconds=30)
_PROBE_SECONDS = 2.0


@dataclass(frozen=True)
class InProgress:
    """The tables that runs refresh now, and how many runs the sensor requested itself."""

    tables: frozenset[TableName]
    scheduled: int


def in_progress(
    instance: DagsterInstance, repository: RepositoryDefinition | None, inspection: ProjectInspection, now: datetime
) -> InProgress:
    """Inspect the runs that have not finished; one whose process is gone is reported as failed, so that it ends."""
    by_key = {inspection.keys[name]: name for name in inspection.shown}
    busy: set[TableName] = set()
    scheduled = 0
    for record in instance.get_run_records(RunsFilter(statuses=UNFINISHED)):
        run = record.dagster_run
        touched = _touched(run, repository, by_key)
        if not touched and not any(key.asset_key in by_key for key in run.asset_check_selection or ()):
            continue
        why = gone(record, now) or _lost(instance, record, now)
        if why is not None:
            if run.status is DagsterRunStatus.CANCELING:
                instance.report_run_canceled(run, why)
            else:
                instance.report_run_failed(run, why)
            continue
        if not is_backfill(run):
            busy |= touched
        scheduled += SCHEDULED in run.tags
    return InProgress(frozenset(busy), scheduled)


def is_backfill(run: DagsterRun) -> bool:
    """Whether a run replaces partitions: the engine lets what is scheduled go before them, so it need not wait."""
    return any(tag in run.tags for tag in (BACKFILL_RUN, ASSET_PARTITION_RANGE_START_TAG, PARTITION_NAME_TAG))


def gone(record: RunRecord, now: datetime) -> str | None:
    """Why a run that has not finished never will, None where it may."""
    run = record.dagster_run
    process = process_of(run)
    if process is not None:
        return "its process has ended without a word" if process_ended(process) else None
    if SCHEDULED not in run.tags or run.status is DagsterRunStatus.QUEUED:
        # A run of somebody else may take its time before a table of ours, and a queue may be long.
        return None
    return f"it has not begun within {_START.seconds // 60} minutes" if now - _made_at(record) > _START else None


def _lost(instance: DagsterInstance, record: RunRecord, now: datetime) -> str | None:
    """Why a run of this machine never ends, by what Dagster noted of it; None where it may end."""
    run = record.dagster_run
    server = _local_server(instance, run)
    # A run that waits in the queue is started beside the code server of then.
    if process_of(run) is not None or server is None or run.status is DagsterRunStatus.QUEUED:
        return None
    events = instance.get_records_for_run(run.run_id, of_type=DagsterEventType.ENGINE_EVENT, limit=_ENGINE_EVENTS)
    for noted_at in events.records:
        event = noted_at.event_log_entry.dagster_event
        noted = None if event is None else event.engine_event_data.metadata.get("pid")
        text = None if noted is None else str(noted.value)
        if text is None or not text.isdigit():
            continue
        process = ProcessId.of(int(text))
        # A process that began after the event is another one, which got the number.
        if process is None or not process.alive or process.started > noted_at.timestamp + 1:
            return f"its process ({text}) has ended without a word"
        return None
    if now - _made_at(record) > _NOTED_AFTER and not _answers(server):
        return "the code server that was to start it has ended"
    return None


def _local_server(instance: DagsterInstance, run: DagsterRun) -> Mapping[str, Any] | None:
    """The code server of this machine beside which the run is a process; None where it runs elsewhere."""
    if not isinstance(instance.run_launcher, DefaultRunLauncher):
        return None
    try:
        server = json.loads(run.tags.get(GRPC_INFO_TAG, "{}"))
    except ValueError:
        return None
    return server if isinstance(server, dict) and server.get("host") in ("localhost", "127.0.0.1") else None


def _answers(server: Mapping[str, Any]) -> bool:
    """Whether somebody listens where the code server did."""
    path = server.get("socket")
    family = socket.AF_UNIX if path else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.settimeout(_PROBE_SECONDS)
        try:
            probe.connect(path or ("127.0.0.1", int(server.get("port") or 0)))
        except (OSError, ValueError):
            return False
    return True


def _made_at(record: RunRecord) -> datetime:
    made = record.create_timestamp
    return made if made.tzinfo is not None else made.replace(tzinfo=UTC)


def _touched(
    run: DagsterRun, repository: RepositoryDefinition | None, by_key: Mapping[AssetKey, TableName]
) -> set[TableName]:
    if run.asset_selection:
        return {by_key[key] for key in run.asset_selection if key in by_key}
    if run.asset_check_selection:
        return set()
    if run.job_name == ASSET_JOB:
        return set(by_key.values())
    if repository is None or not repository.has_job(run.job_name):
        return set()
    layer = repository.get_job(run.job_name).asset_layer
    return {by_key[key] for key in layer.selected_asset_keys if key in by_key}
