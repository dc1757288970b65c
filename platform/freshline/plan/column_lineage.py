"""From which columns of its inputs each column of a table is computed.

Read from the query alone, for people to look at: nothing that is refreshed follows from it. A column that only decides
which rows there are (in WHERE, ON or GROUP BY) is no part of another one's value.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.scope import build_scope

from freshline.declare.names import TableName
from freshline.declare.query import SqlQuery
from freshline.declare.spec import TableSpec
from freshline.plan.affected.qualified import qualify_query
from freshline.plan.affected.values import NotDerivedError

ColumnLineage = Mapping[str, tuple[tuple[TableName, str], ...]]
# A wider table's lineage would be the largest part of each of its events.
MOST_COLUMNS = 200


def find_lineage(spec: TableSpec, columns: Mapping[TableName, tuple[str, ...]]) -> ColumnLineage:
    """The columns of inputs behind each column of a table; empty where they cannot be told.

    `columns` are those of the inputs. A table in Python tells nothing.
    """
    query = spec.query
    if not isinstance(query, SqlQuery) or spec.columns is None or len(spec.columns) > MOST_COLUMNS:
        return {}
    names = {name.view.lower(): name for name in query.reads}
    known = {name.view.lower(): columns.get(name, ()) for name in query.reads}
    if not all(known.values()):
        return {}
    spelling = {name: {column.lower(): column for column in columns[name]} for name in query.reads}
    try:
        tree = qualify_query(query.render(), known)
        scope = build_scope(tree)
        if scope is None:
            return {}
        found: dict[str, tuple[tuple[TableName, str], ...]] = {}
        for shown, item in zip(spec.columns, tree.named_selects, strict=True):
            node = lineage(item, tree, {}, scope=scope, dialect="spark", trim_selects=False)
            read = dict.fromkeys(_leaves(node, names, spelling))
            if read:
                found[shown] = tuple(read)
        return found
    except (SqlglotError, NotDerivedError, ValueError):
        # A query that is not understood here is run by Spark all the same.
        return {}


def _leaves(
    node: Node, names: Mapping[str, TableName], spelling: Mapping[TableName, Mapping[str, str]]
) -> list[tuple[TableName, str]]:
    found = []
    for each in node.walk():
        table = each.expression
        name = names.get(table.name.lower()) if isinstance(table, exp.Table) else None
        if name is None or each.downstream:
            continue
        column = exp.to_column(each.name, dialect="spark").name
        if column.lower() in spelling[name]:
            found.append((name, spelling[name][column.lower()]))
    return found
