"""Between which times a search for affected keys needs the rows beside the changed ones.

Such a search joins the few changed rows of one relation with all rows of others. Where the join is by an interval of
time, the changed rows say which times can match them. Spark asks that only of rows that it has read, so the bounds are
computed first, and written into the search as literals, by which files are skipped.

More keys than are affected do no harm, so only rows that match a changed row must stay. Those are the rows for which
the comparison is true wherever both are there: one of WHERE, or of a join, as far as that join asks it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from freshline.query.functions import is_aggregate
from freshline.query.rules.time_distance import Comparison, comparisons, laterals_of
from freshline.query.rules.time_range import Lateral, Scale, TimeRange, range_of
from freshline.query.tree import DIALECT, KINDS, TOUCHED, RelationState, conjuncts, sources_of, sql, view_of

# The ends of a side without a bound: no timestamp is further out.
OPEN = 2**63 - 1


@dataclass(frozen=True)
class Bounds:
    """The rows of one relation that a query needs, by a range of one column.

    Of the table with this number among those of the query, only the rows are needed whose `column` lies between
    `least` and `greatest` of one row of the query `asked`, in microseconds since 1970. A row of `asked` with a NULL
    matches none. Whether the column is one of times is not known here: of several bounds of a table any will do.
    """

    table: int
    view: str
    column: str
    asked: str


@lru_cache(maxsize=512)
def find_bounds(query: str) -> tuple[Bounds, ...]:
    """The bounds of the relations in a search for affected keys; none where it says nothing of their times."""
    if view_of(RelationState.CHANGED, "") not in query:
        return ()
    try:
        tree = parse_one(query, dialect=DIALECT)
    except SqlglotError:
        return ()
    numbers = {id(table): number for number, table in enumerate(tree.find_all(exp.Table))}
    found = []
    for select in tree.find_all(exp.Select):
        kinds = [_kind(join) for join in select.args.get("joins") or ()]
        exact = all(kind in ("INNER", "SEMI") for kind in kinds)
        if None in kinds or not (exact or select is tree):
            continue
        if len(kinds) > 1 and any(kind in ("RIGHT", "FULL") for kind in kinds):
            # A row that lost its partner may take that of another one.
            continue
        scopes, laterals = list(_scopes(select)), laterals_of(select)
        for source in sources_of(select):
            if _is_whole(source):
                made = _bounds_of(source.alias_or_name, scopes, laterals)
                found += [Bounds(numbers[id(source)], source.name, *each) for each in made]
    return tuple(found)


def with_conditions(query: str, conditions: Mapping[int, str]) -> str:
    """The query with conditions on the rows that it reads of some of its tables, by their number."""
    tree = parse_one(query, dialect=DIALECT)
    for number, table in enumerate(list(tree.find_all(exp.Table))):
        if number in conditions:
            text = f"SELECT * FROM `{table.name}` WHERE {conditions[number]}"
            alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name, quoted=True))
            table.replace(exp.Subquery(this=parse_one(text, dialect=DIALECT), alias=alias))
    return sql(tree, copy=False)


def _kind(join: exp.Join) -> str | None:
    return KINDS.get(((join.side or "").upper(), (join.kind or "").upper()))


def _is_whole(source: exp.Expr) -> bool:
    whole = (view_of(RelationState.NEW, ""), view_of(RelationState.OLD, ""))
    return isinstance(source, exp.Table) and source.name.startswith(whole)


# -- which conditions say where the rows lie ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Condition:
    """A condition, and the join in whose ON it stands: its kind, its own source, and those before it.

    In WHERE the kind is empty.
    """

    node: exp.Expr
    kind: str = ""
    left: frozenset[str] = frozenset()
    right: str = ""

    def leads(self, *pair: str) -> bool:
        """Whether it is true in every row in which both of two sources are there.

        A join that keeps rows without a partner keeps those of one side whatever its condition says of them.
        """
        if self.kind in ("LEFT", "ANTI"):
            return self.right in pair
        if self.kind == "RIGHT":
            return bool(self.left & {*pair})
        return self.kind != "FULL" or (self.right in pair and bool(self.left & {*pair}))


@dataclass(frozen=True)
class _Scope:
    """A SELECT of which each row that counts has a row: the search itself, or a query of an EXISTS in its WHERE.

    `anchors` are its sources that have changed rows alone and are there in each row that counts, by alias. They are
    read with its own conditions only. `hidden` are the aliases of sources inside it: where a row without a partner is
    searched, the changed rows stand inside an EXISTS under the alias of the source that is empty outside.
    """

    anchors: Mapping[str, exp.Expr]
    conditions: tuple[_Condition, ...]
    hidden: frozenset[str]


def _scopes(select: exp.Select, hidden: frozenset[str] = frozenset()) -> Iterator[_Scope]:
    """The scopes of a SELECT, its own first."""
    parts = _where(select)
    own = [_Condition(part) for part in parts if not isinstance(part, exp.Exists)]
    yield _Scope(_anchors(select), (*own, *_joined(select)), hidden)
    for part in parts:
        if isinstance(part, exp.Exists) and isinstance(part.this, exp.Select):
            yield from _scopes(part.this, hidden | _aliases(part.this))


def _where(select: exp.Select) -> list[exp.Expr]:
    where = select.args.get("where")
    return conjuncts(where.this) if where is not None else []


def _aliases(select: exp.Select) -> frozenset[str]:
    """The aliases of a SELECT's own sources, lateral views included."""
    laterals = (each.args["alias"].name for each in select.args.get("laterals") or () if each.args.get("alias"))
    return frozenset([*(source.alias_or_name for source in sources_of(select)), *laterals])


