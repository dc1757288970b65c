"""A small commit has what Spark's own would have: rows, change data, receipt and fence; it leaves the rest to Spark."""

from __future__ import annotations

import itertools
import json
import threading
import time

import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from freshline.commit import small
from freshline.commit.delta_log import changed_rows, count_nulls, is_never_null, newest_version
from freshline.commit.maintenance import compact_files
from freshline.commit.small import MOST_FILES, open_small
from freshline.commit.write import (
    append_rows,
    apply_changes,
    create_table,
    delete_rows,
    insert_new_keys,
    overwrite_table,
)
from freshline.errors import FencedError
from freshline.plan.maintenance import FULL_FILE_BYTES
from tests.commit.test_write import receipt
from tests.delta_log import commit_of, version_of, write_and_read_back
from tests.lanes import long_but

COLUMNS = (
    "k STRING, n INT, big BIGINT, small SMALLINT, tiny TINYINT, yes BOOLEAN, day DATE, at TIMESTAMP, "
    "local TIMESTAMP_NTZ, price DECIMAL(20, 4), part DOUBLE, half FLOAT, raw BINARY, tags ARRAY<STRING>, "
    'm MAP<STRING, INT>, s STRUCT<a: INT, b: ARRAY<STRUCT<d: TIMESTAMP>>>, `odd"é.n` STRING'
)
FULL = """(
    'a', 1, 2, 3Y, 4Y, true, DATE'0001-01-01', TIMESTAMP'1582-10-10 01:02:03.123456Z',
    TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', 1234567890123456.7891, double('NaN'), float('-0.0'), X'00FF',
    array('x', NULL, ''), map('u', 1, 'v', NULL),
    named_struct('a', 1, 'b', array(named_struct('d', TIMESTAMP'2026-03-29 00:59:59.999999Z'), NULL)), 'é"😀')"""
# 32 characters of hexadecimal numbers, other ones for each row and `n`.
_NOISE = "md5(concat(id, ' ', n))"
NULLS = "('b'" + ", NULL" * 16 + ")"


@pytest.fixture
def made(spark, tmp_path):
    """A function that creates an empty table of some columns, and returns its path."""

    def create(columns, *, name="t", **how):
        path = tmp_path / name
        create_table(spark, path, spark.createDataFrame([], columns).schema, history_seconds=86400, **how)
        return path

    return create


def rows(spark, values, columns):
    schema = spark.createDataFrame([], columns).schema
    found = spark.sql(f"SELECT * FROM VALUES {values}").toDF(*[f"c{n}" for n in range(len(schema))])
    return found.select(*[F.col(f"c{n}").cast(field.dataType).alias(field.name) for n, field in enumerate(schema)])


def stored(spark, path):
    return sorted(str(row) for row in spark.read.format("delta").load(str(path)).collect())


def feed(spark, path, version):
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    dropped = changes.load(str(path)).drop("_commit_timestamp", "_commit_version")
    return sorted(str(row) for row in dropped.collect())


def written_by(path):
    return commit_of(path, version_of(path)).info["engineInfo"].split(":")[0].split("/")[0]


def write_both(spark, made, columns, writes, **how):
    """The tables that the same writes make, each first through Spark and then as small commits."""
    paths = [made(columns, name=name, **how) for name in ("by_spark", "small")]
    for seq, write in enumerate(writes, 1):
        for path, few in zip(paths, (False, True), strict=True):
            new = receipt(seq)
            committed = write_and_read_back(lambda: write(path, new, few), path, new)  # noqa: B023 - called at once
            assert committed is not None
            assert committed.receipt == new
            assert (written_by(path) == "delta-rs") is few
    return paths


