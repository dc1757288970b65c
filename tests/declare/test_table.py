"""Tables: options, merges, keys and partitions against the query."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.merges.first_row import FirstRow
from freshline.merges.last_row import LastRow
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.spec import Mode, TableSpec
from freshline.values.time_partition import PartitionUnit, TimePartitions

T = TableName(None, "t")


def spec(project, name: TableName = T) -> TableSpec:
    found = project.read().spec(name)
    assert isinstance(found, TableSpec)
    return found


def test_a_table_is_read_into_its_spec(shop):
    shop.table(
        "t",
        "SELECT ID, day, amount FROM orders",
        keys="PRIMARY KEY (id)",
        header="PARTITIONED BY (DAY) COMMENT 'c' REFRESH_MODE = BATCH "
        "FRESHNESS = INTERVAL '2' HOUR "
        "WITH ('history' = '2 days', 'incremental' = 'strict', 'owner' = 'ann', 'group' = 'sales')",
    )
    table = spec(shop)

    assert table.columns == ("ID", "day", "amount")
    assert (table.primary_key, table.partitioned_by, table.cluster_by) == (("ID",), ("day",), ())
    assert (table.comment, table.refresh_mode, table.freshness) == ("c", Mode.BATCH, Freshness(7200))
    assert (table.history_seconds, table.incremental_strict) == (172_800, True)
    assert (table.owner, table.group) == ("ann", "sales")
    assert str(table.written_at) == "assets/t.sql:1"
    assert table.options["history"] == "2 days"


def test_a_table_may_be_clustered(shop):
    shop.table("t", "SELECT id, day AS D FROM orders", header="CLUSTER BY (d, ID)")
    assert spec(shop).cluster_by == ("D", "id")


def test_the_projects_default_freshness_is_filled_in(shop):
    shop.settings("default-freshness = \"INTERVAL '20' MINUTE\"")
    shop.table("t", "SELECT id FROM orders")

    assert spec(shop).freshness == Freshness(1200)


def test_a_merge_first_row_by_event_time(shop):
    shop.table(
        "t",
        "SELECT customer, id, at FROM orders",
        keys="PRIMARY KEY (customer)",
        header="WITH ('merge' = 'first_row', 'merge.order' = 'at', 'merge.tie-breaker' = 'id, upper(customer)', "
        "'merge.late' = 'ignore', 'upstream-deletes' = 'error')",
    )
    assert spec(shop).merge == FirstRow("at", "id, upper(customer)", late="ignore", upstream_deletes="error")


@pytest.mark.parametrize("order", ["", ", 'merge.order' = 'arrival'", ", 'merge.order' = 'ARRIVAL'"])
def test_a_merge_first_row_is_by_arrival_unless_said(shop, order):
    shop.table(
        "t",
        "SELECT customer, id FROM orders",
        keys="PRIMARY KEY (customer)",
        header=f"WITH ('merge' = 'first_row'{order})",
    )
    assert spec(shop).merge == FirstRow(None, None)


def test_a_merge_last_row_orders_by_columns_that_need_not_be_kept(shop):
    shop.table(
        "t",
        "SELECT o.customer, amount FROM orders o WHERE amount > 0",
        keys="PRIMARY KEY (customer)",
        header="WITH ('merge' = 'last_row', 'merge.sequence' = 'o.at', 'merge.tie-breaker' = 'id', "
        "'merge.delete-when' = 'amount < 0 AND address.city IS NULL')",
    )
    assert spec(shop).merge == LastRow("o.at", "id", delete_when="amount < 0 AND address.city IS NULL")


KEY = "PRIMARY KEY (customer)"
BY_TIME = "'merge.order' = 'at', 'merge.tie-breaker' = 'id'"
SUM = "'merge' = 'aggregate', 'merge.aggregate.amount' = 'sum'"
PARTS = "'merge' = 'partial_update', 'merge.group.g' = '{}'"
PART = PARTS.format("amount BY at")
LAST = SUM.replace("sum", "last_value")


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        ("'merge' = 'partial_update'", "OPTION_NEEDS", "needs 'merge.sequence', or groups such as"),
        (PARTS.format("amount"), "MERGE_GROUP", "it has another form than 'a, b USING sum BY s1, s2'. Correct it."),
        (PARTS.format("amount BY "), "MERGE_GROUP", "it has no sequence behind BY. Add the columns"),
        (PARTS.format("amount BY at DESC"), "MERGE_GROUP", "it is not a list of SQL expressions"),
        (PARTS.format("amount BY (at"), "MERGE_GROUP", "it is not a list of SQL expressions"),
        (PARTS.format("amount, AMOUNT BY at"), "MERGE_GROUP", "it names AMOUNT twice. Name it once."),
        (PARTS.format("amount USING sums BY at"), "MERGE_GROUP", "there is no function 'sums'. Did you mean sum?"),
        (PARTS.format("amount USING rbm32 BY at"), "MERGE_GROUP", "rbm32 is refused: there are no bitmaps"),
        (PARTS.format("amount USING nested_update BY at"), "MERGE_GROUP", "Keep them in a table of their own"),
        (PARTS.format("customer BY at"), "MERGE_GROUP", "names customer, which is a column of the PRIMARY KEY"),
        (PARTS.format("amuont BY at"), "MERGE_GROUP", "which the query does not yield. Did you mean amount?"),
        (PARTS.format("amount BY att"), "MERGE_EXPRESSION", "option 'merge.group.g' reads att"),
        (PART + ", 'merge.group.h' = 'amount BY id'", "MERGE_GROUP", "is in the group g too"),
        (PART + ", 'merge.group.a b' = 'amount BY id'", "MERGE_GROUP", "the name of a group is"),
        (PART + ", 'merge.sequence' = 'id'", "MERGE_GROUP", "all columns of t are in groups"),
        (PART + ", 'merge.delete-when' = 'id = 1'", "OPTION_NEEDS", "'merge.delete-group'"),
        (PART + ", 'merge.delete-group' = 'g'", "OPTION_NEEDS", "'merge.delete-when'"),
        (
            PART + ", 'merge.delete-when' = 'id = 1', 'merge.delete-group' = 'h'",
            "MERGE_GROUP",
            "is 'h', and there is no group of that name. Groups are g.",
        ),
        (PART + ", 'merge.separator.amount' = ';'", "OPTION_NEEDS", "'amount USING listagg'"),
        (
            "'merge' = 'aggregate'",
            "MERGE_AGGREGATE",
            "column amount of t has no function. Add 'merge.aggregate.amount'",
        ),
        (f"{SUM}, 'merge.aggregate.customer' = 'max'", "MERGE_AGGREGATE", "of t names a column of the PRIMARY KEY"),
        (f"{SUM}, 'merge.aggregate.amuont' = 'max'", "MERGE_AGGREGATE", "does not yield. Did you mean amount?"),
        (
            SUM.replace("sum", "sums"),
            "MERGE_AGGREGATE",
            "there is no function 'sums'. Did you mean sum? Accepted is sum,",
        ),
        (SUM.replace("sum", "hll_sketch"), "MERGE_AGGREGATE", "is refused: the bytes of a sketch follow from"),
        (SUM.replace("sum", "theta_sketch"), "MERGE_AGGREGATE", "approx_count_distinct"),
        (
            SUM.replace("sum", "rbm32"),
            "MERGE_AGGREGATE",
            "rbm32 is refused: there are no bitmaps. Use collect_distinct",
        ),
        (SUM.replace("sum", "nested_update"), "MERGE_AGGREGATE", "Keep them in a table of their own"),
        (LAST, "OPTION_NEEDS", "needs 'merge.sequence'"),
        (f"{SUM}, 'merge.sequence' = 'at'", "OPTION_NEEDS", "needs a function that asks for an order"),
        (f"{SUM}, 'merge.separator.amount' = ';'", "OPTION_NEEDS", "'merge.aggregate.amount' = 'listagg'"),
        (
            f"{LAST}, 'merge.sequence' = 'arrival', 'merge.tie-breaker' = 'id'",
            "OPTION_NEEDS",
            "needs a 'merge.sequence' that is an expression",
        ),
        (f"{LAST}, 'merge.sequence' = 'nope'", "MERGE_EXPRESSION", "reads nope"),
        (
            "'merge' = 'versioned', 'merge.sequence' = 'at', 'merge.aggregate.amount' = 'sum'",
            "OPTION_NEEDS",
            "'aggregate'",
        ),
        ("'merge.aggregate.amount' = 'sum'", "OPTION_NEEDS", "option 'merge.aggregate.amount' needs 'merge' ="),
        ("'merge' = 'versioned'", "OPTION_NEEDS", "needs 'merge.sequence': the column with the version"),
        ("'merge' = 'versioned', 'merge.sequence' = 'at, id'", "MERGE_EXPRESSION", "not one SQL expression"),
        (
            "'merge' = 'versioned', 'merge.sequence' = 'at', 'merge.tie-breaker' = 'id'",
            "OPTION_NEEDS",
            "needs 'merge' = 'first_row', 'last_row', 'partial_update' or 'aggregate'",
        ),
        ("'merge' = 'newest'", "EXTENSION", "There are first_row, last_row, partial_update, aggregate or"),
        ("'merge' = 'last_row', 'merge.tie-breaker' = 'id'", "OPTION_NEEDS", "needs 'merge.sequence'"),
        ("'merge' = 'last_row', 'merge.sequence' = 'at'", "OPTION_NEEDS", "needs 'merge.tie-breaker'"),
        ("'merge' = 'first_row', 'merge.order' = 'at'", "OPTION_NEEDS", "needs 'merge.tie-breaker'"),
        ("'merge' = 'first_row', 'merge.tie-breaker' = 'id'", "OPTION_NEEDS", "needs a 'merge.order' that is"),
        ("'merge' = 'first_row', 'merge.late' = 'correct'", "OPTION_NEEDS", "by arrival no row is late"),
        (f"'merge' = 'first_row', {BY_TIME}, 'merge.late' = 'drop'", "OPTION_VALUE", "correct or ignore"),
        (f"'merge' = 'first_row', {BY_TIME}, 'merge.sequence' = 'at'", "OPTION_NEEDS", "'merge' = 'last_row'"),
        (f"'merge' = 'first_row', {BY_TIME}, 'merge.delete-when' = 'id = 1'", "OPTION_NEEDS", "last_row"),
        ("'merge.order' = 'at'", "OPTION_NEEDS", "needs 'merge' = 'first_row', 'last_row', "),
        ("'upstream-deletes' = 'retract'", "OPTION_NEEDS", "needs 'merge'"),
        (
            "'merge' = 'first_row', 'merge.order' = 'at', 'merge.tie-breaker' = 'id, idd'",
            "MERGE_EXPRESSION",
            "Did you mean id?",
        ),
        ("'merge' = 'first_row', 'merge.order' = ' ', 'merge.tie-breaker' = 'id'", "OPTION_VALUE", "not empty"),
    ],
)
def test_a_merge_that_cannot_be_is_reported_with_its_line(shop, options, rule, said):
    shop.table("t", "SELECT customer, amount FROM orders", keys=KEY, header=f"WITH ({options})")
    errors = [found for found in shop.errors() if found[0] == rule]

    assert [where for _, where, _ in errors[:1]] == ["assets/t.sql:2"], shop.errors()
    assert said in errors[0][2]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("nope", "reads nope"),
        ("at +", "not one SQL"),
        ("at, id", "not one SQL"),
        ("at AS x", "not one SQL"),
        ("at) , (id", "not one"),
        ("at FROM orders", "not one"),
        ("max(at)", "aggregate max"),
        ("(SELECT 1)", "subquery"),
        ("at; DROP TABLE x", "not one"),
    ],
)
def test_an_order_that_is_no_expression_over_the_input_is_reported_with_its_line(shop, order, said):
    header = f"WITH ('merge' = 'first_row', 'merge.order' = '{order}', 'merge.tie-breaker' = 'id')"
    shop.table("t", "SELECT customer, amount FROM orders", keys=KEY, header=header)

    shop.check_error("MERGE_EXPRESSION", said, at="assets/t.sql:2")


def test_a_merge_needs_a_key(shop):
    shop.table("t", "SELECT customer, amount FROM orders", header="WITH ('merge' = 'first_row')")

    assert shop.errors()[0][:2] == ("OPTION_NEEDS", "assets/t.sql:2")
    assert "it needs PRIMARY KEY" in shop.errors()[0][2]


def test_each_column_of_a_partial_update_follows_one_order(shop):
    groups = "'merge' = 'partial_update', 'merge.group.a' = 'id BY day', 'merge.group.b' = 'at BY day'"
    shop.table("t", "SELECT customer, id, at FROM orders", keys=KEY, header=f"WITH ({groups})")
    shop.table("u", "SELECT customer, id, at, day FROM orders", keys=KEY, header=f"WITH ({groups})")
    shop.table("v", "SELECT customer, id, at, amount FROM orders", keys=KEY, header=f"WITH ({groups})")
    shop.table(
        "w", "SELECT customer, id, at, amount FROM orders", keys=KEY, header=f"WITH ({groups}, 'merge.sequence' = 'at')"
    )

    assert [(rule, where) for rule, where, _ in shop.errors()] == [
        ("MERGE_GROUP", "assets/u.sql:2"),
        ("MERGE_GROUP", "assets/v.sql:2"),
    ]
    assert "u has the column day, by which a and b follow. Name it in the list of one" in shop.errors()[0][2]
    assert "column amount of v is in no group. Name it in one, or add 'merge.sequence'" in shop.errors()[1][2]


def test_a_comment_in_a_merge_expression_hides_nothing(shop):
    shop.table(
        "t",
        "SELECT customer FROM orders",
        keys=KEY,
        header="WITH ('merge' = 'first_row', 'merge.order' = 'at -- time', 'merge.tie-breaker' = 'id')",
    )
    assert shop.rules() == ["MERGE_EXPRESSION"]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT customer, count(*) AS n FROM orders GROUP BY customer", "GROUP BY, the aggregate count"),
        ("SELECT max(customer) AS customer FROM orders", "the aggregate max"),
        ("SELECT DISTINCT customer FROM orders", "DISTINCT"),
        ("SELECT customer, rank() OVER (ORDER BY id) AS r FROM orders", "a window"),
        ("SELECT customer FROM orders ORDER BY id", "ORDER BY"),
        ("SELECT customer FROM orders LIMIT 1", "LIMIT"),
        ("SELECT customer FROM orders UNION ALL SELECT id FROM customers", "a set operation"),
        ("WITH c AS (SELECT * FROM orders) SELECT customer FROM c", "WITH"),
        ("SELECT o.customer FROM orders o JOIN customers c ON c.id = o.customer", "JOIN"),
        ("SELECT customer FROM (SELECT * FROM orders) AS x", "not exactly one table in FROM"),
        ("SELECT customer FROM orders WHERE customer IN (SELECT id FROM customers)", "a subquery"),
        ("SELECT customer, tag FROM orders LATERAL VIEW explode(tags) t AS tag", "LATERAL VIEW"),
        ("SELECT customer, explode(tags) AS tag FROM orders", "explode"),
        ("SELECT customer FROM orders AS o (id, customer, at, amount)", "other names for the columns of its input"),
        ("SELECT customer FROM orders PIVOT (sum(amount) FOR id IN (1, 2))", "PIVOT"),
        ("SELECT customer, v FROM orders UNPIVOT (v FOR n IN (amount, id))", "UNPIVOT"),
        (
            "SELECT o.customer FROM orders o JOIN customers FOR SYSTEM_TIME AS OF PROCTIME() AS c ON c.id = o.customer",
            "JOIN",
        ),
    ],
)
def test_a_merge_is_over_one_plain_select_of_one_input(shop, query, said):
    shop.table("t", query, keys=KEY, header=f"WITH ('merge' = 'first_row', {BY_TIME})")
    errors = shop.errors()

    assert errors[0][:2] == ("MERGE_QUERY", "assets/t.sql:3")
    assert said in errors[0][2]
    assert "one plain SELECT" in errors[0][2]


def test_arrival_is_known_only_of_log_tables(shop):
    shop.table("t", "SELECT id FROM customers", keys="PRIMARY KEY (id)", header="WITH ('merge' = 'first_row')")
    shop.table("u", "SELECT id FROM orders", keys="PRIMARY KEY (id)", header="WITH ('merge' = 'first_row')")
    shop.table("v", "SELECT id FROM u", keys="PRIMARY KEY (id)", header="WITH ('merge' = 'first_row')")

    assert [(rule, where) for rule, where, _ in shop.errors()] == [
        ("MERGE_ARRIVAL", "assets/t.sql:2"),
        ("MERGE_ARRIVAL", "assets/v.sql:2"),
    ]


@pytest.mark.parametrize(
    ("keys", "header", "rule", "line", "said"),
    [
        ("PRIMARY KEY (ident)", "", "PRIMARY_KEY", 1, "PRIMARY KEY names ident, which the query does not yield."),
        ("PRIMARY KEY (customer)", "", "PRIMARY_KEY", 1, "It yields id, day."),
        ("PRIMARY KEY (id, ID)", "", "PRIMARY_KEY", 1, "names ID twice"),
        ("", "PARTITIONED BY (dya)", "PARTITION_COLUMN", 2, "Did you mean day?"),
        ("", "PARTITIONED BY (id, day)", "PARTITION_COLUMN", 2, "names every column"),
        ("", "CLUSTER BY (amount)", "CLUSTER_COLUMN", 2, "CLUSTER BY names amount"),
        (
            "",
            "PARTITIONED BY (day) CLUSTER BY (id)",
            "CLUSTER_COLUMN",
            2,
            "does not cluster a table that is partitioned",
        ),
        ("", "CLUSTER BY (a, b, c, d, e)", "CLUSTER_COLUMN", 2, "more than four columns"),
        ("", "REFRESH_MODE = STREAMING", "REFRESH_MODE", 2, "there is no mode STREAMING"),
        ("", "REFRESH_MODE = CONTINOUS", "REFRESH_MODE", 2, "Did you mean CONTINUOUS?"),
        ("", "WITH ('ownr' = 'x')", "UNKNOWN_OPTION", 2, "there is no option 'ownr'. Did you mean owner?"),
        ("", "WITH ('mergeorder' = 'x')", "UNKNOWN_OPTION", 2, "Did you mean merge.order?"),
        ("", "WITH ('history' = '1 month')", "OPTION_VALUE", 2, "1 month is not a length of time"),
        ("", "WITH ('incremental' = 'yes')", "OPTION_VALUE", 2, "Accepted is auto or strict"),
        ("", "WITH ('lookup.on-duplicate' = 'any')", "OPTION_NEEDS", 2, "a lookup join in the query"),
        ("", "WITH ('owner' = '${env:ME}')", "REFERENCE", 2, "cannot take a reference"),
        ("", "WITH ('non-driving' = 'customers')", "NON_DRIVING", 2, "customers, which the query does not read"),
        ("", "WITH ('non-driving' = 'orders')", "NON_DRIVING", 2, "leaves no input that drives"),
        ("", "WITH ('requires-history' = 'order')", "REQUIRES_HISTORY", 2, "It can name orders"),
        ("", "WITH ('non-driving' = 'a.b.c')", "OPTION_VALUE", 2, "is not a name"),
    ],
)
def test_a_clause_that_does_not_fit_the_query_is_reported(shop, keys, header, rule, line, said):
    shop.table("t", "SELECT id, day FROM orders", keys=keys, header=header)
    found = shop.errors()

    assert found[0][:2] == (rule, f"assets/t.sql:{line}")
    assert said in found[0][2]


def test_inputs_whose_history_is_required_are_named(shop):
    shop.table("t", "SELECT id FROM orders", header="WITH ('requires-history' = 'Orders')")

    assert [str(name).lower() for name in spec(shop).requires_history] == ["orders"]


def test_the_lags_that_alert_are_lengths_of_time(shop):
    header = "WITH ('alert.warn-after' = '2 minutes', 'alert.fail-after' = 'PT1H')"
    shop.table("t", "SELECT id FROM orders", header=header)
    found = spec(shop)

    assert (found.warn_after_seconds, found.fail_after_seconds) == (120, 3600)


@pytest.mark.parametrize(
    ("options", "rule", "said"),
    [
        ("'alert.warn-after' = '5'", "OPTION_VALUE", "it has no unit"),
        ("'alert.fail-after' = '0 seconds'", "OPTION_VALUE", "it is not positive"),
        ("'alert.warn-after' = '2 hours', 'alert.fail-after' = '1 hour'", "OPTION_VALUE", "not below"),
        ("'alert.after' = '2 hours'", "UNKNOWN_OPTION", "there is no option 'alert.after'"),
    ],
)
def test_lags_that_cannot_alert_are_refused(shop, options, rule, said):
    shop.table("t", "SELECT id FROM orders", header=f"WITH ({options})")
    shop.check_error(rule, said, at="assets/t.sql:2")


def test_an_unknown_column_is_reported_with_its_line_in_the_file(shop):
    shop.table("t", "SELECT id,\n  amont\nFROM orders")
    assert shop.error()[:2] == ("UNKNOWN_COLUMN", "assets/t.sql:4")


def test_a_query_that_does_not_parse_is_reported_with_its_line_in_the_file(shop):
    shop.table("t", "SELECT id\nFROM orders\nWHERE")
    assert shop.error()[:2] == ("QUERY_SYNTAX", "assets/t.sql:5")


def test_a_fingerprint_changes_with_the_meaning_only(shop):
    shop.table("t", "SELECT id, day FROM orders", header="FRESHNESS = INTERVAL '1' HOUR")
    first = spec(shop).fingerprint
    shop.table("t", "select id, -- a comment\n day from orders", header="FRESHNESS = INTERVAL '1' DAY COMMENT 'x'")
    same = spec(shop).fingerprint
    shop.table("t", "SELECT id, day FROM orders WHERE id > 1", header="FRESHNESS = INTERVAL '1' HOUR")

    assert first == same
    assert spec(shop).fingerprint != first


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ("'delta-join.strategy' = 'AUTO'", (10_000, 10_000)),
        ("'delta-join.left-cache-size' = '5'", (5, 10_000)),
        ("'delta-join.right-cache-size' = '0'", (10_000, 0)),
        ("'delta-join.cache-enable' = 'false', 'delta-join.left-cache-size' = '5'", (0, 0)),
    ],
)
def test_the_sides_of_a_join_are_kept_up_to_their_sizes(shop, options, sizes):
    shop.table("t", "SELECT a.id FROM orders a JOIN orders b ON a.id = b.id", header=f"WITH ({options})")
    spec = shop.read().table(TableName.parse("t"))

    assert (spec.left_cache_rows, spec.right_cache_rows) == sizes


@pytest.mark.parametrize(("by", "fingerprint"), [("at", "f968815dffa9a63e"), ("at DESC, id", "3a5e105a474b6868")])
def test_the_fingerprint_of_a_pattern_stays_as_it_was(shop, by, fingerprint):
    shop.table(
        "t",
        f"SELECT * FROM orders MATCH_RECOGNIZE (PARTITION BY customer ORDER BY {by} "
        "MEASURES LAST(B.id, 1) AS last PATTERN (A B+) DEFINE B AS B.amount > PREV(B.amount))",
    )

    query = spec(shop).query
    assert isinstance(query, SqlQuery)
    assert "sort_array(" in query.text
    assert spec(shop).fingerprint == fingerprint


LAST_ROW = "'merge' = 'last_row', 'merge.sequence' = 'at', 'merge.tie-breaker' = 'id'"
DAYS = "'partition.unit' = 'day', 'partition.start' = '2026-01-01'"


def test_time_partitions_are_declared_by_their_options(shop):
    shop.table("t", "SELECT id, at FROM orders", header=f"PARTITIONED BY (at) WITH ({DAYS})")
    found = spec(shop)

    assert found.time_partitions == TimePartitions(PartitionUnit.DAY, "2026-01-01", "UTC")
    again = replace(found, time_partitions=TimePartitions(PartitionUnit.DAY, "2020-01-01", "UTC"))
    assert again.fingerprint == found.fingerprint
    other = replace(found, time_partitions=TimePartitions(PartitionUnit.DAY, "2026-01-01", "Europe/Paris"))
    assert len({other.fingerprint, found.fingerprint, replace(found, time_partitions=None).fingerprint}) == 3


def test_partitions_by_value_are_listed_in_the_order_in_which_they_are_written(shop):
    shop.table("t", "SELECT id, at FROM orders", header="PARTITIONED BY (id) WITH ('partition.values' = '3, 1,it''s')")
    found = spec(shop)

    assert found.partition_values == ("3", "1", "it's")
    # They say what can be asked for by name, not which rows there are.
    assert replace(found, partition_values=()).fingerprint == found.fingerprint


@pytest.mark.parametrize(
    ("header", "rule", "said"),
    [
        ("WITH ('partition.values' = 'a')", "OPTION_NEEDS", "needs PARTITIONED BY one column"),
        ("PARTITIONED BY (at, id) WITH ('partition.values' = 'a')", "OPTION_NEEDS", "PARTITIONED BY one column"),
        (f"PARTITIONED BY (at) WITH ({DAYS}, 'partition.values' = 'a')", "OPTION_NEEDS", "without 'partition.unit'"),
        ("PARTITIONED BY (id) WITH ('partition.values' = ' ')", "OPTION_VALUE", "different values with commas"),
        ("PARTITIONED BY (id) WITH ('partition.values' = '1,,2')", "OPTION_VALUE", "different values with commas"),
        ("PARTITIONED BY (id) WITH ('partition.values' = '1,2,1')", "OPTION_VALUE", "different values with commas"),
        ("PARTITIONED BY (id) WITH ('partition.values' = 'a...b')", "OPTION_VALUE", "without three dots"),
        (
            f"PARTITIONED BY (id) WITH ('partition.values' = '1', {LAST_ROW})",
            "NOT_BUILT",
            "such a table is refreshed as a whole",
        ),
        (f"WITH ({DAYS})", "OPTION_NEEDS", "needs PARTITIONED BY one column"),
        (f"PARTITIONED BY (at, id) WITH ({DAYS})", "OPTION_NEEDS", "needs PARTITIONED BY one column"),
        ("PARTITIONED BY (at) WITH ('partition.unit' = 'day')", "OPTION_NEEDS", "needs 'partition.start'"),
        ("PARTITIONED BY (at) WITH ('partition.start' = '2026-01-01')", "OPTION_NEEDS", "needs 'partition.unit'"),
        ("PARTITIONED BY (at) WITH ('partition.time-zone' = 'UTC')", "OPTION_NEEDS", "needs 'partition.unit'"),
        (
            "PARTITIONED BY (at) WITH ('partition.unit' = 'year', 'partition.start' = '2026-01-01')",
            "OPTION_VALUE",
            "hour, day, week or month",
        ),
        (
            "PARTITIONED BY (at) WITH ('partition.unit' = 'day', 'partition.start' = '2026-02-30')",
            "OPTION_VALUE",
            "no date that there is",
        ),
        (
            f"PARTITIONED BY (at) WITH ({DAYS}, 'partition.time-zone' = 'Mars')",
            "OPTION_VALUE",
            "there is no time zone 'Mars'",
        ),
        (
            f"PARTITIONED BY (at) WITH ({DAYS}, {LAST_ROW})",
            "NOT_BUILT",
            "a merge type, a lookup join, or written in Python is not built yet",
        ),
    ],
)
def test_partitions_that_cannot_be_are_refused(shop, header, rule, said):
    shop.table("t", "SELECT id, at FROM orders", header=header, keys="PRIMARY KEY (id)" if "merge" in header else "")

    shop.check_error(rule, said)
