"""The freshness board as pages of the UI, behind its guard: all tables, one table, and news for pages that are open.

A page is made of the logs of the tables and the control store when it is asked for, at most once in
a moment for all that ask, so neither Dagster nor the engine has to answer. A page that is open follows a stream of
server-sent events; each says that something is another, and the page then asks for itself. Buttons post decisions.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from freshline.commit.control_store import ControlStore
from freshline.dagster.webserver.actions import Acting, BoardAction, act
from freshline.dagster.webserver.refreshes import Refreshes
from freshline.declare.graph import Graph
from freshline.engine.client import EngineClient
from freshline.engine.declarations import Declarations
from freshline.engine.watch_health import read_watch_problems
from freshline.errors import DeclarationError, EngineError, FreshlineError, RequestError
from freshline.plan.valid_project import mistakes_of, open_valid_project
from freshline.report.board.board import Board, Choice
from freshline.report.board.page import ADDRESS, render_all, render_message, render_table
from freshline.report.status import RowCounts
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import TableSpec

if TYPE_CHECKING:
    from freshline.report.board.read import BoardReader

LOG = logging.getLogger("dagster")

SHOWN = timedelta(days=7)
LOOK_SECONDS = 2.0
# Lag grows also where nothing happens.
RENEWED_SECONDS = 10.0
# Reading the board for pages that are open takes at most this share of the time.
_SHARE = 0.1
MOST_FOLLOWERS = 32
_LONGEST_FIELD = 300


class BoardPages:
    """The application for all addresses below ADDRESS; `clock` gives the time.

    A page has buttons unless it is `read_only`; that nothing is decided then is the guard's work.
    """

    def __init__(self, settings: Settings, clock: Callable[[], datetime], *, read_only: bool = False) -> None:
        self._settings = settings
        self._clock = clock
        self._read_only = read_only
        self._source = _Source(settings, clock)
        refreshes = Refreshes(lambda: EngineClient.connect(settings, start=False))
        self._acting = Acting(settings, clock, lambda table: self._refresh(refreshes, table))
        self._followers = 0
        self._app = Starlette(
            routes=[
                Route(ADDRESS.rstrip("/"), self._redirect),
                Route(ADDRESS, self._all),
                Route(f"{ADDRESS}table/{{name}}", self._table),
                Route(f"{ADDRESS}events", self._events),
                Route(f"{ADDRESS}act", self._act, methods=["POST"]),
            ]
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def close(self) -> None:
        """Let go of the control store."""
        self._source.close()

    async def _redirect(self, _request: Request) -> Response:
        return RedirectResponse(ADDRESS, 308)

    async def _all(self, request: Request) -> Response:
        given = request.query_params
        fields = ("search", "namespace", "mode", "owner", "state", "sort")
        choice = Choice(**{name: given[name][:_LONGEST_FIELD] for name in fields if given.get(name)})
        return await run_in_threadpool(self._page, lambda: HTMLResponse(render_all(self._source.board(), choice)))

    async def _table(self, request: Request) -> Response:
        return await run_in_threadpool(self._page, lambda: self._table_page(request.path_params["name"]))

    def _table_page(self, text: str) -> Response:
        try:
            name = TableName.parse(text)
        except ValueError as error:
            return HTMLResponse(render_message("There is no such table", str(error)), 404)
        board = self._source.table(name)
        if board is None:
            return HTMLResponse(render_message("There is no such table", f"{name} is not declared."), 404)
        return HTMLResponse(render_table(board, buttons=not self._read_only))

    def _page(self, make: Callable[[], Response]) -> Response:
        try:
            return make()
        except FreshlineError as error:
            return HTMLResponse(render_message("The board cannot be read", str(error)), 503)

    async def _act(self, request: Request) -> Response:
        content = await request.json()
        return await run_in_threadpool(self._decide, content)

    def _decide(self, content: Mapping[str, object]) -> Response:
        try:
            said = act(BoardAction.read(content), self._acting)
        except FreshlineError as error:
            return JSONResponse({"error": error.as_json()}, 409)
        self._source.forget()
        return JSONResponse({"said": said})

    def _refresh(self, refreshes: Refreshes, table: TableName) -> str:
        return refreshes.ask(self._source.declared(table))

    async def _events(self, _request: Request) -> Response:
        if self._followers >= MOST_FOLLOWERS:
            return PlainTextResponse("too many pages follow the board.", 503)
        return StreamingResponse(self._news(), media_type="text/event-stream")

    async def _news(self) -> AsyncIterator[str]:
        """An event whenever a page would show something else, and for what only grows every ten seconds."""
        self._followers += 1
        try:
            told, told_at = "", 0.0
            while True:
                found, cost = await run_in_threadpool(self._look)
                now = time.monotonic()
                if found != told or now - told_at >= RENEWED_SECONDS:
                    told, told_at = found, now
                    yield f"event: board\ndata: {found}\n\n"
                await asyncio.sleep(max(LOOK_SECONDS, cost / _SHARE))
        finally:
            self._followers -= 1

    def _look(self) -> tuple[str, float]:
        begin = time.monotonic()
        try:
            found = digest(self._source.board())
        except FreshlineError as error:
            found = hashlib.sha256(str(error).encode("utf-8", "replace")).hexdigest()[:16]
        return found, time.monotonic() - begin


def digest(board: Board) -> str:
    """Another text where a page shows something else than that time has passed."""
    shown = [
        (
            str(row.name),
            str(row.state),
            row.cause,
            row.status.state,
            row.status.freshness_seconds,
            row.status.version,
            row.status.last_refresh,
        )
        for row in board.rows
    ]
    alerts = [(alert.id, alert.level, alert.cause) for alert in board.alerts]
    everything = repr((shown, alerts, board.mistakes, board.untold))
    return hashlib.sha256(everything.encode("utf-8", "replace")).hexdigest()[:16]


def running_tables(settings: Settings) -> frozenset[TableName]:
    """The tables that the engine is refreshing now; none where no engine answers."""
    try:
        told = EngineClient.connect(settings, start=False).status()
    except EngineError:
        return frozenset()
    return frozenset(TableName.parse(str(table["table"])) for table in told if table.get("state") == "RUNNING")


class _Source:
    """Reads boards for all who ask; opened with the first, because a UI may be used without it."""

    def __init__(self, settings: Settings, clock: Callable[[], datetime]) -> None:
        self._settings = settings
        self._clock = clock
        self._lock = threading.Lock()
        self._declarations: Declarations | None = None
        self._store: ControlStore | None = None
        self._reader: BoardReader | None = None
        self._board: Board | None = None
        self._read_at = 0.0
        self._fresh_seconds = 0.0

    def close(self) -> None:
        with self._lock:
            if self._store is not None:
                self._store.close()
                self._store = self._reader = None

    def forget(self) -> None:
        """The next page is of the moment in which it is asked for."""
        with self._lock:
            self._board = None

    def board(self) -> Board:
        """The board of this moment, or of one that was asked for a moment ago. Raises FreshlineError."""
        with self._lock:
            begin = time.monotonic()
            if self._board is None or begin - self._read_at > self._fresh_seconds:
                reader, graph, mistakes, now = self._opened()
                self._board = reader.read(graph, now, now - SHOWN, mistakes=mistakes)
                self._read_at = time.monotonic()
                self._fresh_seconds = max(0.5, self._read_at - begin)
            return self._board

    def table(self, name: TableName) -> Board | None:
        """The board with the page of one table; None where it is not declared. Raises FreshlineError."""
        with self._lock:
            reader, graph, mistakes, now = self._opened()
            if name not in graph:
                return None
            return reader.read(graph, now, now - SHOWN, lambda _: [graph.spec(name).name], mistakes=mistakes)

    def declared(self, name: TableName) -> TableName:
        """The name of a table as it is declared. Raises RequestError for one that is not, and for a source."""
        with self._lock:
            graph, _ = self._declared()
            if name not in graph:
                raise RequestError(f"there is no table {name}.")
            spec = graph.spec(name)
            if not isinstance(spec, TableSpec):
                raise RequestError(f"{spec.name} is a source. A refresh of a table reads its sources.")
            return spec.name

    def _opened(self) -> tuple[BoardReader, Graph, Sequence[str], datetime]:
        graph, mistakes = self._declared()
        if self._reader is None:
            # Imported with the first page: EXPLAIN needs sqlglot, and the UI starts without it.
            from freshline.report.board.read import BoardReader

            store = self._store = ControlStore.open(self._settings.control_store, self._settings.umask)
            self._reader = BoardReader(
                self._settings,
                store,
                running=lambda: running_tables(self._settings),
                count_rows=RowCounts(),
                untold=lambda now: read_watch_problems(self._settings, store.heartbeats.read(), now),
            )
        return self._reader, graph, mistakes, self._clock()

    def _declared(self) -> tuple[Graph, Sequence[str]]:
        """The graph, and the mistakes of the declarations: their tables stay as they were, if they were known."""
        if self._declarations is None:
            try:
                self._declarations = Declarations(self._settings)
            except DeclarationError as error:
                return open_valid_project(self._settings).graph, mistakes_of(error)
        graph, wrong = self._declarations.check(), self._declarations.error
        return graph, () if wrong is None else mistakes_of(wrong)
