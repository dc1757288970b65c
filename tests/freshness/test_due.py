"""Due: early enough to keep the promise, upstreams first, nothing when it is fresh."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.freshness.due import critical_paths, due_at, due_tables, next_due, poll_seconds, with_driving
from freshline.values.freshness import Freshness
from tests.freshness.orders import name

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def graph(settings) -> Graph:
    return read_declarations(
        {
            "orders.sql": "CREATE SOURCE orders (id BIGINT) FRESHNESS = INTERVAL '10' SECOND "
            "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'orders')",
            "rates.sql": "CREATE SOURCE rates (id BIGINT, rate INT, PRIMARY KEY (id)) FRESHNESS = INTERVAL '1' DAY "
            "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'rates')",
            "clean.sql": "CREATE MATERIALIZED TABLE clean FRESHNESS = INTERVAL '10' MINUTE AS SELECT id FROM orders",
            "priced.sql": "CREATE MATERIALIZED TABLE priced FRESHNESS = INTERVAL '1' HOUR AS "
            "SELECT c.id, r.rate FROM clean c LEFT JOIN rates FOR SYSTEM_TIME AS OF PROCTIME() AS r ON r.id = c.id",
        },
        settings,
    )


def test_a_critical_path_is_the_sum_over_the_driving_inputs_only(graph):
    paths = critical_paths(
        graph, {name("orders"): 2.0, name("clean"): 30.0, name("rates"): 500.0, name("priced"): 60.0}
    )

    assert paths[name("clean")] == 32.0
    assert paths[name("priced")] == 92.0


def test_a_table_is_due_before_its_promise_would_be_missed():
    hour = Freshness(3600)

    assert due_at(NOW, hour, 600.0) == NOW + timedelta(minutes=50)
    assert due_at(NOW, hour, 9999.0) == NOW


def test_only_what_is_about_to_miss_its_promise_is_due(graph):
    stamps = {each: NOW - timedelta(minutes=9) for each in graph.order} | {name("orders"): NOW}

    assert due_tables(graph, stamps, {}, NOW) == ()
    assert due_tables(graph, stamps, {name("clean"): 90.0}, NOW) == (name("clean"),)
    assert due_tables(graph, stamps, {}, NOW + timedelta(minutes=1)) == (name("orders"), name("clean"))


def test_a_table_without_a_data_timestamp_is_due(graph):
    assert due_tables(graph, {}, {}, NOW) == graph.order


def test_after_the_clock_was_put_back_a_table_is_due_at_once_and_then_as_ever(graph):
    back = NOW - timedelta(hours=1)
    stamps = dict.fromkeys(graph.order, NOW)
    assert due_tables(graph, stamps, {}, back) == graph.order
    assert due_tables(graph, dict.fromkeys(graph.order, back), {}, back) == ()
    # A commit that came while the logs were read is no jump.
    assert due_tables(graph, stamps, {}, NOW - timedelta(seconds=2)) == ()


def test_after_the_clock_was_put_forward_what_is_old_by_it_is_due(graph):
    stamps = dict.fromkeys(graph.order, NOW)

    # The source that is read in place has a day, and is not due. The others are due once, and then have a data
    # timestamp by the new clock.
    assert due_tables(graph, stamps, {}, NOW + timedelta(hours=1)) == tuple(map(name, ("orders", "clean", "priced")))


def test_a_due_table_takes_along_what_drives_it_and_leaves_dimensions(graph):
    assert with_driving(graph, [name("priced")]) == (name("orders"), name("clean"), name("priced"))


def test_sources_are_checked_four_times_in_their_freshness_and_at_least_each_second(settings):
    source = (
        "CREATE SOURCE s{0} (id BIGINT) FRESHNESS = INTERVAL '{0}' SECOND "
        "WITH ('connector' = 'files', 'format' = 'json', 'path' = 's{0}')"
    )
    graph = read_declarations({f"s{seconds}.sql": source.format(seconds) for seconds in (1, 2, 30)}, settings)

    assert [poll_seconds(graph, name(f"s{seconds}")) for seconds in (1, 2, 30)] == [0.25, 0.5, 1.0]


def test_the_next_is_due_by_the_least_of_what_is_left_to_each_and_now_where_one_is(graph):
    stamps = dict.fromkeys(graph.order, NOW)
    orders, clean = name("orders"), name("clean")

    assert next_due(graph, stamps, {}, NOW) == NOW + timedelta(seconds=10)
    assert next_due(graph, stamps, {clean: 90.0}, NOW, {orders}) == NOW + timedelta(minutes=10, seconds=-90)
    assert next_due(graph, {**stamps, clean: None}, {}, NOW) == NOW
    assert next_due(graph, {**stamps, clean: None}, {}, NOW, {clean}) == NOW + timedelta(seconds=10)
    assert next_due(graph, stamps, {}, NOW, set(graph.order)) is None


def test_nothing_is_due_before_the_next_is(graph):
    stamps = dict.fromkeys(graph.order, NOW)
    first = next_due(graph, stamps, {}, NOW)

    assert first is not None
    assert due_tables(graph, stamps, {}, first - timedelta(milliseconds=1)) == ()
    assert due_tables(graph, stamps, {}, first) == (name("orders"),)
