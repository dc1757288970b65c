"""EMIT FINAL .. WHEN (condition): the row of a key is written once, when the condition is true for the first time.

Here is judged whether a condition is one over a row and the watermark of the refresh, and put around the query.
"""

from __future__ import annotations

from sqlglot import exp

from freshline.sql.expression import parse_expression
from freshline.sql.tokens import Text
from freshline.sql.volatile import find_volatile
from freshline.values.closing import NOW
from freshline.values.location import Location, Written
from freshline.values.rules import Problems


def rows_when(query: Text, name: str, condition: Written[str]) -> Text:
    """The query of the rows for which the condition of WHEN is true; `name` is what a person reads of it in errors.

    The text that was written stays on its line.
    """
    # The line ends close comments that begin with two dashes.
    text = f"SELECT * FROM ({query.text}\n) AS `{name}` WHERE\n"
    moved = (Text(text, "").line(len(text)) - 1, condition.line)
    written = Text(condition.value, "")
    tokens, shown = written.tokens(), condition.value
    for first, *rest in reversed([tokens[index : index + 3] for index in range(len(tokens))]):
        if first.word == "WATERMARK" and [token.word for token in rest] == ["(", ")"]:
            shown = f"{shown[: first.start]}{NOW}(0){shown[rest[-1].end :]}"
    return Text(f"{text}({shown}\n)", query.path, query.first_line, (*query.moved, moved))


def check_condition(condition: Written[str], path: str, problems: Problems) -> bool:
    """Whether it is a condition over one row, and the same for each row that is the same; `problems` get the reason."""
    wrong = _why_not(condition.value)
    if wrong is not None:
        text = " ".join(condition.value.split())
        problems.add("EMIT_WHEN", f"WHEN ({text}): {wrong}", Location(path, condition.line))
    return wrong is None


def _why_not(text: str) -> str | None:
    if not text:
        return "it is empty. Write a condition over the columns of the result."
    try:
        tree = parse_expression(text, several=False)
    except ValueError as error:
        return str(error)
    volatile = find_volatile(tree, compared=False)
    if volatile is not None:
        return f"{volatile} gives another value each time. Compare with watermark(), or with a column."
    for call in tree.find_all(exp.Anonymous):
        if call.name.lower() == "watermark" and call.expressions:
            return "watermark() takes no argument: it is the watermark of the table."
    return None
