"""Rows of a table as documents of a real OpenSearch: after each refresh, and after each stop in one."""

from __future__ import annotations

import pytest

from freshline.testing.sinks import SinkConformance
from tests.crashes import crash
from tests.lanes import all_but, long_but
from tests.sinks.systems import OWN, OpenSearchSystem, prepared

SINK = "WITH ('connector' = 'opensearch', 'url' = '%s', 'index' = '%s'%s)"

pytestmark = pytest.mark.slow


@pytest.fixture
def index(opensearch):
    return opensearch.new_name()


@pytest.fixture
def orders(lab, opensearch, index):
    """A table `big` over a source `ord`, with a key, and a sink of it."""
    lab.source("ord", "id INT, amount DOUBLE, note STRING, tags ARRAY<STRING>", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT id, amount, note, tags FROM ord WHERE amount >= 10"
    )
    lab.declare(f"CREATE SINK out FROM big {SINK % (opensearch.url, index, '')}")
    return lab


def refreshed(lab, name="out", **asked):
    outcome = lab.refresh(name, **asked)
    assert outcome.error is None, outcome.error
    return outcome


def amounts(opensearch, index):
    return {key: document["amount"] for key, document in opensearch.documents(index).items()}


def test_the_first_refresh_makes_the_index_and_later_ones_send_changes(orders, opensearch, index):
    orders.sql("INSERT INTO ord VALUES (1, 10.5, 'a', array('x', NULL)), (2, 5, 'b', NULL), (3, 30, NULL, NULL)")
    first = refreshed(orders)
    assert (first.strategy, first.rows_in, first.rows_out) == ("full", 2, 2)
    assert opensearch.documents(index) == {
        "1": {"id": 1, "amount": 10.5, "note": "a", "tags": ["x", None]},
        "3": {"id": 3, "amount": 30},
    }
    orders.sql("INSERT INTO ord VALUES (4, 40, '', array())")
    orders.sql("UPDATE ord SET amount = 50 WHERE id = 2")
    orders.sql("DELETE FROM ord WHERE id = 1")
    second = refreshed(orders)
    assert (second.strategy, second.rows_out) == ("changes", 3)
    assert amounts(opensearch, index) == {"2": 50, "3": 30, "4": 40}
    found = orders.verify("out")
    assert (found.error, found.samples, found.equal) == (None, (), True)
    # A document that somebody changes is found, and put back.
    opensearch.ask("DELETE", f"/{index}/_doc/3")
    opensearch.ask("PUT", f"/{index}/_doc/9", {"id": 9})
    found = orders.verify("out")
    assert (found.missing, found.extra) == (1, 1)
    refreshed(orders, full=True)
    assert orders.verify("out").equal


@pytest.mark.parametrize(
    "point",
    long_but(["sink-before-commit"], ["sink-writing", "sink-before-commit", "sink-committed", "sink-written"]),
)
def test_a_stop_at_any_point_loses_and_repeats_nothing(orders, opensearch, index, point):
    """Also where what the stopped refresh has sent was taken back before the next one."""
    orders.sql("INSERT INTO ord VALUES (1, 10, 'a', NULL), (2, 20, 'b', NULL), (4, 40, 'd', NULL)")
    refreshed(orders)
    orders.sql("UPDATE ord SET amount = amount + 1 WHERE id IN (1, 4)")
    orders.sql("DELETE FROM ord WHERE id = 2")
    orders.sql("INSERT INTO ord VALUES (3, 33, 'c', NULL)")
    crash(orders, point, "out")
    orders.sql("UPDATE ord SET amount = 10 WHERE id = 1")
    orders.sql("INSERT INTO ord VALUES (2, 20, 'b', NULL)")
    orders.sql("DELETE FROM ord WHERE id = 3")
    assert refreshed(orders).strategy == "changes"
    assert amounts(opensearch, index) == {"1": 10, "2": 20, "4": 41}
    assert orders.verify("out").equal
    assert refreshed(orders).reason.startswith("NOTHING_NEW")


def test_a_row_that_is_not_taken_fails_or_is_set_aside(orders, opensearch, index):
    mapping = """, 'mapping' = '{"note": {"type": "ip"}}'"""
    orders.declare(f"CREATE OR ALTER SINK out FROM big {SINK % (opensearch.url, index, mapping)}")
    orders.sql("INSERT INTO ord VALUES (1, 10, '::1', NULL), (2, 20, 'no address', NULL)")
    assert orders.refresh("out").error.code == "SINK_REJECTED"
    set_aside = f"{mapping}, 'on-reject' = 'quarantine'"
    orders.declare(f"CREATE OR ALTER SINK out FROM big {SINK % (opensearch.url, index, set_aside)}")
    outcome = refreshed(orders)
    assert (outcome.rows_out, outcome.rejected) == (1, 1)
    assert amounts(opensearch, index) == {"1": 10}
    found = orders.verify("out")
    assert (found.missing, found.extra, found.unverified) == (0, 0, 1)
    orders.sql("UPDATE ord SET note = '10.0.0.1' WHERE id = 2")
    assert refreshed(orders).rejected == 0
    assert orders.verify("out").equal


def test_savepoints_new_columns_and_other_sinks(orders, opensearch, index):
    orders.sql("INSERT INTO ord VALUES (1, 10, 'a', NULL)")
    refreshed(orders)
    orders.declare(f"CREATE SINK other FROM big {SINK % (opensearch.url, index, '')}")
    assert orders.refresh("other").error.code == "SINK_FENCED"
    orders.create_savepoint("before")
    orders.sql("INSERT INTO ord VALUES (2, 20, 'b', NULL)")
    refreshed(orders)
    orders.restore_savepoint("before")
    orders.refresh("out", upstreams=False)
    assert amounts(opensearch, index) == {"1": 10}
    orders.declare(
        "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT id, amount, note, tags, amount * 2 AS twice FROM ord WHERE amount >= 10"
    )
    refreshed(orders)
    assert {key: row["twice"] for key, row in opensearch.documents(index).items()} == {"1": 20, "2": 40}
    assert orders.verify("out").equal


class TestOpenSearch(SinkConformance):
    """The claims about every sink."""

    in_long_lane = all_but(OWN, SinkConformance)

    @pytest.fixture
    def system(self, lab, opensearch, monkeypatch):
        with prepared(OpenSearchSystem(lab, opensearch), monkeypatch) as made:
            yield made
