"""The engine's HTTP: on loopback, for those who know the token.

Every request must bear the token and name a loopback address as its host, which keeps web pages of any origin out, also
when a name server is made to point at this machine. Polling for events is answered at the next event.

A scrape of `/metrics` may bear a token of its own, which opens nothing else.

Posts of events to `/ingest/` bear tokens of their own, which open nothing else (`ingest.py`), and so do those who
follow tables at `/changes/` (`changes.py`). Both are served as soon as the server has started, and everything else when
there is an engine behind it.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import secrets
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from freshline.engine.connections import REQUEST_SECONDS, bounded
from freshline.errors import EngineError, FreshlineError, RequestError
from freshline.report.metrics.exposition import CONTENT_TYPE, Family, text_of

if TYPE_CHECKING:
    from freshline.engine.requests import Request

LOG = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 30.0
METRICS = "/metrics"
# The paths of posts of events.
PREFIX = "/ingest/"
# The paths of the changes of tables.
CHANGES = "/changes/"
_LARGEST_BODY = 4 << 20
_START_SECONDS = 20.0


class Control(Protocol):
    """The part of an engine that the server needs."""

    def health(self) -> Mapping[str, Any]: ...
    def submit(self, kind: str, arguments: Mapping[str, Any], asker: int | None) -> Request: ...
    def find(self, request_id: str) -> Request: ...
    def status(self) -> list[dict[str, Any]]: ...
    def metrics(self) -> Sequence[Family]: ...
    def set_loops(self, on: bool) -> None: ...
    def stop(self, seconds: float | None) -> None: ...


def bind(port: int) -> socket.socket:
    """A socket on loopback; 0 is any free port. Raises EngineError for a port that is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
    except OSError as error:
        listener.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used: {error.strerror or error}"
        raise EngineError(
            f"port {port} of the engine {reason}. Set engine-port to 0 or to a free port, or end what listens there."
        ) from error
    return listener


