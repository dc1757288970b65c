"""Searches for affected keys find each key whose row is another one now: cases in which one was not found."""

from __future__ import annotations

import pytest

from tests.scenarios.tables import declare, fill, follow

OF_GROUPS = {
    "a join that adds rows": (
        "SELECT a.k, count(*) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k "
        "HAVING count(*) > (SELECT max(z) FROM c)"
    ),
    "a condition that reads what changed": (
        "SELECT k, count(*) AS n FROM a WHERE x IN (SELECT k FROM c) GROUP BY k "
        "HAVING count(*) > (SELECT max(z) FROM c)"
    ),
    "a query inside": (
        "WITH g AS (SELECT a.k, sum(b.x) AS n FROM a LEFT JOIN b ON a.k = b.k GROUP BY a.k "
        "HAVING sum(b.x) > (SELECT max(z) FROM c)) SELECT k, n FROM g"
    ),
}


@pytest.mark.parametrize("query", OF_GROUPS.values(), ids=OF_GROUPS)
def test_groups_that_a_value_of_all_rows_lets_through_have_all_of_their_rows(lab, query):
    for name in ("a", "b"):
        lab.source(name, "k INT, x INT")
    fill(lab, "c", "k INT, z INT", "(1, 1)")
    lab.sql("INSERT INTO a VALUES (1, 1), (1, 1), (2, 9), (3, 1)")
    lab.sql("INSERT INTO a SELECT 1, 9 FROM range(8)")
    lab.sql("INSERT INTO b VALUES (2, 1), (2, 1), (2, 1), (3, 3)")
    declare(lab, query)
    follow(lab)
    for statement in (
        "INSERT INTO c VALUES (5, 3)",
        "INSERT INTO c VALUES (9, 100)",
        "DELETE FROM c WHERE z = 100",
        "UPDATE c SET z = 0",
    ):
        follow(lab, statement, strategy="keys")


def test_equal_elements_of_an_array_stay_rows_of_their_own(lab):
    fill(lab, "s", "k INT, text STRING", "(1, 'a,b'), (2, 'c,c')")
    declare(lab, "SELECT text, explode(split(text, ',')) AS tag, count(*) AS n FROM s GROUP BY text")
    follow(lab)
    follow(lab, "INSERT INTO s VALUES (3, 'b,b')")
    follow(lab, "INSERT INTO s VALUES (4, 'b,b'), (5, 'c,c')")
    assert [row["n"] for row in lab.rows("t") if row["tag"] == "b" and row["text"] == "b,b"] == [2, 2]


@pytest.mark.parametrize("end", ["CURRENT ROW AND UNBOUNDED FOLLOWING", "UNBOUNDED PRECEDING AND CURRENT ROW"])
def test_texts_have_another_order_than_the_times_in_them(lab, end):
    lab.source("s", "k INT, at STRING, v INT")
    lab.sql("INSERT INTO s VALUES (1, '2026-01-10', 1), (1, '2026-1-5', 2), (1, '10000', 4), (1, '9999', 8)")
    declare(lab, f"SELECT k, at, sum(v) OVER (PARTITION BY k ORDER BY at RANGE BETWEEN {end}) AS s FROM s")
    follow(lab)
    for at in ("2026-01-10", "2026-1-5", "10000", "9999"):
        follow(lab, f"UPDATE s SET v = v + 16 WHERE at = '{at}'")


def test_a_text_beside_a_day_is_read_as_a_day(lab):
    fill(lab, "e", "id INT, ts TIMESTAMP", "(1, TIMESTAMP'2026-01-05 03:00:00'), (2, TIMESTAMP'2026-01-06 23:00:00')")
    fill(lab, "r", "day STRING, w INT", "('2026-01-01', 1)")
    declare(lab, "SELECT e.id, r.w FROM e JOIN r ON CAST(e.ts AS DATE) = r.day")
    follow(lab)
    follow(lab, "INSERT INTO r VALUES ('2026-01-05 10:00:00', 7), ('2026-01-06 22:00:00', 8)")
    assert len(lab.rows("t")) == 2
    follow(lab, "UPDATE r SET w = w + 1")
