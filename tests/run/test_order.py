"""A request brings upstreams first, in the order of the graph."""

from __future__ import annotations

from freshline.declare.project import read_declarations
from freshline.run.order import refresh_order
from freshline.values.names import TableName

FILES = {
    "s.sql": "CREATE SOURCE s (id INT) WITH ('connector' = 'delta', 'path' = 's')",
    "other.sql": "CREATE SOURCE other (id INT) WITH ('connector' = 'delta', 'path' = 'o')",
    "b.sql": "CREATE MATERIALIZED TABLE b AS SELECT id FROM s",
    "a.sql": "CREATE MATERIALIZED TABLE a AS SELECT id FROM b",
    "c.sql": "CREATE MATERIALIZED TABLE c AS SELECT id FROM other",
}


def order(graph, *names, upstreams=True):
    return " ".join(map(str, refresh_order(graph, [TableName.parse(name) for name in names], upstreams=upstreams)))


def test_upstreams_come_first_and_others_not_at_all(settings):
    graph = read_declarations(FILES, settings)

    assert order(graph, "a") == "s b a"
    assert order(graph, "c", "b") == "other s b c"
    assert order(graph, "a", "b", upstreams=False) == "b a"
    assert order(graph) == "other s b a c"
