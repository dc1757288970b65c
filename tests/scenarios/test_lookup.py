"""Lookup joins: each row reads the dimension at one pinned version, and keeps what it found."""

from __future__ import annotations

import pytest

from freshline.commit.delta_log import newest_version
from freshline.errors import LookupKeyError, PartitionError
from freshline.values.names import TableName
from tests.crashes import crash
from tests.delta_log import receipt_of
from tests.lanes import long_but
from tests.scenarios.tables import HOURLY, fill, follow

ENRICHED = f"""CREATE MATERIALIZED TABLE e (PRIMARY KEY (id)) PARTITIONED BY (d) {HOURLY} AS
SELECT o.id, o.d, c.name, version_of(c) AS cv, p.price, version_of(p) AS pv
FROM o LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() AS c ON o.customer = c.id
INNER JOIN sales.p FOR SYSTEM_TIME AS OF PROCTIME() AS p ON p.id = o.product AND p.region = o.region"""


def declare(lab):
    lab.source("o", "id INT, d DATE, customer INT, product INT, region STRING")
    lab.source("c", "id INT, name STRING", primary_key=["id"])
    fill(lab, "sales.p", "id INT, region STRING, price DECIMAL(10,2)", "(1, 'eu', 1.00), (1, 'us', 2.00)")
    lab.sql("INSERT INTO c VALUES (1, 'one'), (2, 'two'), (NULL, 'nobody'), (NULL, 'nobody else')")
    lab.declare(ENRICHED)


@pytest.mark.long
def test_rows_keep_the_versions_that_they_found(lab):
    declare(lab)
    lab.sql(
        "INSERT INTO o VALUES (1, DATE'2026-01-01', 1, 1, 'eu'), (2, DATE'2026-01-01', NULL, 1, 'us'), "
        "(3, DATE'2026-01-01', 1, 9, 'eu')"
    )
    follow(lab, name="e", by="full")
    lab.sql("UPDATE c SET name = 'ONE' WHERE id = 1")
    only_dimensions = lab.refresh("e")
    assert (only_dimensions.strategy, only_dimensions.committed) == ("noop", False)
    assert only_dimensions.reason.startswith("DIMENSIONS_ONLY(c)")
    lab.sql("INSERT INTO o VALUES (4, DATE'2026-01-02', 1, 1, 'eu'), (5, DATE'2026-01-02', 7, 1, 'eu')")
    appended = follow(lab, name="e")
    assert (appended.strategy, appended.rows_in, appended.rows_out) == ("append", 2, 2)

    assert [(row["id"], row["name"], row["cv"], row["pv"]) for row in lab.rows("e")] == [
        (1, "one", 1, 1),
        (2, None, 1, 1),
        (4, "ONE", 2, 1),
        (5, None, 2, 1),
    ]


@pytest.mark.long
def test_a_named_partition_reads_the_versions_of_the_newest_receipt_again(lab):
    declare(lab)
    lab.sql("INSERT INTO o VALUES (1, DATE'2026-01-01', 1, 1, 'eu')")
    lab.refresh("e")
    lab.sql("UPDATE c SET name = 'ONE' WHERE id = 1")
    lab.sql("INSERT INTO o VALUES (2, DATE'2026-01-02', 1, 1, 'eu')")
    lab.refresh("e")
    lab.sql("UPDATE c SET name = 'newest' WHERE id = 1")
    lab.sql("INSERT INTO o VALUES (3, DATE'2026-01-01', 1, 1, 'eu')")

    follow(lab, name="e", by="partition", partitions={"d": "2026-01-01"})
    assert [(row["id"], row["name"]) for row in lab.rows("e")] == [(1, "ONE"), (2, "ONE")]
    follow(lab, name="e", by="append")
    assert [(row["id"], row["name"]) for row in lab.rows("e")] == [(1, "ONE"), (2, "ONE"), (3, "newest")]


def test_a_row_that_is_deleted_below_a_lookup_goes_alone(lab):
    declare(lab)
    lab.sql("INSERT INTO o VALUES (1, DATE'2026-01-01', 1, 1, 'eu'), (2, DATE'2026-01-01', 2, 1, 'eu')")
    lab.refresh("e")
    follow(lab, "DELETE FROM o WHERE id = 1", name="e", by="keys")
    assert [row["id"] for row in lab.rows("e")] == [2]