@pytest.mark.long
def test_many_changes_pass_while_their_size_by_what_is_stored_is_bounded(spark, made, monkeypatch):
    path = made("k BIGINT, v STRING")
    begin = spark.range(60_000).selectExpr("id AS k", "concat('value ', id) AS v").localCheckpoint()
    # Nothing is stored that shows how wide so many rows are.
    write_and_read_back(lambda: append_rows(begin, path, receipt(1), count=60_000), path, receipt(1))
    assert written_by(path) != "delta-rs"

    then = spark.range(30_000).selectExpr(
        "CASE WHEN id % 3 = 0 THEN 'D' ELSE 'U' END AS op", "id * 2 AS k", "concat('other ', id) AS v"
    )

    def change(seq: int) -> None:
        apply_changes(spark, then, path, receipt(seq), op="op", keys=["k"], unique=True, near=None, count=30_000)

    change(2)
    assert written_by(path) == "delta-rs"
    changed = spark.read.format("delta").load(str(path))
    assert changed.count() == 50_000
    assert changed.where("v LIKE 'other %'").count() == 20_000
    assert changed.where("k % 6 = 0").count() == 0

    monkeypatch.setattr(small, "MOST_ROWS_BYTES", 30_000)
    change(3)
    assert written_by(path) != "delta-rs"


@pytest.mark.long
def test_a_key_of_very_many_rows_is_replaced_in_a_time_that_grows_with_them(spark, made):
    path = made("k STRING, n BIGINT")
    count = 150_000
    write_and_read_back(
        lambda: append_rows(spark.range(count).selectExpr("'hot' AS k", "id AS n"), path, receipt(1)), path, receipt(1)
    )
    gone = spark.sql("SELECT 'D' AS op, 'hot' AS k, CAST(NULL AS BIGINT) AS n")
    new = gone.union(spark.range(count).selectExpr("'I' AS op", "'hot' AS k", "id + 1 AS n"))

    began = time.monotonic()
    apply_changes(spark, new, path, receipt(2), op="op", keys=["k"], unique=False, near=None)

    # Were each stored row compared with each new one, it would take minutes.
    assert time.monotonic() - began < 60.0
    found = spark.read.format("delta").load(str(path))
    assert found.selectExpr("count(*)", "min(n)", "max(n)", "count(DISTINCT n)").collect() == [(count, 1, count, count)]


@pytest.mark.long
def test_keys_of_many_rows_are_found_whatever_they_are(spark, made):
    columns = "t STRING, d DOUBLE, b BINARY, day DATE, n INT"
    keys = [
        "'a', 1.5D, X'00', DATE'2026-01-01'",
        "'a', double('NaN'), X'00', NULL",
        "NULL, 0.0D, NULL, DATE'1500-01-01'",
        "NULL, NULL, NULL, NULL",
        "'', double('-Infinity'), X'', NULL",
    ]
    path = made(columns)
    values = ", ".join(f"({key}, {n})" for key in keys for n in (1, 2))
    rows_there = spark.sql(f"SELECT * FROM VALUES {values} AS v(t, d, b, day, n)")
    write_and_read_back(lambda: append_rows(rows_there, path, receipt(1)), path, receipt(1))
    for seq, key in enumerate((key.replace("0.0D", "-0.0D") for key in keys), 2):
        changes = spark.sql(
            f"SELECT 'D' AS op, {key}, CAST(NULL AS INT) UNION ALL SELECT 'I', {key}, 3 UNION ALL SELECT 'I', {key}, 4"
        ).toDF("op", "t", "d", "b", "day", "n")
        apply_changes(spark, changes, path, receipt(seq), op="op", keys=["t", "d", "b", "day"], unique=False, near=None)

    found = spark.read.format("delta").load(str(path))
    assert found.count() == 2 * len(keys)
    assert {row[0] for row in found.select("n").collect()} == {3, 4}


def test_rows_of_every_type_are_the_same_as_if_spark_had_added_them(spark, made):
    new = rows(spark, f"{FULL}, {NULLS}", COLUMNS)
    by_spark, few = write_both(
        spark, made, COLUMNS, [lambda path, made, few: append_rows(new, path, made, count=new.count() if few else None)]
    )

    assert stored(spark, few) == stored(spark, by_spark)
    assert feed(spark, few, 1) == feed(spark, by_spark, 1)
    # Nothing that is stored is hidden from a search by a column's least and greatest values.
    found = spark.read.format("delta").load(str(few))
    assert found.where("at = TIMESTAMP'1582-10-10 01:02:03.123456Z'").count() == 1
    assert found.where("`odd\"é.n` = 'é\"😀' AND price > 1234567890123456.789").count() == 1


