"""The input of sensors and checks: the state of the tables, which are left alone and why, which sensors are on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime

from dagster import SensorEvaluationContext

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.dagster.keys import AssetKeys
from freshline.dagster.scheduler import BATCH, SCHEDULER, STOPPED, SUPERVISOR, SchedulerState, sensor_states
from freshline.declare.graph import Graph
from freshline.freshness.batch import batch_tables
from freshline.freshness.exclusion import excluded_tables
from freshline.freshness.intentions import Intentions, apply_overrides
from freshline.report.notices import TableUpkeep
from freshline.report.status import TableStatus, read_status
from freshline.values.names import TableName
from freshline.values.settings import Settings


@dataclass(frozen=True)
class ProjectInspection:
    """The state of the tables at `now`. `left_alone` are those that must not be refreshed, `reasons` says why."""

    now: datetime
    graph: Graph
    statuses: Mapping[TableName, TableStatus]
    left_alone: Mapping[TableName, TableUpkeep]
    reasons: Mapping[TableName, str]
    keys: AssetKeys

    @property
    def shown(self) -> tuple[TableName, ...]:
        """The tables that freshline keeps fresh and Dagster has as assets here, in the order of the graph."""
        return self.keys.only(self.graph.kept)


@contextmanager
def opened(settings: Settings) -> Iterator[ControlStore]:
    """The control store for one tick: kept open, it would go on with a file that somebody has moved away."""
    with closing(ControlStore.open(settings.control_store, settings.umask)) as control:
        yield control


def switches(context: SensorEvaluationContext) -> Mapping[str, str]:
    """RUNNING or STOPPED for both sensors of this code location."""
    origin = context.code_location_origin
    return sensor_states(context.instance, None if origin is None else origin.location_name)


def beat(control: ControlStore, sensors: Mapping[str, str], own: str, now: datetime) -> None:
    """Record that Dagster schedules, and which sensors are switched on. The sensor `own` runs."""
    state = SchedulerState(now, {**sensors, own: "RUNNING"})
    control.heartbeats.beat(SCHEDULER, now, state.detail)


def inspect(
    settings: Settings,
    graph: Graph,
    keys: AssetKeys,
    control: ControlStore,
    sensors: Mapping[str, str],
    now: datetime,
    *,
    own: str | None = None,
) -> ProjectInspection:
    """Read the state of everything. `own` is the sensor that asks, if one does: its own tables are not paused."""
    intentions = control.intentions.read().at(now)
    graph = apply_overrides(graph, intentions)
    # Not counted here: rows and files are counted only for an event that is reported.
    found = read_status(graph, control, Warehouse(settings.warehouse), now, counted=False)
    batch = frozenset(batch_tables(graph))
    paused: dict[TableName, str] = {}
    for sensor in (SUPERVISOR, BATCH):
        if sensor != own and sensors[sensor] == STOPPED:
            reason = f"the sensor {sensor} is switched off in Dagster"
            # Of tables only: rows that arrive are brought in all the same, see freshness/exclusion.py.
            paused |= {each.name: reason for each in graph.tables if (each.name in batch) is (sensor == BATCH)}
    left_alone, reasons = leave_alone(graph, intentions, paused)
    return ProjectInspection(now, graph, {status.table: status for status in found}, left_alone, reasons, keys)


def leave_alone(
    graph: Graph, intentions: Intentions, paused: Mapping[TableName, str]
) -> tuple[dict[TableName, TableUpkeep], dict[TableName, str]]:
    """The tables that must not be refreshed now, and why.

    Suspended ones, those below them over inputs that count in lag, and those whose sensor is switched off.
    """
    held = excluded_tables(graph, intentions, None)
    standings = {name: TableUpkeep(hold.by.value) for name, hold in held.items()}
    reasons = {name: hold.reason for name, hold in held.items()}
    for name, reason in paused.items():
        if name not in standings:
            standings[name], reasons[name] = TableUpkeep.PAUSED, reason
    return standings, reasons
