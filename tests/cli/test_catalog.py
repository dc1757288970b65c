"""`freshline catalog`: its output, for people and programs, and its exit code."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime

import pytest

from freshline.cli.main import run
from freshline.commit.control_store import ControlStore
from tests.catalogs.shop import CatalogProject

SETTINGS = '[tool.freshline.catalogs.desk]\ntype = "duckdb"\nfile = "views.sql"\n'


@pytest.fixture
def shop(tmp_path):
    project = CatalogProject(tmp_path / "shop")
    project.settings(SETTINGS)
    project.add("orders")
    return project


@pytest.fixture
def freshline(shop, capsys):
    def ask(*arguments, code=0):
        assert run(["catalog", *arguments, "--project", str(shop.root)]) == code
        said = capsys.readouterr()
        return said.out

    return ask


def test_a_sync_shows_its_changes_and_then_none(freshline, shop):
    assert (
        freshline("sync", "--dry-run") == "desk (duckdb, views.sql): 1 tables, 1 changes needed\n  create main.orders\n"
    )
    assert not (shop.root / "views.sql").exists()
    assert freshline("sync") == "desk (duckdb, views.sql): 1 tables, 1 changes\n  create main.orders\n"
    assert freshline("sync", "desk") == "desk (duckdb, views.sql): 1 tables, nothing to change\n"


def test_a_program_gets_the_changes_as_json(freshline):
    (done,) = json.loads(freshline("sync", "--json"))

    change = {"change": "create", "place": "main.orders", "table": "orders", "from": None, "reason": None}
    assert done == {
        "catalog": "desk",
        "type": "duckdb",
        "address": "views.sql",
        "tables": 1,
        "applied": True,
        "changes": [change],
        "error": None,
    }


def test_show_has_the_state_of_each_table(freshline, shop):
    assert freshline("show").split("\n")[1].split() == ["desk", "orders", "main.orders", "missing"]
    freshline("sync")
    shop.undeclare("orders")
    shop.add("spend")

    (shown,) = json.loads(freshline("show", "--json"))

    assert shown["entries"] == [
        {"table": "spend", "place": "main.spend", "state": "missing"},
        {"table": "", "place": "main.orders", "state": "dropped with the next sync"},
    ]


def test_a_name_that_is_somebody_elses_is_exit_code_1(freshline, shop):
    (shop.root / "views.sql").write_text("CREATE VIEW orders AS SELECT 1;\n")

    assert "conflict main.orders: somebody else's entry is here" in freshline("sync", code=1)
    assert "somebody else's" in freshline("show")


def test_while_a_declaration_has_a_mistake_nothing_is_dropped(freshline, shop):
    shop.add("spend")
    freshline("sync")
    shop.declare("spend.sql", "CREATE SOURCE spend (")

    assert freshline("sync") == "desk (duckdb, views.sql): 1 tables, nothing to change\n"
    assert "spend" in (shop.root / "views.sql").read_text()


def test_a_catalog_that_cannot_be_used_leaves_the_others(freshline, shop):
    shop.settings('[tool.freshline.catalogs.a]\ntype = "unknown-one"\n' + SETTINGS)

    said = freshline("sync", code=1)

    assert "no installed package has the registrar 'unknown-one'" in said
    assert "[tool.freshline.catalogs.a]" in said
    assert "  create main.orders" in said


def test_mistakes_of_the_command_have_a_remedy(shop, capsys):
    assert run(["catalog", "sync", "dessk", "--project", str(shop.root)]) == 1
    assert "there is no catalog dessk. Did you mean desk?" in capsys.readouterr().err
    shop.settings("")
    assert run(["catalog", "show", "--project", str(shop.root)]) == 1
    assert "no catalog is declared" in capsys.readouterr().err


@pytest.mark.seconds
def test_doctor_has_a_line_about_catalogs(shop, capsys):
    def line():
        run(["doctor", "--json", "--project", str(shop.root)])
        (found,) = (each for each in json.loads(capsys.readouterr().out) if each["name"] == "catalogs")
        return found["ok"], found["message"]

    assert line() == (True, "desk: 1 tables, 1 changes needed")
    (shop.root / "views.sql").write_text("CREATE VIEW orders AS SELECT 1;\n")
    ok, message = line()
    assert not ok
    assert "somebody else's entry is here" in message
    shop.settings("")
    assert line() == (True, "none declared")


def test_a_sync_that_goes_well_ends_the_trouble_that_an_engine_wrote_down(freshline, shop):
    settings = shop.read_settings()
    settings.state.mkdir(parents=True, exist_ok=True)
    with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
        store.heartbeats.beat("catalog:desk", datetime.now(UTC), {"cause": "x"})
        freshline("sync", "--dry-run")
        assert list(store.heartbeats.read()) == ["catalog:desk"]
        freshline("sync")
        assert list(store.heartbeats.read()) == []
