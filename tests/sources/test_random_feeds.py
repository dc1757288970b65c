"""Random feeds of tables whose keys change places, without Spark: the events say which row has a key at the end.

The same changes are read as `pgoutput` sends them and as Debezium does. Batches end anywhere, in transactions too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import psycopg
import pytest
from pyspark.sql.types import DecimalType, IntegerType, StringType

from freshline.sources.databases.postgres_values import BUILT_IN
from freshline.sources.formats.envelope import EnvelopeFacts, EnvelopeReader, Rejected
from freshline.sources.postgres.events import ChangeReader, PostgresColumn, ReadTable
from freshline.sources.rows_of_key import SeenEvent, find_survivors
from tests.databases import CHANGES, LARGE, ChangingTable, fits
from tests.debezium import Messages
from tests.lanes import few_or_many

NUMBERS = count()
COLUMNS = (("id", "INT"), ("name", "STRING"), ("score", "DECIMAL(8,2)"), ("bio", "STRING"))
TYPES = (IntegerType(), StringType(), DecimalType(8, 2), StringType())


def of_debezium(table: str, sent: list[tuple[int, bytes]]) -> Iterator[tuple[Any, ...]]:
    """Each event as its kind, key, row, old row and transaction; the row is None for one that is rejected."""
    columns = tuple((name, kind) for (name, _), kind in zip(COLUMNS, TYPES, strict=True))
    reader, messages = EnvelopeReader(EnvelopeFacts(columns, ("id",), decimals="text")), Messages(table)
    for lsn, data in sent:
        for record in messages.of(lsn, data):
            value = None if record.value is None else json.dumps(record.value).encode()
            if value is None:
                continue
            try:
                event, is_good = reader.read(value, record.key), len(value) <= LARGE
            except Rejected as rejected:
                if rejected.known is None:
                    raise
                event, is_good = rejected.known, False
            yield event.op, event.values[0], event.values, event.before, event.transaction, is_good


def of_postgres(table: str, oid: int, sent: list[tuple[int, bytes]]) -> Iterator[tuple[Any, ...]]:
    columns = tuple(PostgresColumn(name, kind, name, name == "id") for name, kind in COLUMNS)
    reader = ChangeReader(ReadTable(oid, table, columns, BUILT_IN, LARGE), 0)
    for lsn, data in sent:
        for event in reader.read(lsn, data):
            yield event.op, event.values[0], event.values, event.before, event.transaction, event.broken is None


def image_of(row: tuple[Any, ...] | None) -> int | None:
    return None if row is None else hash(row)


def follow(events: Iterable[tuple[Any, ...]], chance: random.Random) -> tuple[dict[int, Any], set[int]]:
    """The rows that the events leave, in batches of any size, and the keys of which the newest event was rejected."""
    rows: dict[int, Any] = {}
    aside: set[int] = set()
    history: dict[int, list[tuple[SeenEvent, Any]]] = {}
    truncates, place = 0, 0
    left = list(events)
    while left:
        size = chance.randint(1, 20)
        batch, left = left[:size], left[size:]
        for op, key, row, before, transaction, is_good in batch:
            place += 1
            if op == "t":
                truncates += 1
                rows, aside = {}, set()
                continue
            bare = op == "d" and bool(before) and all(value is None for value in before[1:])
            image = image_of(row) if is_good and op in "cur" else None
            seen = SeenEvent((place,), op, transaction, image, image_of(before), bare, truncates, is_good)
            history.setdefault(key, []).append((seen, row))
            if not is_good:
                aside.add(key)
                continue
            aside.discard(key)
            kept = {each.place: each.row for each in find_survivors(each for each, _ in history[key])}
            if op != "d":
                rows[key] = row[1:]
            elif (place,) in kept:
                survivor = kept[place,]
                assert survivor is not None
                rows[key] = next(found for each, found in history[key] if each.place == survivor)[1:]
                history[key][-1] = (seen._replace(op="k"), row)
            else:
                rows.pop(key, None)
    return rows, aside


def read_one(seed: int, url: str) -> None:
    chance = random.Random(seed)
    name = f"feed_{next(NUMBERS)}"
    table = ChangingTable(chance, url, name, feeds=2, deferrable=True, unfit=chance.random() < 0.5)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE PUBLICATION {name} FOR TABLE {name}".encode())
        connection.execute(b"SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
        try:
            table.transactions(chance.randint(3, 12))
            table.settle()
            sent = connection.execute(CHANGES, {"name": name}).fetchall()
            found = connection.execute(b"SELECT %s::regclass::oid::bigint", (name,)).fetchone()
            assert found is not None
            expected = table.now()
            events = {"direct": list(of_postgres(name, found[0], sent)), "debezium": list(of_debezium(name, sent))}
            for way, read in events.items():
                rows, aside = follow(read, chance)
                aside |= {key for key, row in expected.items() if not fits(row)}
                for key in (rows.keys() | expected.keys()) - aside:
                    own = [event for event in read if event[1] in (key, None)]
                    assert rows.get(key) == expected.get(key), (seed, way, key, own)
        finally:
            table.close()
            connection.execute(b"SELECT pg_drop_replication_slot(%s)", (name,))


@pytest.mark.seconds
@pytest.mark.parametrize("seeds", few_or_many(range(40), range(40, 2_040)))
def test_rows_are_those_of_the_database_directly_and_as_debezium_sends_them(postgres, seeds):
    _, _, place = postgres.new_database().partition("://")
    for seed in seeds:
        read_one(seed, f"postgresql://{place}")
