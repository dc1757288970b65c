"""Aggregates that follow from their stored values and the changed rows, without reading the inputs again."""

from __future__ import annotations

import random

import pytest

from tests.lanes import few_or_many, long_but
from tests.scenarios.tables import fill, follow

LINES = "id BIGINT, k STRING, q INT, amount DECIMAL(10,2), at DATE"
EVERY = (
    "SELECT k, count(*) AS n, count(q) AS nq, sum(q) AS sq, avg(q) AS aq, min(q) AS lq, max(q) AS gq, "
    "sum(amount) AS sa, count(amount) AS na, avg(amount) AS aa, min(at) AS la, max(amount) AS ga FROM line GROUP BY k"
)


def declare(lab, query: str, header: str = "") -> None:
    lab.declare(f"CREATE MATERIALIZED TABLE t {header} FRESHNESS = INTERVAL '5' MINUTE AS {query}")


def refreshed(lab, *changes: str) -> tuple[str, str | None]:
    outcome = follow(lab, *changes, strategy="keys")
    return outcome.reason.split(":")[0], outcome.strategy


@pytest.fixture
def lines(lab):
    lab.source("line", LINES, primary_key=["id"])
    lab.sql(
        "INSERT INTO line VALUES (1,'a',1,1.10,DATE'2026-01-01'), (2,'a',2,2.25,DATE'2026-01-02'), "
        "(3,'b',NULL,NULL,NULL), (4,NULL,4,0.00,DATE'2026-01-04'), (5,'c',5,5.55,DATE'2026-01-05')"
    )
    return lab


@pytest.mark.long
def test_groups_come_change_and_go_by_their_changed_rows_alone(lines):
    declare(lines, EVERY)
    lines.refresh("t")
    for statement in (
        "INSERT INTO line VALUES (6,'a',NULL,9.99,NULL), (7,'d',7,7.77,DATE'2026-02-01'), (8,NULL,NULL,1.00,NULL)",
        "UPDATE line SET q = q + 10, amount = amount * 3 WHERE k = 'a'; DELETE FROM line WHERE id IN (3, 5)",
        "UPDATE line SET k = 'e', q = NULL, amount = NULL WHERE k = 'a'",
        "DELETE FROM line",
    ):
        for each in statement.split("; "):
            lines.sql(each)
        assert refreshed(lines) == ("ALGEBRAIC(k)", "keys"), statement
    assert lines.rows("t") == []


ALL_ROWS = (
    "SELECT count(*) AS n, count(q) AS nq, sum(q) AS sq, avg(q) AS aq, sum(amount) AS sa, count(k) AS nk FROM line"
)


def test_one_row_of_all_follows_from_its_changed_rows_and_comes_back_from_none(lines):
    declare(lines, ALL_ROWS)
    lines.refresh("t")
    for statement in (
        "INSERT INTO line VALUES (6,'a',NULL,9.99,NULL), (7,NULL,7,NULL,NULL)",
        "UPDATE line SET q = q + 10, amount = amount * 3 WHERE k = 'a' OR id = 7",
        "DELETE FROM line",
        "INSERT INTO line VALUES (8,'b',NULL,NULL,NULL)",
        "UPDATE line SET q = -3, amount = 0.01",
    ):
        assert refreshed(lines, statement) == ("ALGEBRAIC(all rows)", "keys"), statement
    assert [row["n"] for row in lines.rows("t")] == [1]
    # A change that the row does not show.
    assert refreshed(lines, "UPDATE line SET at = DATE'2026-05-05'")[1] in ("keys", "noop")


