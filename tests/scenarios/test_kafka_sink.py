"""Rows that go out to a topic of a real broker: its readers see the table after each refresh, and after each stop."""

from __future__ import annotations

import json

import pytest

from tests.crashes import crash
from tests.sinks.kafka_topic import Topic


@pytest.fixture
def topic(kafka_broker):
    return Topic(kafka_broker.servers)


@pytest.fixture
def orders(lab):
    """A table `big` over a source `ord`, with a key."""
    lab.source("ord", "id INT, amount DECIMAL(9,2), tags ARRAY<STRING>", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE big (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE AS "
        "SELECT id, amount, tags FROM ord WHERE amount >= 10"
    )
    return lab


def declare_sink(lab, topic, more="", name="out"):
    lab.declare(
        f"CREATE SINK {name} FROM big WITH ('connector' = 'kafka', 'topic' = '{topic.name}', 'partitions' = '2', "
        f"'bootstrap.servers' = '{topic.servers}'{more})"
    )


def refreshed(lab, name="out", **asked):
    outcome = lab.refresh(name, **asked)
    assert outcome.error is None, outcome.error
    return outcome


def test_the_topic_has_the_table_after_each_refresh_stop_and_restore(orders, topic):
    orders.sql("INSERT INTO ord VALUES (1, 10.50, array('a', NULL)), (2, 5, NULL), (3, 30, array())")
    declare_sink(orders, topic)
    first = refreshed(orders)
    assert (first.strategy, first.rows_out) == ("full", 2)
    assert sorted(topic.records()) == [
        (b'{"id":1}', b'{"id":1,"amount":10.50,"tags":["a",null]}'),
        (b'{"id":3}', b'{"id":3,"amount":30.00,"tags":[]}'),
    ]
    assert refreshed(orders).reason.startswith("NOTHING_NEW")
    orders.create_savepoint("before")

    # A stop at each point of a refresh that has an insert, an update and a delete.
    for number, point in enumerate(("sink-writing", "sink-before-commit", "sink-committed", "sink-written")):
        orders.sql("UPDATE ord SET amount = amount + 1 WHERE id = 1")
        orders.sql(f"INSERT INTO ord VALUES ({10 + number}, 40, NULL)")
        orders.sql(f"DELETE FROM ord WHERE id = {9 + number}")
        crash(orders, point, "out")
        refreshed(orders)
        assert topic.state() == {
            f'{{"id":{10 + number}}}': {"id": 10 + number, "amount": 40.0, "tags": None},
            '{"id":1}': {"id": 1, "amount": 11.5 + number, "tags": ["a", None]},
            '{"id":3}': {"id": 3, "amount": 30.0, "tags": []},
        }
    found = orders.verify("out")
    assert (found.error, found.samples, found.equal) == (None, (), True)

    # Another sink does not come between.
    declare_sink(orders, topic, name="other")
    assert orders.refresh("other").error.code == "SINK_FENCED"

    orders.restore_savepoint("before")
    orders.refresh("out", upstreams=False)
    assert sorted(topic.state()) == ['{"id":1}', '{"id":3}']
    assert orders.verify("out").equal
    topic.send((b'{"id":3}', None))
    assert orders.verify("out").missing == 1
    assert refreshed(orders, full=True, upstreams=False).rows_out == 1
    assert orders.verify("out").equal


def test_changes_in_the_envelope_of_debezium_become_the_same_table_again(orders, topic, kafka):
    orders.sql("INSERT INTO ord VALUES (1, 10.50, array('a', NULL)), (3, 30, array())")
    declare_sink(orders, topic, ", 'mode' = 'changes', 'value.format' = 'debezium-json'")
    refreshed(orders)
    orders.kafka(
        "feed",
        "id INT, amount DECIMAL(9,2), tags ARRAY<STRING>",
        servers=topic.servers,
        topic=topic.name,
        primary_key=("id",),
        format="debezium-json",
    )
    orders.declare(
        "CREATE MATERIALIZED TABLE again (PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' MINUTE "
        "WITH ('merge' = 'last_row', 'merge.sequence' = 'change') AS SELECT id, amount, tags FROM feed"
    )
    for change in (
        "SELECT 1",
        "UPDATE ord SET amount = 11 WHERE id = 1",
        "DELETE FROM ord WHERE id = 3",
        "INSERT INTO ord VALUES (3, 33.33, NULL), (4, 40, NULL)",
    ):
        orders.sql(change)
        refreshed(orders)
        refreshed(orders, "again")
        assert sorted(orders.rows("again"), key=str) == sorted(orders.rows("big"), key=str)
    assert [json.loads(value)["op"] for _, value in topic.records()].count("u") == 1
    assert orders.verify("out").equal


def test_rows_without_a_key_come_and_go(lab, topic):
    lab.source("ord", "id INT, note STRING")
    lab.declare("CREATE MATERIALIZED TABLE big FRESHNESS = INTERVAL '1' MINUTE AS SELECT id, note FROM ord")
    declare_sink(lab, topic, ", 'mode' = 'changes'")
    lab.sql("INSERT INTO ord VALUES (1, 'a'), (1, 'a'), (2, NULL)")
    refreshed(lab)
    lab.sql("INSERT INTO ord VALUES (2, NULL), (3, 'c')")
    assert refreshed(lab).rows_out == 2
    lab.sql("DELETE FROM ord WHERE id = 1")
    assert refreshed(lab).rows_out == 2
    assert lab.verify("out").equal
