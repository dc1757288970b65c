"""A control store is lost while tables are kept: no row is lost, and the store's records come back."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest
from sqlalchemy import create_engine, text

from freshline.commit.control_store import ControlStore
from freshline.commit.delta_log import newest_epoch
from freshline.commit.rebuild import rebuild
from freshline.errors import StorageError
from freshline.manage.suspension import suspend
from freshline.report.status import read_status
from freshline.testing import Lab
from freshline.values.settings import Settings


@pytest.fixture(params=["sqlite", "postgres"])
def tables(lab: Lab, request: pytest.FixtureRequest) -> Lab:
    if request.param == "postgres":
        lab.runtime.control.close()
        lab.settings = replace(lab.settings, control_store=request.getfixturevalue("postgres").new_database())
        lab.restart()
    lab.files("orders", "id INT, k STRING", settle="0 seconds")
    lab.declare("CREATE MATERIALIZED TABLE per_k (PRIMARY KEY (k)) AS SELECT k, count(*) AS n FROM orders GROUP BY k")
    return lab


def lose(settings: Settings) -> None:
    """Delete the store while processes have it open."""
    if settings.control_store.startswith("sqlite"):
        for file in settings.state.glob("control.db*"):
            file.unlink()
        return
    engine = create_engine(settings.control_store)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()


def land(lab: Lab, first: int) -> None:
    lab.land("orders", f"{first}.json", [{"id": n, "k": f"k{n % 3}"} for n in range(first, first + 10)])
    lab.clock.advance(minutes=1)


def counted(lab: Lab) -> dict[str, int]:
    return {str(row["k"]): int(row["n"]) for row in lab.rows("per_k")}


def test_a_store_lost_in_the_middle_loses_no_row_and_its_memory_comes_back(tables):
    for first in (0, 10):
        land(tables, first)
        assert tables.refresh("per_k").state == "SUCCEEDED"
    suspend("per_k", because="wrong prices", by="an operator", project=tables.settings, clock=tables.clock)
    tables.runtime.refresh_log.flush()
    land(tables, 20)
    tables.refresh("per_k")  # the refresh log does not have this one yet
    before = tables.runtime.control.refreshes(limit=1000, checks=False)
    commits = {(str(one.table), one.version) for one in before if one.committed}

    lose(tables.settings)
    land(tables, 30)
    # On Postgres the first to find the emptied database gets an error; the next makes the tables anew.
    with suppress(StorageError):
        tables.runtime.control.checks()
    assert tables.refresh("per_k").state == "SUCCEEDED"

    found = rebuild(tables.settings, epoch_in_use=tables.runtime.epoch)

    assert found.problems == ()
    assert [(str(one.table), one.state) for one in found.decisions] == [("per_k", "SUSPENDED")]
    assert "by an operator" in str(found)
    assert "wrong prices" in str(found)
    control = tables.runtime.control
    after = control.refreshes(limit=1000, checks=False)
    told = [(str(one.table), one.version) for one in after if one.committed]
    assert len(told) == len(set(told)), "a commit is told twice"
    assert set(told) >= commits
    assert [one.at for one in after] == sorted((one.at for one in after), reverse=True)
    assert control.seconds().keys() == {one.table for one in before}
    status = {
        str(one.table): one
        for one in read_status(tables.runtime.graph, control, tables.runtime.warehouse, tables.clock())
    }
    assert (status["per_k"].state, status["per_k"].suspended) == ("SUCCEEDED", None)
    assert status["per_k"].rows == 3

    again = rebuild(tables.settings, epoch_in_use=tables.runtime.epoch)
    assert control.refreshes(limit=1000, checks=False) == after
    assert again.epoch == found.epoch == tables.runtime.epoch

    rows_logged = tables.runtime.refresh_log.flush()
    assert rows_logged < len(told), "what was restored is appended to the refresh log a second time"
    tables.restart()
    assert tables.runtime.epoch > max(map(newest_epoch, tables.runtime.warehouse.tables()))
    land(tables, 40)
    tables.refresh("per_k")
    assert counted(tables) == {"k0": 17, "k1": 17, "k2": 16}
    assert tables.diff("per_k") == []


def test_an_epoch_is_above_that_of_a_table_that_is_declared_no_more(lab):
    lab.source("orders", "id INT")
    lab.sql("INSERT INTO orders VALUES (1)")
    query = "CREATE MATERIALIZED TABLE copied AS SELECT id FROM orders"
    lab.declare(query)
    for _ in range(3):
        lab.restart()
    lab.refresh("copied")
    (lab.settings.declarations / "copied.sql").unlink()
    lab.restart(lose_control_store=True)
    lab.declare(query)
    lab.sql("INSERT INTO orders VALUES (2)")

    assert lab.refresh("copied").state == "SUCCEEDED"
    # A damaged table that nobody declared does not keep an engine from starting.
    damaged = lab.runtime.warehouse.root / "damaged" / "_delta_log"
    damaged.mkdir(parents=True)
    (damaged / f"{0:020d}.json").write_text("no commit")
    lab.restart()
    assert [row["id"] for row in lab.rows("copied")] == [1, 2]


def test_a_store_that_knows_all_is_left_as_it_is(settings):
    control = ControlStore.open(settings.control_store)
    control.take_epoch(7)
    control.close()

    found = rebuild(settings)

    assert (found.records, found.tables) == (0, 0)
    control = ControlStore.open(settings.control_store)
    assert control.take_epoch(1) == 8
    control.close()