def test_values_computed_from_shown_aggregates_follow_with_them(lines):
    declare(
        lines,
        "SELECT sum(amount) / count(*) AS `mean's`, sum(amount) AS `s.um`, count(*) AS n, count(q) AS nq, "
        "sum(q) AS sq, CASE WHEN count(*) > 2 THEN round(sum(amount) / nullif(count(q), 0), 1) ELSE -1 END AS r, "
        "try_divide(sum(q), count(q)) AS m, sum(q) / sum(amount) AS q FROM line WHERE id < 100",
    )
    lines.refresh("t")
    for statement in (
        "INSERT INTO line VALUES (6,'a',NULL,9.99,NULL), (7,NULL,7,NULL,NULL)",
        "UPDATE line SET q = q + 10, amount = amount * 3 WHERE k = 'a' OR id = 7",
        "INSERT INTO line SELECT * FROM line WHERE id = 7",
        "DELETE FROM line",
        "INSERT INTO line VALUES (8,'b',NULL,NULL,NULL)",
        "UPDATE line SET q = -3, amount = 0.01",
    ):
        assert refreshed(lines, statement) == ("ALGEBRAIC(all rows)", "keys"), statement
    assert [(row["n"], row["q"]) for row in lines.rows("t")] == [(1, -300)]


def test_a_value_computed_from_an_aggregate_that_is_not_shown_needs_a_full_refresh(lines):
    declare(lines, "SELECT sum(amount) / count(*) AS mean, count(*) AS n FROM line")
    lines.refresh("t")
    outcome = follow(lines, "INSERT INTO line VALUES (6,'a',NULL,9.99,NULL)", by="full")
    assert outcome.reason.startswith("HIDDEN_AGGREGATE(SUM(amount))")


@pytest.mark.long
def test_values_computed_from_groups_follow_and_a_division_by_zero_is_that_of_the_query(lines):
    declare(
        lines,
        "SELECT k AS `the'k`, count(*) AS n, sum(q) AS s, sum(q) / count(*) AS mean, concat(k, ':', sum(q)) AS t, "
        "try_divide(count(*), sum(q)) AS inverse FROM line GROUP BY k",
    )
    lines.refresh("t")
    for statement in (
        "INSERT INTO line VALUES (6,'a',-3,9.99,NULL), (7,'d',7,7.77,NULL), (8,NULL,NULL,1.00,NULL)",
        "DELETE FROM line WHERE k = 'c'",
        "UPDATE line SET k = 'e', q = NULL WHERE k = 'a'",
        "DELETE FROM line",
    ):
        assert refreshed(lines, statement) == ("ALGEBRAIC(the'k)", "keys"), statement


def test_a_greatest_value_of_all_rows_that_went_away_is_computed_in_full(lines):
    declare(lines, "SELECT max(q) AS greatest, min(amount) AS least, count(*) AS n FROM line WHERE id < 100")
    lines.refresh("t")
    lines.sql("INSERT INTO line VALUES (6,'a',50,9.99,NULL), (200,'a',1000,-9.99,NULL)")
    assert refreshed(lines) == ("ALGEBRAIC(all rows)", "keys")
    outcome = follow(lines, "DELETE FROM line WHERE id = 6", by="full")
    assert outcome.reason.startswith("NO_KEY(an aggregate over all rows)")


def test_one_row_of_a_join_and_of_a_span_of_time_follows_too(lab):
    fill(lab, "line", LINES, "(1,'a',2,1.10,NULL), (2,'b',3,2.25,NULL), (3,'c',1,0.50,NULL)", primary_key=["id"])
    lab.source("part", "k STRING, price INT, seen TIMESTAMP", primary_key=["k"])
    lab.sql("INSERT INTO part VALUES ('a', 10, current_timestamp()), ('b', 20, current_timestamp())")
    declare(lab, "SELECT sum(l.q * p.price) AS worth, count(*) AS n FROM line l JOIN part p ON l.k = p.k")
    lab.declare(
        "CREATE MATERIALIZED TABLE lately FRESHNESS = INTERVAL '5' MINUTE AS "
        "SELECT count(*) AS n, sum(price) AS s FROM part WHERE seen > now() - INTERVAL '1' HOUR"
    )
    lab.refresh_all()
    lab.sql("UPDATE part SET price = 21 WHERE k = 'b'")
    lab.sql("INSERT INTO line VALUES (4,'b',1,1.00,NULL)")
    assert refreshed(lab, "DELETE FROM line WHERE id = 1") == ("ALGEBRAIC(all rows)", "keys")
    assert lab.rows("t") == [{"worth": 84, "n": 2}]
    for minutes in (1, 120):
        lab.clock.advance(minutes=minutes)
        follow(lab, name="lately", by=("keys", "noop"))


