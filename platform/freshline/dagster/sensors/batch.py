"""`freshline_batch`: requests a run for every batch table that is due.

One sensor checks all of them: a tick of a sensor costs the daemon some 40 ms. The due tables follow from the state of
the tables, so nothing is lost when ticks are; the cursor has only the requests that have not helped yet. A run key
stands for one attempt, because Dagster requests a run key once and never again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import ceil

from dagster import (
    AssetObservation,
    AssetSelection,
    DefaultSensorStatus,
    RunRequest,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from freshline.commit.control_store import ControlStore
from freshline.dagster.inspection import ProjectInspection, beat, inspect, opened, switches
from freshline.dagster.keys import AssetKeys
from freshline.dagster.materialize import SCHEDULED
from freshline.dagster.scheduler import BATCH, STOPPED, SUPERVISOR
from freshline.dagster.sensors.runs import in_progress
from freshline.declare.graph import Graph
from freshline.freshness.batch import BatchPlan, RunAttempts, batch_tables, plan_batch
from freshline.freshness.due import due_tables, with_driving
from freshline.freshness.lag import is_future
from freshline.report.notices import EVENTS_A_TICK, TableUpkeep
from freshline.values.names import TableName
from freshline.values.settings import Settings

# Its tables may lag by half an hour at least; each tick is a row that Dagster keeps for a day.
INTERVAL_SECONDS = 30
FORMAT = 1
_SHOWN = 5


@dataclass(frozen=True)
class BatchCursor:
    """The memory that one tick leaves to the next; `paused`: the other sensor's tables were reported as paused."""

    attempts: Mapping[TableName, RunAttempts] = field(default_factory=dict)
    paused: bool = False

    def to_json(self) -> str:
        """A text for the cursor of the sensor."""
        return json.dumps(
            {
                "format": FORMAT,
                "attempts": {
                    str(name): [attempt.count, ceil(attempt.again_at.timestamp())]
                    for name, attempt in self.attempts.items()
                },
                "paused": self.paused,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str | None) -> BatchCursor:
        """The cursor that was written; an empty one where it cannot be read: then due tables are requested at once."""
        try:
            value = json.loads(text or "")
            if value["format"] != FORMAT:
                return cls()
            attempts = {
                TableName.parse(name): RunAttempts(int(count), datetime.fromtimestamp(again_at, UTC))
                for name, (count, again_at) in value["attempts"].items()
            }
            return cls(attempts, bool(value["paused"]))
        except (KeyError, TypeError, ValueError, AttributeError):
            return cls()


def batch_sensor(
    settings: Settings,
    graph: Graph,
    keys: AssetKeys,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    random_number: Callable[[], float] = random.random,
) -> SensorDefinition:
    """The sensor of a project; `graph` is as declared."""

    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        return request_batch(context, settings, graph, keys, clock(), random_number())

    return SensorDefinition(
        name=BATCH,
        evaluation_fn=evaluate,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        # All of them: while its freshness is overridden, any table may be kept in batch mode.
        asset_selection=AssetSelection.assets(*(keys[name] for name in keys.only(graph.kept))),
        description="Requests a run for each batch table that is due by its freshness. Switched off, it pauses them.",
    )


def request_batch(
    context: SensorEvaluationContext, settings: Settings, graph: Graph, keys: AssetKeys, now: datetime, jitter: float
) -> SensorResult:
    """One tick: report that Dagster is there, and request the due tables among those that are assets here."""
    cursor = BatchCursor.from_json(context.cursor)
    sensors = switches(context)
    with opened(settings) as control:
        beat(control, sensors, BATCH, now)
        inspection = inspect(settings, graph, keys, control, sensors, now, own=BATCH)
        due = keys.only(due_batch(inspection, control))
    busy = in_progress(context.instance, context.repository_def, inspection, now)
    plan = plan_batch(
        inspection.graph,
        due,
        busy.tables,
        inspection.reasons,
        cursor.attempts,
        now,
        slots=settings.parallel_refreshes - busy.scheduled,
        jitter=jitter,
        # Without sources that others write: only a refresh can find what is wrong with them.
        empty=frozenset(name for name in inspection.graph.kept if inspection.statuses[name].version is None),
    )
    paused = sensors[SUPERVISOR] == STOPPED
    requests = [_request(keys.only(tables), keys, plan, now) for tables in plan.runs]
    return SensorResult(
        run_requests=requests,
        asset_events=_paused(inspection) if paused and not cursor.paused else [],
        skip_reason=None if requests else SkipReason(_why_none(inspection, due, plan)),
        cursor=BatchCursor(plan.attempts, paused).to_json(),
    )


def due_batch(inspection: ProjectInspection, control: ControlStore) -> tuple[TableName, ...]:
    """The batch tables that are due at the time of the inspection.

    The seconds of refreshes are read only for tables whose data are older than half of their freshness: no table is due
    before that.
    """
    graph = inspection.graph
    old = [name for name in batch_tables(graph) if _is_old(inspection, name)]
    seconds = {name: control.seconds_of(name) or 0.0 for name in with_driving(graph, old)}
    stamps = {name: status.data_timestamp for name, status in inspection.statuses.items()}
    return _only(due_tables(graph, stamps, seconds, inspection.now), frozenset(old))


def _is_old(inspection: ProjectInspection, name: TableName) -> bool:
    status = inspection.statuses[name]
    if status.data_timestamp is None or is_future(status.data_timestamp, inspection.now):
        return True  # by a clock that was put back it would be young for as long as it was put back
    return status.lag_seconds is None or status.lag_seconds >= status.freshness_seconds / 2


def _only(names: Collection[TableName], wanted: Collection[TableName]) -> tuple[TableName, ...]:
    return tuple(name for name in names if name in wanted)


def _request(tables: tuple[TableName, ...], keys: AssetKeys, plan: BatchPlan, now: datetime) -> RunRequest:
    first = next((name for name in tables if name in plan.attempts), tables[0])
    attempt = plan.attempts[first].count if first in plan.attempts else 1
    return RunRequest(
        run_key=f"{first}/{attempt}/{now.timestamp():.3f}",
        asset_selection=[keys[name] for name in tables],
        # The other sensor reports the check when it changes; in each run it would be one more step.
        asset_check_keys=[],
        tags={SCHEDULED: "true", "freshline/attempt": str(attempt)},
    )


def _paused(inspection: ProjectInspection) -> list[AssetObservation]:
    """The supervisor's tables, reported by this sensor because that one does not tick."""
    found = inspection.keys.only(
        name for name, standing in inspection.left_alone.items() if standing is TableUpkeep.PAUSED
    )
    return [
        AssetObservation(
            asset_key=inspection.keys[name],
            description=f"{TableUpkeep.PAUSED}: {inspection.reasons[name]}",
            metadata={"state": str(TableUpkeep.PAUSED), "reason": inspection.reasons[name]},
        )
        for name in found[:EVENTS_A_TICK]
    ]


def _why_none(inspection: ProjectInspection, due: Collection[TableName], plan: BatchPlan) -> str:
    if not due:
        return f"none of {len(batch_tables(inspection.graph))} batch tables is due"
    shown = [f"{name}: {why}" for name, why in list(plan.waiting.items())[:_SHOWN]]
    more = len(plan.waiting) - len(shown)
    return "; ".join(shown) + (f"; and {more} more" if more > 0 else "")
