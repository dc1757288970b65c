"""Rows that are few enough for the engine's own process, with the way there and back.

A function that only writes rows takes them as they are, without another job of Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from freshline.compute.materialize import FEW_ROWS, LIKELY_MANY, MOST_BYTES, WIDTH, as_types, bound, materialize_once

# Values of these types are equal for Spark where their bytes are.
_EXACT = (BinaryType, BooleanType, DateType, DecimalType, IntegralType, TimestampNTZType, TimestampType)
# Rows for a commit are more than those that are compared, and nothing else is in the driver then.
MOST_WRITTEN = 128 << 20
# Of these some are equal with other bytes: 0.0 and -0.0.
_FRACTIONS = (DoubleType, FloatType)


@dataclass(frozen=True)
class ArrowRows:
    """Rows in the engine's process: the columns of `schema`, with bytes for texts, whose bytes need not be UTF-8."""

    table: pa.Table
    schema: StructType
    spark: SparkSession

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    def select(self, columns: Sequence[str]) -> ArrowRows:
        """Some columns of the rows."""
        fields = {field.name: field for field in self.schema.fields}
        return replace(self, table=self.table.select(columns), schema=StructType([fields[name] for name in columns]))

    def drop(self, *columns: str) -> ArrowRows:
        """The rows without some columns."""
        left = StructType([field for field in self.schema.fields if field.name not in columns])
        return replace(self, table=self.table.drop_columns(list(columns)), schema=left)

    def put(self, column: str, values: pa.Array) -> ArrowRows:
        """The rows with other values in a column, of its type."""
        return replace(self, table=self.table.set_column(self.schema.names.index(column), column, values))

    def where(self, column: str, value: str, *, is_so: bool = True) -> ArrowRows:
        """The rows of which a text that is never NULL is a value, or with `is_so` false is another."""
        met = pc.equal(self.table[column], pa.scalar(value.encode(), pa.binary()).cast(self.table[column].type))
        return replace(self, table=self.table.filter(met if is_so else pc.invert(met)))

    def frame(self) -> DataFrame:
        """The rows for Spark."""
        sent = StructType([StructField(field.name, sent_as(field.dataType), True) for field in self.schema.fields])
        kinds = {field.name: field.dataType for field in self.schema.fields}
        return as_types(self.spark.createDataFrame(self.table, sent), kinds)


def in_spark(rows: DataFrame | ArrowRows) -> DataFrame:
    """Rows for Spark, wherever they are."""
    return rows.frame() if isinstance(rows, ArrowRows) else rows


def is_exact(kind: DataType) -> bool:
    """Whether values of a type are equal where their bytes are."""
    # A text with a collation is of the same class, and not equal to a plain one.
    return isinstance(kind, _EXACT) or kind == StringType()


def are_served(schema: StructType) -> bool:
    """Whether rows come to this process and go back as they are."""
    return all(_is_served(field.dataType) for field in schema.fields)


def are_carried(schema: StructType) -> bool:
    """Whether rows come to this process and go back as they are, with lists of texts, which are not compared here."""
    return all(_is_served(_without_list(field.dataType)) for field in schema.fields)


def _without_list(kind: DataType) -> DataType:
    return StringType() if isinstance(kind, ArrayType) and kind.elementType == StringType() else kind


def _is_served(kind: DataType) -> bool:
    return is_exact(kind) or isinstance(kind, _FRACTIONS)


def sent_as(kind: DataType) -> DataType:
    """The type that a value has here."""
    if isinstance(kind, ArrayType):
        return ArrayType(sent_as(kind.elementType), kind.containsNull)
    return BinaryType() if kind == StringType() else kind


def take(rows: DataFrame, most: int) -> ArrowRows | None:
    """The rows, computed by one job; None where there are more than `most`, or their texts are longer than MOST_BYTES.

    Their types must be carried.
    """
    kinds = {field.name: sent_as(field.dataType) for field in rows.schema.fields}
    # So a row is not wide for being one of many that could be there.
    found = _collected(rows.limit(most + 1), kinds, min(most, 2 * FEW_ROWS), MOST_BYTES)
    return None if found is None or found.num_rows > most else ArrowRows(found, rows.schema, rows.sparkSession)


def in_arrow(rows: DataFrame | ArrowRows, count: int) -> pa.Table | None:
    """About so many rows, which are computed already, for a writer.

    None where their texts are longer than MOST_WRITTEN.
    """
    if isinstance(rows, ArrowRows):
        return rows.table
    return _collected(rows, {field.name: field.dataType for field in rows.schema.fields}, max(count, 1), MOST_WRITTEN)


def _collected(rows: DataFrame, kinds: Mapping[str, DataType], most: int, most_bytes: int) -> pa.Table | None:
    """Rows with these types, of which `most` are expected; None where their texts are longer than `most_bytes`."""
    bounded = bound(rows, kinds, most, most_bytes)
    if bounded is not None:
        found = bounded.rows.toArrow()
        widths = found[WIDTH]
        if (pc.sum(widths).as_py() or 0) > most_bytes:
            return None
        if not pc.any(pc.greater(widths, bounded.wide)).as_py():
            return found.drop_columns([WIDTH])
    return as_types(rows, kinds).toArrow()


def settle(rows: DataFrame, *, at_most: int | None, expected: int = 0) -> tuple[DataFrame | ArrowRows, int]:
    """Rows computed once, and how many: here where there are few `at_most`, else as `materialize_once` keeps them."""
    if at_most is not None and at_most <= FEW_ROWS and are_served(rows.schema):
        few = take(rows, FEW_ROWS)
        if few is not None:
            return few, few.count
        # The failed attempt is not repeated.
        return materialize_once(rows, expected=LIKELY_MANY + 1)
    return materialize_once(rows, expected=at_most or expected, at_most=at_most)
