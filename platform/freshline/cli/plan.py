"""`freshline plan`: what is declared, what was decided beside it, what has changed, and which promises cannot be kept.

Nothing is started and nothing is written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freshline.cli.failures import FAILED, name_beside
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.terminal import show, terminal_width
from freshline.commit.control_reading import open_for_a_look
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.freshness.exclusion import ExclusionCause, excluded_tables
from freshline.freshness.feasible import judge_promises
from freshline.freshness.intentions import FreshnessOverride, Intentions, Suspension, apply_overrides
from freshline.plan.disk import DiskForecast, forecast_disk, history_seconds
from freshline.plan.event_time import EventTimeFacts
from freshline.plan.models import models_text
from freshline.plan.project import open_project
from freshline.report.alerts.channels.configured import channel_problems
from freshline.report.intention_text import intention_lines
from freshline.report.table_text import bytes_text, freshness_text, table_text, wrapped_lines
from freshline.values.json import to_json
from freshline.values.names import TableName
from freshline.values.result import kind_of
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, TableSpec

if TYPE_CHECKING:
    from freshline.freshness.record import Heartbeat
    from freshline.plan.definition import DefinitionChange
    from freshline.values.result import RefreshResult

HEADERS = [
    "table",
    "kind",
    "mode",
    "freshness",
    "declaration",
    "history",
    "grows a day",
    "reads",
    "reason of the mode",
]
# The columns that a narrow terminal omits, the first one first; the reason goes on in lines below.
OMIT = (6, 5, 1, 7)
# By so many of the newest commits the disk is forecast.
_COMMITS = 20


@dataclass(frozen=True)
class StoreFacts:
    """The facts of the control store: the newest refreshes, the decisions, and the seconds that refreshes take."""

    refreshes: Mapping[TableName, RefreshResult] = field(default_factory=dict)
    intentions: Intentions = field(default_factory=Intentions)
    seconds: Mapping[TableName, float] = field(default_factory=dict)
    scheduler: Heartbeat | None = None


@dataclass(frozen=True)
class LogFacts:
    """The facts of the tables' logs.

    `changes` are those of their declarations, `disk` is the forecast of their size, `event_time` how far the events of
    those over event time are, and `clocks` has the clock of those with temporal filters. A changed declaration of those
    of `by_date` may apply from a date on.
    """

    changes: Mapping[TableName, DefinitionChange]
    disk: Mapping[TableName, DiskForecast]
    event_time: Mapping[TableName, EventTimeFacts] = field(default_factory=dict)
    crossings: Mapping[TableName, tuple[str, ...]] = field(default_factory=dict)
    clocks: Mapping[TableName, datetime] = field(default_factory=dict)
    by_date: frozenset[TableName] = frozenset()


@dataclass(frozen=True)
class PlanLine:
    """One source or table as it is declared; `declaration` is new, unchanged, or changed since the newest refresh.

    `change` is how much a changed one changes what is stored (additive, breaking, destructive), None where that is not
    known; `change_about` says what changed. `models` are those that its query asks, with their versions. `crossings`
    say where its rows enter or leave as time passes, and `clock` is the time for which they are stored.
    `notes` are sentences about what is likely a mistake. `by_date`: a changed one may apply from a date on.

    Freshness and mode are those in force: of `override` where there is one.
    """

    table: TableName
    kind: str
    mode: str
    mode_reason: str
    freshness_seconds: int
    declaration: str
    reads: tuple[TableName, ...]
    written_at: str
    declared_freshness_seconds: int | None = None
    override: FreshnessOverride | None = None
    suspended: Suspension | None = None
    blocked_by: TableName | None = None
    paused: str | None = None
    feasible: bool | None = None
    feasible_reason: str = ""
    change: str | None = None
    change_about: tuple[str, ...] = ()
    disk: DiskForecast | None = None
    event_time: EventTimeFacts | None = None
    models: str = ""
    crossings: tuple[str, ...] = ()
    clock: datetime | None = None
    notes: tuple[str, ...] = ()
    by_date: bool = False

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline plan --json` prints."""
        values: dict[str, Any] = to_json(self)
        del values["by_date"]
        return {
            **values,
            "override": None if self.override is None else self.override.as_json(),
            "suspended": None if self.suspended is None else self.suspended.as_json(),
            "disk": None if self.disk is None else self.disk.as_json(),
            "event_time": None if self.event_time is None else self.event_time.as_json(),
        }


