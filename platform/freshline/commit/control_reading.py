"""The control store as `plan`, `status` and everyone else read it, and its file opened without SQLAlchemy.

The import of SQLAlchemy takes longer than the rest of `status`. So the statements here are texts, which a `StoreFile`
answers by Python's own module and a `Database` by SQLAlchemy. Only a file of SQLite that is as this freshline writes it
is opened as a StoreFile. Every other store, and one that has to be made, is opened by ControlStore.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from freshline.commit.control_rows import (
    FORMAT,
    TABLES,
    heartbeat_of,
    key_of,
    median,
    percentile_95,
    record_of,
    split_seconds,
    time_of,
    time_or_none,
)
from freshline.errors import StorageError
from freshline.freshness.intentions import FreshnessOverride, Intentions, Suspension
from freshline.freshness.record import Check, Heartbeat
from freshline.plan.request import BACKFILL
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import DECISIONS, RefreshResult, State, Strategy

# Another process that writes locks the database for milliseconds; this is for a machine that is overloaded.
BUSY_SECONDS = 20.0
_SQLITE = "sqlite:///"
# Options of the driver, such as `?timeout=5&uri=true`.
_QUERY = re.compile(r"\?\w+=[^/?]*\Z")
_DECIDED = ", ".join(f"'{state}'" for state in sorted(DECISIONS))
# `key` is a word of SQL in some databases, and a name behind a point in all.
_LAST_REFRESHES = f"""
SELECT id, result FROM freshline_refresh WHERE id IN (
    SELECT max(id) FROM freshline_refresh
    WHERE state NOT IN ({_DECIDED}) AND NOT (coalesce(cause, '') = '{BACKFILL}' AND state != '{State.SUCCEEDED}')
    GROUP BY freshline_refresh.key
)
"""
# Of how many of the newest commits of a table the seconds are asked for.
_COUNTED_REFRESHES = 50
# From so many on one slow refresh is not all of the 95th percentile.
_MANY_REFRESHES = 20
# The time of one partition of a backfill is no measure of what keeping the table fresh takes, nor is a commit without
# rows.
_NEWEST_SECONDS = f"""
SELECT name, version, seconds FROM (
    SELECT name, version, seconds,
        row_number() OVER (PARTITION BY freshline_refresh.key ORDER BY id DESC) AS place
    FROM freshline_refresh
    WHERE committed IS TRUE AND coalesce(cause, '') != '{BACKFILL}' AND coalesce(strategy, '') != '{Strategy.NOOP}'
) AS placed WHERE place <= {_COUNTED_REFRESHES}
"""
_SECONDS_OF_ONE = _NEWEST_SECONDS.replace("WHERE committed", "WHERE freshline_refresh.key = :key AND committed")

# Gives the rows of a statement, whose values stand in a mapping behind it.
Answer = Callable[..., Iterable[Any]]


class ReadableDatabase(Protocol):
    """A database that the control store is read from."""

    def answering(self) -> AbstractContextManager[Answer]:
        """A transaction that only reads. Raises StorageError."""

    def close(self) -> None:
        """Let go of the database."""


class ControlReader:
    """Reads all that is known and decided of the tables of one environment. Reading changes nothing."""

    def __init__(self, database: ReadableDatabase) -> None:
        self._database = database
        self.intentions = IntentionReader(database)
        self.heartbeats = HeartbeatReader(database)

    def close(self) -> None:
        """Let go of the database."""
        self._database.close()

    def checks(self) -> dict[TableName, Check]:
        """The newest check of each table and source."""
        with self._database.answering() as answer:
            rows = answer("SELECT name, data_timestamp, position, checked_at FROM freshline_check")
            return {TableName.parse(name): Check(time_of(at), known, time_of(seen)) for name, at, known, seen in rows}

    def last_refreshes(self) -> dict[TableName, RefreshResult]:
        """The newest refresh of each table, committed or not; that a backfill failed says nothing about the table."""
        with self._database.answering() as answer:
            records = [record_of(number, result) for number, result in answer(_LAST_REFRESHES)]
        return {record.table: record for record in records}

    def seconds_of(self, name: TableName) -> float | None:
        """The seconds of a refresh that commits: the 95th percentile of the newest; None where there was none yet.

        The first ones, which made the table, count only as long as there is no other.
        """
        later, first = self._newest_seconds(name).get(name, ([], []))
        return percentile_95(later or first)

    def seconds(self, name: TableName | None = None) -> dict[TableName, float]:
        """The seconds that a refresh of each table, or of one, surely takes: by this promises are judged.

        The 95th percentile of the newest that committed, the median where these are few: one of them may have had a
        cold engine. Commits that made a table do not count; tables with nothing else are missing.
        """
        return {
            table: seconds
            for table, (later, _) in self._newest_seconds(name).items()
            if (seconds := percentile_95(later) if len(later) >= _MANY_REFRESHES else median(later)) is not None
        }

    def _newest_seconds(self, name: TableName | None) -> dict[TableName, tuple[list[float], list[float]]]:
        with self._database.answering() as answer:
            if name is None:
                return split_seconds(answer(_NEWEST_SECONDS))
            return split_seconds(answer(_SECONDS_OF_ONE, {"key": key_of(name)}))


class IntentionReader:
    """The decisions about tables."""

    def __init__(self, database: ReadableDatabase) -> None:
        self._database = database

    def read(self) -> Intentions:
        """All that is in force or was when it was written: the caller must check `until` (see Intentions.at)."""
        with self._database.answering() as answer:
            ((generation,),) = answer("SELECT max(generation) FROM freshline_generation")
            overrides = [
                FreshnessOverride(TableName.parse(name), Freshness(seconds), by, time_of(at), time_or_none(until))
                for name, seconds, by, at, until in answer(
                    "SELECT name, freshness_seconds, decided_by, decided_at, until FROM freshline_override"
                )
            ]
            suspensions = [
                Suspension(TableName.parse(name), by, time_of(at), time_or_none(until), reason, bool(automatic))
                for name, by, at, until, reason, automatic in answer(
                    "SELECT name, decided_by, decided_at, until, reason, automatic FROM freshline_suspension"
                )
            ]
        return Intentions(
            int(generation or 0), {one.table: one for one in overrides}, {one.table: one for one in suspensions}
        )


class HeartbeatReader:
    """The heartbeats of processes."""

    def __init__(self, database: ReadableDatabase) -> None:
        self._database = database

    def read(self) -> dict[str, Heartbeat]:
        """The newest heartbeat of each name."""
        with self._database.answering() as answer:
            rows = answer("SELECT name, at, detail FROM freshline_heartbeat")
            return {name: heartbeat_of(at, detail) for name, at, detail in rows}


class StoreFile:
    """The file of a store, for one reading. For one thread, and not to be kept for long.

    Where another file takes the place of the store meanwhile, it goes on with the one that it opened.
    """

    def __init__(self, connection: sqlite3.Connection, path: str) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def open(cls, url: str) -> StoreFile | None:
        """The file of the store at a SQLAlchemy URL; None for one that ControlStore has to open.

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
    def answering(self) -> Iterator[Answer]:
        """A transaction that only reads. Raises StorageError."""
        try:
            self._connection.execute("BEGIN")
            try:
                yield self._connection.execute
            finally:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _translated(error, self._path) from error


def open_for_a_look(url: str, umask: int) -> ControlReader:
    """The store for one reading: without SQLAlchemy where possible. Raises as ControlStore.open does, and makes it."""
    found = StoreFile.open(url)
    if found is not None:
        return ControlReader(found)
    # Imported here: a StoreFile exists to do without it.
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
