"""Decide which requests reach Dagster's webserver.

Dagster 1.13.27 answers whoever asks: it runs mutations of a GET and of a text/plain POST, which any web page can send
to this machine without asking, accepts websockets of any origin, and any Host, so that a page whose name is made to
point at this machine reads the answers too. Here everything is refused that is not known to be wanted: the host must be
ours, a request that changes or reveals something must come from our own pages (or from no browser at all), and it must
have a content type that a browser never sends to a foreign server without asking it first.

Everything comes from the arguments: a request without its body, what is accepted, and the time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Literal
from urllib.parse import parse_qs

from starlette.routing import compile_path

from freshline.dagster.webserver.login import Login

# The codes of refusals, with the status that each is answered with. Their paragraphs are in docs/operations.md.
REFUSALS: Mapping[str, int] = {
    "HEADERS": 400,
    "PATH": 400,
    "BODY": 400,
    "TOKEN": 401,
    "HOST": 403,
    "ORIGIN": 403,
    "READ_ONLY": 403,
    "ROUTE": 404,
    "METHOD": 405,
    "TOO_LARGE": 413,
    "CONTENT_TYPE": 415,
}
LARGEST_BODY = 10_000_000


class Door(Enum):
    """The kind of thing behind a path, and so of a request for it."""

    PAGE = "the page of the UI and its scripts: the same for everybody, it holds nothing of the tables"
    DATA = "read with GET"
    GRAPHQL = "asked with POST of JSON, or over a websocket"
    REPORT = "written with POST of JSON"
    BOARD = "a page of the freshness board: read with GET"
    NEWS = "news of the freshness board: followed with GET"
    ACT = "decided with POST of JSON"
    CLOSED = "not served"


# The board's, which Dagster does not know of.
OWN_ROUTES: Mapping[str, Door] = {
    "/freshline/events": Door.NEWS,
    "/freshline/act": Door.ACT,
    "/freshline": Door.BOARD,
    "/freshline/{path:path}": Door.BOARD,
}
# Every route of Dagster's webserver but its static files, as it writes them and in its order.
ROUTES: Mapping[str, Door] = {
    "/server_info": Door.DATA,
    # An old name of /server_info.
    "/dagit_info": Door.CLOSED,
    "/graphql": Door.GRAPHQL,
    "/logs/{path:path}": Door.DATA,
    # These show notebooks of the code location, with whatever script is in them, as pages of the UI.
    "/notebook": Door.CLOSED,
    "/dagit/notebook": Door.CLOSED,
    "/download_debug/{run_id:str}": Door.DATA,
    "/report_asset_materialization/{asset_key:path}": Door.REPORT,
    "/report_asset_check/{asset_key:path}": Door.REPORT,
    "/report_asset_observation/{asset_key:path}": Door.REPORT,
    "/{path:path}": Door.PAGE,
    "/": Door.PAGE,
}
# Read by what reads them in the webserver, so that both find the same route.
_PATTERNS = tuple((compile_path(route)[0], door) for route, door in {**OWN_ROUTES, **ROUTES}.items())
# The doors that a person opens, also by a link of another site.
_OPENED = (Door.PAGE, Door.BOARD)
METHODS: Mapping[Door, tuple[str, ...]] = {
    Door.PAGE: ("GET", "HEAD"),
    Door.DATA: ("GET", "HEAD"),
    Door.GRAPHQL: ("GET", "POST"),
    Door.REPORT: ("POST",),
    Door.BOARD: ("GET", "HEAD"),
    Door.NEWS: ("GET",),
    Door.ACT: ("POST",),
    Door.CLOSED: (),
}

# Headers that may come only once: of two different values Dagster may take the other one.
_ONCE = (
    "host",
    "origin",
    "content-type",
    "content-length",
    "authorization",
    "sec-fetch-site",
    "sec-fetch-mode",
    "sec-fetch-dest",
)
# In lower case only: Dagster searches for it so, and runs the query of the address where it does not find it.
_JSON = re.compile(r"application/json(\s*;\s*charset=(?i:\"?utf-8\"?))?\Z")
# Starlette's routes end with `$`, which is true before a line end too: /graphql%0A would be no page.
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")


@dataclass(frozen=True)
class RequestHead:
    """A request without its body. `path` is decoded, names of headers are lower case."""

    method: str
    path: str
    query: str = ""
    headers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kind: Literal["http", "websocket"] = "http"

    def header(self, name: str) -> str | None:
        values = self.headers.get(name)
        return values[0] if values else None


@dataclass(frozen=True)
class Access:
    """The accepted hosts: names of this machine at `port`, and `hosts`, which a proxy on it may serve with https."""

    port: int
    hosts: tuple[str, ...] = ()
    login: Login | None = None
    read_only: bool = False

    @property
    def own_hosts(self) -> frozenset[str]:
        names = ("127.0.0.1", "localhost", "[::1]")
        # Browsers leave the port of http away.
        bare = names if self.port == 80 else ()
        return frozenset((*(f"{name}:{self.port}" for name in names), *bare))


@dataclass(frozen=True)
class Admit:
    """Dagster answers."""

    door: Door
    host: str


@dataclass(frozen=True)
class Refuse:
    """It is answered with the code, the sentence and the status of the code."""

    code: str
    message: str

    @property
    def status(self) -> int:
        return REFUSALS[self.code]


@dataclass(frozen=True)
class Enter:
    """The token was right: the answer is a cookie, and the way to the page without the token in its address."""


@dataclass(frozen=True)
class LoadAgain:
    """A link of another site led here, and with such a step browsers send no strict cookie.

    The answer is a page that does nothing but load its own address again; that step is ours, and brings the cookie.
    """


Answer = Admit | Refuse | Enter | LoadAgain


def decide(asked: RequestHead, access: Access, now: datetime) -> Answer:
    """How a request is answered.

    >>> now = datetime(2026, 11, 1)
    >>> page = RequestHead("GET", "/runs", headers={"host": ("localhost:3000",)})
    >>> decide(page, Access(3000), now)
    Admit(door=<Door.PAGE: ...>, host='localhost:3000')
    >>> decide(page, Access(3001), now).code
    'HOST'
    >>> decide(RequestHead("GET", "/graphql", "query=mutation{x}", page.headers), Access(3000), now).code
    'METHOD'
    """
    door = door_of(asked.path)
    host = (asked.header("host") or "").lower()
    refusal = (
        _headers(asked)
        or _host(host, access)
        or _path(asked)
        or _door(asked, door)
        or _method(asked, door)
        or _origin(asked, door, host, access)
    )
    if refusal is not None:
        return refusal
    if access.login is not None:
        entered = _login(asked, door, access.login, now)
        if entered is not None:
            return entered
    return _content(asked, door, access) or Admit(door, host)


def door_of(path: str) -> Door:
    """The door behind a decoded path.

    >>> door_of("/report_asset_check/sales/orders").value
    'written with POST of JSON'
    """
    return next((door for pattern, door in _PATTERNS if pattern.match(path)), Door.CLOSED)


def _headers(asked: RequestHead) -> Refuse | None:
    twice = [name for name in _ONCE if len(asked.headers.get(name, ())) > 1]
    if twice:
        return Refuse("HEADERS", f"the header {twice[0]} is there twice.")
    if "content-length" in asked.headers and "transfer-encoding" in asked.headers:
        return Refuse("HEADERS", "the request says its length in two ways.")
    return None


def _host(host: str, access: Access) -> Refuse | None:
    if host in access.own_hosts or host in access.hosts:
        return None
    return Refuse(
        "HOST",
        f"the UI is served as 127.0.0.1:{access.port} and localhost:{access.port}. Another name is allowed by the "
        "setting dagster-hosts.",
    )


def _path(asked: RequestHead) -> Refuse | None:
    if _CONTROL.search(asked.path) or ".." in asked.path.split("/"):
        return Refuse("PATH", "the path holds a control character, a backslash or a step upward.")
    return None


def _door(asked: RequestHead, door: Door) -> Refuse | None:
    if door is Door.CLOSED:
        return Refuse("ROUTE", f"{asked.path} is not served here; `dagster dev` serves it.")
    if asked.kind == "websocket" and door is not Door.GRAPHQL:
        return Refuse("ROUTE", "websockets are served at /graphql only.")
    return None


def _method(asked: RequestHead, door: Door) -> Refuse | None:
    if asked.kind == "websocket":
        return None
    if asked.method not in METHODS[door]:
        return Refuse("METHOD", f"{asked.path} is {door.value}.")
    # The page for writing queries by hand; everything else of a GET would be run.
    page = not asked.query and "text/html" in (asked.header("accept") or "")
    if door is Door.GRAPHQL and asked.method == "GET" and not page:
        return Refuse("METHOD", "GraphQL is asked with POST of JSON; a GET gets the page for writing queries.")
    return None


def _origin(asked: RequestHead, door: Door, host: str, access: Access) -> Refuse | None:
    own = {f"http://{host}"} | ({f"https://{host}"} if host in access.hosts else set())
    origin, site = asked.header("origin"), asked.header("sec-fetch-site")
    if asked.kind == "websocket" and origin is None:
        return Refuse("ORIGIN", f"a websocket names its origin, http://{host}.")
    if origin is not None and origin not in own:
        return Refuse("ORIGIN", "a page of another origin may not ask here.")
    reads = asked.kind == "http" and asked.method != "POST"
    # `none` is a person who typed the address; a page cannot send it.
    if site in (None, "same-origin") or (site == "none" and reads):
        return None
    if door in _OPENED and _opens(asked):
        return None
    return Refuse("ORIGIN", "a page of another site may link here, and nothing else.")


def _opens(asked: RequestHead) -> bool:
    """Whether the answer will be a page of its own: not a frame, a script, a picture or what a script reads."""
    return asked.header("sec-fetch-mode") == "navigate" and asked.header("sec-fetch-dest") == "document"


def _login(asked: RequestHead, door: Door, login: Login, now: datetime) -> Refuse | Enter | LoadAgain | None:
    offered = parse_qs(asked.query).get("token", []) if asked.method == "GET" and asked.path == "/" else []
    if offered:
        return Enter() if login.is_token(offered[-1]) else Refuse("TOKEN", "the token is wrong.")
    scheme, _, credentials = (asked.header("authorization") or "").partition(" ")
    if scheme.lower() == "bearer" and login.is_token(credentials.strip()):
        return None
    if any(login.is_cookie(value, now) for value in _cookies(asked, login.cookie_name)):
        return None
    if door in _OPENED and _opens(asked) and asked.header("sec-fetch-site") in ("cross-site", "same-site"):
        return LoadAgain()
    return Refuse("TOKEN", "open /?token=.. with the token once, or send it as Authorization: Bearer.")


def _cookies(asked: RequestHead, name: str) -> list[str]:
    pairs = [pair.strip().partition("=") for line in asked.headers.get("cookie", ()) for pair in line.split(";")]
    return [value for key, _, value in pairs if key == name]


def _content(asked: RequestHead, door: Door, access: Access) -> Refuse | None:
    if asked.method != "POST" or asked.kind == "websocket":
        return None
    if not _JSON.match(asked.header("content-type") or ""):
        return Refuse("CONTENT_TYPE", "what is posted here has Content-Type: application/json.")
    if access.read_only and door in (Door.REPORT, Door.ACT):
        return Refuse("READ_ONLY", "the UI is read-only: nothing is reported or decided through it.")
    length = asked.header("content-length")
    # Python takes digits of other scripts for digits too, and some of them for no number.
    if length is not None and not (length.isascii() and length.isdigit() and int(length[:20]) <= LARGEST_BODY):
        return too_large()
    return None


def too_large() -> Refuse:
    return Refuse("TOO_LARGE", f"a request has at most {LARGEST_BODY:,} bytes.")
