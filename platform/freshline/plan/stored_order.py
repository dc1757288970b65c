"""What a table with a merge can tell about the order of the row that it has stored."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark

from freshline.declare.query import SqlQuery
from freshline.declare.query_parser import parse_sql, parse_trees
from freshline.declare.spec import Merge, TableSpec


@dataclass(frozen=True)
class StoredOrder:
    """What the table itself can tell about the order of its stored row.

    `order` is the stored column to order by, None where the order is no plain column of the table. `ties` are the
    columns of the tie-breaker, None where one of them is not stored.
    """

    order: str | None
    ties: tuple[str, ...] | None


def ties_of(merge: Merge) -> tuple[str, ...]:
    """The tie-breaker's expressions, split at its outermost commas.

    >>> from freshline.declare.spec import MergeKind
    >>> ties_of(Merge(MergeKind.FIRST_ROW, "ts", "source, coalesce(a, b)"))
    ('source', 'coalesce(a, b)')
    """
    if merge.tie_breaker is None:
        return ()
    text = merge.tie_breaker
    depth, start, parts = 0, 0, []
    for token in Spark().tokenize(text):
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
            depth -= 1
        elif token.token_type is TokenType.COMMA and depth == 0:
            parts.append(text[start : token.start].strip())
            start = token.end + 1
    return (*parts, text[start:].strip())


def stored_order(spec: TableSpec) -> StoredOrder:
    """Which parts of the order can be read from the stored row (they are columns that the select list keeps)."""
    assert spec.merge is not None
    assert isinstance(spec.query, SqlQuery)
    if spec.merge.order is None:
        return StoredOrder(None, None)
    kept = _columns_kept(spec.query, spec.columns or ())
    ties = [_plain_column(tie, kept) for tie in ties_of(spec.merge)]
    stored_ties = tuple(tie for tie in ties if tie is not None)
    return StoredOrder(_plain_column(spec.merge.order, kept), stored_ties if len(stored_ties) == len(ties) else None)


def _columns_kept(query: SqlQuery, columns: tuple[str, ...]) -> dict[str, str]:
    """Columns that mean the same in the query's input and in its result, by their lower-case name."""
    tree = parse_sql(query.render())
    alias = query.references[0].alias.lower()
    kept = {}
    for item in tree.expressions:
        inner = item.this if isinstance(item, exp.Alias) else item
        if (
            isinstance(inner, exp.Column)
            # Of a struct `a`, `a.b AS b` is a field and not the column b.
            and inner.table.lower() in ("", alias)
            and inner.name.lower() == item.alias_or_name.lower()
        ):
            kept[inner.name.lower()] = item.alias_or_name
        elif isinstance(inner, exp.Star) and not any(inner.args.values()):
            # SELECT * keeps every column under its own name.
            kept.update({column.lower(): column for column in columns})
    return kept


def _plain_column(expression: str, kept: dict[str, str]) -> str | None:
    [item] = parse_trees(f"SELECT {expression}")[0].expressions
    return kept.get(item.name.lower()) if isinstance(item, exp.Column) else None
