"""Conditions of WHERE that compare rows with the time, such as `ts > now() - INTERVAL '7' DAYS`.

A function of the time gives another value at each refresh, so that nothing could follow changes through a query that
calls one. Where it stands in such a condition only, a refresh fixes one instant, and the query becomes one of its
inputs and of that instant. The places of these calls are found here. The instant takes their place in the text that
Spark runs, and `freshline_clock()` in the text that rules read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from freshline.sql.tokens import Token, TokenKind
from freshline.values.clock import ClockCall

# The SQL around the time for each function.
_TIMESTAMP, _DATE, _LOCAL = "{}", "CAST({} AS DATE)", "CAST({} AS TIMESTAMP_NTZ)"
_CALLED = {
    "NOW": _TIMESTAMP,
    "CURRENT_TIMESTAMP": _TIMESTAMP,
    "CURRENT_DATE": _DATE,
    "CURDATE": _DATE,
    "LOCALTIMESTAMP": _LOCAL,
}
# Spark knows these without parentheses too, unless a column has that name.
_BARE = ("CURRENT_TIMESTAMP", "CURRENT_DATE", "LOCALTIMESTAMP")
_COMPARED = (exp.GT, exp.GTE, exp.LT, exp.LTE, exp.EQ)
# The parts of a moment beside the call: sums with literals, whole dates, and the starts of days, months, ...
_MADE_OF = (
    exp.Literal,
    exp.Interval,
    exp.Var,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Neg,
    exp.Paren,
    exp.Cast,
    exp.DataType,
    exp.TsOrDsAdd,
    exp.TsOrDsToDate,
    exp.TimestampAdd,
    exp.AddMonths,
    exp.TimestampTrunc,
    exp.DateTrunc,
)


def find_clock_calls(
    text: str, tokens: Sequence[Token], parse: Callable[[str], exp.Expr | None]
) -> tuple[ClockCall, ...]:
    """The calls of a query in which the time stands in such conditions only; none for any other query.

    `parse` gives the tree of a text with the same places, None for one that cannot be read.
    """
    calls = _calls(tokens)
    if not calls:
        return ()
    covered = text
    for call in calls:
        covered = covered[: call.start] + "x" * (call.end - call.start) + covered[call.end :]
    tree = parse(covered)
    if tree is None:
        return ()
    starts = {call.start for call in calls}
    found = [
        column
        for column in tree.find_all(exp.Column)
        if isinstance(column.this, exp.Identifier) and column.this.meta.get("start") in starts
    ]
    named = {node.name.upper() for node in tree.find_all(exp.Identifier)}
    if len(found) != len(calls) or any(call.bare and named & set(_BARE) for call in calls):
        return ()
    clocks = {id(column) for column in found}
    return tuple(calls) if all(_is_filter(column, clocks) for column in found) else ()


def _calls(tokens: Sequence[Token]) -> list[ClockCall]:
    """Every call of a function of the time, where it stands."""
    found = []
    for index, token in enumerate(tokens):
        if token.kind is not TokenKind.WORD or token.word not in _CALLED:
            continue
        if index and tokens[index - 1].word == ".":
            continue
        following = [each.word for each in tokens[index + 1 : index + 3]]
        form = _CALLED[token.word]
        if following == ["(", ")"]:
            found.append(ClockCall(token.start, tokens[index + 2].end, form))
        elif token.word in _BARE and following[:1] not in (["."], ["("]):
            found.append(ClockCall(token.start, token.end, form, bare=True))
    return found


def _is_filter(column: exp.Column, clocks: set[int]) -> bool:
    """Whether a call is compared with rows, by a condition of WHERE that must be true of each row by itself."""
    side: exp.Expr = column
    while not isinstance(side.parent, (*_COMPARED, exp.Between)):
        around = side.parent
        if around is None or not isinstance(around, _MADE_OF):
            return False
        side = around
    condition = side.parent
    sides = [each for each in condition.iter_expressions() if isinstance(each, exp.Expr)]
    moments = [each for each in sides if _is_moment(each, clocks)]
    rows = [each for each in sides if not any(each is moment for moment in moments)]
    is_row = any(each.find(exp.Column) for each in rows) and all(_is_of_rows(each, clocks) for each in rows)
    return is_row and any(each is side for each in moments) and _is_conjunct_of_where(condition)


def _is_moment(side: exp.Expr, clocks: set[int]) -> bool:
    """Whether one side of a comparison follows from the time and literals."""
    columns = list(side.find_all(exp.Column))
    if not columns or any(id(column) not in clocks for column in columns):
        return False
    inside = {id(node) for column in columns for node in column.walk()}
    return all(isinstance(node, _MADE_OF) for node in side.walk() if id(node) not in inside)


def _is_of_rows(side: exp.Expr, clocks: set[int]) -> bool:
    if any(id(column) in clocks for column in side.find_all(exp.Column)):
        return False
    return not any(isinstance(node, exp.Query | exp.Window | exp.AggFunc) for node in side.walk())


def _is_conjunct_of_where(condition: exp.Expr) -> bool:
    node = condition
    while isinstance(node.parent, exp.Paren | exp.And):
        node = node.parent
    where = node.parent
    if not isinstance(where, exp.Where) or not isinstance(where.parent, exp.Select):
        return False
    around: exp.Expr | None = where.parent
    while around is not None:
        parent = around.parent
        if parent is not None and not isinstance(
            parent, exp.Subquery | exp.SetOperation | exp.From | exp.Join | exp.Select | exp.CTE | exp.With
        ):
            return False
        if isinstance(parent, exp.Join) and around is not parent.this:
            return False
        if isinstance(parent, exp.Select) and not isinstance(around, exp.From | exp.Join | exp.With):
            return False
        around = parent
    return True
