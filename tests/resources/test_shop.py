"""The shop of `freshline demo --databases`: its writer knows the rows, and its comparison finds what differs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from resources.database import Database, new_database
from resources.shop_comparison import compare_commits, revenue
from resources.shop_writer import CUSTOMER, ORDER, Change, ShopWriter, Transaction, place, rows_after
from tests.postgres import require_programs

PLACES = (100, 200, 300)
CUSTOMERS = pa.schema(
    [("customer_id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("notes", pa.string())]
)
ORDERS = pa.schema(
    [("order_id", pa.int64()), ("customer_id", pa.int64()), ("amount", pa.decimal128(10, 2)), ("state", pa.string())]
)
REVENUE = pa.schema([("city", pa.string()), ("orders", pa.int64()), ("amount", pa.decimal128(20, 2))])
ALL = (
    Transaction(100, (Change(CUSTOMER, 1, ("a", "Bern", None)), Change(ORDER, 7, (1, Decimal("2.50"), "paid")))),
    Transaction(200, (Change(CUSTOMER, 1, ("a", "Espoo", None)), Change(CUSTOMER, 2, ("b", "Bern", "x")))),
    Transaction(300, (Change(CUSTOMER, 2, None), Change(ORDER, 8, (1, Decimal("-1.25"), "paid")))),
)


@pytest.fixture
def server() -> Iterator[Database]:
    database = new_database(require_programs())
    try:
        database.start()
        yield database
    finally:
        database.remove()


@pytest.mark.slow
def test_the_writer_knows_the_rows_of_the_database_whatever_is_killed(server: Database) -> None:
    writer = ShopWriter(server.connect, 3)
    writer.prepare()
    over = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        changing = threads.submit(writer.run, over)
        try:
            for _ in range(3):
                before = len(writer.transactions)
                while len(writer.transactions) < before + 15:
                    assert not changing.done(), changing.result()
                server.kill()
                server.start()
        finally:
            over.set()
        assert changing.result() == len(writer.transactions)
    *_, newest = rows_after(writer.transactions)
    assert newest == writer.stored()
    places = [transaction.before for transaction in writer.transactions]
    assert places == sorted(set(places))
    assert places[-1] < place(server.connect)
    writer.close()
    folder = server.folder
    server.remove()
    assert not folder.exists()
    server.folder.mkdir()


@pytest.mark.slow
def test_the_writer_ends_while_the_server_is_away(server: Database) -> None:
    writer = ShopWriter(server.connect, 4)
    writer.prepare()
    over = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        changing = threads.submit(writer.run, over)
        server.kill()
        over.set()
        # Between two transactions it ends as ever, within one it says that the server is away.
        with suppress(psycopg.OperationalError):
            changing.result(timeout=30)
    assert changing.done()
    writer.close()


@pytest.mark.slow
def test_a_server_that_is_back_when_the_writer_ends_is_asked_once_more(server: Database) -> None:
    over = threading.Event()
    away = threading.Event()

    def connect() -> psycopg.Connection[Any]:
        if away.is_set():
            away.clear()
            over.set()
            raise psycopg.OperationalError("the database system is not yet accepting connections")
        return server.connect()

    writer = ShopWriter(connect, 5)
    writer.prepare()
    server.kill()
    server.start()
    away.set()

    assert writer.run(over) == len(writer.transactions)
    assert not away.is_set()
    *_, newest = rows_after(writer.transactions)
    assert newest == writer.stored()
    writer.close()


def test_rows_follow_each_transaction() -> None:
    states = list(rows_after(ALL))

    assert [sorted(rows[CUSTOMER]) for rows in states] == [[], [1], [1, 2], [1]]
    assert revenue(states[1]) == {"Bern": (1, Decimal("2.50"))}
    assert revenue(states[3]) == {"Espoo": (2, Decimal("1.25"))}


class Tables:
    """Delta tables with the receipts of refreshes that read the transactions one by one."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        for number, rows in enumerate(rows_after(ALL)):
            if number:
                # Behind the commit of the transaction, and before the next.
                self.feed("customer_feed", number)
                self.feed("order_feed", number)
                self.write("customer", CUSTOMERS, [(key, *row) for key, row in rows[CUSTOMER].items()], "customer_feed")
                self.write("sale_order", ORDERS, [(key, *row) for key, row in rows[ORDER].items()], "order_feed")
                found = [(city, *row) for city, row in revenue(rows).items()]
                self.write("city_revenue", REVENUE, found, "customer", "sale_order")

    def feed(self, name: str, number: int) -> None:
        position = {"kind": "postgres", "lsn": f"0/{PLACES[number - 1] + 50:X}"}
        self._commit(name, pa.schema([("n", pa.int64())]), [(number,)], {name: position})

    def write(self, name: str, schema: pa.Schema, rows: Sequence[tuple[Any, ...]], *inputs: str) -> None:
        versions = {
            each: {"version": len(list((self.warehouse / each / "_delta_log").iterdir())) - 1} for each in inputs
        }
        self._commit(name, schema, rows, versions)

    def _commit(self, name: str, schema: pa.Schema, rows: Sequence[tuple[Any, ...]], positions: dict[str, Any]) -> None:
        columns = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(schema)]
        said = {"userMetadata": json.dumps({"positions": positions})}
        table = pa.Table.from_arrays(columns, schema=schema)
        write_deltalake(
            self.warehouse / name, table, mode="overwrite", commit_properties=CommitProperties(custom_metadata=said)
        )


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables(tmp_path)


