"""The folder of a sink of files: which names are taken at once, and what a reader is pointed to.

A version is written under a hidden name. It gets the name `v=N` by one rename, which the system does whole or not at
all, and only when no folder of that name is there. So a number is given once. `CURRENT` names the newest version.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow import fs

from freshline.values.sink_position import SinkPosition

CURRENT, SUCCESS = "CURRENT", "_SUCCESS"
# Names that readers of folders leave out: what is being written, and what is being removed.
WRITING, REMOVING = "_writing-", "_removing-"
_LOCK = ".freshline-lock"
_LOCK_SECONDS, _LOCK_POLL = 30.0, 0.05
_VERSION = re.compile(r"v=(\d{1,18})")


@dataclass(frozen=True)
class Version:
    """A complete version: the name of its folder, and its note, which has the position."""

    number: int
    note: dict[str, Any]
    position: SinkPosition

    @property
    def name(self) -> str:
        return f"v={self.number}"

    def pointer(self) -> bytes:
        """The text of CURRENT."""
        return json.dumps({"folder": self.name, **self.note}, sort_keys=True).encode() + b"\n"


@dataclass(frozen=True)
class Found:
    """Everything in the folder: complete versions, the newest last, and other names."""

    versions: tuple[Version, ...]
    incomplete: tuple[str, ...]
    left_over: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def newest(self) -> Version | None:
        return self.versions[-1] if self.versions else None

    @property
    def next_number(self) -> int:
        """A number above all that were given, also by others."""
        numbers = [int(match[1]) for name in (*self.others, *self.incomplete) if (match := _VERSION.fullmatch(name))]
        return max((0, *numbers, *(version.number for version in self.versions))) + 1


class Folder:
    """A folder of a file system of pyarrow, such as HDFS.

    Its CURRENT is read again after it was replaced. An engine that sleeps in between may leave an older version
    there, until another one looks.
    """

    def __init__(self, system: fs.FileSystem, path: str) -> None:
        self.system = system
        self.path = path.rstrip("/")

    def at(self, name: str) -> str:
        """The path of a name in the folder."""
        return f"{self.path}/{name}"

    def look(self) -> Found:
        """The names that are there now, by their kinds."""
        self.require_answer()
        selector = fs.FileSelector(self.path, allow_not_found=True)
        versions, incomplete, left_over, others = [], [], [], []
        for info in self.system.get_file_info(selector):
            name = info.base_name
            match = _VERSION.fullmatch(name)
            if name in (CURRENT, _LOCK) or name.startswith(f".{CURRENT}-"):
                continue
            if name.startswith((WRITING, REMOVING)):
                left_over.append(name)
            elif match is None or info.type != fs.FileType.Directory:
                others.append(name)
            else:
                text = self._note_of(name)
                version = None if text is None else _version(int(match[1]), text)
                if text is None:
                    incomplete.append(name)
                elif version is None:
                    others.append(name)
                else:
                    versions.append(version)
        return Found(
            tuple(sorted(versions, key=lambda version: version.number)),
            tuple(sorted(incomplete)),
            tuple(sorted(left_over)),
            tuple(sorted(others)),
        )

    def require_answer(self) -> None:
        """Raises OSError where the system does not answer, which pyarrow takes for a path that is not there."""
        if self.system.get_file_info("/").type == fs.FileType.NotFound:
            raise OSError("HDFS does not answer; is its address right? Hadoop's reason is in the log of the engine")

    def _note_of(self, version: str) -> bytes | None:
        """The bytes of a version's note; None for a folder without one, which may be removed.

        So it is asked by a list of the folder, which is an error where the system does not answer.
        """
        try:
            names = {info.base_name for info in self.system.get_file_info(fs.FileSelector(self.at(version)))}
            if SUCCESS not in names:
                return None
            with self.system.open_input_stream(self.at(f"{version}/{SUCCESS}")) as stream:
                found: bytes = stream.read()
                return found
        except FileNotFoundError:
            # Another engine has taken it away.
            return None

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None where it is not there."""
        if self.system.get_file_info(self.at(name)).type != fs.FileType.File:
            # Asked first, because libhdfs prints a page for a file that it does not find.
            return None
        try:
            with self.system.open_input_stream(self.at(name)) as stream:
                found: bytes = stream.read()
                return found
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        """Write a file."""
        with self.system.open_output_stream(self.at(name)) as stream:
            stream.write(content)

    def begin(self) -> str:
        """A new folder under a hidden name."""
        name = f"{WRITING}{uuid4().hex}"
        self.system.create_dir(self.at(name), recursive=True)
        return name

    def publish(self, written: str, name: str) -> bool:
        """Give a complete folder its name; False where another one has it."""
        if self.system.get_file_info(self.at(name)).type != fs.FileType.NotFound:
            return False
        mine = self.read(f"{written}/{SUCCESS}")
        self.system.move(self.at(written), self.at(name))
        # Where the name was given in the meantime, HDFS puts the folder into the one that has it.
        self.remove(f"{name}/{written}")
        return self.read(f"{name}/{SUCCESS}") == mine

    def remove(self, name: str) -> None:
        """Remove a folder, or nothing where there is none."""
        if self.system.get_file_info(self.at(name)).type == fs.FileType.Directory:
            with suppress(FileNotFoundError):
                self.system.delete_dir(self.at(name))

    def take_away(self, version: str) -> None:
        """Remove a version, which goes as a whole: it loses its name first."""
        hidden = f"{REMOVING}{uuid4().hex}"
        with suppress(FileNotFoundError):
            self.system.move(self.at(version), self.at(hidden))
            self.remove(hidden)

    def point(self) -> None:
        """Let CURRENT name the newest version, if there is one."""
        with self._pointing():
            while (newest := self.look().newest) is not None and self.read(CURRENT) != newest.pointer():
                hidden = f".{CURRENT}-{uuid4().hex}"
                self.write(hidden, newest.pointer())
                self._replace(hidden, CURRENT)

    def _replace(self, name: str, other: str) -> None:
        self.system.move(self.at(name), self.at(other))

    @contextmanager
    def _pointing(self) -> Iterator[None]:
        yield


