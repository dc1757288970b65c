"""Partition: the input that decides which partition a row is in, so that only touched partitions are computed again.

Read from the syntax alone. A query that mixes rows of different partitions is refused with the part that does so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp

from freshline.query.functions import is_aggregate
from freshline.query.query import Query, read_query
from freshline.query.tree import (
    NotDerivedError,
    expression_nodes,
    fragment,
    item_expression,
    refuse_arguments,
    refuse_clauses,
    unsupported,
)
from freshline.sql.expression import parse_expression
from freshline.values.names import TableName, quoted
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from freshline.values.spec import TableSpec

# These are functions where they stand without backquotes.
_CALLED_WITHOUT_PARENTHESES = frozenset(
    "current_catalog current_database current_date current_schema current_time current_timestamp current_user "
    "localtimestamp session_user user".split()
)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


@dataclass(frozen=True)
class Origin:
    """The input that decides the partition of a row.

    `expressions` give the partition's values from the input's own columns, in the order of the partition columns.
    """

    input: TableName
    expressions: tuple[str, ...]


@lru_cache(maxsize=2048)
def find_origin(query: Query, partitioned_by: tuple[str, ...]) -> Origin | Reason:
    """The input that decides the partition of a row, or the reason why there is none. Pure."""
    if query.volatile is not None:
        return Reason("NONDETERMINISTIC", query.volatile)
    try:
        tree = query.expanded
        if not partitioned_by:
            raise unsupported("the table has no partitions")
        traced = [_trace(tree, query, column) for column in partitioned_by]
        inputs = {name for name, _ in traced}
        if len(inputs) != 1:
            raise unsupported(f"partition columns from {' and '.join(sorted(map(str, inputs)))}")
        (name,) = inputs
        times = sum(1 for table in tree.find_all(exp.Table) if query.input_of(table) == name)
        if times != 1:
            raise unsupported(f"{name} is read {times} times")
    except NotDerivedError as error:
        return error.reason
    return Origin(name, tuple(expression for _, expression in traced))


def origin_of(spec: TableSpec) -> Origin | None:
    """The input that decides the partitions of a table, None where none does, as for every table in Python."""
    if not isinstance(spec.query, SqlQuery):
        return None
    found = find_origin(read_query(spec.query), spec.partitioned_by)
    return found if isinstance(found, Origin) else None


def trace_to_input(source: exp.Expr, query: Query, column: str) -> tuple[TableName, str]:
    """The input, and the expression over its columns, that a column of a source in FROM is. Raises NotDerivedError."""
    _refuse_other_names(source)
    name = query.input_of(source)
    if name is None:
        return _trace(source, query, column)
    refuse_clauses(source)
    return name, _name_of(exp.column(column))


def column_of(expression: str) -> str:
    """The column that an expression of `trace_to_input` is. Raises NotDerivedError for another one."""
    parsed = parse_expression(expression, several=False).unnest()
    if not isinstance(parsed, exp.Column) or parsed.table:
        raise unsupported(expression)
    return str(parsed.name)


def trace_to_query(node: exp.Expr, query: Query, column: str, inner: exp.Expr) -> str:
    """The column of a query inside of another one that an output column is. Raises NotDerivedError.

    Every operator on the way keeps rows of one value of it separate from rows of another, as in `find_origin`.
    """
    if node is inner:
        return column
    if isinstance(node, exp.Subquery):
        refuse_arguments(node, ("limit", "offset"))
        return trace_to_query(node.this, query, column, inner)
    if not isinstance(node, exp.Select):
        raise unsupported(node.key.upper())
    refuse_arguments(node, ("limit", "offset"))
    expression = _projected(node, column)
    if not isinstance(expression, exp.Column):
        raise unsupported(f"{column} = {fragment(expression)}")
    source = _preserved_source(node, expression, column)
    _require_local(node, expression, column, query)
    return trace_to_query(source, query, expression.name, inner)


def _trace(node: exp.Expr, query: Query, column: str) -> tuple[TableName, str]:
    """The input, and the expression over its columns, that an output column is.

    Every operator on the way keeps rows of one value of it separate from rows of another.
    """
    if isinstance(node, exp.Subquery):
        refuse_arguments(node, ("limit", "offset"))
        return _trace(node.this, query, column)
    if not isinstance(node, exp.Select):
        raise unsupported(node.key.upper())
    refuse_arguments(node, ("limit", "offset"))
    expression = _projected(node, column)
    source = _preserved_source(node, expression, column)
    _require_local(node, expression, column, query)
    if any(isinstance(node, exp.Window | exp.Query | exp.UDTF) or is_aggregate(node) for node in expression.walk()):
        raise unsupported(f"partition column {column} = {fragment(expression)}")
    name = query.input_of(source)
    if name is not None:
        return name, _text_of(query, expression, _name_of)
    used = {found.name for found in expression.find_all(exp.Column)}
    traced = {name: _trace(source, query, name) for name in used}
    origins = {name for name, _ in traced.values()}
    if len(origins) != 1:
        raise unsupported(f"partition column {column} = {fragment(expression)}")
    if isinstance(expression, exp.Column):
        return traced[expression.name]
    return next(iter(origins)), _text_of(query, expression, lambda found: f"({traced[found.name][1]})")


def _text_of(query: Query, expression: exp.Expr, name_of: Callable[[exp.Column], str]) -> str:
    """The expression as it was written: what the parser prints of it may be another one."""
    if isinstance(expression, exp.Column):
        return name_of(expression)
    found = query.written(expression, name_of)
    if found is None:
        raise unsupported(f"{fragment(expression)}: it cannot be taken out of the query")
    return found


def _name_of(column: exp.Column) -> str:
    """The column's name, in backquotes where it needs them: texts of expressions are compared and shown."""
    name = column.name
    plain = (
        _PLAIN.match(name) and name.lower() not in _CALLED_WITHOUT_PARENTHESES and not column.this.args.get("quoted")
    )
    return name if plain else quoted(name)


