"""Events of any number in bounded memory: few of them stay here, many go to files that Spark reads."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from freshline.declare.change import CHANGED_AT, OP, POSITION, TRANSACTION, UNSENT
from freshline.declare.connector import RECORD
from freshline.declare.format import PARSED, VALUE
from freshline.sources.postgres.connector import COMMIT
from freshline.sources.postgres.events import Event, ReadColumn
from freshline.sources.postgres.format import BROKEN
from freshline.sources.postgres.position import ordered_lsn
from freshline.sources.postgres.values import arrow_type

# As much is in memory at once, in rows and in bytes of the database's messages.
MOST_ROWS, MOST_BYTES = 20_000, 16 * 1024 * 1024
# A file has so many rows, so that Spark's tasks have work of one size.
_FILE_ROWS = 200_000
# How Debezium writes positions of Postgres too.
DATABASE = "postgresql"


class EventRows:
    """Events in the order in which they are added, numbered from `first` on.

    Up to MOST_ROWS of them, and MOST_BYTES, are in `table`; of more all are in files in `folder`, which `remove`
    takes away. The reader removes the files that a killed process left there.
    """

    def __init__(self, columns: Sequence[ReadColumn], folder: Path, first: int) -> None:
        self.count = 0
        self.folder = folder
        self._first = first
        self._parsed = pa.struct([pa.field(column.name, arrow_type(column.type)) for column in columns])
        self._schema = pa.schema(
            [
                (VALUE, pa.string()),
                (RECORD, pa.int64()),
                (COMMIT, pa.string()),
                (PARSED, self._parsed),
                (OP, pa.string()),
                (POSITION, pa.string()),
                (CHANGED_AT, pa.timestamp("us", tz="UTC")),
                (TRANSACTION, pa.string()),
                (UNSENT, pa.list_(pa.string())),
                (BROKEN, pa.string()),
            ]
        )
        self._pending: list[Event] = []
        self._bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._files: list[Path] = []
        self._in_file = 0

    @property
    def table(self) -> Any:
        """The events as a table of Arrow. Only where `is_spilled` is false."""
        return pa.Table.from_batches([self._batch()], schema=self._schema)

    @property
    def is_spilled(self) -> bool:
        """Whether the events are in `files`."""
        return bool(self._files)

    @property
    def files(self) -> Sequence[Path]:
        """The files with all events; complete after `finish`."""
        return self._files

    def add(self, event: Event) -> None:
        """Add an event. Raises OSError where the disk is full."""
        self._pending.append(event)
        self.count += 1
        self._bytes += event.size + 200
        if len(self._pending) > MOST_ROWS or self._bytes > MOST_BYTES:
            self._spill()

    def finish(self) -> None:
        """Say that all events are there."""
        if self._files:
            self._spill()
            self._close()

    def remove(self) -> None:
        """Let go of the files."""
        self._close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _spill(self) -> None:
        if self._writer is None or self._in_file >= _FILE_ROWS:
            self._close()
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            file = self.folder / f"{len(self._files):06}.parquet"
            self._files.append(file)
            self._writer = pq.ParquetWriter(file, self._schema, compression="zstd", compression_level=1)
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
        events = self._pending
        first = self._first + self.count - len(events)
        columns = list(zip(*(event.values for event in events), strict=True)) or [()] * len(self._parsed)
        arrays = [pa.array(values, type=field.type) for values, field in zip(columns, self._parsed, strict=True)]
        # Most events of a batch have one commit.
        commits: dict[int, str] = {}
        given: list[Any] = [
            [event.raw for event in events],
            range(first, first + len(events)),
            [commits.get(each.commit) or commits.setdefault(each.commit, ordered_lsn(each.commit)) for each in events],
            None,
            [event.op for event in events],
            [f"{DATABASE}:{ordered_lsn(event.position)}" for event in events],
            [event.changed_at for event in events],
            [event.transaction for event in events],
            [event.unsent for event in events],
            [event.broken for event in events],
        ]
        made = [
            pa.StructArray.from_arrays(arrays, fields=list(self._parsed))
            if values is None
            else pa.array(values, field.type)
            for values, field in zip(given, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(made, schema=self._schema)
