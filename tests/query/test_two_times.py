"""Whatever changes, the keys that are found cover every row by which the result differs.

Rows are few and alike, with NULL among the values, so that changes touch the same rows; a failure names its seed.
"""

from __future__ import annotations

import random

import duckdb
import pytest

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.keys import find_affected
from freshline.values.reason import Reason
from tests.query.two_times import TwoTimes

RELATIONS = {"s": ("a", "b"), "r": ("c", "d"), "z": ("e", "f")}
TYPES = {relation: dict.fromkeys(columns, "INT") for relation, columns in RELATIONS.items()}
VALUES = (1, 2, 3, 4, None)

QUERIES = {
    # Subqueries that are the same for every row.
    "above a maximum": "SELECT a, b FROM s WHERE b >= (SELECT max(d) FROM r)",
    "not above an average": "SELECT a, b FROM s WHERE NOT b > "
    "(SELECT avg(CAST(d AS DECIMAL)) FROM r WHERE c > 1) OR a IS NULL",
    "while something is there": "SELECT a, b FROM s WHERE a > 1 AND EXISTS (SELECT 1 FROM r WHERE d = 3)",
    "while nothing is there": "SELECT a, b FROM s WHERE NOT EXISTS (SELECT 1 FROM r WHERE d = 3)",
    "groups above a maximum": "SELECT a, sum(b) AS m FROM s GROUP BY a HAVING sum(b) > (SELECT max(d) FROM r)",
    "groups above a share of all": "SELECT a, sum(b) AS m FROM s WHERE b > 0 GROUP BY a "
    "HAVING sum(b) > (SELECT sum(b) * 0.3 FROM s WHERE b > 0) AND count(*) >= 1",
    "the greatest of groups": "WITH g AS (SELECT a, sum(b) AS m FROM s GROUP BY a) "
    "SELECT g.a, g.m, r.d FROM g, r WHERE g.a = r.c AND g.m = (SELECT max(m) FROM g)",
    "a constant below a correlated one": "SELECT a, b FROM s WHERE EXISTS "
    "(SELECT 1 FROM r WHERE r.c = s.a AND r.d >= (SELECT max(e) FROM z))",
    "a constant in HAVING below IN": "SELECT a, b FROM s WHERE a IN "
    "(SELECT c FROM r GROUP BY c HAVING sum(d) > (SELECT avg(CAST(e AS DECIMAL)) FROM z))",
    "a constant in HAVING of a correlated one": "SELECT a, b FROM s WHERE b < "
    "(SELECT max(d) FROM r WHERE r.c = s.a HAVING max(d) > (SELECT avg(CAST(e AS DECIMAL)) FROM z))",
    "two conditions": "SELECT a, b FROM s WHERE b >= (SELECT min(d) FROM r) AND a <> (SELECT max(e) FROM z)",
    "a constant and a correlated one": "SELECT a, b FROM s WHERE b >= (SELECT min(d) FROM r) "
    "OR a < (SELECT max(f) FROM z WHERE z.e = s.a)",
    "partitions of rows above": "SELECT a, b, rank() OVER (PARTITION BY a ORDER BY b) AS n FROM s "
    "WHERE b >= (SELECT avg(CAST(d AS DECIMAL)) FROM r)",
    # Subqueries that read the row.
    "NOT IN": "SELECT a, b FROM s WHERE a NOT IN (SELECT c FROM r WHERE d > 1)",
    "a correlated NOT IN": "SELECT a, b FROM s WHERE a NOT IN (SELECT c FROM r WHERE r.d = s.b)",
    "a NOT IN below EXISTS": "SELECT a, b FROM s WHERE EXISTS "
    "(SELECT 1 FROM r WHERE r.c = s.a AND r.d NOT IN (SELECT e FROM z WHERE z.f = r.c))",
    "IN with HAVING": "SELECT a, sum(b) AS m FROM s WHERE a IN "
    "(SELECT c FROM r GROUP BY c HAVING sum(d) > 3) GROUP BY a",
    "a share of a correlated average": "SELECT a, b FROM s WHERE b < "
    "(SELECT 0.9 * avg(CAST(d AS DECIMAL)) FROM r WHERE r.c = s.a)",
    "another row of the same table": "SELECT a, count(*) AS n FROM s x WHERE EXISTS "
    "(SELECT 1 FROM s y WHERE y.a = x.a AND y.b <> x.b) AND NOT EXISTS "
    "(SELECT 1 FROM s y WHERE y.a = x.a AND y.b > x.b AND y.b > 3) GROUP BY a",
    # Their values are part of the key, and two of their inputs change: rows match now that did not match before.
    "a sum over a join in a key": "SELECT abs(a) AS a, (SELECT sum(z.f) FROM r JOIN z ON r.d = z.e "
    "WHERE r.c = s.a) AS m FROM s",
    "a sum over pairs of one table in a key": "SELECT abs(a) AS a, "
    "(SELECT sum(x.d) FROM r x JOIN r y ON x.c = y.c WHERE x.d = s.b) AS m FROM s",
    "whether a join has a row, in a key": "SELECT abs(a) AS a, "
    "CASE WHEN EXISTS (SELECT 1 FROM r JOIN z ON r.d = z.e WHERE r.c = s.a) THEN 1 ELSE 0 END AS m FROM s",
    "membership in a join, in a key": "SELECT abs(a) AS a, "
    "CASE WHEN b IN (SELECT z.f FROM r JOIN z ON r.d = z.e WHERE r.c = s.a) THEN 1 ELSE 0 END AS m FROM s",
    "a count below another in a key": "SELECT abs(a) AS a, (SELECT count(*) FROM r WHERE r.c = s.a AND EXISTS "
    "(SELECT 1 FROM z x JOIN z y ON x.e = y.f WHERE x.e = r.d)) AS m FROM s",
    # Windows of which one is wider than another.
    "a window by what is not shown": "SELECT b, count(*) OVER (PARTITION BY a ORDER BY b) AS n FROM s",
    "windows by what is not shown, over a join": "SELECT s.b, r.d, sum(d) OVER (PARTITION BY s.a, r.d % 2) AS m "
    "FROM s LEFT JOIN r ON s.a = r.c",
    "the first of what is not shown": "SELECT b FROM s QUALIFY row_number() OVER (PARTITION BY a ORDER BY b) = 1",
    "groups of ranks by what is not shown": "SELECT n, count(*) AS m FROM "
    "(SELECT b, rank() OVER (PARTITION BY a ORDER BY b) AS n FROM s) GROUP BY n",
    "a wider window after a narrow one": "SELECT a, b, count(*) OVER (PARTITION BY b, a) AS n, "
    "sum(b) OVER (PARTITION BY a) AS m FROM s",
    "a wider window before a narrow one": "SELECT a, b, sum(b) OVER (PARTITION BY a) AS m, "
    "count(*) OVER (PARTITION BY b, a) AS n FROM s",
    "windows that cross inside a wider one": "SELECT s.a, s.b, r.d, count(*) OVER (PARTITION BY s.a, s.b) AS n, "
    "count(*) OVER (PARTITION BY s.a, r.d) AS m, count(*) OVER (PARTITION BY s.a) AS o FROM s JOIN r ON s.b = r.c",
    "windows that cross": "SELECT s.a, s.b, r.d, count(*) OVER (PARTITION BY s.b) AS n, "
    "count(*) OVER (PARTITION BY s.a, r.d) AS m, count(*) OVER (PARTITION BY s.b, s.a, r.d) AS o "
    "FROM s JOIN r ON s.b = r.c",
    # Joins.
    "comma joins": "SELECT s.a, r.d, count(*) AS n FROM s, r, z WHERE s.a = r.c AND r.d = z.e GROUP BY s.a, r.d",
    "a left join under two aggregates": "SELECT n, count(*) AS m FROM (SELECT s.a, count(r.d) AS n FROM s "
    "LEFT JOIN r ON s.a = r.c AND r.d <> 2 GROUP BY s.a) AS counted GROUP BY n",
    "outer joins": "SELECT s.a, s.b, r.d, z.f FROM s LEFT JOIN r ON s.a = r.c FULL JOIN z ON z.e = r.d",
    "a self join": "SELECT x.a, y.b FROM s x JOIN s y ON x.b = y.a",
}


