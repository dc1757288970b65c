"""The batch tables that are requested of Dagster now, in runs.

The plan is made anew at every check, from how the tables stand: ticks that were missed collapse into one, and nothing
has to be remembered but the requests that have not helped yet. Everything here comes from the arguments; no clock and
no storage is read.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from freshline.declare.graph import Graph
from freshline.freshness.due import with_driving
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.spec import Mode

FIRST_PAUSE_SECONDS = 60.0
LONGEST_PAUSE_SECONDS = 1800.0


@dataclass(frozen=True)
class RunAttempts:
    """Requests in a row after which a table was still due: how many, and when there may be another."""

    count: int
    again_at: datetime


@dataclass(frozen=True)
class BatchPlan:
    """`runs` are the tables of each run to request, upstreams first; `waiting` says why others that are due are not.

    `attempts` is what to hand to the next call.
    """

    runs: tuple[tuple[TableName, ...], ...] = ()
    waiting: Mapping[TableName, str] = field(default_factory=dict)
    attempts: Mapping[TableName, RunAttempts] = field(default_factory=dict)


def batch_tables(graph: Graph) -> tuple[TableName, ...]:
    """The tables, and sources whose rows arrive in a log table, that are kept in batch mode, in order."""
    return tuple(name for name in graph.kept if graph.mode(name) is Mode.BATCH)


def plan_batch(
    graph: Graph,
    due: Collection[TableName],
    in_progress: Collection[TableName],
    left_alone: Mapping[TableName, str],
    attempts: Mapping[TableName, RunAttempts],
    now: datetime,
    *,
    slots: int,
    jitter: float,
    empty: Collection[TableName] = (),
) -> BatchPlan:
    """The runs to request at `now`, and why other tables wait.

    `due` are the tables that are due, `in_progress` those that some run refreshes, `left_alone` those that must not be
    refreshed, with the reason, `empty` those without a version: what reads them cannot be refreshed. At most `slots`
    runs are requested. `jitter` is in [0, 1).
    """
    kept = frozenset(batch_tables(graph))
    wanted = [name for name in graph.order if name in kept and name in due]
    before = {name: attempts[name] for name in wanted if name in attempts}
    waiting: dict[TableName, str] = {}
    groups: list[set[TableName]] = []
    for name in wanted:
        needed = [other for other in with_driving(graph, (name,)) if other in kept]
        reason = next(
            (why for other in reversed(needed) if (why := _wait(other, in_progress, left_alone, before, now))),
            _wait_for_first(graph, needed, empty),
        )
        if reason is not None:
            waiting[name] = reason
            continue
        # Groups that share a table share a run: there it has an order, and is refreshed once.
        joined = set(needed).union(*(group for group in groups if not group.isdisjoint(needed)))
        groups = [group for group in groups if group.isdisjoint(joined)]
        groups.append(joined)
    if slots <= 0:
        waiting |= dict.fromkeys((name for name in wanted if name not in waiting), "enough runs are in progress")
        groups = []
    runs = _spread(graph, groups, slots)
    requested = {name for run in runs for name in run}
    tried = {name: _tried(before.get(name), graph.freshness(name), now, jitter) for name in wanted if name in requested}
    return BatchPlan(runs, waiting, before | tried)


def _wait(
    name: TableName,
    in_progress: Collection[TableName],
    left_alone: Mapping[TableName, str],
    attempts: Mapping[TableName, RunAttempts],
    now: datetime,
) -> str | None:
    if name in left_alone:
        return left_alone[name]
    if name in in_progress:
        return f"a run of {name} is in progress"
    attempt = attempts.get(name)
    if attempt is not None and now < attempt.again_at:
        return f"{name} was requested {attempt.count} times in vain, again at {attempt.again_at:%H:%M:%S} UTC"
    return None


def _wait_for_first(graph: Graph, run: Collection[TableName], empty: Collection[TableName]) -> str | None:
    """The reason why a run would fail: something that it reads, and does not refresh, has nothing in it yet."""
    for name in run:
        for read in graph.reads(name):
            if read in empty and read not in run:
                return f"{read}, which {name} reads, has no version yet"
    return None


def _tried(before: RunAttempts | None, freshness: Freshness, now: datetime, jitter: float) -> RunAttempts:
    count = 1 if before is None else before.count + 1
    longest = max(FIRST_PAUSE_SECONDS, min(LONGEST_PAUSE_SECONDS, freshness.seconds / 4))
    pause = min(longest, FIRST_PAUSE_SECONDS * 2.0 ** min(count - 1, 20)) * (0.75 + jitter / 4)
    return RunAttempts(count, now + timedelta(seconds=pause))


def _spread(graph: Graph, groups: Sequence[Collection[TableName]], slots: int) -> tuple[tuple[TableName, ...], ...]:
    """The groups in at most `slots` runs of about equal size."""
    runs: list[set[TableName]] = [set() for _ in range(min(slots, len(groups)))]
    for group in sorted(groups, key=len, reverse=True):
        min(runs, key=len).update(group)
    return tuple(tuple(name for name in graph.order if name in run) for run in runs)
