"""The outermost select list: the columns that make rows unique, and the order that the stored row shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark

from freshline.query.functions import GENERATORS, name_of
from freshline.query.query import Query, read_query
from freshline.query.tree import expression_nodes, item_expression
from freshline.sql.query_parser import parse_trees
from freshline.values.spec import TableSpec


@lru_cache(maxsize=2048)
def groups_by(query: Query) -> frozenset[str] | None:
    """The output columns, in lower case, that the outermost GROUP BY or DISTINCT makes unique together.

    None where the outermost query is no plain grouping.
    """
    return _grouped(query, query.tree)


@lru_cache(maxsize=2048)
def groups_within(query: Query) -> frozenset[str] | None:
    """The same of the query in parentheses of which the outermost one, `SELECT * FROM (..)`, leaves rows out."""
    source = query.tree.args.get("from_")
    below = None if source is None else source.this
    return _grouped(query, below.unnest()) if isinstance(below, exp.Subquery) else None


def _grouped(query: Query, tree: exp.Expr) -> frozenset[str] | None:
    if not isinstance(tree, exp.Select) or any(isinstance(node, exp.UDTF) for node in expression_nodes(tree)):
        return None
    if any(name_of(node) in GENERATORS for item in tree.expressions for node in item.walk()):
        return None  # several rows of each group
    if tree.args.get("distinct"):
        return frozenset(item.alias_or_name.lower() for item in tree.expressions)
    group = tree.args.get("group")
    if group is None or any(group.args.get(kind) for kind in ("grouping_sets", "cube", "rollup", "all", "totals")):
        return None
    found = set()
    for key in group.expressions:
        if isinstance(key, exp.Literal) and key.is_int:
            found.add(tree.expressions[int(key.name) - 1].alias_or_name.lower())
            continue
        name = _shown_as(query, tree, key)
        if name is None:
            return None
        found.add(name)
    return frozenset(found)


def _shown_as(query: Query, select: exp.Select, key: exp.Expr) -> str | None:
    """The name of the grouping key in the select list, in lower case; None where it has none, or nobody knows."""
    for item in select.expressions:
        if query.is_same(item_expression(item), key):
            return str(item.alias_or_name.lower())
    if not isinstance(key, exp.Column) or key.table:
        return None
    for item in select.expressions:
        if item.alias_or_name.lower() == key.name.lower():
            if isinstance(item, exp.Column):
                return str(item.alias_or_name.lower())
            # An input's column of this name comes before the alias, and is another thing than what is made of it.
            made_of = {column.name.lower() for column in item.find_all(exp.Column)}
            return None if key.name.lower() in made_of else str(item.alias_or_name.lower())
    return None


# -- rows that leave WHERE ------------------------------------------------------------------------------------------

# Stands for the condition of WHERE in a select list.
CONDITION = "_freshline_condition"


def select_with_condition(text: str) -> str:
    """One plain SELECT without its WHERE, whose condition takes the place of CONDITION in the select list.

    >>> select_with_condition("SELECT a, _freshline_condition AS c FROM t WHERE a > 1 -- few")
    'SELECT a, (\\n a > 1 -- few\\n) AS c FROM t '
    >>> select_with_condition("SELECT a, _freshline_condition AS c FROM t")
    'SELECT a, true AS c FROM t'
    """
    depth = 0
    for token in Spark().tokenize(text):
        if token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET):
            depth += 1
        elif token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET):
            depth -= 1
        elif token.token_type is TokenType.WHERE and depth == 0:
            # On lines of its own: the condition may end with a comment.
            condition = f"(\n{text[token.end + 1 :]}\n)"
            return text[: token.start].replace(CONDITION, condition)
    return text.replace(CONDITION, "true")


# -- the order of a merge ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredOrder:
    """The order of the stored row, as far as the table itself has it.

    `order` is the stored column to order by, None where the order is no plain column of the table. `ties` are the
    columns of the tie-breaker, None where one of them is not stored.
    """

    order: str | None
    ties: tuple[str, ...] | None


def split_expressions(text: str | None) -> tuple[str, ...]:
    """A list of expressions, split at its outermost commas; empty for None.

    >>> split_expressions("source, coalesce(a, b)")
    ('source', 'coalesce(a, b)')
    """
    if text is None:
        return ()
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


def stored_order(spec: TableSpec, order: str | None, tie_breaker: str | None) -> StoredOrder:
    """The parts of an order that can be read from the stored row (they are columns that the select list keeps)."""
    if order is None:
        return StoredOrder(None, None)
    kept = _columns_kept(read_query(spec.sql).tree, spec.sql.references[0].alias.lower(), spec.columns or ())
    wanted = split_expressions(tie_breaker)
    ties = [_plain_column(tie, kept) for tie in wanted]
    stored_ties = tuple(tie for tie in ties if tie is not None)
    return StoredOrder(_plain_column(order, kept), stored_ties if len(stored_ties) == len(ties) else None)


def _columns_kept(tree: exp.Query, alias: str, columns: tuple[str, ...]) -> dict[str, str]:
    """Columns that mean the same in the query's input and in its result, by their lower-case name."""
    kept = {}
    for item in tree.expressions:
        inner = item_expression(item)
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
