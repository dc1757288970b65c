"""The order in which tables are refreshed: always that of the declared graph."""

from __future__ import annotations

from collections.abc import Sequence

from freshline.declare.graph import Graph
from freshline.values.names import TableName


def refresh_order(graph: Graph, names: Sequence[TableName], *, upstreams: bool = True) -> tuple[TableName, ...]:
    """The tables to refresh for a request, upstreams first; no names mean every table and source.

    With `upstreams`, everything that the named tables read is brought up to date before them. The tables that a
    declaration makes beside its table, late rows and side outputs, are refreshed with it.
    """
    if not names:
        return tuple(graph.order)
    wanted = set(graph.with_beside(names))
    if upstreams:
        for name in reversed(graph.order):
            if name in wanted:
                wanted.update(graph.upstream(name))
    return tuple(name for name in graph.order if name in wanted)