def _anchors(select: exp.Select) -> dict[str, exp.Expr]:
    joins = {join.this.alias_or_name: _kind(join) for join in select.args.get("joins") or ()}
    marked = {node.table for node in _where(select) if isinstance(node, exp.Column) and node.name == TOUCHED}
    padding = any(kind in ("RIGHT", "FULL") for kind in joins.values())
    found = {}
    for source in sources_of(select):
        tables = list(source.find_all(exp.Table))
        alias = source.alias_or_name
        there = alias in marked or (not padding and joins.get(alias, "INNER") in ("INNER", "SEMI"))
        if there and tables and all(table.name.startswith(view_of(RelationState.CHANGED, "")) for table in tables):
            found[alias] = source
    return found


def _joined(select: exp.Select) -> Iterator[_Condition]:
    start = select.args.get("from_")
    left = frozenset() if start is None else frozenset({start.this.alias_or_name})
    for join in select.args.get("joins") or ():
        right, kind = join.this.alias_or_name, _kind(join)
        if kind is not None:
            for node in conjuncts(join.args.get("on")):
                yield _Condition(node, kind, left, right)
        left |= {right}


def _bounds_of(alias: str, scopes: Sequence[_Scope], laterals: Lateral) -> Iterator[tuple[str, str]]:
    """Columns of one source, each with the query of its bounds; those with two ends before those with one.

    `laterals` are those beside the source.
    """
    ends: dict[tuple[str, int, str], tuple[list[str], list[str]]] = {}
    for number, scope in enumerate(scopes):
        if alias in scope.hidden:
            continue
        for condition in scope.conditions:
            for compared in comparisons(condition.node):
                for column, anchor, side, text in _ends(compared, alias, scope, laterals):
                    if condition.leads(alias, anchor):
                        texts = ends.setdefault((column, number, anchor), ([], []))[side]
                        if text not in texts:
                            texts.append(text)
    for (column, number, anchor), (least, greatest) in sorted(ends.items(), key=lambda item: -sum(map(bool, item[1]))):
        lower = f"greatest({', '.join(least)}, {-OPEN})" if least else str(-OPEN)
        upper = f"least({', '.join(greatest)}, {OPEN})" if greatest else str(OPEN)
        missing = " OR ".join(f"({text}) IS NULL" for text in (*least, *greatest))
        source = sql(scopes[number].anchors[anchor])
        yield column, f"SELECT {lower} AS least, {upper} AS greatest FROM {source} WHERE NOT ({missing})"


def _ends(compared: Comparison, alias: str, scope: _Scope, laterals: Lateral) -> Iterator[tuple[str, str, int, str]]:
    """Column, source of the changed rows, which end (0: the least), and its value in SQL."""
    for own, other, side in ((compared.right, compared.left, 0), (compared.left, compared.right, 1)):
        found = _range(own, scope, laterals)
        if found is None or found.table != alias or (compared.or_null and side == 0):
            continue
        tables = {column.table for column in other.find_all(exp.Column)}
        if len(tables) != 1 or not tables <= scope.anchors.keys() or not _is_plain(other):
            continue
        text = sql(other)
        if isinstance(own.unnest(), exp.Column) or range_of(own) is not None:
            text = _moment(text, own, side)
        text = f"{text} - {found.greatest if side == 0 else found.least}".replace("- -", "+ ")
        if compared.or_null:
            text = f"coalesce({text}, {OPEN})"
        yield found.column, next(iter(tables)), side, text


def _moment(text: str, own: exp.Expr, side: int) -> str:
    """A value that is compared with `own`, in microseconds; its end on one side where it may be a date or a time.

    Spark reads a text as what stands beside it: of a date the time of day is left out.
    """
    moment = f"unix_micros(TRY_CAST({text} AS TIMESTAMP))"
    if _is_timestamp(own):
        return moment
    day = f"unix_micros(CAST(TRY_CAST({text} AS DATE) AS TIMESTAMP))"
    return f"{'least' if side == 0 else 'greatest'}({moment}, {day})"


def _is_timestamp(node: exp.Expr) -> bool:
    """Whether an expression whose column has timestamps is surely no date."""
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub):
        return _is_timestamp(node.this)
    return isinstance(node, exp.Column | exp.TimestampTrunc) or (
        isinstance(node, exp.Cast) and node.is_type("timestamp", "timestamptz", "timestampltz", "timestampntz")
    )


def _range(node: exp.Expr, scope: _Scope, laterals: Lateral) -> TimeRange | None:
    def outside(column: exp.Column) -> exp.Expr | None:
        # A lateral view inside may have the alias of one outside.
        return None if column.table in scope.hidden else laterals(column)

    found = range_of(node, Scale.TIME, outside)
    return range_of(node, Scale.MICROSECONDS, outside) if found is None else found


def _is_plain(node: exp.Expr) -> bool:
    return not any(isinstance(inner, exp.Query | exp.Window) or is_aggregate(inner) for inner in node.walk())
