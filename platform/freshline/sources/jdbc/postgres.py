"""Postgres, asked by queries: COPY brings its rows one by one, in one transaction that only reads."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from freshline.compute.cancellation import Cancellation
from freshline.sources.databases.postgres_connection import PostgresConnection, TypeCatalog, cancels
from freshline.sources.databases.postgres_values import DatabaseType, accepted_types, copy_fields, value_reader
from freshline.sources.jdbc.connector import Jdbc, Name
from freshline.sources.jdbc.database import Row, Since
from freshline.sources.jdbc.facts import FoundColumn, FoundTable, GrowingKind, JdbcServerFacts, Read, TablePart
from freshline.sources.jdbc.key_texts import format_key
from freshline.sources.lookups.deadline import ended_after

_SERVER = """
SELECT (SELECT system_identifier FROM pg_control_system())::text, current_database()::text, pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
       ELSE ('x' || left(pg_walfile_name(pg_current_wal_flush_lsn()), 8))::bit(32)::int END, now(),
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE (pg_current_wal_flush_lsn() - '0/0'::pg_lsn)::bigint END,
       pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint
FROM pg_current_snapshot() AS s
"""
_TABLE = """
SELECT c.oid::bigint, c.relkind::text, has_table_privilege(c.oid, 'SELECT'),
  (SELECT json_agg(json_build_array(attname, atttypid::bigint, attnotnull) ORDER BY attnum)
   FROM pg_attribute a WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
  (SELECT json_agg((SELECT json_agg(attname ORDER BY attnum) FROM pg_attribute
      WHERE attrelid = c.oid AND attnum = ANY ((indkey::int2[])[0 : indnkeyatts - 1])))
   FROM pg_index WHERE indrelid = c.oid AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relname = %s
"""
# Tables, partitioned ones, views, materialized views and foreign tables; what has rows of its own has xmin.
_KINDS, _HAVE_XMIN, _LOCKED = "rpvmf", "rpm", "rpv"
_GROWING = {
    "int2": (GrowingKind.NUMBER, -(1 << 15)),
    "int4": (GrowingKind.NUMBER, -(1 << 31)),
    "int8": (GrowingKind.NUMBER, -(1 << 63)),
    "numeric": (GrowingKind.NUMBER, None),
    "date": (GrowingKind.DATE, None),
    "timestamp": (GrowingKind.TIME, None),
    "timestamptz": (GrowingKind.TIME, None),
}


@dataclass(frozen=True)
class PostgresType:
    """A type of a column of Postgres."""

    of: DatabaseType

    @property
    def shown(self) -> str:
        return f"{self.of.element.name}[]" if self.of.element is not None else self.of.name

    @property
    def growing(self) -> GrowingKind | None:
        return _GROWING.get(self.shown, (None, None))[0]

    @property
    def least(self) -> int | None:
        return _GROWING.get(self.shown, (None, None))[1]

    def reader(self, declared: str) -> Read | None:
        return value_reader(declared, self.of)

    def accepted(self) -> str:
        return accepted_types(self.of)


class PostgresDatabase:
    """A database of Postgres, for one source."""

    def __init__(self, declared: Jdbc, where: str) -> None:
        self._schema = "public" if declared.schema is None else _folded(declared.schema)
        self._table = _folded(declared.table)
        self._connection = PostgresConnection(declared, "freshline", where)
        self._types = TypeCatalog()

    def close(self) -> None:
        self._connection.close()

    def inspect(self, url: str) -> tuple[JdbcServerFacts, FoundTable | None]:
        with self._connection.asking(url) as connection:
            return _server(connection), self._find_table(connection)

    @contextmanager
    def reading(self, url: str, table: FoundTable, cancellation: Cancellation) -> Iterator[PostgresSession]:
        with self._connection.explained(), self._connection.connect(url) as connection:
            with cancels(cancellation, connection):
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                if table.is_locked:
                    # Before the snapshot is taken: a TRUNCATE empties a table for older snapshots too.
                    name = sql.Identifier(self._schema, self._table)
                    connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(name))
                server, found = _server(connection), self._find_table(connection)
            yield PostgresSession(connection, server, found, cancellation)

    def ask_keys(
        self, url: str, asked: TablePart, keys: Sequence[Sequence[Any]], seconds: float
    ) -> list[tuple[int, Sequence[bytes | None]]]:
        used: list[psycopg.Connection[Any]] = []

        def sent_over() -> socket.socket | None:
            # A copy: closing it leaves the connection as it is.
            return socket.socket(fileno=os.dup(used[0].fileno())) if used and not used[0].closed else None

        # Texts of Postgres have no zero, so nothing is found by such a key.
        numbered = [(number, key) for number, key in enumerate(keys) if not any("\0" in str(value) for value in key)]
        if not numbered:
            return []
        with ended_after(seconds, sent_over), self._connection.asking(url) as connection:
            used.append(connection)
            with connection.cursor().copy(_keys_statement(asked, numbered)) as copy:
                rows = [copy_fields(bytes(block)) for block in copy]
        return [(int(row[0] or b""), row[1:]) for row in rows]

    def _find_table(self, connection: psycopg.Connection[Any]) -> FoundTable | None:
        row = connection.execute(_TABLE, (self._schema, self._table)).fetchone()
        if row is None:
            return None
        oid, kind, may_select, columns, indexes = row
        name = f"{self._schema}.{self._table}"
        statement_name = sql.Identifier(self._schema, self._table).as_string(connection)
        types = self._types.find(connection, {type_id for _, type_id, _ in columns or ()})
        found = tuple(
            FoundColumn(column, PostgresType(types.get(type_id, DatabaseType("unknown"))), not is_not_null)
            for column, type_id, is_not_null in columns or ()
        )
        problem = ""
        if kind not in _KINDS:
            problem = f"{name} is no table and no view. Name one in `table`."
        elif not may_select:
            problem = (
                f"the user of the connection may not read {name}. Run: GRANT SELECT ON {statement_name} TO its user."
            )
        unique = tuple(tuple(each) for each in indexes or ())
        return FoundTable(
            str(oid) if kind in _HAVE_XMIN else "",
            name,
            statement_name,
            found,
            unique,
            problem,
            has_xmin=kind in _HAVE_XMIN,
            is_locked=kind in _LOCKED,
        )


class PostgresSession:
    """A transaction of Postgres that only reads."""

    def __init__(
        self,
        connection: psycopg.Connection[Any],
        server: JdbcServerFacts,
        table: FoundTable | None,
        cancellation: Cancellation,
    ) -> None:
        self.server = server
        self.table = table
        self._connection = connection
        self._cancellation = cancellation

    @contextmanager
    def rows(self, asked: TablePart, since: Since | None) -> Iterator[Iterator[Row]]:
        statement = _statement(asked, since, self.server)
        with cancels(self._cancellation, self._connection), self._connection.cursor().copy(statement) as copy:
            yield ((line := bytes(block), copy_fields(line)) for block in copy)


def _server(connection: psycopg.Connection[Any]) -> JdbcServerFacts:
    row = connection.execute(_SERVER).fetchone()
    assert row is not None
    system, database, is_standby, timeline, now, place, oldest, next_ = row
    if is_standby:
        # A standby gives no numbers to transactions, and may be behind another one.
        return JdbcServerFacts(system, timeline, database, now)
    return JdbcServerFacts(system, timeline, database, now, place, oldest, next_)


def _statement(asked: TablePart, since: Since | None, server: JdbcServerFacts) -> sql.Composed:
    columns = [sql.Identifier(column.found.name) for column in asked.columns]
    conditions: list[sql.Composable] = []
    if asked.growing is not None and asked.growing.column is not None:
        growing = sql.Identifier(asked.growing.column.name)
        columns.append(growing)
        if since is not None:
            condition = sql.SQL("{} >= {}").format(growing, sql.Literal(since.value))
            is_null = sql.SQL("({} OR {} IS NULL)").format(condition, growing)
            conditions.append(is_null if asked.growing.column.is_nullable else condition)
    elif since is not None:
        assert server.next is not None
        conditions.append(sql.SQL(xmin_condition(int(since.value), server.next)))
    if asked.where is not None:
        # On lines of its own, because it may end with a comment.
        conditions.append(sql.SQL("(\n{}\n)").format(sql.SQL(asked.where)))
    where = sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(conditions)) if conditions else sql.SQL("")
    return sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT").format(
        sql.SQL(", ").join(columns), sql.SQL(asked.table.statement_name), where
    )


def _keys_statement(asked: TablePart, keys: Sequence[tuple[int, Sequence[Any]]]) -> sql.Composed:
    others = [sql.SQL(", {}").format(sql.Identifier(each.found.name)) for each in asked.columns if not each.is_key]
    by_name = [each for each in asked.columns if each.is_key]
    where = sql.SQL("") if asked.where is None else sql.SQL(" AND (\n{}\n)").format(sql.SQL(asked.where))
    parts = []
    for number, key in keys:
        equal = [
            sql.SQL("{} = {}").format(sql.Identifier(column.found.name), _literal(value))
            for column, value in zip(by_name, key, strict=True)
        ]
        select = sql.SQL("SELECT {}{} FROM {} WHERE {}{}")
        table = sql.SQL(asked.table.statement_name)
        parts.append(
            select.format(sql.Literal(number), sql.SQL("").join(others), table, sql.SQL(" AND ").join(equal), where)
        )
    return sql.SQL("COPY ({}) TO STDOUT").format(sql.SQL(" UNION ALL ").join(parts))


def _literal(value: Any) -> sql.Composable:
    """A value as a constant without a type, which takes that of the column it is compared with."""
    return sql.Literal(value if isinstance(value, bool | str) else format_key(value))


def xmin_condition(first: int, next_: int) -> str:
    """The condition of rows that transactions from the number `first` on wrote, when `next_` is the next number.

    A row has the lower 32 bits of the number alone, and `next_` is at most 2**31 behind `first`. Older rows may match
    the condition too.

    >>> xmin_condition(1000, 1200)
    '(xmin::text::bigint BETWEEN 1000 AND 1200)'
    >>> xmin_condition((1 << 32) - 10, (1 << 32) + 5)
    '(xmin::text::bigint >= 4294967286 OR xmin::text::bigint BETWEEN 3 AND 5)'
    """
    size = 1 << 32
    low, high = first % size, next_ % size
    if first // size == next_ // size:
        return f"(xmin::text::bigint BETWEEN {low} AND {high})"
    # Numbers below 3 are of rows that are older than all numbers.
    return f"(xmin::text::bigint >= {low} OR xmin::text::bigint BETWEEN 3 AND {high})"


def _folded(name: Name) -> str:
    """A name as the catalog has it: without quotes it is in lower case."""
    return name.text if name.is_quoted else name.text.lower()