def test_the_same_value_may_have_two_names(lines):
    declare(
        lines,
        "SELECT k, min(q) AS least, min(q) AS again, max(q) AS greatest, max(q) AS once_more, count(q) AS n, "
        "count(q) AS m FROM line GROUP BY k",
    )
    lines.refresh("t")
    lines.sql("INSERT INTO line VALUES (9,'a',-1,NULL,NULL), (10,'c',99,NULL,NULL)")

    assert refreshed(lines) == ("ALGEBRAIC(k)", "keys")


@pytest.mark.long
def test_a_least_value_that_went_away_is_searched_among_the_rows_that_are_left(lines):
    declare(lines, "SELECT k, min(q) AS least, max(q) AS greatest FROM line GROUP BY k")
    lines.refresh("t")
    for statement in (
        "DELETE FROM line WHERE id = 1",
        "INSERT INTO line VALUES (10,'a',-1,NULL,NULL)",
        "DELETE FROM line WHERE id = 10",
        "UPDATE line SET q = 3 WHERE id = 2",
    ):
        assert refreshed(lines, statement)[0] == "ALGEBRAIC(k)", statement


@pytest.mark.long
def test_a_value_that_came_and_went_between_two_refreshes_was_never_there(lines):
    declare(lines, "SELECT k, min(q) AS least, count(*) AS n FROM line GROUP BY k")
    lines.refresh("t")
    lines.sql("INSERT INTO line VALUES (11,'a',-100,NULL,NULL)")
    lines.sql("DELETE FROM line WHERE id = 11")
    assert refreshed(lines, "INSERT INTO line VALUES (12,'b',0,NULL,NULL)")[0] == "ALGEBRAIC(k)"


@pytest.mark.long
def test_a_sum_of_zero_does_not_hide_that_its_group_is_empty(lines):
    declare(lines, "SELECT k, sum(q) AS s FROM line GROUP BY k")
    lines.refresh("t")
    refreshed(lines, "INSERT INTO line VALUES (20,'z',5,NULL,NULL), (21,'z',-5,NULL,NULL), (22,'y',5,NULL,NULL)")
    refreshed(lines, "UPDATE line SET q = 0 WHERE k = 'y'")
    assert refreshed(lines, "DELETE FROM line WHERE k IN ('z', 'y')")[0] == "ALGEBRAIC(k)"
    assert sorted(row["k"] or "" for row in lines.rows("t")) == ["", "a", "b", "c"]


@pytest.mark.long
def test_both_sides_of_a_join_may_change_at_once(lines):
    fill(lines, "part", "k STRING, color STRING", "('a','red'), ('b','red'), ('c','blue')", primary_key=["k"])
    declare(
        lines,
        "WITH l AS (SELECT k, q, amount FROM line WHERE id < 100 UNION ALL SELECT k, 1 AS q, amount FROM line) "
        "SELECT p.color, sum(l.q) AS s, count(*) AS n, avg(l.q * 2) AS a, count(l.q * 2) AS na "
        "FROM l JOIN part p ON p.k = l.k GROUP BY p.color",
    )
    lines.refresh("t")
    for statements in (
        ["UPDATE part SET color = 'green' WHERE k = 'a'", "UPDATE line SET q = 9 WHERE k = 'a'"],
        ["DELETE FROM part WHERE k = 'b'", "INSERT INTO line VALUES (30,'b',3,NULL,NULL), (31,'c',3,1.00,NULL)"],
        ["INSERT INTO part VALUES ('b','blue')", "DELETE FROM line WHERE k = 'c'"],
    ):
        for statement in statements:
            lines.sql(statement)
        assert refreshed(lines)[0] == "ALGEBRAIC(color)", statements


