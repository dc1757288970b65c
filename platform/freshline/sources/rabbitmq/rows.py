"""Messages of any number in bounded memory: few of them stay here, many go to files that Spark reads."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from freshline.compute.inputs import FILE
from freshline.sources.rabbitmq.client import Message
from freshline.sources.rabbitmq.connector import (
    APP_ID,
    DIGEST,
    EXCHANGE,
    HEADERS,
    MESSAGE_ID,
    REDELIVERED,
    ROUTING_KEY,
    TIMESTAMP,
)
from freshline.sources.reader import VERDICT
from freshline.values.connector import RECORD
from freshline.values.format import VALUE

# As much is in memory at once, in messages and in bytes of their bodies, and the last message beside it.
MOST_ROWS, MOST_BYTES = 20_000, 16 * 1024 * 1024
# A file has about so many bytes, so that Spark's tasks have work of one size.
_FILE_ROWS, _FILE_BYTES = 200_000, 128 * 1024 * 1024

_HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_SCHEMA = pa.schema(
    [
        (VALUE, pa.binary()),
        (RECORD, pa.int64()),
        (EXCHANGE, pa.string()),
        (ROUTING_KEY, pa.string()),
        (MESSAGE_ID, pa.string()),
        (APP_ID, pa.string()),
        (TIMESTAMP, pa.timestamp("us", tz="UTC")),
        (HEADERS, pa.list_(_HEADER)),
        (REDELIVERED, pa.bool_()),
        (DIGEST, pa.binary()),
        (VERDICT, pa.string()),
    ]
)
_SPARK = StructType(
    [
        StructField(VALUE, BinaryType()),
        StructField(RECORD, LongType()),
        StructField(EXCHANGE, StringType()),
        StructField(ROUTING_KEY, StringType()),
        StructField(MESSAGE_ID, StringType()),
        StructField(APP_ID, StringType()),
        StructField(TIMESTAMP, TimestampType()),
        StructField(
            HEADERS,
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
        StructField(REDELIVERED, BooleanType()),
        StructField(DIGEST, BinaryType()),
        StructField(VERDICT, StringType()),
    ]
)


class MessageRows:
    """Messages in the order in which they are added.

    Up to MOST_ROWS of them, and MOST_BYTES, are in memory; of more all are in files in `folder`, which `remove` takes
    away. The reader removes the files that a killed process left there. Without a folder all are in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self.count, self.bytes = 0, 0
        self._folder = folder
        self._pending: list[tuple[Any, ...]] = []
        self._pending_bytes = 0
        self._writer: pq.ParquetWriter | None = None
        self._files: list[Path] = []
        self._in_file = (0, 0)

    @property
    def is_spilled(self) -> bool:
        """Whether the messages are in files."""
        return bool(self._files)

    @property
    def table(self) -> Any:
        """The messages as a table of Arrow. Only where `is_spilled` is false."""
        return pa.Table.from_batches([self._batch()], schema=_SCHEMA)

    @property
    def files(self) -> Sequence[Path]:
        """The files with all messages; complete after `finish`."""
        return self._files

    def add(self, message: Message, number: int, digest: bytes | None, verdict: str | None) -> None:
        """Add a message under its number. Raises OSError where the disk is full."""
        properties = message.properties
        self._pending.append(
            (
                message.body,
                number,
                message.exchange,
                message.routing_key,
                properties.message_id,
                properties.app_id,
                properties.timestamp,
                properties.headers,
                message.is_redelivered,
                digest,
                verdict,
            )
        )
        size = len(message.body) + 300
        self.count += 1
        self.bytes += size
        self._pending_bytes += size
        if self._folder is not None and (len(self._pending) > MOST_ROWS or self._pending_bytes > MOST_BYTES):
            self._spill(self._folder)

    def finish(self) -> None:
        """Say that all messages are there. Raises OSError where the disk is full."""
        if self._files and self._folder is not None:
            self._spill(self._folder)
            self._close()

    def remove(self) -> None:
        """Let go of the messages."""
        self._pending, self._pending_bytes = [], 0
        self._close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def read(self, spark: SparkSession, place: str) -> DataFrame:
        """The messages as records of the loop, with their place."""
        if self.is_spilled:
            # As one path: of several Spark takes those for patterns that have a bracket in them.
            found = spark.read.schema(_SPARK).option("__globPaths__", "false").parquet(str(self._folder))
        else:
            found = spark.createDataFrame(self.table, _SPARK)
        return found.withColumn(FILE, F.lit(place))

    def _spill(self, folder: Path) -> None:
        rows, size = self._in_file
        if self._writer is None or rows >= _FILE_ROWS or size >= _FILE_BYTES:
            self._close()
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            file = folder / f"{len(self._files):06}.parquet"
            self._files.append(file)
            # Bodies differ, so a dictionary of them helps nobody and costs memory.
            self._writer = pq.ParquetWriter(
                file, _SCHEMA, compression="zstd", compression_level=1, use_dictionary=_REPEATED, write_statistics=False
            )
            rows, size = 0, 0
        batch = self._batch()
        self._writer.write_batch(batch)
        self._in_file = (rows + batch.num_rows, size + self._pending_bytes)
        self._pending, self._pending_bytes = [], 0

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _batch(self) -> Any:
        columns: Sequence[Any] = list(zip(*self._pending, strict=True)) or [()] * len(_SCHEMA)
        headers = _SCHEMA.get_field_index(HEADERS)
        arrays = [
            pa.array(_named(values) if index == headers else values, field.type)
            for index, (values, field) in enumerate(zip(columns, _SCHEMA, strict=True))
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


# The columns that repeat themselves.
_REPEATED = [EXCHANGE, ROUTING_KEY, APP_ID]


def _named(headers: Sequence[Any]) -> list[Any]:
    return [None if each is None else [{"key": name, "value": value} for name, value in each] for each in headers]
