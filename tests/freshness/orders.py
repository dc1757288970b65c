"""A source and a table over it, which the graphs of several tests begin with."""

from __future__ import annotations

from freshline.values.names import TableName

ORDERS = {
    "orders.sql": "CREATE SOURCE orders (id BIGINT) WITH ('connector' = 'files', 'format' = 'json', 'path' = 'orders')",
    "clean.sql": "CREATE MATERIALIZED TABLE clean FRESHNESS = INTERVAL '10' SECOND AS SELECT id FROM orders",
}


def name(text: str) -> TableName:
    return TableName.parse(text)
