"""Webhooks call the public internet only, whatever an address is written as, carries or turns into."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import pytest

from freshline.errors import DeliveryError
from freshline.report.alerts.channels.web import post
from tests.report.alerts.servers import WebServer, web_server

pytestmark = pytest.mark.security

# Each kind of address, and one of it as it stands in a url.
REFUSED = {
    "loopback": "127.0.0.1",
    "loopback that is not the first": "127.255.255.254",
    "loopback of two numbers": "127.1",
    "loopback as one number": "2130706433",
    "loopback in hexadecimal": "0x7f000001",
    "loopback in octal": "0177.0.0.1",
    "loopback in version 6": "[::1]",
    "loopback in version 6, written out": "[0:0:0:0:0:0:0:1]",
    "loopback mapped into version 6": "[::ffff:127.0.0.1]",
    "loopback mapped, in hexadecimal": "[::ffff:7f00:1]",
    "loopback translated": "[::ffff:0:127.0.0.1]",
    "loopback in a compatible address": "[::127.0.0.1]",
    "loopback through NAT64": "[64:ff9b::7f00:1]",
    "loopback through a NAT64 of one's own": "[64:ff9b:1::7f00:1]",
    "loopback through 6to4": "[2002:7f00:1::]",
    "loopback through Teredo": "[2001:0:7f00:1::]",
    "loopback by name": "localhost",
    "loopback by a name with a point behind it": "localhost.",
    "nowhere, which is this machine": "0.0.0.0",
    "nowhere as one number": "0",
    "nowhere in version 6": "[::]",
    "this network": "0.1.2.3",
    "the data of a machine in a cloud": "169.254.169.254",
    "the same as one number": "2852039166",
    "the same mapped into version 6": "[::ffff:169.254.169.254]",
    "the same in version 6": "[fd00:ec2::254]",
    "the same in another cloud": "100.100.100.200",
    "link-local": "169.254.0.1",
    "link-local in version 6": "[fe80::1]",
    "link-local with an interface": "[fe80::1%25lo]",
    "private, 10": "10.1.2.3",
    "private, 172.16": "172.16.0.1",
    "private, 172.31": "172.31.255.255",
    "private, 192.168": "192.168.0.1",
    "private through NAT64": "[64:ff9b::a00:1]",
    "private through 6to4": "[2002:c0a8:1::]",
    "unique local": "[fc00::1]",
    "unique local, assigned by oneself": "[fd12:3456:789a::1]",
    "site-local": "[fec0::1]",
    "shared by a provider": "100.64.0.1",
    "assigned to protocols": "192.0.0.8",
    "the nearest NAT": "192.0.0.9",
    "the nearest relay of 6to4": "192.88.99.1",
    "benchmarks": "198.18.0.1",
    "documentation": "192.0.2.1",
    "documentation in version 6": "[2001:db8::1]",
    "documentation, the newer": "[3fff::1]",
    "segments of routes": "[5f00::1]",
    "everybody near": "224.0.0.1",
    "everybody in the world": "[ff0e::1]",
    "reserved": "240.0.0.1",
    "broadcast": "255.255.255.255",
    "discarded": "[100::1]",
}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were called; nobody answers."""
    found: list[str] = []

    def connect(address: tuple[str, int], *_: object, **__: object) -> socket.socket:
        found.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    return found


def refused(url: str) -> str:
    with pytest.raises(DeliveryError) as raised:
        post(url, b"{}", {}, private=False, timeout=5)
    assert "hunter2" not in str(raised.value)
    return raised.value.message


@pytest.mark.parametrize("what", REFUSED)
def test_an_address_that_is_not_of_the_public_internet_is_not_called(what: str, called: list[str]) -> None:
    said = refused(f"https://{REFUSED[what]}/hunter2")

    assert called == []
    assert "not an address of the public internet" in said or "cannot be resolved" in said, said


def test_an_address_of_the_public_internet_is_called(called: list[str]) -> None:
    for host, address in (("93.184.216.34", "93.184.216.34"), ("[2606:4700:4700::1111]", "2606:4700:4700::1111")):
        assert "cannot be reached" in refused(f"https://{host}/hunter2") or "ended" in refused(
            f"https://{host}/hunter2"
        )
        assert address in called


def plain_addresses(hosts: Iterable[str]) -> list[str]:
    """Those that are addresses, as a name is resolved to; the others are names, or other ways to write an address.

    >>> plain_addresses(["127.0.0.1", "[fe80::1%25eth0]", "0177.0.0.1", "localhost"])
    ['127.0.0.1', 'fe80::1']
    """
    found = []
    for host in hosts:
        with suppress(ValueError):
            found.append(str(ipaddress.ip_address(host.strip("[]").partition("%")[0])))
    return found


@pytest.mark.parametrize("address", plain_addresses(REFUSED.values()))
def test_a_name_of_such_an_address_is_not_called(
    address: str, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The public one is first: one that is not is enough.
    monkeypatch.setattr(socket, "getaddrinfo", answers(["93.184.216.34", address]))

    assert "not an address of the public internet" in refused("https://hooks.example.com/hunter2")
    assert called == []


def answers(addresses: list[str]) -> Any:
    def getaddrinfo(_host: str, port: int, *_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


@pytest.mark.parametrize("later", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::1"])
def test_a_name_that_is_another_address_at_its_use_gains_nothing(
    later: str, called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def getaddrinfo(host: str, port: int, *_: object, **__: object) -> list[Any]:
        asked.append(host)
        found: list[Any] = answers(["93.184.216.34"] if len(asked) == 1 else [later])(host, port)
        return found

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    refused("https://rebinding.example.com/hunter2")

    assert called == ["93.184.216.34"]
    assert asked == ["rebinding.example.com"]


@pytest.mark.seconds
@pytest.mark.parametrize("status", [300, 301, 302, 303, 305, 307, 308])
@pytest.mark.parametrize("to", ["http://127.0.0.1:{port}/second", "//127.0.0.1:{port}/second", "/second"])
def test_a_redirect_leads_nowhere(status: int, to: str) -> None:
    with web_server(WebServer(status=status)) as server:
        server.location = to.format(port=server.port)
        with pytest.raises(DeliveryError, match="a redirect; those are not followed"):
            post(server.url, b"{}", {}, private=True)

        assert [each.path for each in server.received] == ["/in?key=hunter2"]


@pytest.mark.parametrize(
    "url",
    [
        *("http://hooks.example.com/", "ftp://hooks.example.com/", "file:///etc/passwd", "gopher://hooks.example.com/"),
        *("https:///etc/passwd", "https://user:hunter2@example.com/", "https://example.com@127.0.0.1/", "https://[::1"),
        *("https://ex ample.com/", "https://example.com/\r\nX: 1", "https://①.example.com/", "https://example.com:0/"),
        *("https://example.com:99999/", "https:example.com", "", "https://\\127.0.0.1/", "https://127.0.0.1\\@a.com/"),
    ],
)
def test_a_url_of_another_kind_is_not_called(url: str, called: list[str]) -> None:
    refused(url)

    assert called == []
