"""Postgres as a sink: rows are staged by COPY, and one transaction has what they change and the position.

The table `freshline_sink`, beside the one that is written, has a row for each table that freshline writes there. It is
locked first, so two engines come one after the other, and the second sees what the first has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql
from pyarrow import csv

from freshline.errors import SinkRejectedError, SinkSchemaError
from freshline.sinks.jdbc.database import POSITIONS, DatabaseWriter, row_text
from freshline.sinks.writer import Delivered, Delivery, KeepRejected, OutgoingRows, RejectedRow, SinkHost
from freshline.sources.databases.postgres_connection import PostgresConnection
from freshline.sources.jdbc.connector import Name
from freshline.values.sink import JSON, OnReject
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

_STAGED, _GONE, _NUMBER = "freshline_staged", "freshline_gone", "_freshline_n"
# Classes of SQLSTATE for a row that the table does not take: its values, a constraint, a view's check, a trigger, and
# a row or index entry that is too large.
_OF_ROW = ("22", "23", "44", "P0", "54")
_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
FROM pg_attribute a WHERE a.attrelid = %s::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEYS = """
SELECT (SELECT array_agg(a.attname::text) FROM pg_attribute a
        WHERE a.attrelid = i.indrelid AND a.attnum = ANY ((i.indkey::int2[])[0 : i.indnkeyatts - 1]))
FROM pg_index i WHERE i.indrelid = %s::oid AND i.indisunique AND i.indisvalid AND i.indimmediate
  AND i.indpred IS NULL AND i.indexprs IS NULL
