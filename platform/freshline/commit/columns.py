"""The columns of what a table reads: from declarations, or from the logs of tables that only Spark knows."""

from __future__ import annotations

from freshline.commit.delta_log import exists, open_table
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.names import RESERVED_COLUMN, TableName
from freshline.declare.spec import TableSpec


def input_columns(graph: Graph, warehouse: Warehouse, spec: TableSpec) -> dict[TableName, tuple[str, ...]]:
    """The names of the columns of every input whose columns are known without Spark."""
    found = {}
    for name in spec.reads:
        known = graph.columns(name)
        path = warehouse.location(graph.spec(name))
        if known is None and exists(path):
            names = (field.name for field in open_table(path).schema().fields)
            known = tuple(column for column in names if not column.lower().startswith(RESERVED_COLUMN))
        if known is not None:
            found[name] = known
    return found
