"""Reads of a table: the rows of one version, the changes between two, or the one and then the other.

The modes have the names that other systems use. A read is decided here on what the table's log has, before anything is
read, so that what is no longer there is an error with a sentence, never fewer rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, assert_never

from freshline.errors import UNREADABLE, FormatError, ReadError, require_format, shown_problem
from freshline.values.json import from_json, to_json

FORMAT = 1
DEFAULT_EXPIRY_DAYS = 30


class ReadMode(StrEnum):
    """The beginning of a read. The first three hand out rows first, the others changes only."""

    LATEST_FULL = "latest-full"  # the newest rows, then changes
    AS_OF = "as-of"  # the rows of a version, a time or a savepoint; no changes
    FROM_VERSION_FULL = "from-version-full"  # the rows of a version, then changes
    LATEST = "latest"  # changes from now on
    FROM_TIMESTAMP = "from-timestamp"  # changes committed at that time or later
    FROM_VERSION = "from-version"  # the changes of that version and of later ones
    INCREMENTAL_BETWEEN = "incremental-between"  # the changes after one version up to another


@dataclass(frozen=True)
class Read:
    """The versions to read: the rows of `rows`, and the changes after version `after` up to `to`; each may be None.

    `then` is the version after which a reader that goes on begins, None for a read that has an end.
    """

    rows: int | None
    after: int | None
    to: int | None
    then: int | None


@dataclass(frozen=True)
class LogHistory:
    """The content of a table's log: its commits, oldest first, with the times at which they were made.

    `first` is the oldest version whose rows can be read: there is a checkpoint, or every commit from version 0 on.
    """

    table: str
    commits: Sequence[tuple[int, datetime]]
    first: int

    @property
    def newest(self) -> int:
        return self.commits[-1][0]

    def version_at(self, moment: datetime) -> int:
        """The newest version at a time. Raises ReadError for a time before the first one."""
        found = [version for version, at in self.commits if at <= moment]
        if not found:
            first = self.commits[0]
            raise ReadError(
                f"{_text(moment)} is before the oldest version that there is: version {first[0]} of {_text(first[1])}. "
                "Give a later time.",
                where=self.table,
            )
        return found[-1]

    def require_rows(self, version: int) -> int:
        """The version, whose rows the log still has. Raises ReadError."""
        self._require_known(version)
        if version < self.first:
            raise ReadError(
                f"version {version} is no longer in the log; the oldest is {self.first}. {_KEEPING}", where=self.table
            )
        return version

    def require_changes(self, after: int, to: int) -> None:
        """Every change after one version up to another is still in the log. Raises ReadError."""
        self._require_known(to)
        if after < -1 or after > to:
            raise ReadError(
                f"{after} to {to} is no range of versions: the first is not above the second.", where=self.table
            )
        there = {version for version, _ in self.commits}
        gone = [version for version in range(after + 1, to + 1) if version not in there]
        if gone:
            raise ReadError(
                f"the changes of versions {gone[0]} to {gone[-1]} are no longer in the log. {_KEEPING} "
                "Read its rows anew, as `latest-full`.",
                where=self.table,
            )

    def _require_known(self, version: int) -> None:
        if not 0 <= version <= self.newest:
            raise ReadError(f"there is no version {version}; the newest is {self.newest}.", where=self.table)


_KEEPING = "A longer `history`, a savepoint or a registered consumer keeps them."


def plan_read(
    mode: ReadMode,
    history: LogHistory,
    *,
    version: int | None = None,
    to: int | None = None,
    moment: datetime | None = None,
) -> Read:
    """The versions that a mode reads of a table as its log is now. Raises ReadError.

    `version` and `moment` say where `as-of`, `from-version`, `from-version-full`, `from-timestamp` and
    `incremental-between` begin; `to` is where the last one ends (default: the newest version).

    >>> day = lambda number: datetime(2026, 11, number, tzinfo=UTC)
    >>> history = LogHistory("t", [(version, day(version + 1)) for version in range(5)], 0)
    >>> plan_read(ReadMode.LATEST_FULL, history)
    Read(rows=4, after=None, to=None, then=4)
    >>> plan_read(ReadMode.FROM_TIMESTAMP, history, moment=day(3))
    Read(rows=None, after=1, to=4, then=4)
    >>> plan_read(ReadMode.INCREMENTAL_BETWEEN, history, version=1, to=3)
    Read(rows=None, after=1, to=3, then=None)
    """
    newest = history.newest
    match mode:
        case ReadMode.LATEST_FULL:
            return Read(newest, None, None, newest)
        case ReadMode.LATEST:
            return Read(None, None, None, newest)
        case ReadMode.AS_OF:
            at = history.version_at(moment) if moment is not None else _given(version, mode, history)
            return Read(history.require_rows(at), None, None, None)
        case ReadMode.FROM_VERSION_FULL:
            at = history.require_rows(_given(version, mode, history))
            history.require_changes(at, newest)
            return Read(at, at, newest, newest)
        case ReadMode.FROM_VERSION:
            at = _given(version, mode, history)
            history.require_changes(at - 1, newest)
            return Read(None, at - 1, newest, newest)
        case ReadMode.FROM_TIMESTAMP:
            if moment is None:
                raise ReadError(f"`{mode}` needs a timestamp.", where=history.table)
            if moment < history.commits[0][1] and history.commits[0][0] > 0:
                history.version_at(moment)
            before = [number for number, at in history.commits if at < moment]
            after = before[-1] if before else -1
            history.require_changes(after, newest)
            return Read(None, after, newest, newest)
        case ReadMode.INCREMENTAL_BETWEEN:
            after = _given(version, mode, history)
            end = newest if to is None else to
            history.require_changes(after, end)
            return Read(None, after, end, None)
    assert_never(mode)


def _given(version: int | None, mode: ReadMode, history: LogHistory) -> int:
    if version is None:
        raise ReadError(f"`{mode}` needs a version.", where=history.table)
    return version


@dataclass(frozen=True)
class Consumer:
    """Somebody who reads the changes of a table, and has read them up to `version`.

    Changes after it are kept until `expires_at`, which moves on by `expiry_seconds` whenever the consumer does. With
    `rows_first` it has yet to read the rows of `version`. `commit` is the digest of that version's commit, None where
    it is not known.
    """

    name: str
    table: str
    table_id: str
    version: int
    expiry_seconds: int
    moved_at: datetime
    expires_at: datetime
    rows_first: bool = False
    commit: str | None = None

    def is_expired(self, now: datetime) -> bool:
        return now >= self.expires_at

    def as_json(self) -> dict[str, Any]:
        return {"freshline_consumer": FORMAT, **to_json(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any], where: str) -> Consumer:
        """The inverse of `as_json`. Raises FormatError for a newer format, and for a file that is damaged."""
        require_format(value.get("freshline_consumer"), FORMAT, "the consumer", where)
        try:
            consumer: Consumer = from_json(value, cls)
            return consumer
        except UNREADABLE as error:
            raise FormatError(
                f"the consumer is damaged ({shown_problem(error)}). Somebody changed the file: put it back, or remove "
                "it, and the consumer begins anew.",
                where=where,
            ) from error


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
