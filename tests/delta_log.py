"""A Delta log in tests that are sure of what is there: its absence fails the test, with the path."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from freshline.commit import write as commit
from freshline.commit.delta_log import Commit, Newest, newest_version, position_of, read_commit, read_newest
from freshline.commit.write import Committed
from freshline.values.position import TablePosition
from freshline.values.receipt import Receipt


def newest_of(path: Path) -> Newest:
    """The newest version of a table that is there, with its receipt if it has one."""
    found = read_newest(path)
    assert found is not None, f"no Delta table at {path}"
    return found


def version_of(path: Path) -> int:
    """The number of the newest version."""
    found = newest_version(path)
    assert found is not None, f"no Delta table at {path}"
    return found


def newest_position(path: Path) -> TablePosition:
    """The position of the newest version."""
    return position_of(path, version_of(path))


def receipt_of(path: Path) -> Receipt:
    """The newest receipt of a table that has one."""
    found = newest_of(path).receipt
    assert found is not None, f"no receipt at {path}"
    return found


def commit_of(path: Path, version: int) -> Commit:
    """A commit that the log still has."""
    found = read_commit(path, version)
    assert found is not None, f"no commit {version} at {path}"
    return found


def added_files(path: Path) -> set[Path]:
    """The data files that the newest commit added."""
    added = [action["add"]["path"] for action in commit_of(path, version_of(path)).actions if "add" in action]
    assert added
    return {path / unquote(file) for file in added}


@contextmanager
def without_rows(path: Path, *, but: Container[Path] = ()) -> Iterator[None]:
    """The data files of a table are away, but for some."""
    with without_files(file for file in path.rglob("*.parquet") if "_delta_log" not in file.parts and file not in but):
        yield


@contextmanager
def without_files(files: Iterable[Path]) -> Iterator[None]:
    """Files are away; who opens one without need misses it."""
    files = list(files)
    assert files
    for file in files:
        file.rename(file.with_suffix(".away"))
    try:
        yield
    finally:
        for file in files:
            file.with_suffix(".away").rename(file)


def write_and_read_back(write: Callable[[], None], path: Path, receipt: Receipt) -> Committed | None:
    """Write to a table that stays at its path, and find the commit."""
    return commit.write_and_read_back(write, path, receipt, lambda: None)
