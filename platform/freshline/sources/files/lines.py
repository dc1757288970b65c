"""The lines of landing files, each with the number of its file and its own, in bounded memory.

Spark gets the lines as data and never a file's name: it takes names with some characters for patterns, and reads files
twice for them. A line longer than `max-record-bytes` is cut before it is in memory, packed files are unpacked block by
block, and a file that cannot be read is known before a row of it is.

Files are read twice: `inspect_files` counts their lines, `read_pieces` reads them, here or in Spark's Python workers.
The lines that were read are compared with the counts before they are committed. Nothing here needs Spark.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import stat
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import pyarrow as pa

from freshline.sources.files.position import FileMark

VALUE = "value"
NUMBER = "_freshline_number"
PLACE = "_freshline_record"
VERDICT = "_freshline_verdict"
LINES_DDL = f"{VALUE} BINARY, {NUMBER} INT, {PLACE} BIGINT, {VERDICT} STRING"
LINES_SCHEMA = pa.schema([(VALUE, pa.binary()), (NUMBER, pa.int32()), (PLACE, pa.int64()), (VERDICT, pa.string())])

# The bytes that are read at once.
BLOCK_BYTES = 4 << 20
# The bytes that are kept of a record that is too large.
CUT_BYTES = 64 << 10
# A large file is read in pieces of about this size, in as many tasks.
PIECE_BYTES = 32 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A byte order mark and a carriage return do not count in the size of a record.
SLACK = 4

# By the end of the name, as Hadoop does it.
PACKED = (".gz", ".bz2", ".zst", ".lz4")
NOT_UNPACKED = (".deflate", ".snappy", ".xz", ".zip", ".7z", ".br", ".lzo", ".z", ".tgz")
DAMAGED = (OSError, EOFError, zlib.error, pa.ArrowException)
# These say something about the machine, the disk or the network, and nothing about the file.
_PASSING = frozenset(
    getattr(errno, name)
    for name in (
        "EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH EINTR EIO EMFILE ENETDOWN "
        "ENETRESET ENETUNREACH ENFILE ENOBUFS ENOLINK ENOMEM ENOTCONN EPIPE EREMOTEIO ESHUTDOWN ESTALE ETIMEDOUT"
    ).split()
)
# So the error of a task begins that could not read a file to its end, before the reason and the path.
ENDED = "freshline read less than it had found"
# Marks at the beginning of texts that are not UTF-8.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


@dataclass(frozen=True)
class LineReading:
    """The way in which lines of a source are read. Links below `root` are not followed unless `follow_links` says so.

    `skip` is the number of lines before the first record.
    """

    format: str
    most_bytes: int
    follow_links: bool
    root: bytes = b""
    skip: int = 0


@dataclass(frozen=True)
class Inspected:
    """A file as it was found. `error` is a code of quarantine for a file without lines, `reason` says more.

    `lines` are those that are not blank, `first` is the first line (None where it is too large), `size` the bytes
    unpacked. `plain` says that each line is a JSON object without another in it. `breaks` are places between lines,
    with the number of lines before each. `changed` says that the file is not the one that was listed. `fields` are the
    columns with their types in SQL, where the file itself has them.

    For a file of a container (`contained.py`) `lines` are its records, and `breaks` places of the container's own.
    """

    mark: FileMark
    error: str | None = None
    reason: str = ""
    lines: int = 0
    first: bytes | None = None
    size: int = 0
    plain: bool = False
    breaks: tuple[tuple[int, int], ...] = ()
    changed: bool = False
    fields: tuple[tuple[str, str], ...] = ()

    def records(self, skip: int) -> int:
        """The lines behind the first `skip` (none or one) that are not blank."""
        return self.lines - (1 if skip and self.first != b"" else 0)


@dataclass(frozen=True)
class Piece:
    """A part of a file that begins and ends between lines; `number` is the file's, `line` the lines before the part.

    `size` are the bytes that the file had when it was inspected, where they are known.
    """

    number: int
    path: bytes
    start: int = 0
    end: int | None = None
    line: int = 0
    size: int | None = None


class PassingError(Exception):
    """A file cannot be read now, for a reason that is not its own."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True)