@pytest.mark.long
def test_an_average_follows_from_the_count_of_rows_where_its_column_is_never_null(lab):
    fill(lab, "line", LINES, "SELECT id, 'k' || id % 3, id, id / 7, NULL FROM range(300)", primary_key=["id"])
    declare(lab, "SELECT k, count(*) AS n, avg(q) AS aq, avg(amount) AS aa FROM line GROUP BY k")
    lab.refresh("t")
    assert refreshed(lab, "UPDATE line SET amount = amount + 0.01, q = q - 1000 WHERE id % 50 = 0")[0] == "ALGEBRAIC(k)"
    assert refreshed(lab, "INSERT INTO line VALUES (1000, 'k1', NULL, NULL, NULL)")[0] == "AFFECTED_KEYS(k)"


@pytest.mark.long
@pytest.mark.parametrize(
    "change", ["UPDATE line SET q = 30 WHERE id = 3", "DELETE FROM line WHERE q IS NULL", "UPDATE line SET q = NULL"]
)
def test_an_average_is_right_when_its_column_gets_or_loses_its_only_null(lab, change):
    lab.source("line", LINES, primary_key=["id"])
    lab.sql("INSERT INTO line (id, k, q) VALUES (1, 'a', 10), (2, 'a', 20), (3, 'a', NULL), (4, 'b', 7)")
    declare(lab, "SELECT k, count(*) AS n, avg(q) AS average FROM line GROUP BY k")
    lab.refresh("t")
    assert refreshed(lab, change)[1] == "keys"


@pytest.mark.long
def test_groups_that_partitions_keep_as_one_are_not_taken_for_two(lines):
    lines.sql("INSERT INTO line VALUES (50,'',5,1.00,NULL)")
    lines.declare(
        "CREATE MATERIALIZED TABLE t PARTITIONED BY (k) FRESHNESS = INTERVAL '5' MINUTE "
        "AS SELECT k, sum(q) AS s FROM line GROUP BY k"
    )
    lines.refresh("t")
    assert refreshed(lines, "UPDATE line SET q = q + 1 WHERE k = '' OR k IS NULL OR k = 'a'")[0] == "AFFECTED_KEYS(k)"


@pytest.mark.long
def test_fractions_are_summed_again(lab):
    lab.source("line", "id BIGINT, k DOUBLE, x DOUBLE, i INT", primary_key=["id"])
    lab.sql("INSERT INTO line VALUES (1, 0.5, 0.1, 1), (2, 0.5, 0.2, 2), (3, double('NaN'), 1, 3)")
    declare(lab, "SELECT i % 2 AS k, sum(x) AS s FROM line GROUP BY i % 2")
    lab.refresh("t")
    assert refreshed(lab, "UPDATE line SET x = x + 0.1")[0] == "AFFECTED_KEYS(k)"


@pytest.mark.parametrize("rounds", few_or_many(2, 40))
def test_random_changes_leave_every_group_as_its_query_has_it(lab, rounds):
    chance = random.Random(20261121)
    fill(lab, "line", LINES, "(0,'a',1,1.00,DATE'2026-01-01')", primary_key=["id"])
    declare(lab, EVERY, "(PRIMARY KEY (k))")
    lab.refresh("t")
    number = 0
    for _ in range(rounds):
        for _ in range(chance.randint(1, 3)):
            k = chance.choice(["'a'", "'b'", "NULL"])
            q = chance.choice(["NULL", "0", "-1", "1", "7"])
            amount = chance.choice(["NULL", "0.00", "-0.01", "3.33"])
            condition = f"id % {chance.randint(1, 4)} = 0"
            number += 1
            lab.sql(
                chance.choice(
                    [
                        f"INSERT INTO line VALUES ({number},{k},{q},{amount},DATE'2026-01-0{chance.randint(1, 9)}')",
                        f"INSERT INTO line VALUES ({number},{k},{q},{amount},NULL)",
                        f"UPDATE line SET k = {k}, q = {q} WHERE {condition}",
                        f"UPDATE line SET amount = {amount} WHERE {condition}",
                        f"DELETE FROM line WHERE {condition}",
                    ]
                )
            )
        follow(lab, strategy="keys")


