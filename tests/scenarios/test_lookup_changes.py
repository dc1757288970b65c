"""Lookup joins over inputs with updates and deletes: rows that did not change keep what they found."""

from __future__ import annotations

import pytest

from freshline.values.names import TableName
from tests.delta_log import receipt_of
from tests.scenarios.tables import declare, fill, follow

LOOKUP = "FOR SYSTEM_TIME AS OF PROCTIME()"


@pytest.fixture
def orders(lab):
    fill(lab, "o", "id INT, n INT, customer INT, note STRING", "(1, 10, 1, 'x'), (2, 20, 1, 'x'), (3, 30, 2, 'x')")
    fill(lab, "c", "id INT, name STRING", "(1, 'A'), (2, 'B')", primary_key=["id"])
    return lab


def table(lab, name, query, head=""):
    declare(lab, query, head, name=name)
    assert lab.refresh(name).error is None


def refreshed(lab, name, strategy="keys"):
    outcome = follow(lab, name=name)
    assert outcome.strategy == strategy, outcome.reason
    return [tuple(row.values()) for row in lab.rows(name)]


def test_an_update_of_one_row_looks_up_that_row_alone(orders):
    keyed = "SELECT o.id, o.n, c.name FROM o {} JOIN c " + LOOKUP + " AS c ON o.customer = c.id"
    table(orders, "left_keyed", keyed.format("LEFT"), "(PRIMARY KEY (id))")
    table(orders, "inner_keyed", keyed.format("INNER"), "(PRIMARY KEY (id))")
    table(orders, "bag", keyed.format("INNER"))
    orders.sql("DELETE FROM c WHERE id = 1")
    orders.sql("UPDATE o SET n = 21 WHERE id = 2")

    assert refreshed(orders, "left_keyed") == [(1, 10, "A"), (2, 21, None), (3, 30, "B")]
    assert refreshed(orders, "inner_keyed") == refreshed(orders, "bag") == [(1, 10, "A"), (3, 30, "B")]


def test_rows_of_one_key_keep_what_they_found_unless_nobody_knows_which_of_them_went(lab):
    lab.source("o", "id INT, n INT, customer INT")
    fill(lab, "c", "id INT, name STRING", "(1, 'A'), (2, 'B')", primary_key=["id"])
    lab.sql("INSERT INTO o VALUES (1, 10, 1), (1, 11, 1), (1, 12, 1), (2, 20, 1), (2, 21, 2), (2, 22, NULL)")
    table(lab, "by_n", f"SELECT o.id, o.n, c.name FROM o JOIN c {LOOKUP} AS c ON o.customer = c.id")
    table(lab, "alike", f"SELECT o.id, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id")
    lab.sql("UPDATE c SET name = 'new'")
    lab.sql("DELETE FROM o WHERE n IN (11, 20)")
    lab.sql("INSERT INTO o VALUES (1, 13, 2)")

    assert refreshed(lab, "by_n") == [(1, 10, "A"), (1, 12, "A"), (1, 13, "new"), (2, 21, "B")]
    # Of the rows of 1, which were all equal, one is gone. Which of those of 2 went cannot be seen in the table.
    assert refreshed(lab, "alike") == [(1, "A"), (1, "A"), (1, "new"), (2, None), (2, "new")]


def test_a_row_that_the_query_sees_as_it_was_is_not_looked_up_again(orders):
    table(orders, "seen", f"SELECT o.id, o.n, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id")
    table(orders, "star", f"SELECT o.*, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id")
    orders.sql("UPDATE c SET name = 'new' WHERE id = 1")
    orders.sql("UPDATE o SET note = 'y' WHERE id = 1")
    orders.sql("DELETE FROM o WHERE id = 2")
    orders.sql("INSERT INTO o VALUES (2, 20, 1, 'x')")

    assert refreshed(orders, "seen", "noop") == [(1, 10, "A"), (2, 20, "A"), (3, 30, "B")]
    assert refreshed(orders, "star") == [(1, 10, 1, "y", "new"), (2, 20, 1, "x", "A"), (3, 30, 2, "x", "B")]
    # An update of the column that it is looked up by is a change, whether or not the table has it.
    orders.sql("UPDATE o SET customer = 1 WHERE id = 3")
    assert refreshed(orders, "seen") == [(1, 10, "A"), (2, 20, "A"), (3, 30, "new")]
    orders.sql("INSERT OVERWRITE o SELECT * FROM o")
    orders.sql("UPDATE c SET name = 'newest'")
    assert refreshed(orders, "seen", "noop") == [(1, 10, "A"), (2, 20, "A"), (3, 30, "new")]


