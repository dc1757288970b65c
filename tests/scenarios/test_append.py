"""Inserts in, inserts out: the query over the new rows is added, and nothing else is touched."""

from __future__ import annotations

import pytest

from freshline.errors import DuplicateKeyError
from tests.lanes import long_but
from tests.scenarios.tables import HOURLY, declare, fill, follow


def test_filters_projections_explodes_and_unions_turn_new_rows_into_new_rows(lab):
    fill(lab, "s", "id INT, tags ARRAY<STRING>", "(1, array('x', 'y')), (2, NULL)")
    lab.source("other", "id INT")
    lab.declare(
        f"""CREATE MATERIALIZED TABLE t {HOURLY} AS
        WITH long AS (SELECT id, explode(tags) AS tag FROM s WHERE id > 0)
        SELECT id * 10 AS id, tag FROM long UNION ALL SELECT id, 'other' FROM other"""
    )
    follow(lab, by="full")
    outcome = follow(lab, "INSERT INTO s VALUES (3, array('z')), (-1, array('no'))", by="append")
    assert (outcome.rows_in, outcome.rows_out) == (2, 1)
    follow(lab, "INSERT INTO other VALUES (7)", by="append")
    follow(lab, "INSERT INTO s VALUES (4, array('z'))", "INSERT INTO other VALUES (8)", by="append")

    assert lab.rows("t") == [
        {"id": 10, "tag": "x"},
        {"id": 10, "tag": "y"},
        {"id": 30, "tag": "z"},
        {"id": 40, "tag": "z"},
        {"id": 7, "tag": "other"},
        {"id": 8, "tag": "other"},
    ]


@pytest.mark.long
def test_a_join_takes_the_new_rows_of_one_side_and_follows_changes_of_both_by_keys(lab):
    fill(lab, "l", "k INT, a STRING", "(1, 'l1'), (NULL, 'l0')")
    fill(lab, "r", "k INT, b STRING", "(1, 'r1'), (1, 'r2')")
    declare(lab, "SELECT l.k, a, b FROM l JOIN r ON l.k = r.k", name="both")
    declare(lab, "SELECT l.k, a, b FROM l LEFT JOIN r ON l.k = r.k", name="keeps")
    follow(lab, name="both", by="full")
    follow(lab, name="keeps", by="full")
    follow(lab, "INSERT INTO l VALUES (1, 'l2'), (2, 'l3')", name="both", by="append")
    follow(lab, name="keeps", by="append")
    follow(lab, "INSERT INTO r VALUES (2, 'r3')", name="both", by="append")
    assert "AFFECTED_KEYS" in follow(lab, name="keeps", by="keys").reason
    follow(lab, "INSERT INTO l VALUES (3, 'l4')", "INSERT INTO r VALUES (3, 'r4')", name="both", by="keys")


@pytest.mark.long
def test_updates_and_deletes_of_an_input_are_no_appends(lab):
    fill(lab, "s", "id INT, n INT", "(1, 1), (2, 2)")
    declare(lab, "SELECT id, n FROM s")
    follow(lab, by="full")
    follow(lab, "UPDATE s SET n = 9 WHERE id = 1", by="keys")
    lab.sql("INSERT INTO s VALUES (3, 3)")
    assert follow(lab, "DELETE FROM s WHERE id = 3", by="noop").reason.startswith("NO_NET_CHANGE")
    follow(lab, "TRUNCATE TABLE s", by="keys")

    assert lab.rows("t") == []


def test_a_value_made_of_an_aggregate_over_all_rows_is_computed_again(lab):
    fill(lab, "s", "id INT", "(1)")
    declare(lab, "SELECT count(*) + 0 AS n FROM s")
    follow(lab, by="full")
    assert follow(lab, "INSERT INTO s VALUES (2)", by="full").reason.startswith("HIDDEN_AGGREGATE(COUNT(*))")
    assert lab.rows("t") == [{"n": 2}]


@pytest.mark.long
@pytest.mark.parametrize("duplicate", long_but(["(1, 'again')"], ["(3, 'c'), (3, 'd')", "(1, 'again')"]))
def test_a_second_row_for_a_primary_key_fails_and_leaves_the_table_as_it_was(lab, duplicate):
    fill(lab, "s", "id INT, v STRING", "(1, 'a'), (2, 'b'), (NULL, 'one NULL is one key')")
    declare(lab, "SELECT id, v FROM s", "(PRIMARY KEY (id))")
    lab.refresh("t")
    before = lab.rows("t")
    lab.sql(f"INSERT INTO s VALUES {duplicate}")

    failed = lab.refresh("t")

    assert failed.state == "FAILED"
    assert isinstance(failed.error, DuplicateKeyError)
    assert failed.error.samples in (({"id": 3},), ({"id": 1},))
    assert (failed.version, lab.rows("t")) == (1, before)
    lab.sql(f"DELETE FROM s WHERE id = {failed.error.samples[0]['id']} AND v IN ('d', 'again')")
    assert lab.refresh("t").state == "SUCCEEDED"
    assert lab.diff("t") == []


def test_two_null_keys_are_two_rows_of_one_key(lab):
    fill(lab, "s", "id INT", "(NULL), (NULL)")
    declare(lab, "SELECT id FROM s", "(PRIMARY KEY (id))")

    failed = lab.refresh("t")

    assert failed.error.samples == ({"id": None},)
    assert failed.version is None
