"""The needs of a table between refreshes, decided on values.

Files are put together when reads gain more by it than it costs; files and commits go when nobody needs them any more.
No clock decides that something is due: a table that nobody writes to is left alone.

Versions of a table's past are needed by its history, by savepoints, by consumers who have yet to read changes, and by
tables that have yet to read them. A point needs one version, a reader every one from there on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

# Opening a file takes about so long, of a reader or of a refresh; putting files together so long for each of these.
OPEN_SECONDS = 0.005
REWRITE_SECONDS = 0.3
REWRITE_BYTES_A_SECOND = 20 << 20
# Files are put together when so many reads gain what it costs.
READS = 100
# Fewer are never put together: merges touch some files each time, and would find one large one instead.
LEAST_FILES = 20
# Files of this size are left as they are. Whoever changes a row of a file writes all of it again, so it is not larger.
FULL_FILE_BYTES = 16 << 20
# So many files or bytes that nobody needs are worth a search for them.
LEAST_REMOVED_FILES = 50
LEAST_REMOVED_BYTES = 64 << 20
# So many commits that nobody needs are worth removing.
LEAST_COMMITS = 100
# Files are written, and marked as removed, some time before the commit that says so.
MARGIN = timedelta(hours=1)


@dataclass(frozen=True)
class FileSizes:
    """The files of the newest version: how many there are, those that are not full, and the bytes of these.

    `parts` is the number of partitions that files which are not full are in: at least so many are left.
    """

    files: int
    small: int
    small_bytes: int
    parts: int = 1


def is_worth_compacting(sizes: FileSizes, reads: int = READS) -> bool:
    """Whether putting small files together is paid back by what reads gain.

    >>> is_worth_compacting(FileSizes(files=19, small=19, small_bytes=1000))
    False
    >>> is_worth_compacting(FileSizes(files=24, small=24, small_bytes=1000))
    True
    >>> is_worth_compacting(FileSizes(files=24, small=24, small_bytes=2 << 30))
    False
    """
    left = max(sizes.parts, -(-sizes.small_bytes // FULL_FILE_BYTES))
    gone = sizes.small - left
    if gone < LEAST_FILES:
        return False
    cost = REWRITE_SECONDS + sizes.small_bytes / REWRITE_BYTES_A_SECOND
    return gone * OPEN_SECONDS * reads >= cost


@dataclass(frozen=True)
class Needs:
    """The versions of a table's past that are needed: single ones, and those from which on every one is."""

    points: frozenset[int] = frozenset()
    readers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RetainedPast:
    """The part of a table's past that is kept.

    Every version from `floor` on can be read, and its changes from there on; so can `points`. Files that were removed
    from the table after `removed_after` stay. Of the log, everything from `log_floor` on stays.
    """

    floor: int
    points: frozenset[int]
    removed_after: datetime
    log_floor: int


def what_to_keep(
    commits: Sequence[tuple[int, datetime]], needs: Needs, history: timedelta, now: datetime
) -> RetainedPast:
    """The part of a table's past to keep. `commits` are the versions whose commits are there, oldest first, with times.

    >>> from datetime import UTC
    >>> day = lambda number: datetime(2026, 11, number, tzinfo=UTC)
    >>> commits = [(version, day(version + 1)) for version in range(10)]
    >>> what_to_keep(commits, Needs(), timedelta(days=4), day(11)).floor
    6
    >>> kept = what_to_keep(commits, Needs(points=frozenset([2]), readers=frozenset([4])), timedelta(days=3), day(11))
    >>> kept.floor, kept.log_floor, str(kept.removed_after)
    (4, 2, '2026-11-05 23:00:00+00:00')
    """
    newest = commits[-1][0]
    times = dict(commits)
    since = now - history
    # The version that was the newest at the beginning of the history belongs to it.
    old = [version for version, at in commits if at <= since]
    history_floor = old[-1] if old else commits[0][0]
    floor = min([newest, history_floor, *needs.readers])
    later = [at for version, at in commits if version > floor]
    removed_after = min([since, *later]) - MARGIN
    if floor not in times and floor < commits[0][0]:
        # It is gone already; nothing more goes.
        floor = commits[0][0]
    points = frozenset(point for point in needs.points if point < floor)
    return RetainedPast(floor, points, removed_after, min([floor, *points]))


def commits_to_remove(versions: Iterable[int], checkpoints: Iterable[int], log_floor: int) -> tuple[int, ...]:
    """The commits that are not needed to read any version from `log_floor` on, oldest first.

    They are those before the newest checkpoint that is not above it. None where they are too few to be worth it.

    >>> commits_to_remove(range(300), [50, 100, 150, 200, 250], 160)[-1]
    149
    >>> commits_to_remove(range(300), [50, 100, 150], 99)
    ()
    """
    usable = [checkpoint for checkpoint in checkpoints if checkpoint <= log_floor]
    if not usable:
        return ()
    found = tuple(sorted(version for version in versions if version < max(usable)))
    return found if len(found) >= LEAST_COMMITS else ()


def retention(history: timedelta, oldest_need: datetime | None, now: datetime) -> timedelta:
    """The time that Delta must allow readers to go back: the history, or to the oldest need, with a day to spare.

    In whole days beyond the history, so that a table's properties are not written all the time.

    >>> from datetime import UTC
    >>> now = datetime(2026, 11, 11, tzinfo=UTC)
    >>> retention(timedelta(days=2), None, now).days
    2
    >>> retention(timedelta(days=2), datetime(2026, 11, 1, tzinfo=UTC), now).days
    16
    """
    if oldest_need is None or now - oldest_need + timedelta(days=1) <= history:
        return history
    days = (now - oldest_need).days + 2
    # Doubling: the need grows older every day.
    whole = 1
    while whole < days:
        whole *= 2
    return max(history, timedelta(days=whole))
