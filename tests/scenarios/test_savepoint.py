"""Savepoints: save, go on, bring back, go on again; the end is that of a run that never failed.

One project has all kinds of tables: a log with quarantine, merges with deletes, a join, an aggregate over it, a lookup
join with rows that wait, and a table that is read in place.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from freshline.commit.delta_log import newest_version
from freshline.commit.maintenance import compact_files, keep_commits
from freshline.commit.savepoints import read_restoration, read_savepoints
from freshline.commit.small import open_small
from freshline.errors import RestoreBusyError, SavepointError, SavepointGoneError
from freshline.reads.sql import query
from freshline.run import create_savepoint, drop_savepoint, restore_savepoint
from freshline.testing import Crash
from tests.delta_log import newest_of, receipt_of, version_of
from tests.lanes import long_but
from tests.scenarios.tables import HOURLY, declare, fill

TABLES = ("latest", "joined", "total", "met")
POINTS = ["restore-begun", "restore-table", "restore-done"]

pytestmark = pytest.mark.long


@pytest.fixture
def small(lab):
    """A log, and a merge over it."""
    lab.files("ev", "id STRING, k STRING, op STRING, n INT, ts TIMESTAMP", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE latest (PRIMARY KEY (k)) WITH ('merge' = 'last_row', "
        "'merge.sequence' = 'ts', 'merge.tie-breaker' = 'id', 'merge.delete-when' = 'op = ''d''') "
        f"{HOURLY} AS SELECT k, id, n, ts FROM ev"
    )
    return lab


@pytest.fixture
def shop(small):
    lab = small
    fill(lab, "dim", "k STRING, name STRING", "('a', 'one')", primary_key=["k"])
    declare(
        lab, "SELECT l.k, l.n, d.name FROM latest l LEFT JOIN dim d ON l.k = d.k", "(PRIMARY KEY (k))", name="joined"
    )
    declare(lab, "SELECT name, sum(n) AS n FROM joined GROUP BY name", name="total")
    lab.declare(
        "CREATE MATERIALIZED TABLE met (PRIMARY KEY (id)) WITH ('lookup.retry-on-miss.attempts' = '3', "
        f"'lookup.retry-on-miss.delay' = '1 hour') {HOURLY} AS SELECT e.id, e.k, d.n AS met_n FROM ev e "
        "LEFT JOIN latest FOR SYSTEM_TIME AS OF PROCTIME() AS d ON e.k = d.k"
    )
    return lab


def land(lab, number):
    """A portion of events: new keys, changed keys, a deletion, one that is no row."""
    rows = [(f"e{number}{i}", f"k{(number * 3 + i) % 8}", "u", number * 10 + i) for i in range(4)]
    lines = [
        f'{{"id": "{e}", "k": "{k}", "op": "{op}", "n": {n}, "ts": "2026-01-0{number + 1}T00:00:0{n % 10}Z"}}'
        for e, k, op, n in rows
    ]
    lines.append(f'{{"id": "d{number}", "k": "k{number}", "op": "d", "n": 0, "ts": "2026-01-0{number + 1}T12:00:00Z"}}')
    lines.append(f"{{broken {number}")
    lab.land("ev", f"{number}.json", "\n".join(lines) + "\n")


def contents(lab):
    ignored = ("_freshline_seq", "quarantined_at")
    rejected = [{k: v for k, v in row.items() if k not in ignored} for row in lab.quarantine("ev")]
    return {name: lab.rows(name) for name in ("ev", *TABLES)} | {
        "quarantine": sorted(rejected, key=lambda row: (row["file"], row["line"]))
    }


def refresh(lab):
    outcomes = lab.refresh_all()
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return {str(outcome.table): outcome for outcome in outcomes}


def assert_equal(lab):
    for name in TABLES:
        assert lab.diff(name) == [], name


def test_stopped_at_any_point_a_savepoint_is_there_or_not_and_a_restore_is_finished(small):
    land(small, 0)
    refresh(small)
    before = small.rows("ev"), small.rows("latest"), len(small.quarantine("ev"))
    with small.crash_at("savepoint-read"), pytest.raises(Crash):
        small.create_savepoint("calm")
    assert read_savepoints(small.runtime.warehouse) == []
    small.create_savepoint("calm")
    land(small, 1)
    for point in POINTS:
        refresh(small)
        assert len(small.rows("ev")) == 10
        with small.crash_at(point), pytest.raises(Crash):
            small.restore_savepoint("calm")
        assert read_restoration(small.runtime.warehouse) is not None
        if point != "restore-begun":
            small.restart(lose_control_store=point == "restore-done")

        # Whatever comes next finishes it before it does anything of its own.
        query(small.runtime, "SELECT 1")

        assert read_restoration(small.runtime.warehouse) is None
        assert (small.rows("ev"), small.rows("latest"), len(small.quarantine("ev"))) == before
        assert small.receipt("latest").restored is not None
    refresh(small)
    assert len(small.quarantine("ev")) == 2
    assert small.diff("latest") == []


def test_a_restored_graph_goes_on_as_if_nothing_had_happened_since(shop):
    for number in (0, 1):
        land(shop, number)
        refresh(shop)
    before = contents(shop)
    savepoint = shop.create_savepoint("calm")
    assert str(savepoint.tables[0].name) == "ev"
    for number in (2, 3):
        land(shop, number)
        refresh(shop)
    shop.sql("INSERT INTO dim VALUES ('k1', 'two')")
    refresh(shop)
    after = contents(shop)
    assert after != before

    restored = shop.restore_savepoint("calm")

    assert contents(shop) == before
    assert set(map(str, restored.tables)) == {"ev", *TABLES}
    assert_equal(shop)
    # The files that arrived since are read again, each once, and nobody computes more than what they bring.
    outcomes = refresh(shop)
    assert outcomes["ev"].rows_out == 10
    assert outcomes["latest"].strategy == "merge"
    assert outcomes["joined"].strategy == "keys"
    assert {outcome.strategy for outcome in refresh(shop).values()} == {"noop"}
    found, expected = contents(shop), dict(after)
    # The version that a row of the lookup has depends on when the row came.
    del found["met"], expected["met"]
    assert found == expected
    assert_equal(shop)
    for _ in range(4):
        shop.clock.advance(hours=2)
        refresh(shop)
    assert [row["id"] for row in shop.rows("met")] == [row["id"] for row in shop.rows("ev")]
    assert_equal(shop)
    # It can be done again, and by an engine that knows nothing.
    shop.restart(lose_control_store=True)
    shop.restore_savepoint("calm")
    assert contents(shop) == before
    refresh(shop)
    assert_equal(shop)


@pytest.mark.parametrize("point", long_but(["restore-table"], POINTS))
def test_a_restore_that_is_stopped_is_finished_by_whoever_comes_next(shop, point):
    land(shop, 0)
    refresh(shop)
    before = contents(shop)
    shop.create_savepoint("calm")
    land(shop, 1)
    refresh(shop)
    with shop.crash_at(point), pytest.raises(Crash):
        shop.restore_savepoint("calm")
    assert read_restoration(shop.runtime.warehouse) is not None
    if point != "restore-begun":
        shop.restart(lose_control_store=point == "restore-done")

    # Any refresh finishes it before it does anything of its own.
    assert shop.refresh("total").error is None

    assert read_restoration(shop.runtime.warehouse) is None
    assert {str(name) for name in shop.runtime.graph.order if restored_once(shop, name)} >= {"ev"}
    refresh(shop)
    assert_equal(shop)
    assert [row["id"] for row in shop.rows("ev")] == ["d0", "d1", *[f"e{n}{i}" for n in (0, 1) for i in range(4)]]
    assert len(shop.quarantine("ev")) == 2
    assert before != contents(shop)


def restored_once(lab, name):
    log = lab.runtime.warehouse.location(lab.runtime.graph.spec(name)) / "_delta_log"
    return sum('"restored\\":' in file.read_text() for file in log.glob("*.json")) == 1


def test_tables_that_were_not_saved_follow_a_restore(shop):
    land(shop, 0)
    refresh(shop)
    shop.create_savepoint("only_latest", tables=["latest"])
    assert [str(t.name) for t in read_savepoints(shop.runtime.warehouse)[0].tables] == ["ev", "latest"]
    land(shop, 1)
    refresh(shop)

    restored = shop.restore_savepoint("only_latest")

    assert list(map(str, restored.behind)) == ["joined", "met", "total"]
    outcomes = {str(o.table): o for o in [shop.refresh(n, upstreams=False) for n in ("joined", "total", "met")]}
    assert {name: o.error for name, o in outcomes.items()} == {"joined": None, "total": None, "met": None}
    assert outcomes["met"].reason.startswith("SOURCE_REPLACED")
    assert_equal(shop)
    refresh(shop)
    assert_equal(shop)


def test_a_savepoint_that_cannot_be_made_or_restored_changes_nothing(small):
    shop = small
    with pytest.raises(SavepointError, match="nothing to save"):
        shop.create_savepoint("early")
    land(shop, 0)
    refresh(shop)
    saved = shop.create_savepoint("Calm")
    for name, said in (("calm", "already"), ("a b", "no name"), ("", "no name")):
        with pytest.raises(SavepointError, match=said):
            shop.create_savepoint(name)
    with pytest.raises(SavepointError, match=r"no savepoint stormy\. There are: Calm"):
        shop.restore_savepoint("stormy")
    land(shop, 1)
    refresh(shop)
    versions = {name: newest_version(shop.path(name)) for name in ("ev", "latest")}

    lock = shop.runtime.lock(saved.tables[-1].name)
    with lock, pytest.raises(RestoreBusyError) as busy:
        restore_savepoint(shop.runtime, "calm", wait_seconds=0.1)
    assert busy.value.retry_helps
    file = next(path for path in shop.path("latest").glob("*.parquet") if path.name in _files_at(shop, saved))
    file.rename(file.with_suffix(".away"))
    with pytest.raises(SavepointGoneError, match="files are gone"):
        shop.restore_savepoint("calm")

    assert {name: newest_version(shop.path(name)) for name in ("ev", "latest")} == versions
    assert read_restoration(shop.runtime.warehouse) is None
    file.with_suffix(".away").rename(file)
    assert drop_savepoint(shop.runtime, "CALM").name == "Calm"
    with pytest.raises(SavepointError, match="There are: none"):
        drop_savepoint(shop.runtime, "calm")
    assert create_savepoint(shop.runtime, "calm").name == "calm"


def _files_at(lab, saved):
    from deltalake import DeltaTable

    table = next(t for t in saved.tables if str(t.name) == "latest")
    return [
        path.rsplit("/", 1)[-1]
        for path in DeltaTable(str(lab.path("latest")), version=table.version.version).file_uris()
    ]


def test_a_table_that_spark_alone_can_write_is_brought_back_and_kept(lab):
    fill(lab, "s", "k INT, n INT", "(1, 1)")
    declare(lab, "SELECT k, n FROM s", "(PRIMARY KEY (k)) CLUSTER BY (k)")
    refresh(lab)
    lab.create_savepoint("calm")
    lab.sql("INSERT INTO s VALUES (2, 2)")
    refresh(lab)
    path = lab.path("t")
    assert open_small(path) is None

    lab.restore_savepoint("calm")

    assert (lab.rows("t"), lab.receipt("t").restored) == ([{"k": 1, "n": 1}], 1)
    assert refresh(lab)["t"].rows_out == 1
    before = receipt_of(path)
    session = lab.runtime.sessions.root.newSession()
    assert compact_files(lambda: session, path, before.carried("compacted"), version_of(path))
    after = receipt_of(path)
    assert (after.seq, after.maintenance, newest_of(path).foreign) == (before.seq, True, False)
    assert keep_commits(lambda: session, path, before.carried("kept"), version_of(path), timedelta(days=9))
    assert not newest_of(path).foreign
    lab.sql("INSERT INTO s VALUES (3, 3)")
    assert refresh(lab)["t"].strategy in ("append", "keys")
    assert lab.diff("t") == []
