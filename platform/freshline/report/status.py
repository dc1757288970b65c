"""The state of every table: its lag, its newest version, its newest refresh.

It only reads, needs neither Spark nor a running engine, and is therefore what the command line, Dagster and the engine
all show. The state of a table is read from its own log; the control store adds what leaves no commit behind: checks
that found nothing new, and refreshes that failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshline.commit import delta_log
from freshline.commit.event_time import newest_event, open_windows, recorded_event_time, watermark_of
from freshline.commit.lag_reading import lag_facts_at, with_superseded
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError
from freshline.freshness.exclusion import ExclusionCause, TableExclusion, excluded_tables
from freshline.freshness.feasible import judge_promises
from freshline.freshness.intentions import FreshnessOverride, Suspension, apply_overrides
from freshline.freshness.lag import LagFacts, data_timestamps, lag_seconds, stands_still
from freshline.freshness.record import Check
from freshline.plan.cut import RootPositions, disagreement
from freshline.values.connector import RETRIED_IN
from freshline.values.json import to_json
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, State, TableKind, kind_of
from freshline.values.sink import OnReject
from freshline.values.spec import OnViolation, SourceSpec, Spec, TableSpec
from freshline.values.watermark import EventTime, TableWatermark, source_watermark

if TYPE_CHECKING:
    from freshline.commit.control_reading import ControlReader


@dataclass(frozen=True)
class LastRefresh:
    """The newest refresh, committed or not; `seconds` is None where it is known from its commit alone."""

    strategy: str | None
    reason: str
    seconds: float | None
    at: datetime


@dataclass(frozen=True)
class TableStatus:
    """The state of one table or source.

    `kind` is `table`, `log` (a source whose rows arrive in a log table) or `source` (one that is read in place).
    `state` is a word of rule 10 of docs/rules.md, SCHEDULED for what was never refreshed; or SUSPENDED, BLOCKED or
    PAUSED for what is left alone now, with the reason in `suspended`, `blocked_by` or `paused`. `freshness_seconds` and
    `mode` are those in force: of `override` where there is one. `feasible` says whether the promise can be kept, None
    without a measurement. `event_timestamp` is the newest time of an event, by the column of the watermark, and
    `event_lag_seconds` how long ago that is; None without a watermark. `watermark` is that of the version, the least of
    its inputs', and `watermark_held_by` names the sources that keep it back, with their partitions.
    `watermark_moved_at` is when that of a log moved last; `late_rows`, `ahead_rows` and `late_by_seconds` are of its
    newest batch. `open_windows` are those of a FINAL table that have begun and are not closed. `rows` and
    `quarantined` are counted by the statistics in the logs, None where those lack them; `files` and `size_bytes` are
    those of the version. `retained_bytes` is what the system outside kept for a source at its newest refresh.
    `stands_still` says of a late table whose inputs are all newer why its refreshes do not bring them in, empty for any
    other. `error` is that of the newest refresh when it failed, or of reading this status, which `unreadable` then
    says; `problems` need a person though the newest refresh went on.
    """

    table: TableName
    kind: str
    mode: str
    mode_reason: str
    freshness_seconds: int
    data_timestamp: datetime | None
    lag_seconds: float | None
    state: str
    version: int | None
    rows: int | None
    quarantined: int | None
    last_refresh: LastRefresh | None
    error: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()
    declared_freshness_seconds: int | None = None
    override: FreshnessOverride | None = None
    suspended: Suspension | None = None
    blocked_by: TableName | None = None
    paused: str | None = None
    feasible: bool | None = None
    feasible_reason: str = ""
    unreadable: bool = False
    event_timestamp: datetime | None = None
    event_lag_seconds: float | None = None
    watermark: datetime | None = None
    watermark_held_by: tuple[str, ...] = ()
    watermark_moved_at: datetime | None = None
    late_rows: int | None = None
    ahead_rows: int | None = None
    late_by_seconds: float | None = None
    open_windows: int | None = None
    files: int | None = None
    size_bytes: int | None = None
    retained_bytes: int | None = None
    stands_still: str = ""

    @property
    def late(self) -> bool:
        """Whether the promise is broken now."""
        return self.lag_seconds is not None and self.lag_seconds > self.freshness_seconds

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline status --json` prints."""
        values: dict[str, Any] = to_json(self)
        del values["unreadable"]
        return {
            **values,
            "override": None if self.override is None else self.override.as_json(),
            "suspended": None if self.suspended is None else self.suspended.as_json(),
        }


