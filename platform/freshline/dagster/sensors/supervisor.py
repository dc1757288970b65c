"""`freshline_supervisor`: continuous and incremental tables, and log tables, as Dagster sees them.

The engine refreshes these by itself; a run for each refresh would cost Dagster more than the refresh. This sensor sees
to it that the engine of `freshline up` runs, and reports its refreshes as materializations without a run. Failures and
suspensions are observations: a failed refresh materialized nothing, and an event that counts as a materialization
would let Dagster's freshness policy pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetKey,
    AssetMaterialization,
    AssetObservation,
    AssetSelection,
    DagsterEventType,
    DagsterInstance,
    DefaultSensorStatus,
    MetadataValue,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    TableColumnLineage,
)

from freshline.commit.control_store import KEPT_RECORDS, ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.dagster.checks import quick_verdicts, read_facts
from freshline.dagster.data_versions import VersionReports
from freshline.dagster.freshness import verdict
from freshline.dagster.inspection import ProjectInspection, beat, inspect, opened, switches
from freshline.dagster.internals import AssetCheckExecutionRecord
from freshline.dagster.keys import AssetKeys
from freshline.dagster.materialize import Materialization, outcome_metadata, version_metadata
from freshline.dagster.partitions import PartitionBars, newest_done
from freshline.dagster.scheduler import ENGINE, SUPERVISOR
from freshline.dagster.sensors.janitor import forget_copies
from freshline.dagster.sensors.revival import keep_engine
from freshline.declare.graph import Graph
from freshline.engine.watch_health import read_watch_problems
from freshline.errors import FreshlineError
from freshline.freshness.batch import batch_tables
from freshline.report.notices import (
    CHECK_SECONDS,
    EVENTS_A_TICK,
    Memory,
    Notice,
    NoticeKind,
    TableUpkeep,
    decide_notices,
    find_leads,
    told_too,
    turn_seconds,
)
from freshline.report.status import TableStatus
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec

INTERVAL_SECONDS = 10
# Decisions about tables, beside refreshes and suspensions, that are reported as they are recorded.
DECISIONS = ("ALTERED", "INFEASIBLE")
_DECISIONS_A_TICK = 50

# The versions that were checked, as long as the code server lives: Dagster itself knows the reported partitions.
BARS = PartitionBars()

Event = AssetMaterialization | AssetObservation | AssetCheckEvaluation


def supervisor_sensor(
    settings: Settings,
    graph: Graph,
    keys: AssetKeys,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    lineages: Mapping[TableName, TableColumnLineage] | None = None,
    descriptions: Mapping[TableName, Mapping[str, str]] | None = None,
) -> SensorDefinition:
    """The sensor of a project; `graph` is as declared, `lineages` and `descriptions` are those of its columns."""
    batch = frozenset(batch_tables(graph))
    shown = [keys[name] for name in keys.only(graph.kept) if name not in batch]

    def evaluate(context: SensorEvaluationContext) -> SensorResult:
        return supervise(context, settings, graph, keys, clock(), lineages or {}, descriptions or {})

    return SensorDefinition(
        name=SUPERVISOR,
        evaluation_fn=evaluate,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=DefaultSensorStatus.RUNNING,
        # Requests no runs: the assets are named so that their pages show the switch that pauses them.
        asset_selection=AssetSelection.assets(*shown) if shown else None,
        description="Reports the tables that the engine keeps by itself. Switched off, it pauses them: the engine "
        "leaves continuous and incremental tables as they are until it is on again.",
    )


def supervise(
    context: SensorEvaluationContext,
    settings: Settings,
    graph: Graph,
    keys: AssetKeys,
    now: datetime,
    lineages: Mapping[TableName, TableColumnLineage],
    descriptions: Mapping[TableName, Mapping[str, str]] | None = None,
) -> SensorResult:
    """One tick: report that Dagster is there, see to the engine, and report what changed or is in its turn."""
    memory = Memory.from_json(context.cursor)
    sensors = switches(context)
    # The events of the last tick are stored by now.
    forget_copies(context.instance)
    with opened(settings) as control:
        beat(control, sensors, SUPERVISOR, now)
        engine = keep_engine(settings, control, now)
        inspection = inspect(settings, graph, keys, control, sensors, now, own=SUPERVISOR)
        decisions, record = _decisions(control, memory)
        turns = _turns(graph, inspection)
        notices, after = decide_notices(
            [inspection.statuses[name] for name in inspection.shown],
            turns,
            inspection.left_alone,
            replace(memory, record=record),
            now,
            lambda status: _reported_by_a_run(context.instance, keys[status.table], status),
            find_leads(turns, {name: graph.driving(name) for name in graph.order}),
        )
        versions = VersionReports(context.instance, inspection, Warehouse(settings.warehouse), _materialized(notices))
        notices, after = told_too(notices, after, versions.also(), now)
        reporter = Reporter(settings, control, inspection, lineages, descriptions or {}, versions)
        events = [reporter.event(notice) for notice in notices]
        events += changed_checks(context.instance, settings, control, inspection, [notice.table for notice in notices])
        bars = {name: keys[name] for name in inspection.shown}
        events += list(BARS.events(inspection.graph, bars, Warehouse(settings.warehouse), context.instance))
        untold = read_watch_problems(settings, control.heartbeats.read(), now)
    for sentence in untold:
        context.log.error(sentence)
    events += [_decision(each, keys[each.table]) for each in decisions if each.table in keys.selected]
    return SensorResult(
        asset_events=events,
        cursor=after.to_json(),
        skip_reason=SkipReason("; ".join([_summary(inspection, len(events), engine), *untold])),
    )


def changed_checks(
    instance: DagsterInstance,
    settings: Settings,
    control: ControlStore,
    inspection: ProjectInspection,
    tables: Sequence[TableName],
) -> list[Event]:
    """The checks of tables that are reported anyway, where Dagster has another result than they say, or an old one.

    Dagster keeps each for ever; what it has last is read from its own storage, so nothing needs to be remembered.
    """
    engine = control.heartbeats.read().get(ENGINE)
    found: list[Event] = []
    for name in dict.fromkeys(tables):
        verdicts = list(quick_verdicts(read_facts(settings, control, inspection, name, engine), settings))
        checks = [inspection.keys.check(name, each.check) for each in verdicts]
        last = instance.event_log_storage.get_latest_asset_check_execution_by_key(checks)
        for key, each in zip(checks, verdicts, strict=True):
            record = last.get(key)
            old = record is None or inspection.now.timestamp() - record.create_timestamp >= CHECK_SECONDS
            if old or _passed(record) is not each.passed:
                found.append(each.evaluation(inspection.keys[name]))
    return found[:EVENTS_A_TICK]


def _passed(record: AssetCheckExecutionRecord | None) -> bool | None:
    """Whether Dagster shows a check as passed; None for one that a run began and did not end."""
    evaluation = None if record is None or record.event is None else record.event.dagster_event
    if evaluation is None or evaluation.event_type is not DagsterEventType.ASSET_CHECK_EVALUATION:
        return None
    return evaluation.asset_check_evaluation_data.passed


class Reporter:
    """Turns notices into Dagster's events, with what the control store and the logs know of them."""

    def __init__(
        self,
        settings: Settings,
        control: ControlStore,
        inspection: ProjectInspection,
        lineages: Mapping[TableName, TableColumnLineage],
        descriptions: Mapping[TableName, Mapping[str, str]],
        versions: VersionReports,
    ) -> None:
        self._versions = versions
        self._lineages = lineages
        self._descriptions = descriptions
        self._warehouse = Warehouse(settings.warehouse)
        self._control = control
        self._look = inspection

    def event(self, notice: Notice) -> Event:
        """The event of one notice."""
        status = self._look.statuses[notice.table]
        match notice.kind:
            case NoticeKind.MATERIALIZED:
                return self._materialization(status, notice)
            case NoticeKind.OBSERVED:
                return self._observation(status, notice.standing)
            case NoticeKind.CHECKED:
                return verdict(
                    status,
                    self._look.statuses,
                    self._look.graph.driving(status.table),
                    self._look.reasons,
                ).evaluation(self._look.keys[status.table])

    def _materialization(self, status: TableStatus, notice: Notice) -> AssetMaterialization:
        recent = self._control.refreshes(status.table, KEPT_RECORDS, since=notice.since)
        metadata = outcome_metadata(
            turn_outcome(status, [each for each in recent if notice.since < each.at <= notice.until]), self._look.now
        )
        metadata["freshness_seconds"] = status.freshness_seconds
        metadata |= self._of_version(status)
        partition = newest_done(self._look.graph.spec(status.table), self._warehouse)
        return AssetMaterialization(
            asset_key=self._look.keys[status.table],
            metadata=metadata,
            tags=self._tags(status.table),
            partition=partition,
        )

    def _tags(self, name: TableName) -> dict[str, str]:
        try:
            return self._versions.tags(name)
        except (OSError, ValueError, FreshlineError):
            # Cleaned up or replaced since it was inspected, as below.
            return {}

    def _of_version(self, status: TableStatus) -> dict[str, Any]:
        if status.version is None:
            return {}
        spec = self._look.graph.spec(status.table)
        try:
            key, lineage = self._look.keys[status.table], self._lineages.get(status.table)
            asked = Materialization(
                spec,
                key,
                self._warehouse,
                lineage,
                specs=self._look.graph.specs,
                descriptions=self._descriptions.get(status.table, {}),
            )
            metadata = version_metadata(asked, status.version)
        except (OSError, ValueError, FreshlineError):
            # Cleaned up or replaced since it was inspected: the next turn reports the version of then.
            return {}
        if isinstance(spec, SourceSpec):
            # Its columns are as declared, and the UI takes them from there: half of what an event would store.
            metadata.pop("dagster/column_schema", None)
        return metadata

    def _observation(self, status: TableStatus, standing: TableUpkeep) -> AssetObservation:
        error: Mapping[str, Any] = status.error or {}
        reason = self._look.reasons.get(status.table)
        if reason is None:
            reason = str(error.get("message") or (status.last_refresh.reason if status.last_refresh else standing))
        metadata: dict[str, Any] = {"state": str(standing), "reason": reason, "mode": status.mode}
        if standing is TableUpkeep.FAILED and error:
            metadata["code"] = str(error.get("code", "FRESHLINE"))
            metadata["retry_helps"] = bool(error.get("retry_helps", False))
            if error.get("where"):
                metadata["where"] = str(error["where"])
        if status.lag_seconds is not None:
            metadata["lag_seconds"] = round(status.lag_seconds, 3)
        if status.data_timestamp is not None:
            metadata["data_timestamp"] = MetadataValue.timestamp(status.data_timestamp)
        return AssetObservation(
            asset_key=self._look.keys[status.table], description=f"{standing}: {reason}", metadata=metadata
        )


