"""A post is on disk when its file has its last name, and file and folder are flushed. Only then it is answered.

A file appears whole: it is written under a name that readers pass over, and renamed. Stopped before the renaming, a
post is not there. Stopped behind it, it is there and was not answered, and the client sends it again.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

# Left free on the disk: the warehouse may be on the same one, and a full disk stops every table.
RESERVE_BYTES = 256 << 20
# A part of this age is of a process that was killed: a post is written in less than that.
_DEAD_SECONDS = 3600.0
# Readers of a landing folder pass over names that begin with a dot.
_PART = ".post-"
# Where people put files that were read: readers pass over the folder, and a key whose file is there is known.
READ = "_read"


class ReusedKeyError(ValueError):
    """Another post has the same idempotency key, and its body was another one."""


class Landing:
    """The folders in which posts land. One object is for all sources of an engine: it orders what they write."""

    def __init__(self, *, failpoint: Callable[[str], None] = lambda _: None, reserve: int = RESERVE_BYTES) -> None:
        self.failpoint = failpoint
        self._reserve = reserve
        self._lock = threading.Lock()
        self._last = 0
        self._prepared: set[Path] = set()

    def land(self, folder: Path, data: bytes, ending: str, key: str | None) -> bool:
        """Put a file with these bytes into the folder of a source. True where its key had brought it in before.

        Raises ReusedKeyError, FileNotFoundError where the folder around that of the source is not there, and other
        OSErrors. Then nothing is stored, or it is not known whether it is durable: another try with the same key is
        right in both cases.
        """
        self._prepare(folder)
        part = folder / f"{_PART}{uuid4().hex}"
        try:
            moment = self._write(part, data)
            name = (
                f"post-{moment}-{uuid4().hex[:16]}"
                if key is None
                else f"key-{hashlib.sha256(key.encode()).hexdigest()}"
            )
            is_new = self._appear(part, folder / f"{name}{ending}", data)
        finally:
            part.unlink(missing_ok=True)
        # Also for a file that was there: whoever put it there may have been killed before this.
        _flush(folder)
        self.failpoint("post-stored")
        return not is_new

    def _prepare(self, folder: Path) -> None:
        """Make the folder of a source, and remove what killed processes left in it."""
        if folder in self._prepared and folder.is_dir():
            return
        if not folder.is_dir():
            # Not those around it: where a disk is away, posts would go to the one below.
            folder.mkdir(exist_ok=True)
            _flush(folder.parent)
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(_PART):
                    # One that others write is renamed meanwhile.
                    with suppress(FileNotFoundError):
                        if entry.stat().st_mtime < time.time() - _DEAD_SECONDS:
                            Path(entry.path).unlink()
        self._prepared.add(folder)

    def _write(self, part: Path, data: bytes) -> int:
        if shutil.disk_usage(part.parent).free < self._reserve + len(data):
            raise OSError(errno.ENOSPC, "the disk has no space left but its reserve")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            moment = self._moment()
            # Files are read in the order of these times, and those that a file system gives are some milliseconds long.
            os.utime(handle, ns=(moment, moment))
            os.fsync(file.fileno())
        self.failpoint("post-written")
        return moment

    def _moment(self) -> int:
        """The time now in nanoseconds; every call gives a later one."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns())
            return self._last

    def _appear(self, part: Path, file: Path, data: bytes) -> bool:
        """Give a written file its last name, unless there is one; whether there was none. Raises ReusedKeyError."""
        # Between the check and the renaming nobody else may put a file there.
        with self._lock:
            stored = _stored(file)
            if stored is None:
                part.rename(file)
        if stored is None:
            self.failpoint("post-renamed")
        elif stored != data:
            raise ReusedKeyError
        return stored is None


def _stored(file: Path) -> bytes | None:
    """The bytes of a file, in its place or among the files that were read; None where there is none."""
    # It may be moved between two of these reads, in either direction.
    for place in (file, file.parent / READ / file.name, file):
        with suppress(FileNotFoundError):
            return place.read_bytes()
    return None


def _flush(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
