"""Rows that go out to a table of a real Postgres: what it has after each refresh, and after each stop in one."""

from __future__ import annotations

import pytest
from dagster import AssetKey

from freshline.commit.warehouse import Warehouse
from freshline.dagster.materialize import Materialization, version_metadata
from freshline.values.names import TableName
from tests.crashes import crash
from tests.databases import Database

SINK = "WITH ('connector' = 'jdbc', 'url' = '${env:SHOP_URL}', 'table' = 'orders'%s)"


@pytest.fixture
def database(postgres, monkeypatch):
    made = Database(postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


@pytest.fixture
def orders(lab):
    """A table `big` over a source `ord`, with a key."""
    lab.source("ord", "id INT, amount DOUBLE, note STRING", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT id, amount, note FROM ord WHERE amount >= 10"
    )
    return lab


def declare_sink(lab, more=""):
    lab.declare(f"CREATE SINK out FROM big {SINK % more}")


def refreshed(lab, name="out", **asked):
    outcome = lab.refresh(name, **asked)
    assert outcome.error is None, outcome.error
    return outcome


def there(database, columns="id, amount, note", table="orders"):
    return database.ask(f"SELECT {columns} FROM {table} ORDER BY 1")


def test_the_first_refresh_makes_the_table_and_later_ones_send_changes(orders, database):
    orders.sql("INSERT INTO ord VALUES (1, 10.5, 'a'), (2, 5, 'b'), (3, 30, NULL)")
    declare_sink(orders)
    first = refreshed(orders)
    assert (first.strategy, first.rows_in, first.rows_out) == ("full", 2, 2)
    assert there(database) == [(1, 10.5, "a"), (3, 30.0, None)]

    # Its rows are in the database, not in its own table.
    shown = next(status for status in orders.status() if str(status.table) == "out")
    assert (shown.rows, shown.size_bytes, shown.files) == (None, None, None)
    spec = orders.runtime.graph.spec(shown.table)
    asked = Materialization(spec, AssetKey("out"), Warehouse(orders.settings.warehouse))
    assert "dagster/row_count" not in version_metadata(asked, first.version)

    assert refreshed(orders).reason.startswith("NOTHING_NEW")
    orders.sql("INSERT INTO ord VALUES (4, 40, '')")
    orders.sql("UPDATE ord SET amount = 50, note = 'it''s, \"x\"\n\\\\.' WHERE id = 2")
    orders.sql("DELETE FROM ord WHERE id = 1")
    second = refreshed(orders)
    assert (second.strategy, second.rows_out) == ("changes", 3)
    assert there(database) == [(2, 50.0, 'it\'s, "x"\n\\.'), (3, 30.0, None), (4, 40.0, "")]
    found = orders.verify("out")
    assert (found.equal, found.error, found.samples) == (True, None, ())


@pytest.mark.parametrize("point", ["sink-writing", "sink-before-commit", "sink-committed", "sink-written"])
def test_a_stop_at_any_point_loses_and_repeats_nothing(orders, database, point):
    orders.sql("INSERT INTO ord VALUES (1, 10, 'a'), (2, 20, 'b')")
    declare_sink(orders)
    refreshed(orders)
    orders.sql("UPDATE ord SET amount = 11 WHERE id = 1")
    orders.sql("DELETE FROM ord WHERE id = 2")
    crash(orders, point, "out")
    orders.sql("INSERT INTO ord VALUES (3, 33, 'c')")
    refreshed(orders)
    assert there(database) == [(1, 11.0, "a"), (3, 33.0, "c")]
    assert orders.verify("out").equal


VALUES = """
('a', 1, 12345678901234567.891, CAST('NaN' AS FLOAT), X'00ff', DATE'0001-01-01', TIMESTAMP'9999-12-31 23:59:59.999999',
 TIMESTAMP_NTZ'1582-10-04 00:00:00.000001', true, -32768, array('x', NULL, ''), map('k', 1, 'l', NULL),
 struct(TIMESTAMP'2026-01-01 00:00:00.123456', CAST('NaN' AS DOUBLE))),
('', NULL, NULL, -0.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
('\u00e9"\n,\t', 2, 0.000, 1.5, X'', DATE'9999-12-31', TIMESTAMP'1970-01-01', TIMESTAMP_NTZ'2026-02-28', false, 1,
 array(), map(), struct(NULL, 0.1))
"""


def test_names_types_and_values_of_all_kinds_come_back_as_they_are(lab, database):
    lab.source(
        "src",
        """k STRING, `x"'--` INT, `a%b` DECIMAL(20,3), f FLOAT, b BINARY, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ,
        o BOOLEAN, s SHORT, l ARRAY<STRING>, m MAP<STRING, INT>, r STRUCT<u: TIMESTAMP, v: DOUBLE>""",
        primary_key=["k"],
    )
    lab.declare("CREATE MATERIALIZED TABLE big (PRIMARY KEY (k)) FRESHNESS = INTERVAL '1' MINUTE AS SELECT * FROM src")
    declare_sink(lab)
    lab.sql(f"INSERT INTO src VALUES {VALUES}")
    refreshed(lab)
    found = lab.verify("out")
    assert (found.error, found.samples, found.equal) == (None, (), True)
    assert database.ask("""SELECT "x""'--", l->>0, m->>'k' FROM orders WHERE k = 'a'""") == [(1, "x", "1")]
    lab.sql("UPDATE src SET f = 2, l = array('y') WHERE k = ''")
    assert refreshed(lab).strategy == "changes"
    assert lab.verify("out").equal


def test_a_row_that_is_not_taken_fails_or_is_set_aside(orders, database):
    database.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, amount DOUBLE PRECISION CHECK (amount < 100), note VARCHAR(3))"
    )
    orders.sql(
        "INSERT INTO ord VALUES (1, 10, 'abc'), (2, 200, 'b'), (3, 30, 'abcd'), (4, 40, CAST(X'610062' AS STRING))"
    )
    declare_sink(orders)
    outcome = orders.refresh("out")
    assert outcome.error.code == "SINK_REJECTED"
    assert there(database) == []
    declare_sink(orders, ", 'on-reject' = 'quarantine'")
    outcome = refreshed(orders)
    assert (outcome.rows_out, outcome.rejected) == (1, 3)
    assert there(database) == [(1, 10.0, "abc")]
    path = orders.runtime.warehouse.rejections(orders.runtime.graph.table(TableName.parse("out")))
    rows = orders.runtime.spark.read.format("delta").load(str(path)).collect()
    assert sorted((row["error"], row["raw"][:9]) for row in rows) == [
        ("22001", '{"id": 3,'),
        ("22021", '{"id": 4,'),
        ("23514", '{"id": 2,'),
    ]
    found = orders.verify("out")
    assert (found.equal, found.missing, found.extra, found.unverified) == (False, 0, 0, 3)
    # A row that is taken before keeps its last state; one that is mended is there.
    orders.sql("UPDATE ord SET amount = 300 WHERE id = 1")
    orders.sql("UPDATE ord SET amount = 20 WHERE id = 2")
    outcome = refreshed(orders)
    assert (outcome.rows_out, outcome.rejected) == (1, 1)
    assert there(database) == [(1, 10.0, "abc"), (2, 20.0, "b")]
    assert refreshed(orders, full=True).rejected == 3
    assert there(database) == [(1, 10.0, "abc"), (2, 20.0, "b")]