MERGED = list(itertools.product((True, False), ((), ("p",), ("day", "p"))))


@pytest.mark.parametrize(("unique", "partitioned"), long_but([(True, ("day", "p"))], MERGED))
def test_changes_are_the_same_as_if_spark_had_merged_them(spark, made, partitioned, unique):
    columns = "K INT, p STRING, day DATE, v DOUBLE, at TIMESTAMP"
    first = """(1, 'x', DATE'2026-01-01', 1.0, TIMESTAMP'2026-01-01'), (2, 'a/b=c%20 é', DATE'2026-01-02', 2.0, NULL),
        (3, NULL, NULL, double('NaN'), NULL), (NULL, 'x', DATE'2026-01-01', 4.0, NULL), (5, 'x', NULL, 5.0, NULL)"""
    changes = {
        True: """('U', 1, 'y', DATE'2026-01-01', 1.5, NULL), ('D', 3, NULL, NULL, NULL, NULL),
            ('U', NULL, NULL, NULL, double('-0.0'), NULL), ('I', 7, 'a/b=c%20 é', DATE'2026-01-02', 7.0, NULL)""",
        False: """('D', 1, NULL, NULL, NULL, NULL), ('D', NULL, NULL, NULL, NULL, NULL),
            ('I', NULL, 'x', DATE'2026-01-01', 4.0, NULL), ('I', NULL, 'x', DATE'2026-01-01', 4.0, NULL),
            ('I', 2, NULL, NULL, 2.0, NULL)""",
    }[unique]
    begin, then = rows(spark, first, columns), rows(spark, changes, f"op STRING, {columns}")

    def change(path, made, few):
        apply_changes(
            spark, then, path, made, op="op", keys=["k"], unique=unique, near=None, count=then.count() if few else None
        )

    by_spark, few = write_both(
        spark,
        made,
        columns,
        [lambda path, made, few: append_rows(begin, path, made, count=begin.count() if few else None), change],
        partitioned_by=list(partitioned),
    )

    assert (written_by(by_spark), written_by(few)) == ("Apache-Spark", "delta-rs")
    assert stored(spark, few) == stored(spark, by_spark)
    assert feed(spark, few, 2) == feed(spark, by_spark, 2)
    assert [changed_rows(commit_of(path, 2)) for path in (few, by_spark)] == [{True: 4, False: 5}[unique]] * 2


@pytest.mark.parametrize("partitioned", long_but([["k"]], [[], ["k"]]), ids=["plain", "partitioned"])
def test_a_table_that_is_replaced_is_the_same_as_if_spark_had_replaced_it(spark, made, partitioned):
    new, nothing = rows(spark, f"{FULL}, {NULLS}", COLUMNS), spark.createDataFrame([], COLUMNS)
    before = rows(spark, f"{NULLS}, {NULLS}", COLUMNS)

    def replace(frame):
        return lambda path, made, few: overwrite_table(frame, path, made, partitioned_by=partitioned, few=few)

    by_spark, few = write_both(
        spark,
        made,
        COLUMNS,
        [replace(before), replace(new), replace(nothing), replace(nothing), replace(new)],
        partitioned_by=partitioned,
    )

    assert stored(spark, few) == stored(spark, by_spark)
    for version in range(1, 6):
        assert feed(spark, few, version) == feed(spark, by_spark, version)
        assert changed_rows(commit_of(few, version)) == changed_rows(commit_of(by_spark, version))


