"""A Postgres server as it is asked: facts, a slot with its snapshot, and the changes behind a position.

Changes are read by `pg_logical_slot_peek_binary_changes`, which moves nothing and gives whole transactions only. COPY
brings its rows, and those of a snapshot, one by one, so that one message of the server is in memory and not all. No
error and no text of this module shows the connection string.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from freshline.compute.cancellation import Cancellation
from freshline.errors import (
    DatabaseError,
    PublicationError,
    SlotForeignError,
    SourceError,
)
from freshline.sources.databases.postgres_connection import PostgresConnection, TypeCatalog, cancels
from freshline.sources.postgres.connector import Postgres
from freshline.sources.postgres.events import NamedValues, ReadTable
from freshline.sources.postgres.facts import (
    DatabaseColumn,
    PostgresServerFacts,
    PublicationFacts,
    SlotFacts,
    TableFacts,
    missing_publication,
    publication_statement,
)
from freshline.sources.postgres.position import lsn_of, lsn_text

_SERVER = """
SELECT (SELECT system_identifier FROM pg_control_system())::text, current_database()::text,
       current_setting('server_version_num')::int, current_setting('wal_level'), pg_is_in_recovery(),
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_walfile_name(pg_current_wal_flush_lsn()) END,
       CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_current_wal_flush_lsn()::text END
"""
_SLOT = """
SELECT coalesce(plugin, 'physical replication')::text, coalesce(database, '')::text, active_pid,
       coalesce(confirmed_flush_lsn, '0/0')::text, coalesce(wal_status, ''),
       coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint,
       coalesce(to_jsonb(s) ->> 'invalidation_reason', CASE WHEN (to_jsonb(s) ->> 'conflicting')::bool
       THEN 'it conflicts with recovery' END, '')
FROM pg_replication_slots s WHERE slot_name = %s
"""
_TABLE = """
SELECT c.oid::bigint,
  CASE WHEN c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid) THEN 'i'
       ELSE c.relkind::text END,
  c.relreplident::text, has_table_privilege(c.oid, 'SELECT'),
  (SELECT json_agg(json_build_array(attname, atttypid::bigint, to_jsonb(a) ->> 'attgenerated' <> '', attnum)
                   ORDER BY attnum)
   FROM pg_attribute a WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
  (SELECT json_agg(json_build_array(
     CASE c.relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident ELSE false END,
     (SELECT json_agg(attname ORDER BY attnum) FROM pg_attribute
      WHERE attrelid = c.oid AND attnum = ANY ((indkey::int2[])[0 : indnkeyatts - 1]))))
   FROM pg_index WHERE indrelid = c.oid AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relname = %s
"""
# The first oid of what users create.
_OWN_TYPES = 16_384
# The enums and composite types that columns consist of, each with its labels: of domains the bases, of arrays and
# ranges the elements.
_NAMED_VALUES = """
WITH RECURSIVE part(number, type) AS (
  SELECT attnum, atttypid FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
  UNION
  SELECT part.number, inside.type FROM part JOIN pg_type t ON t.oid = part.type CROSS JOIN LATERAL (
    SELECT t.typbasetype AS type WHERE t.typtype = 'd'
    UNION ALL SELECT t.typelem WHERE t.typcategory = 'A'
    UNION ALL SELECT rngsubtype FROM pg_range r
      WHERE rngtypid = t.oid OR (to_jsonb(r) ->> 'rngmultitypid')::oid = t.oid
    UNION ALL SELECT atttypid FROM pg_attribute
      WHERE t.typtype = 'c' AND attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) AS inside
)
SELECT part.number, t.oid::bigint, t.typname::text,
  CASE t.typtype WHEN 'e' THEN (SELECT json_agg(json_build_array(e.oid::bigint, enumlabel) ORDER BY e.oid)
                                FROM pg_enum e WHERE enumtypid = t.oid)
  ELSE (SELECT json_build_array(json_build_array(0, string_agg(attnum || ' ' || atttypid, ',' ORDER BY attnum)))
        FROM pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) END
FROM part JOIN pg_type t ON t.oid = part.type WHERE t.typtype IN ('e', 'c') ORDER BY 1, 2
"""
# As many messages are checked before a refresh begins.
_PROBED = 1_000
_PROBE = """
SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) = ANY (%s))
FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
# The letters of inserts, updates, deletes and truncates.
_CHANGES = list(b"IUDT")
_PUBLICATION = """
SELECT pubinsert, pubupdate, pubdelete, pubtruncate,
  NOT pubviaroot AND EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
                             WHERE nspname = %s AND relname = %s AND relkind = 'p'),
  (SELECT to_jsonb(t) FROM pg_publication_tables t WHERE t.pubname = p.pubname AND schemaname = %s AND tablename = %s)
FROM pg_publication p WHERE pubname = %s
"""


@dataclass(frozen=True)
class NewSlot:
    """A slot that was just made: it gives all changes from `at` on, and `snapshot` shows what was there before."""

    at: int
    snapshot: str


