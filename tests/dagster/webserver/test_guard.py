"""The real webserver, asked by foreign pages, by the UI, by programs: what is refused, and that the rest works."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tests.dagster.served import Webserver, served

REPORT = """mutation { reportRunlessAssetEvents(eventParams: {
    eventType: ASSET_MATERIALIZATION, assetKey: {path: ["first_touch"]} }) { __typename } }"""
COUNT = (
    '{ assetNodeOrError(assetKey: {path: ["first_touch"]}) { ... on AssetNode { assetMaterializations { runId } } } }'
)
LOGS = 'subscription { pipelineRunLogs(runId: "none") { __typename } }'
JSON = {"Content-Type": "application/json"}
BODY = json.dumps({"query": REPORT}).encode()
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
EVIL = {"Origin": "http://evil.example"}
TOKEN = "0123456789abcdef"


pytestmark = [pytest.mark.security, pytest.mark.slow]  # two webservers are started


@pytest.fixture(scope="module")
def webserver(write_project, tmp_path_factory) -> Iterator[Webserver]:
    with served(write_project(tmp_path_factory.mktemp("shop"))) as webserver:
        yield webserver


@pytest.fixture(scope="module")
def closed(write_project, tmp_path_factory) -> Iterator[Webserver]:
    """A webserver with a token, read-only, and with a further host name."""
    root = write_project(tmp_path_factory.mktemp("closed"))
    with (root / "pyproject.toml").open("a") as settings:
        settings.write(
            'dagster-token = "${env:UI_TOKEN}"\ndagster-read-only = true\ndagster-hosts = ["dagster.example.com"]\n'
        )
    with served(root, token=TOKEN, UI_TOKEN=TOKEN) as webserver:
        yield webserver


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def code(self) -> str | None:
        """The code of a refusal, which has a sentence; None for another answer."""
        if self.status < 400:
            return None
        error = json.loads(self.body)["error"]
        assert error["message"].endswith(".")
        assert self.headers["Content-Type"] == "application/json"
        assert self.headers["X-Frame-Options"] == "DENY"
        assert not [name for name in self.headers if name.lower().startswith("access-control-")]
        code: str = error["code"]
        return code


def ask(
    webserver: Webserver, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
) -> Answer:
    """One request with these headers and no other ones but Host and Content-Length."""
    with closing(http.client.HTTPConnection("127.0.0.1", webserver.port, timeout=30)) as connection:
        sent = {"Host": f"127.0.0.1:{webserver.port}", **(headers or {})}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in sent.items():
            connection.putheader(name, value)
        if body and "Transfer-Encoding" not in sent:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        return Answer(connection.getresponse())


def raw(webserver: Webserver, request: str) -> str:
    """The whole answer to bytes that no client of HTTP sends."""
    with socket.create_connection(("127.0.0.1", webserver.port), timeout=30) as connection:
        connection.sendall(request.replace("\n", "\r\n").replace("PORT", str(webserver.port)).encode())
        connection.shutdown(socket.SHUT_WR)
        received = b""
        while part := connection.recv(65_536):
            received += part
    return received.decode()


def reported(webserver: Webserver) -> int:
    return len(webserver.ask(COUNT)["assetNodeOrError"]["assetMaterializations"])


QUERY = quote(REPORT)
# Requests that Dagster's own webserver runs, each of them, when a page of any site sends it; and similar ones.
FOREIGN = [
    ("GET", f"/graphql?query={QUERY}", {}, b"", "METHOD"),
    ("GET", f"/graphql?query={QUERY}", {**LINK, "Accept": "text/html"}, b"", "METHOD"),
    ("GET", f"/graphql%0A?query={QUERY}", LINK, b"", "PATH"),
    ("GET", f"/graphql%0a?query={QUERY}", {}, b"", "PATH"),
    ("HEAD", f"/graphql?query={QUERY}", {}, b"", None),
    ("POST", f"/graphql?query={QUERY}", {**EVIL, "Content-Type": "text/plain"}, b"x", "ORIGIN"),
    ("POST", f"/graphql?query={QUERY}", {"Content-Type": "text/plain"}, b"x", "CONTENT_TYPE"),
    ("POST", f"/graphql?query={QUERY}", {}, b"", "CONTENT_TYPE"),
    ("POST", "/graphql", {"Content-Type": "text/plain; application/json"}, BODY, "CONTENT_TYPE"),
    ("POST", "/graphql", {"Content-Type": "text/plain;a=application/json"}, BODY, "CONTENT_TYPE"),
    ("POST", "/graphql", {"Content-Type": "application/graphql"}, REPORT.encode(), "CONTENT_TYPE"),
    ("POST", "/graphql", {"Content-Type": "application/x-www-form-urlencoded"}, b"query=" + BODY, "CONTENT_TYPE"),
    ("POST", "/graphql", {"Content-Type": "multipart/form-data; boundary=x"}, b"--x\r\n", "CONTENT_TYPE"),
    ("POST", "/graphql", {**EVIL, **JSON}, BODY, "ORIGIN"),
    ("POST", "/graphql", {"Origin": "null", **JSON}, BODY, "ORIGIN"),
    ("POST", "/graphql", {"Sec-Fetch-Site": "cross-site", **JSON}, BODY, "ORIGIN"),
    ("POST", "/graphql", {"Sec-Fetch-Site": "same-site", **JSON}, BODY, "ORIGIN"),
    ("POST", "/graphql", {"Host": "evil.example", **JSON}, BODY, "HOST"),
    ("POST", "/graphql", {"Host": "127.0.0.1", **JSON}, BODY, "HOST"),
    ("POST", "/graphql", {"Host": "dagster.example.com", **JSON}, BODY, "HOST"),
    ("POST", "/graphql", {"Host": "evil.example", "X-Forwarded-Host": "127.0.0.1", **JSON}, BODY, "HOST"),
    ("POST", "/graphql/", JSON, BODY, "METHOD"),
    ("POST", "/", JSON, BODY, "METHOD"),
    ("PUT", "/graphql", JSON, BODY, "METHOD"),
    ("OPTIONS", "/graphql", {**EVIL, "Access-Control-Request-Method": "POST"}, b"", "METHOD"),
    ("TRACE", "/", {}, b"", "METHOD"),
    ("POST", "/graphql", JSON, b"[" + BODY + b"]", "BODY"),
    ("POST", "/graphql", JSON, b"{", "BODY"),
    ("POST", "/graphql", JSON, b"{}", "BODY"),
    ("POST", "/report_asset_materialization/first_touch", EVIL, b"", "ORIGIN"),
    ("POST", "/report_asset_materialization/first_touch", {}, b"", "CONTENT_TYPE"),
    (
        "POST",
        "/report_asset_materialization/first_touch?partition=a",
        {"Content-Type": "text/plain"},
        b"x",
        "CONTENT_TYPE",
    ),
    ("POST", "/report_asset_materialization/first_touch", {**EVIL, **JSON}, b"{}", "ORIGIN"),
    ("POST", "/report_asset_materialization/first_touch", JSON, b"[]", "BODY"),
    ("GET", "/report_asset_materialization/first_touch", {}, b"", "METHOD"),
    ("POST", "/report_asset_check/first_touch?check_name=freshness&passed=true", EVIL, b"", "ORIGIN"),
    ("POST", "/report_asset_observation/first_touch", EVIL, b"", "ORIGIN"),
    ("GET", "/server_info", {"Host": "evil.example"}, b"", "HOST"),
    ("GET", "/server_info", EVIL, b"", "ORIGIN"),
    ("GET", "/logs/a/compute_logs/b.out", LINK, b"", "ORIGIN"),
    ("GET", "/logs/%2e%2e/%2e%2e/dagster.yaml", {}, b"", "PATH"),
    ("GET", "/logs/../../dagster.yaml", {}, b"", "PATH"),
    ("GET", "/download_debug/a", LINK, b"", "ORIGIN"),
    ("GET", "/notebook?path=/x.ipynb&repoLocName=freshline", {}, b"", "ROUTE"),
    ("GET", "/dagit/notebook", {}, b"", "ROUTE"),
    ("GET", "/dagit_info", {}, b"", "ROUTE"),
    ("GET", "/", {"Host": "evil.example"}, b"", "HOST"),
    ("GET", "/", {**LINK, "Sec-Fetch-Dest": "iframe"}, b"", "ORIGIN"),
    ("GET", "/", EVIL, b"", "ORIGIN"),
    ("GET", "/favicon.png", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, b"", "ORIGIN"),
]


def test_requests_that_foreign_pages_send_are_refused_one_by_one_and_nothing_comes_of_them(webserver):
    before = reported(webserver)

    answers = [
        (method, path, headers, ask(webserver, method, path, headers, body))
        for method, path, headers, body, _ in FOREIGN
    ]

    told = [(m, p, h, answer.status if m == "HEAD" else answer.code) for m, p, h, answer in answers]
    assert told == [(m, p, h, 405 if m == "HEAD" else code) for m, p, h, _, code in FOREIGN]
    assert reported(webserver) == before


POST = "POST /graphql HTTP/1.1\nHost: 127.0.0.1:PORT\nContent-Type: application/json\n"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        ("GET /server_info HTTP/1.0\n\n", "403"),
        ("GET /server_info HTTP/1.1\n\n", "400"),
        ("GET /server_info HTTP/1.1\nHost: 127.0.0.1:PORT\nHost: evil.example\n\n", "400"),
        ("GET http://evil.example/server_info HTTP/1.1\nHost: evil.example\n\n", "403"),
        (f"{POST}Content-Type: text/plain\nContent-Length: 2\n\n{{}}", "400"),
        (f"{POST}Origin: http://127.0.0.1:PORT\nOrigin: http://evil.example\nContent-Length: 2\n\n{{}}", "400"),
        (f"{POST}Content-Length: 10000001\n\n{{}}", "413"),
        (f"{POST}Content-Length: 2\nTransfer-Encoding: chunked\n\n{{}}", "400"),
    ],
)
def test_a_request_that_no_client_sends_is_refused(webserver, request_text, status):
    assert raw(webserver, request_text).split(" ")[1] == status


def test_a_body_without_an_announced_length_is_bounded_too(webserver):
    chunk = b"%x\r\n%s\r\n" % (1_000_000, b" " * 1_000_000)
    with closing(http.client.HTTPConnection("127.0.0.1", webserver.port, timeout=30)) as connection:
        connection.putrequest("POST", "/graphql")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        for _ in range(10):
            connection.send(chunk)
        connection.send(b"1\r\n \r\n")

        assert Answer(connection.getresponse()).code == "TOO_LARGE"


def test_the_pages_of_the_ui_load_and_are_framed_by_nobody(webserver):
    page = ask(webserver, "GET", "/asset-groups", LINK)

    assert page.status == 200
    assert b'id="__next"' in page.body
    policies = page.headers.get_all("Content-Security-Policy") or []
    assert len(policies) == 2
    assert "frame-ancestors 'none'" in policies[1]
    assert f"connect-src 'self' ws://127.0.0.1:{webserver.port};" in policies[1]
    assert page.headers["X-Frame-Options"] == "DENY"
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert page.headers["Referrer-Policy"] == "same-origin"
    script = page.body.split(b' src="')[1].split(b'"')[0].decode()
    assert ask(webserver, "GET", script, {"Sec-Fetch-Site": "same-origin"}).status == 200
    queries = ask(webserver, "GET", "/graphql", {"Accept": "text/html"})
    assert b"GraphiQL" in queries.body
    assert "default-src 'none'" in queries.headers["Content-Security-Policy"]


def test_the_ui_and_programs_ask_and_change(webserver):
    own = {"Origin": webserver.url, "Sec-Fetch-Site": "same-origin", **JSON}
    before = reported(webserver)

    assert json.loads(ask(webserver, "POST", "/graphql", own, b'{"query": "{ version }"}').body)["data"]["version"]
    assert ask(webserver, "POST", "/graphql", own, BODY).status == 200
    assert ask(webserver, "POST", "/graphql", JSON, BODY).status == 200
    assert ask(webserver, "POST", "/report_asset_materialization/first_touch", JSON, b"{}").status == 200

    assert reported(webserver) == before + 3


def test_the_answer_to_a_query_is_read_by_nobody_else_and_kept_nowhere(webserver):
    answer = ask(webserver, "POST", "/graphql", JSON, b'{"query": "{ version }"}')

    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers


def subscribe(
    webserver: Webserver, query: str, *, origin: str, headers: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The first message that a query over a websocket brings."""
    address = webserver.url.replace("http://", "ws://") + "/graphql"
    protocol = Subprotocol("graphql-ws")
    with connect(
        address, subprotocols=[protocol], open_timeout=10, origin=Origin(origin), additional_headers=headers
    ) as client:
        client.send(json.dumps({"type": "connection_init"}))
        assert json.loads(client.recv(10)) == {"type": "connection_ack"}
        client.send(json.dumps({"type": "start", "id": "1", "payload": {"query": query}}))
        message: dict[str, Any] = json.loads(client.recv(10))
    return message


