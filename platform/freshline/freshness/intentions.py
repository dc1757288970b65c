"""Decisions about tables beside their declarations, as values.

An override of the freshness and a suspension may end by themselves: `Intentions.at(now)` leaves out what has ended.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from freshline.declare.graph import Graph
from freshline.values.freshness import Freshness
from freshline.values.json import to_json
from freshline.values.names import TableName
from freshline.values.spec import SourceSpec


@dataclass(frozen=True)
class FreshnessOverride:
    """A freshness that wins over the declared one, until it ends or is taken back. `by` is who decided it."""

    table: TableName
    freshness: Freshness
    by: str
    at: datetime
    until: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        """The object `override` that `freshline status --json` prints."""
        return {
            "freshness_seconds": self.freshness.seconds,
            "by": self.by,
            "at": self.at.isoformat(),
            "until": None if self.until is None else self.until.isoformat(),
        }


@dataclass(frozen=True)
class Suspension:
    """The suspension of a table, until it ends or is withdrawn.

    `automatic` says that failures in a row caused it (rule 12 of docs/rules.md).
    """

    table: TableName
    by: str
    at: datetime
    until: datetime | None = None
    reason: str | None = None
    automatic: bool = False

    def as_json(self) -> dict[str, Any]:
        """The object `suspended` that `freshline status --json` prints."""
        values: dict[str, Any] = to_json(self)
        del values["table"]
        return values


@dataclass(frozen=True)
class FailureRow:
    """Scheduled failures in a row that a retry cannot help; `error` is the last one as a JSON object."""

    table: TableName
    count: int
    first_at: datetime
    last_at: datetime
    error: Mapping[str, Any]


@dataclass(frozen=True)
class Intentions:
    """All overrides and suspensions as they were at one generation of the control store."""

    generation: int = 0
    overrides: Mapping[TableName, FreshnessOverride] = field(default_factory=dict)
    suspensions: Mapping[TableName, Suspension] = field(default_factory=dict)

    def at(self, now: datetime) -> Intentions:
        """Those that have not ended at `now`."""
        return Intentions(
            self.generation,
            {name: one for name, one in self.overrides.items() if one.until is None or now < one.until},
            {name: one for name, one in self.suspensions.items() if one.until is None or now < one.until},
        )

    def ended(self, now: datetime) -> Intentions:
        """Those that have ended at `now` by themselves."""
        left = self.at(now)
        return Intentions(
            self.generation,
            {name: one for name, one in self.overrides.items() if name not in left.overrides},
            {name: one for name, one in self.suspensions.items() if name not in left.suspensions},
        )


def apply_overrides(graph: Graph, intentions: Intentions) -> Graph:
    """The graph with the overrides of `intentions` in force, ended or not: hand in those of a moment."""
    return graph.with_freshness({name: override.freshness for name, override in intentions.overrides.items()})


def blocked_tables(graph: Graph, suspended: Collection[TableName]) -> dict[TableName, TableName]:
    """The tables below suspended ones (over inputs that drive), each with the nearest suspended table above it.

    A table that is suspended itself is not in it. A source blocks nothing: what was a table once may be noted as
    suspended, and is brought in all the same.
    """
    blocked: dict[TableName, TableName] = {}
    suspended = {name for name in suspended if name in graph and not isinstance(graph.spec(name), SourceSpec)}
    if not suspended:
        return blocked
    for name in graph.order:
        if name in suspended:
            continue
        inputs = graph.driving(name)
        cause = next((read for read in inputs if read in suspended), None) or next(
            (blocked[read] for read in inputs if read in blocked), None
        )
        if cause is not None:
            blocked[name] = graph.spec(cause).name
    return blocked
