"""Every kind of write carries its receipt and its fence, and is read back."""

from __future__ import annotations

from collections import Counter
from random import Random
from uuid import uuid4

import pytest
from pyspark.sql import functions as F

from freshline.commit.delta_log import newest_version
from freshline.commit.write import (
    append_rows,
    apply_changes,
    create_table,
    fenced_session,
    merge_rows,
    overwrite_table,
    replace_partitions,
)
from freshline.errors import FencedError
from freshline.values.names import TableName, quoted
from freshline.values.receipt import Receipt
from tests.delta_log import receipt_of, write_and_read_back
from tests.lanes import few_or_many


@pytest.fixture
def table(spark, tmp_path):
    """An empty table of ours, and a function that makes its next receipt."""
    path = tmp_path / "t"
    frame = spark.createDataFrame([], "k STRING, n INT")
    create_table(spark, path, frame.schema, partitioned_by=["k"], history_seconds=86400)
    return path


def receipt(seq, epoch=1):
    return Receipt(
        table=TableName.parse("t"),
        fingerprint="f",
        epoch=epoch,
        seq=seq,
        mode="batch",
        strategy="append",
        reason="",
        data_timestamp=None,
        positions={},
        rows_in=0,
        rows_out=None,
        attempt=uuid4().hex,
    )


def rows_of(spark, path):
    return sorted(tuple(row) for row in spark.read.format("delta").load(str(path)).collect())


def test_each_write_is_one_commit_with_its_receipt(spark, table):
    frame = spark.createDataFrame([("a", 1), ("b", 2)], "k STRING, n INT")
    changed = spark.createDataFrame(
        [("b", 3, False), ("c", 4, False), ("a", 0, True), ("x", 0, True)], "k STRING, n INT, gone BOOLEAN"
    )
    writes = [
        lambda r: append_rows(frame, table, r),
        lambda r: merge_rows(
            spark, changed, table, r, keys=["k"], columns=["k", "n"], update_when="true", delete="gone"
        ),
        lambda r: replace_partitions(frame.where("k = 'a'"), table, r, predicate="`k` IN ('a', 'c')"),
        lambda r: overwrite_table(frame, table, r, partitioned_by=["k"]),
    ]
    seen = []
    for seq, write in enumerate(writes, 1):
        made = receipt(seq)
        committed = write_and_read_back(lambda: write(made), table, made)  # noqa: B023 - called at once
        assert committed is not None
        assert (committed.version, committed.receipt) == (seq, made)
        seen.append((committed.rows_out, rows_of(spark, table)))

    assert seen == [
        (2, [("a", 1), ("b", 2)]),
        (3, [("b", 3), ("c", 4)]),
        (1, [("a", 1), ("b", 3)]),
        (2, [("a", 1), ("b", 2)]),
    ]
    assert receipt_of(table).seq == 4


def test_a_write_that_is_not_above_the_fence_changes_nothing(spark, table):
    frame = spark.createDataFrame([("a", 1)], "k STRING, n INT")
    first = receipt(5, epoch=2)
    write_and_read_back(lambda: append_rows(frame, table, first), table, first)

    for late in (receipt(5, epoch=2), receipt(4, epoch=2)):
        assert write_and_read_back(lambda: append_rows(frame, table, late), table, late) is None  # noqa: B023 - called at once
    old = receipt(99, epoch=1)
    with pytest.raises(FencedError, match="epoch 2, this one has 1"):
        write_and_read_back(
            lambda: merge_rows(
                spark, frame, table, old, keys=["k"], columns=["k", "n"], update_when="true", delete=None
            ),
            table,
            old,
        )

    assert newest_version(table) == 1
    assert rows_of(spark, table) == [("a", 1)]


def test_rows_of_another_partition_are_refused(spark, table):
    made = receipt(1)
    frame = spark.createDataFrame([("b", 1)], "k STRING, n INT")

    with pytest.raises(Exception, match="DELTA_REPLACE_WHERE_MISMATCH"):
        write_and_read_back(lambda: replace_partitions(frame, table, made, predicate="`k` IN ('a')"), table, made)

    assert newest_version(table) == 0


def test_the_confs_of_a_fenced_session_are_taken_back_when_the_statement_fails(spark, table):
    session = spark.newSession()
    seen = []

    def fail():
        with fenced_session(session, table, receipt(1)):
            seen.append(session.conf.get("spark.databricks.delta.write.txnVersion"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert seen == [str(receipt(1).transaction_version)]
    assert session.conf.get("spark.databricks.delta.write.txnVersion", None) is None
    assert session.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None


@pytest.mark.parametrize("seed", few_or_many(1, 10))
def test_a_table_with_a_backtick_in_a_name_has_the_rows_that_a_merge_gives(spark, tmp_path, seed):
    """Delta's MERGE refuses such a table; the same changes are merged into one with plain names."""
    random = Random(seed)
    plain, odd = "k INT, v INT, w STRING", "`k``` INT, `v``w` INT, `w.``x` STRING"
    for name, columns in (("plain", plain), ("odd", odd)):
        create_table(spark, tmp_path / name, spark.createDataFrame([], columns).schema, history_seconds=86400)
    tables = [(tmp_path / "plain", plain, ("k", "v", "w")), (tmp_path / "odd", odd, ("k`", "v`w", "w.`x"))]
    stored: set[tuple[object, ...]] = set()

    def key():
        return random.choice([None, *range(6)])

    for seq in (1, 5):
        there = {row[0] for row in stored}
        found = dict.fromkeys(key() for _ in range(5))
        ops = [
            (random.choice("UD") if one in there else "I", one, random.randrange(9), random.choice(["a", None]))
            for one in found
        ]
        # The rows of a key are taken away once.
        gone = dict.fromkeys(key() for _ in range(random.randrange(4)))
        bag = [(op, one, random.randrange(9), "b") for op, ones in (("D", gone), ("I", [key(), key()])) for one in ones]
        news = [(one, random.randrange(9), "m", random.random() < 0.3) for one in random.sample(range(8), 4)]
        for path, columns, (k, v, _) in tables:
            changes = spark.createDataFrame(ops, f"op STRING, {columns}")
            apply_changes(spark, changes, path, receipt(seq), op="op", keys=[k], unique=True, near=None)
            changes = spark.createDataFrame(bag, f"op STRING, {columns}")
            apply_changes(spark, changes, path, receipt(seq + 1), op="op", keys=[k], unique=False, near=None)
            # A merge finds a row by its key, of which there is one.
            every = spark.read.format("delta").load(str(path)).where(f"{quoted(k)} IS NOT NULL").toDF("k", "v", "w")
            once = spark.createDataFrame(every.groupBy("k").agg(F.min("v"), F.min("w")).collect(), columns)
            overwrite_table(once, path, receipt(seq + 2))
            merge_rows(
                spark,
                spark.createDataFrame(news, f"{columns}, gone BOOLEAN"),
                path,
                receipt(seq + 3),
                keys=[k],
                columns=[k, v],
                update_when=f"s.{quoted(v)} >= t.{quoted(v)}",
                delete="gone",
            )
        read = [spark.read.format("delta").load(str(path)) for path, *_ in tables]
        rows = [Counter(tuple(row) for row in each.collect()) for each in read]
        assert rows[0] == rows[1]
        stored = set(rows[0])
