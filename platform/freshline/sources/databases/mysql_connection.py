"""A connection to a server of MySQL or MariaDB: how it is made, what its errors mean, and that it shows no secret.

No error and no text of this module has the address with its password.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql

from freshline.compute.cancellation import Cancellation
from freshline.errors import DatabaseError, DatabaseRefusedError, SourceError
from freshline.sources.databases.this_machine import is_this_machine
from freshline.sources.tls import TlsFiles, tls_context

# The seconds that a server may take to answer a connection, and then to send something.
_CONNECT_SECONDS, _ANSWER_SECONDS = 10, 600
_PORT = 3306
_SETTINGS = (
    "SET SESSION time_zone = '+00:00', SESSION net_write_timeout = 600",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
# Numbers of errors that say that the server is away or busy for a while: it ends, has too many connections, ended the
# connection or the statement, was waited for too long, or has another row or table than when the transaction began.
_AWAY = frozenset(
    (
        1020,
        1021,
        1037,
        1040,
        1041,
        1053,
        1077,
        1079,
        1129,
        1158,
        1159,
        1160,
        1161,
        1203,
        1205,
        1206,
        1213,
        1226,
        1317,
        1412,
    )
) | {1927, 1969, 3024, 3169}
_CLIENT_ERRORS = range(2000, 3000)
# Those of a connection that was not made.
_UNREACHED = (2002, 2003)
_EXAMPLE = "mysql://user:password@host:3306/database"


@dataclass(frozen=True)
class MysqlAddress:
    """An address that was read. It has the password, so it is kept nowhere."""

    host: str
    port: int
    user: str
    password: str
    database: str
    socket: str | None
    is_verified: bool
    is_plain: bool = False

    def __repr__(self) -> str:
        return "MysqlAddress(..)"


def read_address(url: str, *, where: str) -> MysqlAddress:
    """The address of a URL. Raises DatabaseRefusedError, which shows nothing of it."""

    def refused(why: str) -> DatabaseRefusedError:
        return DatabaseRefusedError(f"option 'url': {why}. It is such as {_EXAMPLE}.", where=where)

    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORT
        given = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        raise refused("it stands for no address of MySQL or MariaDB") from None
    unknown = given.keys() - {"user", "password", "unix_socket", "ssl-mode"}
    if unknown:
        raise refused("it has parameters that are not known. Known are user, password, unix_socket and ssl-mode")
    mode = given.get("ssl-mode", "").lower()
    if mode not in ("", "disabled", "verify-identity", "verify_identity"):
        raise refused("`ssl-mode` is verify-identity or disabled")
    user = unquote(parts.username or "") or given.get("user", "")
    database = unquote(parts.path.removeprefix("/"))
    if not user or not database or "/" in database:
        raise refused("it has no user" if not user else "it names no database")
    at_socket = given.get("unix_socket")
    is_local = at_socket is not None or host == "" or is_this_machine(host)
    return MysqlAddress(
        host or "localhost",
        port,
        user,
        unquote(parts.password or "") or given.get("password", ""),
        database,
        at_socket,
        is_verified=not is_local if not mode else mode != "disabled",
        is_plain=mode == "disabled",
    )


class MysqlConnection:
    """Connections for one source. `where` is the place that errors name."""

    def __init__(self, tls: TlsFiles, where: str) -> None:
        self._tls = tls
        self._where = where
        self._connection: Any = None
        # The hash of the texts that the connection was made of; a text that is a secret is not kept.
        self._made_of: int | None = None

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            _end(self._connection)
            self._connection = None

    @contextmanager
    def asking(self, url: str) -> Iterator[Any]:
        """The connection. Errors of the server become errors of sources, and one that broke is let go."""
        with self.explained():
            made_of = hash(url)
            if self._connection is None or self._made_of != made_of or not _answers(self._connection):
                self.close()
                self._connection, self._made_of = self.connect(url), made_of
            try:
                yield self._connection
            except BaseException:
                # Whatever state it is in, the next question begins with a new one.
                self.close()
                raise

    @contextmanager
    def connected(self, url: str) -> Iterator[Any]:
        """A connection of its own, which ends with the context, whatever it still has to send."""
        with self.explained():
            connection = self.connect(url)
            try:
                yield connection
            finally:
                _end(connection)

    def connect(self, url: str) -> Any:
        """A new connection, whose values are the bytes that the server sends. Raises the errors of PyMySQL."""
        address = read_address(url, where=self._where)
        connection = pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            # A text would have to be Latin 1.
            password=address.password.encode(),
            database=address.database,
            charset="utf8mb4",
            use_unicode=False,
            conv={},
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            program_name="freshline",
            defer_connect=True,
            **self._tls_parameters(address),
        )
        connection.connect(_socket_of(address))
        with connection.cursor() as cursor:
            for statement in _SETTINGS:
                cursor.execute(statement)
            # A limit that the server sets for all, by another name and unit in each of the two.
            is_mariadb = "mariadb" in str(connection.get_server_info()).lower()
            cursor.execute(f"SET SESSION {'max_statement_time' if is_mariadb else 'max_execution_time'} = 0")
        return connection

    def _tls_parameters(self, address: MysqlAddress) -> dict[str, Any]:
        tls = self._tls
        if not address.is_verified and tls.tls_ca is None and tls.tls_certificate is None:
            # To this machine PyMySQL takes TLS where the server has it.
            return {"ssl_disabled": True} if address.is_plain else {}
        # A context of our own: without a file of authorities PyMySQL would not compare the name of the server.
        return {"ssl": tls_context(tls.tls_ca, tls.tls_certificate, tls.tls_key)}

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Errors of PyMySQL become errors of sources."""
        try:
            yield
        except pymysql.Error as error:
            raise source_error(error, where=self._where) from None
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError | ssl.SSLError) or not isinstance(error, OSError):
                raise DatabaseRefusedError(
                    "option 'url': it stands for no address that can be used, or a file of `tls` is not there. "
                    f"Correct it. It is such as {_EXAMPLE}.",
                    where=self._where,
                ) from None
            raise

    @contextmanager
    def cancels(self, cancellation: Cancellation, connection: Any, url: str) -> Iterator[None]:
        """The server ends its statement for the connection when the request is cancelled."""

        def kill() -> None:
            with suppress(pymysql.Error, OSError):
                other = self.connect(url)
                with suppress(pymysql.Error), other.cursor() as cursor:
                    cursor.execute(f"KILL QUERY {int(connection.thread_id())}")
                _end(other)

        cancellation.on_cancel(kill)
        try:
            yield
        except pymysql.Error:
            cancellation.check()
            raise
        finally:
            cancellation.forget(kill)


