"""Asks Redis or Valkey for the rows of keys, many of them in one pipeline."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from freshline.errors import LookupRefusedError
from freshline.sources.databases.text_values import (
    AlteredValueError,
    date_value,
    decimal_reader,
    integer_reader,
    local_time_value,
    text_value,
    time_value,
)
from freshline.sources.lookups.client import NO_ROW, Answer, AwayError, ClientHost, Key, LookupClient
from freshline.sources.lookups.key_texts import key_text
from freshline.sources.lookups.values import UnfitError, read_json, row_of
from freshline.sources.redis.lookup import HASH, PLACEHOLDER, RedisLookup
from freshline.values.secret import resolve_reference
from freshline.values.spec import SourceSpec

_BOOLEANS = {b"true": True, b"1": True, b"false": False, b"0": False}


class RedisLookupClient(LookupClient):
    """Asks one server. `schema` has the declared columns as Arrow has them."""

    most_keys: ClassVar[int] = 100

    def __init__(self, spec: SourceSpec, host: ClientHost, schema: pa.Schema) -> None:
        """Raises LookupRefusedError for a secret that is not there, and for an address that is none of Redis."""
        assert isinstance(spec.connection, RedisLookup)
        self._lookup, self._where, self._key = spec.connection, str(spec.written_at), spec.primary_key
        keys = {name.lower() for name in self._key}
        self._columns = pa.schema([column for column in schema if column.name.lower() not in keys])
        if self._lookup.value == HASH:
            self._require_texts()
        try:
            url = resolve_reference(self._lookup.url, host.root, os.environ)
        except ValueError as error:
            raise self._refused(f"option 'url': {error}") from error
        try:
            import redis
        except ImportError as error:
            raise self._refused(
                "redis is not installed, by which this server is asked. Run: pip install 'freshline[redis]'."
            ) from error
        self._errors = redis.exceptions
        self._server = redis.Redis(**self._parameters(url))

    def ask(self, keys: Sequence[Key]) -> Sequence[Answer]:
        """The rows of these keys, by one pipeline."""
        errors = self._errors
        try:
            with self._server.pipeline(transaction=False) as pipeline:
                for key in keys:
                    name = self._name(key)
                    if self._lookup.value == HASH:
                        pipeline.hgetall(name)
                    else:
                        pipeline.get(name)
                found = pipeline.execute(raise_on_error=False)
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            raise self._refused(
                f"the server refuses the connection: {error}. Correct what `url` stands for."
            ) from error
        except errors.BusyLoadingError as error:
            raise AwayError("the server is loading its data") from error
        except errors.TimeoutError as error:
            raise AwayError("it takes longer than 'lookup.timeout'") from error
        except errors.ConnectionError as error:
            raise self._not_connected(error) from error
        return [self._answer(each) for each in found]

    def close(self) -> None:
        """Close all connections."""
        self._server.close()

    def _answer(self, found: Any) -> Answer:
        errors = self._errors
        if isinstance(found, errors.BusyLoadingError | errors.TryAgainError | errors.ClusterDownError):
            raise AwayError(f"the server answers: {found}")
        if isinstance(found, errors.NoPermissionError | errors.MovedError | errors.AskError):
            raise self._refused(f"the server refuses the request: {found}. Correct `url`, or what its user may read.")
        if isinstance(found, Exception):
            return Answer(None, f"the server answers: {found}")
        if not found and found != b"":
            return NO_ROW
        try:
            return Answer(self._hash_row(found) if self._lookup.value == HASH else self._json_row(found))
        except UnfitError as error:
            return Answer(None, str(error))

    def _hash_row(self, found: Mapping[bytes, bytes]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for column in self._columns:
            text = found.get(column.name.encode())
            if text is None:
                values[column.name] = None
                continue
            try:
                values[column.name] = _of_text(text, column.type)
            except (AlteredValueError, ValueError) as error:
                raise UnfitError(f"column {column.name} is {column.type}, and the hash has {text[:60]!r}") from error
        return values

    def _json_row(self, found: bytes) -> dict[str, Any]:
        try:
            value = read_json(found)
        except (ValueError, RecursionError) as error:
            raise UnfitError("the value is no JSON") from error
        if not isinstance(value, dict):
            raise UnfitError("the value is no object of JSON")
        return row_of(value, self._columns)

    def _name(self, key: Key) -> str:
        by_name = {name.lower(): value for name, value in zip(self._key, key, strict=True)}
        return PLACEHOLDER.sub(lambda named: key_text(by_name[named[1].lower()]), self._lookup.key)

    def _parameters(self, url: str) -> dict[str, Any]:
        try:
            parts = urlsplit(url)
            database, port = int(parts.path.lstrip("/") or 0), parts.port or 6379
            if parts.scheme not in ("redis", "rediss") or not parts.hostname or parts.query:
                raise ValueError
        except ValueError:
            raise self._refused(
                "option 'url': it stands for no address that can be used, such as rediss://user:password@host:6379/0."
            ) from None
        lookup = self._lookup
        found = {
            "host": parts.hostname,
            "port": port,
            "db": database,
            "username": unquote(parts.username) if parts.username else None,
            "password": unquote(parts.password) if parts.password else None,
            "socket_timeout": lookup.lookup_timeout,
            "socket_connect_timeout": lookup.lookup_timeout,
            # Whoever asks decides when it is asked again.
            "retry": None,
            "max_connections": lookup.lookup_concurrency + 1,
        }
        if parts.scheme == "rediss":
            files = {
                "ssl_ca_certs": lookup.tls_ca,
                "ssl_certfile": lookup.tls_certificate,
                "ssl_keyfile": lookup.tls_key,
            }
            found |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **files}
        return found

    def _not_connected(self, error: BaseException) -> Exception:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, ssl.SSLError):
                said = getattr(cause, "verify_message", "") or cause.reason
                return self._refused(f"the certificate of the server is not accepted: {said}. Set tls.ca.")
            cause = cause.__cause__ or cause.__context__
        return AwayError("the server does not answer")

    def _require_texts(self) -> None:
        for column in self._columns:
            if pa.types.is_nested(column.type):
                raise self._refused(
                    f"column {column.name} is {column.type}, which no field of a hash has. Use 'value' = 'json'."
                )

    def _refused(self, sentence: str) -> LookupRefusedError:
        return LookupRefusedError(sentence, where=self._where)


def _of_text(text: bytes, kind: pa.DataType) -> Any:
    """A text of a hash as a value. Raises AlteredValueError and ValueError."""
    types = pa.types
    if types.is_integer(kind):
        return integer_reader(kind.bit_width)(text)
    if types.is_decimal(kind):
        return decimal_reader(kind.precision, kind.scale)(text)
    if types.is_floating(kind):
        return float(text)
    if types.is_boolean(kind):
        if text.lower() not in _BOOLEANS:
            raise AlteredValueError
        return _BOOLEANS[text.lower()]
    if types.is_date(kind):
        return date_value(text)
    if types.is_timestamp(kind):
        return local_time_value(text) if kind.tz is None else time_value(text)
    return text if types.is_binary(kind) else text_value(text)
