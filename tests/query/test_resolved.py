"""Queries inside the query: set operations, derived tables and common tables become relations of their own."""

from __future__ import annotations

import pytest
from sqlglot import exp

from freshline.query.resolved import ResolvedQuery
from tests.query.compact import affected, check_keys

# Each: the query, the inputs that changed, the columns, and what is asked for.
CASES = {
    "UNION ALL, one side": (
        "SELECT k FROM o UNION ALL SELECT k FROM c",
        "c",
        "k",
        "0_stage+ = SELECT a0.k FROM o+ a0",
        "1_stage+ = SELECT a1.k FROM c+ a1",
        "1_stage* = SELECT a1.k FROM c* a1",
        "SELECT k FROM 1_stage*",
    ),
    "UNION ALL, both": (
        "SELECT k FROM o UNION ALL SELECT k FROM c",
        "o c",
        "k",
        "0_stage+ = SELECT a0.k FROM o+ a0",
        "0_stage* = SELECT a0.k FROM o* a0",
        "1_stage+ = SELECT a1.k FROM c+ a1",
        "1_stage* = SELECT a1.k FROM c* a1",
        "SELECT k FROM 0_stage*",
        "SELECT k FROM 1_stage*",
    ),
    "UNION": (
        "SELECT k, v FROM o UNION SELECT k, id FROM c",
        "c",
        "k v",
        "0_stage+ = SELECT a0.k, a0.v FROM o+ a0",
        "1_stage+ = SELECT a1.k, a1.id FROM c+ a1",
        "1_stage* = SELECT a1.k, a1.id FROM c* a1",
        "SELECT k, id AS v FROM 1_stage*",
    ),
    "INTERSECT": (
        "SELECT k FROM o INTERSECT SELECT k FROM c",
        "o",
        "k",
        "0_stage+ = SELECT a0.k FROM o+ a0",
        "0_stage* = SELECT a0.k FROM o* a0",
        "1_stage+ = SELECT a1.k FROM c+ a1",
        "SELECT k FROM 0_stage*",
    ),
    "EXCEPT": (
        "SELECT k FROM o EXCEPT SELECT k FROM c",
        "c",
        "k",
        "0_stage+ = SELECT a0.k FROM o+ a0",
        "1_stage+ = SELECT a1.k FROM c+ a1",
        "1_stage* = SELECT a1.k FROM c* a1",
        "SELECT k FROM 1_stage*",
    ),
    "INTERSECT ALL": (
        "SELECT k FROM o INTERSECT ALL SELECT k FROM c",
        "o",
        "k",
        "0_stage+ = SELECT a0.k FROM o+ a0",
        "0_stage* = SELECT a0.k FROM o* a0",
        "1_stage+ = SELECT a1.k FROM c+ a1",
        "SELECT k FROM 0_stage*",
    ),
    "EXCEPT ALL": (
        "SELECT k FROM o EXCEPT ALL SELECT k FROM c",
        "c",
        "k",
        "0_stage+ = SELECT a0.k FROM o+ a0",
        "1_stage+ = SELECT a1.k FROM c+ a1",
        "1_stage* = SELECT a1.k FROM c* a1",
        "SELECT k FROM 1_stage*",
    ),
    "a UNION of groups": (
        "SELECT k, count(*) AS n FROM o GROUP BY k UNION ALL SELECT k, id FROM c",
        "o c",
        "k",
        "0_stage+ = SELECT a0.k, COUNT(*) AS n FROM o+ a0 GROUP BY a0.k",
        "0_stage*(k) = SELECT a0.k FROM o* a0",
        "1_stage+ = SELECT a1.k, a1.id FROM c+ a1",
        "1_stage* = SELECT a1.k, a1.id FROM c* a1",
        "SELECT k FROM 0_stage*",
        "SELECT k FROM 1_stage*",
    ),
    "set operations by precedence": (
        "SELECT k FROM o UNION ALL SELECT k FROM c INTERSECT SELECT w FROM d",
        "d",
        "k",
        "0_stage+ = SELECT a0.k FROM o+ a0",
        "1_stage+ = SELECT a1.k FROM c+ a1",
        "2_stage+ = SELECT a2.w FROM d+ a2",
        "2_stage* = SELECT a2.w FROM d* a2",
        "3_stage+ = SELECT k FROM 1_stage+ INTERSECT SELECT w FROM 2_stage+",
        "3_stage* = SELECT w AS k FROM 2_stage*",
        "SELECT k FROM 3_stage*",
    ),
    "a derived table": (
        "SELECT x.k FROM (SELECT k, v FROM o WHERE v > 1) x WHERE x.k > 0",
        "o",
        "k",
        "0_stage+ = SELECT a0.k, a0.v FROM o+ a0 WHERE a0.v > 1",
        "0_stage* = SELECT a0.k, a0.v FROM o* a0 WHERE (a0.v > 1)",
        "SELECT a1.k FROM 0_stage* a1 WHERE (a1.k > 0)",
    ),
    "groups of groups": (
        "SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM o GROUP BY k) x GROUP BY n",
        "o",
        "n",
        "0_stage+ = SELECT a0.k, COUNT(*) AS n FROM o+ a0 GROUP BY a0.k",
        "0_stage*(k) = SELECT a0.k FROM o* a0",
        "SELECT a1.n FROM 0_stage* a1",
    ),
    "a common table that is read twice": (
        "WITH t AS (SELECT k, sum(v) AS s FROM o GROUP BY k) SELECT a.k, b.s FROM t a LEFT JOIN t b ON a.k = b.k + 1",
        "o",
        "k",
        "0_stage+ = SELECT a0.k, SUM(a0.v) AS s FROM o+ a0 GROUP BY a0.k",
        "0_stage*(k) = SELECT a0.k FROM o* a0",
        "SELECT a1.k FROM 0_stage* a1",
        "SELECT a1.k FROM 0_stage± a1 LEFT JOIN 0_stage* a2 ON a1.k = a2.k + 1",
    ),
    "a common table called like the source that it hides": (
        "WITH o AS (SELECT id, k FROM o WHERE v > 1) SELECT o.id FROM o",
        "o",
        "id",
        "0_stage+ = SELECT a0.id, a0.k FROM o+ a0 WHERE a0.v > 1",
        "0_stage* = SELECT a0.id, a0.k FROM o* a0 WHERE (a0.v > 1)",
        "SELECT a1.id FROM 0_stage* a1",
    ),
    "a common table that nothing reads": (
        "WITH t AS (SELECT * FROM c) SELECT id FROM o",
        "c",
        "id",
        "0_stage+ = SELECT a0.id, a0.k, a0.name FROM c+ a0",
        "0_stage* = SELECT a0.id, a0.k, a0.name FROM c* a0",
    ),
    "a derived table that did not change": (
        "SELECT o.id, x.n FROM o JOIN (SELECT k, count(*) AS n FROM c GROUP BY k) x ON x.k = o.k",
        "o",
        "id n",
        "0_stage+ = SELECT a0.k, COUNT(*) AS n FROM c+ a0 GROUP BY a0.k",
        "SELECT a1.id, a2.n FROM o* a1 JOIN 0_stage+ a2 ON a2.k = a1.k",
    ),
    "a derived table inside of EXISTS": (
        "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM (SELECT k FROM o WHERE v > 1) x WHERE x.k = c.k)",
        "o",
        "id",
        "0_stage+ = SELECT a0.k FROM o+ a0 WHERE a0.v > 1",
        "0_stage* = SELECT a0.k FROM o* a0 WHERE (a0.v > 1)",
        "SELECT a2.id FROM c+ a2 WHERE (EXISTS(SELECT 1 FROM 0_stage* a1 WHERE (a1.k = a2.k)))",
    ),
}


