"""`freshline_verify`: requests the check `verify` of one table after the other, now and then.

A recompute costs what a full refresh does, so it is one table at a time, one every six hours, the first an hour after
the sensor began. Of those that are too large for it some partitions are verified, where there are any: the newest one
and others that chance chooses. Switched off, tables are verified when somebody asks.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from dagster import (
    AssetCheckKey,
    AssetSelection,
    DagsterInstance,
    DefaultSensorStatus,
    RunRequest,
    RunsFilter,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
)

from freshline.commit.delta_log import count_rows
from freshline.commit.warehouse import Warehouse
from freshline.dagster.checks import VERIFIED_PARTITIONS, VERIFY
from freshline.dagster.inspection import inspect, opened
from freshline.dagster.internals import AssetCheckExecutionRecordStatus
from freshline.dagster.keys import AssetKeys
from freshline.dagster.partitions import done_partitions
from freshline.dagster.scheduler import sensor_states
from freshline.dagster.sensors.runs import UNFINISHED
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError
from freshline.query.rules.partition import origin_of
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.settings import Settings
from freshline.values.spec import TableSpec

NAME = "freshline_verify"
TAG = "freshline/verify"
INTERVAL_SECONDS = 600
EVERY = timedelta(hours=6)
FIRST_AFTER = timedelta(hours=1)
MOST_ROWS = 5_000_000
SAMPLED_PARTITIONS = 4


@dataclass(frozen=True)
class Size:
    """How many rows a table has, None where that is not known, and its partitions that are done, the newest last."""

    rows: int | None
    partitions: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        return self.rows is not None and self.rows <= MOST_ROWS

    @property
    def sampled(self) -> bool:
        """Whether some of its partitions are few enough rows, as far as one is as large as another."""
        if self.rows is None or len(self.partitions) <= SAMPLED_PARTITIONS:
            return False
        return self.rows / len(self.partitions) * SAMPLED_PARTITIONS <= MOST_ROWS


@dataclass(frozen=True)
class VerificationCursor:
    """When the sensor began, and when each table was asked for last."""

    began: datetime
    asked: Mapping[TableName, datetime] = field(default_factory=dict)

    def to_json(self) -> str:
        """A text for the cursor of the sensor."""
        asked = {str(name): at.timestamp() for name, at in self.asked.items()}
        return json.dumps({"began": self.began.timestamp(), "asked": asked}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> VerificationCursor | None:
        """The cursor that was written; None where there is nothing that can be read: then the sensor begins."""
        try:
            value = json.loads(text or "")
            asked = {TableName.parse(name): datetime.fromtimestamp(at, UTC) for name, at in value["asked"].items()}
            return cls(datetime.fromtimestamp(value["began"], UTC), asked)
        except (KeyError, ValueError, TypeError, AttributeError):
            return None


def verify_sensor(
    settings: Settings,
    graph: Graph,
    keys: AssetKeys,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> SensorDefinition:
    """The sensor of a project; `graph` is as declared."""
    checks = [keys.check(name, VERIFY) for name in keys.only(table.name for table in graph.verified)]

    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        return request_verification(context, settings, graph, keys, clock())

    return SensorDefinition(
        name=NAME,
        evaluation_fn=evaluate,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        asset_selection=AssetSelection.checks(*checks),
        description="Verifies one table every six hours: a recompute must equal what is stored.",
    )


def request_verification(
    context: SensorEvaluationContext, settings: Settings, graph: Graph, keys: AssetKeys, now: datetime
) -> SensorResult:
    """One tick: request the check of the table that was verified longest ago, if it is time for one."""
    cursor = VerificationCursor.from_json(context.cursor) or VerificationCursor(now)
    asked = cursor.asked
    # A clock that was set back must not stop it for long.
    newest = max((at for at in asked.values() if at <= now), default=None)
    again = min(cursor.began, now) + FIRST_AFTER if newest is None else newest + EVERY
    if now < again:
        waiting = SkipReason(f"the next table is verified at {again:%Y-%m-%d %H:%M}Z")
        return SensorResult(skip_reason=waiting, cursor=cursor.to_json())
    if context.instance.get_run_records(RunsFilter(statuses=UNFINISHED, tags={TAG: "true"}), limit=1):
        return SensorResult(skip_reason=SkipReason("a verification is in progress"))
    sizes = _sizes(settings, graph, keys, context, now)
    chosen = choose(sizes, asked)
    if chosen is None:
        return SensorResult(skip_reason=SkipReason("no table has data that can be verified now"))
    check = keys.check(chosen, VERIFY)
    # Partitions that failed are verified again: a sample without them would say that all is well.
    failed = () if sizes[chosen].whole else failed_partitions(context.instance, check)
    after = VerificationCursor(cursor.began, {name: at for name, at in asked.items() if name in graph} | {chosen: now})
    return SensorResult(
        run_requests=[
            RunRequest(
                run_key=f"{chosen}/{now.timestamp():.0f}",
                asset_selection=[],
                asset_check_keys=[check],
                tags={TAG: "true", **_sample_tag(graph, chosen, sizes[chosen], failed, now)},
            )
        ],
        cursor=after.to_json(),
    )


def choose(sizes: Mapping[TableName, Size], asked: Mapping[TableName, datetime]) -> TableName | None:
    """The table that was asked for longest ago, of those that can be verified, whole or by some partitions."""
    possible = [name for name, size in sizes.items() if size.whole or size.sampled]
    never = datetime.min.replace(tzinfo=UTC)
    return min(possible, key=lambda name: (asked.get(name, never), str(name)), default=None)


def sample(name: TableName, partitions: Sequence[str], now: datetime) -> tuple[str, ...]:
    """The newest partition, where mistakes are young, and others: at each moment chance chooses the same ones."""
    *others, newest = partitions
    chance = random.Random(f"{name} {now.isoformat()}")
    return (*sorted(chance.sample(others, min(SAMPLED_PARTITIONS - 1, len(others)))), newest)


def failed_partitions(instance: DagsterInstance, key: AssetCheckKey) -> Sequence[Any]:
    """The partitions that the newest verification was of, where it failed; none where it passed or was of all."""
    record = instance.event_log_storage.get_latest_asset_check_execution_by_key([key]).get(key)
    if record is None or record.status is not AssetCheckExecutionRecordStatus.FAILED:
        return ()
    run = instance.get_run_by_id(record.run_id)
    return () if run is None else json.loads(run.tags.get(VERIFIED_PARTITIONS, "[]"))


def _sample_tag(graph: Graph, name: TableName, size: Size, failed: Sequence[Any], now: datetime) -> dict[str, str]:
    if size.whole:
        return {}
    (column,) = graph.table(name).partitioned_by
    chosen = [[[column, key]] for key in sample(name, size.partitions, now)]
    return {VERIFIED_PARTITIONS: json.dumps([*failed, *(each for each in chosen if each not in failed)])}


def _is_computed_apart(table: TableSpec) -> bool:
    """Whether a partition is computed without the others: its value follows from one input, and nothing is replayed."""
    if table.lookups or table.merge is not None or not isinstance(table.query, SqlQuery):
        return False
    return origin_of(table) is not None


def _sizes(
    settings: Settings, graph: Graph, keys: AssetKeys, context: SensorEvaluationContext, now: datetime
) -> dict[TableName, Size]:
    """The rows and partitions of each table that stands well."""
    warehouse = Warehouse(settings.warehouse)
    with opened(settings) as control:
        inspection = inspect(settings, graph, keys, control, sensor_states(context.instance), now)
    found: dict[TableName, Size] = {}
    for table in graph.verified:
        if table.name not in keys.selected:
            continue
        status = inspection.statuses[table.name]
        if status.version is None or status.error is not None:
            continue
        try:
            rows = count_rows(warehouse.path(table.name), status.version)
            apart = rows is not None and rows > MOST_ROWS and _is_computed_apart(table)
            found[table.name] = Size(rows, done_partitions(table, warehouse)[0] if apart else ())
        except FreshlineError:
            # Another version stands there by now; the next tick counts that.
            continue
    return found