def turn_outcome(status: TableStatus, records: Sequence[RefreshResult]) -> dict[str, Any]:
    """The sum of the refreshes of one turn, under the names of a single outcome."""
    wrote = [record for record in records if record.committed]
    ended = [record for record in records if record.state == State.SUCCEEDED]
    newest = next(iter(wrote or ended), None)
    last = status.last_refresh
    outcome: dict[str, Any] = {
        "version": status.version,
        "mode": status.mode,
        "strategy": newest.strategy if newest is not None else None if last is None else last.strategy,
        "reason": newest.reason if newest is not None else None if last is None else last.reason,
        "data_timestamp": None if status.data_timestamp is None else status.data_timestamp.isoformat(),
    }
    if ended:
        outcome |= {
            "refreshes": len(wrote),
            "rows_in": sum(record.rows_in or 0 for record in wrote),
            "rows_out": sum(record.rows_out or 0 for record in wrote),
            "rejected": sum(record.rejected for record in wrote),
            "seconds": sum(record.seconds for record in wrote or ended),
        }
        if any(record.late_rows is not None for record in wrote):
            outcome["late_rows"] = sum(record.late_rows or 0 for record in wrote)
            outcome["ahead_rows"] = sum(record.ahead_rows or 0 for record in wrote)
            outcome["late_by_seconds"] = max(record.late_by_seconds or 0.0 for record in wrote)
        measured = [record.cpu_seconds for record in wrote or ended]
        # A refresh beside which other work ran has no CPU of its own: a sum without it would be too small.
        if all(each is not None for each in measured):
            outcome["cpu_seconds"] = sum(each or 0.0 for each in measured)
    return outcome