class RowCounts:
    """Counts rows by the statistics in a log, each version once."""

    def __init__(self) -> None:
        self._known: dict[Path, tuple[int, int | None]] = {}

    def __call__(self, path: Path, version: int, null_in: str | None = None) -> int | None:
        """The rows of a version, or those that have NULL in a column: a table is always asked for the same."""
        known = self._known.get(path)
        if known is None or known[0] != version:
            found = (
                delta_log.count_rows(path, version)
                if null_in is None
                else delta_log.count_nulls(path, version, null_in)
            )
            known = self._known[path] = (version, found)
        return known[1]


def read_status(
    graph: Graph,
    control: ControlReader,
    warehouse: Warehouse,
    now: datetime,
    *,
    running: Collection[TableName] = (),
    count_rows: Callable[[Path, int, str | None], int | None] | None = None,
    counted: bool = True,
    seconds: Mapping[TableName, float] | None = None,
) -> list[TableStatus]:
    """The status of every source and table in the order of the graph, whose overrides are read here.

    `running` are those that the engine is refreshing. `count_rows` may remember counts from one call to the next.
    Without `counted` a status has no rows, files and times of events: these take ten times as long as all the rest, for
    each new version, because its log must be opened for them.
    `seconds` are what refreshes take, where the caller knows; else the control store is asked.
    """
    count = _Counts(count_rows or RowCounts(), _count_files, _event_time) if counted else _UNCOUNTED
    intentions = control.intentions.read().at(now)
    graph = apply_overrides(graph, intentions)
    held = excluded_tables(graph, intentions, control.heartbeats.read().get("scheduler"))
    promises = judge_promises(graph, control.seconds() if seconds is None else seconds)
    # The order of reading matters: see freshline.freshness.lag.
    checks = control.checks()
    found = {
        name: _inspect(graph.specs[name], graph.driving(name), checks.get(name), warehouse, count, now)
        for name in reversed(graph.order)
    }
    records = control.last_refreshes()
    stamps = _data_timestamps(graph, warehouse, found, checks)
    watermarks = {
        name: _watermark(graph, warehouse, name) if counted else _log_watermark(name, found[name])
        for name in graph.order
    }
    statuses = []
    for name in graph.order:
        inspection, record = found[name], records.get(name)
        last, state, error = _newest_refresh(inspection, record)
        hold, promise = held.get(name), promises[name]
        statuses.append(
            TableStatus(
                table=name,
                kind=kind_of(graph.specs[name]),
                mode=str(graph.mode(name)),
                mode_reason=graph.mode_reason(name),
                freshness_seconds=graph.freshness(name).seconds,
                data_timestamp=stamps[name],
                lag_seconds=lag_seconds(stamps[name], now),
                state="RUNNING" if name in running else _state_of(hold) or state,
                version=inspection.version,
                rows=inspection.rows,
                quarantined=inspection.quarantined,
                last_refresh=last,
                error=inspection.error or error,
                problems=() if record is None else tuple(str(problem) for problem in record.problems),
                declared_freshness_seconds=graph.declared_freshness(name).seconds,
                override=intentions.overrides.get(name),
                suspended=intentions.suspensions.get(name) if hold is not None else None,
                blocked_by=None if hold is None else hold.cause,
                paused=hold.reason if hold is not None and hold.by is ExclusionCause.PAUSED else None,
                feasible=promise.feasible,
                feasible_reason=promise.reason,
                unreadable=inspection.error is not None,
                event_timestamp=inspection.event_timestamp,
                event_lag_seconds=lag_seconds(inspection.event_timestamp, now),
                watermark=watermarks[name].at,
                watermark_held_by=watermarks[name].held_by,
                open_windows=_open_windows(graph, warehouse, name) if counted else None,
                **_newest_times(inspection.event_time),
                files=inspection.files[0],
                size_bytes=inspection.files[1],
                retained_bytes=None if record is None else record.retained_bytes,
                stands_still=_stands_still(graph, name, found, stamps, record, now),
            )
        )
    return statuses


def _data_timestamps(
    graph: Graph,
    warehouse: Warehouse,
    found: Mapping[TableName, _Inspection],
    checks: Mapping[TableName, Check],
) -> dict[TableName, datetime | None]:
    held = {name: inspection.held for name, inspection in found.items()}
    try:
        return data_timestamps(with_superseded(graph, warehouse, held, checks))
    except FreshlineError:
        # The line of the input whose log cannot be read says so.
        return data_timestamps(held)


