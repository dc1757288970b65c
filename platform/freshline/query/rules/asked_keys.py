"""The keys that lookup joins ask for: of each join a query that gives them, over the same inputs as the query itself.

The rows that a join is asked for are those of the relations that stand before it. Relations behind it and conditions
stay as far as they name nothing that the join gives, because they leave rows out that nobody has to ask for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.lookups import VERSION
from freshline.query.tree import (
    NotDerivedError,
    all_of,
    conjuncts,
    expression_queries,
    fragment,
    sql,
    unsupported,
)
from freshline.values.names import TableName, quoted
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason


@dataclass(frozen=True)
class KeyQuery:
    """The keys of one lookup join: `text` is SQL with the columns of the dimension's key, in the order of `columns`.

    `reads` are other dimensions whose rows decide the keys, which therefore have to be there first.
    """

    table: TableName
    columns: tuple[str, ...]
    text: str
    reads: frozenset[TableName]


def find_key_queries(
    query: SqlQuery, schema: Mapping[str, tuple[str, ...]], asked: Collection[TableName], *, also: str = ""
) -> tuple[KeyQuery, ...] | Reason:
    """The keys of the joins with these dimensions, in an order in which they can be asked for; pure.

    `schema` has the columns of every input by its view in lower case. `also` is a column of the relation that FROM
    begins with, which the texts give beside the keys.
    """
    versions = {join.alias.lower(): VERSION for join in query.lookup_joins}
    resolved = ResolvedQuery.of(query.render(versions=versions, analysed=True), schema)
    names = {name.view.lower(): name for name in query.lookups}
    try:
        return tuple(found for found in _key_queries(resolved.tree.copy(), names, also) if found.table in asked)
    except NotDerivedError as error:
        return error.reason


def _key_queries(tree: exp.Query, names: Mapping[str, TableName], also: str) -> Iterator[KeyQuery]:
    common = {each.alias for each in tree.find_all(exp.CTE)}
    # Common tables stand before what reads them, and so do their lookups.
    for select in sorted(tree.find_all(exp.Select), key=lambda each: -_depth(each)):
        for inside in expression_queries(select):
            if any(table.name.lower() in names for table in inside.find_all(exp.Table)):
                raise unsupported("a lookup join inside an expression")
        joins = list(select.args.get("joins") or ())
        for place, join in enumerate(joins):
            table = join.this
            if isinstance(table, exp.Table) and table.name.lower() in names and table.name not in common:
                yield _key_query(select, place, names, also)


def _depth(node: exp.Expr) -> int:
    found, parent = 0, node.parent
    while parent is not None:
        found, parent = found + 1, parent.parent
    return found


def _key_query(select: exp.Select, place: int, names: Mapping[str, TableName], also: str) -> KeyQuery:
    joins = list(select.args.get("joins") or ())
    join = joins[place]
    alias = join.this.alias_or_name
    pairs = [_pair(part, alias) for part in conjuncts(join.args.get("on"))]
    left_out = {alias}
    kept = joins[:place]
    for other in joins[place + 1 :]:
        if _is_lookup(other, names) or _named_in(other) & left_out:
            left_out.add(other.this.alias_or_name)
        else:
            kept.append(other)
    found = exp.Select()
    found.set("from_", select.args["from_"].copy())
    found.set("joins", [other.copy() for other in kept])
    laterals = []
    for lateral in select.args.get("laterals") or ():
        if _named_in(lateral) & left_out:
            left_out.add(lateral.alias_or_name)
        else:
            laterals.append(lateral.copy())
    found.set("laterals", laterals)
    where = select.args.get("where")
    if where is not None:
        left = all_of(part.copy() for part in conjuncts(where.this) if not _named_in(part) & left_out)
        found.set("where", None if left is None else exp.Where(this=left))
    items = [exp.alias_(probe.copy(), column, quoted=True) for column, probe in pairs]
    if also:
        start = select.args["from_"].this.alias_or_name
        items.append(exp.alias_(exp.column(also, table=start, quoted=True), also, quoted=True))
    found.set("expressions", items)
    common = _common_before(select)
    if common:
        found.set("with_", exp.With(expressions=[each.copy() for each in common]))
    read = {names[table.name.lower()] for table in found.find_all(exp.Table) if table.name.lower() in names}
    columns = tuple(column for column, _ in pairs)
    return KeyQuery(names[join.this.name.lower()], columns, sql(found, copy=False), frozenset(read))


def _is_lookup(join: exp.Join, names: Mapping[str, TableName]) -> bool:
    return isinstance(join.this, exp.Table) and join.this.name.lower() in names


def _named_in(node: exp.Expr) -> frozenset[str]:
    """The aliases whose columns an expression has."""
    return frozenset(column.table for column in node.find_all(exp.Column))


def _pair(part: exp.Expr, alias: str) -> tuple[str, exp.Expr]:
    """The column of a dimension and the expression that it is equal to."""
    part = part.unnest()
    if isinstance(part, exp.EQ | exp.NullSafeEQ):
        for own, probe in ((part.this, part.expression), (part.expression, part.this)):
            own = own.unnest()
            if isinstance(own, exp.Column) and own.table == alias and alias not in _named_in(probe):
                return own.name, probe
    raise unsupported(fragment(part))


def _common_before(select: exp.Select) -> list[exp.CTE]:
    """The common tables that a query can read, the outermost first."""
    found: list[exp.CTE] = []
    node: exp.Expr | None = select
    inside: exp.Expr | None = None
    while node is not None:
        clause = node.args.get("with_")
        if clause is not None:
            every = list(clause.expressions)
            places = [place for place, each in enumerate(every) if each is inside]
            every = every[: places[0]] if places else every
            found = every + found
        if isinstance(node, exp.CTE):
            inside = node
        node = node.parent
    return found


def asked_keys_text(found: KeyQuery, types: Mapping[str, str], *, also: str = "") -> str:
    """The distinct keys, none of which is NULL, as the types of the source's columns (by their names in lower case).

    `also` is a column that the text of `found` gives beside them.
    """
    columns = ", ".join(
        [
            *(f"try_cast({quoted(column)} AS {types[column.lower()]}) AS {quoted(column)}" for column in found.columns),
            *([quoted(also)] if also else []),
        ]
    )
    present = " AND ".join(f"{quoted(column)} IS NOT NULL" for column in found.columns)
    return f"SELECT DISTINCT * FROM (SELECT {columns} FROM ({found.text})) WHERE {present}"
