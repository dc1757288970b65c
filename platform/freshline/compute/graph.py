"""The rows of a graph function: what it gives for the nodes of some edges, as the declared query reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, StructField, StructType

from freshline.compute import graph_in_memory, graph_in_spark
from freshline.compute.graph_in_spark import NODE, SOURCE, TARGET
from freshline.compute.ranks import MOST_RANK_ROUNDS, PART
from freshline.compute.read_only import read_declared
from freshline.errors import GraphError
from freshline.sql.graph_functions import GRAPH_VIEW
from freshline.values.query import GraphCall, GraphFunction, SqlQuery, node_types_problem

T = TypeVar("T")

# Up to this many edges are computed with in memory.
MOST_IN_MEMORY = 1_000_000


@dataclass(frozen=True)
class GraphRun:
    """The graph function of a table's query, in a session whose views are its inputs.

    `check` raises where it is cancelled.
    """

    spark: SparkSession
    query: SqlQuery
    where: str
    check: Callable[[], None] = lambda: None

    @property
    def call(self) -> GraphCall:
        assert self.query.graph is not None
        return self.query.graph

    def edges(self) -> DataFrame:
        """The edges over the views as they are now: `source` and `target`, none of which is NULL."""
        call = self.call
        rows = read_declared(self.spark, call.edges.render(), [name.view for name in call.edges.reads])
        first, second = (field.dataType for field in rows.schema.fields)
        said = node_types_problem(call.function, call.ends, first.simpleString().upper(), second.simpleString().upper())
        if said is not None:
            raise GraphError(said, where=self.where)
        return rows.toDF(SOURCE, TARGET).where(F.col(SOURCE).isNotNull() & F.col(TARGET).isNotNull())

    def values(self, edges: DataFrame, start: DataFrame | None = None) -> DataFrame:
        """The function's values for the nodes of these edges: `node` and its own column.

        `start` has ranks to begin with: `node` and `rank`. Those that are close enough stay. Raises GraphError.
        """
        found = _in_memory(edges)
        values = self._in_spark(edges, start) if found is None else self._in_memory(found, edges, start)
        if start is None:
            return values
        known = start.select(NODE, F.col("rank").alias("stored"))
        stays = F.abs(F.col("rank") - F.col("stored")) <= F.lit(self.call.tolerance * PART)
        rank = F.when(stays, F.col("stored")).otherwise(F.col("rank"))
        return values.join(known, NODE, "left").select(NODE, rank.alias("rank"))

    def within_reach(self, edges: DataFrame, reached: DataFrame) -> DataFrame:
        """`node` of the components that have one of the nodes of `reached`."""
        found = _in_memory(edges)
        if found is None:
            return graph_in_spark.within_reach(edges, reached)
        nodes = graph_in_memory.within_reach(found, _as_arrow(reached.select(NODE)).column(0), self.check)
        return self._frame([nodes], [StructField(NODE, edges.schema[SOURCE].dataType)])

    def rows(self, values: DataFrame) -> DataFrame:
        """The rows of the declared query over what the function gives."""
        values.createOrReplaceTempView(GRAPH_VIEW)
        try:
            return read_declared(self.spark, self.query.render_over(GRAPH_VIEW), [GRAPH_VIEW])
        finally:
            self.spark.catalog.dropTempView(GRAPH_VIEW)

    def _in_spark(self, edges: DataFrame, start: DataFrame | None) -> DataFrame:
        match self.call.function:
            case GraphFunction.CONNECTED_COMPONENTS:
                return graph_in_spark.components(edges)
            case GraphFunction.COMMUNITIES:
                return graph_in_spark.communities(edges, self.call.rounds)
            case GraphFunction.PAGERANK:
                found = graph_in_spark.ranks(edges, start, self.call.tolerance * PART)
                return self._require(None if found is None else found[0])

    def _in_memory(self, found: graph_in_memory.Edges, edges: DataFrame, start: DataFrame | None) -> DataFrame:
        kind, call = edges.schema[SOURCE].dataType, self.call
        columns = [StructField(NODE, kind), StructField(call.function.value, kind)]
        if call.function is GraphFunction.PAGERANK:
            begin = np.ones(found.count)
            if start is not None:
                stored = _as_arrow(start.select(NODE, "rank"))
                places = graph_in_memory.places_of(stored.column(0), found.nodes)
                begin[places[places >= 0]] = stored.column(1).to_numpy()[places >= 0]
            ranked = graph_in_memory.ranks(found, begin, call.tolerance * PART, MOST_RANK_ROUNDS, self.check)
            (ranks, _) = self._require(ranked)
            return self._frame([found.nodes, pa.array(ranks)], [columns[0], StructField("rank", DoubleType())])
        labels = (
            graph_in_memory.components(found, self.check)
            if call.function is GraphFunction.CONNECTED_COMPONENTS
            else graph_in_memory.communities(found, call.rounds, self.check)
        )
        return self._frame([found.nodes, found.nodes.take(pa.array(labels))], columns)

    def _require(self, found: T | None) -> T:
        if found is None:
            raise GraphError(
                f"PAGERANK: ranks were not within TOLERANCE {self.call.tolerance:g} after {MOST_RANK_ROUNDS} rounds. "
                "Declare a greater TOLERANCE.",
                where=self.where,
            )
        return found

    def _frame(self, columns: list[pa.Array], fields: list[StructField]) -> DataFrame:
        table = pa.table(columns, names=[field.name for field in fields])
        return self.spark.createDataFrame(table, StructType(fields))


def _in_memory(edges: DataFrame) -> graph_in_memory.Edges | None:
    """The edges in memory; None where there are too many."""
    found = _as_arrow(edges.select(SOURCE, TARGET).limit(MOST_IN_MEMORY + 1))
    if found.num_rows > MOST_IN_MEMORY:
        return None
    return graph_in_memory.number_nodes(found.column(0), found.column(1))


def _as_arrow(rows: DataFrame) -> pa.Table:
    return rows.toArrow()