@pytest.mark.parametrize(
    ("before", "after", "values"),
    [
        ("n INT", "n STRING", "('0012')"),
        ("n STRING", "n BINARY", "(X'00FF')"),
        ("n BINARY", "n STRING", "('x')"),
        ("n BOOLEAN", "n INT", "(3)"),
        ("n DATE", "n TIMESTAMP", "(TIMESTAMP'2026-11-01 12:34:56Z')"),
        ("n FLOAT", "n DOUBLE", "(0.1D)"),
        ("n BIGINT", "n INT", "(3)"),
        ("n DECIMAL(10, 1)", "n DECIMAL(10, 3)", "(1.125BD)"),
        ("n STRUCT<x: STRING>", "n STRUCT<y: STRING>", "(named_struct('y', 'v'))"),
        ("n STRUCT<x: STRING>", "n STRUCT<x: STRING, y: INT>", "(named_struct('x', 'v', 'y', 1))"),
        ("n ARRAY<STRUCT<x: INT>>", "n ARRAY<STRUCT<x: STRING>>", "(array(named_struct('x', '01')))"),
        ("n MAP<STRING, INT>", "n MAP<STRING, STRING>", "(map('k', '01'))"),
        ("n MAP<STRING, STRING>", "n MAP<STRING, BINARY>", "(map('k', X'41'))"),
        ("n STRUCT<x: STRING>", "n STRUCT<x: BINARY>", "(named_struct('x', X'41'))"),
        ("n ARRAY<STRING>", "n ARRAY<BINARY>", "(array(X'41'))"),
    ],
)
def test_a_column_that_has_another_type_now_is_stored_with_it(spark, made, before, after, values):
    path = made(before)
    new = rows(spark, values, after)

    overwrite_table(new, path, receipt(1), few=True)

    assert written_by(path) == "Apache-Spark"
    found = spark.read.format("delta").load(str(path))
    assert found.schema.simpleString() == new.schema.simpleString()
    assert [str(row) for row in found.collect()] == [str(row) for row in new.collect()]
    # In the types that it has now, the next one is a small commit.
    overwrite_table(new, path, receipt(2), few=True)
    assert written_by(path) == "delta-rs"
    assert [str(row) for row in spark.read.format("delta").load(str(path)).collect()] == [
        str(row) for row in new.collect()
    ]


@pytest.mark.parametrize(
    ("columns", "partitioned", "creator"),
    [
        (COLUMNS, ["k", "day"], "delta-rs"),
        ("a VARIANT", [], "Apache-Spark"),
    ],
)
def test_tables_are_created_without_spark_where_their_types_are_served(spark, tmp_path, columns, partitioned, creator):
    schema = spark.createDataFrame([], columns).schema
    path = tmp_path / "t"
    create_table(spark, path, schema, partitioned_by=partitioned, history_seconds=86400, statistics_on=schema.names[:1])

    assert written_by(path) == creator
    stored_as = spark.read.format("delta").load(str(path))
    assert [(f.name, f.dataType, f.nullable) for f in stored_as.schema] == [(f.name, f.dataType, True) for f in schema]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]
    assert (detail.partitionColumns, detail.properties["delta.enableChangeDataFeed"]) == (partitioned, "true")
    # The table is there: making it a second time changes nothing.
    create_table(spark, path, schema, partitioned_by=partitioned, history_seconds=1)
    assert newest_version(path) == 0


def test_names_that_parquet_refuses_are_mapped_and_all_others_keep_theirs(spark, tmp_path):
    columns = "id INT, `a b` INT, s STRUCT<`a,b`: INT>, l ARRAY<STRUCT<x: INT>>"
    create_table(spark, tmp_path / "t", spark.createDataFrame([], columns).schema, history_seconds=86400)
    fields = json.loads(DeltaTable(str(tmp_path / "t")).schema().to_json())["fields"]
    physical = {field["name"]: field["metadata"]["delta.columnMapping.physicalName"] for field in fields}
    assert (physical["id"], physical["s"], physical["l"]) == ("id", "s", "l")
    assert physical["a b"].startswith("col-")


def test_a_table_of_partition_columns_alone_is_refused(spark, tmp_path):
    with pytest.raises(AnalysisException):
        create_table(
            spark,
            tmp_path / "t",
            spark.createDataFrame([], "a INT").schema,
            partitioned_by=["a"],
            history_seconds=86400,
        )
    assert newest_version(tmp_path / "t") is None


