"""Rows of a table in ClickHouse's engine: after each refresh, and after each stop in one."""

from __future__ import annotations

import json

import pytest

from freshline.testing.sinks import SinkConformance
from tests.crashes import crash
from tests.lanes import all_but, long_but
from tests.sinks.systems import OWN, ClickHouseSystem, prepared

pytestmark = pytest.mark.slow


@pytest.fixture
def database(clickhouse, monkeypatch):
    monkeypatch.setenv("CLICK", clickhouse.password)
    return clickhouse.new_database()


@pytest.fixture
def orders(lab, clickhouse, database):
    """A table `big` over a source `ord`, with a key, and a sink of it."""
    lab.source("ord", "id INT, amount DECIMAL(12,2), at TIMESTAMP, tags MAP<STRING, INT>", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT id, amount, at, tags FROM ord WHERE amount >= 10"
    )
    lab.declare(
        f"CREATE SINK out FROM big WITH ('connector' = 'clickhouse', 'url' = '{clickhouse.url}', "
        f"'table' = '{database}.orders', 'password' = '${{env:CLICK}}', 'on-reject' = 'quarantine')"
    )
    return lab


def refreshed(lab, **asked):
    outcome = lab.refresh("out", **asked)
    assert outcome.error is None, outcome.error
    return outcome


def amounts(clickhouse, database):
    lines = clickhouse.ask("SELECT id, amount FROM orders", database=database).splitlines()
    return {row["id"]: row["amount"] for row in map(json.loads, lines)}


@pytest.mark.parametrize(
    "point",
    long_but(["sink-before-commit"], ["sink-writing", "sink-before-commit", "sink-committed", "sink-written"]),
)
def test_a_stop_at_any_point_loses_and_repeats_nothing(orders, clickhouse, database, point):
    """Also where what the stopped refresh has sent was taken back before the next one."""
    orders.sql(
        "INSERT INTO ord VALUES (1, 10, TIMESTAMP'2026-01-01 00:00:00.000001', map('a', 1)), (2, 20, NULL, NULL), "
        "(4, 40, NULL, NULL), (5, 5, NULL, NULL), (6, 60, TIMESTAMP'1800-01-01', NULL)"
    )
    first = refreshed(orders)
    assert (first.strategy, first.rows_out, first.rejected) == ("full", 3, 1)
    found = orders.verify("out")
    assert (found.error, found.missing, found.extra, found.unverified) == (None, 0, 0, 1)
    orders.sql("DELETE FROM ord WHERE id = 6")
    orders.sql("UPDATE ord SET amount = amount + 1 WHERE id IN (1, 4)")
    orders.sql("DELETE FROM ord WHERE id = 2")
    orders.sql("INSERT INTO ord VALUES (3, 33, NULL, NULL)")
    crash(orders, point, "out")
    orders.sql("UPDATE ord SET amount = 10 WHERE id = 1")
    orders.sql("INSERT INTO ord VALUES (2, 20, NULL, NULL)")
    orders.sql("DELETE FROM ord WHERE id = 3")
    assert refreshed(orders).strategy == "changes"
    assert amounts(clickhouse, database) == {1: 10, 2: 20, 4: 41}
    found = orders.verify("out")
    assert (found.error, found.samples, found.equal) == (None, (), True)
    # Somebody changes a row: it is found, and put back.
    clickhouse.ask(f"DROP VIEW {database}.orders")
    assert refreshed(orders, full=True).strategy == "full"
    assert orders.verify("out").equal


class TestClickHouse(SinkConformance):
    """The claims about every sink."""

    in_long_lane = all_but(OWN, SinkConformance)

    @pytest.fixture
    def system(self, lab, clickhouse, monkeypatch):
        with prepared(ClickHouseSystem(lab, clickhouse), monkeypatch) as made:
            yield made
