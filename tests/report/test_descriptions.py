"""Comments of columns travel with a column that is taken as it is, and with no other."""

from __future__ import annotations

from freshline.query.resolved import find_lineage
from freshline.report.descriptions import describe_columns
from freshline.values.names import TableName
from tests.report.board.shop import open_shop

DECLARATIONS = {
    "orders": "CREATE SOURCE orders (id STRING COMMENT 'Its number', amount DOUBLE COMMENT 'With tax', at TIMESTAMP)"
    " WITH ('connector' = 'files', 'format' = 'json', 'path' = 'in')",
    "large": "CREATE MATERIALIZED TABLE large FRESHNESS = INTERVAL '1' HOUR AS"
    " SELECT id, amount, amount AS paid, at FROM orders WHERE amount > 100",
    "spent": "CREATE MATERIALIZED TABLE spent FRESHNESS = INTERVAL '1' HOUR AS"
    " SELECT ID, sum(amount) AS total, max(at) AS at FROM large GROUP BY id",
}


def test_a_column_that_is_taken_as_it_is_keeps_its_comment_over_several_tables(tmp_path):
    with open_shop(tmp_path, DECLARATIONS) as shop:
        graph = shop.graph
        lineages = {
            spec.name: find_lineage(spec, {read: graph.columns(read) or () for read in spec.reads})
            for spec in graph.tables
        }

    found = {str(name): texts for name, texts in describe_columns(graph, lineages).items()}

    assert found == {
        "orders": {"id": "Its number", "amount": "With tax"},
        "large": {"id": "Its number", "amount": "With tax"},
        "spent": {"id": "Its number"},
    }
    assert describe_columns(graph, {})[TableName.parse("large")] == {}
