"""The control store opened for one reading, without SQLAlchemy, whose import takes longer than the rest of `status`.

Only a file of SQLite that is as this freshline writes it is read here, by Python's own module and with the statements
below. Every other store, and one that has to be made or brought to a newer format, is opened by ControlStore. A test
compares both, and these statements with SQLAlchemy's.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from freshline.commit.control_rows import (
    COUNTED_REFRESHES,
    FORMAT,
    TABLES,
    checks_of,
    heartbeat_of,
    intentions_of,
    record_of,
    seconds_of_tables,
)
from freshline.errors import StorageError
from freshline.freshness.intentions import Intentions
from freshline.freshness.record import Check, Heartbeat
from freshline.plan.request import BACKFILL
from freshline.values.names import TableName
from freshline.values.result import DECISIONS, RefreshResult, State, Strategy

if TYPE_CHECKING:
    from freshline.commit.control_store import ControlStore

# Another process that writes locks the database for milliseconds; this is for a machine that is overloaded.
BUSY_SECONDS = 20.0
_SQLITE = "sqlite:///"
# Options of the driver, such as `?timeout=5&uri=true`.
_QUERY = re.compile(r"\?\w+=[^/?]*\Z")
_DECIDED = ", ".join(f"'{state}'" for state in sorted(DECISIONS))
LAST_REFRESHES = f"""
SELECT id, result FROM freshline_refresh WHERE id IN (
    SELECT max(id) FROM freshline_refresh
    WHERE state NOT IN ({_DECIDED}) AND NOT (coalesce(cause, '') = '{BACKFILL}' AND state != '{State.SUCCEEDED}')
    GROUP BY "key"
)
"""
NEWEST_SECONDS = f"""
SELECT name, version, seconds FROM (
    SELECT name, version, seconds, row_number() OVER (PARTITION BY "key" ORDER BY id DESC) AS place
    FROM freshline_refresh
    WHERE committed IS 1 AND coalesce(cause, '') != '{BACKFILL}' AND coalesce(strategy, '') != '{Strategy.NOOP}'
) WHERE place <= {COUNTED_REFRESHES}
"""


class ControlReader:
    """The store for one reading: its answers are those of ControlStore. For one thread, and not to be kept for long.

    Where another file takes the place of the store meanwhile, it goes on with the one that it opened.
    """

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path
        self.intentions = IntentionReader(self)
        self.heartbeats = HeartbeatReader(self)

    @classmethod
    def open(cls, url: str) -> ControlReader | None:
        """The reader of the store at a SQLAlchemy URL; None for one that ControlStore has to open.

        Raises StorageError where another process does not let go of it.
        """
        path = file_of(url)
        if not path or path == ":memory:" or path.startswith("file:"):
            return None
        connection = None
        try:
            # Never made here, and written by nobody: SQLite itself tidies up behind its last reader.
            name = f"{Path(path).absolute().as_uri()}?mode=rw"
            connection = sqlite3.connect(name, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
            connection.row_factory = sqlite3.Row
            if _is_of_newest_format(connection):
                return cls(connection, path)
        except sqlite3.Error as error:
            if connection is not None:
                connection.close()
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY:
                raise _translated(error, path) from error
            return None
        connection.close()
        return None

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A transaction that only reads. Raises StorageError."""
        try:
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _translated(error, self._path) from error

    def checks(self) -> dict[TableName, Check]:
        """As ControlStore.checks."""
        with self.read() as connection:
            return checks_of(connection.execute("SELECT * FROM freshline_check"))

    def last_refreshes(self) -> dict[TableName, RefreshResult]:
        """As ControlStore.last_refreshes."""
        with self.read() as connection:
            return {record.table: record for record in map(record_of, connection.execute(LAST_REFRESHES))}

    def seconds(self) -> dict[TableName, float]:
        """As ControlStore.seconds, of all tables."""
        with self.read() as connection:
            return seconds_of_tables(connection.execute(NEWEST_SECONDS))


class IntentionReader:
    """The decisions about tables."""

    def __init__(self, reader: ControlReader) -> None:
        self._reader = reader

    def read(self) -> Intentions:
        """As IntentionStore.read."""
        with self._reader.read() as connection:
            (generation,) = connection.execute("SELECT max(generation) FROM freshline_generation").fetchone()
            return intentions_of(
                int(generation or 0),
                connection.execute("SELECT * FROM freshline_override"),
                connection.execute("SELECT * FROM freshline_suspension"),
            )


class HeartbeatReader:
    """The heartbeats of processes."""

    def __init__(self, reader: ControlReader) -> None:
        self._reader = reader

    def read(self) -> dict[str, Heartbeat]:
        """As HeartbeatStore.read."""
        with self._reader.read() as connection:
            rows = connection.execute("SELECT * FROM freshline_heartbeat")
            return {row["name"]: heartbeat_of(row) for row in rows}


def open_for_a_look(url: str, umask: int) -> ControlReader | ControlStore:
    """The store for one reading: without SQLAlchemy where possible. Raises as ControlStore.open does, and makes it."""
    found = ControlReader.open(url)
    if found is not None:
        return found
    # Imported here: the reader exists to do without it.
    from freshline.commit.control_store import ControlStore

    return ControlStore.open(url, umask)


def file_of(url: str) -> str | None:
    """The file of a URL of SQLite as it is written, empty for one in memory; None for another database or a driver's
    options.

    SQLAlchemy ends it at a question mark: in a folder with one in its name the file was another one, outside of it.
    """
    return url.removeprefix(_SQLITE) if url.startswith(_SQLITE) and not _QUERY.search(url) else None


def what_happened(said: str) -> str:
    """The end of the sentence that begins with the control store, by what its database said."""
    lowered = said.lower()
    if "readonly" in lowered or "read-only" in lowered:
        return "cannot be written: it is read-only. Make the file and its folder writable for this user."
    if "locked" in lowered or "lock timeout" in lowered:
        return "is locked by another process that does not let go. End that process and try again."
    if "full" in lowered:
        return "cannot be written: the disk is full. Free some space and try again."
    if "unable to open" in lowered:
        return "cannot be opened. Make its folder readable and writable for this user."
    if "not a database" in lowered or "malformed" in lowered:
        return (
            "is not a database any more. Move the file away: a new one is made, and nothing is lost that tables do "
            "not know themselves."
        )
    return f"does not answer: {said.strip()}."


def _is_of_newest_format(connection: sqlite3.Connection) -> bool:
    """Whether it is as ControlStore leaves a store that it has opened."""
    (journal,) = connection.execute("PRAGMA journal_mode").fetchone()
    there = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if journal != "wal" or not there.issuperset(TABLES):
        return False
    (found,) = connection.execute("SELECT max(format) FROM freshline_format").fetchone()
    return bool(found == FORMAT)


def _translated(error: sqlite3.Error, path: str) -> StorageError:
    return StorageError(f"the control store {what_happened(str(error))}", where=path)
