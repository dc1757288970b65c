"""Partitions that a person names: `column=value` texts become typed values, or an error before any work."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.declare.spec import TableSpec
from freshline.errors import PartitionError
from freshline.refresh.literal import partition_predicate, quoted, sql_literal


def partition_key(partition: Sequence[tuple[str, str]]) -> str:
    """A partition as one text, as receipts and outcomes name it."""
    return "/".join(f"{column}={value}" for column, value in partition)


def partition_condition(
    spark: SparkSession, spec: TableSpec, schema: StructType, partition: Sequence[tuple[str, str]]
) -> str:
    """The condition that holds for exactly the rows of a named partition.

    Raises PartitionError for a table without partitions, an unknown or other column, a value that is not of the
    column's type, or no column at all.
    """
    where = f"{spec.name} partition ({partition_key(partition)})"
    if not spec.partitioned_by:
        raise PartitionError("the table has no partitions. Refresh the whole table.", where=str(spec.name))
    if not partition:
        raise PartitionError("no partition is named", where=str(spec.name))
    columns = {column.lower(): column for column in spec.partitioned_by}
    names: list[str] = []
    values: list[object] = []
    for column, text in partition:
        name = columns.get(column.lower())
        if name is None:
            raise PartitionError(
                f"{column} is not a partition column. The table is PARTITIONED BY ({', '.join(spec.partitioned_by)}).",
                where=where,
            )
        if name in names:
            raise PartitionError(f"{column} is named twice", where=where)
        field = next(field for field in schema.fields if field.name.lower() == name.lower())
        kind = field.dataType.simpleString()
        value = spark.range(1).select(F.expr(f"try_cast({sql_literal(text)} AS {kind})")).collect()[0][0]
        if value is None:
            raise PartitionError(f"{text!r} is not a value of {column}, which is {kind.upper()}", where=where)
        names.append(name)
        values.append(value)
    if len(names) == 1:
        return partition_predicate((names[0],), [(values[0],)])
    return " AND ".join(f"{quoted(name)} = {sql_literal(value)}" for name, value in zip(names, values, strict=True))
