"""The rows of Parquet files, by groups of rows, with the declared columns alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from freshline.sources.formats import fit as fit_module
from freshline.sources.formats import parquet_pages as pages_module
from freshline.sources.formats.container import PART_BYTES, Container, Contents, NoContainer
from freshline.sources.formats.fit import Mask, Wanted, cut_off, fitted, sql_type
from freshline.sources.formats.parquet_pages import ColumnChunk, page_sizes, read_chunks

MARK = b"PAR1"
NOT_PARQUET = "NOT_PARQUET"
# The rows that are read at once, and the bytes that they weigh on average.
_MOST_ROWS = 8_192
_ROWS_BYTES = 16 << 20
# A page is in memory as a whole; usual ones have a megabyte.
_MOST_PAGE_BYTES = 256 << 20


@dataclass(frozen=True)
class ParquetRows(Container):
    """The rows of a file; a place is the number of a group of rows."""

    wanted: Wanted

    @property
    def rows(self) -> pa.Schema:
        return self.wanted.rows

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        return (fit_module, pages_module, sys.modules[__name__])

    def inspect(self, file: BinaryIO, size: int, check: Callable[[], None]) -> Contents:
        if file.read(len(MARK)) != MARK:
            raise NoContainer(NOT_PARQUET, "it does not begin with PAR1")
        opened, chunks = self._open(file)
        metadata = opened.metadata
        names = opened.schema_arrow.names
        fields = tuple((field.name, sql_type(field.type)) for field in opened.schema_arrow)
        for name in self.wanted.schema.names:
            if names.count(name) > 1:
                raise NoContainer(NOT_PARQUET, f"it has the column {name} twice")
        breaks, before, held = [], 0, 0
        for number in range(metadata.num_row_groups):
            if held >= PART_BYTES:
                breaks.append((number, before))
                held = 0
            before += metadata.row_group(number).num_rows
            held += self._check(file, opened, chunks[number], check)
        read = weight = 0
        for batch in self.read(file, 0, None, 0):
            check()
            read, weight = read + batch.num_rows, weight + batch.nbytes
        if not read == before == metadata.num_rows:
            raise NoContainer("UNREADABLE", f"its footer says {metadata.num_rows} rows, and {read} are there")
        return Contents(before, weight, tuple(breaks), fields=fields)

    def _check(
        self, file: BinaryIO, opened: pq.ParquetFile, chunks: Sequence[ColumnChunk], check: Callable[[], None]
    ) -> int:
        """The bytes of the declared columns in a group of rows, unpacked. Raises NoContainer for too large a page."""
        for leaf in self._columns(opened):
            check()
            for at, size in page_sizes(file, chunks[leaf]):
                if size > _MOST_PAGE_BYTES:
                    raise NoContainer(
                        "UNREADABLE",
                        f"the page of {opened.metadata.schema.column(leaf).path} at byte {at} has {size} bytes, and at "
                        f"most {_MOST_PAGE_BYTES} are read. Write smaller pages",
                    )
        return sum(chunks[leaf].unpacked for leaf in self._columns(opened))

    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        opened, chunks = self._open(file)
        declared, count = self.wanted.schema.names, before
        end = opened.metadata.num_row_groups if end is None else end
        exact: Iterator[pa.RecordBatch] | None = None
        leaves = self._columns(opened)
        if any(group[leaf].is_int96 for group in chunks[start:end] for leaf in leaves):
            # Arrow cuts off the digits that a unit has not, so these times are read in nanoseconds too.
            exact = self._batches(file, self._open(file, int96="ns")[0], chunks, start, end)
        for batch in self._batches(file, opened, chunks, start, end):
            there = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
            lost: list[Mask | None] = []
            if exact is not None:
                finer = next(exact)
                found = {name: cut_off(column, finer.column(name)) for name, column in there.items()}
                lost = [found.get(name) for name in declared]
            yield from fitted([there.get(name) for name in declared], batch.num_rows, count + 1, self.wanted, lost)
            count += batch.num_rows

    def _open(
        self, file: Any, *, unfolded: bool = False, int96: str = "us"
    ) -> tuple[pq.ParquetFile, list[list[ColumnChunk]]]:
        """The file with its texts as dictionaries where they are stored so, and its columns by groups of rows.

        Unfolded the texts may be of any size. `unfolded` leaves those within other values as they are.
        `int96` is the unit of times of that type.
        """
        file.seek(0)
        metadata = pq.read_metadata(file)
        chunks = read_chunks(file)
        if [len(group) for group in chunks] != [metadata.num_columns] * metadata.num_row_groups:
            raise NoContainer("UNREADABLE", "its footer has a group of rows without all columns")
        texts = {path for path in _folded(metadata, chunks) if not (unfolded and "." in path)}
        file.seek(0)
        opened = pq.ParquetFile(
            file,
            metadata=metadata,
            read_dictionary=sorted(texts),
            coerce_int96_timestamp_unit=int96,
            buffer_size=1 << 20,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        return opened, chunks

    def _columns(self, opened: pq.ParquetFile) -> list[int]:
        """The numbers of the leaves of the declared columns."""
        declared = set(self.wanted.schema.names)
        schema = opened.metadata.schema
        names = {field.name for field in opened.schema_arrow if field.name in declared}
        return [
            number
            for number in range(len(schema))
            if any(
                schema.column(number).path == name or schema.column(number).path.startswith(f"{name}.")
                for name in names
            )
        ]

    def _batches(
        self, file: Any, opened: pq.ParquetFile, chunks: Sequence[Sequence[ColumnChunk]], start: int, end: int
    ) -> Iterator[pa.RecordBatch]:
        there = set(opened.schema_arrow.names)
        declared = [name for name in self.wanted.schema.names if name in there]
        leaves = self._columns(opened)
        # Arrow has no dictionaries within values that go over from one group to the next.
        alone = any("." in path for path in _folded(opened.metadata, chunks))
        groups: list[int] = []
        rows = weight = 0
        for number in range(start, end):
            group = opened.metadata.row_group(number)
            if not leaves:
                # No declared column is in the file: its rows have NULL everywhere.
                for done in range(0, group.num_rows, _MOST_ROWS):
                    count = min(_MOST_ROWS, group.num_rows - done)
                    yield pa.RecordBatch.from_arrays([pa.nulls(count)], ["_freshline_nothing"])
                continue
            # Small groups are read together: each reading costs as much as thousands of rows.
            groups.append(number)
            rows += group.num_rows
            weight += sum(chunks[number][leaf].unpacked for leaf in leaves)
            if weight >= _ROWS_BYTES or number == end - 1 or alone:
                most = max(1, min(_MOST_ROWS, _ROWS_BYTES * max(1, rows) // max(1, weight)))
                yield from self._batches_of(file, opened, groups, most, declared)
                groups, rows, weight = [], 0, 0

    def _batches_of(
        self, file: Any, opened: pq.ParquetFile, groups: Sequence[int], most: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        done = 0
        try:
            for batch in opened.iter_batches(most, row_groups=groups, columns=columns, use_threads=False):
                done += batch.num_rows
                yield batch
            return
        except pa.ArrowNotImplementedError:
            # So Arrow says that a dictionary within values ends within a group.
            plain, _ = self._open(file, unfolded=True)
        for batch in plain.iter_batches(most, row_groups=groups, columns=columns, use_threads=False):
            skipped = min(done, batch.num_rows)
            done -= skipped
            if skipped < batch.num_rows:
                yield batch.slice(skipped)


def _folded(metadata: pq.FileMetaData, chunks: Sequence[Sequence[ColumnChunk]]) -> set[str]:
    """The paths of texts that are stored as dictionaries, in one group of rows at least."""
    leaves = {leaf for group in chunks for leaf, chunk in enumerate(group) if chunk.is_bytes and chunk.has_dictionary}
    return {metadata.schema.column(leaf).path for leaf in leaves}


def encode(rows: Sequence[Mapping[str, object]]) -> bytes:
    """A file with these rows, of types that Arrow finds for their values."""
    file = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
    return bytes(file.getvalue())
