"""The lag to expect of a table while rows arrive all the time.

Lag is a saw: just after a commit it is the age of the data that was brought in, then it grows until the next commit.
`typical` is its average over time, `greatest` the height of its teeth. Where enough refreshes were made since the
table's freshness was last changed, both are measured from them; else they follow from the time that refreshes take.
Everything here comes from the arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from freshline.declare.graph import Graph, is_brought_in
from freshline.freshness.due import critical_paths, poll_seconds
from freshline.freshness.feasible import Hop
from freshline.values.names import TableName
from freshline.values.result import DECISIONS, RefreshResult, State, Strategy
from freshline.values.spec import Mode

LEAST_TEETH = 3
MOST_TEETH = 40
# Ages are checked about so often; a table that is due waits for the next check, half of the time on average.
LOOK_SECONDS = 1.0


@dataclass(frozen=True)
class PredictedLag:
    """Seconds of lag, on average and at most (in 95 of 100 refreshes).

    `refreshes` is from how many it was measured, 0 where it follows from what refreshes take.
    """

    typical: float
    greatest: float
    refreshes: int = 0


def predict_lag(
    graph: Graph,
    path: Sequence[Hop],
    seconds: Mapping[TableName, float],
    due_seconds: Mapping[TableName, float],
    parallel: int,
) -> PredictedLag:
    """The lag that follows from the time that refreshes take.

    `path` is the critical path of the table at its end. `seconds` is what one refresh of each table takes,
    `due_seconds` what the engine counts on, by which it begins early enough. So many refreshes are made in `parallel`.
    """
    name = path[-1].table
    taken = sum(hop.seconds or 0.0 for hop in path)
    freshness = graph.freshness(name).seconds
    if graph.mode(name) is not Mode.CONTINUOUS:
        early = critical_paths(graph, due_seconds)[name]
        # Not before the refresh of the last wave has ended.
        period = max(freshness - early, taken) + LOOK_SECONDS / 2
        return PredictedLag(taken + period / 2, taken + period)
    waits, period = 0.0, 0.0
    for hop in path:
        before = period
        period = max(before, hop.seconds or 0.0)
        if hop is path[0]:
            period = max(period, poll_seconds(graph, hop.table))
        elif (hop.seconds or 0.0) > before:
            # It is never idle: what it finds when it begins was committed some time before.
            waits += before / 2
    turns = _continuous_work(graph, seconds) / _workers(graph, seconds, due_seconds, parallel)
    if turns > period:
        # There is more to do than workers: all continuous tables take turns, and half a turn passes until what was
        # committed is read.
        waits, period = turns / 2 * (len(path) - 1), turns
    return PredictedLag(taken + waits + period / 2, taken + waits + period)


def _continuous_work(graph: Graph, seconds: Mapping[TableName, float]) -> float:
    return sum(
        seconds.get(name, 0.0)
        for name in graph.order
        if graph.mode(name) is Mode.CONTINUOUS and is_brought_in(graph.specs[name])
    )


def _workers(
    graph: Graph, seconds: Mapping[TableName, float], due_seconds: Mapping[TableName, float], parallel: int
) -> float:
    """The number of refreshes of continuous tables at once beside the others, which leave them one at least."""
    early = critical_paths(graph, due_seconds)
    occupied = 0.0
    for name in graph.order:
        taken = seconds.get(name, 0.0)
        if taken and graph.mode(name) is not Mode.CONTINUOUS and is_brought_in(graph.specs[name]):
            occupied += taken / max(graph.freshness(name).seconds - early[name], taken)
    return max(1.0, parallel - min(occupied, parallel - 1.0))


def measure_lag(records: Sequence[RefreshResult], checks: Sequence[RefreshResult], mode: str) -> PredictedLag | None:
    """The lag that the table's own refreshes show, None where they are too few since it was kept in another way.

    `records` are the table's, `checks` those of the root of its critical path, both the oldest first. Between two
    refreshes in which a check of the root found nothing new, lag did not grow all the time: they do not count.
    """
    quiet = [one.at for one in checks if one.state == State.SUCCEEDED and one.strategy == Strategy.NOOP]
    teeth: list[tuple[float, float]] = []
    before: RefreshResult | None = None
    for record in records:
        if record.state in DECISIONS:
            if record.state != State.INFEASIBLE:
                teeth, before = [], None
            continue
        if record.state != State.SUCCEEDED or record.data_timestamp is None:
            continue
        if record.mode != mode or record.cause != "live":
            teeth, before = [], None
            continue
        if before is not None and before.data_timestamp is not None and not _any_between(quiet, before.at, record.at):
            height = (record.at - before.data_timestamp).total_seconds()
            foot = (before.at - before.data_timestamp).total_seconds()
            teeth.append((foot, height))
        before = record
    teeth = teeth[-MOST_TEETH:]
    if len(teeth) < LEAST_TEETH:
        return None
    heights = sorted(height for _, height in teeth)
    # The newer half: an engine that was started, or given another freshness, gets faster while its code is compiled.
    teeth = teeth[-max(LEAST_TEETH, -(-len(teeth) // 2)) :]
    # Over time, not over refreshes: a long cycle counts for longer.
    passed = sum(height - foot for foot, height in teeth)
    area = sum((height + foot) / 2 * (height - foot) for foot, height in teeth)
    greatest = heights[-(-95 * len(heights) // 100) - 1]
    return PredictedLag(area / passed if passed else greatest, greatest, refreshes=len(teeth))


def _any_between(moments: Sequence[datetime], begin: datetime, end: datetime) -> bool:
    return any(begin < moment < end for moment in moments)