def test_only_rows_whose_key_is_new_are_added(spark, made):
    columns = "A STRING, b DATE, v INT"
    path = made(columns, partitioned_by=["b"])
    before = rows(spark, "('x', DATE'2026-01-01', 1), ('y', DATE'2026-01-01', 2)", columns)
    append_rows(before, path, receipt(1))
    new = rows(spark, "('x', DATE'2026-01-01', 9), ('x', DATE'2026-01-02', 3), ('z', DATE'2026-01-01', 4)", columns)

    assert insert_new_keys(new, path, receipt(2), keys=["a", "b"], count=10)
    assert sorted(row.v for row in spark.read.format("delta").load(str(path)).collect()) == [1, 2, 3, 4]
    # A reader that follows such a table sees additions alone.
    assert not commit_of(path, 2).data_actions("remove")
    assert changed_rows(commit_of(path, 2)) == 2


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("DECIMAL(20, 0)", "12345678901234569"),
        ("DECIMAL(20, 0)", "18446744073709551615"),
        ("DECIMAL(38, 0)", "99999999999999999999999999999999999999"),
        ("DECIMAL(18, 2)", "-1234567890123456.79"),
        ("DECIMAL(15, 2)", "1234567890123.45"),
        ("DECIMAL(38, 37)", "0.1234567890123456789012345678901234567"),
        ("BIGINT", "9223372036854775807"),
        ("TIMESTAMP", "TIMESTAMP'2026-11-01 12:34:56.123457Z'"),
        ("BINARY", "X'00FF'"),
    ],
)
@pytest.mark.parametrize("first", ["delta-rs", "Apache-Spark"])
def test_a_key_of_many_digits_is_found_again(spark, made, kind, key, first):
    columns = f"k {kind}, v INT"
    path = made(columns)
    value = key if "'" in key or kind == "BIGINT" else f"{key}BD"
    count = 1 if first == "delta-rs" else None
    append_rows(rows(spark, f"({value}, 1)", columns), path, receipt(1), count=count)
    assert written_by(path) == first

    assert insert_new_keys(rows(spark, f"({value}, 2)", columns), path, receipt(2), keys=["k"], count=1)
    assert [row.v for row in spark.read.format("delta").load(str(path)).collect()] == [1]
    changed = rows(spark, f"('U', {value}, 3)", f"op STRING, {columns}")
    apply_changes(spark, changed, path, receipt(3), op="op", keys=["k"], unique=True, near=None, count=1)
    assert written_by(path) == "delta-rs"
    found = spark.read.format("delta").load(str(path))
    # By Delta's statistics and by those of Parquet.
    for rows_of in (found, spark.read.parquet(*DeltaTable(str(path)).file_uris())):
        assert [row.v for row in rows_of.where(f"k = CAST({value} AS {kind})").collect()] == [3]
        assert rows_of.where(f"k <> CAST({value} AS {kind})").collect() == []


