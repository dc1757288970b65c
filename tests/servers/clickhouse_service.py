"""ClickHouse's HTTP interface before chdb, which is ClickHouse's engine as a library: run in a process of its own.

    python -m tests.servers.clickhouse_service PORT FOLDER USER PASSWORD

Statements, formats, types, settings, errors and tables on disk are the engine's own. Written here, by its documentation
of the HTTP interface, are: `query` and the body, `database`, `default_format`, settings and `param_..` in the address,
the three ways to send a password, gzip, status codes and X-ClickHouse headers. Statements run one after another. There
are no sessions by `session_id`, no users but one, no `X-ClickHouse-Progress`, and no `written_rows`.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from tempfile import NamedTemporaryFile
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_CODE = re.compile(r"Code: (\d+)\. ")
# Of the server's exceptionCodeToHTTPStatus: those that tests get. All others are 500.
_BAD_REQUEST = {6, 7, 10, 15, 16, 25, 26, 27, 36, 38, 41, 44, 53, 62, 69, 72, 117, 130, 131, 427, 457, 467, 675, 676}
_NOT_FOUND = {46, 47, 50, 56, 60, 63, 73, 78, 81, 115, 336, 511}
_STATUS = {194: 401, 192: 403, 193: 403, 497: 403, 516: 403, 222: 413, 48: 501, 76: 503, 209: 503, 381: 411}
_READ_ONLY, _AUTHENTICATION_FAILED = 164, 516
# Of the address, and not settings.
_OWN = {
    "query",
    "database",
    "default_format",
    "user",
    "password",
    "query_id",
    "compress",
    "session_id",
    "quota_key",
    "wait_end_of_query",
}
_WITH_ROWS = re.compile(rb"\s+FORMAT\s+\w+\s*\Z", re.IGNORECASE)
_READS = re.compile(rb"\s*(SELECT|SHOW|DESCRIBE|DESC|EXISTS|WITH|EXPLAIN)\b", re.IGNORECASE)
_TYPES = {"JSON": "application/json", "JSONEachRow": "application/x-ndjson", "CSV": "text/csv", "Arrow": "application/"}


class _RefusedError(Exception):
    def __init__(self, code: int, text: str) -> None:
        self.code = code
        super().__init__(f"Code: {code}. DB::Exception: {text}")


class _Service:
    """The engine, which one request has at a time."""

    def __init__(self, folder: str, user: str, password: str) -> None:
        from chdb.session import Session

        self._session = Session(folder)
        self._lock = threading.Lock()
        self.user, self.password = user, password
        self.version = self._text("SELECT version()")
        self.zone = self._text("SELECT timezone()")

    def _text(self, query: str) -> str:
        return str(self._session.query(query, "TSVRaw").bytes().decode().strip())

    def run(self, query: bytes, asked: Mapping[str, str], form: str, rows: bytes) -> Any:
        """The engine's result; `rows` are those of an insert. Raises RuntimeError with the engine's own sentence."""
        with self._lock, self._set(asked), NamedTemporaryFile() as file:
            found = _WITH_ROWS.search(query) if rows else None
            if found is not None:
                # Within its statement the engine would take two line ends for the end of the rows. A server does not.
                file.write(rows)
                file.flush()
                query = query[: found.start()] + f" FROM INFILE '{file.name}' COMPRESSION 'none'".encode() + found[0]
            return self._session.query(query, form)

    @contextmanager
    def _set(self, asked: Mapping[str, str]) -> Iterator[None]:
        done = []
        if "database" in asked:
            self._session.query(f"USE {_quoted(asked['database'], '`')}")
        try:
            for name, value in asked.items():
                if name not in _OWN:
                    self._session.query(f"SET {_quoted(name, '`')} = {_quoted(value, chr(39))}")
                    # A parameter of a query is given by each query that has it.
                    done += [] if name.startswith("param_") else [name]
            yield
        finally:
            for name in done:
                self._session.query(f"SET {_quoted(name, '`')} = DEFAULT")
            self._session.query("USE default")


def _quoted(text: str, mark: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(mark, "\\" + mark)
    return f"{mark}{escaped}{mark}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: _Service

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        address = urlsplit(self.path)
        asked = dict(parse_qsl(address.query, keep_blank_values=True))
        body = self._body()
        if address.path in ("/", "/ping") and not asked and not body:
            self._send(200, b"Ok.\n", {})
            return
        identity = asked.get("query_id") or str(uuid.uuid4())
        try:
            self._let_in(asked)
            query = asked.get("query", "").encode("utf-8", "surrogateescape")
            has_rows = bool(body) and _WITH_ROWS.search(query) is not None
            statement = query if has_rows else query + b"\n" + body if query and body else query or body
            if self.command == "GET" and not _READS.match(statement):
                raise _RefusedError(
                    _READ_ONLY,
                    "Cannot execute query in readonly mode. For queries over HTTP, method GET implies readonly. "
                    "You should use method POST for modifying queries. (READONLY)",
                )
            form = self.headers.get("X-ClickHouse-Format") or asked.get("default_format") or "TabSeparated"
            database = self.headers.get("X-ClickHouse-Database")
            asked = asked if database is None else {"database": database, **asked}
            result = self.service.run(statement, asked, form, body if has_rows else b"")
        except (RuntimeError, _RefusedError) as error:
            self._fail(str(error), identity)
            return
        summary = {"read_rows": str(result.rows_read()), "read_bytes": str(result.bytes_read())}
        headers = {
            "X-ClickHouse-Query-Id": identity,
            "X-ClickHouse-Format": form,
            "X-ClickHouse-Timezone": self.service.zone,
            "X-ClickHouse-Server-Display-Name": "tests",
            "X-ClickHouse-Summary": json.dumps(summary),
            "Content-Type": _TYPES.get(form, "text/plain; charset=UTF-8"),
        }
        self._send(200, result.bytes(), headers)

    def _let_in(self, asked: Mapping[str, str]) -> None:
        user = self.headers.get("X-ClickHouse-User") or asked.get("user") or "default"
        password = self.headers.get("X-ClickHouse-Key") or asked.get("password") or ""
        given = self.headers.get("Authorization", "")
        if given.startswith("Basic "):
            user, _, password = base64.b64decode(given.removeprefix("Basic ")).decode().partition(":")
        if (user, password) != (self.service.user, self.service.password):
            raise _RefusedError(
                _AUTHENTICATION_FAILED,
                f"{user}: Authentication failed: password is incorrect, or there is no user with such name. "
                "(AUTHENTICATION_FAILED)",
            )

    def _fail(self, text: str, identity: str) -> None:
        found = _CODE.search(text)
        code = int(found[1]) if found else 1001
        status = 400 if code in _BAD_REQUEST else 404 if code in _NOT_FOUND else _STATUS.get(code, 500)
        sentence = f"{text.strip()} (version {self.service.version})\n"
        self._send(
            status, sentence.encode(), {"X-ClickHouse-Exception-Code": str(code), "X-ClickHouse-Query-Id": identity}
        )

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        packed = "gzip" in self.headers.get("Accept-Encoding", "") and "enable_http_compression=1" in self.path
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if packed:
            body = gzip.compress(body)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            body = b""
            while size := int(self.rfile.readline().partition(b";")[0], 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        return gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body

    def log_message(self, *arguments: object) -> None:
        """Nothing is logged, because addresses may have passwords."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main(port: str, folder: str, user: str, password: str) -> None:
    _Handler.service = _Service(folder, user, password)
    _Listener(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
