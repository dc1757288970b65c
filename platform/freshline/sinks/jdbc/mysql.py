"""MySQL and MariaDB as sinks: rows are staged in temporary tables, and one transaction has what they change.

The table `freshline_sink`, beside the one that is written, has a row for each table that freshline writes there. The
transaction locks it first, so two engines come one after the other, and the second sees what the first has written.
Whatever ends a transaction by itself (CREATE TABLE, ALTER TABLE) comes before it, and is nothing that a second try, or
an engine that is refused afterwards, could harm.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from freshline.errors import SinkRejectedError, SinkSchemaError, SinkTypeError
from freshline.sinks.jdbc.database import POSITIONS, DatabaseWriter, row_text
from freshline.sinks.jdbc.mysql_values import (
    column_of,
    column_type,
    is_json,
    quoted_name,
    read_expression,
    row_literals,
    text_literal,
)
from freshline.sinks.writer import Delivered, Delivery, KeepRejected, OutgoingRows, RejectedRow, SinkHost
from freshline.sources.databases.mysql_connection import MysqlConnection
from freshline.values.sink import OnReject
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

_STAGED, _GONE, _NUMBER = "freshline_staged", "freshline_gone", "_freshline_n"
# Values that do not fit are errors, a backslash escapes, and 0 in a column that counts by itself is 0.
_SETTINGS = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,STRICT_TRANS_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION,"
    "ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_VALUE_ON_ZERO'"
)
# Equal are texts of the same bytes, blanks at the end among them: MariaDB has it by the one name, MySQL 8 by the other.
_EXACT = ("utf8mb4_nopad_bin", "utf8mb4_0900_bin", "binary")
# Errors for a row that the table does not take: NULL, another UNIQUE, other tables' keys, too large or too long, no
# value of the type, no character of the column's, too large a row, a trigger, a CHECK (of MySQL, and of MariaDB).
_DUPLICATES = (1062, 1586)
_OF_ROW = frozenset((*_DUPLICATES, 1048, 1118, 1216, 1217, 1451, 1452, 1264, 1265, 1292, 1300, 1366, 1367)) | frozenset(
    (1406, 1411, 1441, 1525, 1644, 1690, 3140, 3141, 3156, 3819, 3854, 4025, 4078)
)
# A packet that is too large: the row is refused before it is sent, because the server would end the connection.
_TOO_LARGE = 1153
_STATEMENT_BYTES, _STATEMENT_ROWS, _READ_ROWS = 4 * 1024**2, 100_000, 20_000
_TABLE = (
    "SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}"
)
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COLLATION_NAME, CHARACTER_SET_NAME, NUMERIC_SCALE, DATETIME_PRECISION,
  CHARACTER_MAXIMUM_LENGTH, IS_NULLABLE = 'NO' AND COLUMN_DEFAULT IS NULL AND EXTRA = '', TABLE_NAME
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY ORDINAL_POSITION
"""
_INDEXES = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART, TABLE_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX
"""
_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal")
_TEXTS = ("varchar", "tinytext", "text", "mediumtext", "longtext")
# Types that a person may choose: they have all values of ours, or those that they have not are rows that are not taken.
_FITTING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("tinyint(1)", "tinyint", "smallint", "int", "bigint"), _INTEGERS),
    "decimal": ("decimal",),
    "float": ("float", "double"),
    "double": ("double",),
    "date": ("date",),
    "longtext": _TEXTS,
    "varchar": _TEXTS,
    "longblob": ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
    "varbinary": ("varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
}


@dataclass(frozen=True)
class _Column:
    """A column of the table, as the database has it."""

    name: str
    kind: str
    written: str
    collation: str | None
    characters: str | None
    scale: int | None
    precision: int | None
    length: int | None
    is_required: bool

    @property
    def definition(self) -> str:
        """The same column in another table."""
        if self.collation is None:
            return f"{self.written} NULL"
        return f"{self.written} CHARACTER SET {self.characters} COLLATE {self.collation} NULL"

    @property
    def limit(self) -> tuple[int, bool] | None:
        """The length of a text, and whether it is of characters; None for a column of others."""
        return None if self.length is None or self.kind not in _TEXTS else (self.length, self.kind == "varchar")


class MysqlWriter(DatabaseWriter):
    """Writes a table of MySQL or MariaDB."""

    def __init__(self, spec: TableSpec, host: SinkHost) -> None:
        super().__init__(spec, host)
        self.full_name = self.sink.full_name
        self._connection = MysqlConnection(self.sink, self.where)

    def close(self) -> None:
        self._connection.close()

    def position(self) -> SinkPosition | None:
        with self._session() as session:
            if session.find_table(POSITIONS) is None:
                return None
            return self._held(session, "")

    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._staging(rows.schema, delivery) as staged:
            if rows.deletes:
                staged.stage(_GONE, staged.keys, rows.read_deletes())
            if rows.upserts:
                staged.stage(_STAGED, list(rows.schema), rows.read_upserts())
            with self._writing(staged, delivery, keep_rejected):
                deleted = staged.delete() if rows.deletes else 0
                written = staged.upsert(only_changed=False) if rows.upserts else 0
        self.host.failpoint("sink-committed")
        return Delivered(written, deleted)

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._staging(rows.schema, delivery) as staged:
            staged.stage(_STAGED, list(rows.schema), rows.read_upserts(), keeps_keys=True)
            with self._writing(staged, delivery, keep_rejected):
                deleted = staged.delete_others()
                written = staged.upsert(only_changed=True)
        self.host.failpoint("sink-committed")
        return Delivered(written, deleted)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._session() as session:
            names = ", ".join(read_expression(field, quoted_name(field.name)) for field in schema)
            with session.connection.cursor(SSCursor) as cursor:
                cursor.execute(f"SELECT {names} FROM {session.table}")
                while rows := cursor.fetchmany(_READ_ROWS):
                    yield _batch(rows, schema)

    @contextmanager
    def _session(self) -> Iterator[_Session]:
        with self._connection.asking(self.url) as connection:
            session = _Session(connection, self.sink.schema.text if self.sink.schema else None, self.sink.table.text)
            session.run(_SETTINGS)
            yield session

    @contextmanager
    def _staging(self, schema: pa.Schema, delivery: Delivery) -> Iterator[_Staged]:
        """Temporary tables beside a table that has the columns. Nothing of it is seen by others."""
        with self._session() as session:
            self._provide_positions(session)
            self.require_position(self._held(session, ""), delivery)
            columns = self._provide_table(session, schema)
            staged = _Staged(self, session, schema, columns)
            staged.drop()
            yield staged
            staged.drop()

    @contextmanager
    def _writing(self, staged: _Staged, delivery: Delivery, keep_rejected: KeepRejected) -> Iterator[None]:
        """The transaction of rows and position. It ends with the connection where it is left by an error."""
        session = staged.session
        session.run("START TRANSACTION")
        # Before anything is read, so that what is read is what the one before has committed.
        held = self._held(session, " FOR UPDATE")
        self.require_position(held, delivery)
        is_new = held is None and not delivery.takes_over
        if is_new and session.ask(f"SELECT 1 FROM {session.table} LIMIT 1"):
            raise self.rows_of_others()
        yield
        if staged.rejected:
            keep_rejected(staged.rejected)
        after = delivery.after
        session.run(
            f"UPDATE {session.positions} SET position = {text_literal(after.to_json())}, epoch = {int(after.epoch)}, "
            f"written_at = UTC_TIMESTAMP(6) WHERE target = {text_literal(session.target)}"
        )
        self.host.failpoint("sink-before-commit")
        session.run("COMMIT")

    def _held(self, session: _Session, locking: str) -> SinkPosition | None:
        target = text_literal(session.target)
        row = session.ask(f"SELECT position FROM {session.positions} WHERE target = {target}{locking}")
        if not row or row[0][0] is None:
            return None
        return self.read_position(row[0][0].decode(), f"{session.schema}.{POSITIONS}")

    def _provide_positions(self, session: _Session) -> None:
        if session.exact is None:
            raise self.misfit(
                "the database has no collation by which texts of other bytes are other keys. MySQL has it since "
                "8.0.17, and MariaDB since 10.2"
            )
        if session.find_table(POSITIONS) is None:
            session.run(
                f"CREATE TABLE IF NOT EXISTS {session.positions} (target varchar(64) CHARACTER SET utf8mb4 COLLATE "
                f"{session.exact} NOT NULL PRIMARY KEY, position longtext CHARACTER SET utf8mb4, epoch bigint NOT NULL "
                "DEFAULT 0, written_at datetime(6)) ENGINE = InnoDB"
            )
        self._require_transactions(session, POSITIONS)
        session.run(f"INSERT IGNORE INTO {session.positions} (target) VALUES ({text_literal(session.target)})")

    def _require_transactions(self, session: _Session, name: str) -> None:
        found = session.find_table(name)
        if found != ("BASE TABLE", "InnoDB"):
            there = "not there" if found is None else f"{found[0].lower()} of {found[1]}"
            raise self.misfit(
                f"{session.schema}.{name} is {there}, and rows and position are one transaction in a table of InnoDB "
                "only. Make it one there"
            )

    def _provide_table(self, session: _Session, schema: pa.Schema) -> dict[str, _Column]:
        """Make the table, or add the columns that it has not: its columns by the names of the rows' fields.

        Raises SinkSchemaError for one that does not fit.
        """
        keys = [field for field in schema if field.name in self.spec.primary_key]
        wanted = {field.name: self._type_of(session, field, keys) for field in schema}
        if session.find_table(session.name) is None:
            columns = ", ".join(
                self._definition(session, field, wanted[field.name], is_key=field in keys) for field in schema
            )
            key = ", ".join(map(quoted_name, self.spec.primary_key))
            session.run(
                f"CREATE TABLE IF NOT EXISTS {session.table} ({columns}, PRIMARY KEY ({key})) ENGINE = InnoDB "
                "ROW_FORMAT = DYNAMIC"
            )
        self._require_transactions(session, session.name)
        there = session.columns()
        missing = [field for field in schema if field.name.lower() not in there]
        for field in missing:
            added = self._definition(session, field, wanted[field.name], is_key=False)
            session.run(f"ALTER TABLE {session.table} ADD COLUMN {added}")
        if missing:
            there = session.columns()
        for field in schema:
            column = there[field.name.lower()]
            if not _fits(column, field, wanted[field.name]):
                raise self.wrong_type(field.name, column.written, wanted[field.name])
        self._require_key(session, there)
        mine = {field.name.lower() for field in schema}
        required = [column.name for name, column in there.items() if column.is_required and name not in mine]
        if required:
            raise self.required_column(required[0])
        return {field.name: there[field.name.lower()] for field in schema}

    def _require_key(self, session: _Session, there: Mapping[str, _Column]) -> None:
        keys = [key.lower() for key in self.spec.primary_key]
        named = ", ".join(map(quoted_name, self.spec.primary_key))
        if frozenset(keys) not in session.unique_keys():
            raise self.misfit(
                f"{self.full_name} has no PRIMARY KEY or UNIQUE over exactly ({named}), by which rows are found. Run "
                f"there: ALTER TABLE {session.table} ADD UNIQUE ({named})"
            )
        for key in keys:
            column = there[key]
            if column.collation is not None and column.collation not in _EXACT:
                raise self.misfit(
                    f"column {column.name} of {self.full_name} has the collation {column.collation}, by which other "
                    f"keys are equal, such as 'a' and 'a '. Run there: ALTER TABLE {session.table} MODIFY "
                    f"{quoted_name(column.name)} {column.written} CHARACTER SET utf8mb4 COLLATE {session.exact} NOT "
                    "NULL"
                )

    def _type_of(self, session: _Session, field: pa.Field, keys: Sequence[pa.Field]) -> str:
        wanted = column_type(field, keys)
        if wanted is None:
            raise SinkSchemaError(f"column {field.name} has the type {field.type}, which {session.product} has not.")
        if pa.types.is_decimal(field.type) and field.type.scale > session.most_scale:
            raise SinkTypeError(
                f"column {field.name} is DECIMAL({field.type.precision},{field.type.scale}), and {session.product} has "
                f"at most {session.most_scale} digits behind the point. Convert it in a table of its own, and send "
                "that one.",
                where=self.where,
            )
        return wanted

    def _definition(self, session: _Session, field: pa.Field, wanted: str, *, is_key: bool) -> str:
        name = quoted_name(field.name)
        null = "NOT NULL" if is_key else "NULL"
        if not pa.types.is_string(field.type):
            return f"{name} {wanted} {null}"
        # Text, also in MySQL: its own type JSON has numbers of 17 digits only.
        check = f" CHECK (json_valid({name}))" if is_json(field) else ""
        return f"{name} {wanted} CHARACTER SET utf8mb4 COLLATE {session.exact} {null}{check}"


class _Session:
    """Statements of one connection. `table` and `positions` are names as statements have them."""

    def __init__(self, connection: Any, schema: str | None, name: str) -> None:
        self.connection = connection
        asked = (
            "SELECT DATABASE(), @@lower_case_table_names, @@max_allowed_packet, @@version, (SELECT COLLATION_NAME FROM "
            "information_schema.COLLATIONS WHERE COLLATION_NAME IN ('utf8mb4_nopad_bin', 'utf8mb4_0900_bin') LIMIT 1)"
        )
        database, folds, packet, version, exact = self.ask(asked)[0]
        self.schema = database.decode() if schema is None else schema
        self._folds = folds != b"0"
        self.name = name
        # One table has one row, whatever its name is written like.
        self.target = name.lower() if self._folds else name
        self.table = f"{quoted_name(self.schema)}.{quoted_name(name)}"
        self.positions = f"{quoted_name(self.schema)}.{quoted_name(POSITIONS)}"
        self.most_bytes = int(packet) - 1024
        self.exact = None if exact is None else exact.decode()
        self.product, self.most_scale = ("MariaDB", 38) if b"mariadb" in version.lower() else ("MySQL", 30)

    def run(self, statement: str | bytes) -> int:
        """Run a statement: how many rows it changed."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return int(cursor.rowcount)

    def ask(self, statement: str) -> Sequence[Sequence[Any]]:
        """The rows of an answer that is small, as bytes."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            found: Sequence[Sequence[Any]] = cursor.fetchall()
            return found

    def find_table(self, name: str) -> tuple[str, str] | None:
        """The kind of a table and its engine; None for one that is not there."""
        for found, kind, engine in self._about(_TABLE, name):
            if self._is(found, name):
                return kind.decode(), "none" if engine is None else engine.decode()
        return None

    def columns(self) -> dict[str, _Column]:
        """The columns of the table by their names in small letters, which are equal in whatever letters."""
        found = {}
        for row in self._about(_COLUMNS, self.name):
            if self._is(row[-1], self.name):
                name, kind, written = (value.decode() for value in row[:3])
                collation, characters = (None if value is None else value.decode() for value in row[3:5])
                scale, precision, length = (None if value is None else int(value) for value in row[5:8])
                of = _Column(name, kind, written, collation, characters, scale, precision, length, row[8] == b"1")
                found[of.name.lower()] = of
        return found

    def unique_keys(self) -> set[frozenset[str]]:
        """The sets of columns of which no two rows have the same."""
        found: dict[bytes, set[str]] = {}
        parts = set()
        for index, column, part, table in self._about(_INDEXES, self.name):
            if self._is(table, self.name):
                if part is not None or column is None:
                    parts.add(index)
                else:
                    found.setdefault(index, set()).add(column.decode().lower())
        return {frozenset(columns) for index, columns in found.items() if index not in parts}

    def _about(self, asked: str, name: str) -> Sequence[Sequence[Any]]:
        return self.ask(asked.format(text_literal(self.schema), text_literal(name)))

    def _is(self, found: bytes, name: str) -> bool:
        there = found.decode()
        return there.lower() == name.lower() if self._folds else there == name


def _fits(column: _Column, field: pa.Field, wanted: str) -> bool:
    """Whether a column has the values of a field, or refuses those that it has not."""
    if pa.types.is_timestamp(field.type):
        # TIMESTAMP of the database is a moment, of 1970 to 2038: others are not taken.
        kinds = ("datetime",) if field.type.tz is None else ("datetime", "timestamp")
        return column.kind in kinds and column.precision == 6
    if is_json(field) and column.kind == "json":
        return True
    if column.kind not in (_FITTING.get(wanted) or _FITTING[wanted.partition("(")[0]]):
        return False
    if column.kind == "decimal" and pa.types.is_decimal(field.type):
        return column.scale is not None and column.scale >= field.type.scale
    # FLOAT(7,2) rounds.
    return column.kind not in ("float", "double") or "(" not in column.written


Statement = Callable[[str], str]


class _Staged:
    """Rows on the way into the table, in temporary tables, each with a number."""

    def __init__(
        self, writer: MysqlWriter, session: _Session, schema: pa.Schema, columns: Mapping[str, _Column]
    ) -> None:
        self.session = session
        self.rejected: list[RejectedRow] = []
        self.keys = [field for field in schema if field.name in writer.spec.primary_key]
        self._writer = writer
        self._schema = schema
        self._columns = columns
        self._sets_aside = writer.spec.on_reject is OnReject.QUARANTINE
        self._counts: dict[str, int] = {}

    def drop(self) -> None:
        """Take the temporary tables away, also those of a refresh that failed on this connection."""
        for name in (_STAGED, _GONE):
            self.session.run(f"DROP TEMPORARY TABLE IF EXISTS {self._temporary(name)}")

    def stage(
        self, name: str, fields: Sequence[pa.Field], batches: Iterable[pa.RecordBatch], *, keeps_keys: bool = False
    ) -> None:
        """Put rows into a temporary table; `keeps_keys` says that the keys of those that do not fit are kept."""
        self._create(name, fields)
        if keeps_keys and self._sets_aside:
            self._create(_GONE, self.keys)
        for batch in batches:
            self._insert(name, batch, batch.select([field.name for field in fields]), keeps_keys=keeps_keys)

    def delete(self) -> int:
        """Delete the rows of the keys in `_GONE`."""
        found = f"{{}} STRAIGHT_JOIN {self.session.table} t ON {self._same('s')}"
        return self._run(_GONE, self.keys, lambda where: f"DELETE t FROM {found.format(self._of(_GONE))} WHERE {where}")

    def delete_others(self) -> int:
        """Delete the rows whose keys are not among those that were staged."""
        joined = f"LEFT JOIN {self._of(_STAGED)} ON {self._same('s')}"
        missing = f"s.{quoted_name(_NUMBER)} IS NULL"
        if _GONE in self._counts:
            # Rows that are not taken keep what the sink has of their keys.
            joined += f" LEFT JOIN {self._temporary(_GONE)} g ON {self._same('g')}"
            missing += f" AND g.{quoted_name(_NUMBER)} IS NULL"
        try:
            return self.session.run(f"DELETE t FROM {self.session.table} t {joined} WHERE {missing}")
        except pymysql.Error as error:
            raise self._explained(error) from None

    def upsert(self, *, only_changed: bool) -> int:
        """Update the rows that are there, then insert the others: how many of both.

        ON DUPLICATE KEY UPDATE would also take a row for the one to change that is equal in another UNIQUE only.
        """
        table, staged = self.session.table, self._of(_STAGED)
        key_names = {field.name for field in self.keys}
        others = [field for field in self._schema if field.name not in key_names]
        updated = 0
        if others:
            setting = ", ".join(f"t.{quoted_name(f.name)} = s.{quoted_name(f.name)}" for f in others)
            differs = " AND NOT (" + " AND ".join(map(self._equal, others)) + ")" if only_changed else ""
            updated = self._run(
                _STAGED,
                self._schema,
                lambda where: (
                    f"UPDATE {staged} STRAIGHT_JOIN {table} t ON {self._same('s')} SET {setting} WHERE {where}{differs}"
                ),
            )
        every = ", ".join(quoted_name(field.name) for field in self._schema)
        given = ", ".join(f"s.{quoted_name(field.name)}" for field in self._schema)
        absent = f"t.{quoted_name(self._name_there(self.keys[0]))} IS NULL"
        return updated + self._run(
            _STAGED,
            self._schema,
            lambda where: (
                f"INSERT INTO {table} ({every}) SELECT {given} FROM {staged} LEFT JOIN {table} t ON {self._same('s')} "
                f"WHERE {where} AND {absent}"
            ),
        )

    def _name_there(self, field: pa.Field) -> str:
        return self._columns[field.name].name

    def _same(self, alias: str) -> str:
        return " AND ".join(f"t.{quoted_name(f.name)} = {alias}.{quoted_name(f.name)}" for f in self.keys)

    def _equal(self, field: pa.Field) -> str:
        name = quoted_name(field.name)
        if self._columns[field.name].collation is None:
            return f"t.{name} <=> s.{name}"
        # Of the same bytes, whatever the collation takes for equal.
        return f"CAST(t.{name} AS BINARY) <=> CAST(s.{name} AS BINARY)"

    def _temporary(self, name: str) -> str:
        return f"{quoted_name(self.session.schema)}.{quoted_name(name)}"

    def _of(self, name: str) -> str:
        return f"{self._temporary(name)} s"

    def _create(self, name: str, fields: Sequence[pa.Field]) -> None:
        columns = ", ".join(f"{quoted_name(f.name)} {self._columns[f.name].definition}" for f in fields)
        keys = ", ".join(quoted_name(field.name) for field in self.keys)
        number = quoted_name(_NUMBER)
        self.session.run(
            f"CREATE TEMPORARY TABLE {self._temporary(name)} ({number} bigint NOT NULL PRIMARY KEY, {columns}, "
            f"KEY ({keys})) ENGINE = InnoDB ROW_FORMAT = DYNAMIC"
        )
        self._counts[name] = 0

    def _insert(self, name: str, whole: pa.RecordBatch, batch: pa.RecordBatch, *, keeps_keys: bool) -> None:
        """Stage a batch in statements that the server takes."""
        first = self._counts[name]
        self._counts[name] += batch.num_rows
        numbers = pa.array(range(first, first + batch.num_rows), pa.int64())
        numbered = pa.RecordBatch.from_arrays(
            [numbers, *batch.columns], schema=pa.schema([pa.field(_NUMBER, pa.int64()), *batch.schema])
        )
        limits = {f.name: limit for f in batch.schema if (limit := self._columns[f.name].limit) is not None}
        rows = row_literals(numbered, limits)
        names = ", ".join(quoted_name(field.name) for field in numbered.schema)
        head = f"INSERT INTO {self._temporary(name)} ({names}) VALUES ".encode()
        most = min(_STATEMENT_BYTES, self.session.most_bytes) - len(head)
        start, size = 0, 0
        for index, row in enumerate(rows):
            if index > start and size + len(row) + 1 > most:
                self._insert_some(head, rows, whole, start, index, keeps_keys=keeps_keys)
                start, size = index, 0
            size += len(row) + 1
        if rows:
            self._insert_some(head, rows, whole, start, len(rows), keeps_keys=keeps_keys)

    def _insert_some(
        self, head: bytes, rows: Sequence[bytes], whole: pa.RecordBatch, start: int, end: int, *, keeps_keys: bool
    ) -> None:
        """Stage these rows; where that fails, their halves, down to the one that is not taken."""
        try:
            statement = head + b",".join(rows[start:end])
            if len(statement) > self.session.most_bytes:
                raise pymysql.OperationalError(_TOO_LARGE, "the row is larger than `max_allowed_packet`")
            self.session.run(statement)
        except pymysql.Error as error:
            if not (_is_of_row(error) or _number(error) == _TOO_LARGE):
                raise
            if end - start > 1:
                half = (start + end) // 2
                self._insert_some(head, rows, whole, start, half, keeps_keys=keeps_keys)
                self._insert_some(head, rows, whole, half, end, keeps_keys=keeps_keys)
                return
            if not self._sets_aside:
                raise self._explained(error) from None
            # The note of JSON is in the columns of all rows, and not in those of a batch.
            row = whole.slice(start, 1).cast(self._schema)
            self.rejected.append(_rejected(row_text(row), error))
            if keeps_keys:
                self._keep_key(row)

    def _keep_key(self, row: pa.RecordBatch) -> None:
        """Keep the key of a row that could not be staged; one that is itself not taken is in no table either."""
        taken = self.rejected.copy()
        self._insert(_GONE, row, row.select([field.name for field in self.keys]), keeps_keys=False)
        self.rejected = taken

    def _run(self, name: str, fields: Iterable[pa.Field], statement: Statement) -> int:
        """Run a statement over staged rows; rows that are not taken are found by halves of their numbers."""
        changed, refused = 0, dict[int, pymysql.Error]()
        for first in range(0, self._counts[name], _STATEMENT_ROWS):
            last = min(first + _STATEMENT_ROWS, self._counts[name]) - 1
            changed += self._run_some(statement, first, last, refused)
        # A row may wait for another one to give up a value that only one may have.
        while any(_number(error) in _DUPLICATES for error in refused.values()):
            left: dict[int, pymysql.Error] = {}
            for number in refused:
                changed += self._run_some(statement, number, number, left)
            if len(left) == len(refused):
                break
            refused = left
        if refused and not self._sets_aside:
            raise self._explained(next(iter(refused.values())))
        schema = pa.schema(list(fields))
        for number, error in refused.items():
            self.rejected.append(_rejected(row_text(self._staged_row(name, schema, number)), error))
        return changed

    def _run_some(self, statement: Statement, first: int, last: int, refused: dict[int, pymysql.Error]) -> int:
        number = f"s.{quoted_name(_NUMBER)}"
        try:
            return self.session.run(statement(f"{number} BETWEEN {first} AND {last}"))
        except pymysql.Error as error:
            if not _is_of_row(error):
                raise
            # The database has undone the statement, and not the transaction.
            if not self._sets_aside and _number(error) not in _DUPLICATES:
                raise self._explained(error) from None
            if first == last:
                refused[first] = error
                return 0
            half = (first + last) // 2
            below = self._run_some(statement, first, half, refused)
            return below + self._run_some(statement, half + 1, last, refused)

    def _staged_row(self, name: str, schema: pa.Schema, number: int) -> pa.RecordBatch:
        names = ", ".join(read_expression(field, quoted_name(field.name)) for field in schema)
        asked = f"SELECT {names} FROM {self._temporary(name)} WHERE {quoted_name(_NUMBER)} = {number}"
        return _batch(self.session.ask(asked), schema)

    def _explained(self, error: pymysql.Error) -> Exception:
        """The error of a row; any other one as it is."""
        if not (_is_of_row(error) or _number(error) == _TOO_LARGE):
            found: Exception = error
            return found
        return SinkRejectedError(
            f"the database does not take a row: {_said(error)}. Nothing was written. Correct the row "
            "or the table there, or declare 'on-reject' = 'quarantine'.",
            where=self._writer.where,
        )


def _batch(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = [column_of([row[index] for row in rows], field) for index, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _number(error: pymysql.Error) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _is_of_row(error: pymysql.Error) -> bool:
    return _number(error) in _OF_ROW


# The number of the row in the statement is of no use to anybody: it is one that we counted.
_AT_ROW = re.compile(r" at row \d+$")


def _said(error: pymysql.Error) -> str:
    said = error.args[1] if len(error.args) > 1 else ""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return _AT_ROW.sub("", text.rstrip("."))


def _rejected(row: str, error: pymysql.Error) -> RejectedRow:
    return RejectedRow(row, str(_number(error)), _said(error))
