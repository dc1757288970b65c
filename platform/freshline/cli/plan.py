"""`freshline plan`: what is declared, and what has changed. Nothing is started and nothing is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freshline.cli.options import json_option, open_settings, project_option
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.settings import Settings
from freshline.declare.spec import SourceSpec
from freshline.plan.project import open_project
from freshline.report.table_text import freshness_text, table_text

if TYPE_CHECKING:
    from freshline.plan.record import RefreshRecord


@dataclass(frozen=True)
class PlanLine:
    """One source or table as it is declared; `declaration` is new, unchanged, or changed since the newest refresh."""

    table: TableName
    kind: str
    mode: str
    mode_reason: str
    freshness_seconds: int
    declaration: str
    reads: tuple[TableName, ...]
    written_at: str

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline plan --json` prints."""
        return {
            "table": str(self.table),
            "kind": self.kind,
            "mode": self.mode,
            "mode_reason": self.mode_reason,
            "freshness_seconds": self.freshness_seconds,
            "declaration": self.declaration,
            "reads": [str(name) for name in self.reads],
            "written_at": self.written_at,
        }


@click.command(epilog="\b\nExample:\n  freshline plan --json")
@project_option
@json_option
def command(project: Path | None, as_json: bool) -> None:
    """Show every declaration in the order of refreshing: mode and reason, freshness, and what has changed.

    All mistakes in declarations are told at once. Starts nothing and writes nothing.
    """
    settings = open_settings(project)
    graph = open_project(settings)
    lines = plan_lines(graph, refreshed_fingerprints(graph, settings))
    click.echo(json.dumps([line.as_json() for line in lines], indent=2) if as_json else plan_text(lines))


def plan_lines(graph: Graph, refreshed: Mapping[TableName, str]) -> list[PlanLine]:
    """The lines of the plan; `refreshed` has the fingerprint of the declaration at the newest refresh of each table."""
    lines = []
    for name in graph.order:
        spec = graph.specs[name]
        before = refreshed.get(name)
        declaration = "new" if before is None else "unchanged" if before == spec.fingerprint else "changed"
        lines.append(
            PlanLine(
                table=name,
                kind="table" if not isinstance(spec, SourceSpec) else "log" if spec.is_log else "source",
                mode=str(graph.mode(name)),
                mode_reason=graph.mode_reason(name),
                freshness_seconds=graph.freshness(name).seconds,
                declaration=declaration,
                reads=graph.reads(name),
                written_at=str(spec.written_at),
            )
        )
    return lines


def plan_text(lines: list[PlanLine]) -> str:
    """The plan as a person reads it."""
    if not lines:
        return "nothing is declared"
    rows = [
        [
            str(line.table),
            line.kind,
            line.mode,
            freshness_text(line.freshness_seconds),
            line.declaration,
            ", ".join(str(name) for name in line.reads) or "-",
            line.mode_reason,
        ]
        for line in lines
    ]
    return table_text(["table", "kind", "mode", "freshness", "declaration", "reads", "reason of the mode"], rows)


def refreshed_fingerprints(graph: Graph, settings: Settings) -> dict[TableName, str]:
    """The fingerprint of each declaration at its newest refresh, by the control store and the receipts."""
    records = _records(settings)
    warehouse = Warehouse(settings.warehouse)
    found = {}
    for name in graph.order:
        record = records.get(name)
        if record is not None and record.state == "SUCCEEDED":
            found[name] = record.fingerprint
        elif (warehouse.path(name) / "_delta_log").is_dir():
            fingerprint = _receipt_fingerprint(warehouse.path(name))
            if fingerprint is not None:
                found[name] = fingerprint
    return found


def _records(settings: Settings) -> Mapping[TableName, RefreshRecord]:
    prefix = "sqlite:///"
    if settings.control_store.startswith(prefix) and not Path(settings.control_store.removeprefix(prefix)).exists():
        return {}  # nothing was refreshed yet; opening it would create it
    # Half of the time of `plan` would go into importing SQLAlchemy for a project without a store.
    from freshline.commit.control_store import ControlStore

    store = ControlStore.open(settings.control_store)
    try:
        return store.last_refreshes()
    finally:
        store.close()


def _receipt_fingerprint(path: Path) -> str | None:
    from freshline.commit.delta_log import read_newest

    newest = read_newest(path)
    return None if newest is None or newest.receipt is None else newest.receipt.fingerprint
