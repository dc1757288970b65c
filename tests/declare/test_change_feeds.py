"""Change feeds as they are declared: their key, their facts, and the tables that follow them."""

from __future__ import annotations

import pytest

from freshline.merges.last_row import LastRow
from freshline.sources.formats.debezium import DebeziumJson
from freshline.values.names import TableName
from freshline.values.spec import SourceSpec

FEED = "'connector' = 'kafka', 'topic' = 't', 'bootstrap.servers' = 'h:1', 'format' = 'debezium-json'"
BY_CHANGE = "WITH ('merge' = 'last_row', 'merge.sequence' = 'change')"


def feed(project, columns="id INT, region STRING, v INT, PRIMARY KEY (id)", options="", name="feed"):
    project.declare(f"{name}.sql", f"CREATE SOURCE {name} (\n{columns}\n)\nWITH ({FEED}{options})")


def test_a_change_feed_has_its_defaults_and_no_unique_key(project):
    feed(project)
    source = project.read().spec(TableName(None, "feed"))

    assert isinstance(source, SourceSpec)
    assert source.format == DebeziumJson()
    assert (source.is_change_feed, source.primary_key, source.unique_key) == (True, ("id",), ())


def test_every_option_and_every_fact(project):
    feed(
        project,
        "id INT, op STRING METADATA FROM 'op', p STRING METADATA FROM 'position', "
        "at TIMESTAMP METADATA FROM 'changed_at', tx STRING METADATA FROM 'transaction', "
        "u ARRAY<STRING> METADATA FROM 'unsent', o BIGINT METADATA FROM 'offset', PRIMARY KEY (id)",
        ", 'change.time-unit' = 'microseconds', 'change.decimals' = 'text', 'change.unavailable' = '-', "
        "'change.order' = 'source'",
    )
    source = project.read().spec(TableName(None, "feed"))

    assert isinstance(source, SourceSpec)
    assert source.format == DebeziumJson("microseconds", "text", "-", "source")
    assert source.stored_column("p") == "_freshline_change_position"


@pytest.mark.parametrize(
    ("columns", "options", "rule", "said"),
    [
        ("id INT", "", "CHANGE_KEY", "needs PRIMARY KEY"),
        ("id INT, PRIMARY KEY (id), CONSTRAINT c EXPECT (id > 0)", "", "CONSTRAINT", "table that reads the source"),
        ("id INT, op INT METADATA FROM 'op', PRIMARY KEY (id)", "", "METADATA", "is STRING, not INT"),
        ("id INT, PRIMARY KEY (id)", ", 'change.time-unit' = 'seconds'", "OPTION_VALUE", "milliseconds"),
        ("id INT, PRIMARY KEY (id)", ", 'change.order' = 'position'", "OPTION_VALUE", "arrival or source"),
    ],
)
def test_a_source_that_cannot_be_a_change_feed_is_refused(project, columns, options, rule, said):
    feed(project, columns, options)
    project.check_error(rule, said)


def test_facts_of_changes_and_their_options_are_of_change_feeds(project):
    project.declare(
        "s.sql",
        "CREATE SOURCE s (id INT, op STRING METADATA FROM 'op') WITH ('connector' = 'kafka', 'topic' = 't', "
        "'bootstrap.servers' = 'h:1', 'format' = 'json', 'change.decimals' = 'text')",
    )

    assert sorted(rule for rule, _, _ in project.errors()) == ["METADATA", "OPTION_NEEDS"]


def test_changes_come_in_topics(project):
    project.declare(
        "s.sql",
        "CREATE SOURCE s (id INT, PRIMARY KEY (id)) "
        "WITH ('connector' = 'files', 'path' = 'l', 'format' = 'debezium-json')",
    )

    assert [(rule, "of topics" in sentence) for rule, _, sentence in project.errors()] == [("NOT_BUILT", True)]


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT id, v FROM feed WHERE v > 1", "id"),
        ("SELECT * FROM feed", "ID"),
        ("SELECT f.*, v + 1 AS w FROM feed AS f", "id"),
        ("SELECT f.id AS customer, v FROM feed f", "customer"),
    ],
)
def test_a_table_follows_the_changes_by_the_key_of_the_feed(project, query, key):
    feed(project)
    project.table("t", query, keys=f"PRIMARY KEY ({key})", header=BY_CHANGE)
    merge = project.read().spec(TableName(None, "t")).merge

    assert merge == LastRow(by_change=True)
    assert (merge.is_by_arrival, merge.needs_older_rows, merge.follows_changes) == (True, False, True)


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ("SELECT id, v FROM feed", "v"),
        ("SELECT id, region FROM feed", "id, region"),
        ("SELECT id + 1 AS id, v FROM feed", "id"),
        ("SELECT v AS id FROM feed", "id"),
        ("SELECT f.* EXCEPT (id), v AS id FROM feed AS f", "id"),
    ],
)
def test_another_key_is_refused(project, query, key):
    feed(project)
    project.table("t", query, keys=f"PRIMARY KEY ({key})", header=BY_CHANGE)

    assert [rule for rule, _, _ in project.errors()] == ["CHANGE_KEY"]