def asked_for(query, *changed):
    """The queries for the affected keys, without quotes."""
    found = find_affected(ResolvedQuery.of(query, RELATIONS), frozenset(changed))
    assert not isinstance(found, Reason), found
    return [text.replace("`", "") for text in found.queries]


def refusal(query, *changed):
    found = find_affected(ResolvedQuery.of(query, RELATIONS), frozenset(changed))
    assert isinstance(found, Reason)
    return f"{found.code}({found.about})"


def test_a_condition_that_is_true_at_one_of_two_times_affects_a_row():
    (query,) = asked_for("SELECT a FROM s WHERE b > (SELECT max(d) FROM r) AND a = 1", "r")

    assert query == (
        "SELECT freshline_a1.a FROM freshline_new_s AS freshline_a1 WHERE ("
        "CASE WHEN freshline_a1.b > (SELECT MAX(freshline_a0.d) AS _col_0 FROM freshline_new_r AS freshline_a0) "
        "THEN 1 ELSE 0 END + "
        "CASE WHEN freshline_a1.b > (SELECT MAX(freshline_a0.d) AS _col_0 FROM freshline_old_r AS freshline_a0) "
        "THEN 1 ELSE 0 END = 1) AND (freshline_a1.a = 1)"
    )


def test_a_value_that_every_row_shows_affects_every_row():
    query = "SELECT a, (SELECT max(d) FROM r) AS m FROM s"

    assert refusal(query, "r") == "NO_KEY(SELECT MAX(d) FROM r is the same for every row)"
    assert asked_for(query, "s")


