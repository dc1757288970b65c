"""The plan of a backfill: which tables and partitions, in which order, and why each.

A backfill is a list of chunks. A chunk is one refresh of one table, with at most one commit: the replacement of one
partition, or the refresh of a table below, which finds by itself what changed. Everything here comes from the
arguments, so the same plan is shown and run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from sqlglot import exp

from freshline.declare.graph import Graph
from freshline.query.query import Query
from freshline.query.rules.partition import origin_of
from freshline.values.names import TableName
from freshline.values.partition import Interval, PartitionState, partition_name
from freshline.values.query import SqlQuery
from freshline.values.spec import Mode, TableSpec
from freshline.values.time_partition import PartitionUnit, TimePartition

NAMED = "it is named"
FINISHED = "an earlier attempt of this backfill has committed it"
REDECLARED = "its declaration changed, which all partitions take up together"
FIRST = "it has no version yet; its first refresh brings in all partitions"


class BackfillAction(StrEnum):
    """The action of a backfill on a partition or a table."""

    REPLACE = "replace"
    REFRESH = "refresh"
    SKIP = "skip"


@dataclass(frozen=True)
class BackfillChunk:
    """One step. `values` are the partition's columns and texts, none for a table as a whole; `key` is its name."""

    table: TableName
    action: BackfillAction
    why: str
    values: tuple[tuple[str, str], ...] = ()
    key: str | None = None
    state: PartitionState | None = None
    full: bool = False

    def as_json(self) -> dict[str, object]:
        return {
            "table": str(self.table),
            "partition": self.key,
            "state": None if self.state is None else str(self.state),
            "action": str(self.action),
            "why": self.why,
        }


@dataclass(frozen=True)
class RequestedBackfill:
    """The request for a backfill: partitions of one table, in time or by values, or the table as a whole.

    With `again`, partitions that are done are replaced too. `finished` are the keys that an earlier attempt of the same
    backfill has committed. With `cascade`, what reads the table is brought up to date behind it.
    """

    table: TableName
    partitions: tuple[TimePartition, ...] = ()
    values: tuple[tuple[tuple[str, str], ...], ...] = ()
    again: bool = False
    cascade: bool = False
    full: bool = False
    finished: Collection[str] = field(default_factory=frozenset)


def plan_backfill(
    graph: Graph, asked: RequestedBackfill, states: Mapping[str, PartitionState], now: datetime
) -> list[BackfillChunk]:
    """The chunks in the order in which they run: partitions from the oldest on, tables upstreams first."""
    spec = graph.table(asked.table)
    chunks: list[BackfillChunk] = []
    touched: dict[TableName, list[Interval]] = {}
    if asked.partitions:
        (column,) = spec.partitioned_by
        chunks = [_chunk(asked, spec, column, item, states) for item in sorted(asked.partitions)]
        touched[spec.name] = [(item.start, item.end) for item in asked.partitions]
    elif asked.values:
        chunks = [_chunk_of_values(asked, spec, item, states) for item in asked.values]
        # The table is refreshed as a whole, so all of them are missing, or stale.
        together = {PartitionState.MISSING: FIRST, PartitionState.STALE: REDECLARED}
        whole = next((together[chunk.state] for chunk in chunks if chunk.state in together), None)
        if whole is not None:
            chunks = [BackfillChunk(spec.name, BackfillAction.REFRESH, whole)]
    else:
        chunks = [BackfillChunk(spec.name, BackfillAction.REFRESH, NAMED, full=asked.full)]
    if asked.cascade:
        below = graph.downstream(spec.name)
        for name in graph.order:
            if name in below:
                chunks += _below(graph, graph.table(name), {spec.name, *below}, touched, now)
    return chunks


def _chunk(
    asked: RequestedBackfill,
    spec: TableSpec,
    column: str,
    partition: TimePartition,
    states: Mapping[str, PartitionState],
) -> BackfillChunk:
    state = states.get(partition.key, PartitionState.MISSING)
    chunk = BackfillChunk(
        spec.name, BackfillAction.REPLACE, f"it is {state}", ((column, partition.key),), partition.key, state
    )
    if partition.key in asked.finished:
        return replace(chunk, action=BackfillAction.SKIP, why=FINISHED)
    if asked.again:
        return replace(chunk, why=NAMED)
    return replace(chunk, action=BackfillAction.SKIP) if state is PartitionState.DONE else chunk


def _chunk_of_values(
    asked: RequestedBackfill, spec: TableSpec, values: tuple[tuple[str, str], ...], states: Mapping[str, PartitionState]
) -> BackfillChunk:
    key = partition_name(spec, values)
    chunk = BackfillChunk(spec.name, BackfillAction.REPLACE, NAMED, values, key, states.get(key))
    if key in asked.finished:
        return replace(chunk, action=BackfillAction.SKIP, why=FINISHED)
    if chunk.state is PartitionState.DONE and not asked.again:
        return replace(chunk, action=BackfillAction.SKIP, why=f"it is {chunk.state}")
    return chunk


def _below(
    graph: Graph,
    spec: TableSpec,
    changing: Collection[TableName],
    touched: dict[TableName, list[Interval]],
    now: datetime,
) -> list[BackfillChunk]:
    """The steps for a table that reads one of those that change."""
    reads = [name for name in spec.reads if name in changing and name not in spec.lookups]
    if not reads:
        # Rows keep the dimension that they were joined with.
        return []
    shown = " and ".join(str(name) for name in reads)
    upstream = _follows(graph, spec, reads)
    if upstream is None or upstream not in touched or spec.time_partitions is None:
        return [
            BackfillChunk(
                spec.name, BackfillAction.REFRESH, f"reads {shown}; which of its rows change, it finds by itself"
            )
        ]
    (column,) = spec.partitioned_by
    found = {
        partition.start: partition
        for start, end in touched[upstream]
        for partition in spec.time_partitions.inside(start, end)
        if partition.start <= now
    }
    ordered = [found[start] for start in sorted(found)]
    touched[spec.name] = [(item.start, item.end) for item in ordered]
    return [
        BackfillChunk(
            spec.name,
            BackfillAction.REPLACE,
            f"its {column} follows from {upstream}.{graph.table(upstream).partitioned_by[0]}",
            ((column, item.key),),
            item.key,
        )
        for item in ordered
    ]


def _follows(graph: Graph, spec: TableSpec, reads: Sequence[TableName]) -> TableName | None:
    """The one input whose partitions determine those of the table; None where only the changed rows do.

    A table that is kept by change sets computes a partition where it stands, without what is new above it: it is
    refreshed, and not replaced by partitions.
    """
    if len(reads) != 1 or spec.time_partitions is None or not isinstance(spec.query, SqlQuery):
        return None
    if graph.mode(spec.name) is not Mode.BATCH:
        return None
    upstream = graph.spec(reads[0])
    origin = origin_of(spec)
    if not isinstance(upstream, TableSpec) or upstream.time_partitions is None or origin is None:
        return None
    same_zone = upstream.time_partitions.time_zone == spec.time_partitions.time_zone
    # A date says nothing about the hours in it.
    coarser = spec.time_partitions.unit is not PartitionUnit.HOUR
    if origin.input != upstream.name or not same_zone or not coarser:
        return None
    tree = Query(f"SELECT {origin.expressions[0]}").tree.expressions[0]
    while isinstance(tree, exp.Paren):
        tree = tree.this
    plain = isinstance(tree, exp.Column) and tree.name.lower() == upstream.partitioned_by[0].lower()
    return upstream.name if plain else None
