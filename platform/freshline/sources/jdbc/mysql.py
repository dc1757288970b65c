"""MySQL and MariaDB, asked by queries: rows come one by one, in one transaction that only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pymysql.cursors import SSCursor

from freshline.compute.cancellation import Cancellation
from freshline.sources.databases.mysql_connection import MysqlConnection, unread
from freshline.sources.databases.mysql_values import MysqlType, accepted_types, value_reader
from freshline.sources.jdbc.connector import Jdbc
from freshline.sources.jdbc.database import Row, Since
from freshline.sources.jdbc.facts import (
    FoundColumn,
    FoundTable,
    GrowingKind,
    JdbcColumn,
    JdbcServerFacts,
    Read,
    TablePart,
)
from freshline.sources.jdbc.key_texts import format_key
from freshline.sources.lookups.deadline import ended_after
from freshline.values.names import quoted

# MySQL names itself by the one, MariaDB by the other.
_SYSTEM = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('server_uuid', 'server_uid')"
_SERVER = "SELECT @@hostname, @@port, DATABASE(), UTC_TIMESTAMP(6)"
_TABLE = """
SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.TABLE_TYPE, t.ENGINE, t.CREATE_TIME, e.TRANSACTIONS
FROM information_schema.TABLES AS t LEFT JOIN information_schema.ENGINES AS e ON e.ENGINE = t.ENGINE
WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s
"""
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_INDEXES = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""
_GROWING = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint", "decimal"), GrowingKind.NUMBER),
    "date": GrowingKind.DATE,
    "datetime": GrowingKind.TIME,
    "timestamp": GrowingKind.TIME,
}
_LITERALS = {GrowingKind.NUMBER: "", GrowingKind.DATE: "DATE", GrowingKind.TIME: "TIMESTAMP"}


@dataclass(frozen=True)
class MysqlColumnType:
    """A type of a column of MySQL or MariaDB."""

    of: MysqlType

    @property
    def shown(self) -> str:
        return self.of.written

    @property
    def growing(self) -> GrowingKind | None:
        return _GROWING.get(self.of.name)

    @property
    def least(self) -> int | None:
        return None

    def reader(self, declared: str) -> Read | None:
        return value_reader(declared, self.of)

    def accepted(self) -> str:
        return accepted_types(self.of)


class MysqlDatabase:
    """A database of MySQL or MariaDB, for one source."""

    def __init__(self, declared: Jdbc, where: str) -> None:
        self._declared = declared
        self._connection = MysqlConnection(declared, where)

    def close(self) -> None:
        self._connection.close()

    def inspect(self, url: str) -> tuple[JdbcServerFacts, FoundTable | None]:
        with self._connection.asking(url) as connection:
            server = _server(connection)
            return server, self._find_table(connection, server)

    @contextmanager
    def reading(self, url: str, table: FoundTable, cancellation: Cancellation) -> Iterator[MysqlSession]:
        with self._connection.connected(url) as connection, self._connection.cancels(cancellation, connection, url):
            _ask(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            # From here on nobody changes its columns. One that was emptied since the snapshot is an error below.
            _ask(connection, f"SELECT 1 FROM {table.statement_name} LIMIT 0")
            server = _server(connection)
            yield MysqlSession(connection, server, self._find_table(connection, server))

    def ask_keys(
        self, url: str, asked: TablePart, keys: Sequence[Sequence[Any]], seconds: float
    ) -> list[tuple[int, Sequence[bytes | None]]]:
        used: list[Any] = []
        with ended_after(seconds, lambda: used[0]._sock if used else None), self._connection.asking(url) as connection:
            used.append(connection)
            with connection.cursor() as cursor:
                cursor.execute(_keys_statement(connection, asked, keys))
                return [(int(row[0]), row[1:]) for row in cursor.fetchall()]

    def _find_table(self, connection: Any, server: JdbcServerFacts) -> FoundTable | None:
        wanted = self._declared.schema
        named = (server.database if wanted is None else wanted.text, self._declared.table.text)
        found = _ask(connection, _TABLE, *named)
        # Where letter case counts in names, only one is equal.
        row = next((row for row in found if row[1] == named[1]), found[0] if found else None)
        if row is None:
            return None
        schema, table, kind, engine, created, has_transactions = row
        name = f"{schema}.{table}"
        columns = tuple(
            FoundColumn(column, MysqlColumnType(MysqlType(type_.lower(), written.lower())), is_nullable == "YES")
            for column, type_, written, is_nullable in _ask(connection, _COLUMNS, schema, table)
        )
        problem = ""
        if kind not in ("BASE TABLE", "VIEW", "SYSTEM VERSIONED"):
            problem = f"{name} is no table and no view. Name one in `table`."
        elif kind != "VIEW" and has_transactions != "YES":
            problem = (
                f"{name} is a table of {engine}, which has no transactions, so a reading of it is not as of one moment."
                f" Run: ALTER TABLE {quoted(schema)}.{quoted(table)} ENGINE = InnoDB."
            )
        return FoundTable(
            id="" if kind == "VIEW" else created or "",
            name=name,
            statement_name=f"{quoted(schema)}.{quoted(table)}",
            columns=columns,
            unique_keys=_unique_keys(_ask(connection, _INDEXES, schema, table)),
            problem=problem,
        )


class MysqlSession:
    """A transaction of MySQL or MariaDB that only reads."""

    def __init__(self, connection: Any, server: JdbcServerFacts, table: FoundTable | None) -> None:
        self.server = server
        self.table = table
        self._connection = connection

    @contextmanager
    def rows(self, asked: TablePart, since: Since | None) -> Iterator[Iterator[Row]]:
        cursor = SSCursor(self._connection)
        try:
            cursor.execute(_statement(asked, since))
            yield ((_line(fields), fields) for fields in cursor.fetchall_unbuffered())
        finally:
            unread(self._connection)
            cursor.close()


def _ask(connection: Any, query: str, *given: str) -> list[tuple[Any, ...]]:
    """The rows of a small answer, as texts."""
    with connection.cursor() as cursor:
        cursor.execute(query, given or None)
        return [tuple(None if value is None else value.decode() for value in row) for row in cursor.fetchall()]


def _server(connection: Any) -> JdbcServerFacts:
    ((host, port, database, now),) = _ask(connection, _SERVER)
    system = _ask(connection, _SYSTEM)
    # One that does not name itself is known by where it says that it runs.
    named = system[0][1] if system else f"{host}:{port}"
    return JdbcServerFacts(named, 0, database, datetime.fromisoformat(now).replace(tzinfo=UTC))


def _unique_keys(parts: list[tuple[Any, ...]]) -> tuple[tuple[str, ...], ...]:
    """The columns of each index that covers whole columns."""
    indexes: dict[str, list[tuple[Any, Any]]] = {}
    for index, column, length in parts:
        indexes.setdefault(index, []).append((column, length))
    return tuple(
        tuple(column for column, _ in each)
        for each in indexes.values()
        if all(column is not None and length is None for column, length in each)
    )


def _statement(asked: TablePart, since: Since | None) -> str:
    columns = [_selected(column) for column in asked.columns]
    conditions = []
    growing = asked.growing
    if growing is not None:
        assert growing.column is not None
        assert growing.kind is not None
        name = quoted(growing.column.name)
        columns.append(name)
        if since is not None:
            prefix = _LITERALS[growing.kind]
            low = since.value if not prefix else f"{prefix}'{since.value}'"
            condition = f"{name} >= {low}"
            conditions.append(f"({condition} OR {name} IS NULL)" if growing.column.is_nullable else condition)
    if asked.where is not None:
        # On lines of its own, because it may end with a comment.
        conditions.append(f"(\n{asked.where}\n)")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(columns)} FROM {asked.table.statement_name}{where}"


def _keys_statement(connection: Any, asked: TablePart, keys: Sequence[Sequence[Any]]) -> str:
    others = "".join(f", {_selected(column)}" for column in asked.columns if not column.is_key)
    by_name = [quoted(column.found.name) for column in asked.columns if column.is_key]
    where = "" if asked.where is None else f" AND (\n{asked.where}\n)"
    parts = []
    for number, key in enumerate(keys):
        equal = " AND ".join(
            f"{name} = {_literal(connection, value)}" for name, value in zip(by_name, key, strict=True)
        )
        parts.append(f"SELECT {number}{others} FROM {asked.table.statement_name} WHERE {equal}{where}")
    return " UNION ALL ".join(parts)


def _literal(connection: Any, value: Any) -> str:
    """A value as a constant. A number stands without quotes: of two decimals, one in quotes would be a double."""
    if isinstance(value, bool | int | Decimal):
        return format_key(int(value) if isinstance(value, bool) else value)
    text = value if isinstance(value, str) else format_key(value).removesuffix("+00:00")
    return str(connection.escape(text))


def _selected(column: JdbcColumn) -> str:
    """A column as it is asked for: of a float the double that it is, because its text has six digits only."""
    name = quoted(column.found.name)
    is_float = isinstance(column.found.type, MysqlColumnType) and column.found.type.of.name == "float"
    return f"{name} * 1e0" if is_float and column.type != "STRING" else name


def _line(fields: tuple[bytes | None, ...]) -> bytes:
    """The fields as one text that differs where they differ."""
    return b",".join(b"-" if field is None else b"%d:%b" % (len(field), field) for field in fields)
