"""Rows that enter or leave as time passes are in no change set, so what is read around changes must not leave them out.

Frames, joins by intervals, sessions, as-of joins and patterns, each with temporal filters, while only the clock moves,
and while inputs change beside it.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.scenarios.test_time_spans import FRAME, NEAR, add
from tests.scenarios.test_windows import A_MICROSECOND

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
HEAD = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
# Rows of the last day that are not in the future.
TODAY = "ts > now() - INTERVAL '1' DAY AND ts <= now()"
SESSION = "PARTITION BY k, DESCRIPTOR(ts), INTERVAL '90' MINUTES)"
TABLES = {
    "framed": f"k, ts, id, sum(v) {FRAME} AS s FROM ev WHERE {TODAY}",
    "running": "k, id, ts, v, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN UNBOUNDED PRECEDING AND "
    f"INTERVAL '1' HOUR PRECEDING) AS s FROM ev WHERE {TODAY}",
    "later": f"k, s, count(*) AS n FROM (SELECT k, ts, sum(v) {FRAME} AS s FROM ev WHERE {TODAY}) AS q "
    "WHERE ts > now() - INTERVAL '12' HOURS GROUP BY k, s",
    "joined": f"e.id, e.ts, s.w FROM ev e JOIN seen s ON {NEAR} "
    "WHERE e.ts > now() - INTERVAL '1' DAY AND s.at <= now()",
    "keyed": f"e.id, s.id AS other, e.ts, s.w FROM ev e JOIN seen s ON {NEAR} WHERE s.at > now() - INTERVAL '12' HOURS",
    "left_joined": "e.id, e.ts, s.w FROM ev e LEFT JOIN (SELECT * FROM seen WHERE at <= now() - INTERVAL '1' HOUR) s "
    f"ON {NEAR}",
    "without": f"e.id, e.ts FROM (SELECT * FROM ev WHERE {TODAY}) e LEFT ANTI JOIN "
    f"(SELECT * FROM seen WHERE at <= now()) s ON {NEAR}",
    "visit": f"k, window_start, window_end, sum(v) AS s FROM SESSION(TABLE ev {SESSION} "
    "WHERE window_end > now() - INTERVAL '1' DAY GROUP BY k, window_start, window_end",
    "visit_until_now": "k, window_start, window_end, count(*) AS n FROM "
    f"SESSION((SELECT k, ts, v FROM ev WHERE {TODAY}) {SESSION} GROUP BY k, window_start, window_end",
    "hopped": "window_start, count(DISTINCT v) AS n FROM HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR, "
    "INTERVAL '3' HOURS) WHERE window_end <= now() GROUP BY window_start",
    "met": "e.id, e.ts, r.w FROM ev e LEFT JOIN seen FOR SYSTEM_TIME AS OF e.ts AS r ON r.k = e.k "
    "WHERE e.ts > now() - INTERVAL '1' DAY",
    "rising": f"* FROM (SELECT k, id, v, ts FROM ev WHERE {TODAY}) MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, id "
    "MEASURES FIRST(A.ts) AS began, LAST(B.v) AS most ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW "
    "PATTERN (A B+) WITHIN INTERVAL '6' HOURS DEFINE B AS B.v > PREV(B.v))",
}
# One table of each kind, for a run that is to be short.
FEW = ("framed", "keyed", "left_joined", "visit_until_now", "rising")
Row = dict[str, Any]


def declare(lab: Any, name: str) -> None:
    key = "(PRIMARY KEY (id, other)) " if name == "keyed" else ""
    lab.declare(f"CREATE MATERIALIZED TABLE {name} {key}{HEAD} {TABLES[name]}")


def drawn_time(chance: random.Random, now: datetime) -> datetime | None:
    """Times at the bounds of filters as the clock moves by hours, a microsecond beside them, and none."""
    if chance.random() < 0.08:
        return None
    return now + HOUR * chance.randint(-40, 30) + A_MICROSECOND * chance.choice((-1, 0, 0, 1))


def framed(rows: list[Row], now: datetime) -> Counter[tuple[Any, ...]]:
    """The rows of `framed` by definition."""
    there = [row for row in rows if row["ts"] is not None and now - DAY < row["ts"] <= now]
    return Counter(
        (row["id"], sum(other["v"] for other in there if other["k"] == row["k"] and _sees(row["ts"], other["ts"])))
        for row in there
    )


def _sees(at: datetime, other: datetime) -> bool:
    return at - 10 * HOUR <= other <= at + HOUR


@pytest.mark.long
@pytest.mark.parametrize(("turns", "names"), [(20, tuple(TABLES))])
def test_rows_that_cross_are_seen_from_rows_that_stay(lab: Any, turns: int, names: tuple[str, ...]) -> None:
    chance = random.Random(turns)
    lab.source("ev", "id BIGINT, k STRING, v INT, ts TIMESTAMP")
    lab.source("seen", "id BIGINT, k STRING, w INT, at TIMESTAMP", watermark="at")
    for name in names:
        declare(lab, name)
    number = 0
    taken: set[object] = set()
    written: Counter[str] = Counter()
    for turn in range(turns):
        lab.clock.advance(hours=chance.randint(5, 9) if turn else 0)
        # In every other turn nothing happens but that time passes.
        for table in ("ev", "seen") if turn % 2 == 0 else ():
            rows = []
            for _ in range(60 if turn == 0 else 4):
                number += 1
                key, at = chance.choice(("'a'", "'b'", "NULL")), drawn_time(chance, lab.clock())
                if (table, key, at) not in taken:
                    taken.add((table, key, at))
                    rows.append((number, key, chance.randint(0, 3), at))
            add(lab, table, rows)
        if turn and turn % 2 == 0:
            lab.sql(f"DELETE FROM ev WHERE pmod(id, 9) = {turn % 9}")
            lab.sql(f"UPDATE ev SET ts = ts - INTERVAL '2' HOURS WHERE pmod(id, 8) = {turn % 8}")
            lab.sql(f"UPDATE seen SET w = w + 1, at = at + INTERVAL '1' MINUTE WHERE pmod(id, 5) = {turn % 5}")
        for name in names:
            outcome = lab.refresh(name, strategy="keys" if turn else None)
            assert outcome.error is None, (name, outcome)
            assert outcome.clock == lab.clock()
            if outcome.strategy == "noop":
                # The receipt has the clock of before, so the rows of now are computed anew.
                before = Counter(map(str, lab.rows(name)))
                lab.refresh(name, full=True)
                assert Counter(map(str, lab.rows(name))) == before, (name, turn)
            assert lab.receipt(name).clock == lab.clock()
            assert lab.diff(name) == [], (name, turn)
            if turn % 2:
                written[name] += outcome.rows_out
        expected = framed(lab.rows("ev"), lab.clock())
        assert Counter((row["id"], row["s"]) for row in lab.rows("framed")) == expected
    # Time alone has moved rows of each.
    assert set(+written) == set(names), written


def test_files_of_other_times_are_not_read_where_only_time_passes(lab: Any) -> None:
    """The spans stay: keys have those of rows that cross, and inputs are read around these."""
    lab.source("ev", "id BIGINT, k STRING, v INT, ts TIMESTAMP")
    lab.source("seen", "id BIGINT, k STRING, w INT, at TIMESTAMP")
    for name in ("framed", "keyed", "visit"):
        declare(lab, name)
    shown = {name: str(lab.explain(name)) for name in ("framed", "keyed", "visit")}
    passes = {name: text[text.index("time passes: keys") :] for name, text in shown.items()}
    assert "reads: ev.ts from 10 hours before ts to 1 hour after ts of affected keys" in passes["framed"]
    assert "reads: ev.ts at ts of affected keys" in passes["keyed"]
    assert "reads: seen.at within 2 hours of ts of affected keys" in passes["keyed"]
    assert "near" not in passes["visit"]
