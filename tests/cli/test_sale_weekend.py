"""The demo's story follows what the tables show, and the count at its end finds what is lost or there twice."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshline.cli.progress import Progress
from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.project import read_project
from freshline.report.status import TableStatus, read_status
from freshline.values.settings import Settings
from resources.demo.sale_weekend import TABLE, OrderCount, SaleWeekend, Times, alternate, count_orders
from tests.cli.conftest import FakeEngine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def deployed(settings: Settings) -> Settings:
    """The reference deployment's declarations, with stores of this test."""
    return replace(settings, declarations=ROOT / "assets")


def statuses(settings: Settings, now: datetime, *, lag: float = 200.0) -> list[TableStatus]:
    """The statuses of all tables, if the table were refreshed with that lag."""
    store = ControlStore.open(settings.control_store)
    try:
        found = read_status(read_project(settings), store, Warehouse(settings.warehouse), now)
    finally:
        store.close()
    return [replace(status, version=3, lag_seconds=lag) if status.table == TABLE else status for status in found]


def test_a_sale_changes_the_freshness_reports_when_it_is_kept_and_ends_by_itself(deployed: Settings) -> None:
    story, now = SaleWeekend(deployed, Times(60.0, 90)), datetime.now(UTC)

    assert story.step(59.0, statuses(deployed, now)) == []
    (begun,) = story.step(60.0, statuses(deployed, now))
    late = story.step(61.0, statuses(deployed, now))
    (kept,) = story.step(70.0, statuses(deployed, now, lag=3.1))
    silent = story.step(71.0, statuses(deployed, now, lag=2.0))
    (ended,) = story.step(151.0, statuses(deployed, now + timedelta(seconds=95), lag=2.0))

    assert begun.startswith("A sale begins, and lasts 90 s. enriched_orders: freshness 5 seconds until ")
    assert begun.endswith(", was 5 minutes; continuous, was incremental; by the demo.")
    assert kept == "enriched_orders has the orders of 3.1 s ago, within its 5 seconds, continuous."
    assert late == silent == []
    assert ended.endswith("enriched_orders is kept within 5 minutes, incremental, again.")
    assert story.step(152.0, statuses(deployed, now + timedelta(seconds=96))) == []


@pytest.mark.seconds
def test_a_promise_that_was_never_kept_is_reported_with_the_best_that_there_was(deployed: Settings) -> None:
    story, now = SaleWeekend(deployed, Times(60.0, 90)), datetime.now(UTC)

    story.step(60.0, statuses(deployed, now))
    for lag in (200.0, 7.5, 9.0):
        assert story.step(80.0, statuses(deployed, now, lag=lag)) == []
    best, ended = story.step(151.0, statuses(deployed, now + timedelta(seconds=95)))

    assert best == "enriched_orders lagged 7.5 s at best, more than the 5 seconds that were asked of this machine."
    assert ended.startswith("The sale is over")


def test_a_sale_waits_for_the_first_version_of_the_table(deployed: Settings) -> None:
    story, now = SaleWeekend(deployed, Times(1.0, 9)), datetime.now(UTC)
    unmade = [replace(status, version=None) for status in statuses(deployed, now)]

    assert story.step(5.0, unmade) == []
    assert all(status.override is None for status in statuses(deployed, now))


def test_portions_go_through_all_modes_and_back(deployed: Settings) -> None:
    told = [sentence for portion in range(10) for sentence in alternate(deployed, portion)]
    status = next(status for status in statuses(deployed, datetime.now(UTC)) if status.table == TABLE)

    assert [sentence.split("; ")[1] for sentence in told if sentence.startswith("enriched_orders")] == [
        "continuous, was incremental",
        "batch, was continuous",
        "incremental, was batch",
    ]
    assert status.override is None


@pytest.mark.parametrize(
    ("count", "exact"),
    [
        (OrderCount(5, 5, 5), True),
        (OrderCount(5, 4, 4), False),
        (OrderCount(5, 6, 5), False),
        (OrderCount(5, 5, 4), False),
    ],
)
def test_only_every_order_once_is_exact(count: OrderCount, exact: bool) -> None:
    assert count.exact is exact


def test_orders_are_counted_by_a_query(fake_engine: FakeEngine) -> None:
    row = json.dumps({"orders": 7, "different": 6})
    fake_engine.answers = {"sql": [{"type": "rows", "columns": [], "rows": [row]}]}

    with Progress() as progress:
        counted = count_orders(fake_engine, 8, progress)  # type: ignore[arg-type]

    assert counted == OrderCount(landed=8, rows=7, different=6)
    assert str(counted).endswith("2 lost, 1 more than once")
