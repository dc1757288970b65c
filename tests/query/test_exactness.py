"""Keys are made of what is the same whenever it is computed, and read from what does not depend on the rest."""

from __future__ import annotations

import pytest

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.algebra import find_algebra
from freshline.query.rules.keys import Affected, find_affected
from freshline.values.reason import Reason

TYPES = {
    "o": {"id": "INT", "g": "INT", "h": "STRING", "x": "DOUBLE", "n": "BIGINT", "d": "DECIMAL(9,2)", "ts": "TIMESTAMP"},
    "c": {"id": "INT", "g": "INT", "w": "DOUBLE", "arr": "ARRAY<DOUBLE>", "p": "STRUCT<f: DOUBLE, k: INT>"},
}
SCHEMA = {name: tuple(columns) for name, columns in TYPES.items()}
SUMS = "(SELECT g, sum(x) AS s, count(*) AS n FROM o GROUP BY g)"


def look(query, *changed, types=TYPES, primary_key=()):
    return find_affected(ResolvedQuery.of(query, SCHEMA, types), frozenset(changed or ("o",)), primary_key=primary_key)


# Each: the query, and the columns of its key; changes of o and of c.
KEYS = {
    "the query of the issue": (
        (
            "WITH a AS (SELECT g, sum(x) AS s, avg(x) AS m, count(*) AS n FROM o GROUP BY g HAVING count(*) > 1) "
            "SELECT g, coalesce(s, 0.0) AS s, m, n FROM a"
        ),
        "g",
    ),
    "two levels": (
        f"WITH a AS {SUMS}, b AS (SELECT a.g, a.s * 2 AS t, c.w FROM a JOIN c ON c.g = a.g) SELECT g, t, w FROM b",
        "g w",
    ),
    "aggregates that are joined on their group columns": (
        f"SELECT a.g, a.s + b.s AS t FROM {SUMS} a JOIN (SELECT g, avg(w) AS s FROM c GROUP BY g) b ON a.g = b.g",
        "g",
    ),
    "a group column beside a sum": (f"SELECT g, s, count(*) AS k FROM {SUMS} GROUP BY g, s", "g"),
    "DISTINCT": (f"SELECT DISTINCT g, round(s) AS r FROM {SUMS}", "g"),
    "EXCEPT": (f"SELECT g, s FROM {SUMS} EXCEPT SELECT g, w FROM c", "g"),
    "UNION": (f"SELECT g, s FROM {SUMS} UNION SELECT g, w FROM c", "g"),
    "a window over sums": (f"SELECT g, n, rank() OVER (PARTITION BY g ORDER BY s) AS r FROM {SUMS}", "g"),
    "one of two columns of a partition": (
        f"SELECT g, rank() OVER (PARTITION BY g, s ORDER BY n) AS r, s FROM {SUMS}",
        "g",
    ),
    "the first of equal rows": (
        "SELECT g, x FROM (SELECT *, row_number() OVER (PARTITION BY g ORDER BY ts DESC) AS r FROM o) WHERE r = 1",
        "g",
    ),
    "a sum of DECIMAL": ("SELECT s, count(*) AS k FROM (SELECT g, sum(d) AS s FROM o GROUP BY g) GROUP BY s", "s"),
    "an average of DECIMAL": ("SELECT s, count(*) AS k FROM (SELECT g, avg(d) AS s FROM o GROUP BY g) GROUP BY s", "s"),
    "a sum of whole numbers": (
        "SELECT s, count(*) AS k FROM (SELECT g, sum(if(x > 1, n, 0)) AS s FROM o GROUP BY g) GROUP BY s",
        "s",
    ),
    "a count": ("SELECT n, count(*) AS k FROM (SELECT g, count(*) AS n FROM o GROUP BY g) GROUP BY n", "n"),
    "the greatest DOUBLE": ("SELECT m, count(*) AS k FROM (SELECT g, max(x) AS m FROM o GROUP BY g) GROUP BY m", "m"),
    "a DOUBLE of an input": ("SELECT x, x * 3 AS y FROM o", "x"),
    "a group by a DOUBLE of an input": ("SELECT x * 3 AS y, count(*) AS n FROM o GROUP BY x * 3", "y"),
    "a subquery for each row": (
        "SELECT o.id, o.x FROM o WHERE o.x > (SELECT avg(w) FROM c WHERE c.g = o.g)",
        "id x",
    ),
    "a column that a join on a sum gives or does not": (
        f"SELECT a.g, c.id AS i FROM {SUMS} a LEFT JOIN c ON c.g = a.g AND c.w > a.s",
        "g",
    ),
    "what explode makes of a sum": (f"SELECT g, e FROM {SUMS} a LATERAL VIEW explode(array(s, 1)) t AS e", "g"),
}