def test_a_constant_among_many_affects_every_row():
    assert refusal("SELECT a FROM s WHERE 3 IN (SELECT d FROM r)", "r").startswith("NO_KEY(")


def test_the_order_of_reading_counts_inside_expressions_too():
    query = "SELECT a FROM s WHERE b = (SELECT first(d) FROM r WHERE r.c = s.a)"

    assert refusal(query, "s") == refusal(query, "r") == "NONDETERMINISTIC(FIRST(d))"


def changed_rows(chance: random.Random, rows: list[tuple[object, object]]) -> list[tuple[object, object]]:
    """The rows after some were taken away, altered or added; or as they were."""
    kept = [row for row in rows if chance.random() > 0.2]
    kept = [(row[0], chance.choice(VALUES)) if chance.random() < 0.1 else row for row in kept]
    return kept + [(chance.choice(VALUES), chance.choice(VALUES)) for _ in range(chance.randint(0, 2))]


def make_times(seed: int) -> TwoTimes:
    chance = random.Random(seed)
    connection = duckdb.connect(config={"threads": 1})
    for name, columns in RELATIONS.items():
        rows: list[tuple[object, object]] = [
            (chance.choice(VALUES), chance.choice(VALUES)) for _ in range(chance.randint(0, 6))
        ]
        later = changed_rows(chance, rows) if chance.random() < 0.6 else rows
        for time, there in (("old", rows), ("new", later)):
            connection.execute(f"CREATE TABLE {time}_{name} ({', '.join(f'{column} INT' for column in columns)})")
            if there:
                connection.executemany(f"INSERT INTO {time}_{name} VALUES (?, ?)", there)
    return TwoTimes(connection, RELATIONS, TYPES)


def check(seed: int) -> None:
    times = make_times(seed)
    for name, query in QUERIES.items():
        found = times.look(query)
        if isinstance(found, Reason):
            assert found.code == "NULLABLE_NOT_IN", (name, seed, found)
            continue
        assert found.missing == frozenset(), (name, seed, found)
        assert found.alike, (name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_every_row_that_differs_has_an_affected_key(seed):
    check(seed)


@pytest.mark.long
def test_every_row_that_differs_has_an_affected_key_after_many_changes():
    for seed in range(1000, 1300):
        check(seed)
