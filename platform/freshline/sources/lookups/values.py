"""Values of JSON as values of declared columns: each as it is, or not at all.

A number is never made of a text, and a text never of a number. Dates, times and bytes are texts in JSON: ISO 8601 and
base64. A time without an offset is one of UTC.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa


class UnfitError(ValueError):
    """A value that a column cannot have; the text is the end of a sentence about it."""


def read_json(text: bytes | str) -> Any:
    """A document of JSON with its numbers as they are written. Raises ValueError."""
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no number of JSON")


def row_of(found: Mapping[str, Any], schema: pa.Schema) -> dict[str, Any]:
    """The values of the columns of a schema, by the members of an object. A missing member is NULL.

    Raises UnfitError with the name of the column.
    """
    values = {}
    for column in schema:
        try:
            values[column.name] = fit_value(found.get(column.name), column.type)
        except UnfitError as error:
            raise UnfitError(f"column {column.name} is {error}") from error
    return values


def fit_value(value: Any, kind: pa.DataType) -> Any:
    """A value of JSON as one of an Arrow type. Raises UnfitError.

    >>> fit_value("2026-01-01", pa.date32())
    datetime.date(2026, 1, 1)
    """
    if value is None:
        return None
    fitted = _fit(value, kind)
    if fitted is None:
        raise UnfitError(f"{kind}, and the answer has {_shown(value)}")
    return fitted


def _fit(value: Any, kind: pa.DataType) -> Any:
    """The value, or None where there is none."""
    types = pa.types
    if types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    if types.is_integer(kind):
        return _whole(value, kind)
    if types.is_floating(kind):
        return _floating(value, kind)
    if types.is_decimal(kind):
        return _decimal(value, kind)
    if isinstance(value, str):
        return _text(value, kind)
    if types.is_list(kind) and isinstance(value, list):
        return [fit_value(each, kind.value_type) for each in value]
    if types.is_map(kind) and isinstance(value, dict) and types.is_string(kind.key_type):
        return [(key, fit_value(each, kind.item_type)) for key, each in value.items()]
    if types.is_struct(kind) and isinstance(value, dict):
        return {member.name: fit_value(value.get(member.name), member.type) for member in kind}
    return None


def _text(value: str, kind: pa.DataType) -> Any:
    types = pa.types
    try:
        if types.is_string(kind) or types.is_large_string(kind):
            value.encode()
            return value
        if types.is_binary(kind):
            return base64.b64decode(value, validate=True)
        if types.is_date(kind):
            return date.fromisoformat(value)
        if types.is_timestamp(kind):
            time = datetime.fromisoformat(value)
            if kind.tz is None:
                return time if time.tzinfo is None else None
            return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError, binascii.Error):
        return None
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _whole(value: Any, kind: pa.DataType) -> int | None:
    if not _is_number(value) or value != value // 1:
        return None
    bound = 2 ** (kind.bit_width - 1)
    return int(value) if -bound <= value < bound else None


def _floating(value: Any, kind: pa.DataType) -> float | None:
    if not _is_number(value):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    if kind.bit_width == 32 and math.isfinite(found):
        found = float(pa.scalar(found, kind).as_py())
    return found if math.isfinite(found) else None


def _decimal(value: Any, kind: pa.DataType) -> Decimal | None:
    if not _is_number(value):
        return None
    try:
        found = Decimal(value) if not isinstance(value, float) else Decimal(repr(value))
        exact = found.quantize(Decimal(1).scaleb(-kind.scale))
    except InvalidOperation:
        return None
    return exact if exact == found and len(exact.as_tuple().digits) <= kind.precision else None


def _shown(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}.."