def test_live_logs_come_over_a_websocket_of_our_own_pages(webserver):
    message = subscribe(webserver, LOGS, origin=webserver.url)

    assert message["type"] == "data"
    assert message["payload"]["data"] == {"pipelineRunLogs": {"__typename": "PipelineRunLogsSubscriptionFailure"}}


def test_a_websocket_changes_nothing(webserver):
    before = reported(webserver)

    message = subscribe(webserver, REPORT, origin=webserver.url)

    assert message["type"] == "error"
    assert reported(webserver) == before


@pytest.mark.parametrize(
    ("options", "path", "code"),
    [
        ({"origin": "http://evil.example"}, "/graphql", "ORIGIN"),
        ({"origin": "null"}, "/graphql", "ORIGIN"),
        ({}, "/graphql", "ORIGIN"),
        ({"origin": "http://localhost:{port}"}, "/graphql", "ORIGIN"),
        (
            {"origin": "http://127.0.0.1:{port}", "additional_headers": {"Sec-Fetch-Site": "cross-site"}},
            "/graphql",
            "ORIGIN",
        ),
        ({"origin": "http://127.0.0.1:{port}"}, "/logs/a", "ROUTE"),
        ({"origin": "http://127.0.0.1:{port}"}, "/", "ROUTE"),
    ],
)
def test_other_websockets_are_refused(webserver, options, path, code):
    given: dict[str, Any] = {
        key: value.format(port=webserver.port) if isinstance(value, str) else value for key, value in options.items()
    }

    with pytest.raises(InvalidStatus) as raised:
        connect(f"ws://127.0.0.1:{webserver.port}{path}", open_timeout=10, **given)

    assert json.loads(raised.value.response.body)["error"]["code"] == code