"""
_WITH_POSITIONS = """
CREATE TABLE IF NOT EXISTS {} (
  target text PRIMARY KEY, position text, epoch bigint NOT NULL DEFAULT 0, written_at timestamptz
)
"""


class PostgresWriter(DatabaseWriter):
    """Writes a table of Postgres."""

    def __init__(self, spec: TableSpec, host: SinkHost) -> None:
        super().__init__(spec, host)
        self._schema = "public" if self.sink.schema is None else _folded(self.sink.schema)
        self._name = _folded(self.sink.table)
        self.full_name = f"{self._schema}.{self._name}"
        self.table = sql.Identifier(self._schema, self._name)
        self._positions = sql.Identifier(self._schema, POSITIONS)
        self._connection = PostgresConnection(self.sink, "freshline", self.where)

    def close(self) -> None:
        self._connection.close()

    def position(self) -> SinkPosition | None:
        with self._connection.asking(self.url) as connection:
            if _oid(connection, self._schema, POSITIONS) is None:
                return None
            # No parameters: a name may have a percent sign, which would stand for one.
            asked = sql.SQL("SELECT position FROM {} WHERE target = {}")
            row = connection.execute(asked.format(self._positions, self._name)).fetchone()
        return None if row is None or row[0] is None else self._read_position(row[0])

    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._writing(rows.schema, delivery) as connection:
            staged = _Staged(self, connection, rows.schema)
            deleted = staged.delete(rows.read_deletes()) if rows.deletes else 0
            written = staged.upsert(rows.read_upserts(), only_changed=False) if rows.upserts else 0
            self._finish(connection, staged.rejected, delivery, keep_rejected)
        self.host.failpoint("sink-committed")
        return Delivered(written, deleted)

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._writing(rows.schema, delivery) as connection:
            staged = _Staged(self, connection, rows.schema)
            deleted, written = staged.compare(rows.read_upserts())
            self._finish(connection, staged.rejected, delivery, keep_rejected)
        self.host.failpoint("sink-committed")
        return Delivered(written, deleted)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._connection.asking(self.url) as connection, connection.transaction():
            names = sql.SQL(", ").join(_read_as(field) for field in schema)
            asked = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, HEADER, FORCE_QUOTE *)")
            with connection.cursor().copy(asked.format(names, self.table)) as copy:
                yield from _read_csv(copy, schema)

    def _read_position(self, text: str) -> SinkPosition:
        return self.read_position(text, f"{self._schema}.{POSITIONS}")

    @contextmanager
    def _writing(self, schema: pa.Schema, delivery: Delivery) -> Iterator[psycopg.Connection[Any]]:
        """A transaction that has the lock of the position, with a table that has the columns."""
        with self._connection.asking(self.url) as connection, connection.transaction():
            # A check at the end of the transaction would not say which row it is about.
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            held = self._locked_position(connection)
            self.require_position(held, delivery)
            self._provide_table(connection, schema, is_first=held is None, delivery=delivery)
            yield connection

    def _locked_position(self, connection: psycopg.Connection[Any]) -> SinkPosition | None:
        if _oid(connection, self._schema, POSITIONS) is None:
            # Two at the same time would both find none, and one of them fail: it is asked again.
            connection.execute(sql.SQL(_WITH_POSITIONS).format(self._positions))
        added = sql.SQL("INSERT INTO {} (target) VALUES ({}) ON CONFLICT DO NOTHING")
        connection.execute(added.format(self._positions, self._name))
        asked = sql.SQL("SELECT position FROM {} WHERE target = {} FOR UPDATE")
        row = connection.execute(asked.format(self._positions, self._name)).fetchone()
        return None if row is None or row[0] is None else self._read_position(row[0])

    def _provide_table(
        self, connection: psycopg.Connection[Any], schema: pa.Schema, *, is_first: bool, delivery: Delivery
    ) -> None:
        """Make the table, or add the columns that it has not. Raises SinkSchemaError for one that does not fit."""
        oid = _oid(connection, self._schema, self._name)
        if oid is None:
            columns = [sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(_type_of(self, f))) for f in schema]
            keys = sql.SQL(", ").join(map(sql.Identifier, self.spec.primary_key))
            connection.execute(
                sql.SQL("CREATE TABLE {} ({}, PRIMARY KEY ({}))").format(self.table, sql.SQL(", ").join(columns), keys)
            )
            return
        there = {name: (kind, is_required) for name, kind, is_required in connection.execute(_COLUMNS, (oid,))}
        for field in schema:
            wanted = _type_of(self, field)
            if field.name not in there:
                added = sql.SQL("ALTER TABLE {} ADD COLUMN {} {}")
                connection.execute(added.format(self.table, sql.Identifier(field.name), sql.SQL(wanted)))
            elif not _fits(there[field.name][0], wanted):
                raise self.wrong_type(field.name, there[field.name][0], wanted)
        mine = {field.name for field in schema}
        required = [name for name, (_, is_required) in there.items() if is_required and name not in mine]
        if required:
            raise self.required_column(required[0])
        keys_there = [set(row[0] or ()) for row in connection.execute(_KEYS, (oid,))]
        if set(self.spec.primary_key) not in keys_there:
            named = sql.SQL(", ").join(map(sql.Identifier, self.spec.primary_key)).as_string(connection)
            others = ", ".join(sorted(f"({', '.join(sorted(key))})" for key in keys_there if key))
            raise self.misfit(
                f"{self.full_name} has no PRIMARY KEY or UNIQUE over exactly ({named}), by which rows are found. Run "
                f"there: ALTER TABLE {self.table.as_string(connection)} ADD UNIQUE ({named})"
                + (f", and drop the key over {others} if it was the one of the rows" if others else "")
            )
        asked = sql.SQL("SELECT EXISTS (SELECT FROM {})").format(self.table)
        if is_first and not delivery.takes_over and connection.execute(asked).fetchone() != (False,):
            raise self.rows_of_others()

    def _finish(
        self,
        connection: psycopg.Connection[Any],
        rejected: Sequence[RejectedRow],
        delivery: Delivery,
        keep_rejected: KeepRejected,
    ) -> None:
        if rejected:
            keep_rejected(rejected)
        moved = sql.SQL("UPDATE {} SET position = {}, epoch = {}, written_at = now() WHERE target = {}")
        after = delivery.after
        connection.execute(moved.format(self._positions, after.to_json(), after.epoch, self._name))
        self.host.failpoint("sink-before-commit")


class _Staged:
    """Rows on the way into the table, in temporary tables of the transaction."""

    def __init__(self, writer: PostgresWriter, connection: psycopg.Connection[Any], schema: pa.Schema) -> None:
        self._writer = writer
        self._connection = connection
        self._schema = schema
        self._keys = writer.spec.primary_key
        self._takes_apart = writer.spec.on_reject is OnReject.QUARANTINE
        self._copied: dict[str, int] = {}
        self.rejected: list[RejectedRow] = []

    def delete(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Delete the rows of these keys."""
        self._stage(_GONE, [field for field in self._schema if field.name in self._keys], batches)
        # Of a table that was just filled Postgres knows nothing, and would read all of the other one for a few rows.
        self._connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(_GONE)))
        deleting = sql.SQL("DELETE FROM {} t USING {} s WHERE {}")
        return self._run(lambda staged: deleting.format(self._writer.table, staged, self._same()), _GONE)

    def upsert(self, batches: Iterable[pa.RecordBatch], *, only_changed: bool) -> int:
        """Insert rows, or update those that are there."""
        self._stage(_STAGED, list(self._schema), batches)
        return self._run(partial(self._upserting, only_changed=only_changed), _STAGED)

    def compare(self, batches: Iterable[pa.RecordBatch]) -> tuple[int, int]:
        """Delete the rows whose keys are not among these, and upsert those that differ: how many of each."""
        self._stage(_STAGED, list(self._schema), batches, kept=True)
        self._connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(_STAGED)))
        there = sql.SQL("EXISTS (SELECT FROM {} s WHERE {})")
        found = there.format(sql.Identifier(_STAGED), self._same())
        if _GONE in self._copied:
            # Rows that are not taken keep what the sink has of their keys.
            found = sql.SQL("({} OR {})").format(found, there.format(sql.Identifier(_GONE), self._same()))
        deleting = sql.SQL("DELETE FROM {} t WHERE NOT {}").format(self._writer.table, found)
        deleted = self._connection.execute(deleting).rowcount
        return deleted, self._run(partial(self._upserting, only_changed=True), _STAGED)

    def _upserting(self, staged: sql.Composable, *, only_changed: bool) -> sql.Composed:
        names = [sql.Identifier(field.name) for field in self._schema]
        others = [sql.Identifier(field.name) for field in self._schema if field.name not in self._keys]
        keys = sql.SQL(", ").join(map(sql.Identifier, self._keys))
        every = sql.SQL(", ").join(names)
        if not others:
            action: sql.Composable = sql.SQL("NOTHING")
        else:
            values = [sql.SQL("{} = excluded.{}").format(name, name) for name in others]
            action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(values))
            if only_changed:
                now = sql.SQL(", ").join(sql.SQL("t.{}").format(name) for name in others)
                new = sql.SQL(", ").join(sql.SQL("excluded.{}").format(name) for name in others)
                action = sql.SQL("{} WHERE ROW({}) IS DISTINCT FROM ROW({})").format(action, now, new)
        inserting = sql.SQL("INSERT INTO {} AS t ({}) SELECT {} FROM {} s WHERE true ON CONFLICT ({}) DO {}")
        return inserting.format(self._writer.table, every, every, staged, keys, action)

    def _same(self) -> sql.Composable:
        return sql.SQL(" AND ").join(sql.SQL("t.{} = s.{}").format(*[sql.Identifier(key)] * 2) for key in self._keys)

    def _stage(
        self, name: str, fields: Sequence[pa.Field], batches: Iterable[pa.RecordBatch], *, kept: bool = False
    ) -> None:
        """Copy rows into a temporary table; `kept` says that keys of rows that cannot be copied are."""
        columns = [
            sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_type_of(self._writer, field)))
            for field in fields
        ]
        if self._takes_apart:
            # By their numbers, rows that are not taken are found.
            columns.append(sql.SQL("{} bigint GENERATED ALWAYS AS IDENTITY").format(sql.Identifier(_NUMBER)))
        made = sql.SQL("CREATE TEMPORARY TABLE {} ({}) ON COMMIT DROP")
        self._connection.execute(made.format(sql.Identifier(name), sql.SQL(", ").join(columns)))
        self._copied[name] = 0
        names = [field.name for field in fields]
        if not self._takes_apart:
            with self._explained(), self._copying(name, names) as copy:
                for batch in batches:
                    copy.write(_csv_of(batch.select(names)))
                    self._copied[name] += batch.num_rows
            return
        for batch in batches:
            self._copy_apart(name, batch.select(names), batch, kept=kept)

    def _copying(self, name: str, names: Sequence[str]) -> Any:
        columns = sql.SQL(", ").join(map(sql.Identifier, names))
        asked = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(sql.Identifier(name), columns)
        return self._connection.cursor().copy(asked)

    def _copy_apart(self, name: str, batch: pa.RecordBatch, whole: pa.RecordBatch, *, kept: bool) -> None:
        """Copy a batch; where that fails, its halves, down to the one row that is not taken."""
        try:
            with self._connection.transaction(), self._copying(name, batch.schema.names) as copy:
                copy.write(_csv_of(batch))
            # Numbers of a copy that failed are skipped.
            self._copied[name] += batch.num_rows
        except psycopg.Error as error:
            if not _is_of_row(error):
                raise
            if batch.num_rows > 1:
                half = batch.num_rows // 2
                for start, length in ((0, half), (half, batch.num_rows - half)):
                    self._copy_apart(name, batch.slice(start, length), whole.slice(start, length), kept=kept)
                return
            self._reject(whole, error)
            if kept:
                self._keep_key(whole)

    def _keep_key(self, row: pa.RecordBatch) -> None:
        """Keep the key of a row that could not be staged; one that is itself not taken is in no table either."""
        if _GONE not in self._copied:
            self._stage(_GONE, [field for field in self._schema if field.name in self._keys], [])
        taken = self.rejected.copy()
        self._copy_apart(_GONE, row.select(list(self._keys)), row, kept=False)
        self.rejected = taken

    def _run(self, statement: Callable[[sql.Composable], sql.Composed], name: str) -> int:
        """Run a statement over staged rows; rows that are not taken are found by halves of their numbers."""
        staged = sql.Identifier(name)
        if not self._takes_apart:
            with self._explained():
                return self._connection.execute(statement(staged)).rowcount
        number = sql.Identifier(_NUMBER)
        bounds = sql.SQL("SELECT min({}), max({}) FROM {}").format(number, number, staged)
        row = self._connection.execute(bounds).fetchone()
        assert row is not None
        return 0 if row[0] is None else self._run_apart(statement, staged, row[0], row[1])

    def _run_apart(
        self, statement: Callable[[sql.Composable], sql.Composed], staged: sql.Identifier, first: int, last: int
    ) -> int:
        number = sql.Identifier(_NUMBER)
        some = sql.SQL("(SELECT * FROM {} WHERE {} BETWEEN {} AND {})").format(staged, number, first, last)
        try:
            with self._connection.transaction():
                return self._connection.execute(statement(some)).rowcount
        except psycopg.Error as error:
            if not _is_of_row(error):
                raise
            if first < last:
                half = (first + last) // 2
                below = self._run_apart(statement, staged, first, half)
                return below + self._run_apart(statement, staged, half + 1, last)
            asked = sql.SQL("SELECT (to_jsonb(s) - {})::text FROM {} s WHERE {} = {}")
            row = self._connection.execute(asked.format(_NUMBER, staged, number, first)).fetchone()
            if row is not None:
                self.rejected.append(_rejected(row[0], error))
            return 0

    def _reject(self, row: pa.RecordBatch, error: psycopg.Error) -> None:
        self.rejected.append(_rejected(row_text(row.cast(self._schema)), error))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            if not _is_of_row(error):
                raise
            raise SinkRejectedError(
                f"the database does not take a row: {error.diag.message_primary}. Nothing was written. Correct the row "
                "or the table there, or declare 'on-reject' = 'quarantine'.",
                where=self._writer.where,
            ) from None


