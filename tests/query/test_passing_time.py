"""Temporal filters: as time passes, the keys and the signed rows that are found cover every change of the result.

Between two instants rows enter and leave, and others change. A failure names its seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import timedelta

import duckdb
import pytest

from freshline.query.clock import ClockSpan
from freshline.query.query import read_query
from freshline.sql.query_parser import parse_query
from tests.query.test_time_spans import NOON, RELATIONS, TYPES, Narrow, fill

HALF_HOUR = timedelta(minutes=30)
RECENT = "e.ts > now() - INTERVAL '1' HOUR"
SUMS = "SELECT e.k, count(*) AS n, count(s.w) AS c, sum(s.w) AS s"

# Counts and sums, which follow from signed rows.
GROUPS = {
    "one": "SELECT k, count(*) AS n, sum(v) AS s FROM ev WHERE ts > now() - INTERVAL '2' HOURS GROUP BY k",
    "two": "SELECT k, count(*) AS n, sum(v) AS s FROM ev "
    "WHERE ts > now() - INTERVAL '1' HOUR AND ts <= now() GROUP BY k",
    "three": "SELECT k, count(*) AS n, sum(v) AS s FROM ev WHERE ts > now() - INTERVAL '3' HOURS AND ts <= now() "
    "AND coalesce(ts, TIMESTAMP'2026-01-01 12:00:00') > now() - INTERVAL '90' MINUTES AND v < 3 GROUP BY k",
    "between": "SELECT k, count(*) AS n, sum(v) AS s FROM ev "
    "WHERE ts BETWEEN now() - INTERVAL '1' HOUR AND now() + INTERVAL '1' HOUR GROUP BY k",
    "days": "SELECT k, count(*) AS n, sum(v) AS s FROM ev "
    "WHERE CAST(ts AS DATE) >= current_date() AND ts <= now() GROUP BY k",
    "a join": f"{SUMS} FROM ev e JOIN seen s ON s.k = e.k WHERE {RECENT} AND s.fell < now() GROUP BY e.k",
    "between of two": f"{SUMS} FROM ev e JOIN seen s ON s.k = e.k WHERE now() BETWEEN e.ts AND s.fell GROUP BY e.k",
    "inside and outside": f"{SUMS} FROM (SELECT * FROM ev e WHERE {RECENT} AND e.ts < now()) e "
    "JOIN seen s ON s.k = e.k WHERE s.fell < now() AND s.fell >= now() - INTERVAL '2' HOURS GROUP BY e.k",
    "twice": f"WITH x AS (SELECT * FROM ev e WHERE {RECENT} AND e.ts <= now()) "
    "SELECT a.k, count(*) AS n, sum(b.v) AS s FROM x a JOIN x b ON a.k = b.k GROUP BY a.k",
    "a union": f"SELECT k, count(*) AS n, sum(v) AS s FROM (SELECT k, v FROM ev e WHERE {RECENT} AND ts < now() "
    "UNION ALL SELECT k, w AS v FROM seen WHERE fell <= now() AND fell > now() - INTERVAL '1' HOUR) GROUP BY k",
}


def analysed(query: str) -> str:
    """A declared query as rules read it."""
    declared = parse_query(query, "t", 1)
    assert declared.clock_calls, "no temporal filter"
    return read_query(declared).text


def times(seeds: Iterable[int]) -> Iterator[tuple[int, Narrow, ClockSpan]]:
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE MACRO timestamp_micros(x) AS make_timestamp(x)")
    for seed in seeds:
        chance = random.Random(seed)
        fill(connection, chance)
        if seed % 3 == 0:
            # Nothing but the time moves.
            for name in RELATIONS:
                connection.execute(f"CREATE OR REPLACE TABLE new_{name} AS FROM old_{name}")
        before = NOON + HALF_HOUR * chance.randint(-6, 6) + timedelta(microseconds=chance.choice((-1, 0, 1)))
        after = before + (timedelta(days=40) if chance.random() < 0.1 else HALF_HOUR * chance.randint(0, 6))
        yield seed, Narrow(connection, RELATIONS, TYPES), ClockSpan(before, after)


@pytest.mark.seconds
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, 300), marks=pytest.mark.long)], ids=["few", "many"])
@pytest.mark.parametrize("name", GROUPS)
def test_sums_follow_from_the_rows_that_enter_and_leave(name, seeds):
    query = analysed(GROUPS[name])
    for seed, tables, clock in times(seeds):
        wrong = tables.look_at_groups(query, clock)
        assert wrong is not None, "not followed"
        assert wrong == {}, f"seed {seed}, {clock}"


def test_a_row_that_enters_and_leaves_between_two_refreshes_is_not_taken_away():
    """It is let through at neither instant, though each of the two filters lets it through at one."""
    connection = duckdb.connect()
    connection.execute("CREATE MACRO timestamp_micros(x) AS make_timestamp(x)")
    for time, minutes in (("old", [-30]), ("new", [-30, 60, 150])):
        connection.execute(f"CREATE TABLE {time}_ev (id BIGINT, k VARCHAR, v INTEGER, ts TIMESTAMP)")
        for number, minute in enumerate(minutes):
            at = (NOON + timedelta(minutes=minute)).replace(tzinfo=None)
            connection.execute(f"INSERT INTO {time}_ev VALUES (?, 'a', 1, ?)", [number, at])
    tables = Narrow(connection, {"ev": RELATIONS["ev"]}, TYPES)

    # One row left, one entered, and that of 13:00 did both.
    wrong = tables.look_at_groups(analysed(GROUPS["two"]), ClockSpan(NOON, NOON + timedelta(hours=3)))

    assert wrong == {}
