"""Single expressions over one row, as merges and constraints take them."""

from __future__ import annotations

from itertools import pairwise

from sqlglot import exp
from sqlglot.errors import SqlglotError

from freshline.errors import DeclarationError
from freshline.sql.functions import REFUSED_FUNCTIONS
from freshline.sql.query_parser import is_refused_call, parse_trees
from freshline.sql.tokens import Text


def parse_expression(text: str, *, several: bool) -> exp.Expr:
    """The tree of one expression over a row (or of a list of them); raises ValueError with a sentence."""
    try:
        tokens = Text(text, "").tokens()
    except DeclarationError as error:
        raise ValueError(error.message) from error
    for token, following in pairwise(tokens):
        if is_refused_call(token, (following.word,)):
            raise ValueError(f"{token.value}(..) {REFUSED_FUNCTIONS[token.value.lower()]}. Remove the call.")
    refused = ValueError(f"it is not {'a list of SQL expressions' if several else 'one SQL expression'}. Correct it.")
    try:
        # A comment to the end of the line would hide what follows the expression wherever it is put: here it hides the
        # parenthesis, and is refused.
        trees = parse_trees(f"SELECT ({text})")
    except SqlglotError as error:
        raise refused from error
    except RecursionError as error:
        # The parser's stack ends at some fifty levels, after a few milliseconds.
        raise ValueError("it is nested too deeply to be read. Compute parts of it in the query.") from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Select) or len(tree.expressions) != 1 or set(_given(tree)) != {"expressions"}:
        raise refused
    expression: exp.Expr = tree.expressions[0]
    for node in expression.find_all(exp.Query, exp.AggFunc, exp.Window, exp.Star, exp.UDTF):
        raise ValueError(f"it contains {kind_of_node(node)}; it is computed from one row. Remove that.")
    items = expression.expressions if isinstance(expression, exp.Tuple) else [expression]
    if not isinstance(expression, (exp.Paren, exp.Tuple)) or (isinstance(expression, exp.Tuple) and not several):
        raise refused
    if not items or any(isinstance(item.unnest(), (exp.Alias, exp.Ordered)) for item in items) or text.endswith(","):
        raise refused
    return expression


def _given(node: exp.Expr) -> list[str]:
    return [key for key, value in node.args.items() if value]


def kind_of_node(node: exp.Expr) -> str:
    """The name by which a person knows a part of a query."""
    if isinstance(node, exp.Query):
        return "a subquery"
    if isinstance(node, exp.AggFunc):
        return f"the aggregate {node.sql_name().lower()}"
    if isinstance(node, exp.Window):
        return "a window"
    return node.key.upper()
