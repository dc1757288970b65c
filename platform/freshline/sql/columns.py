"""The columns that a query yields, and whether those that it reads are there.

Spark judges queries; this module judges only what it can be sure of. A column is unknown when every input
that could have it is known and has it not; where anything is unclear (a pivot, a table function, an input whose
columns nobody knows) it is left to Spark. The names of the outermost columns must be known, because keys and
partitions are declared over them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from freshline.sql.query_parser import parse_structure, too_deep
from freshline.sql.tokens import Text
from freshline.values.location import Location
from freshline.values.names import TableName, column_mistake
from freshline.values.query import SqlQuery
from freshline.values.rules import Problems, nearest

# None stands for a column that Spark names itself; a whole None for columns that nobody knows.
Names = tuple[str | None, ...]

# Words that some functions take without quotes, or that stand for a function without parentheses.
_NOT_COLUMNS = frozenset(
    "year quarter month week day dayofyear hour minute second millisecond microsecond all "
    "current_user current_catalog current_database current_schema current_timezone session_user user "
    "localtimestamp current_date current_timestamp now grouping__id spark_grouping_id".split()
)


@dataclass(frozen=True)
class _Input:
    """One input of a FROM; `hidden` inputs are seen by conditions but not by `*` (the right of a semi join)."""

    alias: str
    columns: Names | None
    name: TableName | None = None
    hidden: bool = False

    @property
    def is_given(self) -> bool:
        """Whether the alias is one of freshline's own."""
        return self.alias.lower().startswith("freshline_")

    @property
    def shown(self) -> str:
        """The name of it in messages: an alias that freshline gave is not known to a person."""
        if not self.is_given:
            return self.alias
        return "the query in parentheses" if self.name is None else str(self.name)

    def has(self, column: str) -> bool | None:
        """Whether the column is there; None when that is not known."""
        if self.columns is None:
            return None
        if any(name is not None and name.lower() == column.lower() for name in self.columns):
            return True
        return None if None in self.columns else False


@dataclass
class _Scope:
    """The names that can be used at one place of the query."""

    outer: _Scope | None
    inputs: list[_Input] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    aliases: set[str] = field(default_factory=set)
    # The names of the select list, which ORDER BY and HAVING see first; None when they are not known.
    yields: set[str] | None = field(default_factory=set)

    def input(self, alias: str) -> _Input | None:
        return next((item for item in self.inputs if item.alias.lower() == alias.lower()), None)

    def named(self, name: TableName) -> _Input | None:
        return next((item for item in self.inputs if item.name == name), None)

    @property
    def known_names(self) -> list[str]:
        own = [name for item in self.inputs for name in item.columns or () if name is not None]
        return [*own, *(self.outer.known_names if self.outer else [])]


def output_columns(query: SqlQuery, path: str, inputs: Mapping[TableName, tuple[str, ...] | None]) -> tuple[str, ...]:
    """The names of the query's columns in order.

    `inputs` has the columns of everything that the query reads, None where they are not known. Raises
    DeclarationErrors for columns that are unknown, ambiguous, unnamed, or there twice.
    """
    resolver = _Resolver(Text(query.text, path, query.line, query.moved), inputs)
    try:
        tree = parse_structure(query)
        names = resolver.query(tree, None, {})
    except RecursionError as error:
        raise too_deep(Location(path, query.line)) from error
    found: list[str] = []
    if names is None:
        if not resolver.problems:
            resolver.add(
                "COLUMNS_UNKNOWN",
                "the columns of the query are not known without Spark. Write their names instead of `*`.",
                0,
            )
    else:
        select = _first_select(tree)
        for index, name in enumerate(names):
            offset = resolver.item_offset(select, index)
            if name is None:
                resolver.add(
                    "UNNAMED_COLUMN", f"column {index + 1} of the query has no name. Give it a name with AS.", offset
                )
            elif name.lower() in (other.lower() for other in found):
                resolver.add("DUPLICATE_COLUMN", f"the query yields {name} twice. Rename one with AS.", offset)
            elif (mistake := column_mistake(name)) is not None:
                rule, sentence = mistake
                resolver.add(rule, f"{sentence} Take another with AS.", offset)
            else:
                found.append(name)
    resolver.problems.raise_all()
    return tuple(found)


