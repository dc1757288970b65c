"""Servers on loopback that ask for a secret, and refuse it."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PostgresHandler(socketserver.StreamRequestHandler):
    """Speaks Postgres until it has received a password in plain text and refused it."""

    def handle(self) -> None:
        message = self.take(typed=False)
        while message[:4] in (struct.pack("!I", 80877103), struct.pack("!I", 80877104)):
            # Encryption is asked for first, and not to be had here.
            self.wfile.write(b"N")
            message = self.take(typed=False)
        self.wfile.write(b"R" + struct.pack("!II", 8, 3))
        assert isinstance(self.server, PostgresListener)
        self.server.passwords.append(self.take(typed=True).rstrip(b"\0").decode())
        fields = b"SFATAL\0VFATAL\0C28P01\0Mpassword authentication failed for user\0\0"
        self.wfile.write(b"E" + struct.pack("!I", len(fields) + 4) + fields)

    def take(self, *, typed: bool) -> bytes:
        if typed:
            self.rfile.read(1)
        size = struct.unpack("!I", self.rfile.read(4))[0]
        return self.rfile.read(size - 4)


class PostgresListener(socketserver.ThreadingTCPServer):
    """Keeps the passwords that it received."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), PostgresHandler)
        self.passwords: list[str] = []

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what happens here."""


@contextmanager
def refusing_postgres() -> Iterator[PostgresListener]:
    """A server of Postgres that refuses each password."""
    with PostgresListener() as listener:
        thread = threading.Thread(target=listener.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()
