"""Inserts in, inserts out: the query over the new rows is added, and nothing else is touched."""

from __future__ import annotations

import pytest

from freshline.errors import DuplicateKeyError
from tests.lanes import long_but

HOURLY = "FRESHNESS = INTERVAL '1' HOUR"


def refresh(lab, name, strategy):
    """Refresh and compare with the query; the table must have been brought up to date in this way."""
    outcome = lab.refresh(name)
    assert outcome.error is None, outcome.error
    assert outcome.strategy == strategy, outcome.reason
    assert lab.diff(name) == []
    return outcome


def test_filters_projections_explodes_and_unions_turn_new_rows_into_new_rows(lab):
    lab.source("s", "id INT, tags ARRAY<STRING>")
    lab.source("other", "id INT")
    lab.sql("INSERT INTO s VALUES (1, array('x', 'y')), (2, NULL)")
    lab.declare(
        f"""CREATE MATERIALIZED TABLE t {HOURLY} AS
        WITH long AS (SELECT id, explode(tags) AS tag FROM s WHERE id > 0)
        SELECT id * 10 AS id, tag FROM long UNION ALL SELECT id, 'other' FROM other"""
    )
    refresh(lab, "t", "full")
    lab.sql("INSERT INTO s VALUES (3, array('z')), (-1, array('no'))")
    outcome = refresh(lab, "t", "append")
    assert (outcome.rows_in, outcome.rows_out) == (2, 1)
    lab.sql("INSERT INTO other VALUES (7)")
    refresh(lab, "t", "append")
    lab.sql("INSERT INTO s VALUES (4, array('z'))")
    lab.sql("INSERT INTO other VALUES (8)")
    refresh(lab, "t", "append")

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
    lab.source("l", "k INT, a STRING")
    lab.source("r", "k INT, b STRING")
    lab.sql("INSERT INTO l VALUES (1, 'l1'), (NULL, 'l0')")
    lab.sql("INSERT INTO r VALUES (1, 'r1'), (1, 'r2')")
    lab.declare(f"CREATE MATERIALIZED TABLE both {HOURLY} AS SELECT l.k, a, b FROM l JOIN r ON l.k = r.k")
    lab.declare(f"CREATE MATERIALIZED TABLE keeps {HOURLY} AS SELECT l.k, a, b FROM l LEFT JOIN r ON l.k = r.k")
    refresh(lab, "both", "full")
    refresh(lab, "keeps", "full")
    lab.sql("INSERT INTO l VALUES (1, 'l2'), (2, 'l3')")
    refresh(lab, "both", "append")
    refresh(lab, "keeps", "append")
    lab.sql("INSERT INTO r VALUES (2, 'r3')")
    refresh(lab, "both", "append")
    assert "AFFECTED_KEYS" in refresh(lab, "keeps", "keys").reason
    lab.sql("INSERT INTO l VALUES (3, 'l4')")
    lab.sql("INSERT INTO r VALUES (3, 'r4')")
    refresh(lab, "both", "keys")


@pytest.mark.long
def test_updates_and_deletes_of_an_input_are_no_appends(lab):
    lab.source("s", "id INT, n INT")
    lab.sql("INSERT INTO s VALUES (1, 1), (2, 2)")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT id, n FROM s")
    refresh(lab, "t", "full")
    lab.sql("UPDATE s SET n = 9 WHERE id = 1")
    refresh(lab, "t", "keys")
    lab.sql("INSERT INTO s VALUES (3, 3)")
    lab.sql("DELETE FROM s WHERE id = 3")
    assert refresh(lab, "t", "noop").reason.startswith("NO_NET_CHANGE")
    lab.sql("TRUNCATE TABLE s")
    refresh(lab, "t", "keys")

    assert lab.rows("t") == []


def test_a_value_made_of_an_aggregate_over_all_rows_is_computed_again(lab):
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (1)")
    lab.declare(f"CREATE MATERIALIZED TABLE t {HOURLY} AS SELECT count(*) + 0 AS n FROM s")
    refresh(lab, "t", "full")
    lab.sql("INSERT INTO s VALUES (2)")

    assert refresh(lab, "t", "full").reason.startswith("HIDDEN_AGGREGATE(COUNT(*))")
    assert lab.rows("t") == [{"n": 2}]


@pytest.mark.long
@pytest.mark.parametrize("duplicate", long_but(["(1, 'again')"], ["(3, 'c'), (3, 'd')", "(1, 'again')"]))
def test_a_second_row_for_a_primary_key_fails_and_leaves_the_table_as_it_was(lab, duplicate):
    lab.source("s", "id INT, v STRING")
    lab.sql("INSERT INTO s VALUES (1, 'a'), (2, 'b'), (NULL, 'one NULL is one key')")
    lab.declare(f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) {HOURLY} AS SELECT id, v FROM s")
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
    lab.source("s", "id INT")
    lab.sql("INSERT INTO s VALUES (NULL), (NULL)")
    lab.declare(f"CREATE MATERIALIZED TABLE t (PRIMARY KEY (id)) {HOURLY} AS SELECT id FROM s")

    failed = lab.refresh("t")

    assert failed.error.samples == ({"id": None},)
    assert failed.version is None
