"""Statements of `freshline sql` that manage tables do what the commands do, and start no engine for it."""

from __future__ import annotations

import io
import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from freshline.cli.main import run
from freshline.commit.control_store import ControlStore
from freshline.declare.project import read_settings
from freshline.engine.client import EngineClient
from freshline.freshness.intentions import FailureRow
from freshline.values.names import TableName
from tests.cli.conftest import FakeEngine

NOW = datetime(2026, 11, 1, tzinfo=UTC)

SPENT = "CREATE MATERIALIZED TABLE sales.spent FRESHNESS = INTERVAL '2' DAY AS SELECT customer FROM spend"


@pytest.fixture(autouse=True)
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: Any, **__: Any) -> None:
        raise AssertionError("an engine was asked for")

    monkeypatch.setattr(EngineClient, "connect", connect)


def sql(capsys: pytest.CaptureFixture[str], statement: str, *, code: int = 0) -> str:
    assert run(["sql", statement]) == code
    captured = capsys.readouterr()
    return captured.out or captured.err


def value(capsys: pytest.CaptureFixture[str], statement: str, *, code: int = 0) -> Any:
    assert run(["sql", statement, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_freshness_is_set_shown_and_reset(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = sql(capsys, "ALTER MATERIALIZED TABLE spend SET FRESHNESS INTERVAL '5' SECOND FOR INTERVAL '48' HOUR")
    assert said.startswith("spend: freshness 5 seconds until ")

    tables = {line["table"]: line for line in value(capsys, "SHOW MATERIALIZED TABLES")}
    assert tables["spend"]["override"]["freshness_seconds"] == 5
    assert "spend: freshness 5 seconds in place of the declared" in sql(capsys, "DESCRIBE EXTENDED spend")

    sql(capsys, "ALTER MATERIALIZED TABLE spend RESET FRESHNESS")
    assert value(capsys, "DESCRIBE EXTENDED spend")["override"] is None
    assert [record["state"] for record in value(capsys, "SHOW REFRESHES FOR spend")] == ["ALTERED", "ALTERED"]


def test_a_table_is_suspended_and_resumed(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql(capsys, "ALTER MATERIALIZED TABLE spend SUSPEND FOR INTERVAL '2' HOUR BECAUSE 'it''s wrong'")

    assert value(capsys, "DESCRIBE EXTENDED spend")["suspended"]["reason"] == "it's wrong"
    assert sql(capsys, "ALTER MATERIALIZED TABLE spend RESUME").startswith("resumed: spend")


def test_columns_are_described_with_their_key(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = value(capsys, "DESCRIBE spend")["columns"]

    assert columns[0] == {
        "column": "customer", "type": "known after the first refresh", "primary_key": True, "partition": False,
    }  # fmt: skip
    assert value(capsys, "DESC orders")["columns"][0]["type"] != "known after the first refresh"


def test_a_table_is_created_shown_and_dropped(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = shop / "assets" / "sales" / "spent.sql"

    assert value(capsys, SPENT) == {
        "table": "sales.spent", "file": str(file), "changed": True,
        "sentence": "declared: sales.spent, in assets/sales/spent.sql.",
    }  # fmt: skip
    assert file.read_text() == SPENT + ";\n"
    assert sql(capsys, "SHOW CREATE MATERIALIZED TABLE sales.spent") == SPENT + ";\n"
    assert not value(capsys, SPENT + ";")["changed"]

    sql(capsys, "ALTER MATERIALIZED TABLE sales.spent SUSPEND")
    assert "its data stays" in sql(capsys, "DROP MATERIALIZED TABLE sales.spent")
    assert not file.exists()
    (away,) = (shop / ".freshline" / "local" / "dropped").iterdir()
    assert away.read_text() == SPENT + ";\n"
    assert not value(capsys, "DROP MATERIALIZED TABLE IF EXISTS sales.spent")["changed"]
    # One of the same name begins anew.
    sql(capsys, SPENT)
    assert value(capsys, "DESCRIBE EXTENDED sales.spent")["suspended"] is None


def test_a_table_in_yaml_is_shown_and_changed_only_where_it_is_written(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = shop / "assets" / "defs" / "lake" / "defs.yaml"
    file.parent.mkdir(parents=True)
    written = (
        "type: freshline.dagster.FreshlineProjectComponent\nattributes:\n  tables:\n"
        "    - name: sales.spent\n      query: SELECT customer FROM orders\n"
        "    - name: other\n      query: SELECT customer FROM orders\n"
    )
    file.write_text(written)

    assert sql(capsys, "SHOW CREATE MATERIALIZED TABLE sales.spent") == (
        "name: sales.spent\nquery: SELECT customer FROM orders\n"
    )
    for statement in (
        "DROP MATERIALIZED TABLE sales.spent",
        "ALTER MATERIALIZED TABLE sales.spent AS SELECT upper(customer) AS customer FROM orders",
    ):
        said = sql(capsys, statement, code=1)
        assert "sales.spent is not declared in SQL, but in assets/defs/lake/defs.yaml." in said
    assert "DUPLICATE_NAME" in sql(capsys, SPENT.replace("CREATE", "CREATE OR ALTER"), code=1)
    assert file.read_text() == written
    assert not (shop / "assets" / "sales" / "spent.sql").exists()


def test_or_alter_changes_the_file(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sql(capsys, SPENT)
    other = SPENT.replace("CREATE", "CREATE OR ALTER").replace("customer", "upper(customer) AS customer")

    # Without a version there is nothing to take up; with one, see test_apply.py.
    assert sql(capsys, other) == "declared: sales.spent, in assets/sales/spent.sql.\n"
    assert (shop / "assets" / "sales" / "spent.sql").read_text() == other + ";\n"


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        (SPENT.replace("sales.spent", "Spend"), "REQUEST Spend: Spend is declared already, in assets/spend.sql."),
        (SPENT.replace("FROM spend", "FROM nowhere"), "DECLARATION/UNKNOWN_UPSTREAM assets/sales/spent.sql:1"),
        (SPENT.replace("2' DAY", "1' SECOND"), "DECLARATION/FRESHNESS_UPSTREAM assets/sales/spent.sql:1"),
        (SPENT.replace("FRESHNESS =", "NONSENSE FRESHNESS ="), "DECLARATION/SYNTAX assets/sales/spent.sql:1"),
        ("CREATE OR ALTER SOURCE orders (id STRING) WITH ('connector' = 'delta', 'path' = 'x')", "UNKNOWN_COLUMN"),
        ("DROP MATERIALIZED TABLE orders", "REQUEST orders is a source"),
        ("DROP MATERIALIZED TABLE spent", "there is no table spent. Did you mean spend?"),
        ("DESCRIBE spent", "there is no table or source spent. Did you mean spend?"),
        ("SHOW CREATE MATERIALIZED TABLE spent", "there is no table or source spent"),
        ("EXPLAIN FRESHNESS nothing", "nothing is not declared"),
        ("ALTER MATERIALIZED TABLE spend AS SELECT nothing FROM orders", "UNKNOWN_COLUMN"),
        ("ALTER MATERIALIZED TABLE spend SET FRESHNESS INTERVAL '0' SECOND", "FRESHNESS_VALUE statement:1"),
    ],
)
def test_a_statement_that_is_refused_changes_no_file(
    shop: Path, capsys: pytest.CaptureFixture[str], statement: str, sentence: str
) -> None:
    before = {file: file.read_bytes() for file in (shop / "assets").rglob("*.sql")}

    assert sentence in sql(capsys, statement, code=1)
    assert {file: file.read_bytes() for file in (shop / "assets").rglob("*.sql")} == before


def test_a_table_that_others_read_is_not_dropped_and_keeps_what_is_known_of_it(
    shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sql(capsys, SPENT)
    spend = TableName.parse("spend")
    control = ControlStore.open(read_settings(shop, {}).control_store)
    control.intentions.record_failures(FailureRow(spend, 4, NOW, NOW, {"code": "QUERY"}))

    assert "sales.spent reads it. Drop that first." in sql(capsys, "DROP MATERIALIZED TABLE spend", code=1)

    assert control.intentions.failures()[spend].count == 4
    control.close()


def test_a_drop_that_the_control_store_refuses_leaves_the_declaration(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshline.commit.control_store.database.BUSY_SECONDS", 0.2)
    sql(capsys, SPENT)
    file = shop / "assets" / "sales" / "spent.sql"
    url = read_settings(shop, {}).control_store
    ControlStore.open(url).close()
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        assert "locked by another process" in sql(capsys, "DROP MATERIALIZED TABLE sales.spent", code=1)
    assert file.exists()

    assert "its data stays" in sql(capsys, "DROP MATERIALIZED TABLE sales.spent")
    assert not file.exists()


def test_a_broken_declaration_is_repaired_by_a_statement(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (shop / "assets" / "sales").mkdir()
    (shop / "assets" / "sales" / "spent.sql").write_text("CREATE MATERIALIZED TABLE sales.spent AS SELECT")

    sql(capsys, SPENT.replace("CREATE", "CREATE OR ALTER"))

    assert run(["plan"]) == 0


def test_statements_of_a_pipe_are_done_in_order(
    shop: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{SPENT};\nALTER MATERIALIZED TABLE sales.spent SUSPEND;"))

    assert run(["sql"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("suspended: sales.spent")


class TestWithAnEngine:
    """REFRESH and VERIFY are requests."""

    @pytest.fixture(autouse=True)
    def no_engine(self, fake_engine: FakeEngine) -> None:
        """An engine that answers."""

    def test_a_refresh_asks_for_what_the_command_asks_for(
        self, shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sql(capsys, "ALTER MATERIALIZED TABLE spend REFRESH")
        sql(capsys, "ALTER MATERIALIZED TABLE spend REFRESH FULL")
        sql(capsys, "ALTER MATERIALIZED TABLE spend REFRESH PARTITION (ds = '2026-11-01', n = 5)")

        common = {"tables": ["spend"], "full": False, "partitions": [], "upstreams": True}
        assert fake_engine.asked == [
            ("refresh", common),
            ("refresh", {**common, "full": True}),
            ("refresh", {**common, "partitions": [[["ds", "2026-11-01"], ["n", "5"]]], "upstreams": False}),
        ]

    def test_a_range_or_a_cascade_is_a_backfill_of_what_is_named(
        self, shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        sql(
            capsys,
            "ALTER MATERIALIZED TABLE spend REFRESH PARTITION (ds BETWEEN '2026-11-01' AND '2026-11-03') CASCADE",
        )
        sql(capsys, "ALTER MATERIALIZED TABLE spend REFRESH PARTITION (ds = '2026-11-01') CASCADE")
        sql(capsys, "ALTER MATERIALIZED TABLE spend REFRESH CASCADE")

        given = [{key: value for key, value in arguments.items() if key != "id"} for _, arguments in fake_engine.asked]
        common = {"tables": ["spend"], "full": False, "partitions": [], "ranges": [], "cascade": True, "again": True}
        assert {kind for kind, _ in fake_engine.asked} == {"backfill"}
        assert given == [
            {**common, "ranges": [["ds", "2026-11-01", "2026-11-03"]]},
            {**common, "partitions": [[["ds", "2026-11-01"]]]},
            common,
        ]

    def test_a_verification_that_differs_is_exit_code_1(
        self, shop: Path, fake_engine: FakeEngine, capsys: pytest.CaptureFixture[str]
    ) -> None:
        different = {"table": "spend", "equal": False, "missing": 1, "extra": 0, "seconds": 1.0}
        fake_engine.answers["verify"] = [{"type": "verification", "verification": different}]

        assert "different" in sql(capsys, "VERIFY MATERIALIZED TABLE spend", code=1)
