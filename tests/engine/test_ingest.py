"""Posts of events: who may post, what is refused, and that each that is answered is on disk once."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from freshline.engine.ingest import PostLimits
from freshline.errors import IngestBusyError, IngestError, error_from_json
from freshline.sources.http.landing import Landing
from tests.engine.posting import (
    CLICK_TOKEN,
    ENGINE_TOKEN,
    NDJSON,
    ORDER_TOKEN,
    SOURCES,
    Answer,
    Door,
    declared,
    open_door,
)

pytestmark = pytest.mark.security

POINTS = [("post-written", False), ("post-renamed", True), ("post-stored", True)]
EVENTS = b'{"id": 1}\n{"id": 2}\n'
CLICK_POST = "POST /ingest/click"
CLICK_BEARER = f"Authorization: Bearer {CLICK_TOKEN}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with open_door(tmp_path_factory.mktemp("door")) as door:
        yield door


@pytest.fixture
def door(shared: Door) -> Door:
    """The door of this module, without posts of other tests."""
    for file in (shared.root / "posts").rglob("*"):
        if file.is_file():
            file.unlink()
    return shared


def is_refused(door: Door, status: int, answer: Answer) -> str:
    """The sentence of a refusal that left nothing on disk; it names no token."""
    assert answer[0] == status, answer
    error = error_from_json(answer[1]["error"])
    assert isinstance(error, IngestError)
    assert isinstance(error, IngestBusyError) == error.retry_helps == (status in (429, 503, 507))
    assert not [file for file in (door.root / "posts").rglob("*") if file.is_file()]
    for secret in (CLICK_TOKEN, ORDER_TOKEN, ENGINE_TOKEN):
        assert secret not in json.dumps(answer[1])
    return str(error)


# -- what is taken


def test_a_post_is_answered_when_it_is_on_disk_as_it_was_sent(door):
    assert door.post(EVENTS)[:2] == (202, {"bytes": len(EVENTS), "repeated": False})
    assert door.stored() == [EVENTS]
    assert door.post(EVENTS)[0] == 202
    assert door.stored() == [EVENTS, EVENTS]


def test_records_are_not_judged(door):
    broken = b'{"id": \n\xff\xfe\nx\n\n{"id": 1}'
    assert door.post(broken)[0] == 202
    assert door.stored() == [broken]


@pytest.mark.parametrize(
    "media_type", ["application/x-ndjson", "application/jsonl", "Application/X-NDJSON; Charset=UTF-8"]
)
def test_lines_have_these_types(door, media_type):
    assert door.post(EVENTS, Content_Type=media_type)[0] == 202
    assert door.stored() == [EVENTS]


def test_one_value_or_a_list_of_them_becomes_lines(door):
    assert door.post(b'[{"id": 1},\n {"id": 2}]', Content_Type="application/json")[1]["bytes"] == len(EVENTS)
    assert door.post(b'{\n"id": 1}', Content_Type='application/json; charset="utf-8"')[0] == 202
    assert door.stored() == [EVENTS, b'{ "id": 1}\n']


def test_other_formats_have_their_own_types(door):
    assert door.post(b"id\n1\n", "shop.order", ORDER_TOKEN, Content_Type="text/csv")[0] == 202
    (door.root / "line").write_text("a-token-with-line-end\r\n")
    assert door.post(b"a\nb", "line", "a-token-with-line-end", Content_Type="text/plain; charset=us-ascii")[0] == 202
    assert (door.stored("shop.order"), door.stored("line")) == ([b"id\n1\n"], [b"a\nb"])
    assert {file.suffix for file in (door.root / "posts").rglob("*-*")} == {".csv", ".text"}


@pytest.mark.parametrize("name", ["CLICK", "Click"])
def test_names_are_equal_in_any_case_and_have_one_folder(door, name):
    assert door.post(EVENTS, name)[0] == 202
    assert door.stored("click") == [EVENTS]


def test_a_post_without_events_stores_nothing(door):
    assert door.post(b"", Idempotency_Key="k")[:2] == (202, {"bytes": 0, "repeated": False})
    assert door.post(b"[]", Content_Type="application/json")[:2] == (202, {"bytes": 0, "repeated": False})
    assert door.stored() == []
    # Such a post has used no key up.
    assert door.post(EVENTS, Idempotency_Key="k")[1] == {"bytes": len(EVENTS), "repeated": False}


def test_blank_lines_are_left_to_the_format(door):
    """In a text, blank lines are records."""
    (door.root / "line").write_text("the-token-of-the-lines")
    assert door.post(b"\n\n", "line", "the-token-of-the-lines", Content_Type="text/plain")[0] == 202
    assert door.stored("line") == [b"\n\n"]


def test_packed_bodies_are_unpacked(door):
    packed = gzip.compress(EVENTS)
    assert door.post(packed, Content_Encoding="gzip", Idempotency_Key="k")[1]["bytes"] == len(EVENTS)
    # The same events, packed in another way, or not: the post is the same.
    assert door.post(EVENTS, Content_Encoding="identity", Idempotency_Key="k")[1]["repeated"] is True
    assert door.stored() == [EVENTS]


def test_a_key_stores_a_post_once(door):
    assert door.post(EVENTS, Idempotency_Key="order-7")[1] == {"bytes": len(EVENTS), "repeated": False}
    for _ in range(3):
        assert door.post(EVENTS, Idempotency_Key="order-7")[:2] == (202, {"bytes": len(EVENTS), "repeated": True})
    assert door.post(EVENTS, Idempotency_Key="order-8")[1]["repeated"] is False
    status, answer, _ = door.post(b'{"id": 3}\n', Idempotency_Key="order-7")

    assert (status, answer["error"]["code"], answer["error"]["where"]) == (422, "INGEST", "click")
    assert door.stored() == [EVENTS, EVENTS]


def test_a_key_is_of_one_source(door):
    assert door.post(EVENTS, Idempotency_Key="k")[1]["repeated"] is False
    csv = door.post(EVENTS, "shop.order", ORDER_TOKEN, Content_Type="text/csv", Idempotency_Key="k")
    assert csv[1]["repeated"] is False


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a\tb", "ö", "a\x7f"])
def test_a_key_that_is_none_is_refused(door, key):
    assert "Idempotency-Key" in is_refused(door, 400, door.post(EVENTS, Idempotency_Key=key.encode().decode("latin-1")))


@pytest.mark.seconds
def test_many_clients_at_once_are_all_stored_once(door):
    bodies = [b'{"id": %d}\n' % number for number in range(120)]

    def send(body: bytes) -> None:
        # As a client does that lost its answer, and is asked to come again.
        for _ in range(2):
            while (answer := door.post(body, Idempotency_Key=body.decode().strip()))[0] == 429:
                assert answer[2]["retry-after"] == "1"
            assert answer[0] == 202

    with ThreadPoolExecutor(24) as threads:
        list(threads.map(send, bodies))

    assert sorted(door.stored()) == sorted(bodies)


# -- who may post


@pytest.mark.parametrize(
    "authorization",
    [
        *(None, "", "Bearer", "Bearer ", CLICK_TOKEN, f"Basic {CLICK_TOKEN}", f"bearer {CLICK_TOKEN}"),
        *(f"Bearer {CLICK_TOKEN}x", f"Bearer {CLICK_TOKEN[:-1]}", f"Bearer {CLICK_TOKEN}".replace("e", "\u00e9")),
        *(f"Bearer {ENGINE_TOKEN}", f"Bearer {ORDER_TOKEN}", "Bearer ${env:CLICK}"),
    ],
)
@pytest.mark.parametrize("method", ["POST", "GET", "PUT"])
def test_who_has_not_the_token_of_the_source_is_refused(door, method, authorization):
    answer = door.post(EVENTS, token=None, method=method, Authorization=authorization)

    is_refused(door, 401, answer)
    assert answer[2]["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "name", ["", "clicks", "landed", "shop", "shop.order.x", "..%2Fclick", "click/", "click%00", "%F0"]
)
def test_without_a_token_nobody_learns_which_sources_there_are(door, name):
    """The answer is that of a wrong token; whoever posts to another source learns that the name is wrong."""
    for token in (None, "wrong", ENGINE_TOKEN):
        assert door.post(EVENTS, name, token)[:2] == door.post(EVENTS, "click", token)[:2]
    sentence = is_refused(door, 404, door.post(EVENTS, name, CLICK_TOKEN))
    assert "click" not in sentence
    assert "order" not in sentence


def test_the_token_of_a_source_opens_nothing_else(door):
    for path in ("/health", "/status", "/requests", "/stop", "/ingest", "//ingest/click", "/ingest/../health"):
        status = door.status_of(f"POST {path}", CLICK_BEARER, "Content-Length: 0", "Connection: close")

        assert status == (404 if path.startswith("/ingest/") else 401), path


def test_an_engine_that_is_starting_serves_posts_alone(door):
    assert door.post(EVENTS)[0] == 202
    assert door.status_of("GET /health", f"Authorization: Bearer {ENGINE_TOKEN}") == 503


@pytest.mark.parametrize(
    "host", ["example.com", "127.0.0.1", "localhost:1", "127.0.0.1.example.com:{port}", "0.0.0.0:{port}"]
)
def test_another_host_is_refused(door, host):
    assert door.post(EVENTS, Host=host.format(port=door.port))[0] == 403
    assert door.stored() == []


@pytest.mark.parametrize("origin", ["https://example.com", "null", "", "http://127.0.0.1:{port}"])
@pytest.mark.parametrize("method", ["POST", "OPTIONS"])
def test_a_page_cannot_post(door, origin, method):
    answer = door.post(EVENTS, method=method, Origin=origin.format(port=door.port))

    is_refused(door, 403, answer)
    assert not [name for name in answer[2] if name.startswith("access-control")]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
def test_another_method_is_refused(door, method):
    status, _, headers = door.post(EVENTS, method=method)

    assert (status, headers["allow"]) == (405, "POST")
    assert door.stored() == []


def test_a_token_that_is_changed_applies_at_once(door):
    file = door.root / "line"
    first, second = "the-first-token-of-lines", "the-second-token-of-lines"

    def post(token: str) -> int:
        return int(door.post(b"a", "line", token, Content_Type="text/plain")[0])

    file.write_text(first)
    assert post(first) == 202
    file.write_text(second)
    # Whoever has the old one posts before anybody bears the new one.
    assert [post(first), post(second), post(first)] == [401, 202, 401]
    file.unlink()
    assert [post(second), post(first)] == [401, 401]
    file.write_text(first)
    assert [post(second), post(first)] == [401, 202]


@pytest.mark.parametrize("held", [None, "", "short", "with a blank in the middle", "${env:CLICK}-and-more-of-it"])
def test_a_source_without_a_real_token_is_closed_and_the_log_says_why(door, held, caplog):
    file = door.root / "line"
    file.unlink(missing_ok=True)
    if held is not None:
        file.write_text(held)
    with caplog.at_level(logging.WARNING, "freshline.engine.ingest"):
        for token in ("", "None", held or "x"):
            is_refused(door, 401, door.post(b"a", "line", token, Content_Type="text/plain"))

    said = [record.message for record in caplog.records]
    assert len(said) <= 1
    assert all("line cannot be posted to: option 'token'" in sentence for sentence in said)
    assert not [sentence for sentence in said if held and held in sentence]


# -- what is refused


@pytest.mark.parametrize(
    "content_type",
    [
        *(None, "", "text/plain", "text/csv", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
        *("application/json; charset=utf-16", "application/json; charset=latin1", "application/json; x=1", "json"),
        *("application/json, application/x-ndjson", "application/octet-stream"),
    ],
)
def test_another_type_is_refused(door, content_type):
    answer = door.post(EVENTS, Content_Type=content_type)

    assert "application/x-ndjson" in is_refused(door, 415, answer)
    assert NDJSON in answer[2]["accept"]


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd", "x"])
def test_another_encoding_is_refused(door, encoding):
    assert "gzip" in is_refused(door, 415, door.post(EVENTS, Content_Encoding=encoding))


@pytest.mark.parametrize(
    "body", [b"", EVENTS, gzip.compress(EVENTS, mtime=0)[:-4], gzip.compress(EVENTS, mtime=0) + b"x"]
)
def test_a_damaged_body_is_refused_as_a_whole(door, body):
    is_refused(door, 400, door.post(body, Content_Encoding="gzip"))


@pytest.mark.parametrize("body", [b'[{"id": 1}, {"id": 2]', EVENTS, b"", b"\xff", b'[{"id": 1}]]'])
def test_a_body_that_is_no_json_is_refused_as_a_whole(door, body):
    is_refused(door, 400, door.post(body, Content_Type="application/json"))


def test_a_body_that_is_too_large_is_refused_before_it_is_read(door):
    is_refused(door, 413, door.post(b"", Content_Length=str((8 << 20) + 1)))
    is_refused(door, 413, door.post(b"", Content_Length="9" * 18))


def test_a_body_that_is_too_large_once_it_is_unpacked_is_refused(door):
    bomb = gzip.compress(bytes(64 << 20))
    assert len(bomb) < 1 << 20
    is_refused(door, 413, door.post(bomb, Content_Encoding="gzip"))


def test_the_largest_body_is_taken(door):
    body = b"x" * (8 << 20)
    assert door.post(body)[:2] == (202, {"bytes": 8 << 20, "repeated": False})
    assert door.stored() == [body]


@pytest.mark.parametrize("length", [None, "", "-1", "+5", "1e3", "0x10", "5, 6"])
def test_a_body_without_a_length_is_refused(door, length):
    """This server refuses it, or the protocol before it."""
    header = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
    chunks = b"a\r\n" + b"x" * 10 + b"\r\n0\r\n\r\n"
    status = door.status_of(CLICK_POST, CLICK_BEARER, f"Content-Type: {NDJSON}", header, body=chunks)

    assert status in ((411,) if length is None else (400, 411))
    assert door.stored() == []


@pytest.mark.parametrize("name", ["Authorization", "Content-Type", "Idempotency-Key", "Content-Encoding"])
def test_a_header_that_is_sent_twice_is_refused(door, name):
    values = {"Authorization": f"Bearer {CLICK_TOKEN}", "Content-Type": NDJSON}
    lines = [f"{each}: {value}" for each, value in values.items()]
    twice = [f"{name}: {values.get(name, 'a')}"] * (1 if name in values else 2)
    assert door.status_of(CLICK_POST, *lines, *twice, "Content-Length: 1", body=b"x") == 400
    assert door.stored() == []


def half_a_post(door: Door, sent: bytes, length: int) -> socket.socket:
    return door.say(CLICK_POST, CLICK_BEARER, f"Content-Type: {NDJSON}", f"Content-Length: {length}", body=sent)


def test_a_body_that_ends_early_stores_nothing(door):
    for sent in (b"", EVENTS[:10], EVENTS):
        with closing(half_a_post(door, sent, len(EVENTS) + 1)) as client:
            client.shutdown(socket.SHUT_WR)
            assert b" 202 " not in client.makefile("rb").readline()
    # The places of those who have gone are free, and the server still answers.
    assert door.post(b"x")[0] == 202
    assert door.stored() == [b"x"]


@pytest.mark.seconds
def test_a_body_that_is_too_slow_is_given_up(tmp_path):
    with open_door(tmp_path, request_seconds=0.5) as door:
        with closing(half_a_post(door, EVENTS[:5], len(EVENTS))) as client, contextlib.suppress(ConnectionResetError):
            assert client.recv(100) == b""
        assert door.stored() == []
        assert door.post(EVENTS)[0] == 202


def test_more_posts_than_there_are_places_for_are_sent_away(tmp_path):
    limits = PostLimits(body=100, posts=3, of_source=2)
    with open_door(tmp_path, limits=limits) as door, contextlib.ExitStack() as open_posts:
        first = open_posts.enter_context(closing(half_a_post(door, EVENTS[:5], len(EVENTS))))
        open_posts.enter_context(closing(half_a_post(door, EVENTS[:5], len(EVENTS))))
        door.wait_for_posts(2)
        answer = door.post(EVENTS)

        assert answer[2]["retry-after"] == "1"
        is_refused(door, 429, answer)
        # Another source has a place of its own, and those without a token take none.
        assert door.post(b"id\n1", "shop.order", ORDER_TOKEN, Content_Type="text/csv")[0] == 202
        assert door.post(EVENTS, token="wrong")[0] == 401
        first.sendall(EVENTS[5:])
        assert b" 202 " in first.makefile("rb").readline()
        assert door.post(EVENTS)[0] == 202
        assert door.stored() == [EVENTS, EVENTS]


@pytest.mark.security
def test_all_sources_together_have_no_more_places(tmp_path):
    with (
        open_door(tmp_path, limits=PostLimits(body=100, posts=2, of_source=2)) as door,
        contextlib.ExitStack() as open_posts,
    ):
        for _ in range(2):
            open_posts.enter_context(closing(half_a_post(door, EVENTS[:5], len(EVENTS))))
        door.wait_for_posts(2)

        is_refused(door, 429, door.post(b"id\n1", "shop.order", ORDER_TOKEN, Content_Type="text/csv"))


# -- disks


def test_a_folder_that_is_not_there_is_not_made_in_its_place(door, caplog):
    (door.root / "posts").rename(door.root / "away")
    try:
        with caplog.at_level(logging.WARNING, "freshline.engine.ingest"):
            answers = [door.post(EVENTS) for _ in range(3)]
        assert not (door.root / "posts").exists()
    finally:
        (door.root / "away").rename(door.root / "posts")

    assert all("is not there" in is_refused(door, 503, answer) for answer in answers)
    assert len(caplog.records) == 1
    assert door.post(EVENTS)[0] == 202


def test_a_full_disk_is_reported_and_stores_nothing(tmp_path):
    with open_door(tmp_path, landing=Landing(reserve=1 << 62)) as door:
        answer = door.post(EVENTS, Idempotency_Key="k")

        assert "space" in is_refused(door, 507, answer)
        assert "retry-after" in answer[2]


def test_a_folder_that_is_none_is_reported(tmp_path):
    with open_door(tmp_path) as door:
        (tmp_path / "posts").rmdir()
        (tmp_path / "posts").write_bytes(b"")
        status, answer, _ = door.post(EVENTS)

        assert (status, answer["error"]["code"]) == (503, "INGEST_BUSY")
        assert "Not a directory" in answer["error"]["message"]


def test_a_disk_that_hangs_delays_nobody_but_those_who_post(tmp_path):
    goes_on = threading.Event()

    def hang(_point: str) -> None:
        goes_on.wait(30)

    with (
        open_door(tmp_path, landing=Landing(failpoint=hang), limits=PostLimits(of_source=2)) as door,
        ThreadPoolExecutor(2) as threads,
    ):
        waiting = [threads.submit(door.post, EVENTS) for _ in range(2)]
        try:
            door.wait_for_posts(2)
            assert door.post(EVENTS)[0] == 429
            assert door.post(EVENTS, token="wrong")[0] == 401
            assert not [each for each in waiting if each.done()]
        finally:
            goes_on.set()

        assert [each.result()[0] for each in waiting] == [202, 202]
        assert door.stored() == [EVENTS, EVENTS]


# -- while something happens


def test_other_declarations_apply_from_the_next_post_on(tmp_path):
    with open_door(tmp_path) as door:
        door.graph = declared(tmp_path, {"landed.sql": SOURCES["landed.sql"]})
        assert door.post(EVENTS)[0] == 401
        door.graph = declared(tmp_path)
        assert door.post(EVENTS)[0] == 202


SERVER = """
import sys
from pathlib import Path
from tests.engine.posting import declared, TOKENS, ENGINE_TOKEN
from freshline.engine.failpoint import read_failpoint
from freshline.engine.ingest import Ingest
from freshline.engine.server import EngineServer, bind
from freshline.sources.http.landing import Landing
import os, threading
root = Path(sys.argv[1])
graph = declared(root)
ingest = Ingest(lambda: graph, root, TOKENS, Landing(failpoint=read_failpoint(os.environ)))
server = EngineServer(None, ENGINE_TOKEN, bind(0), ingest=ingest)
server.start()
print(server.port, "pyspark" in sys.modules, flush=True)
threading.Event().wait()
"""


@contextlib.contextmanager
def server_process(root: Path, point: str = "") -> Iterator[Door]:
    """The door in a process of its own, which kills itself at a failpoint."""
    environ = {**os.environ, "FRESHLINE_TEST": "1", "FRESHLINE_FAILPOINT": point}
    folder = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", SERVER, str(root)],
        stdout=subprocess.PIPE,
        env=environ,
        cwd=folder,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout is not None
            port, _ = process.stdout.readline().split()
            yield Door(root, declared(root), {}, int(port))
            if point:
                assert process.wait(20) == -signal.SIGKILL
        finally:
            process.kill()


@pytest.mark.seconds
@pytest.mark.parametrize(("point", "is_there"), POINTS)
def test_killed_before_the_answer_a_post_is_sent_again_and_stored_once(tmp_path, point, is_there):
    (tmp_path / "posts").mkdir()
    with server_process(tmp_path, point) as door, pytest.raises((ConnectionError, http.client.HTTPException)):
        door.post(EVENTS, Idempotency_Key="k")
    assert door.stored() == ([EVENTS] if is_there else [])
    with pytest.raises(ConnectionRefusedError):
        door.post(EVENTS, Idempotency_Key="k")

    with server_process(tmp_path) as door:
        assert door.post(EVENTS, Idempotency_Key="k")[:2] == (202, {"bytes": len(EVENTS), "repeated": is_there})
        assert door.stored() == [EVENTS]
