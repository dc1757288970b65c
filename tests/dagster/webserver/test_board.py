"""The pages of the board behind the guard, asked by programs and shown by a browser; Dagster itself is not needed."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from freshline.dagster.webserver.access import Access
from freshline.dagster.webserver.board import MOST_FOLLOWERS, BoardPages, digest
from freshline.dagster.webserver.guard import Guard
from freshline.report.board.page import policy
from freshline.report.board.read import BoardReader
from freshline.values.names import TableName
from tests.axe import read_axe, violations
from tests.report.board.html import Page
from tests.report.board.shop import HOSTILE, NOW, ORDERS, SPEND, Shop, fill, open_shop

pytestmark = [pytest.mark.security, pytest.mark.seconds]

# The times that the documentation promises. A machine with other work may miss them once.
PROMISED_SECONDS = 5.0
SHOWN_SECONDS = 60.0


async def no_dagster(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError(f"{scope['path']} is not Dagster's")


class Served:
    """The board of a project at a port, at the moments that a test chooses."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        self.now = shop.now
        self.pages = BoardPages(shop.settings, lambda: self.now)
        self.url = ""

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(f"{self.url}{path}", headers=headers, timeout=60)


def until(met: Callable[[], Any], seconds: float) -> float:
    """Wait until it is so; the seconds that it took."""
    began = time.monotonic()
    while not met():
        assert time.monotonic() < began + seconds, "it is not so in time"
        time.sleep(0.1)
    return time.monotonic() - began


@contextmanager
def served(shop: Shop) -> Iterator[Served]:
    board = Served(shop)
    config = uvicorn.Config(no_dagster, host="127.0.0.1", port=0, lifespan="off", log_level="warning")
    listener = config.bind_socket()
    port = listener.getsockname()[1]
    board.url = f"http://127.0.0.1:{port}"
    config.loaded_app = None
    config.app = Guard(no_dagster, board.pages, Access(port), lambda: board.now)
    config.timeout_graceful_shutdown = 1
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        # A bound port refuses until the server listens.
        until(lambda: server.started, SHOWN_SECONDS)
        yield board
    finally:
        server.should_exit = True
        thread.join()
        board.pages.close()


@pytest.fixture
def board(tmp_path: Path) -> Iterator[Served]:
    with open_shop(tmp_path) as shop:
        shop.commit(ORDERS, 1, {"id": ["a"]}, NOW - timedelta(seconds=2), "INSERTS_ONLY: new files")
        shop.commit(SPEND, 1, {"customer": ["a"]}, NOW - timedelta(seconds=2), "AFFECTED_KEYS: 1")
        with served(shop) as board:
            yield board


def test_pages_are_served_with_the_policy_that_allows_only_their_own_script(board):
    for path in ("/freshline/", "/freshline/table/shop.spend", "/freshline/table/no_such_table"):
        answer = board.get(path)
        assert answer.headers["content-security-policy"] == policy(in_file=False)
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cache-control"] == "no-store"
        assert not answer.history
    assert board.get("/freshline").headers["location"] == "/freshline/"


def test_a_page_that_is_asked_for_is_shown_and_one_that_is_not_there_is_said(board):
    everything = Page(board.get("/freshline/").text)
    chosen = Page(board.get("/freshline/?namespace=crm&sort=name").text)
    table = board.get("/freshline/table/SHOP.spend")

    assert "shop.spend" in everything.text
    assert [row["data-name"] for row in chosen.all("tr") if "data-name" in row] == [
        "crm.best_customers",
        "crm.monthly_report",
    ]
    assert "CREATE MATERIALIZED TABLE shop.spend" in Page(table.text).text
    assert HOSTILE[:30] not in table.text
    for name in ("shop.spent", "a.b.c", "<script>", "x%0A"):
        answer = board.get(f"/freshline/table/{name}")
        assert answer.status_code in (400, 404), name
        assert "<script>alert" not in answer.text
    assert board.get("/freshline/elsewhere").status_code == 404


