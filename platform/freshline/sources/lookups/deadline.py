"""The deadline of a request whose client waits for as long as the server likes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from freshline.sources.lookups.client import AwayError


@contextmanager
def ended_after(seconds: float, connection: Callable[[], socket.socket | None]) -> Iterator[None]:
    """End a request after so long, from another thread; `connection` gives its socket, None where there is none yet.

    Raises AwayError in place of what the client says of a connection that ended.
    """
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        found = connection()
        if found is not None:
            # It may have ended by itself.
            with suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if is_late.is_set():
            raise AwayError("it takes longer than 'lookup.timeout'") from error
        raise
    finally:
        timer.cancel()
