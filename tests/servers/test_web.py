"""The server of HTTP that tests script answers as they want it, and records what came."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from tests.report.alerts.servers import make_certificate
from tests.servers.web import Answer, Fault, WebServer, web_server


def post(url: str, body: bytes = b"a body", context: ssl.SSLContext | None = None, seconds: float = 10) -> int:
    request = urllib.request.Request(url, body, {"Idempotency-Key": "one"})
    try:
        with urllib.request.urlopen(request, timeout=seconds, context=context) as answer:
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_a_request_is_recorded_as_it_came(webhook: WebServer):
    assert post(f"{webhook.url}/orders?x=1", b"\xff\x00") == 200

    (request,) = webhook.wait_for(1)
    assert (request.method, request.path, request.body) == ("POST", "/orders?x=1", b"\xff\x00")
    assert request.headers["Idempotency-Key"] == "one"


def test_the_next_requests_of_a_path_get_another_status(webhook: WebServer):
    webhook.next(429, times=2, path="/slow")
    webhook.next(Answer(503, b"", {"Retry-After": "7"}), path="/down")

    answers = [post(f"{webhook.url}{path}") for path in ("/slow", "/other", "/slow", "/slow", "/down", "/down")]

    assert answers == [429, 200, 429, 200, 503, 200]
    assert [request.answered for request in webhook.received] == answers


@pytest.mark.parametrize("fault", [Fault.CUT, Fault.CUT_IN_ANSWER, Fault.CUT_IN_REQUEST])
def test_a_connection_ends_in_the_middle(webhook: WebServer, fault: Fault):
    webhook.next(fault)

    with pytest.raises((OSError, http.client.HTTPException)):
        post(webhook.url, b"x" * 1_000_000)
    (request,) = webhook.wait_for(1)
    assert (len(request.body), request.answered) == (500_000 if fault is Fault.CUT_IN_REQUEST else 1_000_000, None)
    assert post(webhook.url) == 200


def test_an_answer_never_comes(webhook: WebServer):
    webhook.next(Fault.HANG)

    with pytest.raises(TimeoutError):
        post(webhook.url, seconds=0.2)
    assert len(webhook.wait_for(1)) == 1
    assert post(webhook.url) == 200


def test_a_server_that_stops_ends_its_connections_and_comes_back_on_its_port(webhook: WebServer):
    connection = http.client.HTTPConnection("127.0.0.1", webhook.port, timeout=10)
    connection.request("POST", "/", b"1")
    connection.getresponse().read()

    webhook.stop()

    connection.sock.settimeout(10)
    assert connection.sock.recv(1) == b""
    connection.close()
    webhook.start()
    assert post(webhook.url) == 200
    assert [request.body for request in webhook.received] == [b"1", b"a body"]


def test_a_front_passes_on_what_is_not_scripted_and_can_lose_an_answer(webhook: WebServer):
    webhook.answer = Answer(201, b"made", {"X-Of": "behind"})
    with web_server(behind=webhook.port) as front:
        with urllib.request.urlopen(f"{front.url}/a", b"1") as answer:
            assert (answer.status, answer.read(), answer.headers["X-Of"]) == (201, b"made", "behind")
        front.next(503)
        assert post(front.url, b"2") == 503
        front.next(503, then_fail=True)
        assert post(front.url, b"3") == 503

    assert [request.body for request in webhook.received] == [b"1", b"3"]


def test_a_front_asks_for_a_password_and_speaks_tls(webhook: WebServer, tmp_path: Path):
    certificate, key = make_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with web_server(behind=webhook.port, credentials=("me", "secret"), certificate=(certificate, key)) as front:
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            post(front.url)
        assert post(front.url, context=trusting) == 401
        right = urllib.request.HTTPPasswordMgrWithDefaultRealm()
        right.add_password(None, front.url, "me", "secret")
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=trusting), urllib.request.HTTPBasicAuthHandler(right)
        )
        with opener.open(front.url, b"x", 10) as answer:
            assert answer.status == 200

    assert [request.body for request in webhook.received] == [b"x"]
    assert "Authorization" not in webhook.received[0].headers
