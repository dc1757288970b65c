"""The engine's HTTP: who may ask, how a mistake is reported, and that an answer comes with the next event."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import psutil
import pytest

from freshline.engine.connections import MOST_CONNECTIONS
from freshline.engine.requests import Request
from freshline.engine.server import EngineServer, bind
from freshline.errors import EngineError, RequestError
from freshline.report.metrics.exposition import GAUGE, Family, MetricSample, labels

pytestmark = pytest.mark.security

TOKEN = "a-token"
SCRAPE_TOKEN = "a-token-for-metrics"


class Control:
    """An engine without Spark: requests never end by themselves."""

    def __init__(self) -> None:
        self.requests: dict[str, Request] = {}
        self.loops = False
        self.stopped: list[float | None] = []

    def health(self) -> Mapping[str, Any]:
        return {"pid": 1, "loops": self.loops}

    def submit(self, kind: str, arguments: Mapping[str, Any], asker: int | None = None) -> Request:
        if kind == "nonsense":
            raise RequestError("there is no request 'nonsense'")
        request = Request(kind, arguments)
        self.requests[request.id] = request
        return request

    def find(self, request_id: str) -> Request:
        try:
            return self.requests[request_id]
        except KeyError:
            raise RequestError(f"there is no request {request_id}") from None

    def status(self) -> list[dict[str, Any]]:
        return [{"table": "orders"}]

    def metrics(self) -> list[Family]:
        return [Family("freshline_loops_running", GAUGE, "Whether loops run.", (MetricSample(labels(), 1),))]

    def set_loops(self, on: bool) -> None:
        self.loops = on

    def stop(self, seconds: float | None) -> None:
        self.stopped.append(seconds)


class Client:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        given = {"Authorization": f"Bearer {TOKEN}"} | {key.replace("_", "-"): value for key, value in headers.items()}
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as connection:
            connection.request(method, path, data, {key: value for key, value in given.items() if value})
            response = connection.getresponse()
            text = response.read()
        return response.status, json.loads(text) if text.startswith((b"{", b"[")) else text


@pytest.fixture(scope="module")
def control() -> Control:
    return Control()


@pytest.fixture(scope="module")
def client(control: Control) -> Iterator[Client]:
    server = EngineServer(control, TOKEN, bind(0), scrape_token=SCRAPE_TOKEN)
    server.start()
    yield Client(server.port)
    server.stop()


def test_who_knows_the_token_is_answered(client):
    assert client.ask("GET", "/health")[0] == 200
    assert client.ask("GET", "/status") == (200, [{"table": "orders"}])


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN} "[:-1] + "x"]
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/health"), ("POST", "/requests"), ("POST", "/stop"), ("GET", "/x")]
)
def test_who_does_not_know_the_token_gets_nothing(client, control, method, path, authorization):
    status, answer = client.ask(method, path, {} if method == "POST" else None, Authorization=authorization)

    assert status == 401
    assert "token" in answer["error"]["message"]
    assert control.stopped == []


SCRAPE = f"Bearer {SCRAPE_TOKEN}"


def test_metrics_are_read_with_a_token_of_their_own(client):
    status, text = client.ask("GET", "/metrics", Authorization=SCRAPE)

    assert status == 200
    assert text.decode().split("\n")[-2] == "freshline_loops_running 1"
    assert client.ask("GET", "/metrics")[0] == 200
    assert client.ask("HEAD", "/metrics", Authorization=SCRAPE) == (200, b"")


def test_metrics_are_of_the_type_that_prometheus_reads(client):
    with closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": SCRAPE, "Accept": "text/plain;version=0.0.4"})
        assert connection.getresponse().headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_programs_read_metrics_as_json(client):
    assert client.ask("GET", "/metrics", Accept="application/json")[1] == [
        {
            "name": "freshline_loops_running",
            "type": "gauge",
            "help": "Whether loops run.",
            "samples": [{"name": "freshline_loops_running", "labels": {}, "value": 1}],
        }
    ]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/health"),
        ("GET", "/status"),
        ("POST", "/requests"),
        ("POST", "/stop"),
        ("POST", "/metrics"),
        ("DELETE", "/metrics"),
        ("GET", "/metrics/"),
        ("GET", "//metrics"),
        ("GET", "/metrics/../health"),
        ("GET", "/METRICS"),
        ("GET", "/metrics%2f..%2fhealth"),
        ("GET", "/requests/x/events"),
    ],
)
def test_the_token_for_metrics_opens_nothing_else(client, control, method, path):
    status, answer = client.ask(method, path, {} if method == "POST" else None, Authorization=SCRAPE)

    assert status == 401
    assert answer["error"]["code"] == "ENGINE"
    assert control.stopped == []


@pytest.mark.parametrize("authorization", ["", "Bearer", f"Bearer {SCRAPE_TOKEN}x", f"Basic {SCRAPE_TOKEN}"])
def test_metrics_need_a_token(client, authorization):
    assert client.ask("GET", "/metrics", Authorization=authorization)[0] == 401


def test_a_page_that_was_pointed_at_this_machine_reads_no_metrics(client):
    assert client.ask("GET", "/metrics", Authorization=SCRAPE, Host=f"example.com:{client.port}")[0] == 403


def test_an_engine_that_starts_has_no_metrics_yet():
    server = EngineServer(None, TOKEN, bind(0), scrape_token=SCRAPE_TOKEN)
    server.start()

    status, answer = Client(server.port).ask("GET", "/metrics", Authorization=SCRAPE)
    server.stop()

    assert (status, answer["error"]["code"]) == (503, "ENGINE")


@pytest.mark.parametrize("host", ["example.com", "127.0.0.1", "localhost:1", "127.0.0.1.example.com:{port}"])
def test_a_page_that_was_pointed_at_this_machine_is_kept_out(client, host):
    assert client.ask("GET", "/health", Host=host.format(port=client.port))[0] == 403


def test_localhost_is_loopback_too(client):
    assert client.ask("GET", "/health", Host=f"localhost:{client.port}")[0] == 200


@pytest.mark.parametrize("asker", [-1, 0, 1 << 31, 1.5, True, "1", [1]])
def test_an_asker_that_is_no_process_is_a_mistake_of_the_request(client, control, asker):
    before = len(control.requests)

    status, answer = client.ask("POST", "/requests", {"kind": "sql", "arguments": {}, "asker": asker})

    assert (status, answer["error"]["code"]) == (400, "REQUEST")
    assert len(control.requests) == before


HALVES = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "half a header": b"GET /health HTTP/1.1\r\nHost: 127.0.0.1",
    "half a body": b"POST /requests HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nAuthorization: Bearer a-token\r\n"
    b"Content-Length: 100\r\n\r\n{",
}


@pytest.mark.seconds
@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_is_given_up(control, half):
    server = EngineServer(control, TOKEN, bind(0), request_seconds=0.5)
    server.start()
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=10)) as asked:
        asked.sendall(HALVES[half].replace(b"%d", str(server.port).encode()))
        began = time.monotonic()

        with contextlib.suppress(ConnectionResetError):
            assert asked.recv(100) == b""

        assert 0.2 < time.monotonic() - began < 5
    # One that polls is served for longer than that.
    request = control.submit("sql", {})
    assert Client(server.port).ask("GET", f"/requests/{request.id}/events?wait=1.5")[0] == 200
    server.stop()


@pytest.mark.seconds
def test_a_drop_of_a_request_now_and_then_is_given_up_too(control):
    server = EngineServer(control, TOKEN, bind(0), request_seconds=0.5)
    server.start()
    with closing(socket.create_connection(("127.0.0.1", server.port), timeout=10)) as asked:
        began = time.monotonic()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while time.monotonic() - began < 10:
                asked.sendall(b"G")
                threading.Event().wait(0.05)

        assert time.monotonic() - began < 5
    server.stop()


def test_those_who_ask_are_answered_while_others_open_as_many_connections_as_they_can(client):
    server = psutil.Process()
    before = len(server.net_connections("inet"))
    with contextlib.ExitStack() as held:
        for _ in range(900):
            one = held.enter_context(closing(socket.create_connection(("127.0.0.1", client.port), timeout=10)))
            one.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1")
        assert client.ask("GET", "/health")[0] == 200
        established = [
            one
            for one in server.net_connections("inet")
            if one.laddr.port == client.port and one.status == psutil.CONN_ESTABLISHED
        ]

        assert len(established) <= MOST_CONNECTIONS
        assert client.ask("GET", "/health")[0] == 200
    assert before < 100


@pytest.mark.parametrize("body", [b"{", b"[]", b'"x"', b"\xff", b'{"kind": 1}', b'{"kind": "sql", "arguments": []}'])
def test_a_body_that_is_no_request_is_reported(client, body):
    status, answer = client.ask("POST", "/requests", body)

    assert status == 400
    assert answer["error"]["code"] == "REQUEST"


def test_a_body_that_is_too_large_is_not_read(client):
    assert client.ask("POST", "/requests", None, Content_Length=str(1 << 30))[0] == 413


def test_a_request_that_cannot_be_served_is_reported(client):
    assert client.ask("POST", "/requests", {"kind": "nonsense"})[0] == 400
    assert client.ask("GET", "/requests/none/events")[0] == 400
    assert client.ask("POST", "/requests/none/cancel", {})[0] == 400


def test_events_are_numbered_and_come_once(client, control):
    request_id = client.ask("POST", "/requests", {"kind": "sql", "arguments": {"statement": "SELECT 1"}})[1]["id"]
    request = control.requests[request_id]
    assert request.arguments == {"statement": "SELECT 1"}
    request.progress("one")
    request.progress("two")

    _, first = client.ask("GET", f"/requests/{request_id}/events?after=0")
    _, second = client.ask("GET", f"/requests/{request_id}/events?after={first['next']}")

    assert [event["message"] for event in first["events"]] == ["one", "two"]
    assert second == {"events": [], "next": 2, "done": False}


def test_a_poll_is_answered_at_the_next_event(client, control):
    request = control.submit("sql", {})
    threading.Timer(0.3, request.report, [{"type": "done", "state": "SUCCEEDED", "error": None}]).start()
    began = time.monotonic()

    _, answer = client.ask("GET", f"/requests/{request.id}/events?after=0&wait=8")

    assert answer["done"]
    assert 0.2 < time.monotonic() - began < 5


def test_a_poll_in_vain_is_answered_when_its_time_is_over(client, control):
    request = control.submit("sql", {})

    assert client.ask("GET", f"/requests/{request.id}/events?wait=0.2")[1] == {"events": [], "next": 0, "done": False}


def test_polling_is_a_sign_of_life(client, control):
    request = control.submit("sql", {})
    request.asked_at = 0.0

    client.ask("GET", f"/requests/{request.id}/events")

    assert time.monotonic() - request.asked_at < 5


@pytest.mark.parametrize("query", ["after=x", "after=-1", "wait=nan", "wait=-1"])
def test_numbers_that_are_none_are_reported(client, control, query):
    request = control.submit("sql", {})

    assert client.ask("GET", f"/requests/{request.id}/events?{query}")[0] == 400


def test_cancel_reaches_the_work(client, control):
    request = control.submit("sql", {})

    assert client.ask("POST", f"/requests/{request.id}/cancel", {})[0] == 200
    assert request.cancellation.cancelled


def test_loops_and_stop_reach_the_engine(client, control):
    assert client.ask("POST", "/loops", {"on": True}) == (200, {"loops": True})
    assert client.ask("POST", "/loops", {"on": "yes"})[0] == 400
    assert client.ask("POST", "/stop", {"seconds": 3}) == (200, {"stopping": True})
    for seconds in (-3, float("nan"), float("inf"), True, "3"):
        assert client.ask("POST", "/stop", {"seconds": seconds})[0] == 400
    assert control.loops
    assert control.stopped == [3]


def test_a_port_in_use_is_reported(client):
    with pytest.raises(EngineError, match=f"port {client.port} of the engine is in use. Set engine-port to 0"):
        bind(client.port)


@pytest.mark.parametrize("body", [b'{"kind": "\\ud800"}', b'{"kind": "sql", "arguments": {"statement": "a\\udc00"}}'])
def test_half_a_character_is_refused_where_it_comes_in(client, control, body):
    before = len(control.requests)

    status, answer = client.ask("POST", "/requests", body)

    assert (status, answer["error"]["code"]) == (400, "REQUEST")
    assert len(control.requests) == before
