"""A Postgres server as it is asked: facts, a slot with its snapshot, and the changes behind a position.

Changes are read by `pg_logical_slot_peek_binary_changes`, which moves nothing and gives whole transactions only. COPY
brings its rows, and those of a snapshot, one by one, so that one message of the server is in memory and not all. No
error and no text of this module shows the connection string.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import version as libpq_version

from freshline.errors import (
    DatabaseError,
    DatabaseRefusedError,
    PublicationError,
    SlotForeignError,
    SourceError,
)
from freshline.refresh.cancellation import Cancellation
from freshline.sources.postgres.connector import Postgres
from freshline.sources.postgres.events import ReadTable
from freshline.sources.postgres.facts import (
    DatabaseColumn,
    PublicationFacts,
    ServerFacts,
    SlotFacts,
    TableFacts,
    missing_publication,
    publication_statement,
)
from freshline.sources.postgres.position import lsn_of, lsn_text
from freshline.sources.postgres.values import DatabaseType

# How long a server may take to answer a connection, in seconds.
_CONNECT_SECONDS = 10
_SETTINGS = """
SET datestyle = 'ISO, YMD'; SET timezone = 'UTC'; SET bytea_output = 'hex'; SET extra_float_digits = 1;
SET intervalstyle = 'postgres'; SET statement_timeout = 0; SET lock_timeout = 0
"""
# The server ends what it does for a client that is gone. Before 14 it does not know that.
_SETTINGS_14 = "; SET client_connection_check_interval = '5s'"
# The words of libpq for a connection that another try does not make, in the language of the server.
_REFUSED = re.compile(
    r"password|authentication|must be superuser|pg_hba\.conf|does not exist|permission denied|not permitted|"
    r"certificate|SSL (?:error|was required)|does not support SSL|not currently accepting|private key file|"
    r"invalid sslmode"
)
_SAID = re.compile(r"FATAL:\s*(?:[0-9A-Z]{5}:\s*)?(.*)")
# Beginnings of SQLSTATE that say that the server is away or busy for a while.
_AWAY = ("08", "57P", "53", "40", "55P03", "57014", "58")

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
SELECT c.oid::bigint, c.relkind::text, c.relreplident::text, has_table_privilege(c.oid, 'SELECT'),
  (SELECT json_agg(json_build_array(attname, atttypid::bigint, to_jsonb(a) ->> 'attgenerated' <> '') ORDER BY attnum)
   FROM pg_attribute a WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped),
  (SELECT json_agg(json_build_array(
     CASE c.relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident ELSE false END,
     (SELECT json_agg(attname ORDER BY attnum) FROM pg_attribute
      WHERE attrelid = c.oid AND attnum = ANY ((indkey::int2[])[0 : indnkeyatts - 1]))))
   FROM pg_index WHERE indrelid = c.oid AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL)
FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s AND relname = %s
"""
# As many messages are looked at before a refresh begins.
_PROBED = 1_000
_PROBE = """
SELECT count(*), count(*) FILTER (WHERE get_byte(data, 0) = ANY (%s))
FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, %s, 'proto_version', '1', 'publication_names', %s)
"""
# The letters of inserts, updates, deletes and truncates.
_CHANGES = list(b"IUDT")
_TYPES = "SELECT oid::bigint, typname::text, typtype::text, typbasetype::bigint, typelem::bigint, typcategory::text "
_TYPES += "FROM pg_type WHERE oid = ANY (%s)"
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


