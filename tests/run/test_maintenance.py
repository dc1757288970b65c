"""Maintenance without Spark: files are put together and removed, and nobody who needs something misses it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from deltalake import DeltaTable, write_deltalake

from freshline.commit.delta_log import classify, newest_version, read_receipts
from freshline.commit.maintenance import compact_files, keep_commits, newest_receipt, read_sizes
from freshline.engine.reading import open_reader, register_consumer
from freshline.plan.changes import ChangeKind
from freshline.plan.maintenance import FULL_FILE_BYTES
from freshline.reads.rows import net_changes, read_changes
from freshline.run import create_savepoint, drop_savepoint, maintain_table
from freshline.run.maintenance import needs_of
from freshline.testing import Crash
from freshline.values.names import TableName
from tests.delta_log import newest_of, newest_position, receipt_of
from tests.run.small_tables import SmallTables

T, TOTAL = TableName(None, "t"), TableName(None, "total")


@pytest.fixture
def tables(settings):
    """`t` with a history of a day, and `total`, which reads it."""
    made = SmallTables(
        settings,
        {
            "s": "CREATE SOURCE s (id INT, n INT) WITH ('connector' = 'delta', 'path' = 'elsewhere')",
            "t": "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) WITH ('history' = '1 day') "
            "FRESHNESS = INTERVAL '1' HOUR AS SELECT id, n FROM s",
            "total": "CREATE MATERIALIZED TABLE total FRESHNESS = INTERVAL '1' HOUR AS SELECT sum(n) AS n FROM t",
        },
    )
    made.commit("t", [0])
    read_t(made)
    return made


def read_t(tables):
    """`total` has read the newest version of `t`."""
    tables.commit("total", [0], positions={"t": newest_position(tables.path("t"))})


@pytest.mark.seconds
def test_many_small_commits_become_one_file_and_a_short_log(tables):
    for number in range(1, 161):
        tables.commit("t", [number])
    read_t(tables)
    path = tables.path("t")
    before, receipt, at = newest_of(path), receipt_of(path), newest_position(path)

    (done,) = maintain_table(tables.runtime, T)

    after = newest_of(path)
    assert done.sentence.startswith("t: 161 files became 1")
    assert (read_sizes(path).files, tables.ids("t")) == (1, list(range(161)))
    assert (receipt_of(path).seq, after.foreign) == (receipt.seq, False)
    assert next(read_receipts(path))[1] == receipt
    # Whoever reads the table takes it for no change, and readers of changes see none.
    assert classify(T, path, at, newest_position(path), log=False).kind is ChangeKind.NOTHING
    changes = read_changes(path, "t", before.version, after.version)
    assert changes is not None
    assert changes.num_rows == 0
    assert maintain_table(tables.runtime, T) == []
    # A month later nobody needs the small files, nor their commits.
    tables.age()
    read_t(tables)
    (done,) = maintain_table(tables.runtime, T)
    assert done.removed.files == 161
    assert done.removed.commits == 149
    assert (receipt_of(path).seq, tables.ids("t")) == (receipt.seq, list(range(161)))
    assert tables.open().epoch > receipt.epoch
    tables.commit("t", [1000])
    assert tables.ids("t")[-1] == 1000
    records = tables.runtime.control.refreshes(T)
    assert [record.state for record in records] == ["MAINTAINED", "MAINTAINED"]
    assert records[1].reason.startswith("t: 161 files became 1")


@pytest.mark.seconds
def test_a_version_that_somebody_needs_is_kept_however_old_it_is(tables):
    create_savepoint(tables.runtime, "calm", [T])
    path = tables.path("t")
    saved = newest_version(path)
    register_consumer("billing", "t", expires_after="100 days", project=tables.settings, clock=lambda: tables.now)
    for number in range(1, 31):
        tables.commit("t", [number])
        if number % 10 == 0:
            tables.commit("t", [number], update=True)
    for _ in range(2):
        tables.age()
        maintain_table(tables.runtime, T, eager=True)

    assert read_sizes(path).files == 1
    # The table that reads it is far behind and finds every change, and so does the consumer.
    behind = tables.receipt("total").table_position(T)
    assert behind.version == saved
    changes = classify(T, path, behind, newest_position(path), log=False)
    assert (changes.kind, changes.change_feed) == (ChangeKind.MUTATE, True)
    portion = open_reader("t", consumer_id="billing", project=tables.settings, clock=lambda: tables.now).next()
    assert portion is not None
    raw = portion.data
    expected = ["insert"] * 30 + ["update_postimage"] * 3 + ["update_preimage"] * 3
    assert sorted(raw["_change_type"].to_pylist()) == expected
    net = {(row["id"], row["n"]) for row in net_changes(raw).to_pylist()}
    assert net == {(number, -number if number % 10 == 0 else number) for number in range(1, 31)}
    assert DeltaTable(str(path), version=saved).to_pyarrow_table()["id"].to_pylist() == [0]

    # One after the other lets go; what nobody needs goes.
    read_t(tables)
    tables.now += timedelta(days=101)
    tables.age()
    read_t(tables)
    assert needs_of(tables.runtime, T).points == {saved}
    assert needs_of(tables.runtime, T).readers == {newest_version(path)}
    maintain_table(tables.runtime, T, eager=True)
    assert DeltaTable(str(path), version=saved).to_pyarrow_table()["id"].to_pylist() == [0]
    before = len(list(path.rglob("*.parquet")))
    drop_savepoint(tables.runtime, "calm")
    (done,) = maintain_table(tables.runtime, T, eager=True)
    assert done.removed.files == 1
    assert before - len(list(path.glob("*.parquet"))) >= 1
    assert tables.ids("t") == list(range(31))


@pytest.mark.seconds
def test_maintenance_that_is_stopped_goes_on_next_time(tables):
    for number in range(1, 31):
        tables.commit("t", [number])
    read_t(tables)
    with tables.crash_at("maintenance-compacted"), pytest.raises(Crash):
        maintain_table(tables.runtime, T, eager=True)
    tables.open()
    tables.age()
    read_t(tables)
    with tables.crash_at("maintenance-removed"), pytest.raises(Crash):
        maintain_table(tables.runtime, T, eager=True)
    tables.open()
    maintain_table(tables.runtime, T, eager=True)

    assert len(list(tables.path("t").glob("*.parquet"))) == 1
    assert tables.ids("t") == list(range(31))
    tables.commit("t", [31])
    assert tables.ids("t") == list(range(32))


def test_a_table_of_before_gets_the_size_of_its_files(tables):
    path, receipt = tables.path("t"), tables.receipt("t")
    DeltaTable(str(path)).alter.set_table_properties({"delta.targetFileSize": "104857600"})

    maintain_table(tables.runtime, T)
    at = newest_version(path)
    maintain_table(tables.runtime, T)

    assert DeltaTable(str(path)).metadata().configuration["delta.targetFileSize"] == str(FULL_FILE_BYTES)
    assert newest_version(path) == at
    assert tables.receipt("t").seq == receipt.seq


def test_a_table_that_somebody_else_wrote_to_is_left_alone(tables):
    path = tables.path("t")
    write_deltalake(str(path), DeltaTable(str(path)).to_pyarrow_table(), mode="append")
    version = newest_version(path)

    assert maintain_table(tables.runtime, T, eager=True) == []
    assert newest_version(path) == version


@pytest.mark.seconds
def test_a_receipt_is_never_carried_above_a_newer_one(tables):
    path = tables.path("t")
    carried = newest_receipt(path)
    assert carried is not None
    version, receipt = carried
    for number in range(1, 31):
        tables.commit("t", [number])
    newest = tables.receipt("t")

    assert not compact_files(no_spark, path, receipt.carried("old"), version)
    assert not keep_commits(no_spark, path, receipt.carried("old"), version, timedelta(days=99))
    assert tables.receipt("t") == newest


def no_spark():
    raise AssertionError("this needs no Spark")