def _rejected(row: str, error: psycopg.Error) -> RejectedRow:
    return RejectedRow(row, error.sqlstate or "", error.diag.message_primary or "")


def _is_of_row(error: psycopg.Error) -> bool:
    return error.sqlstate is not None and error.sqlstate.startswith(_OF_ROW)


def _oid(connection: psycopg.Connection[Any], schema: str, name: str) -> int | None:
    asked = "SELECT c.oid::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
    row = connection.execute(asked + "WHERE nspname = %s AND relname = %s", (schema, name)).fetchone()
    return None if row is None else int(row[0])


def _folded(name: Name) -> str:
    return name.text if name.is_quoted else name.text.lower()


# -- types


def _type_of(writer: PostgresWriter, field: pa.Field) -> str:
    """The type of Postgres for a column."""
    kind = field.type
    if field.metadata and field.metadata.get(JSON) is not None:
        return "jsonb"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp without time zone" if kind.tz is None else "timestamp with time zone"
    for matches, name in (
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_int8, "smallint"),
        (pa.types.is_int16, "smallint"),
        (pa.types.is_int32, "integer"),
        (pa.types.is_int64, "bigint"),
        (pa.types.is_float32, "real"),
        (pa.types.is_float64, "double precision"),
        (pa.types.is_binary, "bytea"),
        (pa.types.is_date32, "date"),
        (pa.types.is_string, "text"),
    ):
        if matches(kind):
            return name
    raise SinkSchemaError(f"column {field.name} has the type {kind}, which Postgres has not.", where=writer.where)


