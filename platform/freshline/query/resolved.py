"""A query over inputs whose columns are known: what its columns are and come from, and the relations it is made of.

In the qualified tree every column stands under the alias of its source, and every alias is used once: parts of a query
are moved into subqueries by the rules, where an alias that is used twice would catch columns that are not its own.

Queries inside the query become relations of their own (stages): common table expressions, derived tables and the sides
of set operations are lifted out. The rest of each query reads relations only: inputs and stages that came before it.
Queries inside expressions stay where they are, because they may read the row that they are computed for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.lineage import Node, lineage
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import build_scope, traverse_scope

from freshline.query.functions import WINDOW_BOUNDS, is_session_key, is_time_window, name_of
from freshline.query.plain_form import check_marks, into_plain_form
from freshline.query.query import Query
from freshline.query.tree import (
    DIALECT,
    NotDerivedError,
    Types,
    aliases_in,
    fragment,
    is_lateral,
    own_nodes,
    rename,
    sources_of,
    sql,
    unsupported,
)
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from freshline.values.spec import TableSpec

ALIAS = "a"
# A name that no input has: theirs begin with a letter.
STAGE = "_stage"
# Trees are large, and a refresh asks for that of one query several times within moments.
KEPT_TREES = 32
ColumnLineage = Mapping[str, tuple[tuple[TableName, str], ...]]
# A wider table's lineage would be the largest part of each of its events.
MOST_COLUMNS = 200


@dataclass(frozen=True)
class ResolvedQuery:
    """A query of Spark SQL over relations whose columns are known.

    `relations` are the inputs by the name that the text has for them, in lower case, with their columns; `types` are
    the types of columns by relation, both in lower case, where they are known.
    """

    text: str
    relations: tuple[tuple[str, tuple[str, ...]], ...]
    types: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()

    @classmethod
    def of(cls, text: str, schema: Mapping[str, Sequence[str]], types: Types | None = None) -> ResolvedQuery:
        """The query over the relations of `schema`, with the types that are known."""
        relations = tuple((name, tuple(columns)) for name, columns in schema.items())
        return cls(text, relations, tuple((name, tuple(known.items())) for name, known in (types or {}).items()))

    @property
    def schema(self) -> Mapping[str, tuple[str, ...]]:
        """The columns of each relation."""
        return dict(self.relations)

    @property
    def known_types(self) -> Types:
        """The types of the columns of relations, where they are known."""
        return {relation: dict(types) for relation, types in self.types}

    @property
    def tree(self) -> exp.Query:
        """The qualified tree; it is shared, and nobody may change it.

        Raises NotDerivedError where the query cannot be understood; Spark may still run it.
        """
        try:
            return _qualified(self.text, self.relations)
        except SqlglotError as error:
            first, _, _ = str(error).partition("\n")
            raise unsupported(f"not understood: {first}") from error

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the query's columns, in order. Raises NotDerivedError."""
        return tuple(self.tree.named_selects)

    @property
    def lineage(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """The columns of relations that each column is computed from. Raises NotDerivedError and sqlglot's errors.

        A column that only decides which rows there are (in WHERE, ON or GROUP BY) is no part of another one's value.
        """
        scope = build_scope(self.tree.copy())
        if scope is None:
            return {}
        schema = self.schema
        nodes = {
            name: lineage(name, scope.expression, {}, scope=scope, dialect=DIALECT, trim_selects=False)
            for name in self.columns
        }
        return {name: tuple(dict.fromkeys(_leaves(node, schema))) for name, node in nodes.items()}


def find_lineage(spec: TableSpec, columns: Mapping[TableName, tuple[str, ...]]) -> ColumnLineage:
    """The columns of inputs behind each column of a table, for people to read; empty where they are not known.

    `columns` are those of the inputs. A table in Python has no such columns.
    """
    query = spec.query
    if not isinstance(query, SqlQuery) or spec.columns is None or len(spec.columns) > MOST_COLUMNS:
        return {}
    names = {name.view.lower(): name for name in query.reads}
    known = {name.view.lower(): columns.get(name, ()) for name in query.reads}
    if not all(known.values()):
        return {}
    try:
        read = ResolvedQuery.of(query.render(), known).lineage
        found = {
            shown: tuple((names[relation], column) for relation, column in leaves)
            for shown, leaves in zip(spec.columns, read.values(), strict=True)
        }
    except (SqlglotError, NotDerivedError, ValueError):
        # A query that is not understood here is run by Spark all the same.
        return {}
    return {shown: leaves for shown, leaves in found.items() if leaves}


def _leaves(node: Node, schema: Mapping[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    found = []
    for each in node.walk():
        table = each.expression
        relation = table.name.lower() if isinstance(table, exp.Table) else ""
        if relation not in schema or each.downstream:
            continue
        name = exp.to_column(each.name, dialect=DIALECT).name.lower()
        found += [(relation, column) for column in schema[relation] if column.lower() == name]
    return found


@lru_cache(maxsize=KEPT_TREES)
def _qualified(text: str, schema: tuple[tuple[str, tuple[str, ...]], ...]) -> exp.Query:
    columns: dict[str, object] = {relation: dict.fromkeys(names, "unknown") for relation, names in schema}
    parsed = Query(text).tree.copy()
    for join in parsed.find_all(exp.Join):
        if str(join.method).upper() == "NATURAL":
            # Which columns it joins by changes with the columns that its inputs have.
            raise unsupported(fragment(join))
    into_plain_form(parsed, columns)
    _write_out_time_windows(parsed)
    _write_out_rows(parsed, columns)
    tree = qualify(parsed, schema=columns, dialect=DIALECT, validate_qualify_columns=True, quote_identifiers=True)
    assert isinstance(tree, exp.Query)
    check_marks(tree)
    _make_unique(tree)
    return tree


def _write_out_rows(tree: exp.Query, schema: dict[str, object]) -> None:
    """Put the columns in place of `struct(t.*)`, and of `t.freshline_row.*` over such a struct.

    MATCH_RECOGNIZE is written out before the columns of its input are known; see `freshline.sql.match_recognize`.
    """
    # A query in the FROM of another one is written out before it.
    for select in reversed(list(tree.find_all(exp.Select))):
        for struct in [node for node in own_nodes(select) if isinstance(node, exp.Struct)]:
            if len(struct.expressions) == 1 and (star := _star_of(struct.expressions[0])) is not None:
                found = _columns_of_source(select, star, schema)
                struct.set("expressions", [_as_named(name, star.args["table"]) for name in found])
        for item in list(select.expressions):
            star = _star_of(item)
            if star is not None and star.args.get("db") is not None:
                row = exp.column(star.args["table"].copy(), star.args["db"].copy())
                index = select.expressions.index(item)
                select.expressions[index : index + 1] = [
                    exp.alias_(
                        exp.Dot(this=row.copy(), expression=exp.to_identifier(name, quoted=True)), name, quoted=True
                    )
                    for name in _columns_of_row(select)
                ]
                select.set("expressions", select.expressions)


def _as_named(name: str, table: exp.Expr) -> exp.Expr:
    """A column as an item of a struct, whose field keeps the letter case of the name, as that of `struct(t.*)` does.

    Spark takes structs whose fields differ in letter case for different types.
    """
    column = exp.Column(this=exp.to_identifier(name, quoted=True), table=table.copy())
    if name == name.lower():
        return column
    field = exp.to_identifier(name, quoted=True)
    # `qualify` writes all other names in lower case.
    field.meta["case_sensitive"] = True
    return exp.Alias(this=column, alias=field)


def _field(struct: exp.Expr, name: str) -> exp.Expr:
    return exp.Dot(this=struct.copy(), expression=exp.to_identifier(name, quoted=True))


def _star_of(node: exp.Expr) -> exp.Column | None:
    return node if isinstance(node, exp.Column) and isinstance(node.this, exp.Star) else None


def _columns_of_source(select: exp.Select, star: exp.Column, schema: dict[str, object]) -> list[str]:
    """The columns that `t.*` stands for, where t is a source of a SELECT. Raises NotDerivedError."""
    left_out = {each.name.lower() for each in star.this.args.get("except_") or ()}
    for source in sources_of(select):
        if source.alias_or_name.lower() != star.table.lower():
            continue
        if isinstance(source, exp.Subquery):
            query = source.this.copy()
            every = _only_star(query)
            if every is not None:
                # Names that a star passes on keep their letter case.
                found = _columns_of_source(query, every, schema)
                return [name for name in found if name.lower() not in left_out]
            _write_out_time_windows(query)
            qualified = qualify(query, schema=schema, dialect=DIALECT, quote_identifiers=True)
            assert isinstance(qualified, exp.Query)
            return [name for name in qualified.named_selects if name.lower() not in left_out]
        known = schema.get(source.name.lower())
        if isinstance(known, dict):
            return [name for name in known if name.lower() not in left_out]
    raise unsupported(fragment(star))


def _only_star(query: exp.Expr) -> exp.Column | None:
    """The star of `SELECT * FROM t`, as a column of t; None for any other query."""
    if not isinstance(query, exp.Select) or [type(item) for item in query.expressions] != [exp.Star]:
        return None
    sources = list(sources_of(query))
    if len(sources) != 1 or query.args.get("laterals"):
        return None
    return exp.Column(this=query.expressions[0].copy(), table=exp.to_identifier(sources[0].alias_or_name))


def _columns_of_row(select: exp.Select) -> list[str]:
    """The fields of the rows that were collected in the FROM of a SELECT. Raises NotDerivedError."""
    for source in sources_of(select):
        for struct in source.find_all(exp.Struct):
            if isinstance(struct.parent, exp.PropertyEQ | exp.Alias) and struct.parent.alias_or_name.lower() == "row":
                return [column.alias_or_name for column in struct.expressions]
    raise unsupported(fragment(select))


def _write_out_time_windows(tree: exp.Query) -> None:
    """Put the call in place of the column `window` that GROUP BY window(..) makes, which no input has.

    Spark takes both for one thing: a query has one such call at most. The same for `session_window`.
    """
    for select in tree.find_all(exp.Select):
        group = select.args.get("group")
        calls = [
            node
            for key in (group.expressions if group else ())
            for node in own_nodes(key)
            if is_time_window(node) or is_session_key(node)
        ]
        if not calls:
            continue
        windows = select.args.get("windows") or ()
        for part in (*select.expressions, select.args.get("having"), select.args.get("qualify"), *windows):
            for column in [node for node in own_nodes(part) if isinstance(node, exp.Column)] if part else ():
                written = _bound_of(calls[0], column)
                if written is not None:
                    shown = exp.alias_(written, column.name, quoted=True) if column.parent is select else written
                    column.replace(shown)


def _bound_of(call: exp.Expr, column: exp.Column) -> exp.Expr | None:
    """The value of `window`, `window.start` or `window.end` beside a call of that; None for other columns."""
    names = [part.name.lower() for part in column.parts]
    called = name_of(call)
    if names == [called]:
        return call.copy()
    if len(names) == 2 and names[0] == called and names[1] in WINDOW_BOUNDS:
        return exp.Dot(this=call.copy(), expression=exp.to_identifier(column.name, quoted=True))
    return None


def _make_unique(tree: exp.Query) -> None:
    # Scopes come with the inner ones first. A column that an inner scope does not know is renamed with the outer
    # scope that does.
    number = 0
    for scope in traverse_scope(tree):
        if not isinstance(scope.expression, exp.Select):
            continue
        new: dict[str, str] = {}
        for source in sources_of(scope.expression):
            if isinstance(source, exp.Table | exp.Subquery | exp.Values) or is_lateral(source):
                new[source.alias_or_name] = f"freshline_{ALIAS}{number}"
                number += 1
        for column in list(scope.columns):
            if column.table in new:
                column.set("table", exp.to_identifier(new[column.table], quoted=True))
        for source in sources_of(scope.expression):
            if source.alias_or_name in new:
                columns = source.args["alias"].args.get("columns") if source.args.get("alias") else None
                alias = exp.to_identifier(new[source.alias_or_name], quoted=True)
                source.set("alias", exp.TableAlias(this=alias, columns=columns))


# -- stages ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lifted:
    """A query without queries in its FROM. `columns` are the names that it yields, in lower case."""

    relation: str
    query: exp.Query
    columns: tuple[str, ...]


@dataclass(frozen=True)
class LiftedQuery:
    """The stages of a query, each behind what it reads, and the query itself as the last one."""

    stages: tuple[Lifted, ...]
    top: Lifted


def lift(tree: exp.Query) -> LiftedQuery:
    """Split a qualified query into stages; raises NotDerivedError for a query that cannot be split."""
    work = _Lift()
    top = work.query(tree.copy(), {})
    return LiftedQuery(tuple(work.stages), Lifted("", top, columns_of(top)))


def columns_of(query: exp.Query) -> tuple[str, ...]:
    """The names that a query yields, in lower case; refused where they do not distinguish its columns."""
    names = tuple(name.lower() for name in query.named_selects)
    width = len(query.selects)
    if len(set(names)) < len(names) or len(names) != width or not all(names):
        raise unsupported(f"columns that share a name, or have none: {', '.join(names)}")
    return names


class _Lift:
    def __init__(self) -> None:
        self.stages: list[Lifted] = []

    def query(self, node: exp.Expr, common: Mapping[str, Lifted]) -> exp.Query:
        """The query with all that stands in its FROM lifted out."""
        if isinstance(node, exp.Subquery):
            if node.args.get("order") or node.args.get("limit") or node.args.get("offset"):
                raise unsupported("LIMIT")
            return self.query(node.this, common)
        if not isinstance(node, exp.Select | exp.SetOperation):
            raise unsupported(fragment(node))
        common = self._with(node, common)
        if isinstance(node, exp.SetOperation):
            return self._sides(node, common)
        for source in sources_of(node):
            self._source(source, common)
        for argument, value in list(node.args.items()):
            if argument in ("from_", "with_"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Join):
                    self._expression(child.args.get("on"), common)
                elif isinstance(child, exp.Expr):
                    self._expression(child, common)
        return node

    def _with(self, node: exp.Expr, common: Mapping[str, Lifted]) -> Mapping[str, Lifted]:
        clause = node.args.get("with_")
        if clause is None:
            return common
        if clause.args.get("recursive"):
            raise NotDerivedError(Reason("RECURSIVE"))
        node.set("with_", None)
        known = dict(common)
        for cte in clause.expressions:
            known[cte.alias.lower()] = self._stage(cte.this, known)
        return known

    def _stage(self, node: exp.Expr, common: Mapping[str, Lifted]) -> Lifted:
        query = self.query(node, common)
        made = Lifted(f"{len(self.stages)}{STAGE}", query, columns_of(query))
        self.stages.append(made)
        return made

    def _sides(self, node: exp.SetOperation, common: Mapping[str, Lifted]) -> exp.Query:
        for side in ("this", "expression"):
            made = self._stage(node.args[side], common)
            names = [exp.column(name, quoted=True) for name in made.columns]
            node.set(side, exp.select(*names).from_(exp.to_table(f"`{made.relation}`", dialect=DIALECT)))
        return node

    def _source(self, source: exp.Expr, common: Mapping[str, Lifted]) -> None:
        if is_lateral(source):
            # It reads the row beside it, as a query inside an expression does.
            self._expression(source.this, common)
            return
        if isinstance(source, exp.Values):
            # Constant rows, alone in a query (see `freshline.query.plain_form`).
            return
        if isinstance(source, exp.Table):
            if source.args.get("sample") or source.args.get("pivots") or source.args.get("joins"):
                raise unsupported(fragment(source))
            if not isinstance(source.this, exp.Identifier):
                # A function that makes rows of its arguments.
                raise unsupported(fragment(source))
            if source.args.get("alias") and source.args["alias"].args.get("columns"):
                raise unsupported(f"columns renamed by the alias {fragment(source)}")
            known = common.get(source.name.lower())
            if known is not None:
                rename(source, known.relation)
                source.set("freshline_done", None)
            return
        if not isinstance(source, exp.Subquery) or source.args.get("sample") or source.args.get("pivots"):
            raise unsupported(fragment(source))
        inner = source.this
        if isinstance(inner, exp.Query):
            self._require_free(inner)
            made = self._stage(inner, common)
            source.replace(
                exp.Table(
                    this=exp.to_identifier(made.relation, quoted=True),
                    alias=exp.TableAlias(this=exp.to_identifier(source.alias, quoted=True)),
                )
            )
            return
        raise unsupported(fragment(source))

    def _require_free(self, query: exp.Query) -> None:
        """Refuse a derived table that reads rows beside it, for it cannot stand by itself."""
        inside = aliases_in(query)
        for column in query.find_all(exp.Column):
            if column.table and column.table not in inside:
                raise unsupported(f"a derived table that reads {sql(column)} of another")

    def _expression(self, node: exp.Expr | None, common: Mapping[str, Lifted]) -> None:
        """Lift what stands in the FROM of queries inside an expression."""
        if node is None:
            return
        found = [node] if isinstance(node, exp.Query) else []
        if not found:
            found = [
                inner
                for inner in node.walk(prune=lambda item: isinstance(item, exp.Query))
                if isinstance(inner, exp.Query)
            ]
        for inner in found:
            body = inner.this if isinstance(inner, exp.Subquery) else inner
            if isinstance(body, exp.SetOperation):
                raise unsupported(f"{fragment(body)} inside an expression")
            self.query(body, common)
