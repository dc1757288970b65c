"""A kind of database as a source asks it: one module for each implements this."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from freshline.compute.cancellation import Cancellation
from freshline.sources.jdbc.facts import FoundTable, JdbcServerFacts, TablePart

# A row as a text of its own, and the texts of its fields: those of the columns, and of the growing one.
Row = tuple[bytes, Sequence[bytes | None]]


@dataclass(frozen=True)
class Since:
    """The beginning of the rows that are read: a value of the growing column, or a number of a transaction."""

    value: str


class Session(Protocol):
    """One transaction that only reads. All that it gives is as of one moment."""

    @property
    def server(self) -> JdbcServerFacts: ...

    @property
    def table(self) -> FoundTable | None: ...

    def rows(self, asked: TablePart, since: Since | None) -> AbstractContextManager[Iterator[Row]]:
        """The rows of the table, all of them without `since`, one by one: only a few are in memory.

        Rows whose growing column is NULL are read each time.
        """


class SourceDatabase(Protocol):
    """A database of one source. Errors are those of sources, and show no address of it."""

    def inspect(self, url: str) -> tuple[JdbcServerFacts, FoundTable | None]:
        """The facts of the server and of the table now. Raises DatabaseError and DatabaseRefusedError."""

    def reading(self, url: str, table: FoundTable, cancellation: Cancellation) -> AbstractContextManager[Session]:
        """A transaction in which the table is as it was found, or is not there."""

    def ask_keys(
        self, url: str, asked: TablePart, keys: Sequence[Sequence[Any]], seconds: float
    ) -> list[tuple[int, Sequence[bytes | None]]]:
        """The rows of keys: the number of the key, and the texts of the columns that are not of the key.

        Raises AwayError where it takes longer, DatabaseError and DatabaseRefusedError.
        """

    def close(self) -> None:
        """Let go of the connection."""
