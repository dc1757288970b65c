"""The role of a token of a query, by those beside it: a keyword or a name, an operator or where a value begins."""

from __future__ import annotations

from collections.abc import Sequence

from freshline.sql.tokens import Token

# Behind them a value begins, so no clause does, and no CASE ends there. No column has such a name without backquotes.
_BEFORE_OPERAND = frozenset(
    "( [ , . = == <=> < <= > >= <> != + - * / % || & | ^ ~ ! -> => FROM WHERE ON QUALIFY HAVING AND OR NOT BETWEEN "
    "LIKE RLIKE ILIKE CASE WHEN THEN ELSE".split()
)


def keyword(tokens: Sequence[Token], index: int) -> str:
    """The word of a token; empty for one behind a dot, which is the name of a column or table, and before the first."""
    if index < 0 or (index and tokens[index - 1].word == "." and tokens[index].word != "*"):
        return ""
    return tokens[index].word


def expects_operand(tokens: Sequence[Token], index: int) -> bool:
    """Whether a token is a part of an expression because of that before it, also where it is the word of a clause."""
    return keyword(tokens, index - 1) in _BEFORE_OPERAND


def is_star_in_list(tokens: Sequence[Token], index: int) -> bool:
    """Whether a token outside of calls is a `*` that stands for columns, and is no product."""
    before = tokens[index - 1].word if index else ""
    begins = before in (".", "SELECT", "DISTINCT", "ALL", ",") or before.startswith("/*+")
    return tokens[index].word == "*" and begins


def case_step(tokens: Sequence[Token], index: int, cases: int) -> int:
    """The change by a token of the number of CASE that are open, which is `cases`."""
    word = keyword(tokens, index)
    if word == "END" and cases and not expects_operand(tokens, index):
        return -1
    return 1 if word == "CASE" else 0


def is_star_in_call(tokens: Sequence[Token], index: int) -> bool:
    """Whether `*` among the arguments of a call stands for columns: it has no operand before it, or none behind it.

    Not for that of `(SELECT * ..)`, nor that of `count(*)`, which counts rows.
    """
    words = [tokens[place].word if 0 <= place < len(tokens) else "" for place in range(index - 2, index + 3)]
    before, behind = words[1], words[3]
    if words[2] != "*" or (words[:2] == ["COUNT", "("] and behind == ")"):
        return False
    excepting = before in ("DISTINCT", "ALL") and words[3:] == ["EXCEPT", "("]
    return excepting or before in (".", "(", ",", "[") or (behind in (")", ",", "]") and before != "SELECT")
