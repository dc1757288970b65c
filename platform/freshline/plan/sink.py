"""The types of a sink's columns, as far as declarations say them: of columns that come from a source as they are."""

from __future__ import annotations

from collections.abc import Mapping

from freshline.declare.graph import Graph
from freshline.sql.columns import plain_columns
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.rules import Problems
from freshline.values.spec import SourceSpec, TableSpec


def check_sink(spec: TableSpec, graph: Graph, problems: Problems) -> None:
    """Refuse columns whose declared types the system of a sink has not; the refresh checks the others."""
    assert spec.sink is not None
    (table,) = spec.reads
    keys = {key.lower() for key in spec.primary_key}
    with problems.of_extensions(spec.written_at):
        for column, kind in known_types(graph, table).items():
            reason = spec.sink.refuses(kind, is_key=column in keys)
            if reason is not None:
                problems.add(
                    "SINK_TYPE",
                    f"column {column} of {table} is {kind}, which {spec.sink.title} cannot have: {reason}. Convert it "
                    "in a table of its own, and send that one.",
                    spec.written_at,
                )


def known_types(graph: Graph, name: TableName) -> Mapping[str, str]:
    """The types of the columns of a table that declarations say, the columns in lower case."""
    spec = graph.spec(name)
    if isinstance(spec, SourceSpec):
        return {column.name.lower(): column.type for column in spec.columns}
    if not isinstance(spec.query, SqlQuery) or len(spec.query.references) != 1:
        return {}
    (read,) = spec.reads
    below, columns = known_types(graph, read), graph.columns(read)
    shown = plain_columns(spec.query, columns or ())
    return {column: below[of] for column, of in shown.items() if of in below}
