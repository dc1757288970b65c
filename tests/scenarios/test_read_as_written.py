"""Queries whose tree says less than their text: names in WITH, clauses beside a source, expressions taken out of it."""

from __future__ import annotations

import pytest

from freshline.errors import DuplicateKeyError
from tests.lanes import long_but
from tests.scenarios.tables import HOURLY, declare, fill, follow


def test_a_partition_beside_the_one_that_changed_is_not_left_behind(lab):
    lab.source("s", "ds DATE, k STRING, v INT")
    lab.sql("INSERT INTO s VALUES (DATE'2026-11-01', 'a', 1), (DATE'2026-11-02', 'a', 2), (DATE'2026-11-03', 'a', 3)")
    lab.declare(
        f"""CREATE MATERIALIZED TABLE t PARTITIONED BY (ds) {HOURLY} AS
        WITH d AS (SELECT ds, k, sum(v) AS v FROM s GROUP BY ds, k)
        SELECT x.ds, x.k, x.v, y.v AS yesterday FROM d x LEFT JOIN d y ON y.k = x.k AND y.ds = date_sub(x.ds, 1)"""
    )
    follow(lab)
    follow(lab, "INSERT INTO s VALUES (DATE'2026-11-02', 'a', 5)")
    assert follow(lab, "DELETE FROM s WHERE ds = DATE'2026-11-01'").strategy != "partition"


@pytest.mark.long
def test_a_name_of_with_stands_for_the_table_in_its_own_body(lab):
    fill(lab, "s", "id INT, k INT", "(1, 1), (2, 2)")
    fill(lab, "r", "k INT, mail STRING", "(1, 'a@x'), (2, 'b@x')")
    lab.declare(
        f"""CREATE MATERIALIZED TABLE t {HOURLY} AS
        WITH r AS (SELECT * FROM r), s AS (SELECT * FROM s) SELECT s.id, r.mail FROM s JOIN r ON s.k = r.k"""
    )
    lab.declare(
        f"""CREATE MATERIALIZED TABLE u {HOURLY} AS
        WITH a AS (SELECT k FROM s), s AS (SELECT k FROM r) SELECT a.k FROM a"""
    )
    follow(lab)
    follow(lab, name="u")
    assert follow(lab, "INSERT INTO s VALUES (3, 1)").strategy == "append"
    assert (follow(lab, name="u").strategy, len(lab.rows("u"))) == ("append", 3)
    follow(lab, "UPDATE r SET mail = upper(mail)")
    follow(lab, name="u")


@pytest.mark.parametrize(
    "source",
    long_but(
        ["s PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y))"],
        [
            "(SELECT p, k, v FROM s) PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y))",
            "s PIVOT (sum(v) FOR k IN ('x' AS x, 'y' AS y))",
        ],
    ),
)
def test_rows_that_are_pivoted_are_not_appended(lab, source):
    fill(lab, "s", "p STRING, k STRING, v INT", "('a', 'x', 1), ('b', 'y', 2)")
    declare(lab, f"SELECT p, x, y FROM {source}")
    follow(lab)
    follow(lab, "INSERT INTO s VALUES ('a', 'x', 10), ('a', 'y', 1)")


@pytest.mark.long
def test_a_column_that_unpivot_makes_is_no_column_of_its_input(lab):
    fill(lab, "s", "id INT, cpu INT, mem INT", "(1, 10, 20)")
    declare(lab, "SELECT id, metric, val FROM s UNPIVOT (val FOR metric IN (cpu, mem))", "PARTITIONED BY (metric)")
    follow(lab)
    follow(lab, "INSERT INTO s VALUES (2, 11, 21)")
    follow(lab, "UPDATE s SET cpu = 12 WHERE id = 1")


@pytest.mark.long
@pytest.mark.parametrize(
    "expression",
    long_but(
        ["to_char(ts, 'yyyy-MM')", "trunc(ts, unit)"],
        ["date_format(ts, 'yyyy-MM')", "to_char(ts, 'yyyy-MM')", "floor(log10(n))", "trunc(ts, unit)", "s.ts::date"],
    ),
)
def test_a_partition_is_found_by_the_expression_as_it_was_written(lab, expression):
    lab.source("s", "ts TIMESTAMP, n INT, unit STRING")
    lab.sql(
        "INSERT INTO s VALUES (TIMESTAMP'2026-11-01 10:00:00', 1000, 'MONTH'), "
        "(TIMESTAMP'2026-12-24 10:00:00', 999, 'YEAR'), (TIMESTAMP'2026-12-25 10:00:00', 10, 'MONTH')"
    )
    declare(
        lab, f"SELECT {expression} AS p, count(*) AS c, sum(n) AS n FROM s GROUP BY {expression}", "PARTITIONED BY (p)"
    )
    follow(lab)
    assert follow(lab, "INSERT INTO s VALUES (TIMESTAMP'2026-11-30 10:00:00', 1001, 'MONTH')").strategy == "partition"
    follow(lab, "UPDATE s SET n = 100 WHERE n = 10")