def test_commits_with_the_rows_of_their_places_are_equal(tables: Tables) -> None:
    compared = compare_commits(tables.warehouse, ALL)

    assert compared.equal
    assert compared.commits == {"customer": 3, "sale_order": 3, "city_revenue": 3}


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("table", "schema", "rows", "said"),
    [
        ("customer", CUSTOMERS, [], "version 3 of customer has 1: [] instead of [('a', 'Espoo', None)]"),
        (
            "customer",
            CUSTOMERS,
            [(1, "a", "Espoo", "y")] * 2,
            "version 3 of customer has 1: [('a', 'Espoo', 'y'), ('a', 'Espoo', 'y')] instead of [('a', 'Espoo', None)]",
        ),
        (
            "customer",
            CUSTOMERS,
            [(1, "a", "Espoo", ""), (2, "b", "Bern", "x")],
            "version 3 of customer has 1: [('a', 'Espoo', '')] instead of [('a', 'Espoo', None)], and 1 more",
        ),
        (
            "sale_order",
            ORDERS,
            [(7, 1, Decimal("2.50"), "paid"), (8, 1, Decimal("1.25"), "paid")],
            "version 3 of sale_order has 8: [(1, Decimal('1.25'), 'paid')] instead of [(1, Decimal('-1.25'), 'paid')]",
        ),
    ],
)
def test_a_commit_that_differs_is_named(
    tables: Tables, table: str, schema: pa.Schema, rows: list[tuple[Any, ...]], said: str
) -> None:
    tables.write(table, schema, rows, {"customer": "customer_feed", "sale_order": "order_feed"}[table])

    compared = compare_commits(tables.warehouse, ALL)

    assert not compared.equal
    assert compared.differences == (said,)


def test_a_commit_over_an_input_that_nothing_was_read_into_is_named(tables: Tables) -> None:
    # The version that CREATE makes has no receipt.
    for version in range(2):
        file = tables.warehouse / "customer" / "_delta_log" / f"{version:020d}.json"
        file.write_text(file.read_text().replace("userMetadata", "engineInfo"))

    compared = compare_commits(tables.warehouse, ALL)

    assert not compared.equal
    assert compared.differences == tuple(
        f"version {version} of city_revenue reads customer at a version that no refresh made" for version in range(2)
    )


def test_a_table_without_a_commit_is_not_equal(tables: Tables) -> None:
    for file in (tables.warehouse / "city_revenue" / "_delta_log").iterdir():
        file.unlink()

    assert not compare_commits(tables.warehouse, ALL).equal
