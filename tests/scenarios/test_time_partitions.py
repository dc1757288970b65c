"""Time partitions: exactly what is named is replaced, gaps are found, and late rows reach their own partition only."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from freshline.commit.delta_log import newest_version
from freshline.errors import DefinitionChangedError, PartitionError
from tests.delta_log import commit_of, version_of
from tests.plain_lab import PlainLab
from tests.scenarios.tables import fill, follow

DAILY = "'partition.unit' = 'day', 'partition.start' = '2026-01-01'"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


@pytest.fixture
def days(spark):
    """Rows of five days, before the first partition, after the open one, and of no day; it is noon of the fifth."""
    with PlainLab(spark, start=NOON) as lab:
        _fill(lab)
        yield lab


def _fill(lab):
    lab.source("s", "id INT, ts TIMESTAMP, n INT")
    lab.sql(
        "INSERT INTO s SELECT id, TIMESTAMP'2026-01-01 08:00:00' + make_interval(0, 0, 0, id DIV 2), id "
        "FROM range(-4, 14) AS r(id)"
    )
    lab.sql("INSERT INTO s VALUES (100, NULL, 100)")


def daily(lab, name="t", *, options=DAILY, freshness="6' HOUR", query=None):
    query = query or "SELECT CAST(ts AS DATE) AS ds, count(*) AS c, sum(n) AS n FROM s GROUP BY CAST(ts AS DATE)"
    lab.declare(
        f"CREATE MATERIALIZED TABLE {name} PARTITIONED BY (ds) WITH ({options}) FRESHNESS = INTERVAL '{freshness} "
        f"AS {query}"
    )


def keys(lab, name="t"):
    return [row["ds"].day for row in lab.rows(name)]


def named(*dates):
    return [{"ds": f"2026-01-{day:02d}"} for day in dates]


def commits(lab, name="t"):
    return newest_version(lab.path(name))


def test_a_partition_that_begins_hides_no_row_that_came_for_an_older_one(days):
    daily(days)
    follow(days)
    days.sql("INSERT INTO s VALUES (200, TIMESTAMP'2026-01-03 09:00:00', 200)")
    days.clock.advance(days=1)

    follow(days)

    assert keys(days) == [1, 2, 3, 4, 5, 6]
    assert follow(days).strategy == "noop"


def test_a_partition_does_not_take_up_what_would_destroy_others(days):
    query = "SELECT CAST(ts AS DATE) AS ds, date_add(CAST(ts AS DATE), 1) AS day, n FROM s"
    daily(days, query=query)
    follow(days)
    before = days.rows("t")
    days.declare(
        f"CREATE MATERIALIZED TABLE t PARTITIONED BY (day) WITH ({DAILY}) FRESHNESS = INTERVAL '6' HOUR AS {query}"
    )
    refused = days.refresh("t", partitions={"day": "2026-01-03"})
    assert isinstance(refused.error, DefinitionChangedError)
    assert "PARTITIONED BY was (ds), is (day)" in str(refused.error)
    assert days.rows("t") == before


@pytest.mark.long
def test_a_table_made_by_partitions_has_these_only_until_a_refresh_brings_the_rest(days):
    daily(days)

    made = follow(days, partitions=named(3))
    follow(days, partitions=named(2))

    assert (made.strategy, made.partitions, keys(days)) == ("partition", ("2026-01-03",), [2, 3])
    assert days.receipt("t").data_timestamp is None, "some partitions are not the table"
    outcome = follow(days)
    assert outcome.reason.startswith("PARTITIONS_MISSING(2026-01-01 00:00 to 2026-01-02 00:00, 2026-01-04")
    assert outcome.partitions == ("2026-01-01", "2026-01-04", "2026-01-05")
    # Neither what is before the start, nor the future, nor what is of no day.
    assert keys(days) == [1, 2, 3, 4, 5]
    assert days.receipt("t").data_timestamp is not None
    before = commits(days)
    assert follow(days).strategy == "noop"
    assert commits(days) == before


def test_a_first_refresh_brings_in_every_partition_that_has_begun(days):
    daily(days)

    assert follow(days).partitions == tuple(f"2026-01-0{day}" for day in range(1, 6))
    assert keys(days) == [1, 2, 3, 4, 5]
    days.clock.advance(days=1)
    assert follow(days).partitions == ("2026-01-06",)
    assert keys(days) == [1, 2, 3, 4, 5, 6]


def test_late_rows_reach_their_own_closed_partition_and_no_other(days):
    daily(days)
    follow(days)
    days.sql(
        "INSERT INTO s VALUES (200, TIMESTAMP'2026-01-02 23:59:59', 1000), (201, NULL, 1), "
        "(202, TIMESTAMP'2025-12-31 00:00:00', 1), (203, TIMESTAMP'2026-01-07 00:00:00', 1)"
    )

    outcome = follow(days)

    assert (outcome.strategy, outcome.partitions) == ("partition", ("2026-01-02",))
    path = days.path("t")
    touched = {
        a[k]["partitionValues"]["ds"]
        for a in commit_of(path, version_of(path)).actions
        for k in ("add", "remove")
        if k in a
    }
    assert touched == {"2026-01-02"}
    assert follow(days, "DELETE FROM s WHERE id IN (100, 201, 202)").strategy == "noop"


@pytest.mark.long
def test_the_open_partition_waits_where_freshness_is_not_shorter_than_it(days):
    daily(days, freshness="1' DAY")

    follow(days)

    assert keys(days) == [1, 2, 3, 4]
    assert follow(days, "INSERT INTO s VALUES (300, TIMESTAMP'2026-01-05 11:00:00', 7)").strategy == "noop"
    days.clock.advance(hours=12)
    assert follow(days).partitions == ("2026-01-05",)
    assert keys(days) == [1, 2, 3, 4, 5]


@pytest.mark.long
def test_a_named_partition_is_replaced_also_when_nothing_is_left_of_it(days):
    daily(days)
    follow(days)
    days.sql("DELETE FROM s WHERE CAST(ts AS DATE) = DATE'2026-01-03'")
    outcome = follow(days, "UPDATE s SET n = 0 WHERE CAST(ts AS DATE) = DATE'2026-01-04'", partitions=named(3))

    assert (outcome.strategy, outcome.partitions, keys(days)) == ("partition", ("2026-01-03",), [1, 2, 4, 5])
    assert next(row for row in days.rows("t") if row["ds"] == date(2026, 1, 4))["n"] != 0
    # The rest of that change is found by the next refresh.
    assert follow(days).strategy == "partition"
    assert next(row for row in days.rows("t") if row["ds"] == date(2026, 1, 4))["n"] == 0


def test_a_wrong_partition_is_an_error_before_any_work(days):
    daily(days)
    follow(days)
    before = commits(days)
    mistakes = [
        ({"ds": "2026-01-06"}, "in the future"),
        ({"ds": "2025-12-31"}, "before the first partition"),
        ({"ds": "2026-02-30"}, "no date that there is"),
        ({"ds": "2026-1-1"}, "is not a partition"),
        ({"ds": "2026-01-01' OR 1=1 --"}, "is not a partition"),
        ({"ds": "x'; DROP TABLE s; --"}, "is not a partition"),
        ({"ds": "../../etc"}, "is not a partition"),
        ({"ds": ""}, "is not a partition"),
        ({"n": "1"}, "n is not a partition column. The table is PARTITIONED BY (ds)"),
        ({"DS": "2026-01-01", "ds": "2026-01-01"}, "ds is named twice"),
        ({}, "no partition is named"),
    ]
    for partition, sentence in mistakes:
        failed = days.refresh("t", partitions=[partition])

        assert isinstance(failed.error, PartitionError), partition
        assert sentence in str(failed.error), partition
    assert commits(days) == before


@pytest.mark.long
def test_appends_and_keys_leave_partitions_alone_that_the_table_does_not_have(days):
    daily(days, query="SELECT id, CAST(ts AS DATE) AS ds FROM s WHERE n >= 0", freshness="10' SECOND")
    fill(days, "names", "id INT, name STRING", "(1, 'one'), (-3, 'before')")
    daily(
        days,
        "j",
        query="SELECT s.id, CAST(s.ts AS DATE) AS ds, names.name FROM s LEFT JOIN names ON s.id = names.id",
        freshness="10' MINUTE",
    )
    follow(days)
    follow(days, name="j")
    days.sql(
        "INSERT INTO s VALUES (400, TIMESTAMP'2026-01-05 11:00:00', 7), (401, TIMESTAMP'2026-01-09 11:00:00', 7), "
        "(402, NULL, 7), (403, TIMESTAMP'2025-01-09 11:00:00', 7)"
    )
    days.sql("UPDATE names SET name = concat(name, '!')")

    appended, joined = follow(days), follow(days, name="j")

    assert (appended.strategy, appended.rows_out) == ("append", 1)
    assert joined.strategy == "keys"
    assert appended.partitions == ("2026-01-05",)
    days.clock.advance(days=4)
    assert follow(days).partitions == tuple(f"2026-01-0{day}" for day in range(6, 10))
    assert 401 in [row["id"] for row in days.rows("t")]


def test_a_table_kept_by_change_sets_computes_a_named_partition_where_it_stands(days):
    daily(days, query="SELECT id, CAST(ts AS DATE) AS ds FROM s", freshness="10' SECOND")
    follow(days)
    follow(days, "INSERT INTO s VALUES (500, TIMESTAMP'2026-01-03 11:00:00', 7)", partitions=named(3))

    assert 500 not in [row["id"] for row in days.rows("t")]
    assert days.receipt("t").has_partition_positions is False
    assert follow(days).strategy == "append"
    assert [row["id"] for row in days.rows("t")].count(500) == 1


@pytest.mark.long
def test_another_declaration_makes_partitions_stale_which_are_replaced_one_by_one(days):
    daily(days)
    follow(days)
    daily(days, query="SELECT CAST(ts AS DATE) AS ds, count(*) AS c, sum(n) + 1000 AS n FROM s GROUP BY 1")
    refused = days.refresh("t")
    assert refused.error is not None
    assert refused.error.code == "DEFINITION_CHANGED"

    assert days.refresh("t", partitions=named(2)).error is None

    assert [row["n"] > 900 for row in days.rows("t")] == [False, True, False, False, False]
    assert days.verify("t").unverified == 4
    assert days.verify("t").missing == days.verify("t").extra == 0
    follow(days)
    assert [row["n"] > 900 for row in days.rows("t")] == [True] * 5
    daily(days, query="SELECT CAST(ts AS DATE) AS ds, count(*) AS c FROM s GROUP BY 1")
    columns = days.refresh("t", partitions=named(2))
    assert "other columns than the table" in str(columns.error)


@pytest.mark.long
def test_one_day_is_verified_and_only_one_of_an_older_declaration_is_unverified(days):
    daily(days)
    follow(days)
    query = "SELECT CAST(ts AS DATE) AS ds, count(*) AS c, sum(n) + 1 AS n FROM s GROUP BY CAST(ts AS DATE)"
    daily(days, query=query)
    days.refresh("t", partitions=named(2))

    assert days.verify("t", partitions=named(2)).equal
    older = days.verify("t", partitions=named(3))
    assert (older.equal, older.unverified, older.missing, older.extra) == (False, 1, 0, 0)
    with pytest.raises(PartitionError, match="before the first partition"):
        days.verify("t", partitions=[{"ds": "2025-12-31"}])


@pytest.mark.long
def test_hours_weeks_and_months_of_times_and_texts(days):
    hour = "'partition.unit' = 'hour', 'partition.start' = '2026-01-01-00:00', 'partition.time-zone' = 'Europe/Paris'"
    daily(days, "h", options=hour, query="SELECT id, date_trunc('HOUR', ts) AS ds FROM s")
    week = "'partition.unit' = 'week', 'partition.start' = '2025-12-29'"
    daily(days, "w", options=week, query="SELECT id, CAST(CAST(ts AS DATE) AS STRING) AS ds FROM s")
    month = "'partition.unit' = 'month', 'partition.start' = '2026-01-01', 'partition.time-zone' = 'America/New_York'"
    daily(days, "m", options=month, query="SELECT id, ts AS ds FROM s")
    daily(days, "x", query="SELECT id AS ds, n FROM s")

    assert follow(days, name="h", partitions={"ds": "2026-01-01-09:00"}).rows_out == 3
    assert follow(days, name="w", partitions={"ds": "2025-12-29"}).rows_out == 12
    assert (follow(days, name="m", partitions={"ds": "2026-01-01"}).rows_out or 0) > 9
    follow(days, name="h")
    follow(days, name="w")
    wrong = days.refresh("x")
    assert "needs a DATE, a TIMESTAMP or a text such as 2026-11-01 in PARTITIONED BY, and ds is INT" in str(wrong.error)


@pytest.mark.long
def test_readers_follow_a_partition_that_was_replaced(days):
    daily(days)
    daily(days, "below", query="SELECT ds, n * 2 AS n FROM t")
    follow(days, name="below")
    follow(days, "UPDATE s SET n = n + 1 WHERE CAST(ts AS DATE) = DATE'2026-01-02'", partitions=named(2))

    outcome = follow(days, name="below", upstreams=False)
    assert (outcome.strategy, outcome.partitions) == ("partition", ("2026-01-02",))