def test_a_value_that_is_not_a_number_is_found_by_whoever_skips_files(spark, made):
    columns = "k INT, part DOUBLE, half FLOAT, s STRUCT<d: DOUBLE>, c STRING"
    path = made(columns)
    values = "(1, 1.0D, 1.0F, named_struct('d', 1.0D), 'a'), (2, {0}, float({0}), named_struct('d', {0}), 'a')"
    nan = values.format("double('NaN')")
    asked = ("part > 100", "half > 100", "s.d > 100", "part >= 2", "part <> 1", "NOT part <= 1", "part = double('NaN')")

    def found() -> list[list[int]]:
        several = (spark.read.format("delta").load(str(path)), spark.read.parquet(*DeltaTable(str(path)).file_uris()))
        return [[row.k for row in rows_of.where(condition).collect()] for condition in asked for rows_of in several]

    append_rows(rows(spark, nan, columns), path, receipt(1), count=2)
    assert written_by(path) == "delta-rs"
    assert found() == [[2]] * (2 * len(asked))
    # A merge writes the row again, beside one that is changed.
    changed = rows(spark, "('U', 1, 1.0D, 1.0F, named_struct('d', 1.0D), 'b')", f"op STRING, {columns}")
    apply_changes(spark, changed, path, receipt(2), op="op", keys=["k"], unique=True, near=None, count=1)
    assert written_by(path) == "delta-rs"
    assert found() == [[2]] * (2 * len(asked))
    # A deletion and OPTIMIZE write it again, too.
    append_rows(rows(spark, "(3, 0.0D, 0.0F, named_struct('d', 0.0D), 'x')", columns), path, receipt(3), count=1)
    delete_rows(lambda: spark, path, "c = 'b'", receipt(4))
    assert written_by(path) == "delta-rs"
    assert found()[:4] == [[2]] * 4
    assert compact_files(lambda: spark, path, receipt(4).carried("compacted"), version_of(path))
    assert len(DeltaTable(str(path)).file_uris()) == 1
    assert found()[:4] == [[2]] * 4
    # A table that is replaced has it in the same way.
    overwrite_table(rows(spark, nan, columns), path, receipt(5), few=True)
    assert written_by(path) == "delta-rs"
    assert found() == [[2]] * (2 * len(asked))
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1).load(str(path))
    assert {row.k for row in changes.where("part > 100").collect()} == {2}
    # Keys have their bounds.
    files = DeltaTable(str(path)).get_add_actions(flatten=True)
    assert {"min.k", "max.c", "null_count.k"} <= set(files.schema.names)


def test_rows_whose_key_is_new_have_bounds_of_fractions_that_are_numbers(spark, made):
    columns = "k INT, part DOUBLE"
    path = made(columns)
    for number, part in ((1, "1.5D"), (2, "double('NaN')")):
        assert insert_new_keys(rows(spark, f"({number}, {part})", columns), path, receipt(number), keys=["k"], count=1)

    files = DeltaTable(str(path)).get_add_actions(flatten=True)
    assert sorted(files["min.part"].to_pylist(), key=str) == [1.5, None]
    assert [row.k for row in spark.read.format("delta").load(str(path)).where("part > 100").collect()] == [2]


def test_nulls_of_decimals_are_counted_while_their_bounds_are_true(spark, made):
    columns = "k INT, price DECIMAL(18, 2), total DECIMAL(28, 2), part DOUBLE"

    def commit(path, seq, values, *, change=False):
        if change:
            changed = rows(spark, values, f"op STRING, {columns}")
            apply_changes(spark, changed, path, receipt(seq), op="op", keys=["k"], unique=True, near=None, count=1)
        else:
            append_rows(rows(spark, values, columns), path, receipt(seq), count=1)
        assert written_by(path) == "delta-rs"

    path = made(columns)
    commit(path, 1, "(1, 9999999999999.99BD, -9999999999999.99BD, 1.0D), (2, NULL, 1.5BD, 2.0D)")
    commit(path, 2, "('U', 1, 0.01BD, 0, 1.5D)", change=True)
    assert {name: count_nulls(path, version_of(path), name) for name in ("price", "total")} == {"price": 1, "total": 0}
    commit(path, 3, "(9, 1.00BD, 1.00BD, 1.0D)")
    assert compact_files(lambda: spark, path, receipt(3).carried("compacted"), version_of(path))
    assert {name: count_nulls(path, version_of(path), name) for name in ("price", "total")} == {"price": 1, "total": 0}

    # A stored value that has too many digits is written again with others.
    commit(path, 4, "(3, 9999999999999.99BD, 123456789012345678.91BD, double('NaN'))")
    assert count_nulls(path, version_of(path), "price") == 1
    assert not is_never_null(path, version_of(path), "total")
    commit(path, 5, "('U', 3, 1.00BD, 123456789012345678.91BD, 1.0D)", change=True)
    commit(path, 6, "('U', 3, 1.00BD, 2.00BD, 1.0D)", change=True)
    found = spark.read.format("delta").load(str(path))
    assert sorted(row.k for row in found.where("total = 2 OR price <= 1").collect()) == [1, 3, 9]


