"""Reading and copying syntax trees of Spark SQL, and the views that they are copied to read.

Every input, and every query inside the query (a stage), is a relation that can be read in four ways: as it is at the
new positions, as it was at the old ones, and as the rows that were added or taken away between them. The SQL of the
rules names them by `view_of`; whoever runs it provides these views.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.generators.spark import SparkGenerator

from freshline.query.clock import as_written, clock_as, reads_clock
from freshline.query.functions import is_aggregate
from freshline.sql.placeholders import in_own_words
from freshline.values.clock import CLOCK
from freshline.values.query import PREDICT_CALL
from freshline.values.reason import Reason

# By relation and column, in lower case: the type as Spark SQL spells it.
Types = Mapping[str, Mapping[str, str]]


class RelationState(StrEnum):
    """The state in which a relation is read."""

    NEW = "new"
    OLD = "old"
    CHANGED = "changed"  # every row that was added or taken away, and perhaps others
    SIGNED = "signed"  # every row that was added (sign 1) or taken away (-1), as often as it was


def view_of(reading: RelationState, relation: str) -> str:
    """The name of the view that has a relation in one reading.

    >>> view_of(RelationState.OLD, "orders")
    'freshline_old_orders'
    """
    return f"freshline_{reading.value}_{relation}"


def is_view(name: str) -> bool:
    """Whether a relation's name could be that of such a view."""
    return name.lower().startswith(tuple(view_of(reading, "") for reading in RelationState))


@lru_cache(maxsize=512)
def relations_read(query: str, reading: RelationState) -> frozenset[str]:
    """The relations of which a query over such views reads the rows of one reading; none where it is not understood."""
    prefix = view_of(reading, "")
    try:
        tables = parse_one(query, dialect=DIALECT).find_all(exp.Table) if prefix in query else ()
        return frozenset(table.name.removeprefix(prefix) for table in tables if table.name.startswith(prefix))
    except SqlglotError:
        return frozenset()


class NotDerivedError(Exception):
    """The changes of a query do not follow from its structure."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


DIALECT = "spark"
# The text in a query for a table function, and the name by which a person knows it.
_WRITTEN_OUT = (
    (re.compile(r"COLLECT_LIST\(STRUCT\(.* AS o0\b|\bfreshline_(m|match|r|partition|array)\b"), "MATCH_RECOGNIZE"),
    (re.compile(r"^COUNT\(\*\) OVER \(.* RANGE BETWEEN \d+ PRECEDING AND 1 PRECEDING\)$"), "SESSION"),
)
TOUCHED = "freshline_touched"
# The parts of a source in FROM that leave its rows as they are.
SOURCE_ARGUMENTS = frozenset({"this", "db", "catalog", "alias"})
KINDS = {
    ("", ""): "INNER",
    ("", "INNER"): "INNER",
    ("", "CROSS"): "INNER",
    ("LEFT", ""): "LEFT",
    ("LEFT", "OUTER"): "LEFT",
    ("RIGHT", ""): "RIGHT",
    ("RIGHT", "OUTER"): "RIGHT",
    ("FULL", ""): "FULL",
    ("FULL", "OUTER"): "FULL",
    ("LEFT", "SEMI"): "SEMI",
    ("", "SEMI"): "SEMI",
    ("LEFT", "ANTI"): "ANTI",
    ("", "ANTI"): "ANTI",
}


def _alias(writer: SparkGenerator, node: exp.Alias) -> str:
    """A column under its own name is written without it, as people do: Spark plans the two in different ways."""
    if isinstance(node.this, exp.Column) and node.this.name == node.alias:
        return writer.sql(node, "this")
    return writer.alias_sql(node)


# Parentheses with this argument contain what the select list has under a name, in lower case.
SHOWN_AS = "freshline_shown_as"
_SHOWN = "_freshline_shown"
# The clauses that follow the rows that QUALIFY leaves.
_BEHIND_QUALIFY = ("order", "sort", "cluster", "distribute", "limit", "offset")


def _select(writer: SparkGenerator, node: exp.Select) -> str:
    """A SELECT whose QUALIFY reads the select list: its rows in a subquery, and the condition in WHERE around it.

    Spark computes a window again that is written twice, and QUALIFY may read another column of the name of an alias.
    """
    clause = node.args.get("qualify")
    if clause is None or not any(part.args.get(SHOWN_AS) for part in own_nodes(clause)):
        return writer.select_sql(node)
    if own_queries(clause) or any(node.args.get(part) for part in _BEHIND_QUALIFY):
        return writer.select_sql(node)
    inner = node.copy()
    condition = exp.Paren(this=clause.this.copy())
    names = [item.alias_or_name for item in inner.expressions]
    more: list[exp.Expr] = []
    for part in list(condition.walk(prune=_is_of_rows)):
        if not _is_of_rows(part):
            continue
        name = part.args.get(SHOWN_AS)
        if isinstance(part, exp.Column) and any(_is_shown(item, part) for item in inner.expressions):
            name = part.name
        if name is None:
            name = f"{_SHOWN}{len(more)}"
            more.append(exp.alias_(part.copy(), name, quoted=True))
        part.replace(exp.column(name, _SHOWN, quoted=True))
    for argument in ("qualify", "distinct"):
        inner.set(argument, None)
    inner.set("expressions", [*inner.expressions, *more])
    shown = exp.Select(expressions=[exp.column(name, _SHOWN, quoted=True) for name in names])
    alias = exp.TableAlias(this=exp.to_identifier(_SHOWN, quoted=True))
    shown.set("from_", exp.From(this=exp.Subquery(this=inner, alias=alias)))
    shown.set("where", exp.Where(this=condition))
    shown.set("distinct", node.args.get("distinct") and node.args["distinct"].copy())
    return writer.select_sql(shown)


def _is_shown(item: exp.Expr, column: exp.Column) -> bool:
    return item.alias_or_name == column.name and item_expression(item) == column


def _is_of_rows(node: exp.Expr) -> bool:
    """Whether a part of QUALIFY is computed before it: what the select list shows, a window, an aggregate, a column."""
    return bool(node.args.get(SHOWN_AS)) or isinstance(node, exp.Window | exp.Column) or is_aggregate(node)


class _Written(Spark):
    """Spark's SQL, with QUALIFY where it stands: what sqlglot writes in its place mixes aliases up with columns."""

    class Generator(SparkGenerator):
        TRANSFORMS = {  # noqa: RUF012 - the name and form that sqlglot gives it
            **{kind: write for kind, write in SparkGenerator.TRANSFORMS.items() if kind is not exp.Select},
            exp.Alias: _alias,
            exp.Select: _select,
        }


