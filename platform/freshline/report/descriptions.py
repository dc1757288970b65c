"""The meaning of a project's columns: the comments of sources, and where they travel with a column.

A column that a query takes as it is, under the same name, has the meaning that it has in the input. Any other column
has been computed, and nothing is known of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from freshline.declare.graph import Graph
from freshline.values.names import TableName
from freshline.values.spec import SourceSpec

Lineage = Mapping[str, tuple[tuple[TableName, str], ...]]


def describe_columns(graph: Graph, lineages: Mapping[TableName, Lineage]) -> dict[TableName, dict[str, str]]:
    """The texts of the columns of each table and source, by the column's name in lower case."""
    found: dict[TableName, dict[str, str]] = {}
    for name in graph.order:
        spec = graph.spec(name)
        if isinstance(spec, SourceSpec):
            found[name] = {column.name.lower(): column.comment for column in spec.columns if column.comment}
            continue
        own = found[name] = {}
        for column, origins in lineages.get(name, {}).items():
            if len(origins) == 1 and origins[0][1].lower() == column.lower():
                text = found.get(origins[0][0], {}).get(column.lower())
                if text is not None:
                    own[column.lower()] = text
    return found
