"""The records of files that are found by a container: counted before they are read, in bounded memory.

As with lines (`lines.py`), each file is read twice, and a file that cannot be read to its end is known before a row of
it is. Nothing here needs Spark.
"""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from freshline.sources.files.lines import (
    DAMAGED,
    NUMBER,
    PACKED,
    Inspected,
    LineReading,
    Piece,
    changed_or_empty,
    ended,
    ending_of,
    not_unpacked,
    open_file,
    require_whole,
    unpacked,
    unread,
)
from freshline.sources.files.position import FileMark
from freshline.sources.formats.container import Container, NoContainer

# The errors that a reader of a format raises for bytes that are none of it.
BROKEN: tuple[type[Exception], ...] = (*DAMAGED, lzma.LZMAError, ValueError, OverflowError)
MISREAD: tuple[type[Exception], ...] = (NoContainer, *BROKEN)


def inspect_contained(
    root: Path,
    marks: Sequence[FileMark],
    container: Container,
    reading: LineReading,
    check: Callable[[], None] = lambda: None,
) -> list[Inspected]:
    """Count the records of complete files; `check` is called now and then, and stops it by what it raises."""
    return [_inspect(os.fsencode(root / mark.path), mark, container, reading, check) for mark in marks]


def _inspect(
    path: bytes, mark: FileMark, container: Container, reading: LineReading, check: Callable[[], None]
) -> Inspected:
    check()
    if container.is_unpacked and (packing := not_unpacked(mark)) is not None:
        return packing
    watched: _Watched | None = None
    try:
        with open_file(path, reading) as file:
            if (other := changed_or_empty(file, mark)) is not None:
                return other
            packed = ending_of(mark.path, PACKED) if container.is_unpacked else None
            watched = _Watched(file)
            source: Any = unpacked(watched, packed)
            if packed:
                source = _Begun(source)
                if source.is_empty:
                    return Inspected(mark, "EMPTY_FILE")
            found = container.inspect(source, mark.size, check)
    except NoContainer as error:
        return Inspected(mark, error.code, error.reason)
    except BROKEN as error:
        return unread(mark, path, error if watched is None or watched.failed is None else watched.failed)
    breaks = () if packed else found.breaks
    return Inspected(mark, lines=found.records, first=found.first, size=found.size, breaks=breaks, fields=found.fields)


class _Watched:
    """A file that remembers why it could not be read: not every reader of a format passes that error on."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failed: OSError | None = None

    def read(self, *size: int) -> bytes:
        with self._watching():
            return self._file.read(*size)

    def seek(self, *place: int) -> int:
        with self._watching():
            return self._file.seek(*place)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failed = error
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Begun:
    """The bytes of a packed file, of which the first was read to see whether there is one."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._first: bytes = source.read(1)
        self.is_empty = not self._first

    def read(self, size: int) -> bytes:
        first, self._first = self._first, b""
        rest: bytes = self._source.read(size - len(first))
        return first + rest


def schema_of(container: Container) -> pa.Schema:
    """The columns of `read_contained`: those of the container, and the number of the file."""
    return container.rows.append(pa.field(NUMBER, pa.int32()))


def read_contained(pieces: Sequence[Piece], container: Container, reading: LineReading) -> Iterator[pa.RecordBatch]:
    """The records in parts of files, as `schema_of` has them.

    Raises OSError with ENDED where a file can no longer be read to the end that it had.
    """
    schema = schema_of(container)
    for piece in pieces:
        try:
            with open_file(piece.path, reading) as file:
                require_whole(file, piece)
                packed = ending_of(os.fsdecode(piece.path), PACKED) if container.is_unpacked else None
                source: Any = unpacked(file, packed)
                for batch in container.read(source, piece.start, piece.end, piece.line):
                    number = pa.array([piece.number] * batch.num_rows, pa.int32())
                    yield pa.RecordBatch.from_arrays([*batch.columns, number], schema=schema)
        except MISREAD as error:
            raise ended(piece, error) from error
