"""Records of any number in bounded memory: few of them stay here, many go to files that Spark reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType, TimestampType

from freshline.compute.inputs import FILE
from freshline.sources.databases.spill import Spill
from freshline.sources.kinesis.connector import PARTITION_KEY, SEQUENCE, SHARD, SUB_SEQUENCE, TIMESTAMP
from freshline.sources.reader import VERDICT
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
_SPARK = StructType(
    [
        StructField(VALUE, BinaryType()),
        StructField(RECORD, LongType()),
        StructField(SHARD, StringType()),
        StructField(SEQUENCE, StringType()),
        StructField(SUB_SEQUENCE, LongType()),
        StructField(PARTITION_KEY, StringType()),
        StructField(TIMESTAMP, TimestampType()),
        StructField(VERDICT, StringType()),
    ]
)


class Row(NamedTuple):
    """A user record. `number` is its place in the shard, `arrived` in microseconds since 1970."""

    data: bytes
    number: int
    shard: str
    sequence: str
    sub_sequence: int | None
    key: str
    arrived: int | None
    verdict: str | None


class RecordRows(Spill[Row]):
    """Records of several shards in the order in which they are added; `bytes` is what they take."""

    def __init__(self, folder: Any) -> None:
        """`folder` is a path, or None where all are to be in memory."""
        super().__init__(_SCHEMA, folder)
        self.bytes = 0

    def add(self, row: Row) -> None:
        """Add a record. Raises OSError where the disk is full."""
        size = len(row.data) + len(row.key) + 200
        self.bytes += size
        self.append(row, size)

    def batch(self, rows: Sequence[Row], first: int) -> Any:
        columns: Sequence[Any] = list(zip(*rows, strict=True)) or [()] * len(_SCHEMA)
        arrays = [pa.array(values, field.type) for values, field in zip(columns, _SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)

    def read(self, spark: SparkSession) -> DataFrame:
        """The records as those of the loop, with their place."""
        if self.is_spilled:
            # As one path: of several Spark takes those for patterns that have a bracket in them.
            found = spark.read.schema(_SPARK).option("__globPaths__", "false").parquet(str(self.folder))
        else:
            found = spark.createDataFrame(self.table, _SPARK)
        return found.withColumn(FILE, F.col(SHARD))