@pytest.mark.parametrize(("query", "key"), KEYS.values(), ids=KEYS)
def test_a_key_has_no_value_that_comes_out_otherwise(query, key):
    found = look(query, "o", "c")

    assert isinstance(found, Affected), str(found)
    assert " ".join(found.columns) == key


# Each: a query that has no column which is exact, or is joined by nothing that is; changes of o.
FULL = {
    "GROUP BY a sum": f"SELECT s, count(*) AS k FROM {SUMS} GROUP BY s",
    "GROUP BY what is made of a sum": f"SELECT s > 10 AS high, count(*) AS k FROM {SUMS} GROUP BY s > 10",
    "GROUP BY a text of a sum": f"SELECT hash(CAST(s AS STRING)) AS t, count(*) AS k FROM {SUMS} GROUP BY 1",
    "GROUP BY a field of a struct of a sum": (
        f"SELECT p.a AS a, count(*) AS k FROM (SELECT struct(s AS a, g AS b) AS p FROM {SUMS}) GROUP BY p.a"
    ),
    "DISTINCT sums": f"SELECT DISTINCT s FROM {SUMS}",
    "sums alone": f"SELECT g + s AS t FROM {SUMS}",
    "a sum and a literal": f"SELECT s, 'x' AS kind FROM {SUMS}",
    "a join on a sum": f"SELECT a.g, c.id FROM {SUMS} a JOIN c ON c.w = a.s",
    "a join within bounds": f"SELECT a.g, c.id FROM {SUMS} a JOIN c ON c.w > a.s",
    "a window by a sum": f"SELECT g, rank() OVER (PARTITION BY s ORDER BY g) AS r FROM {SUMS}",
    "IN over sums": f"SELECT id FROM c WHERE w IN (SELECT s FROM {SUMS})",
    "a threshold that is the same for every row": "SELECT id FROM c WHERE w > (SELECT avg(x) FROM o)",
    "rows without a group that passes a threshold": (
        "SELECT c.id FROM c LEFT ANTI JOIN (SELECT g FROM o GROUP BY g HAVING sum(x) > 1) a ON a.g = c.g"
    ),
    "rows without a group of their sum": f"SELECT c.id FROM c LEFT ANTI JOIN {SUMS} a ON a.g = c.g AND a.s = c.w",
    "EXISTS by a sum": f"SELECT id FROM c WHERE EXISTS (SELECT 1 FROM {SUMS} a WHERE a.s = c.w)",
    "how many groups pass a threshold": (
        "SELECT m, count(*) AS k FROM (SELECT g, count(*) AS m FROM (SELECT g, h, sum(x) AS s FROM o GROUP BY g, h) "
        "WHERE s > 1 GROUP BY g) GROUP BY m"
    ),
    "the greatest of sums": f"SELECT m, count(*) AS k FROM (SELECT n, max(s) AS m FROM {SUMS} GROUP BY n) GROUP BY m",
    "an average of whole numbers": "SELECT m, count(*) AS k FROM (SELECT g, avg(n) AS m FROM o GROUP BY g) GROUP BY m",
    "a sum of texts": "SELECT m, count(*) AS k FROM (SELECT g, sum(h) AS m FROM o GROUP BY g) GROUP BY m",
    "a sum of quotients": "SELECT m, count(*) AS k FROM (SELECT g, sum(n / 3) AS m FROM o GROUP BY g) GROUP BY m",
    "a sum over a window": (
        "SELECT m, count(*) AS k FROM (SELECT g, sum(x) OVER (PARTITION BY g) AS m FROM o) GROUP BY m"
    ),
    "a sum over so many rows": (
        "SELECT m, count(*) AS k FROM (SELECT g, sum(n) OVER (PARTITION BY g ORDER BY ts ROWS 1 PRECEDING) AS m "
        "FROM o) GROUP BY m"
    ),
    "a deviation": "SELECT m, count(*) AS k FROM (SELECT g, stddev(n) AS m FROM o GROUP BY g) GROUP BY m",
    "the row of the greatest": (
        "SELECT m, count(*) AS k FROM (SELECT g, max_by(id, ts) AS m FROM o GROUP BY g) GROUP BY m"
    ),
    "an approximate percentile": (
        "SELECT m, count(*) AS k FROM (SELECT g, percentile_approx(n, 0.5) AS m FROM o GROUP BY g) GROUP BY m"
    ),
    "a number of a row": (
        "SELECT r, count(*) AS k FROM (SELECT g, row_number() OVER (PARTITION BY g ORDER BY ts) AS r FROM o) GROUP BY r"
    ),
    "the row before": (
        "SELECT r, count(*) AS k FROM (SELECT g, lag(n) OVER (PARTITION BY g ORDER BY ts) AS r FROM o) GROUP BY r"
    ),
}


