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
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from freshline.compute.literal import sql_literal
from freshline.values.names import quoted

# Up to this many rows are kept in the driver.
FEW_ROWS = 5_000
# So many changed rows often make more than FEW_ROWS of what is computed from them.
LIKELY_MANY = 1_000
# Of texts and bytes this much is kept in the driver for one relation: its heap has 2 GB, and Spark's collecting takes
# several times what is collected.
MOST_BYTES = 64 << 20
WIDTH = "_freshline_width"
# So much wider than its share all columns of a row that is not whole may be. More than so many columns share it.
_WIDE_COLUMNS = 2
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


def has_rows(rows: DataFrame) -> bool:
    """Whether there is a row. No value of it comes to Python, which has not all times that Spark has."""
    return bool(rows.select(F.lit(1)).take(1))


def collect_if_small(rows: DataFrame, most: int = FEW_ROWS) -> tuple[DataFrame, int] | None:
    """The rows as a relation of the driver, and how many; None where there are more than `most`.

    None where their texts are longer than MOST_BYTES in all, too. A query that joins with such a relation, or sends it
    to tasks, needs no job for it. Texts pass through the driver as bytes, since a text of Java cannot contain bytes
    that are no UTF-8, which Spark's can.
    """
    held = collect_few(rows, most)
    return None if held is None else (held.rows(rows.sparkSession), held.count)


@dataclass(frozen=True)
class CollectedRows:
    """Rows in the driver: `sent` are Java's, of the type `sent_as`; `kinds` are the types of their columns."""

    sent: Any
    sent_as: Any
    kinds: Mapping[str, DataType]

    @property
    def count(self) -> int:
        return int(self.sent.size())

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows in a session."""
        return as_types(self.frame(spark), self.kinds)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The rows as they are here."""
        return DataFrame(spark._jsparkSession.createDataFrame(self.sent, self.sent_as), spark)


def collect_few(rows: DataFrame, most: int, most_bytes: int | None = None) -> CollectedRows | None:
    """Compute rows and keep them as `collect_if_small` does; None where they are more than `most`, or `most_bytes`."""
    most_bytes = most_bytes or MOST_BYTES
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    with_bytes = {name: _with_bytes(kind) for name, kind in kinds.items()}
    bounded = bound(rows, with_bytes, most, most_bytes)
    if bounded is not None:
        found = bounded.rows.limit(most + 1)._jdf.collectAsList()
        # As the rows are: none of the texts of those that are kept is missing.
        fields = [StructField(f.name, with_bytes[f.name], f.nullable, f.metadata) for f in rows.schema.fields]
        schema = StructType([*fields, StructField(WIDTH, LongType())])
        session = rows.sparkSession
        held = CollectedRows(found, session._jsparkSession.parseDataType(schema.json()), kinds)
        if held.count > most:
            return None
        # Of a relation of the driver this needs no job. Nothing but the width of a row may be computed here: a text
        # that was cut is NULL, also in a column that has no NULL.
        wide = held.frame(session).where(f"{WIDTH} > {bounded.wide}").selectExpr(WIDTH)._jdf.collectAsList()
        if wide.isEmpty():
            return held
        if sum(row.getLong(0) for row in wide) > most_bytes:
            return None
    sent = as_types(rows, with_bytes)
    found = sent.limit(most + 1)._jdf.collectAsList()
    return None if found.size() > most else CollectedRows(found, sent._jdf.schema(), kinds)


@dataclass(frozen=True)
class Bounded:
    """Rows that can be collected whatever their texts contain.

    A row has the bytes of its texts in a last column, WIDTH. One of more than `wide` may lack some of its texts, so
    whoever has found such a row collects the rows themselves, or nothing. Of such rows at most _WIDE_COLUMNS times what
    is kept is collected.
    """

    rows: DataFrame
    wide: int


def bound(rows: DataFrame, kinds: Mapping[str, DataType], most: int, most_bytes: int) -> Bounded | None:
    """Rows with these types, of which up to `most` are collected, with a bound on their bytes.

    None where their types have one.
    """
    fields = rows.schema.fields
    widths = {field.name: width for field in fields if (width := _width(quoted(field.name), field.dataType))}
    if not widths:
        return None
    wide = max(most_bytes // most, 1)
    cut = max(min(wide, _WIDE_COLUMNS * wide // len(widths)), 1)
    each = [f"coalesce({width}, 0)" for width in widths.values()]
    longest = each[0] if len(each) == 1 else f"greatest({', '.join(each)})"
    total = " + ".join(f"CAST({width} AS BIGINT)" for width in each)
    if cut < wide:
        # A column that is cut makes the row a wide one.
        total = f"{total} + CASE WHEN {longest} > {cut} THEN {wide} ELSE 0 END"
    if not all(_is_cast_by_text(field, kinds[field.name]) for field in fields):
        rows = as_types(rows, kinds)
    columns = []
    for field in rows.schema.fields:
        text = _as_text(field, kinds[field.name])
        if field.name in widths:
            text = f"CASE WHEN coalesce({widths[field.name]}, 0) <= {cut} THEN {_cast(field, kinds[field.name])} END"
            text = f"{text} AS {quoted(field.name)}"
        columns.append(text)
    return Bounded(rows.selectExpr(*columns, f"{total} AS {WIDTH}"), wide)


def _width(name: str, kind: DataType) -> str | None:
    """The bytes of a value as an expression of SQL; None of a type whose values are all short."""
    match kind:
        case StringType() | BinaryType():
            return f"octet_length({name})"
        case StructType():
            # After a dot the name could be that of a column of a relation.
            inner = [_width(f"{name}[{sql_literal(field.name)}]", field.dataType) for field in kind.fields]
            widths = [f"CAST(coalesce({width}, 0) AS BIGINT)" for width in inner if width is not None]
            return " + ".join(widths) if widths else None
        case ArrayType() | MapType() | VariantType():
            return f"octet_length(CAST({name} AS STRING))"
        case _:
            return None


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
    """The rows with these columns and types; the same rows where they have them."""
    before = {field.name: field for field in rows.schema.fields}
    changed = [before[name] for name, kind in kinds.items() if before[name].dataType != kind]
    if not changed and len(before) == len(kinds):
        return rows
    if all(_is_cast_by_text(field, kinds[field.name]) for field in changed):
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


def _is_cast_by_text(field: StructField, kind: DataType) -> bool:
    """Whether the text of a cast makes a column of a type, and nothing else of it is lost."""
    return not field.metadata and (field.dataType == kind or (_is_plain(field.dataType) and _is_plain(kind)))


def _as_text(field: StructField, kind: DataType) -> str:
    """A column of a type, as SQL."""
    return _cast(field, kind) + ("" if field.dataType == kind else f" AS {quoted(field.name)}")


def _cast(field: StructField, kind: DataType) -> str:
    name = quoted(field.name)
    return name if field.dataType == kind else f"CAST({name} AS {kind.simpleString()})"


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
