"""Reading a project: its declarations, and what they promise about refreshes."""

from __future__ import annotations

from freshline.declare.graph import Graph
from freshline.declare.project import read_project
from freshline.declare.rules import Problems
from freshline.declare.settings import Settings
from freshline.declare.spec import DeltaJoin, TableSpec
from freshline.plan.changes import ChangeKind


def open_project(settings: Settings) -> Graph:
    """All declarations of a project as a graph; raises DeclarationErrors with everything that is wrong."""
    graph = read_project(settings)
    check_promises(graph)
    return graph


def check_promises(graph: Graph) -> None:
    """Refuse `delta-join.strategy` = FORCE where a change could not be followed; raises DeclarationErrors."""
    forced = [spec for spec in graph.tables if spec.delta_join is DeltaJoin.FORCE]
    if not forced:
        return
    # Following changes needs sqlglot's optimizer, which takes longer to load than most projects do.
    from freshline.plan.explain import find_case

    problems = Problems()
    for spec in forced:
        columns = {name: known for name in spec.reads if (known := graph.columns(name)) is not None}
        refused = find_case(spec, columns, dict.fromkeys(spec.driving, ChangeKind.MUTATE)).refused.get("keys")
        if refused is not None:
            problems.add(
                "DELTA_JOIN",
                f"'delta-join.strategy' is 'FORCE', and changes of {_inputs(spec)} cannot be followed through the "
                f"query: {refused}. Change the query, or declare AUTO.",
                spec.written_at,
            )
    problems.raise_all()


def _inputs(spec: TableSpec) -> str:
    return " and ".join(str(name) for name in spec.driving)
