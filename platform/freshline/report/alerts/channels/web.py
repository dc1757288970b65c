"""One POST to an address that somebody else wrote, with as little trust as possible.

`http.client` is what the larger libraries are built on, and does less: it follows no redirect, reads no proxy from the
environment and keeps no connection. The rest is done here: the name is resolved once, every address that it has is
checked, and the connection goes to one of those, so that a name which resolves to something else a moment later gains
nothing. An answer has a deadline as a whole, also when it trickles.
"""

from __future__ import annotations

import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from freshline.errors import DeliveryError
from freshline.values.alert_settings import web_problem

TIMEOUT_SECONDS = 10.0
LONGEST_BODY_BYTES = 65_536


@dataclass(frozen=True)
class WebAnswer:
    """The status of an answer, and the seconds after which it asks to be called again; None where it does not."""

    status: int
    retry_after: float | None = None


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    private: bool,
    timeout: float = TIMEOUT_SECONDS,
    longest: int = LONGEST_BODY_BYTES,
) -> None:
    """Send the body; returns when the answer is 200 to 299, raises DeliveryError, without the url, in any other case.

    `private` allows addresses that are not of the public internet, and http. `timeout` is in seconds, for the whole,
    and `longest` the most bytes of a body.
    """
    answer = send(url, body, headers, private=private, timeout=timeout, longest=longest)
    host = urlsplit(url).hostname or ""
    if 300 <= answer.status < 400:
        raise DeliveryError(f"{host} answered {answer.status}, a redirect; those are not followed. Correct the url.")
    if not 200 <= answer.status < 300:
        raise DeliveryError(f"{host} answered {answer.status}.", status=answer.status)


def send(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    private: bool,
    timeout: float,
    longest: int,
    context: ssl.SSLContext | None = None,
) -> WebAnswer:
    """Send the body as `post` does: the answer, whatever its status. Raises DeliveryError where there is none.

    `context` verifies the server; None for the authorities of the machine.
    """
    problem = web_problem(url, private=private)
    if problem is not None:
        raise DeliveryError(f"the url {problem}")
    if len(body) > longest:
        raise DeliveryError(f"the message has {len(body)} bytes, more than {longest}.")
    parts = urlsplit(url)
    host, port = _place(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    addresses = _addresses(host, port, private=private)
    connection = _Connection(host, port, addresses, parts.scheme == "https", timeout, context)
    late = threading.Timer(timeout, connection.give_up)
    late.daemon = True
    late.start()
    try:
        connection.request(
            "POST", path, body, {"Content-Type": "application/json", "User-Agent": "freshline", **headers}
        )
        # Nothing of an answer's body is read: it would say what freshline does not ask.
        answer = connection.getresponse()
        if connection.given_up:
            # The end of the connection reads like the end of the headers.
            raise TimeoutError
        return WebAnswer(answer.status, _seconds(answer.getheader("Retry-After")))
    except (OSError, http.client.HTTPException) as error:
        raise DeliveryError(f"{host} {what_happened(error, given_up=connection.given_up)}.") from error
    finally:
        late.cancel()
        connection.close()


def find_private(url: str) -> str | None:
    """An address of the url's host that is not of the public internet, None where there is none."""
    return next((address for address in _resolve(*_place(url)) if not is_public(address)), None)


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


def _seconds(text: str | None) -> float | None:
    """The seconds of Retry-After, as a number or as a date."""
    if text is None:
        return None
    try:
        return max(float(int(text)), 0.0)
    except ValueError:
        pass
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError):
        return None


class _Connection(http.client.HTTPConnection):
    """A connection to one of the addresses that were checked, whatever the name resolves to by now."""

    def __init__(
        self,
        host: str,
        port: int,
        addresses: list[str],
        encrypted: bool,
        timeout: float,
        context: ssl.SSLContext | None,
    ) -> None:
        super().__init__(host, port, timeout=timeout)
        self.default_port = 443 if encrypted else 80  # which the header Host leaves out
        self.given_up = False
        self._addresses = addresses
        self._encrypted = encrypted
        self._context = context

    def connect(self) -> None:
        failure: OSError | None = None
        for address in self._addresses:
            try:
                self.sock = socket.create_connection((address, self.port), self.timeout)
                if self.given_up:
                    raise TimeoutError
                break
            except OSError as error:
                failure = error
                if self.given_up:
                    raise
        else:
            raise failure or OSError("there is no address")
        if self._encrypted:
            # The certificate is checked against the name, as if the connection had been made by it.
            context = self._context or ssl.create_default_context()
            self.sock = context.wrap_socket(self.sock, server_hostname=self.host)

    def give_up(self) -> None:
        """End the connection from another thread."""
        self.given_up = True
        found: socket.socket | None = self.sock
        if found is not None:
            try:
                found.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself


def _addresses(host: str, port: int, *, private: bool) -> list[str]:
    """All addresses of the name; raises DeliveryError where one of them may not be called."""
    addresses = _resolve(host, port)
    if not private:
        for address in addresses:
            if not is_public(address):
                raise DeliveryError(
                    f"{host} is {address}, which is not an address of the public internet. If that is meant, say "
                    "private-addresses = true for this channel."
                )
    return addresses


def _resolve(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise DeliveryError(f"the name {host} cannot be resolved.") from error
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def is_public(address: str) -> bool:
    """Whether the address is one of the public internet, also through what carries an address within.

    >>> [is_public(a) for a in ("93.184.216.34", "10.0.0.1", "127.0.0.1", "169.254.169.254", "100.64.0.1")]
    [True, False, False, False, False]
    >>> [is_public(a) for a in ("2606:4700::1111", "::1", "fe80::1%eth0", "fd00::1", "::ffff:10.0.0.1", "2002:a00:1::")]
    [True, False, False, False, False, False]
    >>> [is_public(a) for a in ("fec0::1", "3fff::1", "192.0.0.9")]
    [False, False, False]
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        carried = [found.ipv4_mapped, found.sixtofour]
        if found.teredo is not None:
            carried += found.teredo
        if found in _NAT64 or found in _IPV4_COMPATIBLE:
            carried.append(ipaddress.IPv4Address(int(found) & 0xFFFF_FFFF))
        if any(inner is not None and not is_public(str(inner)) for inner in carried):
            return False
        if found not in _UNICAST:
            return False
    if any(found in network for network in _NEAR):
        return False
    return found.is_global and not found.is_multicast and not found.is_reserved


# Global addresses are given from here only. Python takes site-local ones, which are private, for global.
_UNICAST = ipaddress.IPv6Network("2000::/3")
# Python takes these for global, or its older versions do not know them: whatever answers is near, such as the router.
_NEAR = tuple(
    ipaddress.ip_network(text) for text in ("192.0.0.0/24", "192.88.99.0/24", "2001::/23", "3fff::/20", "5f00::/16")
)

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_IPV4_COMPATIBLE = ipaddress.IPv6Network("::/96")


def what_happened(error: Exception, *, given_up: bool = False) -> str:
    """The fate of a connection, as the end of a sentence."""
    if given_up or isinstance(error, TimeoutError):
        return "did not answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"has a certificate that is not accepted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be reached: {error.strerror}"
    return f"ended the connection: {type(error).__name__}"
