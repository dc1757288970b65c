"""Promises are judged by what refreshes take on the slowest way from a root."""

from __future__ import annotations

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.freshness.feasible import judge_promises
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from tests.freshness.orders import ORDERS, name


@pytest.fixture
def graph(settings) -> Graph:
    """orders and prices (in place) -> clean (10 s) -> priced (20 s, driven by both)"""
    return read_declarations(
        {
            **ORDERS,
            "prices.sql": "CREATE SOURCE prices (id BIGINT) WITH ('connector' = 'delta', 'path' = 'prices')",
            "priced.sql": "CREATE MATERIALIZED TABLE priced FRESHNESS = INTERVAL '20' SECOND AS "
            "SELECT c.id FROM clean c JOIN prices p ON p.id = c.id",
        },
        settings,
    )


def seconds(**measured: float) -> dict[TableName, float]:
    return {name(table): value for table, value in measured.items()}


def test_a_promise_is_kept_where_its_path_takes_less(graph):
    found = judge_promises(graph, seconds(orders=1.0, clean=2.0, priced=1.0))[name("priced")]

    assert found.feasible
    assert [str(hop.table) for hop in found.path] == ["orders", "clean", "priced"]
    assert found.path_seconds == 4.0
    assert found.shares == ((name("orders"), 0.25), (name("clean"), 0.5), (name("priced"), 0.25))
    assert found.period_seconds == 2.0  # the slowest hop is what one version waits for the next


def test_a_promise_that_the_path_is_too_long_for_names_the_path(graph):
    found = judge_promises(graph, seconds(orders=1.0, clean=20.0, priced=1.0))

    assert found[name("priced")].feasible is False
    assert found[name("priced")].reason == (
        "the refreshes from orders on take 22.0 s (orders 1.0 s, clean 20.0 s, priced 1.0 s), "
        "longer than its freshness, 20 seconds"
    )


def test_a_table_that_was_never_measured_is_not_judged_unless_the_rest_is_too_long(graph):
    found = judge_promises(graph, seconds(orders=1.0, clean=12.0))

    assert found[name("priced")].feasible is None
    assert found[name("priced")].reason == "not measured yet: priced"
    assert found[name("clean")].feasible is False
    assert found[name("prices")].feasible  # read in place: there is nothing to bring in


def test_an_override_below_what_drives_the_table_is_not_feasible(graph):
    found = judge_promises(graph.with_freshness({name("priced"): Freshness(5)}), {})[name("priced")]

    assert found.feasible is False
    assert found.reason == "clean drives it and has freshness 10 seconds, longer than its own, 5 seconds"


def test_between_refreshes_by_time_the_lag_grows_to_the_freshness(graph):
    slower = graph.with_freshness({name("clean"): Freshness(600), name("priced"): Freshness(600)})

    assert judge_promises(slower, seconds(orders=1.0, clean=2.0, priced=1.0))[
        name("priced")
    ].period_seconds == pytest.approx(596.0)