def unknown_columns(
    expression: exp.Expr, alias: str, name: TableName, columns: tuple[str, ...] | None, also: Iterable[str]
) -> list[str]:
    """Columns of an expression over one input that neither the input nor `also` has."""
    scope = _Scope(None, [_Input(alias, columns, name)], aliases={column.lower() for column in also})
    return [
        _shown(column)
        for column in _own_columns(expression)
        if not isinstance(column.this, exp.Star) and _verdict(column, scope, aliases_first=False) == "unknown"
    ]


def _first_select(tree: exp.Expr) -> exp.Select | None:
    node: exp.Expr | None = tree
    while node is not None and not isinstance(node, exp.Select):
        node = node.this if isinstance(node, (exp.Subquery, exp.SetOperation)) else None
    return node


def _own_columns(expression: exp.Expr) -> Iterator[exp.Column]:
    """The columns of an expression that are not inside a query of their own."""
    for node in expression.walk(prune=lambda node: isinstance(node, exp.Query)):
        if isinstance(node, exp.Column):
            yield node


def _own_queries(expression: exp.Expr) -> Iterator[exp.Query]:
    for node in expression.walk(prune=lambda node: isinstance(node, exp.Query)):
        if isinstance(node, exp.Query):
            yield node


def _shown(column: exp.Column) -> str:
    return ".".join(part.name for part in column.parts)


def _is_lambda_parameter(column: exp.Column) -> bool:
    first = column.parts[0].name.lower()
    node = column.parent
    while node is not None and not isinstance(node, exp.Query):
        if isinstance(node, exp.Lambda) and any(p.name.lower() == first for p in node.expressions):
            return True
        node = node.parent
    return False


def _verdict(column: exp.Column, scope: _Scope, *, aliases_first: bool) -> str:
    """`fine` (or not for us to say), `unknown` or `ambiguous`."""
    if _is_lambda_parameter(column):
        return "fine"
    parts = [part.name for part in column.parts]
    if len(parts) == 1 and parts[0].lower() in _NOT_COLUMNS:
        return "fine"
    star = column.parent
    if len(parts) == 1 and isinstance(star, exp.Star) and isinstance(star.parent, exp.Column) and star.parent.table:
        # A name that `r.* EXCEPT (a)` leaves out is a column of r.
        parts = [star.parent.table, *parts]
    if aliases_first and (scope.yields is None or parts[0].lower() in scope.yields):
        return "fine"
    here: _Scope | None = scope
    while here is not None:
        verdict = _verdict_in(parts, here)
        if verdict is not None:
            return verdict
        if parts[0].lower() in here.aliases:
            return "fine"
        here = here.outer
    # GROUP BY window(..) makes a column of this name.
    return "fine" if parts[0].lower() in ("window", "session_window") else "unknown"


def _verdict_in(parts: Sequence[str], scope: _Scope) -> str | None:
    """The verdict of one scope; None when nothing in it has that name, and an outer one may."""
    if len(parts) > 2:
        # More than a name and a namespace: the front may be `namespace.table`.
        item = _namespaced(parts, scope)
        if item is not None:
            return "unknown" if item.has(parts[2]) is False else "fine"
    if len(parts) > 1:
        item = scope.input(parts[0])
        if item is not None and item.has(parts[1]) is not False:
            return "fine"
        if item is not None and not any(i.has(parts[0]) for i in scope.inputs):
            return "unknown"
    having = [item.has(parts[0]) for item in scope.inputs]
    if having.count(True) > 1 and parts[0].lower() not in (name.lower() for name in scope.merged):
        visible = [item for item in scope.inputs if item.has(parts[0]) and not item.hidden]
        return "ambiguous" if len(visible) > 1 else "fine"
    if True in having or None in having:
        return "fine"
    return None


def _namespaced(parts: Sequence[str], scope: _Scope) -> _Input | None:
    try:
        return scope.named(TableName.parse(f"{parts[0]}.{parts[1]}"))
    except ValueError:
        return None  # quoted names that no table can have: a column of a struct


