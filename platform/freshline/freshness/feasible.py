"""Whether a promise can be kept, by what refreshes were measured to take.

New rows reach a table hop by hop: each refresh on the slowest way from a root, the critical path, takes its time.
Where these times together are longer than the freshness, no rhythm of refreshing keeps the promise. Everything here
comes from the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from freshline.declare.graph import Graph, is_brought_in
from freshline.freshness.due import poll_seconds
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.spec import Mode


@dataclass(frozen=True)
class Hop:
    """One refresh on the way; `seconds` is what it was measured to take, None where it never was."""

    table: TableName
    seconds: float | None


@dataclass(frozen=True)
class Feasibility:
    """The judgement on one table's promise, with its reason.

    `path` is the critical path from a root to the table itself. `period_seconds` is how long a version stays the newest
    while rows arrive all the time. `feasible` is None as long as no measurement decides it.
    """

    table: TableName
    freshness: Freshness
    path: tuple[Hop, ...]
    period_seconds: float
    feasible: bool | None
    reason: str

    @property
    def path_seconds(self) -> float:
        """The seconds of the hops together; one that was never measured counts as nothing."""
        return sum(hop.seconds or 0.0 for hop in self.path)

    @property
    def shares(self) -> tuple[tuple[TableName, float], ...]:
        """Each hop with its part of the path, from 0 to 1."""
        total = self.path_seconds
        return tuple((hop.table, (hop.seconds or 0.0) / total if total else 0.0) for hop in self.path)


def judge_promises(graph: Graph, seconds: Mapping[TableName, float]) -> dict[TableName, Feasibility]:
    """The feasibility of every table and source, in order.

    `seconds` is what one refresh of each takes, as ControlStore.seconds has it; names that were never measured are
    missing.
    """
    paths: dict[TableName, tuple[Hop, ...]] = {}
    totals: dict[TableName, float] = {}
    slowest: dict[TableName, TableName | None] = {}
    found: dict[TableName, Feasibility] = {}
    for name in graph.order:
        spec, driving = graph.specs[name], graph.driving(name)
        hop = Hop(spec.name, seconds.get(name) if is_brought_in(spec) else 0.0)
        before = max(driving, key=lambda read: totals[read], default=None)
        paths[name] = (*(paths[before] if before is not None else ()), hop)
        totals[name] = (totals[before] if before is not None else 0.0) + (hop.seconds or 0.0)
        slowest[name] = _slowest(graph, name, slowest)
        found[name] = _judge(graph, name, paths[name], slowest[name])
    return found


def _slowest(graph: Graph, name: TableName, known: Mapping[TableName, TableName | None]) -> TableName | None:
    """The table or source with the longest freshness of those that drive the table, near or far."""
    candidates = [read for read in graph.driving(name) if is_brought_in(graph.specs[read])]
    candidates += [far for read in graph.driving(name) if (far := known[read]) is not None]
    return max(candidates, key=graph.freshness, default=None)


def _judge(graph: Graph, name: TableName, path: tuple[Hop, ...], slowest: TableName | None) -> Feasibility:
    freshness = graph.freshness(name)
    taken = sum(hop.seconds or 0.0 for hop in path)
    if graph.mode(name) is Mode.CONTINUOUS:
        period = max([poll_seconds(graph, path[0].table), *(hop.seconds or 0.0 for hop in path)])
    else:
        period = max(0.0, freshness.seconds - taken)
    unknown = [hop.table for hop in path if hop.seconds is None]
    shown = f"the refreshes from {path[0].table} on take {taken:.1f} s ({_path_text(path)})"
    if slowest is not None and graph.freshness(slowest) > freshness:
        feasible: bool | None = False
        reason = (
            f"{graph.spec(slowest).name} drives it and has freshness {graph.freshness(slowest)}, "
            f"longer than its own, {freshness}"
        )
    elif taken > freshness.seconds:
        feasible, reason = False, f"{shown}, longer than its freshness, {freshness}"
    elif unknown:
        feasible, reason = None, f"not measured yet: {', '.join(str(each) for each in unknown)}"
    else:
        feasible, reason = True, shown
    return Feasibility(graph.spec(name).name, freshness, path, period, feasible, reason)


def _path_text(path: tuple[Hop, ...]) -> str:
    return ", ".join(f"{hop.table} {'-' if hop.seconds is None else f'{hop.seconds:.1f} s'}" for hop in path)
