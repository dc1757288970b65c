"""Declarations that change under a table with rows: what is taken up, what asks for its start, what is refused."""

from __future__ import annotations

from datetime import date

import pytest

from freshline.errors import DefinitionChangedError, DuplicateKeyError, IncrementalError, PartitionError
from freshline.testing import Crash, Lab
from tests.scenarios.tables import fill, follow

HEADER = "CREATE MATERIALIZED TABLE t {}FRESHNESS = INTERVAL '1' HOUR AS "


@pytest.fixture
def events(lab: Lab) -> Lab:
    fill(lab, "s", "id INT, k STRING, v INT", "(1, 'a', 10), (2, 'b', 20)")
    return lab


def declare(lab: Lab, query: str, header: str = "") -> None:
    lab.declare(HEADER.format(f"{header} " if header else "") + query)


def test_a_new_column_is_taken_up_by_the_next_refresh_in_one_commit_for_all_rows(events):
    declare(events, "SELECT id, k FROM s")
    events.refresh("t")
    events.sql("INSERT INTO s VALUES (3, 'c', 30)")
    declare(events, "SELECT v * 2 AS twice, id, k FROM s")

    taken = follow(events)
    assert taken.reason.startswith("DEFINITION_CHANGED(new column twice)")
    assert events.rows("t") == [{"twice": 2 * v, "id": v // 10, "k": "abc"[v // 10 - 1]} for v in (10, 20, 30)]
    assert events.refresh("t").reason.startswith("NOTHING_NEW")


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("v", "concat('00', v)", "0010"),
        ("k", "X'00FF'", b"\x00\xff"),
        ("CAST(v AS FLOAT)", "v / 3.0D", 10 / 3),
        ("named_struct('x', k)", "named_struct('y', k)", {"y": "a"}),
        ("named_struct('x', k)", "named_struct('x', k, 'y', v)", {"x": "a", "y": 10}),
    ],
)
def test_a_column_of_another_type_is_stored_with_it_by_a_small_full_refresh(events, before, after, shown):
    declare(events, f"SELECT id, {before} AS c FROM s")
    events.refresh("t")
    declare(events, f"SELECT id, {after} AS c FROM s")

    follow(events, by="full", full=True)
    assert events.rows("t")[0] == {"id": 1, "c": shown}
    follow(events, "INSERT INTO s VALUES (3, 'a', 10)", by="append")
    assert events.rows("t")[2] == {"id": 3, "c": shown}


def test_columns_that_begin_as_those_of_a_change_feed_are_those_of_the_table(events):
    declare(events, "SELECT id, k AS _commit_sha, v AS _change_reason FROM s")
    events.declare("CREATE MATERIALIZED TABLE u FRESHNESS = INTERVAL '1' HOUR AS SELECT * FROM t")
    for number in range(2):
        events.sql(f"INSERT INTO s VALUES ({3 + number}, 'c', 30)")
        events.refresh("t")
        events.refresh("u")
    assert events.rows("u")[2] == {"id": 3, "_commit_sha": "c", "_change_reason": 30}
    assert events.diff("u") == []


def test_a_crash_while_a_new_column_is_taken_up_leaves_the_old_rows_and_the_next_engine_takes_it_up(events):
    declare(events, "SELECT id FROM s")
    events.refresh("t")
    before = events.rows("t")
    declare(events, "SELECT id, v FROM s")
    with events.crash_at("table-before-commit"), pytest.raises(Crash):
        events.refresh("t")
    assert events.rows("t") == before

    events.restart(lose_control_store=True)

    assert events.refresh("t").reason.startswith("DEFINITION_CHANGED(new column v)")
    assert events.rows("t") == [{"id": 1, "v": 10}, {"id": 2, "v": 20}]


def test_from_now_keeps_the_rows_that_are_there_and_computes_what_comes_by_the_new_query(events):
    declare(events, "SELECT id, v FROM s")
    events.refresh("t")
    declare(events, "SELECT id, v + 1 AS v, k FROM s")
    # Rows that arrive before somebody says from when on are not lost.
    events.sql("INSERT INTO s VALUES (3, 'c', 30)")
    assert isinstance(events.refresh("t").error, DefinitionChangedError)

    begun = events.refresh("t", start="now")
    events.sql("INSERT INTO s VALUES (4, 'd', 40)")
    added = events.refresh("t")

    assert begun.reason.startswith("STARTED(column v is computed in another way; new column k)")
    assert added.strategy == "append"
    assert events.rows("t") == [
        {"id": 1, "v": 10, "k": None},
        {"id": 2, "v": 20, "k": None},
        {"id": 3, "v": 31, "k": "c"},
        {"id": 4, "v": 41, "k": "d"},
    ]
    assert events.verify("t").unverified == 4
    # The kept rows are not computed anew unasked.
    events.restart(lose_control_store=True)
    events.sql("TRUNCATE TABLE s")
    refused = events.refresh("t")
    assert isinstance(refused.error, IncrementalError), refused
    assert events.refresh("t", full=True).state == "SUCCEEDED"
    events.sql("INSERT INTO s VALUES (5, 'e', 50)")
    assert events.refresh("t").state == "SUCCEEDED"
    assert events.diff("t") == []


