"""Aggregates that follow from their old values and the changed rows.

A query of filters, expressions, inner joins and UNION ALL is linear: its changed rows, each with a sign, follow from
the signed rows of its inputs (for a join: dA with B as it was, A as it is with dB). A sum or a count over such rows is
the old one plus the signed sum of the changed rows; a least or greatest value is the old one unless it went away. So a
group needs its stored row and its changed rows, and no other row of its inputs.

The time of temporal filters stands behind the inputs of a join. Their changed rows pass the filters as of before. Of
all rows as they are now, those count that the filters let through at one of the two instants and not at the other.

Source of the rule: Gupta, Mumick, Subrahmanian, "Maintaining Views Incrementally" (SIGMOD 1993), counting algorithm.
Cases that the stored row does not surely decide (whether a group whose rows went away is empty now, a least value that
was deleted) are separated when it runs, and computed again from the inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from sqlglot import exp

from freshline.query.clock import ClockSpan, clock_as, reads_clock
from freshline.query.exactness import read_exactness
from freshline.query.functions import GENERATORS, is_aggregate, is_session_key, name_of
from freshline.query.resolved import Lifted, ResolvedQuery
from freshline.query.tree import (
    DIALECT,
    NotDerivedError,
    RelationState,
    Types,
    all_of,
    conjuncts,
    item_expression,
    items_by_name,
    own_nodes,
    read_as,
    relations_in,
    rename,
    same,
    sources_of,
    sql,
    view_of,
)
from freshline.values.clock import CLOCK

SIGN = "_freshline_sign"
# These parts turn rows of a query into others than those of its filters, expressions and joins.
NOT_LINEAR = ("group", "having", "distinct", "qualify", "windows", "limit", "offset", "connect", "match", "pivots")
# The order of rows in a subquery or in a table means nothing.
ORDERS = ("order", "sort", "cluster", "distribute")
# These parts make another aggregate of the one that they stand beside, or read other rows.
NOT_COMPUTED = (exp.Query, exp.Window, exp.Lambda, exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)


class AggregateKind(StrEnum):
    """The aggregates that are kept up by changed rows."""

    COUNT_ROWS = "count(*)"
    COUNT = "count"
    SUM = "sum"
    AVERAGE = "avg"
    LEAST = "min"
    GREATEST = "max"


KINDS: Mapping[type[exp.Expr], AggregateKind] = {
    exp.Count: AggregateKind.COUNT,
    exp.Sum: AggregateKind.SUM,
    exp.Avg: AggregateKind.AVERAGE,
    exp.Min: AggregateKind.LEAST,
    exp.Max: AggregateKind.GREATEST,
}


@dataclass(frozen=True)
class ResultAggregate:
    """One aggregate of the result: its column in lower case, and the number of its argument (None for COUNT_ROWS)."""

    column: str
    kind: AggregateKind
    argument: int | None


@dataclass(frozen=True)
class Computed:
    """A column of the result, in lower case, that is computed from others: its SQL over the names of these."""

    column: str
    text: str


@dataclass(frozen=True)
class SignedStage:
    """A query inside the query: its rows as they are and were, and the queries that give its signed changed rows."""

    relation: str
    new: str
    old: str | None
    signed: tuple[str, ...]

    def at(self, clock: ClockSpan) -> SignedStage:
        """The stage for two instants."""
        old = None if self.old is None else clock.fill(self.old)
        return replace(self, new=clock.fill(self.new), old=old, signed=tuple(map(clock.fill, self.signed)))


@dataclass(frozen=True)
class Algebra:
    """The way in which a grouped result follows from its old rows and signed changed rows.

    `keys` are the columns of the result that identify its groups, none where all rows are one group, which is always
    there. Each of `terms` gives signed rows: k0, k1 .. (the values of `keys`), a0, a1 .. (arguments) and SIGN (1 or
    -1). `origins` says of each argument which column of which
    input it is, None where it is something else or may be padded with NULL. Views of `stages` are made first, in order.
    `computed` are columns that follow from the new values of the others, such as a quotient of two sums.
    """

    keys: tuple[str, ...]
    aggregates: tuple[ResultAggregate, ...]
    origins: tuple[tuple[str, str] | None, ...]
    stages: tuple[SignedStage, ...]
    terms: tuple[str, ...]
    computed: tuple[Computed, ...] = ()

    def of_kind(self, kind: AggregateKind, argument: int | None = None) -> ResultAggregate | None:
        """The first aggregate of a kind over an argument."""
        return next((one for one in self.aggregates if (one.kind, one.argument) == (kind, argument)), None)

    def at(self, clock: ClockSpan) -> Algebra:
        """The same for two instants, of a query with temporal filters."""
        stages = tuple(stage.at(clock) for stage in self.stages)
        return replace(self, stages=stages, terms=tuple(map(clock.fill, self.terms)))


@lru_cache(maxsize=1024)
def find_algebra(query: ResolvedQuery, changed: frozenset[str]) -> Algebra | None:
    """The way from changed rows to the result, None where there is none; `changed` as for `find_affected`. Pure."""
    try:
        exactness = read_exactness(query)
    except NotDerivedError:
        return None
    lifted = exactness.lifted
    touched = frozenset(name.lower() for name in changed)
    stages = []
    for item in lifted.stages:
        stage = _stage(item, touched)
        if stage is None:
            return None
        stages.append(stage)
        if stage.old is not None:
            touched |= {item.relation}
    top = lifted.top.query
    if not isinstance(top, exp.Select) or not _reads_linearly(top, touched):
        return None
    keys = _keys(top)
    if keys is None:
        return None
    arguments: list[exp.Expr] = []
    found = {
        name: _aggregate(name, without_cast(item, top, query.known_types), arguments)
        for name, item in items_by_name(top).items()
        if name not in keys
    }
    aggregates = [one for one in found.values() if one is not None]
    computed = _all_computed(top, frozenset(name for name, one in found.items() if one is None))
    if (
        computed is None
        or not aggregates
        or not exactness.is_exact_throughout(lifted.top, (*keys.values(), *arguments))
    ):
        # Groups that show nothing but their key are computed again; and a row that goes away must take away what it
        # brought: the same values, from the same group.
        return None
    items = [
        *(exp.alias_(key.copy(), f"k{number}", quoted=True) for number, key in enumerate(keys.values())),
        *(exp.alias_(argument.copy(), f"a{number}", quoted=True) for number, argument in enumerate(arguments)),
    ]
    terms = tuple(_terms(top, items, touched))
    if not terms:
        # Only an expression of WITH that nothing reads sees the change: that there are no keys says it all.
        return None
    return Algebra(
        tuple(keys),
        tuple(aggregates),
        tuple(_origin(argument, top, query.schema) for argument in arguments),
        tuple(stages),
        terms,
        computed,
    )


def _stage(item: Lifted, changed: frozenset[str]) -> SignedStage | None:
    """The stage with its signed rows; None where it changed and is not linear."""
    query = item.query
    new = sql(read_as(query, RelationState.NEW, changed), copy=False)
    if not relations_in(query) & changed:
        return SignedStage(item.relation, new, None, ())
    old = sql(read_as(query, RelationState.OLD, changed), copy=False)
    if isinstance(query, exp.Union) and not query.args.get("distinct") and not query.args.get("by_name"):
        signed = []
        for side in (query.this, query.expression):
            source = side.args["from_"].this.name
            if source in changed:
                columns = ", ".join(f"`{column.name}`" for column in side.expressions)
                signed.append(f"SELECT {columns}, `{SIGN}` FROM `{view_of(RelationState.SIGNED, source)}`")
        return SignedStage(item.relation, new, old, tuple(signed))
    if not isinstance(query, exp.Select) or not _is_linear(query, changed):
        return None
    return SignedStage(item.relation, new, old, tuple(_terms(query, query.expressions, changed)))


def _is_linear(query: exp.Select, changed: frozenset[str]) -> bool:
    """Whether the signed rows of a query are those of its sources, filtered and computed one by one."""
    aggregated = any(is_aggregate(node) for part in query.expressions for node in own_nodes(part))
    return not aggregated and not any(query.args.get(name) for name in NOT_LINEAR) and _reads_linearly(query, changed)


def _reads_linearly(query: exp.Select, changed: frozenset[str]) -> bool:
    """Whether the FROM and WHERE of a query are linear in the sources that changed."""
    sources = sources_of(query)
    if not all(isinstance(source, exp.Table) for source in sources):
        return False
    inside = {id(source) for source in sources}
    if any(table.name in changed for table in query.find_all(exp.Table) if id(table) not in inside):
        # A condition reads all rows of something that changed.
        return False
    if any(isinstance(node, exp.Window) for node in query.walk()):
        return False
    for join in query.args.get("joins") or ():
        side, kind = str(join.side).upper(), str(join.kind).upper()
        if join.args.get("using") or join.method:
            return False
        if (side, kind) in (("", ""), ("", "INNER"), ("", "CROSS")):
            continue
        keeps_left = (side in ("LEFT", "") and kind in ("", "OUTER", "SEMI", "ANTI")) and (side or kind)
        if not keeps_left or join.this.name in changed:
            return False
    return True


def _terms(query: exp.Select, items: Sequence[exp.Expr], changed: frozenset[str]) -> list[str]:
    """One query for each source that changed: sources before it as they are, those behind it as they were."""
    terms = []
    sources = sources_of(query)
    for number, source in enumerate(sources):
        if source.name not in changed:
            continue
        term = query.copy()
        for place, other in enumerate(sources_of(term)):
            assert isinstance(other, exp.Table)
            reading = RelationState.NEW
            if other.name in changed and place >= number:
                reading = RelationState.SIGNED if place == number else RelationState.OLD
            rename(other, view_of(reading, other.name))
        sign = exp.alias_(exp.column(SIGN, table=source.alias_or_name, quoted=True), SIGN, quoted=True)
        if CLOCK in changed:
            clock_as(term, RelationState.OLD)
        terms.append(_term(term, items, sign, changed))
    timed = [part for part in conjuncts(_condition(query)) if CLOCK in changed and reads_clock(part)]
    if timed:
        terms.append(_term_of_time(query, items, timed, changed))
    return terms


def _term(term: exp.Select, items: Sequence[exp.Expr], sign: exp.Expr, changed: frozenset[str]) -> str:
    term.set("expressions", [*(item.copy() for item in items), sign])
    for argument in (*ORDERS, "group"):
        term.set(argument, None)
    return sql(read_as(term, RelationState.NEW, changed), copy=False)


def _condition(query: exp.Select) -> exp.Expr | None:
    where = query.args.get("where")
    return None if where is None else where.this


def _term_of_time(
    query: exp.Select, items: Sequence[exp.Expr], timed: Sequence[exp.Expr], changed: frozenset[str]
) -> str:
    """The rows that temporal filters let through now and not before (1), or the reverse (-1)."""
    new, old = (all_of(read_as(part, at, changed) for part in timed) for at in (RelationState.NEW, RelationState.OLD))
    assert new is not None
    assert old is not None
    others = [part for part in conjuncts(_condition(query)) if not any(part is each for each in timed)]
    # Comparisons with literals, by which scans skip files.
    either = [exp.or_(*(read_as(part, at, changed) for at in (RelationState.NEW, RelationState.OLD))) for part in timed]
    if len(timed) > 1:
        # One filter may let a row through at the one instant only, and another filter at the other only: such a row was
        # never there.
        either.append(exp.or_(new.copy(), old.copy()))
    crossing = exp.Not(this=exp.paren(exp.and_(new.copy(), old)))
    term = query.copy()
    term.set("where", exp.Where(this=all_of([*either, crossing, *others])))
    came = exp.Case(ifs=[exp.If(this=new, true=exp.Literal.number(1))], default=exp.Literal.number(-1))
    return _term(term, items, exp.alias_(came, SIGN, quoted=True), changed)


def _keys(query: exp.Select) -> Mapping[str, exp.Expr] | None:
    """The items of the select list that are no aggregates, by name; None where they do not identify the groups.

    Without GROUP BY all rows are one group, and nothing but aggregates is served.
    """
    group = query.args.get("group")
    if any(query.args.get(name) for name in NOT_LINEAR if name != "group"):
        return None
    items = (node for item in query.expressions for node in item.walk())
    if any(isinstance(node, exp.UDTF) or name_of(node) in GENERATORS for node in items):
        # Several rows of one group, which may be equal.
        return None
    if group is None:
        alone = all(any(is_aggregate(node) for node in own_nodes(item)) for item in query.expressions)
        return {} if alone else None
    if any(group.args.get(name) for name in ("all", "totals", "grouping_sets", "cube", "rollup")):
        return None
    if any(is_session_key(key) for key in group.expressions):
        # A row joins two groups, or parts one.
        return None
    keys = {
        item.alias_or_name.lower(): item_expression(item)
        for item in query.expressions
        if not any(is_aggregate(node) for node in own_nodes(item))
    }
    shown = all(any(same(item, key) for item in keys.values()) for key in group.expressions)
    return keys if keys and shown and _without_queries(keys.values()) else None


def _without_queries(items: Iterable[exp.Expr]) -> bool:
    return not any(isinstance(node, exp.Query) for item in items for node in item.walk())


def _aggregate(name: str, item: exp.Expr, arguments: list[exp.Expr]) -> ResultAggregate | None:
    kind = KINDS.get(type(item))
    if kind is None or item.args.get("expressions"):
        return None
    argument = item.this
    if argument is None:
        # Spark refuses `count()`, which sqlglot reads.
        return None
    if kind is AggregateKind.COUNT and isinstance(argument, exp.Star | exp.Literal):
        return ResultAggregate(name, AggregateKind.COUNT_ROWS, None)
    if isinstance(argument, exp.Distinct | exp.Star) or not _without_queries([argument]):
        return None
    if any(is_aggregate(node) for node in own_nodes(argument)):
        return None
    for number, known in enumerate(arguments):
        if same(known, argument):
            return ResultAggregate(name, kind, number)
    arguments.append(argument)
    return ResultAggregate(name, kind, len(arguments) - 1)


def without_cast(item: exp.Expr, query: exp.Select, types: Types) -> exp.Expr:
    """The aggregate in a CAST to the type that it has anyway; else the item itself.

    `types` are those of columns by relation, in lower case. Where one is not known, it may be another one.
    """
    if not isinstance(item, exp.Cast) or not isinstance(item.this, exp.Count | exp.Sum | exp.Min | exp.Max):
        return item
    inner, wanted = item.this, item.to.sql(dialect=DIALECT).upper().replace(" ", "")
    if isinstance(inner, exp.Count):
        return inner if wanted == "BIGINT" else item
    argument = inner.this
    if not isinstance(argument, exp.Column):
        return item
    relations = [source.name.lower() for source in sources_of(query) if source.alias_or_name == argument.table]
    known = [types.get(relation, {}).get(argument.name.lower(), "") for relation in relations]
    kind = known[0].upper().replace(" ", "") if known else ""
    if "CHAR" in kind:
        return item
    return inner if kind and wanted == (_sum_of(kind) if isinstance(inner, exp.Sum) else kind) else item


def _sum_of(kind: str) -> str:
    """The type of a sum of values of a type, as Spark adds them up; empty where that is not known."""
    if kind in ("TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT"):
        return "BIGINT"
    decimal = re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind)
    return "" if decimal is None else f"DECIMAL({min(38, int(decimal[1]) + 10)},{decimal[2]})"


def _all_computed(query: exp.Select, others: frozenset[str]) -> tuple[Computed, ...] | None:
    """The columns `others` of a query as computed from the rest; None where one of them is not."""
    items = items_by_name(query)
    shown = {name: item for name, item in items.items() if name not in others}
    found = [_computed(name, item, shown) for name, item in items.items() if name in others]
    computed = tuple(one for one in found if one is not None)
    return computed if len(computed) == len(found) else None


def _computed(name: str, item: exp.Expr, shown: Mapping[str, exp.Expr]) -> Computed | None:
    """The column as computed from those that are shown; None where it needs something that is not."""
    if any(isinstance(node, NOT_COMPUTED) for node in item.walk()) or reads_clock(item):
        return None
    made = exp.Paren(this=item.copy())
    for node in list(made.walk(prune=lambda node: _shown_as(node, shown) is not None or _is_of_rows(node))):
        known = _shown_as(node, shown)
        if known is not None:
            node.replace(exp.column(known, quoted=True))
        elif _is_of_rows(node):
            return None
    return Computed(name, sql(made, copy=False))


def _shown_as(node: exp.Expr, shown: Mapping[str, exp.Expr]) -> str | None:
    """The column of the result that is this expression over rows."""
    if not any(_is_of_rows(part) for part in node.walk()):
        return None
    return next((column for column, each in shown.items() if same(each, node)), None)


def _is_of_rows(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) or is_aggregate(node)


def _origin(argument: exp.Expr, query: exp.Select, schema: Mapping[str, Sequence[str]]) -> tuple[str, str] | None:
    """The input and its column that an argument is, where no join pads it with NULL."""
    if not isinstance(argument, exp.Column):
        return None
    padded = {join.this.alias_or_name for join in query.args.get("joins") or () if join.side}
    for source in sources_of(query):
        if source.alias_or_name == argument.table and argument.table not in padded and source.name in schema:
            return source.name, argument.name.lower()
    return None