class _Lines:
    """Lines behind one another in `data`, each with one line feed behind it; `line` are those before.

    `starts` and `ends` are where each begins and where its line feed is.
    """

    data: bytes
    starts: np.ndarray[Any, np.dtype[np.int64]]
    ends: np.ndarray[Any, np.dtype[np.int64]]
    line: int
    marked: bool
    end: int

    @property
    def count(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        return self.ends - self.starts

    def text(self, place: int) -> bytes:
        return self.data[self.starts[place] : self.ends[place]]

    def in_arrow(self) -> Any:
        """The lines as an array of Arrow."""
        offsets = np.zeros(self.count + 1, np.int32)
        np.cumsum(self.lengths, out=offsets[1:])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data.replace(b"\n", b""))]
        return pa.Array.from_buffers(pa.binary(), self.count, buffers)

    def are_plain(self) -> bool:
        """Whether each is one JSON object that ends with its first closing brace, which no reader can mistake."""
        codes = np.frombuffer(self.data, np.uint8)
        starts, ends = self.starts, self.ends
        if self.marked or not bool(np.all(ends > starts)) or not self._is_text():
            return False
        braces = bool(np.all(codes[starts] == ord("{"))) and bool(np.all(codes[ends - 1] == ord("}")))
        return braces and self.data.count(b"}") == self.count

    def _is_text(self) -> bool:
        """Whether it is UTF-8, and no half of a character is escaped."""
        # Bytes of ASCII are found out without a text that is made of them.
        if not self.data.isascii():
            try:
                self.data.decode()
            except UnicodeDecodeError:
                return False
        return b"\\u" not in self.data or (b"\\ud" not in self.data and b"\\uD" not in self.data)

    def filled(self, reading: LineReading) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """The mask of the lines that are not blank."""
        filled: np.ndarray[Any, np.dtype[np.bool_]] = self.lengths >= (0 if reading.format == "every" else 1)
        if reading.format == "json":
            # A blank line begins with its line feed.
            first = np.frombuffer(self.data, np.uint8)[self.starts]
            for place in np.flatnonzero(filled & (first == ord(" "))).tolist():
                filled[place] = bool(self.text(place).strip(b" "))
        return filled


@dataclass(frozen=True)
class _Long:
    """A line that is too large, of which only the beginning was kept."""

    beginning: bytes
    line: int


class _Source(Protocol):
    def read(self, size: int, /) -> bytes: ...


def inspect_files(
    root: Path, marks: Sequence[FileMark], reading: LineReading, check: Callable[[], None] = lambda: None
) -> list[Inspected]:
    """Count the lines of complete files; `check` is called now and then, and stops it by what it raises."""
    return [_inspect(os.fsencode(root / mark.path), mark, reading, check) for mark in marks]


def not_unpacked(mark: FileMark) -> Inspected | None:
    """The finding for a file whose name says that it is packed in a way that is not unpacked; None for any other."""
    ending = ending_of(mark.path, NOT_UNPACKED)
    if ending is None or not mark.size:
        return None
    known = ", ".join(PACKED)
    return Inspected(mark, "UNREADABLE", f"files that end with {ending} are not unpacked; those with {known} are")


def changed_or_empty(file: BinaryIO, mark: FileMark) -> Inspected | None:
    """The finding for an open file that is not the one that was listed, or has no byte; None for any other."""
    status = os.fstat(file.fileno())
    if (status.st_size, status.st_mtime_ns) != (mark.size, mark.modified_ns):
        return Inspected(mark, changed=True)
    return Inspected(mark, "EMPTY_FILE") if mark.size == 0 else None


def _inspect(path: bytes, mark: FileMark, reading: LineReading, check: Callable[[], None]) -> Inspected:
    check()
    if (packing := not_unpacked(mark)) is not None:
        return packing
    packed = ending_of(mark.path, PACKED)
    first: bytes | None = None
    lines, number, size, plain = 0, 0, 0, reading.format == "json" and packed is None
    breaks: list[tuple[int, int]] = []
    try:
        with open_file(path, reading) as file:
            if (other := changed_or_empty(file, mark)) is not None:
                return other
            for part in _parts(unpacked(file, packed), reading.most_bytes, 0):
                check()
                if not number and (part.beginning if isinstance(part, _Long) else part.text(0)).startswith(_UTF_16):
                    return Inspected(mark, "UNREADABLE", "it begins as a text in UTF-16; texts are read as UTF-8")
                if isinstance(part, _Long):
                    lines, number, plain, size = lines + 1, part.line + 1, False, size + reading.most_bytes
                    continue
                first = part.text(0) if part.line == 0 else first
                lines += int(np.count_nonzero(part.filled(reading)))
                number, size = part.line + part.count, size + len(part.data)
                plain = plain and part.are_plain() and _fits(part, reading)
                if part.end - (breaks[-1][0] if breaks else 0) >= PIECE_BYTES and packed is None:
                    breaks.append((part.end, number))
    except DAMAGED as error:
        return unread(mark, path, error)
    if not number:
        return Inspected(mark, "EMPTY_FILE")
    return Inspected(mark, None, "", lines, first, size, plain, tuple(breaks))


