"""Tables whose refreshes read and write only a span of time are as their queries after any change."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from tests.scenarios.test_windows import A_MICROSECOND, NOON, sql_time

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HEAD = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
NEAR = "s.k = e.k AND s.at BETWEEN e.ts - INTERVAL '2' HOURS AND e.ts + INTERVAL '2' HOURS"
FRAME = "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN INTERVAL '10' HOURS PRECEDING AND INTERVAL '1' HOUR FOLLOWING)"
# Tables of which each change needs the rows around its time alone, of both inputs.
SPANS = {
    "framed": f"ts, id, k, sum(v) {FRAME} AS s FROM ev",
    "widest": f"k, ts, id, sum(v) {FRAME} AS s, count(*) OVER (PARTITION BY k ORDER BY unix_micros(ts) DESC "
    "RANGE BETWEEN 3600000000 FOLLOWING AND 7200000000 FOLLOWING) AS n FROM (SELECT * FROM ev WHERE v >= 0)",
    "inner_joined": f"e.id, e.ts, s.w FROM ev e JOIN seen s ON {NEAR}",
    "left_joined": f"e.id, e.ts, s.w FROM ev e LEFT JOIN seen s ON {NEAR}",
    "right_joined": "e.id, s.at, s.w FROM ev e RIGHT JOIN seen s ON e.k = s.k "
    "AND e.ts > s.at - INTERVAL '2' HOURS AND e.ts - INTERVAL '1' HOUR <= s.at",
    "full_joined": f"e.id, e.ts, s.w, s.at FROM ev e FULL JOIN seen s ON {NEAR}",
    "with_some": f"e.id, e.ts FROM ev e LEFT SEMI JOIN seen s ON {NEAR}",
    "without": f"e.id, e.ts FROM ev e LEFT ANTI JOIN seen s ON {NEAR}",
    "itself": "e.id, e.ts, count(s.id) AS n FROM ev e LEFT JOIN ev s ON s.k = e.k "
    "AND s.ts BETWEEN e.ts - INTERVAL '2' HOURS AND e.ts GROUP BY e.id, e.ts",
    "hopped": "window_start, count(DISTINCT v) AS n FROM HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR, "
    "INTERVAL '3' HOURS) GROUP BY window_start",
    "by_spark": "window.end AS until, count(DISTINCT v) AS n FROM ev GROUP BY window(ts, '3 hours', '1 hour')",
    "days": "window_start, k, count(DISTINCT v) AS n FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, "
    "TIME_ZONE => 'America/New_York') GROUP BY window_start, k",
    "keyed": f"e.id, s.id AS other, e.ts, s.w FROM ev e JOIN seen s ON {NEAR}",
}
MET = "e.id, e.ts, r.w FROM ev e LEFT JOIN seen FOR SYSTEM_TIME AS OF e.ts AS r ON r.k = e.k"


def declare(lab, name: str, query: str) -> None:
    key = "(PRIMARY KEY (id, other)) " if name == "keyed" else ""
    lab.declare(f"CREATE MATERIALIZED TABLE {name} {key}{HEAD} {query}")


@pytest.fixture
def inputs(lab):
    lab.source("ev", "id BIGINT, k STRING, v INT, ts TIMESTAMP")
    lab.source("seen", "id BIGINT, k STRING, w INT, at TIMESTAMP", watermark="at")
    return lab


def add(lab, table: str, rows) -> None:
    values = ", ".join(f"({number}, {key}, {value}, {sql_time(at)})" for number, key, value, at in rows)
    lab.sql(f"INSERT INTO {table} VALUES {values}")


RANDOM = {
    name: SPANS[name] for name in ("framed", "widest", "left_joined", "right_joined", "full_joined", "itself")
} | {
    "running": "k, id, ts, v, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND "
    "INTERVAL '1' HOUR PRECEDING) AS s FROM ev",
    "open_behind": "k, id, ts, v, count(v) OVER w AS n, max(v) OVER (PARTITION BY k, v ORDER BY ts DESC RANGE "
    "BETWEEN CURRENT ROW AND INTERVAL '1' HOUR FOLLOWING) AS g FROM ev WINDOW w AS (PARTITION BY k ORDER BY ts DESC "
    "NULLS FIRST RANGE BETWEEN INTERVAL '1' HOUR PRECEDING AND UNBOUNDED FOLLOWING)",
    "later": "k, ts, s, v + 1 AS v FROM (SELECT k, ts, v, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN "
    "INTERVAL '1' HOUR PRECEDING AND CURRENT ROW) AS s FROM ev) WHERE s > 1",
    "keyed": SPANS["keyed"],
    "both": "a.window_start, a.n, b.m FROM (SELECT window_start, count(DISTINCT v) AS n FROM TUMBLE(TABLE ev, "
    "DESCRIPTOR(ts), INTERVAL '1' HOUR) GROUP BY window_start) a JOIN (SELECT window_start, max(w) AS m FROM "
    "TUMBLE(TABLE seen, DESCRIPTOR(at), INTERVAL '1' HOUR) GROUP BY window_start) b ON a.window_start = b.window_start",
    "months": "window_start, sum(v) AS s, max(v) AS g FROM HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' MONTH, "
    "INTERVAL '2' MONTHS, TIME_ZONE => 'Europe/Berlin') GROUP BY window_start",
    "shifted": "CAST(ts AS DATE) + 1 AS day, max(v) AS g FROM ev GROUP BY CAST(ts AS DATE) + 1",
    "met": MET,
}


def drawn_time(chance: random.Random) -> datetime | None:
    """Times at the ends of frames and intervals, a microsecond beside them, months ago, before 1970, and none."""
    if chance.random() < 0.1:
        return None
    base = chance.choice((NOON, NOON, NOON, NOON - 31 * DAY, datetime(1969, 12, 31, 23, tzinfo=UTC)))
    return base + HOUR * chance.randint(-12, 12) + A_MICROSECOND * chance.choice((-1, 0, 0, 0, 1))


# A frame of rows on both sides of the others, one beside other windows, joins, and filters over frames.
FEW = ("framed", "full_joined", "open_behind", "later", "keyed", "met")


@pytest.mark.long
@pytest.mark.parametrize(
    ("rounds", "names"),
    [pytest.param(2, FEW, id="few"), pytest.param(40, tuple(RANDOM), id="many", marks=pytest.mark.long)],
)
def test_random_changes_at_the_ends_of_spans(inputs, rounds, names):
    """Versions of one key have times of their own, so that an as-of join has one to match."""
    chance = random.Random(rounds)
    for name in names:
        declare(inputs, name, RANDOM[name])
    number = 0
    taken: set[object] = set()
    for turn in range(rounds):
        for table in ("ev", "seen"):
            rows = []
            for _ in range(12 if turn == 0 else chance.randint(1, 3)):
                number += 1
                key, at = chance.choice(("'a'", "'b'", "NULL")), drawn_time(chance)
                if table == "seen" and (key, at) in taken:
                    continue
                taken.add((key, at) if table == "seen" else number)
                rows.append((number, key, chance.randint(0, 3), at))
            if rows and (turn == 0 or chance.random() < 0.7):
                add(inputs, table, rows)
        if turn:
            for statement in chance.sample(
                [
                    f"DELETE FROM ev WHERE pmod(id, 9) = {turn % 9}",
                    f"UPDATE ev SET v = v + 1 WHERE pmod(id, 7) = {turn % 7}",
                    f"UPDATE ev SET ts = ts - INTERVAL '1' HOUR WHERE pmod(id, 8) = {turn % 8}",
                    f"UPDATE ev SET ts = NULL WHERE pmod(id, 11) = {turn % 11}",
                    f"DELETE FROM seen WHERE pmod(id, 9) = {turn % 9}",
                    f"UPDATE seen SET w = w + 1 WHERE pmod(id, 5) = {turn % 5}",
                ],
                2,
            ):
                inputs.sql(statement)
        for name in names:
            outcome = inputs.refresh(name, strategy="keys" if turn else None)
            assert outcome.error is None, (name, outcome)
            assert inputs.diff(name) == [], (name, turn)
