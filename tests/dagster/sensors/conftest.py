"""A project whose tables are written by delta-rs, a Dagster of its own, and ticks of its sensors at a chosen time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    DagsterInstance,
    Definitions,
    SensorResult,
    TableColumnLineage,
    build_sensor_context,
)
from dagster._core.definitions.run_request import InstigatorType
from dagster._core.remote_origin import InProcessCodeLocationOrigin, RemoteInstigatorOrigin, RemoteRepositoryOrigin
from dagster._core.scheduler.instigation import InstigatorState, InstigatorStatus, SensorInstigatorData
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from deltalake import CommitProperties, write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import read_newest
from freshline.commit.warehouse import Warehouse
from freshline.dagster import FreshlineProject, build_definitions
from freshline.dagster.freshness import CHECK
from freshline.dagster.keys import AssetKeys
from freshline.dagster.lineage import read_lineages, shown_lineages
from freshline.dagster.sensors.batch import request_batch
from freshline.dagster.sensors.supervisor import supervise
from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.errors import error_from_json
from freshline.freshness.intentions import Suspension
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult
from freshline.values.settings import Settings

TABLE = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL {} AS SELECT id FROM {}"
DECLARATIONS = {
    "event": "CREATE SOURCE event (id STRING) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')",
    "loads": "CREATE SOURCE loads (id STRING) WITH ('connector' = 'delta', 'path' = 'loads')",
    "live": TABLE.format("live", "'10' SECOND", "event"),
    "hourly": TABLE.format("hourly", "'1' HOUR", "live"),
    "daily": TABLE.format("daily", "'1' DAY", "hourly"),
    "campaign": TABLE.format("campaign", "'6' HOUR", "loads"),
}
Event = AssetMaterialization | AssetObservation | AssetCheckEvaluation


@dataclass
class Bench:
    """One project and one Dagster. Ticks report their events as the daemon does, and keep their cursors."""

    settings: Settings
    graph: Graph
    control: ControlStore
    instance: DagsterInstance
    loaded: Definitions
    now: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))
    cursors: dict[str, str | None] = field(default_factory=dict)

    @property
    def keys(self) -> AssetKeys:
        return AssetKeys.of(self.graph)

    @property
    def lineages(self) -> dict[TableName, TableColumnLineage]:
        return shown_lineages(read_lineages(self.graph, self.settings), self.keys)

    def commit(self, name: str, rows: int = 2, **changes: object) -> None:
        """A refresh that wrote, at the time of the bench."""
        table = TableName.parse(name)
        receipt = Receipt(
            table=table, fingerprint="f", epoch=1, seq=1, mode="continuous", strategy="append", reason="2 new files",
            data_timestamp=self.now, rows_in=rows, rows_out=rows, attempt="a", seconds=0.5, positions={},
            **changes,  # type: ignore[arg-type]
        )  # fmt: skip
        path = Warehouse(self.settings.warehouse).location(self.graph.spec(table))
        write_deltalake(
            path, pa.table({"id": ["x"] * rows}), mode="append",
            commit_properties=CommitProperties(custom_metadata={"userMetadata": receipt.to_json()}),
        )  # fmt: skip
        self.record(name, committed=True, strategy="append", reason="2 new files", rows_in=rows, rows_out=rows)

    def check(self, *names: str) -> None:
        """A check that found nothing new, at the time of the bench."""
        for name in names:
            spec = self.graph.spec(TableName.parse(name))
            newest = read_newest(Warehouse(self.settings.warehouse).location(spec))
            known = {} if newest is None or newest.receipt is None else {"receipt": newest.receipt.identity}
            self.control.record_check(spec.name, self.now, json.dumps(known))

    def record(self, name: str, **changes: object) -> None:
        # A commit without rows says nothing of how long those with rows take.
        strategy = "keys" if changes.get("committed") else "noop"
        values: dict[str, object] = {
            "table": TableName.parse(name), "at": self.now, "state": "SUCCEEDED", "strategy": strategy,
            "reason": "nothing new", "seconds": 0.5, "version": 0, "fingerprint": "f", **changes,
        }  # fmt: skip
        if isinstance(error := values.get("error"), dict):
            values["error"] = error_from_json(error)
        self.control.record_refresh(RefreshResult(**values))  # type: ignore[arg-type]

    def suspend(self, name: str, **changes: object) -> None:
        values: dict[str, object] = {"by": "operator", "at": self.now, "reason": "sale", **changes}
        suspension = Suspension(TableName.parse(name), **values)  # type: ignore[arg-type]
        self.control.intentions.change(set_suspensions=[suspension])

    def switch(self, sensor: str, status: InstigatorStatus, *, location: str = "here", ticked: float = 1.0) -> None:
        """A sensor as somebody left it in the UI."""
        place = InProcessCodeLocationOrigin(
            loadable_target_origin=LoadableTargetOrigin(module_name="m"), location_name=location
        )
        origin = RemoteInstigatorOrigin(
            repository_origin=RemoteRepositoryOrigin(code_location_origin=place, repository_name="__repository__"),
            instigator_name=sensor,
        )
        data = SensorInstigatorData(last_tick_start_timestamp=ticked)
        state = InstigatorState(origin, InstigatorType.SENSOR, status, data)
        if self.instance.get_instigator_state(state.instigator_origin_id, state.selector_id) is None:
            self.instance.add_instigator_state(state)
        else:
            self.instance.update_instigator_state(state)

    def supervise(self, seconds: float = 10) -> SensorResult:
        """A tick of the supervisor, some seconds later."""
        self.now += timedelta(seconds=seconds)
        return self._tick(
            "supervisor",
            lambda context: supervise(context, self.settings, self.graph, self.keys, self.now, self.lineages),
        )

    def request(self, seconds: float = 10) -> SensorResult:
        """A tick of the batch sensor, some seconds later."""
        self.now += timedelta(seconds=seconds)
        return self._tick(
            "batch", lambda context: request_batch(context, self.settings, self.graph, self.keys, self.now, 1.0)
        )

    def _tick(self, name: str, evaluate: Callable[..., SensorResult]) -> SensorResult:
        context = build_sensor_context(
            instance=self.instance, cursor=self.cursors.get(name), repository_def=self.loaded.get_repository_def()
        )
        result = evaluate(context)
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        self.cursors[name] = result.cursor
        return result


@pytest.fixture
def declarations() -> dict[str, str]:
    """The declarations of a module in place of DECLARATIONS."""
    return {}


@pytest.fixture
def bench(settings: Settings, declarations: dict[str, str]) -> Iterator[Bench]:
    declared = {**DECLARATIONS, **declarations}
    (settings.root / "pyproject.toml").write_text("[tool.freshline]\n")
    settings.declarations.mkdir()
    for name, text in declared.items():
        (settings.declarations / f"{name}.sql").write_text(text)
    graph = read_declarations({f"{name}.sql": text for name, text in declared.items()}, settings)
    control = ControlStore.open(settings.control_store)
    with DagsterInstance.local_temp(str(settings.root), overrides={"telemetry": {"enabled": False}}) as instance:
        yield Bench(settings, graph, control, instance, build_definitions(FreshlineProject(settings.root)))
    control.close()


def of(result: SensorResult, kind: type[Event], key: str) -> list[Event]:
    """The events of one kind for one table; of its checks those of `freshness`."""
    return [
        event
        for event in result.asset_events
        if isinstance(event, kind) and event.asset_key == AssetKey(key) and getattr(event, "check_name", CHECK) == CHECK
    ]


@pytest.fixture
def events() -> Callable[[SensorResult, type[Event], str], list[Event]]:
    return of
