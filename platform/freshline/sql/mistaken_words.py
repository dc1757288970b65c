"""Words that Spark would refuse at the first refresh, in sentences that only make sense to who knows its parser.

They are found among the tokens of a query whose window functions are written out already, so that none of those is
left.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from freshline.sql.tokens import Token, TokenKind
from freshline.values.rules import nearest

# The functions that stand in FROM with TABLE and a table behind it, in parentheses.
TABLE_FUNCTIONS_OF_OURS = (
    "TUMBLE",
    "HOP",
    "CUMULATE",
    "SESSION",
    "COUNT_WINDOW",
    "CONNECTED_COMPONENTS",
    "PAGERANK",
    "COMMUNITIES",
)
# Windows in GROUP BY, and their bounds in the select list, as older Flink has them.
_GROUP_WINDOW = re.compile(r"(TUMBLE|HOP|SESSION)(_START|_END|_ROWTIME|_PROCTIME)?")
_UNITS = frozenset(
    f"{unit}{plural}"
    for unit in "MICROSECOND MILLISECOND SECOND MINUTE HOUR DAY WEEK MONTH QUARTER YEAR".split()
    for plural in ("", "S")
)


def mistaken_words(tokens: Sequence[Token]) -> Iterator[tuple[str, str, int]]:
    """The mistakes: the rule, a sentence that says what to write, and the offset in the text."""
    words = [token.word for token in tokens]

    def word(index: int) -> str:
        return words[index] if 0 <= index < len(words) else ""

    for index, token in enumerate(tokens):
        if token.kind is TokenKind.STRING:
            continue
        if word(index) == "INTERVAL" and _is_number(tokens, index + 1) and word(index + 2) not in _UNITS:
            raw = tokens[index + 1].raw
            sentence = f"INTERVAL {raw} has no unit. Write one behind it: INTERVAL {raw} MINUTE."
            yield "QUERY_SYNTAX", sentence, token.start
        if word(index + 1) != "(" or word(index - 1) == ".":
            continue
        if word(index + 2) == "TABLE" and word(index + 3) != "(" and word(index) not in TABLE_FUNCTIONS_OF_OURS:
            if token.kind is not TokenKind.WORD or not word(index)[0].isalpha():
                continue
            near = nearest(word(index), TABLE_FUNCTIONS_OF_OURS) or f" There are {', '.join(TABLE_FUNCTIONS_OF_OURS)}."
            yield "QUERY_SYNTAX", f"{token.raw}(TABLE ..) is no table function.{near}", token.start
        group = _GROUP_WINDOW.fullmatch(word(index))
        if group is not None and word(index - 1) not in ("FROM", "JOIN", "TABLE"):
            sentence = (
                f"{token.raw}(..) is a window of GROUP BY, as older Flink has it. Read the rows with their windows "
                f"FROM {group[1]}(TABLE .., DESCRIPTOR(..), INTERVAL '5' MINUTES), and group by window_start and "
                "window_end."
            )
            yield "QUERY_FUNCTION", sentence, token.start


def _is_number(tokens: Sequence[Token], index: int) -> bool:
    return index < len(tokens) and re.fullmatch(r"['\"]?\s*[+-]?\d+(\.\d+)?\s*['\"]?", tokens[index].raw) is not None
