"""Expressions of a parsed query as they were written.

The parser's tree is not Spark's: what it prints may be another expression (`to_char(ts, 'yyyy-MM')` becomes a CAST, and
the format is lost). A query is always run as it was written, and so is an expression that is taken out of it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from freshline.declare.query_parser import WRITTEN, span_of
from freshline.declare.tokens import Kind, Text


def written_text(text: str, expression: exp.Expr, name_of: Callable[[exp.Column], str]) -> str | None:
    """The text of an expression of the tree of `text`, each column replaced by what `name_of` gives for it.

    None where the parser did not note where it stands.
    """
    span = expression.meta.get(WRITTEN)
    if span is None:
        return None
    start, end = span
    parts: list[str] = []
    columns = sorted(_columns(expression), key=lambda found: found[0])
    for begin, stop, column in columns:
        if begin < start or stop > end:
            return None
        parts += [text[start:begin], name_of(column)]
        start = stop
    found = sum(1 for _ in expression.find_all(exp.Column))
    return "".join([*parts, text[start:end]]) if len(columns) == found else None


def is_same(text: str, left: exp.Expr, right: exp.Expr) -> bool:
    """Whether two expressions of the tree of `text` are one: columns of one name, or the same words.

    Letter case counts in texts only. Of two spellings of one thing it says no.
    """
    if isinstance(left, exp.Column) and isinstance(right, exp.Column):
        return [part.name.lower() for part in left.parts] == [part.name.lower() for part in right.parts]
    words, others = _words(text, left), _words(text, right)
    return words is not None and words == others


def _words(text: str, expression: exp.Expr) -> list[tuple[bool, str]] | None:
    span = expression.meta.get(WRITTEN)
    if span is None:
        return None
    tokens = Text(text[span[0] : span[1]], "").tokens()
    return [
        (token.kind is Kind.STRING, token.value if token.kind is Kind.STRING else token.value.lower())
        for token in tokens
    ]


def _columns(expression: exp.Expr) -> list[tuple[int, int, exp.Column]]:
    """Start, end and node of each column that has its place in the text."""
    found = []
    for column in expression.find_all(exp.Column):
        places = [part for part in column.parts if isinstance(part, exp.Identifier) and "start" in part.meta]
        if places and len(places) == len(column.parts):
            span = span_of(places[0], places[-1])
            found.append((span.start, span.end, column))
    return found
