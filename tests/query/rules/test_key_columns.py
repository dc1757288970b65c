"""The columns that identify changes: grouping, grouping sets, DISTINCT, windows and QUALIFY."""

from __future__ import annotations

import pytest

from tests.query.compact import check_keys

# Each: the query, the inputs that changed, the columns, and what is asked for.
CASES = {
    "GROUP BY": ("SELECT k, sum(v) AS s FROM o GROUP BY k", "o", "k", "SELECT a0.k FROM o* a0"),
    "GROUP BY an expression, by its place": (
        "SELECT k % 2 AS p, count(*) AS n FROM o GROUP BY 1",
        "o",
        "p",
        "SELECT a0.k % 2 AS p FROM o* a0",
    ),
    "GROUP BY and HAVING": (
        "SELECT k, count(*) AS n FROM o WHERE v > 0 GROUP BY k HAVING count(*) > 1",
        "o",
        "k",
        "SELECT a0.k FROM o* a0 WHERE (a0.v > 0)",
    ),
    "some grouping columns": ("SELECT k, count(*) AS n FROM o GROUP BY k, day", "o", "k", "SELECT a0.k FROM o* a0"),
    "count distinct": ("SELECT k, count(DISTINCT v) AS n FROM o GROUP BY k", "o", "k", "SELECT a0.k FROM o* a0"),
    "GROUP BY over a join": (
        "SELECT c.name, sum(o.v) AS s FROM o LEFT JOIN c ON o.k = c.k GROUP BY c.name",
        "c",
        "name",
        "SELECT a1.name FROM o+ a0 LEFT JOIN c* a1 ON a0.k = a1.k",
        (
            "SELECT a1.name FROM o+ a0 LEFT JOIN c(none) a1 ON a0.k = a1.k WHERE (EXISTS(SELECT 1 FROM c* a1 "
            "WHERE (a0.k = a1.k)))"
        ),
    ),
    "HAVING EXISTS": (
        "SELECT c.k, count(*) AS n FROM c GROUP BY c.k HAVING EXISTS (SELECT 1 FROM o WHERE o.k = c.k)",
        "o",
        "k",
        "SELECT a1.k FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k)))",
    ),
    "ROLLUP": (
        "SELECT k, day, count(*) AS n FROM o GROUP BY ROLLUP (k, day)",
        "o",
        "k day",
        "SELECT a0.k, a0.day FROM o* a0 GROUP BY ROLLUP (a0.k, a0.day)",
    ),
    "CUBE": (
        "SELECT k, day, count(*) AS n FROM o GROUP BY CUBE (k, day)",
        "o",
        "k day",
        "SELECT a0.k, a0.day FROM o* a0 GROUP BY CUBE (a0.k, a0.day)",
    ),
    "GROUPING SETS": (
        "SELECT k, day, count(*) AS n FROM o GROUP BY GROUPING SETS ((k), (day), ())",
        "o",
        "k day",
        "SELECT a0.k, a0.day FROM o* a0 GROUP BY GROUPING SETS ((a0.k), (a0.day), ())",
    ),
    "WITH ROLLUP": (
        "SELECT k, count(*) AS n FROM o GROUP BY k WITH ROLLUP",
        "o",
        "k",
        "SELECT a0.k FROM o* a0 GROUP BY a0.k WITH ROLLUP",
    ),
    "sessions": (
        "SELECT session_window.start AS s, k, count(*) AS n FROM o GROUP BY session_window(day, '1 day'), k",
        "o",
        "k",
        "SELECT a0.k FROM o* a0",
    ),
    "DISTINCT": ("SELECT DISTINCT k, v FROM o", "o", "k v", "SELECT a0.k, a0.v FROM o* a0"),
    "a sorted list": (
        "SELECT k, sort_array(collect_list(v)) AS l FROM o GROUP BY k",
        "o",
        "k",
        "SELECT a0.k FROM o* a0",
    ),
    "a window": (
        "SELECT id, k, sum(v) OVER (PARTITION BY k ORDER BY day) AS s FROM o",
        "o",
        "k",
        "SELECT a0.k FROM o* a0",
    ),
    "a window by a column that is not selected": (
        "SELECT id, sum(v) OVER (PARTITION BY k ORDER BY day) AS s FROM o",
        "o",
        "id",
        (
            "SELECT r.id FROM (SELECT a0.id, a0.k AS p0 FROM o± a0) r LEFT SEMI JOIN (SELECT a0.k AS k0 FROM o* a0) k "
            "ON r.p0 <=> k.k0"
        ),
    ),
    "a named window": (
        "SELECT id, k, sum(v) OVER w AS s FROM o WINDOW w AS (PARTITION BY k)",
        "o",
        "k",
        "SELECT a0.k FROM o* a0",
    ),
    "windows that share a column": (
        "SELECT k, day, count(*) OVER (PARTITION BY k) AS a, count(*) OVER (PARTITION BY k, day) AS b FROM o",
        "o",
        "k",
        "SELECT a0.k FROM o* a0",
    ),
    "windows that differ": (
        "SELECT k, day, count(*) OVER (PARTITION BY k) AS a, count(*) OVER (PARTITION BY day) AS b FROM o",
        "o",
        "k day",
        (
            "SELECT r.k, r.day FROM (SELECT a0.k, a0.day, a0.k AS p0 FROM o± a0) r LEFT SEMI JOIN (SELECT a0.k AS k0 "
            "FROM o* a0) k ON r.p0 <=> k.k0"
        ),
        (
            "SELECT r.k, r.day FROM (SELECT a0.k, a0.day, a0.day AS p0 FROM o± a0) r LEFT SEMI JOIN (SELECT a0.day AS "
            "k0 FROM o* a0) k ON r.p0 <=> k.k0"
        ),
    ),
    "QUALIFY": (
        "SELECT id, k FROM o QUALIFY row_number() OVER (PARTITION BY k ORDER BY v, id) = 1",
        "o",
        "k",
        "SELECT a0.k FROM o* a0",
    ),
    "a window over groups": (
        "SELECT k, day, rank() OVER (PARTITION BY k ORDER BY sum(v)) AS r FROM o GROUP BY k, day",
        "o",
        "k",
        "SELECT a0.k FROM o* a0",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_keys_of(name):
    check_keys(*CASES[name])