def test_a_dimension_that_is_not_unique_is_an_error_with_samples_or_any_row(lab):
    declare(lab)
    lab.sql("INSERT INTO o VALUES (1, DATE'2026-01-01', 1, 1, 'eu')")
    lab.refresh("e")
    lab.sql("INSERT INTO sales.p VALUES (1, 'eu', 3.00)")
    lab.sql("INSERT INTO o VALUES (2, DATE'2026-01-01', 1, 1, 'eu')")

    failed = lab.refresh("e")

    assert isinstance(failed.error, LookupKeyError)
    assert (failed.error.dimension, failed.error.key) == ("sales.p", ("id", "region"))
    assert failed.error.samples == ({"id": 1, "region": "eu"},)
    assert [row["id"] for row in lab.rows("e")] == [1]
    lab.declare(ENRICHED.replace("PARTITIONED BY (d)", "PARTITIONED BY (d) WITH ('lookup.on-duplicate' = 'any')"))
    assert lab.refresh("e", full=True).state == "SUCCEEDED"
    assert [(row["id"], str(row["price"])) for row in lab.rows("e")] == [(1, "1.00"), (2, "1.00")]
    assert lab.diff("e") == []


@pytest.mark.long
def test_a_table_that_keeps_its_key_is_a_dimension_of_a_log(lab):
    lab.files("ev", "id INT, k STRING")
    lab.files("ch", "k STRING, n INT, at TIMESTAMP METADATA FROM 'ingested_at'")
    lab.declare(
        "CREATE MATERIALIZED TABLE dim (PRIMARY KEY (k)) WITH ('merge' = 'last_row', 'merge.sequence' = 'n', "
        f"'merge.tie-breaker' = 'n') {HOURLY} AS SELECT k, n FROM ch"
    )
    lab.declare(
        f"CREATE MATERIALIZED TABLE e {HOURLY} "
        "AS SELECT ev.id, dim.n, version_of(dim) AS v FROM ev "
        "LEFT JOIN dim FOR SYSTEM_TIME AS OF PROCTIME() ON ev.k = dim.k"
    )
    for number in range(3):
        lab.land("ch", f"{number}.json", [{"k": "a", "n": number}])
        lab.land("ev", f"{number}.json", [{"id": number, "k": "a"}])
        lab.refresh("e")

    assert [(row["id"], row["n"]) for row in lab.rows("e")] == [(0, 0), (1, 1), (2, 2)]
    assert lab.rows("e")[-1]["v"] == newest_version(lab.path("dim"))
    assert lab.diff("e") == []


WAITING = f"""CREATE MATERIALIZED TABLE w {{key}} PARTITIONED BY (d) WITH ('lookup.retry-on-miss.attempts' = '2',
'lookup.retry-on-miss.delay' = '10 minutes') {HOURLY} AS
SELECT o.id, o.d, c.name, version_of(c) AS cv FROM o LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() AS c
ON o.customer = c.id WHERE o.id > 0"""


def names(lab):
    return [(row["id"], row["name"]) for row in lab.rows("w")]


def refresh_waiting(lab, strategy, reason):
    outcome = follow(lab, name="w")
    assert (outcome.strategy, outcome.reason.split("(")[0].split(":")[0]) == (strategy, reason)
    return outcome


def orders(*customers):
    return ", ".join(f"({order}, DATE'2026-01-01', {customer}, 1, 'eu')" for order, customer in customers)


@pytest.mark.long
def test_rows_with_maps_wait_too_and_are_verified(lab):
    lab.source("o", "id INT, customer INT, m MAP<STRING, INT>")
    fill(lab, "c", "id INT, name STRING", "(1, 'one')", primary_key=["id"])
    lab.declare(
        "CREATE MATERIALIZED TABLE w WITH ('lookup.retry-on-miss.attempts' = '2', 'lookup.retry-on-miss.delay' = "
        f"'10 minutes') {HOURLY} AS SELECT o.id, o.m, c.name FROM o LEFT JOIN c FOR SYSTEM_TIME AS OF PROCTIME() AS c "
        "ON o.customer = c.id"
    )
    lab.sql("INSERT INTO o VALUES (1, 1, map('a', 1)), (2, 9, map('a', 1, 'b', 2)), (2, 9, map('a', 1, 'b', 2))")
    follow(lab, name="w", by="full")
    outcome = follow(lab, "INSERT INTO o VALUES (3, 8, map('b', 2, 'a', 1)), (4, 1, NULL)", name="w")
    assert (outcome.strategy, outcome.rows_out) == ("append", 1)
    lab.sql("INSERT INTO c VALUES (9, 'nine')")
    lab.clock.advance(minutes=10)
    follow(lab, name="w")
    assert names(lab) == [(1, "one"), (2, "nine"), (2, "nine"), (4, "one")]


