"""A shop whose customers and orders change all the time in a database, and what its tables must have at any place.

Each transaction changes some rows of both tables: new ones, updates that leave a large value as it is, keys that
change, deletes, and some that are rolled back. The writer keeps the rows in plain Python, without asking the database,
and so knows them after each transaction. A transaction whose commit was not answered, because the server was killed, is
searched for when the server is there again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from threading import Event, Lock
from typing import Any

import psycopg

CUSTOMERS, ORDERS = 200, 600
TRANSACTIONS_A_SECOND = 20.0
_CITIES = ("Aachen", "Bern", "Córdoba", "Đà Nẵng", "Espoo", "東京")
_STATES = ("open", "paid", "sent", None)
_AWAY_SECONDS = 0.1

Key = int
Values = tuple[Any, ...]
Rows = Mapping[str, Mapping[Key, Values]]
"""Rows by table and key; the values are those of the columns behind the key."""

CUSTOMER, ORDER = "customer", "sale_order"
COLUMNS = {CUSTOMER: ("customer_id", "name", "city", "notes"), ORDER: ("order_id", "customer_id", "amount", "state")}
_TABLES = f"""
CREATE TABLE {CUSTOMER} (customer_id BIGINT PRIMARY KEY, name TEXT, city TEXT, notes TEXT);
ALTER TABLE {CUSTOMER} ALTER COLUMN notes SET STORAGE EXTERNAL;
CREATE TABLE {ORDER} (order_id BIGINT PRIMARY KEY, customer_id BIGINT, amount NUMERIC(10,2), state TEXT);
CREATE TABLE shop_transaction (number BIGINT PRIMARY KEY);
"""


@dataclass(frozen=True)
class Change:
    """One row that a transaction left; `values` is None where it took the row away."""

    table: str
    key: Key
    values: Values | None


@dataclass(frozen=True)
class Transaction:
    """The changes of one transaction. `before` is a place in the log of the database in front of its commit."""

    before: int
    changes: tuple[Change, ...]


@dataclass
class _Draft:
    """A transaction that is not committed yet; rows are those that it sees."""

    rows: dict[str, dict[Key, Values]]
    changes: list[Change] = field(default_factory=list)

    def put(self, table: str, key: Key, values: Values | None) -> None:
        self.changes.append(Change(table, key, values))
        if values is None:
            self.rows[table].pop(key, None)
        else:
            self.rows[table][key] = values


class ShopWriter:
    """The writer of one database. `connect` raises psycopg.OperationalError while the server is away."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]], seed: int) -> None:
        self._connect = connect
        self._chance = Random(seed)
        self._connection: psycopg.Connection[Any] | None = None
        self._transactions: list[Transaction] = []
        self._rows: dict[str, dict[Key, Values]] = {CUSTOMER: {}, ORDER: {}}
        self._next = {CUSTOMER: 1, ORDER: 1}
        self._before = 0  # the place of the newest try to commit
        self._lock = Lock()
        self._over = Event()

    def prepare(self) -> None:
        """Make the tables, with the first customers and orders."""
        connection = self._connected()
        connection.execute(_TABLES.encode())
        connection.commit()
        draft = self._draft()
        for _ in range(CUSTOMERS):
            self._new_customer(connection, draft)
        for _ in range(ORDERS):
            self._new_order(connection, draft)
        self._commit(connection, draft)

    def run(self, until: Event) -> int:
        """Change rows until `until` is set; returns how many transactions were committed.

        Raises psycopg.OperationalError where the server is away then.
        """
        self._over = until
        while not until.wait(self._chance.expovariate(TRANSACTIONS_A_SECOND)):
            self._transaction()
        return len(self.transactions)

    @property
    def transactions(self) -> tuple[Transaction, ...]:
        """Those that were committed, in the order of their commits."""
        with self._lock:
            return tuple(self._transactions)

    def stored(self) -> Rows:
        """The rows that the database has now."""
        connection = self._connected()
        found = {}
        for table, columns in COLUMNS.items():
            rows = connection.execute(f"SELECT {', '.join(columns)} FROM {table}".encode()).fetchall()
            found[table] = {row[0]: tuple(row[1:]) for row in rows}
        connection.commit()
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _transaction(self) -> None:
        connection, draft = self._connected(), self._draft()
        number = len(self._transactions)
        try:
            for _ in range(self._chance.randint(1, 4)):
                self._chance.choice(self._KINDS)(self, connection, draft)
            if self._chance.random() < 0.05:
                connection.rollback()
            else:
                self._commit(connection, draft)
        except psycopg.OperationalError:
            # Its commit may have been the last that the server did.
            self._reconnect()
            if self._known() > number:
                self._keep(draft, self._before)

    def _commit(self, connection: psycopg.Connection[Any], draft: _Draft) -> None:
        connection.execute("INSERT INTO shop_transaction VALUES (%s)", (len(self._transactions) + 1,))
        self._before = _place_of(connection)
        connection.commit()
        self._keep(draft, self._before)

    def _keep(self, draft: _Draft, before: int) -> None:
        self._rows = draft.rows
        with self._lock:
            self._transactions.append(Transaction(before, tuple(draft.changes)))

    def _draft(self) -> _Draft:
        return _Draft({table: dict(rows) for table, rows in self._rows.items()})

    def _connected(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._reconnect()
        assert self._connection is not None
        return self._connection

    def _reconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        while True:
            # A try that began before the end may have failed at a server that is back by now.
            over = self._over.is_set()
            try:
                self._connection = self._connect()
                return
            except psycopg.OperationalError:
                if over:
                    raise
                self._over.wait(_AWAY_SECONDS)

    def _known(self) -> int:
        """The number of the newest transaction that the database has."""
        while True:
            try:
                row = self._connected().execute("SELECT max(number) FROM shop_transaction").fetchone()
                self._connected().commit()
            except psycopg.OperationalError:
                self._reconnect()
                continue
            assert row is not None
            return int(row[0])

    # -- kinds of changes

    def _new_customer(self, connection: psycopg.Connection[Any], draft: _Draft) -> None:
        key, self._next[CUSTOMER] = self._next[CUSTOMER], self._next[CUSTOMER] + 1
        notes = self._chance.choice((None, "", "short", f"{self._chance.random()} \\N\t\n" * 300))
        values = (f"name {self._chance.randint(1, 99)} 'ü'", self._chance.choice(_CITIES), notes)
        connection.execute(f"INSERT INTO {CUSTOMER} VALUES (%s, %s, %s, %s)".encode(), (key, *values))
        draft.put(CUSTOMER, key, values)

    def _new_order(self, connection: psycopg.Connection[Any], draft: _Draft) -> None:
        key, self._next[ORDER] = self._next[ORDER], self._next[ORDER] + 1
        # Some are of customers that are gone, or not there yet.
        customer = self._chance.randint(1, self._next[CUSTOMER] + 3)
        values = (customer, Decimal(self._chance.randint(-500, 100_000)) / 100, self._chance.choice(_STATES))
        connection.execute(f"INSERT INTO {ORDER} VALUES (%s, %s, %s, %s)".encode(), (key, *values))
        draft.put(ORDER, key, values)

    def _move(self, connection: psycopg.Connection[Any], draft: _Draft) -> None:
        key = self._any(draft, CUSTOMER)
        name, _, notes = draft.rows[CUSTOMER][key]
        city = self._chance.choice(_CITIES)
        connection.execute(f"UPDATE {CUSTOMER} SET city = %s WHERE customer_id = %s".encode(), (city, key))
        draft.put(CUSTOMER, key, (name, city, notes))

    def _other_key(self, connection: psycopg.Connection[Any], draft: _Draft) -> None:
        key = self._any(draft, CUSTOMER)
        new, self._next[CUSTOMER] = self._next[CUSTOMER], self._next[CUSTOMER] + 1
        name, city, _ = draft.rows[CUSTOMER][key]
        # With its large value: the database does not send one that stays, and nobody knows it by the new key.
        statement = f"UPDATE {CUSTOMER} SET customer_id = %s, notes = 'moved' WHERE customer_id = %s"
        connection.execute(statement.encode(), (new, key))
        draft.put(CUSTOMER, key, None)
        draft.put(CUSTOMER, new, (name, city, "moved"))

    def _change_order(self, connection: psycopg.Connection[Any], draft: _Draft) -> None:
        key = self._any(draft, ORDER)
        customer, amount, _ = draft.rows[ORDER][key]
        state = self._chance.choice(_STATES)
        connection.execute(f"UPDATE {ORDER} SET state = %s WHERE order_id = %s".encode(), (state, key))
        draft.put(ORDER, key, (customer, amount, state))

    def _delete(self, connection: psycopg.Connection[Any], draft: _Draft) -> None:
        table = self._chance.choice((CUSTOMER, ORDER))
        key = self._any(draft, table)
        connection.execute(f"DELETE FROM {table} WHERE {COLUMNS[table][0]} = %s".encode(), (key,))
        draft.put(table, key, None)

    def _any(self, draft: _Draft, table: str) -> Key:
        return self._chance.choice(list(draft.rows[table]))

    _KINDS = (_new_customer, _new_order, _new_order, _move, _move, _other_key, _change_order, _change_order, _delete)


def rows_after(transactions: Iterable[Transaction]) -> Iterator[Rows]:
    """The rows before the first of these transactions, and then after each; what was given before changes no more."""
    rows: dict[str, dict[Key, Values]] = {table: {} for table in COLUMNS}
    yield rows
    for transaction in transactions:
        rows = {table: dict(found) for table, found in rows.items()}
        for change in transaction.changes:
            if change.values is None:
                rows[change.table].pop(change.key, None)
            else:
                rows[change.table][change.key] = change.values
        yield rows


def place(connect: Callable[[], psycopg.Connection[Any]]) -> int:
    """A place in the log of a database behind all that was committed."""
    with connect() as connection:
        return _place_of(connection)


def _place_of(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
    assert row is not None
    return int(row[0])
