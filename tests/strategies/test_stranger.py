"""A strategy that exists only on the page of extensions refreshes a table, is explained, and is verified."""

from __future__ import annotations

import pytest

from freshline.commit.delta_log import read_newest
from freshline.errors import DeclarationErrors, IncrementalError
from tests.sources.stranger import code_of_page, on_the_path, write_package

ENTRIES = {"freshline.strategies": {"largest": "largest:Largest"}}
MODULES = ("largest", "largest_rows")


@pytest.fixture
def installed(tmp_path):
    """The package `freshline-largest` is installed."""
    folder = tmp_path / "site"
    folder.mkdir()
    code = code_of_page("extending.md")
    for module in MODULES:
        (folder / f"{module}.py").write_text(code[module], encoding="utf-8")
    write_package(folder, "freshline-largest", ENTRIES)
    with on_the_path(folder, MODULES):
        yield


TABLE = """CREATE MATERIALIZED TABLE highest WITH ('strategies' = 'largest') FRESHNESS = INTERVAL '1' MINUTE
AS SELECT max(price) AS highest, max(length(name)) AS longest FROM trade"""


@pytest.fixture
def shop(lab, installed):
    lab.source("trade", "price INT, name STRING")
    lab.declare(TABLE)
    lab.sql("INSERT INTO trade VALUES (3, 'a'), (9, NULL)")
    lab.refresh("highest")
    return lab


def test_its_step_is_taken_and_the_table_is_verified(shop):
    shop.sql("INSERT INTO trade VALUES (7, 'abc')")
    outcome = shop.refresh("highest")

    assert (outcome.strategy, outcome.reason.split(":")[0]) == ("largest", "EXTENSION(largest)")
    assert shop.rows("highest") == [{"highest": 9, "longest": 3}]
    assert shop.diff("highest") == []
    newest = read_newest(shop.path("highest"))
    assert newest is not None
    assert newest.receipt is not None
    assert newest.receipt.strategy == "largest"


def test_where_it_is_not_right_the_shipped_ones_are_asked(shop):
    shop.sql("DELETE FROM trade WHERE price = 9")
    outcome = shop.refresh("highest")

    assert outcome.strategy == "full"
    assert shop.rows("highest") == [{"highest": 3, "longest": 1}]
    assert shop.diff("highest") == []


def test_explain_shows_it_first(shop):
    added, changed = shop.explain("highest").cases[:2]

    assert (added.strategy, added.others) == ("largest", ("keys", "full"))
    assert changed.refused["largest"].about == "updates or deletes of the input"


def test_it_can_be_asked_for_by_its_name(shop):
    shop.sql("INSERT INTO trade VALUES (8, 'x')")

    assert shop.refresh("highest", strategy="largest").strategy == "largest"


def test_a_name_that_no_package_has_is_an_error_of_the_declaration(lab):
    lab.source("trade", "price INT, name STRING")

    with pytest.raises(DeclarationErrors, match="strategy no installed package has 'largest'") as raised:
        lab.declare(TABLE)

    assert [error.rule for error in raised.value.errors] == ["EXTENSION"]


def test_a_package_that_was_uninstalled_fails_the_refresh_and_names_itself(lab, installed, monkeypatch):
    lab.source("trade", "price INT, name STRING")
    lab.declare(TABLE)
    lab.sql("INSERT INTO trade VALUES (3, 'a')")
    lab.refresh("highest")
    lab.sql("INSERT INTO trade VALUES (4, 'a')")

    def gone(name):
        raise IncrementalError(f"no installed package has '{name}'. Install the one that it is of.")

    monkeypatch.setattr("freshline.plan.strategy._strategy", gone)
    outcome = lab.refresh("highest")

    assert outcome.error is not None
    assert outcome.error.code == "INCREMENTAL"
    assert "largest" in outcome.error.message
