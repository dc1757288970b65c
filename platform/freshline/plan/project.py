"""Reading a project: its declarations, and what they promise about refreshes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from freshline.declare.cache import PARSING, DeclarationCache
from freshline.declare.graph import Graph
from freshline.declare.project import read_project
from freshline.plan.changes import ChangeKind
from freshline.values.merge import Merge
from freshline.values.query import PythonQuery
from freshline.values.registry import ExtensionError, find_strategy, origin
from freshline.values.result import Strategy
from freshline.values.rules import Problems
from freshline.values.settings import Settings, as_private
from freshline.values.spec import DeltaJoin, SourceSpec, TableSpec

# The folders whose code reads queries, beside those that parse.
JUDGING = (*PARSING, "plan", "query", "strategies")


def open_project(settings: Settings, *, instead: Mapping[Path, str | None] | None = None) -> Graph:
    """All declarations of a project as a graph; raises DeclarationErrors with everything that is wrong.

    `instead` has texts that count in place of what is on disk, None for a file that does not count.
    """
    graph = read_project(settings, instead=instead)
    cache: DeclarationCache[bool] = DeclarationCache(settings.state / "cache" / "promises", bool, JUDGING)
    check_promises(graph, cache)
    with as_private(settings.umask):
        cache.save()
    return graph


def check_promises(graph: Graph, cache: DeclarationCache[bool] | None = None) -> None:
    """Refuse options that promise what no refresh could keep; raises DeclarationErrors.

    `cache` has True for declarations whose queries were found to keep what they promise.
    """
    problems = Problems()
    _check_extensions(graph, problems)
    key = None if cache is None else _key_of_queries(graph, cache)
    if cache is None or key is None or not cache.get(key):
        _check_queries(graph, problems)
        if cache is not None and key is not None and not problems:
            cache.put(key, True)
    problems.raise_all()


def _check_extensions(graph: Graph, problems: Problems) -> None:
    """Refuse what strategies and merges say that another package may have."""
    for spec in graph.tables:
        for name in spec.strategies:
            try:
                find_strategy(name)
            except ExtensionError as error:
                problems.add("EXTENSION", f"strategy {error}", spec.written_at)
        if spec.merge is not None and spec.merge.upstream_deletes == "ignore":
            _check_ignored(spec, spec.merge, problems)


def _check_queries(graph: Graph, problems: Problems) -> None:
    """Check the queries of those tables that promise something of them, which loads sqlglot."""
    _check_forced([spec for spec in graph.tables if spec.delta_join is DeltaJoin.FORCE], graph, problems)
    for spec in graph.tables:
        if spec.lookup_attempts:
            from freshline.plan.retried_lookups import check_retried

            check_retried(spec, graph, problems)
        if spec.sink is not None:
            from freshline.plan.sink import check_sink

            check_sink(spec, graph, problems)
        if _reads_lookups(spec, graph):
            from freshline.plan.outside_lookups import check_asked

            check_asked(spec, graph, problems)
        if spec.final is not None:
            from freshline.plan.final import check_final

            check_final(spec, graph, problems)
        if isinstance(spec.query, PythonQuery) and spec.query.process is not None:
            from freshline.plan.process import check_process

            check_process(spec, graph, problems)


def _key_of_queries(graph: Graph, cache: DeclarationCache[bool]) -> str | None:
    """The key of all that decides `_check_queries`; None where that has nothing to do, or asks a foreign strategy."""
    asked = [spec for spec in graph.tables if _promises_of_query(spec) or _reads_lookups(spec, graph)]
    if not asked or any(spec.strategies for spec in asked):
        return None
    parts = [part for spec in graph.tables for part in (spec.merge, spec.sink) if part is not None]
    origins = [origin(type(part)) for part in parts]
    return cache.key(*origins, *(repr(graph.specs[name]) for name in graph.order))


def _promises_of_query(spec: TableSpec) -> bool:
    """Whether `_check_queries` reads the query of a table."""
    has_class = isinstance(spec.query, PythonQuery) and spec.query.process is not None
    is_promise = spec.delta_join is DeltaJoin.FORCE or bool(spec.lookup_attempts) or spec.final is not None
    return is_promise or has_class or spec.sink is not None


def _reads_lookups(spec: TableSpec, graph: Graph) -> bool:
    """Whether a table reads a source that is asked by key."""
    read = (graph.specs.get(name) for name in spec.reads)
    return any(isinstance(each, SourceSpec) and each.is_lookup for each in read)


def _check_ignored(spec: TableSpec, merge: Merge, problems: Problems) -> None:
    """Require that what is stored has all that a new row is compared by: rows that the input lost cannot be read."""
    with problems.of_extensions(spec.written_at):
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
                f"'delta-join.strategy' is 'FORCE', and changes of {' and '.join(map(str, spec.driving))} cannot be "
                f"followed through the query: {refused}. Change the query, or declare AUTO.",
                spec.written_at,
            )
