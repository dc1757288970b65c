"""The demands of a source that is asked by key on the tables that read it: lookup joins on its key, row by row."""

from __future__ import annotations

from freshline.declare.graph import Graph
from freshline.declare.table import is_one_select
from freshline.query.query import read_query
from freshline.query.rules.append import find_branches
from freshline.query.rules.asked_keys import find_key_queries
from freshline.values.location import Location
from freshline.values.lookup import Lookup, OnError
from freshline.values.names import TableName
from freshline.values.query import LookupJoin, SqlQuery
from freshline.values.reason import Reason
from freshline.values.rules import Problems
from freshline.values.spec import SourceSpec, TableSpec


def sources_asked(spec: TableSpec, graph: Graph) -> tuple[SourceSpec, ...]:
    """The sources that a table reads and that are asked by key."""
    found = (graph.specs.get(name) for name in spec.reads)
    return tuple(each for each in found if isinstance(each, SourceSpec) and each.is_lookup)


def check_asked(spec: TableSpec, graph: Graph, problems: Problems) -> None:
    """Refuse a table that reads such a source otherwise than by lookup joins on exactly its key."""
    at, query = spec.written_at, spec.query
    sources = sources_asked(spec, graph)
    if not isinstance(query, SqlQuery):
        for source in sources:
            _refuse(source.name, "a function in Python reads all rows of its inputs", at, problems)
        return
    for source in sources:
        if any(reference.name == source.name and not reference.lookup for reference in query.references):
            _refuse(source.name, "the query reads it otherwise than by FOR SYSTEM_TIME AS OF PROCTIME()", at, problems)
            return
        for join in query.lookup_joins:
            if join.table == source.name and (said := _other_key(join, source) or _loses_rows(join, source)):
                _refuse(source.name, said, at, problems)
    if spec.final is not None:
        _refuse(sources[0].name, "rows of EMIT FINAL are computed of all rows each time", at, problems)
        return
    branches = find_branches(read_query(query))
    if isinstance(branches, Reason):
        said = f"each row of the table comes from one row of the inputs, which this query does not keep: {branches}"
        _refuse(sources[0].name, f"{said}. Look up in a table of its own, and read that here", at, problems)
        return
    if spec.quarantined_lookups and (said := _keeps_no_rows(spec, query)):
        name = spec.quarantined_lookups[0]
        _refuse(name, f"with 'lookup.on-error' = 'quarantine' {said}. Look up in a table of its own", at, problems)
        return
    columns = {name: graph.columns(name) for name in spec.reads}
    if any(known is None for known in columns.values()):
        return  # of a table in Python; its refresh knows them
    schema = {name.view.lower(): known for name, known in columns.items() if known is not None}
    keys = find_key_queries(query, schema, {source.name for source in sources})
    if isinstance(keys, Reason):
        _refuse(sources[0].name, f"the keys that are asked for cannot be found: {keys}", at, problems)


def _other_key(join: LookupJoin, source: SourceSpec) -> str:
    """The reason why a lookup join is not one on exactly the key; empty where it is."""
    named = [column.lower() for column, _ in join.keys]
    if sorted(named) == sorted(name.lower() for name in source.primary_key):
        return ""
    return (
        f"ON of {join.alias} names {', '.join(column for column, _ in join.keys)}, and it is asked by exactly its "
        f"PRIMARY KEY ({', '.join(source.primary_key)}), each column once"
    )


def _loses_rows(join: LookupJoin, source: SourceSpec) -> str:
    """The reason why rows would be gone for good after a failure of the service; empty where none would."""
    lookup = source.connection
    if join.outer or not isinstance(lookup, Lookup) or lookup.lookup_on_error != OnError.NULL:
        return ""
    return (
        f"with 'lookup.on-error' = 'null' the JOIN of {join.alias} would leave out for good what had no answer. Write "
        "LEFT JOIN"
    )


def _keeps_no_rows(spec: TableSpec, query: SqlQuery) -> str:
    """The reason why no rows can wait for an answer; empty where they can."""
    if spec.merge is not None:
        return "a row that comes later would be older than those that were merged meanwhile"
    if spec.partition_values or spec.time_partitions is not None:
        return "partitions cannot be named, because rows come to them later"
    if not is_one_select(query):
        return "the query is one SELECT from one input, of whose rows it is known which have no answer"
    return ""


def _refuse(name: TableName, why: str, at: Location, problems: Problems) -> None:
    problems.add("LOOKUP_ONLY", f"{name} has 'lookup' = 'true' and is asked for rows by their key: {why}.", at)
