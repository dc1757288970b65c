"""Which values of Python a column takes. Types are exact: nothing is rounded, cut or converted on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

# Gives the value as Arrow takes it, or raises UnfitValueError; never called for None.
Checker = Callable[[Any], Any]


class UnfitValueError(Exception):
    """What is wrong with a call or a value, as the rest of a sentence."""


def checker(kind: pa.DataType) -> Checker:
    """What checks values of an Arrow type.

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
    if pa.types.is_list(kind):
        item = checker(kind.value_type)
        return lambda value: [_or_none(item, each) for each in _is(value, (list, tuple), "a list")]
    if pa.types.is_map(kind):
        name, item = checker(kind.key_type), checker(kind.item_type)
        return lambda value: [(name(key), _or_none(item, each)) for key, each in _is(value, dict, "a dict").items()]
    if pa.types.is_struct(kind):
        return _struct({field.name: checker(field.type) for field in kind})
    for is_of, of, said in (
        (pa.types.is_boolean, bool, "True or False"),
        (pa.types.is_floating, float, "a float"),
        (pa.types.is_binary, bytes, "bytes"),
    ):
        if is_of(kind):
            return lambda value, of=of, said=said: _is(value, of, said)  # type: ignore[misc]
    return _date if pa.types.is_date(kind) else _text


def comparable(value: Any) -> Any:
    """A value that is equal to itself, as it is for Spark: NaN is not, alone or inside of another value.

    >>> comparable({"x": [float("nan"), -0.0]}) == comparable({"x": [float("nan"), 0.0]})
    True
    """
    if isinstance(value, float):
        return value if value == value else "NaN"
    if isinstance(value, dict):
        return {name: comparable(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [comparable(each) for each in value]
    return value


def _or_none(check: Checker, value: Any) -> Any:
    return None if value is None else check(value)


def _is(value: Any, kind: type | tuple[type, ...], said: str) -> Any:
    if not isinstance(value, kind):
        raise UnfitValueError(f"it is {_kind(value)}, and has to be {said}")
    return value


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
        # Of 1E+2, Arrow reads a number of one digit.
        return found.quantize(Decimal(1).scaleb(-scale), context=Context(prec=precision))

    return check


def _time(with_zone: bool) -> Checker:
    def check(value: Any) -> datetime:
        found: datetime = _is(value, datetime, "a datetime")
        if (found.tzinfo is not None and found.utcoffset() is not None) != with_zone:
            said = "with a time zone" if with_zone else "without a time zone, for TIMESTAMP_NTZ"
            raise UnfitValueError(f"it has to be a datetime {said}")
        return found

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