@click.command(epilog="\b\nExample:\n  freshline plan --json")
@project_option
@json_option
def command(project: Path | None, as_json: bool) -> int:
    """Show every declaration in the order of refreshes: its mode and the reason, its freshness, and its changes.

    Lines below have overrides of a freshness, suspensions, and freshnesses that are not feasible. All mistakes in
    declarations are reported at once. Alert channels are loaded too; exit code 1 where one cannot be used. Starts no
    process and writes nothing.
    """
    settings = open_settings(project)
    graph = open_project(settings)
    known = _known(settings)
    refreshed = refreshed_fingerprints(graph, settings, known.refreshes)
    changes = _changes(graph, settings, refreshed)
    found = LogFacts(changes, _disk(graph, settings, known), by_date=_by_date(graph, changes))
    found = _over_time(graph, settings, found)
    lines = plan_lines(graph, refreshed, known, datetime.now(UTC), found)
    if as_json:
        click.echo(json.dumps([line.as_json() for line in lines], indent=2))
    else:
        show(plan_text(lines, terminal_width()))
    wrong = channel_problems(settings)
    name_beside(wrong)
    return FAILED if wrong else 0


def plan_lines(
    graph: Graph,
    refreshed: Mapping[TableName, str],
    known: StoreFacts,
    now: datetime,
    found: LogFacts | None = None,
) -> list[PlanLine]:
    """The lines of the plan; `refreshed` has the fingerprint of the declaration at the newest refresh of each table.

    `found` has the facts of the tables' logs beside it.
    """
    found = found or LogFacts({}, {})
    changes, disk = found.changes, found.disk
    intentions = known.intentions.at(now)
    graph = apply_overrides(graph, intentions)
    held = excluded_tables(graph, intentions, known.scheduler)
    promises = judge_promises(graph, known.seconds)
    lines = []
    for name in graph.order:
        spec = graph.specs[name]
        before = refreshed.get(name)
        declaration = "new" if before is None else "unchanged" if before == spec.fingerprint else "changed"
        lines.append(
            PlanLine(
                table=name,
                kind=str(kind_of(spec)),
                mode=str(graph.mode(name)),
                mode_reason=graph.mode_reason(name),
                freshness_seconds=graph.freshness(name).seconds,
                declaration=declaration,
                reads=graph.reads(name),
                written_at=str(spec.written_at),
                declared_freshness_seconds=graph.declared_freshness(name).seconds,
                override=intentions.overrides.get(name),
                suspended=intentions.suspensions.get(name),
                blocked_by=held[name].cause if name in held else None,
                paused=held[name].reason if name in held and held[name].by is ExclusionCause.PAUSED else None,
                feasible=promises[name].feasible,
                feasible_reason=promises[name].reason,
                change=str(changes[name].kind) if name in changes else None,
                change_about=changes[name].about if name in changes else (),
                disk=disk.get(name),
                event_time=found.event_time.get(name),
                models=models_text(spec) if isinstance(spec, TableSpec) else "",
                crossings=found.crossings.get(name, ()),
                clock=found.clocks.get(name),
                notes=_notes(graph, spec),
                by_date=name in found.by_date,
            )
        )
    return lines


def _notes(graph: Graph, spec: SourceSpec | TableSpec) -> tuple[str, ...]:
    if isinstance(spec, SourceSpec) or spec.time_partitions is None:
        return ()
    from freshline.plan.explain import declared_types
    from freshline.plan.partition_zone import other_days

    note = other_days(spec, declared_types(spec, graph))
    return () if note is None else (note,)


def plan_text(lines: list[PlanLine], most: int | None = None) -> str:
    """The plan as a person reads it, in lines of at most `most`; decisions beside the files stand below."""
    if not lines:
        return "nothing is declared"
    rows = [
        [
            str(line.table),
            line.kind,
            line.mode,
            freshness_text(line.freshness_seconds),
            line.declaration,
            "-" if line.disk is None else bytes_text(line.disk.history_bytes),
            "-" if line.disk is None else bytes_text(line.disk.growth_bytes_a_day),
            ", ".join(str(name) for name in line.reads) or "-",
            line.mode_reason,
        ]
        for line in lines
    ]
    text = table_text(HEADERS, rows, most=most, omit=OMIT)
    told = [f"{line.table}: asks {line.models}" for line in lines if line.models]
    told += [_change_text(line) for line in lines if line.change is not None]
    told += [note for line in lines for note in line.notes]
    times = [
        f"{line.table}: watermark {line.event_time.watermark_text}; rows are {line.event_time.rows_text}"
        for line in lines
        if line.event_time is not None
    ]
    times += [_filter_text(line) for line in lines if line.crossings or line.clock is not None]
    below = [*times, *told, *(told for line in lines for told in intention_lines(line))]
    return "\n".join([text, *(wrapped_lines(line, most) for line in below)])


def _filter_text(line: PlanLine) -> str:
    clock = "no clock yet" if line.clock is None else f"clock {line.clock:%Y-%m-%d %H:%M:%S} UTC"
    about = ", or ".join(line.crossings) or "time passes"
    return f"{line.table}: {clock}; a row enters or leaves when {about}"


