"""Whether Dagster is there to schedule, by its own storage.

`freshline watch` runs outside of Dagster and must notice its silence; the sensors must know whether the other one was
switched off. Both read what Dagster's daemon writes for itself, and start nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

from dagster import DagsterInstance

from freshline.dagster.internals import InstigatorState, InstigatorStatus, InstigatorType, SensorInstigatorData
from freshline.errors import StorageError
from freshline.values.settings import Settings

SUPERVISOR = "freshline_supervisor"
BATCH = "freshline_batch"
# The names of heartbeats in the control store.
SCHEDULER = "scheduler"
ENGINE = "engine"

RUNNING = "RUNNING"
STOPPED = "STOPPED"


@dataclass(frozen=True)
class SchedulerState:
    """When Dagster's daemon was last heard of (None: never), and for each sensor of freshline RUNNING or STOPPED."""

    daemon_heartbeat: datetime | None
    sensors: Mapping[str, str]

    @property
    def detail(self) -> dict[str, str]:
        """The detail of the heartbeat `scheduler` in the control store."""
        return {"supervisor": self.sensors[SUPERVISOR], "batch": self.sensors[BATCH]}


def read_scheduler(settings: Settings) -> SchedulerState | None:
    """The state in the storage of `freshline up`'s Dagster; None where there is none.

    Only reads. Importing Dagster takes 135 MB and some seconds, the first call two; each further one about seven
    milliseconds. Raises StorageError where the storage cannot be read.
    """
    home = settings.state / "dagster"
    # Dagster would make what is not there.
    if not all((home / file).is_file() for file in ("dagster.yaml", "schedules/schedules.db", "history/runs.db")):
        return None
    try:
        instance = _instance(home)
        beats = instance.get_daemon_heartbeats().values()
        sensors = sensor_states(instance)
    except Exception as error:  # Dagster lets through whatever its storage raises
        _instance.cache_clear()
        raise StorageError(
            f"Dagster's storage cannot be read: {type(error).__name__}: {error}. Look into dagster-daemon.log in the "
            "state folder.",
            where=str(home),
        ) from error
    # The daemons of one process beat together; the newest shows that it lives.
    newest = max((beat.timestamp for beat in beats), default=None)
    return SchedulerState(None if newest is None else datetime.fromtimestamp(newest, UTC), sensors)


def sensor_states(instance: DagsterInstance, location: str | None = None) -> dict[str, str]:
    """RUNNING or STOPPED for each sensor of freshline, of one code location if that is named.

    One that nobody ever switched has no state, or one that says so: it runs. Where several locations have left states,
    those of the location that ticked last count.
    """
    states = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    own = [
        state
        for state in states
        if state.instigator_name in (SUPERVISOR, BATCH) and location in (None, state.origin.location_name)
    ]
    newest = max(own, key=_ticked_at, default=None)
    chosen = [state for state in own if newest is not None and _place(state) == _place(newest)]
    return {name: _status(name, chosen) for name in (SUPERVISOR, BATCH)}


def _status(name: str, states: Iterable[InstigatorState]) -> str:
    stopped = any(state.instigator_name == name and state.status is InstigatorStatus.STOPPED for state in states)
    return STOPPED if stopped else RUNNING


def _place(state: InstigatorState) -> tuple[str, str]:
    return state.origin.location_name, state.origin.repository_origin.repository_name


def _ticked_at(state: InstigatorState) -> float:
    data = state.instigator_data
    return (data.last_tick_start_timestamp or 0.0) if isinstance(data, SensorInstigatorData) else 0.0


@lru_cache(maxsize=1)
def _instance(home: Path) -> DagsterInstance:
    return DagsterInstance.from_config(str(home))
