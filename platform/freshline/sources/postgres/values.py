"""Texts of Postgres as values of declared columns: exactly, or not at all.

The same for the changes of logical decoding and for the rows of a snapshot, because both are written by the output
functions of Postgres' types. The session has to write dates as ISO, times in UTC and bytes in hexadecimal. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Context, Decimal, Inexact, InvalidOperation
from typing import Any

import pyarrow as pa

Read = Callable[[bytes], Any]

_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_ARRAY = re.compile(r"ARRAY<(.*)>")
_INTEGER_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
_INTEGERS = frozenset(("int2", "int4", "int8", "oid"))
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
# An array in an array in an array: nobody declares more, and a text may have as many braces as it likes.
_MOST_NESTED = 20


class Changed(Exception):
    """A value that the declared type cannot hold as it is."""


@dataclass(frozen=True)
class DatabaseType:
    """A type of Postgres: `name` as `pg_type` has it, of a domain that of its base; `element` is that of an array."""

    name: str
    element: DatabaseType | None = None


# The types that come with Postgres, by their oids, as far as they are read as something else than a text.
BUILT_IN = {
    16: DatabaseType("bool"),
    17: DatabaseType("bytea"),
    20: DatabaseType("int8"),
    21: DatabaseType("int2"),
    23: DatabaseType("int4"),
    25: DatabaseType("text"),
    26: DatabaseType("oid"),
    700: DatabaseType("float4"),
    701: DatabaseType("float8"),
    1042: DatabaseType("bpchar"),
    1043: DatabaseType("varchar"),
    1082: DatabaseType("date"),
    1114: DatabaseType("timestamp"),
    1184: DatabaseType("timestamptz"),
    1700: DatabaseType("numeric"),
}


def value_reader(declared: str, found: DatabaseType) -> Read | None:
    """The function that reads a text of a database's type as a value of a declared one, None where none fits.

    `declared` is in Spark's spelling. The function takes a text as bytes, and raises Changed for a value that the
    declared type cannot hold.

    >>> value_reader("DECIMAL(10,2)", DatabaseType("numeric"))(b"12.5")
    Decimal('12.50')
    >>> value_reader("INT", DatabaseType("text")) is None
    True
    """
    array = _ARRAY.fullmatch(declared)
    if array is not None:
        return _array_reader(array[1], found)
    if found.element is not None:
        return _text if declared == "STRING" else None
    decimal = _DECIMAL.fullmatch(declared)
    if decimal is not None:
        exact = found.name in _INTEGERS or found.name == "numeric"
        return _decimal_reader(int(decimal[1]), int(decimal[2])) if exact else None
    if declared in _INTEGER_BITS:
        exact = found.name in _INTEGERS or found.name == "numeric"
        return _integer_reader(_INTEGER_BITS[declared]) if exact else None
    return _simple_reader(declared, found.name)


def _simple_reader(declared: str, found: str) -> Read | None:
    match declared, found:
        case "STRING", "bool":
            return lambda text: "true" if text == b"t" else "false"
        case "STRING", "bytea":
            return None
        case "STRING", _:
            return _text
        case "BOOLEAN", "bool":
            return lambda text: text == b"t"
        case ("FLOAT", "float4") | ("DOUBLE", "float4" | "float8" | "int2" | "int4"):
            return float
        case "DATE", "date":
            return _date
        case ("TIMESTAMP", "timestamptz" | "timestamp") | ("TIMESTAMP_NTZ", "timestamp"):
            return _time if declared == "TIMESTAMP" else _local_time
        case "BINARY", "bytea":
            return _bytes
        case _:
            return None


def arrow_type(declared: str) -> Any:
    """The type of Arrow that holds the values of a declared one. Raises KeyError for one that no reader makes."""
    array, decimal = _ARRAY.fullmatch(declared), _DECIMAL.fullmatch(declared)
    if array is not None:
        return pa.list_(arrow_type(array[1]))
    return _ARROW[declared] if decimal is None else pa.decimal128(int(decimal[1]), int(decimal[2]))


def accepted_types(found: DatabaseType) -> str:
    """The declared types that values of a database's type may have, in words."""
    if found.element is not None:
        return f"ARRAY<{accepted_types(found.element).replace(' or ', '> or ARRAY<')}> or STRING"
    if found.name in _INTEGERS or found.name == "numeric":
        named = ["BIGINT", "DECIMAL(p,s)"]
    else:
        named = [each for each in ("BOOLEAN", "DOUBLE", "DATE", "TIMESTAMP") if _simple_reader(each, found.name)]
        named += ["TIMESTAMP_NTZ"] if found.name == "timestamp" else []
    text = [] if _simple_reader("STRING", found.name) is None else ["STRING"]
    return " or ".join([*named, *text]) or "BINARY"


