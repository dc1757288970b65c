"""Merge types: one row a key, whatever order the rows arrive in.

Every arrival order of some events is tried at once: an order is a column of the key, and the n-th file has the n-th
event of each order. In the end every order must have given the same row.
"""

from __future__ import annotations

from itertools import permutations

import pytest

from freshline.errors import HistoryRequiredError, UpstreamChangedError
from tests.lanes import few_or_many, long_but
from tests.scenarios.tables import HOURLY, declare, declare_merge, fill, follow


def land_in_every_order(lab, source, events):
    """Land the events, a file a place, and yield after each."""
    orders = list(permutations(events))
    for place in range(len(events)):
        lab.land(source, f"{place}.json", [{"o": number, **order[place]} for number, order in enumerate(orders)])
        yield place


@pytest.mark.parametrize(
    "names", few_or_many(("no_tie", "renamed"), ("stored", "no_tie", "no_order", "renamed", "every_column"))
)
def test_first_row_by_event_time_is_one_table_for_every_arrival_order(lab, names):
    lab.files("ev", "o INT, k STRING, id STRING, ts TIMESTAMP, v STRING")
    by_time = "'merge' = 'first_row', 'merge.order' = 'ts', 'merge.tie-breaker' = 'id'"
    columns = {
        "stored": "o, k, id, ts, v",  # the table knows its order
        "no_tie": "o, k, ts, v",  # the tie-breaker is not stored
        "no_order": "o, k, v",  # nothing of the order is stored
        "renamed": "o, k, v, id AS ts",  # a column of the order's name is something else
        "every_column": "*",
    }
    for name in names:
        declare(lab, f"SELECT {columns[name]} FROM ev", f"(PRIMARY KEY (o, k)) WITH ({by_time})", name=name)
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    events = [
        {"k": "a", "id": "e3", "ts": None, "v": "a NULL never beats a time"},
        {"k": "a", "id": "e2", "ts": early, "v": "beaten by the tie-breaker"},
        {"k": "a", "id": "e1", "ts": early, "v": "first"},
        {"k": "a", "id": "e0", "ts": late, "v": "late"},
    ]

    strategies = []
    for _ in land_in_every_order(lab, "ev", events):
        outcomes = lab.refresh_all()
        strategies.append({outcome.strategy for outcome in outcomes if outcome.kind == "table"})

    assert strategies == [{"full"}, {"merge"}, {"merge"}, {"merge"}]
    for name in names:
        assert {row["v"] for row in lab.rows(name)} == {"first"}, name
        assert len(lab.rows(name)) == 24
        assert lab.diff(name) == [], name


def test_last_row_with_deletes_is_one_table_for_every_arrival_order(lab):
    lab.files("ch", "o INT, k STRING, id STRING, ts TIMESTAMP, op STRING, v STRING")
    deleting = (
        "'merge' = 'last_row', 'merge.sequence' = 'ts', 'merge.tie-breaker' = 'id', 'merge.delete-when' = 'op = ''d'''"
    )
    columns = {"stored": "o, k, id, ts, v", "no_tie": "o, k, ts, v", "no_order": "o, k, v"}
    for name, items in columns.items():
        declare(lab, f"SELECT {items} FROM ch", f"(PRIMARY KEY (o, k)) WITH ({deleting})", name=name)
    declare_merge(lab, "SELECT o, k, v FROM ch", "o, k", "last_row", sequence="ts", tie_breaker="id", name="newest")
    first, second, third = (f"2026-01-0{day}T00:00:00Z" for day in (1, 2, 3))
    # Two keys in one walk: `gone` ends deleted, `back` is deleted and comes again; a NULL sequence beats nothing.
    events: list[list[tuple[str, str, str | None, str, str | None]]] = [
        [("gone", "1", first, "i", "old"), ("back", "1", first, "i", "old")],
        [("gone", "2", second, "u", "newer"), ("back", "2", second, "d", None)],
        [("gone", "3", third, "d", None), ("back", "3", third, "i", "again")],
        [("gone", "9", None, "u", "no time"), ("back", "9", None, "d", None)],
    ]
    orders = list(permutations(events))
    for place in range(len(events)):
        lab.land(
            "ch",
            f"{place}.json",
            [
                {"o": number, "k": k, "id": id_, "ts": ts, "op": op, "v": v}
                for number, order in enumerate(orders)
                for k, id_, ts, op, v in order[place]
            ],
        )
        outcomes = lab.refresh_all()
        assert [o.error for o in outcomes] == [None] * len(outcomes)

    for name in columns:
        assert {(row["k"], row["v"]) for row in lab.rows(name)} == {("back", "again")}, name
        assert len(lab.rows(name)) == 24, name
        assert lab.diff(name) == [], name
    assert {(row["k"], row["v"]) for row in lab.rows("newest")} == {("gone", None), ("back", "again")}


