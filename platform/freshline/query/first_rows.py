"""Queries that end with `ORDER BY .. LIMIT n`: which rows are the first, as a function of all rows.

SQL leaves open which of several rows comes first that are equal in what ORDER BY names. A table that is computed again
would then have another row now and then, though nothing changed. So all columns follow the ones that are named, and the
rows are in one order (`FirstRows.ordered`): each answer that this gives is one of those that SQL allows.

Then the first rows of tomorrow follow from those of today. Let T be the stored rows, and K the keys that changes may
affect in the query without LIMIT. A row that is neither in T nor of K is behind the last row of T, where T was full.
So the first n of T without K and of the rows that K has now are the first of all, if as many are not behind that last
row. Where T was not full there is no row outside of it, and they always are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import exp
from sqlglot.errors import SqlglotError

from freshline.errors import DeclarationError
from freshline.query.exactness import read_exactness
from freshline.query.functions import is_aggregate
from freshline.query.query import Query
from freshline.query.resolved import ResolvedQuery
from freshline.query.tree import NotDerivedError, items_by_name, own_nodes
from freshline.sql.tokens import Text, Token, TokenKind
from freshline.values.names import quoted

# Spark counts rows of LIMIT in 32 bits.
MOST_ROWS = 2**31 - 1
# Between ORDER BY and LIMIT: what is no part of the order, and operators of another syntax.
_OTHER_CLAUSES = frozenset({"WINDOW", "CLUSTER", "DISTRIBUTE", "SORT", "OFFSET", "|>"})
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True)
class Order:
    """One part of an order: a column of the result, in lower case."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class FirstRows:
    """A text of SQL that keeps the first `count` rows; `order` and `limit` are where its last two clauses begin."""

    text: str
    order: int
    limit: int
    count: int

    @property
    def every(self) -> str:
        """The query of which the first rows are kept."""
        return self.text[: self.order]

    def ordered(self, columns: Sequence[str]) -> str:
        """The query with an order among rows that are equal in its own; `columns` are all of the result.

        >>> first_rows("SELECT a, b FROM t ORDER BY a LIMIT 3").ordered(["a", "b"])
        'SELECT a, b FROM t ORDER BY a , `a`, `b` LIMIT 3'
        """
        names = ", ".join(map(quoted, columns))
        return f"{self.text[: self.limit]}, {names} {self.text[self.limit :]}"


@lru_cache(maxsize=256)
def first_rows(text: str) -> FirstRows | None:
    """The clauses of a query that ends with `ORDER BY .. LIMIT n`; None for any other, and for `ORDER BY ALL`.

    >>> first_rows("SELECT a FROM t ORDER BY a LIMIT 3").every
    'SELECT a FROM t '
    >>> first_rows("SELECT a FROM (SELECT a FROM t ORDER BY a LIMIT 3)") is None
    True
    """
    try:
        tokens = Text(text, "").tokens()
    except DeclarationError:
        return None  # a text that the declaration's own reading refuses
    outer = _outer(tokens)
    if len(outer) < 5 or outer[-2].word != "LIMIT" or not _is_count(outer[-1]):
        return None
    starts = [place for place in range(len(outer) - 3) if (outer[place].word, outer[place + 1].word) == ("ORDER", "BY")]
    if not starts:
        return None
    between = [token.word for token in outer[starts[-1] + 2 : -2]]
    order, limit = outer[starts[-1]].start, outer[-2].start
    first = next(token for token in tokens if token.start >= outer[starts[-1] + 1].end and token.word not in _OPEN)
    if _OTHER_CLAUSES & set(between) or "SELECT" in between or first.value.upper() == "ALL":
        return None
    return FirstRows(text, order, limit, int(outer[-1].raw))


def _is_count(token: Token) -> bool:
    return (
        token.kind is TokenKind.WORD and token.raw.isascii() and token.raw.isdigit() and 0 < int(token.raw) <= MOST_ROWS
    )


def _outer(tokens: Sequence[Token]) -> list[Token]:
    """The tokens that stand in no brackets."""
    found, depth = [], 0
    for token in tokens:
        if token.word in _OPEN:
            depth += 1
        elif token.word in _CLOSE:
            depth -= 1
        elif depth == 0:
            found.append(token)
    return found


def order_of(query: Query, every: ResolvedQuery) -> tuple[Order, ...] | None:
    """The order of a query that keeps its first rows, by columns of the result; None where it has others.

    `every` is the query of which these are the first. All of its columns must be the same whenever they are computed:
    of stored rows and of new ones the order would be another one else. Pure.
    """
    try:
        order = query.tree.args.get("order")
        names = [name.lower() for name in every.columns]
        exactness = read_exactness(every)
        if order is None or not exactness.is_steady(exactness.lifted.top.query):
            return None
        found = [_order_by(item, query.tree, names) for item in order.expressions]
    except (NotDerivedError, SqlglotError):
        return None
    parts = tuple(part for part in found if part is not None)
    return parts if len(parts) == len(found) else None


def _order_by(item: exp.Expr, tree: exp.Query, names: Sequence[str]) -> Order | None:
    """One part of ORDER BY as Spark takes it: columns of the result come before those of its inputs."""
    if not isinstance(item, exp.Ordered) or item.args.get("with_fill"):
        return None
    column = _column(item.this, tree, names)
    return None if column is None else Order(column, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))


def _column(node: exp.Expr, tree: exp.Query, names: Sequence[str]) -> str | None:
    if isinstance(node, exp.Literal):
        place = int(node.name) - 1 if node.is_int else -1
        return names[place] if 0 <= place < len(names) else None
    if isinstance(node, exp.Column) and len(node.parts) == 1 and node.name.lower() in names:
        return node.name.lower()
    if not isinstance(tree, exp.Select):
        return None
    items = items_by_name(tree)
    for column in node.find_all(exp.Column):
        # A name of the result is that column within an expression too, whatever else has the name.
        if column.parts[0].name.lower() in names and items.get(column.parts[0].name.lower()) != column:
            return None
    for name, item in items.items():
        if item == node and name in names:
            # Spark sorts what is no group before it is named, so there the name must be the column's own.
            return name if _groups(tree) or (isinstance(node, exp.Column) and node.name.lower() == name) else None
    return None


def _groups(select: exp.Select) -> bool:
    return bool(select.args.get("group")) or any(
        is_aggregate(node) for item in select.expressions for node in own_nodes(item)
    )
