"""Dagster's runs that refresh tables: which go on, and which only look as if they did.

The default launcher of Dagster does not notice a run whose process was killed: it stays STARTED for ever, and a sensor
that waits for it would never request the table again. Each run of ours names its process, so it is found out here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dagster import AssetKey, DagsterInstance, DagsterRun, DagsterRunStatus, RepositoryDefinition, RunRecord, RunsFilter
from dagster._core.storage.tags import ASSET_PARTITION_RANGE_START_TAG, PARTITION_NAME_TAG

from freshline.declare.names import TableName
from freshline.orchestrate.asset import asset_key
from freshline.orchestrate.materialize import PROCESS, SCHEDULED, process_ended
from freshline.orchestrate.partitions import BACKFILL_RUN

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


@dataclass(frozen=True)
class InProgress:
    """The tables that runs refresh now, and how many runs the sensor requested itself."""

    tables: frozenset[TableName]
    scheduled: int


def in_progress(
    instance: DagsterInstance, repository: RepositoryDefinition | None, tables: Collection[TableName], now: datetime
) -> InProgress:
    """Look at the runs that have not finished; one whose process is gone is reported as failed, so that it ends."""
    by_key = {asset_key(name): name for name in tables}
    busy: set[TableName] = set()
    scheduled = 0
    for record in instance.get_run_records(RunsFilter(statuses=UNFINISHED)):
        run = record.dagster_run
        touched = _touched(run, repository, by_key)
        if not touched:
            continue
        why = gone(record, now)
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
    if PROCESS in run.tags:
        return "its process has ended without a word" if process_ended(run.tags[PROCESS]) else None
    if SCHEDULED not in run.tags or run.status is DagsterRunStatus.QUEUED:
        # What somebody else runs may take its time before a table of ours, and a queue may be long.
        return None
    began = record.create_timestamp
    began = began if began.tzinfo is not None else began.replace(tzinfo=UTC)
    return f"it has not begun within {_START.seconds // 60} minutes" if now - began > _START else None


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
