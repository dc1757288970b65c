"""Databases of a real Postgres server, and tables that change all the time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
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
        """Drop the connection, after the server was started again."""
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
# The changes in a slot, which it forgets; slot and publication have one name.
CHANGES = (
    "SELECT (lsn - '0/0'::pg_lsn)::bigint, data FROM pg_logical_slot_get_binary_changes("
    "%(name)s::text::name, NULL, NULL, 'proto_version', '1', 'publication_names', %(name)s::text)"
)
# More characters than a row that is not too large has.
LARGE = 15_000


def fits(row: tuple[Any, ...] | None) -> bool:
    """Whether a row of a ChangingTable with `unfit` values can be stored as it is."""
    if row is None:
        return True
    _, score, bio = row
    if bio is not None and len(bio) > LARGE:
        return False
    return score is None or (score.is_finite() and score == round(score, 2) and abs(score) < 10**6)


class ChangingTable:
    """A table of which random transactions change rows, some of them open at the same time.

    Large values stay out of line, so that the database does not send them with an update that leaves them. `rows` are
    those of the table at a place in the database's log: of all transactions whose commit is before it.

    With `feeds` above 1 there are so many sets of keys, and each transaction is of one of them; then `now` alone gives
    rows. The keys of a `deferrable` table are checked when a transaction ends, and change places within it. `unfit`
    ones get values that do not fit `DECIMAL(8,2)`, and some of more than `LARGE` characters.
    """

    def __init__(
        self,
        chance: random.Random,
        url: str,
        name: str = "thing",
        *,
        feeds: int = 1,
        deferrable: bool = False,
        unfit: bool = False,
    ) -> None:
        self.name = name
        self._chance = chance
        self._feeds, self._is_deferrable, self._is_unfit = feeds, deferrable, unfit
        # The set of keys of the transaction that a writer has open.
        self._set: dict[int, int] = {}
        # Each has keys of its own, so that none waits for the other.
        self._writers = [(psycopg.connect(url), 0), (psycopg.connect(url), 100)]
        self._watch = psycopg.connect(url, autocommit=True)
        self._watch.execute(
            f"CREATE TABLE {name} (id INT PRIMARY KEY {'DEFERRABLE INITIALLY DEFERRED' if deferrable else ''}, "
            f"name TEXT, score {'NUMERIC' if unfit else 'NUMERIC(8,2)'}, bio TEXT)".encode()
        )
        self._watch.execute(f"ALTER TABLE {name} ALTER COLUMN bio SET STORAGE EXTERNAL".encode())
        # Only then is a large value there in the insert of a key change that left it.
        self._is_full = deferrable or chance.random() < 0.5
        if self._is_full:
            self._watch.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL".encode())
        self._states: list[tuple[int, Rows]] = []
        self._note(0)

    def transactions(self, number: int) -> None:
        """Make changes that end with so many transactions, and perhaps with one that is left open."""
        done = 0
        while done < number:
            writer, first = self._chance.choice(self._writers)
            if self._feeds > 1:
                if writer.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                    self._set[first] = self._chance.randrange(self._feeds)
                first += 200 * self._set[first]
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
        return self._states[-1][1] if self._feeds == 1 else self._rows()

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
        try:
            writer.commit()
        except psycopg.errors.UniqueViolation:
            # Two rows have one key at the end, and all of it is undone.
            return
        self._note(row[0])

    def _note(self, begin: int) -> None:
        """The table as it is; its newest commit is behind this place."""
        if self._feeds == 1:
            self._states.append((begin, self._rows()))

    def _rows(self) -> Rows:
        rows = self._watch.execute(f"SELECT id, name, score, bio FROM {self.name}".encode()).fetchall()
        return {row[0]: tuple(row[1:]) for row in rows}

    def _change(self, writer: psycopg.Connection[Any], first: int) -> None:
        chance, name = self._chance, self.name
        one, two = first + chance.randint(1, 8), first + chance.randint(1, 8)
        kind = chance.random()
        # So that there is a transaction, in which what follows is a savepoint.
        writer.execute("SELECT 1")
        if self._is_deferrable and chance.random() < 0.35:
            with writer.transaction(force_rollback=chance.random() < 0.1):
                self._change_places(writer, first, one, two)
            return
        with writer.transaction(force_rollback=chance.random() < 0.1):
            if kind < 0.35:
                # ON CONFLICT asks for keys that are checked at once.
                insert = f"INSERT INTO {name} SELECT %s, %s, %s, %s WHERE NOT EXISTS (SELECT FROM {name} WHERE id = %s)"
                writer.execute(insert.encode(), (one, self._text(), self._score(), self._bio(), one))
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
                # Not while keys wait to be checked.
                with suppress(psycopg.errors.ObjectInUse), writer.transaction():
                    writer.execute(f"TRUNCATE {name}".encode())
        if kind >= 0.95:
            # A TRUNCATE keeps everybody else out until it ends.
            self._end(writer)

    def _change_places(self, writer: psycopg.Connection[Any], first: int, one: int, two: int) -> None:
        """Statements of which one gives a row the key of another, and one resolves that, mostly."""
        chance, name = self._chance, self.name
        # Of two rows with one key, the one that came first or last.
        which, other = chance.choice(["min", "max"]), chance.choice(["min", "max"])
        at = f"SELECT {which}(ctid) FROM {name} WHERE id = {one}"
        other_at = f"SELECT {other}(ctid) FROM {name} WHERE id = {one}"
        within = f"id BETWEEN {first + 1} AND {first + 8}"
        insert = f"INSERT INTO {name} VALUES ({one}, '{chance.choice('abc')}', 1, NULL)"
        up = f"UPDATE {name} SET id = id + 1 WHERE {within}"
        down = f"UPDATE {name} SET id = id - 1 WHERE id BETWEEN {first + 2} AND {first + 9}"
        change_one = f"UPDATE {name} SET name = 'beside', score = 2 WHERE id = {one} AND ctid = ({at})"
        keep_one = f"DELETE FROM {name} WHERE id = {one} AND ctid <> ({other_at})"
        take, leave = f"UPDATE {name} SET id = {one} WHERE id = {two}", f"DELETE FROM {name} WHERE ctid = ({at})"
        ways = (
            [f"UPDATE {name} SET id = {one + two} - id WHERE id IN ({one}, {two})"],
            [f"UPDATE {name} SET id = {first + 1} + (id - {first}) % 8 WHERE {within}"],
            [f"UPDATE {name} SET id = {2 * first + 9} - id WHERE {within}"],
            [f"DELETE FROM {name} WHERE id = {first + 8}", up],
            [up, down],
            [insert, keep_one],
            [insert, change_one, keep_one],
            [take, leave],
        )
        for statement in chance.choice(ways):
            writer.execute(statement.encode())

    def _score(self) -> Any:
        unfit: list[Any] = [12_345_678.5, 1.234, "NaN"] if self._is_unfit and self._chance.random() < 0.15 else []
        return self._chance.choice(unfit or [None, 1, 2.5])

    def _are_idle(self, *, but: psycopg.Connection[Any]) -> bool:
        """Whether nobody else has a transaction open, whose end a TRUNCATE would wait for."""
        idle = psycopg.pq.TransactionStatus.IDLE
        return all(writer.info.transaction_status == idle for writer, _ in self._writers if writer is not but)

    def _text(self) -> str | None:
        return self._chance.choice([None, "", "a\tb\\N\n", "ü", "plain"])

    def _bio(self) -> str | None:
        if self._is_unfit and self._chance.random() < 0.1:
            return "z" * (LARGE + 1)
        return self._chance.choice([None, "short", f"{self._chance.random()}" * 150])
