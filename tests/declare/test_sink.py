"""CREATE SINK: the table that it becomes, in SQL, YAML and Python, and what each mistake in it gets."""

from __future__ import annotations

import pytest

from freshline.dagster.checks import VERIFY, check_names
from freshline.declare import project
from freshline.errors import DeclarationErrors, RequestError
from freshline.plan.project import check_promises
from freshline.sinks.jdbc.sink import JdbcSink
from freshline.sources.jdbc.connector import Name
from freshline.sql.managing import Create, Drop, Explain, SetFreshness, Suspend, Verify, read_managing
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.sink import OnReject
from tests.declare.test_python_table import LoadedHere

SINK = TableName(None, "copy")
TABLE = (
    "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) FRESHNESS = INTERVAL '5' MINUTE AS SELECT id, amount FROM orders"
)
OPTIONS = {"connector": "jdbc", "url": "${env:SHOP}", "table": "public.copy"}


def written(of="t", clauses="", name="copy", **more):
    options = {**OPTIONS, **{key.replace("_", "-"): value for key, value in more.items()}}
    pairs = ", ".join(f"'{key}' = '{value}'" for key, value in options.items() if value is not None)
    return f"CREATE SINK {name} FROM {of}\n{clauses}\nWITH ({pairs})"


def declare(shop, text=None, table=TABLE):
    shop.declare("t.sql", table)
    shop.declare("copy.sql", text or written())


@pytest.fixture(autouse=True)
def loaded_here(monkeypatch) -> None:
    monkeypatch.setattr(project, "_python_loader", LoadedHere)


def test_a_sink_has_the_columns_and_the_key_of_its_table(shop):
    declare(shop, written(clauses="COMMENT 'for the shop'", on_reject="quarantine", owner="ann"))
    found = shop.read()
    spec = found.table(SINK)
    assert (spec.columns, spec.primary_key, spec.comment, spec.owner) == (
        ("id", "amount"),
        ("id",),
        "for the shop",
        "ann",
    )
    assert spec.sink == JdbcSink(url="${env:SHOP}", schema=Name("public", False), table=Name("copy", False))
    assert spec.on_reject is OnReject.QUARANTINE
    assert found.reads(SINK) == (TableName(None, "t"),)
    # Read again, from the cache.
    assert shop.read().table(SINK) == spec


def test_a_sink_is_as_fresh_as_its_table_or_as_it_says(shop):
    declare(shop)
    assert shop.read().freshness(SINK) == Freshness(300)
    declare(shop, written(clauses="FRESHNESS = INTERVAL '1' HOUR"))
    assert shop.read().freshness(SINK) == Freshness(3600)
    # A table may take its freshness from a sink.
    declare(shop, written(clauses="FRESHNESS = INTERVAL '1' HOUR"), TABLE.replace("INTERVAL '5' MINUTE", "DOWNSTREAM"))
    found = shop.read()
    assert found.freshness(TableName(None, "t")) == found.freshness(SINK) == Freshness(3600)


def test_python_and_yaml_declare_the_same(shop):
    declare(shop, written(clauses="FRESHNESS = INTERVAL '1' HOUR"))
    expected = shop.read().table(SINK)
    (shop.root / "assets" / "copy.sql").unlink()
    shop.declare(
        "copy.py",
        "import freshline\n\nfreshline.sink(table='t', connector='jdbc', freshness='1 hour', "
        "options={'url': '${env:SHOP}', 'table': 'public.copy'})\n",
    )
    in_python = shop.read().table(SINK)
    (shop.root / "assets" / "copy.py").unlink()
    shop.declare(
        "defs/lake/defs.yaml",
        "type: freshline.dagster.FreshlineProjectComponent\nattributes:\n  sinks:\n    - name: copy\n      table: t\n"
        "      freshness: 1 hour\n      options: {connector: jdbc, url: '${env:SHOP}', table: public.copy}\n",
    )
    in_yaml = shop.read().table(SINK)
    for found in (in_python, in_yaml):
        assert found.fingerprint == expected.fingerprint
        assert (found.sink, found.columns, found.freshness) == (expected.sink, expected.columns, expected.freshness)


