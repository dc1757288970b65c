"""Savepoints without Spark: what is saved, what comes back, and the state after a stop at any point."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable, write_deltalake

from freshline.commit.consumers import read_consumers
from freshline.commit.delta_log import classify, newest_version
from freshline.commit.savepoints import read_restoration, read_savepoints
from freshline.engine.reading import open_reader
from freshline.errors import ForeignWriteError, RestoreBusyError, SavepointError, SavepointGoneError
from freshline.plan.changes import ChangeKind
from freshline.run import create_savepoint, drop_savepoint, finish_restore, restore_savepoint
from freshline.testing import Crash
from freshline.values.names import TableName
from tests.delta_log import newest_of, newest_position
from tests.run.small_tables import SmallTables

LOG, A, B = TableName(None, "log"), TableName(None, "a"), TableName(None, "b")
HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


@pytest.fixture
def tables(settings):
    """A log, `a` over it, and `b` over `a`."""
    return SmallTables(
        settings,
        {
            "log": "CREATE SOURCE log (id INT, n INT) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')",
            "a": f"CREATE MATERIALIZED TABLE a (PRIMARY KEY (id)) {HOURLY} AS SELECT id, n FROM log",
            "b": f"CREATE MATERIALIZED TABLE b (PRIMARY KEY (id)) {HOURLY} AS SELECT id, n FROM a",
        },
    )


def derive(tables, name, reads, ids, **more):
    """`name` has read the newest version of `reads`."""
    path = tables.path(reads)
    cut = tables.receipt(reads).cut
    return tables.commit(name, ids, positions={reads: newest_position(path)}, cut=cut, **more)


def step(tables, number):
    """A batch with a rejected record, read by both tables; each step is a new id."""
    seq = tables.receipt("log").seq + 1 if tables.path("log").exists() else 1
    tables.commit("log__quarantine", [-number], seq=seq)
    tables.batch("log", [number])
    tables.commit("log__file", [number], seq=seq)
    tables.commit("a__parked", [number])
    derive(tables, "a", "log", [number], pending_lookups=newest_version(tables.path("a__parked")))
    derive(tables, "b", "a", [number])


ALL = ("log", "log__quarantine", "log__file", "a", "b")


def contents(tables):
    pending_lookups = tables.receipt("a").pending_lookups
    waiting = DeltaTable(str(tables.path("a__parked")), version=pending_lookups).to_pyarrow_table()
    return {name: tables.ids(name) for name in ALL} | {"parked": sorted(waiting["id"].to_pylist())}


@pytest.mark.seconds
def test_tables_that_come_back_go_on_from_there(tables):
    step(tables, 1)
    before = contents(tables)
    saved = create_savepoint(tables.runtime, "calm")
    assert [(str(table.name), sorted(table.sides)) for table in saved.tables] == [
        ("log", ["file", "quarantine"]),
        ("a", ["parked"]),
        ("b", []),
    ]
    assert saved.cut == {"log": {"seq": 1}}
    # Where nothing happened since, there is nothing to bring back.
    nothing = restore_savepoint(tables.runtime, "calm")
    assert (nothing.tables, nothing.unchanged) == ({}, (LOG, A, B))
    step(tables, 2)
    step(tables, 3)
    epoch = tables.runtime.epoch

    restored = restore_savepoint(tables.runtime, "calm")

    assert contents(tables) == before
    assert list(restored.tables) == [LOG, A, B]
    log, a, b = (tables.receipt(name) for name in ("log", "a", "b"))
    # Numbers go on: nobody can take a new batch for an old one, and who writes on from before comes too late.
    assert (log.seq, log.restored, log.strategy) == (4, 1, "restore")
    assert min(log.epoch, a.epoch, b.epoch) > epoch
    # The receipts speak of the same rows as they stand now: nothing is to be done.
    for reader, name in ((a, "log"), (b, "a")):
        path = tables.path(name)
        after = newest_position(path)
        assert reader.table_position(TableName.parse(name)) == after
        assert reader.cut == {"log": {"seq": 4}}
        changes = classify(TableName.parse(name), path, after, after, log=name == "log")
        assert changes.kind is ChangeKind.NOTHING
    step(tables, 2)
    assert tables.receipt("log").seq == 5
    assert contents(tables)["b"] == [1, 2]
    # It is restored a second time, by an engine that knows nothing.
    tables.open()
    restore_savepoint(tables.runtime, "calm")
    assert contents(tables) == before
    assert [record.state for record in tables.runtime.control.refreshes(A)] == ["RESTORED", "RESTORED"]


@pytest.mark.seconds
@pytest.mark.parametrize("point", ["restore-begun", "restore-table", "restore-done"])
def test_a_restore_that_is_stopped_is_finished(tables, point):
    step(tables, 1)
    before = contents(tables)
    create_savepoint(tables.runtime, "calm")
    step(tables, 2)
    with tables.crash_at(point), pytest.raises(Crash):
        restore_savepoint(tables.runtime, "calm")
    assert read_restoration(tables.runtime.warehouse) is not None

    finish_restore(tables.open())

    assert read_restoration(tables.runtime.warehouse) is None
    assert contents(tables) == before
    versions = {name: newest_version(tables.path(name)) for name in ALL}
    assert tables.receipt("b").table_position(A).version == versions["a"]
    finish_restore(tables.runtime)
    assert {name: newest_version(tables.path(name)) for name in ALL} == versions


def test_a_reader_that_is_not_saved_sees_the_way_back(tables):
    step(tables, 1)
    create_savepoint(tables.runtime, "only_a", [A])
    behind = newest_position(tables.path("log"))
    step(tables, 2)
    ahead = {name: newest_position(tables.path(name)) for name in ("log", "a")}
    reader = open_reader("a", "latest", consumer_id="c", project=tables.settings)

    restored = restore_savepoint(tables.runtime, "only_a")

    assert restored.behind == (B,)
    assert tables.ids("b") == [1, 2]
    tables.batch("log", [2])
    after = {name: newest_position(tables.path(name)) for name in ("log", "a")}
    log = classify(LOG, tables.path("log"), ahead["log"], after["log"], log=True)
    assert (log.kind, log.detail) == (
        ChangeKind.SOURCE_REPLACED,
        "version 3 brought back rows from before what was read",
    )
    # A reader that had read no more than what came back reads on.
    late = classify(LOG, tables.path("log"), behind, after["log"], log=True)
    assert (late.kind, late.added_files, late.rows) == (ChangeKind.APPEND, (), 2)
    assert classify(A, tables.path("a"), ahead["a"], after["a"], log=False).kind is ChangeKind.MUTATE
    # A consumer is not moved: the changes lead it to the old rows.
    assert [consumer.version for consumer in read_consumers(tables.runtime.warehouse)] == [ahead["a"].version]
    portion = reader.next()
    assert portion is not None
    assert portion.data.select(["id", "_change_type"]).to_pylist() == [{"id": 2, "_change_type": "delete"}]


def test_rows_that_stand_beside_a_log_only_since_then_are_removed(tables):
    """Names of files and rejected records of batches that were taken back must not stay: their files come again."""
    tables.batch("log", [1])
    create_savepoint(tables.runtime, "calm")
    # A batch that had begun: its rejected record is there, the batch is not.
    tables.commit("log__quarantine", [-2], seq=2)
    create_savepoint(tables.runtime, "begun")
    tables.commit("log__file", [2], seq=2)
    tables.batch("log", [2])

    restore_savepoint(tables.runtime, "begun")
    assert (tables.ids("log"), tables.ids("log__quarantine"), tables.ids("log__file")) == ([1], [], [])
    tables.commit("log__quarantine", [-3], seq=tables.receipt("log").seq + 1)
    tables.batch("log", [3])
    restore_savepoint(tables.runtime, "calm")
    assert (tables.ids("log"), tables.ids("log__quarantine"), tables.ids("log__file")) == ([1], [], [])
    assert tables.receipt("log__quarantine").seq <= tables.receipt("log").seq


@pytest.mark.seconds
def test_a_savepoint_that_cannot_be_made_or_brought_back_changes_nothing(tables):
    with pytest.raises(SavepointError, match="nothing to save"):
        create_savepoint(tables.runtime, "early")
    step(tables, 1)
    with tables.crash_at("savepoint-read"), pytest.raises(Crash):
        create_savepoint(tables.runtime, "Calm")
    assert read_savepoints(tables.runtime.warehouse) == []
    create_savepoint(tables.runtime, "Calm")
    for name, said in (("calm", "already"), ("a b", "no name"), ("", "no name")):
        with pytest.raises(SavepointError, match=said):
            create_savepoint(tables.runtime, name)
    with pytest.raises(SavepointError, match=r"no savepoint stormy\. There are: Calm"):
        restore_savepoint(tables.runtime, "stormy")
    step(tables, 2)
    versions = {name: newest_version(tables.path(name)) for name in ALL}
    with tables.runtime.lock(B), pytest.raises(RestoreBusyError, match="for more than 0 s"):
        restore_savepoint(tables.runtime, "calm", wait_seconds=0.1)
    uri = DeltaTable(str(tables.path("b")), version=1).file_uris()[0]
    file = tables.path("b") / uri.rsplit("/", 1)[-1]
    file.rename(file.with_suffix(".away"))
    with pytest.raises(SavepointGoneError, match="1 of its 1 files are gone"):
        restore_savepoint(tables.runtime, "calm")
    assert {name: newest_version(tables.path(name)) for name in ALL} == versions
    assert read_restoration(tables.runtime.warehouse) is None
    file.with_suffix(".away").rename(file)
    write_deltalake(str(tables.path("b")), DeltaTable(str(tables.path("b"))).to_pyarrow_table(), mode="append")
    with pytest.raises(ForeignWriteError, match="not written by freshline"):
        create_savepoint(tables.runtime, "foreign")
    # Rows that somebody else wrote are taken back as well.
    restore_savepoint(tables.runtime, "calm")
    assert (tables.ids("b"), newest_of(tables.path("b")).foreign) == ([1], False)
    assert drop_savepoint(tables.runtime, "CALM").name == "Calm"
    with pytest.raises(SavepointError, match="There are: none"):
        drop_savepoint(tables.runtime, "calm")
