"""Records of any number in bounded memory."""

from __future__ import annotations

from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.compute.inputs import FILE
from freshline.sources.kinesis.connector import PARTITION_KEY, SEQUENCE, SHARD, SUB_SEQUENCE, TIMESTAMP
from freshline.sources.reader import VERDICT
from freshline.sources.spill import Spill
from freshline.values.connector import RECORD
from freshline.values.format import VALUE

_SCHEMA = pa.schema(
    [
        (VALUE, pa.binary()),
        (RECORD, pa.int64()),
        (SHARD, pa.string()),
        (SEQUENCE, pa.string()),
        (SUB_SEQUENCE, pa.int64()),
        (PARTITION_KEY, pa.string()),
        (TIMESTAMP, pa.timestamp("us", tz="UTC")),
        (VERDICT, pa.string()),
    ]
)


class ShardRecord(NamedTuple):
    """A user record. `number` is its place in the shard, `arrived` in microseconds since 1970."""

    data: bytes
    number: int
    shard: str
    sequence: str
    sub_sequence: int | None
    key: str
    arrived: int | None
    verdict: str | None


class RecordRows(Spill[ShardRecord]):
    """Records of several shards in the order in which they are added; `bytes` is what they take."""

    def __init__(self, folder: Any) -> None:
        """`folder` is a path, or None where all are to be in memory."""
        super().__init__(_SCHEMA, folder)
        self.bytes = 0

    def add(self, row: ShardRecord) -> None:
        """Add a record. Raises OSError where the disk is full."""
        size = len(row.data) + len(row.key) + 200
        self.bytes += size
        self.append(row, size)

    def records(self, spark: SparkSession) -> DataFrame:
        """The records as those of the loop, with their place."""
        return self.read(spark).withColumn(FILE, F.col(SHARD))
