"""Rows that are computed once and used more than once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from freshline.refresh.literal import quoted

# Up to this many rows are kept in the driver.
FEW_ROWS = 5_000
# So many changed rows often make more than FEW_ROWS of what is computed from them.
LIKELY_MANY = 1_000
_PLAIN = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    TimestampNTZType,
    TimestampType,
)
# Those of the helpers of merges are such.
_PLAIN_NAME = re.compile("[a-z][0-9]*")


def collect_if_small(rows: DataFrame, most: int = FEW_ROWS) -> tuple[DataFrame, int] | None:
    """The rows as a relation of the driver, and how many; None where there are more than `most`.

    What joins with such a relation, or sends it to tasks, needs no job for it. Texts pass through the driver as bytes,
    since a text of Java cannot hold bytes that are no UTF-8, which Spark's can.
    """
    held = hold_few(rows, most)
    return None if held is None else (held.rows(rows.sparkSession), held.count)


@dataclass(frozen=True)
class HeldRows:
    """Rows in the driver: `sent` are Java's, of the type `sent_as`; `kinds` are the types of their columns."""

    sent: Any
    sent_as: Any
    kinds: Mapping[str, DataType]

    @property
    def count(self) -> int:
        return int(self.sent.size())

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows in a session."""
        return as_types(DataFrame(spark._jsparkSession.createDataFrame(self.sent, self.sent_as), spark), self.kinds)


def hold_few(rows: DataFrame, most: int) -> HeldRows | None:
    """Compute rows, and hold them as `collect_if_small` does; None where there are more than `most`."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    sent = as_types(rows, {name: _with_bytes(kind) for name, kind in kinds.items()})
    found = sent.limit(most + 1)._jdf.collectAsList()
    return None if found.size() > most else HeldRows(found, sent._jdf.schema(), kinds)


def materialize_once(rows: DataFrame, *, expected: int = 0, at_most: int | None = None) -> tuple[DataFrame, int]:
    """Compute rows once, and how many there are: few in the driver, more where they were computed.

    To try whether they are few costs nothing where they are, and all of their computation where they are not: where
    more than LIKELY_MANY changed rows are `expected` it is not tried, unless there are few `at_most`.
    """
    is_few = at_most is not None and at_most <= FEW_ROWS
    few = collect_if_small(rows) if is_few or expected <= LIKELY_MANY else None
    if few is not None:
        return few
    kept = rows.localCheckpoint(eager=True)
    return kept, kept.count()


def as_types(rows: DataFrame, kinds: Mapping[str, DataType]) -> DataFrame:
    """The rows with these types; the same rows where they have them."""
    before = {field.name: field for field in rows.schema.fields}
    changed = [before[name] for name, kind in kinds.items() if before[name].dataType != kind]
    if not changed:
        return rows
    if all(_is_plain(field.dataType) and _is_plain(kinds[field.name]) and not field.metadata for field in changed):
        # Each part of a column is a call into the JVM, a text is one.
        return rows.selectExpr(*[_as_text(before[name], kind) for name, kind in kinds.items()])
    return rows.select(
        *[
            F.col(quoted(name))
            if before[name].dataType == kind
            else F.col(quoted(name)).cast(kind).alias(name, metadata=before[name].metadata)
            for name, kind in kinds.items()
        ]
    )


def _is_plain(kind: DataType) -> bool:
    """Whether the name of a type reads back as the type: nothing in it must be quoted, and no text has a collation."""
    match kind:
        case StructType():
            return all(_PLAIN_NAME.fullmatch(field.name) and _is_plain(field.dataType) for field in kind.fields)
        case ArrayType():
            return _is_plain(kind.elementType)
        case MapType():
            return _is_plain(kind.keyType) and _is_plain(kind.valueType)
        case StringType():
            return kind == StringType()
        case _:
            return isinstance(kind, _PLAIN)


def _as_text(field: StructField, kind: DataType) -> str:
    """A column of a type, as SQL."""
    name = quoted(field.name)
    return name if field.dataType == kind else f"CAST({name} AS {kind.simpleString()}) AS {name}"


def _with_bytes(kind: DataType) -> DataType:
    """The type with bytes for the texts in it, but those with a collation."""
    match kind:
        case StructType():
            return StructType(
                [StructField(f.name, _with_bytes(f.dataType), f.nullable, f.metadata) for f in kind.fields]
            )
        case ArrayType():
            return ArrayType(_with_bytes(kind.elementType), kind.containsNull)
        case MapType():
            return MapType(_with_bytes(kind.keyType), _with_bytes(kind.valueType), kind.valueContainsNull)
        case _:
            return BinaryType() if kind == StringType() else kind
