"""The schemas of a schema registry, asked for by their ids.

An id has one schema for ever, so an answer is kept for as long as the process lives. The newest schema of a subject is
never asked for: it is another one tomorrow, and a record is read with the one that it was written with. An id that the
registry does not know is asked for again, because it may be known later.

Nothing is followed and nothing is believed: a redirect would take a password elsewhere, a proxy may answer in the
registry's place, and an answer has a deadline and a size as a whole.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
import ssl
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from freshline.errors import RegistryError, RegistryRefusedError
from freshline.sources.formats.registry import RegistryAddress
from freshline.sources.tls import tls_context

ANSWER_SECONDS = 10.0
_MOST_BYTES = 8 << 20
_MOST_REFERENCES = 1_000
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_POSTED = "application/vnd.schemaregistry.v1+json"
_MOST_MESSAGE = 500
_AS_DESCRIPTOR = "?format=serialized"
# The codes of a registry for an id, a version or a subject that it does not have. Another 404 is of something else.
_NOT_FOUND = (40401, 40402, 40403)


class IncompatibleSchemaError(Exception):
    """A schema that a registry does not take for its subject; the text is what it says."""

    is_expected_of_extensions = True


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema: its kind (`AVRO`, `JSON` or `PROTOBUF`), its text, and the texts of those that it names.

    Where files of Protobuf are asked for as descriptors, their texts are these in base64.

    Each reference comes behind those that it names itself, with the name by which it is known.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


@dataclass
class KnownSchemas:
    """Schemas of one registry by their ids, for as long as the process lives. Safe to use in several threads.

    With `descriptors` files of Protobuf are asked for as descriptors, which nobody here has to parse from their text.
    """

    descriptors: bool = False
    _found: dict[int, RegisteredSchema] = field(default_factory=dict)

    def read(self, address: RegistryAddress, ids: Iterable[int], *, where: str) -> Mapping[int, RegisteredSchema]:
        """The schemas of these ids; an id that the registry does not know is missing.

        Raises RegistryError and RegistryRefusedError, neither of which shows a secret.
        """
        wanted = sorted(set(ids))
        missing = [each for each in wanted if each not in self._found]
        if missing:
            with RegistryClient(address, where=where, descriptors=self.descriptors) as client:
                for each in missing:
                    schema = client.schema(each)
                    if schema is not None:
                        self._found[each] = schema
        return {each: self._found[each] for each in wanted if each in self._found}


class RegistryClient:
    """Asks a registry, over one connection that is closed with it."""

    def __init__(self, address: RegistryAddress, *, where: str, descriptors: bool = False) -> None:
        """Raises RegistryRefusedError for files of certificates that cannot be used."""
        self._address = address
        self._where = where
        self._descriptors = descriptors
        parts = urlsplit(address.url)
        self._path = parts.path
        host, port = parts.hostname or "", parts.port
        self._connection = (
            http.client.HTTPSConnection(host, port, timeout=ANSWER_SECONDS, context=self._context())
            if parts.scheme == "https"
            else http.client.HTTPConnection(host, port, timeout=ANSWER_SECONDS)
        )
        self._is_late = False
        self._headers = {"Accept": _ACCEPT, "User-Agent": "freshline"}
        if address.token is not None:
            if not (address.token.isascii() and address.token.isprintable()):
                # The client's own error would show it.
                raise RegistryRefusedError(
                    "what registry.token stands for has a character that no header takes. Correct it.", where=where
                )
            self._headers["Authorization"] = f"Bearer {address.token}"
        elif address.user is not None:
            pair = f"{address.user}:{address.password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"

    def __enter__(self) -> RegistryClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()

    def schema(self, schema_id: int) -> RegisteredSchema | None:
        """The schema of an id; None where the registry does not know it."""
        path = f"/schemas/ids/{schema_id}"
        found = self._get(path)
        serialized = found is not None and self._descriptors and _kind(found) == "PROTOBUF"
        if serialized:
            found = self._get(path + _AS_DESCRIPTOR)
        if found is None:
            return None
        references: dict[tuple[str, int], tuple[str, str]] = {}
        self._resolve(found, references, frozenset(), _AS_DESCRIPTOR if serialized else "")
        schema = RegisteredSchema(_kind(found), self._text(found), tuple(references.values()))
        if serialized:
            self._check_descriptors(schema)
        return schema

    def register(self, subject: str, text: str) -> int:
        """The id of a schema of Avro under a subject; one that is there already keeps its id.

        Raises IncompatibleSchemaError for one that does not go with those of the subject.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        status, body = self._ask(path, json.dumps({"schema": text}).encode())
        if status in (409, 422):
            raise IncompatibleSchemaError(_message(body) or f"it answers {status}")
        found = self._read_answer(path, status, body)
        schema_id = None if found is None else found.get("id")
        if not isinstance(schema_id, int) or not 0 <= schema_id < 2**31:
            raise self._no_answer("it has no number of a schema")
        return schema_id

    def _check_descriptors(self, schema: RegisteredSchema) -> None:
        for text in (schema.text, *(text for _, text in schema.references)):
            try:
                base64.b64decode(text, validate=True)
            except ValueError as error:
                raise RegistryRefusedError(
                    f"the schema registry at {self._address.url} does not give files of Protobuf as descriptors "
                    f"({_AS_DESCRIPTOR[1:]}). Use a registry that does, as Confluent's.",
                    where=self._where,
                ) from error

    def _resolve(
        self,
        schema: Mapping[str, Any],
        found: dict[tuple[str, int], tuple[str, str]],
        within: frozenset[tuple[str, int]],
        query: str,
    ) -> None:
        """Add the schemas that one names to `found`, those that they name themselves before them."""
        for reference in schema.get("references") or ():
            try:
                name, key = str(reference["name"]), (str(reference["subject"]), int(reference["version"]))
            except (TypeError, KeyError, ValueError) as error:
                raise self._no_answer("it names a schema without a subject and a version") from error
            if key in within:
                raise self._no_answer(f"version {key[1]} of subject {key[0]} refers to itself")
            if key in found:
                continue
            if len(found) + len(within) >= _MOST_REFERENCES:
                raise self._no_answer(f"a schema refers to more than {_MOST_REFERENCES} others")
            named = self._get(f"/subjects/{quote(key[0], safe='')}/versions/{key[1]}{query}")
            if named is None:
                raise RegistryError(
                    f"the schema registry at {self._address.url} has no version {key[1]} of subject {key[0]}, which a "
                    "schema that it has refers to. Nothing was read; it is tried again.",
                    where=self._where,
                )
            self._resolve(named, found, within | {key}, query)
            found[key] = (name, self._text(named))

    def _text(self, schema: Mapping[str, Any]) -> str:
        text = schema.get("schema")
        if not isinstance(text, str):
            raise self._no_answer("it has no schema")
        return text

    def _get(self, path: str) -> dict[str, Any] | None:
        """The object that an address of the registry has; None where it says that there is none."""
        return self._read_answer(path, *self._ask(path))

    def _read_answer(self, path: str, status: int, body: bytes) -> dict[str, Any] | None:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if status == 200:
            if not isinstance(found, dict):
                raise self._no_answer("it is no JSON object")
            return found
        code = found.get("error_code") if isinstance(found, dict) else None
        if status == 404 and code in _NOT_FOUND:
            return None
        url = self._address.url
        if status in (401, 403):
            raise RegistryRefusedError(
                f"the schema registry at {url} refuses the request ({status}). Correct registry.user and "
                "registry.password, or registry.token, or what they may read.",
                where=self._where,
            )
        if 300 <= status < 400:
            raise RegistryRefusedError(
                f"{url} answers {status}, a redirect, which is not followed: it would take a password elsewhere. "
                "Set registry.url to the registry itself.",
                where=self._where,
            )
        if 400 <= status < 500 and status not in (404, 408, 425, 429):
            raise RegistryRefusedError(f"{url} answers {status} for {path}. Correct registry.url.", where=self._where)
        if status == 404:
            raise RegistryRefusedError(
                f"{url} answers 404 for {path}, and not as a schema registry does for a schema that it lacks. "
                "Correct registry.url, with the path of its API.",
                where=self._where,
            )
        raise RegistryError(
            f"the schema registry at {url} answers {status}. Nothing was read; it is tried again.", where=self._where
        )

    def _ask(self, path: str, posted: bytes | None = None) -> tuple[int, bytes]:
        self._is_late = False
        late = threading.Timer(ANSWER_SECONDS, self._give_up)
        late.daemon = True
        late.start()
        try:
            if posted is None:
                self._connection.request("GET", self._path + path, headers=self._headers)
            else:
                headers = {**self._headers, "Content-Type": _POSTED}
                self._connection.request("POST", self._path + path, posted, headers)
            answer = self._connection.getresponse()
            body = answer.read(_MOST_BYTES + 1)
        except ssl.SSLCertVerificationError as error:
            raise RegistryRefusedError(
                f"the certificate of the schema registry at {self._address.url} is not accepted: "
                f"{error.verify_message}. Set registry.tls.ca to the certificates that it is checked by.",
                where=self._where,
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise self._away("it takes too long" if self._is_late else _what(error)) from error
        finally:
            late.cancel()
        if len(body) > _MOST_BYTES:
            raise self._no_answer(f"it is larger than {_MOST_BYTES} bytes")
        if self._is_late or answer.length:
            # The end of a connection reads like the end of an answer.
            raise self._away("its answer ends too early")
        return answer.status, body

    def _give_up(self) -> None:
        """End the connection from another thread."""
        self._is_late = True
        found: socket.socket | None = self._connection.sock
        if found is not None:
            try:
                found.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself

    def _away(self, what: str) -> RegistryError:
        return RegistryError(
            f"the schema registry at {self._address.url} does not answer: {what}. Nothing was read; it is tried again.",
            where=self._where,
        )

    def _no_answer(self, why: str) -> RegistryError:
        return RegistryError(
            f"the answer of {self._address.url} is none of a schema registry: {why}. Nothing was read; it is tried "
            "again. If it does not go away, correct registry.url.",
            where=self._where,
        )

    def _context(self) -> ssl.SSLContext:
        address = self._address
        try:
            return tls_context(address.tls_ca, address.tls_certificate, address.tls_key)
        except (OSError, ValueError) as error:
            raise RegistryRefusedError(
                f"the files of registry.tls.ca, registry.tls.certificate and registry.tls.key cannot be used: "
                f"{getattr(error, 'strerror', None) or type(error).__name__}. Correct them.",
                where=self._where,
            ) from error


def _message(body: bytes) -> str:
    """The sentence of a registry about a schema that it does not take, shortened."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    message = found.get("message") if isinstance(found, dict) else None
    return message[:_MOST_MESSAGE].rstrip(".") if isinstance(message, str) else ""


def _kind(schema: Mapping[str, Any]) -> str:
    """The kind of a schema, which is not named where it is Avro."""
    return str(schema.get("schemaType") or "AVRO").upper()


def _what(error: Exception) -> str:
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else type(error).__name__
