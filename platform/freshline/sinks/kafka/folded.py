"""The state that records of a topic leave, in a file that is gone with the process.

A topic is read from its beginning to its end, and the newest record of each key counts. There may be more keys than
memory has room for, so they are in a table of SQLite, which has a temporary file of its own.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, repeat
from typing import ClassVar

_MEMORY_KB = 65_536
_ROWS = 20_000
# The newest by time, because a key may be in two partitions after a topic got more of them.
_ADD = """
INSERT INTO state (key, partition, at, value) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE
SET partition = excluded.partition, at = excluded.at, value = excluded.value WHERE excluded.at >= at
"""


@dataclass(frozen=True)
class Recorded:
    """A record of a topic: its key, partition, time in milliseconds, and value, which is None for a tombstone."""

    key: bytes
    partition: int
    at: int
    value: bytes | None


class _Table:
    """A table of SQLite without a name."""

    made: ClassVar[str]

    def __init__(self) -> None:
        # Without a name it is in a file that has no name either, and only while memory does not suffice.
        self._database = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._database.execute(f"PRAGMA cache_size = -{_MEMORY_KB}")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute(self.made)

    def close(self) -> None:
        """Let go of the file."""
        self._database.close()

    def _within(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        self._database.execute("BEGIN")
        self._database.executemany(statement, rows)
        self._database.execute("COMMIT")


class Folded(_Table):
    """The newest record of each key."""

    made = "CREATE TABLE state (key BLOB PRIMARY KEY, partition INT, at INT, value BLOB, is_kept INT DEFAULT 0)"

    def add(self, records: Iterable[Recorded]) -> None:
        """Add records in the order in which they are in their partitions."""
        self._within(_ADD, [(each.key, each.partition, each.at, each.value) for each in records])

    def find(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The newest values of keys, None for one that is not there."""
        asked = self._database.execute
        found = [asked("SELECT value FROM state WHERE key = ?", (key,)).fetchone() for key in keys]
        return [None if row is None else row[0] for row in found]

    def keep(self, keys: Iterable[bytes]) -> None:
        """Say that these keys belong there."""
        self._within("UPDATE state SET is_kept = 1 WHERE key = ?", [(key,) for key in keys])

    def left(self) -> Iterator[tuple[bytes, int, bytes]]:
        """The keys that have a value and do not belong there, with their partitions and values."""
        asked = "SELECT key, partition, value FROM state WHERE value IS NOT NULL AND is_kept = 0"
        yield from self._database.execute(asked)

    def values(self) -> Iterator[list[bytes]]:
        """All values that are there, some at a time."""
        found = self._database.execute("SELECT value FROM state WHERE value IS NOT NULL")
        while rows := found.fetchmany(_ROWS):
            yield [row[0] for row in rows]


class Counted(_Table):
    """Rows without a key, and how many of each there are."""

    made = "CREATE TABLE state (value BLOB PRIMARY KEY, count INT)"

    def add(self, rows: Iterable[tuple[bytes, int]]) -> None:
        """Add rows that came (1) or went (-1)."""
        added = "INSERT INTO state VALUES (?, ?) ON CONFLICT (value) DO UPDATE SET count = count + excluded.count"
        self._within(added, list(rows))

    def take(self, row: bytes) -> bool:
        """Take one of these rows; False where there is none left."""
        taken = "UPDATE state SET count = count - 1 WHERE value = ? AND count > 0"
        return self._database.execute(taken, (row,)).rowcount == 1

    def left(self) -> Iterator[bytes]:
        """The rows that are there and were not taken, each as often as it is."""
        for value, count in self._database.execute("SELECT value, count FROM state WHERE count > 0"):
            yield from repeat(value, count)

    def values(self) -> Iterator[list[bytes]]:
        """The same, some at a time."""
        left = self.left()
        while rows := list(islice(left, _ROWS)):
            yield rows