def unread(mark: FileMark, path: bytes, error: Exception) -> Inspected:
    """The finding for a file whose inspection raised an error: it is gone, or cannot be read.

    Raises PassingError for one that says nothing about the file.
    """
    if isinstance(error, FileNotFoundError):
        return Inspected(mark, changed=True)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _PASSING):
        raise PassingError(os.fsdecode(path), reason_of(error)) from error
    return Inspected(mark, "UNREADABLE", reason_of(error))


def _fits(part: _Lines, reading: LineReading) -> bool:
    return int(np.max(part.lengths)) <= reading.most_bytes


def reason_of(error: Exception) -> str:
    """The reason why a file could not be read, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    first, _, _ = str(error).partition("\n")
    return first or type(error).__name__


def ending_of(name: str, endings: Sequence[str]) -> str | None:
    """The one of the endings that a name has, in either case."""
    return next((ending for ending in endings if name.lower().endswith(ending)), None)


def is_packed(name: str) -> bool:
    """Whether a name says that the file is packed, in a way that is unpacked here or not."""
    return ending_of(name, (*PACKED, *NOT_UNPACKED)) is not None


def pieces_of(root: Path, files: Sequence[Inspected], numbers: Sequence[int]) -> list[Piece]:
    """The parts of which files consist, in their order, a large one of several."""
    found = []
    for file, number in zip(files, numbers, strict=True):
        path = os.fsencode(root / file.mark.path)
        starts = [(0, 0), *file.breaks]
        ends = [*(offset for offset, _ in file.breaks), None]
        found += [
            Piece(number, path, start, end, line, file.mark.size)
            for (start, line), end in zip(starts, ends, strict=True)
        ]
    return found


def read_pieces(pieces: Sequence[Piece], reading: LineReading) -> Iterator[pa.RecordBatch]:
    """The records in parts of files, as LINES_SCHEMA has them.

    Raises OSError with ENDED where a file can no longer be read to the end that it had.
    """
    gathered: list[pa.RecordBatch] = []
    size = 0
    for piece in pieces:
        try:
            with open_file(piece.path, reading) as file:
                require_whole(file, piece)
                file.seek(piece.start)
                packed = ending_of(os.fsdecode(piece.path), PACKED)
                # The end of a packed file follows from the file itself.
                end = piece.size if piece.end is None and packed is None else piece.end
                ranged = file if end is None else _Range(file, end - piece.start)
                source = unpacked(ranged, packed)
                for part in _parts(source, reading.most_bytes, piece.line):
                    for batch in _batches(part, piece.number, reading):
                        gathered.append(batch)
                        size += batch.nbytes
                    if size >= BLOCK_BYTES // 4:
                        yield from _together(gathered)
                        gathered, size = [], 0
                if isinstance(ranged, _Range) and ranged.left:
                    raise EOFError("it is shorter than it was")
        except DAMAGED as error:
            raise ended(piece, error) from error
    yield from _together(gathered)


def require_whole(file: BinaryIO, piece: Piece) -> None:
    """Raises EOFError where the file of a part is shorter than it was."""
    if piece.size is not None and os.fstat(file.fileno()).st_size < piece.size:
        raise EOFError("it is shorter than it was")


def ended(piece: Piece, error: Exception) -> OSError:
    """The error of a task that could not read a part of a file to its end."""
    return OSError(f"{ENDED} ({reason_of(error)}) of {os.fsdecode(piece.path)}")


def _together(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows in few batches: each one sent costs as much as thousands of rows."""
    return pa.Table.from_batches(batches, LINES_SCHEMA).combine_chunks().to_batches() if batches else []


def _batches(part: _Lines | _Long, number: int, reading: LineReading) -> Iterator[pa.RecordBatch]:
    if isinstance(part, _Long):
        if part.line >= reading.skip:
            yield _batch([part.beginning], number, [part.line + 1], "TOO_LARGE")
        return
    kept = part.filled(reading)
    if part.line < reading.skip:
        kept[: reading.skip - part.line] = False
    for place in np.flatnonzero(kept & (part.lengths > reading.most_bytes)).tolist():
        kept[place] = False
        yield _batch([part.text(place)[:CUT_BYTES]], number, [part.line + place + 1], "TOO_LARGE")
    records = np.arange(part.line + 1, part.line + part.count + 1, dtype=np.int64)
    values = part.in_arrow()
    if not bool(np.all(kept)):
        values, records = values.filter(pa.array(kept)), records[kept]
    yield _batch(values, number, records, None)


def _batch(values: Any, number: int, records: Any, verdict: str | None) -> pa.RecordBatch:
    count = len(values)
    verdicts = pa.nulls(count, pa.string()) if verdict is None else pa.array([verdict] * count, pa.string())
    columns = [pa.array(values, pa.binary()), pa.array(np.full(count, number, np.int32)), pa.array(records), verdicts]
    return pa.RecordBatch.from_arrays(columns, schema=LINES_SCHEMA)