@pytest.mark.long
def test_a_delete_that_changed_nothing_beats_an_older_row_that_comes_later(lab):
    lab.files("ch", "k STRING, ts TIMESTAMP, op STRING")
    declare_merge(lab, "SELECT k FROM ch", "k", "last_row", sequence="ts", tie_breaker="op", delete_when="op = 'd'")
    lab.land("ch", "0.json", [{"k": "b", "ts": "2026-01-01T00:00:10Z", "op": "u"}])
    lab.refresh_all()
    # Nothing is written, so only the control store knows that this was read.
    lab.land("ch", "1.json", [{"k": "a", "ts": "2026-01-01T00:00:20Z", "op": "d"}])
    assert [outcome.strategy for outcome in lab.refresh_all()][-1] == "noop"

    lab.land("ch", "2.json", [{"k": "a", "ts": "2026-01-01T00:00:15Z", "op": "u"}])
    lab.refresh_all()

    assert lab.rows("t") == [{"k": "b"}]
    assert lab.diff("t") == []


def test_first_row_by_arrival_keeps_the_first_file_and_line(lab):
    lab.files("ev", "k STRING, v INT")
    declare(lab, "SELECT k, v FROM ev WHERE v > 0", "(PRIMARY KEY (k)) WITH ('merge' = 'first_row')")
    lab.land("ev", "1.json", [{"k": "a", "v": -1}, {"k": "a", "v": 2}, {"k": "a", "v": 1}])
    lab.refresh("t")
    lab.land("ev", "0.json", [{"k": "a", "v": 5}, {"k": "b", "v": 7}, {"k": "b", "v": 6}])

    outcome = follow(lab)
    assert (outcome.strategy, outcome.rows_in, outcome.rows_out) == ("merge", 3, 1)
    assert lab.rows("t") == [{"k": "a", "v": 2}, {"k": "b", "v": 7}]
    lab.land("ev", "2.json", [{"k": "a", "v": 9}])
    # The fold has a row, the table does not take it: whether a commit is made is Delta's matter, the rows are not.
    lab.refresh("t")
    assert lab.rows("t") == [{"k": "a", "v": 2}, {"k": "b", "v": 7}]


def test_late_rows_are_ignored_where_the_declaration_says_so(lab):
    lab.files("ev", "k STRING, id STRING, ts TIMESTAMP")
    declare_merge(lab, "SELECT k, id, ts FROM ev", "k", "first_row", order="ts", tie_breaker="id", late="ignore")
    lab.land("ev", "1.json", [{"k": "a", "id": "2", "ts": "2026-01-02"}, {"k": "a", "id": "3", "ts": "2026-01-03"}])
    lab.refresh("t")
    lab.land("ev", "2.json", [{"k": "a", "id": "1", "ts": "2026-01-01"}, {"k": "b", "id": "4", "ts": None}])
    follow(lab)
    assert [(row["k"], row["id"]) for row in lab.rows("t")] == [("a", "2"), ("b", "4")]
    lab.refresh("t", full=True)
    # A full refresh saw every row at once.
    assert [(row["k"], row["id"]) for row in lab.rows("t")] == [("a", "1"), ("b", "4")]
    assert lab.diff("t") == []