def _socket_of(address: MysqlAddress) -> socket.socket | None:
    """A socket that notices within a minute that the other machine is gone; None for one that PyMySQL makes."""
    if address.socket is not None:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.settimeout(_CONNECT_SECONDS)
        try:
            found.connect(address.socket)
        except OSError as error:
            found.close()
            raise pymysql.OperationalError(2002, "the socket does not answer") from error
        return found
    try:
        found = socket.create_connection((address.host, address.port), _CONNECT_SECONDS)
    except OSError as error:
        raise pymysql.OperationalError(2003, "the server does not answer") from error
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return found


def _answers(connection: Any) -> bool:
    """Whether a connection that was not used for a while is still one: a server ends those that are idle."""
    try:
        connection.ping(reconnect=False)
    except (pymysql.Error, OSError):
        return False
    return True


def unread(connection: Any) -> None:
    """Forget what a statement still has to send. PyMySQL would read all of it first, also from a closed connection."""
    result = connection._result
    if result is not None and result.unbuffered_active:
        result.unbuffered_active = False
        result.connection = None


def _end(connection: Any) -> None:
    unread(connection)
    with suppress(pymysql.Error):
        connection.close()


def source_error(error: pymysql.Error, *, where: str) -> SourceError:
    """The error to report for one of the server or its client. It shows no address."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    cause = getattr(error, "original_exception", None) or error.__cause__
    if isinstance(cause, ssl.SSLError) or number == 2026:
        return DatabaseRefusedError(
            "the database refuses the connection: its certificate is not accepted, or it has none. Correct `tls.ca`, "
            "or what `url` stands for.",
            where=where,
        )
    if number in _CLIENT_ERRORS or number == 0:
        reason = cause.strerror if number in _UNREACHED and isinstance(cause, OSError) else None
        because = f" ({reason.lower()}; is the address in `url` right?)" if reason else ""
        return DatabaseError(
            f"the database server does not answer{because}. Nothing was committed; it is tried again.", where=where
        )
    said = _said(error)
    if number in _AWAY:
        return DatabaseError(f"the database answers: {said}. Nothing was committed; it is tried again.", where=where)
    return DatabaseRefusedError(f"the database refuses the request: {said}. Correct what it names.", where=where)


def _said(error: pymysql.Error) -> str:
    said = error.args[1] if len(error.args) > 1 else ""
    return str(said if not isinstance(said, bytes) else said.decode("utf-8", "replace")).rstrip(".")
