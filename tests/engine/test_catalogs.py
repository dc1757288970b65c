"""An engine's catalogs follow its tables in threads of their own, whatever the catalogs do meanwhile."""

from __future__ import annotations

import time
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import pytest
from deltalake import DeltaTable

from freshline.catalogs import sync as sync_module
from freshline.commit.control_store import ControlStore
from freshline.engine import catalogs
from freshline.engine.catalogs import CatalogKeeper
from freshline.errors import StorageError
from freshline.report.alerts.watch import catalog_conditions
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from tests.catalogs.shop import CatalogProject

DESK = '[tool.freshline.catalogs.desk]\ntype = "duckdb"\nfile = "views.sql"\n'


class Kept:
    """A project whose catalogs are kept, as an engine does."""

    def __init__(self, project, control):
        self.project = project
        self.control = control
        self.graph = project.graph()
        self.whole = True
        self.keeper = CatalogKeeper(
            project.read_settings(),
            control,
            lambda: self.graph,
            lambda: self.whole,
            lambda: datetime.now(UTC),
            self.require_warehouse,
        )

    def require_warehouse(self):
        if not (self.project.warehouse.root / "mounted").exists():
            raise StorageError("the warehouse is not in its place.")

    def refreshed(self, name, *, committed=True):
        table = TableName.parse(name)
        result = RefreshResult(
            table=table, at=datetime.now(UTC), state=State.SUCCEEDED, reason="x", committed=committed
        )
        began = time.monotonic()
        self.keeper.on_outcome(result)
        # Whatever the catalog does, a refresh goes on.
        assert time.monotonic() - began < 0.1

    def declared(self):
        self.graph = self.project.graph()
        self.keeper.on_graph()

    @property
    def troubles(self):
        return list(catalog_conditions(self.control.heartbeats.read()))

    @property
    def views(self):
        file = self.project.root / "views.sql"
        return [line.split("place=main.")[1] for line in lines(file) if "place=" in line]


def lines(file):
    return file.read_text().split("\n") if file.is_file() else []