def sql(node: exp.Expr, *, copy: bool = True) -> str:
    """The node as Spark SQL. Without `copy` the node may be changed by it, and is of no use any more."""
    return node.sql(dialect=_Written, comments=False, copy=copy)


def fragment(node: exp.Expr) -> str:
    """The node as a text short enough for a reason, without the names that are given here."""
    text = re.sub(r" AS `freshline_a\d+`|`freshline_a\d+`\.| AS `_col_\d+`|`", "", as_written(sql(node)))
    for written_out, name in _WRITTEN_OUT:
        if written_out.search(text):
            return name
    if isinstance(node, exp.Window) and "freshline_" in text:
        return "a window function in FROM"
    text = in_own_words(PREDICT_CALL.sub("ml_predict", text))
    return text if len(text) <= 60 else text[:57] + "..."


def unsupported(about: str) -> NotDerivedError:
    return NotDerivedError(Reason("UNSUPPORTED", about))


def same(left: exp.Expr, right: exp.Expr) -> bool:
    """Whether two expressions are written alike, but for letter case outside of texts."""
    return sql(left) == sql(right)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that must all be true."""
    if condition is None:
        return []
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        return [*conjuncts(inner.this), *conjuncts(inner.expression)]
    return [inner]


def all_of(conditions: Iterable[exp.Expr]) -> exp.Expr | None:
    """One condition that is true where all are; None for no condition."""
    parts = [exp.paren(condition.copy()) for condition in conditions]
    return exp.and_(*parts, dialect=DIALECT, copy=False) if parts else None


def own_nodes(node: exp.Expr) -> Iterator[exp.Expr]:
    """The node and all below it, queries inside it as one node each, without what is inside of these."""
    yield from node.walk(prune=lambda inner: isinstance(inner, exp.Query) and inner is not node)


def refuse_clauses(source: exp.Expr) -> None:
    """Refuse what stands beside a source in FROM (PIVOT, TABLESAMPLE, ..): it makes other rows of those that it has."""
    for argument, value in source.args.items():
        if value and argument not in SOURCE_ARGUMENTS:
            raise unsupported(fragment(source))


def refuse_arguments(node: exp.Expr, arguments: Sequence[str]) -> None:
    """Refuse a query that has one of these parts."""
    for argument in arguments:
        found = node.args.get(argument)
        if found:
            about = fragment(found) if isinstance(found, exp.Expr) else argument.upper()
            raise unsupported(about)


def expression_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """The nodes of all that stands in a SELECT outside of its FROM, queries inside it as one node each."""
    for root in _expressions(select):
        yield from root.walk(prune=lambda node: isinstance(node, exp.Query))


def expression_queries(select: exp.Select) -> Iterator[exp.Query]:
    """The queries inside the expressions of a SELECT (EXISTS, IN, scalar), and those of JOIN LATERAL, at any depth."""
    for root in _expressions(select):
        inside = root.args.get("on") if isinstance(root, exp.Join) else root
        if inside is not None:
            yield from inside.find_all(exp.Query)
        if isinstance(root, exp.Join) and is_lateral(root.this):
            yield from root.this.find_all(exp.Query)


def _expressions(select: exp.Select) -> Iterator[exp.Expr]:
    for argument, value in select.args.items():
        if argument not in ("with_", "from_"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, exp.Expr):
                    yield child


def own_queries(node: exp.Expr | None) -> list[exp.Query]:
    """The outermost queries inside an expression."""
    if node is None:
        return []
    if isinstance(node, exp.Query):
        return [node]
    return [inner for inner in own_nodes(node) if isinstance(inner, exp.Query)]


def sources_of(select: exp.Select) -> list[exp.Expr]:
    """The sources in FROM and the joins, in order."""
    start = select.args.get("from_")
    if start is None:
        return []
    return [start.this, *(join.this for join in select.args.get("joins") or ())]


def is_lateral(source: exp.Expr) -> bool:
    """Whether a source in FROM is a query that reads the rows of those before it."""
    return isinstance(source, exp.Lateral) and isinstance(source.this, exp.Subquery)


def kind_of(join: exp.Join) -> str:
    """INNER, LEFT, RIGHT, FULL, SEMI or ANTI; any other join is refused."""
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    found = KINDS.get((side, kind))
    if found is None or join.method or join.args.get("using") or isinstance(join.this, exp.Lateral):
        raise unsupported(fragment(join))
    return found


def relations_in(node: exp.Expr) -> frozenset[str]:
    """The relations that a lifted query reads, at any depth; the time is one, see `freshline.query.clock`."""
    found = frozenset(table.name for table in node.find_all(exp.Table))
    return found | {CLOCK} if reads_clock(node) else found


def aliases_in(node: exp.Expr) -> frozenset[str]:
    """The aliases of all sources at any depth, lateral views included."""
    tables = {source.alias_or_name for source in node.find_all(exp.Table, exp.Subquery, exp.Values)}
    laterals = {lateral.args["alias"].name for lateral in node.find_all(exp.Lateral) if lateral.args.get("alias")}
    return frozenset(tables | laterals)


def read_as(node: exp.Expr, reading: RelationState, changed: frozenset[str]) -> exp.Expr:
    """A copy that reads every relation as of one time; relations that did not change are the same at both."""
    copied = node.copy()
    for table in list(copied.find_all(exp.Table)):
        if not table.args.get("freshline_done"):
            at = reading if table.name in changed else RelationState.NEW
            rename(table, view_of(at, table.name))
    clock_as(copied, reading if CLOCK in changed else RelationState.NEW)
    return copied


def rename(table: exp.Table, view: str) -> None:
    """Let a table node read a view, under the alias that it has."""
    alias = table.alias_or_name
    table.set("this", exp.to_identifier(view, quoted=True))
    table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    table.set("freshline_done", True)


def touched_source(source: exp.Expr) -> exp.Subquery:
    """The changed rows of a source under its alias, with a mark that no padded row has."""
    assert isinstance(source, exp.Table)
    mark = exp.alias_(exp.true(), TOUCHED)
    return _derived(exp.Select(expressions=[exp.Star(), mark]), view_of(RelationState.CHANGED, source.name), source)


def empty_source(source: exp.Expr) -> exp.Expr:
    """The source without a row, with its columns."""
    if not isinstance(source, exp.Table):
        return source.copy()
    nothing = exp.Select(expressions=[exp.Star()], where=exp.Where(this=exp.false()))
    return _derived(nothing, view_of(RelationState.NEW, source.name), source)


def touched_mark(source: exp.Expr) -> exp.Expr:
    """The condition that a row has a changed row of the source."""
    return exp.column(TOUCHED, table=source.alias_or_name, quoted=True)


def _derived(select: exp.Select, view: str, source: exp.Expr) -> exp.Subquery:
    """A SELECT from a view in the place of a source, under its alias."""
    table = exp.Table(this=exp.to_identifier(view, quoted=True), freshline_done=True)
    select.set("from_", exp.From(this=table))
    return exp.Subquery(this=select, alias=exp.TableAlias(this=exp.to_identifier(source.alias_or_name, quoted=True)))


def item_expression(item: exp.Expr) -> exp.Expr:
    """The expression of a select item, without its name."""
    return item.this if isinstance(item, exp.Alias) else item


def items_by_name(select: exp.Select) -> Mapping[str, exp.Expr]:
    """The select list by lower-case name."""
    return {item.alias_or_name.lower(): item_expression(item) for item in select.expressions}