class LocalFolder(Folder):
    """A folder of this machine. CURRENT is replaced under a lock, so it never names an older version than before.

    Files are on the disk before they have their names, so a power cut takes away no version that was there.
    """

    def __init__(self, path: str) -> None:
        super().__init__(fs.LocalFileSystem(), path)

    def publish(self, written: str, name: str) -> bool:
        folder = Path(self.at(written))
        for file in folder.iterdir():
            _flush(file)
        _flush(folder)
        try:
            # Unlike pyarrow's, this replaces no folder that has something in it.
            folder.rename(self.at(name))
        except (FileExistsError, NotADirectoryError):
            return False
        except OSError:
            if Path(self.at(name)).exists():
                return False
            raise
        _flush(Path(self.path))
        return True

    def _replace(self, name: str, other: str) -> None:
        _flush(Path(self.at(name)))
        Path(self.at(name)).replace(self.at(other))
        _flush(Path(self.path))

    @contextmanager
    def _pointing(self) -> Iterator[None]:
        if not Path(self.path).is_dir():
            yield
            return
        with Path(self.at(_LOCK)).open("ab") as file:
            _wait_for(lambda: _try_lock(file.fileno()))
            yield


def open_folder(path: str, *, is_remote: bool) -> Folder:
    """The folder of a sink. Raises OSError where its system cannot be reached, ValueError for no address."""
    if not is_remote:
        return LocalFolder(path)
    scheme, _, rest = path.partition("://")
    host, _, within = rest.partition("/")
    # The path is one of any characters, which an address would have to escape.
    system, _ = fs.FileSystem.from_uri(f"{scheme}://{host}/")
    return Folder(system, f"/{within}")


def _version(number: int, text: bytes) -> Version | None:
    """The version of a note; None for one that somebody else wrote."""
    try:
        note = json.loads(text)
        return Version(number, note, SinkPosition.from_json(text.decode()))
    except (ValueError, KeyError, TypeError):
        return None


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + _LOCK_SECONDS
    while not is_done():
        if time.monotonic() > end:
            raise TimeoutError("another process replaces CURRENT, and does not end")
        time.sleep(_LOCK_POLL)
