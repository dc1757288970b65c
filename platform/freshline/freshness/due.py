"""The tables that are due.

A table is due early enough to keep its promise: when its data timestamp plus its freshness is as near as what the
refreshes on the longest way from its roots take. Everything here comes from the arguments; no clock and no storage is
read.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from datetime import datetime, timedelta

from freshline.declare.graph import Graph
from freshline.freshness.lag import is_future
from freshline.values.freshness import Freshness
from freshline.values.names import TableName


def critical_paths(graph: Graph, seconds: Mapping[TableName, float]) -> dict[TableName, float]:
    """The seconds of the refreshes on the slowest way from a root to each table, its own included.

    `seconds` is what one refresh of each takes (its 95th percentile); one that is not known counts as nothing.
    """
    paths: dict[TableName, float] = {}
    for name in graph.order:
        before = max((paths[read] for read in graph.driving(name)), default=0.0)
        paths[name] = before + seconds.get(name, 0.0)
    return paths


def due_at(data_timestamp: datetime, freshness: Freshness, path_seconds: float) -> datetime:
    """The time at which refreshing must begin to keep the promise; not before the data timestamp itself."""
    return data_timestamp + timedelta(seconds=max(0.0, freshness.seconds - path_seconds))


def due_tables(
    graph: Graph, stamps: Mapping[TableName, datetime | None], seconds: Mapping[TableName, float], now: datetime
) -> tuple[TableName, ...]:
    """The tables and sources that are due at `now`, in order; one that has no data timestamp is due.

    One whose data timestamp is in the future is due too: the clock was put back since, and until it is there again
    nobody would refresh the table.
    """
    paths = critical_paths(graph, seconds)
    found = []
    for name in graph.order:
        stamp = stamps.get(name)
        if stamp is None or is_future(stamp, now) or now >= due_at(stamp, graph.freshness(name), paths[name]):
            found.append(name)
    return tuple(found)


def next_due(
    graph: Graph,
    stamps: Mapping[TableName, datetime | None],
    seconds: Mapping[TableName, float],
    now: datetime,
    left_alone: Container[TableName] = (),
) -> datetime | None:
    """The time at which the first table or source becomes due; `now` where one is, None where there is none at all.

    Those `left_alone` do not count. Data timestamps only become newer, so nothing is due before unless the tables, what
    refreshes take or the clock are others then.
    """
    due = due_tables(graph, stamps, seconds, now)
    if any(name not in left_alone for name in due):
        return now
    paths = critical_paths(graph, seconds)
    later = (
        due_at(stamp, graph.freshness(name), paths[name])
        for name in graph.order
        if name not in left_alone and (stamp := stamps.get(name)) is not None
    )
    return min(later, default=None)


def with_driving(graph: Graph, names: Collection[TableName]) -> tuple[TableName, ...]:
    """These and everything that drives them, near or far, in order: what has to run for their lag to shrink."""
    wanted = set(names)
    for name in reversed(graph.order):
        if name in wanted:
            wanted.update(graph.driving(name))
    return tuple(name for name in graph.order if name in wanted)


def poll_seconds(graph: Graph, name: TableName) -> float:
    """The seconds between two checks of a source of a continuous table."""
    return min(1.0, graph.freshness(name).seconds / 4)
