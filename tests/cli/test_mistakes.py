"""One mistake in one file costs the commands on other tables nothing, and is named beside what they do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from freshline.cli.main import run
from tests.cli.conftest import FakeEngine

WRONG = "CREATE MATERIALIZED TABLE wrong FRESHNESS = INTERVAL '1' HOUR AS SELECT custmer FROM orders;"
ABOVE = "CREATE MATERIALIZED TABLE above FRESHNESS = INTERVAL '1' HOUR AS SELECT 1 AS one FROM wrong;"
SAID = "DECLARATION/UNKNOWN_COLUMN assets/wrong.sql:1: "


@pytest.fixture
def mistaken(shop: Path) -> Path:
    """The project of `init` with a misspelled column in a third table, and a table that reads that one."""
    (shop / "assets" / "wrong.sql").write_text(WRONG)
    (shop / "assets" / "above.sql").write_text(ABOVE)
    return shop


ON_OTHERS = [
    ["status"],
    ["alter", "spend", "--freshness", "2 hours"],
    ["suspend", "spend"],
    ["resume", "spend"],
    ["explain", "spend"],
    ["explain", "--freshness", "spend"],
    ["explain"],
    ["snapshot"],
    ["refreshes", "spend"],
    ["apply", "spend"],
    ["apply"],
    ["refresh", "spend"],
    ["verify", "spend"],
    ["tick"],
    ["engine", "start"],
    ["sql", "SELECT * FROM spend"],
    ["sql", "SHOW MATERIALIZED TABLES"],
    ["sql", "DESCRIBE spend"],
    ["sql", "SHOW CREATE MATERIALIZED TABLE spend"],
    ["sql", "ALTER MATERIALIZED TABLE spend SUSPEND"],
    ["sql", "ALTER MATERIALIZED TABLE spend REFRESH"],
    ["sql", "CREATE MATERIALIZED TABLE more FRESHNESS = INTERVAL '1' HOUR AS SELECT customer FROM orders"],
    ["sql", "DROP MATERIALIZED TABLE spend"],
    ["new", "table", "more", "--query", "SELECT customer FROM orders", "--freshness", "1h"],
]


@pytest.mark.parametrize("command", ON_OTHERS, ids=" ".join)
def test_a_mistake_in_one_file_costs_commands_on_other_tables_nothing(
    mistaken: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run(command) == 0

    named = [line for line in capsys.readouterr().err.splitlines() if line.startswith("DECLARATION/")]
    assert named[0].startswith("DECLARATION/UNKNOWN_UPSTREAM above: it reads wrong, whose declaration has a mistake.")
    assert named[1].startswith(SAID)
    assert len(named) == 2


ON_THE_MISTAKEN = [
    ["alter", "wrong", "--freshness", "2 hours"],
    ["suspend", "wrong"],
    ["explain", "wrong"],
    ["refresh", "wrong"],
    ["verify", "wrong"],
    ["apply", "wrong"],
    ["backfill", "wrong"],
    ["refreshes", "wrong"],
    ["sql", "DESCRIBE wrong"],
    ["sql", "ALTER MATERIALIZED TABLE wrong REFRESH"],
    ["refresh"],
    ["verify"],
]


@pytest.mark.parametrize("command", ON_THE_MISTAKEN, ids=" ".join)
def test_a_command_on_the_table_with_the_mistake_gets_it_with_its_place(
    mistaken: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    assert run(command) == 1

    assert SAID in capsys.readouterr().err
    assert not fake_engine.running


def test_a_command_on_a_table_above_the_mistake_says_what_it_waits_for(
    mistaken: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["suspend", "above", "--json"]) == 1
    error = json.loads(capsys.readouterr().out)["error"]["errors"][0]
    assert (error["rule"], error["where"]) == ("UNKNOWN_UPSTREAM", "above")


def test_a_statement_may_add_no_mistake_and_none_that_was_there_before_is_its_own(
    mistaken: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create = "CREATE MATERIALIZED TABLE {} FRESHNESS = INTERVAL '1' HOUR AS SELECT {} FROM {}"
    assert run(["sql", create.format("more", "nothing", "orders")]) == 1
    err = capsys.readouterr().err
    assert "assets/more.sql:1" in err
    assert SAID not in err
    # It would read what is wrong.
    assert run(["sql", create.format("more", "custmer", "wrong")]) == 1
    assert "it reads wrong, whose declaration has a mistake" in capsys.readouterr().err
    # A table that another one reads is not dropped, and nothing is purged while the readers are not known.
    assert run(["sql", "DROP MATERIALIZED TABLE spend PURGE"]) == 1
    assert SAID in capsys.readouterr().err
    assert run(["sql", create.replace("CREATE", "CREATE OR ALTER").format("wrong", "customer", "orders")]) == 0
    assert run(["plan"]) == 0


def test_mistakes_of_a_file_that_names_no_table_are_reported_for_what_is_not_there(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (shop / "assets" / "a-b.sql").write_text("SELECT")
    assert run(["suspend", "spend"]) == 0
    assert "assets/a-b.sql:1" in capsys.readouterr().err
    assert run(["suspend", "nobody"]) == 1
    assert "assets/a-b.sql:1" in capsys.readouterr().err