def _change_text(line: PlanLine) -> str:
    if line.kind != "table":
        of_source = {
            "additive": "its next refresh takes it up",
            "breaking": "declare the column under a new name, or the source under a new name",
        }
        return f"{line.table}: {'; '.join(line.change_about)}; {of_source[str(line.change)]}"
    then = {
        "additive": "its next refresh takes it up",
        "breaking": f"say from when on it holds: freshline apply {line.table} --from "
        f"{'beginning, now or a date' if line.by_date else 'beginning or now'}",
        "destructive": f"change it back, or replace all of it: freshline apply {line.table} --from beginning --force",
    }
    return f"{line.table}: {line.change} change: {'; '.join(line.change_about)}; {then[str(line.change)]}"


def refreshed_fingerprints(
    graph: Graph, settings: Settings, records: Mapping[TableName, RefreshResult]
) -> dict[TableName, str]:
    """The fingerprint of each declaration at its newest refresh, by the control store's records and the receipts."""
    warehouse = Warehouse(settings.warehouse)
    found = {}
    for name in graph.order:
        record = records.get(name)
        if record is not None and record.state == "SUCCEEDED" and record.fingerprint:
            found[name] = record.fingerprint
        elif (warehouse.path(name) / "_delta_log").is_dir():
            fingerprint = _receipt_fingerprint(warehouse.path(name))
            if fingerprint is not None:
                found[name] = fingerprint
    return found


def _known(settings: Settings) -> StoreFacts:
    if not settings.has_control_store:
        return StoreFacts()  # nothing was refreshed or decided yet
    with closing(open_for_a_look(settings.control_store, settings.umask)) as store:
        scheduler = store.heartbeats.read().get("scheduler")
        return StoreFacts(store.last_refreshes(), store.intentions.read(), store.seconds(), scheduler)


def _changes(graph: Graph, settings: Settings, refreshed: Mapping[TableName, str]) -> dict[TableName, DefinitionChange]:
    """The changes in the declarations of tables and log tables since their newest receipt."""
    every = graph.specs.values()
    differ = [spec for spec in every if refreshed.get(spec.name, spec.fingerprint) != spec.fingerprint]
    if not differ:
        return {}
    from freshline.commit.definitions import change_of, source_change_of
    from freshline.plan.definition import ChangeClass

    warehouse = Warehouse(settings.warehouse)
    found = {
        spec.name: source_change_of(warehouse, spec) if isinstance(spec, SourceSpec) else change_of(warehouse, spec)
        for spec in differ
    }
    return {name: one for name, one in found.items() if one is not None and one.kind is not ChangeClass.UNCHANGED}


def _by_date(graph: Graph, changes: Mapping[TableName, DefinitionChange]) -> frozenset[TableName]:
    """The tables among these whose new declaration may apply from a date on."""
    if not changes:
        return frozenset()
    from freshline.plan.definition import may_start_at_date

    return frozenset(
        name for name in changes if isinstance(spec := graph.spec(name), TableSpec) and may_start_at_date(spec)
    )


def _disk(graph: Graph, settings: Settings, known: StoreFacts) -> dict[TableName, DiskForecast]:
    """The forecast size of the refreshed tables and log tables, where it follows from their newest commits."""
    warehouse = Warehouse(settings.warehouse)
    graph = apply_overrides(graph, known.intentions.at(datetime.now(UTC)))
    there = [name for name in graph.order if (warehouse.path(name) / "_delta_log").is_dir()]
    if not there:
        return {}
    from freshline.commit.delta_log import commit_sizes

    found = {}
    for name in there:
        history = history_seconds(graph.spec(name), graph.mode(name))
        forecast = forecast_disk(commit_sizes(warehouse.path(name), _COMMITS), history)
        if forecast is not None:
            found[name] = forecast
    return found


def _over_time(graph: Graph, settings: Settings, found: LogFacts) -> LogFacts:
    """The same with the facts of tables over event time, and of those with temporal filters.

    Others are not analyzed, because that needs sqlglot's optimizer.
    """
    from freshline.plan.event_time import is_over_event_time

    chosen = [spec for spec in graph.tables if spec.is_temporal or is_over_event_time(spec, graph)]
    if not chosen:
        return found
    # delta-rs is imported when it is used, like all that is heavy.
    from freshline.commit.warehouse import Warehouse
    from freshline.report.explain import explanations

    explained = explanations(graph, Warehouse(settings.warehouse), chosen)
    return replace(
        found,
        event_time={item.table: item.event_time for item in explained if item.event_time is not None},
        crossings={item.table: item.crossings for item in explained if item.crossings},
        clocks={item.table: item.clock for item in explained if item.clock is not None},
    )


def _receipt_fingerprint(path: Path) -> str | None:
    from freshline.commit.delta_log import read_newest

    newest = read_newest(path)
    return None if newest is None or newest.receipt is None else newest.receipt.fingerprint
