"""Partitions that a person names are replaced exactly, or refused before any work (rule 6 of docs/rules.md)."""

from __future__ import annotations

from datetime import date

import pytest
from deltalake import DeltaTable

from freshline.errors import PartitionError
from freshline.plan.request import RefreshRequest
from freshline.refresh.partition_states import committed_keys
from freshline.values.names import TableName
from tests.crashes import refresh_by
from tests.scenarios.tables import declare, fill, follow

T = TableName.parse("t")


@pytest.fixture
def daily(lab):
    """A table by day and region over a source that changes, and an append-only table with the same partitions."""
    lab.source("s", "id INT, d DATE, r STRING, n INT")
    lab.sql(
        "INSERT INTO s VALUES (1, DATE'2026-01-01', 'eu', 1), (2, DATE'2026-01-02', 'it''s', 2), "
        "(3, DATE'2026-01-02', 'eu', 3)"
    )
    declare(lab, "SELECT d, r, sum(n) AS n FROM s GROUP BY d, r", "PARTITIONED BY (d, r)")
    declare(lab, "SELECT id, d, n FROM s", "(PRIMARY KEY (id)) PARTITIONED BY (d)", name="a")
    lab.refresh_all()
    return lab


def test_exactly_the_named_partitions_are_replaced(daily):
    outcome = follow(daily, "UPDATE s SET n = n * 10", partitions={"d": "2026-01-02", "r": "it's"})
    assert (outcome.strategy, outcome.state) == ("partition", "SUCCEEDED")
    assert outcome.reason.startswith("REQUESTED")
    assert [row["n"] for row in daily.rows("t")] == [1, 3, 20]
    follow(daily, partitions=[{"d": "2026-01-1"}, {"d": date(2026, 1, 2)}])
    assert [row["n"] for row in daily.rows("t")] == [10, 30, 20]
    # The next refresh, whose positions did not move, finds the changes that came since.
    follow(daily, "UPDATE s SET n = 7 WHERE id = 1", by="partition")
    assert [row["n"] for row in daily.rows("t")] == [7, 30, 20]
    assert daily.receipt("t").partitions == {}


@pytest.mark.long
def test_rows_of_a_partition_that_was_refreshed_alone_do_not_come_twice(daily):
    daily.sql("INSERT INTO s VALUES (4, DATE'2026-01-02', 'eu', 4), (5, DATE'2026-01-03', 'eu', 5)")
    follow(daily, name="a", partitions={"d": "2026-01-02"})
    assert [row["id"] for row in daily.rows("a")] == [1, 2, 3, 4]

    follow(daily, name="a")
    assert [row["id"] for row in daily.rows("a")] == [1, 2, 3, 4, 5]
    follow(daily, "INSERT INTO s VALUES (6, DATE'2026-01-02', 'eu', 4)", name="a", by="append")


@pytest.mark.parametrize(
    ("done", "undone"),
    [
        ("INSERT INTO s VALUES (9, DATE'2026-01-02', 'eu', 9)", "DELETE FROM s WHERE id = 9"),
        ("UPDATE s SET n = 8 WHERE id = 3", "UPDATE s SET n = 3 WHERE id = 3"),
        ("DELETE FROM s WHERE id = 3", "INSERT INTO s VALUES (3, DATE'2026-01-02', 'eu', 3)"),
    ],
)
def test_a_change_that_only_a_named_partition_has_read_is_undone_in_it(daily, done, undone):
    before = daily.rows("t")
    daily.sql(done)
    daily.refresh("t", partitions={"d": "2026-01-02"})
    assert daily.rows("t") != before
    daily.sql(undone)

    # All that happened since the positions of the table is nothing, and not since those of the partition.
    follow(daily)
    assert daily.rows("t") == before


@pytest.mark.long
def test_a_partition_without_rows_is_emptied(daily):
    daily.sql("DELETE FROM s WHERE d = DATE'2026-01-02'")

    assert daily.refresh("t", partitions={"d": "2026-01-02"}).state == "SUCCEEDED"
    assert [row["d"] for row in daily.rows("t")] == [date(2026, 1, 1)]
    assert daily.diff("t") == []


def test_a_wrong_partition_is_an_error_before_any_work(daily):
    before = daily.receipt("t")
    mistakes = [
        ({"x": "1"}, "x is not a partition column. The table is PARTITIONED BY (d, r)"),
        ({"n": "1"}, "n is not a partition column"),
        ({"d": "yesterday"}, "'yesterday' is not a value of d, which is DATE"),
        ({"d": "2026-13-01"}, "is not a value of d"),
        ({"d": "2026-01-01' OR 1=1 --"}, "is not a value of d"),
        ({"d": "../../etc"}, "is not a value of d"),
        ({"D": "2026-01-01", "d": "2026-01-01"}, "d is named twice"),
    ]
    for partition, sentence in mistakes:
        failed = daily.refresh("t", partitions=partition)

        assert isinstance(failed.error, PartitionError), partition
        assert sentence in str(failed.error)
    assert daily.receipt("t") == before