@pytest.mark.long
def test_from_now_a_group_that_changes_follows_the_new_query_as_a_whole(events):
    declare(events, "SELECT k, sum(v) AS n FROM s GROUP BY k", "(PRIMARY KEY (k))")
    events.refresh("t")
    declare(events, "SELECT k, sum(v * 100) AS n FROM s GROUP BY k", "(PRIMARY KEY (k))")

    events.refresh("t", start="now")
    events.sql("INSERT INTO s VALUES (3, 'b', 1)")
    events.refresh("t")

    # Not the old sum with new rows on top.
    assert events.rows("t") == [{"k": "a", "n": 10}, {"k": "b", "n": 2100}]


def test_rows_are_not_kept_where_they_could_not_be_found_again(events):
    declare(events, "SELECT id, v FROM s", "(PRIMARY KEY (id))")
    events.refresh("t")
    declare(events, "SELECT id + 1 AS id, v FROM s", "(PRIMARY KEY (id))")

    refused = events.refresh("t", start="now")

    assert isinstance(refused.error, DefinitionChangedError)
    assert "the key or the partitions are computed in another way" in str(refused.error)


def test_from_a_date_the_partitions_before_it_stay_as_they_are(lab):
    fill(lab, "s", "id INT, ds DATE", "(1, DATE'2026-10-31'), (2, DATE'2026-11-01'), (3, DATE'2026-11-02')")
    header = "PARTITIONED BY (ds)"
    declare(lab, "SELECT id, ds FROM s", header)
    lab.refresh("t")
    declare(lab, "SELECT id * 10 AS id, ds, 'new' AS word FROM s", header)
    lab.sql("INSERT INTO s VALUES (4, DATE'2026-10-31'), (5, DATE'2026-11-02')")

    assert isinstance(lab.refresh("t", start="tomorrow").error, PartitionError)
    begun = lab.refresh("t", start="2026-11-01")

    assert (begun.strategy, begun.state) == ("partition", "SUCCEEDED")
    assert lab.rows("t") == [
        {"id": 1, "ds": date(2026, 10, 31), "word": None},
        {"id": 20, "ds": date(2026, 11, 1), "word": "new"},
        {"id": 30, "ds": date(2026, 11, 2), "word": "new"},
    ]
    lab.refresh("t")
    assert [(row["id"], row["word"]) for row in lab.rows("t")] == [
        (1, None),
        (20, "new"),
        (30, "new"),
        (40, "new"),
        (50, "new"),
    ]


def test_from_a_date_no_key_comes_twice(lab):
    fill(lab, "s", "id INT, ds DATE, kind STRING", "(1, DATE'2026-10-31', 'a'), (1, DATE'2026-11-02', 'b')")
    header = "(PRIMARY KEY (id)) PARTITIONED BY (ds)"
    declare(lab, "SELECT id, ds FROM s WHERE kind = 'a'", header)
    lab.refresh("t")
    declare(lab, "SELECT id, ds FROM s WHERE kind = 'b'", header)

    refused = lab.refresh("t", start="2026-11-01")

    assert isinstance(refused.error, DuplicateKeyError)
    assert lab.rows("t") == [{"id": 1, "ds": date(2026, 10, 31)}]


def test_from_now_rows_that_crossed_since_the_last_refresh_are_found(lab):
    lab.source("s", "id INT, at TIMESTAMP, v INT")
    at = lab.clock().strftime("%Y-%m-%d %H:%M:%S")
    lab.sql(f"INSERT INTO s SELECT id, TIMESTAMP'{at}' + make_interval(0, 0, 0, id), 1 FROM range(4)")
    query = "SELECT id, at, v{} AS v FROM s WHERE at > now() - INTERVAL '7' DAYS AND at <= now()"
    declare(lab, query.format(""), "(PRIMARY KEY (id))")
    lab.refresh("t")
    assert [row["id"] for row in lab.rows("t")] == [0]
    declare(lab, query.format(" * 2"), "(PRIMARY KEY (id))")
    lab.clock.advance(hours=24 * 2)
    assert lab.refresh("t", start="now").error is None
    assert [row["id"] for row in lab.rows("t")] == [0]
    lab.clock.advance(minutes=1)
    assert lab.refresh("t").error is None
    assert [(row["id"], row["v"]) for row in lab.rows("t")] == [(0, 1), (1, 2), (2, 2)]
    declare(lab, query.format(" * 3"), "(PRIMARY KEY (id))")
    lab.clock.advance(hours=24 * 6)
    assert lab.refresh("t", start="now").error is None
    lab.clock.advance(minutes=1)
    assert lab.refresh("t").error is None
    assert [row["id"] for row in lab.rows("t")] == [2, 3]


