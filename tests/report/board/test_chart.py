"""Charts are coordinates: as many points as a screen shows, and the extremes among them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from freshline.freshness.history import LagSample, LagSpan, Mark
from freshline.report.board.board import BoardRow
from freshline.report.board.chart import CHART_WIDTH, SPARK_HEIGHT, first_moment, graph_chart, lag_chart, spark
from freshline.report.board.read import BoardReader
from tests.report.board.shop import NOW, ORDERS, PRICES, REPORT, SPEND, Shop

pytestmark = pytest.mark.seconds


def row_of(shop: Shop, name: object) -> BoardRow:
    reader = BoardReader(shop.settings, shop.control)
    rows = reader.read(shop.graph, shop.now, shop.now - timedelta(days=7)).rows
    return next(row for row in rows if row.name == name)


def span(minutes: float, lag: float, freshness: int = 30) -> LagSpan:
    return LagSpan.of(LagSample(NOW - timedelta(minutes=minutes), lag, freshness))


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([-\d.]+) ([-\d.]+)", path)]


def test_a_small_line_has_few_points_and_its_greatest_lag(shop):
    spans = tuple(span(180 - n / 10, 900.0 if n == 777 else 5.0) for n in range(1_800))
    row = replace(row_of(shop, SPEND), spans=spans)

    drawn = spark(row, NOW, NOW - timedelta(hours=3))

    assert drawn is not None
    assert drawn.text == "lag up to 15 min, promise 30 s"
    assert len(points(drawn.path)) <= 121
    assert min(y for _, y in points(drawn.path)) == 2.0
    assert 0 < drawn.promise_y < SPARK_HEIGHT


def test_without_a_past_there_is_no_line_and_a_single_check_can_be_seen(shop):
    assert spark(row_of(shop, PRICES), NOW, NOW - timedelta(hours=1)) is None
    drawn = spark(replace(row_of(shop, ORDERS), spans=()), NOW, NOW - timedelta(hours=1))
    assert drawn is not None
    assert len(points(drawn.path)) == 2


def test_small_lines_begin_together_and_not_less_than_ten_minutes_ago(shop):
    row = replace(row_of(shop, SPEND), spans=(span(40, 1.0),))

    assert first_moment([row, replace(row, spans=(span(20, 1.0),))], NOW) == NOW - timedelta(minutes=40)
    assert first_moment([replace(row, spans=(span(2, 1.0),))], NOW) == NOW - timedelta(minutes=10)


def test_a_promise_that_changed_is_a_step(shop):
    spans = [span(60, 5.0, 60), span(30, 5.0, 60), span(20, 5.0, 30), span(10, 5.0, 30)]
    chart = lag_chart(row_of(shop, SPEND), spans, [], [], NOW, NOW - timedelta(days=7), {})

    assert chart is not None
    first, second, third, fourth = points(chart.promise)
    assert first[1] == second[1] < third[1] == fourth[1]
    assert second[0] == third[0]


def test_many_refreshes_are_bins_that_show_the_gravest_and_lead_to_the_newest(shop):
    marks = [
        Mark(NOW - timedelta(seconds=60 * n), "FAILED" if n == 5_000 else "SUCCEEDED", "why", "keys", n != 5_000)
        for n in reversed(range(10_000))
    ]
    chart = lag_chart(row_of(shop, SPEND), [], [], marks, NOW, NOW - timedelta(days=7), {len(marks) - 1: 0})

    assert chart is not None
    assert len(chart.bins) <= CHART_WIDTH / 5 + 1
    assert [one.kind for one in chart.bins].count("failed") == 1
    assert [one.target for one in chart.bins if one.target is not None] == [0]
    assert "10,000 refreshes and decisions, 1 failed" in chart.text


def test_a_table_that_was_never_checked_has_no_chart(shop):
    assert lag_chart(row_of(shop, REPORT), [], [], [], NOW, NOW - timedelta(days=7), {}) is None


def test_an_arrow_over_several_columns_passes_through_no_box(shop):
    reader = BoardReader(shop.settings, shop.control)
    rows = reader.read(shop.graph, shop.now, shop.now - timedelta(days=7)).rows

    chart = graph_chart(rows, SPEND, (ORDERS, SPEND))

    boxes = {box.table: box for box in chart.boxes}
    assert boxes[SPEND].chosen
    assert [boxes[name].critical for name in (ORDERS, SPEND, PRICES)] == [True, True, False]
    assert sum(arrow.critical for arrow in chart.arrows) == 1
    for arrow in chart.arrows:
        straight = [(float(x), float(y)) for x, y in re.findall(r" ([\d.]+) ([\d.]+)H", arrow.path)]
        assert not [box for box in chart.boxes for x, y in straight if box.x == x and box.y <= y <= box.y + 30], (
            arrow.path
        )
    assert graph_chart(()).boxes == ()
