"""Changed declarations: the plan names their class, `apply` and ALTER .. AS ask for what it needs, and no more."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from freshline.cli.main import run
from freshline.commit.definitions import keep_definition
from freshline.commit.warehouse import Warehouse
from freshline.declare.project import read_settings
from freshline.errors import RequestError
from freshline.plan.definition import ChangeClass, DefinitionChange, definition_of, start_arguments
from freshline.plan.project import open_project
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from tests.cli.conftest import FakeEngine

QUERY = "SELECT customer, count(*) AS order_count, sum(amount) AS total{} FROM orders{} GROUP BY customer"


@pytest.fixture
def spend(shop: Path) -> Path:
    """The file of `spend`, whose table has a version by it."""
    settings = read_settings(shop, {})
    spec = open_project(settings).table(TableName.parse("spend"))
    keep_definition(settings.warehouse, definition_of(spec))
    receipt = Receipt(
        table=spec.name, fingerprint=spec.fingerprint, epoch=1, seq=1, mode="incremental", strategy="full", reason="",
        data_timestamp=datetime.now(UTC), positions={}, rows_in=1, rows_out=1, attempt="a",
    )  # fmt: skip
    write_deltalake(
        Warehouse(settings.warehouse).path(spec.name),
        pa.table({"customer": ["a"]}),
        commit_properties=CommitProperties(custom_metadata={"userMetadata": receipt.to_json()}),
    )
    return shop / "assets" / "spend.sql"


def declare(file: Path, query: str) -> None:
    text = file.read_text()
    file.write_text(text[: text.index("AS SELECT")] + f"AS {query};\n")


def alter(fake: FakeEngine, capsys: pytest.CaptureFixture[str], query: str, code: int = 0) -> dict[str, Any]:
    fake.asked.clear()
    assert run(["sql", f"ALTER MATERIALIZED TABLE spend AS {query}", "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def planned(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert run(["plan", "--json"]) == 0
    (line,) = [line for line in json.loads(capsys.readouterr().out) if line["table"] == "spend"]
    return {"declaration": line["declaration"], "change": line["change"], "about": line["change_about"]}


def test_a_start_is_asked_for_in_the_words_of_the_door_and_a_date_where_there_are_partitions(
    spend, fake_engine, capsys
):
    other = QUERY.format("", " WHERE amount > 1")
    words = ["--from beginning computes everything anew, --from now keeps the rows that are there."]
    declare(spend, other)
    assert run(["apply"]) == 1
    said = capsys.readouterr().err
    assert words[0] in " ".join(said.split())
    assert run(["plan"]) == 0
    assert "freshline apply spend --from beginning or now" in " ".join(capsys.readouterr().out.split())
    message = alter(fake_engine, capsys, other.replace("> 1", "> 2"), code=1)["error"]["message"]
    assert message.endswith("FROM BEGINNING computes everything anew, FROM NOW keeps the rows that are there.")


@pytest.mark.parametrize(
    ("by_date", "in_sql", "words"),
    [
        (True, False, ", --from 2026-11-01 those of the partitions before that date."),
        (True, True, ", FROM DATE '2026-11-01' those of the partitions before that date."),
        (False, True, "FROM NOW keeps the rows that are there."),
    ],
)
def test_a_date_is_offered_where_partitions_have_one(by_date, in_sql, words):
    change = DefinitionChange(ChangeClass.BREAKING, ("the query changed",))
    with pytest.raises(RequestError) as raised:
        start_arguments(TableName.parse("t"), change, None, force=False, by_date=by_date, in_sql=in_sql)
    assert raised.value.message.endswith(words)


@pytest.mark.parametrize(
    ("query", "change", "about", "start", "asked"),
    [
        (QUERY.format(", max(amount) AS top", ""), "additive", "new column top", [], {}),
        (QUERY.format("", " WHERE amount > 1"), "breaking", "the query changed", ["--from", "now"], {"start": "now"}),
        (QUERY.format("", " WHERE amount > 1"), "breaking", "", ["--from", "2026-11-01"], {"start": "2026-11-01"}),
        (
            "SELECT customer FROM orders",
            "destructive",
            "order_count",
            ["--from", "BEGINNING", "--force"],
            {"full": True},
        ),
    ],
)
def test_apply_asks_the_engine_for_what_the_class_of_the_change_needs(
    spend, fake_engine, capsys, query, change, about, start, asked
):
    declare(spend, query)
    plan = planned(capsys)
    assert (plan["declaration"], plan["change"], about in " ".join(plan["about"])) == ("changed", change, True)
    assert run(["plan"]) == 0
    assert f"spend: {change} change: " in capsys.readouterr().out
    if start:
        assert run(["apply"]) == 1
        assert run(["apply", *start[:1], "now"] if change == "destructive" else ["apply", "--force"]) == 1
        assert fake_engine.asked == []
        capsys.readouterr()

    assert run(["apply", "spend", *start, "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["changes"][0]["change"] == change
    assert fake_engine.asked == [("refresh", {"tables": ["spend"], **asked})]


def test_apply_of_what_did_not_change_starts_nothing(spend, fake_engine, capsys):
    assert run(["apply"]) == 0
    assert capsys.readouterr().out == "no declaration has changed\n"
    assert fake_engine.asked == []
    assert planned(capsys) == {"declaration": "unchanged", "change": None, "about": []}


def test_a_start_that_is_none_is_a_mistake(spend, fake_engine, capsys):
    declare(spend, QUERY.format("", " WHERE amount > 1"))

    assert run(["apply", "--from", "yesterday"]) == 1
    assert "it is beginning, now, or a date" in capsys.readouterr().err
    assert run(["apply", "nothing"]) == 1


def test_alter_as_writes_the_query_and_has_it_taken_up_from_its_start(spend, fake_engine, capsys):
    before = spend.read_text()
    same = alter(fake_engine, capsys, before[before.index("SELECT") :])
    assert (same["changed"], fake_engine.asked, spend.read_text()) == (False, [], before)

    refused = alter(fake_engine, capsys, QUERY.format("", " WHERE amount > 1"), 1)
    assert "FROM BEGINNING computes everything anew" in refused["error"]["message"]
    assert "goes away" in alter(fake_engine, capsys, "SELECT customer FROM orders FROM NOW", 1)["error"]["message"]
    assert "UNKNOWN_UPSTREAM" in json.dumps(alter(fake_engine, capsys, "SELECT customer FROM nowhere", 1))
    assert (fake_engine.asked, spend.read_text()) == ([], before)

    query = QUERY.format("", " WHERE amount > 1")
    assert alter(fake_engine, capsys, f"{query} FROM NOW")["changed"]
    assert fake_engine.asked == [("refresh", {"tables": ["spend"], "start": "now"})]
    assert spend.read_text() == before[: before.index("SELECT")] + query + ";\n"

    # Stopped before the engine was asked: the same statement goes on.
    again = alter(fake_engine, capsys, f"{query} FROM BEGINNING")
    assert (again["changed"], fake_engine.asked) == (False, [("refresh", {"tables": ["spend"], "full": True})])


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (QUERY.format(", max(amount) AS top", ""), "The next refresh takes the change up: new column top."),
        (QUERY.format("", " WHERE amount > 1"), "The change is breaking: the query changed. The rows stay as they are"),
    ],
)
def test_create_or_alter_says_what_becomes_of_the_rows(spend, fake_engine, capsys, query, said):
    header = spend.read_text().partition("AS SELECT")[0].replace("CREATE", "CREATE OR ALTER")

    assert run(["sql", f"{header} AS {query}"]) == 0

    assert said in capsys.readouterr().out
    assert fake_engine.asked == []


def test_a_query_may_end_with_what_is_called_now(spend, fake_engine, capsys):
    said = alter(fake_engine, capsys, "SELECT customer FROM now", 1)

    assert "reads now, which is not declared" in json.dumps(said) or "UNKNOWN_UPSTREAM" in json.dumps(said)


def test_alter_as_of_what_is_not_there_or_no_table_is_a_mistake(spend, fake_engine, capsys):
    for statement in (
        "ALTER MATERIALIZED TABLE nothing AS SELECT 1 AS a FROM orders",
        "ALTER MATERIALIZED TABLE orders AS SELECT 1 AS a FROM orders",
        "ALTER MATERIALIZED TABLE spend AS",
        "ALTER MATERIALIZED TABLE spend AS SELECT customer FROM orders FROM DATE 'soon'",
    ):
        assert run(["sql", statement]) == 1
    assert fake_engine.asked == []


def test_alter_as_finds_the_query_inside_of_side_outputs(spend, fake_engine):
    text = spend.read_text()
    spend.write_text(text.replace("AS SELECT", "SIDE OUTPUT dear WHERE (total > 10)\nAS SELECT", 1))
    query = QUERY.format(", max(amount) AS top", "")

    assert run(["sql", f"ALTER MATERIALIZED TABLE spend AS {query} FROM BEGINNING"]) == 0

    assert query in spend.read_text()
    assert "SIDE OUTPUT dear WHERE (total > 10)\nAS SELECT" in spend.read_text()
