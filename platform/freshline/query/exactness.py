"""The values of a query that are the same whenever it is computed, and so can identify rows of a table.

A sum of DOUBLE follows the order in which its rows are added up: computed again from the same rows it may differ in its
last digits. The same is true of whatever is made of such a sum, of a condition on it, and of rows that are there only
because such a condition was true. Values of inputs are exact, because they are read as they are stored; so are
expressions over exact values, and sums of whole numbers and decimals.

Keys of changed rows are computed at another time than the rows that are stored. So they are made of exact values
alone, and of more rows rather than fewer: a condition that is not exact is left out of what they are read from.

Where the type of a column is not known it is taken for DOUBLE. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from freshline.query.functions import AGGREGATES, is_aggregate, name_of
from freshline.query.resolved import KEPT_TREES, Lifted, LiftedQuery, ResolvedQuery, lift
from freshline.query.tree import (
    KINDS,
    NotDerivedError,
    Types,
    all_of,
    conjuncts,
    fragment,
    is_lateral,
    item_expression,
    kind_of,
    own_queries,
    sources_of,
    unsupported,
)
from freshline.values.query import PREDICT_FUNCTION
from freshline.values.reason import Reason

CODE = "INEXACT_KEY"
# Clauses whose conditions must all be true, in the order in which they are computed.
CLAUSES = ("where", "having", "qualify")


class NumberKind(StrEnum):
    """As much of a type as decides whether sums and averages of it follow the order of their rows."""

    WHOLE = "whole"  # or exact, and nothing more is known of it
    DECIMAL = "decimal"
    TEXT = "text"
    OTHER = "other"  # dates, booleans, intervals, and arrays of such
    UNSURE = "unsure"  # FLOAT, DOUBLE, what may contain them, and what is not known


@dataclass(frozen=True)
class Value:
    """The knowledge about an expression; `kind` is None for NULL, which is of any."""

    kind: NumberKind | None
    exact: bool


@dataclass(frozen=True)
class KnownRelation:
    """The knowledge about a relation: its columns, and whether it has the same rows whenever it is computed.

    Columns that are not named are exact where it is `stored`.
    """

    columns: Mapping[str, Value]
    steady: bool
    stored: bool = False


@dataclass(frozen=True)
class _Place:
    """Whether the rows of a SELECT are the same whenever it is computed: before grouping, its groups, behind HAVING."""

    rows: bool
    groups: bool
    shown: bool


EVERYWHERE = _Place(rows=True, groups=True, shown=True)
UNKNOWN = Value(NumberKind.UNSURE, exact=False)

_WHOLE = frozenset("TINYINT SMALLINT INT INTEGER BIGINT BYTE SHORT LONG".split())
_DECIMAL = frozenset("DECIMAL DEC NUMERIC".split())
_TEXT = frozenset("STRING VARCHAR CHAR TEXT".split())
_UNSURE = ("FLOAT", "DOUBLE", "REAL", "STRING", "CHAR", "TEXT", "VARIANT", "UNKNOWN", "NULL", "VOID", "JSON", "OBJECT")
# Aggregates that give the same whatever the order of their rows, if their arguments do. Those that collect are refused
# elsewhere unless what they collect is sorted or counted.
_ORDERLESS = frozenset(
    "any approx_count_distinct approx_distinct array_agg array_unique_agg bit_and bit_or bit_xor bitmap_and_agg "
    "bitmap_construct_agg bitmap_or_agg bitwise_and_agg bitwise_or_agg bitwise_xor_agg bool_and bool_or collect_list "
    "collect_set count count_if every grouping grouping_id logical_and logical_or max median min percentile "
    "percentile_cont percentile_disc some".split()
)
_SUMS = frozenset({"sum", "try_sum"})
_AVERAGES = frozenset({"avg", "mean", "try_avg"})
_RANKS = frozenset({"rank", "dense_rank", "percent_rank", "cume_dist"})
_BEHIND = (exp.IgnoreNulls, exp.RespectNulls, exp.Filter, exp.WithinGroup)
_RETURNS: Mapping[type[exp.Expr], Mapping[str, object]] = Spark.EXPRESSION_METADATA


class Exactness:
    """The knowledge about the relations and expressions of one lifted query.

    Joins of the query that are made by conditions which are not exact lose these: see `written`. Raises NotDerivedError
    for a join that is made by nothing else.
    """

    def __init__(self, lifted: LiftedQuery, types: Types) -> None:
        self.lifted = lifted
        self._types = types
        self._aliases: dict[str, KnownRelation] = {}
        self._places: dict[str, _Place] = {}
        self._written: dict[str, exp.Query] = {}
        # By the first source of a SELECT, and by source, before an outer join pads it.
        self._asked: dict[str, list[exp.Expr]] = {}
        self._unpadded: dict[str, KnownRelation] = {}
        self._relation = lifted.top
        self.rows: dict[str, KnownRelation] = {}
        # The relations of which more rows are read for keys than they have.
        self.loose: set[str] = set()
        for item in (*lifted.stages, lifted.top):
            self._relation = item
            self.rows[item.relation] = self._judge(item)

    def written(self, item: Lifted) -> exp.Query:
        """The query of a relation as it was declared, with every condition of its joins."""
        return self._written.get(item.relation, item.query)

    def asked_by_joins(self, select: exp.Select) -> tuple[exp.Expr, ...]:
        """The conditions with queries inside them, and the queries, that were taken from the joins of a SELECT."""
        sources = sources_of(select)
        return tuple(self._asked.get(sources[0].alias_or_name, ())) if sources else ()

    def within_joins(self) -> Exactness:
        """The same knowledge as the conditions of joins have it: of rows that outer joins have not padded yet."""
        found = copy(self)
        found._aliases = {**self._aliases, **self._unpadded}
        found._places = dict(self._places)
        return found

    def is_exact(self, node: exp.Expr, select: exp.Select) -> bool:
        """Whether an expression of a SELECT gives the same whenever it is computed."""
        return self._value(node, self._place(select)).exact

    def exact_columns(self, query: exp.Query) -> tuple[str, ...]:
        """The columns of a query that are exact, and more than literals, in lower case."""
        if isinstance(query, exp.SetOperation):
            return tuple(name for name, value in self._sides(query).columns.items() if value.exact)
        assert isinstance(query, exp.Select)
        place = self._place(query)
        return tuple(
            item.alias_or_name.lower()
            for item in query.expressions
            if any(True for _ in item.find_all(exp.Column)) and self._value(item_expression(item), place).exact
        )

    def is_steady(self, query: exp.Query) -> bool:
        """Whether a query gives the same rows whenever it is computed."""
        if isinstance(query, exp.SetOperation):
            rows = self._sides(query)
        else:
            assert isinstance(query, exp.Select)
            rows = self._select(query)
        return rows.steady and all(value.exact for value in rows.columns.values())

    def exact_only(self, nodes: Iterable[exp.Expr], select: exp.Select) -> list[exp.Expr]:
        """Those of some expressions that are exact."""
        return [node for node in nodes if self.is_exact(node, select)]

    def wide(self, query: exp.Query) -> exp.Query:
        """A query with all rows that the query may ever have, by its exact columns; itself where it has these only."""
        if isinstance(query, exp.SetOperation):
            compared = isinstance(query, exp.Except | exp.Intersect)
            return query.this if compared and not self._sides(query).steady else query
        assert isinstance(query, exp.Select)
        found = query
        for clause in CLAUSES:
            parts = conjuncts(query.args[clause].this) if query.args.get(clause) else []
            kept = self.exact_only(parts, query)
            if len(kept) < len(parts):
                found = found.copy() if found is query else found
                condition = all_of(kept)
                found.set(clause, None if condition is None else type(query.args[clause])(this=condition))
        return found

    def has_exact_groups(self, select: exp.Select) -> bool:
        """Whether a SELECT has the same rows whenever it is computed, in the same groups."""
        return self._place(select).groups

    def is_exact_throughout(self, item: Lifted, items: Iterable[exp.Expr]) -> bool:
        """Whether a SELECT has the same rows whenever it is computed, before it groups them, and these expressions."""
        assert isinstance(item.query, exp.Select)
        place = self._place(item.query)
        return place.rows and all(self._value(node, place).exact for node in items)

    # -- relations

    def _judge(self, item: Lifted) -> KnownRelation:
        query = item.query
        if isinstance(query, exp.SetOperation):
            found = self._sides(query)
            if not found.steady and isinstance(query, exp.Except | exp.Intersect):
                self.loose.add(item.relation)
            return found
        assert isinstance(query, exp.Select)
        found = self._select(query)
        if self.wide(query) is not query or item.relation in self._written:
            self.loose.add(item.relation)
        return found

    def _sides(self, query: exp.SetOperation) -> KnownRelation:
        sides = [self._select(side) for side in (query.this, query.expression)]
        left, right = (list(side.columns.values()) for side in sides)
        whole = len(left) == len(right)
        steady = whole and all(side.steady for side in sides)
        if query.args.get("distinct") or isinstance(query, exp.Except | exp.Intersect):
            # Rows are compared by all of their columns.
            steady = steady and all(value.exact for value in (*left, *right))
        columns = {}
        for name, one, two in zip(sides[0].columns, left, right, strict=False):
            of_left = isinstance(query, exp.Except | exp.Intersect)
            columns[name] = Value(_common([one.kind, two.kind]), one.exact and (of_left or two.exact))
        return KnownRelation(columns, steady)

    def _select(self, select: exp.Select) -> KnownRelation:
        place = self._place(select)
        columns = {item.alias_or_name.lower(): self._value(item_expression(item), place) for item in select.expressions}
        steady = place.shown and self._all_exact(select, "qualify", place)
        if select.args.get("distinct"):
            steady = steady and all(value.exact for value in columns.values())
        return KnownRelation(columns, steady)

    def _place(self, select: exp.Select) -> _Place:
        """The knowledge about the rows of a SELECT. Aliases are used once, so the first one names it."""
        sources = sources_of(select)
        key = sources[0].alias_or_name if sources else ""
        if key not in self._places:
            steady = self._enter(select) if sources else True
            place = _Place(steady, groups=False, shown=False)
            rows = steady and self._all_exact(select, "where", place)
            group = select.args.get("group")
            keys = all(self._value(item, place).exact for item in (group.iter_expressions() if group else ()))
            place = _Place(rows, groups=rows and keys, shown=False)
            place = replace(place, shown=place.groups and self._all_exact(select, "having", place))
            if not sources:
                return place
            self._places[key] = place
        return self._places[key]

    def _all_exact(self, select: exp.Select, clause: str, place: _Place) -> bool:
        found = select.args.get(clause)
        return found is None or self._value(found.this, place).exact

    def _enter(self, select: exp.Select) -> bool:
        """Note what is known of the sources of a SELECT; whether their rows, joined, are the same each time.

        Values that an outer join gives a row that may have a partner at one time and none at another are not exact.
        """
        start, *_ = sources_of(select)
        seen = [start.alias_or_name]
        self._aliases[seen[0]] = self._relation_of(start)
        steady = self._aliases[seen[0]].steady
        for join in list(select.args.get("joins") or ()):
            if is_lateral(join.this):
                self._take_out(join, select, seen[0])
                steady = False
                continue
            alias, kind = join.this.alias_or_name, kind_of(join)
            other = self._aliases[alias] = self._relation_of(join.this)
            exact = self._join_by_exact(join, seen[0])
            if kind == "ANTI" and not (exact and other.steady):
                # More rows on its right side would leave fewer on its left.
                raise inexact(join)
            if kind in ("LEFT", "FULL") and not (exact and other.steady):
                self._blur([alias])
            if kind in ("RIGHT", "FULL") and not (exact and steady):
                self._blur(seen)
            steady = steady and exact and other.steady
            seen.append(alias)
        for lateral in select.args.get("laterals") or ():
            steady = self._enter_lateral(lateral) and steady
        return steady

    def _take_out(self, join: exp.Join, select: exp.Select, first: str) -> None:
        """Take a JOIN LATERAL from the query: what it gives a row is a value that is not exact."""
        side, kind = str(join.side or "").upper(), str(join.kind or "").upper()
        plain = KINDS.get((side, kind)) in ("INNER", "LEFT") and not join.args.get("using") and not join.method
        item = self._relation
        if not plain or select is not item.query or item.relation or own_queries(join.args.get("on")):
            raise unsupported(fragment(join.this))
        self._keep_written()
        # Its own conditions are asked about later.
        self._value(join.this.this, EVERYWHERE)
        self._asked.setdefault(first, []).append(join.this.this)
        self._aliases[join.this.alias_or_name] = KnownRelation({}, steady=False)
        select.set("joins", [each for each in select.args["joins"] if each is not join])

    def _keep_written(self) -> None:
        item = self._relation
        if item.relation not in self._written:
            self._written[item.relation] = item.query.copy()

    def _enter_lateral(self, lateral: exp.Expr) -> bool:
        """Note what is known of the columns of a LATERAL VIEW; whether it makes the same rows each time."""
        made = self._value(lateral.this, EVERYWHERE)
        named = lateral.args.get("alias")
        if named is None:
            return made.exact
        # Its alias may be used at several places, at all of which it is as exact as at the worst.
        exact = made.exact and (named.name not in self._aliases or self._aliases[named.name].steady)
        column = Value(NumberKind.WHOLE if made.kind is NumberKind.OTHER else NumberKind.UNSURE, exact)
        columns = {each.name.lower(): column for each in named.args.get("columns") or ()}
        before = self._aliases[named.name].columns if named.name in self._aliases else {}
        again = {name: Value(NumberKind.UNSURE, exact) for name in before}
        self._aliases[named.name] = KnownRelation({**columns, **again}, exact)
        return made.exact

    def _relation_of(self, source: exp.Expr) -> KnownRelation:
        known = self.rows.get(source.name)
        if known is not None:
            return known
        types = self._types.get(source.name.lower(), {})
        return KnownRelation(
            {column: Value(kind_of_type(kind), exact=True) for column, kind in types.items()}, True, True
        )

    def _blur(self, aliases: Iterable[str]) -> None:
        for alias in aliases:
            rows = self._aliases[alias]
            self._unpadded.setdefault(alias, rows)
            columns = {name: replace(value, exact=False) for name, value in rows.columns.items()}
            self._aliases[alias] = KnownRelation(columns, rows.steady)

    def _join_by_exact(self, join: exp.Join, first: str) -> bool:
        """Whether all conditions of a join are exact; the others are taken from it.

        So are those that ask queries, which decide whether a row has partners as a value that is not exact does.
        """
        parts = conjuncts(join.args.get("on"))
        asked = [part for part in parts if own_queries(part)]
        kept = [part for part in parts if part not in asked and self._value(part, EVERYWHERE).exact]
        if len(kept) == len(parts):
            return True
        equal = any(isinstance(part, exp.EQ | exp.NullSafeEQ) for part in kept)
        if asked and not (equal and kind_of(join) in ("INNER", "LEFT", "RIGHT")):
            raise unsupported(f"a subquery in {fragment(join)}")
        if not equal or not all(self._value(part, EVERYWHERE).exact for part in asked):
            raise inexact(join)
        self._asked.setdefault(first, []).extend(asked)
        self._keep_written()
        join.set("on", all_of(kept))
        return False

    # -- expressions

    def _value(self, node: exp.Expr, place: _Place) -> Value:
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Query):
            return self._scalar(node)
        if isinstance(node, exp.Window):
            return self._window(node, place)
        children = list(node.iter_expressions())
        parts = [self._value(part, place) for part in children]
        exact = all(part.exact for part in parts)
        if is_aggregate(node):
            kind, orderless = _aggregated(node, parts)
            return Value(kind, exact and orderless and place.groups)
        if name_of(node).startswith(PREDICT_FUNCTION):
            # Another processor may round it in another way.
            return UNKNOWN
        if isinstance(node, exp.Case | exp.If | exp.Nullif):
            chosen = _branches(node)
            given = [part.kind for child, part in zip(children, parts, strict=True) if any(child is b for b in chosen)]
            return Value(_common(given), exact)
        return Value(_kind(node, [part.kind for part in parts]), exact)

    def _column(self, column: exp.Column) -> Value:
        name = column.name.lower()
        rows = self._aliases.get(column.table)
        if rows is not None:
            return rows.columns.get(name) or Value(NumberKind.UNSURE, exact=rows.stored)
        if not column.table:
            select = column.find_ancestor(exp.Select)
            sources = sources_of(select) if select is not None else []
            if len(sources) == 1:
                # A side of a set operation reads a stage by bare names.
                return self._relation_of(sources[0]).columns.get(name, UNKNOWN)
        around = column.find_ancestor(exp.Lambda)
        while around is not None:
            if any(parameter.name.lower() == name for parameter in around.expressions):
                return Value(NumberKind.UNSURE, exact=True)
            around = around.find_ancestor(exp.Lambda)
        return UNKNOWN

    def _scalar(self, node: exp.Query) -> Value:
        """A query inside an expression, by the rows that it has and the columns that it shows."""
        query: exp.Expr = node
        while isinstance(query, exp.Subquery):
            query = query.this
        if not isinstance(query, exp.Select):
            return UNKNOWN
        rows = self._select(query)
        shown = list(rows.columns.values())
        if isinstance(node.parent, exp.Exists):
            return Value(NumberKind.OTHER, rows.steady)
        return Value(shown[0].kind if shown else None, rows.steady and all(value.exact for value in shown))

    def _window(self, node: exp.Window, place: _Place) -> Value:
        called = node.this
        while isinstance(called, _BEHIND):
            called = called.this
        frames = [node]
        if node.args.get("alias") is not None:
            select = node.find_ancestor(exp.Select)
            named = [] if select is None else select.args.get("windows") or []
            frames += [each for each in named if each.name.lower() == node.args["alias"].name.lower()]
            if len(frames) == 1:
                return UNKNOWN
        beside = [
            part for frame in frames for key in ("partition_by", "order") for part in _listed(frame.args.get(key))
        ]
        parts = [self._value(part, place) for part in called.iter_expressions()]
        filters = [self._value(part, place) for part in node.this.iter_expressions() if part is not called]
        exact = place.shown and all(self._value(part, place).exact for part in beside)
        exact = exact and all(part.exact for part in (*parts, *(filters if node.this is not called else ())))
        if name_of(called) in _RANKS:
            return Value(NumberKind.WHOLE if name_of(called) in ("rank", "dense_rank") else NumberKind.UNSURE, exact)
        if not (isinstance(called, exp.AggFunc) or name_of(called) in AGGREGATES):
            # Of rows that are equal in the order, which one is the first or the next is up to chance.
            return Value(NumberKind.UNSURE, exact=False)
        kind, orderless = _aggregated(called, parts)
        by_rows = any(
            str(spec.args.get("kind")).upper() == "ROWS" for frame in frames if (spec := frame.args.get("spec"))
        )
        return Value(kind, exact and orderless and not by_rows)


@lru_cache(maxsize=KEPT_TREES)
def read_exactness(query: ResolvedQuery) -> Exactness:
    """The relations that a query is made of, and what is known of their values; shared, so nobody may change it.

    Raises NotDerivedError.
    """
    return Exactness(lift(query.tree), query.known_types)


def inexact(node: exp.Expr) -> NotDerivedError:
    """The refusal of a key that is made of what is not exact."""
    return NotDerivedError(Reason(CODE, fragment(node)))


@lru_cache(maxsize=4096)
def kind_of_type(text: str) -> NumberKind:
    """The kind of a type as Spark SQL spells it.

    >>> [kind_of_type(text).value for text in ("INT", "DECIMAL(9,2)", "DOUBLE", "ARRAY<BIGINT>", "STRUCT<f: FLOAT>")]
    ['whole', 'decimal', 'unsure', 'other', 'unsure']
    """
    upper = text.upper().strip()
    name = upper.split("(")[0].split("<")[0].strip()
    if name in _WHOLE:
        return NumberKind.WHOLE
    if name in _DECIMAL:
        return NumberKind.DECIMAL
    if name in _TEXT:
        return NumberKind.TEXT
    return NumberKind.UNSURE if any(part in upper for part in _UNSURE) else NumberKind.OTHER


def _kind(node: exp.Expr, kinds: list[NumberKind | None]) -> NumberKind | None:
    """The kind of an expression over parts of these kinds."""
    for nodes, told in _KINDS:
        if isinstance(node, nodes):
            return told(node, kinds)
    returned = _RETURNS.get(type(node), {}).get("returns")
    return NumberKind.UNSURE if returned is None else kind_of_type(str(getattr(returned, "value", returned)))


def _literal(node: exp.Expr, kinds: list[NumberKind | None]) -> NumberKind:
    del kinds
    if isinstance(node, exp.Literal) and node.is_string:
        return NumberKind.TEXT
    text = node.name.lower()
    return NumberKind.UNSURE if "e" in text else NumberKind.DECIMAL if "." in text else NumberKind.WHOLE


def _quotient(node: exp.Expr, kinds: list[NumberKind | None]) -> NumberKind:
    """The kind of a quotient, which is a DOUBLE for whole numbers."""
    del node
    made = _computed(kinds)
    return made if made in (NumberKind.DECIMAL, NumberKind.OTHER) else NumberKind.UNSURE


def _rounded(node: exp.Expr, kinds: list[NumberKind | None]) -> NumberKind | None:
    """The kind of a floor or ceiling: a whole number for a DOUBLE, unless digits behind the point are asked for."""
    del node
    return kinds[0] if len(kinds) > 1 or kinds[0] in (NumberKind.WHOLE, NumberKind.DECIMAL) else NumberKind.WHOLE


def _element(node: exp.Expr, kinds: list[NumberKind | None]) -> NumberKind:
    del node
    return NumberKind.WHOLE if kinds[0] is NumberKind.OTHER else NumberKind.UNSURE


def _collection(node: exp.Expr, kinds: list[NumberKind | None]) -> NumberKind:
    del node
    return (
        NumberKind.OTHER
        if all(kind in (NumberKind.OTHER, NumberKind.WHOLE, None) for kind in kinds)
        else NumberKind.UNSURE
    )


def _aggregated(node: exp.Expr, parts: list[Value]) -> tuple[NumberKind | None, bool]:
    """The kind of an aggregate, and whether it gives the same in whichever order it reads its rows."""
    name = name_of(node)
    kind = _common([part.kind for part in parts[:1]])
    if name in _SUMS:
        return kind, kind in (NumberKind.WHOLE, NumberKind.DECIMAL, NumberKind.OTHER, None)
    if name in _AVERAGES:
        # Of whole numbers too, Spark adds up a DOUBLE.
        exact = kind in (NumberKind.DECIMAL, NumberKind.OTHER, None)
        return kind if exact else NumberKind.UNSURE, exact
    if name in ("count", "count_if"):
        return NumberKind.WHOLE, True
    if name in ("min", "max"):
        return kind, True
    return NumberKind.UNSURE, name in _ORDERLESS


def _listed(value: object) -> list[exp.Expr]:
    found = value if isinstance(value, list) else [value]
    return [item for item in found if isinstance(item, exp.Expr)]


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """The expressions whose value a choice may give."""
    if isinstance(node, exp.Nullif):
        return [node.this]
    if isinstance(node, exp.Case):
        return [*node.args["ifs"], *_listed(node.args.get("default"))]
    return [*_listed(node.args.get("true")), *_listed(node.args.get("false"))]


def _common(kinds: Iterable[NumberKind | None]) -> NumberKind | None:
    """The kind of a value that is one of several."""
    found = {kind for kind in kinds if kind is not None}
    if len(found) < 2:
        return next(iter(found), None)
    return NumberKind.DECIMAL if found == {NumberKind.WHOLE, NumberKind.DECIMAL} else NumberKind.UNSURE


def _computed(kinds: Iterable[NumberKind | None]) -> NumberKind | None:
    """The kind of what is computed with + and its like."""
    found = {kind for kind in kinds if kind is not None}
    if NumberKind.UNSURE in found or NumberKind.TEXT in found:
        return NumberKind.UNSURE
    for kind in (NumberKind.OTHER, NumberKind.DECIMAL):
        if kind in found:
            return kind
    return next(iter(found), None)


_Told = Callable[[exp.Expr, list[NumberKind | None]], NumberKind | None]
_KINDS: tuple[tuple[tuple[type[exp.Expr], ...], _Told], ...] = (
    ((exp.Literal,), _literal),
    ((exp.Null,), lambda node, kinds: None),
    ((exp.Cast,), lambda node, kinds: kind_of_type(node.args["to"].sql(dialect="spark"))),
    ((exp.Add, exp.Sub, exp.Mul, exp.Mod), lambda node, kinds: _computed(kinds)),
    ((exp.Div,), _quotient),
    ((exp.Floor, exp.Ceil), _rounded),
    ((exp.DateDiff,), lambda node, kinds: NumberKind.WHOLE),
    ((exp.Dot, exp.Bracket), _element),
    ((exp.Array, exp.Explode, exp.Posexplode), _collection),
    ((exp.Paren, exp.Alias, exp.Neg, exp.Abs, exp.Filter, exp.Round), lambda node, kinds: kinds[0]),
    ((exp.Coalesce, exp.Greatest, exp.Least, exp.Distinct), lambda node, kinds: _common(kinds)),
    (
        (exp.Boolean, exp.Interval, exp.Predicate, exp.Connector, exp.Not),
        lambda node, kinds: NumberKind.OTHER,
    ),
    ((exp.TimestampTrunc, exp.DateTrunc, exp.DateAdd, exp.DateSub), lambda node, kinds: NumberKind.OTHER),
)
