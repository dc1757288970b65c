"""Partitions: the ones that changed rows belong to are computed again, and no other."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from freshline.errors import DuplicateKeyError
from tests.delta_log import commit_of, version_of
from tests.scenarios.tables import HOURLY, declare, fill, follow


def partitions_written(lab, name, column):
    """The partition values of the data files that the newest commit added or removed."""
    path = lab.path(name)
    actions = commit_of(path, version_of(path)).actions
    return {
        action[kind]["partitionValues"].get(column)
        for action in actions
        for kind in ("add", "remove")
        if kind in action
    }


def test_only_the_touched_partitions_are_computed_again(lab):
    lab.source("s", "id INT, ts TIMESTAMP, amount DECIMAL(10,2)")
    lab.sql(
        "INSERT INTO s VALUES (1, TIMESTAMP'2026-01-01 10:00:00', 1.10), (2, TIMESTAMP'2026-01-02 10:00:00', 2.20), "
        "(3, TIMESTAMP'2026-01-03 10:00:00', 3.30), (4, NULL, 4.40)"
    )
    lab.declare(
        f"""CREATE MATERIALIZED TABLE t (PRIMARY KEY (d)) PARTITIONED BY (d) {HOURLY} AS
        WITH days AS (SELECT CAST(ts AS DATE) AS day, amount FROM s)
        SELECT day AS d, count(*) AS n, sum(amount) AS s, avg(CAST(amount AS DOUBLE)) AS a FROM days GROUP BY day"""
    )
    follow(lab, by="full")
    follow(lab, "UPDATE s SET amount = 20 WHERE id = 2", by="partition")
    assert partitions_written(lab, "t", "d") == {"2026-01-02"}
    follow(lab, "DELETE FROM s WHERE id = 3", by="partition")
    assert partitions_written(lab, "t", "d") == {"2026-01-03"}
    follow(lab, "UPDATE s SET ts = TIMESTAMP'2026-01-05 00:00:00' WHERE id IN (1, 4)", by="partition")
    assert partitions_written(lab, "t", "d") == {"2026-01-01", "2026-01-05", None}
    follow(lab, "INSERT INTO s VALUES (5, NULL, 5)", by="partition")

    assert lab.rows("t") == [
        {"d": None, "n": 1, "s": Decimal("5.00"), "a": 5.0},
        {"d": date(2026, 1, 2), "n": 1, "s": Decimal("20.00"), "a": 20.0},
        {"d": date(2026, 1, 5), "n": 2, "s": Decimal("5.50"), "a": 2.75},
    ]


@pytest.mark.long
def test_windows_inside_a_partition_and_joins_to_what_did_not_change_are_kept_up(lab):
    fill(lab, "s", "id INT, ds STRING, n INT", "(1, 'a', 5), (2, 'a', 7), (3, 'b', 1)")
    fill(lab, "names", "ds STRING, name STRING", "('a', 'A'), ('b', 'B')")
    lab.declare(
        f"""CREATE MATERIALIZED TABLE t PARTITIONED BY (ds) {HOURLY} AS
        SELECT s.ds, s.id, names.name, row_number() OVER (PARTITION BY s.ds ORDER BY s.n DESC, s.id) AS place
        FROM s LEFT JOIN names ON s.ds = names.ds"""
    )
    follow(lab, by="full")
    follow(lab, "UPDATE s SET n = 9 WHERE id = 1", by="partition")
    assert partitions_written(lab, "t", "ds") == {"a"}
    follow(lab, "UPDATE names SET name = 'BB' WHERE ds = 'b'", by="keys")
    assert partitions_written(lab, "t", "ds") == {"b"}


def test_a_window_over_every_partition_is_computed_again(lab):
    fill(lab, "s", "id INT, ds STRING", "(1, 'a')")
    declare(lab, "SELECT ds, id, row_number() OVER (ORDER BY id) AS n FROM s", "PARTITIONED BY (ds)")
    follow(lab, by="full")
    assert follow(lab, "INSERT INTO s VALUES (2, 'b')", by="full").reason.startswith("WINDOW_WITHOUT_PARTITION")


def test_a_partition_column_that_an_explode_makes_follows_from_no_input(lab):
    fill(lab, "s", "id INT, tags ARRAY<STRING>", "(1, array('a', 'b'))")
    declare(
        lab, "SELECT tag, count(*) AS n FROM s LATERAL VIEW explode(tags) x AS tag GROUP BY tag", "PARTITIONED BY (tag)"
    )
    follow(lab, by="full")
    follow(lab, "INSERT INTO s VALUES (2, array('b'))", by="keys")
    assert lab.rows("t") == [{"tag": "a", "n": 1}, {"tag": "b", "n": 2}]


@pytest.mark.long
def test_values_with_signs_of_sql_are_values(lab):
    values = [
        "it's",
        'quote "',
        "semi;colon",
        "../up",
        "back\\slash",
        "per%cent",
        "`ds`",
        "`_freshline_p0`",
        "a=b/c=d",
        "ünï✓",
        " ",
        "",
    ]
    lab.source("s", "id INT, ds STRING")
    declare(lab, "SELECT concat(ds, '') AS k, count(*) AS n FROM s GROUP BY concat(ds, '')", "PARTITIONED BY (k)")
    follow(lab, by="full")
    session = lab.runtime.sessions.root
    frame = session.createDataFrame([(number, value) for number, value in enumerate(values)], "id INT, ds STRING")
    frame.write.format("delta").mode("append").save(str(lab.path("s")))
    lab.refresh("t")
    follow(lab, "DELETE FROM s WHERE id >= 3", by="partition")

    assert {row["k"] for row in lab.rows("t")} == set(values[:3])
    beside = {path.name for path in lab.path("t").parent.iterdir()} - {"t"}
    assert all(name.startswith("_freshline_") for name in beside), "what no value named"


@pytest.mark.long
def test_an_empty_text_is_null_in_a_partition_column(lab):
    fill(lab, "s", "ds STRING, n INT", "('', 1), (NULL, 2), ('a', 3)")
    declare(lab, "SELECT ds, n FROM s", "PARTITIONED BY (ds)")
    declare(lab, "SELECT ds, sum(n) AS n FROM s GROUP BY ds", "PARTITIONED BY (ds)", name="g")
    follow(lab, by="full")
    follow(lab, name="g", by="full")
    follow(lab, "UPDATE s SET n = 10 WHERE ds = ''", by="partition")
    follow(lab, name="g", by="partition")

    assert lab.rows("t") == [{"ds": None, "n": 10}, {"ds": None, "n": 2}, {"ds": "a", "n": 3}]


@pytest.mark.long
def test_an_empty_text_in_a_partition_column_is_the_key_of_the_rows_stored_as_null(lab):
    """Compared as the query gives it, the key '' would match none of the stored rows."""
    lab.source("s", "id INT, ds STRING, n DOUBLE", primary_key=["id"])
    lab.sql("INSERT INTO s VALUES (1, '', 1), (2, NULL, 2), (3, 'a', 3), (4, '', 4)")
    lab.declare(
        f"CREATE MATERIALIZED TABLE g PARTITIONED BY (ds) {HOURLY} AS "
        "SELECT ds, max(n) AS n, count(DISTINCT id) AS c FROM s WHERE ds IS NOT NULL GROUP BY ds"
    )
    lab.refresh("g")
    for statement, expected in (
        ("UPDATE s SET n = 10 WHERE id = 1", {None: 10, "a": 3}),
        ("UPDATE s SET ds = '' WHERE id = 3", {None: 10}),
        ("DELETE FROM s WHERE ds = ''", {}),
    ):
        follow(lab, statement, name="g", strategy="keys")
        assert {row["ds"]: row["n"] for row in lab.rows("g")} == expected, statement


@pytest.fixture
def far_from_utc(monkeypatch):
    """A machine whose own time zone is not UTC."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.long
