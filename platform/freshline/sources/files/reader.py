"""Landing files become records: listed without opening one, then read in batches of bounded size.

Each record is a line of text (`lines.py`). Files are counted before they are read, and the records that were read of
each are counted again before they are committed.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import FILE, RECORD
from freshline.errors import FileChangedError, FilesMisreadError, FreshlineError, SourceError, UndeclaredFieldsError
from freshline.sources.files import contained as contained_module
from freshline.sources.files import lines as lines_module
from freshline.sources.files.connector import Files
from freshline.sources.files.contained import inspect_contained, read_contained, schema_of
from freshline.sources.files.landing import Listing, find_unread, list_landing
from freshline.sources.files.lines import (
    ENDED,
    LINES_DDL,
    LINES_SCHEMA,
    NUMBER,
    PLACE,
    Inspected,
    LineReading,
    PassingError,
    Piece,
    inspect_files,
    pieces_of,
    read_pieces,
)
from freshline.sources.files.plain_json import count_plain, end_reading, may_be_plain, read_plain
from freshline.sources.files.position import FileMark, FilesPosition
from freshline.sources.files.read_files import ReadFiles
from freshline.sources.files.separate_process import inspect_in_process
from freshline.sources.files.side_table import flush_names
from freshline.sources.formats import container as container_module
from freshline.sources.formats.container import Container
from freshline.sources.reader import (
    LINE,
    MOST_UNDECLARED,
    VERDICT,
    Certain,
    Group,
    Host,
    Inspection,
    Portion,
    Reader,
    ReadRequest,
    Records,
    Tail,
)
from freshline.values.format import VALUE, Format
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

BATCH_BYTES = 256 << 20
BATCH_FILES = 10_000
# Files of up to this many bytes in all are read here, without a task of Spark's.
SMALL_BYTES = 4 << 20
# A task of Spark's reads at least this much.
LEAST_TASK_BYTES = 1 << 20
CHANGED = "the file changed while it was read."


@dataclass(frozen=True)
class FilesInspection(Inspection):
    """The unread files, in batches."""

    batches: tuple[tuple[FileMark, ...], ...] = ()


@dataclass(frozen=True)
class FilesPortion(Portion):
    """Some files; `inspected` are the same ones with what is in them, once they were prepared."""

    marks: tuple[FileMark, ...] = ()
    inspected: tuple[Inspected, ...] = ()


class FilesReader(Reader[FilesInspection, FilesPortion]):
    """Reads the complete files of a landing folder that were not read yet."""

    reason: ClassVar[str] = "NEW_FILES"
    # A batch is large, and the files of one inspection are one delivery.
    pauses: ClassVar[bool] = False
    has_tail: ClassVar[bool] = True

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.connection, Files)
        self._files = spec.connection
        self._folder = self._files.folder_of(spec.name)
        # It has the connector's own kind of position, as have all that are made of it.
        self._nothing_read = self._files.position(0, ())
        self._read_files = ReadFiles(host.warehouse.files(spec.name))

    def known(self, position: FilesPosition | None, paths: Iterable[str]) -> Mapping[str, FileMark]:
        """The files of a position by their paths, those of `paths`."""
        return self._read_files.find(position or self._nothing_read, set(paths))

    def inspect(self, position: FilesPosition | None, asked: ReadRequest) -> FilesInspection:
        listing = self._listing(asked)
        listed = {mark.path for mark in (*listing.complete, *listing.unsettled)}
        self._read_files.forget_but(listed)
        known = self.known(position, listed)
        unread = find_unread(self._folder, listing.complete, known)
        waiting = find_unread(self._folder, listing.unsettled, known).new
        at = _before(listing.started, waiting)
        passed_over = [SourceError(why, where=f"{self._folder}/{name}") for name, why in listing.passed_over]
        return FilesInspection(
            at=at,
            left=len(unread.new),
            is_new=bool(unread.new),
            problems=(*unread.changed, *passed_over),
            batches=tuple(_batches(unread.new)),
        )

    def _listing(self, asked: ReadRequest) -> Listing:
        """List the folder; a request by a person waits for the files that were there when it was asked."""
        settle, follow = self._files.settle_seconds, self._files.follow_links
        listing = list_landing(self._folder, settle, self.host.clock(), follow_links=follow)
        if not asked.wait or not listing.unsettled:
            return listing
        waited_for = {mark.path for mark in listing.unsettled}
        limit = time.monotonic() + 10 * settle + 1
        while any(mark.path in waited_for for mark in listing.unsettled) and time.monotonic() < limit:
            asked.progress(f"waiting for {len(listing.unsettled)} files to settle")
            asked.cancellation.wait(min(0.2, settle))
            asked.cancellation.check()
            listing = list_landing(self._folder, settle, self.host.clock(), follow_links=follow)
        return listing

    def cut(self, inspection: FilesInspection, position: FilesPosition | None) -> FilesPortion | None:
        known = self.known(position, [batch[0].path for batch in inspection.batches])
        number = next((n for n, batch in enumerate(inspection.batches) if batch[0].path not in known), None)
        if number is None:
            return None
        marks = inspection.batches[number]
        left = [mark for batch in inspection.batches[number + 1 :] for mark in batch]
        return FilesPortion(
            before=position,
            after=_advanced(position or self._nothing_read, marks),
            at=_before(inspection.at, left),
            left=len(left),
            progress=f"reading {len(marks)} files ({number + 1} of {len(inspection.batches)})",
            pieces=len(marks),
            marks=marks,
        )

    def prepare(
        self, spark: SparkSession, portion: FilesPortion, previous: Receipt | None, cancellation: Cancellation
    ) -> FilesPortion:
        before = portion.before if isinstance(portion.before, FilesPosition) else self._nothing_read
        flushed = flush_names(self.host, spark, self.spec, before, previous)
        prepared = self._inspected(portion, cancellation)
        undeclared = {*before.undeclared, *self._undeclared(prepared.inspected)}
        flushed = replace(flushed, undeclared=tuple(sorted(undeclared)[:MOST_UNDECLARED]))
        return replace(prepared, after=_advanced(flushed, portion.marks))

    def _undeclared(self, files: Sequence[Inspected]) -> dict[str, tuple[str, str]]:
        """The fields of files that are not declared: the type of each, and the first file that has it."""
        declared = {column.name for column in self.spec.record_columns}
        found: dict[str, tuple[str, str]] = {}
        for file in files:
            for name, kind in file.fields:
                if name not in declared:
                    found.setdefault(name, (kind, file.mark.path))
        return found

    def _inspected(self, portion: FilesPortion, cancellation: Cancellation) -> FilesPortion:
        container, reading, check = self._container, self._reading, cancellation.check
        try:
            if container is None:
                files = tuple(inspect_files(self._folder, portion.marks, reading, check))
            else:
                inspect = inspect_in_process if container.may_abort else inspect_contained
                files = tuple(inspect(self._folder, portion.marks, container, reading, check))
        except PassingError as error:
            raise SourceError(
                f"the file cannot be read now ({error.reason}). Nothing was committed; it is tried again. Where the "
                "disk has lost the file, take it out of the folder.",
                where=error.path,
            ) from error
        return replace(portion, inspected=files, small=sum(file.size for file in files) <= SMALL_BYTES)

    def read_certain(self, spark: SparkSession, portion: FilesPortion) -> Certain | None:
        if not may_be_plain(self.spec, self._folder, portion.inspected):
            return None
        counts = {file.mark.path: file.lines for file in portion.inspected}
        check_read(counts, count_plain(spark, self._folder, portion.inspected), self._folder, portion.inspected)
        return Certain(read_plain(spark, self.spec, self._folder, portion.inspected), sum(counts.values()))

    def read(self, spark: SparkSession, portion: FilesPortion) -> Records:
        """Raises FilesMisreadError where a file has changed since it was listed."""
        changed = [file.mark.path for file in portion.inspected if file.changed]
        if changed:
            raise FilesMisreadError(CHANGED, str(self._folder / changed[0]))
        groups = []
        without = [file for file in portion.inspected if file.error is not None]
        if without:
            groups.append(_without_lines(spark, without))
        for header, files in self._by_header(portion).items():
            skip = 1 if header is not None and self._has_header else 0
            reading = replace(self._reading, skip=skip)
            if self._container is not None:
                container = self._container.behind_header() if skip else self._container
                rows = _contained(spark, self._folder, files, container, reading)
                groups.append(Group(rows, header or (), None if header is not None else "HEADER_MISMATCH"))
                continue
            rows = _lines(spark, self._folder, files, reading)
            groups.append(Group(rows, header or (), None if header is not None else "HEADER_MISMATCH"))
        return Records(tuple(groups), self._counts(portion))

    def confirm(self, portion: FilesPortion, found: Mapping[str, int] | None) -> None:
        if found is not None:
            check_read(self._counts(portion), found, self._folder, portion.inspected)

    def explain(self, error: Exception, portion: FilesPortion) -> FreshlineError | None:
        return _misread(error)

    def finish(self, spark: SparkSession) -> None:
        end_reading(spark)

    def release(self, portion: FilesPortion, *, seconds: float, rejected: int) -> None:
        assert isinstance(portion.after, FilesPosition)
        # Fields that were there from the beginning are left out on purpose, and with very many nobody knows which.
        if isinstance(portion.before, FilesPosition) and len(portion.after.undeclared) < MOST_UNDECLARED:
            fields = self._undeclared(portion.inspected)
            new = {name: fields[name] for name in fields if name not in portion.before.undeclared}
            if new:
                raise UndeclaredFieldsError(
                    [(name, kind) for name, (kind, _) in new.items()], str(self._folder / next(iter(new.values()))[1])
                )

    # -- union read

    def find_tail(self, position: FilesPosition, seq: int, asked: ReadRequest) -> tuple[FilesPosition, FilesPosition]:
        listed = self._listing(asked).complete
        new = find_unread(self._folder, listed, self.known(position, [mark.path for mark in listed])).new
        start = replace(self._nothing_read, flushed_seq=seq)
        return start, replace(start, recent=new)

    def tail(
        self, spark: SparkSession, start: FilesPosition, end: FilesPosition, position: FilesPosition, asked: ReadRequest
    ) -> Tail:
        marks = end.recent
        intact = frozenset(mark.path for mark in marks if _is_intact(self._folder, mark))
        # Of two records with one key, the order of arrival decides which stays. So all are judged as one batch each
        # time, and not as the batches in which they arrived, for as long as all files are there.
        read = self.known(position, [mark.path for mark in marks])
        logged, opened = split_files(marks, read, intact, prefer_files=bool(self.spec.primary_key))
        gone = [mark.path for mark in opened if mark.path not in intact]
        if gone:
            raise FileChangedError(
                "the file is not what it was when the union read was planned, and its rows are not in the log. "
                "Read anew.",
                where=str(self._folder / gone[0]),
            )
        portion = FilesPortion(start, end, None, 0, "", marks=opened)
        return Tail(
            F.col(FILE).isin(list(logged)) if logged else None,
            self._inspected(portion, asked.cancellation) if opened else None,
        )

    # -- headers and lines

    @cached_property
    def _container(self) -> Container | None:
        """The reader of files whose records are not lines, None for lines. Needs a session of Spark."""
        assert self.spec.format is not None
        container: Container | None = self.spec.format.container(self.spec)
        return container

    @property
    def _has_header(self) -> bool:
        return self.spec.format is not None and self.spec.format.has_header

    @property
    def _reading(self) -> LineReading:
        assert self.spec.format is not None
        return LineReading(
            self.spec.format.lines, self.spec.max_record_bytes, self._files.follow_links, os.fsencode(self._folder)
        )

    def _counts(self, portion: FilesPortion) -> dict[str, int]:
        """The number of records of each file."""
        counts = {file.mark.path: 1 for file in portion.inspected if file.error is not None}
        for header, files in self._by_header(portion).items():
            skip = 1 if header is not None and self._has_header else 0
            counts |= {file.mark.path: file.records(skip) for file in files}
        return counts

    def _by_header(self, portion: FilesPortion) -> dict[tuple[str, ...] | None, list[Inspected]]:
        """The files that have lines by the names of their columns; those without the declared ones under None."""
        declared = tuple(column.name for column in self.spec.record_columns)
        found: dict[tuple[str, ...] | None, list[Inspected]] = {}
        for file in portion.inspected:
            if file.error is None:
                header = _header(self.spec.format, file.first, declared) if self._has_header else declared
                found.setdefault(header, []).append(file)
        return found


def check_read(counts: Mapping[str, int], found: Mapping[str, int], root: Path, files: Sequence[Inspected]) -> None:
    """Compare the rows that were read of each file with those that it has, before they are committed.

    Raises FilesMisreadError where they differ: a file was read twice, not at all or not to its end. So it does where a
    file was changed meanwhile; one that was taken away after it was read is no matter.
    """
    for path in counts.keys() | found.keys():
        if found.get(path, 0) != counts.get(path, 0):
            raise FilesMisreadError(
                f"the file has {counts.get(path, 0)} records, and {found.get(path, 0)} were read.", str(root / path)
            )
    for mark in [file.mark for file in files if file.error is None]:
        try:
            status = (root / mark.path).stat()
        except OSError:
            continue
        if (status.st_size, status.st_mtime_ns) != (mark.size, mark.modified_ns):
            raise FilesMisreadError(CHANGED, str(root / mark.path))


def split_files(
    end: Sequence[FileMark], read: Mapping[str, FileMark], intact: frozenset[str], *, prefer_files: bool
) -> tuple[tuple[str, ...], tuple[FileMark, ...]]:
    """The places of the records of files: the paths of those to be taken from the log, and those to be opened.

    `intact` are the paths of unchanged files. With `prefer_files` all are opened while all are intact.
    """
    if prefer_files and all(mark.path in intact for mark in end):
        return (), tuple(end)
    logged = tuple(mark.path for mark in end if read.get(mark.path) == mark)
    return logged, tuple(mark for mark in end if read.get(mark.path) != mark)


def _before(moment: datetime, marks: Sequence[FileMark]) -> datetime:
    """The moment, or that of the oldest of files that are not read."""
    oldest = min((mark.modified_ns for mark in marks), default=None)
    return moment if oldest is None else min(moment, datetime.fromtimestamp(oldest / 1e9, UTC))


def _advanced(position: FilesPosition, marks: Sequence[FileMark]) -> FilesPosition:
    return replace(position, recent=(*position.recent, *marks))


def _batches(marks: Sequence[FileMark]) -> Iterator[tuple[FileMark, ...]]:
    """Split files, in order, into batches of bounded size; a larger file is a batch of its own."""
    batch: list[FileMark] = []
    size = 0
    for mark in marks:
        if batch and (size + mark.size > BATCH_BYTES or len(batch) >= BATCH_FILES):
            yield tuple(batch)
            batch, size = [], 0
        batch.append(mark)
        size += mark.size
    if batch:
        yield tuple(batch)


def _is_intact(root: Path, mark: FileMark) -> bool:
    try:
        status = (root / mark.path).stat()
    except OSError:
        return False
    return (status.st_size, status.st_mtime_ns) == (mark.size, mark.modified_ns)


def _without_lines(spark: SparkSession, files: Sequence[Inspected]) -> Group:
    """Files of which nothing can be read, each as one record with the reason."""
    found = [(file.mark.path, 0, None, file.reason, file.error) for file in files]
    schema = f"{FILE} STRING, {RECORD} BIGINT, {LINE} BIGINT, {VALUE} STRING, {VERDICT} STRING"
    return Group(spark.createDataFrame(found, schema), error="UNREADABLE")


def _lines(spark: SparkSession, root: Path, files: Sequence[Inspected], reading: LineReading) -> DataFrame:
    """The records of files with their places: columns VALUE, FILE, RECORD, LINE, VERDICT."""
    # Tasks are sent with the code itself: the machines of a cluster need pyarrow, and not freshline.
    cloudpickle.register_pickle_by_value(lines_module)  # type: ignore[no-untyped-call]
    pieces = pieces_of(root, files, range(len(files)))
    weights = [
        (piece.end - piece.start) if piece.end is not None else max(1, files[piece.number].size - piece.start)
        for piece in pieces
    ]
    tasks = partial(_tasks, pieces, weights)
    read = _in_batches(spark, files, tasks, partial(read_pieces, reading=reading), LINES_SCHEMA, LINES_DDL)
    place = F.col(PLACE)
    return read.select(
        F.col(VALUE).cast("string").alias(VALUE), _file_name(files), place.alias(RECORD), place.alias(LINE), VERDICT
    )


def _contained(
    spark: SparkSession, root: Path, files: Sequence[Inspected], container: Container, reading: LineReading
) -> DataFrame:
    """The records of files that a container reads, with their places; also PARSED, where it has values."""
    for module in (lines_module, contained_module, container_module, *container.modules):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    pieces = pieces_of(root, files, range(len(files)))
    # Places are the container's own, so the parts of a file count alike.
    weights = [files[piece.number].size // (len(files[piece.number].breaks) + 1) for piece in pieces]
    schema, tasks = schema_of(container), partial(_tasks, pieces, weights)
    read_parts = partial(read_contained, container=container, reading=reading)
    read = _in_batches(spark, files, tasks, read_parts, schema, from_arrow_schema(schema))
    own = [name for name in schema.names if name not in (VALUE, NUMBER, PLACE, LINE, VERDICT)]
    return read.select(
        F.col(VALUE).cast("string").alias(VALUE), _file_name(files), F.col(PLACE).alias(RECORD), LINE, VERDICT, *own
    )


def _misread(error: Exception) -> FilesMisreadError | None:
    """The error for a file that changed while files were read; None for any other error."""
    found = re.search(rf"{ENDED} \((.*)\) of (.*)", str(error))
    return None if found is None else FilesMisreadError(f"the file could not be read once more ({found[1]}).", found[2])


def _file_name(files: Sequence[Inspected]) -> Column:
    """The name of the file with a number."""
    # One text with all names: thousands of literals would take Spark seconds to receive. A name has no NUL in it.
    names = "\0".join(file.mark.path for file in files)
    return F.get(F.split(F.lit(names), "\0", -1), F.col(NUMBER)).alias(FILE)


def _in_batches(
    spark: SparkSession,
    files: Sequence[Inspected],
    tasks_for: Callable[[int], list[list[Piece]]],
    read: Callable[[Sequence[Piece]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
    of: Any,
) -> DataFrame:
    """The rows that `read` makes of files, here for small ones, else in tasks; `of` is the schema as Spark has it."""
    if sum(file.size for file in files) <= SMALL_BYTES:
        pieces = [piece for task in tasks_for(1) for piece in task]
        try:
            found = pa.Table.from_batches(read(pieces), schema)
        except OSError as error:
            misread = _misread(error)
            if misread is None:
                raise
            raise misread from error
        return spark.createDataFrame(found)
    tasks = tasks_for(spark.sparkContext.defaultParallelism)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_in_tasks(tasks, read), of)


def _tasks(pieces: Sequence[Piece], weights: Sequence[int], cores: int) -> list[list[Piece]]:
    """The parts of files in portions of about the same size, in their order."""
    most = max(LEAST_TASK_BYTES, sum(weights) // (2 * cores))
    tasks: list[list[Piece]] = [[]]
    size = 0
    for piece, weight in zip(pieces, weights, strict=True):
        if tasks[-1] and size + weight > most:
            tasks.append([])
            size = 0
        tasks[-1].append(piece)
        size += weight
    return tasks


def _in_tasks(
    tasks: Sequence[Sequence[Piece]], read: Callable[[Sequence[Piece]], Iterator[pa.RecordBatch]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def of_tasks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from read(tasks[task])

    return of_tasks


def _header(kind: Format | None, first: bytes | None, declared: tuple[str, ...]) -> tuple[str, ...] | None:
    """The column names in the first line, None where they do not have each declared column once.

    Others may be blank, or occur several times, as programs for tables of figures write them.
    """
    if kind is None or first is None:
        return None
    try:
        names = kind.names_in(first.decode())
    except UnicodeDecodeError:
        return None
    if names is None:
        return None
    count = Counter(name.lower() for name in names)
    return names if all(count[name.lower()] == 1 for name in declared) else None
