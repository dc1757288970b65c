"""What a table with EMIT FINAL needs of its inputs: a log with a watermark, by whose column windows are made."""

from __future__ import annotations

from freshline.declare.graph import Graph
from freshline.declare.location import Location
from freshline.declare.names import TableName
from freshline.declare.query import SqlQuery
from freshline.declare.rules import Problems
from freshline.declare.spec import SourceSpec, TableSpec
from freshline.errors import DeclarationError
from freshline.query.final import FinalQuery, read_final


def check_final(spec: TableSpec, graph: Graph, problems: Problems) -> None:
    """Collect what stands against rows that never change: FINAL_INPUT and WATERMARK_MISSING."""
    found = _final_query(spec, problems)
    if found is None:
        return
    for name in spec.reads:
        read = graph.spec(name)
        if not _is_final(read):
            problems.add(
                "FINAL_INPUT",
                f"EMIT FINAL reads log tables and tables with EMIT FINAL, whose rows stay, and {name} is neither. "
                "Leave EMIT FINAL out.",
                spec.written_at,
            )
            return
    for name, column, at in found.read:
        check_time(graph, name, column, at, problems)


def _is_final(spec: SourceSpec | TableSpec) -> bool:
    return spec.is_log if isinstance(spec, SourceSpec) else spec.final is not None


def check_time(graph: Graph, name: TableName, column: str, at: Location, problems: Problems) -> None:
    """That the watermark of an input is of the column by which its rows are put into windows, or timers run."""
    read = graph.spec(name)
    if isinstance(read, SourceSpec):
        own = frozenset() if read.watermark is None else frozenset({read.watermark.column.lower()})
        missing = f"{name} has no watermark. Declare one there: WATERMARK FOR {column} AS {column}."
    else:
        found = _final_query(read, Problems())
        own = frozenset() if found is None else found.times
        missing = f"{name} has no windows, so nothing tells when its rows are all there. Read its inputs instead."
    if not own:
        problems.add("WATERMARK_MISSING", missing, at)
    elif column not in own:
        problems.add(
            "WATERMARK_MISSING",
            f"time is {column} of {name}, and its watermark is of {' and '.join(sorted(own))}. Take that for the time.",
            at,
        )


def _final_query(spec: TableSpec, problems: Problems) -> FinalQuery | None:
    """What its query is; None where it cannot be FINAL, which `problems` then tells."""
    if not isinstance(spec.query, SqlQuery):
        return None
    try:
        return read_final(spec.query, spec.written_at.path)
    except DeclarationError as error:
        problems.extend(error)
        return None
