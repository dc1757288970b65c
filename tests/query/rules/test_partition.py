"""The input that a row's partition comes from, and the expression that gives it."""

from __future__ import annotations

import pytest

from freshline.query.query import read_query
from freshline.query.rules.partition import Origin, find_origin
from freshline.sql.query_parser import parse_query
from freshline.values.names import TableName
from freshline.values.reason import Reason


def origin_of(query, partitioned_by):
    return find_origin(read_query(parse_query(query, "t.sql", 1)), partitioned_by)


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
    assert origin_of(query, columns) == Origin(TableName.parse("s"), expressions)


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
    refused = origin_of(query, columns)

    assert isinstance(refused, Reason), refused
    assert refused.code in ("UNSUPPORTED", "WINDOW_WITHOUT_PARTITION")
    assert refused.about
