"""SIDE OUTPUT: rows of a query that go to tables of their own.

Each is a materialized table whose query is the declared one and a condition. The first condition that is true takes a
row, and the main table has those that no condition took. So every row of the query is in one of the tables, and each of
them equals its query at the positions in its own receipt, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from freshline.sql.expression import parse_expression
from freshline.sql.tokens import Text
from freshline.sql.volatile import find_volatile
from freshline.values.location import Location, Written
from freshline.values.names import TableName
from freshline.values.rules import Problems
from freshline.values.spec import SideOutput


def check_conditions(outputs: Sequence[Written[SideOutput]], path: str, problems: Problems) -> bool:
    """Whether each condition is one over a row, and takes the same rows each time; reports the others."""
    right = True
    for output in outputs:
        condition = output.value.condition
        at = Location(path, condition.line)
        said = f"SIDE OUTPUT {output.value.name} takes the rows WHERE ({condition.value})"
        try:
            volatile = find_volatile(parse_expression(condition.value, several=False), compared=False)
        except ValueError as error:
            problems.add("SIDE_OUTPUT", f"{said}: {error}", at)
            right = False
            continue
        if volatile is not None:
            problems.add("SIDE_OUTPUT", f"{said}: {volatile} gives another value each time. Compare with a column.", at)
            right = False
    return right


def main_query(query: Text, name: TableName, outputs: Sequence[SideOutput]) -> Text:
    """The query of the rows that no side output takes, for the table `name`."""
    return query if not outputs else _rows(query, name, [(output, False) for output in outputs])


def side_queries(query: Text, name: TableName, outputs: Sequence[SideOutput]) -> Iterator[Text]:
    """The query of each side output of the table `name`: the rows that it takes and that none before it takes."""
    for number, output in enumerate(outputs):
        before = [(each, False) for each in outputs[:number]]
        yield _rows(query, name, [*before, (output, True)])


def _rows(query: Text, name: TableName, conditions: Sequence[tuple[SideOutput, bool]]) -> Text:
    """The rows that some conditions take, and others do not. A condition that is neither true nor false takes none.

    The text that was written stays on its line; of conditions, which stand before the query, the text knows theirs.
    """
    # The line ends close comments that begin with two dashes. The alias is what a person reads where a column is
    # unknown to a condition.
    text, moved = f"SELECT * FROM ({query.text}\n) AS `{name.name}` WHERE TRUE", []
    for output, takes in conditions:
        written = output.condition
        text += "\n"
        moved.append((Text(text, "").line(len(text)) - 1, written.line))
        text += f" AND ({written.value}\n)" if takes else f" AND NOT coalesce(({written.value}\n), FALSE)"
    return Text(text, query.path, query.first_line, tuple(moved))
