"""Texts of Postgres as values of declared types: which types fit, and which values do not."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from freshline.sources.databases.postgres_values import DatabaseType, accepted_types, value_reader
from freshline.sources.databases.text_values import AlteredValueError, arrow_type

ARRAY = {name: DatabaseType(f"_{name}", DatabaseType(name)) for name in ("int4", "text", "numeric")}

LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC).replace(tzinfo=None)

READ = [
    ("INT", "int4", "-7", -7),
    ("BIGINT", "numeric", "5.00", 5),
    ("DECIMAL(10,2)", "numeric", "12.5", Decimal("12.50")),
    ("DECIMAL(38,0)", "numeric", "9" * 38, Decimal("9" * 38)),
    ("DECIMAL(3,0)", "int4", "999", Decimal(999)),
    ("DOUBLE", "float8", "1e-300", 1e-300),
    ("DOUBLE", "float8", "-Infinity", -math.inf),
    ("FLOAT", "float4", "0.5", 0.5),
    ("BOOLEAN", "bool", "t", True),
    ("BOOLEAN", "bool", "f", False),
    ("STRING", "bool", "t", "true"),
    ("STRING", "uuid", "b3c7", "b3c7"),
    ("STRING", "numeric", "1.50", "1.50"),
    ("DATE", "date", "2026-11-26", date(2026, 11, 26)),
    ("TIMESTAMP", "timestamptz", "2026-11-26 10:00:00.12+00", datetime(2026, 11, 26, 10, 0, 0, 120_000, UTC)),
    ("TIMESTAMP", "timestamp", "0001-01-01 00:00:00", datetime(1, 1, 1, tzinfo=UTC)),
    ("TIMESTAMP_NTZ", "timestamp", "9999-12-31 23:59:59.999999", LAST),
    ("BINARY", "bytea", "\\x00ff", b"\x00\xff"),
]


@pytest.mark.parametrize(("declared", "found", "text", "value"), READ, ids=lambda value: str(value)[:30])
def test_a_value_is_read_as_declared(declared, found, text, value):
    read = value_reader(declared, DatabaseType(found))

    assert read is not None
    assert read(text.encode()) == value


CHANGED = [
    ("TINYINT", "int4", "128"),
    ("INT", "int8", str(2**31)),
    ("BIGINT", "numeric", "1.5"),
    ("BIGINT", "numeric", "NaN"),
    ("BIGINT", "numeric", "1e100000"),
    ("DECIMAL(10,2)", "numeric", "1.234"),
    ("DECIMAL(10,2)", "numeric", "123456789.00"),
    ("DECIMAL(10,2)", "numeric", "NaN"),
    ("DECIMAL(10,2)", "numeric", "Infinity"),
    ("DATE", "date", "infinity"),
    ("DATE", "date", "0044-03-15 BC"),
    ("DATE", "date", "10000-01-01"),
    ("TIMESTAMP", "timestamptz", "-infinity"),
    ("TIMESTAMP", "timestamptz", "294276-01-01 00:00:00+00"),
]


@pytest.mark.parametrize(("declared", "found", "text"), CHANGED)
def test_a_value_that_would_be_another_one_is_not_read(declared, found, text):
    read = value_reader(declared, DatabaseType(found))

    assert read is not None
    with pytest.raises(AlteredValueError):
        read(text.encode())


UNFIT = [
    ("INT", "text"),
    ("INT", "float8"),
    ("DOUBLE", "numeric"),
    ("DOUBLE", "int8"),
    ("FLOAT", "float8"),
    ("STRING", "bytea"),
    ("BINARY", "text"),
    ("DATE", "timestamptz"),
    ("TIMESTAMP", "date"),
    ("TIMESTAMP_NTZ", "timestamptz"),
    ("DECIMAL(10,2)", "money"),
    ("MAP<STRING,STRING>", "hstore"),
    ("STRUCT<a: INT>", "jsonb"),
    ("ARRAY<INT>", "int4"),
]


@pytest.mark.parametrize(("declared", "found"), UNFIT)
def test_types_that_do_not_fit_are_refused_whatever_the_value(declared, found):
    assert value_reader(declared, DatabaseType(found)) is None


ARRAYS = [
    ("ARRAY<STRING>", "text", "{}", []),
    ("ARRAY<STRING>", "text", r'{a,NULL,"NULL","x \"y\\z",""}', ["a", None, "NULL", 'x "y\\z', ""]),
    ("ARRAY<INT>", "int4", "[0:1]={1,2}", [1, 2]),
    ("ARRAY<ARRAY<INT>>", "int4", "{{1,2},{3,NULL}}", [[1, 2], [3, None]]),
    ("ARRAY<ARRAY<INT>>", "int4", "{}", []),
    ("ARRAY<DECIMAL(4,1)>", "numeric", "{1,2.5}", [Decimal("1.0"), Decimal("2.5")]),
]


@pytest.mark.parametrize(("declared", "found", "text", "value"), ARRAYS)
def test_arrays_are_lists(declared, found, text, value):
    read = value_reader(declared, ARRAY[found])

    assert read is not None
    assert read(text.encode()) == value


@pytest.mark.parametrize("text", ["{{1,2}}", "{1,300000000000}", "{", "1", "{1"])
def test_an_array_of_other_dimensions_or_values_is_not_read(text):
    read = value_reader("ARRAY<INT>", ARRAY["int4"])

    assert read is not None
    with pytest.raises(AlteredValueError):
        read(text.encode())


@pytest.mark.parametrize("declared", sorted({case[0] for case in (*READ, *ARRAYS)}))
def test_each_type_that_is_read_has_one_of_arrow(declared):
    assert arrow_type(declared) is not None


def test_the_types_that_fit_are_named():
    assert accepted_types(DatabaseType("timestamp")) == "TIMESTAMP or TIMESTAMP_NTZ or STRING"
    assert accepted_types(DatabaseType("bytea")) == "BINARY"
    assert accepted_types(DatabaseType("jsonb")) == "STRING"
    assert accepted_types(ARRAY["int4"]) == "ARRAY<BIGINT> or ARRAY<DECIMAL(p,s)> or ARRAY<STRING> or STRING"
