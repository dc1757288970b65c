"""A table of a real Postgres, read by its log: what the log table has, and the tables that follow it."""

from __future__ import annotations

import pytest

from tests.databases import Shop


@pytest.fixture
def shop(lab, postgres, monkeypatch):
    made = Shop(lab, postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


COLUMNS = "id INT, name STRING, bio STRING"
FACTS = (
    "op STRING METADATA FROM 'op', at STRING METADATA FROM 'position', changed TIMESTAMP METADATA FROM 'changed_at', "
    "tx STRING METADATA FROM 'transaction', unsent ARRAY<STRING> METADATA FROM 'unsent'"
)


def test_it_works(lab, shop):
    shop.sql("CREATE TABLE customer (id INT PRIMARY KEY, name TEXT, bio TEXT)")
    shop.sql("INSERT INTO customer VALUES (1, 'a', E'x\\ty\\\\z'), (2, 'b', NULL)")
    shop.declare("customer", f"{COLUMNS}, {FACTS}")
    outcome = lab.refresh("feed")
    assert outcome.error is None, outcome.error
    print(lab.rows("feed"))
    assert lab.refresh("feed").strategy == "noop"
    shop.sql(
        "UPDATE customer SET id = 3 WHERE id = 1; DELETE FROM customer WHERE id = 2; TRUNCATE customer; INSERT INTO customer VALUES (5, 'c', 'd')"
    )
    outcome = lab.refresh("feed")
    assert outcome.error is None, outcome.error
    for row in lab.rows("feed"):
        print(row)
    print(lab.receipt("feed").to_json())
    print(shop.ask("SELECT * FROM pg_replication_slots"))