# Types that a person may choose in the place of ours: they have all its values, or those that they have not are rows
# that are not taken.
_TO_NUMERIC = ("smallint", "integer", "bigint", "numeric")
_ALSO = {
    "smallint": ("integer", "bigint", "numeric"),
    "integer": ("smallint", "bigint", "numeric"),
    "bigint": ("smallint", "integer", "numeric"),
    "real": ("double precision",),
    "double precision": (),
    "text": ("character varying", "character", "citext", "uuid"),
    "jsonb": ("json",),
    "numeric": ("numeric",),
}


def _fits(there: str, wanted: str) -> bool:
    """Whether a column that is there has the values of a type."""
    if there == wanted:
        return True
    if there.startswith("numeric("):
        # Postgres rounds what has more digits behind the point, and says nothing.
        return _scale_of(there) >= _scale_of(wanted) and wanted.partition("(")[0] in _TO_NUMERIC
    return there.partition("(")[0] in _ALSO.get(wanted.partition("(")[0], ())


def _scale_of(kind: str) -> int:
    """The digits behind the point of a type as Postgres writes it, such as numeric(10,2)."""
    return int(kind.rstrip(")").rpartition(",")[2]) if kind.startswith("numeric(") else 0


# -- texts


def _csv_of(batch: pa.RecordBatch) -> bytes:
    """Rows as COPY reads them: each text in quotes, NULL as nothing."""
    columns = [_plain(batch.column(index), field) for index, field in enumerate(batch.schema)]
    written = BytesIO()
    options = csv.WriteOptions(include_header=False, quoting_style="all_valid")
    csv.write_csv(pa.RecordBatch.from_arrays(columns, names=batch.schema.names), written, options)
    return written.getvalue()


