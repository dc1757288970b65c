"""A small service over HTTP that gives rows by their key, for tests: sockets, a count, and failures."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Service:
    """Rows by the last part of the path (`rows`), or by the body of a POST as text.

    `asked` counts the requests for each key that were answered or not. `fails` are statuses, with headers, that it
    gives instead of the next answers, one after another; `always` is one that it gives from then on. `seconds` is how
    long an answer takes. `bodies` are bodies instead of rows as JSON; `cut` ends an answer half way. `open` is how many
    requests are open, and `most_open` how many were at once.
    """

    url: str = ""
    rows: dict[str, Any] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    fails: list[tuple[int, Mapping[str, str]]] = field(default_factory=list)
    always: tuple[int, Mapping[str, str]] | None = None
    seconds: float = 0.0
    bodies: dict[str, bytes] = field(default_factory=dict)
    cut: bool = False
    open: int = 0
    most_open: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def requests(self) -> int:
        """The number of all requests."""
        return sum(self.asked.values())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: Service

    def do_GET(self) -> None:
        self._answer(unquote(self.path.rsplit("/", 1)[1].partition("?")[0]))

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

    def _answer(self, key: str) -> None:
        service = self.service
        with service.lock:
            service.asked[key] += 1
            service.headers.append(dict(self.headers.items()))
            service.times.append(time.monotonic())
            service.open += 1
            service.most_open = max(service.most_open, service.open)
            failing = service.fails.pop(0) if service.fails else service.always
        try:
            if service.seconds:
                time.sleep(service.seconds)
            if failing is not None:
                self._send(failing[0], b"{}", failing[1])
            elif key in service.bodies:
                self._send(200, service.bodies[key], {})
            elif key in service.rows:
                self._send(200, json.dumps(service.rows[key]).encode(), {})
            else:
                self._send(404, b"{}", {})
        finally:
            with service.lock:
                service.open -= 1

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.service.cut:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
        else:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextmanager
def running_service(**given: Any) -> Iterator[Service]:
    """A service on a port of its own, until the block ends."""
    service = Service(**given)
    handler = type("Handler", (_Handler,), {"service": service})
    server = _Server(("127.0.0.1", 0), handler)
    service.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
