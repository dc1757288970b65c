"""The entries that tables are to have: from their declarations and their logs."""

from __future__ import annotations

import pyarrow as pa

from freshline.catalogs.wanted import WantedEntries, provide_warehouse_id, read_warehouse_id
from freshline.values.names import TableName
from freshline.values.registrar import CatalogColumn
from tests.catalogs.shop import ODD, ORDERS


def test_a_table_is_wanted_from_its_first_commit_on(shop):
    shop.source("orders")
    assert shop.wanted() == ()

    path = shop.fill("orders")

    (entry,) = shop.wanted()
    assert (str(entry.name), entry.path, entry.warehouse_id) == ("orders", str(path), shop.warehouse_id)
    assert entry.columns == (
        CatalogColumn("id", "BIGINT"),
        CatalogColumn("customer", "STRING"),
        CatalogColumn("amount", "DOUBLE"),
    )
    assert len(entry.table_id) == 36


def test_types_and_names_are_those_of_the_log(shop):
    shop.source("odd")
    nested = pa.array(
        [{"a-b": 1, "c": [{"d": 2}]}], pa.struct([("a-b", pa.int32()), ("c", pa.list_(pa.struct([("d", pa.int64())])))])
    )
    shop.fill("odd", pa.table({ODD: nested, "n": pa.array([None], pa.decimal128(12, 3))}))

    (entry,) = shop.wanted()

    assert [(column.name, column.type) for column in entry.columns] == [
        (ODD, "STRUCT<`a-b`: INT, c: ARRAY<STRUCT<d: BIGINT>>>"),
        ("n", "DECIMAL(12,3)"),
    ]


def test_comments_are_the_declared_ones_and_travel_with_their_columns(shop):
    shop.add("orders", columns="id BIGINT COMMENT 'the number', customer STRING, amount DOUBLE", more="COMMENT 'All'")
    shop.table("spend", "SELECT id, amount + 1 AS more FROM orders", header="COMMENT 'What was spent'")
    shop.fill("spend", {"id": [1], "more": [2.0]})

    found = {str(entry.name): entry for entry in shop.wanted()}

    assert {name: entry.comment for name, entry in found.items()} == {"orders": "All", "spend": "What was spent"}
    assert [column.comment for column in found["orders"].columns] == ["the number", None, None]
    assert [column.comment for column in found["spend"].columns] == ["the number", None]


def test_sources_that_are_read_in_place_and_tables_that_nobody_declares_are_not_wanted(shop):
    shop.inputs()
    shop.fill("orders")
    shop.fill("forgotten")

    assert [str(entry.name) for entry in shop.wanted()] == ["orders"]


def test_a_table_with_a_damaged_log_keeps_the_entry_that_it_had(shop):
    shop.add("orders")
    shop.add("other")
    entries = WantedEntries(shop.warehouse, "w")
    graph = shop.graph()
    before = entries.read(graph)
    log = shop.warehouse.path(TableName.parse("orders")) / "_delta_log"
    for file in log.iterdir():
        file.write_text("damaged")

    # Its version is the same, so only what is read anew shows it.
    shop.fill("other", {**ORDERS, "more": [1, 2]})
    again = WantedEntries(shop.warehouse, "w")
    found = again.read(graph)

    assert [str(name) for name in again.unreadable] == ["orders"]
    assert [str(entry.name) for entry in found] == ["other"]
    assert [str(entry.name) for entry in before] == ["orders", "other"]


def test_only_changed_tables_are_read_again(shop):
    shop.add("orders")
    shop.add("other")
    entries, graph = WantedEntries(shop.warehouse, "w"), shop.graph()
    entries.read(graph)
    shop.fill("orders", {"id": [1]})
    shop.fill("other", {"id": [1]})

    found = entries.read(graph, [TableName.parse("orders")])

    assert [len(entry.columns) for entry in found] == [1, 3]


def test_the_id_of_a_warehouse_is_made_once(shop):
    assert read_warehouse_id(shop.warehouse) is None

    made = provide_warehouse_id(shop.warehouse)

    assert provide_warehouse_id(shop.warehouse) == made == read_warehouse_id(shop.warehouse)