def test_rows_of_others_and_other_writers_are_not_touched(orders, database):
    database.sql("CREATE TABLE orders (id INT PRIMARY KEY, amount DOUBLE PRECISION, note TEXT)")
    database.sql("INSERT INTO orders VALUES (7, 7, 'mine')")
    orders.sql("INSERT INTO ord VALUES (1, 10, 'a')")
    declare_sink(orders)
    assert orders.refresh("out").error.code == "SINK_SCHEMA"
    assert there(database) == [(7, 7.0, "mine")]
    refreshed(orders, full=True)
    assert there(database) == [(1, 10.0, "a")]
    orders.declare(f"CREATE SINK other FROM big {SINK % ''}")
    assert orders.refresh("other").error.code == "SINK_FENCED"
    # Another engine, of an older epoch.
    older = orders.runtime.epoch
    orders.restart()
    orders.sql("INSERT INTO ord VALUES (2, 20, 'b')")
    refreshed(orders)
    held = database.ask("SELECT epoch FROM freshline_sink")[0][0]
    assert held > older


def test_columns_come_and_the_history_goes(orders, database):
    orders.sql("INSERT INTO ord VALUES (1, 10, 'a'), (2, 20, 'b')")
    declare_sink(orders)
    refreshed(orders)
    orders.declare(
        "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT id, amount, note, amount * 2 AS twice FROM ord WHERE amount >= 10"
    )
    outcome = refreshed(orders)
    assert outcome.reason.startswith("SCHEMA_CHANGED") or outcome.reason.startswith("DEFINITION_CHANGED")
    assert there(database, "id, twice") == [(1, 20.0), (2, 40.0)]
    assert orders.verify("out").equal
    # Somebody changed the sink: verify says it, and --full repairs it.
    database.sql("DELETE FROM orders WHERE id = 1; INSERT INTO orders VALUES (9, 9, 'z', 1)")
    found = orders.verify("out")
    assert (found.missing, found.extra) == (1, 1)
    assert refreshed(orders, full=True).rows_out == 2
    assert orders.verify("out").equal


