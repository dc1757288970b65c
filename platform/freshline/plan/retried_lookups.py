"""The demands of the option `lookup.retry-on-miss.attempts` on a query."""

from __future__ import annotations

from sqlglot import exp

from freshline.declare.graph import Graph
from freshline.query.query import read_query
from freshline.query.rules.append import find_branches
from freshline.sql.query_parser import parse_structure
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from freshline.values.rules import Problems
from freshline.values.spec import TableSpec


def check_retried(spec: TableSpec, graph: Graph, problems: Problems) -> None:
    """Require that each row comes from one row alone: a row whose lookup is retried is added later."""
    branches = find_branches(read_query(spec.sql))
    if isinstance(branches, Reason):
        problems.add(
            "OPTION_NEEDS",
            "option 'lookup.retry-on-miss.attempts' needs a query whose rows come from one row of the input each: "
            f"{branches}. Change the query, or remove the option.",
            spec.written_at,
        )
    named = _asked_of_dimension(spec.sql, graph)
    if named is not None:
        problems.add(
            "OPTION_NEEDS",
            f"option 'lookup.retry-on-miss.attempts' needs a WHERE that names no dimension: {named} is NULL while the "
            "row waits, and WHERE would drop it for ever. Put the condition into a table that reads this one, or "
            "remove the option.",
            spec.written_at,
        )


def _asked_of_dimension(query: SqlQuery, graph: Graph) -> str | None:
    """The first column of a dimension that decides which rows there are; None where none does.

    A column without an alias is one of a dimension that has it, where the input has none of that name.
    """
    tree = parse_structure(query)
    aliases = {join.alias.lower() for join in query.lookup_joins}
    own = {
        column.lower()
        for reference in query.references
        if not reference.lookup
        for column in graph.columns(reference.name) or ()
    }
    theirs = {column.lower() for join in query.lookup_joins for column in graph.columns(join.table) or ()} - own
    for clause in (tree.args.get("where"), *(tree.args.get("laterals") or ())):
        for column in () if clause is None else clause.find_all(exp.Column):
            table = column.table.lower()
            if table in aliases or (not table and column.name.lower() in theirs):
                return str(column.sql(dialect="spark"))
    return None
