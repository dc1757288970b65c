"""Maintenance: files are put together and removed, and nobody who needs something misses it."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from freshline.commit.delta_log import read_receipts
from freshline.commit.maintenance import read_sizes
from freshline.commit.small import append_small, change_small
from freshline.engine.reading import drop_consumer, open_reader, register_consumer
from freshline.reads.rows import net_changes
from freshline.reads.sql import query
from freshline.run import drop_savepoint, maintain_table
from freshline.testing import Crash
from freshline.values.names import TableName
from tests.delta_log import newest_of, receipt_of, version_of
from tests.scenarios.tables import declare, fill, follow


def commit(lab, name, write):
    """One more small commit of a table, as a refresh of its own would make it."""
    path = lab.path(name)
    newest = receipt_of(path)
    receipt = replace(newest, seq=newest.seq + 1, maintenance=False, attempt=uuid4().hex, rows_out=1)
    assert write(DeltaTable(str(path)), receipt)


def insert(lab, name, number):
    rows = pa.table({"id": pa.array([number], pa.int32()), "n": pa.array([number], pa.int32())})
    commit(lab, name, lambda table, receipt: append_small(table, rows, receipt))


def update(lab, name, number):
    rows = pa.table({"id": pa.array([number], pa.int32()), "n": pa.array([-number], pa.int32()), "o": ["U"]})
    commit(lab, name, lambda table, receipt: change_small(table, rows, receipt, op="o", keys=["id"], unique=True))


pytestmark = pytest.mark.long


@pytest.fixture
def tables(lab):
    """`t` over a source, with a history of a day, and `total`, which reads it."""
    fill(lab, "s", "id INT, n INT", "(0, 0)")
    declare(lab, "SELECT id, n FROM s", "(PRIMARY KEY (id)) WITH ('history' = '1 day')")
    declare(lab, "SELECT id % 2 AS odd, sum(n) AS n FROM t GROUP BY id % 2", name="total")
    lab.refresh_all()
    return lab


T = TableName(None, "t")
DELETED = re.compile(r'("deletionTimestamp":)(\d+)')


def age(lab):
    """Make all that was written a month older, in the logs too."""
    seconds = 30 * 86400
    for file in lab.settings.warehouse.rglob("*"):
        if not file.is_file():
            continue
        if file.parent.name == "_delta_log" and file.suffix == ".json":
            text = file.read_text()
            older = DELETED.sub(lambda found: f"{found[1]}{int(found[2]) - seconds * 1000}", text)
            if older != text:
                file.write_text(older)
        status = file.stat()
        os.utime(file, (status.st_atime - seconds, status.st_mtime - seconds))


def pass_a_month(lab):
    """A month later the tables see that nothing is new, and note so."""
    age(lab)
    lab.clock.advance(hours=2)
    for name in ("t", "total"):
        assert lab.refresh(name, upstreams=False).error is None


def test_many_small_commits_become_one_file_and_a_short_log(tables):
    for number in range(1, 161):
        insert(tables, "t", number)
    assert tables.refresh("total", upstreams=False).error is None
    path = tables.path("t")
    before = receipt_of(path)
    rows = tables.rows("t")
    assert read_sizes(path).files == 161

    (done,) = maintain_table(tables.runtime, T)

    after = receipt_of(path)
    assert done.sentence.startswith("t: 161 files became 1")
    assert read_sizes(path).files == 1
    assert tables.rows("t") == rows
    assert (after.seq, after.positions) == (before.seq, before.positions)
    assert not newest_of(path).foreign
    assert next(read_receipts(path))[1].seq == before.seq
    # Neither the table itself nor what reads it takes it for a change.
    assert [tables.refresh(name).strategy for name in ("t", "total")] == ["noop", "noop"]
    assert maintain_table(tables.runtime, T) == []
    # A month later nobody needs the small files, nor their commits.
    pass_a_month(tables)
    (done,) = maintain_table(tables.runtime, T)
    assert done.removed.files >= 160
    assert done.removed.commits >= 100
    assert receipt_of(path).seq == before.seq
    assert tables.rows("t") == rows
    tables.sql("INSERT INTO s VALUES (1000, 7)")
    tables.restart(lose_control_store=True)
    assert [tables.refresh(name).strategy for name in ("t", "total")] == ["append", "keys"]
    assert sum(row["n"] for row in tables.rows("total")) == sum(range(161)) + 7
    records = [record for record in tables.runtime.control.refreshes(T) if record.state == "MAINTAINED"]
    assert records == []  # the store was lost; maintenance is not


def test_a_version_that_somebody_needs_is_kept_however_old_it_is(tables):
    tables.create_savepoint("calm")
    saved = tables.rows("t")
    register_consumer("billing", "t", expires_after="100 days", project=tables.settings)
    behind = tables.receipt("total").table_position(T)
    for number in range(1, 31):
        insert(tables, "t", number)
        if number % 10 == 0:
            update(tables, "t", number)
    age(tables)
    maintain_table(tables.runtime, T, eager=True)
    age(tables)
    maintain_table(tables.runtime, T, eager=True)

    # `total` is far behind, and still reads every change.
    assert version_of(tables.path("t")) > behind.version + 30
    follow(tables, name="total", by="keys", upstreams=False)
    assert sum(row["n"] for row in tables.rows("total")) == sum(range(31)) - 2 * (10 + 20 + 30)
    # So does a consumer who was not there since.
    portion = open_reader("t", consumer_id="billing", project=tables.settings).next()
    assert portion is not None
    raw = portion.data
    assert sorted(raw["_change_type"].to_pylist()) == (
        ["insert"] * 30 + ["update_postimage"] * 3 + ["update_preimage"] * 3
    )
    net = {(row["id"], row["n"]) for row in net_changes(raw).to_pylist()}
    assert net == {(number, -number if number % 10 == 0 else number) for number in range(1, 31)}
    assert query(tables.runtime, "SELECT count(*) AS n FROM read_as_of('t', 'calm')").rows == ('{"n":1}',)
    counted = "SELECT _change_type AS c, count(*) AS n FROM read_net_changes('t', 'calm') GROUP BY 1"
    assert query(tables.runtime, counted).rows == ('{"c":"insert","n":30}',)
    agreed = query(tables.runtime, "SELECT sum(n) AS n FROM t UNION ALL SELECT sum(n) FROM total", snapshot=True)
    assert len(set(agreed.rows)) == 1
    tables.restore_savepoint("calm")
    assert tables.rows("t") == saved
    drop_consumer("billing", project=tables.settings)

    # Once nobody needs them, they go.
    assert tables.refresh("total", upstreams=False).error is None
    drop_savepoint(tables.runtime, "calm")
    pass_a_month(tables)
    (done,) = maintain_table(tables.runtime, T, eager=True)
    assert done.removed.files > 30
    assert tables.rows("t") == saved
    assert tables.diff("total") == []


def test_maintenance_that_is_stopped_goes_on_next_time(tables):
    for number in range(1, 31):
        insert(tables, "t", number)
    tables.refresh("total", upstreams=False)
    rows = tables.rows("t")

    with tables.crash_at("maintenance-compacted"), pytest.raises(Crash):
        maintain_table(tables.runtime, T, eager=True)
    tables.restart()
    pass_a_month(tables)
    with tables.crash_at("maintenance-removed"), pytest.raises(Crash):
        maintain_table(tables.runtime, T, eager=True)
    tables.restart()
    maintain_table(tables.runtime, T, eager=True)

    assert read_sizes(tables.path("t")).files == 1
    assert len(list(tables.path("t").glob("*.parquet"))) <= 2
    assert tables.rows("t") == rows
    assert tables.refresh("t").strategy == "noop"
    assert tables.diff("total") == []
