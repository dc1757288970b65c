"""The cost of a promise and whether another would be kept, from the measured times of refreshes."""

from __future__ import annotations

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.freshness.cost import MeasuredCosts, explain_freshness
from tests.freshness.orders import ORDERS, name


@pytest.fixture
def graph(settings) -> Graph:
    """orders -> clean (10 s) -> daily (1 hour)"""
    return read_declarations(
        {
            **ORDERS,
            "daily.sql": "CREATE MATERIALIZED TABLE daily FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM clean",
        },
        settings,
    )


SECONDS = {name("orders"): 1.0, name("clean"): 2.0, name("daily"): 6.0}
CPU = {name("orders"): 0.5, name("clean"): 1.0, name("daily"): 10.0}


def test_a_table_by_a_timer_is_refreshed_once_a_period_and_pays_for_what_drives_it(graph):
    found = explain_freshness(graph, name("daily"), MeasuredCosts(SECONDS, CPU))

    assert str(found.own.mode) == "batch"
    assert found.own.feasible
    assert found.own.refreshes_an_hour == pytest.approx(3_600 / (3_600 - 9))
    # orders and clean go on as they must: at most once in their slowest refresh.
    assert found.own.cpu_seconds_an_hour == pytest.approx(
        10 * 3_600 / 3_591 + 0.5 * 3_600 / 1 + 1.0 * 3_600 / 2, rel=0.01
    )


def test_a_tighter_target_is_judged_with_its_inputs_as_fresh(graph):
    found = explain_freshness(graph, name("daily"), MeasuredCosts(SECONDS, CPU))
    targets = {target.freshness.seconds: target for target in found.others}

    assert targets[5].feasible is False
    assert targets[30].feasible
    assert str(targets[30].mode) == "continuous"
    assert targets[30].refreshes_an_hour == 600
    tight, loose = targets[30].cpu_seconds_an_hour, targets[1800].cpu_seconds_an_hour
    assert tight is not None
    assert loose is not None
    assert tight > loose
    assert 3_600 not in targets


def test_a_table_that_was_never_measured_alone_has_no_cost(graph):
    found = explain_freshness(graph, name("daily"), MeasuredCosts({}, {name("orders"): 0.5}))

    assert found.own.cpu_seconds_an_hour is None
    assert found.own.feasible is None
    assert "CPU not measured" in str(found)


def test_the_json_names_the_critical_path_with_shares(graph):
    found = explain_freshness(graph, name("DAILY"), MeasuredCosts(SECONDS, CPU)).as_json()

    assert found["critical_path"] == [
        {"table": "orders", "seconds": 1.0, "share": 0.1111},
        {"table": "clean", "seconds": 2.0, "share": 0.2222},
        {"table": "daily", "seconds": 6.0, "share": 0.6667},
    ]
    assert (found["typical_lag_seconds"], found["predicted_lag_seconds"]) == (9 + 3_591.5 / 2, 3_600.5)
    assert found["measured_refreshes"] == 0
