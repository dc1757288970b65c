"""Which times of an input decide whether rows enter or leave, by the text of a query."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from freshline.query.clock import ClockSpan
from freshline.query.query import Query
from freshline.query.rules.crossing import Crossing, find_crossings
from freshline.values.names import TableName

EV, NAME = TableName.parse("ev"), TableName.parse("name")
HOUR = timedelta(hours=1)
NOW = "freshline_clock()"
AT = datetime(2026, 3, 31, 12, tzinfo=UTC)


def crossings(query: str) -> tuple[Crossing, ...] | None:
    return find_crossings(Query(query, (("ev", EV), ("name", NAME))))


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        (f"SELECT id FROM ev WHERE ts > {NOW}", ["ev.ts passes now()"]),
        (
            f"SELECT id FROM ev AS e WHERE {NOW} BETWEEN e.a AND e.b",
            ["ev.a passes now()", "ev.b passes now()"],
        ),
        (
            f"SELECT id FROM (SELECT id, ts AS at FROM ev) AS q WHERE at BETWEEN {NOW} - INTERVAL '1' DAY AND {NOW}",
            ["ev.ts passes now() - INTERVAL '1' DAY", "ev.ts passes now()"],
        ),
        (
            f"SELECT e.id FROM ev AS e JOIN name AS n ON n.k = e.k WHERE n.at <= {NOW} AND e.ts > {NOW}",
            ["ev.ts passes now()", "name.at passes now()"],
        ),
        (f"WITH q AS (SELECT ts, count(*) AS n FROM ev GROUP BY ts) SELECT * FROM q WHERE ts > {NOW}",
         ["ev.ts passes now()"]),
    ],
)  # fmt: skip
def test_a_row_crosses_where_a_moment_passes_its_time(query, shown):
    found = crossings(query)
    assert found is not None
    assert sorted(map(str, found)) == sorted(shown)


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT id FROM ev WHERE ts + INTERVAL '1' DAY > {NOW}",
        f"SELECT id FROM ev WHERE ts > date_trunc('MONTH', {NOW})",
        f"SELECT id FROM ev WHERE ts > add_months({NOW}, 1)",
        f"SELECT * FROM (SELECT k, max(ts) AS ts FROM ev GROUP BY k) AS q WHERE ts > {NOW}",
        f"SELECT id FROM ev, name WHERE ts > {NOW}",
        f"SELECT * FROM (SELECT ts FROM ev UNION ALL SELECT at FROM name) AS q WHERE ts > {NOW}",
        # The moment passes a literal, whatever rows there are.
        f"SELECT id FROM ev WHERE {NOW} BETWEEN TIMESTAMP'2026-12-01' AND ts",
        f"SELECT id FROM ev WHERE TIMESTAMP'2026-12-01' BETWEEN ts AND {NOW}",
        f"SELECT id FROM ev WHERE ts > {NOW} OR {NOW} > TIMESTAMP'2026-12-01'",
        f"SELECT id FROM ev WHERE {NOW} > {NOW} - INTERVAL '1' DAY AND ts > {NOW}",
        # A field of a struct is no column of the table that has the struct's name.
        f"SELECT id FROM ev WHERE ev.ev.ts > {NOW}",
        # The second column of ev goes by the name of another one.
        f"SELECT a FROM ev AS e(a, ts) WHERE ts > {NOW}",
    ],
)
def test_rows_are_read_where_a_filter_is_not_understood(query):
    assert crossings(query) is None


@pytest.mark.parametrize(
    ("moment", "ends"),
    [
        (NOW, (AT, AT + HOUR)),
        (f"{NOW} - INTERVAL '2' HOURS + INTERVAL '1 day 1 hour'", (AT + 23 * HOUR, AT + 24 * HOUR)),
        # A month has 28 to 31 days.
        (f"{NOW} - INTERVAL '1' MONTH", (AT - timedelta(days=31), AT + HOUR - timedelta(days=28))),
        # The day stays the same for an hour.
        (f"CAST({NOW} AS DATE) - 7", None),
        (f"CAST(CAST({NOW} AS DATE) AS TIMESTAMP) - INTERVAL '1' HOUR", None),
        (f"CAST({NOW} + INTERVAL '12' HOURS AS DATE)", (AT + 12 * HOUR,) * 2),
    ],
)
def test_rows_that_cross_lie_between_two_moments(moment, ends):
    found = crossings(f"SELECT id FROM ev WHERE ts > {moment}")
    assert found is not None
    between = found[0].between(ClockSpan(AT - (HOUR / 60 if ends and ends[0] == ends[1] else 0 * HOUR), AT + HOUR))
    if ends and ends[0] == ends[1]:
        assert between == (micros(ends[0]) - 24 * 3_600_000_000, micros(ends[1]))
    else:
        assert between == (None if ends is None else tuple(map(micros, ends)))
