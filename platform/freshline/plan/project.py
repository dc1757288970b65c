"""Reading a project: its declarations, and what they promise about refreshes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from freshline.declare.graph import Graph
from freshline.declare.merge import Merge
from freshline.declare.project import read_project
from freshline.declare.query import PythonQuery
from freshline.declare.registry import ExtensionError, find_strategy
from freshline.declare.rules import Problems
from freshline.declare.settings import Settings
from freshline.declare.spec import DeltaJoin, TableSpec
from freshline.plan.changes import ChangeKind
from freshline.plan.result import Strategy


def open_project(settings: Settings, *, instead: Mapping[Path, str | None] | None = None) -> Graph:
    """All declarations of a project as a graph; raises DeclarationErrors with everything that is wrong.

    `instead` has texts that count in place of what is on disk, None for a file that does not count.
    """
    graph = read_project(settings, instead=instead)
    check_promises(graph)
    return graph


def check_promises(graph: Graph) -> None:
    """Refuse options that promise what no refresh could keep; raises DeclarationErrors."""
    problems = Problems()
    _check_forced([spec for spec in graph.tables if spec.delta_join is DeltaJoin.FORCE], graph, problems)
    for spec in graph.tables:
        for name in spec.strategies:
            try:
                find_strategy(name)
            except ExtensionError as error:
                problems.add("EXTENSION", f"strategy {error}", spec.written_at)
        if spec.lookup_attempts:
            # Looking into queries needs sqlglot, which takes longer to load than most projects do.
            from freshline.plan.retried_lookups import check_retried

            check_retried(spec, graph, problems)
        if spec.final is not None:
            from freshline.plan.final import check_final

            check_final(spec, graph, problems)
        if isinstance(spec.query, PythonQuery) and spec.query.process is not None:
            from freshline.plan.process import check_process

            check_process(spec, graph, problems)
        if spec.merge is not None and spec.merge.upstream_deletes == "ignore":
            _check_ignored(spec, spec.merge, problems)
    problems.raise_all()


def _check_ignored(spec: TableSpec, merge: Merge, problems: Problems) -> None:
    """Rows that the input no longer has cannot be asked: what is stored must tell all that a new row is compared by."""
    for needed in merge.why_not_ignore(spec):
        problems.add("OPTION_NEEDS", f"'upstream-deletes' = 'ignore' needs {needed}", spec.written_at)


def _check_forced(forced: Sequence[TableSpec], graph: Graph, problems: Problems) -> None:
    if not forced:
        return
    # Following changes needs sqlglot's optimizer too.
    from freshline.plan.explain import declared_types, find_case

    for spec in forced:
        columns = {name: known for name in spec.reads if (known := graph.columns(name)) is not None}
        changed = dict.fromkeys(spec.driving, ChangeKind.MUTATE)
        refused = find_case(spec, columns, changed, declared_types(spec, graph)).refused.get(Strategy.KEYS)
        if refused is not None:
            problems.add(
                "DELTA_JOIN",
                f"'delta-join.strategy' is 'FORCE', and changes of {_inputs(spec)} cannot be followed through the "
                f"query: {refused}. Change the query, or declare AUTO.",
                spec.written_at,
            )


def _inputs(spec: TableSpec) -> str:
    return " and ".join(str(name) for name in spec.driving)
