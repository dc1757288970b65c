"""What syntax tells about changes: which inputs give new rows for new rows, and where a row's partition comes from."""

from __future__ import annotations

import pytest

from freshline.declare.names import TableName
from freshline.declare.query_parser import parse_query
from freshline.plan.reason import Reason
from freshline.plan.shape import Origin, groups_by, read_shape


def shape_of(query, partitioned_by=()):
    return read_shape(parse_query(query, "t.sql", 1), partitioned_by)


def changes_of(query, *changed):
    """The names of the inputs to read as new rows only, or the reason against it."""
    found = shape_of(query).delta_inputs(frozenset(TableName.parse(name) for name in changed))
    return found if isinstance(found, Reason) else sorted(str(name) for name in found)


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
def test_what_is_not_new_rows_for_new_rows_is_refused_with_the_fragment(query, changed, about):
    refused = changes_of(query, *changed)

    assert isinstance(refused, Reason), refused
    assert refused.code == "UNSUPPORTED"
    assert about in refused.about


@pytest.mark.parametrize(
    "call", ["uuid()", "rand()", "rand(7)", "current_timestamp()", "now()", "current_date()", "current_date"]
)
def test_functions_that_give_another_value_each_time_are_seen(call):
    shape = shape_of(f"SELECT a, {call} AS x FROM s", ("a",))

    assert shape.volatile is not None
    assert shape.not_monotone.code == shape.no_origin.code == "NONDETERMINISTIC"


@pytest.mark.parametrize(
    "condition",
    [
        "ds < DATE'today'",
        "ts > TIMESTAMP'now'",
        "ts > TIMESTAMP_NTZ 'now'",
        "ds = CAST('yesterday' AS DATE)",
        "ds = 'Tomorrow'",
        "ds BETWEEN '2026-01-01' AND 'today'",
        "ds IN ('today', '2026-01-01')",
        "ts < to_timestamp('now UTC')",
        "ds = date(' today ')",
        "CASE ds WHEN 'today' THEN 1 END = 1",
        "datediff('today', ds) < 3",
    ],
)
def test_a_text_that_is_the_time_of_the_query_is_seen(condition):
    assert shape_of(f"SELECT a FROM s WHERE {condition}").volatile.startswith("the text")


@pytest.mark.parametrize(
    "text",
    [
        "'today' AS a",
        "CASE WHEN a > 1 THEN 'now' ELSE 'later' END AS a",
        "'now or never' = a AS b",
        "lower(status) IN ('now', 'later') AS b",
        "status LIKE 'now' AS b",
        "concat(a, 'today') AS b",
        "'now' || a AS b",
        "coalesce(a, 'today') AS b",
        "CAST(a AS STRING) = 'now' AS b",
    ],
)
def test_a_text_that_is_only_shown_is_a_text(text):
    assert shape_of(f"SELECT {text} FROM s").volatile is None


def test_encryption_begins_each_time_with_another_vector_unless_it_is_given_one():
    assert shape_of("SELECT aes_encrypt(a, k) AS x FROM s").volatile == "aes_encrypt"
    assert shape_of("SELECT aes_encrypt(a, k, 'CBC', 'PKCS', iv) AS x FROM s").volatile is None


@pytest.mark.parametrize("call", ["unix_timestamp(ts)", "to_date(ts)", "date_trunc('DAY', ts)", "coalesce(a, b)"])
def test_functions_of_their_arguments_are_not(call):
    assert shape_of(f"SELECT a, {call} AS x FROM s").volatile is None