class EngineServer:
    """Serves one engine in a thread of its own; a request must be whole within `request_seconds`.

    Without a `control` it answers 503 to whoever knows the token, until it is given one by `attach`. `ingest` takes
    posts of events, and `changes` those who follow tables. `scrape_token` opens `/metrics` and nothing else.
    """

    def __init__(
        self,
        control: Control | None,
        token: str,
        listener: socket.socket,
        *,
        ingest: ASGIApp | None = None,
        changes: ASGIApp | None = None,
        scrape_token: str | None = None,
        request_seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._listener = listener
        self._app: ASGIApp = _answer_later if control is None else application(control)
        self.port = int(listener.getsockname()[1])
        config = uvicorn.Config(
            TokenGuard(self._serve, token, self.port, ingest, scrape_token, changes),
            http=bounded(request_seconds=request_seconds),
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="http", daemon=True
        )

    def attach(self, control: Control) -> None:
        """Serve an engine from now on."""
        self._app = application(control)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def start(self) -> None:
        """Begin to answer. Raises EngineError if that does not come about."""
        self._thread.start()
        ready = threading.Event()
        for _ in range(int(_START_SECONDS / 0.02)):
            if self._server.started:
                return
            if not self._thread.is_alive():
                break
            ready.wait(0.02)
        raise EngineError("the engine's HTTP server did not start; see the engine's log")

    def stop(self) -> None:
        """Answer no more."""
        self._server.should_exit = True
        self._thread.join(5.0)
        self._listener.close()


@dataclass(frozen=True)
class TokenGuard:
    """Lets through what bears the token and names a loopback host.

    Requests to `ingest` and `changes` bear others, which these judge. `scrape_token` lets readers
    of the metrics through.
    """

    app: ASGIApp
    token: str
    port: int
    ingest: ASGIApp | None = None
    scrape_token: str | None = None
    changes: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {key.lower(): value for key, value in scope["headers"]}
        if self.ingest is not None and scope["path"].startswith(PREFIX):
            answer = self.foreign(headers) or self.ingest
        elif self.changes is not None and scope["path"].startswith(CHANGES):
            answer = self.foreign(headers) or self.changes
        elif self.scrapes(scope, headers):
            answer = self.foreign(headers) or self.app
        else:
            answer = self.refusal(headers) or self.app
        await answer(scope, receive, send)

    def foreign(self, headers: Mapping[bytes, bytes]) -> Response | None:
        """The answer to who asks for another host; None for who asks for this one."""
        hosts = {f"{name}:{self.port}".encode() for name in ("127.0.0.1", "localhost")}
        if headers.get(b"host") not in hosts:
            return _refuse(403, "the engine is asked at 127.0.0.1 or localhost only")
        return None

    def scrapes(self, scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
        """Whether it reads the metrics, and bears the token for them."""
        if self.scrape_token is None or scope["path"] != METRICS or scope["method"] not in ("GET", "HEAD"):
            return False
        given = headers.get(b"authorization", b"")
        return secrets.compare_digest(given, f"Bearer {self.scrape_token}".encode())

    def refusal(self, headers: Mapping[bytes, bytes]) -> Response | None:
        """The answer to who may not ask; None for who may."""
        foreign = self.foreign(headers)
        if foreign is not None:
            return foreign
        expected = f"Bearer {self.token}".encode()
        if not secrets.compare_digest(headers.get(b"authorization", b""), expected):
            return _refuse(401, "the token is missing or wrong. It is in the engine's state file.")
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length) > _LARGEST_BODY or b"transfer-encoding" in headers:
            return _refuse(413, f"a request has at most {_LARGEST_BODY} bytes")
        return None


def application(control: Control) -> Starlette:
    """The routes; who may use them is decided before."""

    async def health(_: HttpRequest) -> Response:
        return JSONResponse(dict(control.health()))

    async def status(_: HttpRequest) -> Response:
        return JSONResponse(await run_in_threadpool(control.status))

    async def submit(http: HttpRequest) -> Response:
        body = await _body(http)
        kind, arguments = body.get("kind"), body.get("arguments", {})
        asker = body.get("asker")
        if not isinstance(kind, str) or not isinstance(arguments, dict) or not _is_asker(asker):
            raise RequestError("a request is {kind: text, arguments: object, asker: id of a process}")
        request = await run_in_threadpool(control.submit, kind, arguments, asker)
        return JSONResponse({"id": request.id})

    async def events(http: HttpRequest) -> Response:
        request = control.find(http.path_params["id"])
        after = _number(http, "after", 0, 0, 1 << 31)
        wait = _number(http, "wait", 0.0, 0.0, LONGEST_WAIT_SECONDS)
        await _wait_for(request, int(after), wait)
        found, done = request.events(int(after))
        return JSONResponse({"events": found, "next": int(after) + len(found), "done": done})

    async def cancel(http: HttpRequest) -> Response:
        request = control.find(http.path_params["id"])
        await run_in_threadpool(request.interrupt)
        return JSONResponse({"id": request.id, "cancelled": True})

    async def loops(http: HttpRequest) -> Response:
        on = (await _body(http)).get("on")
        if not isinstance(on, bool):
            raise RequestError("loops takes {on: true or false}")
        await run_in_threadpool(control.set_loops, on)
        return JSONResponse({"loops": on})

    async def stop(http: HttpRequest) -> Response:
        seconds = (await _body(http)).get("seconds")
        if seconds is not None and (type(seconds) not in (int, float) or not 0 <= seconds < float("inf")):
            raise RequestError("stop takes {seconds: how long running work may go on}")
        control.stop(seconds)
        return JSONResponse({"stopping": True})

    return Starlette(
        routes=[
            Route("/health", _answered(health)),
            Route("/status", _answered(status)),
            Route(METRICS, _answered(partial(_metrics, control))),
            Route("/requests", _answered(submit), methods=["POST"]),
            Route("/requests/{id}/events", _answered(events)),
            Route("/requests/{id}/cancel", _answered(cancel), methods=["POST"]),
            Route("/loops", _answered(loops), methods=["POST"]),
            Route("/stop", _answered(stop), methods=["POST"]),
        ]
    )


async def _metrics(control: Control, http: HttpRequest) -> Response:
    families = await run_in_threadpool(control.metrics)
    if http.headers.get("accept") == "application/json":
        return JSONResponse([family.as_json() for family in families])
    return Response(await run_in_threadpool(text_of, families), media_type=CONTENT_TYPE)


async def _wait_for(request: Request, after: int, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    happened = asyncio.Event()

    def notify() -> None:
        # The asker may have gone, and the server with it.
        if not loop.is_closed():
            loop.call_soon_threadsafe(happened.set)

    # Asking is a sign of life at its beginning too: an answer may take as long as the asker is willing to wait.
    request.events(after)
    request.listen(after, notify)
    try:
        await asyncio.wait_for(happened.wait(), seconds)
    except TimeoutError:
        return


def _answered(answer: Callable[[HttpRequest], Awaitable[Response]]) -> Callable[[HttpRequest], Awaitable[Response]]:
    """Errors of freshline as JSON, with a status that says whose they are."""

    async def answered(http: HttpRequest) -> Response:
        try:
            return await answer(http)
        except RequestError as error:
            return JSONResponse({"error": error.as_json()}, 400)
        except EngineError as error:
            return JSONResponse({"error": error.as_json()}, 503)
        except FreshlineError as error:
            return JSONResponse({"error": error.as_json()}, 500)

    return answered


async def _body(http: HttpRequest) -> dict[str, Any]:
    raw = await http.body()
    try:
        value = json.loads(raw or b"{}")
    except (ValueError, RecursionError) as error:
        raise RequestError("the body is not JSON") from error
    if not isinstance(value, dict):
        raise RequestError("the body is not a JSON object")
    try:
        # An escape can name half of a character, which no answer, log or file can have: they are UTF-8.
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError) as error:
        raise RequestError("the body has an escape of half a character, such as \\ud800") from error
    return value


def _is_asker(asker: object) -> bool:
    """Whether it is the id of a process that could have asked, or none was given."""
    return asker is None or (isinstance(asker, int) and not isinstance(asker, bool) and 0 < asker < 1 << 31)


def _number(http: HttpRequest, name: str, default: float, least: float, most: float) -> float:
    text = http.query_params.get(name)
    try:
        value = default if text is None else float(text)
    except ValueError:
        raise RequestError(f"`{name}` is a number, not {text!r}") from None
    if not least <= value:
        raise RequestError(f"`{name}` is at least {least:g}, not {text!r}")
    return min(value, most)


async def _answer_later(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(503, "the engine is starting. Ask again in a moment.")(scope, receive, send)


def _refuse(code: int, message: str) -> Response:
    return JSONResponse({"error": EngineError(message).as_json()}, code)