def _preserved_source(select: exp.Select, expression: exp.Expr, column: str) -> exp.Expr:
    """The one source whose columns the expression reads; refused where a join may put NULLs in their place."""
    sources = _sources(select)
    used = {reference.table.lower() for reference in expression.find_all(exp.Column)}
    if "" in used:
        if len(sources) != 1 or select.args.get("laterals"):
            raise unsupported(f"{fragment(expression)}: qualify it with its table")
        used = set(sources)
    if len(used) != 1:
        raise unsupported(f"partition column {column} = {fragment(expression)}")
    source, preserved = sources.get(next(iter(used)), (None, False))
    if source is None or not preserved:
        raise unsupported(f"partition column {column} from the optional side of a join")
    refuse_clauses(source)
    _refuse_other_names(source)
    return source


def _refuse_other_names(source: exp.Expr) -> None:
    alias = source.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.args.get("columns"):
        raise unsupported(f"{fragment(alias)}: columns with other names")


def _projected(select: exp.Select, column: str) -> exp.Expr:
    for item in select.expressions:
        if item.alias_or_name.lower() == column.lower():
            return item_expression(item)
    if any(isinstance(item, exp.Star) or item.is_star for item in select.expressions):
        return exp.column(column)
    raise unsupported(f"partition column {column} is not in the select list")


def _sources(select: exp.Select) -> dict[str, tuple[exp.Expr, bool]]:
    """Every source of the FROM by alias, with whether all its rows' columns survive the joins as they are."""
    start = select.args.get("from_")
    if start is None:
        raise unsupported("SELECT without FROM")
    found: dict[str, tuple[exp.Expr, bool]] = {start.this.alias_or_name.lower(): (start.this, True)}
    for join in select.args.get("joins") or ():
        side, kind = (join.side or "").upper(), (join.kind or "").upper()
        if kind in ("SEMI", "ANTI"):
            continue
        if side in ("RIGHT", "FULL"):
            found = {alias: (source, False) for alias, (source, _) in found.items()}
        found[join.this.alias_or_name.lower()] = (join.this, side in ("", "RIGHT"))
    return found


def _require_local(select: exp.Select, expression: exp.Expr, column: str, query: Query) -> None:
    """Refuse operators that mix rows of different values of the partition column."""
    group = select.args.get("group")
    aggregated = any(is_aggregate(node) for node in expression_nodes(select))
    if group is not None:
        if any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup", "all", "totals")):
            raise unsupported(fragment(group))
        keys = []
        for key in group.expressions:
            if isinstance(key, exp.Literal) and key.is_int:
                keys.append(item_expression(select.expressions[int(key.name) - 1]))
            else:
                keys.append(key)
        same_alias = any(isinstance(key, exp.Column) and key.name.lower() == column.lower() for key in keys)
        if not same_alias and not any(query.is_same(key, expression) for key in keys):
            raise unsupported(f"{fragment(group)} without {column}")
    elif aggregated:
        raise unsupported("an aggregate over all rows")
    for node in expression_nodes(select):
        if isinstance(node, exp.Window):
            keys = node.args.get("partition_by") or []
            if not any(query.is_same(key, expression) for key in keys):
                raise NotDerivedError(Reason("WINDOW_WITHOUT_PARTITION", fragment(node)))
