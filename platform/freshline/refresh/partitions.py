"""Partitions that a person names: `column=value` texts become typed values, or an error before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from urllib.parse import quote, unquote

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from freshline.compute.literal import for_literal, from_spark, partition_predicate
from freshline.errors import PartitionError
from freshline.values.names import quoted
from freshline.values.spec import TableSpec


def partition_key(values: Mapping[str, object]) -> str:
    """A partition as one text, as receipts name it: equal partitions have equal texts.

    >>> partition_key({"ds": date(2026, 11, 1), "path": "a/b=c"})
    'ds=2026-11-01/path=a%2Fb%3Dc'
    """
    return "/".join(f"{column}={quote(_text(value), safe='')}" for column, value in values.items())


def named_partition(key: str) -> tuple[tuple[str, str], ...]:
    """The columns and value texts of a partition's text.

    >>> named_partition("ds=2026-11-01/path=a%2Fb%3Dc")
    (('ds', '2026-11-01'), ('path', 'a/b=c'))
    """
    pairs = (part.split("=", 1) for part in key.split("/"))
    return tuple((column, unquote(text)) for column, text in pairs)


def _text(value: object) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, date) else str(value)


def partition_condition(values: Mapping[str, object], expressions: Mapping[str, str] | None = None) -> str:
    """The condition that is true for exactly the rows of a named partition.

    `expressions` give the partition columns' values where they are not columns under their own names.
    """
    over = {name: quoted(name) if expressions is None else f"({expressions[name]})" for name in values}
    return partition_predicate(list(over.values()), [tuple(values.values())])


def partition_column(spec: TableSpec, named: str, where: str | None = None) -> str:
    """The partition column of this name, as the declaration spells it. Raises PartitionError where there is none."""
    for column in spec.partitioned_by:
        if column.lower() == named.lower():
            return column
    raise PartitionError(
        f"{named} is not a partition column. The table is PARTITIONED BY ({', '.join(spec.partitioned_by)}).",
        where=where or str(spec.name),
    )


def read_partition(
    spark: SparkSession, spec: TableSpec, schema: StructType, partition: Sequence[tuple[str, str]]
) -> dict[str, object]:
    """The typed values of a named partition by column; an empty text names the partition of NULL texts.

    Raises PartitionError for a table without partitions, an unknown or other column, a value that is not of the
    column's type, or no column at all.
    """
    where = f"{spec.name} partition ({', '.join(f'{column} = {text!r}' for column, text in partition)})"
    if not spec.partitioned_by:
        raise PartitionError("the table has no partitions. Refresh the whole table.", where=str(spec.name))
    if not partition:
        raise PartitionError("no partition is named", where=str(spec.name))
    values: dict[str, object] = {}
    for column, text in partition:
        name = partition_column(spec, column, where)
        if name in values:
            raise PartitionError(f"{column} is named twice", where=where)
        kind = next(field for field in schema.fields if field.name.lower() == name.lower()).dataType
        value = _read_value(spark, text, kind)
        if value is None:
            shown = kind.simpleString().upper()
            raise PartitionError(f"{text!r} is not a value of {column}, which is {shown}", where=where)
        values[name] = from_spark(value, kind)
    return {name: values[name] for name in spec.partitioned_by if name in values}


def _read_value(spark: SparkSession, text: str, kind: DataType) -> object:
    # Cast as a column: of a literal, Spark would take `yesterday` for a date.
    named = spark.createDataFrame([(text,)], "text STRING")
    value = F.expr(f"try_cast(text AS {kind.simpleString()})")
    return named.select(for_literal(value, kind)).collect()[0][0]
