"""Random change feeds of a real Postgres, read by `postgres` and through a topic: the rows are those of the database.

Keys change places within a transaction, several changes of one key are in it, all rows are removed, values do not fit,
large ones are not sent, savepoints and transactions are undone, and batches end within a transaction. A row that is not
in the table has its newest event in quarantine, or values that do not fit.

One table of the database has many feeds: sets of keys of which each transaction has one. So a refresh is of many of
them, and 2,000 take minutes.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from freshline.sources.postgres import reader as reader_module
from freshline.testing import Lab
from tests.crashes import refresh_through_crash
from tests.databases import CHANGES, LARGE, ChangingTable, Shop, fits
from tests.debezium import Messages
from tests.kafka import Record, Topics
from tests.lanes import long_but
from tests.scenarios.tables import declare_merge

COLUMNS = "id INT, name STRING, score DECIMAL(8,2), bio STRING"
POINTS = ("log-before-quarantine", "log-before-commit", "log-after-commit", "table-before-commit", "table-after-commit")
ROUNDS = 3


@pytest.fixture
def shop(lab, postgres, monkeypatch):
    made = Shop(lab, postgres)
    monkeypatch.setenv("SHOP_URL", made.url)
    yield made
    made.close()


@dataclass
class Slot:
    """The changes that a slot of its own gives, as records of Debezium."""

    shop: Shop
    table: str

    def __post_init__(self) -> None:
        self._messages = Messages(self.table)
        self.shop.sql(f"CREATE PUBLICATION {self.table}_sent FOR TABLE {self.table}")
        self.shop.sql(f"SELECT pg_create_logical_replication_slot('{self.table}_sent', 'pgoutput')")

    def records(self) -> list[Record]:
        with psycopg.connect(self.shop.url, autocommit=True) as connection:
            rows = connection.execute(CHANGES, {"name": f"{self.table}_sent"}).fetchall()
        return [record for lsn, data in rows for record in self._messages.of(lsn, bytes(data))]


def key_of(rejected: dict[str, Any]) -> int | None:
    """The key of the row that a rejected event is of."""
    given = rejected.get("key") or b"null"
    found = json.loads(given) or json.loads(rejected["raw"]).get("row")
    return None if found is None or found["id"] is None else int(found["id"])


def require_rows(lab: Lab, table: str, log: str, number: str, expected: dict[int, tuple[Any, ...]], case: Any) -> int:
    """Require the rows of the database, but those whose newest event is in quarantine; how many these are.

    `number` is that of an event in the quarantine; in the log it is called n.
    """
    found = {row.pop("id"): tuple(row.values()) for row in lab.rows(table)}
    newest: dict[int, int] = {}
    truncated = -1
    for row in lab.rows(log):
        if row["op"] == "t":
            truncated = max(truncated, row["n"])
        else:
            newest[row["id"]] = max(newest.get(row["id"], -1), row["n"])
    aside = set()
    for row in lab.quarantine(log):
        key = key_of(row)
        if key is not None and row[number] > max(newest.get(key, -1), truncated):
            aside.add(key)
    aside |= {key for key, row in expected.items() if not fits(row)}
    for key in sorted(found.keys() | expected.keys()):
        if key not in aside:
            assert found.get(key) == expected.get(key), (case, key, _events(lab, log, number, key))
    return len(aside)


def _events(lab: Lab, log: str, number: str, key: int) -> list[Any]:
    """The events of a key, to be shown."""
    good = [(row["n"], row["op"], row["name"], row["score"], str(row["bio"])[:9], row["tx"]) for row in lab.rows(log)
            if row["id"] in (key, None)]  # fmt: skip
    bad = [(row[number], row["error"], bytes(row["raw"])[:300]) for row in lab.quarantine(log) if key_of(row) == key]
    return sorted([*good, *bad])


def compare(lab: Lab, kafka: Topics, shop: Shop, monkeypatch: Any, seed: int, feeds: int) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(reader_module, "BATCH_MESSAGES", feeds * chance.choice([10, 100]))
    name = f"thing_{seed}"
    changing = ChangingTable(
        chance, shop.url, name, feeds=feeds, deferrable=chance.random() < 0.7, unfit=chance.random() < 0.7
    )
    slot, topic = Slot(shop, name), kafka.new()
    facts = "op STRING METADATA FROM 'op', tx STRING METADATA FROM 'transaction'"
    most = {"max_record_bytes": str(LARGE)}
    shop.declare(
        name,
        f"{COLUMNS}, {facts}, n BIGINT METADATA FROM 'record'",
        name=f"direct{seed}",
        slot=f"direct_{seed}",
        **most,
    )
    lab.kafka(
        f"sent{seed}", f"{COLUMNS}, {facts}, n BIGINT METADATA FROM 'offset'", servers=kafka.servers, topic=topic,
        primary_key=("id",), format="debezium-json", **{"change.decimals": "text"}, **most,
    )  # fmt: skip
    paths = {f"by_log{seed}": (f"direct{seed}", "line"), f"by_topic{seed}": (f"sent{seed}", "offset")}
    for table, (log, _) in paths.items():
        declare_merge(lab, f"SELECT id, name, score, bio FROM {log}", "id", "last_row", sequence="change", name=table)
    aside = 0
    try:
        for round_ in range(ROUNDS):
            changing.transactions(feeds * chance.randint(1, 4))
            changing.settle()
            records, case = slot.records(), (seed, round_)
            # A batch ends anywhere, also within a transaction.
            cut = chance.randint(0, len(records))
            for part in (records[:cut], records[cut:]):
                kafka.send(topic, part)
                refresh_through_crash(lab, f"by_topic{seed}", chance, POINTS, share=0.15, case=case)
            refresh_through_crash(lab, f"by_log{seed}", chance, POINTS, share=0.15, case=case)
            expected = changing.now()
            for table, (log, number) in paths.items():
                aside += require_rows(lab, table, log, number, expected, (*case, table))
            lab.clock.advance(minutes=1)
        for table in paths:
            assert lab.verify(table).equal, (seed, table)
        assert aside < 8 * feeds * ROUNDS
    finally:
        changing.settle()
        changing.close()


FEW, MANY = (1, 20), [(2, 400), (3, 800), (5, 800)]


@pytest.mark.parametrize(("seed", "feeds"), long_but([FEW], [FEW, *MANY]))
def test_random_feeds_give_the_rows_of_the_database_directly_and_through_debezium(
    lab, kafka, shop, monkeypatch, seed, feeds
):
    compare(lab, kafka, shop, monkeypatch, seed, feeds)
