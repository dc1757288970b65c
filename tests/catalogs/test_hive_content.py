"""The content of an entry in a Hive metastore, from values: no metastore is asked."""

from __future__ import annotations

import pytest

from freshline.catalogs.hive.registrar import Hive
from freshline.values.names import TableName
from freshline.values.registrar import CatalogColumn, CatalogEntry

HIVE = Hive("thrift://metastore:9083", database="Shop", prefix="dev_")


def column(kind, comment=None):
    (found,) = HIVE.content(
        CatalogEntry(TableName(None, "t"), "/t", "id", "w", (CatalogColumn("X", kind, comment),))
    ).columns
    return found


def test_names_are_in_lower_case_and_namespaces_are_databases():
    assert HIVE.place(TableName.parse("Orders")) == "shop.orders"
    assert HIVE.place(TableName.parse("Sales.Orders")) == "dev_sales.orders"


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("BIGINT", "bigint"),
        ("TIMESTAMP", "timestamp"),
        ("TIMESTAMP_NTZ", "timestamp"),
        ("DECIMAL(10,2)", "decimal(10,2)"),
        ("MAP<STRING, ARRAY<INT>>", "map<string,array<int>>"),
        ("STRUCT<timestamp_ntz: TIMESTAMP_NTZ, `a:b``<`: DATE>", "struct<timestamp_ntz:timestamp,a_b___:date>"),
        ("VARIANT", "struct<metadata:binary,value:binary>"),
    ],
)
def test_types_are_in_the_spelling_of_hive(kind, said):
    assert column(kind) == ("x", said, "")


def test_a_type_or_comment_that_is_too_long_for_a_metastore_is_cut():
    fields = ", ".join(f"field_with_a_long_name_{number}: STRING" for number in range(200))

    assert column(f"STRUCT<{fields}>")[1] == "string"
    assert column("INT", "c" * 256)[2] == "c" * 256
    assert column("INT", "c" * 257)[2] == "c" * 254 + ".."
