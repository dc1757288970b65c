"""The board as a value: states, causes, choices and orders, and what a table's page knows."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from freshline.report.board.board import Board, BoardState, Choice, chosen_rows, sort_value, worst_first
from freshline.report.board.read import BoardReader
from freshline.report.intention_text import intention_lines
from freshline.report.samples import Sample, value_text
from tests.report.board.shop import BEST, DAILY, HOSTILE, LARGE, ORDERS, PRICES, REPORT, SPEND, Shop

pytestmark = pytest.mark.seconds


def board(shop: Shop, *wanted: object) -> Board:
    reader = BoardReader(shop.settings, shop.control)
    return reader.read(shop.graph, shop.now, shop.now - timedelta(days=7), lambda _: wanted)  # type: ignore[arg-type,return-value]


def test_each_table_is_in_one_state_with_its_cause(shop):
    rows = {row.name: row for row in board(shop).rows}

    assert {name: row.state for name, row in rows.items()} == {
        ORDERS: BoardState.FRESH, DAILY: BoardState.FRESH, SPEND: BoardState.LATE, LARGE: BoardState.FAILING,
        BEST: BoardState.SUSPENDED, REPORT: BoardState.BLOCKED, PRICES: BoardState.EMPTY,
    }  # fmt: skip
    assert rows[REPORT].cause == "crm.best_customers, which drives it, is suspended"
    assert rows[LARGE].cause.startswith("QUERY: " + HOSTILE[:20])
    assert rows[BEST].cause == f"by ada: {HOSTILE}"
    assert 0.9 < (rows[SPEND].summary.share_day or 0.0) < 1.0
    assert rows[SPEND].reads == (ORDERS,)
    assert rows[DAILY].status.freshness_seconds == 900
    assert list(intention_lines(rows[DAILY].status))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (Choice(search=" LARGE "), [LARGE]),
        (Choice(search="crm."), [BEST, REPORT]),
        (Choice(namespace="crm"), [BEST, REPORT]),
        (Choice(state="late"), [SPEND]),
        (Choice(owner="data@example.com"), [SPEND]),
        (Choice(mode="continuous"), [ORDERS, SPEND]),
        (Choice(mode="no such mode"), []),
        (Choice(namespace="shop", sort="name"), [DAILY, LARGE, ORDERS, SPEND]),
        (Choice(namespace="shop", sort="state"), [LARGE, SPEND, ORDERS, DAILY]),
        (Choice(namespace="shop", sort="lag"), [SPEND, DAILY, ORDERS, LARGE]),
        (Choice(namespace="shop", sort="rows"), [ORDERS, DAILY, SPEND, LARGE]),
        (Choice(namespace="shop", sort="anything"), [ORDERS, DAILY, LARGE, SPEND]),
    ],
)
def test_rows_are_chosen_and_sorted_with_the_worst_first(shop, choice, expected):
    assert [row.name for row in chosen_rows(board(shop).rows, choice)] == expected


def test_an_order_that_is_not_there_is_a_mistake(shop):
    with pytest.raises(ValueError, match="not sorted by"):
        sort_value(board(shop).rows[0], "colour")


def test_where_not_all_have_a_page_it_is_those_that_are_not_fresh(shop):
    rows = board(shop).rows

    assert worst_first(rows, 4) == [LARGE, SPEND, BEST, REPORT]
    assert len(worst_first(rows, 100)) == len(rows)


def test_the_page_of_a_table_knows_its_past_its_columns_and_its_declaration(shop):
    (page,) = board(shop, SPEND).pages

    assert len(page.marks) > 400
    assert {mark.state for mark in page.marks} == {"SUCCEEDED", "FAILED"}
    assert json.loads(page.receipts[2])["table"] == "shop.spend"
    assert [(column.name, column.roles) for column in page.columns] == [
        ("customer", ("key",)),
        ("spent", ()),
        ("orders", ()),
    ]
    assert page.columns[1].origins == ((ORDERS, "amount"),)
    # The column is computed from the amount, and has no description of its own.
    assert page.columns[1].description == ""
    assert [str(alert.kind) for alert in page.alerts] == ["failing", "late"]
    assert page.critical_path == (ORDERS, SPEND)
    assert [row.name for row in page.near] == [ORDERS, SPEND, BEST]
    assert "AFFECTED_KEYS" in page.explained
    assert page.promise.startswith("shop.spend: freshness 30 seconds")
    assert page.declaration is not None
    assert page.declaration.path.endswith("shop/spend.sql")
    assert "CREATE MATERIALIZED TABLE shop.spend" in (page.declaration.text or "")
    assert min(hour.begin for hour in page.hours) >= shop.now - timedelta(days=7, hours=1)


def test_a_page_of_a_source_and_of_a_table_that_was_never_refreshed_lacks_what_is_not_there(shop):
    orders, report = board(shop, ORDERS, REPORT).pages

    assert orders.explained == ""
    assert [(column.name, column.description) for column in orders.columns][2:] == [("amount", "with tax"), ("ts", "")]
    assert report.marks == ()
    assert [column.type for column in report.columns] == ["known after the first refresh"] * 2


def test_a_declaration_whose_file_is_gone_has_no_text(shop):
    (page,) = board(shop, SPEND).pages
    moved = replace(shop.settings, root=shop.root / "elsewhere")

    reader = BoardReader(moved, shop.control)
    (without,) = reader.read(shop.graph, shop.now, shop.now - timedelta(days=1), lambda _: [SPEND]).pages

    assert without.declaration is not None
    assert page.declaration is not None
    assert (without.declaration.path, without.declaration.text) == (page.declaration.path, None)


@pytest.mark.parametrize(
    ("written", "link", "is_local"),
    [
        ("https://git.example.com/a b/{path}#L{line}", "https://git.example.com/a b/assets/shop/spend.sql#L1", False),
        ("vscode://file{file}:{line}", "vscode://file{root}/assets/shop/spend.sql:1", True),
        (None, None, False),
    ],
)
def test_a_declaration_leads_to_its_file(shop, written, link, is_local):
    settings = replace(shop.settings, declaration_link=written)

    (page,) = (
        BoardReader(settings, shop.control)
        .read(shop.graph, shop.now, shop.now - timedelta(days=1), lambda _: [SPEND])
        .pages
    )

    assert page.declaration is not None
    assert page.declaration.link == (None if link is None else link.replace("{root}", str(shop.root)))
    assert page.declaration.is_local is is_local


def test_some_rows_are_shown_but_for_masked_columns_and_none_where_they_are_off(shop):
    def sample(**values: object) -> Sample | None:
        settings = replace(shop.settings, **values)
        reader = BoardReader(settings, shop.control)
        return reader.read(shop.graph, shop.now, shop.now, lambda _: [SPEND]).pages[0].sample

    shown, masked = sample(), sample(masked_columns=("shop.orders.customer",))

    assert shown is not None
    assert masked is not None
    assert (shown.columns[0], len(shown.rows)) == ("customer", 9)
    assert {row[0] for row in shown.rows} == {"a", "b", value_text(HOSTILE)}
    assert (masked.columns, masked.masked) == (("spent", "orders"), ("customer",))
    assert sample(sample_rows=0) is None