def test_other_sites_read_nothing_of_it(board):
    for path in ("/freshline/", "/freshline/events", "/freshline/table/shop.spend"):
        assert board.get(path, Origin="http://evil.example").status_code == 403
        assert board.get(path, Host="evil.example").status_code == 403
    assert httpx.post(f"{board.url}/freshline/", timeout=60).status_code == 405


def test_a_mistake_in_a_declaration_is_shown_and_the_other_tables_stay(board, tmp_path):
    def page() -> Page:
        answer = board.get("/freshline/")
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text
        board.pages._source.forget()
        return Page(answer.text)

    def listed(of: Page) -> set[str | None]:
        return {row["data-name"] for row in of.all("tr") if "data-name" in row}

    file = tmp_path / "assets" / "shop" / "spend.sql"
    good = file.read_text()
    file.write_text("CREATE MATERIALIZED <script>alert(1)</script>")
    # Before the first page: the table was never known, and what reads it is not known either.
    first = page()
    assert "shop.orders" in listed(first)
    assert "shop.spend" not in listed(first)
    assert "assets/shop/spend.sql:1" in first.text
    file.write_text(good)
    all_tables = page()
    assert {"shop.orders", "shop.spend"} <= listed(all_tables)
    assert "Mistakes in declarations" not in all_tables.text
    # Afterwards it stays as it was.
    file.write_text("no")
    later = page()
    assert listed(later) == listed(all_tables)
    assert "assets/shop/spend.sql:1" in later.text
    assert "Mistakes in declarations" in later.text


def test_an_event_comes_at_once_and_with_each_change(board):
    with httpx.stream("GET", f"{board.url}/freshline/events", timeout=60) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = (line for line in stream.iter_lines() if line.startswith("data:"))
        first = next(lines)
        board.shop.record(SPEND, board.now, version=1)
        assert next(lines) != first


def test_so_many_pages_follow_and_no_more(board):
    board.pages._followers = MOST_FOLLOWERS

    assert board.get("/freshline/events").status_code == 503


def test_time_that_passes_is_no_news_until_it_makes_a_table_late(board):
    def at(seconds: float) -> str:
        now = NOW + timedelta(seconds=seconds)
        reader = BoardReader(board.shop.settings, board.shop.control)
        return digest(reader.read(board.shop.graph, now, now - timedelta(days=7)))

    assert at(0) == at(20)
    assert at(0) != at(60)


def act(board: Served, **content: object) -> httpx.Response:
    return httpx.post(f"{board.url}/freshline/act", json=content, timeout=60)


def test_buttons_do_what_the_commands_do_and_say_it(board):
    intentions = board.shop.control.intentions

    said = act(board, action="suspend", table="shop.spend", because=HOSTILE, **{"for": "2 hours"}).json()["said"]
    assert said.startswith("suspended: shop.spend")
    (suspension,) = intentions.read().suspensions.values()
    assert (suspension.reason, suspension.until) == (HOSTILE, board.now + timedelta(hours=2))
    assert suspension.by.endswith(" (UI)")
    assert "suspended" in Page(board.get("/freshline/table/shop.spend").text).text
    assert act(board, action="resume", table="shop.spend").status_code == 200
    assert intentions.read().suspensions == {}

    act(board, action="freshness", table="shop.spend", freshness="5 seconds", **{"for": "1 hour"})
    (override,) = intentions.read().overrides.values()
    assert (override.freshness.seconds, override.until) == (5, board.now + timedelta(hours=1))
    assert act(board, action="reset", table="shop.spend", freshness=" ").status_code == 200
    assert intentions.read().overrides == {}


def test_without_an_engine_a_refresh_is_refused_and_says_how_to_start_one(board):
    answer = act(board, action="refresh", table="SHOP.spend")

    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "ENGINE")
    assert "freshline engine start" in answer.json()["error"]["message"]


@pytest.mark.slow
def test_a_table_that_is_being_refreshed_is_marked_on_an_open_page_at_once(board, monkeypatch, chromium):
    running: set[TableName] = set()
    monkeypatch.setattr("freshline.dagster.webserver.board.running_tables", lambda settings: frozenset(running))
    marked = "return [...document.querySelectorAll('.running')].map(each => each.closest('tr').dataset.name)"
    chromium.open(f"{board.url}/freshline/", 900)
    assert chromium.run(marked) == []
    running.add(SPEND)
    until(lambda: chromium.run(marked) == ["shop.spend"], SHOWN_SECONDS)
    running.clear()
    until(lambda: chromium.run(marked) == [], SHOWN_SECONDS)


