"""EXPLAIN FRESHNESS: whether a promise can be kept, what its critical path is, and what it and others would cost.

Costs are upper bounds: as many refreshes as there would be while rows arrive all the time, each at the CPU that the
newest ones took on average. Everything here comes from the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from freshline.declare.graph import Graph, is_brought_in
from freshline.freshness.feasible import Feasibility, judge_promises
from freshline.freshness.predicted_lag import PredictedLag, measure_lag, predict_lag
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import RefreshResult
from freshline.values.spec import Mode

ALTERNATIVES = tuple(Freshness(seconds) for seconds in (5, 30, 60, 300, 1_800, 3_600, 21_600, 86_400))


@dataclass(frozen=True)
class FreshnessCost:
    """The cost of one freshness for a table, with the tables that drive it made as fresh where that is needed.

    `refreshes_an_hour` are those of the table itself, `cpu_seconds_an_hour` are those of the table and all that drives
    it, None where one of them was never measured alone.
    """

    freshness: Freshness
    mode: Mode
    feasible: bool | None
    refreshes_an_hour: float
    cpu_seconds_an_hour: float | None

    def as_json(self) -> dict[str, Any]:
        cpu = self.cpu_seconds_an_hour
        return {
            "freshness_seconds": self.freshness.seconds,
            "mode": str(self.mode),
            "feasible": self.feasible,
            "refreshes_an_hour": round(self.refreshes_an_hour, 2),
            "cpu_seconds_an_hour": None if cpu is None else round(cpu, 2),
        }


@dataclass(frozen=True)
class FreshnessExplained:
    """The promise in force, `own`, as it stands, and other targets, the tightest first."""

    judged: Feasibility
    lag: PredictedLag
    own: FreshnessCost
    others: tuple[FreshnessCost, ...]

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline explain --freshness --json` prints."""
        return {
            "table": str(self.judged.table),
            **self.own.as_json(),
            "feasible_reason": self.judged.reason,
            "predicted_lag_seconds": round(self.lag.greatest, 3),
            "typical_lag_seconds": round(self.lag.typical, 3),
            "measured_refreshes": self.lag.refreshes,
            "critical_path": [
                {
                    "table": str(hop.table),
                    "seconds": None if hop.seconds is None else round(hop.seconds, 3),
                    "share": round(share, 4),
                }
                for hop, (_, share) in zip(self.judged.path, self.judged.shares, strict=True)
            ],
            "alternatives": [target.as_json() for target in self.others],
        }

    def __str__(self) -> str:
        judged, own = self.judged, self.own
        feasible = {True: "yes", False: "no", None: "not known"}[judged.feasible]
        lines = [
            f"{judged.table}: freshness {judged.freshness.describe()}, {own.mode}",
            f"  feasible: {feasible}: {judged.reason}",
            f"  predicted lag, while rows arrive all the time: {self._lag_text}",
            "  critical path, seconds of one refresh and share:",
        ]
        for hop, (_, share) in zip(judged.path, judged.shares, strict=True):
            seconds = "not measured" if hop.seconds is None else f"{hop.seconds:.2f} s"
            lines.append(f"    {hop.table}  {seconds}  {100 * share:.0f} %")
        lines.append("  cost an hour, at most, with all that drives it:")
        for target in sorted([own, *self.others], key=lambda target: target.freshness):
            mark = "->" if target is own else "  "
            cpu = target.cpu_seconds_an_hour
            shown = "CPU not measured" if cpu is None else f"{cpu:.1f} CPU-seconds"
            verdict = {True: "feasible", False: "not feasible", None: "not known"}[target.feasible]
            count = f"{target.refreshes_an_hour:8.1f} refreshes"
            lines.append(f"  {mark} {target.freshness.describe():<12} {target.mode!s:<12} {count}  {shown}  {verdict}")
        return "\n".join(lines)

    @property
    def _lag_text(self) -> str:
        lag = self.lag
        basis = f"as in its newest {lag.refreshes} refreshes" if lag.refreshes else "by what refreshes take"
        return f"{lag.typical:.1f} s on average, up to {lag.greatest:.1f} s, {basis}"


@dataclass(frozen=True)
class MeasuredCosts:
    """The measured cost of refreshes; names that were never measured are missing.

    `seconds` is what one refresh of each table surely takes, `due_seconds` what the engine counts on so as to begin
    early enough, `cpu` the CPU-seconds that one takes on average. So many refreshes are made in `parallel`. `records`
    of a name are its newest, the oldest first.
    """

    seconds: Mapping[TableName, float]
    cpu: Mapping[TableName, float]
    due_seconds: Mapping[TableName, float] = field(default_factory=dict)
    parallel: int = 1
    records: Callable[[TableName], Sequence[RefreshResult]] = lambda _: ()


def explain_freshness(graph: Graph, name: TableName, measured: MeasuredCosts) -> FreshnessExplained:
    """Explain the promise of one table. `graph` has the freshness in force."""
    spec = graph.spec(name)
    seconds, cpu = measured.seconds, measured.cpu
    judged = judge_promises(graph, seconds)[spec.name]
    lag = measure_lag(measured.records(spec.name), measured.records(judged.path[0].table), str(graph.mode(name)))
    if lag is None:
        lag = predict_lag(graph, judged.path, seconds, measured.due_seconds or seconds, measured.parallel)
    own = _target(graph, spec.name, graph.freshness(name), seconds, cpu)
    others = tuple(
        _target(graph, spec.name, freshness, seconds, cpu)
        for freshness in ALTERNATIVES
        if freshness != graph.freshness(name)
    )
    return FreshnessExplained(judged, lag, own, others)


def _target(
    graph: Graph,
    name: TableName,
    freshness: Freshness,
    seconds: Mapping[TableName, float],
    cpu: Mapping[TableName, float],
) -> FreshnessCost:
    drivers = _drivers(graph, name)
    wanted = {one: min(freshness, graph.freshness(one)) for one in drivers if is_brought_in(graph.specs[one])}
    as_fresh = graph.with_freshness({**wanted, name: freshness})
    judged = judge_promises(as_fresh, seconds)
    runs = {one: _refreshes_an_hour(judged[one]) for one in (*wanted, name)}
    known = all(one in cpu for one in runs)
    return FreshnessCost(
        freshness,
        as_fresh.mode(name),
        judged[name].feasible,
        runs[name],
        sum(count * cpu[one] for one, count in runs.items()) if known else None,
    )


def _drivers(graph: Graph, name: TableName) -> tuple[TableName, ...]:
    """All that counts in the table's lag, near and far."""
    found: dict[TableName, None] = {}
    waiting = [name]
    for one in waiting:
        for read in graph.driving(one):
            if read not in found:
                found[read] = None
                waiting.append(read)
    return tuple(found)


def _refreshes_an_hour(judged: Feasibility) -> float:
    """At most one for each time that a version stays the newest and one refresh takes."""
    own = judged.path[-1].seconds or 0.0
    return 3_600.0 / max(1.0, own, judged.period_seconds)
