"""Random transactions of a real Postgres, read without Spark, are the rows of its table at each place they name."""

from __future__ import annotations

import random
from itertools import count

import psycopg
import pytest

from freshline.compute.cancellation import Cancellation
from freshline.errors import DatabaseError
from freshline.sources.postgres.connector import Postgres
from freshline.sources.postgres.events import ChangeReader, SnapshotReader
from freshline.sources.postgres.facts import require_table
from freshline.sources.postgres.server import PostgresClient
from tests.databases import ChangingTable
from tests.lanes import few_or_many

COLUMNS = [("id", "INT"), ("name", "STRING"), ("score", "DECIMAL(8,2)"), ("bio", "STRING")]
NUMBERS = count()


def apply(events, rows):
    """Events onto rows, as a table by changes has them; each transaction's are together."""
    done, newest = [], None
    for event in events:
        if event.transaction != newest:
            assert event.transaction not in done, "a transaction was split"
            done.append(event.transaction)
            newest = event.transaction
        assert event.broken is None
        key, values = event.values[0], dict(zip(("name", "score", "bio"), event.values[1:], strict=True))
        if event.op == "t":
            rows.clear()
        elif event.op == "d":
            rows.pop(key)
        else:
            assert (event.op == "u") == (key in rows)
            kept = dict(zip(("name", "score", "bio"), rows.get(key, ()), strict=False))
            rows[key] = tuple((kept if name in event.unsent else values)[name] for name in values)


def read_one(chance, url, name):
    table, slot = ChangingTable(chance, url, name), f"random_{next(NUMBERS)}"
    declared = Postgres(url, "public", name, slot, slot)
    server, cancellation = PostgresClient(declared, "here"), Cancellation()
    try:
        table.transactions(chance.randint(0, 5))
        table.settle()
        facts, found, _ = server.inspect(url)
        read = require_table(declared, found, COLUMNS, ["id"], 10**6, where="here")
        assert found is not None
        server.provide_publication(url)
        types = {column.name: column.type_id for column in found.columns}
        while True:
            stored = server.storage(url, read)
            with server.new_slot(url, facts.version, cancellation) as made:
                table.transactions(chance.randint(0, 3))
                try:
                    with server.snapshot_lines(url, made.snapshot, read, stored, cancellation) as (_, lines):
                        reader = SnapshotReader(read, [types[column] for column, _ in COLUMNS], made.at, 0)
                        rows = {event.values[0]: event.values[1:] for event in map(reader.read, lines)}
                    break
                except DatabaseError:
                    assert server.storage(url, read) != stored
            table.settle()
            server.drop_slot(url)
        position = made.at
        assert rows == table.rows(position)
        for _ in range(3):
            table.transactions(chance.randint(0, 6))
            end = server.inspect(url)[0].flushed
            while position < end:
                most = chance.choice([1, 5, 1_000])
                changes = ChangeReader(read, position)
                with server.changes(url, end, most, cancellation) as messages:
                    sent = list(messages)
                apply([event for lsn, data in sent for event in changes.read(lsn, data)], rows)
                position = max(changes.end, end) if len(sent) < most else changes.end
                assert rows == table.rows(position)
                if chance.random() < 0.7:
                    server.advance(url, position)
        table.settle()
    finally:
        table.close()
        server.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))


@pytest.mark.seconds
@pytest.mark.parametrize("seeds", few_or_many(range(60), range(60, 3_000)))
def test_the_rows_are_those_of_the_table_at_each_place(postgres, seeds):
    _, _, place = postgres.new_database().partition("://")
    for seed in seeds:
        read_one(random.Random(seed), f"postgresql://{place}", f"thing_{seed}")