def test_null_keys_are_quarantined_once_for_each_table(lab):
    lab.files("ev", "a STRING, b STRING, v INT")
    declare(lab, "SELECT a, b, v FROM ev", "(PRIMARY KEY (a, b)) WITH ('merge' = 'first_row')")
    declare(lab, "SELECT a, v FROM ev", "(PRIMARY KEY (a)) WITH ('merge' = 'first_row')", name="u")
    lab.land("ev", "1.json", [{"a": "x", "b": "y", "v": 1}, {"a": "x", "b": None, "v": 2}])
    assert [o.rejected for o in lab.refresh_all()] == [0, 1, 0]
    lab.land("ev", "2.json", [{"a": None, "b": None, "v": 3}])
    assert [o.rejected for o in lab.refresh_all()] == [0, 1, 1]
    lab.refresh("t", full=True)
    lab.refresh("u", full=True)

    assert [(row["error"], row["file"], row["line"], row["raw"]) for row in lab.quarantine("ev")] == [
        ("NULL_KEY(t)", "1.json", 2, b'{"a":"x","v":2}'),
        ("NULL_KEY(t)", "2.json", 1, b'{"v":3}'),
        ("NULL_KEY(u)", "2.json", 1, b'{"v":3}'),
    ]
    assert lab.rows("t") == [{"a": "x", "b": "y", "v": 1}]
    assert lab.diff("t") == lab.diff("u") == []