@pytest.mark.parametrize(
    "content",
    [
        {"action": "drop", "table": "shop.spend"},
        {"action": "suspend"},
        {"action": "refresh"},
        {"action": "refresh", "table": "shop.no_such"},
        {"action": "refresh", "table": "shop.orders"},
        {"action": "refresh", "table": "a.b.c"},
        {"action": "suspend", "table": "shop.no_such"},
        {"action": "suspend", "table": "shop.orders"},
        {"action": "suspend", "table": ["shop.spend"]},
        {"action": "suspend", "table": "shop.spend", "by": "somebody else"},
        {"action": "suspend", "table": "shop.spend", "because": "x" * 301},
        {"action": "suspend", "table": "shop.spend", "for": "soon"},
        {"action": "freshness", "table": "shop.spend"},
        {"action": "freshness", "table": "shop.spend", "freshness": "-1 seconds"},
    ],
)
def test_an_action_that_cannot_be_decided_is_refused_and_changes_nothing(board, content):
    answer = act(board, **content)

    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "REQUEST")
    assert board.shop.control.intentions.generation() == 0


def test_buttons_are_refused_as_everything_that_is_posted(board):
    url, wanted = f"{board.url}/freshline/act", {"action": "suspend", "table": "shop.spend"}

    assert httpx.post(url, data=wanted, timeout=60).json()["error"]["code"] == "CONTENT_TYPE"
    assert httpx.post(url, json=[wanted], timeout=60).json()["error"]["code"] == "BODY"
    for headers in ({"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "same-site"}):
        assert httpx.post(url, json=wanted, headers=headers, timeout=60).json()["error"]["code"] == "ORIGIN"
    assert board.shop.control.intentions.generation() == 0


def test_a_read_only_ui_has_no_buttons(board):
    quiet = BoardPages(board.shop.settings, lambda: board.now, read_only=True)

    async def page() -> str:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(quiet), base_url="http://ui") as client:
            return (await client.get("/freshline/table/shop.spend", timeout=60)).text

    assert not Page(asyncio.run(page())).all("dialog")
    quiet.close()
    assert Page(board.get("/freshline/table/shop.spend").text).all("dialog")
    # Sources are not suspended.
    assert not Page(board.get("/freshline/table/shop.orders").text).all("dialog")


@pytest.mark.slow
def test_a_button_asks_once_and_the_page_shows_what_came_of_it(board, chromium):
    click = "document.querySelector('{}').click()"
    chromium.open(f"{board.url}/freshline/table/shop.spend", 900)
    chromium.run(click.format("[data-action=suspend]"))
    assert "Suspend shop.spend?" in chromium.run("return document.querySelector('dialog[open]').innerText")
    chromium.run(click.format("dialog button[value=no]"))
    assert chromium.run("return document.getElementById('said').innerText") == ""
    chromium.run(click.format("[data-action=suspend]"))
    chromium.run("document.querySelector('dialog input[name=because]').value = '<b>x</b>'")
    chromium.run(click.format("dialog button[value=yes]"))
    until(lambda: chromium.run("return document.querySelector('[data-action=resume]') !== null"), SHOWN_SECONDS)
    assert chromium.run("return document.getElementById('said').innerText").startswith("suspended: shop.spend")
    assert chromium.run("return document.querySelector('.cause').innerText").endswith(": <b>x</b>")
    assert board.shop.control.intentions.generation() == 1


@pytest.mark.slow
def test_a_table_whose_source_stops_is_late_on_an_open_page_and_fresh_again_without_a_reload(board, chromium):
    state = "return document.querySelector('tr[data-name=\"shop.spend\"] .state').innerText"
    chromium.open(f"{board.url}/freshline/", 900)
    assert chromium.run(state) == "fresh"
    chromium.run("window.same = true")
    waited = []
    for seq in (2, 3, 4):
        board.now += timedelta(minutes=5)
        waited.append(until(lambda: chromium.run(state) == "late", SHOWN_SECONDS))
        board.shop.commit(ORDERS, seq, {"id": ["a"]}, board.now, "INSERTS_ONLY: new files")
        board.shop.commit(SPEND, seq, {"customer": ["a"]}, board.now, "AFFECTED_KEYS: 1")
        waited.append(until(lambda: chromium.run(state) == "fresh", SHOWN_SECONDS))
    assert chromium.run("return window.same"), "the page was loaded again"
    assert statistics.median(waited) <= PROMISED_SECONDS, waited


@pytest.mark.slow
def test_a_page_that_cannot_be_renewed_says_so_and_goes_on_when_it_can(board, chromium):
    away = "return document.getElementById('away').innerText"
    store = board.shop.settings.state / "control.db"
    chromium.open(f"{board.url}/freshline/", 900)
    assert chromium.run(away) == ""
    chromium.run("window.same = true")
    board.shop.control.close()
    moved = [(file, file.with_name(f"moved-{file.name}")) for file in store.parent.glob("control.db*")]
    for file, place in moved:
        file.rename(place)
    # SQLite makes a file where there is none, and opens no folder.
    store.mkdir()
    until(lambda: "This page is not renewed. As of 2026-11-20 12:00:00 UTC" in chromium.run(away), SHOWN_SECONDS)
    assert "control" in chromium.run(away)
    assert "shop.spend" in chromium.run("return document.querySelector('.tables').innerText")
    store.rmdir()
    for file, place in moved:
        place.rename(file)
    until(lambda: chromium.run(away) == "", SHOWN_SECONDS)
    assert chromium.run("return window.same"), "the page was loaded again"


@pytest.mark.slow
def test_a_page_whose_ui_is_gone_says_so(tmp_path, chromium):
    with open_shop(tmp_path) as shop:
        with served(shop) as board:
            chromium.open(f"{board.url}/freshline/", 900)
        until(
            lambda: "the UI does not answer" in chromium.run("return document.getElementById('away').innerText"),
            SHOWN_SECONDS,
        )


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_core_finds_nothing_that_keeps_people_out(tmp_path, chromium, scheme):
    with open_shop(tmp_path) as shop:
        fill(shop)
        axe = read_axe(shop.settings)
        with served(shop) as board:
            chromium.prefer(scheme)
            for path in ("", f"table/{SPEND}", "table/shop.daily_revenue", "table/no_such_table"):
                for width in (1_400, 400):
                    chromium.open(f"{board.url}/freshline/{path}", 1_100, width)
                    chromium.run("document.getElementById('away').textContent = 'This page is not renewed.'")
                    assert violations(chromium, axe) == [], (path, width)
            chromium.open(f"{board.url}/freshline/table/{SPEND}", 1_100)
            chromium.run("document.querySelector('[data-action=suspend]').click()")
            assert violations(chromium, axe) == []
            # It finds what is wrong.
            chromium.run("document.querySelector('dialog input').closest('label').replaceWith('no label')")
            chromium.run("document.querySelector('dialog form').append(document.createElement('input'))")
            assert "label" in {rule for rule, _ in violations(chromium, axe)}
            chromium.prefer("light")


@pytest.mark.slow
def test_hostile_texts_run_nothing_in_a_browser_and_reach_nobody(tmp_path, chromium):
    """A dialog that a text had opened would make the next step of the driver fail."""
    with open_shop(tmp_path) as shop:
        fill(shop)
        with served(shop) as board:
            paths = ("?search=%3Cscript%3E", "", f"table/{SPEND}")
            for path in paths:
                chromium.open(f"{board.url}/freshline/{path}", 900)
                counted = chromium.run(
                    "return ['script', 'img', 'iframe'].map(x => document.querySelectorAll(x).length)"
                )
                assert counted == [1, 0, 0], path
            assert "alert('x')</script><img src=x onerror=alert(1)>" in chromium.run("return document.body.innerText")
            asked = [url for url in chromium.requests() if url.startswith(("http", "ws", "ftp"))]
            assert [url for url in asked if not url.startswith(board.url)] == []