@pytest.mark.parametrize(
    ("query", "columns", "expressions"),
    [
        ("SELECT d, n FROM s", ("d",), ("d",)),
        ("SELECT * FROM s", ("d",), ("d",)),
        ("SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM s GROUP BY CAST(ts AS DATE)", ("d",), ("CAST(ts AS DATE)",)),
        ("SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM s GROUP BY 1", ("d",), ("CAST(ts AS DATE)",)),
        ("SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM s GROUP BY d", ("d",), ("CAST(ts AS DATE)",)),
        ("SELECT x.d AS e FROM (SELECT CAST(ts AS DATE) AS d FROM s) x", ("e",), ("CAST(ts AS DATE)",)),
        ("WITH c AS (SELECT year(d) AS y, d FROM s) SELECT y, d FROM c", ("y", "d"), ("year(d)", "d")),
        ("SELECT s.d, r.n FROM s LEFT JOIN r ON s.k = r.k", ("d",), ("d",)),
        ("SELECT d, row_number() OVER (PARTITION BY d ORDER BY n) AS p FROM s", ("d",), ("d",)),
        # As it was written: what the parser prints of these is another expression.
        ("SELECT to_char(e.ts, 'yyyy-MM') AS m FROM s AS e", ("m",), ("to_char(ts, 'yyyy-MM')",)),
        ("SELECT floor(log10(n)) AS d FROM s", ("d",), ("floor(log10(n))",)),
        (
            "SELECT ts::date AS d, to_date(x, 'yyyyMMdd') AS e FROM s",
            ("d", "e"),
            ("ts::date", "to_date(x, 'yyyyMMdd')"),
        ),
        (
            "SELECT q.m || '-' AS m FROM (SELECT get_json_object(j, 'x') AS m FROM s) q",
            ("m",),
            ("(get_json_object(j, 'x')) || '-'",),
        ),
        ("SELECT upper(`o d`) AS d, `user` AS u FROM s", ("d", "u"), ("upper(`o d`)", "`user`")),
        ("WITH s AS (SELECT * FROM s), q AS (SELECT d FROM s) SELECT d FROM q", ("d",), ("d",)),
    ],
)
def test_a_partition_follows_from_an_expression_over_one_input(query, columns, expressions):
    assert shape_of(query, columns).origin == Origin(TableName.parse("s"), expressions)


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT count(*) AS n, max(d) AS d FROM s", ("d",)),
        ("SELECT k, max(d) AS d FROM s GROUP BY k", ("d",)),
        ("SELECT s.d FROM s FULL JOIN r ON s.k = r.k", ("d",)),
        ("SELECT r.d FROM s LEFT JOIN r ON s.k = r.k", ("d",)),
        ("SELECT s.d FROM s JOIN s AS o ON s.k = o.k", ("d",)),
        ("SELECT coalesce(s.d, r.d) AS d FROM s JOIN r ON s.k = r.k", ("d",)),
        ("SELECT d FROM s UNION ALL SELECT d FROM r", ("d",)),
        ("SELECT d FROM s LIMIT 3", ("d",)),
        ("SELECT d, n FROM s LATERAL VIEW explode(ds) v AS d", ("d",)),
        ("SELECT d, sum(n) AS n FROM s GROUP BY GROUPING SETS ((d), ())", ("d",)),
        ("SELECT d, row_number() OVER (ORDER BY n) AS p FROM s", ("d",)),
        ("SELECT d, row_number() OVER (PARTITION BY k ORDER BY n) AS p FROM s", ("d",)),
        ("WITH c AS (SELECT d, k FROM s) SELECT x.d FROM c x LEFT JOIN c y ON y.d = x.d - 1", ("d",)),
        ("WITH c AS (SELECT d, n FROM s) SELECT d, (SELECT max(n) FROM c) AS m FROM c", ("d",)),
        ("WITH c AS (SELECT d, n FROM s) SELECT d FROM c WHERE EXISTS (SELECT 1 FROM c e WHERE e.d < c.d)", ("d",)),
        ("SELECT id, metric AS d FROM s UNPIVOT (val FOR metric IN (cpu, mem))", ("d",)),
        ("WITH c(d, o) AS (SELECT o, d FROM s) SELECT d FROM c", ("d",)),
        ("SELECT d FROM s AS c(k, d, n)", ("d",)),
        # Windows over what only prints as the partition does.
        ("SELECT to_char(ts, 'yyyy-MM') AS m, sum(v) OVER (PARTITION BY to_char(ts, 'yyyy')) AS y FROM s", ("m",)),
        ("SELECT date_format(ts, 'MM') AS m, sum(v) OVER (PARTITION BY date_format(ts, 'mm')) AS y FROM s", ("m",)),
        ("SELECT date_format(ts, 'MM') AS m, sum(v) AS v FROM s GROUP BY date_format(ts, 'mm')", ("m",)),
    ],
)
def test_a_partition_that_follows_from_no_single_input_says_why(query, columns):
    shape = shape_of(query, columns)

    assert shape.origin is None
    assert shape.no_origin.code in ("UNSUPPORTED", "WINDOW_WITHOUT_PARTITION")
    assert shape.no_origin.about


@pytest.mark.parametrize(
    ("query", "unique"),
    [
        ("SELECT a, b, count(*) AS n FROM s GROUP BY a, b", {"a", "b"}),
        ("SELECT CAST(a AS DATE) AS d, count(*) AS n FROM s GROUP BY CAST(a AS DATE)", {"d"}),
        ("SELECT a AS x, count(*) AS n FROM s GROUP BY 1", {"x"}),
        ("SELECT DISTINCT a, b FROM s", {"a", "b"}),
        ("SELECT count(*) AS n FROM s GROUP BY a", None),
        ("SELECT a, count(*) AS n FROM s GROUP BY a WITH ROLLUP", None),
        ("SELECT a, explode(xs) AS x FROM s GROUP BY a, xs", None),
        ("SELECT a FROM s", None),
        ("SELECT k, explode(array_sort(collect_set(v))) AS v FROM s GROUP BY k", None),
        # Grouped by the input's column, of which the one of the result is made.
        ("SELECT lower(a) AS a, count(*) AS n FROM s GROUP BY a", None),
        ("SELECT a AS b, b AS a, count(*) AS n FROM s GROUP BY a, b", {"a", "b"}),
        ("SELECT s.a, count(*) AS n FROM s GROUP BY a", {"a"}),
        ("SELECT to_char(t, 'yyyy') AS y, count(*) AS n FROM s GROUP BY to_char(t, 'yyyy'), to_char(t, 'MM')", None),
        ("SELECT CAST(ts AS DATE) AS d, count(*) AS n FROM s GROUP BY d", {"d"}),
    ],
)
def test_the_outermost_grouping_makes_columns_unique(query, unique):
    found = groups_by(parse_query(query, "t.sql", 1))

    assert found == (None if unique is None else frozenset(unique))
