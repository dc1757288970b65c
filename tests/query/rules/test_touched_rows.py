"""The rows that a change affects before grouping: joins of every kind, and queries inside expressions."""

from __future__ import annotations

import pytest

from tests.query.compact import check_keys

# Each: the query, the inputs that changed, the columns, and what is asked for.
CASES = {
    "a filter and a projection": (
        "SELECT id, v + 1 AS w FROM o WHERE v > 1",
        "o",
        "id",
        "SELECT a0.id FROM o* a0 WHERE (a0.v > 1)",
    ),
    "an expression alone": ("SELECT v + 1 AS w FROM o", "o", "w", "SELECT a0.v + 1 AS w FROM o* a0"),
    "a lateral view": (
        "SELECT id, e FROM o LATERAL VIEW OUTER explode(arr) t AS e WHERE e > 1",
        "o",
        "id",
        "SELECT a0.id FROM o* a0 LATERAL VIEW OUTER EXPLODE(a0.arr) t AS e WHERE (t.e > 1)",
    ),
    "explode in the select list": ("SELECT id, explode(arr) AS e FROM o", "o", "id", "SELECT a0.id FROM o* a0"),
    "an inner join, one side": (
        "SELECT o.id, c.name FROM o JOIN c ON o.k = c.k",
        "c",
        "id name",
        "SELECT a0.id, a1.name FROM o+ a0 JOIN c* a1 ON a0.k = a1.k",
    ),
    "an inner join, both sides": (
        "SELECT o.id, c.name FROM o JOIN c ON o.k = c.k",
        "o c",
        "id name",
        "SELECT a0.id, a1.name FROM o* a0 JOIN c± a1 ON a0.k = a1.k",
        "SELECT a0.id, a1.name FROM o± a0 JOIN c* a1 ON a0.k = a1.k",
    ),
    "a left join, the optional side": (
        "SELECT o.id, c.name FROM o LEFT JOIN c ON o.k = c.k AND c.id > 1",
        "c",
        "id",
        "SELECT a0.id FROM o+ a0 LEFT JOIN c* a1 ON a0.k = a1.k AND a1.id > 1",
    ),
    "a left join, the kept side": (
        "SELECT o.id, c.name FROM o LEFT JOIN c ON o.k = c.k",
        "o",
        "id",
        "SELECT a0.id FROM o* a0",
    ),
    "a right join, the optional side": (
        "SELECT o.id, c.name FROM o RIGHT JOIN c ON o.k = c.k",
        "o",
        "name",
        "SELECT a1.name FROM o* a0 RIGHT JOIN c+ a1 ON a0.k = a1.k",
        (
            "SELECT a1.name FROM o(none) a0 RIGHT JOIN c+ a1 ON a0.k = a1.k WHERE (EXISTS(SELECT 1 FROM o* a0 "
            "WHERE (a0.k = a1.k)))"
        ),
    ),
    "a full join": (
        "SELECT o.id, c.name FROM o FULL JOIN c ON o.k = c.k",
        "o",
        "id name",
        "SELECT a0.id, a1.name FROM o* a0 FULL JOIN c+ a1 ON a0.k = a1.k",
        (
            "SELECT a0.id, a1.name FROM o(none) a0 FULL JOIN c+ a1 ON a0.k = a1.k WHERE (EXISTS(SELECT 1 FROM o* "
            "a0 WHERE (a0.k = a1.k)))"
        ),
    ),
    "a semi join": (
        "SELECT c.id FROM c LEFT SEMI JOIN o ON o.k = c.k",
        "o",
        "id",
        "SELECT a0.id FROM c+ a0 WHERE (EXISTS(SELECT 1 FROM o* a1 WHERE (a1.k = a0.k)))",
    ),
    "an anti join": (
        "SELECT c.id FROM c LEFT ANTI JOIN o ON o.k = c.k",
        "o",
        "id",
        "SELECT a0.id FROM c+ a0 WHERE (EXISTS(SELECT 1 FROM o* a1 WHERE (a1.k = a0.k)))",
    ),
    "a cross join": (
        "SELECT o.id, c.name FROM o CROSS JOIN c",
        "c",
        "id name",
        "SELECT a0.id, a1.name FROM o+ a0 CROSS JOIN c* a1",
    ),
    "a comma": (
        "SELECT o.id, c.name, d.w FROM o, c LEFT JOIN d ON d.name = c.name WHERE o.k = c.k",
        "c",
        "id name",
        "SELECT a0.id, a1.name FROM o+ a0, c* a1 WHERE (a0.k = a1.k)",
    ),
    "a self join": (
        "SELECT a.id, b.v FROM o a JOIN o b ON a.k = b.v",
        "o",
        "id v",
        "SELECT a0.id, a1.v FROM o* a0 JOIN o± a1 ON a0.k = a1.v",
        "SELECT a0.id, a1.v FROM o± a0 JOIN o* a1 ON a0.k = a1.v",
    ),
    "three joined": (
        "SELECT o.id, d.w FROM o LEFT JOIN c ON o.k = c.k LEFT JOIN d ON d.name = c.name",
        "c",
        "id",
        "SELECT a0.id FROM o+ a0 LEFT JOIN c* a1 ON a0.k = a1.k",
        (
            "SELECT a0.id FROM o+ a0 LEFT JOIN c(none) a1 ON a0.k = a1.k WHERE (EXISTS(SELECT 1 FROM c* a1 "
            "WHERE (a0.k = a1.k)))"
        ),
    ),
    "a full join behind a left one": (
        "SELECT o.id, d.w FROM o LEFT JOIN c ON o.k = c.k FULL JOIN d ON d.name = c.name",
        "c",
        "id w",
        "SELECT a0.id, a2.w FROM o+ a0 LEFT JOIN c* a1 ON a0.k = a1.k FULL JOIN d+ a2 ON a2.name = a1.name",
        (
            "SELECT a0.id, a2.w FROM o+ a0 LEFT JOIN c(none) a1 ON a0.k = a1.k FULL JOIN d+ a2 ON a2.name = "
            "a1.name WHERE (EXISTS(SELECT 1 FROM c* a1 WHERE (a0.k = a1.k)))"
        ),
        (
            "SELECT a0.id, a2.w FROM o(none) a0 LEFT JOIN c(none) a1 ON a0.k = a1.k FULL JOIN d+ a2 ON a2.name = "
            "a1.name WHERE (EXISTS(SELECT 1 FROM o+ a0 LEFT JOIN c* a1 ON a0.k = a1.k WHERE (a2.name = a1.name)))"
        ),
        (
            "SELECT a0.id, a2.w FROM o(none) a0 LEFT JOIN c(none) a1 ON a0.k = a1.k FULL JOIN d+ a2 ON a2.name = "
            "a1.name WHERE (EXISTS(SELECT 1 FROM o+ a0 LEFT JOIN c(none) a1 ON a0.k = a1.k WHERE (EXISTS(SELECT 1 "
            "FROM c* a1 WHERE (a0.k = a1.k))) AND (a2.name = a1.name)))"
        ),
    ),
    "USING": ("SELECT k, o.id FROM o JOIN c USING (k)", "c", "id", "SELECT a0.id FROM o+ a0 JOIN c* a1 ON a0.k = a1.k"),
    "EXISTS": (
        "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.k = c.k AND o.v > 2)",
        "o",
        "id",
        "SELECT a1.id FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k) AND (a0.v > 2)))",
    ),
    "NOT EXISTS": (
        "SELECT c.id FROM c WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.k = c.k)",
        "o",
        "id",
        "SELECT a1.id FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k)))",
    ),
    "EXISTS, both": (
        "SELECT c.id FROM c WHERE c.id > 0 AND EXISTS (SELECT 1 FROM o WHERE o.k = c.k)",
        "o c",
        "id",
        "SELECT a1.id FROM c* a1 WHERE (a1.id > 0)",
        "SELECT a1.id FROM c± a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k))) AND (a1.id > 0)",
    ),
    "EXISTS with a LIMIT": (
        "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.k = c.k LIMIT 1)",
        "o",
        "id",
        "SELECT a1.id FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k)))",
    ),
    "EXISTS over groups": (
        "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.k = c.k GROUP BY o.v HAVING count(*) > 1)",
        "o",
        "id",
        "SELECT a1.id FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k)))",
    ),
    "EXISTS over an outer join": (
        "SELECT d.w FROM d WHERE EXISTS (SELECT 1 FROM o LEFT JOIN c ON o.k = c.k WHERE o.v = d.w AND c.id IS NULL)",
        "c",
        "w",
        (
            "SELECT a2.w FROM d+ a2 WHERE (EXISTS(SELECT 1 FROM o+ a0 LEFT JOIN c* a1 ON a0.k = a1.k WHERE (a0.v "
            "= a2.w) AND (a1.id IS NULL)))"
        ),
        (
            "SELECT a2.w FROM d+ a2 WHERE (EXISTS(SELECT 1 FROM o+ a0 LEFT JOIN c(none) a1 ON a0.k = a1.k WHERE "
            "(EXISTS(SELECT 1 FROM c* a1 WHERE (a0.k = a1.k))) AND (a0.v = a2.w) AND (a1.id IS NULL)))"
        ),
    ),
    "EXISTS inside of EXISTS": (
        (
            "SELECT d.w FROM d WHERE EXISTS (SELECT 1 FROM c WHERE c.name = d.name AND EXISTS (SELECT 1 FROM o WHERE "
            "o.k = c.k))"
        ),
        "o",
        "w",
        (
            "SELECT a2.w FROM d+ a2 WHERE (EXISTS(SELECT 1 FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE "
            "(a0.k = a1.k))) AND (a1.name = a2.name)))"
        ),
    ),
    "IN": (
        "SELECT o.id FROM o WHERE o.k IN (SELECT k FROM c WHERE name = 'x')",
        "c",
        "id",
        (
            "SELECT a1.id FROM o+ a1 WHERE (EXISTS(SELECT 1 FROM c* a0 WHERE (a0.name = 'x') AND (a0.k IS NOT "
            "DISTINCT FROM (a1.k))))"
        ),
    ),
    "NOT IN": (
        "SELECT o.id FROM o WHERE o.k NOT IN (SELECT k FROM c)",
        "c",
        "id",
        "unless SELECT 1 FROM c* a0 WHERE (a0.k IS NULL)",
        (
            "SELECT a1.id FROM o+ a1 WHERE (EXISTS(SELECT 1 FROM c* a0 WHERE (a0.k IS NOT DISTINCT FROM (a1.k))) "
            "OR (a1.k) IS NULL)"
        ),
    ),
    "IN below OR": (
        "SELECT o.id FROM o WHERE o.v = 1 OR o.k IN (SELECT k FROM c)",
        "c",
        "id",
        "unless SELECT 1 FROM c* a0 WHERE (a0.k IS NULL)",
        (
            "SELECT a1.id FROM o+ a1 WHERE (EXISTS(SELECT 1 FROM c* a0 WHERE (a0.k IS NOT DISTINCT FROM (a1.k))) "
            "OR (a1.k) IS NULL)"
        ),
    ),
    "NOT IN that looks outside": (
        "SELECT o.id FROM o WHERE o.k NOT IN (SELECT c.k FROM c WHERE c.id = o.v)",
        "c",
        "id",
        (
            "SELECT a1.id FROM o+ a1 WHERE (EXISTS(SELECT 1 FROM c* a0 WHERE (a0.id = a1.v) AND ((a0.k IS NOT "
            "DISTINCT FROM (a1.k) OR a0.k IS NULL))) OR (a1.k) IS NULL)"
        ),
    ),
    "a scalar subquery": (
        "SELECT c.id, (SELECT max(o.v) FROM o WHERE o.k = c.k) AS m FROM c",
        "o",
        "id",
        "SELECT a1.id FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k)))",
    ),
    "a scalar subquery in WHERE": (
        "SELECT c.id FROM c WHERE (SELECT count(*) FROM o WHERE o.k = c.k) > 1",
        "o",
        "id",
        "SELECT a1.id FROM c+ a1 WHERE (EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k)))",
    ),
    "a scalar subquery whose value is a key": (
        "SELECT c.id + 1 AS x, (SELECT max(o.v) FROM o WHERE o.k = c.k) AS m FROM c",
        "o",
        "x m",
        (
            "SELECT a1.id + 1 AS x, (SELECT MAX(a0.v) AS _col_0 FROM o± a0 WHERE a0.k = a1.k) AS m FROM c+ a1 WHERE "
            "(EXISTS(SELECT 1 FROM o* a0 WHERE (a0.k = a1.k)))"
        ),
    ),
}


@pytest.mark.seconds
@pytest.mark.parametrize("name", CASES)
def test_keys_of(name):
    check_keys(*CASES[name])