def _turns(graph: Graph, inspection: ProjectInspection) -> dict[TableName, float]:
    """The turns of the tables that the engine keeps.

    Not longer than the declared freshness asks for: Dagster's policy was made from that, whatever an override says.
    """
    batch = frozenset(batch_tables(inspection.graph))
    count = len(graph.kept)
    return {
        name: turn_seconds(min(status.freshness_seconds, graph.freshness(name).seconds), count)
        for name, status in inspection.statuses.items()
        if name not in batch and name in graph
    }


def _materialized(notices: Sequence[Notice]) -> list[TableName]:
    return [notice.table for notice in notices if notice.kind is NoticeKind.MATERIALIZED]


def _reported_by_a_run(instance: DagsterInstance, key: AssetKey, status: TableStatus) -> bool:
    """Whether Dagster has a materialization at least as new as the newest refresh."""
    event = instance.get_latest_materialization_event(key)
    last = status.last_refresh
    # A run reports a moment after the refresh was recorded, never before it.
    return event is not None and last is not None and event.timestamp >= last.at.timestamp()


def _decisions(control: ControlStore, memory: Memory) -> tuple[list[RefreshResult], int]:
    """The decisions recorded since the last tick, and the newest record; none at a first tick or in a new store."""
    newest = max((record.id or 0 for record in control.refreshes(limit=1)), default=0)
    if memory.record is None or memory.record > newest:
        return [], newest
    found = control.refreshes_after(memory.record, _DECISIONS_A_TICK, states=DECISIONS)
    if len(found) == _DECISIONS_A_TICK:
        return found, found[-1].id or newest
    return found, newest


def _decision(record: RefreshResult, key: AssetKey) -> AssetObservation:
    return AssetObservation(
        asset_key=key,
        description=f"{record.state}: {record.reason}",
        metadata={"state": record.state.value, "reason": record.reason},
    )


def _summary(inspection: ProjectInspection, events: int, engine: str | None) -> str:
    """The text of the tick's line in the UI; every tick keeps one, so it is short."""
    counts: dict[str, int] = {}
    for name in inspection.shown:
        status = inspection.statuses[name]
        word = str(inspection.left_alone.get(name, "late" if status.late else status.state)).lower()
        counts[word] = counts.get(word, 0) + 1
    tables = ", ".join(f"{count} {word}" for word, count in sorted(counts.items()))
    return f"{tables}; {events} events" + ("" if engine is None else f"; {engine}")