def _watermark(graph: Graph, warehouse: Warehouse, name: TableName) -> TableWatermark:
    try:
        return watermark_of(graph.specs, warehouse, name) or TableWatermark(None)
    except FreshlineError:
        # The line of the input whose log cannot be read says so.
        return TableWatermark(None)


def _log_watermark(name: TableName, inspection: _Inspection) -> TableWatermark:
    """The watermark of a log table by its newest receipt, which is read anyway; none for anything else."""
    found = inspection.event_time
    return TableWatermark(None) if found is None else source_watermark(str(name), found)


def _newest_times(found: EventTime | None) -> dict[str, Any]:
    """The fields of a status about the times of rows, by the newest batch of a log with a watermark."""
    if found is None:
        return {}
    return {
        "watermark_moved_at": found.moved_at,
        "late_rows": found.late,
        "ahead_rows": found.ahead,
        "late_by_seconds": found.late_by_seconds,
    }


def _open_windows(graph: Graph, warehouse: Warehouse, name: TableName) -> int | None:
    spec = graph.specs[name]
    try:
        return open_windows(graph.specs, warehouse, spec) if isinstance(spec, TableSpec) else None
    except FreshlineError:
        return None  # the line of the input whose log cannot be read says so


def _state_of(hold: TableExclusion | None) -> str | None:
    """The state of a suspended, blocked or paused table; None where only Dagster asks for its refreshes."""
    return None if hold is None or hold.by is ExclusionCause.SCHEDULER else str(hold.by)


@dataclass(frozen=True)
class _Counts:
    """Readers of an opened log: rows and files of a version, and the newest time of an event in it."""

    rows: Callable[[Path, int, str | None], int | None]
    files: Callable[[Path, int], tuple[int | None, int | None]]
    event_time: Callable[[Spec, Path, int, datetime], datetime | None]


_UNCOUNTED = _Counts(lambda path, version, null_in: None, lambda path, version: (None, None), lambda *of: None)


@dataclass(frozen=True)
class _Inspection:
    """The result of reading one table's log."""

    held: LagFacts
    version: int | None = None
    rows: int | None = None
    quarantined: int | None = None
    committed: LastRefresh | None = None
    committed_version: int | None = None
    carried: bool = False  # the newest receipt was written again by a commit without new rows
    error: Mapping[str, Any] | None = None
    event_timestamp: datetime | None = None  # the greatest of the watermark's column
    event_time: EventTime | None = None  # what the newest batch of a log knows of its events
    files: tuple[int | None, int | None] = (None, None)  # how many, and their bytes
    cut: RootPositions = field(default_factory=dict)
    cut_ahead: RootPositions = field(default_factory=dict)


def _inspect(
    spec: Spec,
    driving: tuple[TableName, ...],
    check: Check | None,
    warehouse: Warehouse,
    count: _Counts,
    now: datetime,
) -> _Inspection:
    checked = None if check is None else check.data_timestamp
    nothing = _Inspection(LagFacts(None, checked, driving))
    try:
        path = warehouse.location(spec)
        newest = delta_log.read_newest(path)
        quarantined = None
        if is_quarantining(spec):
            rejected = warehouse.rejections(spec)
            version = delta_log.newest_version(rejected)
            quarantined = 0 if version is None else count.rows(rejected, version, RETRIED_IN)
        if newest is None:
            return replace(nothing, quarantined=quarantined)
        receipt = newest.receipt
        # The rows of a sink are in its system, which is not asked here.
        is_sink = kind_of(spec) is TableKind.SINK
        rows = None if is_sink else count.rows(path, newest.version, None)
        if spec.is_read_in_place:
            return _Inspection(
                lag_facts_at(spec, driving, check, newest, path, now),
                newest.version,
                rows,
                event_timestamp=count.event_time(spec, path, newest.version, now),
                files=count.files(path, newest.version),
                cut={str(spec.name): {"version": newest.version}},
            )
        return _Inspection(
            lag_facts_at(spec, driving, check, newest, path, now),
            newest.version,
            rows,
            quarantined,
            committed=_committed(path, newest),
            committed_version=newest.receipt_version,
            carried=receipt is not None and receipt.maintenance,
            event_time=recorded_event_time(spec, receipt) if isinstance(spec, SourceSpec) else None,
            event_timestamp=count.event_time(spec, path, newest.version, now),
            files=(None, None) if is_sink else count.files(path, newest.version),
            cut={} if receipt is None else _cut(spec, receipt),
            cut_ahead={} if receipt is None else receipt.cut_ahead,
        )
    except FreshlineError as error:
        # One table that cannot be read must not hide the others; its line says what is wrong.
        return replace(nothing, error=error.as_json())


