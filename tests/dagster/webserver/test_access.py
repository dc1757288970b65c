"""The requests that the guard lets through: the decision alone, for every kind of route."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from dagster_webserver.webserver import DagsterWebserver
from starlette.routing import Match, Mount

from freshline.dagster.webserver.access import (
    LARGEST_BODY,
    ROUTES,
    Access,
    Door,
    Refuse,
    RequestHead,
    decide,
    door_of,
)
from freshline.dagster.webserver.login import LASTS, Login

pytestmark = pytest.mark.security

NOW = datetime(2026, 11, 1, tzinfo=UTC)
TOKEN = "0123456789abcdef"
LOGIN = Login(TOKEN, 3000)
OPEN = Access(3000)
OWN = "http://127.0.0.1:3000"
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
FETCH = {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}
JSON = {"content-type": "application/json"}


def told(method, path, headers=None, *, query="", access=OPEN, now=NOW, kind="http", host="127.0.0.1:3000"):
    """The answer, as a word: a code, or the name of its class."""
    given = {"host": host, **(headers or {})}
    values = {name: value if isinstance(value, tuple) else (value,) for name, value in given.items()}
    answer = decide(RequestHead(method, path, query, values, kind), access, now)
    return answer.code if isinstance(answer, Refuse) else type(answer).__name__


@pytest.fixture(scope="module")
def routes():
    # Its routes are the same without a workspace to serve.
    return DagsterWebserver(None).build_routes()  # type: ignore[type-var]


def test_the_routes_are_those_of_the_pinned_dagster_in_its_order(routes):
    static = {route.path for route in routes if getattr(route, "name", "").endswith("static")}

    assert [path for path in dict.fromkeys(route.path for route in routes) if path not in static] == list(ROUTES)
    assert {door_of(path) for path in static} == {Door.PAGE}


@pytest.mark.parametrize(
    "path",
    """/ // /runs /graphql /graphql/ /graphql/x //graphql /GraphQL /logs /logs/ /logs/a/b /logsx /notebook /notebook/
    /download_debug /download_debug/ /download_debug/a /download_debug/a/b /report_asset_check /report_asset_check/
    /report_asset_check/a/b /report_asset_materialization/a /report_asset_observation/a /dagit/notebook /dagit_info
    /server_info /server_info/ /_next/x /vendor/graphiql/x.js /favicon.png /assets/report_asset_check/a""".split(),
)
def test_the_guard_finds_the_route_that_dagster_finds(routes, path):
    scope = {"type": "http", "method": "GET", "path": path, "headers": [], "root_path": ""}
    found = next(route for route in routes if route.matches(scope)[0] is not Match.NONE)

    expected = Door.PAGE if isinstance(found, Mount) else ROUTES.get(found.path, Door.PAGE)
    assert door_of(path) is expected


def test_a_line_end_after_a_path_is_the_same_route_to_dagster(routes):
    scope = {"type": "http", "method": "GET", "path": "/graphql\n", "headers": [], "root_path": ""}

    assert next(route.path for route in routes if route.matches(scope)[0] is not Match.NONE) == "/graphql"
    assert door_of("/graphql\n") is Door.GRAPHQL


@pytest.mark.parametrize("host", ["127.0.0.1:3000", "localhost:3000", "LOCALHOST:3000", "[::1]:3000"])
def test_the_ui_has_the_names_of_this_machine(host):
    assert told("GET", "/runs", host=host) == "Admit"


@pytest.mark.parametrize(
    "host",
    "evil.example:3000 127.0.0.1 127.0.0.1:3001 localhost localhost:3000.evil.example 0.0.0.0:3000 :3000 "
    "127.0.0.1.nip.io:3000 localhost:3000@evil.example".split(),
)
@pytest.mark.parametrize("path", ["/", "/_next/x.js", "/server_info", "/graphql", "/logs/a"])
def test_no_route_answers_under_another_name(host, path):
    assert told("GET", path, host=host) == "HOST"
    assert told("POST", path, JSON, host=host) == "HOST"


def test_a_request_without_a_host_is_refused():
    answer = decide(RequestHead("GET", "/"), Access(3000), NOW)

    assert isinstance(answer, Refuse)
    assert answer.code == "HOST"


def test_a_name_of_the_setting_is_served_with_and_without_https():
    access = Access(3000, hosts=("dagster.example.com",))
    for scheme in ("http", "https"):
        headers = {**JSON, **FETCH, "origin": f"{scheme}://dagster.example.com"}
        assert told("POST", "/graphql", headers, host="dagster.example.com", access=access) == "Admit"
    assert told("POST", "/graphql", {**JSON, "origin": "https://127.0.0.1:3000"}, access=access) == "ORIGIN"
    assert told("GET", "/", host="dagster.example.com:3000", access=access) == "HOST"


def test_at_the_port_of_http_the_port_may_be_missing():
    assert told("GET", "/", access=Access(80), host="localhost") == "Admit"
    assert told("GET", "/", host="localhost") == "HOST"


@pytest.mark.parametrize(
    "path", ["/graphql\n", "/graphql\r\n", "/logs/../../x", "/..", "/a/..", "/logs/a\\..\\b", "/\x00", "/a\x7f"]
)
def test_a_path_that_two_readers_could_read_in_two_ways_is_refused(path):
    assert told("GET", path) == "PATH"


def test_a_header_that_is_there_twice_is_refused():
    for name, values in {
        "host": ("127.0.0.1:3000", "evil.example"),
        "origin": (OWN, OWN),
        "content-type": ("application/json", "text/plain"),
        "content-length": ("1", "2"),
        "sec-fetch-site": ("same-origin", "cross-site"),
        "authorization": ("Bearer a", "Bearer b"),
    }.items():
        assert told("POST", "/graphql", {**JSON, name: values}) == "HEADERS"
    assert told("POST", "/graphql", {**JSON, "content-length": "2", "transfer-encoding": "chunked"}) == "HEADERS"


DATA = ["/server_info", "/logs/a/b.out", "/download_debug/a"]
REPORTS = [f"/report_asset_{kind}/a" for kind in ("materialization", "check", "observation")]

ACT = "/freshline/act"
BOARD = ["/freshline", "/freshline/", "/freshline/table/shop.spend", "/freshline/table/a/b", "/freshline/x"]


@pytest.mark.parametrize(
    ("path", "accepted"),
    [
        *((path, {"GET", "HEAD"}) for path in ["/", "/runs", "/assets/a", "/_next/a.js", *DATA]),
        *((path, {"GET", "HEAD"}) for path in BOARD),
        ("/freshline/events", {"GET"}),
        *((path, {"POST"}) for path in ["/graphql", *REPORTS, ACT]),
    ],
)
def test_each_route_has_its_methods(path, accepted):
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "PROPFIND"]

    assert {method for method in methods if told(method, path, JSON) == "Admit"} == accepted
    assert {told(method, path, JSON) for method in methods if method not in accepted} == {"METHOD"}


@pytest.mark.parametrize("path", ["/notebook", "/dagit/notebook", "/dagit_info"])
def test_a_route_that_the_ui_does_not_need_is_not_served(path):
    assert told("GET", path) == "ROUTE"
    assert told("POST", path, JSON) == "ROUTE"


def test_graphql_over_get_is_the_page_for_writing_queries_only():
    page = {"accept": "text/html,*/*"}

    assert told("GET", "/graphql", page) == "Admit"
    assert told("GET", "/graphql", {**page, "sec-fetch-site": "same-origin"}) == "Admit"
    assert told("GET", "/graphql", {**page, **LINK}) == "ORIGIN"
    for query in ("query=mutation{x}", "query={version}", "operationName=x", "x"):
        assert told("GET", "/graphql", query=query) == "METHOD"
        assert told("GET", "/graphql", page, query=query) == "METHOD"
    assert told("GET", "/graphql", {"accept": "application/json"}) == "METHOD"


@pytest.mark.parametrize("path", ["/graphql", *REPORTS, ACT])
def test_a_body_that_is_posted_is_json_and_says_so(path):
    for accepted in ("application/json", "application/json; charset=utf-8", "application/json;charset=UTF-8"):
        assert told("POST", path, {"content-type": accepted}) == "Admit"
    for refused in (
        "text/plain",
        "text/plain; application/json",
        "text/plain;x=application/json",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=application/json",
        "application/graphql",
        "application/json, text/plain",
        "application/json; x=y",
        "application/jsonx",
        # Dagster would not see what it is, and run the query of the address.
        "Application/JSON",
        "application/json\n",
        "",
    ):
        assert told("POST", path, {"content-type": refused}) == "CONTENT_TYPE"
    assert told("POST", path) == "CONTENT_TYPE"


@pytest.mark.parametrize("path", ["/graphql", *REPORTS, ACT])
def test_a_post_comes_from_our_pages_or_from_no_browser(path):
    assert told("POST", path, JSON) == "Admit"
    assert told("POST", path, {**JSON, **FETCH, "origin": OWN}) == "Admit"
    for origin in (
        "null",
        "",
        "http://evil.example",
        "http://localhost:3000",
        "http://127.0.0.1:8000",
        "http://127.0.0.1",
        "https://127.0.0.1:3000",
        "http://127.0.0.1:3000.evil.example",
        "HTTP://127.0.0.1:3000/",
    ):
        assert told("POST", path, {**JSON, "origin": origin}) == "ORIGIN"
    for site in ("cross-site", "same-site", "none", "", "other"):
        assert told("POST", path, {**JSON, "origin": OWN, "sec-fetch-site": site}) == "ORIGIN"
    assert told("POST", path, {**JSON, **LINK}) == "ORIGIN"


@pytest.mark.parametrize("path", [*DATA, "/freshline/events"])
def test_data_is_not_given_to_other_sites(path):
    assert told("GET", path) == "Admit"
    assert told("GET", path, FETCH) == "Admit"
    assert told("GET", path, {**LINK, "sec-fetch-site": "none"}) == "Admit"
    for headers in (LINK, {**FETCH, "sec-fetch-site": "same-site"}, {"origin": "http://evil.example"}):
        assert told("GET", path, headers) == "ORIGIN"


@pytest.mark.parametrize("path", BOARD)
def test_the_board_is_a_page_that_others_may_link_to(path):
    assert door_of(path) is Door.BOARD
    assert told("GET", path, LINK) == "Admit"
    assert told("GET", path, {**LINK, "sec-fetch-dest": "iframe"}) == "ORIGIN"
    assert told("GET", path, {**FETCH, "sec-fetch-site": "cross-site"}) == "ORIGIN"
    assert told("GET", path, kind="websocket", headers={"origin": OWN}) == "ROUTE"
    closed = Access(3000, login=LOGIN)
    assert told("GET", path, access=closed) == "TOKEN"
    assert told("GET", path, LINK, access=closed) == "LoadAgain"
    assert told("GET", path, query=f"token={TOKEN}", access=closed) == "TOKEN"


@pytest.mark.parametrize("path", ["/freshlines", "/Freshline/", "/freshlineevents", "//freshline/"])
def test_a_path_that_only_resembles_the_board_is_dagsters(path):
    assert door_of(path) is Door.PAGE


def test_another_site_may_link_to_a_page_and_nothing_else():
    assert told("GET", "/runs", LINK) == "Admit"
    assert told("GET", "/runs", {**LINK, "sec-fetch-site": "same-site"}) == "Admit"
    for changed in (
        {"sec-fetch-dest": "iframe"},
        {"sec-fetch-dest": "script", "sec-fetch-mode": "no-cors"},
        {"sec-fetch-dest": "empty", "sec-fetch-mode": "cors"},
        {"sec-fetch-dest": "document", "sec-fetch-mode": "no-cors"},
        {"origin": "http://evil.example"},
    ):
        assert told("GET", "/runs", {**LINK, **changed}) == "ORIGIN"
        assert told("GET", "/_next/a.js", {**LINK, **changed}) == "ORIGIN"


def test_a_websocket_names_our_origin_and_is_served_at_one_place():
    assert told("GET", "/graphql", {"origin": OWN}, kind="websocket") == "Admit"
    assert told("GET", "/graphql", {"origin": OWN, "sec-fetch-site": "same-origin"}, kind="websocket") == "Admit"
    assert told("GET", "/graphql", kind="websocket") == "ORIGIN"
    assert told("GET", "/graphql", {"origin": "http://evil.example"}, kind="websocket") == "ORIGIN"
    assert told("GET", "/graphql", {"origin": "http://localhost:3000"}, kind="websocket") == "ORIGIN"
    assert told("GET", "/graphql", {"origin": "null"}, kind="websocket") == "ORIGIN"
    assert told("GET", "/graphql", {"origin": OWN, "sec-fetch-site": "same-site"}, kind="websocket") == "ORIGIN"
    assert told("GET", "/graphql", {"origin": OWN}, kind="websocket", host="evil.example") == "HOST"
    assert told("GET", "/", {"origin": OWN}, kind="websocket") == "ROUTE"
    assert told("GET", "/logs/a", {"origin": OWN}, kind="websocket") == "ROUTE"


def test_a_body_that_says_it_is_too_large_is_refused():
    for length, answer in {"0": "Admit", str(LARGEST_BODY): "Admit", str(LARGEST_BODY + 1): "TOO_LARGE"}.items():
        assert told("POST", "/graphql", {**JSON, "content-length": length}) == answer
    assert told("POST", "/graphql", {**JSON, "content-length": "-1"}) == "TOO_LARGE"


ASKING = Access(3000, login=LOGIN)
COOKIE = f"{LOGIN.cookie_name}={LOGIN.cookie(NOW)}"


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/"), ("GET", "/_next/a.js"), ("GET", "/logs/a"), ("POST", "/graphql")]
)
def test_with_a_token_nothing_answers_without_it(method, path):
    assert told(method, path, JSON, access=ASKING) == "TOKEN"
    for given in (
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": f"bearer  {TOKEN}"},
        {"cookie": COOKIE},
        {"cookie": f"a=b; {COOKIE}; c"},
        {"cookie": ("a=b", f"{LOGIN.cookie_name}=x; {COOKIE}")},
    ):
        assert told(method, path, {**JSON, **given}, access=ASKING) == "Admit"
    for given in (
        {"authorization": TOKEN},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {TOKEN}x"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer ä"},
        {"cookie": f"{LOGIN.cookie_name}={TOKEN}"},
        {"cookie": f"x{COOKIE}"},
        {"cookie": f"{COOKIE}0"},
    ):
        assert told(method, path, {**JSON, **given}, access=ASKING) == "TOKEN"


def test_the_right_token_does_not_help_another_site():
    given = {**JSON, "cookie": COOKIE, "authorization": f"Bearer {TOKEN}"}

    assert told("POST", "/graphql", {**given, "origin": "http://evil.example"}, access=ASKING) == "ORIGIN"
    assert told("POST", "/graphql", {**given, "content-type": "text/plain"}, access=ASKING) == "CONTENT_TYPE"
    assert told("GET", "/", given, access=ASKING, host="evil.example") == "HOST"


def test_a_websocket_needs_the_token_too():
    assert told("GET", "/graphql", {"origin": OWN}, access=ASKING, kind="websocket") == "TOKEN"
    assert told("GET", "/graphql", {"origin": OWN, "cookie": COOKIE}, access=ASKING, kind="websocket") == "Admit"


def test_opening_the_page_with_the_token_is_how_one_enters():
    assert told("GET", "/", query=f"token={TOKEN}", access=ASKING) == "Enter"
    assert told("GET", "/", LINK, query=f"token={TOKEN}", access=ASKING) == "Enter"
    assert told("GET", "/", query="token=wrong", access=ASKING) == "TOKEN"
    assert told("GET", "/runs", query=f"token={TOKEN}", access=ASKING) == "TOKEN"
    assert told("POST", "/graphql", JSON, query=f"token={TOKEN}", access=ASKING) == "TOKEN"
    # Without the setting it is a page like any other.
    assert told("GET", "/", query=f"token={TOKEN}") == "Admit"


def test_a_link_of_another_site_is_loaded_again_by_ourselves_and_only_once():
    assert told("GET", "/assets/a", LINK, access=ASKING) == "LoadAgain"
    assert told("GET", "/assets/a", {**LINK, "sec-fetch-site": "same-origin"}, access=ASKING) == "TOKEN"
    assert told("GET", "/assets/a", {**LINK, "cookie": COOKIE}, access=ASKING) == "Admit"
    assert told("GET", "/logs/a", LINK, access=ASKING) == "ORIGIN"


def test_a_cookie_ends_and_is_of_one_token_and_one_port():
    last = NOW + LASTS - timedelta(seconds=1)

    assert LOGIN.is_cookie(LOGIN.cookie(NOW), last)
    assert not LOGIN.is_cookie(LOGIN.cookie(NOW), NOW + LASTS)
    assert not Login(f"{TOKEN}x", 3000).is_cookie(LOGIN.cookie(NOW), NOW)
    assert not Login(TOKEN, 3001).is_cookie(LOGIN.cookie(NOW), NOW)
    ends, _, signature = LOGIN.cookie(NOW).partition(".")
    for forged in (f"{int(ends) + 1}.{signature}", signature, f".{signature}", f"{ends}.", "", f"٣.{signature}", "ä.ä"):
        assert not LOGIN.is_cookie(forged, NOW)
    assert TOKEN not in LOGIN.cookie(NOW)
    assert TOKEN not in repr(ASKING)


def test_in_read_only_mode_nothing_is_reported_or_decided():
    access = Access(3000, read_only=True)

    assert {told("POST", path, JSON, access=access) for path in [*REPORTS, ACT]} == {"READ_ONLY"}
    assert told("POST", "/graphql", JSON, access=access) == "Admit"


@pytest.mark.parametrize("length", ["\u00b2", "\u0663", "-1", "1e3", "9" * 5_000, str(LARGEST_BODY + 1), ""])
def test_a_length_that_is_no_number_is_too_large(length):
    headers = {"host": "localhost:3000", "content-length": length, **JSON}

    answer = decide(
        RequestHead("POST", "/graphql", headers={name: (each,) for name, each in headers.items()}), OPEN, NOW
    )

    assert isinstance(answer, Refuse)
    assert answer.code == "TOO_LARGE"