def test_a_named_partition_does_not_take_up_a_changed_declaration(lab):
    fill(lab, "s", "id INT, ds DATE", "(1, DATE'2026-10-31'), (2, DATE'2026-11-01')")
    declare(lab, "SELECT id, ds FROM s", "PARTITIONED BY (ds)")
    lab.refresh("t")
    declare(lab, "SELECT id, ds, id + 1 AS more FROM s", "PARTITIONED BY (ds)")

    refused = lab.refresh("t", partitions={"ds": "2026-11-01"})

    assert isinstance(refused.error, DefinitionChangedError)
    assert "Run `freshline refresh t` first" in str(refused.error)
    assert lab.refresh("t").error is None
    follow(lab, partitions={"ds": "2026-11-01"})


def test_a_change_that_would_destroy_is_refused_from_any_start_but_a_stated_beginning(events):
    declare(events, "SELECT id, v FROM s", "(PRIMARY KEY (id))")
    events.refresh("t")
    declare(events, "SELECT id FROM s", "(PRIMARY KEY (id))")

    for start in (None, "now"):
        refused = events.refresh("t", start=start)
        assert isinstance(refused.error, DefinitionChangedError)
        assert "column v goes away" in str(refused.error)
    assert len(events.rows("t")[0]) == 2
    assert events.refresh("t", full=True).state == "SUCCEEDED"
    assert events.rows("t") == [{"id": 1}, {"id": 2}]


def test_a_start_that_is_stated_for_what_did_not_change_changes_nothing(events):
    declare(events, "SELECT id FROM s")
    version = events.refresh("t").version

    again = events.refresh("t", start="now")

    assert (again.strategy, again.version) == ("noop", version)


def test_a_partition_with_rows_of_the_earlier_declaration_is_not_computed_as_a_whole(lab):
    fill(lab, "s", "ds STRING, k STRING, v INT", "('d1', 'a', 1), ('d1', 'b', 2)")
    query = "SELECT ds, k, sum(v{}) AS n FROM s GROUP BY ds, k"
    declare(lab, query.format(""), "(PRIMARY KEY (ds, k)) PARTITIONED BY (ds)")
    lab.refresh("t")
    declare(lab, query.format(" * 100"), "(PRIMARY KEY (ds, k)) PARTITIONED BY (ds)")
    assert lab.refresh("t", start="now").error is None
    lab.sql("INSERT INTO s VALUES ('d1', 'a', 3)")

    assert lab.refresh("t").strategy == "keys"

    assert {row["k"]: row["n"] for row in lab.rows("t")} == {"a": 400, "b": 2}


@pytest.mark.parametrize("strict", [False, True])
def test_a_step_that_finds_out_that_it_must_be_full_is_refused_where_that_is_forbidden(lab, strict):
    fill(lab, "s", "id INT, x INT", "(1, 1), (2, 2)")
    fill(lab, "r", "y INT", "(2)")
    query = "SELECT id, x{} AS x FROM s WHERE x NOT IN (SELECT y FROM r)"
    header = "(PRIMARY KEY (id))" + (" WITH ('incremental' = 'strict')" if strict else "")
    declare(lab, query.format(""), header)
    lab.refresh("t")
    if not strict:
        declare(lab, query.format(" * 10"), header)
        assert lab.refresh("t", start="now").error is None
    before = lab.rows("t")
    lab.sql("INSERT INTO r VALUES (NULL)")

    assert isinstance(lab.refresh("t").error, IncrementalError)

    assert lab.rows("t") == before


def test_a_column_that_a_source_is_declared_with_later_comes_into_a_table_of_all_its_columns(lab):
    fill(lab, "s", "id INT, a INT, b INT", "(1, 10, 100)")
    source = "CREATE SOURCE s (id INT, a INT{}) WITH ('connector' = 'delta', 'path' = '" + str(lab.path("s")) + "')"
    lab.declare(source.format(""))
    declare(lab, "SELECT * FROM s")
    lab.refresh("t")
    lab.declare(source.format(", b INT"))
    lab.sql("INSERT INTO s VALUES (2, 20, 200)")

    assert lab.refresh("t").reason.startswith("DEFINITION_CHANGED(new column b)")

    assert lab.rows("t") == [{"id": n, "a": 10 * n, "b": 100 * n} for n in (1, 2)]
    assert lab.refresh("t").strategy == "noop"
    lab.sql("INSERT INTO s VALUES (3, 30, 300)")
    assert lab.refresh("t").strategy == "append"
