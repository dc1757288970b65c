"""Databases of a real Postgres server, and tables that change all the time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import psycopg

if TYPE_CHECKING:
    from freshline.testing import Lab
    from tests.postgres import PostgresServer


class Database:
    """A new database of a server. `url` is its connection string, which tests put into the variable SHOP_URL."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        _, _, place = server.new_database().partition("://")
        self.url = f"postgresql://{place}"
        self.name = place.rpartition("?")[0].rpartition("/")[2]
        self.slot = f"slot_{self.name}"
        self._connection: psycopg.Connection[Any] | None = None

    @property
    def connection(self) -> psycopg.Connection[Any]:
        """A connection that commits each statement."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True)
        return self._connection

    def forget(self) -> None:
        """The server was started again: let go of the connection to its last life."""
        if self._connection is not None:
            self._connection.close()

    def sql(self, statements: str) -> None:
        """Run statements; several are one transaction."""
        self.connection.execute(statements.encode())

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        return self.connection.execute(query.encode()).fetchall()

    def confirmed(self) -> str | None:
        """The place from which the slot of the source gives changes, None without a slot."""
        query = f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        return next((row[0] for row in self.ask(query)), None)

    def close(self) -> None:
        """Let the server forget the slots of this database."""
        self.sql(
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE database = '{self.name}' AND NOT active"
        )
        self.connection.close()


class Shop(Database):
    """A database whose tables are declared as sources of a Lab."""

    def __init__(self, lab: Lab, server: PostgresServer) -> None:
        super().__init__(server)
        self.lab = lab

    def declare(
        self, table: str, columns: str, *, name: str = "feed", key: Sequence[str] = ("id",), **options: str
    ) -> None:
        """Declare a source; `options` are those of WITH, with `_` for `-`."""
        written = {option.replace("_", "-"): value for option, value in options.items()}
        given = {"connector": "postgres", "url": "${env:SHOP_URL}", "table": table, "slot": self.slot, **written}
        pairs = ", ".join(f"'{option}' = '{value}'" for option, value in given.items())
        self.lab.declare(f"CREATE SOURCE {name} ({columns}, PRIMARY KEY ({', '.join(key)})) WITH ({pairs})")


Rows = dict[int, tuple[Any, ...]]


class ChangingTable:
    """A table of which random transactions change rows, some of them open at the same time.

    Large values stay out of line, so that the database does not send them with an update that leaves them. `rows` are
    those of the table at a place in the database's log: of all transactions whose commit is before it.
    """

    def __init__(self, chance: random.Random, url: str, name: str = "thing") -> None:
        self.name = name
        self._chance = chance
        # Each has keys of its own, so that none waits for the other.
        self._writers = [(psycopg.connect(url), 0), (psycopg.connect(url), 100)]
        self._watch = psycopg.connect(url, autocommit=True)
        self._watch.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY, name TEXT, score NUMERIC(8,2), bio TEXT)".encode()
        )
        self._watch.execute(f"ALTER TABLE {name} ALTER COLUMN bio SET STORAGE EXTERNAL".encode())
        # Only then is a large value there in the insert of a key change that left it.
        self._is_full = chance.random() < 0.5
        if self._is_full:
            self._watch.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL".encode())
        self._states: list[tuple[int, Rows]] = []
        self._note(0)

    def transactions(self, number: int) -> None:
        """Make changes that end with so many transactions, and perhaps with one that is left open."""
        done = 0
        while done < number:
            writer, first = self._chance.choice(self._writers)
            for _ in range(self._chance.randint(1, 4)):
                self._change(writer, first)
            if self._chance.random() < 0.6:
                self._end(writer)
                done += 1

    def settle(self) -> None:
        """End the transactions that are open."""
        for writer, _ in self._writers:
            self._end(writer)

    def rows(self, at: int) -> Rows:
        return next(rows for begin, rows in reversed(self._states) if begin < at)

    def now(self) -> Rows:
        """The rows after the newest transaction."""
        return self._states[-1][1]

    def close(self) -> None:
        for writer, _ in self._writers:
            writer.close()
        self._watch.close()

    def _end(self, writer: psycopg.Connection[Any]) -> None:
        if self._chance.random() < 0.15:
            writer.rollback()
            return
        row = writer.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint").fetchone()
        assert row is not None
        writer.commit()
        self._note(row[0])

    def _note(self, begin: int) -> None:
        """The table as it is; its newest commit is behind this place."""
        rows = self._watch.execute(f"SELECT id, name, score, bio FROM {self.name}".encode()).fetchall()
        self._states.append((begin, {row[0]: tuple(row[1:]) for row in rows}))

    def _change(self, writer: psycopg.Connection[Any], first: int) -> None:
        chance, name = self._chance, self.name
        one, two = first + chance.randint(1, 8), first + chance.randint(1, 8)
        kind = chance.random()
        # So that there is a transaction, in which what follows is a savepoint.
        writer.execute("SELECT 1")
        with writer.transaction(force_rollback=chance.random() < 0.1):
            if kind < 0.35:
                insert = f"INSERT INTO {name} VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING"
                writer.execute(insert.encode(), (one, self._text(), chance.choice([None, 1, 2.5]), self._bio()))
            elif kind < 0.6:
                writer.execute(f"UPDATE {name} SET name = %s WHERE id = %s".encode(), (self._text(), one))
            elif kind < 0.7:
                writer.execute(f"UPDATE {name} SET bio = %s WHERE id = %s".encode(), (self._bio(), one))
            elif kind < 0.82:
                writer.execute(f"DELETE FROM {name} WHERE id = %s".encode(), (one,))
            elif kind < 0.95:
                # The key changes, where the other one is free.
                bio = "bio" if self._is_full else "'moved'"
                move = f"UPDATE {name} SET id = %s, bio = {bio} WHERE id = %s "
                move += f"AND NOT EXISTS (SELECT 1 FROM {name} WHERE id = %s)"
                writer.execute(move.encode(), (two, one, two))
            elif self._are_idle(but=writer):
                writer.execute(f"TRUNCATE {name}".encode())
        if kind >= 0.95:
            # A TRUNCATE keeps everybody else out until it ends.
            self._end(writer)

    def _are_idle(self, *, but: psycopg.Connection[Any]) -> bool:
        """Whether nobody else has a transaction open, whose end a TRUNCATE would wait for."""
        idle = psycopg.pq.TransactionStatus.IDLE
        return all(writer.info.transaction_status == idle for writer, _ in self._writers if writer is not but)

    def _text(self) -> str | None:
        return self._chance.choice([None, "", "a\tb\\N\n", "ü", "plain"])

    def _bio(self) -> str | None:
        return self._chance.choice([None, "short", f"{self._chance.random()}" * 150])