# -- from bytes to lines


def _parts(source: _Source, most: int, line: int) -> Iterator[_Lines | _Long]:
    """All lines, whole ones together. No more is in memory than a block and the longest line that is allowed."""
    rest: list[bytes] = []
    held = end = 0
    beginning: bytes | None = None
    while block := source.read(BLOCK_BYTES):
        end += len(block)
        if beginning is not None:
            at = block.find(b"\n")
            if at < 0:
                continue
            yield _Long(beginning, line)
            beginning, line, block = None, line + 1, block[at + 1 :]
        cut = block.rfind(b"\n") + 1
        if cut:
            part = _split(b"".join([*rest, block[:cut]]), line, end - len(block) + cut)
            yield part
            line += part.count
            rest, held, block = [], 0, block[cut:]
        rest.append(block)
        held += len(block)
        if held > most + SLACK:
            beginning = b"".join(rest)[:CUT_BYTES]
            rest, held = [], 0
    if beginning is not None:
        yield _Long(beginning, line)
    elif held:
        yield _split(b"".join([*rest, b"\n"]), line, end)


def _split(data: bytes, line: int, end: int) -> _Lines:
    marked = data.startswith(BYTE_ORDER_MARK) or b"\n" + BYTE_ORDER_MARK in data
    if marked:
        data = data.removeprefix(BYTE_ORDER_MARK).replace(b"\n" + BYTE_ORDER_MARK, b"\n")
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    if b"\r\n" in data:
        # Not one by one: there may be a million of them.
        data = b"\n".join([text.rstrip(b"\r") for text in data.split(b"\n")])
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    starts = np.zeros(len(ends), np.int64)
    starts[1:] = ends[:-1] + 1
    return _Lines(data, starts, ends, line, marked, end)


# -- from files to bytes


def open_file(path: bytes, reading: LineReading) -> BinaryIO:
    """Open a file of the landing folder.

    Raises OSError for a link, unless they are followed, for no file, and for a path that leads out of the folder.
    """
    if reading.root and not _is_below(path, reading.root):
        raise OSError("it is not in the landing folder")
    # Without O_NONBLOCK a pipe in the place of the file would be waited for.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if reading.follow_links else os.O_NOFOLLOW)
    if reading.follow_links or not reading.root:
        descriptor = os.open(path, flags)
    else:
        descriptor = _open_below(reading.root, path[len(reading.root) + 1 :].split(b"/"), flags)
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("it is not a file")
    return file


def unpacked(file: Any, packed: str | None) -> Any:
    """The bytes of a file, unpacked block by block as they are read, by the ending of its name."""
    match packed:
        case ".gz":
            source: _Source = gzip.GzipFile(fileobj=file, mode="rb")
        case ".bz2":
            source = _Bzip2(file)
        case ".zst" | ".lz4":
            source = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd" if packed == ".zst" else "lz4")
        case _:
            source = file
    return source


class _Bzip2:
    """The bytes of bzip2's streams, one behind the other; zeros may follow.

    BZ2File takes whatever follows a stream and is none for garbage, and ends there: of a file of many streams, as
    parallel tools write them, all that stands behind a damaged one would be lost without a word.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._stream = bz2.BZ2Decompressor()
        self._packed = b""
        self._is_within = self._is_behind = False

    def read(self, size: int, /) -> bytes:
        while True:
            if self._stream.eof:
                self._packed = self._stream.unused_data
                self._stream, self._is_within, self._is_behind = bz2.BZ2Decompressor(), False, True
            if self._stream.needs_input and not self._packed:
                self._packed = self._file.read(BLOCK_BYTES)
                if not self._packed:
                    if self._is_within:
                        raise EOFError("it ends within a stream of bzip2")
                    return b""
            if self._is_behind and not self._is_within:
                self._packed = self._packed.lstrip(b"\0")
                if not self._packed:
                    continue
            packed, self._packed, self._is_within = self._packed, b"", True
            if data := self._stream.decompress(packed, size):
                return data


def _is_below(path: bytes, root: bytes) -> bool:
    steps = path.removeprefix(root + b"/").split(b"/")
    return path.startswith(root + b"/") and not any(step in (b"", b".", b"..") for step in steps)


def _open_below(root: bytes, parts: Sequence[bytes], flags: int) -> int:
    """Open a file step by step: a folder that was replaced by a link since it was listed is none of the landing folder.

    With the flag that forbids links, the system checks the last step only.
    """
    folder = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return os.open(parts[-1], flags, dir_fd=folder)
    finally:
        os.close(folder)


class _Range:
    """The next `left` bytes of a file."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file = file
        self.left = left

    def read(self, size: int) -> bytes:
        block = self._file.read(min(size, self.left))
        self.left -= len(block)
        return block
