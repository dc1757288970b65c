"""Of a key that changes, only the rows near the change are read again, and the table is what all rows give."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from freshline.compute import interval_rows
from tests.scenarios.tables import fill, follow
from tests.scenarios.test_windows import (
    EPOCH,
    GAP,
    MINUTE,
    NOON,
    files_by_day,
    follow_without,
    in_utc,
    sessions_of,
    sql_time,
)

EVENTS = "id BIGINT, k STRING, v INT, ts TIMESTAMP"
HEAD = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
SESSION = "SESSION(TABLE ev PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTES)"

SESSIONS = {
    # The bounds of all sessions are in the table.
    "visit": (
        f"k, window_start, window_end, count(*) AS n, sum(v) AS s FROM {SESSION} GROUP BY k, window_start, window_end"
    ),
    "visited": f"id, window_time, k AS who, window_start FROM TABLE({SESSION}) AS w",
    "by_spark": (
        "session_window.start AS window_start, k, session_window.end AS window_end, count(*) AS n, sum(v) AS s FROM ev "
        "GROUP BY k, session_window(ts, '10 minutes')"
    ),
    "through_a_query": (
        "window_end, n + 1 AS m, k, window_start FROM (SELECT k, window_start, window_end, count(DISTINCT v) AS n FROM "
        f"{SESSION} GROUP BY k, window_start, window_end) AS q"
    ),
    # All rows are of one key.
    "of_all": (
        "window_start, window_end, count(*) AS n, sum(v) AS s FROM SESSION(TABLE ev, DESCRIPTOR(ts), "
        "INTERVAL '10' MINUTES) GROUP BY window_start, window_end"
    ),
    # They are not, so the rows of the key are read, and those of the sessions computed.
    "long_visit": f"k, window_start, count(*) AS n FROM {SESSION} GROUP BY k, window_start HAVING count(*) > 1",
    "large": f"id, k, window_end FROM {SESSION} WHERE v > 2",
    "few": (
        "k, window_start, window_end, sum(v) AS s FROM SESSION((SELECT k, ts, v FROM ev WHERE v <> 1) PARTITION BY k, "
        "DESCRIPTOR(ts), INTERVAL '10' MINUTES) GROUP BY k, window_start, window_end"
    ),
    "named": (
        f"w.k, w.window_start, w.window_end, n.name, count(*) AS n FROM {SESSION} AS w LEFT JOIN name AS n "
        "ON n.k = w.k GROUP BY w.k, w.window_start, w.window_end, n.name"
    ),
}  # fmt: skip
FOLLOWED = ("visit", "of_all", "long_visit")
# Rows of several sessions are in one row, so all rows of the key are computed.
WHOLE = {
    "visits": f"k, count(DISTINCT window_start) AS n FROM {SESSION} GROUP BY k",
    "ranked": (
        f"k, window_start, n, rank() OVER (PARTITION BY k ORDER BY n DESC, window_start) AS place FROM (SELECT k, "
        f"window_start, count(*) AS n FROM {SESSION} GROUP BY k, window_start) AS q"
    ),
}


@pytest.fixture
def events(lab):
    lab.source("ev", EVENTS)
    fill(lab, "name", "k STRING, name STRING", "('a', 'Ann'), ('b', 'Bob')")
    return lab


def drawn_rows(chance: random.Random, first: int, count: int) -> str:
    """Rows at multiples of half a gap, and a microsecond beside them, so that many have exactly a gap between them."""
    rows = []
    for number in range(count):
        at = NOON if chance.random() < 0.8 else EPOCH
        at += GAP / 2 * chance.randint(-30, 30) + timedelta(microseconds=chance.choice((-1, 0, 0, 0, 1)))
        key = chance.choice(("'a'", "'b'", "NULL"))
        time = "NULL" if chance.random() < 0.05 else sql_time(at)
        rows.append(f"({first + number}, {key}, {chance.randint(0, 4)}, CAST({time} AS TIMESTAMP))")
    return ", ".join(rows)


@pytest.mark.parametrize(
    ("rounds", "more"),
    [
        pytest.param(1, (*FOLLOWED, "through_a_query", "named", "visits"), id="few"),
        pytest.param(60, (*SESSIONS, *WHOLE), id="many", marks=pytest.mark.long),
    ],
)
def test_sessions_follow_random_changes(events, rounds, more):
    chance = random.Random(23)
    sessions, whole = ({name: query for name, query in each.items() if name in more} for each in (SESSIONS, WHOLE))
    events.sql(f"INSERT INTO ev VALUES {drawn_rows(chance, 1, 30)}")
    for name, query in {**sessions, **whole}.items():
        events.declare(f"CREATE MATERIALIZED TABLE {name} {HEAD} {query}")
    events.declare(
        "CREATE MATERIALIZED TABLE keyed (PRIMARY KEY (k, window_start), CONSTRAINT c EXPECT (n > 1) ON VIOLATION DROP "
        f"ROW) {HEAD} k, window_start, window_end, count(*) AS n FROM {SESSION} WHERE k IS NOT NULL "
        "GROUP BY k, window_start, window_end"
    )
    events.refresh_all()
    for number in range(rounds):
        changes = [
            f"DELETE FROM ev WHERE pmod(id, 11) = {number % 11}",
            f"UPDATE ev SET ts = ts + INTERVAL '5' MINUTES WHERE pmod(id, 9) = {number % 9}",
            f"UPDATE ev SET k = {chance.choice(('NULL', repr('a'), repr('b')))} WHERE pmod(id, 13) = {number % 13}",
            "UPDATE ev SET v = v + 1 WHERE pmod(id, 4) = 0",
        ]
        events.sql(f"INSERT INTO ev VALUES {drawn_rows(chance, 100 * number + 100, chance.randint(1, 4))}")
        events.sql(changes[(number + 1) % len(changes)])
        # Each of the others follows the changes of all rounds at once.
        names = FOLLOWED if number < rounds - 1 else (*sessions, *whole, "keyed")
        for name in names:
            outcome = follow(events, name=name, by="keys")
            assert ("within 10 minutes" in outcome.reason) == (name not in WHOLE), outcome
        expected = sessions_of([in_utc(row) for row in events.sql("SELECT id, k, ts FROM ev")])
        visits = {in_utc(row)[:3] for row in events.rows("visit")}
        assert visits == {row[1:] for row in expected}


def fill_day(lab, source: str, day: int, count: int, pause: timedelta, keys: Sequence[str] = ("'a'",)) -> None:
    """So many rows of each key on a day, whose values go from 0 to 3 again and again."""
    rows = [
        f"({20 * day + n}, {key}, {n % 4}, {sql_time(NOON + timedelta(days=day) + n * pause)})"
        for n in range(count)
        for key in keys
    ]
    lab.sql(f"INSERT INTO {source} VALUES {', '.join(rows)}")


@pytest.mark.long
@pytest.mark.parametrize(
    "names", [("visit", "of_all"), ("visit", "visited", "by_spark", "of_all")], ids=["few", "many"]
)
def test_a_late_row_of_a_session_reads_the_files_beside_it(events, names):
    files = files_by_day(events, "ev", 9, lambda day: fill_day(events, "ev", day, 5, 7 * MINUTE))
    for name in names:
        events.declare(f"CREATE MATERIALIZED TABLE {name} {HEAD} {SESSIONS[name]}")
    events.refresh_all()
    late = NOON + timedelta(days=3, minutes=38)
    rows = f"(200, 'a', 5, {sql_time(late)}), (201, 'a', 5, {sql_time(late + 90 * MINUTE)})"
    away = [files[day] for day in (0, 1, 2, 4, 5, 6, 7)]
    follow_without(away, events, names, f"INSERT INTO ev VALUES {rows}")


# -- windows of so many rows ---------------------------------------------------------------------------------------

BOUNDS = "k, window_number, window_start, window_end"
COUNTS = {
    "threes": f"{BOUNDS}, count(*) AS n, sum(v) AS s FROM COUNT_WINDOW(TABLE act PARTITION BY k ORDER BY ts, id, "
    f"SIZE => 3) GROUP BY {BOUNDS}",
    "sliding": f"{BOUNDS}, id FROM COUNT_WINDOW(TABLE act PARTITION BY k ORDER BY ts, id DESC, SIZE => 4, SLIDE => 2)",
    "of_everyone": "window_number AS n, window_start, window_time, id FROM COUNT_WINDOW(TABLE act ORDER BY ts, id, "
    "SIZE => 5)",
}
OF_WHOLE_KEYS = {
    "newest": f"{BOUNDS}, id FROM COUNT_WINDOW(TABLE act PARTITION BY k ORDER BY ts DESC, id, SIZE => 2)",
    "later": f"{BOUNDS}, window_number + 1 AS n, id FROM COUNT_WINDOW(TABLE act PARTITION BY k ORDER BY ts, id, "
    "SIZE => 2)",
}


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 60])
def test_windows_of_so_many_rows_follow_random_changes(lab, rounds):
    """The key of the input is promised and not checked: in the end two rows are equal."""
    chance = random.Random(rounds)
    fill(lab, "act", EVENTS, drawn_rows(chance, 1, 50), primary_key=["id"])
    for name, query in {**COUNTS, **OF_WHOLE_KEYS}.items():
        lab.declare(f"CREATE MATERIALIZED TABLE {name} {HEAD} {query}")
    lab.refresh_all()
    for number in range(rounds):
        changes = [
            f"DELETE FROM act WHERE pmod(id, 11) = {number % 11} AND ts > TIMESTAMP'2026-01-01 13:00:00Z'",
            f"UPDATE act SET v = v + 1, ts = coalesce(ts, {sql_time(NOON)}) WHERE pmod(id, 7) = {number % 7}",
            "UPDATE act SET k = 'new' WHERE ts > TIMESTAMP'2026-01-01 13:30:00Z'",
            "DELETE FROM act WHERE k = 'a' AND ts IS NOT NULL",
            f"INSERT INTO act VALUES (3, 'b', 1, {sql_time(NOON)}), (3, 'b', 1, {sql_time(NOON)})",
        ]
        late = sql_time(NOON + 200 * MINUTE + GAP * number)
        lab.sql(
            f"INSERT INTO act VALUES ({900 + number}, 'b', {number % 4}, {late}), ({950 + number}, NULL, 3, {late})"
        )
        if number:
            lab.sql(f"INSERT INTO act VALUES {drawn_rows(chance, 100 * number + 1_000, chance.randint(1, 3))}")
            lab.sql(changes[4 if number == rounds - 1 else chance.randrange(4)])
        for name in COUNTS if number < rounds - 2 or number == 0 else {**COUNTS, **OF_WHOLE_KEYS}:
            outcome = follow(lab, name=name, by="keys")
            assert ("from the first changed ts on" in outcome.reason) == (name in COUNTS), outcome


@pytest.mark.long
@pytest.mark.parametrize("names", [("sliding",), tuple(COUNTS)])
def test_a_row_of_a_counted_window_reads_the_files_from_it_on(lab, names):
    lab.source("act", EVENTS, primary_key=["id"])
    files = files_by_day(lab, "act", 6, lambda day: fill_day(lab, "act", day, 7, MINUTE))
    for name in names:
        lab.declare(f"CREATE MATERIALIZED TABLE {name} {HEAD} {COUNTS[name]}")
    lab.refresh_all()
    late = f"INSERT INTO act VALUES (200, 'a', 9, {sql_time(NOON + timedelta(days=4, minutes=3))})"
    follow_without([files[day] for day in range(3)], lab, names, late)


# -- patterns ------------------------------------------------------------------------------------------------------

RISING = (
    "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts, id DESC MEASURES {measures} {shown} AFTER MATCH {skip} "
    "PATTERN (A B+ C?) WITHIN INTERVAL '30' MINUTES DEFINE B AS B.v > PREV(B.v), C AS C.v <= LAST(A.v))"
)
FIRST_TO_LAST = "FIRST(A.ts) AS began, LAST(ts) AS ended, LAST(B.v) AS top, count(*) AS n"
# With whether only a stretch is read.
MATCHES = {
    "rising": ("*", RISING.format(measures=FIRST_TO_LAST, shown="", skip="SKIP PAST LAST ROW"), True),
    "each_row": (
        "k, start, id, n + 1 AS m",
        RISING.format(
            measures="FINAL FIRST(ts) AS start, count(*) AS n", shown="ALL ROWS PER MATCH", skip="SKIP TO NEXT ROW"
        ),
        True,
    ),
    "to_last": (
        "k, began, n",
        RISING.format(measures=FIRST_TO_LAST, shown="ONE ROW PER MATCH", skip="SKIP TO LAST B"),
        True,
    ),
    "numbered": (
        "k, began, number",
        RISING.format(
            measures="FIRST(ts) AS began, MATCH_NUMBER() AS number", shown="", skip="SKIP PAST LAST ROW"
        ),
        False,
    ),
    "best": ("k, max(top) AS top", RISING.format(measures=FIRST_TO_LAST, shown="", skip="SKIP PAST LAST ROW"), False),
}  # fmt: skip


@pytest.fixture
def met(monkeypatch) -> list[int]:
    """The number of keys with a match that begins as before, for each refresh that searches 2 intervals ahead."""
    found: list[int] = []
    there = interval_rows.MatchIntervalRows.met

    def noted(*given):
        keys, count = there(*given)
        found.append(count)
        return keys, count

    monkeypatch.setattr(interval_rows.MatchIntervalRows, "met", noted)
    monkeypatch.setattr(interval_rows, "AHEAD", 2)
    return found


@pytest.mark.long
@pytest.mark.parametrize(("rounds", "names"), [(60, tuple(MATCHES))])
def test_matches_within_an_interval_follow_random_changes(events, rounds, names):
    chance = random.Random(41)
    events.sql(f"INSERT INTO ev VALUES {drawn_rows(chance, 1, 60)}")
    for name in names:
        items, matches, _ = MATCHES[name]
        group = " GROUP BY k" if name == "best" else ""
        events.declare(f"CREATE MATERIALIZED TABLE {name} {HEAD} {items} FROM ev {matches}{group}")
    events.refresh_all()
    in_stretches: set[str] = set()
    for number in range(rounds):
        changes = [
            f"DELETE FROM ev WHERE pmod(id, 11) = {number % 11} AND ts > TIMESTAMP'2026-01-01 12:40:00Z'",
            f"UPDATE ev SET v = v + 1 WHERE pmod(id, 7) = {number % 7} AND ts IS NOT NULL",
            "UPDATE ev SET ts = ts + INTERVAL '5' MINUTES WHERE k = 'a'",
        ]
        late = sql_time(NOON + GAP / 2 * (12 + number) + 3 * MINUTE)
        events.sql(
            f"INSERT INTO ev VALUES ({900 + number}, 'b', {number % 4}, {late}), ({950 + number}, NULL, 3, {late})"
        )
        events.sql(changes[number % len(changes)])
        for name in names if number == rounds - 1 else ("rising", "each_row"):
            outcome = events.refresh(name)
            assert outcome.error is None, (name, outcome)
            # The greatest of the measures of a key often stays what it was, and then nothing is written.
            assert outcome.strategy in ({"keys", "noop"} if name == "best" else {"keys"}), (name, outcome)
            in_stretches |= {name} if "from 30 minutes before" in outcome.reason else set()
            assert events.diff(name) == [], (name, number)
    # Where matches begin at a time of several rows, all rows of the keys are read.
    assert {"rising", "each_row"} <= in_stretches <= {name for name, (_, _, less) in MATCHES.items() if less}


ALL_TOGETHER = {
    name: (items, matches.replace("PARTITION BY k ", ""))
    for name, (items, matches, _) in MATCHES.items()
    if name in ("rising", "each_row")
}


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 60])
def test_matches_among_all_rows_follow_random_changes(events, rounds, met):
    """Without PARTITION BY all rows are of one key, and a refresh reads those from before the first changed one on."""
    chance = random.Random(rounds)
    hour = timedelta(hours=1)

    def add(first: int, count: int, base: datetime, after: int = 120) -> None:
        times = [base + MINUTE * chance.randint(-120, after) for _ in range(count)]
        rows = [f"({first + n}, 'a', {chance.randint(0, 4)}, {sql_time(at)})" for n, at in enumerate(times)]
        events.sql(f"INSERT INTO ev VALUES {', '.join(rows)}")

    for number, base in enumerate((EPOCH, NOON - 12 * hour, NOON)):
        add(100 * number, 40, base)
    for name, (items, matches) in ALL_TOGETHER.items():
        events.declare(f"CREATE MATERIALIZED TABLE {name} {HEAD} {items.removeprefix('k, ')} FROM ev {matches}")
    events.refresh_all()
    assert all(events.rows(name) for name in ALL_TOGETHER)
    close = 0
    for number in range(rounds):
        base = chance.choice((NOON, NOON - 12 * hour, EPOCH))
        later = f"ts BETWEEN {sql_time(base - 2 * hour)} AND {sql_time(base)}"
        statement = chance.choice(
            [
                f"DELETE FROM ev WHERE pmod(id, 11) = {number % 11} AND {later}",
                f"UPDATE ev SET v = v + 1 WHERE pmod(id, 7) = {number % 7} AND {later}",
                f"UPDATE ev SET ts = ts + INTERVAL '5' MINUTES WHERE pmod(id, 8) = {number % 8} AND {later}",
                f"DELETE FROM ev WHERE {later} AND ts > {sql_time(base - hour / 2)}",
            ]
        )
        events.sql(statement)
        add(1_000 + 10 * number, chance.randint(1, 3), base, after=0)
        for name in ALL_TOGETHER:
            outcome = follow(events, name=name)
            close += outcome.strategy == "keys" and "from 30 minutes before" in outcome.reason
    assert close > rounds
    # Some searches end with a match that begins as before.
    assert any(met)
    # A row without a time stands before all others.
    outcome = follow(events, "INSERT INTO ev VALUES (9000, 'a', 0, NULL)", name="rising")
    assert (outcome.error, outcome.strategy, outcome.reason[:6]) == (None, "full", "WINDOW"), outcome


@pytest.mark.long
@pytest.mark.parametrize("partition", ["PARTITION BY k ", ""])
def test_a_row_of_a_pattern_reads_the_files_from_its_interval_on(events, partition):
    files = files_by_day(events, "ev", 6, lambda day: fill_day(events, "ev", day, 9, 7 * MINUTE))
    matches = MATCHES["rising"][1].replace("PARTITION BY k ", partition)
    events.declare(f"CREATE MATERIALIZED TABLE rising {HEAD} {MATCHES['rising'][0]} FROM ev {matches}")
    events.refresh("rising")
    assert len(events.rows("rising")) >= 10
    late = f"INSERT INTO ev VALUES (200, 'a', 9, {sql_time(NOON + timedelta(days=4, minutes=50))})"
    follow_without([files[day] for day in range(4)], events, ("rising",), late)


@pytest.mark.long
@pytest.mark.parametrize("names", [("rising", "each_row", "to_last")])
def test_a_late_row_of_a_pattern_reads_the_files_up_to_a_match_that_begins_as_before(events, names):
    """So it does for one key. The other key has nothing behind the late row, and is read to its end."""
    files = files_by_day(
        events, "ev", 6,
        lambda day: fill_day(events, "ev", day, 9, 7 * MINUTE, ("NULL", "'a'") if day < 3 else ("NULL",)),
    )  # fmt: skip
    for name in names:
        events.declare(f"CREATE MATERIALIZED TABLE {name} {HEAD} {MATCHES[name][0]} FROM ev {MATCHES[name][1]}")
    events.refresh_all()
    for late, minutes in (("NULL", 10), ("'a'", 11)):
        at = sql_time(NOON + timedelta(days=2, minutes=minutes))
        change = f"INSERT INTO ev VALUES ({len(late) + 200}, {late}, 9, {at})"
        follow_without([files[day] for day in range(6) if day != 2], events, names, change)
    events.sql(
        f"INSERT INTO ev VALUES (300, NULL, 9, {sql_time(NOON + timedelta(days=1, minutes=9))}), "
        f"(301, 'a', 8, {sql_time(NOON + timedelta(days=2, minutes=50))})"
    )
    assert {events.refresh(name).strategy for name in names} == {"keys"}
    assert [name for name in names if events.diff(name)] == []
