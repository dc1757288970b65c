"""Rows of any number in bounded memory: few of them stay here, many go to files that Spark reads.

Readers of systems that know neither offsets nor how much there is read a portion so, before it is known where it ends.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from freshline.errors import StorageError
from freshline.sources.reader import Host, L, P, Reader
from freshline.values.spec import SourceSpec

# As much is in memory at once, in rows and in bytes of what the system sent.
MOST_ROWS, MOST_BYTES = 20_000, 16 * 1024 * 1024
# A file has about so many rows or bytes, so that Spark's tasks have work of one size.
_FILE_ROWS, _FILE_BYTES = 200_000, 128 * 1024 * 1024
# The bytes that a row takes beside its values.
_ROW_BYTES = 200

T = TypeVar("T")


class Spill(Generic[T]):
    """Rows in the order in which they are added.

    Up to MOST_ROWS of them, and MOST_BYTES, are in `table`; of more all are in files in `folder`, which `remove`
    takes away. The reader removes the files that a killed process left there. Without a folder all are in `table`.
    `writing` are options of the files.
    """

    writing: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, schema: Any, folder: Path | None) -> None:
        """`schema` is that of Arrow."""
        self.count = 0
        self.folder = folder
        self.schema = schema
        self._pending: list[T] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._files: list[Path] = []
        self._in_file = (0, 0)

    def batch(self, rows: Sequence[T], first: int) -> Any:
        """Rows as a batch of Arrow; `first` is how many were added before them. By default a row is its values."""
        columns: Sequence[Any] = list(zip(*rows, strict=True)) or [()] * len(self.schema)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, self.schema, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    @property
    def table(self) -> Any:
        """The rows as a table of Arrow. Only where `is_spilled` is false."""
        return pa.Table.from_batches([self._batch()], schema=self.schema)

    @property
    def is_spilled(self) -> bool:
        """Whether the rows are in `files`."""
        return bool(self._files)

    @property
    def files(self) -> Sequence[Path]:
        """The files with all rows; complete after `finish`."""
        return self._files

    def append(self, row: T, size: int) -> None:
        """Add a row of about `size` bytes. Raises OSError where the disk is full."""
        self._pending.append(row)
        self.count += 1
        self._bytes += size + _ROW_BYTES
        if self.folder is not None and (len(self._pending) > MOST_ROWS or self._bytes > MOST_BYTES):
            self._spill(self.folder)

    def finish(self) -> None:
        """Say that all rows are there."""
        if self._files and self.folder is not None:
            self._spill(self.folder)
            self._close()

    def remove(self) -> None:
        """Let go of the rows and the files."""
        self._pending, self._bytes = [], 0
        self._close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def read(self, spark: SparkSession, schema: StructType | None = None) -> DataFrame:
        """The rows for Spark, with the types of `schema`, by default those of Arrow."""
        types = schema or from_arrow_schema(self.schema)
        if self.is_spilled:
            # As one path: of several Spark takes those for patterns that have a bracket in them.
            return spark.read.schema(types).option("__globPaths__", "false").parquet(str(self.folder))
        return spark.createDataFrame(self.table, types)

    def _spill(self, folder: Path) -> None:
        rows, size = self._in_file
        if self._writer is None or rows >= _FILE_ROWS or size >= _FILE_BYTES:
            self._close()
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            file = folder / f"{len(self._files):06}.parquet"
            self._files.append(file)
            self._writer = pq.ParquetWriter(file, self.schema, compression="zstd", compression_level=1, **self.writing)
            rows, size = 0, 0
        batch = self._batch()
        self._writer.write_batch(batch)
        self._in_file = (rows + batch.num_rows, size + self._bytes)
        self._pending, self._bytes = [], 0

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _batch(self) -> Any:
        return self.batch(self._pending, self.count - len(self._pending))


class SpillingReader(Reader[L, P]):
    """A reader that reads a portion into rows before it is known where the portion ends."""

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        self._rows: Spill[Any] | None = None

    @property
    def where(self) -> str:
        return str(self.spec.written_at)

    @property
    def folder(self) -> Path:
        """The folder for rows of a portion."""
        return self.host.warehouse.notes / "reading" / str(self.spec.name)

    @contextmanager
    def filling(self, rows: Spill[Any]) -> Iterator[None]:
        """Rows while a portion is read into them; those of a portion that fails are removed."""
        # A process that was killed may have left files.
        rows.remove()
        self._rows = rows
        try:
            yield
        except BaseException:
            rows.remove()
            raise

    def no_room(self, error: OSError) -> StorageError:
        """The error for rows that cannot be written to the disk."""
        return StorageError(
            f"what was read does not fit on the disk: {error.strerror or error}. Make room.", where=self.where
        )

    def finish(self, spark: SparkSession) -> None:
        if self._rows is not None:
            self._rows.remove()
            self._rows = None