def test_a_websocket_of_a_rebound_name_is_refused(webserver):
    address = f"evil.example:{webserver.port}"
    with socket.create_connection(("127.0.0.1", webserver.port)) as connection, pytest.raises(InvalidStatus) as raised:
        connect(f"ws://{address}/graphql", sock=connection, origin=Origin(f"http://{address}"), open_timeout=10)

    assert json.loads(raised.value.response.body)["error"]["code"] == "HOST"


def test_with_a_token_nothing_is_answered_without_it(closed):
    for method, path in (("GET", "/"), ("GET", "/favicon.png"), ("GET", "/server_info"), ("POST", "/graphql")):
        answer = ask(closed, method, path, JSON, b'{"query": "{ version }"}' if method == "POST" else b"")
        assert answer.code == "TOKEN"
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert ask(closed, "GET", "/?token=wrong").code == "TOKEN"
    assert ask(closed, "GET", "/server_info", {"Authorization": f"Bearer {TOKEN}x"}).code == "TOKEN"
    assert ask(closed, "GET", "/server_info", {"Authorization": f"Bearer {TOKEN}"}).status == 200
    with pytest.raises(InvalidStatus) as raised:
        subscribe(closed, LOGS, origin=closed.url)
    assert raised.value.response.status_code == 401


