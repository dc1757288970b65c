"""Values of every type in an order in which no two different ones are equal.

Spark does not order maps, and takes values for equal that are not the same: zeros of either sign, and texts of a
collation that differ in letter case. A merge that broke ties by such values would keep whichever row arrived first.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from freshline.values.names import quoted

LOOSE = ("map<", "double", "float", "collate", "variant")


def comparable(value: str, kind: DataType) -> str:
    """SQL that orders values of a type; `value` is SQL that has one. The same where Spark's own order is enough."""
    return _comparable(value, kind, 0)


def without_negative_zero(value: str, kind: DataType) -> str:
    """SQL with the value in which each zero is positive, as far as it stands in numbers, arrays, structs and maps."""
    return _without_negative_zero(value, kind, 0)


def _is_loose(kind: DataType, parts: tuple[str, ...] = LOOSE) -> bool:
    text = kind.simpleString()
    return any(part in text for part in parts)


def _comparable(value: str, kind: DataType, depth: int) -> str:
    if not _is_loose(kind):
        return value
    item = f"_freshline_i{depth}"
    match kind:
        case DoubleType() | FloatType():
            # The text is computed for zeros alone.
            return f"struct({value} AS v, ({value} = 0 AND CAST({value} AS STRING) NOT LIKE '-%') AS z)"
        case StringType():
            return f"struct({value} AS v, CAST({value} AS BINARY) AS b)"
        case ArrayType():
            return f"transform({value}, {item} -> {_comparable(item, kind.elementType, depth + 1)})"
        case StructType():
            return _each_field(value, kind, lambda field, of: _comparable(field, of, depth))
        case MapType():
            key = _comparable(f"{item}.key", kind.keyType, depth + 1)
            entry = _comparable(f"{item}.value", kind.valueType, depth + 1)
            return f"sort_array(transform(map_entries({value}), {item} -> struct({key} AS k, {entry} AS v)))"
        case VariantType():
            return f"to_json(struct({value} AS v))"
        case _:
            return value


def _without_negative_zero(value: str, kind: DataType, depth: int) -> str:
    if not _is_loose(kind, ("double", "float")):
        return value
    item = f"_freshline_i{depth}"
    match kind:
        case DoubleType() | FloatType():
            return f"CASE WHEN {value} = 0 THEN CAST(0 AS {kind.simpleString()}) ELSE {value} END"
        case ArrayType():
            return f"transform({value}, {item} -> {_without_negative_zero(item, kind.elementType, depth + 1)})"
        case StructType():
            return _each_field(value, kind, lambda field, of: _without_negative_zero(field, of, depth))
        case MapType():
            # Keys are without it already: Spark stores none.
            entry = _without_negative_zero("_freshline_value", kind.valueType, depth + 1)
            return f"transform_values({value}, (_freshline_key, _freshline_value) -> {entry})"
        case _:
            return value


def _each_field(value: str, kind: StructType, of: Callable[[str, DataType], str]) -> str:
    fields = [f"{of(f'{value}.{quoted(each.name)}', each.dataType)} AS {quoted(each.name)}" for each in kind.fields]
    return f"CASE WHEN {value} IS NOT NULL THEN struct({', '.join(fields)}) END"
