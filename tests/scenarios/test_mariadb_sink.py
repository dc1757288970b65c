"""Rows that go out to a table of a real MariaDB, by the engine: changes, stops, rejected rows, savepoints, verify."""

from __future__ import annotations

import pytest

from tests.crashes import crash
from tests.mariadb import MariadbDatabase


@pytest.fixture
def database(mariadb, monkeypatch):
    made = MariadbDatabase(mariadb)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


def there(database):
    with database.connection.cursor() as cursor:
        cursor.execute("SELECT k, n, note FROM orders ORDER BY k")
        return list(cursor.fetchall())


def test_the_table_and_its_copy_stay_equal(lab, database):
    database.sql("CREATE TABLE orders (k varchar(50) COLLATE utf8mb4_nopad_bin PRIMARY KEY, n bigint, note varchar(5))")
    lab.source("src", "k STRING, n BIGINT, note STRING, tags ARRAY<STRING>, at TIMESTAMP", primary_key=["k"])
    lab.declare("CREATE MATERIALIZED TABLE big (PRIMARY KEY (k)) FRESHNESS = INTERVAL '1' MINUTE AS SELECT * FROM src")
    lab.declare(
        "CREATE SINK out FROM big WITH ('connector' = 'jdbc', 'url' = '${env:SHOP_URL}', 'table' = 'orders', "
        "'on-reject' = 'quarantine')"
    )
    lab.sql(
        "INSERT INTO src VALUES ('a', 1, 'x', array('p', NULL), TIMESTAMP'9999-12-31'), "
        "('A', 2, 'too long', NULL, NULL), "
        "('a ', 3, NULL, array(), TIMESTAMP'2026-01-01 00:00:00.123456')"
    )
    outcome = lab.refresh("out")
    assert (outcome.error, outcome.rows_out, outcome.rejected) == (None, 2, 1)
    assert there(database) == [("a", 1, "x"), ("a ", 3, None)]
    found = lab.verify("out")
    assert (found.error, found.missing, found.extra, found.unverified) == (None, 0, 0, 1)
    lab.sql("UPDATE src SET note = 'y' WHERE k = 'A'")
    lab.sql("DELETE FROM src WHERE k = 'a '")
    for point in ("sink-before-commit", "sink-committed"):
        lab.sql("UPDATE src SET n = n + 10 WHERE k = 'a'")
        crash(lab, point, "out")
        assert lab.refresh("out").error is None
    assert there(database) == [("A", 2, "y"), ("a", 21, "x")]
    found = lab.verify("out")
    assert (found.error, found.samples, found.equal) == (None, (), True)
    lab.create_savepoint("before")
    lab.sql("DELETE FROM src WHERE k = 'A'")
    assert lab.refresh("out").error is None
    lab.restore_savepoint("before")
    lab.refresh("out", upstreams=False)
    assert there(database) == [("A", 2, "y"), ("a", 21, "x")]
    assert lab.verify("out").equal
