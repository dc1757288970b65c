"""The places of the last clauses of a query, and the columns that its order is by."""

from __future__ import annotations

import pytest

from freshline.query.first_rows import Order, first_rows, order_of
from freshline.query.query import Query
from freshline.query.resolved import ResolvedQuery

SCHEMA = {"o": ("id", "k", "v", "ts"), "c": ("k", "name")}
TYPES = {
    "o": {"id": "INT", "k": "STRING", "v": "DECIMAL(10,2)", "ts": "DOUBLE"},
    "c": {"k": "STRING", "name": "STRING"},
}


def order(query: str) -> list[tuple[str, str, str]] | None:
    found = first_rows(query)
    assert found is not None
    parts = order_of(Query(query), ResolvedQuery.of(found.every, SCHEMA, TYPES))
    return None if parts is None else [shown(part) for part in parts]


def shown(part: Order) -> tuple[str, str, str]:
    return part.column, "DESC" if part.descending else "ASC", "FIRST" if part.nulls_first else "LAST"


@pytest.mark.parametrize(
    ("query", "every", "count"),
    [
        ("SELECT id FROM o ORDER BY id LIMIT 3", "SELECT id FROM o ", 3),
        ("SELECT id FROM o ORDER /* BY */ BY id -- LIMIT 7\nlimit 10", "SELECT id FROM o ", 10),
        (
            "WITH x AS (SELECT k FROM o ORDER BY v LIMIT 9) SELECT k FROM x UNION SELECT k FROM o ORDER BY 1 LIMIT 2",
            "WITH x AS (SELECT k FROM o ORDER BY v LIMIT 9) SELECT k FROM x UNION SELECT k FROM o ",
            2,
        ),
        (
            "SELECT 'ORDER BY' AS `limit`, rank() OVER (ORDER BY v) AS r FROM o ORDER BY (r) LIMIT 1",
            "SELECT 'ORDER BY' AS `limit`, rank() OVER (ORDER BY v) AS r FROM o ",
            1,
        ),
    ],
)
def test_the_query_without_its_last_clauses(query: str, every: str, count: int) -> None:
    found = first_rows(query)

    assert found is not None
    assert (found.every, found.count) == (every, count)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id FROM o",
        "SELECT id FROM o LIMIT 3",
        "SELECT id FROM o ORDER BY id",
        "SELECT id FROM o ORDER BY id LIMIT 3 OFFSET 2",
        "SELECT id FROM o ORDER BY id OFFSET 2",
        "SELECT id FROM o ORDER BY id LIMIT ALL",
        "SELECT id FROM o ORDER BY id LIMIT 1 + 2",
        "SELECT id FROM o ORDER BY id LIMIT 0",
        "SELECT id FROM o ORDER BY id LIMIT 9223372036854775807",
        "SELECT id FROM o ORDER BY ALL LIMIT 3",
        "SELECT id FROM o ORDER BY ALL DESC LIMIT 3",
        "SELECT id FROM o ORDER BY (all) NULLS LAST LIMIT 3",
        "SELECT id FROM o ORDER BY `all` LIMIT 3",
        "SELECT id FROM o SORT BY id LIMIT 3",
        "SELECT id, sum(v) OVER w FROM o ORDER BY id WINDOW w AS (PARTITION BY k) LIMIT 3",
        "SELECT id FROM (SELECT id FROM o ORDER BY id LIMIT 3)",
        "(SELECT id FROM o ORDER BY id LIMIT 3)",
        "SELECT id FROM o QUALIFY row_number() OVER (ORDER BY id) < 3 LIMIT 3",
        "FROM o |> ORDER BY id |> LIMIT 3",
        "SELECT id, 'ORDER BY id' LIMIT 3",
    ],
)
def test_other_queries_do_not_keep_first_rows(query: str) -> None:
    assert first_rows(query) is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id, v FROM o ORDER BY v DESC, id LIMIT 3", [("v", "DESC", "LAST"), ("id", "ASC", "FIRST")]),
        ("SELECT * FROM o ORDER BY 2 NULLS LAST, `ID` DESC NULLS FIRST LIMIT 3",
         [("k", "ASC", "LAST"), ("id", "DESC", "FIRST")]),
        ("SELECT k, sum(v) AS total, count(*) AS n FROM o GROUP BY k ORDER BY sum(v), count(*) LIMIT 3",
         [("total", "ASC", "FIRST"), ("n", "ASC", "FIRST")]),
        ("SELECT x.id FROM o AS x ORDER BY x.id LIMIT 3", [("id", "ASC", "FIRST")]),
        ("SELECT id FROM o UNION SELECT id FROM o ORDER BY id LIMIT 3", [("id", "ASC", "FIRST")]),
        ("SELECT id, name FROM o JOIN c USING (k) ORDER BY name LIMIT 3", [("name", "ASC", "FIRST")]),
    ],
)  # fmt: skip
def test_the_order_is_by_columns_of_the_result(query: str, expected: list[tuple[str, str, str]]) -> None:
    assert order(query) == expected


@pytest.mark.parametrize(
    "query",
    [
        # no column of the result
        "SELECT id FROM o ORDER BY v LIMIT 3",
        "SELECT id, v FROM o ORDER BY v + 1 LIMIT 3",
        "SELECT id FROM o ORDER BY 2 LIMIT 3",
        "SELECT id FROM o ORDER BY rand() LIMIT 3",
        "SELECT id AS n FROM o ORDER BY id LIMIT 3",
        "SELECT k, count(*) FROM o GROUP BY k ORDER BY count(*) LIMIT 3",
        # Spark takes v for the column of the result, which is id
        "SELECT id AS v, v + 1 AS w FROM o ORDER BY v + 1 LIMIT 3",
        # another value whenever it is computed
        "SELECT k, sum(ts) AS total FROM o GROUP BY k ORDER BY k LIMIT 3",
        "SELECT k, count(*) AS n FROM o GROUP BY k HAVING sum(ts) > 3 ORDER BY k LIMIT 3",
        "SELECT k, count(*) AS n FROM o GROUP BY k HAVING avg(id) > 3 ORDER BY k LIMIT 3",
    ],
)
def test_an_order_by_something_else_is_not_known(query: str) -> None:
    assert order(query) is None


def test_names_are_quoted_behind_the_order() -> None:
    found = first_rows("SELECT a AS `a``b`, `c d` FROM o ORDER BY 1 -- LIMIT 1\n LIMIT 3")

    assert found is not None
    assert found.ordered(["a`b", "c d"]).endswith("ORDER BY 1 -- LIMIT 1\n , `a``b`, `c d` LIMIT 3")
