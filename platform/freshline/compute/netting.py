"""Rows that came and went, less those that did both."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DatetimeType,
    DayTimeIntervalType,
    GeographyType,
    GeometryType,
    MapType,
    NumericType,
    StringType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from freshline.query.rules.algebra import SIGN
from freshline.values.names import quoted

NET = "_freshline_net"
# Values of these types that Spark takes for equal may differ: zeros of either sign, and texts of a collation that
# differ in letter case. Results that are computed from them are not the same.
LOOSELY_EQUAL = ("double", "float", "collate")
_ORDERED = (NumericType, BooleanType, BinaryType, DatetimeType, DayTimeIntervalType, YearMonthIntervalType)


def net(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The columns of the rows whose SIGN does not add up to nothing, each once.

    All rows where values cannot be compared, as maps: then more is computed again than need be, never less.
    """
    counted = counted_by_value(rows, columns)
    return (rows if counted is None else counted).select(*_named(columns))


def net_signed(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """As `net`, with SIGN, and each row as often as it came or went on balance."""
    counted = counted_by_value(rows, columns)
    if counted is None:
        return rows.select(*_named(columns), SIGN)
    again = F.explode(F.array_repeat(F.lit(1), F.abs(NET).cast("int"))).alias("_freshline_again")
    return counted.select("*", again).select(*_named(columns), F.signum(NET).cast("int").alias(SIGN))


def _named(columns: Sequence[str]) -> list[Column]:
    return [F.col(quoted(column)) for column in columns]


def is_compared(kind: DataType) -> bool:
    """Whether Spark compares the values of a type, alone or inside of others."""
    match kind:
        case StructType():
            return all(is_compared(field.dataType) for field in kind.fields)
        case ArrayType():
            return is_compared(kind.elementType)
        case _:
            return not isinstance(kind, MapType | VariantType | GeometryType | GeographyType)


def is_ordered(kind: DataType) -> bool:
    """Whether Spark puts the values of a type in one order, in which different values are not equal (zeros are)."""
    match kind:
        case StructType():
            return all(is_ordered(field.dataType) for field in kind.fields)
        case ArrayType():
            return is_ordered(kind.elementType)
        case StringType():
            return kind == StringType()
        case _:
            return isinstance(kind, _ORDERED)


def not_compared(rows: DataFrame, columns: Sequence[str]) -> str | None:
    """The first of the columns whose values cannot be compared, with its type; None where there is none."""
    for field in rows.schema.fields:
        if field.name in columns and not is_compared(field.dataType):
            return f"{field.name} {field.dataType.simpleString()}"
    return None


def is_loosely_equal(kind: DataType) -> bool:
    """Whether two values of a type may differ that Spark takes for equal; their texts do not."""
    return any(part in kind.simpleString() for part in LOOSELY_EQUAL)


def comparable(kind: DataType, column: Column) -> Column:
    """A value that is compared in place of one that cannot be: the sorted entries of a map, a text of others.

    Maps have no order, and systems give them back in one of their own.
    """
    if is_compared(kind):
        return column
    if isinstance(kind, MapType) and is_compared(kind.keyType) and is_compared(kind.valueType):
        return F.sort_array(F.map_entries(column))
    return F.to_json(F.struct(_in_order(kind, column).alias("v")))


def _in_order(kind: DataType, column: Column) -> Column:
    """A value whose maps have their entries by key."""
    if "map<" not in kind.simpleString():
        return column
    match kind:
        case MapType():
            keys, of = F.sort_array(F.map_keys(column)), kind.valueType
            return F.map_from_arrays(keys, F.transform(keys, lambda key: _in_order(of, F.element_at(column, key))))
        case ArrayType():
            element = kind.elementType
            return F.transform(column, lambda each: _in_order(element, each))
        case StructType():
            fields = [_in_order(each.dataType, column[each.name]).alias(each.name) for each in kind.fields]
            return F.when(column.isNotNull(), F.struct(*fields))
        case _:
            return column


def net_by(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """As `net_signed` with all columns of the rows, which are alike where they are in these columns.

    Of rows that differ in the others any of those that came, or went, stands for all.
    """
    kinds = {field.name.lower(): field.dataType for field in rows.schema.fields}
    names = [name for name in rows.columns if name != SIGN]
    by = []
    for number, name in enumerate(columns):
        column = F.col(quoted(name))
        by.append(comparable(kinds[name.lower()], column).alias(f"_freshline_by{number}"))
        if is_loosely_equal(kinds[name.lower()]):
            by.append(column.cast("string").alias(f"_freshline_text{number}"))
    row = F.struct(*_named(names))
    sides = [F.first(F.when(F.col(SIGN) == sign, row), ignorenulls=True) for sign in (1, -1)]
    counted = rows.groupBy(*by).agg(
        F.sum(SIGN).alias(NET), sides[0].alias("_freshline_came"), sides[1].alias("_freshline_went")
    )
    again = F.explode(F.array_repeat(F.lit(1), F.abs(NET).cast("int"))).alias("_freshline_again")
    found = F.when(F.col(NET) > 0, F.col("_freshline_came")).otherwise(F.col("_freshline_went")).alias("_freshline_row")
    left = counted.where(F.col(NET) != 0).select(found, F.signum(NET).cast("int").alias(SIGN), again)
    return left.select(*[F.col(f"_freshline_row.{quoted(name)}").alias(name) for name in names], SIGN)


def without(rows: DataFrame, gone: DataFrame, columns: Sequence[str]) -> DataFrame:
    """The rows without those that are gone, each as often as it is; rows are alike that are in these columns."""
    kinds = {field.name.lower(): field.dataType for field in rows.schema.fields}
    compared = [comparable(kinds[name.lower()], F.col(quoted(name))) for name in columns]
    row = F.struct(*[column.alias(f"c{number}") for number, column in enumerate(compared)])
    # Of rows that are alike the first ones are matched with those that are gone; which of them these are makes no
    # difference.
    number = F.row_number().over(Window.partitionBy("_freshline_row").orderBy(F.lit(0)))
    left = rows.withColumn("_freshline_row", row).withColumn("_freshline_number", number)
    right = gone.select(row.alias("_freshline_row")).withColumn("_freshline_number", number)
    met = F.col("l._freshline_row").eqNullSafe(F.col("r._freshline_row"))
    met = met & (F.col("l._freshline_number") == F.col("r._freshline_number"))
    return left.alias("l").join(right.alias("r"), met, "left_anti").select(*_named(rows.columns))


def counted_by_value(rows: DataFrame, columns: Sequence[str]) -> DataFrame | None:
    """The rows with NET, their SIGN added up, where that is not nothing; None where values cannot be compared."""
    types = {field.name.lower(): field.dataType for field in rows.schema.fields}
    if not all(is_compared(types[column.lower()]) for column in columns):
        return None
    loose = [column for column in columns if is_loosely_equal(types[column.lower()])]
    texts = [
        F.col(quoted(column)).cast("string").alias(f"_freshline_text{number}") for number, column in enumerate(loose)
    ]
    grouped = rows.groupBy(*_named(columns), *texts)
    if not loose:
        return grouped.agg(F.sum(SIGN).alias(NET)).where(F.col(NET) != 0)
    # A group's value has lost the sign of its zeros; a value of its rows has not.
    kept = [F.first(quoted(column)).alias(f"_freshline_kept{number}") for number, column in enumerate(loose)]
    counted = grouped.agg(F.sum(SIGN).alias(NET), *kept).where(F.col(NET) != 0)
    values = [
        F.col(f"_freshline_kept{loose.index(column)}").alias(column) if column in loose else F.col(quoted(column))
        for column in columns
    ]
    return counted.select(*values, NET)