@pytest.mark.usefixtures("far_from_utc")
def test_partitions_of_every_type_are_found_again_wherever_the_machine_stands(lab):
    columns = "i INT, d DATE, ts TIMESTAMP, n TIMESTAMP_NTZ, b BOOLEAN, m DECIMAL(10,2), f DOUBLE, r FLOAT, l BIGINT"
    lab.source("s", f"{columns}, v INT")
    names = [column.split()[0] for column in columns.split(", ")]
    declare(lab, "SELECT * FROM s", f"PARTITIONED BY ({', '.join(names)})", name="every")
    lab.sql(
        "INSERT INTO s VALUES (1, DATE'2026-03-08', TIMESTAMP'2026-03-08 02:30:00.123456Z', "
        "TIMESTAMP_NTZ'2026-03-08 02:30:00.5', "
        "true, 1.50, 0.1, CAST(0.1 AS FLOAT), 9007199254740993, 1), "
        "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 2)"
    )
    follow(lab, name="every", by="full")
    follow(lab, "UPDATE s SET v = v * 10", name="every", by="partition")

    rows = lab.rows("every")
    assert [row["v"] for row in rows] == [10, 20]
    assert rows[0]["ts"] == datetime(2026, 3, 8, 2, 30, 0, 123456, UTC)


@pytest.mark.long
def test_a_primary_key_is_unique_across_partitions(lab):
    fill(lab, "s", "id INT, ds STRING", "(1, 'a'), (2, 'a')")
    declare(lab, "SELECT id, ds FROM s", "(PRIMARY KEY (id)) PARTITIONED BY (ds)")
    lab.refresh("t")
    follow(lab, "DELETE FROM s WHERE id = 2", "INSERT INTO s VALUES (3, 'b')", by="partition")
    lab.sql("DELETE FROM s WHERE id = 3")
    lab.sql("INSERT INTO s VALUES (1, 'b')")

    failed = lab.refresh("t")

    assert isinstance(failed.error, DuplicateKeyError)
    assert failed.error.samples == ({"id": 1},)
    follow(lab, "DELETE FROM s WHERE ds = 'a'", by="partition")
    assert lab.rows("t") == [{"id": 1, "ds": "b"}]


@pytest.mark.long
def test_updates_without_a_change_feed_are_computed_again(lab):
    fill(lab, "s", "id INT, ds STRING", "(1, 'a')", change_feed=False)
    declare(lab, "SELECT ds, count(*) AS n FROM s GROUP BY ds", "PARTITIONED BY (ds)")
    follow(lab, by="full")
    assert follow(lab, "DELETE FROM s", by="full").reason.startswith("CDF_DISABLED(s)")
    lab.sql("ALTER TABLE s SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    assert follow(lab, "INSERT INTO s VALUES (2, 'b')", by="full").reason.startswith("CDF_DISABLED(s)")
    follow(lab, "INSERT INTO s VALUES (3, 'b')", by="partition")
