"""Requests to a system with an interface of HTTP, over one connection that is kept.

A request that finds the system away or busy is sent again for a bounded time, with growing waits, to each of its hosts
in turn: whoever uses this sends only requests that may be carried out twice. Redirects are not followed, and proxies of
the environment are not used, because either would take a password elsewhere. No error has a header of a request.
"""

from __future__ import annotations

import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from freshline.errors import SinkError, SinkRefusedError
from freshline.sources.tls import TlsFiles, tls_context

# Statuses of a system, or of a proxy before it, that is away or has too much to do.
AWAY = (408, 425, 429, 502, 503, 504)
# Reasons of OpenSSL, which differ by its version, for an answer that is none of TLS.
_NOT_TLS = (
    "WRONG_VERSION_NUMBER",
    "PACKET_LENGTH_TOO_LONG",
    "RECORD_LAYER_FAILURE",
    "UNKNOWN_PROTOCOL",
    "HTTP_REQUEST",
)
# Parts of its reasons where the other side refuses a certificate, or requires one.
_OF_CERTIFICATES = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
_PIECE = 1 << 18


@dataclass(frozen=True)
class Host:
    """One address of a system; `path` comes before that of each request."""

    scheme: str
    name: str
    port: int
    path: str

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"{self.scheme}://{name}:{self.port}{self.path}"


@dataclass(frozen=True)
class Patience:
    """How long an answer may take, how long a request is repeated, and the waits between. All in seconds."""

    answer: float = 30.0
    whole: float = 60.0
    first_wait: float = 0.1
    longest_wait: float = 5.0


PATIENCE = Patience()


@dataclass(frozen=True)
class Answer:
    """A status, its headers with names in lower case, and the whole body."""

    status: int
    body: bytes
    headers: Mapping[str, str]


def read_hosts(text: str, ports: Mapping[str, int]) -> tuple[Host, ...]:
    """The hosts of an option, with commas between them; `ports` are those of addresses that have none.

    Raises ValueError with a sentence that has no secret.

    >>> read_hosts("https://a, https://b:1/x/", {"http": 80, "https": 443})[1].path
    '/x'
    """
    hosts = []
    for part in text.split(","):
        try:
            parts = urlsplit(part.strip())
            port = parts.port
        except ValueError as error:
            raise ValueError("it is no address, such as https://host:9200") from error
        if parts.username is not None or parts.password is not None:
            raise ValueError("it has a user. Name it in 'username', and a reference to its password in 'password'")
        if parts.scheme not in ports or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("it is no address, such as https://host:9200")
        hosts.append(Host(parts.scheme, parts.hostname, port or ports[parts.scheme], parts.path.rstrip("/")))
    return tuple(hosts)


