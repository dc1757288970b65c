"""Posting to addresses that somebody else wrote: nothing is followed, nothing private is called, nothing waits."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest

from freshline.errors import DeliveryError
from freshline.report.alerts.channels.web import is_public, post
from tests.report.alerts.servers import WebServer, web_server

pytestmark = pytest.mark.security


def refused(url: str, *, private: bool = True, timeout: float = 5.0) -> str:
    with pytest.raises(DeliveryError) as raised:
        post(url, b"{}", {}, private=private, timeout=timeout)
    # The path of an address may be its secret.
    assert "hunter2" not in str(raised.value)
    return raised.value.message


def test_a_body_is_posted_with_the_name_as_host(web: WebServer) -> None:
    post(web.url, b'{"a": 1}', {"X-Own": "1"}, private=True)
    (found,) = web.received

    assert (found.path, found.body) == ("/in?key=hunter2", b'{"a": 1}')
    assert found.headers["Host"] == f"localhost:{web.port}"
    assert (found.headers["Content-Type"], found.headers["X-Own"]) == ("application/json", "1")


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
def test_an_answer_that_is_no_success_is_reported(web: WebServer, status: int) -> None:
    web.status = status
    assert refused(web.url) == f"localhost answered {status}."


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(web: WebServer, status: int) -> None:
    web.status, web.location = status, f"http://127.0.0.1:{web.port}/elsewhere"
    said = refused(web.url)

    assert said == f"localhost answered {status}, a redirect; those are not followed. Correct the url."
    assert [found.path for found in web.received] == ["/in?key=hunter2"]


def test_a_server_that_hangs_up_is_reported(web: WebServer) -> None:
    web.hang_up = True
    assert refused(web.url) == "localhost ended the connection: RemoteDisconnected."


@pytest.mark.seconds
def test_an_answer_that_trickles_has_a_deadline(web: WebServer) -> None:
    web.trickle = True
    begin = time.monotonic()

    assert refused(web.url, timeout=0.5) == "localhost did not answer in time."
    assert time.monotonic() - begin < 5


def test_a_server_that_says_nothing_has_a_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert (
            refused(f"http://localhost:{silent.getsockname()[1]}/", timeout=0.3) == "localhost did not answer in time."
        )


def test_nobody_there_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert refused(f"http://localhost:{port}/") == "localhost cannot be reached: Connection refused."


def test_a_name_that_does_not_resolve_is_reported() -> None:
    assert refused("https://nowhere.invalid/", private=False) == "the name nowhere.invalid cannot be resolved."


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "10.1.2.3", "169.254.169.254", "0.0.0.0", "2130706433"]
)
def test_a_private_address_is_not_called(host: str) -> None:
    said = refused(f"https://{host}/", private=False)

    assert "which is not an address of the public internet" in said
    assert "private-addresses = true" in said


def test_without_leave_nothing_is_sent_without_encryption(web: WebServer) -> None:
    assert "does not begin with https://" in refused(web.url, private=False)
    assert web.received == []


def test_the_name_is_resolved_once_and_that_address_is_called(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = socket.getaddrinfo

    def resolve(host: str, *arguments: Any, **named: Any) -> Any:
        asked.append(host)
        if host == "changes.example":
            # A second question would be answered with another address, at which nobody is.
            host = "127.0.0.1" if asked.count(host) == 1 else "127.9.9.9"
        return real(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    post(f"http://changes.example:{web.port}/", b"{}", {}, private=True)

    assert asked.count("changes.example") == 1
    assert web.received[0].headers["Host"] == f"changes.example:{web.port}"


def test_one_private_address_among_public_ones_is_enough_to_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    assert "mixed.example is 10.0.0.1" in refused("https://mixed.example/", private=False)


def test_a_proxy_of_the_environment_is_not_used(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    post(web.url, b"{}", {}, private=True)

    assert len(web.received) == 1


def test_a_certificate_is_checked(certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    with web_server(WebServer(), certificate) as server:
        assert "has a certificate that is not accepted: self-signed certificate" in refused(server.url)
        assert server.received == []
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        post(server.url, b"{}", {}, private=True)
        assert len(server.received) == 1
        # The same certificate under another name.
        assert "certificate that is not accepted" in refused(server.url.replace("localhost", "127.0.0.1"))


def test_a_message_that_is_too_long_is_not_sent(web: WebServer) -> None:
    with pytest.raises(DeliveryError, match="more than 65536"):
        post(web.url, b"x" * 70_000, {}, private=True)


@pytest.mark.parametrize(
    "address",
    [
        "64:ff9b::a00:1",
        "::10.0.0.1",
        "2002:7f00:1::",
        "2001:0:a00:1::",
        "224.0.0.1",
        "240.0.0.1",
        "ff02::1",
        "192.168.1.1",
    ],
)
def test_an_address_that_carries_or_is_no_public_one_is_not_public(address: str) -> None:
    assert not is_public(address)
