"""`GET /changes/<table>`: the net changes of a table as server-sent events, for pages and services without a broker.

Each event has the changes of one version, or a part of them where they are many. Its `id` says exactly how far the
client has read then: who comes back with it as `Last-Event-ID` goes on behind that event, and gets no row twice and
misses none. Changes that are gone are an answer 410 or the event `gone`, never fewer rows.

The setting `changes-token` names the token that opens this and nothing else. Nothing here needs Spark or the control
store, and nothing waits for a client: each reads at its own pace, and one that takes nothing for a while is cut off.
Changes of a version that fit into one event are read once for all clients of a table that ask for the same columns.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from freshline.commit.consumers import keep_consumer, read_consumer
from freshline.commit.delta_log import commit_digest, commit_file, newest_version, open_table, table_id
from freshline.declare.graph import Graph
from freshline.engine.reading import StoredTable, register_on, require_consumer_name, require_known, utc_now
from freshline.engine.server import CHANGES
from freshline.errors import (
    ChangesBusyError,
    ChangesError,
    ConsumerError,
    ConsumerExpiredError,
    FreshlineError,
    ReadError,
)
from freshline.plan.place import FollowedPlace, Portion, Within, mark_of_parts, mark_of_table
from freshline.plan.read import DEFAULT_EXPIRY_DAYS, Consumer, LogHistory
from freshline.reads.json_rows import rows_as_json
from freshline.reads.parts import Limits, Part, change_parts, row_parts
from freshline.reads.rows import own_columns, read_history
from freshline.report.samples import Mask, find_masks
from freshline.values.names import TableName
from freshline.values.secret import resolve_token
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)

NOW, BEGINNING = "now", "beginning"
_PARAMETERS = ("from", "columns", "consumer")
_READERS = 4
_LOOK_SECONDS = 0.5
_REMEMBERED = 200
_QUIET_SECONDS = 60.0
_CACHED_BYTES = 32 << 20
_RETRY_MILLISECONDS = 2_000
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True)
class FollowLimits:
    """The most clients at once, and times in seconds.

    A comment is sent after `heartbeat` without an event. A connection ends after `connection`, between two versions:
    its client comes back, and so says what it has read. New versions are found within `poll`.
    """

    followers: int = 64
    heartbeat: float = 15.0
    connection: float = 900.0
    poll: float = 0.25
    parts: Limits = field(default_factory=Limits)


class _RefusedError(Exception):
    """A request that is not answered with events, with the answer."""

    def __init__(self, status: HTTPStatus, error: FreshlineError, **headers: str) -> None:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if status is HTTPStatus.TOO_MANY_REQUESTS:
            given["Retry-After"] = "5"
        self.answer = JSONResponse({"error": error.as_json()}, status, given)
        super().__init__(str(error))


@dataclass(frozen=True)
class _Version:
    """A version of a table: the place behind it, the columns that readers see, and the facts of its commit's file."""

    place: FollowedPlace
    columns: tuple[str, ...]
    facts: tuple[int, int, int] | None


@dataclass(frozen=True)
class _Follow:
    """A client: the table, the place behind which it goes on, and the columns that it asked for, None for all."""

    table: StoredTable
    key: tuple[str, ...]
    mask: Mask
    columns: tuple[str, ...] | None
    place: FollowedPlace

    @property
    def name(self) -> str:
        return str(self.table.name)

    def columns_at(self, version: _Version) -> list[str]:
        """The columns that are sent of a version. Raises ReadError for one that it does not have, or that is masked."""
        shown = [name for name in version.columns if not self.mask.hides(name)]
        if self.columns is None:
            return shown
        wanted = {name.lower() for name in (*self.columns, *self.key)}
        found = [name for name in shown if name.lower() in wanted]
        missing = sorted({name.lower() for name in self.columns} - {name.lower() for name in found})
        if missing:
            number = version.place.version
            raise ReadError(f"version {number} has no column {missing[0]!r} that is shown.", where=self.name)
        return found

    def key_in(self, columns: Sequence[str]) -> tuple[str, ...]:
        """The key by which rows before and after are paired, empty where it is not sent as a whole."""
        sent = {name.lower(): name for name in columns}
        return tuple(sent[name.lower()] for name in self.key) if all(name.lower() in sent for name in self.key) else ()


