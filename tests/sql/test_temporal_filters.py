"""Only a comparison of rows with a moment, in a condition of WHERE that must be true, is a temporal filter."""

from __future__ import annotations

import pytest

from freshline.query.query import read_query
from freshline.sql.query_parser import parse_query

KEPT = {
    "ts > now()": "now()",
    "ts >= current_timestamp() - INTERVAL '7' DAYS AND v = 1": "current_timestamp()",
    "(v = 1) AND ((now ( ) - INTERVAL 1 HOUR - INTERVAL 2 MINUTES < ts))": "now ( )",
    "current_date - 30 <= day": "current_date",
    "day = date_sub(curdate(), 1)": "curdate()",
    "at > LocalTimestamp() - INTERVAL '1' MONTH": "LocalTimestamp()",
    "ts + INTERVAL '1' DAY > date_trunc('DAY', now())": "now()",
    "now() BETWEEN ts AND coalesce(until, ts)": "now()",
    "ts BETWEEN now() - INTERVAL 1 DAY AND TIMESTAMP '2030-01-01'": "now()",
    "CAST(now() AS DATE) > day": "now()",
    "a.`now` = 1 AND ts > now()": "now()",
}
NOT_KEPT = [
    "ts > now() OR v = 1",
    "NOT (ts > now())",
    "ts <> now()",
    "now() > current_timestamp()",
    "now() > TIMESTAMP '2026-01-01'",
    "ts > now() + v * INTERVAL '1' DAY",
    "dayofweek(current_date()) = v",
    "datediff(now(), ts) < 3",
    "ts IN (now())",
    "ts > (SELECT max(ts) FROM b) AND ts > now() - (SELECT i FROM c)",
    "v IN (SELECT v FROM b WHERE ts > now())",
    "CASE WHEN ts > now() THEN true END",
    "`current_date` = 1 AND day > current_date",
]


@pytest.mark.parametrize("condition", KEPT)
def test_a_comparison_with_a_moment_is_a_temporal_filter(condition: str) -> None:
    query = parse_query(f"SELECT a.id FROM a WHERE {condition}", "a.sql", 1)

    assert {query.text[call.start : call.end] for call in query.clock_calls} == {KEPT[condition]}
    assert read_query(query).volatile is None
    assert "freshline_clock()" in read_query(query).text
    # The declaration stays what it is.
    assert query.render() == f"SELECT a.id FROM `a` AS `a` WHERE {condition}"


@pytest.mark.parametrize("condition", NOT_KEPT)
def test_other_uses_of_the_time_are_none(condition: str) -> None:
    query = parse_query(f"SELECT a.id FROM a WHERE {condition}", "a.sql", 1)

    assert query.clock_calls == ()
    assert read_query(query).volatile is not None


@pytest.mark.parametrize(
    "query",
    [
        "SELECT now() AS n FROM a WHERE ts > now()",
        "SELECT id FROM a JOIN b ON a.id = b.id AND b.ts > now()",
        "SELECT k, max(ts) AS m FROM a GROUP BY k HAVING max(ts) > now()",
        "SELECT id FROM a WHERE ts > now() ORDER BY current_date()",
        "SELECT id, (SELECT count(*) FROM b WHERE b.ts > now()) AS n FROM a",
        "SELECT id FROM a LEFT JOIN d FOR SYSTEM_TIME AS OF PROCTIME() ON a.k = d.k WHERE ts > now()",
    ],
)
def test_a_query_that_has_the_time_elsewhere_too_has_no_temporal_filters(query: str) -> None:
    assert parse_query(query, "a.sql", 1).clock_calls == ()


def test_filters_stand_in_queries_in_from_and_with_and_in_sides_of_a_union() -> None:
    query = parse_query(
        "WITH x AS (SELECT * FROM a WHERE ts > now()) "
        "SELECT id FROM x JOIN (SELECT id FROM b WHERE day > current_date()) AS y USING (id) "
        "UNION ALL SELECT id FROM c WHERE ts <= now()",
        "a.sql",
        1,
    )

    assert len(query.clock_calls) == 3
