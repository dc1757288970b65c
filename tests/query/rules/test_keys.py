"""The whole answer of the analysis: the columns it chooses, and everything it refuses, with the reason."""

from __future__ import annotations

import pytest

from freshline.query.resolved import ResolvedQuery
from freshline.query.rules.keys import Affected, find_affected
from tests.query.compact import SCHEMA, affected, reason, shown

# Each: the query, the input that changed where it is not o, and the refusal.
REFUSALS = {
    "LIMIT": ("SELECT id FROM o ORDER BY id LIMIT 3", "TOP_N(LIMIT 3)"),
    "OFFSET": ("SELECT id FROM o ORDER BY id OFFSET 3", "TOP_N(OFFSET 3)"),
    "LIMIT in a derived table that did not change": (
        "SELECT o.id FROM o JOIN (SELECT k FROM c ORDER BY k LIMIT 2) x ON x.k = o.k",
        "TOP_N(LIMIT 2)",
    ),
    "LIMIT of a set operation": ("(SELECT k FROM o) UNION ALL (SELECT k FROM c) LIMIT 2", "UNSUPPORTED(LIMIT 2)"),
    "an aggregate over all rows": ("SELECT sum(v) AS s FROM o", "NO_KEY(an aggregate over all rows)"),
    "an aggregate over all rows that is not shown": (
        "SELECT count(*) AS n, sum(v) / count(*) AS mean FROM o",
        "HIDDEN_AGGREGATE(SUM(v))",
    ),
    "an aggregate that the parser does not know": (
        "SELECT try_sum(v) AS s FROM o",
        "NO_KEY(an aggregate over all rows)",
    ),
    "HAVING without GROUP BY": ("SELECT 1 AS n FROM o HAVING count(*) > 1", "NO_KEY(an aggregate over all rows)"),
    "a scalar subquery that is the same for every row": (
        "SELECT id, (SELECT max(w) FROM d) AS m FROM o",
        "d",
        "NO_KEY(SELECT MAX(w) FROM d is the same for every row)",
    ),
    "EXISTS that is the same for every row": (
        "SELECT id, EXISTS (SELECT 1 FROM d) AS some FROM o",
        "d",
        "NO_KEY(SELECT 1 AS 1 FROM d is the same for every row)",
    ),
    "a SELECT without FROM": (
        "SELECT (SELECT max(w) FROM d) AS m",
        "d",
        "NO_KEY(SELECT (SELECT MAX(w) FROM d) AS m has one row)",
    ),
    "grouping columns that are not selected": (
        "SELECT count(*) AS n FROM o GROUP BY k",
        "NO_KEY(GROUP BY k, of which the select list has nothing)",
    ),
    "an expression over grouping columns": (
        "SELECT k + 1 AS x, count(*) AS n FROM o GROUP BY k",
        "NO_KEY(GROUP BY k, of which the select list has nothing)",
    ),
    "GROUP BY ALL": ("SELECT k, count(*) AS n FROM o GROUP BY ALL", "UNSUPPORTED(GROUP BY ALL)"),
    "partition columns that are not selected": (
        "SELECT rank() OVER (PARTITION BY k ORDER BY v) AS n FROM o",
        "NO_KEY(RANK() OVER (PARTITION BY k ORDER BY v), of which the select list has no column)",
    ),
    "a window without partition": (
        "SELECT id, rank() OVER (ORDER BY v) AS r FROM o",
        "WINDOW_WITHOUT_PARTITION(RANK() OVER (ORDER BY v))",
    ),
    "a window without partition over groups": (
        "SELECT k, rank() OVER (ORDER BY sum(v)) AS r FROM o GROUP BY k",
        "WINDOW_WITHOUT_PARTITION(RANK() OVER (ORDER BY SUM(v)))",
    ),
    "first": ("SELECT k, first(v) AS f FROM o GROUP BY k", "NONDETERMINISTIC(FIRST(v))"),
    "collect_list": ("SELECT k, collect_list(v) AS l FROM o GROUP BY k", "NONDETERMINISTIC(COLLECT_LIST(v))"),
    "collect_set": ("SELECT k, collect_set(v) AS l FROM o GROUP BY k", "NONDETERMINISTIC(COLLECT_SET(v))"),
    "first in a subquery": (
        "SELECT id, (SELECT first(name) FROM c WHERE c.k = o.k) AS f FROM o",
        "c",
        "NONDETERMINISTIC(FIRST(name))",
    ),
    "any_value of an input that did not change": (
        "SELECT o.id, x.n FROM o JOIN (SELECT k, any_value(name) AS n FROM c GROUP BY k) x ON x.k = o.k",
        "NONDETERMINISTIC(ANY_VALUE(name))",
    ),
    "a time window of a length that rows have": (
        "SELECT window(day, v) AS w, count(*) AS n FROM o GROUP BY window(day, v)",
        "UNSUPPORTED(WINDOW(day, v))",
    ),
    "a time window over a time window": (
        "SELECT window(window_time(w), '1 day') AS d FROM (SELECT window(day, '1 hour') AS w FROM o) AS o",
        "UNSUPPORTED(WINDOW(WINDOW_TIME(w), '1 day'))",
    ),
    "a session window": (
        "SELECT session_window(day, '1 day') AS w, count(*) AS n FROM o GROUP BY session_window(day, '1 day')",
        "NO_KEY(GROUP BY SESSION_WINDOW(day, '1 day'), of which the select list has nothing)",
    ),
    "a session window whose key is not shown": (
        "SELECT session_window.start AS s, count(*) AS n FROM o GROUP BY k, session_window(day, '1 day')",
        "NO_KEY(GROUP BY k, SESSION_WINDOW(day, '1 day'), of which the select list has nothing)",
    ),
    "a session window in a rollup": (
        "SELECT k, count(*) AS n FROM o GROUP BY ROLLUP (k, session_window(day, '1 day'))",
        "UNSUPPORTED(SESSION_WINDOW(day, '1 day'))",
    ),
    "NATURAL JOIN": ("SELECT o.id FROM o NATURAL JOIN c", "UNSUPPORTED(NATURAL JOIN c)"),
    "JOIN LATERAL in a derived table": (
        "SELECT y.id FROM (SELECT o.id, x.w FROM o JOIN LATERAL (SELECT max(w) AS w FROM d WHERE d.name = o.day) x) y",
        "UNSUPPORTED(LATERAL (SELECT MAX(w) AS w FROM d WHERE name = day))",
    ),
    "JOIN LATERAL of which alone columns are shown": (
        "SELECT x.w FROM o JOIN LATERAL (SELECT max(w) AS w FROM d WHERE d.name = o.day) x",
        "INEXACT_KEY(SELECT w FROM o)",
    ),
    "JOIN LATERAL that is the same for every row": (
        "SELECT o.id, x.w FROM o JOIN LATERAL (SELECT max(w) AS w FROM d) x",
        "d",
        "NO_KEY(SELECT MAX(w) AS w FROM d is the same for every row)",
    ),
    "JOIN LATERAL of the first rows": (
        "SELECT o.id, x.w FROM o JOIN LATERAL (SELECT w FROM d WHERE d.name = o.day ORDER BY w LIMIT 2) x",
        "d",
        "TOP_N(LIMIT 2)",
    ),
    "a join by what JOIN LATERAL gives": (
        "SELECT o.id FROM o JOIN LATERAL (SELECT w FROM d WHERE d.name = o.day) x LEFT JOIN c ON c.id = x.w",
        "d",
        "INEXACT_KEY(LEFT JOIN c ON id = w)",
    ),
    "a join in parentheses": (
        "SELECT o.id FROM (o JOIN c ON o.k = c.k)",
        "UNSUPPORTED((o AS o JOIN c AS c ON o.k = c.k))",
    ),
    "a subquery in ON of a full join": (
        "SELECT o.id FROM o FULL JOIN c ON o.k = c.k AND EXISTS (SELECT 1 FROM d WHERE d.w = c.id)",
        "UNSUPPORTED(a subquery in FULL JOIN c ON k = k AND EXISTS(SELECT 1 AS 1 FROM d WHER...)",
    ),
    "a subquery in ON alone": (
        "SELECT o.id FROM o LEFT JOIN c ON c.k IN (SELECT d.name FROM d)",
        "d",
        "UNSUPPORTED(a subquery in LEFT JOIN c ON k IN (SELECT name FROM d))",
    ),
    "a subquery in ON of an outer join, of which only the optional side is selected": (
        "SELECT c.id FROM o LEFT JOIN c ON o.k = c.k AND EXISTS (SELECT 1 FROM d WHERE d.w = c.id)",
        "d",
        "INEXACT_KEY(SELECT id FROM o LEFT JOIN c ON (k = k))",
    ),
    "rows of a function": ("SELECT o.id FROM o CROSS JOIN range(3) r", "UNSUPPORTED(RANGE(3))"),
    "VALUES whose rows are no tuples": (
        "SELECT o.id FROM o JOIN VALUES 1, 2 AS x(k) ON x.k = o.k",
        "UNSUPPORTED(VALUES (1), (2 AS x) AS _t0(k))",
    ),
    "VALUES in IN": ("SELECT id FROM o WHERE k IN (VALUES 1, 2)", "UNSUPPORTED(VALUES (1), (2))"),
    "columns of one name": (
        "SELECT a.id, b.id FROM o a JOIN o b ON a.k = b.k UNION ALL SELECT k, id FROM c",
        "UNSUPPORTED(columns that share a name, or have none: id, id)",
    ),
    "a generator of several columns": (
        "SELECT posexplode(arr) AS (p, e) FROM o",
        "UNSUPPORTED(columns that share a name, or have none: p, e)",
    ),
    "UNION BY NAME": ("SELECT k, id FROM o UNION ALL BY NAME SELECT id, k FROM c", "UNSUPPORTED(UNION BY NAME)"),
    "WITH RECURSIVE": (
        "WITH RECURSIVE t AS (SELECT k FROM o UNION ALL SELECT k + 1 AS k FROM t WHERE k < 3) SELECT k FROM t",
        "RECURSIVE",
    ),
    "IN of several columns": (
        "SELECT id FROM o WHERE (k, v) IN (SELECT k, id FROM c)",
        "c",
        "UNSUPPORTED((k, v) IN (SELECT k, id FROM c))",
    ),
    "IN over an aggregate": (
        "SELECT id FROM o WHERE v IN (SELECT max(c.id) FROM c WHERE c.k = o.k)",
        "c",
        "UNSUPPORTED(IN over the aggregate MAX(id))",
    ),
    "IN over grouping sets": (
        "SELECT id FROM o WHERE k NOT IN (SELECT c.k FROM c GROUP BY ROLLUP (c.k))",
        "c",
        "UNSUPPORTED(IN over GROUP BY ROLLUP (k))",
    ),
    "an aggregate IN a query": (
        "SELECT k, count(*) AS n FROM o GROUP BY k HAVING count(*) IN (SELECT w FROM d)",
        "d",
        "UNSUPPORTED(COUNT(*) IN a query)",
    ),
    "a set operation in an expression": (
        "SELECT id FROM o WHERE k IN (SELECT k FROM c UNION SELECT w FROM d)",
        "c",
        "UNSUPPORTED(SELECT k FROM c UNION SELECT w FROM d inside an expression)",
    ),
    "a window in a subquery": (
        "SELECT id FROM o WHERE EXISTS (SELECT rank() OVER (PARTITION BY c.id ORDER BY c.k) FROM c WHERE c.k = o.k)",
        "c",
        (
            "UNSUPPORTED(SELECT RANK() OVER (PARTITION BY id ORDER BY k) FROM c WH...: a window function inside an "
            "expression)"
        ),
    ),
    "a star inside of a function": (
        "SELECT xxhash64(*) AS h, count(*) AS n FROM o GROUP BY xxhash64(*)",
        "UNSUPPORTED(XXHASH64(*): a star inside of a function)",
    ),
    "an unknown column": (
        "SELECT nothing FROM o",
        "UNSUPPORTED(not understood: Column 'nothing' could not be resolved. Line: 1, Col: 14)",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_what_stands_in_the_way(name):
    query, *changed, refusal = REFUSALS[name]

    assert reason(query, *(changed or ["o"])) == refusal


def test_an_input_called_like_one_of_the_views_is_refused():
    schema = {"freshline_new_o": ("id",), "o": ("id",)}

    assert reason("SELECT id FROM o", "o", schema=schema).startswith("UNSUPPORTED(an input called freshline_new_o")


def test_the_primary_key_is_preferred_where_the_changed_rows_are_known():
    found = affected("SELECT id, k, v + 1 AS w FROM o", "o", primary_key=["ID"])

    assert found.columns == ("id",)


def test_a_primary_key_that_is_not_selected_is_not_used():
    assert affected("SELECT k, v FROM o", "o", primary_key=["id"]).columns == ("k", "v")


def test_grouping_columns_stand_above_the_primary_key():
    found = affected("SELECT k, sum(v) AS s FROM o GROUP BY k", "o", primary_key=["s"])

    assert found.columns == ("k",)


def test_a_query_whose_read_inputs_did_not_change_asks_for_nothing():
    assert affected("WITH t AS (SELECT * FROM c) SELECT id FROM o", "c").queries == ()


def test_stages_cannot_be_confused_with_an_input_of_their_name():
    schema = {**SCHEMA, "stage_0": ("k",)}
    query = "SELECT s.k, x.n FROM stage_0 s JOIN (SELECT k, count(*) AS n FROM o GROUP BY k) x ON x.k = s.k"
    found = find_affected(ResolvedQuery.of(query, schema), frozenset({"o"}))

    assert isinstance(found, Affected)
    assert shown(found)[-1] == "SELECT a1.k, a2.n FROM stage_0+ a1 JOIN 0_stage* a2 ON a2.k = a1.k"


def test_letter_case_and_depth_of_an_alias_do_not_matter():
    found = affected("SELECT O.ID FROM (SELECT o.Id, o.K FROM O o WHERE o.V = 1) o WHERE `o`.k > 0", "o")

    assert shown(found) == (
        "0_stage+ = SELECT a0.id, a0.k FROM o+ a0 WHERE a0.v = 1",
        "0_stage* = SELECT a0.id, a0.k FROM o* a0 WHERE (a0.v = 1)",
        "SELECT a1.id FROM 0_stage* a1 WHERE (a1.k > 0)",
    )


def test_qualify_is_written_as_qualify():
    # sqlglot writes a subquery in its place, in which the alias v hides the column v.
    found = affected("SELECT k, -v AS v FROM o QUALIFY rank() OVER (PARTITION BY k ORDER BY o.v) = 1", "o")

    assert found.whole.endswith("QUALIFY RANK() OVER (PARTITION BY `freshline_a0`.`k` ORDER BY `freshline_a0`.`v`) = 1")