def test_other_names_for_the_columns_of_a_feed_are_refused(project):
    feed(project)
    project.table("t", "SELECT id, v FROM feed AS f (v, id)", keys="PRIMARY KEY (id)", header=BY_CHANGE)

    assert project.rules() == ["MERGE_QUERY"]


def test_changes_are_known_of_change_feeds_alone(project):
    project.inputs()
    feed(project)
    project.table("t", "SELECT id FROM orders", keys="PRIMARY KEY (id)", header=BY_CHANGE)
    project.table("u", "SELECT id FROM customers", keys="PRIMARY KEY (id)", header=BY_CHANGE)
    project.table("f", "SELECT id FROM feed", keys="PRIMARY KEY (id)", header=BY_CHANGE)
    project.table("v", "SELECT id FROM f", keys="PRIMARY KEY (id)", header=BY_CHANGE)

    assert [(rule, where) for rule, where, _ in project.errors()] == [
        ("MERGE_ARRIVAL", "assets/t.sql:2"),
        ("MERGE_ARRIVAL", "assets/u.sql:2"),
        ("MERGE_ARRIVAL", "assets/v.sql:2"),
    ]


@pytest.mark.parametrize("option", ["'merge.tie-breaker' = 'v'", "'merge.delete-when' = 'v = 1'"])
def test_changes_have_an_order_and_deletes_of_their_own(project, option):
    feed(project)
    header = f"WITH ('merge' = 'last_row', 'merge.sequence' = 'change', {option})"
    project.table("t", "SELECT id, v FROM feed", keys="PRIMARY KEY (id)", header=header)

    assert [rule for rule, _, _ in project.errors()] == ["OPTION_NEEDS"]


def test_the_order_of_the_database_is_that_of_tables_by_change(project):
    feed(project)
    project.table("t", "SELECT id, v FROM feed", keys="PRIMARY KEY (id)", header=BY_CHANGE)
    arrival = project.read()
    feed(project, options=", 'change.order' = 'arrival'")
    same = project.read()
    feed(project, options=", 'change.order' = 'source'")
    graph = project.read()
    merge = graph.spec(TableName(None, "t")).merge

    assert merge == LastRow(by_change=True, by_position=True)
    assert (merge.is_by_arrival, merge.needs_older_rows, merge.follows_changes) == (True, True, True)
    for name in (TableName(None, "t"), TableName(None, "feed")):
        assert same.spec(name).fingerprint == arrival.spec(name).fingerprint
        assert graph.spec(name).fingerprint != arrival.spec(name).fingerprint


def test_a_column_that_is_called_change_is_an_expression(project):
    feed(project, "id INT, `change` INT, PRIMARY KEY (id)")
    header = "WITH ('merge' = 'last_row', 'merge.sequence' = '`change`', 'merge.tie-breaker' = 'id')"
    project.table("t", "SELECT id, `change` FROM feed", keys="PRIMARY KEY (id)", header=header)

    assert project.read().spec(TableName(None, "t")).merge == LastRow("`change`", "id")


def test_the_order_of_changes_is_part_of_the_fingerprint(project):
    feed(project)
    project.table("t", "SELECT id, v FROM feed", keys="PRIMARY KEY (id)", header=BY_CHANGE)
    before = project.read().spec(TableName(None, "t")).fingerprint
    header = "WITH ('merge' = 'last_row', 'merge.sequence' = 'v', 'merge.tie-breaker' = 'id')"
    project.table("t", "SELECT id, v FROM feed", keys="PRIMARY KEY (id)", header=header)

    assert project.read().spec(TableName(None, "t")).fingerprint != before
