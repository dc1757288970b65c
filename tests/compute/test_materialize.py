"""Rows that are computed once come back as they were."""

from __future__ import annotations

from pyspark.sql import functions as F

from freshline.compute.materialize import FEW_ROWS, collect_if_small, materialize_once

BROKEN = "CAST(X'61C328FF' AS STRING)"


def test_texts_that_are_no_utf_8_stay_as_they_are_at_any_depth(spark):
    rows = spark.sql(
        f"SELECT {BROKEN} AS `a b`, 'é🙂' AS u, CAST(NULL AS STRING) AS n, named_struct('s t', {BROKEN}, 'n', 1) AS s, "
        f"array({BROKEN}, NULL) AS l, map({BROKEN}, named_struct('t', {BROKEN})) AS m, X'FF' AS x, 1.50 AS d, "
        "TIMESTAMP'2026-01-01 00:00:00.000001' AS ts"
    )

    kept, count = materialize_once(rows)

    assert count == 1
    assert kept.schema == rows.schema
    shown = (
        "hex(`a b`), u, n, hex(s.`s t`), s.n, hex(l[0]), l[1], hex(map_keys(m)[0]), hex(map_values(m)[0].t), x, d, ts"
    )
    names = shown.split(", ")
    assert kept.selectExpr(*names).collect() == rows.selectExpr(*names).collect()
    assert kept.selectExpr("hex(`a b`)").collect()[0][0] == "61C328FF"


def test_plain_texts_of_any_name_come_back_as_they_were(spark):
    rows = spark.sql(
        f"SELECT {BROKEN} AS `a.b`, 'x' AS `c``d`, CAST(NULL AS STRING) AS `AS`, X'00FF' AS `it's`, 7 AS `n m`, "
        "'' AS `é🙂`"
    )

    kept, count = materialize_once(rows)

    assert count == 1
    assert kept.schema == rows.schema
    shown = ["hex(`a.b`)", "`c``d`", "`AS`", "hex(`it's`)", "`n m`", "`é🙂`"]
    assert kept.selectExpr(*shown).collect() == rows.selectExpr(*shown).collect()
    assert kept.selectExpr("hex(`a.b`)").collect()[0][0] == "61C328FF"


def test_few_rows_need_no_job_and_more_are_not_kept_in_the_driver(spark):
    few = collect_if_small(spark.range(3).withColumn("t", F.col("id").cast("string")))
    many = spark.range(FEW_ROWS + 1).withColumn("t", F.col("id").cast("string"))

    assert few is not None
    assert few[1] == 3
    assert "LocalTableScan" in few[0]._jdf.queryExecution().executedPlan().toString()
    assert "Project" not in few[0]._jdf.queryExecution().executedPlan().toString()
    assert collect_if_small(many) is None
    kept, count = materialize_once(many)
    assert (count, kept.agg(F.max(F.col("t").cast("int"))).collect()[0][0]) == (FEW_ROWS + 1, FEW_ROWS)
