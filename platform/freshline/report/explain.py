"""EXPLAIN and EXPLAIN FRESHNESS of a project as it stands: the columns, the clock, the watermark and the measurements.

It only reads, and needs neither Spark nor an engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from freshline.commit.columns import input_columns, input_types
from freshline.commit.control_store import KEPT_RECORDS, ControlStore
from freshline.commit.delta_log import read_newest
from freshline.commit.event_time import watermark_of
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.freshness.cost import MeasuredCosts
from freshline.plan.explain import Explanation, declared_types, explain_table, with_event_time
from freshline.values.spec import TableSpec


def explanations(graph: Graph, warehouse: Warehouse, specs: Sequence[TableSpec]) -> list[Explanation]:
    """How each table is kept up, by its declaration, the columns of its inputs and where its watermark stands."""
    logs = frozenset(source.name for source in graph.sources if source.is_log)
    found = []
    for spec in specs:
        types = {**declared_types(spec, graph), **input_types(graph, warehouse, spec)}
        newest = read_newest(warehouse.path(spec.name)) if spec.is_temporal else None
        clock = None if newest is None or newest.receipt is None else newest.receipt.clock
        explained = explain_table(spec, input_columns(graph, warehouse, spec), logs, types, clock=clock)
        found.append(with_event_time(explained, graph, lambda name: watermark_of(graph.specs, warehouse, name)))
    return found


def read_measured(graph: Graph, store: ControlStore, parallel: int) -> MeasuredCosts:
    """The measured seconds of refreshes, of which `parallel` run at a time."""
    return MeasuredCosts(
        store.seconds(),
        store.cpu_seconds(),
        {name: taken for name in graph.order if (taken := store.seconds_of(name)) is not None},
        parallel,
        lambda name: list(reversed(store.refreshes(name, limit=KEPT_RECORDS))),
    )