def test_several_rows_of_a_group_with_one_key_are_refused(lab):
    fill(lab, "s", "k STRING, v INT", "('a', 1)")
    declare(lab, "SELECT k, explode(array_sort(collect_set(v))) AS v FROM s GROUP BY k", "(PRIMARY KEY (k))")
    follow(lab)
    lab.sql("INSERT INTO s VALUES ('a', 2)")

    assert isinstance(lab.refresh("t").error, DuplicateKeyError)
    assert len(lab.rows("t")) == 1


def test_two_groups_that_show_one_key_are_refused(lab):
    fill(lab, "s", "mail STRING", "('A@x')")
    declare(lab, "SELECT lower(mail) AS mail, count(*) AS n FROM s GROUP BY mail", "(PRIMARY KEY (mail))")
    follow(lab)
    lab.sql("INSERT INTO s VALUES ('a@x')")

    assert isinstance(lab.refresh("t").error, DuplicateKeyError)


@pytest.mark.long
def test_rows_that_the_query_leaves_out_do_not_fail_the_partition_of_others(lab):
    fill(lab, "s", "k STRING, v INT", "('1', 1), ('2', 2)")
    lab.declare(
        f"CREATE MATERIALIZED TABLE t PARTITIONED BY (p) {HOURLY} AS "
        "SELECT CAST(k AS INT) AS p, sum(v) AS v FROM s WHERE k RLIKE '^[0-9]+$' GROUP BY CAST(k AS INT)"
    )
    follow(lab)
    assert follow(lab, "INSERT INTO s VALUES ('abc', 3), ('1', 4)").strategy == "full"
    follow(lab, "INSERT INTO s VALUES ('2', 5)")
    follow(lab, partitions=[{"p": "2"}])


@pytest.mark.long
@pytest.mark.parametrize("tail", ["", " GROUP BY ALL"])
def test_neither_where_they_fail_in_the_task_that_writes(lab, tail):
    fill(lab, "s", "k STRING, v INT", "('1', 1), ('2', 2), ('abc', 3)")
    lab.declare(
        f"CREATE MATERIALIZED TABLE t PARTITIONED BY (p) {HOURLY} AS "
        "SELECT CAST(k AS INT) AS p, v FROM s WHERE k RLIKE '^[0-9]+$'" + tail
    )
    follow(lab)
    follow(lab, "UPDATE s SET v = 10 WHERE k = '1'")
    lab.sql("UPDATE s SET v = 20 WHERE k = '2'")
    named = lab.refresh("t", partitions=[{"p": "2"}])
    assert named.error is None, named.error
    follow(lab)


def test_columns_with_other_names_are_not_taken_for_those_of_the_input(lab):
    fill(lab, "s", "d INT, o INT", "(1, 10), (2, 20)")
    declare(lab, "WITH c(d, o) AS (SELECT o, d FROM s) SELECT d, count(*) AS n FROM c GROUP BY d", "PARTITIONED BY (d)")
    follow(lab)
    follow(lab, "INSERT INTO s VALUES (3, 10)")


@pytest.mark.long
def test_texts_of_a_kept_side_that_are_no_utf_8_stay_as_they_are(lab):
    fill(lab, "s", "id INT, k INT", "(1, 1), (2, 2)", primary_key=["id"])
    lab.source("d", "k INT, name STRING", primary_key=["k"])
    lab.sql("INSERT INTO d SELECT 1, CAST(X'61C328FF' AS STRING) UNION ALL SELECT 2, 'b'")
    declare(lab, "SELECT s.id, d.name, s.k FROM s JOIN d ON s.k = d.k", "(PRIMARY KEY (id))")
    follow(lab)
    for times in (2, 3):
        assert follow(lab, f"UPDATE s SET id = id + {10 * times} WHERE k = 1").strategy == "keys"
