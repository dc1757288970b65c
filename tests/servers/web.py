"""A server of HTTP that a test scripts: a webhook receiver, or a front before a real server that can be as bad as one.

It records each request. It answers 200, or as the server behind it does, but for requests for which a test wants
another answer: a status such as 429 or 503, an answer that never comes, a connection that ends in the middle of the
request or of the answer. With `then_fail` the server behind has done its work when the answer gets lost.
"""

from __future__ import annotations

import base64
import http.client
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Headers that are of one connection, and not of the message.
_OF_CONNECTION = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "expect", "host"})


class Fault(StrEnum):
    """The ways in which no answer comes."""

    HANG = "hang"  # the request is taken, and nothing is said until `release`
    CUT = "cut"  # the request is taken, and the connection ends without an answer
    CUT_IN_REQUEST = "cut in the request"  # the connection ends when half of the request's body is read
    CUT_IN_ANSWER = "cut in the answer"  # the connection ends in the middle of the answer's body


@dataclass(frozen=True)
class Answer:
    """An answer of the server's own."""

    status: int = 200
    body: bytes = b"ok"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Received:
    """One request as it came; `body` is the part of it that was read. `answered` is the status, None for none."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    answered: int | None


@dataclass
class _Scripted:
    reply: Answer | Fault
    path: str
    times: int
    then_fail: bool


class WebServer:
    """A server on loopback; `port` stays the same when it is started again.

    `behind` is the port of a real server of HTTP on loopback, which answers what is not scripted. With `credentials`, a
    name and a password, requests without them get 401. With a `certificate` and its key it speaks TLS, and lets in
    who has a certificate of the authority `asks_for`.
    """

    def __init__(
        self,
        *,
        behind: int | None = None,
        credentials: tuple[str, str] | None = None,
        certificate: tuple[Path, Path] | None = None,
        asks_for: Path | None = None,
    ) -> None:
        self.asks_for = asks_for
        self.behind = behind
        self.credentials = credentials
        self.certificate = certificate
        self.answer = Answer()
        self.received: list[Received] = []
        self.port = 0
        self._script: list[_Scripted] = []
        self._came = threading.Condition()
        self._released = threading.Event()
        self._listener: _Listener | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The address without a path."""
        return f"{'http' if self.certificate is None else 'https'}://localhost:{self.port}"

    # -- as a test wants it

    def next(self, reply: int | Answer | Fault, *, times: int = 1, path: str = "", then_fail: bool = False) -> None:
        """Answer the next requests so, those whose path has this text in it.

        With `then_fail` the server behind gets the request first, and its answer is thrown away.
        """
        given = Answer(reply, b"not now") if isinstance(reply, int) else reply
        self._script.append(_Scripted(given, path, times, then_fail))

    def wait_for(self, number: int, seconds: float = 20.0) -> list[Received]:
        """All requests, as soon as there are so many. Fails where they do not come in time."""
        with self._came:
            there = self._came.wait_for(lambda: len(self.received) >= number, seconds)
            assert there, f"{len(self.received)} requests came, and not {number}"
            return list(self.received)

    def release(self) -> None:
        """End the connections of requests that hang."""
        released, self._released = self._released, threading.Event()
        released.set()

    # -- the process

    def start(self) -> None:
        """Listen."""
        self._listener = _Listener(("127.0.0.1", self.port), _Handler)
        self._listener.owner = self
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.certificate)
            if self.asks_for is not None:
                context.load_verify_locations(self.asks_for)
                context.verify_mode = ssl.CERT_REQUIRED
            # Not on accept, which would hold everybody for one client that says nothing.
            self._listener.socket = context.wrap_socket(
                self._listener.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = int(self._listener.server_address[1])
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Listen no more, and end all connections. Ending it again changes nothing."""
        listener, self._listener = self._listener, None
        if listener is not None and self._thread is not None:
            self.release()
            listener.shutdown()
            self._thread.join()
            listener.server_close()
            listener.end_connections()

    # -- one request

    def _reply_to(self, path: str) -> _Scripted | None:
        with self._came:
            for scripted in self._script:
                if scripted.path in path:
                    scripted.times -= 1
                    if scripted.times == 0:
                        self._script.remove(scripted)
                    return scripted
        return None

    def _record(self, received: Received) -> None:
        with self._came:
            self.received.append(received)
            self._came.notify_all()

    def _ask_behind(self, received: Received) -> Answer:
        assert self.behind is not None
        connection = http.client.HTTPConnection("127.0.0.1", self.behind)
        try:
            headers = {name: value for name, value in received.headers.items() if name.lower() not in _OF_CONNECTION}
            if self.credentials is not None:
                headers.pop("Authorization", None)
            connection.request(received.method, received.path, received.body, headers)
            answer = connection.getresponse()
            body = answer.read()
            kept = {name: value for name, value in answer.getheaders() if name.lower() not in _OF_CONNECTION}
            return Answer(answer.status, body, kept)
        except (OSError, http.client.HTTPException):
            return Answer(502, b"the server behind is away")
        finally:
            connection.close()

    def _lets_in(self, given: str | None) -> bool:
        if self.credentials is None:
            return True
        expected = base64.b64encode(":".join(self.credentials).encode()).decode()
        return given == f"Basic {expected}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Listener

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(20)
            self.request.do_handshake()
            self.request.settimeout(None)
        super().setup()

    def _serve(self) -> None:
        owner = self.server.owner
        scripted = owner._reply_to(self.path)
        reply = None if scripted is None else scripted.reply
        body = self._body(half=reply is Fault.CUT_IN_REQUEST)
        request = Received(self.command, self.path, dict(self.headers), body, None)
        if not owner._lets_in(self.headers.get("Authorization")):
            self._send(request, Answer(401, b"who are you", {"WWW-Authenticate": 'Basic realm="tests"'}))
            return
        if scripted is None:
            self._send(request, owner.answer if owner.behind is None else owner._ask_behind(request))
            return
        done = owner._ask_behind(request) if scripted.then_fail else None
        if isinstance(scripted.reply, Answer):
            self._send(request, scripted.reply)
        else:
            self._fail(request, scripted.reply, done or owner.answer)

    def do_GET(self) -> None:
        self._serve()

    def do_HEAD(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PUT(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def _fail(self, request: Received, fault: Fault, answer: Answer) -> None:
        owner = self.server.owner
        # Before the record: who waits for it may release at once.
        released = owner._released
        self.close_connection = True
        owner._record(request)
        if fault is Fault.HANG:
            released.wait()
        elif fault is Fault.CUT_IN_ANSWER:
            body = answer.body or b"an answer"
            self.send_response(answer.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2])

    def _send(self, request: Received, answer: Answer) -> None:
        self.server.owner._record(Received(*_parts(request), answer.status))
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _body(self, *, half: bool) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._chunks(half=half)
        length = int(self.headers.get("Content-Length", 0))
        return self.rfile.read(length // 2 if half else length)

    def _chunks(self, *, half: bool) -> bytes:
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
            if half:
                return found
        while self.rfile.readline().strip():
            pass
        return found

    def log_message(self, *arguments: object) -> None:
        """Nothing is to be read in the output of the tests."""


def _parts(request: Received) -> tuple[str, str, Mapping[str, str], bytes]:
    return request.method, request.path, request.headers, request.body


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    owner: WebServer

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        """End the connections that clients keep for their next request, as the end of a process does."""
        deadline = time.monotonic() + 10
        while self._open and time.monotonic() < deadline:
            for each in list(self._open):
                try:
                    each.shutdown(2)
                except OSError:
                    # Its client ended it.
                    self._open.discard(each)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that refuse the certificate, or give up, are what tests are about."""


@contextmanager
def web_server(
    *,
    behind: int | None = None,
    credentials: tuple[str, str] | None = None,
    certificate: tuple[Path, Path] | None = None,
    asks_for: Path | None = None,
) -> Iterator[WebServer]:
    """A server of this test, see WebServer."""
    server = WebServer(behind=behind, credentials=credentials, certificate=certificate, asks_for=asks_for)
    server.start()
    try:
        yield server
    finally:
        server.stop()
