"""Rows of any number in bounded memory: few of them stay here, many go to files that Spark reads."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

# As much is in memory at once, in rows and in bytes of the database's messages.
MOST_ROWS, MOST_BYTES = 20_000, 16 * 1024 * 1024
# A file has so many rows, so that Spark's tasks have work of one size.
_FILE_ROWS = 200_000
# The bytes that a row takes beside its values.
_ROW_BYTES = 200

T = TypeVar("T")


class Spill(ABC, Generic[T]):
    """Rows in the order in which they are added.

    Up to MOST_ROWS of them, and MOST_BYTES, are in `table`; of more all are in files in `folder`, which `remove`
    takes away. The reader removes the files that a killed process left there. Without a folder all are in `table`.
    """

    def __init__(self, schema: Any, folder: Path | None) -> None:
        """`schema` is that of Arrow."""
        self.count = 0
        self.folder = folder
        self.schema = schema
        self._pending: list[T] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._files: list[Path] = []
        self._in_file = 0

    @abstractmethod
    def batch(self, rows: Sequence[T], first: int) -> Any:
        """Rows as a batch of Arrow; `first` is how many were added before them."""

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
        """Let go of the files."""
        self._close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _spill(self, folder: Path) -> None:
        if self._writer is None or self._in_file >= _FILE_ROWS:
            self._close()
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            file = folder / f"{len(self._files):06}.parquet"
            self._files.append(file)
            self._writer = pq.ParquetWriter(file, self.schema, compression="zstd", compression_level=1)
            self._in_file = 0
        batch = self._batch()
        self._writer.write_batch(batch)
        self._in_file += batch.num_rows
        self._pending, self._bytes = [], 0

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _batch(self) -> Any:
        return self.batch(self._pending, self.count - len(self._pending))