def test_a_commit_of_no_row_carries_its_receipt(spark, made):
    path = made("k INT")
    new = receipt(1)

    committed = write_and_read_back(
        lambda: append_rows(spark.createDataFrame([], "k INT"), path, new, count=1), path, new
    )

    assert committed is not None
    assert (committed.version, committed.rows_out, committed.receipt) == (1, 0, new)
    assert written_by(path) == "delta-rs"


def test_changes_that_change_nothing_carry_their_receipt(spark, made):
    columns = "k INT, v INT"
    path = made(columns)
    there = rows(spark, "(1, 1)", columns)
    append_rows(there, path, receipt(1), count=1)
    late = receipt(2)

    def insert_again() -> None:
        insert_new_keys(there, path, late, keys=["k"], count=10)

    inserted = write_and_read_back(insert_again, path, late)
    assert inserted is not None
    assert inserted.version == 2
    nothing, last = rows(spark, "('D', 5, 1)", f"op STRING, {columns}"), receipt(3)

    committed = write_and_read_back(
        lambda: apply_changes(spark, nothing, path, last, op="op", keys=["k"], unique=True, near=None, count=0),
        path,
        last,
    )

    assert committed is not None
    assert (committed.version, committed.rows_out, committed.receipt) == (3, 0, last)
    assert written_by(path) == "delta-rs"
    assert stored(spark, path) == ["Row(k=1, v=1)"]


def test_the_fence_is_closed_for_everything_that_is_not_above_it(spark, made):
    path = made("k INT")
    one = spark.createDataFrame([(1,)], "k INT")
    append_rows(one, path, receipt(1, epoch=2), count=1)
    for late in (receipt(9, epoch=1), receipt(1, epoch=2)):
        append_rows(one, path, late, count=1)
        append_rows(one, path, late)
        assert newest_version(path) == 1

    overtaken = receipt(9, epoch=1)
    with pytest.raises(FencedError):
        write_and_read_back(lambda: append_rows(one, path, overtaken, count=1), path, overtaken)
    # Spark's writes close it for small ones, and theirs for Spark's.
    append_rows(one, path, receipt(2, epoch=2))
    append_rows(one, path, receipt(2, epoch=2), count=1)
    assert newest_version(path) == 2


def test_the_number_of_a_refresh_is_written_once_whichever_engine_was_first(spark, made):
    path = made("k INT")
    one = spark.createDataFrame([(1,)], "k INT")
    append_rows(one, path, receipt(3, epoch=1), count=1)
    append_rows(one, path, receipt(3, epoch=2), count=1)
    assert newest_version(path) == 1

    append_rows(one, path, receipt(4, epoch=2), count=1)
    assert newest_version(path) == 2


def test_a_commit_that_another_overtook_is_not_there(spark, made, monkeypatch):
    path = made("k INT")
    one = spark.createDataFrame([(1,)], "k INT")

    def overtaken(*arguments, **named):
        monkeypatch.setattr(small, "write_deltalake", write_deltalake)
        append_rows(one, path, receipt(1, epoch=2))
        write_deltalake(*arguments, **named)

    monkeypatch.setattr(small, "write_deltalake", overtaken)
    late = receipt(1)

    with pytest.raises(FencedError):
        write_and_read_back(lambda: append_rows(one, path, late, count=1), path, late)
    assert newest_version(path) == 1
    assert stored(spark, path) == ["Row(k=1)"]


