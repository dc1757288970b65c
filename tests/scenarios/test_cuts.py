"""Tables that are joined again below follow their sources together, and never stand still.

After all tables were refreshed every table equals its query over the newest rows of its sources, whatever did not
change on the way.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import count

import pytest

from freshline.cli.doctor import require_moving
from freshline.commit.snapshot import newest_snapshot
from freshline.errors import RefreshError
from freshline.plan.request import LIVE, RefreshRequest
from freshline.testing import Crash
from tests.crashes import refresh_by
from tests.scenarios.tables import fill

FIVE = "FRESHNESS = INTERVAL '5' MINUTE"


def declare(lab, name, query, *, key=("id",), freshness=FIVE, options=""):
    primary = f"(PRIMARY KEY ({', '.join(key)})) " if key else ""
    lab.declare(f"CREATE MATERIALIZED TABLE {name} {primary}{options} {freshness} AS {query}")


def numbers(lab, name):
    return [tuple(row.values()) for row in lab.rows(name)]


@pytest.fixture
def lab(quick_lab):
    """A Lab without Spark. The claims of log tables and time partitions need Spark (`spark_lab`)."""
    return quick_lab


@pytest.fixture
def two_of_one(lab):
    """Two filters of one source, of which the first ends behind row 1, and a table over both."""
    fill(lab, "t0", "id INT, amount INT", "(1, 100), (2, 200)", primary_key=["id"])
    for name, wanted in (("a", 1), ("b", 2)):
        declare(lab, name, f"SELECT id, amount FROM t0 WHERE id = {wanted}")
    declare(lab, "ab", "SELECT id, amount FROM a UNION ALL SELECT id, amount FROM b", key=())
    lab.refresh_all()
    lab.clock.advance(minutes=5)
    lab.sql("UPDATE t0 SET amount = 555 WHERE id = 2")
    lab.clock.advance(minutes=5)
    return lab


def test_an_input_that_did_not_change_does_not_delay_what_reads_two_tables_of_one_source(two_of_one):
    lab = two_of_one

    outcome = lab.refresh("ab")

    assert (outcome.error, numbers(lab, "ab")) == (None, [(1, 100), (2, 555)])
    assert lab.receipt("ab").cut == lab.receipt("a").cut == lab.receipt("b").cut
    # The check of the source is written once.
    seq = lab.receipt("a").seq
    lab.refresh("ab")
    assert lab.receipt("a").seq == seq


def test_a_check_that_found_an_input_unchanged_outlives_the_control_store(two_of_one):
    lab = two_of_one
    lab.refresh("a")
    lab.refresh("b")
    lab.restart(lose_control_store=True)

    lab.refresh("ab", upstreams=False)

    assert numbers(lab, "ab") == [(1, 100), (2, 555)]


def test_a_full_refresh_of_what_reads_two_tables_of_one_source_has_the_newest_rows(two_of_one):
    lab = two_of_one

    lab.refresh("ab", full=True)

    assert numbers(lab, "ab") == [(1, 100), (2, 555)]


def test_a_table_beside_its_source_follows_deletes_that_the_table_does_not_see(lab):
    fill(lab, "s", "id INT, v INT", "(1, 10), (2, 20)", primary_key=["id"])
    declare(lab, "a", "SELECT id, v FROM s WHERE v > 100")
    declare(lab, "d", "SELECT s.id, s.v, a.v AS big FROM s LEFT JOIN a ON s.id = a.id")
    lab.refresh_all()
    lab.clock.advance(minutes=5)
    lab.sql("DELETE FROM s WHERE id = 1")
    lab.clock.advance(minutes=5)

    lab.refresh("d")

    assert numbers(lab, "d") == [(2, 20, None)]
    assert lab.status()[-1].lag_seconds == 0


def test_a_table_that_waits_for_another_says_how_old_its_rows_are(lab):
    fill(lab, "s", "id INT, v INT", "(1, 10)", primary_key=["id"])
    declare(lab, "a", "SELECT id, v FROM s")
    declare(lab, "d", "SELECT s.id, s.v, a.v AS also FROM s LEFT JOIN a ON s.id = a.id")
    lab.refresh_all()
    lab.clock.advance(minutes=20)
    lab.sql("INSERT INTO s VALUES (2, 20)")

    # `a` is not refreshed, as if it were suspended: `d` has what both had.
    lab.refresh("s")
    lab.refresh("d", upstreams=False)

    assert numbers(lab, "d") == [(1, 10, 10)]
    lag = {str(status.table): status.lag_seconds for status in lab.status()}
    assert lag["d"] == lag["a"] == 1200


def test_joins_of_aggregates_over_landing_files_follow_files_that_one_of_them_leaves_out(spark_lab):
    spark_lab.files("ev", "id INT, k STRING, v INT")
    declare(spark_lab, "high", "SELECT k, sum(v) AS v FROM ev WHERE v > 5 GROUP BY k", key=("k",))
    declare(spark_lab, "low", "SELECT k, count(*) AS n FROM ev WHERE v <= 5 GROUP BY k", key=("k",))
    declare(spark_lab, "one", "SELECT count(*) AS n, max(v) AS m FROM ev WHERE v > 100", key=())
    declare(spark_lab, "both", "SELECT h.k, h.v, l.n FROM high h JOIN low l ON h.k = l.k", key=("k",))
    declare(spark_lab, "all_of_it", "SELECT b.k, b.v, b.n, o.n AS large FROM both b CROSS JOIN one o", key=("k",))
    spark_lab.land("ev", "1.json", [{"id": 1, "k": "x", "v": 9}, {"id": 2, "k": "x", "v": 1}])
    spark_lab.refresh_all()
    for number in range(3):
        spark_lab.clock.advance(minutes=10)
        spark_lab.land("ev", f"more{number}.json", [{"id": 3, "k": "x", "v": 2}])
        spark_lab.refresh_all()

    assert numbers(spark_lab, "all_of_it") == [("x", 9, 4, 0)]


def test_a_source_that_is_read_directly_is_read_where_two_tables_of_unequal_age_agree(lab):
    lab.source("s", "id INT, v INT", primary_key=["id"])
    declare(lab, "a", "SELECT id, v FROM s")
    declare(lab, "b", "SELECT id, v FROM s WHERE v > 0")
    declare(lab, "d", "SELECT s.id, a.v AS a, b.v AS b FROM s LEFT JOIN a ON s.id = a.id LEFT JOIN b ON b.id = s.id")
    lab.refresh_all()
    for name in ("both", "b", "both", "a", "b", "nothing", "a"):
        lab.clock.advance(minutes=1)
        lab.sql(f"INSERT INTO s VALUES ({lab.clock().minute}, 1)")
        for each in {"both": ("a", "b"), "nothing": ()}.get(name, (name,)):
            lab.refresh(each)

    lab.refresh("d", upstreams=False)

    # `a` has seen 1, 3, 4 and 7 rows, and `b` 1, 2, 3 and 5.
    assert [(a, b) for _, a, b in numbers(lab, "d")] == [(1, 1)] * 3


def test_an_input_that_does_not_drive_delays_nobody(lab):
    fill(lab, "s", "id INT, v INT", "(1, 10)", primary_key=["id"])
    declare(lab, "a", "SELECT id, v FROM s")
    declare(lab, "b", "SELECT id, v * 2 AS v FROM s", freshness="FRESHNESS = INTERVAL '1' HOUR")
    options = "WITH ('non-driving' = 'b')"
    declare(lab, "c", "SELECT a.id, a.v, b.v AS twice FROM a LEFT JOIN b ON a.id = b.id", options=options)
    lab.refresh_all()
    lab.clock.advance(minutes=6)
    lab.sql("INSERT INTO s VALUES (2, 20)")
    lab.clock.advance(minutes=6)

    lab.tick()

    assert numbers(lab, "c") == [(1, 10, 20), (2, 20, None)]
    lab.clock.advance(minutes=60)
    lab.tick()
    assert numbers(lab, "c") == [(1, 10, 20), (2, 20, 40)]


def test_an_input_that_does_not_drive_is_not_read_ahead_of_those_that_do(lab):
    lab.source("s", "id INT, v INT", primary_key=["id"])
    declare(lab, "a", "SELECT id, v FROM s")
    declare(lab, "b", "SELECT id, v * 2 AS v FROM s")
    options = "WITH ('non-driving' = 'b')"
    declare(lab, "c", "SELECT b.id, a.v, b.v AS twice FROM b LEFT JOIN a ON a.id = b.id", options=options)
    lab.refresh_all()
    lab.sql("INSERT INTO s VALUES (1, 10)")
    lab.refresh("b")

    lab.refresh("c", upstreams=False)

    assert numbers(lab, "c") == []
    lab.refresh("c")
    assert numbers(lab, "c") == [(1, 10, 20)]


def test_an_input_that_was_made_and_never_refreshed_is_waited_for(lab):
    fill(lab, "s", "id INT", "(1)", primary_key=["id"])
    declare(lab, "a", "SELECT id FROM s")
    declare(lab, "b", "SELECT id FROM a")
    with lab.crash_at("table-created"), pytest.raises(Crash):
        lab.refresh("a")

    assert lab.refresh("b", upstreams=False).error.code == "NO_VERSION"
    lab.restart()
    lab.refresh("b")
    assert numbers(lab, "b") == [(1,)]


def test_a_log_whose_source_had_nothing_yet_is_an_empty_input(spark_lab):
    spark_lab.files("ev", "id INT")
    declare(spark_lab, "a", "SELECT id FROM ev", key=())
    spark_lab.refresh("a")

    assert numbers(spark_lab, "a") == []
    # Its check is lost with the control store, and the table goes on from what it read.
    spark_lab.restart(lose_control_store=True)
    assert spark_lab.refresh("a", upstreams=False).error is None


def lags(lab):
    return {str(status.table): status.lag_seconds for status in lab.status()}


def test_a_row_after_a_quiet_time_makes_no_table_older_than_the_check_before_it(spark_lab):
    spark_lab.files("ev", "id INT")
    declare(spark_lab, "a", "SELECT id FROM ev", key=())
    declare(spark_lab, "z1", "SELECT id FROM a", key=(), freshness="FRESHNESS = INTERVAL '10' MINUTE")
    declare(spark_lab, "z2", "SELECT id FROM z1", key=(), freshness="FRESHNESS = INTERVAL '10' MINUTE")
    spark_lab.land("ev", "1.json", [{"id": 1}])
    spark_lab.refresh_all()
    for _ in range(36):
        spark_lab.clock.advance(minutes=5)
        spark_lab.tick()
    spark_lab.land("ev", "2.json", [{"id": 2}])

    spark_lab.refresh("ev")
    assert max(lags(spark_lab).values()) <= 300
    spark_lab.refresh("a")
    spark_lab.clock.advance(seconds=1)
    assert max(lags(spark_lab).values()) <= 301
    spark_lab.refresh("z1")
    assert spark_lab.receipt("z1").data_timestamp_before is not None
    assert max(lags(spark_lab).values()) <= 301


def test_a_suspended_table_is_as_old_as_the_first_row_that_it_lacks(lab):
    lab.source("s", "id INT", primary_key=["id"])
    declare(lab, "a", "SELECT id FROM s")
    declare(lab, "z", "SELECT id FROM a")
    lab.refresh_all()
    for number in range(1, 11):
        lab.clock.advance(minutes=5)
        if number > 5:
            lab.sql(f"INSERT INTO s VALUES ({number})")
        lab.refresh("a")

    # It had everything until the fifth check, and five rows came since.
    assert lags(lab) == {"s": 0, "a": 0, "z": 1500}


def test_data_timestamps_only_move_forward_where_a_partition_is_refreshed_by_itself(lab):
    fill(lab, "s", "id INT, g STRING", "(1, 'a'), (2, 'b')", primary_key=["id"])
    declare(lab, "p", "SELECT id, g FROM s", options="PARTITIONED BY (g)")
    declare(lab, "z", "SELECT id, g FROM p")
    lab.refresh_all()
    lab.clock.advance(minutes=36)
    lab.refresh_all()
    lab.clock.advance(minutes=9)
    lab.sql("INSERT INTO s VALUES (3, 'a')")
    assert lags(lab)["z"] == 540

    lab.refresh("p", partitions={"g": "a"}, upstreams=False)

    assert (lags(lab)["p"], lags(lab)["z"]) == (540, 540)
    lab.refresh("z", upstreams=False)
    assert lags(lab)["z"] == 540


def test_a_partition_that_was_refreshed_by_itself_is_no_version_of_its_source(lab):
    fill(lab, "s", "id INT, g STRING", "(1, 'a'), (2, 'b')", primary_key=["id"])
    declare(lab, "p", "SELECT id, g FROM s", options="PARTITIONED BY (g)")
    declare(lab, "z", "SELECT x.id AS x, y.id AS y FROM p x FULL JOIN s y ON x.id = y.id", key=())
    lab.refresh_all()
    lab.sql("INSERT INTO s VALUES (3, 'a')")
    lab.sql("INSERT INTO s VALUES (4, 'b')")
    lab.refresh("p", partitions={"g": "a"})
    receipt = lab.receipt("p")
    assert (receipt.cut["s"]["version"], receipt.cut_ahead["s"]["version"]) == (1, 3)

    lab.refresh("z", upstreams=False)

    assert numbers(lab, "z") == [(1, 1), (2, 2)]
    snapshot = newest_snapshot(lab.runtime.graph, lab.runtime.warehouse)
    assert snapshot.cut == {"s": 1}
    lab.refresh("z")
    assert numbers(lab, "z") == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert lab.receipt("p").cut_ahead == lab.receipt("z").cut_ahead == {}


def test_a_table_over_a_partition_that_was_refreshed_by_itself_is_no_version_either(lab):
    fill(lab, "s", "id INT, g STRING", "(1, 'a'), (2, 'b')", primary_key=["id"])
    declare(lab, "p", "SELECT id, g FROM s", options="PARTITIONED BY (g)")
    declare(lab, "q", "SELECT id, g FROM p")
    declare(lab, "z", "SELECT x.id AS x, y.id AS y FROM q x FULL JOIN s y ON x.id = y.id", key=())
    lab.refresh_all()
    lab.sql("INSERT INTO s VALUES (3, 'a'), (4, 'b')")
    lab.refresh("p", partitions={"g": "a"})
    lab.refresh("q", upstreams=False)
    assert [row[0] for row in numbers(lab, "q")] == [1, 2, 3]

    lab.refresh("z", upstreams=False)

    assert numbers(lab, "z") == [(1, 1), (2, 2)]
    lab.refresh("z")
    assert numbers(lab, "z") == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_tables_of_a_source_that_never_rests_are_brought_together_for_what_waits_for_both(lab):
    fill(lab, "s", "id INT, v INT", "(0, 0)", primary_key=["id"])
    declare(lab, "a", "SELECT id, v FROM s")
    declare(lab, "b", "SELECT id, v + 1 AS v FROM s WHERE id % 2 = 0")
    declare(lab, "ab", "SELECT a.id, b.v FROM a LEFT JOIN b ON a.id = b.id")
    lab.refresh_all()
    runtime, lag = lab.runtime, []
    ids = count(1)
    for _ in range(5):
        # Never are both refreshed while the source stands.
        for name in ("a", "b", "ab"):
            lab.clock.advance(seconds=30)
            lab.sql(f"INSERT INTO s VALUES ({next(ids)}, 1)")
            request = RefreshRequest(cause=LIVE)
            outcome = refresh_by(runtime, name, request)
            assert outcome.error is None
            assert lab.receipt(name).cut_ahead == {}
        lag.append(lags(lab)["ab"])

    # Without it the table stands where it was when the source rested last.
    assert max(lag) <= 300
    assert lab.diff("ab") == []


def test_a_refresh_that_a_person_asks_for_has_the_newest_rows_whatever_waits(lab):
    lab.source("s", "id INT", primary_key=["id"])
    declare(lab, "a", "SELECT id FROM s")
    declare(lab, "b", "SELECT id FROM s WHERE id > 0")
    declare(lab, "ab", "SELECT a.id FROM a JOIN b ON a.id = b.id")
    lab.refresh_all()
    lab.clock.advance(minutes=10)
    lab.sql("INSERT INTO s VALUES (1)")
    lab.refresh("b")
    lab.sql("INSERT INTO s VALUES (2)")

    lab.refresh("a")

    assert numbers(lab, "a") == [(1,), (2,)]


def test_an_input_that_does_not_drive_follows_a_driving_one_in_which_nothing_changes(lab):
    lab.source("s", "id INT, g STRING, v INT", primary_key=["id"])
    declare(lab, "a", "SELECT g, max(v) AS v FROM s GROUP BY g HAVING count(*) > 1", key=())
    union = "SELECT g, v FROM a UNION ALL SELECT g, v FROM s"
    declare(lab, "z", union, key=(), options="WITH ('non-driving' = 's')")
    lab.sql("INSERT INTO s VALUES (9, NULL, 3)")
    lab.refresh_all()
    lab.sql("UPDATE s SET v = -5 WHERE id = 9")

    lab.refresh_all()

    assert numbers(lab, "z") == [(None, -5)]
    assert lab.receipt("z").cut == lab.receipt("a").cut


def test_a_day_that_was_refreshed_by_itself_is_no_version_of_its_source(spark_lab):
    start = spark_lab.clock().date()
    days = [(start - timedelta(days=number)).isoformat() for number in (3, 2, 1)]
    fill(spark_lab, "s", "id INT, d DATE", f"(1, DATE'{days[0]}'), (2, DATE'{days[1]}')", primary_key=["id"])
    by_day = f"PARTITIONED BY (d) WITH ('partition.unit' = 'day', 'partition.start' = '{days[0]}')"
    daily = "FRESHNESS = INTERVAL '1' DAY"
    declare(spark_lab, "p", "SELECT id, d FROM s", options=by_day, freshness=daily, key=())
    declare(
        spark_lab, "z", "SELECT x.id AS x, y.id AS y FROM p x FULL JOIN s y ON x.id = y.id", key=(), freshness=daily
    )
    spark_lab.refresh_all()
    spark_lab.sql(f"INSERT INTO s VALUES (3, DATE'{days[0]}')")
    spark_lab.sql(f"INSERT INTO s VALUES (4, DATE'{days[1]}')")
    spark_lab.refresh("p", partitions={"d": days[0]})
    assert spark_lab.receipt("p").cut_ahead["s"]["version"] == 3

    spark_lab.refresh("z", upstreams=False)

    assert numbers(spark_lab, "z") == [(1, 1), (2, 2)]
    spark_lab.refresh("z")
    assert numbers(spark_lab, "z") == [(1, 1), (2, 2), (3, 3), (4, 4)]
    assert spark_lab.receipt("p").cut_ahead == {}


def test_a_version_that_a_restore_brought_back_is_one_that_others_agree_with(lab):
    fill(lab, "s", "id INT", "(1)", primary_key=["id"])
    declare(lab, "a", "SELECT id FROM s WHERE id < 10")
    declare(lab, "b", "SELECT id FROM s")
    declare(lab, "ab", "SELECT b.id, a.id AS a FROM b LEFT JOIN a ON a.id = b.id")
    lab.refresh_all()
    lab.create_savepoint("before")
    lab.sql("INSERT INTO s VALUES (2)")
    lab.refresh_all()
    lab.restore_savepoint("before")
    lab.refresh("b")

    lab.refresh("ab", upstreams=False)

    assert (numbers(lab, "ab"), lab.receipt("ab").cut_ahead) == ([(1, 1)], {})
    lab.refresh_all()
    assert numbers(lab, "ab") == [(1, 1), (2, 2)]


def test_a_late_table_whose_inputs_saw_different_parts_says_which(lab):
    fill(lab, "s", "id INT", "(0)", primary_key=["id"])
    declare(lab, "a", "SELECT id FROM s")
    declare(lab, "b", "SELECT id FROM s WHERE id >= 0")
    declare(lab, "ab", "SELECT a.id FROM a JOIN b ON a.id = b.id")
    lab.refresh_all()
    lab.clock.advance(minutes=9)
    for number, name in ((1, "a"), (2, "b")):
        lab.sql(f"INSERT INTO s VALUES ({number})")
        lab.refresh(name)

    lab.refresh("ab", upstreams=False)

    still = {str(status.table): status.stands_still for status in lab.status()}
    assert still == {
        "s": "",
        "a": "",
        "b": "",
        "ab": "its inputs contain different parts of one source, and no newer versions agree: "
        "a has seen version 2 of s, and b version 3",
    }
    with pytest.raises(RefreshError, match="ab stands still: its inputs contain different parts of one source"):
        require_moving(lab.status())
    lab.refresh("ab")
    assert require_moving(lab.status()) == "4 tables and sources, none stands still"
    assert lab.status()[-1].stands_still == ""
