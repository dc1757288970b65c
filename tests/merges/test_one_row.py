"""The order of rows that the table itself stores, and the conditions that follow from it."""

from __future__ import annotations

import pytest

from freshline.merges.first_row import FirstRow
from freshline.merges.last_row import LastRow
from freshline.merges.versioned import Versioned
from freshline.query.select_list import StoredOrder, stored_order
from freshline.sql.query_parser import parse_query
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.spec import TableSpec

NOWHERE = Location("t.sql", 1)


def spec_of(items, columns, merge):
    query = parse_query(f"SELECT {items} FROM ev", "t.sql", 1)
    return TableSpec(
        TableName.parse("t"),
        query,
        NOWHERE,
        Freshness(60),
        primary_key=("k",),
        columns=tuple(columns.split()),
        merge=merge,
    )


BY_TIME = FirstRow("ts", "id, coalesce(a, b)")


@pytest.mark.parametrize(
    ("items", "columns", "order", "stored"),
    [
        ("k, ts, id", "k ts id", "ts", StoredOrder("ts", ("id",))),
        ("k, ev.ts, id", "k ts id", "ts", StoredOrder("ts", ("id",))),
        ("*", "k ts id", "ts", StoredOrder("ts", ("id",))),
        ("k, TS, ID", "k TS ID", "ts", StoredOrder("TS", ("ID",))),
        ("k, id", "k id", "ts", StoredOrder(None, ("id",))),
        ("k, ts", "k ts", "ts", StoredOrder("ts", None)),
        ("k, ts AS time, id", "k time id", "ts", StoredOrder(None, ("id",))),
        ("k, id AS ts", "k ts", "ts", StoredOrder(None, None)),
        ("k, CAST(x AS TIMESTAMP) AS ts, id", "k ts id", "ts", StoredOrder(None, ("id",))),
        ("k, payload.ts AS ts, id", "k ts id", "ts", StoredOrder(None, ("id",))),
        ("* EXCEPT (ts)", "k id", "ts", StoredOrder(None, None)),
        ("k, ts, id", "k ts id", "date(ts)", StoredOrder(None, ("id",))),
    ],
)
def test_a_stored_column_speaks_for_the_order_only_where_it_is_that_column(items, columns, order, stored):
    assert stored_order(spec_of(items, columns, FirstRow(order, "id")), order, "id") == stored


def test_arrival_is_never_stored():
    assert stored_order(spec_of("k, ts", "k ts", FirstRow(None, None)), None, None) == StoredOrder(None, None)


def test_the_order_is_a_struct_in_which_a_null_never_beats_a_value():
    assert BY_TIME.helpers == {
        "_freshline_order": "struct(((ts) IS NULL) AS n, (ts) AS o, (id) AS t0, (coalesce(a, b)) AS t1)",
        "_freshline_delete": "false",
    }
    assert LastRow("ts", "id", delete_when="op = 'd'").helpers == {
        "_freshline_order": "struct(((ts) IS NOT NULL) AS n, (ts) AS o, (id) AS t0)",
        "_freshline_delete": "coalesce((op = 'd'), false)",
    }
    assert Versioned("v").helpers == {
        "_freshline_order": "struct(((v) IS NOT NULL) AS n, (v) AS o)",
        "_freshline_delete": "false",
        "_freshline_rejected": "CASE WHEN (v) IS NULL THEN 'NULL_VERSION' END",
    }


def test_rows_that_came_first_never_give_way():
    for merge in (FirstRow(None, None), FirstRow("ts", "id", late="ignore")):
        assert merge.never_gives_way
        assert not merge.follows_from_rows