@pytest.mark.long
def test_a_merge_over_a_table_that_is_read_in_place_follows_inserts_and_refolds_after_deletes(lab):
    lab.source("s", "k STRING, id INT, ts TIMESTAMP, op STRING")
    lab.sql(
        "INSERT INTO s VALUES ('a', 1, TIMESTAMP'2026-01-01', 'i'), ('a', 2, TIMESTAMP'2026-01-02', 'i'), "
        "(NULL, 3, NULL, 'i')"
    )
    order = "'merge.tie-breaker' = 'id'"
    lab.declare(
        "CREATE MATERIALIZED TABLE f (PRIMARY KEY (k)) "
        f"WITH ('merge' = 'first_row', 'merge.order' = 'ts', {order}) {HOURLY} AS SELECT k, id FROM s"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE l (PRIMARY KEY (k)) "
        f"WITH ('merge' = 'last_row', 'merge.sequence' = 'ts', {order}) {HOURLY} AS SELECT k, id, ts FROM s"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE kept (PRIMARY KEY (k)) WITH ('merge' = 'last_row', 'merge.sequence' = 'ts', "
        f"'upstream-deletes' = 'ignore', {order}) {HOURLY} AS SELECT k, id, ts FROM s"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE d (PRIMARY KEY (k)) WITH ('merge' = 'last_row', 'merge.sequence' = 'ts', "
        f"'merge.delete-when' = 'op = ''d''', {order}) {HOURLY} AS SELECT k, id FROM s"
    )
    lab.declare(
        "CREATE MATERIALIZED TABLE strict (PRIMARY KEY (k)) WITH ('merge' = 'last_row', 'merge.sequence' = 'ts', "
        f"'upstream-deletes' = 'error', {order}) {HOURLY} AS SELECT k, id FROM s"
    )
    assert {o.rejected for o in lab.refresh_all() if o.kind == "table"} == {1}
    lab.sql("INSERT INTO s VALUES ('a', 0, TIMESTAMP'2025-12-01', 'i'), ('a', 5, TIMESTAMP'2026-01-05', 'd')")
    outcomes = {o.table.name: o for o in lab.refresh_all()}
    assert [outcomes[name].strategy for name in ("f", "l", "kept", "d")] == ["merge", "merge", "merge", "keys"]
    assert [lab.rows(name)[0]["id"] for name in "fl"] == [0, 5]
    assert lab.rows("d") == []
    lab.sql("DELETE FROM s WHERE id IN (0, 5)")
    outcomes = {o.table.name: o for o in lab.refresh_all()}
    assert [outcomes[name].strategy for name in "fld"] == ["keys"] * 3
    assert all(outcomes[name].reason.startswith("UPSTREAM_DELETES") for name in "fld")
    # Rows that were folded in stay where deletes are ignored.
    assert outcomes["kept"].strategy in ("merge", "noop")
    assert [row["id"] for row in lab.rows("kept")] == [5]
    assert isinstance(outcomes["strict"].error, UpstreamChangedError)
    assert [lab.rows(name)[0]["id"] for name in ("f", "l", "d", "strict")] == [1, 2, 2, 5]
    lab.sql("UPDATE s SET k = 'b', ts = TIMESTAMP'2026-02-01' WHERE id = 2")
    lab.refresh("kept")
    assert [(row["k"], row["id"]) for row in lab.rows("kept")] == [("a", 5), ("b", 2)]
    lab.sql("DELETE FROM s WHERE k = 'b'")
    outcomes = {o.table.name: o for o in lab.refresh_all()}
    assert [(row["k"], row["id"]) for row in lab.rows("kept")] == [("a", 5), ("b", 2)]
    assert [lab.diff(name) for name in ("f", "l", "d", "kept")] == [[], [], [], []]
    assert lab.refresh("strict", full=True).state == "SUCCEEDED"
    assert lab.rows("strict") == [{"k": "a", "id": 1}]


@pytest.mark.long
def test_a_full_refresh_that_would_lose_required_history_is_refused(lab):
    fill(lab, "s", "k STRING, id INT", "('a', 1), ('b', 1)")
    declared = (
        "CREATE MATERIALIZED TABLE kept (PRIMARY KEY (k)) WITH ('merge' = 'last_row', 'merge.sequence' = 'id', "
        "'merge.tie-breaker' = 'id', 'upstream-deletes' = 'ignore'{more}) " + HOURLY + " AS SELECT k, id FROM s"
    )
    lab.declare(declared.format(more=", 'requires-history' = 's'"))
    lab.refresh("kept")
    assert lab.refresh("kept", full=True).state == "SUCCEEDED"
    lab.sql("INSERT INTO s VALUES ('a', 2)")
    lab.sql("DELETE FROM s WHERE k = 'b'")
    unread = lab.refresh("kept", full=True)
    assert isinstance(unread.error, HistoryRequiredError)
    assert "deleted or updated rows that the table keeps" in unread.error.message
    assert lab.refresh("kept").strategy == "merge"
    # A change that leaves nothing to write is kept in mind as well.
    lab.sql("DELETE FROM s WHERE k = 'a'")
    lab.refresh("kept")
    lab.restart(lose_control_store=True)
    lab.sql("INSERT INTO s VALUES ('c', 1)")
    lab.refresh("kept")

    refused = follow(lab, name="kept", full=True)
    assert isinstance(refused.error, HistoryRequiredError)
    assert "since the table began" in refused.error.message
    assert sorted((row["k"], row["id"]) for row in lab.rows("kept")) == [("a", 2), ("b", 1), ("c", 1)]
    lab.declare(declared.format(more=""))
    assert lab.refresh("kept", full=True).strategy == "full"
    assert lab.rows("kept") == [{"k": "c", "id": 1}]
    # A full refresh computed the rows that the input has: they can be computed again.
    lab.declare(declared.format(more=", 'requires-history' = 's'"))
    assert lab.refresh("kept", full=True).state == "SUCCEEDED"


def test_a_replaced_input_whose_history_is_required_is_no_reason_to_compute_anew(lab):
    fill(lab, "s", "k STRING, n INT", "('a', 1)")
    declare(lab, "SELECT k, sum(n) AS n FROM s GROUP BY k", "WITH ('requires-history' = 's')")
    lab.refresh("t")
    lab.sql("CREATE OR REPLACE TABLE s (k STRING, n INT) USING delta")
    lab.sql("INSERT INTO s VALUES ('b', 1)")

    refused = lab.refresh("t")

    assert isinstance(refused.error, HistoryRequiredError)
    assert "was replaced" in refused.error.message
    assert lab.rows("t") == [{"k": "a", "n": 1}]


@pytest.mark.long
def test_rows_without_a_key_are_counted_where_keys_are_folded_again(lab):
    fill(lab, "s", "k STRING, id INT, n INT", "('a', 1, 1), ('a', 2, 2), (NULL, 3, 3)")
    declare_merge(lab, "SELECT k, id, n FROM s", "k", "last_row", sequence="n", tie_breaker="id")
    lab.refresh("t")
    lab.sql("DELETE FROM s WHERE id IN (2, 3)")
    lab.sql("INSERT INTO s VALUES (NULL, 4, 4), (NULL, 5, 5)")

    outcome = lab.refresh("t")

    # The one that went away was counted when it came.
    assert (outcome.strategy, outcome.rejected) == ("keys", 2)
    lab.sql("UPDATE s SET n = 9 WHERE id = 4")
    assert lab.refresh("t").rejected == 1
    assert lab.rows("t") == [{"k": "a", "id": 1, "n": 1}]
    assert lab.diff("t") == []


def test_a_merge_without_a_change_feed_is_folded_again(lab):
    fill(lab, "s", "k STRING, id INT", "('a', 2)", change_feed=False)
    declare_merge(lab, "SELECT k, id FROM s", "k", "first_row", order="id", tie_breaker="id")
    lab.refresh("t")
    lab.sql("INSERT INTO s VALUES ('a', 1)")

    assert lab.refresh("t").reason.startswith("CDF_DISABLED(s)")
    assert lab.rows("t") == [{"k": "a", "id": 1}]


@pytest.mark.parametrize("kind", long_but(["ARRAY<MAP<STRING, INT>>"], ["MAP<STRING, INT>", "ARRAY<MAP<STRING, INT>>"]))
def test_columns_that_have_no_order_do_not_stop_a_merge(lab, kind):
    value = {"x": 1} if kind.startswith("MAP") else [{"x": 1}]
    lab.files("ev", f"k STRING, id INT, m {kind}")
    declare_merge(lab, "SELECT k, id, m FROM ev", "k", "last_row", sequence="id", tie_breaker="id")
    lab.land("ev", "1.json", [{"k": "a", "id": 1, "m": value}])
    lab.refresh("t")
    lab.land("ev", "2.json", [{"k": "a", "id": 2, "m": value}])

    follow(lab, by="merge")
    assert lab.rows("t") == [{"k": "a", "id": 2, "m": value}]


@pytest.mark.long
@pytest.mark.parametrize("kind", long_but(["last_row"], ["first_row", "last_row"]))
def test_an_empty_text_in_a_key_that_is_a_partition_too_is_no_key(lab, kind):
    order = "merge.order" if kind == "first_row" else "merge.sequence"
    lab.files("ev", "id INT, region STRING, n INT")
    lab.declare(
        "CREATE MATERIALIZED TABLE t (PRIMARY KEY (id, region)) PARTITIONED BY (region) "
        f"WITH ('merge' = '{kind}', '{order}' = 'n', 'merge.tie-breaker' = 'n') FRESHNESS = INTERVAL '1' HOUR AS "
        "SELECT id, region, n FROM ev"
    )
    for number in range(3):
        rows = [{"id": 1, "region": "", "n": number}, {"id": 1, "region": "eu", "n": number}]
        lab.land("ev", f"{number}.json", rows)
        lab.refresh_all()
        assert lab.diff("t") == []
        assert [row["region"] for row in lab.rows("t")] == ["eu"]