class Server:
    """A connection to the database of one source, made when it is needed and made again when it broke.

    `where` is the place that errors name.
    """

    def __init__(self, declared: Postgres, where: str) -> None:
        self._declared = declared
        self._where = where
        self._connection: psycopg.Connection[Any] | None = None
        # Of what the connection was made; a text that is a secret is not kept.
        self._made_of: int | None = None
        self._types: tuple[tuple[int, ...], Mapping[int, DatabaseType]] = ((), {})

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- facts

    def inspect(self, url: str) -> tuple[ServerFacts, TableFacts | None, PublicationFacts | None]:
        """All facts of the server, the table (None for none) and the publication.

        Raises DatabaseError and DatabaseRefusedError.
        """
        with self.asking(url) as connection:
            server = self._server(connection)
            if server.is_standby:
                return server, None, None
            return server, self._table(connection), self._publication(connection)

    def _server(self, connection: psycopg.Connection[Any]) -> ServerFacts:
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
        return ServerFacts(system_id, timeline, database, version, wal_level, is_standby, end, slot)

    def _table(self, connection: psycopg.Connection[Any]) -> TableFacts | None:
        declared = self._declared
        row = connection.execute(_TABLE, (declared.schema, declared.table)).fetchone()
        if row is None:
            return None
        oid, kind, identity, may_select, columns, indexes = row
        found = tuple(DatabaseColumn(*column) for column in columns or ())
        unique = tuple(tuple(names) for _, names in indexes or ())
        key = next((tuple(names) for is_identity, names in indexes or () if is_identity), ())
        types = self._types_of(connection, tuple(sorted({column.type_id for column in found})))
        return TableFacts(oid, kind, identity, may_select, found, key, unique, types)

    def _types_of(self, connection: psycopg.Connection[Any], wanted: tuple[int, ...]) -> Mapping[int, DatabaseType]:
        if self._types[0] == wanted:
            return self._types[1]
        rows: dict[int, tuple[Any, ...]] = {}
        ask = set(wanted)
        while ask:
            for row in connection.execute(_TYPES, (sorted(ask),)):
                rows[row[0]] = row
            # Of a domain its base, of an array its element.
            ask = {oid for row in rows.values() for oid in row[3:5] if oid} - rows.keys()

        def resolved(oid: int) -> DatabaseType:
            _, name, kind, base, element, category = rows[oid]
            if kind == "d":
                return resolved(base)
            return DatabaseType(name, resolved(element) if category == "A" and element else None)

        self._types = (wanted, {oid: resolved(oid) for oid in wanted if oid in rows})
        return self._types[1]

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
        with self._explained(), self._connect(url, replication="database") as connection:
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
        with self._explained(), self._connect(url) as connection:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
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

    # -- the connection

    @contextmanager
    def asking(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """The connection. Errors of the server become errors of sources, and one that broke is let go."""
        with self._explained():
            made_of = hash(url)
            connection = self._connection
            if connection is None or connection.closed or self._made_of != made_of:
                self.close()
                connection = self._connection = self._connect(url)
                self._made_of = made_of
            try:
                yield connection
            except BaseException:
                # Whatever state it is in, the next question begins with a new one.
                self.close()
                raise

    def _connect(self, url: str, *, replication: str | None = None) -> psycopg.Connection[Any]:
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The message of libpq shows a part of the text, which has the password.
            raise DatabaseRefusedError(
                "option 'url': it stands for no connection string, such as postgresql://user:password@host/database.",
                where=self._where,
            ) from None
        has_system_roots = libpq_version() >= 160_000
        parameters = connection_parameters(given, os.environ, self._declared, has_system_roots=has_system_roots)
        if replication is not None:
            parameters["replication"] = replication
        connection = psycopg.connect(make_conninfo(**parameters), autocommit=True)
        if replication is None:
            newer = connection.info.server_version >= 140_000
            connection.execute((_SETTINGS + (_SETTINGS_14 if newer else "")).encode())
        return connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise source_error(error, self._declared, where=self._where) from None


def _storage(connection: psycopg.Connection[Any], table: ReadTable) -> tuple[int, ...]:
    rows = connection.execute(
        "SELECT coalesce(pg_relation_filenode(id), 0)::bigint FROM "
        "(SELECT %(id)s::oid AS id UNION SELECT relid FROM pg_partition_tree(%(id)s::oid)) AS t ORDER BY id",
        {"id": table.id},
    ).fetchall()
    return tuple(row[0] for row in rows)


def connection_parameters(
    given: Mapping[str, Any], environment: Mapping[str, str], declared: Postgres, *, has_system_roots: bool
) -> dict[str, Any]:
    """The parameters of libpq for a connection string that was read, in an environment that libpq reads too.

    Without `sslmode` the certificate of a server on another machine is verified, and `require` means the same. TLS that
    is not verified protects from nobody, so who wants that has to write `prefer`.
    """
    found = {name: value for name, value in given.items() if value is not None}
    mode = found.get("sslmode")
    if mode == "require" or (mode is None and not _is_local(found, environment)):
        found["sslmode"] = "verify-full"
    if declared.tls_ca is not None:
        found["sslrootcert"] = declared.tls_ca
        found["sslmode"] = "verify-full" if mode is None else found["sslmode"]
    if declared.tls_certificate is not None:
        found["sslcert"] = declared.tls_certificate
    if declared.tls_key is not None:
        found["sslkey"] = declared.tls_key
    if found.get("sslmode") == "verify-full" and "sslrootcert" not in found and has_system_roots:
        found["sslrootcert"] = "system"
    return {
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
        **found,
        "application_name": f"freshline {declared.slot}",
        "client_encoding": "UTF8",
    }


def _is_local(given: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    """Whether a connection leaves this machine for nobody: by a socket, or to itself."""
    address = given.get("hostaddr") or environment.get("PGHOSTADDR")
    named = str(address or given.get("host") or environment.get("PGHOST") or "")
    if not address and (given.get("service") or environment.get("PGSERVICE")):
        # A service is a file of libpq, which may name any address.
        return False
    hosts = named.split(",")
    return all(host in ("", "localhost", "::1") or host.startswith(("/", "@", "127.")) for host in hosts)


def source_error(error: psycopg.Error, declared: Postgres, *, where: str) -> SourceError:
    """The error to report for one of the server or its client. It shows no connection string."""
    state, said = error.sqlstate, error.diag.message_primary
    if state is None or said is None:
        return _connection_error(str(error), where)
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
    if state.startswith(_AWAY):
        return DatabaseError(f"the database answers: {said}. Nothing was committed; it is tried again.", where=where)
    return DatabaseRefusedError(f"the database refuses the request: {said}. Correct what it names.", where=where)


def _connection_error(text: str, where: str) -> SourceError:
    """Of a connection that was not made, or broke: only what the server itself says is shown."""
    said = _SAID.search(text)
    if _REFUSED.search(text):
        because = said[1].strip() if said is not None else _shown(text)
        return DatabaseRefusedError(
            f"the database refuses the connection: {because}. Correct what `url` stands for.", where=where
        )
    because = f" ({said[1].strip()})" if said is not None else ""
    return DatabaseError(
        f"the database server does not answer{because}. Nothing was read; it is tried again.", where=where
    )


def _shown(text: str) -> str:
    """The message of a client about TLS, without the names in it."""
    for word in ("certificate", "SSL", "private key"):
        if word in text:
            return f"its {word} is not accepted"
    return "the connection string is not accepted"


@contextmanager
def cancels(cancellation: Cancellation, connection: psycopg.Connection[Any]) -> Iterator[None]:
    """The server ends its work for the connection when the request is cancelled."""
    cancellation.on_cancel(connection.cancel)
    try:
        yield
    except psycopg.errors.QueryCanceled:
        cancellation.check()
        raise
    finally:
        cancellation.forget(connection.cancel)
