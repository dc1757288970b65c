"""The landing directory of a files source: which files are complete, and which were read already.

Names that begin with `_` or `.` are not data. A file is complete when it has not been written to or renamed for
`settle` seconds (the later of its modification and status change times, so that a rename or a copy that keeps
times counts too; a modification time in the future does not count). Nothing here opens a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from freshline.errors import FileChangedError, SourceError
from freshline.plan.position import FileMark


@dataclass(frozen=True)
class Listing:
    """What a directory held when it was listed.

    `started` is the time before the first entry was read: everything that was complete then is in `complete`.
    `unsettled` are files that may still be written. Both are in the order of modification time, then path. `unnamed`
    are names that are no UTF-8, by which no file can be read.
    """

    started: datetime
    complete: tuple[FileMark, ...]
    unsettled: tuple[FileMark, ...]
    unnamed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unread:
    """The difference between a listing and what was read before: new files in order, and files that changed since."""

    new: tuple[FileMark, ...]
    changed: tuple[FileChangedError, ...]


def list_landing(root: Path, settle_seconds: float, now: datetime) -> Listing:
    """List the directory and its folders. Raises SourceError where it is not there or cannot be read."""
    complete: list[FileMark] = []
    unsettled: list[FileMark] = []
    settled_before = (now.timestamp() - settle_seconds) * 1e9
    unnamed: list[str] = []
    for path, status in _files(root, unnamed):
        mark = FileMark(path, status.st_size, status.st_mtime_ns)
        # A time that is yet to come was written by another clock: only the change of its status is of this one.
        modified = status.st_mtime_ns if status.st_mtime_ns <= now.timestamp() * 1e9 else 0
        touched = max(modified, status.st_ctime_ns)
        (complete if settle_seconds <= 0 or touched <= settled_before else unsettled).append(mark)
    return Listing(now.astimezone(UTC), _ordered(complete), _ordered(unsettled), tuple(sorted(unnamed)))


def _ordered(marks: list[FileMark]) -> tuple[FileMark, ...]:
    return tuple(sorted(marks, key=lambda mark: (mark.modified_ns, mark.path)))


def _files(root: Path, unnamed: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    try:
        pending = [root]
        while pending:
            folder = pending.pop()
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.name.startswith(("_", ".")):
                        continue
                    try:
                        entry.name.encode()
                    except UnicodeEncodeError:
                        unnamed.append(os.fsencode(entry.name).decode(errors="backslashreplace"))
                        continue
                    if entry.is_dir():
                        pending.append(Path(entry.path))
                        continue
                    try:
                        status = entry.stat()
                    except FileNotFoundError:
                        # Moved away between the listing and the look at it: it was not complete.
                        continue
                    if not stat.S_ISREG(status.st_mode):
                        # A pipe or a socket would be waited for without an end.
                        continue
                    yield Path(entry.path).relative_to(root).as_posix(), status
    except FileNotFoundError as error:
        raise SourceError(
            f"the landing directory {root} does not exist. Create it, or correct `path`.", where=str(root)
        ) from error
    except OSError as error:
        raise SourceError(f"the landing directory {root} cannot be listed: {error}", where=str(root)) from error


def find_unread(root: Path, marks: tuple[FileMark, ...], known: Mapping[str, FileMark]) -> Unread:
    """Which of the listed files were never read, and which are no longer what was read."""
    new: list[FileMark] = []
    changed: list[FileChangedError] = []
    for mark in marks:
        read = known.get(mark.path)
        if read is None:
            new.append(mark)
        elif read != mark:
            changed.append(
                FileChangedError(
                    f"the file changed after it was read: then {read.size} bytes, now {mark.size}, modified "
                    f"{datetime.fromtimestamp(mark.modified_ns / 1e9, UTC):%Y-%m-%d %H:%M:%S}Z. "
                    "Its rows stay as they were read. Write new records to a file with a new name.",
                    where=str(root / mark.path),
                )
            )
    return Unread(tuple(new), tuple(changed))
