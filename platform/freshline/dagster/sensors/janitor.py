"""`freshline_janitor`: bounds what Dagster keeps of freshline's own runs.

Dagster keeps runs and their events for ever. Runs that a sensor of freshline requested are deleted with all their
events after a while: what they did stands in the tables' receipts and in `freshline_refreshes`. The newest run of each
asset and of each verification stays, because its event is what the asset's page shows. A person's runs stay.

Events without a run cannot be taken away: Dagster's storage only deletes the events of a run, of all runs, or all
events of an asset, its newest included. They are bounded where they are made (see `report.notices`). But SQLite has
each of them twice, and the copy that nothing reads goes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta

import sqlalchemy
from dagster import (
    AssetCheckKey,
    AssetKey,
    DagsterInstance,
    DagsterRunStatus,
    DefaultSensorStatus,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from freshline.dagster.checks import VERIFY
from freshline.dagster.internals import ASSET_EVENTS, RUNLESS_RUN_ID, SqlEventLogStorageTable, SqliteEventLogStorage
from freshline.dagster.keys import AssetKeys
from freshline.dagster.materialize import SCHEDULED
from freshline.dagster.sensors.verification import TAG as VERIFICATION
from freshline.declare.graph import Graph

NAME = "freshline_janitor"
INTERVAL_SECONDS = 3600
KEEP = timedelta(days=7)
# A tick has a minute; deleting a run takes some milliseconds.
MOST_RUNS_A_TICK = 200
ENDED = [DagsterRunStatus.SUCCESS, DagsterRunStatus.FAILURE, DagsterRunStatus.CANCELED]


def janitor_sensor(
    graph: Graph, keys: AssetKeys, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> SensorDefinition:
    """The sensor of a project."""
    assets = [keys[name] for name in keys.only(graph.kept)]
    checks = [keys.check(name, VERIFY) for name in keys.only(table.name for table in graph.verified)]

    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        deleted = delete_old_runs(context.instance, assets, checks, clock() - KEEP)
        return SensorResult(skip_reason=SkipReason(f"{deleted} old runs are deleted"))

    return SensorDefinition(
        name=NAME,
        evaluation_fn=evaluate,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        description=f"Deletes runs that sensors of freshline requested, {KEEP.days} days after they were made.",
    )


def forget_copies(instance: DagsterInstance) -> int:
    """Delete the copies of events without a run that nothing reads; returns how many.

    On SQLite, Dagster writes each event to a file of its run and those of assets once more to an index, from which all
    questions about assets are answered. Events without a run share one file, which would grow for ever.
    """
    storage = instance.event_log_storage
    if not isinstance(storage, SqliteEventLogStorage):
        return 0
    columns = SqlEventLogStorageTable.c
    copies = sqlalchemy.and_(
        columns.run_id == RUNLESS_RUN_ID,
        # The others stand in that file alone, or are asked for there.
        columns.dagster_event_type.in_([each.value for each in ASSET_EVENTS]),
    )
    with storage.run_connection(RUNLESS_RUN_ID) as connection:
        return int(connection.execute(SqlEventLogStorageTable.delete().where(copies)).rowcount)


def delete_old_runs(
    instance: DagsterInstance, assets: Collection[AssetKey], checks: Collection[AssetCheckKey], before: datetime
) -> int:
    """Delete ended runs of freshline's own sensors that were made before a time; returns how many."""
    shown: set[str] | None = None
    deleted = 0
    for tag in (SCHEDULED, VERIFICATION):
        filters = RunsFilter(statuses=ENDED, tags={tag: "true"}, created_before=before)
        for record in instance.get_run_records(filters, limit=MOST_RUNS_A_TICK - deleted, ascending=True):
            if shown is None:
                shown = _newest_runs(instance, assets, checks)
            if record.dagster_run.run_id in shown:
                continue
            instance.delete_run(record.dagster_run.run_id)
            deleted += 1
    return deleted


def _newest_runs(
    instance: DagsterInstance, assets: Collection[AssetKey], checks: Collection[AssetCheckKey]
) -> set[str]:
    """The runs whose events the pages of the assets show."""
    records = instance.get_asset_records(list(assets))
    judged = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(checks))
    return {record.run_id for record in judged.values()} | {
        entry.last_materialization.run_id
        for entry in (record.asset_entry for record in records)
        if entry.last_materialization is not None
    }
