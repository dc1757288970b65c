"""The landing directory of a files source: which files are complete, and which were read already.

Names that begin with `_` or `.` are not data, and links are not followed unless the source says so. A file is complete
when it has not been written to or renamed for `settle` seconds (the later of its modification and status change times,
so that a rename or a copy that keeps times counts too; a modification time in the future does not count). Nothing here
opens a file.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from freshline.errors import FileChangedError, SourceError
from freshline.sources.files.position import FileMark


@dataclass(frozen=True)
class Listing:
    """The files of a directory when it was listed.

    `started` is the time before the first entry was read: everything that was complete then is in `complete`.
    `unsettled` are files that may still be written. Both are in the order of modification time, then path.
    `passed_over` are entries that are not read, each with the reason: links, names that are no UTF-8, folders that
    cannot be listed.
    """

    started: datetime
    complete: tuple[FileMark, ...]
    unsettled: tuple[FileMark, ...]
    passed_over: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Unread:
    """The difference between a listing and what was read before: new files in order, and files that changed since."""

    new: tuple[FileMark, ...]
    changed: tuple[FileChangedError, ...]


def list_landing(root: Path, settle_seconds: float, now: datetime, *, follow_links: bool = False) -> Listing:
    """List the directory and its folders. Raises SourceError where it is not there or cannot be read."""
    complete: list[FileMark] = []
    unsettled: list[FileMark] = []
    settled_before = (now.timestamp() - settle_seconds) * 1e9
    passed_over: list[tuple[str, str]] = []
    for path, status in _files(root, follow_links, passed_over):
        mark = FileMark(path, status.st_size, status.st_mtime_ns)
        # A time that is yet to come was written by another clock: only the change of its status is of this one.
        modified = status.st_mtime_ns if status.st_mtime_ns <= now.timestamp() * 1e9 else 0
        touched = max(modified, status.st_ctime_ns)
        (complete if settle_seconds <= 0 or touched <= settled_before else unsettled).append(mark)
    return Listing(now.astimezone(UTC), _ordered(complete), _ordered(unsettled), tuple(sorted(passed_over)))


def _ordered(marks: list[FileMark]) -> tuple[FileMark, ...]:
    return tuple(sorted(marks, key=lambda mark: (mark.modified_ns, mark.path)))


@dataclass(frozen=True)
class _Folder:
    """A folder to list; `within` are the device and number of it and of those that it is in."""

    path: Path
    within: frozenset[tuple[int, int]]


def _files(root: Path, follow_links: bool, passed_over: list[tuple[str, str]]) -> Iterator[tuple[str, os.stat_result]]:
    try:
        status = root.stat()
        pending = [_Folder(root, frozenset([(status.st_dev, status.st_ino)]))]
        os.scandir(root).close()
    except FileNotFoundError as error:
        raise SourceError(
            f"the landing directory {root} does not exist. Create it, or correct `path`.", where=str(root)
        ) from error
    except OSError as error:
        raise SourceError(f"the landing directory {root} cannot be listed: {error}", where=str(root)) from error
    while pending:
        folder = pending.pop()
        try:
            with os.scandir(folder.path) as entries:
                for entry in entries:
                    yield from _file(root, folder, entry, follow_links, pending, passed_over)
        except FileNotFoundError:
            # Moved away between the listing and this check: nothing in it was complete.
            continue
        except OSError as error:
            passed_over.append((_relative(root, folder.path), f"the folder cannot be listed: {error.strerror}"))


def _file(
    root: Path,
    folder: _Folder,
    entry: os.DirEntry[str],
    follow_links: bool,
    pending: list[_Folder],
    passed_over: list[tuple[str, str]],
) -> Iterator[tuple[str, os.stat_result]]:
    """The file that an entry is, if it is one; a folder is added to those that are pending."""
    if entry.name.startswith(("_", ".")):
        return
    try:
        entry.name.encode()
    except UnicodeEncodeError:
        name = os.fsencode(_relative(root, Path(entry.path))).decode(errors="backslashreplace")
        passed_over.append((name, "the name is no UTF-8, so it is not read. Rename it."))
        return
    relative = _relative(root, Path(entry.path))
    if entry.is_symlink() and not follow_links:
        passed_over.append(
            (
                relative,
                "it is a link, and links are not followed. Move the file itself, or set 'follow-links' = 'true'.",
            )
        )
        return
    try:
        status = entry.stat(follow_symlinks=follow_links)
    except FileNotFoundError:
        # Moved away between the listing and this check, or a link to nothing: it is not complete.
        return
    except OSError as error:
        passed_over.append((relative, f"it cannot be inspected: {error.strerror}"))
        return
    if stat.S_ISDIR(status.st_mode):
        place = (status.st_dev, status.st_ino)
        if place in folder.within:
            passed_over.append((relative, "it is a link to a folder that it is in itself, so it is not followed."))
        else:
            pending.append(_Folder(Path(entry.path), folder.within | {place}))
    elif stat.S_ISREG(status.st_mode):
        # A pipe or a socket would be waited for without an end.
        yield relative, status


def _relative(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def find_unread(root: Path, marks: tuple[FileMark, ...], known: Mapping[str, FileMark]) -> Unread:
    """The listed files that were never read, and those that have changed since they were read."""
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
