"""The files of a folder that a log table has read, in little memory.

A name stays known for ever: a file that comes back, and a post that is sent again with its key, must not be read twice.
Most of these files are gone from the folder. So memory has a number of eight bytes for each name in the table beside
the log, and the facts of a file only while it is in the folder. A name whose number is not there was never read. For
one whose number is there the table itself decides, because two names may have one number.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import deltalake
import numpy as np
import numpy.typing as npt
import pyarrow.dataset as ds

from freshline.commit.delta_log import exists
from freshline.compute.inputs import SEQ
from freshline.sources.files.position import FileMark, FilesPosition

Numbers = npt.NDArray[np.uint64]


def number_of(name: str) -> int:
    """The number of a name, in eight bytes; the same in each process."""
    return int.from_bytes(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


@dataclass
class Names:
    """The numbers of names, in sorted arrays of which each is at least twice as long as the next one."""

    _arrays: list[Numbers] = field(default_factory=list)

    def add(self, names: Iterable[str]) -> None:
        """Take names in."""
        new = np.fromiter((number_of(name) for name in names), np.uint64)
        new.sort()
        while self._arrays and len(self._arrays[-1]) < 2 * len(new):
            new = np.concatenate((self._arrays.pop(), new))
            new.sort(kind="stable")
        if len(new):
            self._arrays.append(new)

    def may_have(self, name: str) -> bool:
        """False for a name that was never taken in. True for one that was, and for few others."""
        number = np.uint64(number_of(name))
        for array in self._arrays:
            place = int(np.searchsorted(array, number))
            if place < len(array) and array[place] == number:
                return True
        return False

    @property
    def bytes(self) -> int:
        """The memory of the numbers."""
        return sum(array.nbytes for array in self._arrays)


class ReadFiles:
    """The files that a log table has read, by its position and the table `<log>__file`, which is at `table`.

    Its methods may be called by several threads.
    """

    def __init__(self, table: Path) -> None:
        self._table = table
        self._guard = threading.Lock()
        self._names, self._up_to = Names(), 0
        # The facts of files that are in the folder, or were when it was listed last.
        self._marks: dict[str, FileMark] = {}

    def find(self, position: FilesPosition, paths: Collection[str]) -> dict[str, FileMark]:
        """Those of the paths that were read, each with the file as it was then."""
        recent = {mark.path: mark for mark in position.recent}
        wanted = {path for path in paths if path not in recent}
        with self._guard:
            self._follow(position.flushed_seq, wanted)
            unknown = {path for path in wanted if path not in self._marks and self._names.may_have(path)}
            if unknown:
                self._marks |= {mark.path: mark for mark in self._stored(0) if mark.path in unknown}
            found = {path: self._marks[path] for path in wanted if path in self._marks}
        return found | {path: recent[path] for path in paths if path in recent}

    def forget_but(self, paths: Collection[str]) -> None:
        """Keep in memory what is known of these files; of others only that they were read."""
        with self._guard:
            self._marks = {path: mark for path, mark in self._marks.items() if path in paths}

    def _follow(self, up_to: int, wanted: Collection[str]) -> None:
        """Take in the names of the table up to a batch, and what is known of those that are wanted."""
        if up_to < self._up_to:
            # The log was put back: names behind it are those of files that it no longer has.
            self._names, self._up_to, self._marks = Names(), 0, {}
        if up_to == self._up_to:
            return
        before, self._up_to = self._up_to, up_to
        try:
            for batch in _in_portions(self._stored(before)):
                self._names.add(mark.path for mark in batch)
                self._marks |= {mark.path: mark for mark in batch if mark.path in wanted}
        except BaseException:
            self._names, self._up_to, self._marks = Names(), 0, {}
            raise

    def _stored(self, above: int) -> Iterator[FileMark]:
        """The files that the table has above a batch, up to that of the position."""
        if not exists(self._table):
            return
        rows = deltalake.DeltaTable(str(self._table)).to_pyarrow_dataset()
        asked = (ds.field(SEQ) > above) & (ds.field(SEQ) <= self._up_to)
        for batch in rows.to_batches(columns=["path", "size", "modified_ns"], filter=asked):
            for path, size, modified in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield FileMark(path, size, modified)


def _in_portions(marks: Iterable[FileMark], most: int = 65_536) -> Iterator[list[FileMark]]:
    portion: list[FileMark] = []
    for mark in marks:
        portion.append(mark)
        if len(portion) == most:
            yield portion
            portion = []
    if portion:
        yield portion