def _cut(spec: Spec, receipt: Receipt) -> RootPositions:
    return {str(spec.name): {"seq": receipt.seq}} if isinstance(spec, SourceSpec) else receipt.cut


def _stands_still(
    graph: Graph,
    name: TableName,
    found: Mapping[TableName, _Inspection],
    stamps: Mapping[TableName, datetime | None],
    record: RefreshResult | None,
    now: datetime,
) -> str:
    """Why a table is late that was refreshed and whose inputs are all newer; empty for any other."""
    stamp, allowed, driving = stamps[name], graph.freshness(name).seconds, graph.driving(name)
    lag = lag_seconds(stamp, now)
    if lag is None or lag <= allowed or record is None or record.state != State.SUCCEEDED:
        return ""
    began = record.at - timedelta(seconds=record.seconds)
    if not stands_still(stamp, allowed, began, (stamps[each] for each in driving)):
        return ""
    apart = disagreement({each: (found[each].cut, found[each].cut_ahead) for each in driving})
    if apart:
        return f"its inputs contain different parts of one source, and no newer versions agree: {apart}"
    return f"its newest refresh ({record.strategy}, {record.reason}) left it as old, and all of its inputs are newer"


def is_quarantining(spec: Spec) -> bool:
    """Whether the table or source may have a quarantine table."""
    if isinstance(spec, SourceSpec):
        return spec.is_log
    if spec.sink is not None:
        return spec.on_reject is OnReject.QUARANTINE
    return bool(spec.quarantined_lookups) or any(
        each.on_violation is OnViolation.QUARANTINE for each in spec.constraints
    )


def _event_time(spec: Spec, path: Path, version: int, now: datetime) -> datetime | None:
    """The newest time of an event, where a watermark says which column has it."""
    if spec.watermark is None:
        return None
    if isinstance(spec, SourceSpec) and spec.is_log:
        greatest = _greatest_time(path, version, spec.stored_column(spec.watermark.column))
        if greatest is not None and greatest > now + timedelta(seconds=spec.max_ahead_seconds):
            return newest_event(spec, path, now)
        return greatest
    column = spec.watermark.column
    return _greatest_time(path, version, spec.stored_column(column) if isinstance(spec, SourceSpec) else column)


# A version never changes, and status is asked for every second.
_greatest_time = lru_cache(maxsize=1_024)(delta_log.greatest_time)
_count_files = lru_cache(maxsize=1_024)(delta_log.count_files)


def _committed(path: Path, newest: delta_log.Newest) -> LastRefresh | None:
    """The newest refresh as its own commit records it."""
    receipt = newest.receipt
    if receipt is None or newest.receipt_version is None:
        return None
    commit = delta_log.read_commit(path, newest.receipt_version)
    if commit is None or "timestamp" not in commit.info:
        return None
    at = datetime.fromtimestamp(int(commit.info["timestamp"]) / 1000, UTC)
    return LastRefresh(receipt.strategy, receipt.reason, receipt.seconds or None, at)


def _newest_refresh(
    inspection: _Inspection, record: RefreshResult | None
) -> tuple[LastRefresh | None, str, Mapping[str, Any] | None]:
    """The newest refresh, the state that it left, and its error."""
    if _is_unrecorded(inspection, record):
        # Committed, and then the engine died before it had written it down: the commit counts.
        return inspection.committed, State.SUCCEEDED, None
    if record is None:
        return None, "SCHEDULED", None
    error = None if record.error is None else record.error.as_json()
    return LastRefresh(record.strategy, record.reason, record.seconds, record.at), record.state, error


def _is_unrecorded(inspection: _Inspection, record: RefreshResult | None) -> bool:
    if inspection.committed is None:
        return False
    if record is None:
        return True
    if inspection.carried or inspection.committed.at <= record.at:
        return False
    return (
        record.version is None or inspection.committed_version is None or record.version < inspection.committed_version
    )
