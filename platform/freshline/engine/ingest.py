"""`POST /ingest/<source>`: events of other programs, answered when they are durable on disk.

Each source has a token of its own, which opens nothing else. Nothing here needs Spark or the control store: a post is a
file in the folder of its source, and is read when the source is refreshed. So it is taken while Spark starts, while
files have errors, and while tables are suspended.

A client without a token of a source learns nothing, not even which sources there are.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from freshline.declare.graph import Graph
from freshline.engine.server import PREFIX
from freshline.errors import IngestBusyError, IngestError
from freshline.sources.http.body import BodyError, LargeBodyError, lines_of_json, unpack
from freshline.sources.http.connector import MEDIA_TYPES, ONE_VALUE, Http
from freshline.sources.http.landing import Landing, ReusedKeyError
from freshline.values.names import TableName
from freshline.values.secret import resolve_token
from freshline.values.spec import SourceSpec

LOG = logging.getLogger(__name__)

# Visible signs and blanks, as headers can have them.
_KEY = re.compile(r"[!-~](?:[ -~]{0,253}[!-~])?")
_CHARSETS = ("utf-8", "us-ascii")
_WRITERS = 4
_QUIET_SECONDS = 60.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class PostLimits:
    """`body` is the most bytes of a body, packed and unpacked. `posts` are in memory at once, `of_source` of one.

    Together they bound the memory: bodies of 256 MB, and what four of them take while they are unpacked and cut.
    """

    body: int = 8 << 20
    posts: int = 32
    of_source: int = 16


class _RefusedError(Exception):
    """A post that is not taken, with the status and the headers of the answer."""

    def __init__(self, status: HTTPStatus, sentence: str, where: str | None = None, **headers: str) -> None:
        busy = status in (
            HTTPStatus.TOO_MANY_REQUESTS,
            HTTPStatus.SERVICE_UNAVAILABLE,
            HTTPStatus.INSUFFICIENT_STORAGE,
        )
        self.error = (IngestBusyError if busy else IngestError)(sentence, where=where)
        self.answer = JSONResponse(
            {"error": self.error.as_json()},
            status,
            {name.replace("_", "-"): value for name, value in headers.items()} | ({"Retry-After": "1"} if busy else {}),
        )
        super().__init__(sentence)


class _GoneError(Exception):
    """The client has gone before its body was here."""


@dataclass(frozen=True)
class _Post:
    """The facts of a post's body that its headers give."""

    source: SourceSpec
    connection: Http
    length: int
    media_type: str
    is_packed: bool
    key: str | None


