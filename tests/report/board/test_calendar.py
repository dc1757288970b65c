"""The calendar of partitions: which are there, which are of another declaration, which are missing."""

from __future__ import annotations

from datetime import UTC, datetime

from freshline.report.board.calendar import MOST_CELLS, make_calendar
from freshline.report.board.page import render_table
from freshline.report.board.read import BoardReader
from freshline.values.names import TableName
from freshline.values.partition import PartitionSpan, PartitionState
from freshline.values.time_partition import PartitionUnit, TimePartitions
from tests.report.board.html import Page
from tests.report.board.shop import open_shop

NOW = datetime(2026, 11, 4, 12, 30, tzinfo=UTC)


def span(first: int, end: int, fingerprint: str = "now") -> PartitionSpan:
    return PartitionSpan(datetime(2026, 11, first, tzinfo=UTC), datetime(2026, 11, end, tzinfo=UTC), fingerprint)


def test_days_stand_under_their_month_and_weekday():
    days = TimePartitions(PartitionUnit.DAY, "2026-10-30")

    found = make_calendar(days, [span(1, 2, "before"), span(2, 4)], "now", NOW)

    assert [(group.label, [cell.label for cell in group.cells]) for group in found.groups] == [
        ("2026-10", ["30", "31"]),
        ("2026-11", ["01", "02", "03", "04"]),
    ]
    november = found.groups[1].cells
    assert [cell.column for cell in november] == [7, 1, 2, 3]
    assert [str(cell.state) for cell in november] == ["stale", "done", "done", "missing"]
    assert [cell.is_open for cell in november] == [False, False, False, True]
    assert found.count(PartitionState.MISSING) == 3
    assert not found.is_cut


def test_hours_stand_under_their_day_and_those_of_years_are_cut():
    hours = TimePartitions(PartitionUnit.HOUR, "2016-01-01-00:00", "Europe/Paris")

    found = make_calendar(hours, (), "now", NOW)

    assert found.is_cut
    assert sum(len(group.cells) for group in found.groups) <= MOST_CELLS
    assert (found.groups[-1].label, found.groups[-1].cells[-1].label) == ("2026-11-04", "13")
    assert found.groups[-1].cells[-1].is_open


def test_weeks_and_months_stand_under_their_year():
    weeks = make_calendar(TimePartitions(PartitionUnit.WEEK, "2026-10-19"), (), "now", NOW)
    months = make_calendar(TimePartitions(PartitionUnit.MONTH, "2025-12-01"), (), "now", NOW)

    assert [cell.label for cell in weeks.groups[0].cells] == ["10-19", "10-26", "11-02"]
    assert [(group.label, len(group.cells)) for group in months.groups] == [("2025", 1), ("2026", 11)]


def test_before_the_first_partition_there_is_none():
    assert make_calendar(TimePartitions(PartitionUnit.DAY, "2027-01-01"), (), "now", NOW).groups == ()


def test_the_page_of_a_table_with_time_partitions_has_a_cell_for_each(tmp_path):
    declarations = {
        "load": "CREATE SOURCE load (ds DATE, n BIGINT) WITH ('connector' = 'delta', 'path' = 'load')",
        "daily": "CREATE MATERIALIZED TABLE daily PARTITIONED BY (ds)"
        " WITH ('partition.unit' = 'day', 'partition.start' = '2026-11-18') FRESHNESS = INTERVAL '1' DAY"
        " AS SELECT ds, n FROM load",
    }
    with open_shop(tmp_path, declarations) as shop:
        reader = BoardReader(shop.settings, shop.control)
        board = reader.read(shop.graph, shop.now, shop.now, lambda _: [TableName.parse("daily")])

    page = Page(render_table(board))

    cells = [cell for cell in page.all("li") if (cell.get("class") or "").startswith("cell")]
    assert [cell["title"] for cell in cells] == [
        "2026-11-18: missing",
        "2026-11-19: missing",
        "2026-11-20: missing, still open",
    ]
    assert cells[0]["class"] == "cell missing from-3"
    assert "Partitions by day" in page.text