class PostgresClient(PostgresConnection):
    """A connection to the database of one source, made when it is needed and made again when it broke.

    `where` is the place that errors name.
    """

    def __init__(self, declared: Postgres, where: str) -> None:
        super().__init__(
            declared,
            f"freshline {declared.slot}",
            where,
            explain=lambda error: _of_slot(error, declared, where=where),
        )
        self._declared = declared
        self._where = where
        self._types = TypeCatalog()

    # -- facts

    def inspect(self, url: str) -> tuple[PostgresServerFacts, TableFacts | None, PublicationFacts | None]:
        """All facts of the server, the table (None for none) and the publication.

        Raises DatabaseError and DatabaseRefusedError.
        """
        with self.asking(url) as connection:
            server = self._server(connection)
            if server.is_standby:
                return server, None, None
            return server, self._table(connection), self._publication(connection)

    def _server(self, connection: psycopg.Connection[Any]) -> PostgresServerFacts:
        row = connection.execute(_SERVER).fetchone()
        assert row is not None
        system_id, database, version, wal_level, is_standby, segment, flushed = row
        slot = None
        if not is_standby:
            found = connection.execute(_SLOT, (self._declared.slot,)).fetchone()
            if found is not None:
                plugin, of, active_pid, confirmed, wal_status, retained, invalid = found
                lost = invalid or ("its log was removed, which exceeded max_slot_wal_keep_size")
                lost = lost if wal_status == "lost" or invalid else ""
                slot = SlotFacts(plugin, of, active_pid, lsn_of(confirmed), retained, lost)
        timeline = 0 if segment is None else int(segment[:8], 16)
        end = 0 if flushed is None else lsn_of(flushed)
        return PostgresServerFacts(system_id, timeline, database, version, wal_level, is_standby, end, slot)

    def _table(self, connection: psycopg.Connection[Any]) -> TableFacts | None:
        declared = self._declared
        row = connection.execute(_TABLE, (declared.schema, declared.table)).fetchone()
        if row is None:
            return None
        oid, kind, identity, may_select, columns, indexes = row
        found = tuple(DatabaseColumn(*column) for column in columns or ())
        if any(column.type_id >= _OWN_TYPES for column in found):
            found = _with_named_values(connection, oid, found)
        unique = tuple(tuple(names) for _, names in indexes or ())
        key = next((tuple(names) for is_identity, names in indexes or () if is_identity), ())
        types = self._types.find(connection, {column.type_id for column in found})
        return TableFacts(oid, kind, identity, may_select, found, key, unique, types)

    def _publication(self, connection: psycopg.Connection[Any]) -> PublicationFacts | None:
        declared = self._declared
        named = (declared.schema, declared.table)
        row = connection.execute(_PUBLICATION, (*named, *named, declared.publication)).fetchone()
        if row is None:
            return None
        kinds = ("insert", "update", "delete", "truncate")
        missing = tuple(kind for kind, there in zip(kinds, row[:4], strict=True) if not there)
        by_partition, table = row[4:]
        if table is None:
            return PublicationFacts(missing, None, by_partition=by_partition)
        columns = table.get("attnames")
        if columns is None:
            # Before 15 a publication has all columns.
            found = self._table(connection)
            columns = [] if found is None else [column.name for column in found.columns]
        return PublicationFacts(missing, tuple(columns), table.get("rowfilter") is not None)

    # -- what is written

    def provide_publication(self, url: str) -> None:
        """Make the publication. Raises PublicationError where the user may not."""
        with self.asking(url) as connection:
            try:
                connection.execute(publication_statement(self._declared).encode())
            except psycopg.errors.InsufficientPrivilege as error:
                said = f", and the user may not make it ({error.diag.message_primary})"
                raise missing_publication(self._declared, said, where=self._where) from None
            except psycopg.errors.DuplicateObject:
                return

    def advance(self, url: str, lsn: int) -> None:
        """Let the slot forget what is before a place; one that is further stays there."""
        with self.asking(url) as connection:
            connection.execute(
                "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)", (self._declared.slot, lsn_text(lsn))
            )

    def drop_slot(self, url: str) -> None:
        """Remove the slot, where it is there. Raises SlotForeignError where somebody reads it."""
        with self.asking(url) as connection:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s",
                (self._declared.slot,),
            )

    @contextmanager
    def new_slot(self, url: str, version: int, cancellation: Cancellation) -> Iterator[NewSlot]:
        """Make the slot. Its snapshot is there as long as the context; the slot stays."""
        snapshot = "(SNAPSHOT 'export')" if version >= 150_000 else "EXPORT_SNAPSHOT"
        statement = f'CREATE_REPLICATION_SLOT "{self._declared.slot}" LOGICAL pgoutput {snapshot}'
        with self.explained(), self.connect(url, replication="database") as connection:
            with cancels(cancellation, connection):
                row = connection.execute(statement.encode()).fetchone()
            assert row is not None
            yield NewSlot(lsn_of(row[1]), row[2])

    # -- what is read

    def storage(self, url: str, table: ReadTable) -> tuple[int, ...]:
        """The numbers of the files in which the database has the table, which a TRUNCATE changes."""
        with self.asking(url) as connection:
            return _storage(connection, table)

    @contextmanager
    def snapshot_lines(
        self, url: str, snapshot: str, table: ReadTable, stored: tuple[int, ...], cancellation: Cancellation
    ) -> Iterator[tuple[int, Iterator[bytes]]]:
        """The rows of the table as lines of COPY, and the time of the snapshot in microseconds since 1970.

        A TRUNCATE empties a table for older snapshots too. So `stored` is what `storage` gave before the snapshot was
        made. Raises DatabaseError where the table is not there any more; then another snapshot has to be made.
        """
        with self.explained(), self.connect(url) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
            # Changes have the rows that policies hide; with this, a snapshot that would not have them is an error.
            connection.execute("SET LOCAL row_security = off")
            with cancels(cancellation, connection):
                locked = sql.Identifier(self._declared.schema, self._declared.table)
                connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(locked))
            if _storage(connection, table) != stored:
                raise DatabaseError(
                    f"{table.name} was truncated or rewritten while its snapshot was made. It is tried again.",
                    where=self._where,
                )
            row = connection.execute("SELECT (extract(epoch FROM now()) * 1000000)::bigint").fetchone()
            assert row is not None
            columns = sql.SQL(", ").join(sql.Identifier(column.found) for column in table.columns)
            name = sql.Identifier(self._declared.schema, self._declared.table)
            statement = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(columns, name)
            with cancels(cancellation, connection), connection.cursor().copy(statement) as copy:
                yield row[0], (bytes(block) for block in copy)

    @contextmanager
    def changes(
        self, url: str, up_to: int, most: int, cancellation: Cancellation
    ) -> Iterator[Iterator[tuple[int, bytes]]]:
        """The messages of the slot, each with its place: whole transactions, until there are `most` messages or more.

        They end with the last commit that begins before `up_to`. Raises what PublicationError and SlotForeignError say.
        """
        statement = sql.SQL(
            "COPY (SELECT (lsn - '0/0'::pg_lsn)::bigint, data FROM pg_logical_slot_peek_binary_changes("
            "{}, {}::pg_lsn, {}::int, 'proto_version', '1', 'publication_names', {})) TO STDOUT (FORMAT binary)"
        ).format(
            sql.Literal(self._declared.slot),
            sql.Literal(lsn_text(up_to)),
            sql.Literal(most),
            sql.Literal(f'"{self._declared.publication}"'),
        )
        with (
            self.asking(url) as connection,
            cancels(cancellation, connection),
            connection.cursor().copy(statement) as copy,
        ):
            copy.set_types(["int8", "bytea"])
            yield copy.rows()

    def has_changes(self, url: str, up_to: int, cancellation: Cancellation) -> bool:
        """Whether there is a change of the table, or so many other messages that there may be one behind them."""
        with self.asking(url) as connection, cancels(cancellation, connection):
            given = (_CHANGES, self._declared.slot, lsn_text(up_to), _PROBED, f'"{self._declared.publication}"')
            row = connection.execute(_PROBE, given).fetchone()
        assert row is not None
        return bool(row[0] >= _PROBED or row[1] > 0)