@pytest.mark.parametrize("source", ["o", "(SELECT * FROM o WHERE K > 1)"])
def test_a_struct_of_all_columns_has_their_letter_case(source):
    """Spark takes a struct with a field `k` for another type than one with a field `K`."""
    query = ResolvedQuery.of(f"SELECT x.k, struct(x.*) AS r FROM {source} AS x", {"o": ["id", "K"]})

    (found,) = query.tree.selects[1].find_all(exp.Struct)
    assert [item.alias_or_name for item in found.expressions] == ["id", "K"]


@pytest.mark.parametrize("name", CASES)
def test_keys_of(name):
    check_keys(*CASES[name])


@pytest.mark.parametrize(
    "around",
    [
        (
            "SELECT {0}.start AS s, k FROM o GROUP BY window(day, '1 hour'), k "
            "QUALIFY row_number() OVER (PARTITION BY {0}.start ORDER BY {0}.end, k) = 1"
        ),
        (
            "SELECT {0}.start AS s, k, rank() OVER (PARTITION BY {0}.start ORDER BY count(*)) AS r FROM o "
            "GROUP BY window(day, '1 hour'), k HAVING {0}.end > '2026-01-01'"
        ),
        (
            "SELECT {0}.start AS s, k, rank() OVER w AS r FROM o GROUP BY window(day, '1 hour'), k "
            "WINDOW w AS (PARTITION BY {0}.start ORDER BY count(*))"
        ),
        (
            "SELECT c.id, x.s FROM c LEFT JOIN (SELECT {0}.start AS s, k FROM o GROUP BY window(day, '1 hour'), k) x "
            "ON x.k = c.k"
        ),
        (
            "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM (SELECT {0}.start AS s, k FROM o "
            "GROUP BY window(day, '1 hour'), k) x WHERE x.k = c.k)"
        ),
    ],
)
def test_the_column_of_a_window_is_the_call_that_makes_it(around):
    by_column, by_call = (affected(around.format(written), "o") for written in ("window", "window(day, '1 hour')"))

    assert by_column == by_call
    assert "window.start" not in by_column.whole.lower()
