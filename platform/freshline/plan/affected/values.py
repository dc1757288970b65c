"""What the analysis of affected keys gives: SQL over views of the inputs, before and after their changes.

Every input, and every query inside the query (a stage), is a relation that can be read in three ways: as it is at the
new positions, as it was at the old ones, and as the rows that were added or taken away between them. The SQL here
names them by `view_of`; whoever runs it provides these views.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from freshline.plan.reason import Reason

# By relation and column, in lower case: the type as Spark SQL spells it.
Types = Mapping[str, Mapping[str, str]]


class Reading(StrEnum):
    """How a relation is read."""

    NEW = "new"
    OLD = "old"
    CHANGED = "changed"  # every row that was added or taken away, and perhaps others
    SIGNED = "signed"  # every row that was added (sign 1) or taken away (-1), as often as it was


def view_of(reading: Reading, relation: str) -> str:
    """The name of the view that holds a relation in one reading.

    >>> view_of(Reading.OLD, "orders")
    'freshline_old_orders'
    """
    return f"freshline_{reading.value}_{relation}"


def is_view(name: str) -> bool:
    """Whether a relation's name could be that of such a view."""
    return name.lower().startswith(tuple(view_of(reading, "") for reading in Reading))


@dataclass(frozen=True)
class Stage:
    """A query inside the query whose inputs changed or not, made a relation of its own.

    `new` and `old` are its rows; `old` is None where none of its inputs changed. Either `changed` are queries that
    together give its changed rows, or `keys` give values of `key_columns`: its changed rows are those of `new` and
    `old` that have them.
    """

    relation: str
    new: str
    old: str | None = None
    changed: tuple[str, ...] = ()
    key_columns: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Affected:
    """How to find the keys of a table that changes of some inputs may affect.

    A row of the table whose values of `columns` (names of the table, in lower case) come from none of `queries` is the
    same before and after; without queries no row changes. `stages` are made first, in order. Each of `guards` is a
    query that must give no row, with the reason for a full refresh where it does. `whole` is the query itself over
    views of the new rows, as it was understood here: Spark must find it to be the query that was declared.
    """

    columns: tuple[str, ...]
    whole: str
    stages: tuple[Stage, ...]
    queries: tuple[str, ...]
    guards: tuple[tuple[str, Reason], ...] = ()


class NotDerivedError(Exception):
    """The changes of a query cannot be told from its structure."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason
