"""SIDE OUTPUT: rows of a query that go to tables of their own.

Each is a materialized table whose query is the declared one and a condition. The first condition that is true takes a
row, and the main table has those that no condition took. So every row of the query is in one of the tables, and each of
them equals its query at the positions in its own receipt, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from freshline.declare.names import TableName

_ALL = "freshline_all"


@dataclass(frozen=True)
class SideOutput:
    """A side output as it was written: its table, and the condition of the rows that it takes, in SQL."""

    name: TableName
    condition: str


def main_query(query: str, outputs: Sequence[SideOutput]) -> str:
    """The query of the rows that no side output takes; what was written stays on its line."""
    return query if not outputs else _rows(query, [_not(output) for output in outputs])


def side_queries(query: str, outputs: Sequence[SideOutput]) -> Iterator[tuple[SideOutput, str]]:
    """Each side output with the query of the rows that it takes, and that none before it takes."""
    for number, output in enumerate(outputs):
        yield output, _rows(query, [*(_not(before) for before in outputs[:number]), f"({output.condition}\n)"])


def _rows(query: str, conditions: Sequence[str]) -> str:
    # The line ends close comments that begin with two dashes.
    return f"SELECT * FROM ({query}\n) AS {_ALL} WHERE {' AND '.join(conditions)}"


def _not(output: SideOutput) -> str:
    """A condition that is neither true nor false takes no row."""
    return f"NOT coalesce(({output.condition}\n), FALSE)"