def test_of_two_that_write_at_once_one_does(spark, made):
    path = made("k INT")
    one = spark.createDataFrame([(1,)], "k INT")
    barrier = threading.Barrier(6, timeout=60)
    found = []

    def write():
        mine = receipt(1)
        barrier.wait()
        found.append(write_and_read_back(lambda: append_rows(one, path, mine, count=1), path, mine))

    threads = [threading.Thread(target=write) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert newest_version(path) == 1
    assert sum(each is not None for each in found) == 1
    assert stored(spark, path) == ["Row(k=1)"]


@pytest.mark.long
def test_transactions_and_receipts_outlive_the_checkpoints_of_small_commits(spark, made):
    path = made("k INT")
    one = spark.createDataFrame([(1,)], "k INT")
    for seq in range(1, 52):
        append_rows(one, path, receipt(seq), count=1)

    # With 50 as the interval delta-rs makes one after version 49, Delta after version 50.
    [checkpoint] = path.glob("_delta_log/*.checkpoint.parquet")
    for file in path.glob("_delta_log/*.json"):
        if file.name < checkpoint.name:
            file.unlink()
    assert spark.read.format("delta").load(str(path)).count() == 51
    append_rows(one, path, receipt(51), count=1)
    append_rows(one, path, receipt(51))
    assert newest_version(path) == 51


@pytest.mark.parametrize(
    "change",
    [
        "SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')",
        "SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "ADD CONSTRAINT positive CHECK (k > 0)",
        "CLUSTER BY (k)",
    ],
)
def test_a_table_that_is_not_surely_served_is_left_to_spark(spark, made, change):
    path = made("k INT, v INT", cluster_by=["v"] if "CLUSTER" in change else ())
    spark.sql(f"ALTER TABLE delta.`{path}` {change}")

    assert open_small(path) is None
    append_rows(rows(spark, "(1, 1)", "k INT, v INT"), path, receipt(1), count=1)
    assert written_by(path) == "Apache-Spark"


def test_columns_whose_equality_is_sparks_own_are_searched_by_spark(spark, made):
    path = made("k INT, part DOUBLE, tags ARRAY<INT>")

    assert open_small(path, found_by=["K"]) is not None
    assert open_small(path, found_by=["k", "part"]) is None
    assert open_small(path, found_by=["tags"]) is None


def test_other_types_and_columns_are_left_to_spark(spark, made):
    path = made("k INT")
    wider = rows(spark, "(1, 2)", "k INT, more INT")

    append_rows(wider, path, receipt(1), merge_schema=True, count=1)
    assert written_by(path) == "Apache-Spark"
    assert stored(spark, path) == ["Row(k=1, more=2)"]


@pytest.mark.long
def test_a_table_of_many_files_is_searched_by_spark(spark, made):
    path = made("k INT, v INT")
    many = spark.range(MOST_FILES + 1).select(F.col("id").cast("int").alias("k"), F.lit(1).alias("v"))
    append_rows(many.coalesce(1), path, receipt(1))
    assert open_small(path, found_by=["k"]) is not None
    overwrite_table(many, path, receipt(2), partitioned_by=["k"])

    assert open_small(path, found_by=["k"]) is None
    # Adding to it needs no search.
    assert open_small(path) is not None
    assert len(DeltaTable(str(path)).file_uris()) > MOST_FILES


def test_a_change_of_near_rows_writes_no_large_table_again(spark, made):
    path = made("k BIGINT, v STRING")
    # Of these no byte can be spared: 50 MB, in one file as other writers make it.
    wide = (
        spark.range(24_000)
        .coalesce(1)
        .selectExpr("id AS k", f"array_join(transform(sequence(1, 64), n -> {_NOISE}), '') AS v")
    )
    append_rows(wide, path, receipt(1))

    for seq, keys in ((2, "id * 2000"), (3, "20000 + id")):
        changed = spark.range(12).selectExpr("'U' AS op", f"{keys} AS k", "'new' AS v")
        before = set(DeltaTable(str(path)).file_uris())
        apply_changes(spark, changed, path, receipt(seq), op="op", keys=["k"], unique=True, near=None, count=12)
        assert written_by(path) == "delta-rs"

    files = DeltaTable(str(path)).get_add_actions(flatten=True)
    assert max(files["size_bytes"].to_pylist()) < 1.2 * FULL_FILE_BYTES
    assert len(before) >= 3
    assert len(before - set(DeltaTable(str(path)).file_uris())) == 1
    assert sum(files["num_records"].to_pylist()) == 24_000
