"""Asks a service for the row of a key, by one request of HTTP.

Connections stay open between requests. Nothing is followed and nothing is believed: a redirect
would take a header with a secret elsewhere, and an answer has a deadline and a size as a whole.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import pyarrow as pa

from freshline.errors import LookupRefusedError
from freshline.sources.http.lookup import PLACEHOLDER, HttpLookup
from freshline.sources.lookups.client import NO_ROW, Answer, AwayError, ClientHost, Key, LookupClient
from freshline.sources.lookups.connections import Connections
from freshline.sources.lookups.key_texts import key_text
from freshline.sources.lookups.values import UnfitError, read_json, row_of
from freshline.sources.tls import tls_context
from freshline.values.secret import resolve_reference
from freshline.values.spec import SourceSpec

_MOST_BYTES = 8 << 20
# The share of 'lookup.timeout' from which on a read waits for what is left of it, and no longer for the whole.
_LITTLE_LESS = 0.9
_NO_ROW = (204, 404, 410)
_BUSY = (429, 503)
# A server that is starting, or one before it that has nobody behind it; and requests that took too long.
_AWAY = (408, 425, 500, 502, 504, *_BUSY)


class HttpLookupClient(LookupClient):
    """Asks for one key by one request. `schema` has the declared columns as Arrow has them."""

    most_keys: ClassVar[int] = 1

    def __init__(self, spec: SourceSpec, host: ClientHost, schema: pa.Schema) -> None:
        """Raises LookupRefusedError for a secret that is not there, and for files of certificates."""
        assert isinstance(spec.connection, HttpLookup)
        self._lookup, self._where = spec.connection, str(spec.written_at)
        self._key = spec.primary_key
        keys = {name.lower() for name in self._key}
        self._columns = pa.schema([column for column in schema if column.name.lower() not in keys])
        self._parts = urlsplit(self._lookup.url)
        self._host = f"{self._parts.scheme}://{self._parts.netloc}"
        self._headers = self._resolve_headers(host)
        self._context = self._tls() if self._parts.scheme == "https" else None
        self._connections = Connections(self._connect, http.client.HTTPConnection.close)

    def _resolve_headers(self, host: ClientHost) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "freshline"}
        if self._lookup.method == "post":
            headers["Content-Type"] = "application/json"
        for name, text in self._lookup.headers.items():
            try:
                value = resolve_reference(text, host.root, os.environ)
            except ValueError as error:
                raise LookupRefusedError(f"option 'header.{name}': {error}", where=self._where) from error
            if not (value.isascii() and value.isprintable()):
                # The client's own error would show it.
                raise LookupRefusedError(
                    f"what header.{name} stands for has a character that no header takes. Correct it.",
                    where=self._where,
                )
            headers[name] = value
        return headers

    def _tls(self) -> ssl.SSLContext:
        lookup = self._lookup
        try:
            return tls_context(lookup.tls_ca, lookup.tls_certificate, lookup.tls_key)
        except (OSError, ValueError) as error:
            raise LookupRefusedError(
                f"the files of tls.ca, tls.certificate and tls.key cannot be used: {error}. Correct them.",
                where=self._where,
            ) from error

    def ask(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """The answers to these keys, one request after the other."""
        return [self._ask_one(dict(zip(self._key, key, strict=True))) for key in keys]

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def _ask_one(self, key: Mapping[str, Any]) -> Answer:
        status, headers, body = self._request(self._path(key), self._body(key))
        if status in _NO_ROW:
            return NO_ROW
        if status in _AWAY:
            asked = headers.get("retry-after") if status in _BUSY else None
            raise AwayError(f"{self._host} answers {status}", wait_seconds=_seconds(asked))
        if status in (401, 403):
            raise LookupRefusedError(
                f"{self._host} refuses the request ({status}). Correct the header that says who asks, or what it may "
                "read.",
                where=self._where,
            )
        if 300 <= status < 400:
            raise LookupRefusedError(
                f"{self._host} answers {status}, a redirect, which is not followed: it would take the headers "
                "elsewhere. Set 'url' to the service itself.",
                where=self._where,
            )
        if status != 200:
            return Answer(None, f"{self._host} answers {status}")
        return self._answer(body)

    def _answer(self, body: bytes) -> Answer:
        try:
            found = _at(read_json(body), self._lookup.row)
        except (ValueError, RecursionError):
            return Answer(None, f"the answer of {self._host} is no JSON")
        if found is None:
            return NO_ROW
        if not isinstance(found, dict):
            at = f" at {self._lookup.row}" if self._lookup.row else ""
            return Answer(None, f"the answer of {self._host} has no object{at}")
        try:
            return Answer(row_of(found, self._columns))
        except UnfitError as error:
            return Answer(None, str(error))

    def _path(self, key: Mapping[str, Any]) -> str:
        by_name = {name.lower(): value for name, value in key.items()}
        path = self._parts.path or "/"
        path = f"{path}?{self._parts.query}" if self._parts.query else path
        return PLACEHOLDER.sub(lambda named: quote(key_text(by_name[named[1].lower()]), safe=""), path)

    def _body(self, key: Mapping[str, Any]) -> bytes | None:
        if self._lookup.method != "post":
            return None
        members = (f"{json.dumps(name)}: {_json(value)}" for name, value in key.items())
        return f"{{{', '.join(members)}}}".encode()

    def _request(self, path: str, body: bytes | None) -> tuple[int, Mapping[str, str], bytes]:
        # A server closes a connection that rests, and only a request shows it: that one is sent on a new one.
        connection, is_new = self._connections.take()
        try:
            return self._send(connection, path, body)
        except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected) as error:
            if is_new:
                raise AwayError(f"{self._host} closes the connection") from error
        connection, _ = self._connections.take(new=True)
        try:
            return self._send(connection, path, body)
        except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected) as error:
            raise AwayError(f"{self._host} closes the connection") from error

    def _connect(self) -> http.client.HTTPConnection:
        name, port, seconds = self._parts.hostname or "", self._parts.port, float(self._lookup.lookup_timeout)
        if self._context is None:
            return http.client.HTTPConnection(name, port, timeout=seconds)
        return http.client.HTTPSConnection(name, port, timeout=seconds, context=self._context)

    def _send(
        self, connection: http.client.HTTPConnection, path: str, body: bytes | None
    ) -> tuple[int, Mapping[str, str], bytes]:
        deadline = time.monotonic() + self._lookup.lookup_timeout
        done = False
        try:
            connection.request("POST" if body is not None else "GET", path, body, self._headers)
            answer = connection.getresponse()
            content = self._read(answer, connection, deadline)
            done = not answer.will_close
            return answer.status, {name.lower(): text for name, text in answer.headers.items()}, content
        except ssl.SSLCertVerificationError as error:
            raise LookupRefusedError(
                f"the certificate of {self._host} is not accepted: {error.verify_message}. Set tls.ca to the "
                "certificates that it is checked by.",
                where=self._where,
            ) from error
        except socket.gaierror as error:
            if error.errno == socket.EAI_AGAIN:
                raise AwayError(f"the name of {self._host} is not found now") from error
            raise LookupRefusedError(
                f"there is no host of the name in {self._host}. Correct 'url'.", where=self._where
            ) from error
        except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
            raise
        except TimeoutError as error:
            raise AwayError(f"{self._host} takes longer than 'lookup.timeout'") from error
        except (OSError, http.client.HTTPException) as error:
            said = getattr(error, "strerror", None) or type(error).__name__
            raise AwayError(f"{self._host} does not answer: {said}") from error
        finally:
            if done:
                self._connections.give_back(connection)
            else:
                self._connections.end(connection)

    def _read(self, answer: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float) -> bytes:
        """The body; one that comes byte by byte has the deadline of the whole."""
        found, patience = bytearray(), float(self._lookup.lookup_timeout)
        is_short = False
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            # Each call asks the system. Most answers are here as a whole, long before it would matter.
            if connection.sock is not None and left < _LITTLE_LESS * patience:
                connection.sock.settimeout(left)
                is_short = True
            block = answer.read1(1 << 16)
            if not block:
                break
            found += block
            if len(found) > _MOST_BYTES:
                raise AwayError(f"the answer of {self._host} is larger than {_MOST_BYTES} bytes")
        if answer.length:
            # The end of a connection reads like the end of an answer.
            raise AwayError(f"the answer of {self._host} ends too early")
        # The connection takes the next request when this answer is closed, which reading it piece by piece does not do.
        answer.close()
        if connection.sock is not None and is_short:
            connection.sock.settimeout(patience)
        return bytes(found)


def _at(found: Any, pointer: str) -> Any:
    """The value at a JSON pointer, None where there is none."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(name)
        elif isinstance(found, list) and name.isascii() and name.isdigit():
            found = found[int(name)] if int(name) < len(found) else None
        else:
            return None
    return found


def _json(value: Any) -> str:
    """A value of a key as it stands in a body; a decimal number has all of its digits."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value if isinstance(value, int | str) else key_text(value), ensure_ascii=False)


def _seconds(text: str | None) -> float | None:
    """The seconds of a Retry-After, which has them or a date."""
    if text is None:
        return None
    if text.strip().isdigit():
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    return max(0.0, (at - datetime.now(UTC)).total_seconds()) if at.tzinfo is not None else None
