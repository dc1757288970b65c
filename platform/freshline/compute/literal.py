"""Values of Spark types as SQL text, for the few places that take only text (Delta's `replaceWhere`).

A value goes from Spark to Python as `for_literal` gives it, `from_spark` makes of that what `sql_literal` writes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, TimestampType

from freshline.errors import RefreshError
from freshline.values.names import quoted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def for_literal(column: Column, kind: DataType) -> Column:
    """The column in a form that reaches Python whole: a timestamp would come in the time zone of this machine."""
    return F.unix_micros(column) if isinstance(kind, TimestampType) else column


def from_spark(value: object, kind: DataType) -> object:
    """A partition's value, collected through `for_literal`; an empty text is NULL, as Delta keeps it."""
    if isinstance(kind, TimestampType) and isinstance(value, int):
        return EPOCH + timedelta(microseconds=value)
    return None if value == "" and isinstance(kind, StringType) else value


def collect_for_message(rows: DataFrame) -> list[Row]:
    """A few rows, to be shown; where Python has no such date or time, texts of all dates and times."""
    try:
        return rows.collect()
    except (ValueError, OverflowError):
        texts = [
            F.col(quoted(field.name)).cast("string").alias(field.name)
            if any(part in field.dataType.simpleString() for part in ("date", "timestamp"))
            else F.col(quoted(field.name))
            for field in rows.schema.fields
        ]
        return rows.select(*texts).collect()


def literal(value: object, kind: str) -> Column:
    """A constant of a type of SQL."""
    return F.lit(value).cast(kind)


def by_reference(value: object, kind: str) -> Column:
    """A constant of a type of SQL that does not stand in the code which Spark compiles for the query.

    Else the code is another one at each batch, and is compiled and optimized from the beginning. An array is handed
    over, and its place is not known before a task runs.
    """
    return F.get(F.array(literal(value, kind)), F.spark_partition_id() * 0)


def sql_literal(value: object) -> str:
    r"""A typed literal of Spark SQL that reads back as the value.

    >>> sql_literal("it's")
    "'it\\'s'"
    >>> sql_literal("${x}")
    "'\\u0024{x}'"
    >>> sql_literal(date(2026, 11, 1))
    "DATE'2026-11-01'"

    Raises RefreshError for a value that has no literal (a partition column of a nested type).
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}BD"
        case float():
            # The exact value also of a FLOAT, which is compared as the DOUBLE that it is.
            return f"{value!r}D" if math.isfinite(value) else f"DOUBLE('{value}')"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            # Spark puts values of its configuration in place of ${..}, also inside of texts.
            escaped = escaped.replace("${", "\\u0024{")
            return f"'{escaped}'"
        case datetime() if value.tzinfo is None:
            return f"TIMESTAMP_NTZ'{value.isoformat(sep=' ')}'"
        case datetime():
            return f"TIMESTAMP'{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE'{value.isoformat()}'"
        case _:
            raise RefreshError(f"a partition value of type {type(value).__name__} cannot be written as a literal")


def partition_predicate(expressions: Sequence[str], values: Sequence[tuple[object, ...]]) -> str:
    """The condition that is true for exactly the rows of these partitions; NULL is a partition like any other.

    `expressions` give the partition's values, as SQL.

    >>> partition_predicate(["ds"], [("a",), ("b",), (None,)])
    "(ds IN ('a', 'b')) OR (ds IS NULL)"
    """
    if len(expressions) == 1:
        (column,) = expressions
        present = [sql_literal(value) for (value,) in values if value is not None]
        parts = [f"({column} IN ({', '.join(present)}))"] if present else []
        if len(present) < len(values):
            parts.append(f"({column} IS NULL)")
        return " OR ".join(parts)
    return " OR ".join(
        "("
        + " AND ".join(
            f"{column} IS NULL" if value is None else f"{column} = {sql_literal(value)}"
            for column, value in zip(expressions, row, strict=True)
        )
        + ")"
        for row in values
    )
