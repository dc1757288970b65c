"""Real servers on loopback that alerts are sent to: one of HTTP and one of SMTP, each as bad as a test wants it."""

from __future__ import annotations

import shutil
import socketserver
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


@dataclass
class Received:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class WebServer:
    """Answers with `status`; `trickle` sends the answer's headers one by one for ever, `hang_up` ends without one."""

    status: int = 200
    location: str | None = None
    hang_up: bool = False
    trickle: bool = False
    received: list[Received] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    came: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    scheme: str = "http"

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self.port}/in?key=hunter2"


@contextmanager
def web_server(server: WebServer, certificate: tuple[Path, Path] | None = None) -> Iterator[WebServer]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.received.append(Received(self.path, dict(self.headers), body))
            server.came.set()
            if server.hang_up:
                self.close_connection = True
                return
            if server.trickle:
                try:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                    while not server.over.wait(0.05):
                        self.wfile.write(b"X-Slow: 1\r\n")
                        self.wfile.flush()
                except OSError:
                    return  # the client gave up, which is what the test is about
                return
            self.send_response(server.status)
            if server.location is not None:
                self.send_header("Location", server.location)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *arguments: object) -> None:
            """Nothing is to be read in the output of the tests."""

    class Listener(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Clients that refuse the certificate, or give up, are what tests are about."""

    listener = Listener(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
        server.scheme = "https"
    server.port = int(listener.server_address[1])
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        listener.shutdown()
        thread.join()
        listener.server_close()


@dataclass
class MailServer:
    """Speaks enough SMTP for a mail; `starttls` and `login` are what it offers, `refused` recipients get 550.

    With `tls` it speaks through its certificate from the beginning.
    """

    certificate: tuple[Path, Path] | None = None
    starttls: bool = True
    tls: bool = False
    answer: int = 250
    refused: tuple[str, ...] = ()
    port: int = 0
    mails: list[bytes] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    logins: list[str] = field(default_factory=list)
    encrypted: list[bool] = field(default_factory=list)


class MailHandler(socketserver.StreamRequestHandler):
    """One connection; what it found is kept in the MailServer of its listener."""

    @property
    def state(self) -> MailServer:
        assert isinstance(self.server, MailListener)
        return self.server.state

    def say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self) -> None:
        self.encrypted = self.state.tls
        self.say("220 mail.example.com")
        while line := self.rfile.readline().decode().strip():
            verb = line.partition(" ")[0].upper()
            if verb == "QUIT":
                self.say("221 bye")
                return
            self.serve(verb, line)

    def serve(self, verb: str, line: str) -> None:
        verbs = {"EHLO": self.greet, "STARTTLS": self.encrypt, "AUTH": self.log_in, "RCPT": self.take_recipient}
        if verb == "DATA":
            self.take_mail()
        elif verb in verbs:
            verbs[verb](line)
        else:
            self.say("250 fine")

    def greet(self, line: str) -> None:
        self.say("250-mail.example.com")
        offered = ["STARTTLS"] if self.state.starttls and not self.encrypted else []
        for extension in [*offered, "AUTH PLAIN"]:
            self.say(f"250-{extension}")
        self.say("250 8BITMIME")

    def encrypt(self, line: str) -> None:
        self.say("220 begin")
        assert self.state.certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.state.certificate)
        self.request = context.wrap_socket(self.connection, server_side=True)
        self.setup()  # what is read and written from here on goes through it
        self.encrypted = True

    def log_in(self, line: str) -> None:
        self.state.logins.append(line)
        self.say("235 welcome")

    def take_recipient(self, line: str) -> None:
        address = line[line.index("<") + 1 : line.index(">")]
        if address in self.state.refused:
            self.say("550 nobody")
        else:
            self.state.recipients.append(address)
            self.say("250 fine")

    def take_mail(self) -> None:
        if self.state.answer != 250:
            self.say(f"{self.state.answer} not now")
            return
        self.say("354 go on")
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line)
        self.state.mails.append(b"".join(lines))
        self.state.encrypted.append(self.encrypted)
        self.say("250 taken")


class MailListener(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, state: MailServer) -> None:
        super().__init__(("127.0.0.1", 0), MailHandler)
        self.state = state

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that refuse the certificate are what tests are about."""


@contextmanager
def mail_server(server: MailServer) -> Iterator[MailServer]:
    listener = MailListener(server)
    if server.tls:
        assert server.certificate is not None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*server.certificate)
        listener.socket = context.wrap_socket(listener.socket, server_side=True)
    server.port = int(listener.server_address[1])
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that signed itself, and its key; skipped where openssl is not installed."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate of the test, and is not installed")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return certificate, key