@dataclass
class Changes:
    """The door for those who follow tables. `graph` gives the declarations in force, `environ` what references mean."""

    graph: Callable[[], Graph]
    settings: Settings
    environ: Mapping[str, str]
    limits: FollowLimits = field(default_factory=FollowLimits)
    clock: Callable[[], datetime] = utc_now

    def __post_init__(self) -> None:
        self._readers = ThreadPoolExecutor(_READERS, "changes")
        self._followers = 0
        self._closing = threading.Event()
        self._watches: dict[Path, _Watch] = {}
        self._cache = _Cache()
        self._locks: dict[Any, asyncio.Lock] = {}
        self._masks: tuple[Graph | None, Mapping[TableName, Mask]] = (None, {})
        self._warned: dict[str, float] = {}
        # Of an engine that was killed.
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def followers(self) -> int:
        """The number of clients that are connected."""
        return self._followers

    def close(self) -> None:
        """End the answers that are being sent; clients come back when there is an engine again."""
        self._closing.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            follow = await self._run(self._admitted, scope)
            if self._followers >= self.limits.followers:
                raise _RefusedError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    ChangesBusyError(
                        f"{self._followers} clients follow tables of this engine, and more are not served."
                    ),
                )
        except _RefusedError as refused:
            await refused.answer(scope, receive, send)
            return
        answer: Response = StreamingResponse(
            self._beating(self._events(follow)), media_type="text/event-stream; charset=utf-8", headers=_HEADERS
        )
        self._followers += 1
        try:
            await answer(scope, receive, send)
        finally:
            self._followers -= 1

    async def _run(self, do: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._readers, do, *arguments)

    # -- who may follow, and from where

    def _admitted(self, scope: Scope) -> _Follow:
        try:
            return self._admit(scope)
        except FreshlineError as error:
            # A log that cannot be read, or a consumer's file.
            self._warn(str(error))
            raise _RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, error) from error

    def _admit(self, scope: Scope) -> _Follow:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if not self._opens(headers.get("authorization", "")):
            raise _RefusedError(
                HTTPStatus.UNAUTHORIZED,
                ChangesError(
                    "the token is missing or wrong. Send `Authorization: Bearer ..` with the token that the setting "
                    "changes-token names."
                ),
                WWW_Authenticate="Bearer",
            )
        if scope["method"] != "GET":
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, ChangesError("changes are read. Use GET."), Allow="GET")
        table, key, mask = self._table(str(scope["path"]).removeprefix(CHANGES))
        where = str(table.name)
        asked = _parameters(scope["query_string"], where)
        try:
            history = read_history(table.path, where)
        except ReadError as error:
            raise _RefusedError(HTTPStatus.NOT_FOUND, error) from error
        columns = tuple(asked["columns"].split(",")) if "columns" in asked else None
        follow = _Follow(table, key, mask, columns, FollowedPlace(history.newest))
        try:
            follow.columns_at(_version(table, history.newest))
        except ReadError as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, error) from error
        place = self._place(follow, history, asked, headers.get("last-event-id", "").strip())
        return _Follow(table, key, mask, columns, place)

    def _opens(self, given: str) -> bool:
        if self.settings.changes_token is None:
            return False
        try:
            token = resolve_token(self.settings.changes_token, self.settings.root, self.environ)
        except ValueError as error:
            # Who asks must not learn it.
            self._warn(f"tables cannot be followed: changes-token: {error}")
            return False
        return secrets.compare_digest(given.encode("latin-1"), f"Bearer {token}".encode())

    def _table(self, text: str) -> tuple[StoredTable, tuple[str, ...], Mask]:
        graph = self.graph()
        try:
            name: TableName | None = TableName.parse(text)
        except ValueError:
            name = None
        if name is None or name not in graph:
            raise _RefusedError(
                HTTPStatus.NOT_FOUND, ChangesError(f"there is no table or source {text[:200]!r}. Correct its name.")
            )
        if self._masks[0] is not graph:
            self._masks = (graph, find_masks(graph, self.settings.masked_columns))
        spec = graph.spec(name)
        return StoredTable.of(spec, self.settings), spec.unique_key, self._masks[1].get(name, Mask())

    def _place(self, follow: _Follow, history: LogHistory, asked: Mapping[str, str], last: str) -> FollowedPlace:
        """The place behind which a client goes on: where it says it was, else its consumer, else `from`."""
        table, where = follow.table, follow.name
        try:
            name = require_consumer_name(asked["consumer"]) if "consumer" in asked else None
            known = None if name is None else read_consumer(table.warehouse, name)
            if known is not None:
                require_known(table, known, self.clock())
            if last or known is None:
                place = _parsed(last or asked.get("from", NOW), history.newest, where)
            else:
                within = Within(Portion.ROWS, 0, "") if known.rows_first else None
                place = FollowedPlace(known.version, mark_of_table(known.table_id), known.commit or "", within)
            self._require(table, place, history)
            if place.within is not None and place.within.parts > 0:
                columns = follow.columns_at(_version(table, place.version))
                if place.within.mark != mark_of_parts(columns, follow.key_in(columns), self.limits.parts.cut):
                    raise ReadError(
                        f"position {place} is in the middle of version {place.version}, of which other columns were "
                        "sent, or another version of freshline sent them. Ask for the same columns, or begin anew.",
                        where=where,
                    )
            place = self._marked(table, place)
            if name is not None:
                self._keep(table, name, place, known)
            return place
        except ConsumerExpiredError as error:
            raise _RefusedError(HTTPStatus.GONE, error) from error
        except ConsumerError as error:
            raise _RefusedError(HTTPStatus.CONFLICT, error) from error
        except ReadError as error:
            raise _RefusedError(HTTPStatus.GONE, error) from error

    def _require(self, table: StoredTable, place: FollowedPlace, history: LogHistory) -> None:
        """All behind a place can be read. Raises ReadError."""
        where = str(table.name)
        _require_same(table, place)
        if place.version > history.newest:
            raise ReadError(
                f"there is no version {place.version}; the newest is {history.newest}. Begin anew with "
                f"`from={BEGINNING}`.",
                where=where,
            )
        if place.within is not None and place.within.portion is Portion.ROWS:
            history.require_rows(place.version)
        history.require_changes(place.read_up_to, history.newest)

    def _marked(self, table: StoredTable, place: FollowedPlace) -> FollowedPlace:
        if place.table and place.commit:
            return place
        commit = commit_digest(table.path, place.version) or ""
        return FollowedPlace(place.version, mark_of_table(table_id(table.path)), commit, place.within)

    def _keep(self, table: StoredTable, name: str, place: FollowedPlace, known: Consumer | None) -> None:
        """Keep what comes behind a place for a consumer: what is before it was handled."""
        rows_first = place.within is not None and place.within.portion is Portion.ROWS
        if known is None:
            register_on(table, name, place.read_up_to, rows_first, DEFAULT_EXPIRY_DAYS * 86_400, self.clock())
            return
        keep_consumer(
            table.warehouse,
            name=name,
            table=str(table.name),
            table_id=table_id(table.path),
            version=place.read_up_to,
            commit=commit_digest(table.path, place.read_up_to),
            expiry_seconds=known.expiry_seconds,
            now=self.clock(),
            rows_first=rows_first,
        )

    # -- the events

    async def _beating(self, events: AsyncGenerator[bytes]) -> AsyncIterator[bytes]:
        """The events, and a comment wherever none comes for a while: also while a large version is being read."""
        following: asyncio.Task[bytes] | None = None
        try:
            while True:
                following = asyncio.ensure_future(_next_of(events))
                while not (await asyncio.wait({following}, timeout=self.limits.heartbeat))[0]:
                    yield b": waiting\n\n"
                try:
                    event = following.result()
                except StopAsyncIteration:
                    return
                yield event
        finally:
            if following is not None and not following.done():
                # It ends where it waits, and what it has open is closed there.
                following.cancel()
            else:
                await events.aclose()

    async def _events(self, follow: _Follow) -> AsyncGenerator[bytes]:
        """The answer: events until the client goes, the engine ends, or the connection has lasted long enough."""
        yield f"retry: {_RETRY_MILLISECONDS}\n\n".encode()
        try:
            async with self._watching(follow.table) as watch:
                place = follow.place
                if place.within is not None and place.within.portion is Portion.ROWS:
                    async for sent in self._rows(follow, watch, place):
                        yield sent
                    place = FollowedPlace(place.version, place.table, place.commit)
                async for sent in self._followed(follow, watch, place):
                    yield sent
        except ReadError as error:
            LOG.info("%s: a client cannot follow it any more: %s", follow.name, error)
            yield _event("gone", {"error": error.as_json()})
        except FreshlineError as error:
            # It may pass. The client comes back with its position, and learns then whether it has.
            self._warn(f"{follow.name} cannot be followed now: {error}")

    async def _followed(self, follow: _Follow, watch: _Watch, place: FollowedPlace) -> AsyncIterator[bytes]:
        """The changes behind a place, as versions come."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.limits.connection
        generation = watch.generation
        # After the watch was entered: from here on it notices what becomes of the table.
        await self._run(_require_same, follow.table, place)
        while not self._closing.is_set() and loop.time() < ends:
            newest = await watch.other_than(place.read_up_to, _LOOK_SECONDS)
            if watch.generation != generation or (newest is not None and newest < place.read_up_to):
                raise ReadError(
                    f"version {place.version} was read, and the table has it no longer: it was made anew, or its log "
                    "lost its newest commits. Begin anew.",
                    where=follow.name,
                )
            if newest is None:
                continue
            has_sent = True
            for number in range(place.read_up_to + 1, newest + 1):
                version = await watch.version(number)
                has_sent = False
                async for sent in self._changes_of(follow, version, place):
                    has_sent = True
                    yield sent
                place = version.place
                if self._closing.is_set() or loop.time() >= ends:
                    break
            if not has_sent:
                # The newest versions changed nothing that is sent. They need not be read again.
                yield f"id: {place}\n\n".encode()

    async def _rows(self, follow: _Follow, watch: _Watch, place: FollowedPlace) -> AsyncIterator[bytes]:
        """The rows of a version: `reset`, and then inserts."""
        assert place.within is not None
        if place.within.parts == 0:
            yield _event("reset", {"table": follow.name, "version": place.version})
        version = await watch.version(place.version)
        columns = follow.columns_at(version)
        parts = _Reader(row_parts(follow.table.path, follow.name, place.version, columns, self.limits.parts))
        mark = mark_of_parts(columns, follow.key_in(columns), self.limits.parts.cut)
        try:
            async for sent in self._sent(follow, parts, version.place, Portion.ROWS, mark, place.within.parts):
                yield sent
        finally:
            self._readers.submit(parts.close)

    async def _changes_of(self, follow: _Follow, version: _Version, place: FollowedPlace) -> AsyncIterator[bytes]:
        """The events of a version, without those parts that the client has."""
        columns = follow.columns_at(version)
        key = follow.key_in(columns)
        number, mark = version.place.version, mark_of_parts(columns, key, self.limits.parts.cut)
        had = place.within.parts if place.within is not None and place.version == number else 0
        asked = (str(version.place), mark)
        found = _Reader(
            change_parts(follow.table.path, follow.name, number, columns, key, self._folder, self.limits.parts)
        )
        try:
            # One reads, and the others wait for it: they may need nothing but its event.
            lock = self._locks.setdefault(asked, asyncio.Lock())
            try:
                async with lock:
                    event = self._cache.get(asked)
                    first = None if event is not None else await self._run(found.step)
                    if event is None and (first is None or first.last):
                        event = b""
                        if first is not None:
                            event = await self._run(_rendered, follow.name, first, version.place, 0)
                        self._cache.put(asked, event)
            finally:
                self._locks.pop(asked, None)
            if event is None:
                async for sent in self._sent(follow, found, version.place, Portion.CHANGES, mark, had, first):
                    yield sent
            elif event and not had:
                yield event
        finally:
            self._readers.submit(found.close)

    async def _sent(
        self,
        follow: _Follow,
        parts: _Reader,
        whole: FollowedPlace,
        portion: Portion,
        mark: str,
        had: int,
        first: Part | None = None,
    ) -> AsyncIterator[bytes]:
        """The parts behind those that the client had, as events. `whole` is the place behind the last one."""
        part = first or await self._run(parts.step)
        number = 0
        while part is not None:
            number += 1
            place = whole
            if not part.last:
                place = FollowedPlace(whole.version, whole.table, whole.commit, Within(portion, number, mark))
            if number > had:
                yield await self._run(_rendered, follow.name, part, place, number - 1)
            part = None if part.last else await self._run(parts.step)

    @asynccontextmanager
    async def _watching(self, table: StoredTable) -> AsyncIterator[_Watch]:
        """The versions of a table, which are looked for once for all that follow it."""
        watch = self._watches.get(table.path)
        if watch is None:
            watch = self._watches[table.path] = _Watch(table, self._run, self.limits.poll)
        watch.enter()
        try:
            yield watch
        finally:
            if watch.leave():
                del self._watches[table.path]

    @property
    def _folder(self) -> Path:
        return self.settings.state / "changes"

    def _warn(self, sentence: str) -> None:
        """Log a sentence, once a minute while it is true."""
        now = time.monotonic()
        if now - self._warned.get(sentence, -_QUIET_SECONDS) >= _QUIET_SECONDS:
            self._warned[sentence] = now
            LOG.warning("%s", sentence)


class _Watch:
    """The versions of one table, looked for while somebody follows it.

    `generation` grows when the table is another one, or has other commits, than those that were seen.
    """

    def __init__(self, table: StoredTable, run: Callable[..., Awaitable[Any]], seconds: float) -> None:
        self.generation = 0
        self._table, self._run, self._seconds = table, run, seconds
        self._newest: _Version | None = None
        self._error: FreshlineError | None = None
        self._versions: OrderedDict[int, _Version] = OrderedDict()
        self._changed = asyncio.Event()
        self._followers = 0
        self._task: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self._followers += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._follow())

    def leave(self) -> bool:
        """Whether nobody follows the table any more."""
        self._followers -= 1
        if self._followers == 0 and self._task is not None:
            self._task.cancel()
        return self._followers == 0

    async def other_than(self, version: int, seconds: float) -> int | None:
        """The newest version as soon as it is another one, None where it is not within so long.

        Raises ReadError where there is no table any more, and SourceError where its log cannot be read.
        """
        if self._error is None and (self._newest is None or self._newest.place.version == version):
            try:
                await asyncio.wait_for(self._changed.wait(), seconds)
            except TimeoutError:
                if self._task is not None and self._task.done():
                    # Nobody would be told of a new version any more.
                    self._task.result()
                return None
        if self._error is not None:
            raise self._error
        assert self._newest is not None
        newest = self._newest.place.version
        return None if newest == version else newest

    async def version(self, number: int) -> _Version:
        """A version, which is read once for all. Raises ReadError where it is gone."""
        found = self._versions.get(number)
        if found is None:
            generation = self.generation
            found = await self._run(_version, self._table, number)
            if generation == self.generation:
                self._remember(found)
        return found

    def _remember(self, version: _Version) -> None:
        self._versions[version.place.version] = version
        if len(self._versions) > _REMEMBERED:
            self._versions.popitem(last=False)

    async def _follow(self) -> None:
        while True:
            try:
                newest, is_other = await self._run(_look, self._table, self._newest)
                error: FreshlineError | None = None
            except FreshlineError as failure:
                newest, is_other, error = self._newest, False, failure
            if is_other:
                self.generation += 1
                self._versions.clear()
            if newest is not self._newest or str(error) != str(self._error):
                self._newest, self._error = newest, error
                if newest is not None:
                    self._remember(newest)
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()
            await asyncio.sleep(self._seconds)


class _Reader:
    """Parts, read one after the other in whichever thread, and closed when none of them reads."""

    def __init__(self, parts: Iterator[Part]) -> None:
        self._parts: Iterator[Part] | None = parts
        self._lock = threading.Lock()

    def step(self) -> Part | None:
        """The next part, None behind the last one."""
        with self._lock:
            return None if self._parts is None else next(self._parts, None)

    def close(self) -> None:
        """Read no more. Files of a version that was large are removed."""
        with self._lock:
            # A generator that nobody has ends, and leaves its blocks.
            self._parts = None


class _Cache:
    """Events of versions, the last used ones, up to so many bytes."""

    def __init__(self) -> None:
        self._events: OrderedDict[Any, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, asked: Any) -> bytes | None:
        found = self._events.get(asked)
        if found is not None:
            self._events.move_to_end(asked)
        return found

    def put(self, asked: Any, event: bytes) -> None:
        self._events[asked] = event
        self._bytes += len(event) + 200
        while self._bytes > _CACHED_BYTES:
            _, dropped = self._events.popitem(last=False)
            self._bytes -= len(dropped) + 200


async def _next_of(events: AsyncGenerator[bytes]) -> bytes:
    return await anext(events)


def _parameters(query: bytes, where: str) -> dict[str, str]:
    given = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
    found = dict(given)
    unknown = [name for name in found if name not in _PARAMETERS]
    if unknown or len(found) < len(given):
        raise _RefusedError(
            HTTPStatus.BAD_REQUEST,
            ChangesError(
                f"the address has {unknown[0][:80]!r}, which is no parameter."
                if unknown
                else "a parameter is given twice.",
                where=where,
            ),
        )
    return found


def _parsed(text: str, newest: int, where: str) -> FollowedPlace:
    if text == NOW:
        return FollowedPlace(newest)
    if text == BEGINNING:
        return FollowedPlace(newest, within=Within(Portion.ROWS, 0, ""))
    try:
        return FollowedPlace.parse(text)
    except ValueError as error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, ChangesError(str(error), where=where)) from error


def _require_same(table: StoredTable, place: FollowedPlace) -> None:
    """The version of a place is the one that was read, of the same table. Raises ReadError."""
    where = str(table.name)
    if place.table and place.table != mark_of_table(table_id(table.path)):
        raise ReadError(
            f"position {place} is one of another table, which had this name. Begin anew with `from={BEGINNING}`.",
            where=where,
        )
    there = commit_digest(table.path, place.version) if place.commit else None
    if there is not None and there != place.commit:
        raise ReadError(
            f"position {place} is one of another commit: the log of the table had lost its newest commits. Begin anew "
            f"with `from={BEGINNING}`.",
            where=where,
        )


def _look(table: StoredTable, known: _Version | None) -> tuple[_Version, bool]:
    """The newest version, `known` itself where it still is, and whether the table has other commits than it had."""
    newest = newest_version(table.path)
    if newest is None:
        raise ReadError("the table is gone.", where=str(table.name))
    if known is None:
        return _version(table, newest), False
    # Each time: a table that was made anew may have as many versions.
    if newest == known.place.version and _facts(table, newest) == known.facts:
        return known, False
    there = commit_digest(table.path, known.place.version)
    is_other = newest < known.place.version or (there is not None and there != known.place.commit)
    found = _version(table, newest)
    return found, is_other or found.place.table != known.place.table


def _version(table: StoredTable, number: int) -> _Version:
    """A version as it is now. Raises ReadError where its commit is gone."""
    # Before the commit is read: where it is another one a moment later, the facts show that.
    facts = _facts(table, number)
    commit = commit_digest(table.path, number)
    if commit is None:
        raise ReadError(f"the commit of version {number} is no longer in the log. Begin anew.", where=str(table.name))
    opened = open_table(table.path, number)
    place = FollowedPlace(number, mark_of_table(str(opened.metadata().id)), commit)
    return _Version(place, tuple(own_columns(opened)), facts)


def _facts(table: StoredTable, number: int) -> tuple[int, int, int] | None:
    """The facts of the file of a commit in the file system, by which another one of its number is seen."""
    try:
        found = commit_file(table.path, number).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _rendered(table: str, part: Part, place: FollowedPlace, number: int) -> bytes:
    """A part as an event. Raises ReadError for a value that JSON cannot have."""
    before, after = rows_as_json(part.before, table), rows_as_json(part.after, table)
    said = {
        "table": table,
        "version": place.version,
        "part": number,
        "last": part.last,
        "inserts": rows_as_json(part.inserts, table),
        "updates": [{"before": old, "after": new} for old, new in zip(before, after, strict=True)],
        "deletes": rows_as_json(part.deletes, table),
    }
    return _event("changes", said, place)


def _event(name: str, said: Mapping[str, Any], place: FollowedPlace | None = None) -> bytes:
    identity = "" if place is None else f"id: {place}\n"
    # JSON has no line ends of its own, so the data is one line.
    return f"event: {name}\n{identity}data: {json.dumps(said, separators=(',', ':'))}\n\n".encode()