def _text(text: bytes) -> str:
    return text.decode()


def _integer_reader(bits: int) -> Read:
    least, greatest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def read(text: bytes) -> int:
        try:
            value = int(text)
        except ValueError:
            value = _whole(text)
        if not least <= value <= greatest:
            raise Changed
        return value

    return read


def _whole(text: bytes) -> int:
    """The whole number that a numeric is, however it is written."""
    number = Decimal(text.decode())
    if not number.is_finite() or number != number.to_integral_value() or number.adjusted() > 20:
        raise Changed
    return int(number)


def _decimal_reader(precision: int, scale: int) -> Read:
    exact, unit = Context(prec=precision, traps=[Inexact, InvalidOperation]), Decimal(1).scaleb(-scale)

    def read(text: bytes) -> Decimal:
        try:
            value = Decimal(text.decode()).quantize(unit, context=exact)
        except (Inexact, InvalidOperation):
            raise Changed from None
        if not value.is_finite():
            raise Changed
        return value

    return read


def _date(text: bytes) -> date:
    try:
        return date.fromisoformat(text.decode())
    except ValueError:
        # Before the year 1, behind 9999, or infinity.
        raise Changed from None


def _time(text: bytes) -> datetime:
    found = _moment(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _local_time(text: bytes) -> datetime:
    return _moment(text)


def _moment(text: bytes) -> datetime:
    try:
        return datetime.fromisoformat(text.decode())
    except ValueError:
        raise Changed from None


def _bytes(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        raise Changed
    return bytes.fromhex(text[2:].decode())


# -- arrays


def _array_reader(declared: str, found: DatabaseType) -> Read | None:
    if found.element is None:
        return None
    # Postgres has one type for arrays of any number of dimensions.
    depth, inner = 1, declared
    while (nested := _ARRAY.fullmatch(inner)) is not None:
        depth, inner = depth + 1, nested[1]
    element = value_reader(inner, found.element)
    if element is None or depth > _MOST_NESTED:
        return None

    def read(text: bytes) -> list[Any]:
        value = _parsed(text.decode())
        return _as_declared(value, depth, element)

    return read


def _as_declared(value: Any, depth: int, element: Read) -> list[Any]:
    if not isinstance(value, list):
        raise Changed
    if depth > 1:
        # An empty array of several dimensions is written as one of none.
        return [_as_declared(each, depth - 1, element) for each in value]
    found: list[Any] = []
    for each in value:
        if isinstance(each, list):
            raise Changed
        found.append(None if each is None else element(each.encode()))
    return found


_ARRAY_LEXEME = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|((?:[^{},"\\]|\\.)+)', re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def _parsed(text: str) -> Any:
    """The text of an array as lists of texts; None is NULL. Lower bounds other than 1 are left out."""
    begin = text.find("=") + 1 if text.startswith("[") else 0
    return _list(_lexemes(text, begin))


def _lexemes(text: str, at: int) -> Iterator[tuple[str, str | None]]:
    while at < len(text):
        match = _ARRAY_LEXEME.match(text, at)
        if match is None:
            raise Changed
        at = match.end()
        if match[1] is not None:
            yield "value", _ESCAPED.sub(r"\1", match[1])
        elif match[2] is not None:
            plain = match[2]
            yield "value", None if plain.upper() == "NULL" else _ESCAPED.sub(r"\1", plain)
        else:
            yield match[0], None


def _list(lexemes: Iterator[tuple[str, str | None]]) -> Any:
    stack: list[list[Any]] = []
    for kind, value in lexemes:
        if kind == "{":
            if len(stack) >= _MOST_NESTED:
                raise Changed
            stack.append([])
        elif kind == "}":
            whole = stack.pop()
            if not stack:
                return whole
            stack[-1].append(whole)
        elif kind == "value":
            if not stack:
                raise Changed
            stack[-1].append(value)
    raise Changed
