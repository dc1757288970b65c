"""Rows of a table as JSON has them.

DECIMAL is a text with all its digits, TIMESTAMP is ISO 8601 in UTC (with Z, without a zone for TIMESTAMP_NTZ), DATE is
ISO 8601, BINARY is base64, and a number that is none is the text NaN, Infinity or -Infinity. A STRUCT is an object, an
ARRAY a list, and a MAP a list of objects with `key` and `value`, because its keys may be no texts.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from freshline.errors import ReadError


def rows_as_json(rows: pa.Table, table: str) -> list[dict[str, Any]]:
    """The rows, each an object by column. Raises ReadError for a time that Python cannot hold.

    >>> rows_as_json(pa.table({"a": [1, None], "b": [float("nan"), 0.5]}), "t")
    [{'a': 1, 'b': 'NaN'}, {'a': None, 'b': 0.5}]
    """
    try:
        columns = [_column(rows[name]) for name in rows.column_names]
    except (ValueError, OverflowError) as error:
        raise ReadError(
            f"it has a date that Python cannot hold ({error}). Read it with Spark, as `freshline sql` does.",
            where=table,
        ) from error
    names = rows.column_names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def _column(column: pa.ChunkedArray) -> list[Any]:
    values: list[Any] = column.to_pylist()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return values
    convert = _converter(kind)
    return [None if value is None else convert(value) for value in values]


def _converter(kind: pa.DataType) -> Callable[[Any], Any]:
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type), _converter(kind.item_type)
        return lambda value: [
            {"key": key(one), "value": None if other is None else item(other)} for one, other in value
        ]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        each = _converter(kind.value_type)
        return lambda value: [None if one is None else each(one) for one in value]
    if pa.types.is_struct(kind):
        parts = {part.name: _converter(part.type) for part in kind.fields}
        return lambda value: {
            name: None if value[name] is None else convert(value[name]) for name, convert in parts.items()
        }
    return _plain


def _plain(value: Any) -> Any:
    match value:
        case bool() | int() | str():
            return value
        case float():
            if math.isfinite(value):
                return value
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return f"{value:f}"
        case datetime():
            if value.tzinfo is None:
                return value.isoformat()
            return value.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"
        case date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return b64encode(value).decode("ascii")
        case _:
            raise ValueError(f"{type(value).__name__} has no form in JSON")
