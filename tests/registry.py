"""A small schema registry over HTTP, for tests: what freshline asks of one, and the ways in which one fails."""

from __future__ import annotations

import base64
import json
import re
import ssl
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

_AS_DESCRIPTOR = "?format=serialized"
_BY_ID = re.compile(r"/schemas/ids/([0-9]+)")
_SUBJECT = re.compile(r"/subjects/([^/]+)/versions")
_BY_VERSION = re.compile(r"/subjects/([^/]+)/versions/([0-9]+)")


@dataclass
class Registry:
    """Schemas by id, and by subject and version.

    `answers` are statuses and bodies that it gives instead of an answer, one after another; the last one stays. With
    `trickles` an answer comes one byte at a time. `asked` are the paths and headers of all requests. A subject that is
    `closed` takes no schema but those that it has.
    """

    url: str = ""
    prefix: str = ""
    authorization: str | None = None
    answers: list[tuple[int, bytes, Mapping[str, str]]] = field(default_factory=list)
    trickles: bool = False
    asked: list[tuple[str, Mapping[str, str]]] = field(default_factory=list)
    closed: set[str] = field(default_factory=set)
    _by_id: dict[int, dict[str, Any]] = field(default_factory=dict)
    _by_version: dict[tuple[str, int], int] = field(default_factory=dict)

    def register(
        self,
        schema: Any,
        subject: str = "topic-value",
        *,
        kind: str | None = None,
        references: Sequence[Mapping[str, Any]] = (),
        descriptor: bytes | None = None,
        as_id: int | None = None,
    ) -> int:
        """The id of a schema, which gets the next version of its subject; a file of Protobuf has a `descriptor`."""
        found: dict[str, Any] = {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
        if kind is not None:
            found["schemaType"] = kind
        if descriptor is not None:
            found["descriptor"] = base64.b64encode(descriptor).decode()
        if references:
            found["references"] = list(references)
        schema_id = as_id or max(self._by_id, default=0) + 1
        self._by_id[schema_id] = found
        version = max((number for of, number in self._by_version if of == subject), default=0) + 1
        self._by_version[subject, version] = schema_id
        return schema_id

    def forget(self, schema_id: int) -> None:
        del self._by_id[schema_id]

    def fail(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Give this answer from now on."""
        self.answers = [(status, body, headers)]

    def recover(self) -> None:
        self.answers, self.trickles = [], False

    @property
    def versions(self) -> Collection[tuple[str, int]]:
        """The subjects with the numbers of their versions."""
        return self._by_version

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def answer(
        self, path: str, headers: Mapping[str, str], posted: bytes | None = None
    ) -> tuple[int, bytes, Mapping[str, str]]:
        self.asked.append((path, headers))
        if self.answers:
            return self.answers[0] if len(self.answers) == 1 else self.answers.pop(0)
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            return 401, b'{"error_code": 401, "message": "Unauthorized"}', {}
        if posted is not None:
            return self._posted(path, json.loads(posted)["schema"])
        found = self._found(path)
        if isinstance(found, int):
            return 404, json.dumps({"error_code": found, "message": "not found"}).encode(), {}
        return 200, json.dumps(found).encode(), {}

    def _posted(self, path: str, schema: str) -> tuple[int, bytes, Mapping[str, str]]:
        match = _SUBJECT.fullmatch(path.removeprefix(self.prefix))
        if match is None:
            return 404, b'{"error_code": 404, "message": "HTTP 404 Not Found"}', {}
        subject = unquote(match[1])
        of_subject = [number for (of, _), number in self._by_version.items() if of == subject]
        found = next((number for number in of_subject if self._by_id[number]["schema"] == schema), None)
        if found is None:
            if subject in self.closed:
                said = "Schema being registered is incompatible with an earlier schema"
                return 409, json.dumps({"error_code": 409, "message": said}).encode(), {}
            # A schema has one number, whatever subjects have it.
            known = next((number for number, each in self._by_id.items() if each["schema"] == schema), None)
            found = self.register(schema, subject, as_id=known)
        return 200, json.dumps({"id": found}).encode(), {}

    def _found(self, path: str) -> dict[str, Any] | int:
        if not path.startswith(self.prefix):
            return 404
        path = path.removeprefix(self.prefix)
        found = self._schema(path.removesuffix(_AS_DESCRIPTOR))
        if isinstance(found, int):
            return found
        descriptor = found.get("descriptor")
        shown = {name: value for name, value in found.items() if name != "descriptor"}
        return {**shown, "schema": descriptor} if path.endswith(_AS_DESCRIPTOR) and descriptor is not None else shown

    def _schema(self, path: str) -> dict[str, Any] | int:
        if match := _BY_ID.fullmatch(path):
            return self._by_id.get(int(match[1]), 40403)
        if match := _BY_VERSION.fullmatch(path):
            subject, version = unquote(match[1]), int(match[2])
            schema_id = self._by_version.get((subject, version))
            if schema_id is None or schema_id not in self._by_id:
                return 40402
            return {"subject": subject, "version": version, "id": schema_id, **self._by_id[schema_id]}
        return 404


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    registry: Registry

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that leaves early is none of a test's business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    def _serve(self, posted: bytes | None) -> None:
        registry = self.server.registry
        status, body, headers = registry.answer(self.path, dict(self.headers.items()), posted)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if not registry.trickles:
            self.wfile.write(body)
            return
        for byte in body:
            self.wfile.write(bytes((byte,)))
            self.wfile.flush()
            time.sleep(0.05)

    def log_message(self, *args: Any) -> None:
        """Requests are in `asked`."""


@contextmanager
def running_registry(tls: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """A registry on a free port of this machine."""
    server = _Server(("127.0.0.1", 0), _Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme, port = "http" if tls is None else "https", server.server_address[1]
    server.registry = Registry(url=f"{scheme}://localhost:{port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server.registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def framed(schema_id: int, payload: bytes) -> bytes:
    """A record as producers of Confluent's framing write it."""
    return b"\x00" + schema_id.to_bytes(4, "big") + payload
