"""Posts on disk: whole or not at all, in their order, once for each key."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from freshline.sources.files.landing import list_landing
from freshline.sources.http.landing import Landing, ReusedKeyError

POINTS = [("post-written", False), ("post-renamed", True), ("post-stored", True)]
NOW = datetime(2026, 11, 1, tzinfo=UTC)


class StoppedError(Exception):
    """A failpoint was reached."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "posts"


def files(folder: Path) -> list[Path]:
    """As a refresh would read them: complete at once, in order."""
    return [folder / mark.path for mark in list_landing(folder, 0.0, NOW).complete]


def test_a_post_is_a_file_and_posts_are_in_order(folder):
    landing = Landing()
    for number in range(200):
        # The names of keys are in no order, so the times must be.
        key = f"key {number}" if number % 2 else None
        assert landing.land(folder, f"{number}\n".encode(), ".json", key) is False

    assert [int(file.read_bytes()) for file in files(folder)] == list(range(200))
    assert len(list(folder.iterdir())) == 200


def test_a_clock_that_is_set_back_leaves_the_order(folder, monkeypatch):
    landing, times = Landing(), iter([5_000, 4_000, 4_000, 9_000])
    monkeypatch.setattr("freshline.sources.http.landing.time.time_ns", lambda: next(times))
    for number in range(4):
        landing.land(folder, b"%d" % number, ".json", None)

    assert [file.read_bytes() for file in files(folder)] == [b"0", b"1", b"2", b"3"]
    # Not the times of the file system, of which two may be equal.
    assert [file.stat().st_mtime_ns for file in files(folder)] == [5_000, 5_001, 5_002, 9_000]


def test_a_key_brings_in_one_post(folder):
    assert Landing().land(folder, b"a\n", ".json", "k") is False
    marks = list_landing(folder, 0.0, NOW).complete
    assert Landing().land(folder, b"a\n", ".json", "k") is True
    assert Landing().land(folder, b"a\n", ".json", "K") is False

    # The file was not written again: a reader would take it for a changed one.
    assert marks[0] in list_landing(folder, 0.0, NOW).complete
    with pytest.raises(ReusedKeyError):
        Landing().land(folder, b"b\n", ".json", "k")
    assert [file.read_bytes() for file in files(folder)] == [b"a\n", b"a\n"]
    assert not [each for each in folder.iterdir() if each.name.startswith(".")]


def test_a_key_is_known_while_its_file_is_put_away(folder):
    landing = Landing()
    landing.land(folder, b"a\n", ".json", "k")
    (folder / "_read").mkdir()
    (file,) = files(folder)
    file.rename(folder / "_read" / file.name)

    assert landing.land(folder, b"a\n", ".json", "k") is True
    with pytest.raises(ReusedKeyError):
        landing.land(folder, b"b\n", ".json", "k")
    assert files(folder) == []
    (folder / "_read" / file.name).unlink()
    assert landing.land(folder, b"b\n", ".json", "k") is False


def test_equal_keys_at_once_bring_in_one_post(folder):
    landing = Landing()
    with ThreadPoolExecutor(16) as threads:
        repeated = list(threads.map(lambda _: landing.land(folder, b"a\n" * 50_000, ".json", "k"), range(64)))

    assert repeated.count(False) == 1
    assert [len(file.read_bytes()) for file in files(folder)] == [100_000]


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize(
    ("point", "is_there"), [("post-written", False), ("post-renamed", True), ("post-stored", True)]
)
def test_stopped_at_each_point_it_is_there_or_not(folder, point, is_there, key):
    def stop(name: str) -> None:
        if name == point:
            raise StoppedError

    with pytest.raises(StoppedError):
        Landing(failpoint=stop).land(folder, b"a\n", ".json", key)

    assert [file.read_bytes() for file in files(folder)] == ([b"a\n"] if is_there else [])
    assert Landing().land(folder, b"a\n", ".json", key) is (is_there and key is not None)
    assert len(files(folder)) == (2 if is_there and key is None else 1)


def test_no_reader_sees_a_part_of_a_post(folder):
    folder.mkdir()
    landing, data, ended = Landing(), b"x" * 3_000_000, threading.Event()
    seen: set[tuple[int, int]] = set()

    def look() -> None:
        while not ended.is_set():
            seen.update((len(file.read_bytes()), file.stat().st_size) for file in files(folder))

    looking = threading.Thread(target=look)
    looking.start()
    for number in range(20):
        landing.land(folder, data, ".json", f"{number}")
    ended.set()
    looking.join()

    assert seen <= {(len(data), len(data))}


def test_a_post_is_flushed_before_it_has_its_name_and_the_folder_after_that(folder, monkeypatch):
    """The order of these calls decides what a power cut would leave."""
    calls: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(handle: int) -> None:
        calls.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def note_rename(self: Path, target: Path) -> Path:
        calls.append("rename")
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    landing = Landing()
    landing.land(folder, b"a", ".json", "k")
    assert calls == ["folder", "file", "rename", "folder"]
    # Whoever wrote the first may have been killed before it flushed the folder.
    landing.land(folder, b"a", ".json", "k")
    assert calls[4:] == ["file", "folder"]


def test_the_folder_around_that_of_the_source_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        Landing().land(tmp_path / "disk" / "posts", b"a", ".json", None)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_removed_meanwhile_is_made_again(folder):
    landing = Landing()
    landing.land(folder, b"a", ".json", None)
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    landing.land(folder, b"b", ".json", None)

    assert [file.read_bytes() for file in files(folder)] == [b"b"]


def test_the_last_space_of_a_disk_is_not_taken(folder):
    landing = Landing(reserve=1 << 62)
    with pytest.raises(OSError, match="no space left") as full:
        landing.land(folder, b"a", ".json", None)

    assert full.value.errno == errno.ENOSPC
    assert list(folder.iterdir()) == []


@pytest.mark.security
def test_each_post_leaves_the_reserve_of_the_disk_free(folder):
    room = 128 << 20
    landing = Landing(reserve=shutil.disk_usage(folder.parent).free - room)
    landing.land(folder, b"a", ".json", None)
    with (folder.parent / "filling").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 2 * room)

    with pytest.raises(OSError, match="no space left"):
        landing.land(folder, b"b", ".json", None)
    assert len(list(folder.iterdir())) == 1


def test_a_disk_that_is_full_after_some_bytes_keeps_none(folder, monkeypatch):
    resource = pytest.importorskip("resource")
    import signal

    # The kernel itself stops the write in the middle, as a quota does.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            Landing().land(folder, b"a" * 500_000, ".json", "k")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)

    assert list(folder.iterdir()) == []
    assert Landing().land(folder, b"a" * 500_000, ".json", "k") is False


def test_parts_of_killed_processes_are_removed_and_those_of_living_ones_not(folder):
    folder.mkdir()
    old, new, strange = folder / ".post-old", folder / ".post-new", folder / ".other"
    for file in (old, new, strange):
        file.write_bytes(b"x")
    for file in (old, strange):
        os.utime(file, (time.time() - 7200, time.time() - 7200))
    Landing().land(folder, b"a", ".json", None)

    assert (old.exists(), new.exists(), strange.exists()) == (False, True, True)
