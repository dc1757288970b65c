"""The needs of a table with EMIT FINAL: an input that is a log with a watermark, by whose column windows are made."""

from __future__ import annotations

from freshline.declare.graph import Graph
from freshline.errors import DeclarationError
from freshline.query.final import FinalQuery, read_final, why_unrepeatable, written_once_by
from freshline.values.location import Location
from freshline.values.mode import driving_inputs
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.rules import Problems
from freshline.values.spec import SourceSpec, TableSpec


def check_final(spec: TableSpec, graph: Graph, problems: Problems) -> None:
    """Collect what stands against rows that never change: FINAL_INPUT and WATERMARK_MISSING."""
    if spec.is_triggered:
        _check_triggered(spec, graph, problems)
        return
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
    joined = () if spec.query.timed is None else spec.query.timed.inputs
    for name in joined:
        if not isinstance(graph.spec(name), SourceSpec):
            problems.add(
                "FINAL_INPUT",
                f"a join of EMIT FINAL reads log tables, whose batches say which pairs are new, and {name} is a table. "
                "Read its inputs instead.",
                spec.written_at,
            )
            return
    for first, other, at in found.alike:
        sides = (graph.columns(each) or () if isinstance(each, TableName) else each for each in (first, other))
        named = [[column.lower() for column in side] for side in sides]
        if named[0] != named[1] or not named[0]:
            problems.add(
                "FINAL_INPUT",
                "UNION ALL puts columns together by their places, and `*` does not show that both sides have the same "
                "ones in the same order. Name the columns.",
                at,
            )
    for name, column, at in found.read:
        check_time(graph, name, column, at, problems)


def _check_triggered(spec: TableSpec, graph: Graph, problems: Problems) -> None:
    """WHEN asks for a key, for rows that follow from the inputs, and for a watermark where it names that."""
    if not isinstance(spec.query, SqlQuery):
        return
    unrepeatable = why_unrepeatable(spec.query, spec.written_at.path)
    if unrepeatable is not None:
        problems.extend(unrepeatable)
    assert spec.final is not None
    assert spec.final.condition is not None
    at = Location(spec.written_at.path, spec.final.condition.line)
    if not written_once_by(spec):
        problems.add(
            "FINAL_INPUT",
            "EMIT FINAL .. WHEN writes the row of a key once, and nothing says which columns are the key. Declare "
            "PRIMARY KEY (..), or group by columns that the query selects.",
            at,
        )
    without = next((name for name in spec.driving if spec.query.moments and not _may_have_watermark(name, graph)), None)
    if without is not None:
        problems.add(
            "WATERMARK_MISSING",
            f"watermark() is the least watermark of the inputs, and {without} has none: it would stay NULL. Declare "
            "WATERMARK FOR in its source, or leave watermark() out.",
            at,
        )


def _may_have_watermark(name: TableName, graph: Graph) -> bool:
    spec = graph.spec(name)
    if isinstance(spec, SourceSpec):
        return spec.is_log and spec.watermark is not None
    driving = driving_inputs(spec)
    return bool(driving) and all(_may_have_watermark(each, graph) for each in driving)


def _is_final(spec: SourceSpec | TableSpec) -> bool:
    return spec.is_log if isinstance(spec, SourceSpec) else spec.final is not None


def check_time(graph: Graph, name: TableName, column: str, at: Location, problems: Problems) -> None:
    """Check that the watermark of an input is of the column by which its rows are put into windows, or timers run."""
    read = graph.spec(name)
    if isinstance(read, SourceSpec):
        own = frozenset() if read.watermark is None else frozenset({read.watermark.column.lower()})
        missing = f"{name} has no watermark. Declare one there: WATERMARK FOR {column} AS {column}."
    else:
        found = None if read.is_triggered else _final_query(read, Problems())
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
    """Its query, read as FINAL; None where it cannot be FINAL, with the reason in `problems`."""
    if not isinstance(spec.query, SqlQuery):
        return None
    try:
        return read_final(spec.query, spec.written_at.path)
    except DeclarationError as error:
        problems.extend(error)
        return None
