"""A file that ends the process which reads it is known by that, and the others are read."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from freshline.errors import CancelledError, SourceError
from freshline.sources.files.contained import inspect_contained
from freshline.sources.files.lines import LineReading, PassingError
from freshline.sources.files.position import FileMark
from freshline.sources.files.separate_process import inspect_in_process
from freshline.sources.formats.container import Container, Contents
from freshline.sources.formats.fit import Wanted
from freshline.sources.formats.orc_files import OrcRows
from tests.typed_rows import aborting_orc_file, orc_file

pytestmark = pytest.mark.seconds

ORC = OrcRows(Wanted(pa.schema([("id", pa.int64())]), 1_000))


def marks(folder: Path, **contents: bytes) -> list[FileMark]:
    found = []
    for name, content in contents.items():
        file = folder / name
        file.write_bytes(content)
        status = file.stat()
        found.append(FileMark(name, status.st_size, status.st_mtime_ns))
    return found


def reading(folder: Path) -> LineReading:
    return LineReading("orc", 1_000, False, os.fsencode(folder))


def test_files_are_found_as_in_the_process_itself(tmp_path):
    there = marks(
        tmp_path,
        a=orc_file(pa.table({"id": range(5000)})),
        b=b"ORC and nothing else",
        c=b"",
        d=orc_file(pa.table({"other": ["x"], "naïve \n name": [1]})),
    )
    there.append(FileMark("a", 1, 1))

    found = inspect_in_process(tmp_path, there, ORC, reading(tmp_path))

    assert found == inspect_contained(tmp_path, there, ORC, reading(tmp_path))
    assert [(each.lines, each.error, each.changed) for each in found[:1] + found[-1:]] == [
        (5000, None, False),
        (0, None, True),
    ]


def test_a_file_that_ends_the_process_is_unreadable_and_the_others_are_read(tmp_path):
    good = orc_file(pa.table({"id": [1, 2]}))
    there = marks(tmp_path, a=aborting_orc_file(), b=good, c=aborting_orc_file(), d=aborting_orc_file(), e=good)

    found = inspect_in_process(tmp_path, there, ORC, reading(tmp_path))

    assert [each.mark for each in found] == there
    assert [(each.lines, each.error) for each in found] == [
        (0, "UNREADABLE"), (2, None), (0, "UNREADABLE"), (0, "UNREADABLE"), (2, None),
    ]  # fmt: skip
    assert "SIGABRT" in found[0].reason


@dataclass(frozen=True)
class Ending(Container):
    """Ends its process as the file says."""

    may_abort = True

    @property
    def rows(self) -> pa.Schema:
        return pa.schema([])

    def inspect(self, file, size, check) -> Contents:
        said = file.read(size).decode()
        if said == "exit":
            raise SystemExit(3)
        if said == "wait":
            signal.pause()
        os.kill(os.getpid(), getattr(signal, said))
        return Contents(0, 0)

    def read(self, file, start, end, before):
        yield from ()


@pytest.fixture
def importable(monkeypatch):
    """The module of `Ending` is found by the process."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))


@pytest.mark.usefixtures("importable")
@pytest.mark.parametrize("said", ["SIGKILL", "SIGTERM", "exit"])
def test_a_process_that_somebody_else_ended_blames_no_file(tmp_path, said):
    with pytest.raises(SourceError, match="the process that reads a ended") as caught:
        inspect_in_process(tmp_path, marks(tmp_path, a=said.encode()), Ending(), reading(tmp_path))

    assert caught.value.retry_helps


@pytest.mark.usefixtures("importable")
def test_a_refresh_that_is_cancelled_ends_the_process(tmp_path):
    calls = []
    # Servers that other tests have started.
    others = psutil.Process().children()

    def check() -> None:
        calls.append([child for child in psutil.Process().children() if child not in others])
        if len(calls) == 4:
            raise CancelledError("cancelled")

    with pytest.raises(CancelledError):
        inspect_in_process(tmp_path, marks(tmp_path, a=b"wait"), Ending(), reading(tmp_path), check)

    assert calls[-1]
    assert not any(child.is_running() for child in calls[-1])


@dataclass(frozen=True)
class OfAFailingDisk(Ending):
    """A container of files that a disk does not give."""

    def inspect(self, file, size, check):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_an_error_of_the_disk_comes_from_the_process_as_such(tmp_path):
    with pytest.raises(PassingError) as raised:
        inspect_in_process(tmp_path, marks(tmp_path, a=b"a"), OfAFailingDisk(), reading(tmp_path))

    assert (raised.value.path, raised.value.reason) == (str(tmp_path / "a"), os.strerror(errno.EIO))