@pytest.mark.long
def test_only_changed_rows_are_looked_up_through_several_lookups_unions_and_queries_in_parentheses(orders):
    lab = orders
    fill(lab, "r", "n INT, region STRING", "(10, 'eu'), (20, 'us'), (21, 'asia')", primary_key=["n"])
    fill(lab, "b", "id INT, customer INT", "(7, 1), (8, 2)")
    table(
        lab,
        "two",
        f"SELECT o.id, c.name, r.region, version_of(c) AS cv FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id "
        f"LEFT JOIN r {LOOKUP} AS r ON r.n = o.n WHERE c.name <> 'gone' AND o.id > 0",
        "(PRIMARY KEY (id)) PARTITIONED BY (region)",
    )
    table(
        lab,
        "united",
        f"SELECT o.id, upper(c.name) AS name FROM o JOIN c {LOOKUP} AS c ON o.customer = c.id UNION ALL "
        f"SELECT b.id, x.name FROM b LEFT JOIN c {LOOKUP} AS x ON b.customer = x.id UNION ALL SELECT id, note FROM o",
    )
    table(
        lab,
        "nested",
        f"WITH e AS (SELECT o.id, o.n, c.name FROM o JOIN c {LOOKUP} AS c ON o.customer = c.id) "
        "SELECT e.id, e.n * 2 AS twice, concat(e.name, '!') AS name FROM e JOIN b ON e.id + 5 = b.id WHERE e.name > ''",
    )
    lab.sql("UPDATE c SET name = 'new'")
    lab.sql("UPDATE r SET region = 'moon'")
    lab.sql("UPDATE o SET n = 21 WHERE id = 2")

    assert refreshed(lab, "two") == [(1, "A", "eu", 1), (2, "new", "moon", 2), (3, "B", None, 1)]
    united = [(1, "A"), (1, "x"), (2, "A"), (2, "x"), (3, "B"), (3, "x"), (7, "A"), (8, "B")]
    assert refreshed(lab, "united", "noop") == united
    assert refreshed(lab, "nested") == [(2, 42, "new!"), (3, 60, "B!")]
    # Both sides of a join change, and a row that comes is joined with one that goes.
    lab.sql("UPDATE c SET name = 'newest'")
    lab.sql("UPDATE b SET customer = 2 WHERE id = 8")
    lab.sql("DELETE FROM o WHERE id = 2")
    lab.sql("UPDATE b SET id = 6 WHERE id = 7")
    lab.sql("INSERT INTO o VALUES (2, 5, 1, 'x')")
    assert refreshed(lab, "nested") == [(1, 20, "newest!"), (3, 60, "B!")]
    assert refreshed(lab, "united") == [*united[:6], (6, "newest"), (8, "B")]


def test_a_row_that_changes_while_it_waits_for_its_dimension_begins_again(orders):
    lab = orders
    retries = "WITH ('lookup.retry-on-miss.attempts' = '2', 'lookup.retry-on-miss.delay' = '10 minutes')"
    lab.sql("INSERT INTO o VALUES (4, 40, 9, 'x'), (5, 50, 9, 'x'), (6, 60, 9, 'x'), (6, 60, 9, 'y')")
    table(lab, "w", f"SELECT o.id, o.n, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id", retries)
    assert lab.diff("w") == []
    lab.sql("DELETE FROM c WHERE id = 1")
    lab.sql("UPDATE o SET n = 21 WHERE id = 2")
    lab.sql("UPDATE o SET customer = 2 WHERE id = 4")
    lab.sql("UPDATE o SET note = 'z' WHERE id = 5")
    lab.sql("DELETE FROM o WHERE id = 6 AND note = 'x'")

    assert refreshed(lab, "w") == [(1, 10, "A"), (3, 30, "B"), (4, 40, "B")]
    lab.sql("DELETE FROM o WHERE id = 5")
    assert refreshed(lab, "w") == [(1, 10, "A"), (3, 30, "B"), (4, 40, "B")]
    lab.sql("UPDATE c SET name = 'new'")
    lab.sql("INSERT INTO c VALUES (9, 'nine')")
    lab.sql("UPDATE o SET n = 31 WHERE id = 3")
    lab.clock.advance(minutes=10)
    assert refreshed(lab, "w") == [(1, 10, "A"), (3, 31, "new"), (4, 40, "B"), (6, 60, "nine")]
    assert receipt_of(lab.runtime.warehouse.path(TableName.parse("w"))).pending_lookups is not None