def _with_named_values(
    connection: psycopg.Connection[Any], table: int, columns: tuple[DatabaseColumn, ...]
) -> tuple[DatabaseColumn, ...]:
    found: dict[int, list[NamedValues]] = {}
    for number, type_id, name, labels in connection.execute(_NAMED_VALUES, (table,)):
        each = NamedValues(type_id, name, tuple((oid, label or "") for oid, label in labels or ()))
        found.setdefault(number, []).append(each)
    return tuple(replace(column, named_values=tuple(found.get(column.number, ()))) for column in columns)


def _storage(connection: psycopg.Connection[Any], table: ReadTable) -> tuple[int, ...]:
    rows = connection.execute(
        "SELECT coalesce(pg_relation_filenode(id), 0)::bigint FROM "
        "(SELECT %(id)s::oid AS id UNION SELECT relid FROM pg_partition_tree(%(id)s::oid)) AS t ORDER BY id",
        {"id": table.id},
    ).fetchall()
    return tuple(row[0] for row in rows)


def _of_slot(error: psycopg.Error, declared: Postgres, *, where: str) -> SourceError | None:
    """The error to report for one of the server that only a slot has, None for another."""
    state, said = error.sqlstate, error.diag.message_primary or ""
    if state == "55006":
        return SlotForeignError(
            f"the slot {declared.slot} is in use: {said}. A slot is for one source alone: name another one, or end who "
            "uses it.",
            where=where,
        )
    if state == "42704" and "publication" in said:
        return PublicationError(
            f"{said}, or it did not at the time of the changes. If it was made anew since, remove the slot: SELECT "
            f"pg_drop_replication_slot('{declared.slot}'). The source then says how it begins anew.",
            where=where,
        )
    return None
