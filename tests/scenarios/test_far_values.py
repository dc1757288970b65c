"""Dates and times that Spark has and Python has not, and other values that the two take for different things."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.reads.sql import query
from freshline.refresh.partition_states import read_states
from freshline.refresh.time_partitions import partitions_of
from freshline.values.names import TableName
from freshline.values.partition import PartitionState
from freshline.values.spec import Mode, TableSpec
from tests.lanes import long_but
from tests.plain_lab import PlainLab
from tests.scenarios.tables import declare, fill, follow

DAY = "RANGE BETWEEN INTERVAL '1' DAY PRECEDING AND CURRENT ROW"
SESSIONS = "TABLE(SESSION(TABLE s PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTE))"
FIRST, LAST = "TIMESTAMP'0001-01-01 00:00:00'", "TIMESTAMP'9999-12-31 23:59:59.999999'"
FAR = ("DATE'9999-12-31'", "DATE'+10000-01-01'", "DATE'0001-01-01'", "DATE'-0044-03-15'")


@pytest.mark.parametrize("unit", ["day", "month"])
def test_a_row_of_a_far_day_makes_no_other_partition_stale(spark, unit):
    with PlainLab(spark, start=datetime(2026, 1, 5, 12, tzinfo=UTC)) as lab:
        fill(lab, "s", "d DATE, n INT", "(DATE'2026-01-02', 1)")
        lab.declare(
            f"CREATE MATERIALIZED TABLE t PARTITIONED BY (d) WITH ('partition.unit' = '{unit}', 'partition.start' = "
            "'2026-01-01', 'partition.time-zone' = 'Asia/Tokyo') FRESHNESS = INTERVAL '6' HOUR "
            "AS SELECT d, n FROM s"
        )
        assert lab.refresh("t").error is None
        lab.sql(f"INSERT INTO s VALUES {', '.join(f'({day}, 9)' for day in FAR)}, (NULL, 9)")
        spec = lab.runtime.graph.spec(TableName.parse("t"))
        assert isinstance(spec, TableSpec)
        assert lab.runtime.graph.mode(spec.name) is Mode.BATCH

        begun = partitions_of(spec).begun(lab.clock())
        states = read_states(lab.runtime, spec, begun, Cancellation())

        assert set(states.values()) == {PartitionState.DONE}
        lab.sql("INSERT INTO s VALUES (DATE'2026-01-03', 9)")
        states = read_states(lab.runtime, spec, begun, Cancellation())
        assert [key for key, state in states.items() if state is PartitionState.STALE] == (
            ["2026-01-03"] if unit == "day" else ["2026-01-01"]
        )


def test_a_text_with_a_time_of_day_makes_its_day_stale(spark):
    with PlainLab(spark, start=datetime(2026, 1, 5, 12, tzinfo=UTC)) as lab:
        fill(lab, "s", "d STRING, n INT", "('2026-01-02', 1), ('2026-01-03 05:00:00', 1)")
        lab.declare(
            "CREATE MATERIALIZED TABLE t PARTITIONED BY (d) WITH ('partition.unit' = 'day', 'partition.start' = "
            "'2026-01-01') FRESHNESS = INTERVAL '6' HOUR AS SELECT d, n FROM s"
        )
        assert lab.refresh("t").error is None
        lab.sql("UPDATE s SET n = 2 WHERE d = '2026-01-03 05:00:00'")
        spec = lab.runtime.graph.spec(TableName.parse("t"))
        assert isinstance(spec, TableSpec)

        states = read_states(lab.runtime, spec, partitions_of(spec).begun(lab.clock()), Cancellation())

        assert states["2026-01-03"] is PartitionState.STALE


def test_a_partition_of_a_far_day_is_written(lab):
    fill(lab, "s", "d DATE, n INT", "(DATE'2026-01-02', 1)")
    declare(lab, "SELECT d, sum(n) AS n, count(*) AS c FROM s GROUP BY d", "PARTITIONED BY (d)")
    lab.refresh("t")
    for day in FAR:
        follow(lab, f"INSERT INTO s VALUES ({day}, 9), (DATE'2026-01-02', 1)")


def test_a_key_of_a_far_day_that_is_there_twice_is_reported(lab):
    fill(lab, "s", "d DATE, n INT", "(DATE'+10000-01-01', 1), (DATE'+10000-01-01', 2)")
    declare(lab, "SELECT d, n FROM s", "(PRIMARY KEY (d))")

    error = lab.refresh("t").error

    assert error is not None
    assert (error.code, "10000-01-01" in error.message) == ("DUPLICATE_KEY", True)


def test_a_sum_that_is_too_large_stays_unknown_where_spark_does_not_raise(lab):
    with lab.runtime.sessions.take() as session:
        session.conf.set("spark.sql.ansi.enabled", "False")
    fill(lab, "s", "id INT, g INT, x DECIMAL(38,0)", f"(1, 1, 9{'0' * 37}), (2, 1, 9{'0' * 37}), (3, 2, 1)")
    declare(lab, "SELECT g, sum(x) AS x, count(x) AS n FROM s GROUP BY g", "(PRIMARY KEY (g))")
    assert lab.refresh("t").error is None
    for change, large in (
        ("INSERT INTO s VALUES (4, 1, 1), (5, 2, 1)", None),
        ("DELETE FROM s WHERE id = 1", 9 * 10**37 + 1),
    ):
        lab.sql(change)

        outcome = lab.refresh("t")

        assert (outcome.error, outcome.strategy) == (None, "keys")
        assert {row["g"]: row["x"] for row in lab.rows("t")} == {1: large, 2: 2}


def test_a_zero_that_became_negative_is_a_change_for_every_reader(lab):
    fill(lab, "s", "id INT, x DOUBLE", "(1, 0.0), (2, 1.0)")
    declare(lab, "SELECT id, x FROM s", "(PRIMARY KEY (id))")
    lab.refresh("t")
    lab.create_savepoint("calm")
    lab.sql("UPDATE s SET x = -0.0D WHERE id = 1")
    assert lab.refresh("t").error is None

    found = query(lab.runtime, "SELECT CAST(x AS STRING) AS x, _change_type AS c FROM read_net_changes('t', 'calm')")

    assert sorted(found.rows) == ['{"x":"-0.0","c":"insert"}', '{"x":"0.0","c":"delete"}']


def test_net_changes_with_maps_are_an_error_that_says_so(lab):
    fill(lab, "s", "id INT, x MAP<STRING, INT>", "(1, map('a', 1))")
    declare(lab, "SELECT id, x FROM s", "(PRIMARY KEY (id))")
    lab.refresh("t")
    lab.create_savepoint("calm")
    lab.sql("UPDATE s SET x = map('a', 2) WHERE id = 1")
    assert lab.refresh("t").error is None

    with pytest.raises(Exception, match=r"values of x map<string,int> cannot be compared"):
        query(lab.runtime, "SELECT * FROM read_net_changes('t', 'calm')")


def test_names_of_fields_are_no_types(lab):
    fill(lab, "s", "id INT, x STRUCT<variant_id: STRING, geometry: INT>", "(1, struct('a', 1)), (2, struct('b', 2))")
    declare(lab, "SELECT id, x FROM s", "(PRIMARY KEY (id))")
    lab.refresh("t")
    lab.create_savepoint("calm")
    lab.sql("UPDATE s SET x = named_struct('variant_id', 'c', 'geometry', 2) WHERE id = 2")
    assert lab.refresh("t").strategy == "keys"
    lab.sql("UPDATE s SET x = named_struct('variant_id', 'a', 'geometry', 3) WHERE id = 1")
    lab.sql("UPDATE s SET x = named_struct('variant_id', 'a', 'geometry', 1) WHERE id = 1")
    assert lab.refresh("t").error is None

    found = query(lab.runtime, "SELECT x.variant_id AS v, _change_type AS c FROM read_net_changes('t', 'calm')")

    assert sorted(found.rows) == ['{"v":"b","c":"delete"}', '{"v":"c","c":"insert"}']


@pytest.mark.parametrize("options", ["", "(PRIMARY KEY (id))"])
def test_the_sign_of_a_zero_is_stored_as_the_query_has_it(lab, options):
    lab.source("z", "id INT, x DOUBLE, s STRUCT<x: FLOAT>")
    lab.sql("INSERT INTO z SELECT id, 0.0, named_struct('x', CAST(0 AS FLOAT)) FROM range(3)")
    declare(lab, "SELECT id, x, s FROM z WHERE id >= 0", options)
    assert lab.refresh("t").strategy == "full"
    lab.sql("UPDATE z SET x = -0.0D WHERE id = 1")
    lab.sql("UPDATE z SET s = named_struct('x', CAST('-0.0' AS FLOAT)) WHERE id = 2")
    outcome = lab.refresh("t", strategy="keys")
    assert outcome.error is None, outcome.error
    stored = {row["id"]: (str(row["x"]), str(row["s"]["x"])) for row in lab.rows("t")}
    assert stored == {0: ("0.0", "0.0"), 1: ("-0.0", "0.0"), 2: ("0.0", "-0.0")}


@pytest.mark.parametrize(
    "query",
    long_but(
        ["SELECT id, ts, v FROM s", "SELECT ts, collect_list(v) AS n FROM s GROUP BY ts"],
        [
            "SELECT id, ts, v FROM s",
            "SELECT ts, collect_list(v) AS n FROM s GROUP BY ts",
            "SELECT k, min(ts) AS a, max(ts) AS b FROM s GROUP BY k",
            "SELECT s.id, s.ts, u.w FROM s LEFT JOIN u ON s.ts = u.ts",
            f"SELECT id, sum(v) OVER (PARTITION BY k ORDER BY ts {DAY}) AS n, ts FROM s",
            f"SELECT k, window_start, count(*) AS n FROM {SESSIONS} GROUP BY k, window_start",
            "SELECT struct(ts) AS q, count(*) AS n FROM s GROUP BY struct(ts)",
        ],
    ),
)
def test_changes_of_rows_with_the_first_and_the_last_time_are_followed(lab, query):
    fill(lab, "s", "id INT, k INT, ts TIMESTAMP, v INT", "(1, 1, TIMESTAMP'2026-01-02 03:04:05', 1), (2, 1, NULL, 2)")
    fill(lab, "u", "ts TIMESTAMP, w INT", f"({FIRST}, 1)")
    declare(lab, query)
    assert lab.refresh("t").error is None
    for change in (
        f"INSERT INTO s VALUES (4, 1, {FIRST}, 4), (5, 2, {LAST}, 9), (6, 1, TIMESTAMP'0001-01-01 12:00:00', 2)",
        "UPDATE s SET v = v + 1 WHERE id IN (4, 5)",
        f"UPDATE s SET ts = {FIRST} WHERE id = 1",
        "DELETE FROM s WHERE id IN (4, 5)",
    ):
        lab.sql(change)
        outcome = lab.refresh("t")
        assert outcome.error is None, outcome.error
        assert lab.verify("t").equal, change
