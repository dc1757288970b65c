"""The lag to expect: from what refreshes take, and from what refreshes under the same promise have shown."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.freshness.feasible import Hop
from freshline.freshness.predicted_lag import PredictedLag, measure_lag, predict_lag
from freshline.values.names import TableName
from freshline.values.result import RefreshResult

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ORDERS, CLEAN = TableName.parse("orders"), TableName.parse("clean")


def graph_of(settings, seconds: int) -> Graph:
    return read_declarations(
        {
            "orders.sql": "CREATE SOURCE orders (id BIGINT) "
            "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'orders')",
            "clean.sql": f"CREATE MATERIALIZED TABLE clean FRESHNESS = INTERVAL '{seconds}' SECOND "
            "AS SELECT id FROM orders",
        },
        settings,
    )


def record(at: float, stamp: float, **other: object) -> RefreshResult:
    values: dict[str, object] = {
        "table": CLEAN,
        "at": NOW + timedelta(seconds=at),
        "state": "SUCCEEDED",
        "strategy": "append",
        "reason": "",
        "seconds": 1.0,
        "version": 2,
        "fingerprint": "",
        "committed": True,
        "data_timestamp": NOW + timedelta(seconds=stamp),
        "mode": "continuous",
        "cause": "live",
    }
    return RefreshResult(**{**values, **other})  # type: ignore[arg-type]


def test_a_timer_begins_early_by_what_the_engine_counts_on_and_ends_by_what_it_takes(settings):
    graph = graph_of(settings, 300)
    path = (Hop(ORDERS, 1.0), Hop(CLEAN, 2.0))

    found = predict_lag(graph, path, {}, {ORDERS: 10.0, CLEAN: 20.0}, 2)

    # Begun when the data is 270 s old, seen half a second later, done after 3 s.
    assert found == PredictedLag(3 + 270.5 / 2, 273.5)


def test_a_timer_that_is_too_slow_for_its_promise_begins_when_it_has_ended(settings):
    found = predict_lag(graph_of(settings, 300), (Hop(CLEAN, 400.0),), {}, {CLEAN: 400.0}, 2)

    assert found.greatest == pytest.approx(800.5)


def test_a_continuous_table_waits_for_its_turn_among_the_others(settings):
    graph = graph_of(settings, 10)
    path = (Hop(ORDERS, 2.0), Hop(CLEAN, 4.0))

    alone = predict_lag(graph, path, {ORDERS: 2.0, CLEAN: 4.0}, {}, 2)
    crowded = predict_lag(graph, path, {ORDERS: 20.0, CLEAN: 4.0}, {}, 2)

    # The slower table reads rows of the log that are a second old on average.
    assert alone == PredictedLag(6 + 1 + 2, 6 + 1 + 4)
    # Two workers have 24 seconds of work in a turn.
    assert crowded == PredictedLag(6 + 6 + 6, 6 + 6 + 12)


def test_tables_by_a_timer_take_workers_from_the_continuous_ones_and_leave_one(settings):
    graph = read_declarations(
        {
            "orders.sql": "CREATE SOURCE orders (id BIGINT) FRESHNESS = INTERVAL '10' SECOND "
            "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'orders')",
            "clean.sql": "CREATE MATERIALIZED TABLE clean FRESHNESS = INTERVAL '10' SECOND AS SELECT id FROM orders",
            "daily.sql": "CREATE MATERIALIZED TABLE daily FRESHNESS = INTERVAL '5' MINUTE AS SELECT id FROM clean",
        },
        settings,
    )
    daily, path = TableName.parse("daily"), (Hop(ORDERS, 6.0), Hop(CLEAN, 6.0))
    seconds = {ORDERS: 6.0, CLEAN: 6.0}

    # Of 288 seconds between two of its refreshes a table of 144 s takes half, and one of a day all but one worker.
    half = predict_lag(graph, path, {**seconds, daily: 144.0}, seconds, 2)
    most = predict_lag(graph, path, {**seconds, daily: 86_400.0}, seconds, 2)

    assert half.greatest == 12 + 8 / 2 + 8
    assert most.greatest == 12 + 12 / 2 + 12


def test_refreshes_that_were_made_show_how_high_and_how_long_the_lag_was():
    records = [record(10.0 * n, 10.0 * n - 4) for n in range(8)]

    assert measure_lag(records, [], "continuous") == PredictedLag(9.0, 14.0, 4)
    assert measure_lag(records[:3], [], "continuous") is None
    assert measure_lag(records, [], "incremental") is None


def test_the_newer_half_of_them_shows_what_an_engine_that_has_become_faster_takes():
    slow = [record(20.0 * n, 20.0 * n - 15) for n in range(4)]
    quick = [record(60.0 + 5.0 * n, 60.0 + 5.0 * n - 3) for n in range(1, 6)]

    assert measure_lag([*slow, *quick], [], "continuous") == PredictedLag(5.5, 35.0, 4)


def test_a_long_cycle_counts_for_as_long_as_it_is():
    ends = [0.0, 10.0, 20.0, 60.0]

    found = measure_lag([record(end, end - 4) for end in ends], [], "continuous")

    # Ten seconds from 4 to 14, twice, and forty from 4 to 44.
    assert found == PredictedLag((10 * 9 + 10 * 9 + 40 * 24) / 60, 44.0, 3)


def test_another_freshness_a_person_and_a_quiet_source_do_not_count():
    records = [record(10.0 * n, 10.0 * n - 4) for n in range(8)]
    altered = record(75.0, 0.0, state="ALTERED", data_timestamp=None)
    manual = record(75.0, 74.0, cause="manual")
    quiet = [record(n * 10.0 + 5, n * 10.0 + 5, strategy="noop", committed=False) for n in range(3)]

    assert measure_lag([*records, altered], [], "continuous") is None
    assert measure_lag([*records, manual], [], "continuous") is None
    assert measure_lag(records[:6], quiet, "continuous") is None
    assert measure_lag([*records], quiet[:2], "continuous") == PredictedLag(9.0, 14.0, 3)