@pytest.mark.long
def test_constraints_partitions_and_lost_stores_leave_rows_that_did_not_change(orders):
    lab = orders
    table(
        lab,
        "e",
        f"SELECT o.id, o.n, o.note, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id",
        "(CONSTRAINT known EXPECT (name IS NOT NULL) ON VIOLATION DROP ROW) PARTITIONED BY (note)",
    )
    table(lab, "by_name", "SELECT name, count(*) AS n FROM e GROUP BY name")
    lab.sql("DELETE FROM c WHERE id = 1")
    lab.sql("UPDATE o SET note = '' WHERE id = 2")
    lab.sql("UPDATE o SET note = '' WHERE id = 3")
    lab.restart(lose_control_store=True)

    assert refreshed(lab, "e") == [(1, 10, "x", "A"), (3, 30, None, "B")]
    assert refreshed(lab, "by_name") == [("A", 1), ("B", 1)]
    lab.sql("DELETE FROM o WHERE id = 3")
    assert refreshed(lab, "e") == [(1, 10, "x", "A")]
    # Named partitions and --full are asked for, and look up all of their rows.
    assert lab.refresh("e", partitions={"note": "x"}).error is None
    assert (lab.rows("e"), lab.diff("e")) == ([], [])


@pytest.mark.long
def test_a_source_without_a_change_feed_is_compared_at_two_versions(lab):
    lab.source("o", "id INT, n INT, customer INT, m MAP<STRING, INT>", change_feed=False)
    fill(lab, "c", "id INT, name STRING", "(1, 'A')", primary_key=["id"])
    lab.sql("INSERT INTO o VALUES (1, 10, 1, map('a', 1, 'b', 2)), (2, 20, 1, NULL)")
    table(lab, "e", f"SELECT o.id, o.n, o.m, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id")
    lab.sql("UPDATE c SET name = 'new'")
    lab.sql("INSERT INTO o VALUES (3, 30, 1, map('c', 3))")
    lab.sql("UPDATE o SET m = map('b', 2, 'a', 1) WHERE id = 1")
    lab.sql("DELETE FROM o WHERE id = 2")

    refreshed(lab, "e")

    assert [(row["id"], row["name"]) for row in lab.rows("e")] == [(1, "A"), (3, "new")]


@pytest.mark.long
def test_rows_from_before_a_changed_declaration_are_found_by_the_primary_key(orders):
    lab = orders
    keyed = f"SELECT o.id, o.n AS n, c.name FROM o LEFT JOIN c {LOOKUP} AS c ON o.customer = c.id"
    table(lab, "e", keyed, "(PRIMARY KEY (id))")
    declare(lab, f"{keyed.replace('o.n', 'o.n + 1')}", "(PRIMARY KEY (id))", name="e")
    assert lab.refresh("e", start="now").error is None
    lab.sql("DELETE FROM c WHERE id = 1")
    lab.sql("UPDATE o SET n = 20 + 1 WHERE id = 2")

    assert lab.refresh("e").strategy == "keys"

    assert [tuple(row.values()) for row in lab.rows("e")] == [(1, 10, "A"), (2, 22, None), (3, 30, "B")]


@pytest.mark.long
def test_changes_that_undo_each_other_are_followed_one_by_one(orders):
    seen = f"SELECT o.id, o.n, c.name FROM o JOIN c {LOOKUP} AS c ON o.customer = c.id WHERE o.n > 5"
    orders.sql("UPDATE o SET customer = 9 WHERE id = 1")
    table(orders, "e", seen, "(PRIMARY KEY (id))")
    # No row of the table changes, and another version of the dimension may be read when this is undone.
    orders.sql("UPDATE o SET n = 1 WHERE id = 1")
    assert refreshed(orders, "e") == [(2, 20, "A"), (3, 30, "B")]
    orders.sql("INSERT INTO c VALUES (9, 'nine')")
    orders.sql("UPDATE o SET n = 10 WHERE id = 1")

    assert refreshed(orders, "e") == [(1, 10, "nine"), (2, 20, "A"), (3, 30, "B")]