class HttpClient:
    """Sends requests to one of the hosts of a system.

    `title` names the system in errors, `where` the sink. `headers` gives those with secrets, for each request anew.
    """

    def __init__(
        self,
        hosts: tuple[Host, ...],
        tls: TlsFiles,
        headers: Callable[[], Mapping[str, str]],
        *,
        title: str,
        where: str,
        patience: Patience = PATIENCE,
    ) -> None:
        self._hosts = hosts
        self._tls = tls
        self._headers = headers
        self._title = title
        self._where = where
        self.patience = patience
        self._current = 0
        self._connection: http.client.HTTPConnection | None = None

    @property
    def host(self) -> Host:
        """The host that the next request goes to."""
        return self._hosts[self._current]

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        is_away: Callable[[Answer], bool] = lambda answer: answer.status in AWAY,
    ) -> Answer:
        """The answer; one that `is_away` is waited for.

        Raises SinkError when the time is over, and SinkRefusedError for a refused certificate, password or address.
        """
        until, wait = time.monotonic() + self.patience.whole, self.patience.first_wait
        while True:
            try:
                answer = self._ask_once(method, path, body, headers or {})
                if not is_away(answer):
                    return self._allowed(answer)
                problem = f"it answers {answer.status}"
                self._next_host()
            except (OSError, http.client.HTTPException) as error:
                if (mistake := self._mistake(error)) is not None:
                    raise SinkRefusedError(mistake, where=self._where) from error
                problem = _name(error)
                if self.host.scheme == "http" and isinstance(error, ConnectionResetError):
                    problem += ", as by a system with TLS, whose address begins with https"
                self._next_host()
            if time.monotonic() + wait > until:
                raise self.away(problem)
            time.sleep(wait)
            wait = min(wait * 2, self.patience.longest_wait)

    def away(self, problem: str) -> SinkError:
        """The error for a system that is away or busy."""
        hosts = ", ".join(map(str, self._hosts))
        return SinkError(
            f"{self._title} at {hosts} does not do its work: {problem}. It was asked for "
            f"{self.patience.whole:g} seconds, and is asked again with the next refresh.",
            where=self._where,
        )

    def _mistake(self, error: Exception) -> str | None:
        """The sentence for an error that no waiting helps, None for others."""
        if isinstance(error, ssl.SSLCertVerificationError):
            return (
                f"the certificate of {self._title} at {self.host} is not accepted: {error.verify_message}. "
                "Set tls.ca to the certificates that it is checked by."
            )
        if isinstance(error, ssl.SSLError):
            reason = str(error.reason or "")
            if reason in _NOT_TLS:
                return f"{self.host} does not speak TLS. Write the port that does, or http in the place of https."
            if "ALERT" in reason and any(each in reason for each in _OF_CERTIFICATES):
                return (
                    f"{self._title} at {self.host} ends the handshake of TLS: {reason.lower().replace('_', ' ')}. "
                    "Correct tls.certificate and tls.key."
                )
        # A connection that ends without an answer is one of these too.
        if isinstance(error, http.client.BadStatusLine) and not isinstance(error, http.client.RemoteDisconnected):
            return f"{self.host} does not speak HTTP. Write the port that does in the option 'url'."
        return None

    def _next_host(self) -> None:
        self.close()
        self._current = (self._current + 1) % len(self._hosts)

    def _allowed(self, answer: Answer) -> Answer:
        if answer.status == 401:
            raise SinkRefusedError(
                f"{self._title} at {self.host} refuses the user or its password (401). Correct them.",
                where=self._where,
            )
        if 300 <= answer.status < 400:
            raise SinkRefusedError(
                f"{self.host} answers {answer.status}, a redirect, which is not followed: it would take a password "
                "elsewhere. Set the option 'url' to the system itself.",
                where=self._where,
            )
        return answer

    def _ask_once(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        until = time.monotonic() + self.patience.answer
        sent = {"User-Agent": "freshline", **self._headers(), **headers}
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request(method, self.host.path + path, body, sent)
        answer = self._connection.getresponse()
        pieces = []
        while piece := answer.read(_PIECE):
            pieces.append(piece)
            if time.monotonic() > until:
                raise TimeoutError
        if answer.length:
            raise http.client.IncompleteRead(b"")
        if answer.will_close:
            self.close()
        return Answer(answer.status, b"".join(pieces), {name.lower(): value for name, value in answer.getheaders()})

    def _connect(self) -> http.client.HTTPConnection:
        host, seconds = self.host, self.patience.answer
        if host.scheme == "http":
            return http.client.HTTPConnection(host.name, host.port, timeout=seconds)
        try:
            context = tls_context(self._tls.tls_ca, self._tls.tls_certificate, self._tls.tls_key)
        except (OSError, ValueError) as error:
            raise SinkRefusedError(
                "the files of tls.ca, tls.certificate and tls.key cannot be used: "
                f"{getattr(error, 'strerror', None) or type(error).__name__}. Correct them.",
                where=self._where,
            ) from error
        return http.client.HTTPSConnection(host.name, host.port, timeout=seconds, context=context)


def _name(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "an answer takes too long"
    if isinstance(error, http.client.RemoteDisconnected):
        return "it ends the connection without an answer"
    return error.strerror.lower() if isinstance(error, OSError) and error.strerror else type(error).__name__