def _plain(column: pa.Array, field: pa.Field) -> pa.Array:
    if pa.types.is_binary(field.type):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    return column


def _read_as(field: pa.Field) -> sql.Composable:
    name = sql.Identifier(field.name)
    if pa.types.is_timestamp(field.type) and field.type.tz is not None:
        return sql.SQL("{} AT TIME ZONE 'UTC' AS {}").format(name, name)
    if pa.types.is_binary(field.type):
        return sql.SQL("encode({}, 'hex') AS {}").format(name, name)
    if pa.types.is_boolean(field.type):
        return sql.SQL("{}::int AS {}").format(name, name)
    return name


def _read_csv(copy: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows that COPY writes, in batches of the types of `schema`."""
    texts = pa.schema([pa.field(field.name, pa.string()) for field in schema])
    reader = csv.open_csv(
        _Stream(iter(copy)),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=texts, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
        ),
    )
    for batch in reader:
        columns = [_value(batch.column(index), field) for index, field in enumerate(schema)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _value(column: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else bytes.fromhex(value) for value in column.to_pylist()], kind)
    if pa.types.is_timestamp(kind):
        return (
            column.cast(pa.timestamp("us")).cast(kind)
            if kind.tz is None
            else pc.assume_timezone(column.cast(pa.timestamp("us")), "UTC").cast(kind)
        )
    if pa.types.is_boolean(kind):
        return pc.equal(column, "1")
    return column.cast(kind)


class _Stream:
    """The pieces of a COPY as a file that Arrow reads."""

    closed = False

    def __init__(self, pieces: Iterator[Any]) -> None:
        self._pieces = pieces
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes, none at the end."""
        while len(self._left) < size or size < 0:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._left += bytes(piece)
        found, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        return found

    def close(self) -> None:
        """Nothing: the connection closes the COPY."""
