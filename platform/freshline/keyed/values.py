"""The values of Python that a column takes. Types are exact: nothing is cut or converted on the way.

FLOAT alone is rounded, as Python has no number of that size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

# Gives the value as Arrow takes it, or raises UnfitValueError; never called for None.
Checker = Callable[[Any], Any]


class UnfitValueError(Exception):
    """The fault of a call or a value, as the rest of a sentence."""


def checker(kind: pa.DataType) -> Checker:
    """The function that checks values of an Arrow type.

    >>> checker(pa.int8())(5)
    5
    >>> checker(pa.int8())(500)
    Traceback (most recent call last):
    freshline.keyed.values.UnfitValueError: a value of int8 is between -128 and 127
    """
    if pa.types.is_integer(kind):
        return _integer(kind.bit_width)
    if pa.types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _time(kind.tz is not None)
    if pa.types.is_float32(kind):
        return _float
    if pa.types.is_list(kind):
        item = checker(kind.value_type)
        return lambda value: [_or_none(item, each) for each in _is(value, (list, tuple), "a list")]
    if pa.types.is_map(kind):
        name, item = checker(kind.key_type), checker(kind.item_type)
        return lambda value: [(name(key), _or_none(item, each)) for key, each in _pairs(value)]
    if pa.types.is_struct(kind):
        return _struct({field.name: checker(field.type) for field in kind})
    for is_of, of, said in (
        (pa.types.is_boolean, bool, "True or False"),
        (pa.types.is_float64, float, "a float"),
        (pa.types.is_binary, bytes, "bytes"),
    ):
        if is_of(kind):
            return lambda value, of=of, said=said: _is(value, of, said)  # type: ignore[misc]
    return _date if pa.types.is_date(kind) else _text


def comparable(value: Any) -> Any:
    """A value that is equal to what Spark finds equal to it.

    In Python NaN is not, alone or inside of another value, and a time that clocks show twice is not that of UTC.

    >>> comparable({"x": [float("nan"), -0.0]}) == comparable({"x": [float("nan"), 0.0]})
    True
    """
    if isinstance(value, float):
        return value if value == value else "NaN"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return instant(value)
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [comparable(each) for each in value]
    return value


def instant(at: datetime) -> datetime:
    """The time in UTC, where UTC has it, or else the first or last one.

    >>> from zoneinfo import ZoneInfo
    >>> twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    >>> twice == twice.replace(fold=1), str(instant(twice)), str(instant(twice.replace(fold=1)))
    (True, '2026-10-25 00:30:00+00:00', '2026-10-25 01:30:00+00:00')
    """
    if at.tzinfo is UTC:
        return at
    try:
        return at.astimezone(UTC)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC) if at.year == 1 else datetime.max.replace(tzinfo=UTC)


def _or_none(check: Checker, value: Any) -> Any:
    return None if value is None else check(value)


def _is(value: Any, kind: type | tuple[type, ...], said: str) -> Any:
    if not isinstance(value, kind):
        raise UnfitValueError(f"it is {_kind(value)}, and has to be {said}")
    return value


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    """The entries of a dict, or of a MAP of the input, which comes as a list of pairs: its keys may have no hash."""
    if isinstance(value, list) and all(isinstance(each, tuple) and len(each) == 2 for each in value):
        return value
    return _is(value, dict, "a dict").items()  # type: ignore[no-any-return]


def _float(value: Any) -> float:
    found: float = _is(value, float, "a float")
    try:
        return float(struct.unpack("<f", struct.pack("<f", found))[0])
    except OverflowError:
        raise UnfitValueError("it does not fit into FLOAT") from None


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


def _integer(bits: int) -> Checker:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def check(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise UnfitValueError(f"it is {_kind(value)}, and has to be an int")
        if not least <= value <= most:
            raise UnfitValueError(f"a value of int{bits} is between {least} and {most}")
        return value

    return check


def _decimal(precision: int, scale: int) -> Checker:
    def check(value: Any) -> Decimal:
        found: Decimal = _is(value, Decimal, "a Decimal")
        _, digits, exponent = found.as_tuple()
        if not isinstance(exponent, int):
            raise UnfitValueError("it is no number")
        text = "".join(map(str, digits)).lstrip("0")
        kept = text.rstrip("0")
        exponent += len(text) - len(kept)
        if kept and (-exponent > scale or len(kept) + exponent > precision - scale):
            raise UnfitValueError(f"it does not fit into DECIMAL({precision},{scale}) as it is")
        # Arrow reads 1E+2 as a number of one digit.
        return found.quantize(Decimal(1).scaleb(-scale), context=Context(prec=precision))

    return check


def _time(with_zone: bool) -> Checker:
    def check(value: Any) -> datetime:
        found: datetime = _is(value, datetime, "a datetime")
        if (found.tzinfo is not None and found.utcoffset() is not None) != with_zone:
            said = "with a time zone" if with_zone else "without a time zone, for TIMESTAMP_NTZ"
            raise UnfitValueError(f"it has to be a datetime {said}")
        if found != found:
            raise UnfitValueError("it is no time")
        if getattr(found, "nanosecond", 0):
            raise UnfitValueError("it has nanoseconds, and a column of times has microseconds")
        try:
            # Arrow takes offsets of whole seconds only.
            return found.astimezone(UTC) if with_zone else found
        except OverflowError:
            raise UnfitValueError("it is outside of the years 1 to 9999 in UTC") from None

    return check


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        raise UnfitValueError("it is a datetime, and has to be a date")
    found: date = _is(value, date, "a date")
    return found


def _text(value: Any) -> str:
    found: str = _is(value, str, "a str")
    try:
        found.encode()
    except UnicodeEncodeError:
        raise UnfitValueError("it has half of a surrogate pair, which is no text") from None
    return found


def _struct(fields: dict[str, Checker]) -> Checker:
    def check(value: Any) -> dict[str, Any]:
        found = _is(value, dict, "a dict")
        if set(found) != set(fields):
            raise UnfitValueError(f"its fields are {', '.join(map(str, found))}, and have to be {', '.join(fields)}")
        return {name: _or_none(check, found[name]) for name, check in fields.items()}

    return check
