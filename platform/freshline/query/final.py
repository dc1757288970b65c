"""The queries that EMIT FINAL is for: those of which each window, or each row, can be written alone.

A query over the windows of a function gives the same rows for some windows whether it reads these or all of them, where
every operator keeps windows separate: it groups by a bound, or partitions by one. Then the rows of the windows that
were closed since the last refresh are added, and nothing that was written is read again. The rows of a query without
windows are rows of its inputs, or they are final by their time (`freshline.sql.final_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sqlglot import exp

from freshline.errors import DeclarationError
from freshline.query.functions import is_aggregate, is_unordered
from freshline.query.query import read_query
from freshline.query.select_list import groups_within
from freshline.sql.query_parser import declared_tables, parse_structure
from freshline.sql.tokens import Text
from freshline.sql.volatile import find_volatile
from freshline.sql.window_functions import WINDOWED
from freshline.values.closing import TIMED
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.rules import declaration_error
from freshline.values.spec import TableSpec

# Where all windows of one start have one end, the start identifies a window too.
_BY_START = ("TUMBLE", "HOP")
_END, _TIME, _START = "window_end", "window_time", "window_start"
# The parts of a SELECT that take rows of several windows together, or rows that are not known to stay.
_ACROSS = {
    "with_": "WITH",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "windows": "WINDOW",
}
# Those that give other rows than one, or none, for each row of what is read.
_BESIDE_ROWS = {**_ACROSS, "group": "GROUP BY", "having": "HAVING", "distinct": "DISTINCT"}
_INSTEAD = "Declare a FINAL table for what lies below it, and read that, or leave EMIT FINAL out."


Columns = TableName | tuple[str, ...]
# How the columns begin that freshline reads beside the declared ones.
HIDDEN = "_freshline_"


@dataclass(frozen=True)
class FinalQuery:
    """The times and columns of a query of FINAL rows.

    `times` are the columns of its result, in lower case, up to whose value all rows are there once the watermark is
    behind them; none where it has no windows. `read` are the columns of inputs by which their rows are put into
    windows, each with the table and the place. `alike` are columns that have to be in one order, because `*`
    stands for one of both sides of a UNION ALL: names in lower case, or the input that has them.
    """

    times: frozenset[str] = frozenset()
    read: tuple[tuple[TableName, str, Location], ...] = ()
    alike: tuple[tuple[Columns, Columns, Location], ...] = ()


def written_once_by(spec: TableSpec) -> tuple[str, ...]:
    """The columns of a table with WHEN of whose values one row is written: its key, or what its query groups by.

    Empty where it has neither.
    """
    if spec.primary_key:
        return spec.primary_key
    groups = groups_within(read_query(spec.query)) if isinstance(spec.query, SqlQuery) else None
    return tuple(column for column in spec.columns or () if column.lower() in (groups or ()))


def why_unrepeatable(query: SqlQuery, path: str) -> DeclarationError | None:
    """The error for a query that may give other rows each time; None for one that does not."""
    checker = _Checker(query, path)
    return checker.unrepeatable(parse_structure(query))


def read_final(query: SqlQuery, path: str) -> FinalQuery:
    """The facts of a query of FINAL rows. Raises DeclarationError FINAL_INPUT with the part that stands in the way."""
    return _Checker(query, path).read()


class _Checker:
    def __init__(self, query: SqlQuery, path: str) -> None:
        self.query = query
        self.text = Text(query.text, path, query.line)
        function = query.window_times[0].function if query.window_times else ""
        self.bounds = {name: name for name in (_END, _TIME, *((_START,) if function in _BY_START else ()))}
        self.times: list[tuple[TableName, str, Location]] = []
        self.alike: list[tuple[Columns, Columns, Location]] = []

    def read(self) -> FinalQuery:
        tree = parse_structure(self.query)
        timed, as_of = self.query.timed, self.query.as_of_joins
        if self.query.lookup_joins or (as_of and timed is None):
            raise self._refuse("FOR SYSTEM_TIME AS OF", tree)
        unrepeatable = self.unrepeatable(tree)
        if unrepeatable is not None:
            raise unrepeatable
        for table in declared_tables(tree):
            if not isinstance(table.parent, exp.From) and not as_of:
                raise self._refuse("JOIN", table)
        for select in tree.find_all(exp.Select):
            self._check_place(select)
        if timed is not None:
            self._check_timed(tree, joined=bool(timed.inputs))
            if timed.kind == "matches":
                self._check_input(tree)
                return FinalQuery(read=tuple(self.times), alike=tuple(self.alike))
            places = ((time, self._at_line(time.line)) for time in self.query.window_times)
            read = [(time.table, time.column.lower(), at) for time, at in places if time.table is not None]
            known = ((join, join.versions) for join in as_of)
            read += [(join.table, of.column.lower(), self._at_line(join.line)) for join, of in known if of is not None]
            return FinalQuery(frozenset(timed.times), tuple(dict.fromkeys(read)))
        if not self.query.arrived:
            self._check_rows(tree)
            return FinalQuery()
        bounds = self._bounds_of(tree)
        times = frozenset(name for name, bound in bounds.items() if bound != _START)
        return FinalQuery(times, tuple(self.times), tuple(self.alike))

    def unrepeatable(self, tree: exp.Expr) -> DeclarationError | None:
        volatile = find_volatile(tree)
        if volatile is not None:
            return self._refuse(f"{volatile}, which gives another value each time", tree)
        unordered = next((node for node in tree.walk() if is_unordered(node)), None)
        if unordered is not None:
            return self._refuse(f"{unordered.sql(dialect='spark')}, which follows the order of reading", unordered)
        return None

    def _check_place(self, select: exp.Select) -> None:
        """Require that a SELECT stands in FROM, and is no value or condition."""
        around = select.parent
        while isinstance(around, exp.Subquery | exp.SetOperation):
            around = around.parent
        if around is not None and not isinstance(around, exp.From | exp.Join):
            raise self._refuse("a subquery in an expression", select)

    def _bounds_of(self, node: exp.Expr) -> Mapping[str, str]:
        """The columns of a query, in lower case, that say when its rows are final, each with the bound that it is."""
        while isinstance(node, exp.Subquery) and not _is_windowed(node):
            self._require_no(node, _ACROSS)
            node = node.this
        if isinstance(node, exp.Subquery):
            self._check_input(node)
            return self.bounds
        if not isinstance(node, exp.Select):
            raise self._refuse(node.key.upper(), node)
        self._require_no(node, _ACROSS)
        source = node.args.get("from_")
        if source is None or node.args.get("joins"):
            raise self._refuse("JOIN" if node.args.get("joins") else "a SELECT without FROM", node)
        if not isinstance(source.this, exp.Subquery):
            raise self._refuse(source.this.sql(dialect="spark"), source.this)
        bounds = self._bounds_of(source.this)
        self._check_from(source.this, bounds)
        alias = _alias_of(source.this)
        found = dict(self._named(node, bounds, alias))
        self._check_groups(node, bounds, alias)
        if node.args.get("distinct") is not None and not found:
            raise self._refuse("DISTINCT without a bound of the window", node)
        for window in _own(node, exp.Window):
            by = window.args.get("partition_by") or ()
            if not any(_is_bound(each, bounds, alias) for each in by):
                raise self._refuse(f"{window.sql(dialect='spark')}, which is not partitioned by a bound", window)
        return found

    def _check_from(self, source: exp.Expr, bounds: Mapping[str, str]) -> None:
        """Require that what stands behind FROM has its rows and, of the columns that are bounds, their names."""
        if isinstance(source.this, exp.Subquery):
            self._check_from(source.this, bounds)
        given = source.args.get("alias")
        if bounds and isinstance(given, exp.TableAlias) and given.columns:
            shown = f"AS {given.name} ({', '.join(column.name for column in given.columns)})"
            raise self._refuse(shown, source, "Name the columns in the query itself, or leave EMIT FINAL out.")
        for pivot in source.args.get("pivots") or ():
            names = [each.name.lower() for each in pivot.find_all(exp.Identifier)]
            if not pivot.args.get("unpivot"):
                raise self._refuse("PIVOT, which groups by all other columns", source)
            if any(name in bounds for name in names):
                raise self._refuse("UNPIVOT of a bound of the window", source)

    def _check_groups(self, select: exp.Select, bounds: Mapping[str, str], alias: str) -> None:
        group = select.args.get("group")
        if group is None:
            aggregate = next((each for each in _own(select, exp.Expr) if is_aggregate(each)), None)
            if aggregate is not None or select.args.get("having") is not None:
                raise self._refuse("an aggregate without GROUP BY", aggregate or select)
            return
        if any(group.args.get(part) for part in ("grouping_sets", "cube", "rollup", "all", "totals")):
            raise self._refuse("GROUP BY of several sets or ALL", group)
        items = select.expressions
        aliases = {item.alias.lower(): item.unalias() for item in items if isinstance(item, exp.Alias)}
        for each in group.expressions:
            meant = each
            if isinstance(each, exp.Literal) and each.is_int and int(each.name) <= len(items):
                meant = items[int(each.name) - 1].unalias()
            elif isinstance(each, exp.Column) and not each.table and each.name.lower() not in bounds:
                meant = aliases.get(each.name.lower(), each)
            if _is_bound(meant, bounds, alias):
                return
        raise self._refuse(f"GROUP BY without {' or '.join(sorted(bounds)) or 'a bound of the window'}", group)

    def _named(self, select: exp.Select, bounds: Mapping[str, str], alias: str) -> Iterator[tuple[str, str]]:
        """The bounds that a SELECT hands on, with the names that it gives them."""
        computed = {item.alias.lower() for item in select.expressions if isinstance(item, exp.Alias)}
        for item in select.expressions:
            column = item.unalias()
            star = column.this if isinstance(column, exp.Column) else column
            if isinstance(star, exp.Star):
                if not isinstance(column, exp.Column) or _is_qualified(column, alias):
                    hidden = {*computed, *(each.name.lower() for each in star.args.get("except_") or ())}
                    yield from ((name, bound) for name, bound in bounds.items() if name not in hidden)
            elif _is_bound(column, bounds, alias):
                yield item.alias_or_name.lower(), bounds[column.name.lower()]

    def _check_input(self, windowed: exp.Expr) -> None:
        """Require that the rows of windows are rows of the inputs, and note the columns that put them there."""
        names = {reference.span.start: reference.name for reference in self.query.references}
        column = self.query.window_times[0].column.lower()
        for table in declared_tables(windowed):
            select = table.find_ancestor(exp.Select)
            assert select is not None
            self._require_rows(table, select)
            across = next((each for each in _own(select, exp.Expr) if is_aggregate(each)), None)
            across = across or next(_own(select, exp.Window), None)
            if across is not None:
                raise self._refuse(across.sql(dialect="spark"), across)
            star = next((star for star in _own(select, exp.Star) if not _is_item(star, select)), None)
            if star is not None:
                shown = star.parent if isinstance(star.parent, exp.Column) else star
                instead = "Name the columns in place of it, or leave EMIT FINAL out."
                raise self._refuse(f"{shown.sql(dialect='spark')} inside a call", shown, instead)
            item = self._item_of(select, column, table)
            read = column
            if item is not None:
                named = item.unalias()
                if not isinstance(named, exp.Column) or not _is_of(named, table):
                    raise self._refuse(f"windows by {item.sql(dialect='spark')}, which is no column of a table", item)
                read = named.name.lower()
            self.times.append((names[table.parts[0].meta["start"]], read, self._at(table)))

    def _item_of(self, select: exp.Select, column: str, table: exp.Table) -> exp.Expr | None:
        """The item that is the time; None where `*` has it. In UNION ALL its place identifies it, not its name."""
        first = _first_select(select)
        named = next((each for each in select.expressions if each.alias_or_name.lower() == column), None)
        if first is select:
            return named
        sides = [self._columns_of(each) for each in (first, select)]
        if not any(each.is_star for side in (first, select) for each in side.expressions):
            names = [each.alias_or_name.lower() for each in first.expressions]
            place = names.index(column) if column in names else len(names)
            return select.expressions[place] if place < len(select.expressions) else None
        if None in sides:
            instead = "Name the columns of both sides, or leave EMIT FINAL out."
            raise self._refuse(f"UNION ALL of columns of which it is not known which is {column}", select, instead)
        self.alike.append((sides[0], sides[1], self._at(table)))  # type: ignore[arg-type]
        return named

    def _columns_of(self, select: exp.Select) -> TableName | tuple[str, ...] | None:
        """The columns of a SELECT without what freshline reads beside them; the table of which `*` shows all."""
        names = {reference.span.start: reference.name for reference in self.query.references}
        shown = [each for each in select.expressions if not each.alias_or_name.lower().startswith(HIDDEN)]
        if not any(each.is_star for each in shown):
            return tuple(each.alias_or_name.lower() for each in shown)
        star = shown[0].this if isinstance(shown[0], exp.Column) else shown[0]
        left_out = star.args.get("except_") or ()
        if len(shown) > 1 or any(not each.name.lower().startswith(HIDDEN) for each in left_out):
            return None
        return names[next(select.find_all(exp.Table)).parts[0].meta["start"]]

    def _require_rows(self, table: exp.Table, select: exp.Select) -> None:
        """Require that each row of a query that is put into windows is one row of the one table that it reads."""
        self._check_from(table, {})
        node: exp.Expr | None = select
        while isinstance(node, exp.Query) and not (isinstance(node, exp.Subquery) and node.alias == WINDOWED):
            self._require_no(node, {**_BESIDE_ROWS, "joins": "JOIN", "laterals": "LATERAL VIEW"})
            if isinstance(node, exp.SetOperation) and not isinstance(node, exp.Union):
                raise self._refuse(node.key.upper(), node)
            node = node.parent

    def _check_rows(self, node: exp.Expr) -> None:
        """Require that a query without windows gives a row for each row of its inputs, or none."""
        if isinstance(node, exp.Subquery):
            self._require_no(node, _ACROSS)
            self._check_from(node, {})
            self._check_rows(node.this)
            return
        if isinstance(node, exp.Union) and not node.args.get("distinct"):
            self._require_no(node, _ACROSS)
            self._check_rows(node.this)
            self._check_rows(node.expression)
            return
        self._check_row(node)
        source = node.args["from_"].this
        if isinstance(source, exp.Table):
            self._check_from(source, {})
        else:
            self._check_rows(source)

    def _check_timed(self, node: exp.Expr, *, joined: bool) -> None:
        """Require that a query gives a row, or none, for each row that is final by its time, or is `joined`."""
        while isinstance(node, exp.Subquery):
            self._require_no(node, _ACROSS)
            self._check_from(node, {})
            node = node.this
        if joined and node.args.get("joins"):
            self._check_row(node, joined=True)
            return
        self._check_row(node)
        source = node.args["from_"].this
        if not isinstance(source, exp.Subquery):
            raise self._refuse(source.sql(dialect="spark"), source)
        self._check_from(source, {})
        if source.alias == TIMED and self.query.timed is not None and self.query.timed.kind == "matches":
            return
        if source.alias == TIMED:
            self._check_row(source.this, over=True, joined=bool(self.query.as_of_joins))
        else:
            self._check_timed(source, joined=joined)

    def _check_row(self, node: exp.Expr, *, over: bool = False, joined: bool = False) -> None:
        """Require that a query is a SELECT that gives a row, or none, for each row of its input.

        With `over` it may have OVER, and with `joined` its input is a join.
        """
        if not isinstance(node, exp.Select):
            raise self._refuse(node.key.upper(), node)
        self._require_no(node, _BESIDE_ROWS)
        if (node.args.get("joins") and not joined) or node.args.get("from_") is None:
            raise self._refuse("JOIN" if node.args.get("joins") else "a SELECT without FROM", node)
        across = next((each for each in _own(node, exp.Expr) if is_aggregate(each)), None)
        across = across or (None if over else next(_own(node, exp.Window), None))
        if across is not None:
            raise self._refuse(across.sql(dialect="spark"), across)

    def _require_no(self, node: exp.Expr, parts: dict[str, str]) -> None:
        found = next((word for part, word in parts.items() if node.args.get(part)), None)
        if found is not None:
            raise self._refuse(found, node)

    def _refuse(self, what: str, node: exp.Expr, instead: str = _INSTEAD) -> DeclarationError:
        shown = " ".join(what.split())
        shown = shown if len(shown) <= 80 else f"{shown[:77]}.."
        return declaration_error(
            "FINAL_INPUT",
            f"EMIT FINAL writes each window once, or each row of a log table, and this query has {shown}. {instead}",
            self._at(node),
        )

    def _at_line(self, line: int) -> Location:
        return Location(self.text.path, line)

    def _at(self, node: exp.Expr) -> Location:
        places = (each.meta.get("start") for each in node.find_all(exp.Identifier))
        return self.text.at(min((place for place in places if place is not None), default=0))


def _is_windowed(node: exp.Subquery) -> bool:
    """Whether a query in parentheses is the lowered call of a window function."""
    select = node.this
    source = select.args.get("from_") if isinstance(select, exp.Select) else None
    return source is not None and isinstance(source.this, exp.Subquery) and source.this.alias == WINDOWED


def _alias_of(source: exp.Expr) -> str:
    """The name that qualifies the columns of a source in FROM, in lower case; empty without a name."""
    while isinstance(source, exp.Subquery):
        pivots = source.args.get("pivots") or ()
        alias = str(pivots[-1].alias if pivots else source.alias)
        if alias or pivots:
            return alias.lower()
        source = source.this
    return ""


def _is_bound(node: exp.Expr, bounds: Mapping[str, str], alias: str) -> bool:
    """Whether a value is a bound of the window, and no field of a STRUCT with the name of one."""
    return isinstance(node, exp.Column) and node.name.lower() in bounds and _is_qualified(node, alias)


def _is_qualified(column: exp.Column, alias: str) -> bool:
    """Whether nothing is named before a column but the alias of its source."""
    qualifier = [part.name.lower() for part in column.parts[:-1]]
    return not qualifier or qualifier == [alias]


def _own(select: exp.Select, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The nodes of some kinds in the expressions of a SELECT, without those of queries in its FROM."""
    parts: Iterable[exp.Expr] = (
        *select.expressions,
        *(select.args[part] for part in ("where", "having", "qualify", "group") if select.args.get(part)),
    )
    for part in parts:
        yield from part.find_all(*kinds)


def _is_item(star: exp.Expr, select: exp.Select) -> bool:
    """Whether a `*` is an item of the select list, and not a part of a value."""
    item = star.parent if isinstance(star.parent, exp.Column) else star
    return item.parent is select


def _is_of(column: exp.Column, table: exp.Table) -> bool:
    """Whether a column is one of a table, and no field of a STRUCT: nothing but the table is named before it."""
    qualifier = [part.name.lower() for part in column.parts[:-1]]
    written = [] if table.alias else [part.name.lower() for part in table.parts]
    return not qualifier or qualifier in ([table.alias_or_name.lower()], written)


def _first_select(select: exp.Select) -> exp.Select:
    """The first SELECT of the UNION ALL that a SELECT is in, whose names the result has; itself where it is in none."""
    node: exp.Expr | None = select.parent
    top: exp.Expr = select
    while isinstance(node, exp.SetOperation) or (isinstance(node, exp.Subquery) and not node.alias):
        top, node = (node if isinstance(node, exp.SetOperation) else top), node.parent
    while not isinstance(top, exp.Select):
        top = top.this
    return top