@pytest.mark.long
def test_one_partition_is_verified_without_the_others(daily):
    DeltaTable(str(daily.path("t"))).delete("d = '2026-01-02' AND r = 'eu'")

    assert daily.verify("t").missing == 1
    whole, good, bad = (
        daily.verify("t", partitions=named)
        for named in (
            [{"d": "2026-01-02"}],
            [{"d": date(2026, 1, 1)}, {"d": "2026-01-02", "r": "it's"}],
            [{"r": "it's"}, {"r": "eu"}],
        )
    )
    assert (whole.equal, whole.missing, whole.partitions) == (False, 1, ("d=2026-01-02",))
    assert (good.equal, good.partitions) == (True, ("d=2026-01-01", "d=2026-01-02/r=it's"))
    assert [row["r"] for _, row in bad.differences] == ["eu"]
    for partition, sentence in (({"n": 1}, "n is not a partition column"), ({"d": "../x"}, "is not a value of d")):
        with pytest.raises(PartitionError, match=sentence):
            daily.verify("t", partitions=[partition])


@pytest.mark.long
def test_declared_values_that_a_backfill_has_committed_are_in_its_receipts(lab):
    fill(lab, "s", "id INT, c STRING, n INT", "(1, 'de', 1), (2, 'it''s', 2), (3, NULL, 3), (4, 'nl', 4)")
    declare(
        lab, "SELECT c, sum(n) AS n FROM s GROUP BY c", "PARTITIONED BY (c) WITH ('partition.values' = 'de, it''s, fr')"
    )
    lab.refresh("t")
    lab.sql("UPDATE s SET n = n * 10")

    for value in ("it's", "fr"):
        request = RefreshRequest(partitions=((("c", value),),), backfill="b")
        refresh_by(lab.runtime, "t", request)

    assert committed_keys(lab.runtime, T, "b") == {"it's", "fr"}
    # Rows of values that nobody declared are rows like all others.
    assert sorted(row["n"] for row in lab.rows("t")) == [1, 3, 4, 20]
    assert lab.diff("t") == []
    follow(lab)
    assert sorted(row["n"] for row in lab.rows("t")) == [10, 20, 30, 40]


def test_a_value_with_quotes_and_semicolons_names_its_partition_only(daily):
    assert daily.refresh("t", partitions={"r": "x'; DROP TABLE s; --"}).rows_out == 0
    assert daily.refresh("t", partitions={"r": "../up/a=b"}).state == "SUCCEEDED"
    assert len(daily.rows("t")) == 3
    assert daily.diff("t") == []


def test_tables_without_partitions_and_before_their_first_version_say_so(lab):
    lab.source("s", "id INT, d DATE")
    declare(lab, "SELECT id FROM s")
    declare(lab, "SELECT id, d FROM s", "PARTITIONED BY (d)", name="p")
    assert "no version yet" in str(lab.refresh("p", partitions={"d": "2026-01-01"}).error)
    lab.refresh("t")

    assert "has no partitions" in str(lab.refresh("t", partitions={"d": "2026-01-01"}).error)
    assert "has no partitions" in str(lab.refresh("s", partitions={"d": "2026-01-01"}).error)


@pytest.mark.long
@pytest.mark.parametrize(
    "undone",
    [
        "UPDATE s SET n = 1 WHERE id = 1",
        "DELETE FROM s WHERE id = 1; INSERT INTO s VALUES (1, DATE'2026-01-01', 'eu', 1)",
    ],
)
def test_a_change_that_a_named_partition_took_in_is_taken_back_when_it_is_undone(daily, undone):
    daily.sql("UPDATE s SET n = 10 WHERE id = 1")
    daily.refresh("t", partitions={"d": "2026-01-01"})
    assert daily.rows("t")[0]["n"] == 10
    for statement in undone.split("; "):
        daily.sql(statement)

    follow(daily)
    assert daily.rows("t")[0]["n"] == 1


def test_rows_of_others_are_not_hidden_by_a_named_partition(daily):
    path = daily.path("t")
    daily.runtime.sessions.root.sql(f"INSERT INTO delta.`{path}` VALUES (DATE'2026-01-02', 'eu', 99)")
    named = daily.refresh("t", partitions={"d": "2026-01-01"})
    assert named.error is None
    assert daily.receipt("t").foreign

    repaired = follow(daily)
    assert repaired.reason.startswith("FOREIGN_WRITE")
    assert not daily.receipt("t").foreign
    assert daily.refresh("t").strategy == "noop"
