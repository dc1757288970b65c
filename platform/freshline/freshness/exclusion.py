"""Tables that are left alone by what refreshes by itself, with the reason (rules 3 and 11 of docs/rules.md).

A suspended table and those that it drives are; so are those whose sensor a person switched off in Dagster. Batch
tables are left to Dagster where one was ever heard of. A person may refresh all of them by hand. Everything here comes
from the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from freshline.declare.graph import Graph
from freshline.freshness.alter import suspension_text
from freshline.freshness.intentions import Intentions, blocked_tables
from freshline.freshness.record import Heartbeat
from freshline.values.names import TableName
from freshline.values.spec import Mode

STOPPED = "STOPPED"


class ExclusionCause(StrEnum):
    """The cause for which a table is left alone."""

    SUSPENDED = "SUSPENDED"
    BLOCKED = "BLOCKED"  # something that drives it is suspended
    PAUSED = "PAUSED"  # its sensor is switched off
    SCHEDULER = "SCHEDULER"  # Dagster asks for its refreshes


@dataclass(frozen=True)
class TableExclusion:
    """The reason why one table is left alone; `cause` is the suspended table above a blocked one."""

    by: ExclusionCause
    reason: str
    cause: TableName | None = None

    @property
    def intended(self) -> bool:
        """Whether somebody decided it about tables, so that whoever refreshes all of them leaves it too."""
        return self.by in (ExclusionCause.SUSPENDED, ExclusionCause.BLOCKED)


def excluded_tables(
    graph: Graph, intentions: Intentions, scheduler: Heartbeat | None
) -> dict[TableName, TableExclusion]:
    """The tables that are left alone; `intentions` are those of this moment, `scheduler` is the newest heartbeat.

    Sources are not among them: what arrives is brought in, so that whoever is resumed finds it.
    """
    blocked = blocked_tables(graph, intentions.suspensions)
    found: dict[TableName, TableExclusion] = {}
    for table in graph.tables:
        name = table.name
        suspension = intentions.suspensions.get(name)
        if suspension is not None:
            found[name] = TableExclusion(ExclusionCause.SUSPENDED, f"suspended {suspension_text(suspension)}")
        elif name in blocked:
            found[name] = TableExclusion(
                ExclusionCause.BLOCKED, f"{blocked[name]}, which drives it, is suspended", blocked[name]
            )
        elif scheduler is not None:
            hold = _of_scheduler(graph.mode(name), scheduler)
            if hold is not None:
                found[name] = hold
    return found


def _of_scheduler(mode: Mode, scheduler: Heartbeat) -> TableExclusion | None:
    sensor = "batch" if mode is Mode.BATCH else "supervisor"
    if scheduler.detail.get(sensor) == STOPPED:
        return TableExclusion(
            ExclusionCause.PAUSED, f"the {sensor} sensor is switched off in Dagster: switch it on there"
        )
    return TableExclusion(ExclusionCause.SCHEDULER, "Dagster asks for its refreshes") if mode is Mode.BATCH else None


def intended_exclusions(holds: Mapping[TableName, TableExclusion]) -> dict[TableName, TableExclusion]:
    """Those that somebody decided on: suspended tables and those below."""
    return {name: hold for name, hold in holds.items() if hold.intended}