def until(holds, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def shop(tmp_path):
    project = CatalogProject(tmp_path / "shop")
    project.settings(DESK)
    project.add("orders")
    (project.warehouse.root / "mounted").touch()
    return project


@pytest.fixture
def control(shop):
    settings = shop.read_settings()
    settings.state.mkdir(parents=True, exist_ok=True)
    with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
        yield store


@pytest.fixture
def keep(shop, control):
    opened = []

    def begin():
        opened.append(Kept(shop, control))
        return opened[-1]

    yield begin
    for each in opened:
        each.keeper.close(10)


@pytest.fixture
def syncs(monkeypatch):
    """The number of times that a catalog was asked."""
    asked = []
    whole = sync_module.sync_catalog

    def counted(*arguments, **options):
        asked.append(arguments[0].name)
        return whole(*arguments, **options)

    monkeypatch.setattr("freshline.engine.catalogs.sync_catalog", counted)
    return asked


pytestmark = pytest.mark.seconds


def test_tables_that_came_without_an_engine_are_entered_at_its_start(keep):
    kept = keep()

    until(lambda: kept.views == ["orders"])


def test_a_first_commit_changed_columns_and_a_dropped_declaration_follow(keep, shop):
    kept = keep()
    until(lambda: kept.views == ["orders"])

    shop.source("spend")
    kept.declared()
    shop.fill("spend")
    kept.refreshed("spend")
    until(lambda: kept.views == ["orders", "spend"])
    shop.undeclare("orders")
    kept.declared()
    until(lambda: kept.views == ["spend"])


def test_a_restored_table_has_the_columns_that_it_had(keep, shop, syncs):
    kept = keep()
    until(lambda: kept.views == ["orders"])
    shop.fill("orders", {"id": [1], "added": [2]})
    kept.refreshed("orders")
    until(lambda: len(syncs) == 2)
    DeltaTable(str(shop.warehouse.root / "orders")).restore(0)
    kept.keeper.on_restore([TableName.parse("orders")])
    until(lambda: len(syncs) == 3)


def test_commits_that_change_no_entry_ask_no_catalog(keep, shop, syncs):
    kept = keep()
    until(lambda: kept.views == ["orders"])

    for _ in range(3):
        shop.fill("orders")
        kept.refreshed("orders")
        time.sleep(catalogs.GATHER_SECONDS * 1.5)
    kept.refreshed("orders", committed=False)
    assert syncs == ["desk"]

    shop.fill("orders", {"id": [1], "more": [2]})
    kept.refreshed("orders")
    until(lambda: len(syncs) == 2)


def test_while_tables_are_left_out_nothing_is_dropped(keep, shop):
    kept = keep()
    until(lambda: kept.views == ["orders"])
    shop.undeclare("orders")
    shop.add("spend")
    kept.whole = False

    kept.declared()

    until(lambda: kept.views == ["orders", "spend"])
    kept.whole = True
    kept.declared()
    until(lambda: kept.views == ["spend"])


def test_tables_that_went_away_with_their_disk_are_not_dropped(keep, shop):
    kept = keep()
    until(lambda: kept.views == ["orders"])
    root = shop.warehouse.root
    root.rename(root.with_name("elsewhere"))
    kept.refreshed("orders")

    until(lambda: kept.troubles)
    assert "the warehouse is not in its place." in kept.troubles[0].cause
    assert kept.views == ["orders"]
    assert not root.exists()

    root.with_name("elsewhere").rename(root)
    until(lambda: not kept.troubles)
    assert kept.views == ["orders"]


def test_a_catalog_that_is_away_is_tried_again_and_its_trouble_ends(keep, shop, caplog):
    (shop.root / "blocked").write_text("no folder")
    shop.settings(DESK.replace("views.sql", "blocked/views.sql"))
    kept = keep()
    until(lambda: kept.troubles)
    (trouble,) = kept.troubles
    assert trouble.name == "desk"
    assert not trouble.refused
    assert "cannot be written" in trouble.cause
    kept.refreshed("orders")

    (shop.root / "blocked").unlink()

    until(lambda: not kept.troubles)
    assert lines(shop.root / "blocked" / "views.sql")
    said = [record.message for record in caplog.records if "catalog desk" in record.message]
    assert len([each for each in said if "Refreshes go on" in each]) == 1


def test_a_trouble_begins_once_over_several_engines(keep, shop, control):
    (shop.root / "views.sql").write_text("CREATE VIEW orders AS SELECT 1;\n")
    first = keep()
    until(lambda: first.troubles)
    (trouble,) = first.troubles
    assert trouble.refused
    assert "orders (main.orders: somebody else's entry is here)" in trouble.cause
    first.keeper.close(10)

    second = keep()
    shop.add("spend")
    second.declared()
    until(lambda: "spend" in second.views)

    assert [each.since for each in second.troubles] == [trouble.since]


def test_trouble_of_a_catalog_that_is_no_longer_declared_is_forgotten(keep, shop, control):
    control.heartbeats.beat("catalog:gone", datetime.now(UTC), {"cause": "x"})
    control.heartbeats.beat("engine", datetime.now(UTC), {})

    kept = keep()

    assert kept.troubles == []
    assert list(control.heartbeats.read()) == ["engine"]


def test_a_mistake_of_a_registrar_is_a_trouble_and_its_thread_goes_on(keep, shop, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("in the registrar")

    monkeypatch.setattr(sync_module, "plan_catalog", broken)
    kept = keep()
    until(lambda: kept.troubles)
    assert "ZeroDivisionError: in the registrar" in kept.troubles[0].cause

    monkeypatch.undo()

    until(lambda: not kept.troubles)
    assert kept.views == ["orders"]


@pytest.mark.slow
def test_a_metastore_that_hangs_holds_nothing_and_is_followed_when_it_answers(keep, shop, metastore):
    database = metastore.new_name()
    shop.settings(
        f'[tool.freshline.catalogs.lake]\ntype = "hive"\nuri = "{metastore.uri}"\ndatabase = "{database}"\n'
        'timeout = "1 second"\n' + DESK
    )
    kept = keep()
    until(lambda: kept.views == ["orders"] and tables(metastore, database) == ["orders"])

    with metastore.hanging():
        shop.source("spend")
        kept.declared()
        shop.fill("spend")
        kept.refreshed("spend")
        # One catalog waits for nothing of another.
        until(lambda: kept.views == ["orders", "spend"], 5)
        until(lambda: [each.name for each in kept.troubles] == ["lake"])

    until(lambda: tables(metastore, database) == ["orders", "spend"])
    until(lambda: not kept.troubles)


@pytest.mark.slow
def test_a_metastore_that_is_started_again_is_followed(keep, shop, metastore):
    database = metastore.new_name()
    shop.settings(f'[tool.freshline.catalogs.lake]\ntype = "hive"\nuri = "{metastore.uri}"\ndatabase = "{database}"\n')
    kept = keep()
    until(lambda: tables(metastore, database) == ["orders"])
    with killed(metastore):
        shop.source("spend")
        kept.declared()
        shop.fill("spend")
        kept.refreshed("spend")
        until(lambda: kept.troubles)

    until(lambda: tables(metastore, database) == ["orders", "spend"])
    until(lambda: not kept.troubles)


def tables(metastore, database):
    with metastore.client() as calls:
        return sorted(calls.names(database)) if database in calls.databases() else []


@contextmanager
def killed(metastore):
    metastore.kill()
    try:
        yield
    finally:
        metastore.start()
