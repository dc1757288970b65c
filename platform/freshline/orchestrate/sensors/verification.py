"""`freshline_verify`: requests the check `verify` of one table after the other, now and then.

A recompute costs what a full refresh does, so it is one table at a time, one every six hours, and none of those that
are too large for it. Switched off, tables are verified only by whom that asks for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from dagster import (
    AssetCheckKey,
    AssetSelection,
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
from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.settings import Settings
from freshline.errors import FreshlineError
from freshline.orchestrate.asset import asset_key
from freshline.orchestrate.checks import VERIFY
from freshline.orchestrate.look import opened, take_look
from freshline.orchestrate.scheduler import sensor_states
from freshline.orchestrate.sensors.runs import UNFINISHED

NAME = "freshline_verify"
TAG = "freshline/verify"
INTERVAL_SECONDS = 600
EVERY = timedelta(hours=6)
MOST_ROWS = 5_000_000


def verify_sensor(
    settings: Settings, graph: Graph, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> SensorDefinition:
    """The sensor of a project; `graph` is as declared."""
    checks = [AssetCheckKey(asset_key(table.name), VERIFY) for table in graph.tables]

    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        return request_verification(context, settings, graph, clock())

    return SensorDefinition(
        name=NAME,
        evaluation_fn=evaluate,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        asset_selection=AssetSelection.checks(*checks),
        description="Verifies one table every six hours: a recompute must equal what is stored.",
    )


def request_verification(
    context: SensorEvaluationContext, settings: Settings, graph: Graph, now: datetime
) -> SensorResult:
    """One tick: request the check of the table that was verified longest ago, if it is time for one."""
    asked = _asked(context.cursor)
    # A clock that was set back must not stop it for long.
    newest = max((at for at in asked.values() if at <= now), default=None)
    if newest is not None and now - newest < EVERY:
        again = newest + EVERY
        return SensorResult(skip_reason=SkipReason(f"the next table is verified at {again:%Y-%m-%d %H:%M}Z"))
    if context.instance.get_run_records(RunsFilter(statuses=UNFINISHED, tags={TAG: "true"}), limit=1):
        return SensorResult(skip_reason=SkipReason("a verification is in progress"))
    chosen = choose(_sizes(settings, graph, context, now), asked)
    if chosen is None:
        return SensorResult(skip_reason=SkipReason("no table has data that can be verified now"))
    after = {name: at for name, at in asked.items() if name in graph} | {chosen: now}
    return SensorResult(
        run_requests=[
            RunRequest(
                run_key=f"{chosen}/{now.timestamp():.0f}",
                asset_selection=[],
                asset_check_keys=[AssetCheckKey(asset_key(chosen), VERIFY)],
                tags={TAG: "true"},
            )
        ],
        cursor=json.dumps({str(name): at.timestamp() for name, at in after.items()}, separators=(",", ":")),
    )


def choose(sizes: Mapping[TableName, int | None], asked: Mapping[TableName, datetime]) -> TableName | None:
    """The table that was asked for longest ago, of those that are not too large."""
    possible = [name for name, rows in sizes.items() if rows is not None and rows <= MOST_ROWS]
    never = datetime.min.replace(tzinfo=UTC)
    return min(possible, key=lambda name: (asked.get(name, never), str(name)), default=None)


def _sizes(
    settings: Settings, graph: Graph, context: SensorEvaluationContext, now: datetime
) -> dict[TableName, int | None]:
    """The rows of each table that stands well."""
    warehouse = Warehouse(settings.warehouse)
    with opened(settings) as control:
        look = take_look(settings, graph, control, sensor_states(context.instance), now)
    found: dict[TableName, int | None] = {}
    for table in graph.tables:
        status = look.statuses[table.name]
        if status.version is None or status.error is not None:
            continue
        try:
            found[table.name] = count_rows(warehouse.path(table.name), status.version)
        except FreshlineError:
            # Another version stands there by now; the next tick counts that.
            continue
    return found


def _asked(cursor: str | None) -> dict[TableName, datetime]:
    try:
        return {TableName.parse(name): datetime.fromtimestamp(at, UTC) for name, at in json.loads(cursor or "").items()}
    except (ValueError, TypeError, AttributeError):
        return {}
