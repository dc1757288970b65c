"""A connection to a Postgres server: how it is made, what its errors mean, and that it shows no secret.

No error and no text of this module has the connection string.
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import version as libpq_version

from freshline.compute.cancellation import Cancellation
from freshline.errors import DatabaseError, DatabaseRefusedError, SourceError
from freshline.sources.databases.postgres_values import DatabaseType
from freshline.sources.databases.this_machine import is_this_machine
from freshline.sources.tls import TlsFiles

# The seconds that a server may take to answer a connection.
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
# Texts of the system, which name nobody.
_UNREACHED = re.compile(
    r"connection refused|name or service not known|temporary failure in name resolution|no route to host|"
    r"network is unreachable|timeout expired|no such file or directory",
    re.IGNORECASE,
)
_SAID = re.compile(r"FATAL:\s*(?:[0-9A-Z]{5}:\s*)?(.*)")
# Beginnings of SQLSTATE that say that the server is away or busy for a while.
_AWAY = ("08", "57P", "53", "40", "55P03", "57014", "58")
_TYPES = "SELECT oid::bigint, typname::text, typtype::text, typbasetype::bigint, typelem::bigint, typcategory::text "
_TYPES += "FROM pg_type WHERE oid = ANY (%s)"


class PostgresConnection:
    """A connection for one source, made when it is needed and made again when it broke.

    `application` is the name by which the server shows it, `where` the place that errors name. `explain` gives the
    error to report for one of the server that only this source may have, None for another.
    """

    def __init__(
        self,
        tls: TlsFiles,
        application: str,
        where: str,
        *,
        explain: Callable[[psycopg.Error], SourceError | None] = lambda error: None,
    ) -> None:
        self._tls = tls
        self._application = application
        self._named_in_errors = where
        self._explain = explain
        self._connection: psycopg.Connection[Any] | None = None
        # The hash of the texts that the connection was made of; a text that is a secret is not kept.
        self._made_of: int | None = None

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def asking(self, url: str) -> Iterator[psycopg.Connection[Any]]:
        """The connection. Errors of the server become errors of sources, and one that broke is let go."""
        with self.explained():
            made_of = hash(url)
            connection = self._connection
            if connection is None or self._made_of != made_of or _was_left(connection):
                self.close()
                connection = self._connection = self.connect(url)
                self._made_of = made_of
            try:
                yield connection
            except BaseException:
                # Whatever state it is in, the next question begins with a new one.
                self.close()
                raise

    def connect(self, url: str, *, replication: str | None = None) -> psycopg.Connection[Any]:
        """A new connection. Raises the errors of psycopg, and DatabaseRefusedError for a text that is none."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.ProgrammingError:
            # The message of libpq shows a part of the text, which has the password.
            raise DatabaseRefusedError(
                "option 'url': it stands for no connection string, such as postgresql://user:password@host/database.",
                where=self._named_in_errors,
            ) from None
        has_system_roots = libpq_version() >= 160_000
        parameters = connection_parameters(
            given, os.environ, self._tls, self._application, has_system_roots=has_system_roots
        )
        if replication is not None:
            parameters["replication"] = replication
        connection = psycopg.connect(make_conninfo(**parameters), autocommit=True)
        if replication is None:
            newer = connection.info.server_version >= 140_000
            connection.execute((_SETTINGS + (_SETTINGS_14 if newer else "")).encode())
        return connection

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of psycopg become errors of sources."""
        try:
            yield
        except psycopg.Error as error:
            own = self._explain(error)
            raise (own or source_error(error, where=self._named_in_errors)) from None


def _was_left(connection: psycopg.Connection[Any]) -> bool:
    """Whether the server ended an idle connection, as it does when it restarts: it sent something that nobody asked."""
    if connection.closed:
        return True
    waiting = select.poll()
    waiting.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(waiting.poll(0))


def connection_parameters(
    given: Mapping[str, Any],
    environment: Mapping[str, str],
    tls: TlsFiles,
    application: str,
    *,
    has_system_roots: bool,
) -> dict[str, Any]:
    """The parameters of libpq for a connection string that was read, in an environment that libpq reads too.

    Without `sslmode` the certificate of a server on another machine is verified, and `require` means the same. TLS that
    is not verified protects from nobody, so who wants that has to write `prefer`.
    """
    found = {name: value for name, value in given.items() if value is not None}
    mode = found.get("sslmode")
    if mode == "require" or (mode is None and not _is_local(found, environment)):
        found["sslmode"] = "verify-full"
    if tls.tls_ca is not None:
        found["sslrootcert"] = tls.tls_ca
        found["sslmode"] = "verify-full" if mode is None else found["sslmode"]
    if tls.tls_certificate is not None:
        found["sslcert"] = tls.tls_certificate
    if tls.tls_key is not None:
        found["sslkey"] = tls.tls_key
    if found.get("sslmode") == "verify-full" and "sslrootcert" not in found and has_system_roots:
        found["sslrootcert"] = "system"
    return {
        "connect_timeout": _CONNECT_SECONDS,
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 60_000,
        **found,
        "application_name": application,
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
    return all(host == "" or host.startswith(("/", "@")) or is_this_machine(host) for host in hosts)


def source_error(error: psycopg.Error, *, where: str) -> SourceError:
    """The error to report for one of the server or its client. It shows no connection string."""
    state, said = error.sqlstate, error.diag.message_primary
    if state is None or said is None:
        return _connection_error(str(error), where)
    if state.startswith(_AWAY):
        return DatabaseError(f"the database answers: {said}. Nothing was committed; it is tried again.", where=where)
    return DatabaseRefusedError(f"the database refuses the request: {said}. Correct what it names.", where=where)


def _connection_error(text: str, where: str) -> SourceError:
    """The error of a connection that was not made, or broke. It shows only the text of the server itself."""
    said = _SAID.search(text)
    if _REFUSED.search(text):
        because = said[1].strip() if said is not None else _shown(text)
        return DatabaseRefusedError(
            f"the database refuses the connection: {because}. Correct what `url` stands for.", where=where
        )
    unreached = _UNREACHED.search(text)
    if said is not None:
        because = f" ({said[1].strip()})"
    else:
        because = f" ({unreached[0].lower()}; is the address in `url` right?)" if unreached is not None else ""
    return DatabaseError(
        f"the database server does not answer{because}. Nothing was committed; it is tried again.", where=where
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


class TypeCatalog:
    """The types of a database by their oids, asked once for the same oids."""

    def __init__(self) -> None:
        self._known: tuple[tuple[int, ...], Mapping[int, DatabaseType]] = ((), {})

    def find(self, connection: psycopg.Connection[Any], oids: Iterable[int]) -> Mapping[int, DatabaseType]:
        """The types of these oids, of a domain that of its base; one that is not there is left out."""
        wanted = tuple(sorted(set(oids)))
        if self._known[0] == wanted:
            return self._known[1]
        rows: dict[int, tuple[Any, ...]] = {}
        ask = set(wanted)
        while ask:
            for row in connection.execute(_TYPES, (sorted(ask),)):
                rows[row[0]] = row
            # The base of a domain, the element of an array.
            ask = {oid for row in rows.values() for oid in row[3:5] if oid} - rows.keys()

        def resolved(oid: int) -> DatabaseType:
            _, name, kind, base, element, category = rows[oid]
            if kind == "d":
                return resolved(base)
            return DatabaseType(name, resolved(element) if category == "A" and element else None)

        self._known = (wanted, {oid: resolved(oid) for oid in wanted if oid in rows})
        return self._known[1]
