"""Texts of Postgres as values of declared columns: exactly, or not at all.

The same for the changes of logical decoding and for the rows of a snapshot, because both are written by the output
functions of Postgres' types. The session has to write dates as ISO, times in UTC and bytes in hexadecimal. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from freshline.sources.databases.text_values import (
    ARRAY,
    DECIMAL,
    INTEGER_BITS,
    AlteredValueError,
    Read,
    date_value,
    decimal_reader,
    integer_reader,
    local_time_value,
    text_value,
    time_value,
)

_INTEGERS = frozenset(("int2", "int4", "int8", "oid"))
# An array in an array in an array: nobody declares more, and a text may have as many braces as it likes.
_MOST_NESTED = 20


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
# Their arrays: a column that has another type now may have changes from when it had one of these.
BUILT_IN |= {
    array: DatabaseType(f"_{BUILT_IN[element].name}", BUILT_IN[element])
    for array, element in (
        *((1000, 16), (1001, 17), (1016, 20), (1005, 21), (1007, 23), (1009, 25), (1028, 26), (1021, 700)),
        *((1022, 701), (1014, 1042), (1015, 1043), (1182, 1082), (1115, 1114), (1185, 1184), (1231, 1700)),
    )
}


def value_reader(declared: str, found: DatabaseType) -> Read | None:
    """The function that reads a text of a database's type as a value of a declared one, None where none fits.

    `declared` is in Spark's spelling. The function takes a text as bytes, and raises Changed for a value that the
    declared type cannot have.

    >>> value_reader("DECIMAL(10,2)", DatabaseType("numeric"))(b"12.5")
    Decimal('12.50')
    >>> value_reader("INT", DatabaseType("text")) is None
    True
    """
    array = ARRAY.fullmatch(declared)
    if array is not None:
        return _array_reader(array[1], found)
    if found.element is not None:
        return text_value if declared == "STRING" else None
    decimal = DECIMAL.fullmatch(declared)
    if decimal is not None:
        exact = found.name in _INTEGERS or found.name == "numeric"
        return decimal_reader(int(decimal[1]), int(decimal[2])) if exact else None
    if declared in INTEGER_BITS:
        exact = found.name in _INTEGERS or found.name == "numeric"
        return integer_reader(INTEGER_BITS[declared]) if exact else None
    return _simple_reader(declared, found.name)


def _simple_reader(declared: str, found: str) -> Read | None:
    match declared, found:
        case "STRING", "bool":
            return lambda text: "true" if text == b"t" else "false"
        case "STRING", "bytea":
            return None
        case "STRING", _:
            return text_value
        case "BOOLEAN", "bool":
            return lambda text: text == b"t"
        case ("FLOAT", "float4") | ("DOUBLE", "float4" | "float8" | "int2" | "int4"):
            return float
        case "DATE", "date":
            return date_value
        case ("TIMESTAMP", "timestamptz" | "timestamp") | ("TIMESTAMP_NTZ", "timestamp"):
            return time_value if declared == "TIMESTAMP" else local_time_value
        case "BINARY", "bytea":
            return _bytes
        case _:
            return None


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


def _bytes(text: bytes) -> bytes:
    if not text.startswith(b"\\x"):
        raise AlteredValueError
    return bytes.fromhex(text[2:].decode())


# -- arrays


def _array_reader(declared: str, found: DatabaseType) -> Read | None:
    if found.element is None:
        return None
    # Postgres has one type for arrays of any number of dimensions.
    depth, inner = 1, declared
    while (nested := ARRAY.fullmatch(inner)) is not None:
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
        raise AlteredValueError
    if depth > 1:
        # An empty array of several dimensions is written as one of none.
        return [_as_declared(each, depth - 1, element) for each in value]
    found: list[Any] = []
    for each in value:
        if isinstance(each, list):
            raise AlteredValueError
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
            raise AlteredValueError
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
                raise AlteredValueError
            stack.append([])
        elif kind == "}":
            whole = stack.pop()
            if not stack:
                return whole
            stack[-1].append(whole)
        elif kind == "value":
            if not stack:
                raise AlteredValueError
            stack[-1].append(value)
    raise AlteredValueError


# -- lines of COPY

_COPY_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_COPY_ESCAPES = {b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v"}


def copy_fields(line: bytes) -> list[bytes | None]:
    r"""The fields of a line of COPY, with its line end.

    >>> copy_fields(b"a\\tb\t\\N\n")
    [b'a\tb', None]
    """
    return [_unescaped(field) for field in line[:-1].split(b"\t")]


def _unescaped(field: bytes) -> bytes | None:
    if b"\\" not in field:
        return field
    if field == b"\\N":
        return None
    return _COPY_ESCAPED.sub(lambda match: _COPY_ESCAPES.get(match[1], match[1]), field)
