"""A door before a server that counts the connections which come through it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_PIECE = 1 << 16


@dataclass
class Door:
    """A port of loopback behind which the server is; `connections` have come so far."""

    port: int
    connections: int = 0


@contextmanager
def counted(server: Path | int) -> Iterator[Door]:
    """Open a door before a server, which is at a socket's path or at a port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        door = Door(int(listener.getsockname()[1]))

        def serve() -> None:
            # The listener is closed at the end.
            with suppress(OSError):
                while True:
                    near, _ = listener.accept()
                    door.connections += 1
                    far = _connected(server)
                    for source, target in ((near, far), (far, near)):
                        threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield door
        finally:
            # To close it does not end a call that waits.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def _connected(server: Path | int) -> socket.socket:
    if isinstance(server, int):
        return socket.create_connection(("127.0.0.1", server))
    made = socket.socket(socket.AF_UNIX)
    made.connect(str(server))
    return made


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(_PIECE):
            target.sendall(piece)
    for each in (source, target):
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