def test_who_opens_the_page_with_the_token_has_a_cookie_from_then_on(closed):
    entered = ask(closed, "GET", f"/?token={TOKEN}", LINK)

    assert (entered.status, entered.headers["Location"]) == (303, "/")
    cookie, *rest = entered.headers["Set-Cookie"].split("; ")
    assert {part.lower() for part in rest} >= {"httponly", "samesite=strict", "path=/", "max-age=2592000"}
    assert TOKEN not in cookie
    assert ask(closed, "GET", "/", {"Cookie": cookie}).status == 200
    assert ask(closed, "POST", "/graphql", {"Cookie": cookie, **JSON}, b'{"query": "{ version }"}').status == 200
    assert subscribe(closed, LOGS, origin=closed.url, headers={"Cookie": cookie})["type"] == "data"
    assert ask(closed, "POST", "/graphql", {"Cookie": cookie, **JSON, **EVIL}, BODY).code == "ORIGIN"
    again = ask(closed, "GET", "/runs", LINK)
    assert (again.status, b'http-equiv="refresh"' in again.body) == (200, True)


def test_read_only_shows_everything_and_changes_nothing(closed):
    entry = {"Authorization": f"Bearer {TOKEN}", **JSON}

    assert closed.ask("{ permissions { permission value } }")
    assert ask(closed, "POST", "/graphql", entry, BODY).code == "READ_ONLY"
    both = json.dumps({"query": f"query Q {{ version }} {REPORT}", "operationName": "Q"}).encode()
    assert ask(closed, "POST", "/graphql", entry, both).code == "READ_ONLY"
    hidden = ask(closed, "POST", f"/graphql?query={QUERY}", entry, b'{"query": "{ version }"}')
    assert "version" in json.loads(hidden.body)["data"]
    written = {**entry, "Content-Type": "Application/JSON"}
    assert ask(closed, "POST", f"/graphql?query={QUERY}", written, b'{"query": "{ version }"}').code == "CONTENT_TYPE"
    for kind in ("materialization", "check", "observation"):
        assert ask(closed, "POST", f"/report_asset_{kind}/first_touch", entry, b"{}").code == "READ_ONLY"
    assert reported(closed) == 0
    # Dagster knows it too, so that the UI shows no buttons.
    allowed = {
        entry["permission"]: entry["value"]
        for entry in closed.ask("{ permissions { permission value } }")["permissions"]
    }
    assert not allowed["launch_pipeline_execution"]


@pytest.mark.long
def test_a_proxy_with_https_is_served_under_its_name(closed):
    headers = {"Host": "dagster.example.com", "Authorization": f"Bearer {TOKEN}", **JSON}
    query = b'{"query": "{ version }"}'

    assert ask(closed, "POST", "/graphql", {**headers, "Origin": "https://dagster.example.com"}, query).status == 200
    assert ask(closed, "POST", "/graphql", {**headers, "Origin": "https://evil.example"}, query).code == "ORIGIN"
    page = ask(closed, "GET", "/", headers)
    policies = page.headers.get_all("Content-Security-Policy") or []
    assert "wss://dagster.example.com" in policies[1]


def test_the_board_is_served_beside_dagster_and_by_the_same_rules(webserver, closed):
    for path in ("/freshline/", "/freshline/table/first_touch"):
        answer = ask(webserver, "GET", path)
        assert answer.status == 200
        assert b"first_touch" in answer.body
        assert "script-src 'sha256-" in answer.headers["Content-Security-Policy"]
        assert ask(webserver, "GET", path, EVIL).code == "ORIGIN"
        assert ask(closed, "GET", path).code == "TOKEN"
        assert ask(closed, "GET", path, {"Authorization": f"Bearer {TOKEN}"}).status == 200
