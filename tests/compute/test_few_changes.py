"""The engine's own process finds how a few rows differ from the stored ones exactly as Spark does."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import functions as F

from freshline.compute.few_changes import difference_of_few
from freshline.compute.keys import OP, difference_by_key
from freshline.compute.materialize import FEW_ROWS
from tests.lanes import few_or_many

COLUMNS = (
    "k STRING, at TIMESTAMP, n INT, big BIGINT, tiny TINYINT, yes BOOLEAN, day DATE, local TIMESTAMP_NTZ, "
    "price DECIMAL(20, 4), raw BINARY, part DOUBLE, half FLOAT, `odd``é.n` STRING"
)
# Of each type some that are next to each other, the ends, and NULL. Those of the key first.
VALUES = {
    "k": ["'a'", "'A'", "''", "'a '", "NULL", "'é'", "'e\u0301'", "CAST(X'FF' AS STRING)", "CAST(X'FE' AS STRING)"],
    "at": [
        "NULL",
        "TIMESTAMP'0001-01-01 00:00:00Z'",
        "TIMESTAMP'9999-12-31 23:59:59.999999Z'",
        "TIMESTAMP'1582-10-10 01:02:03.123456Z'",
        "timestamp_micros(-9223372036854775808)",
        "timestamp_micros(9223372036854775807)",
    ],
    "n": ["NULL", "0", "-2147483648"],
    "big": ["NULL", "9223372036854775807", "9223372036854775806"],
    "tiny": ["NULL", "-128Y"],
    "yes": ["NULL", "true", "false"],
    "day": ["NULL", "DATE'-5877641-06-23'", "DATE'2026-02-28'", "date_from_unix_date(2147483647)"],
    "local": ["NULL", "TIMESTAMP_NTZ'2026-03-29 02:30:00'", "TIMESTAMP_NTZ'-290308-12-21 19:59:05.224192'"],
    "price": ["NULL", "1.0", "1.0001", "-9999999999999999.9999"],
    "raw": ["NULL", "X''", "X'00'", "X'0000'"],
    "part": ["NULL", "double('NaN')", "0.0D", "1e-300D", "double('Infinity')"],
    "half": ["NULL", "float('NaN')", "float('1.5')"],
    "odd": ["NULL", "'x'", "'X'"],
}


def random_rows(spark, random, count, *, like=()):
    """Rows with each (k, at) once, of which some are those of `like`; and the texts that they were made of."""
    found = {}
    for _ in range(count):
        if like and random.random() < 0.7:
            row = list(random.choice(like))
            if random.random() < 0.5:
                number = random.randrange(2, len(row))
                row[number] = random.choice(VALUES[list(VALUES)[number]])
        else:
            row = [random.choice(values) for values in VALUES.values()]
        found[tuple(row[:2])] = tuple(row)
    rows = list(found.values())
    names = [f"c{number}" for number in range(len(VALUES))]
    values = ", ".join(f"({', '.join(row)})" for row in rows) or f"({', '.join(['NULL'] * len(names))})"
    frame = spark.sql(f"SELECT * FROM VALUES {values} AS t({', '.join(names)})")
    schema = spark.createDataFrame([], COLUMNS).schema
    typed = frame.select(
        *[F.col(name).cast(field.dataType).alias(field.name) for name, field in zip(names, schema.fields, strict=True)]
    )
    return typed if rows else typed.limit(0), rows


def shown(rows):
    """Rows as Spark writes them, in an order."""
    names = [field.name for field in rows.schema.fields]
    parts = [
        F.coalesce(
            F.hex(F.col(f"`{name.replace('`', '``')}`").cast("binary"))
            if str(kind) == "StringType()"
            else F.to_json(F.struct(F.col(f"`{name.replace('`', '``')}`").alias("v"))),
            F.lit("NULL"),
        )
        for name, kind in zip(names, [field.dataType for field in rows.schema.fields], strict=True)
    ]
    return sorted(row[0] for row in rows.select(F.concat_ws("|", *parts)).collect())


@pytest.mark.parametrize("rounds", few_or_many(6, 60))
def test_random_rows_differ_as_spark_says(spark, rounds):
    random = Random(17)
    told: set[str] = set()
    for _ in range(rounds):
        old, like = random_rows(spark, random, random.choice([0, 1, 8, 40]))
        new, _ = random_rows(spark, random, random.choice([0, 1, 8, 40]), like=like)

        found = difference_of_few(new, old, ("K", "at"))

        assert found is not None
        expected = difference_by_key(new, old, ("k", "at"))
        frame = found.frame()
        assert frame.schema[OP].dataType == expected.schema[OP].dataType
        assert shown(frame.select(*[F.col(f"`{name.replace('`', '``')}`") for name in expected.columns])) == shown(
            expected
        )
        assert found.count == expected.count()
        told.update(row[OP] for row in expected.select(OP).collect())
    assert told == {"I", "U", "D"}


def count_of(new, old, key=("k",)):
    found = difference_of_few(new, old, key)
    return None if found is None else found.count


def test_a_comparison_that_needs_spark_is_left_to_it(spark):
    def told(columns, new, old="", key=("k",)):
        schema = spark.createDataFrame([], columns).schema
        sides = [spark.sql(f"SELECT * FROM VALUES {rows}") if rows else None for rows in (new, old)]
        frames = [
            spark.createDataFrame([], schema)
            if side is None
            else side.toDF(*schema.names).select(*[F.col(f.name).cast(f.dataType) for f in schema.fields])
            for side in sides
        ]
        return count_of(frames[0], frames[1], key)

    assert told("k INT, v STRING", "(1, 'a')") == 1
    # A key that is there twice, on either side.
    assert told("k INT, v STRING", "(1, 'a'), (1, 'a')") is None
    assert told("k INT, v STRING", "(1, 'a')", "(2, 'a'), (2, 'b')") is None
    assert told("k INT, v STRING", "(NULL, 'a'), (NULL, 'b')") is None
    # Values that are equal with other bytes, as a key or within a type.
    assert told("k DOUBLE, v STRING", "(1.0, 'a')") is None
    assert told("k INT, v ARRAY<INT>", "(1, array(1))") is None
    assert told("k STRING COLLATE UTF8_LCASE, v INT", "('a', 1)") is None
    assert told("k INT, v STRUCT<a: INT>", "(1, named_struct('a', 1))") is None
    many = spark.range(4 * FEW_ROWS + 1).selectExpr("id AS k", "'a' AS v")
    assert difference_of_few(many, many.limit(0), ("k",)) is None
    assert count_of(many.limit(3), many.limit(0)) == 3


def test_a_fraction_is_stored_as_the_query_has_it(spark):
    new, old = spark.sql("SELECT 1 AS k, -0.0D AS v"), spark.sql("SELECT 1 AS k, 0.0D AS v")

    found = difference_of_few(new, old, ("k",))

    assert found is not None
    assert [(row[OP], str(row["v"])) for row in found.frame().collect()] == [("U", "-0.0")]
    assert count_of(new, new) == 0
    nan, other = (spark.sql(f"SELECT 1 AS k, {text} AS v") for text in ("double('NaN')", "-double('NaN')"))
    assert count_of(nan, other) == 0
