"""Plain statements of stories write the rows that Spark would write, whoever writes them."""

from __future__ import annotations

from typing import Any

import pytest

from freshline.refresh.pin import pin_at
from freshline.testing import Lab
from freshline.values.names import TableName
from tests.duckdb_rows import equals_its_query
from tests.plain_lab import PlainLab, plain_fields

COLUMNS = "id INT, b BIGINT, l DECIMAL(38,4), k STRING, d DECIMAL(10,2), f DOUBLE, at DATE, t TIMESTAMP, ok BOOLEAN"
ROWS = (
    "INSERT INTO s VALUES (1, -1, 1234567890123456789012345678901234.5678, 'a', 1.10, 0.5, DATE'2026-01-01', "
    "TIMESTAMP'2026-01-01 10:00:00', true), (2, 9007199254740993, -0.0001, '', -0.05, 1e300, NULL, NULL, false), "
    "(3, NULL, NULL, NULL, 7, -0.0, DATE'1969-12-31', NULL, NULL)"
)
PLAIN = (
    "INSERT INTO s (k, id) VALUES ('x', 4), (NULL, 5)",
    "UPDATE s SET b = b * 3 - id, d = d + 0.01, k = 'x' WHERE id IN (1, 2) AND NOT k = 'a'",
    "UPDATE s SET b = NULL, d = -1.25, f = 7",
    "UPDATE s SET ok = true WHERE id BETWEEN 2 AND 3 OR at < DATE'1970-01-01'",
    "DELETE FROM s WHERE b IS NULL OR id % 2 = 1",
    "DELETE FROM s WHERE k <> 'a'",
    "DELETE FROM s",
)
FOR_SPARK = (
    "INSERT INTO s SELECT * FROM s",
    "INSERT INTO s (id, k) VALUES ('7', 1)",
    "INSERT INTO s (id, b) VALUES (7, 1.5)",
    "INSERT INTO s (id, t) VALUES (7, '2026-01-01')",
    "UPDATE s SET k = concat(k, 'x')",
    "UPDATE s SET b = b / 2",
    "UPDATE s SET id = 1.5",
    "UPDATE s SET k = id",
    "DELETE FROM s WHERE id = '1'",
    "DELETE FROM s WHERE k <=> NULL",
    "DELETE FROM s WHERE id IN (SELECT id FROM s)",
)


def changes(lab: Lab) -> list[dict[str, Any]]:
    """The rows of the change feed of `s`, without their times."""
    read = lab._spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    found = read.load(str(lab.path("s"))).drop("_commit_timestamp").collect()
    return sorted((row.asDict() for row in found), key=str)


def is_equal(lab: PlainLab) -> bool:
    """Whether DuckDB found the rows of `t` in its query."""
    spec, receipt, stored = lab.runtime.graph.table(TableName.parse("t")), lab.receipt("t"), lab._newest("t")
    assert receipt is not None
    assert stored is not None
    return equals_its_query(spec, receipt, stored, pin_at(lab.runtime, spec, receipt.positions))


def test_plain_statements_write_the_rows_and_changes_that_spark_writes(spark, monkeypatch):
    with PlainLab(spark) as quick, Lab(spark) as slow:
        for lab in (quick, slow):
            lab.source("s", COLUMNS)
        by_spark = []
        sql = Lab.sql

        def noted(lab: Lab, text: str) -> list[dict[str, Any]]:
            by_spark.append(lab)
            return sql(lab, text)

        monkeypatch.setattr(Lab, "sql", noted)
        for lab in (quick, slow):
            for statement in (ROWS, *PLAIN):
                lab.sql(statement)

        assert by_spark.count(quick) == 0
        assert by_spark.count(slow) == 1 + len(PLAIN)
        assert changes(quick) == changes(slow)


def test_a_source_is_made_and_read_as_spark_would(spark):
    with PlainLab(spark) as quick, Lab(spark) as slow:
        for lab in (quick, slow):
            lab.source("s", COLUMNS, primary_key=["id"])
            lab.sql(ROWS)

        assert quick._known == set()
        schemas = [lab._spark.read.format("delta").load(str(lab.path("s"))).schema for lab in (quick, slow)]
        assert schemas[0] == schemas[1]
        assert repr(quick.rows("s")) == repr(slow.rows("s"))
        assert quick.sql("SELECT count(*) AS n FROM s") == [{"n": 3}]


@pytest.mark.parametrize(
    "columns", ["id INT NOT NULL", "id INT, p STRUCT<a: INT>", "id INT, `a b` INT", "id INT DEFAULT 3", "id ARRAY<INT>"]
)
def test_a_source_of_other_columns_is_made_by_spark(columns):
    assert plain_fields(columns) is None


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE t SET n = n + 1 WHERE id = 1", {"id": 1, "n": 11, "f": 0.0}),
        ("INSERT INTO t VALUES (1, 10, 0.0)", {"id": 1, "n": 10, "f": 0.0}),
    ],
    ids=["value", "twice"],
)
def test_a_row_that_is_not_of_the_query_is_found(spark_lab, change, found):
    spark_lab.source("s", "id INT, n INT, f DOUBLE")
    spark_lab.sql("INSERT INTO s VALUES (1, 10, 0.0), (2, 20, NULL)")
    spark_lab.declare("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '5' MINUTE AS SELECT id, n, f FROM s")
    spark_lab.refresh("t")
    assert is_equal(spark_lab)

    spark_lab._spark.sql(change.replace(" t ", f" delta.`{spark_lab.path('t')}` ", 1))

    assert not is_equal(spark_lab)
    assert repr(("+", found)) in map(repr, spark_lab.diff("t"))


@pytest.mark.parametrize(
    "query",
    ["SELECT id FROM s WHERE now() > TIMESTAMP'2000-01-01'", "SELECT id, format_string('%d', n) AS text FROM s"],
    ids=["time", "function"],
)
def test_a_query_that_duckdb_may_compute_in_another_way_is_compared_by_spark(spark_lab, query):
    spark_lab.source("s", "id INT, n INT")
    spark_lab.sql("INSERT INTO s VALUES (1, 10)")
    spark_lab.declare(f"CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '5' MINUTE AS {query}")
    spark_lab.refresh("t")

    assert not is_equal(spark_lab)


@pytest.mark.parametrize("statement", FOR_SPARK)
def test_a_statement_that_is_not_plain_is_written_by_spark(quick_lab, statement):
    quick_lab.source("s", "id INT, b BIGINT, k STRING, t TIMESTAMP")

    assert not PlainLab._is_written(quick_lab, statement)


@pytest.mark.parametrize(
    "properties", [{"delta.enableDeletionVectors": "true"}, {"delta.columnMapping.mode": "name"}], ids=["dv", "names"]
)
def test_a_table_with_a_feature_that_delta_rs_does_not_write_is_written_by_spark(spark, properties):
    with PlainLab(spark) as lab:
        lab.source("s", "id INT", properties=properties)
        lab.sql("INSERT INTO s VALUES (1), (2)")
        lab.sql("DELETE FROM s WHERE id = 1")

        assert lab.sql("SELECT * FROM s") == [{"id": 2}]
