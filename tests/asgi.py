"""Requests to an application of ASGI, without a server between."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def ask_asgi(app: Any, scope: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """One request by ASGI: the status and the body of the answer; 0 where there is none."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    _loop().run_until_complete(app(scope, receive, send))
    status = next((message["status"] for message in sent if message["type"] == "http.response.start"), 0)
    return status, b"".join(message.get("body", b"") for message in sent)
