"""The inputs that give new rows for new rows, and what a query does with them otherwise."""

from __future__ import annotations

import pytest

from freshline.query.query import read_query
from freshline.query.rules.append import find_branches
from freshline.sql.query_parser import parse_query
from freshline.values.names import TableName
from freshline.values.reason import Reason


def changes_of(query, *changed):
    """The names of the inputs to read as new rows only, or the reason against it."""
    found = find_branches(read_query(parse_query(query, "t.sql", 1)))
    if isinstance(found, Reason):
        return found
    inputs = found.delta_inputs(frozenset(TableName.parse(name) for name in changed))
    return inputs if isinstance(inputs, Reason) else sorted(str(name) for name in inputs)


@pytest.mark.parametrize(
    ("query", "changed", "read_as_changes"),
    [
        ("SELECT a + 1 AS b FROM s WHERE a > 0", ["s"], ["s"]),
        ("SELECT x FROM (SELECT a AS x FROM s) q", ["s"], ["s"]),
        ("WITH c AS (SELECT a FROM s) SELECT a FROM c", ["s"], ["s"]),
        ("SELECT explode(a) AS e FROM s", ["s"], ["s"]),
        ("SELECT a, e FROM s LATERAL VIEW explode(xs) v AS e", ["s"], ["s"]),
        ("SELECT a FROM s UNION ALL SELECT a FROM r", ["s", "r"], ["r", "s"]),
        # The branch that did not change must yield nothing.
        ("SELECT a FROM s UNION ALL SELECT a FROM r", ["s"], ["r", "s"]),
        ("SELECT s.a FROM s JOIN r ON s.k = r.k", ["s"], ["s"]),
        ("SELECT s.a FROM s JOIN r ON s.k = r.k", ["r"], ["r"]),
        ("SELECT s.a FROM s, r WHERE s.k = r.k", ["s"], ["s"]),
        ("SELECT s.a FROM s LEFT JOIN r ON s.k = r.k", ["s"], ["s"]),
        ("SELECT s.a FROM s LEFT SEMI JOIN r ON s.k = r.k", ["s"], ["s"]),
        ("SELECT s.a FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k)", ["s"], ["s"]),
        ("SELECT s.a FROM s LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() AS d ON s.k = d.k", ["s"], ["s"]),
        # A name in WITH is that of the table in its own body and before it.
        ("WITH s AS (SELECT * FROM s), r AS (SELECT * FROM r) SELECT s.a FROM s JOIN r ON s.k = r.k", ["s"], ["s"]),
        ("WITH a AS (SELECT x FROM s), s AS (SELECT x FROM r) SELECT x FROM a", ["s"], ["s"]),
        ("WITH q AS (SELECT * FROM s), s AS (SELECT k FROM q) SELECT k FROM s", ["s"], ["s"]),
        (
            "WITH c AS (SELECT a FROM s) SELECT a FROM r UNION ALL (WITH c AS (SELECT a FROM r) SELECT a FROM c)",
            ["r"],
            ["r"],
        ),
    ],
)
def test_new_rows_in_give_new_rows_out(query, changed, read_as_changes):
    assert changes_of(query, *changed) == read_as_changes


@pytest.mark.parametrize(
    ("query", "changed", "about"),
    [
        ("SELECT count(*) AS n FROM s", ["s"], "COUNT(*)"),
        ("SELECT a, count(*) AS n FROM s GROUP BY a", ["s"], "GROUP BY"),
        ("SELECT DISTINCT a FROM s", ["s"], "DISTINCT"),
        ("SELECT a FROM s UNION SELECT a FROM r", ["s"], "UNION"),
        ("SELECT a FROM s EXCEPT SELECT a FROM r", ["s"], "EXCEPT"),
        ("SELECT a FROM s INTERSECT SELECT a FROM r", ["s"], "INTERSECT"),
        ("SELECT a FROM s LIMIT 5", ["s"], "LIMIT"),
        ("SELECT a, row_number() OVER (PARTITION BY b ORDER BY c) AS n FROM s", ["s"], "ROW_NUMBER"),
        ("SELECT s.a FROM s JOIN r ON s.k = r.k", ["s", "r"], "r and s"),
        ("SELECT s.a FROM s JOIN s AS other ON s.k = other.k", ["s"], "s"),
        ("SELECT try_sum(a) AS n FROM s", ["s"], "TRY_SUM(a)"),
        ("SELECT s.a FROM s LEFT JOIN r ON s.k = r.k", ["r"], "r changed"),
        ("SELECT s.a FROM s RIGHT JOIN r ON s.k = r.k", ["r"], "RIGHT JOIN"),
        ("SELECT s.a FROM s FULL JOIN r ON s.k = r.k", ["s"], "FULL JOIN"),
        ("SELECT s.a FROM s LEFT ANTI JOIN r ON s.k = r.k", ["r"], "r changed"),
        ("SELECT s.a FROM s WHERE EXISTS (SELECT 1 FROM r WHERE r.k = s.k)", ["r"], "r changed"),
        ("SELECT s.a FROM s WHERE s.a NOT IN (SELECT a FROM r)", ["r"], "r changed"),
        ("SELECT a FROM s UNION ALL SELECT s.a FROM s JOIN r ON s.k = r.k", ["r"], "UNION ALL branch"),
        ("WITH c AS (SELECT a FROM r) SELECT s.a FROM s WHERE s.a IN (SELECT a FROM c)", ["r"], "r changed"),
        ("WITH c AS (SELECT a, k FROM s) SELECT x.a FROM c x JOIN c y ON x.k = y.k", ["s"], "s"),
        ("SELECT p, x FROM (SELECT p, k, v FROM s) PIVOT (sum(v) FOR k IN ('x' AS x))", ["s"], "PIVOT"),
        ("WITH c AS (SELECT p, k, v FROM s) SELECT p, x FROM c PIVOT (sum(v) FOR k IN ('x' AS x))", ["s"], "PIVOT"),
        (
            "WITH RECURSIVE c AS (SELECT 1 AS a UNION ALL SELECT a + 1 FROM c WHERE a < 9) SELECT a FROM c, s",
            ["s"],
            "WITH",
        ),
    ],
)
def test_a_change_that_is_not_new_rows_for_new_rows_is_refused_with_the_fragment(query, changed, about):
    refused = changes_of(query, *changed)

    assert isinstance(refused, Reason), refused
    assert refused.code == "UNSUPPORTED"
    assert about in refused.about
