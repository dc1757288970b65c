"""Mistakes in the address of a system: each is named at once where no waiting helps, and with its remedy."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from freshline.errors import SinkError, SinkRefusedError
from freshline.sinks.http_client import HttpClient, Patience, read_hosts
from tests.report.alerts.servers import make_certificate
from tests.servers.web import web_server

PORTS = {"http": 80, "https": 443}
QUICK = Patience(answer=5.0, whole=0.2, first_wait=0.01, longest_wait=0.1)


@dataclass(frozen=True)
class Files:
    """Of TLS, as an option names them."""

    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None


def client(url: str, files: Files = Files()) -> HttpClient:
    return HttpClient(read_hosts(url, PORTS), files, dict, title="Search", where="out", patience=QUICK)


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port where each connection is served so, and ended."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        # A thread that waits in `accept` is not woken by a close.
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def refused_by(asked: HttpClient) -> str:
    with pytest.raises(SinkRefusedError) as caught:
        asked.ask("GET", "/")
    assert not caught.value.retry_helps
    return str(caught.value)


def test_https_at_a_port_without_tls_is_refused_at_once() -> None:
    with web_server() as server:
        said = refused_by(client(f"https://127.0.0.1:{server.port}"))

    assert "does not speak TLS. Write the port that does, or http in the place of https." in said


def test_a_port_of_another_protocol_is_refused_at_once() -> None:
    def greet(connection: socket.socket) -> None:
        connection.recv(65_536)
        connection.sendall(b"\x4a\x00\x00\x00\x0a11.4.2-MariaDB")

    with listening(greet) as port:
        said = refused_by(client(f"http://127.0.0.1:{port}"))

    assert f"http://127.0.0.1:{port} does not speak HTTP." in said


def test_a_server_that_requires_a_certificate_is_named_with_the_options(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED

    def shake_hands(connection: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(connection, server_side=True)

    with listening(shake_hands) as port:
        said = refused_by(client(f"https://localhost:{port}", Files(tls_ca=str(certificate))))

    assert "ends the handshake of TLS" in said
    assert "Correct tls.certificate and tls.key." in said


def test_http_at_a_port_with_tls_says_what_its_address_begins_with(tmp_path: Path) -> None:
    with web_server(certificate=make_certificate(tmp_path)) as server, pytest.raises(SinkError) as caught:
        client(f"http://127.0.0.1:{server.port}").ask("GET", "/")

    # A server that is about to stop ends its connections too.
    assert caught.value.retry_helps
    assert "as by a system with TLS, whose address begins with https" in str(caught.value)
