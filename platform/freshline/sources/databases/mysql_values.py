"""Texts of MySQL and MariaDB as values of declared columns: exactly, or not at all.

The session has to be in UTC. Numbers of type float are asked for as doubles, because the text of a float has six digits
only. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshline.sources.databases.text_values import (
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

_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint", "year"))
_BYTES = frozenset(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"))
# They are read as the text that the database writes.
_TEXTS = _INTEGERS | frozenset(
    "char varchar tinytext text mediumtext longtext enum set json time uuid inet4 inet6 decimal date datetime "
    "timestamp float double".split()
)


@dataclass(frozen=True)
class MysqlType:
    """A type of MySQL: `name` is that of the type, `written` as the column was declared, with its length."""

    name: str
    written: str


def value_reader(declared: str, found: MysqlType) -> Read | None:
    """The function that reads a text of a database's type as a value of a declared one, None where none fits.

    `declared` is in Spark's spelling. The function takes a text as bytes, and raises Changed for a value that the
    declared type cannot have.

    >>> value_reader("BIGINT", MysqlType("bit", "bit(8)"))(bytes([2]))
    2
    >>> value_reader("DATE", MysqlType("varchar", "varchar(10)")) is None
    True
    """
    decimal = DECIMAL.fullmatch(declared)
    if decimal is not None:
        exact = found.name in _INTEGERS or found.name == "decimal"
        return decimal_reader(int(decimal[1]), int(decimal[2])) if exact else None
    if declared in INTEGER_BITS:
        read = integer_reader(INTEGER_BITS[declared])
        if found.name == "bit":
            return lambda bits: read(b"%d" % int.from_bytes(bits, "big"))
        return read if found.name in _INTEGERS or found.name == "decimal" else None
    return _simple_reader(declared, found)


def _simple_reader(declared: str, found: MysqlType) -> Read | None:
    match declared, found.name:
        case "STRING", name:
            return text_value if name in _TEXTS else None
        case "BOOLEAN", "tinyint":
            return _boolean
        case "BOOLEAN", "bit":
            return _bit if found.written == "bit(1)" else None
        case ("FLOAT", "float") | ("DOUBLE", "float" | "double" | "tinyint" | "smallint" | "mediumint" | "int"):
            return float
        case "DATE", "date":
            return date_value
        case ("TIMESTAMP", "timestamp" | "datetime") | ("TIMESTAMP_NTZ", "datetime"):
            return time_value if declared == "TIMESTAMP" else local_time_value
        case "BINARY", name:
            return bytes if name in _BYTES else None
        case _:
            return None


def accepted_types(found: MysqlType) -> str:
    """The declared types that values of a database's type may have, in words."""
    tried = ["BOOLEAN", "BIGINT", "DECIMAL(38,0)", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY", "STRING"]
    named = [each for each in tried if value_reader(each, found) is not None]
    return " or ".join(named).replace("(38,0)", "(p,s)") or "no column, and read it by a view that makes a text of it"


def _boolean(text: bytes) -> bool:
    if text not in (b"0", b"1"):
        raise AlteredValueError
    return text == b"1"


def _bit(bits: bytes) -> bool:
    return bits != b"\x00"