class _Resolver:
    def __init__(self, text: Text, inputs: Mapping[TableName, tuple[str, ...] | None]) -> None:
        self.text = text
        self.inputs = inputs
        self.problems = Problems()
        self.repeated: set[str] = set()

    def add(self, rule: str, message: str, offset: int) -> None:
        self.problems.add(rule, message, self.text.at(offset))

    def offset(self, node: exp.Expr) -> int:
        starts = [int(i.meta["start"]) for i in node.find_all(exp.Identifier) if "start" in i.meta]
        return min(starts, default=0)

    def item_offset(self, select: exp.Select | None, index: int) -> int:
        items = select.expressions if select is not None else []
        return self.offset(items[index]) if index < len(items) else self.offset(items[-1]) if items else 0

    # -- queries

    def query(self, node: exp.Expr, outer: _Scope | None, common: Mapping[str, Names | None]) -> Names | None:
        common = self._common_tables(node, outer, common)
        if isinstance(node, exp.Subquery):
            inner = node.this
            if isinstance(inner, exp.Query):
                return self.query(inner, outer, common)
            scope = _Scope(outer)
            self._input(inner, scope, common, hidden=False)
            return self._star(scope)
        if isinstance(node, exp.SetOperation):
            left = self.query(node.this, outer, common)
            self.query(node.expression, outer, common)
            return left
        if isinstance(node, exp.Select):
            return self._select(node, outer, common)
        return None

    def _common_tables(
        self, node: exp.Expr, outer: _Scope | None, common: Mapping[str, Names | None]
    ) -> Mapping[str, Names | None]:
        with_ = node.args.get("with_")
        if with_ is None:
            return common
        found = dict(common)
        for table in with_.expressions:
            given = tuple(column.name for column in table.args["alias"].columns) or None
            if with_.args.get("recursive"):
                found[table.alias.lower()] = given
            names = self.query(table.this, outer, found)
            found[table.alias.lower()] = given or names
        return found

    def _select(self, select: exp.Select, outer: _Scope | None, common: Mapping[str, Names | None]) -> Names | None:
        scope = _Scope(outer)
        from_ = select.args.get("from_")
        if from_ is not None:
            self._input(from_.this, scope, common, hidden=False)
        for join in select.args.get("joins") or ():
            self._join(join, scope, common)
        for lateral in select.args.get("laterals") or ():
            self._lateral(lateral, scope, common)
        for item in select.expressions:
            if isinstance(item, exp.Alias):
                scope.aliases.add(item.alias.lower())
            elif isinstance(item, exp.Aliases):
                scope.aliases.update(name.name.lower() for name in item.expressions)
            self._check(item, scope, common)
        for clause in ("where", "group", "distinct", "windows", "connect"):
            self._check_clause(select.args.get(clause), scope, common, aliases_first=False)
        names = self._projection(select, scope)
        scope.yields = None if names is None else {name.lower() for name in names if name is not None}
        for clause in ("having", "qualify", "order", "sort", "cluster", "distribute", "limit"):
            self._check_clause(select.args.get(clause), scope, common, aliases_first=True)
        return names

    def _projection(self, select: exp.Select, scope: _Scope) -> Names | None:
        names: list[str | None] = []
        for item in select.expressions:
            found = self._item(item, scope)
            if found is None:
                return None
            names.extend(found)
        return tuple(names)

    def _item(self, item: exp.Expr, scope: _Scope) -> Names | None:
        if isinstance(item, exp.Star):
            return self._without(self._star(scope), item)
        if isinstance(item, exp.Column) and isinstance(item.this, exp.Star):
            return self._without(self._qualified_star(item, scope), item.this)
        if isinstance(item, exp.Alias):
            return (item.alias,)
        if isinstance(item, exp.Aliases):
            return tuple(name.name for name in item.expressions)
        if isinstance(item, exp.QueryTransform):
            schema = item.args.get("schema")
            return tuple(column.name for column in schema.expressions) if schema is not None else None
        plain = item.unnest()
        if isinstance(plain, exp.Column):
            return (plain.name,)
        if isinstance(plain, exp.Dot) and isinstance(plain.expression, exp.Identifier):
            return (plain.expression.name,)
        if isinstance(plain, exp.Dot) and isinstance(plain.expression, exp.Star):
            return None
        return (None,)

    def _star(self, scope: _Scope) -> Names | None:
        merged = {name.lower() for name in scope.merged}
        names: list[str | None] = list(scope.merged)
        for item in scope.inputs:
            if item.hidden:
                continue
            if item.columns is None:
                self._report_unknown(item)
                return None
            names.extend(name for name in item.columns if name is None or name.lower() not in merged)
        return tuple(names)

    def _qualified_star(self, column: exp.Column, scope: _Scope) -> Names | None:
        parts = [part.name for part in column.parts[:-1]]
        item = scope.input(parts[0]) if len(parts) == 1 else None
        if item is None and len(parts) == 2:
            item = _namespaced(parts, scope)
        if item is None:
            return None
        if item.columns is None:
            self._report_unknown(item)
        return item.columns

    def _report_unknown(self, item: _Input) -> None:
        if item.name is not None:
            self.add(
                "COLUMNS_UNKNOWN",
                f"the columns of {item.name}, which is written in Python, are not known without Spark. Write their "
                "names instead of `*`.",
                0,
            )

    def _without(self, names: Names | None, star: exp.Star) -> Names | None:
        if names is None:
            return None
        dropped = {column.name.lower() for column in star.args.get("except_") or ()}
        return tuple(name for name in names if name is None or name.lower() not in dropped)

    # -- inputs

    def _input(self, node: exp.Expr, scope: _Scope, common: Mapping[str, Names | None], *, hidden: bool) -> None:
        given = node.args.get("alias")
        renamed = tuple(column.name for column in given.columns) if isinstance(given, exp.TableAlias) else ()
        alias = node.alias_or_name
        if isinstance(node, exp.Table):
            columns, name = self._table(node, common)
            if node.args.get("pivots"):
                columns, alias = None, node.args["pivots"][-1].alias or alias
                name = None
            scope.inputs.append(_Input(alias, renamed or columns, name, hidden))
        elif isinstance(node, exp.Subquery):
            columns = self.query(node, scope.outer, common)
            if node.args.get("pivots"):
                columns = None
            if isinstance(node.this, exp.Table) and not node.alias:
                # ( a JOIN b ): the aliases inside are seen outside.
                self._input(node.this, scope, common, hidden=hidden)
                return
            scope.inputs.append(_Input(alias, renamed or columns, None, hidden))
        elif isinstance(node, exp.Lateral):
            self._lateral(node, scope, common)
            return
        elif isinstance(node, exp.Values):
            first = node.expressions[0] if node.expressions else None
            width = len(first.expressions) if isinstance(first, exp.Tuple) else 1
            scope.inputs.append(_Input(alias, renamed or tuple(f"col{i + 1}" for i in range(width)), None, hidden))
        else:
            scope.inputs.append(_Input(alias, renamed or None, None, hidden))
        for join in node.args.get("joins") or ():
            self._join(join, scope, common)
        for lateral in node.args.get("laterals") or ():
            self._lateral(lateral, scope, common)

    def _table(self, table: exp.Table, common: Mapping[str, Names | None]) -> tuple[Names | None, TableName | None]:
        if not isinstance(table.this, exp.Identifier):
            return ("id",) if table.this.name.lower() == "range" else None, None
        if not table.args.get("db") and table.name.lower() in common:
            return common[table.name.lower()], None
        name = TableName(table.db or None, table.name)
        return self.inputs.get(name), name

    def _join(self, join: exp.Join, scope: _Scope, common: Mapping[str, Names | None]) -> None:
        left = list(scope.inputs)
        self._input(join.this, scope, common, hidden=join.kind.upper() in ("SEMI", "ANTI"))
        using = [column.name for column in join.args.get("using") or ()]
        if join.method.upper() == "NATURAL":
            right = scope.inputs[-1]
            known = [name for item in left for name in item.columns or () if name is not None]
            using = [name for name in known if right.has(name)]
        scope.merged.extend(name for name in using if name.lower() not in {m.lower() for m in scope.merged})
        condition = join.args.get("on")
        if condition is not None:
            self._check(condition, scope, common, hidden_too=True)

    def _lateral(self, lateral: exp.Lateral, scope: _Scope, common: Mapping[str, Names | None]) -> None:
        given = lateral.args.get("alias")
        columns: Names | None = None
        if isinstance(given, exp.TableAlias) and given.columns:
            columns = tuple(column.name for column in given.columns)
        if isinstance(lateral.this, exp.Query):
            names = self.query(lateral.this, scope, common)
            columns = columns or names
        else:
            self._check(lateral.this, scope, common)
        scope.inputs.append(_Input(lateral.alias, columns))

    # -- columns

    def _check_clause(
        self, clause: object, scope: _Scope, common: Mapping[str, Names | None], *, aliases_first: bool
    ) -> None:
        for node in clause if isinstance(clause, list) else [clause]:
            if isinstance(node, exp.Expr):
                self._check(node, scope, common, aliases_first=aliases_first)

    def _check(
        self,
        expression: exp.Expr,
        scope: _Scope,
        common: Mapping[str, Names | None],
        *,
        aliases_first: bool = False,
        hidden_too: bool = False,
    ) -> None:
        for column in _own_columns(expression):
            if isinstance(column.this, exp.Star):
                continue
            verdict = _verdict(column, scope, aliases_first=aliases_first)
            if verdict == "unknown":
                self._report_column(column, scope)
            elif verdict == "ambiguous":
                owners = [item.shown for item in scope.inputs if item.has(column.parts[0].name)]
                self.add(
                    "AMBIGUOUS_COLUMN",
                    f"{_shown(column)} is a column of {' and of '.join(owners)}. Write {owners[0]}.{_shown(column)}.",
                    self.offset(column),
                )
        for query in _own_queries(expression):
            self.query(query, scope, common)

    def _report_column(self, column: exp.Column, scope: _Scope) -> None:
        parts = [part.name for part in column.parts]
        item = scope.input(parts[0]) if len(parts) > 1 else None
        if item is not None and item.is_given and item.name is None:
            # The queries around the one that reads a table repeat it.
            if parts[1].lower() in self.repeated:
                return
            self.repeated.add(parts[1].lower())
        if item is not None and item.is_given:
            self.repeated.add(parts[1].lower())
        if item is not None:
            known = [name for name in item.columns or () if name is not None]
            message = f"{item.shown} has no column {parts[1]}.{nearest(parts[1], known)}"
        else:
            inputs = ", ".join(dict.fromkeys(item.shown for item in scope.inputs)) or "nothing"
            near = nearest(parts[0], [*scope.known_names, *(i.alias for i in scope.inputs)])
            message = f"there is no column {_shown(column)} in {inputs}.{near}"
        if not message.endswith("?"):
            message += " Correct the name."
        self.add("UNKNOWN_COLUMN", message, self.offset(column))


def plain_columns(query: SqlQuery, known: Sequence[str]) -> dict[str, str]:
    """The columns of one input that a plain SELECT shows as they are: names of the result to those of the input.

    `known` are the columns of the input. All names are in lower case. There are none where FROM gives the columns other
    names.
    """
    found: dict[str, str] = {}
    tree = parse_structure(query)
    if any(alias.args.get("columns") for alias in tree.find_all(exp.TableAlias)):
        return found
    for item in tree.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        star = inner.this if isinstance(inner, exp.Column) else inner
        if isinstance(star, exp.Star):
            # Of those that it leaves out or replaces, others may have the names.
            if not any(star.args.values()):
                found.update({name.lower(): name.lower() for name in known})
        elif (
            isinstance(inner, exp.Column)
            # Of a struct that is named like its table, `a.a.b` is a field and not the column b.
            and not inner.args.get("db")
            and inner.table.lower() in ("", query.references[0].alias.lower())
        ):
            found[item.alias_or_name.lower()] = inner.name.lower()
    return found
