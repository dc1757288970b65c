"""A service asked by HTTP: what it answers, and every way in which it does not, over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from freshline.errors import LookupRefusedError
from freshline.sources.http.lookup import HttpLookup
from freshline.sources.http.lookup_client import HttpLookupClient
from freshline.sources.lookups.ask import Limits, ask_all
from freshline.sources.lookups.client import NO_ROW, Answer, AwayError
from freshline.sources.lookups.values import UnfitError, fit_value, read_json
from tests.servers.counting import counted
from tests.services import running_service

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int32())])


@pytest.fixture
def service():
    with running_service(rows={"1": {"name": "A", "n": 1}, "2": {"name": "B", "n": 2}}) as running:
        yield running


def client_of(service, schema=COLUMNS, key=("id",), root=Path(), **options):
    path = "/".join(f"{{{name}}}" for name in key)
    given = {"url": f"{service.url}/rows/{path}", **options}
    spec: Any = SimpleNamespace(connection=HttpLookup(**given), written_at="s.sql:1", primary_key=key)
    return HttpLookupClient(spec, SimpleNamespace(root=root), schema)


def asked(client, keys, limits=None, stop=lambda: None):
    found = {}

    def keep(arrived):
        found.update(arrived)
        return True

    ask_all(client, keys, limits or Limits(8), stop, keep)
    return found


def test_a_row_no_row_and_an_answer_that_does_not_fit_are_told_apart(service):
    service.bodies = {"3": b'{"name": 5}', "4": b"null", "5": b"[1]", "6": b"{", "7": b'{"n": NaN}'}
    found = asked(client_of(service), [(number,) for number in range(1, 9)])

    assert found[1,] == Answer({"name": "A", "n": 1})
    assert found[4,] == found[8,] == NO_ROW
    assert found[3,].failed == "column name is string, and the answer has 5"
    assert "has no object" in found[5,].failed
    assert "is no JSON" in found[6,].failed
    assert "is no JSON" in found[7,].failed
    assert service.requests == 8


def test_keys_are_encoded_in_the_address_and_in_a_body(service):
    text = "a/b ?#%ü"
    service.rows[text] = {"name": "odd"}
    schema = pa.schema([("k", pa.string()), ("name", pa.string())])
    assert asked(client_of(service, schema, ("k",)), [(text,)])[text,].row == {"name": "odd"}
    service.rows['{"d": 1.10, "t": "2026-01-02T03:04:05Z", "b": true}'] = {"name": "posted"}
    key = (Decimal("1.10"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), True)
    posting = client_of(service, schema, ("d", "t", "b"), url=f"{service.url}/rows", method="post")

    assert asked(posting, [key])[key].row == {"k": None, "name": "posted"}


def test_the_row_is_where_the_pointer_says(service):
    service.rows = {"1": {"data": [{"a/b": {"name": "A"}}]}, "2": {"data": []}, "3": {"data": [{"a/b": 7}]}}
    found = asked(client_of(service, row="/data/0/a~1b"), [(1,), (2,), (3,)])

    assert found[1,].row == {"name": "A", "n": None}
    assert found[2,] == NO_ROW
    assert "has no object at /data/0/a~1b" in found[3,].failed


def test_many_are_asked_at_once_and_each_once(service):
    service.seconds, service.rows = 0.02, {str(number): {"n": number} for number in range(400)}
    found = asked(client_of(service), [(number,) for number in range(400)], Limits(16))

    assert {key: answer.row["n"] for key, answer in found.items()} == {(number,): number for number in range(400)}
    assert set(service.asked.values()) == {1}
    assert 8 <= service.most_open <= 16


def test_no_more_begin_in_a_second_than_are_allowed(service):
    asked(client_of(service), [(number,) for number in range(12)], Limits(8, per_second=20))
    times = sorted(service.times)

    assert times[-1] - times[0] >= 11 / 20 * 0.9


@pytest.mark.parametrize("status", [429, 503])
def test_a_service_that_is_busy_is_asked_again_when_it_wants(service, status):
    service.fails = [(status, {"Retry-After": "1"})]
    started = time.monotonic()
    found = asked(client_of(service), [(1,)])

    assert found[1,].row == {"name": "A", "n": 1}
    assert time.monotonic() - started >= 1
    assert service.asked["1"] == 2


def test_a_service_that_stays_away_is_tried_five_times_and_then_once_for_each_key(service):
    service.always = (502, {})
    started = time.monotonic()
    found = asked(client_of(service), [(number,) for number in range(30)], Limits(1))

    assert all(answer.away and "answers 502" in answer.failed for answer in found.values())
    assert service.requests == 5 + 29
    assert time.monotonic() - started < 15


def test_a_service_that_hangs_or_answers_in_halves_is_away(service):
    service.seconds = 3
    with pytest.raises(AwayError, match=r"takes longer than 'lookup.timeout'"):
        client_of(service, lookup_timeout=1).ask([(1,)])
    service.seconds, service.cut = 0, True
    with pytest.raises(AwayError, match="too early|closes the connection|IncompleteRead"):
        client_of(service).ask([(1,)])


def test_an_answer_that_comes_byte_by_byte_has_the_deadline_of_the_whole():
    listening = socket.create_server(("127.0.0.1", 0))

    def trickle():
        connection, _ = listening.accept()
        connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
        try:
            while True:
                connection.sendall(b" ")
                time.sleep(0.2)
        except OSError:
            connection.close()

    threading.Thread(target=trickle, daemon=True).start()
    started = time.monotonic()
    with pytest.raises(AwayError, match="takes longer"):
        client_of(SimpleNamespace(url=f"http://127.0.0.1:{listening.getsockname()[1]}"), lookup_timeout=1).ask([(1,)])

    assert time.monotonic() - started < 3
    listening.close()


def test_nobody_there_is_away_and_no_such_host_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    with pytest.raises(AwayError, match="does not answer"):
        client_of(SimpleNamespace(url=f"http://127.0.0.1:{port}")).ask([(1,)])


@pytest.mark.parametrize(("status", "headers"), [(401, {}), (403, {}), (302, {"Location": "http://else"})])
def test_a_refusal_ends_asking_and_shows_no_secret(service, status, headers, monkeypatch):
    monkeypatch.setenv("TOKEN", "a-secret-of-the-test")
    service.always = (status, headers)
    with pytest.raises(LookupRefusedError) as refused:
        asked(client_of(service, headers={"Authorization": "${env:TOKEN}"}), [(n,) for n in range(50)], Limits(2))

    assert service.headers[0]["Authorization"] == "a-secret-of-the-test"
    assert service.requests <= 4
    assert "a-secret-of-the-test" not in str(refused.value)
    assert "s.sql:1" in str(refused.value)


def test_a_secret_that_is_not_there_is_refused_by_its_name(service, monkeypatch):
    monkeypatch.delenv("TOKEN", raising=False)
    with pytest.raises(LookupRefusedError, match="no environment variable TOKEN"):
        client_of(service, headers={"Authorization": "${env:TOKEN}"})


def test_a_connection_that_the_service_closed_is_no_failure(service):
    client = client_of(service)
    assert client.ask([(1,)])[0].row == {"name": "A", "n": 1}
    client._connections._resting[0].sock.shutdown(socket.SHUT_RDWR)

    assert client.ask([(2,)])[0].row == {"name": "B", "n": 2}


def test_connections_are_kept_from_one_refresh_to_the_next(service):
    service.seconds = 0.02
    with counted(int(service.url.rpartition(":")[2])) as door:
        client = client_of(service, url=f"http://127.0.0.1:{door.port}/rows/{{id}}")
        for first in (0, 16, 32):
            asked(client, [(number,) for number in range(first, first + 16)], Limits(8))
        assert 1 < door.connections <= 8
        # All of them are as old as the pause of a service that closes those that rest.
        for resting in client._connections._resting:
            resting.sock.shutdown(socket.SHUT_RDWR)
        assert asked(client, [(number,) for number in range(1, 3)], Limits(2))[1,].row == {"name": "A", "n": 1}
        client.close()


def test_stopping_ends_what_waits(service):
    service.always = (503, {"Retry-After": "60"})
    started, stopped = time.monotonic(), threading.Event()

    def stop():
        if time.monotonic() - started > 1:
            stopped.set()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asked(client_of(service), [(1,), (2,)], stop=stop)

    assert stopped.is_set()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1.5", pa.decimal128(10, 2), Decimal("1.50")),
        ("1.505", pa.decimal128(10, 2), None),
        ("5.0", pa.int32(), 5),
        ("2147483648", pa.int32(), None),
        ('"5"', pa.int32(), None),
        ("true", pa.int32(), None),
        ("true", pa.bool_(), True),
        ("0.1", pa.float64(), 0.1),
        ("1e400", pa.float64(), None),
        ('"2026-01-01"', pa.date32(), date(2026, 1, 1)),
        ('"2026-13-01"', pa.date32(), None),
        ('"2026-01-01T01:00:00+01:00"', pa.timestamp("us", "UTC"), datetime(2026, 1, 1, tzinfo=UTC)),
        ('"2026-01-01T01:00:00"', pa.timestamp("us"), datetime(2026, 1, 1, 1)),  # noqa: DTZ001 - of TIMESTAMP_NTZ
        ('"AQI="', pa.binary(), b"\x01\x02"),
        ("[1, null]", pa.list_(pa.int32()), [1, None]),
        ('{"a": 1}', pa.map_(pa.string(), pa.int32()), [("a", 1)]),
        ('{"a": "x"}', pa.struct([("a", pa.string()), ("b", pa.int32())]), {"a": "x", "b": None}),
        ('{"a": 1}', pa.struct([("a", pa.string())]), None),
    ],
)
def test_a_value_is_stored_as_it_is_or_not_at_all(text, kind, value):
    if value is None:
        with pytest.raises(UnfitError):
            fit_value(read_json(text), kind)
    else:
        assert fit_value(read_json(text), kind) == value
