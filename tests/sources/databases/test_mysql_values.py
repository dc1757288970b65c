"""Texts of MySQL and MariaDB as values of declared columns: exactly, or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from freshline.sources.databases.mysql_values import MysqlType, accepted_types, value_reader
from freshline.sources.databases.text_values import AlteredValueError

CASES = [
    ("BIGINT", "int", b"-5", -5),
    ("BIGINT", "bigint", b"9223372036854775807", 2**63 - 1),
    ("BIGINT", "bigint", b"9223372036854775808", AlteredValueError),
    ("TINYINT", "tinyint", b"128", AlteredValueError),
    ("INT", "decimal", b"7.000", 7),
    ("INT", "decimal", b"7.5", AlteredValueError),
    ("INT", "bit", b"\x01\x00", 256),
    ("SMALLINT", "year", b"1999", 1999),
    ("DECIMAL(20,0)", "bigint", b"18446744073709551615", Decimal(2**64 - 1)),
    ("DECIMAL(10,2)", "decimal", b"12.5", Decimal("12.50")),
    ("DECIMAL(10,2)", "decimal", b"12.505", AlteredValueError),
    ("DECIMAL(4,2)", "decimal", b"123.00", AlteredValueError),
    ("BOOLEAN", "tinyint", b"1", True),
    ("BOOLEAN", "tinyint", b"2", AlteredValueError),
    ("BOOLEAN", "bit(1)", b"\x00", False),
    ("DOUBLE", "double", b"1.7976931348623157e308", 1.7976931348623157e308),
    ("DATE", "date", b"2026-02-28", date(2026, 2, 28)),
    ("DATE", "date", b"0000-00-00", AlteredValueError),
    ("DATE", "date", b"2026-00-10", AlteredValueError),
    ("TIMESTAMP", "datetime", b"2026-01-01 00:00:00.000001", datetime(2026, 1, 1, 0, 0, 0, 1, UTC)),
    ("TIMESTAMP", "timestamp", b"0000-00-00 00:00:00", AlteredValueError),
    ("TIMESTAMP_NTZ", "datetime", b"9999-12-31 23:59:59", datetime(9999, 12, 31, 23, 59, 59)),  # noqa: DTZ001
    ("BINARY", "longblob", b"\x00\xff", b"\x00\xff"),
    ("STRING", "time", b"-838:59:59", "-838:59:59"),
    ("STRING", "enum", "gläd".encode(), "gläd"),
]


@pytest.mark.parametrize(("declared", "found", "text", "value"), CASES)
def test_a_value_is_exact_or_changed(declared, found, text, value):
    read = value_reader(declared, MysqlType(found.partition("(")[0], found))
    assert read is not None
    if value is AlteredValueError:
        with pytest.raises(AlteredValueError):
            read(text)
    else:
        assert read(text) == value


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("INT", "varchar"), ("INT", "double"), ("STRING", "blob"), ("STRING", "geometry"), ("BINARY", "varchar"),
        ("DOUBLE", "bigint"), ("DOUBLE", "decimal"), ("FLOAT", "double"), ("BOOLEAN", "int"), ("BOOLEAN", "bit(2)"),
        ("TIMESTAMP_NTZ", "timestamp"), ("DATE", "datetime"), ("ARRAY<INT>", "json"), ("MAP<STRING,INT>", "json"),
    ],
)  # fmt: skip
def test_a_type_that_may_change_values_does_not_fit(declared, found):
    assert value_reader(declared, MysqlType(found.partition("(")[0], found)) is None


def test_the_types_that_fit_are_named():
    assert accepted_types(MysqlType("bigint", "bigint(20)")) == "BIGINT or DECIMAL(p,s) or STRING"
    assert accepted_types(MysqlType("datetime", "datetime")) == "TIMESTAMP or TIMESTAMP_NTZ or STRING"
    assert accepted_types(MysqlType("geometry", "point")).startswith("no column")
