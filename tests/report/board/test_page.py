"""The board as HTML: texts are texts, nothing is loaded, and nothing is slow."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import insert

from freshline.commit.control_rows import text_of
from freshline.commit.control_store.schema import MARKS
from freshline.report.board.board import Board, BoardRow, Choice
from freshline.report.board.page import policy, render_all, render_file, render_table
from freshline.report.board.read import BoardReader
from freshline.values.names import TableName
from tests.report.board.html import Page
from tests.report.board.shop import HOSTILE, NOW, SPEND, Shop, open_shop

# All that a page is made of; what could load or run something is not among it but for one style and one script.
ELEMENTS = {
    *("html", "head", "meta", "link", "title", "style", "script", "body", "header", "main", "footer", "section", "div"),
    *(
        "h1",
        "h2",
        "h3",
        "p",
        "span",
        "b",
        "a",
        "time",
        "code",
        "pre",
        "ul",
        "li",
        "dl",
        "dt",
        "dd",
        "details",
        "summary",
    ),
    *("form", "label", "input", "select", "option", "button", "noscript", "table", "thead", "tbody", "tr", "th", "td"),
    *("svg", "g", "path", "rect", "text", "dialog"),
}


def board(shop: Shop, *wanted: TableName) -> Board:
    reader = BoardReader(shop.settings, shop.control)
    return reader.read(shop.graph, shop.now, shop.now - timedelta(days=7), lambda _: wanted)


@pytest.fixture(scope="module")
def pages(shop: Shop) -> dict[str, str]:
    whole = board(shop, *shop.graph.order)
    return {
        "file": render_file(whole),
        "all": render_all(whole, Choice(search=HOSTILE, owner=HOSTILE, sort=HOSTILE)),
        "all tables": render_all(whole, Choice()),
        "by lag": render_all(whole, Choice(sort="lag", namespace="shop")),
        **{str(page.row.name): render_table(replace(whole, pages=(page,)), buttons=True) for page in whole.pages},
    }


@pytest.mark.parametrize(("kind", "has_buttons"), [("table", True), ("sink", True), ("log", False), ("source", False)])
def test_tables_and_sinks_have_buttons_and_sources_have_none(shop, kind, has_buttons):
    whole = board(shop, *shop.graph.order)
    (page,) = [page for page in whole.pages if page.row.status.kind == "table"][:1]
    row = replace(page.row, status=replace(page.row.status, kind=kind))
    html = render_table(replace(whole, pages=(replace(page, row=row),)), buttons=True)
    assert (">Suspend</button>" in html) is has_buttons


@pytest.mark.seconds
def test_hostile_texts_are_shown_as_texts_everywhere(pages):
    for html in pages.values():
        page = Page(html)
        assert {tag for tag, _ in page.elements} <= ELEMENTS
        assert (len(page.all("script")), len(page.all("style"))) == (1, 1)
        for _, attributes in page.elements:
            assert not [name for name in attributes if name.startswith("on") or name in ("style", "src", "srcset")]
        assert not re.search("[\u202a-\u202e\u2066-\u2069\x1b]", html)
    assert (
        "alert('x')</script><img src=x onerror=alert(1)>\"'`{{ 7 * 7 }}\\u202egnp.exe\\u2066\\x1b[2J&amp;"
        in Page(pages["shop.spend"]).text
    )
    # A value of a row.
    assert "alert('x')</script>" in "".join(Page(pages["shop.daily_revenue"]).texts)
    # A search that comes back in the page.
    assert any((field.get("value") or "").startswith("</script></style>") for field in Page(pages["all"]).all("input"))


def test_a_page_loads_nothing_and_leads_nowhere_else(pages):
    for name, html in pages.items():
        page = Page(html)
        links = [attributes["href"] for attributes in page.all("a")]
        assert all(
            re.match(r"#|/freshline/|\?" + ("" if name == "file" else "|vscode://file/"), link or "") for link in links
        ), name
        assert [link["href"] for link in page.all("link")] == ["data:,"]
        assert not re.search(r"url\(|@import|https?://", html.replace("http-equiv", "")), name
        assert "vscode" not in html or name != "file"
        stated = [meta["content"] for meta in page.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]
        # The guard sends that of served pages as a header.
        assert stated == ([policy(in_file=True)] if name == "file" else [])
    for in_file in (True, False):
        assert policy(in_file=in_file).startswith("default-src 'none'; ")
        assert "unsafe" not in policy(in_file=in_file)


def test_the_links_of_a_file_lead_to_its_pages_and_refreshes(pages):
    page = Page(pages["file"])
    ids = [attributes["id"] for _, attributes in page.elements if attributes.get("id")]

    assert len(ids) == len(set(ids))
    assert {(link["href"] or "")[1:] for link in page.all("a")} <= set(ids)


def test_the_file_has_what_the_pages_have(pages):
    """But for links and anchors: the rows of all tables, and of one table its facts, lag, alerts and rows."""

    def part(html: str, begin: str, end: str) -> str:
        return re.sub(r'(href|id)="[^"]*"', "", html[html.index(begin) :].partition(end)[0])

    listed = '<tbody data-live="rows">', "</tbody>"
    assert part(pages["file"], *listed) == part(pages["all tables"], *listed)
    for name in ("shop.spend", "shop.daily_revenue", "crm.monthly_report"):
        title = f'-name">{name} '
        of_file = pages["file"][pages["file"].index(title) :]
        of_page = pages[name][pages[name].index(title) :]
        for begin, end in (('<dl class="facts">', "</dl>"), ("<h2>Columns</h2>", "<h2>Promise</h2>")):
            assert part(of_file, begin, end) == part(of_page, begin, end), name
            assert len(part(of_file, begin, end)) > 100


def test_everything_can_be_read_without_seeing_it(pages):
    for name, html in pages.items():
        page = Page(html)
        assert page.all("html")[0]["lang"] == "en"
        for drawing in page.all("svg"):
            assert drawing.get("aria-label"), name
        for part in page.all("div"):
            if part.get("class") == "scroll":
                assert part.get("tabindex") == "0", name
                assert part.get("aria-label"), name
        assert all(cell.get("scope") for cell in page.all("th")), name
    assert '<th scope="col" data-sort="lag" class="number" aria-sort="descending">' in pages["by lag"]


def test_another_order_keeps_the_choice(pages):
    links = [attributes["href"] for attributes in Page(pages["by lag"]).all("a")]

    assert "?namespace=shop&sort=rows" in links


def test_nothing_declared_and_nothing_found_are_said():
    empty = Board("shop", "local", NOW, NOW)

    assert "Nothing is declared." in render_all(empty, Choice())
    assert "Nothing is declared." in render_file(empty)


def test_a_choice_without_tables_says_so(pages):
    assert "No table is like this." in pages["all"]


@pytest.mark.seconds
def test_a_thousand_tables_are_a_page_in_less_than_a_second(shop):
    some = board(shop)
    rows = tuple(_renamed(some.rows[n % 7], f"area_{n % 20}.table_{n}") for n in range(1_000))
    took = []
    # Beside other work a processor does less in the same second.
    for _ in range(3):
        begin = time.process_time()
        html = render_all(replace(some, rows=rows), Choice())
        took.append(time.process_time() - begin)

    assert min(took) < 1.0
    assert html.count("<tr data-name=") == 1_000


def _renamed(row: BoardRow, name: str) -> BoardRow:
    return replace(row, status=replace(row.status, table=TableName.parse(name)))


@pytest.mark.slow
def test_a_table_with_ten_thousand_refreshes_is_a_page_in_less_than_a_second(tmp_path):
    with open_shop(tmp_path) as shop:
        ends = [NOW - timedelta(seconds=50 * n) for n in range(10_000)]
        known = {
            "key": "shop.spend", "state": "SUCCEEDED", "reason": "AFFECTED_KEYS", "strategy": "keys", "committed": True,
            "version": 1, "rejected": 0, "seconds": 1.0, "lag_seconds": 3.0, "freshness_seconds": 30,
        }  # fmt: skip
        marks = [{**known, "at": text_of(at)} for at in ends]
        with shop.control._database.write() as connection:
            connection.execute(insert(MARKS), marks)
        board(shop, SPEND)  # what the first page of a process loads is not counted
        begin = time.process_time()

        html = render_table(board(shop, SPEND))

        assert time.process_time() - begin < 1.0
    assert "10,000 refreshes and decisions" in html
    assert html.count("<details") == 100
