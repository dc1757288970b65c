"""Selections of tables: names, methods, what stands above and below."""

from __future__ import annotations

import pytest

from freshline.dagster.selection import select_tables
from freshline.declare.project import read_declarations
from freshline.errors import SettingsError

FILES = {
    "events.sql": "CREATE SOURCE events (id STRING, n INT, PRIMARY KEY (id)) "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/events', 'owner' = 'ada@example.com')",
    "plan.sql": "CREATE SOURCE plan (id STRING) WITH ('connector' = 'delta', 'path' = 'landing/plan')",
    "sales/orders.sql": "CREATE MATERIALIZED TABLE sales.orders FRESHNESS = INTERVAL '10' SECOND "
    "AS SELECT id, n FROM events",
    "sales/revenue.sql": "CREATE MATERIALIZED TABLE sales.revenue WITH ('group' = 'finance') "
    "FRESHNESS = INTERVAL '6' HOUR AS SELECT sum(n) AS total FROM sales.orders",
    "report.sql": "CREATE MATERIALIZED TABLE report FRESHNESS = INTERVAL '6' HOUR "
    "AS SELECT r.total, p.id FROM sales.revenue r CROSS JOIN plan p",
}


@pytest.fixture
def graph(settings):
    return read_declarations(FILES, settings)


@pytest.mark.parametrize(
    ("select", "names"),
    [
        ("*", "events plan sales.orders sales.revenue report"),
        ("sales.revenue", "sales.revenue"),
        ("Sales.Revenue", "sales.revenue"),
        ("sales.*", "sales.orders sales.revenue"),
        ("namespace:sales", "sales.orders sales.revenue"),
        ("namespace:", "events plan report"),
        ("mode:continuous", "events sales.orders"),
        ("kind:log", "events"),
        ("kind:source", "plan"),
        ("group:finance", "sales.revenue"),
        ("owner:ada*", "events"),
        ("+sales.revenue", "events sales.orders sales.revenue"),
        ("1+sales.revenue", "sales.orders sales.revenue"),
        ("events+", "events sales.orders sales.revenue report"),
        ("events+1", "events sales.orders"),
        ("1+sales.revenue+1", "sales.orders sales.revenue report"),
        ("report plan", "plan report"),
        (["report", "plan"], "plan report"),
        ("kind:table,mode:batch", "sales.revenue report"),
        ("+report,kind:table report", "sales.orders sales.revenue report"),
        ("nothing.*", ""),
        ([], ""),
    ],
)
def test_a_selection_is_of_these_tables(graph, select, names):
    assert {str(name) for name in select_tables(graph, select)} == set(names.split())


def test_the_order_is_that_of_the_graph_and_the_excluded_are_left_out(graph):
    names = [str(name) for name in select_tables(graph, "+report", exclude=["plan", "sales.orders"])]

    assert names == [str(name) for name in graph.order if str(name) in {"events", "sales.revenue", "report"}]


@pytest.mark.parametrize(
    ("select", "said"),
    [
        ("sales.revnue", "there is no such table or source. Did you mean sales.revenue?"),
        ("mode:stream", "mode:stream selects nothing. There are continuous, incremental, batch."),
        ("tag:nightly", "tag: is no method of a selection. There are group, kind, mode, namespace, owner."),
        ("group:nothing", "group:nothing selects nothing. There are "),
        ("namespace:sale", "namespace:sale selects nothing. Did you mean sales? There are "),
        ("owner:nobody", "owner:nobody selects nothing. There are "),
        ("a++b", "'a++b' is no selection."),
        ("report,", "'report,' is no selection."),
    ],
)
def test_a_mistake_in_a_selection_is_an_error(graph, select, said):
    with pytest.raises(SettingsError) as told:
        select_tables(graph, select)

    assert said in str(told.value)
