"""Asks a table of a database for the rows of keys, many of them by one query.

Each key is a query of its own in a UNION ALL, with its number in front. So the database decides which rows a key has,
as it does for everybody who asks it, and no value has to be found again among those that it gives back.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import pyarrow as pa

from freshline.errors import DatabaseError, DatabaseRefusedError
from freshline.sources.databases.text_values import AlteredValueError
from freshline.sources.jdbc.database import SourceDatabase
from freshline.sources.jdbc.facts import JdbcColumn, TablePart, require_table
from freshline.sources.jdbc.lookup import JdbcLookup
from freshline.sources.jdbc.reader import find_kind, open_database
from freshline.sources.lookups.client import NO_ROW, Answer, AwayError, ClientHost, Key, LookupClient
from freshline.sources.lookups.connections import Connections
from freshline.values.secret import resolve_reference
from freshline.values.spec import SourceSpec


class JdbcLookupClient(LookupClient):
    """Asks one table, over as many connections as threads ask at once."""

    most_keys: ClassVar[int] = 100

    def __init__(self, spec: SourceSpec, host: ClientHost, schema: pa.Schema) -> None:
        """Raises DatabaseRefusedError for a secret that is not there, and for an address of nothing that is known."""
        assert isinstance(spec.connection, JdbcLookup)
        self._lookup, self._spec, self._where = spec.connection, spec, str(spec.written_at)
        try:
            url = resolve_reference(self._lookup.url, host.root, os.environ)
        except ValueError as error:
            raise DatabaseRefusedError(f"option 'url': {error}", where=self._where) from error
        self._url = url.removeprefix("jdbc:")
        self._kind = find_kind(self._url, where=self._where)
        self._part: TablePart | None = None
        self._connections = Connections(self._open, _close)
        self._guard = threading.Lock()

    def ask(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """The rows of these keys, by one query."""
        try:
            with self._database() as database:
                found = database.ask_keys(self._url, self._table(database), keys, self._lookup.lookup_timeout)
        except DatabaseError as error:
            raise AwayError(error.message) from error
        rows: dict[int, list[Sequence[bytes | None]]] = {}
        for number, fields in found:
            rows.setdefault(number, []).append(fields)
        return [self._answer(rows.get(number, [])) for number in range(len(keys))]

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _open(self) -> SourceDatabase:
        return open_database(self._kind, self._lookup.as_table, self._where)

    @contextmanager
    def _database(self) -> Iterator[SourceDatabase]:
        """A connection that nobody else uses; it connects again by itself where it was lost."""
        found, _ = self._connections.take()
        try:
            yield found
        finally:
            self._connections.give_back(found)

    def _table(self, database: SourceDatabase) -> TablePart:
        """The table as the database has it, which is asked for once."""
        with self._guard:
            known = self._part
        if known is not None:
            return known
        _, found = database.inspect(self._url)
        columns = [(column.name, column.type) for column in self._spec.columns]
        part = require_table(self._lookup.as_table, found, columns, self._spec.primary_key, where=self._where)
        with self._guard:
            self._part = part
        return part

    def _answer(self, rows: Sequence[Sequence[bytes | None]]) -> Answer:
        if not rows:
            return NO_ROW
        with self._guard:
            part = self._part
        assert part is not None
        if len(rows) > 1:
            return Answer(None, f"{len(rows)} rows of {part.table.name} have it")
        values: dict[str, Any] = {}
        others = [column for column in part.columns if not column.is_key]
        for column, text in zip(others, rows[0], strict=True):
            try:
                values[column.name] = None if text is None else column.reader(text)
            except (AlteredValueError, ValueError) as error:
                return Answer(None, _unfit(column, error))
        return Answer(values)


def _close(database: SourceDatabase) -> None:
    database.close()


def _unfit(column: JdbcColumn, error: Exception) -> str:
    said = "no text of UTF-8" if isinstance(error, UnicodeDecodeError) else "a value that it cannot have"
    return f"column {column.name} is {column.type}, and the table has {said}"
