"""Texts that databases write as values of declared columns, the same for all of them: exactly, or not at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

Read = Callable[[bytes], Any]

DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
ARRAY = re.compile(r"ARRAY<(.*)>")
INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_ARROW: dict[str, Any] = {
    "STRING": pa.string(),
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "BINARY": pa.binary(),
}


class AlteredValueError(Exception):
    """A value that the declared type cannot have as it is."""


def arrow_type(declared: str) -> Any:
    """The type of Arrow for the values of a declared one. Raises KeyError for one that no reader makes."""
    array, decimal = ARRAY.fullmatch(declared), DECIMAL.fullmatch(declared)
    if array is not None:
        return pa.list_(arrow_type(array[1]))
    return _ARROW[declared] if decimal is None else pa.decimal128(int(decimal[1]), int(decimal[2]))


def text_value(text: bytes) -> str:
    """The text itself. Raises UnicodeDecodeError for bytes that are none."""
    return text.decode()


def integer_reader(bits: int) -> Read:
    """The function that reads whole numbers of so many bits, also from a decimal that is one."""
    least, greatest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(text: bytes) -> int:
        try:
            value = int(text)
        except ValueError:
            value = _whole(text)
        if not least <= value <= greatest:
            raise AlteredValueError
        return value

    return read


def _whole(text: bytes) -> int:
    """The whole number that a numeric is, however it is written."""
    number = Decimal(text.decode())
    if not number.is_finite() or number != number.to_integral_value() or number.adjusted() > 20:
        raise AlteredValueError
    return int(number)


def decimal_reader(precision: int, scale: int) -> Read:
    """The function that reads decimals: digits that do not fit are not rounded, but Changed."""
    exact, unit = Context(prec=precision, traps=[Inexact, InvalidOperation]), Decimal(1).scaleb(-scale)

    def read(text: bytes) -> Decimal:
        try:
            value = Decimal(text.decode()).quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            raise AlteredValueError from None
        if not value.is_finite():
            raise AlteredValueError
        return value

    return read


def date_value(text: bytes) -> date:
    """A date from ISO text."""
    try:
        return date.fromisoformat(text.decode())
    except ValueError:
        # Before the year 1, behind 9999, or infinity.
        raise AlteredValueError from None


def time_value(text: bytes) -> datetime:
    """A moment from ISO text, in UTC where the text has no zone."""
    found = _moment(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def local_time_value(text: bytes) -> datetime:
    """A time without a zone from ISO text."""
    return _moment(text)


def _moment(text: bytes) -> datetime:
    try:
        return datetime.fromisoformat(text.decode())
    except ValueError:
        raise AlteredValueError from None
