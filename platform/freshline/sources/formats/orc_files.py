"""The rows of ORC files, with the declared columns alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.orc as orc

from freshline.sources.formats import fit as fit_module
from freshline.sources.formats.container import Container, Contents, NoContainer
from freshline.sources.formats.fit import Wanted, fitted, sql_type

MARK = b"ORC"
NOT_ORC = "NOT_ORC"
# The rows that are read at once, so that a stripe is never unpacked as a whole.
_ROWS = 1_024


@dataclass(frozen=True)
class OrcRows(Container):
    """The rows of a file, which is read by one task: only from its beginning can it be read in bounded memory."""

    wanted: Wanted

    # At a DECIMAL of more than 38 digits in its footer, for one.
    may_abort = True

    @property
    def rows(self) -> pa.Schema:
        return self.wanted.rows

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        return (fit_module, sys.modules[__name__])

    def inspect(self, file: BinaryIO, size: int, check: Callable[[], None]) -> Contents:
        if file.read(len(MARK)) != MARK:
            raise NoContainer(NOT_ORC, "it does not begin with ORC")
        opened = orc.ORCFile(file)
        names = tuple(opened.schema.names)
        fields = tuple((field.name, sql_type(field.type)) for field in opened.schema)
        for name in self.wanted.schema.names:
            if names.count(name) > 1:
                raise NoContainer(NOT_ORC, f"it has the column {name} twice")
        read = weight = 0
        for batch in self.read(file, 0, None, 0):
            check()
            read, weight = read + batch.num_rows, weight + batch.nbytes
        if read != opened.nrows:
            raise NoContainer("UNREADABLE", f"its footer says {opened.nrows} rows, and {read} are there")
        return Contents(read, weight, fields=fields)

    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        file.seek(0)
        opened = orc.ORCFile(file)
        declared, count = self.wanted.schema.names, before
        for batch in self._batches(file, tuple(opened.schema.names), opened.nrows):
            there = {name: batch.column(number) for number, name in enumerate(batch.schema.names)}
            yield from fitted([there.get(name) for name in declared], batch.num_rows, count + 1, self.wanted)
            count += batch.num_rows

    def _batches(self, file: Any, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        declared = [name for name in self.wanted.schema.names if name in names]
        if not declared:
            # No declared column is in the file: its rows have NULL everywhere.
            for done in range(0, rows, _ROWS):
                yield pa.RecordBatch.from_arrays([pa.nulls(min(_ROWS, rows - done))], ["_freshline_nothing"])
            return
        file.seek(0)
        fragment = ds.OrcFileFormat().make_fragment(pa.PythonFile(file, "r"))
        scanner = fragment.scanner(
            columns={name: ds.field(name) for name in declared},
            batch_size=_ROWS,
            batch_readahead=0,
            fragment_readahead=0,
            use_threads=False,
        )
        yield from scanner.to_batches()


def encode(rows: Sequence[Mapping[str, object]]) -> bytes:
    """A file with these rows, of types that Arrow finds for their values."""
    file = pa.BufferOutputStream()
    orc.write_table(pa.Table.from_pylist([dict(row) for row in rows]), file)
    return bytes(file.getvalue())