def test_rows_that_miss_wait_for_their_dimension_until_their_tries_are_used_up(lab):
    declare(lab)
    lab.declare(WAITING.format(key=""))
    # A row without a key of its own waits for nothing; one that the query leaves out is not there in the end either.
    lab.sql(f"INSERT INTO o VALUES {orders((1, 1), (2, 9), (3, 'NULL'), (-4, 9), (9, 9), (9, 9))}")
    refresh_waiting(lab, "full", "NO_RECEIPT")
    assert names(lab) == [(1, "one"), (3, None)]
    lab.sql(f"INSERT INTO o VALUES {orders((5, 8), (6, 2))}")
    lab.clock.advance(minutes=5)
    assert refresh_waiting(lab, "append", "INSERTS_ONLY").rows_out == 1
    lab.sql("INSERT INTO c VALUES (9, 'nine')")

    assert refresh_waiting(lab, "noop", "DIMENSIONS_ONLY").committed is False
    lab.clock.advance(minutes=5)
    assert refresh_waiting(lab, "append", "PARKED_ROWS").rows_out == 3
    assert names(lab) == [(1, "one"), (2, "nine"), (3, None), (6, "two"), (9, "nine"), (9, "nine")]
    lab.clock.advance(minutes=5)
    assert refresh_waiting(lab, "append", "PARKED_ROWS").rows_out == 0
    refresh_waiting(lab, "noop", "NOTHING_NEW")
    lab.clock.advance(minutes=10)
    assert refresh_waiting(lab, "append", "PARKED_ROWS").rows_out == 1
    assert names(lab)[3:5] == [(5, None), (6, "two")]
    lab.clock.advance(minutes=60)
    refresh_waiting(lab, "noop", "NOTHING_NEW")
    lab.sql("DELETE FROM c WHERE id = 9")
    lab.sql("DELETE FROM o WHERE id = 1")
    refresh_waiting(lab, "keys", "AFFECTED_KEYS")
    assert names(lab) == [(2, "nine"), (3, None), (5, None), (6, "two"), (9, "nine"), (9, "nine")]
    # A full refresh begins again, and so does whoever waits.
    assert lab.refresh("w", full=True).error is None
    assert (names(lab), lab.diff("w")) == ([(3, None), (6, "two")], [])
    with pytest.raises(PartitionError):
        raise lab.refresh("w", partitions={"d": "2026-01-01"}).error


@pytest.mark.long
@pytest.mark.parametrize("point", long_but(["table-before-commit"], ["table-before-commit", "table-after-commit"]))
def test_a_stop_while_rows_wait_loses_and_repeats_none(lab, point):
    declare(lab)
    # With a key, and followed by another table, the rows are checked before they are written.
    lab.declare(WAITING.format(key="(PRIMARY KEY (id))"))
    lab.declare(f"CREATE MATERIALIZED TABLE n {HOURLY} AS SELECT name, count(*) AS n FROM w GROUP BY name")
    lab.sql(f"INSERT INTO o VALUES {orders((1, 9), (2, 1))}")
    refresh_waiting(lab, "full", "NO_RECEIPT")
    lab.sql(f"INSERT INTO o VALUES {orders((5, 9))}")
    lab.refresh("w")
    lab.sql(f"INSERT INTO o VALUES {orders((3, 9), (4, 2))}")
    crash(lab, point, "w", lose_control_store=True)
    lab.refresh("w")
    assert names(lab) == [(2, "one"), (4, "two")]
    lab.sql("INSERT INTO c VALUES (9, 'nine')")
    lab.clock.advance(minutes=10)
    crash(lab, point, "w")
    follow(lab, name="w")
    assert names(lab) == [(1, "nine"), (2, "one"), (3, "nine"), (4, "two"), (5, "nine")]
    assert receipt_of(lab.runtime.warehouse.path(TableName.parse("w"))).pending_lookups is not None
    assert lab.refresh("w", full=True).error is None
    assert lab.refresh("n").error is None
    assert lab.diff("w") == lab.diff("n") == []


@pytest.mark.long
def test_rows_that_wait_are_added_when_the_declaration_has_no_retries_any_more(lab):
    declare(lab)
    lab.declare(WAITING.format(key=""))
    lab.sql("INSERT INTO o VALUES (1, DATE'2026-01-01', 1, 1, 'eu'), (2, DATE'2026-01-01', 8, 1, 'eu')")
    lab.refresh("w")
    assert [row["id"] for row in lab.rows("w")] == [1]
    without = WAITING.replace(
        "WITH ('lookup.retry-on-miss.attempts' = '2',\n'lookup.retry-on-miss.delay' = '10 minutes')", ""
    )
    assert without != WAITING
    lab.declare(without.format(key=""))

    assert lab.refresh("w").error is None

    assert [row["id"] for row in lab.rows("w")] == [1, 2]
    lab.sql("INSERT INTO o VALUES (3, DATE'2026-01-02', 8, 1, 'eu')")
    lab.refresh("w")
    assert [row["id"] for row in lab.rows("w")] == [1, 2, 3]
