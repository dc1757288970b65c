"""Values as SQL text read back as the same values; a value never becomes SQL."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from sqlglot import exp, parse_one

from freshline.compute.literal import from_spark, partition_predicate, sql_literal
from freshline.errors import RefreshError
from freshline.values.names import quoted


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-5, "-5"),
        (Decimal("1.50"), "1.50BD"),
        (Decimal("1E+3"), "1000BD"),
        (0.1, "0.1D"),
        (1e300, "1e+300D"),
        (float("nan"), "DOUBLE('nan')"),
        ("it's \\ `x`", "'it\\'s \\\\ `x`'"),
        (date(1, 2, 3), "DATE'0001-02-03'"),
        (datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), "TIMESTAMP'2026-01-01 01:00:00+01:00'"),
        (datetime(2026, 1, 1, 1), "TIMESTAMP_NTZ'2026-01-01 01:00:00'"),  # noqa: DTZ001 - a value without a zone
    ],
)
def test_each_type_has_its_literal(value, text):
    assert sql_literal(value) == text


def test_a_nested_value_has_none():
    with pytest.raises(RefreshError, match="list"):
        sql_literal([1])


@pytest.mark.parametrize(
    "value", ["'", "\\", "\\'", "' OR '1'='1", "'; DROP TABLE t; --", "/*", "`", "\n", "\x00", "ü✓"]
)
def test_a_text_stays_one_text(value):
    predicate = parse_one(f"SELECT {partition_predicate([quoted('a')], [(value,)])}", dialect="spark").expressions[0]

    literals = list(predicate.find_all(exp.Literal))
    assert [literal.this for literal in literals] == [value]
    assert not list(predicate.find_all(exp.Or))


def test_several_columns_and_null_are_partitions_like_others():
    assert partition_predicate(["`a`", "(year(d))"], [("x", 1), (None, 2)]) == (
        "(`a` = 'x' AND (year(d)) = 1) OR (`a` IS NULL AND (year(d)) = 2)"
    )


def test_a_timestamp_is_a_moment_wherever_the_machine_stands():
    from pyspark.sql.types import IntegerType, StringType, TimestampType

    assert from_spark(1_500_000, TimestampType()) == datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert from_spark(-1, TimestampType()) == datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    assert from_spark("", StringType()) is None
    assert from_spark(5, IntegerType()) == 5
