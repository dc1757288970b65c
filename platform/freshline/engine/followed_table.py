"""A table that is followed: its versions as they come, looked for once for all who follow it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from freshline.commit.delta_log import commit_digest, commit_file, newest_version, open_table, table_id
from freshline.engine.reading import StoredTable
from freshline.errors import FreshlineError, ReadError
from freshline.plan.place import FollowedPlace, mark_of_table
from freshline.reads.rows import own_columns

_REMEMBERED = 200


@dataclass(frozen=True)
class FollowedVersion:
    """A version of a table: the place behind it, the columns that readers see, and the facts of its commit's file."""

    place: FollowedPlace
    columns: tuple[str, ...]
    facts: tuple[int, int, int] | None


class TableWatch:
    """The versions of one table, looked for while somebody follows it.

    `generation` grows when the table is another one, or has other commits, than those that were seen.
    """

    def __init__(self, table: StoredTable, run: Callable[..., Awaitable[Any]], seconds: float) -> None:
        self.generation = 0
        self._table, self._run, self._seconds = table, run, seconds
        self._newest: FollowedVersion | None = None
        self._error: FreshlineError | None = None
        self._versions: OrderedDict[int, FollowedVersion] = OrderedDict()
        self._changed = asyncio.Event()
        self._followers = 0
        self._task: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self._followers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    def leave(self) -> bool:
        """Whether nobody follows the table any more."""
        self._followers -= 1
        if self._followers == 0 and self._task is not None:
            self._task.cancel()
        return self._followers == 0

    async def other_than(self, version: int, seconds: float) -> int | None:
        """The newest version as soon as it is another one, None where it is not within so long.

        Raises ReadError where there is no table any more, and SourceError where its log cannot be read.
        """
        if self._error is None and (self._newest is None or self._newest.place.version == version):
            try:
                await asyncio.wait_for(self._changed.wait(), seconds)
            except TimeoutError:
                if self._task is not None and self._task.done():
                    # Nobody would be told of a new version any more.
                    self._task.result()
                return None
        if self._error is not None:
            raise self._error
        assert self._newest is not None
        newest = self._newest.place.version
        return None if newest == version else newest

    async def version(self, number: int) -> FollowedVersion:
        """A version, which is read once for all. Raises ReadError where it is gone."""
        found = self._versions.get(number)
        if found is None:
            generation = self.generation
            found = await self._run(version_of, self._table, number)
            if generation == self.generation:
                self._remember(found)
        return found

    def _remember(self, version: FollowedVersion) -> None:
        self._versions[version.place.version] = version
        if len(self._versions) > _REMEMBERED:
            self._versions.popitem(last=False)

    async def _follow(self) -> None:
        while True:
            try:
                newest, is_other = await self._run(_look, self._table, self._newest)
                error: FreshlineError | None = None
            except FreshlineError as failure:
                newest, is_other, error = self._newest, False, failure
            if is_other:
                self.generation += 1
                self._versions.clear()
            if newest is not self._newest or str(error) != str(self._error):
                self._newest, self._error = newest, error
                if newest is not None:
                    self._remember(newest)
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()
            await asyncio.sleep(self._seconds)


def require_same(table: StoredTable, place: FollowedPlace) -> None:
    """The version of a place is the one that was read, of the same table. Raises ReadError."""
    where = str(table.name)
    if place.table and place.table != mark_of_table(table_id(table.path)):
        raise ReadError(
            f"position {place} is one of another table, which had this name. Begin anew with `from=beginning`.",
            where=where,
        )
    there = commit_digest(table.path, place.version) if place.commit else None
    if there is not None and there != place.commit:
        raise ReadError(
            f"position {place} is one of another commit: the log of the table had lost its newest commits. Begin anew "
            "with `from=beginning`.",
            where=where,
        )


def _look(table: StoredTable, known: FollowedVersion | None) -> tuple[FollowedVersion, bool]:
    """The newest version, `known` itself where it still is, and whether the table has other commits than it had."""
    newest = newest_version(table.path)
    if newest is None:
        raise ReadError("the table is gone.", where=str(table.name))
    if known is None:
        return version_of(table, newest), False
    # Each time: a table that was made anew may have as many versions.
    if newest == known.place.version and _facts(table, newest) == known.facts:
        return known, False
    there = commit_digest(table.path, known.place.version)
    is_other = newest < known.place.version or (there is not None and there != known.place.commit)
    found = version_of(table, newest)
    return found, is_other or found.place.table != known.place.table


def version_of(table: StoredTable, number: int) -> FollowedVersion:
    """A version as it is now. Raises ReadError where its commit is gone."""
    # Before the commit is read: where it is another one a moment later, the facts show that.
    facts = _facts(table, number)
    commit = commit_digest(table.path, number)
    if commit is None:
        raise ReadError(f"the commit of version {number} is no longer in the log. Begin anew.", where=str(table.name))
    opened = open_table(table.path, number)
    place = FollowedPlace(number, mark_of_table(str(opened.metadata().id)), commit)
    return FollowedVersion(place, tuple(own_columns(opened)), facts)


def _facts(table: StoredTable, number: int) -> tuple[int, int, int] | None:
    """The facts of the file of a commit in the file system, by which another one of its number is seen."""
    try:
        found = commit_file(table.path, number).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
