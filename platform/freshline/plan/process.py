"""The needs of a class of `freshline.process`: columns of key and order in its input, a watermark for timers."""

from __future__ import annotations

from freshline.declare.graph import Graph
from freshline.plan.final import check_time
from freshline.values.names import TableName
from freshline.values.process import require_columns, require_key_types
from freshline.values.query import PythonQuery
from freshline.values.rules import Problems
from freshline.values.spec import SourceSpec, TableSpec


def check_process(spec: TableSpec, graph: Graph, problems: Problems) -> None:
    """Collect what stands against it: PROCESS_KEY, PROCESS_ORDER, UNKNOWN_COLUMN and WATERMARK_MISSING."""
    process = spec.query.process if isinstance(spec.query, PythonQuery) else None
    if process is None:
        return
    (name,) = spec.reads
    for rule, sentence in require_key_types(process, _declared_types(graph, name)):
        problems.add(rule, sentence, spec.written_at)
    if spec.side_output_of is not None:
        return  # what else is wrong with an output is wrong with its table
    read = graph.spec(name)
    types = {each.name.lower(): each.type for each in read.columns} if isinstance(read, SourceSpec) else {}
    for rule, sentence in require_columns(process, graph.columns(name), types):
        problems.add(rule, sentence, spec.written_at)
    if not process.has_timer:
        return
    if read.is_read_in_place:
        problems.add(
            "WATERMARK_MISSING",
            f"timers run by a watermark, and {name} is read in place and has none. Read a source with a log table and "
            "WATERMARK FOR, or remove the method `timer`.",
            spec.written_at,
        )
        return
    check_time(graph, name, process.order[0].lower(), spec.written_at, problems)


def _declared_types(graph: Graph, name: TableName) -> dict[str, str]:
    """The types of columns that stand in the declaration of an input, the columns in lower case."""
    read = graph.spec(name)
    if isinstance(read, SourceSpec):
        return {each.name.lower(): each.type for each in read.columns}
    process = read.query.process if isinstance(read.query, PythonQuery) else None
    return {} if process is None else {column.lower(): kind for column, kind in process.columns}
