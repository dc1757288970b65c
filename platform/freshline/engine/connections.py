"""Connections to a server on loopback: how many there may be, and how long a request may take to arrive.

uvicorn waits without end for the rest of a request, and keeps as many connections as there are descriptors. Whoever
can reach the port, with a token or without, could occupy all of them by sending nothing. So each connection has a time
in which its request must be whole. Where too many are open, the one that has waited longest without a whole request
makes room, so that those who send whole requests are still answered.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
MOST_CONNECTIONS = 256


def bounded(*, request_seconds: float = REQUEST_SECONDS) -> type[asyncio.Protocol]:
    """The protocol with these bounds, for the parameter `http` of uvicorn's configuration."""
    return type("BoundedProtocol", (_Bounded,), {"request_seconds": request_seconds})


class _Bounded(H11Protocol):
    request_seconds: float

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limit: asyncio.TimerHandle | None = None
        self._waits_since = self.loop.time()

    @property
    def _serves(self) -> bool:
        """Whether a whole request is there that is not answered yet."""
        return self.cycle is not None and not self.cycle.more_body and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MOST_CONNECTIONS:
            waiting = [each for each in self.connections if isinstance(each, _Bounded) and not each._serves]
            min(waiting, key=lambda each: each._waits_since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        # Before: the next request may have arrived already, and be answered within.
        self._wait()
        super().on_response_complete()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._end_wait()
        super().handle_websocket_upgrade(event)

    def _wait(self) -> None:
        """Begin to wait for a request."""
        self._end_wait()
        self._waits_since = self.loop.time()
        self._limit = self.loop.call_later(self.request_seconds, self._give_up)

    def _end_wait(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _give_up(self) -> None:
        self._limit = None
        if not self._serves:
            self.transport.abort()
