"""Rows are kept in the driver while their texts fit there, however few they are."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

from freshline.compute import arrow_rows, materialize
from freshline.compute.arrow_rows import take
from freshline.compute.materialize import collect_if_small


@pytest.fixture
def small(monkeypatch):
    """A driver that keeps 1,000 bytes."""
    for module in (arrow_rows, materialize):
        monkeypatch.setattr(module, "MOST_BYTES", 1_000)


def _texts(spark, *lengths: int):
    """Rows with a text of each length, as bytes within a struct and as a list too."""
    rows = spark.createDataFrame([(number, "x" * length) for number, length in enumerate(lengths)], "n INT, t STRING")
    return rows.select("n", "t", F.lit(None).cast("string").alias("nothing"), F.split("t", "y").alias("l"))


def _count(rows, most):
    came = take(rows, most)
    return None if came is None else came.count


def _nested(rows):
    return rows.select("n", F.struct("n", F.col("t").cast("binary").alias("b")).alias("s"), F.create_map("n", "t"))


@pytest.mark.parametrize(
    "shape", [lambda rows: rows, _nested, lambda rows: rows.select("n", "l")], ids=["plain", "nested", "list"]
)
def test_a_few_long_texts_are_kept_and_many_are_not(spark, small, shape):
    long, most = _texts(spark, 300, 3, 0), 10

    kept = collect_if_small(shape(long), most)

    assert kept is not None
    assert kept[0].dtypes == shape(long).dtypes
    assert kept[0].collect() == shape(long).collect()
    assert collect_if_small(shape(_texts(spark, *[300] * 8)), most) is None


def test_a_few_long_texts_come_by_arrow_and_many_do_not(spark, small):
    rows = _texts(spark, 300, 3, 0)

    came = take(rows, 10)

    assert came is not None
    assert came.schema == rows.schema
    assert came.frame().collect() == rows.collect()
    assert take(_texts(spark, *[300] * 8), 10) is None
    assert take(_texts(spark, *[3] * 11), 10) is None


def test_the_bytes_of_a_text_count_and_not_its_letters(spark, small):
    assert take(_texts(spark, *[100] * 8).select("n", F.translate("t", "x", "🙂").alias("t")), 10) is None


def test_many_columns_share_the_width_of_a_row(spark, small):
    columns = [F.repeat(F.lit("x"), 90).alias(f"c{number}") for number in range(20)]
    rows = spark.range(3).select(*columns)

    assert take(rows, 10) is None
    assert collect_if_small(rows, 10) is None
    assert _count(rows.limit(0), 10) == 0
    assert _count(rows.select(*[F.substring(name, 1, 3).alias(name) for name in rows.columns]), 10) == 3


def test_texts_of_tens_of_megabytes_are_not_brought_to_the_driver(spark):
    rows = spark.range(2_000).select("id", F.repeat(F.lit("x"), 50_000).alias("t"))

    assert take(rows, 5_000) is None
    assert collect_if_small(rows) is None
    assert _count(rows.limit(20), 5_000) == 20


@pytest.fixture(params=["CODEGEN_ONLY", "NO_CODEGEN"])
def compiled(spark, request):
    """Each test runs with compiled queries, and without."""
    conf = "spark.sql.codegen.factoryMode"
    before = spark.conf.get(conf)
    spark.conf.set(conf, request.param)
    yield
    spark.conf.set(conf, before)


def test_a_long_text_in_a_column_without_null_is_kept(spark, small, compiled):
    rows = _texts(spark, 300, 3, 0).selectExpr("n", "coalesce(t, '') AS t", "named_struct('u', coalesce(t, '')) AS s")
    assert not rows.schema["t"].nullable

    kept = collect_if_small(rows, 10)

    assert kept is not None
    assert kept[0].schema["t"] == rows.schema["t"]
    assert kept[0].collect() == rows.collect()
    assert collect_if_small(rows.unionAll(rows).unionAll(rows), 10) is None
    came = take(rows.select("n", "t"), 10)
    assert came is not None
    assert came.frame().collect() == rows.select("n", "t").collect()


def test_a_field_of_a_struct_is_not_taken_for_a_column_of_a_relation(spark, small):
    rows = _texts(spark, 300).selectExpr("t", "named_struct('t', 7, 'it''s', t) AS new").alias("new")

    kept = collect_if_small(rows, 10)

    assert kept is not None
    assert kept[0].collect() == rows.collect()


def test_more_columns_than_bytes_for_each_are_bounded_too(spark, small):
    rows = spark.range(2).select(*[F.lit("").alias(f"c{number}") for number in range(300)])

    assert _count(rows, 900) == 2