@pytest.mark.seconds
@pytest.mark.parametrize("query", FULL.values(), ids=FULL)
def test_a_table_without_an_exact_key_is_computed_anew(query):
    found = look(query)

    assert isinstance(found, Reason), found
    assert found.code == "INEXACT_KEY", str(found)


def test_a_sum_whose_type_is_not_known_is_taken_for_one_of_double():
    query = "SELECT s, count(*) AS k FROM (SELECT g, sum(d) AS s FROM o GROUP BY g) GROUP BY s"

    assert isinstance(look(query), Affected)
    assert str(look(query, types={})).startswith("INEXACT_KEY(GROUP BY s)")


def test_a_primary_key_is_followed_by_its_exact_columns():
    found = look(f"SELECT g, s FROM {SUMS}", primary_key=("s", "g"))

    assert isinstance(found, Affected)
    assert found.columns == ("g",)


THRESHOLDS = {
    "HAVING": "SELECT a.g, a.s FROM (SELECT g, sum(x) AS s FROM o GROUP BY g HAVING sum(x) > 10) a",
    "WHERE": f"SELECT g, s FROM {SUMS} WHERE s > 10",
    "WHERE of a derived table": f"SELECT g, t FROM (SELECT g, s + 1 AS t FROM {SUMS} WHERE s > 10) WHERE g > 0",
    "QUALIFY": f"SELECT g, s FROM {SUMS} QUALIFY rank() OVER (PARTITION BY g ORDER BY s) > 10",
    "ON": f"SELECT c.id, a.g FROM c JOIN {SUMS} a ON a.g = c.g AND a.s > 10",
    "a join with groups that pass": (
        "SELECT c.id, a.g FROM c JOIN (SELECT g, sum(x) AS s FROM o GROUP BY g HAVING sum(x) > 10) a ON a.g = c.g"
    ),
    "a join with groups that pass and show no sum": (
        "SELECT c.id, a.g FROM c JOIN (SELECT g FROM o GROUP BY g HAVING sum(x) > 10) a ON a.g = c.g"
    ),
    "EXISTS of groups that pass": (
        "SELECT c.id FROM c WHERE EXISTS (SELECT 1 FROM o WHERE o.g = c.g GROUP BY o.g HAVING sum(o.x) > 10)"
    ),
    "a side of EXCEPT": f"SELECT g, s FROM {SUMS} WHERE s > 10 EXCEPT SELECT g, w FROM c",
}


@pytest.mark.parametrize("query", THRESHOLDS.values(), ids=THRESHOLDS)
def test_a_row_that_passed_a_threshold_when_it_was_stored_is_found(query):
    found = look(query, "o", "c")

    assert isinstance(found, Affected), str(found)
    kept = [stage for stage in found.stages if not stage.relation.endswith("_written")]
    texts = [*found.queries, *(text for stage in kept for text in (stage.new, stage.old or "", *stage.changed))]
    assert not [text for text in texts if "> 10" in text]
    # Without the condition a row may be read as before while it comes or goes.
    assert not any(stage.exact for stage in kept)
    # The query itself, which is compared with the declared one, has all of its conditions.
    whole = [found.whole, *(stage.new for stage in found.stages if stage.relation.endswith("_written"))]
    assert any("> 10" in text for text in whole)


ALGEBRA = {
    "a condition on a sum": (
        f"SELECT o.h, sum(o.n) AS t FROM o JOIN {SUMS.replace('FROM o', 'FROM c')} a ON a.g = o.g "
        "WHERE a.s > 1 GROUP BY o.h"
    ),
    "a group by what is made of a sum": (
        "SELECT CAST(a.s AS BIGINT) AS b, sum(o.n) AS t FROM o JOIN (SELECT g, sum(w) AS s FROM c GROUP BY g) a "
        "ON a.g = o.g GROUP BY CAST(a.s AS BIGINT)"
    ),
    "an argument made of a sum": (
        "SELECT o.h, sum(CAST(a.s AS BIGINT)) AS t FROM o JOIN (SELECT g, sum(w) AS s FROM c GROUP BY g) a "
        "ON a.g = o.g GROUP BY o.h"
    ),
    "groups that pass a threshold": (
        "SELECT o.h, count(*) AS t FROM o JOIN (SELECT g FROM c GROUP BY g HAVING sum(w) > 1) a ON a.g = o.g "
        "GROUP BY o.h"
    ),
}


@pytest.mark.parametrize("query", ALGEBRA.values(), ids=ALGEBRA)
def test_no_aggregate_follows_from_signed_rows_that_come_out_otherwise(query):
    exact = (
        query.replace("sum(w)", "count(w)").replace("sum(x)", "count(*)").replace("(SELECT g, sum", "(SELECT g, count")
    )

    assert find_algebra(ResolvedQuery.of(query, SCHEMA, TYPES), frozenset({"o"})) is None
    assert find_algebra(ResolvedQuery.of(exact, SCHEMA, TYPES), frozenset({"o"})) is not None
