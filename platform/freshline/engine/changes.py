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
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from freshline.declare.graph import Graph
from freshline.engine.follow_request import Follower, FollowRefusedError, FollowRequests
from freshline.engine.followed_table import FollowedVersion, TableWatch, require_same
from freshline.engine.reading import StoredTable, utc_now
from freshline.errors import ChangesBusyError, FreshlineError, ReadError
from freshline.plan.place import FollowedPlace, Portion, Within, mark_of_parts
from freshline.reads.json_rows import rows_as_json
from freshline.reads.parts import Limits, Part, change_parts, row_parts
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)

_READERS = 4
_LOOK_SECONDS = 0.5
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
        self._watches: dict[Path, TableWatch] = {}
        self._cache = _Cache()
        self._locks: dict[Any, asyncio.Lock] = {}
        self._warned: dict[str, float] = {}
        self._requests = FollowRequests(
            self.graph, self.settings, self.environ, self.limits.parts, self.clock, self._warn
        )
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
                raise FollowRefusedError(
                    HTTPStatus.TOO_MANY_REQUESTS,
                    ChangesBusyError(
                        f"{self._followers} clients follow tables of this engine, and more are not served."
                    ),
                )
        except FollowRefusedError as refused:
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

    def _admitted(self, scope: Scope) -> Follower:
        try:
            return self._requests.admit(scope)
        except FreshlineError as error:
            # A log that cannot be read, or a consumer's file.
            self._warn(str(error))
            raise FollowRefusedError(HTTPStatus.SERVICE_UNAVAILABLE, error) from error

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

    async def _events(self, follow: Follower) -> AsyncGenerator[bytes]:
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

    async def _followed(self, follow: Follower, watch: TableWatch, place: FollowedPlace) -> AsyncIterator[bytes]:
        """The changes behind a place, as versions come."""
        loop = asyncio.get_running_loop()
        ends = loop.time() + self.limits.connection
        generation = watch.generation
        # After the watch was entered: from here on it notices what becomes of the table.
        await self._run(require_same, follow.table, place)
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

    async def _rows(self, follow: Follower, watch: TableWatch, place: FollowedPlace) -> AsyncIterator[bytes]:
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

    async def _changes_of(
        self, follow: Follower, version: FollowedVersion, place: FollowedPlace
    ) -> AsyncIterator[bytes]:
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
        follow: Follower,
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
    async def _watching(self, table: StoredTable) -> AsyncIterator[TableWatch]:
        """The versions of a table, which are looked for once for all that follow it."""
        watch = self._watches.get(table.path)
        if watch is None:
            watch = self._watches[table.path] = TableWatch(table, self._run, self.limits.poll)
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