@pytest.mark.parametrize(
    ("text", "table", "code", "line"),
    [
        (written("orders"), TABLE, "SINK_TABLE", 1),
        (written("nobody"), TABLE, "UNKNOWN_UPSTREAM", 1),
        (written(), TABLE.replace("(PRIMARY KEY (id))", ""), "SINK_KEY", 1),
        (written(url="postgresql://me:hunter2@host/shop"), TABLE, "REFERENCE", 3),
        (written(table=None), TABLE, "OPTION_NEEDS", 1),
        (written(connector="jbdc"), TABLE, "EXTENSION", 3),
        (written(connector=None), TABLE, "OPTION_NEEDS", 1),
        (written(fromat="json"), TABLE, "UNKNOWN_OPTION", 3),
        (written(topic="orders"), TABLE, "OPTION_NEEDS", 3),
        (written(on_reject="ignore"), TABLE, "OPTION_VALUE", 3),
        (written(clauses="FRESHNESS = DOWNSTREAM"), TABLE, "FRESHNESS_DOWNSTREAM", 2),
        (written(clauses="FRESHNESS = INTERVAL '1' SECOND"), TABLE, "FRESHNESS_UPSTREAM", 2),
        (written(clauses="PARTITIONED BY (id)"), TABLE, "SYNTAX", 2),
        ("CREATE SINK copy WITH ('connector' = 'jdbc')", TABLE, "SYNTAX", 1),
        (written(), TABLE.replace("amount FROM", "amount AS xmin FROM"), "SINK_SCHEMA", 1),
        (written(), TABLE.replace("amount FROM", f"amount AS {'a' * 64} FROM"), "SINK_SCHEMA", 1),
    ],
)
def test_a_mistake_is_reported_at_its_line(shop, text, table, code, line):
    declare(shop, text, table)
    rule, at, message = shop.error()
    assert (rule, at) == (code, f"assets/copy.sql:{line}")
    assert "hunter2" not in message


def test_nothing_reads_a_sink(shop):
    declare(shop)
    shop.declare("u.sql", "CREATE MATERIALIZED TABLE u AS SELECT id FROM copy")
    assert shop.error()[:2] == ("SINK_TABLE", "assets/u.sql:1")
    (shop.root / "assets" / "u.sql").unlink()
    shop.declare("u.sql", written("copy", name="u"))
    assert shop.error()[0] == "SINK_TABLE"
    (shop.root / "assets" / "u.sql").unlink()
    shop.declare("copy__rejected.sql", "CREATE MATERIALIZED TABLE copy__rejected AS SELECT id FROM orders")
    assert shop.error()[0] == "PATH_COLLISION"
    (shop.root / "assets" / "copy__rejected.sql").unlink()
    with pytest.raises(RequestError, match="its rows are in a database"):
        shop.read().require_rows(SINK)


def test_a_type_that_the_system_has_not_is_refused_before_anything_runs(shop):
    declare(shop, table=TABLE.replace("(id)", "(place)").replace("SELECT id,", "SELECT address AS place,"))
    with pytest.raises(DeclarationErrors, match="place of t is STRUCT<city: STRING>, which a database cannot have"):
        check_promises(shop.read())


def test_a_sink_that_nobody_can_read_is_not_verified(shop):
    declare(shop)
    options = "'connector' = 'webhook', 'url' = '${env:HOOK}', 'secret' = '${env:KEY}'"
    shop.declare("hook.sql", f"CREATE SINK hook FROM t WITH ({options})")
    found = shop.read()
    assert found.is_sink(TableName(None, "hook"))
    assert [str(spec.name) for spec in found.verified] == ["t", "copy"]
    checks = {name: set(check_names(found, found.spec(TableName(None, name)))) for name in ("copy", "hook")}
    assert VERIFY in checks["copy"]
    assert VERIFY not in checks["hook"]


@pytest.mark.parametrize(
    ("statement", "kind"),
    [
        ("ALTER SINK copy SET FRESHNESS INTERVAL '1' HOUR", SetFreshness),
        ("ALTER SINK copy SUSPEND", Suspend),
        ("DROP SINK IF EXISTS copy", Drop),
        ("EXPLAIN SINK copy", Explain),
        ("VERIFY SINK copy", Verify),
        (written(), Create),
    ],
)
def test_statements_take_a_sink(statement, kind):
    assert isinstance(read_managing(statement), kind)