@dataclass
class Ingest:
    """The door for posts. `graph` gives the declarations in force, `root` and `environ` what references stand for."""

    graph: Callable[[], Graph]
    root: Path
    environ: Mapping[str, str]
    landing: Landing = field(default_factory=Landing)
    limits: PostLimits = field(default_factory=PostLimits)

    def __post_init__(self) -> None:
        self._writers = ThreadPoolExecutor(_WRITERS, "ingest")
        self._taken: Counter[TableName] = Counter()
        self._warned: dict[str, float] = {}
        self._sources: tuple[Graph | None, Mapping[TableName, tuple[SourceSpec, Http]]] = (None, {})

    @property
    def taken(self) -> int:
        """The number of posts that are being taken now."""
        return self._taken.total()

    def close(self) -> None:
        """Take no more posts; those that are being written are left to end."""
        self._writers.shutdown(wait=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except _RefusedError as refused:
            self._report(refused)
            answer = refused.answer
        except _GoneError:
            return
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> JSONResponse:
        headers = _Headers(scope["headers"])
        if headers.all("origin"):
            raise _RefusedError(
                HTTPStatus.FORBIDDEN, "events are posted by programs, and not by web pages, which cannot keep a token."
            )
        # References may be files, and a disk may hang.
        source, connection = await run_in_threadpool(
            self._source, str(scope["path"]).removeprefix(PREFIX), headers.one("authorization").encode("latin-1")
        )
        if scope["method"] != "POST":
            raise _RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, "events are posted. Use POST.", Allow="POST")
        post = self._post(source, connection, headers)
        with self._place(source.name):
            body = await _body(receive, post)
            loop = asyncio.get_running_loop()
            size, repeated = await loop.run_in_executor(self._writers, self._store, post, body)
        return JSONResponse({"bytes": size, "repeated": repeated}, HTTPStatus.ACCEPTED)

    # -- who may post

    def _source(self, text: str, given: bytes) -> tuple[SourceSpec, Http]:
        """The source of a name, for those who bear its token."""
        sources = self._posted_to()
        try:
            found = sources.get(TableName.parse(text))
        except ValueError:
            found = None
        if found is not None and self._opens(*found, given):
            return found
        if found is None and any(self._opens(*each, given) for each in sources.values()):
            raise _RefusedError(
                HTTPStatus.NOT_FOUND, "there is no such source here that is posted to. Correct its name."
            )
        raise _RefusedError(
            HTTPStatus.UNAUTHORIZED,
            "the token of the source is missing or wrong. Send `Authorization: Bearer ..`.",
            WWW_Authenticate="Bearer",
        )

    def _posted_to(self) -> Mapping[TableName, tuple[SourceSpec, Http]]:
        """The sources of HTTP of the graph in force, which is searched once."""
        graph, sources = self.graph(), self._sources
        if sources[0] is not graph:
            found = {each.name: (each, each.connection) for each in graph.sources if isinstance(each.connection, Http)}
            self._sources = sources = (graph, found)
        return sources[1]

    def _opens(self, source: SourceSpec, connection: Http, given: bytes) -> bool:
        try:
            token = resolve_token(connection.token, self.root, self.environ)
        except ValueError as error:
            # Refreshes of the source say so too. Who posts must not learn it.
            self._warn(f"{source.name} cannot be posted to: option 'token': {error}")
            return False
        return secrets.compare_digest(given, f"Bearer {token}".encode())

    # -- what a post may be

    def _post(self, source: SourceSpec, connection: Http, headers: _Headers) -> _Post:
        where = str(source.name)
        length = headers.one("content-length")
        if headers.all("transfer-encoding") or not re.fullmatch("[0-9]{1,18}", length):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "a post says its length. Send Content-Length.", where)
        if int(length) > self.limits.body:
            raise self._too_large(where)
        encoding = headers.one("content-encoding").strip().lower()
        if encoding not in ("", "identity", "gzip"):
            raise _RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                "Content-Encoding is gzip or none.",
                where,
                Accept_Encoding="gzip",
            )
        key = headers.one("idempotency-key") if headers.all("idempotency-key") else None
        if key is not None and not _KEY.fullmatch(key):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "Idempotency-Key has 1 to 255 visible signs of ASCII.", where)
        media_type = _media_type(headers.one("content-type"), source)
        return _Post(source, connection, int(length), media_type, encoding == "gzip", key)

    def _too_large(self, where: str) -> _RefusedError:
        return _RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"a post has at most {self.limits.body} bytes, packed and unpacked. Send several.",
            where,
        )

    @contextmanager
    def _place(self, source: TableName) -> Iterator[None]:
        """Take one of the places for posts, which bound the memory."""
        if self._taken[source] >= self.limits.of_source or self._taken.total() >= self.limits.posts:
            raise _RefusedError(
                HTTPStatus.TOO_MANY_REQUESTS, "too many posts arrive at once. Send it again.", str(source)
            )
        self._taken[source] += 1
        try:
            yield
        finally:
            self._taken[source] -= 1

    # -- in a thread of the writers

    def _store(self, post: _Post, body: bytes) -> tuple[int, bool]:
        """Put the events of a body on disk: how many bytes there are, and whether they were there already."""
        where = str(post.source.name)
        try:
            data = unpack(body, self.limits.body) if post.is_packed else body
            data = lines_of_json(data) if post.media_type == ONE_VALUE else data
        except LargeBodyError:
            raise self._too_large(where) from None
        except BodyError as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, str(error), where) from None
        if not data:
            return 0, False
        assert post.source.format is not None
        folder = post.connection.folder_of(post.source.name)
        try:
            repeated = self.landing.land(folder, data, f".{post.source.format.name}", post.key)
        except ReusedKeyError:
            raise _RefusedError(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                "another post had this Idempotency-Key, and another body. Give each post a key of its own.",
                where,
            ) from None
        except FileNotFoundError:
            raise _RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the folder of the posts is not there. Create it, or mount its disk.",
                where,
            ) from None
        except OSError as error:
            raise _RefusedError(
                HTTPStatus.INSUFFICIENT_STORAGE if error.errno in _FULL else HTTPStatus.SERVICE_UNAVAILABLE,
                f"the post cannot be stored: {error.strerror or error}. It may be sent again.",
                where,
            ) from None
        return len(data), repeated

    # -- for whoever runs the engine

    def _report(self, refused: _RefusedError) -> None:
        if refused.answer.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR:
            self._warn(str(refused.error))

    def _warn(self, sentence: str) -> None:
        """Log a sentence, once a minute while it is true."""
        now = time.monotonic()
        if now - self._warned.get(sentence, -_QUIET_SECONDS) >= _QUIET_SECONDS:
            self._warned[sentence] = now
            LOG.warning("%s", sentence)


class _Headers:
    """The headers of a request by their names in small letters."""

    def __init__(self, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._headers = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]

    def all(self, name: str) -> list[str]:
        return [value for each, value in self._headers if each == name]

    def one(self, name: str) -> str:
        """The value of a header, empty where it is not sent. Two values are refused: nobody knows which is meant."""
        found = self.all(name)
        if len(found) > 1:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, f"the header {name} is sent twice. Send it once.")
        return found[0] if found else ""


def _media_type(content_type: str, source: SourceSpec) -> str:
    """The type of a body that the format of its source takes; a charset must be one that UTF-8 includes."""
    assert source.format is not None
    accepted = MEDIA_TYPES[source.format.name]
    media_type, *parameters = [part.strip() for part in content_type.split(";")]
    named = [part.partition("=") for part in parameters if part]
    if media_type.lower() not in accepted or any(
        name.strip().lower() != "charset" or value.strip().strip('"').lower() not in _CHARSETS
        for name, _, value in named
    ):
        raise _RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"Content-Type of '{source.format.name}' is {' or '.join(accepted)}, in UTF-8.",
            str(source.name),
            Accept=", ".join(accepted),
        )
    return media_type.lower()


async def _body(receive: Receive, post: _Post) -> bytes:
    """All bytes of a body. Raises _GoneError where the client goes before its end."""
    found = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise _GoneError
        found += message.get("body", b"")
        is_whole = not message.get("more_body", False)
        # The server limits bodies to their length, but stored rows must not rest on that.
        if len(found) > post.length or (is_whole and len(found) < post.length):
            raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body has another length than Content-Length says.")
        if is_whole:
            return bytes(found)
