"""A door for posts without an engine behind it, and clients of it."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.engine.ingest import Ingest, PostLimits
from freshline.engine.server import EngineServer, bind
from freshline.sources.files.landing import list_landing
from freshline.sources.http.landing import Landing
from tests.conftest import settings_in

ENGINE_TOKEN = "the-token-of-the-engine"
CLICK_TOKEN = "the-token-of-clicks"
ORDER_TOKEN = "the-token-of-orders"
TOKENS = {"CLICK": CLICK_TOKEN, "ORDER": ORDER_TOKEN}
NDJSON = "application/x-ndjson"
_POSTED = "CREATE SOURCE {} WITH ('connector' = 'http', 'format' = '{}', 'path' = 'posts', 'token' = '{}')"
SOURCES = {
    "click.sql": _POSTED.format("click (id INT)", "json", "${env:CLICK}"),
    "shop/order.sql": _POSTED.format("shop.order (id INT)", "csv", "${env:ORDER}"),
    "line.sql": _POSTED.format("line (text STRING)", "text", "${file:line}"),
    "landed.sql": "CREATE SOURCE landed (id INT) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'posts')",
}

# Status, JSON and headers.
Answer = tuple[int, dict[str, Any], Mapping[str, str]]


@dataclass
class Door:
    """A door on loopback. `graph` and `environ` are what it sees at this moment."""

    root: Path
    graph: Graph
    environ: dict[str, str]
    port: int = 0
    ingest: Ingest | None = None

    def wait_for_posts(self, count: int) -> None:
        """Wait until so many posts are being taken. Those that are on their way have no order."""
        assert self.ingest is not None
        until = time.monotonic() + 20
        while self.ingest.taken != count:
            assert time.monotonic() < until, f"{self.ingest.taken} posts are being taken, not {count}"
            time.sleep(0.01)

    def post(
        self,
        body: bytes,
        source: str = "click",
        token: str | None = CLICK_TOKEN,
        method: str = "POST",
        **headers: str | None,
    ) -> Answer:
        """Status, answer and headers of one request. A header without a value is not sent."""
        given: dict[str, str | None] = {"Content-Type": NDJSON}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)) as connection:
            sent = {name: value for name, value in given.items() if value is not None}
            connection.request(method, f"/ingest/{source}", body, sent)
            response = connection.getresponse()
            text = response.read()
        answered = {name.lower(): value for name, value in response.getheaders()}
        return response.status, json.loads(text) if text else {}, answered

    def say(self, request: str, *headers: str, body: bytes = b"") -> socket.socket:
        """Send a request as it is written, with the host alone added; the connection, to be closed."""
        client = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        lines = (f"{request} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", *headers)
        client.sendall("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body)
        return client

    def status_of(self, request: str, *headers: str, body: bytes = b"") -> int:
        """The status of the answer to a request as it is written."""
        with closing(self.say(request, *headers, body=body)) as client:
            return int(client.makefile("rb").readline().split()[1])

    def stored(self, source: str = "click") -> list[bytes]:
        """The posts of a source, in the order in which they are read."""
        folder = self.root / "posts" / source
        if not folder.exists():
            return []
        return [(folder / mark.path).read_bytes() for mark in list_landing(folder, 0.0, datetime.now(UTC)).complete]


def declared(root: Path, sources: Mapping[str, str] = SOURCES) -> Graph:
    return read_declarations(sources, settings_in(root))


@contextmanager
def open_door(
    root: Path, *, landing: Landing | None = None, limits: PostLimits | None = None, request_seconds: float = 10.0
) -> Iterator[Door]:
    """A server on a free port, without an engine. Posts land below `posts`, which is there."""
    (root / "posts").mkdir(exist_ok=True)
    door = Door(root, declared(root), dict(TOKENS))
    ingest = Ingest(lambda: door.graph, root, door.environ, landing or Landing(), limits or PostLimits())
    server = EngineServer(None, ENGINE_TOKEN, bind(0), ingest=ingest, request_seconds=request_seconds)
    server.start()
    door.port, door.ingest = server.port, ingest
    try:
        yield door
    finally:
        server.stop()
        ingest.close()
