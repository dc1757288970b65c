"""Connections to a server on loopback: how many there may be, and how long a request may take to arrive.

uvicorn waits without end for the rest of a request, and keeps as many connections as there are descriptors. Whoever
can reach the port, with a token or without, could occupy all of them by sending nothing. So each connection has a time
in which its request must be whole. Where too many are open, the one that has waited longest without a whole request
makes room, so that those who send whole requests are still answered.

An answer is written as fast as its client reads. A client that takes nothing of it for a time is cut off, because what
waits for it would stay in memory without end.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS = 10.0
SEND_SECONDS = 30.0
MOST_CONNECTIONS = 256


def bounded(*, request_seconds: float = REQUEST_SECONDS, send_seconds: float = SEND_SECONDS) -> type[asyncio.Protocol]:
    """The protocol with these bounds, for the parameter `http` of uvicorn's configuration."""
    bounds = {"request_seconds": request_seconds, "send_seconds": send_seconds}
    return type("BoundedProtocol", (_Bounded,), bounds)


class _Bounded(H11Protocol):
    request_seconds: float
    send_seconds: float

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._limit: asyncio.TimerHandle | None = None
        self._waits_since = self.loop.time()
        self._stuck: asyncio.TimerHandle | None = None

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
        self._end_stuck()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        # More waits for the client than the system holds for it.
        self._end_stuck()
        self._stuck = self.loop.call_later(self.send_seconds, self.transport.abort)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._end_stuck()
        super().resume_writing()

    def _end_stuck(self) -> None:
        if self._stuck is not None:
            self._stuck.cancel()
            self._stuck = None

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