@pytest.mark.long
def test_a_source_of_an_unread_expression_of_with_changes_nothing(lines):
    """`b` reads another source and nothing reads `b`: its changes came as a refresh that broke."""
    lines.source("other", "id INT", primary_key=["id"])
    declare(lines, "WITH b AS (SELECT o.id FROM other o) SELECT k, sum(q) AS q FROM line GROUP BY k")
    lines.refresh("t")

    refreshed(lines, "INSERT INTO other VALUES (1)")
    lines.sql("INSERT INTO other VALUES (2)")
    assert refreshed(lines, "INSERT INTO line VALUES (9, 'a', 9, 9.00, NULL)") == ("ALGEBRAIC(k)", "keys")


def test_a_key_may_have_any_name(lab):
    """Counts in between had names such as `n`, and a key of that name made each refresh a full one."""
    names = ("n", "gone", "o", "g", "a0", "n0", "d0", "came_min0", "k0", "net", "x`y", "x.y")
    columns = ", ".join(f"`{name.replace('`', '``')}` INT" for name in names)
    listed = columns.replace(" INT", "")
    lab.source("s", f"{columns}, v INT")
    lab.declare(
        "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS "
        f"SELECT {listed}, sum(v) AS s, count(v) AS c, min(v) AS least, count(*) AS r FROM s GROUP BY {listed}"
    )
    row = ", ".join(str(number) for number, _ in enumerate(names))
    lab.sql(f"INSERT INTO s VALUES ({row}, 1), ({row}, NULL)")
    lab.refresh("t")
    for change in (f"INSERT INTO s VALUES ({row}, 5)", "DELETE FROM s WHERE v = 1", "DELETE FROM s"):
        outcome = follow(lab, change)
        assert (outcome.error, outcome.strategy, outcome.reason[:9]) == (None, "keys", "ALGEBRAIC")


def test_the_one_row_of_all_may_have_columns_of_any_name(lab):
    """Delta's MERGE, which replaces this row, does not double a backtick."""
    fill(lab, "s", "v INT", "(1), (2)")
    lab.declare(
        "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS "
        "SELECT count(*) AS `a``b`, sum(v) AS `c.d`, sum(v) / count(*) AS `e``` FROM s"
    )
    lab.refresh("t")
    for change in ("INSERT INTO s VALUES (9)", "DELETE FROM s"):
        follow(lab, change, by="keys")


WITH_KEYS_ALONE = ("SELECT k FROM s GROUP BY k", "SELECT k, v, upper(k) AS u FROM s GROUP BY k, v")


@pytest.mark.long
@pytest.mark.parametrize("query", WITH_KEYS_ALONE)
def test_groups_that_show_only_their_key_are_kept(lab, query):
    fill(lab, "s", "k STRING, v INT", "('a', 1), ('b', 2)")
    lab.declare(f"CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS {query}")
    lab.refresh("t")
    for change in ("INSERT INTO s VALUES ('c', 3), ('a', 1)", "DELETE FROM s WHERE k = 'b'"):
        follow(lab, change, by="keys")


@pytest.mark.parametrize(
    "kind",
    long_but(
        ["DECIMAL(38,18)", "DECIMAL(28,10)"],
        ["DECIMAL(38,18)", "DECIMAL(38,6)", "DECIMAL(30,7)", "DECIMAL(28,10)", "DECIMAL(27,10)"],
    ),
)
def test_a_sum_of_long_decimals_keeps_its_last_digit(lab, kind):
    scale = int(kind.split(",")[1].rstrip(")"))
    least = "0." + "0" * (scale - 1) + "1"
    fill(lab, "s", f"k STRING, amount {kind}", f"('a', 1{least[1:]}), ('b', 2)")
    lab.declare(
        "CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '1' HOUR AS "
        "SELECT k, sum(amount) AS total, count(*) AS n FROM s GROUP BY k"
    )
    lab.refresh("t")
    follow(lab, "INSERT INTO s VALUES ('a', 0)", by="keys")
    assert str(lab.rows("t")[0]["total"]).endswith("1")