def test_a_savepoint_of_the_table_behind_is_followed(orders, database):
    orders.sql("INSERT INTO ord VALUES (1, 10, 'a')")
    declare_sink(orders)
    refreshed(orders)
    orders.create_savepoint("before")
    orders.sql("INSERT INTO ord VALUES (2, 20, 'b')")
    refreshed(orders)
    orders.restore_savepoint("before")
    orders.refresh("out", upstreams=False)
    assert there(database) == [(1, 10.0, "a")]
    assert orders.verify("out").equal


def test_a_table_with_other_columns_or_another_key_goes_on_or_says_what_to_do(orders, database):
    made = (
        "CREATE OR ALTER MATERIALIZED TABLE big (PRIMARY KEY ({})) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT {} FROM ord"
    )

    def change(key, columns):
        orders.declare(made.format(key, columns))
        refreshed(orders, "big", full=True)
        return orders.refresh("out")

    orders.sql("INSERT INTO ord VALUES (1, 10, 'a'), (2, 20, 'b')")
    orders.declare(made.format("id", "id, CAST(amount AS INT) AS amount"))
    declare_sink(orders)
    refreshed(orders)

    # Another order of columns, another type whose values still fit, and a column more.
    assert change("id", "note, CAST(amount AS BIGINT) AS amount, id").error is None
    assert there(database) == [(1, 10, "a"), (2, 20, "b")]
    too_large = change("id", "note, CAST(amount AS BIGINT) * 3000000000 AS amount, id")
    assert "integer out of range" in str(too_large.error)
    database.sql("ALTER TABLE orders ALTER COLUMN amount TYPE bigint")
    refreshed(orders)
    assert there(database, "id, amount") == [(1, 30_000_000_000), (2, 60_000_000_000)]

    # Digits would be lost without a word.
    database.sql("ALTER TABLE orders ALTER COLUMN amount TYPE numeric(20, 2)")
    rounded = change("id", "note, CAST(amount AS DECIMAL(20, 4)) / 3 AS amount, id")
    assert "column amount of public.orders is numeric(20,2), and rows have numeric(" in str(rounded.error)
    database.sql("ALTER TABLE orders ALTER COLUMN amount TYPE numeric")
    refreshed(orders)
    assert orders.verify("out").equal

    other = change("id, note", "note, CAST(amount AS DECIMAL(20, 4)) AS amount, id")
    assert 'ADD UNIQUE ("id", "note"), and drop the key over (id) if it was the one of the rows.' in str(other.error)
    database.sql("ALTER TABLE orders DROP CONSTRAINT orders_pkey, ADD PRIMARY KEY (id, note)")
    refreshed(orders)
    assert orders.verify("out").equal
