"""Stand before Dagster's webserver and the board: pass on what `decide` admits, and say what browsers may do with it.

It runs inside the webserver's process. There is no second port, so nothing can go around it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from freshline.dagster.webserver.access import (
    LARGEST_BODY,
    METHODS,
    Access,
    Admit,
    Door,
    Enter,
    LoadAgain,
    Refuse,
    RequestHead,
    decide,
    door_of,
    too_large,
)
from freshline.dagster.webserver.body import judge_body
from freshline.dagster.webserver.login import LASTS
from freshline.report.board.page import policy as board_policy

_LOAD_AGAIN = '<!doctype html><title>Dagster</title><meta http-equiv="refresh" content="0">'
_HEADERS: Mapping[str, str] = {
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Dagster's own policy, which allows only its own scripts, stands beside this one, and both apply.
_PAGE_POLICY = (
    "frame-ancestors 'none'; form-action 'self'; object-src 'none'; connect-src 'self' {sockets}; "
    "img-src 'self' data: blob: https:; font-src 'self' data:; worker-src 'self' blob:"
)
# Dagster gives its page for writing queries no policy; its one script stands in the page.
_QUERIES_POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; worker-src 'self' blob:; connect-src 'self' {sockets}; "
    "frame-ancestors 'none'; form-action 'none'; base-uri 'none'"
)
_DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"


@dataclass(frozen=True)
class Guard:
    """The applications `app`, Dagster's, and `board`, for those whom `access` lets in; `clock` gives the time."""

    app: ASGIApp
    board: ASGIApp
    access: Access
    clock: Callable[[], datetime]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        asked = asked_of(scope)
        answer = decide(asked, self.access, self.clock())
        match answer:
            case Admit():
                await self._pass_on(asked, answer, scope, receive, send)
            case Refuse():
                await _refuse(answer, scope, receive, send)
            case Enter():
                await self._enter()(scope, receive, send)
            case LoadAgain():
                await _protected(HTMLResponse(_LOAD_AGAIN, headers={"Cache-Control": "no-store"}))(scope, receive, send)
            case _:
                assert_never(answer)

    async def _pass_on(self, asked: RequestHead, admit: Admit, scope: Scope, receive: Receive, send: Send) -> None:
        if asked.kind == "websocket":
            await self.app(scope, receive, send)
            return
        if asked.method == "POST":
            try:
                body = await _read(receive)
            except ClientDisconnect:
                # Nobody is there for an answer, and half a request is none.
                return
            if body is None:
                judged: Refuse | None = too_large()
            else:
                # In a thread, as Dagster reads it: a large query would make all others wait.
                judged = await run_in_threadpool(judge_body, admit.door, body, read_only=self.access.read_only)
            if judged is not None:
                await _refuse(judged, scope, receive, send)
                return
            receive = _again(body or b"", receive)
        policy = _policy(asked, admit, self.access)

        async def protect(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                headers.append("Content-Security-Policy", policy)
                if admit.door is not Door.PAGE:
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        app = self.board if admit.door in (Door.BOARD, Door.NEWS, Door.ACT) else self.app
        await app(scope, receive, protect)

    def _enter(self) -> Response:
        login = self.access.login
        assert login is not None
        answer = RedirectResponse("/", 303, headers={"Cache-Control": "no-store"})
        answer.set_cookie(
            login.cookie_name,
            login.cookie(self.clock()),
            max_age=int(LASTS.total_seconds()),
            path="/",
            httponly=True,
            samesite="strict",
        )
        return _protected(answer)


def asked_of(scope: Scope) -> RequestHead:
    """The request that an ASGI scope describes."""
    headers: dict[str, tuple[str, ...]] = {}
    for key, value in scope["headers"]:
        name = key.decode("latin-1").lower()
        headers[name] = (*headers.get(name, ()), value.decode("latin-1").strip())
    return RequestHead(
        scope.get("method", "GET"),
        scope["path"],
        scope["query_string"].decode("latin-1"),
        headers,
        scope["type"],
    )


def _policy(asked: RequestHead, admit: Admit, access: Access) -> str:
    # 'self' does not mean websockets in every browser.
    schemes = ("ws", "wss") if admit.host in access.hosts else ("ws",)
    sockets = " ".join(f"{scheme}://{admit.host}" for scheme in schemes)
    if admit.door is Door.PAGE:
        return _PAGE_POLICY.format(sockets=sockets)
    if admit.door is Door.BOARD:
        return board_policy(in_file=False)
    if admit.door is Door.GRAPHQL and asked.method == "GET":
        return _QUERIES_POLICY.format(sockets=sockets)
    return _DATA_POLICY


def _protected(response: Response) -> Response:
    response.headers.update(_HEADERS)
    response.headers["Content-Security-Policy"] = _DATA_POLICY
    return response


async def _refuse(refusal: Refuse, scope: Scope, receive: Receive, send: Send) -> None:
    content = {"error": {"code": refusal.code, "message": refusal.message}}
    headers = {"Cache-Control": "no-store"}
    if refusal.code == "METHOD":
        headers["Allow"] = ", ".join(METHODS[door_of(scope["path"])])
    if refusal.code == "TOKEN":
        headers["WWW-Authenticate"] = "Bearer"
    response = _protected(JSONResponse(content, refusal.status, headers))
    if scope["type"] == "websocket":
        await WebSocket(scope, receive, send).send_denial_response(response)
    else:
        await response(scope, receive, send)


async def _read(receive: Receive) -> bytes | None:
    """The body of a request, None if it is too large. Raises ClientDisconnect."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _again(body: bytes, receive: Receive) -> Receive:
    """The channel from which Dagster receives: the body that was read, then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
