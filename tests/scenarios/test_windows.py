"""Each row is in the windows that contain its time, and a late row changes, joins or parts old ones alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.delta_log import without_files
from tests.lanes import few_or_many

EVENTS = "id BIGINT, k STRING, v INT, ts TIMESTAMP"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def windows_of(at: datetime, size: timedelta, slide: timedelta, offset: timedelta) -> set[tuple[datetime, datetime]]:
    """By definition: every window that begins a whole number of slides after the offset, and contains the time."""
    first = (at - EPOCH - offset - size) // slide
    starts = [EPOCH + offset + slide * number for number in range(first - 1, first + size // slide + 3)]
    return {(start, start + size) for start in starts if start <= at < start + size}


def cumulated(at: datetime, size: timedelta, step: timedelta, offset: timedelta) -> set[tuple[datetime, datetime]]:
    [(start, _)] = windows_of(at, size, size, offset)
    ends = [start + step * number for number in range(1, size // step + 1)]
    return {(start, end) for end in ends if at < end}


CALLS = {
    "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTES)": lambda at: windows_of(
        at, 10 * MINUTE, 10 * MINUTE, 0 * MINUTE
    ),
    "TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1 hour 10 minutes', INTERVAL '-3' MINUTES)) AS w": lambda at: (
        windows_of(at, 70 * MINUTE, 70 * MINUTE, -3 * MINUTE)
    ),
    "HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '4' MINUTES, INTERVAL '12' MINUTES, OFFSET => INTERVAL '1' MINUTE)": (
        lambda at: windows_of(at, 12 * MINUTE, 4 * MINUTE, MINUTE)
    ),
    "TABLE(CUMULATE(DATA => TABLE ev, TIMECOL => DESCRIPTOR(`ts`), SIZE => INTERVAL 1 HOUR, STEP => INTERVAL 20 MINUTE))": (  # noqa: E501
        lambda at: cumulated(at, 60 * MINUTE, 20 * MINUTE, 0 * MINUTE)
    ),
    "TUMBLE((SELECT id, k, v, ts FROM ev WHERE v >= 0), DESCRIPTOR(ts), INTERVAL '0.5' SECOND)": lambda at: windows_of(
        at, MINUTE / 120, MINUTE / 120, 0 * MINUTE
    ),
}


def drawn_times(seed: int) -> list[datetime]:
    """Times at bounds, a microsecond beside them, before 1970, and anywhere."""
    chance = random.Random(seed)
    bounds = [EPOCH + 4 * MINUTE * chance.randint(-40, 40) for _ in range(12)]
    beside = [at + timedelta(microseconds=chance.choice((-1, 0, 1))) for at in bounds]
    anywhere = [EPOCH + timedelta(seconds=chance.randint(-3_000_000_000, 3_000_000_000) / 7) for _ in range(12)]
    return [EPOCH, *beside, *anywhere]


def sql_time(at: datetime | None) -> str:
    return "NULL" if at is None else f"TIMESTAMP'{at:%Y-%m-%d %H:%M:%S.%f}Z'"


def fill(lab, times: Sequence[datetime | None], first: int = 1) -> None:
    rows = ", ".join(f"({first + n}, 'k{n % 3}', {n % 5}, {sql_time(at)})" for n, at in enumerate(times))
    lab.sql(f"INSERT INTO ev VALUES {rows}")


def in_utc(row) -> tuple[Any, ...]:
    """The values of a row; Delta's times are in UTC."""
    return tuple(each.astimezone(UTC) if isinstance(each, datetime) else each for each in row.values())


@pytest.fixture
def events(lab):
    lab.source("ev", EVENTS, primary_key=["id"])
    return lab


def test_a_row_is_in_the_windows_that_contain_its_time(events):
    times = drawn_times(7)
    fill(events, [None, *times])
    for number, call in enumerate(CALLS):
        events.declare(
            f"CREATE MATERIALIZED TABLE t{number} FRESHNESS = INTERVAL '5' MINUTE AS "
            f"SELECT id, window_start, window_end, window_time FROM {call}"
        )
    assert {outcome.state for outcome in events.refresh_all()} == {"SUCCEEDED"}

    for number, (call, windows) in enumerate(CALLS.items()):
        found: dict[int, set[tuple[datetime, datetime]]] = {}
        for row in events.rows(f"t{number}"):
            key, start, end, last = in_utc(row)
            assert end - last == timedelta(microseconds=1)
            found.setdefault(key, set()).add((start, end))
        assert found == {key: windows(at) for key, at in enumerate(times, 2)}, call


# Late rows, rows whose window changes, rows that lose their time or get one, and rows that go away.
CHANGES = (
    (
        "INSERT INTO ev VALUES (100, 'k0', 7, TIMESTAMP'2026-01-01 00:10:00Z'), (101, NULL, 1, NULL)",
        "INSERT INTO ev VALUES (102, NULL, 3, TIMESTAMP'1969-12-31 23:59:59.999999Z')",
    ),
    (
        "UPDATE ev SET v = v + 100 WHERE id IN (2, 100)",
        "UPDATE ev SET ts = ts - INTERVAL '31' DAYS WHERE id IN (3, 100)",
        "UPDATE ev SET ts = NULL WHERE id = 4",
    ),
    (
        "UPDATE ev SET ts = TIMESTAMP'2026-01-01 00:00:00Z' WHERE id IN (4, 5)",
        "DELETE FROM ev WHERE id IN (6, 7, 102) OR k = 'k1'",
    ),
)
TABLES = {
    "aggregate of a tumbling window": (
        (
            "SELECT window_start, window_end, k, count(*) AS n, sum(v) AS s, max(v) AS g "
            "FROM TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTES)) GROUP BY window_start, window_end, k"
        ),
        "ALGEBRAIC",
    ),
    "aggregate of a sliding window": (
        (
            "SELECT window_start, k, count(*) AS n, sum(v) AS s "
            "FROM HOP(TABLE ev, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '15' MINUTES) GROUP BY window_start, k"
        ),
        "ALGEBRAIC",
    ),
    "aggregate of a cumulating window": (
        (
            "SELECT window_start, window_end, sum(v) AS s FROM "
            "CUMULATE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY) GROUP BY window_start, window_end"
        ),
        "ALGEBRAIC",
    ),
    "days of a time zone": (
        (
            "SELECT window_start, window_end, k, sum(v) AS s FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, "
            "TIME_ZONE => 'America/New_York') GROUP BY window_start, window_end, k"
        ),
        "ALGEBRAIC",
    ),
    "first rows of each window": (
        (
            "SELECT window_start, k, id, v FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR) "
            "QUALIFY row_number() OVER (PARTITION BY window_start, k ORDER BY v DESC, id) <= 2"
        ),
        "AFFECTED_KEYS",
    ),
    "join on the bounds of windows": (
        (
            "SELECT a.window_start, a.k, a.n, b.g FROM (SELECT window_start, window_end, k, count(*) AS n FROM "
            "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTES) GROUP BY 1, 2, 3) a LEFT JOIN "
            "(SELECT window_start, window_end, max(v) AS g FROM "
            "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTES) GROUP BY 1, 2) b "
            "ON a.window_start = b.window_start AND a.window_end = b.window_end"
        ),
        "AFFECTED_KEYS",
    ),
    "Spark's own function": (
        (
            "SELECT window.start AS s, window.end AS e, k, count(*) AS n, sum(v) AS m FROM ev "
            "GROUP BY window(ts, '10 minutes', '5 minutes'), k HAVING count(*) > 0"
        ),
        "",
    ),
    "windows over windows": (
        (
            "SELECT window_start, sum(n) AS n FROM TUMBLE((SELECT window_time AS at, count(*) AS n FROM "
            "TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '10' MINUTES) GROUP BY window_time), DESCRIPTOR(at), "
            "INTERVAL '1' HOUR) GROUP BY window_start"
        ),
        "",
    ),
}


@pytest.mark.parametrize("changes", few_or_many([sum(CHANGES, ())], CHANGES))
def test_changes_compute_the_windows_that_they_touch(events, changes):
    fill(events, drawn_times(11))
    fill(events, [datetime(2026, 1, 1, tzinfo=UTC) + 3 * MINUTE * number for number in range(20)], first=40)
    names = {f"t{number}": name for number, name in enumerate(TABLES)}
    for table, name in names.items():
        events.declare(f"CREATE MATERIALIZED TABLE {table} FRESHNESS = INTERVAL '5' MINUTE AS {TABLES[name][0]}")
    events.refresh_all()
    for statements in changes:
        for statement in statements:
            events.sql(statement)
        for table, name in names.items():
            outcome = events.refresh(table, strategy="keys")
            assert (outcome.state, outcome.strategy) == ("SUCCEEDED", "keys"), (name, outcome.error)
            assert outcome.reason.startswith(TABLES[name][1]), (name, outcome.reason)
            assert events.diff(table) == [], (name, statements)


@pytest.mark.long
@pytest.mark.parametrize("rounds", [2, 50])
def test_three_ways_to_write_a_window_give_one_table(events, rounds):
    head = "FRESHNESS = INTERVAL '5' MINUTE AS"
    events.declare(
        f"CREATE MATERIALIZED TABLE by_spark {head} SELECT window.start AS window_start, k, sum(v) AS s FROM ev "
        "GROUP BY window(ts, '15 minutes'), k"
    )
    events.declare(
        f"CREATE MATERIALIZED TABLE by_function {head} SELECT window_start, k, sum(v) AS s FROM "
        "TABLE(TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '15' MINUTES)) GROUP BY window_start, k"
    )
    events.declare(
        f"CREATE MATERIALIZED TABLE by_arithmetic {head} SELECT timestamp_micros(floor(unix_micros(ts) / 900000000D) * "
        "900000000) AS window_start, k, sum(v) AS s FROM ev WHERE ts IS NOT NULL GROUP BY 1, k"
    )
    chance = random.Random(3)
    for number in range(rounds):
        times = [EPOCH + timedelta(seconds=chance.randint(-100_000, 100_000)) for _ in range(8)]
        fill(events, times, first=1 + 10 * number)
        events.sql(f"DELETE FROM ev WHERE id = {chance.randint(1, 10 + 10 * number)}")
        strategies = {outcome.strategy for outcome in events.refresh_all() if str(outcome.table) != "ev"}
        assert strategies == {"keys" if number else "full"}
        by_spark, by_function, by_arithmetic = (
            sorted(map(str, events.rows(name))) for name in ("by_spark", "by_function", "by_arithmetic")
        )
        assert by_spark == by_function == by_arithmetic


# Spark's window() beside ranks, joins and other windows, each with the key by which it follows.
BESIDE = {
    "ranked": (
        "SELECT window.start AS s, k, sum(v) AS t, rank() OVER (PARTITION BY window ORDER BY sum(v) DESC, k) AS r "
        "FROM ev GROUP BY window(ts, '10 minutes', '5 minutes'), k"
    ),
    "top": (
        "SELECT * FROM (SELECT w.start AS s, k, id, row_number() OVER (PARTITION BY w.start, k ORDER BY v DESC, id) AS "
        "r FROM (SELECT window(ts, '5 minutes') AS w, k, id, v FROM ev)) WHERE r <= 2"
    ),
    "joined": (
        "SELECT a.s, a.k, a.n, b.n AS m FROM (SELECT window.start AS s, k, count(*) AS n FROM ev "
        "GROUP BY window(ts, '5 minutes'), k) a FULL JOIN (SELECT window.start AS s, k, count(*) AS n FROM other "
        "GROUP BY window(ts, '5 minutes'), k) b ON a.s = b.s AND a.k = b.k"
    ),
    "hourly": (
        "SELECT window(s, '1 hour').start AS h, k, max(n) AS n FROM (SELECT window.start AS s, k, count(*) AS n "
        "FROM ev GROUP BY window(ts, '5 minutes'), k) GROUP BY window(s, '1 hour'), k"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize(("rounds", "names"), [(12, tuple(BESIDE))])
def test_windows_of_spark_beside_other_clauses(lab, rounds, names):
    for source in ("ev", "other"):
        lab.source(source, "id BIGINT, k STRING, ts TIMESTAMP, v INT")
    for name in names:
        lab.declare(f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '5' MINUTE AS {BESIDE[name]}")
    chance = random.Random(4)
    for now in range(1 + rounds):
        for source in ("ev", "other"):
            rows = []
            for number in range(12 * now, 12 * now + 12):
                time = "NULL" if chance.random() < 0.1 else f"timestamp_seconds({chance.randint(-2000, 6000)})"
                key, value = chance.choice(("NULL", "'a'", "'b'", "''")), chance.choice(("NULL", 1, 2, 3))
                rows.append(f"({number}, {key}, {time}, {value})")
            lab.sql(f"INSERT INTO {source} VALUES {', '.join(rows)}")
            if now:
                lab.sql(f"DELETE FROM {source} WHERE id % 7 = {chance.randint(0, 6)}")
                lab.sql(f"UPDATE {source} SET ts = ts + INTERVAL 5 MINUTES WHERE id % 11 = {chance.randint(0, 10)}")
        for name in names:
            outcome = lab.refresh(name)
            assert (outcome.error, outcome.strategy) == (None, "keys" if now else "full"), (name, outcome.reason)
            assert lab.diff(name) == [], (name, now)


# -- sessions ------------------------------------------------------------------------------------------------------

GAP = 10 * MINUTE
A_MICROSECOND = timedelta(microseconds=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def sessions_of(rows: Sequence[Sequence[Any]]) -> set[tuple[Any, ...]]:
    """By definition, of rows (id, key, time): rows of a key at most a gap apart follow each other in one session."""
    found: set[tuple[Any, ...]] = set()
    for key in {row[1] for row in rows}:
        times = sorted((at, number) for number, own, at in rows if own == key and at is not None)
        begins = [place for place, (at, _) in enumerate(times) if place == 0 or at - times[place - 1][0] > GAP]
        for begin, end in pairwise([*begins, len(times)]):
            bounds = (times[begin][0], times[end - 1][0] + GAP)
            found |= {(number, key, *bounds) for _, number in times[begin:end]}
    return found


@pytest.mark.long
def test_a_session_grows_joins_and_parts_with_the_rows_that_come_and_go(events):
    head = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
    session = "SESSION(TABLE ev PARTITION BY k, DESCRIPTOR(ts), INTERVAL '10' MINUTES)"
    events.declare(f"CREATE MATERIALIZED TABLE visited {head} id, k, window_start, window_end FROM {session}")
    events.declare(
        f"CREATE MATERIALIZED TABLE visit {head} k, window_start, window_end, window_time, count(*) AS n, sum(v) AS s "
        f"FROM TABLE({session}) GROUP BY k, window_start, window_end, window_time"
    )
    events.declare(
        f"CREATE MATERIALIZED TABLE by_spark {head} k, session_window.start AS window_start, session_window.end AS "
        "window_end, count(*) AS n, sum(v) AS s FROM ev GROUP BY k, session_window(ts, '10 minutes')"
    )
    late = NOON + 2 * GAP
    apart = [NOON, NOON + GAP, late + A_MICROSECOND, late + A_MICROSECOND, late + 4 * GAP, EPOCH - GAP, None]
    rounds = [
        # Exactly a gap, a microsecond more, and two at once, for three keys of which one is NULL.
        [f"({3 * n + key}, {('NULL', repr('a'), repr('b'))[key]}, {n}, {sql_time(at)})" for n, at in enumerate(apart)
         for key in range(3)],
        # A late row joins two sessions of one key.
        [f"(50, 'a', 5, {sql_time(NOON + GAP + GAP / 2)})", f"(51, NULL, 5, {sql_time(late + 3 * GAP)})"],
    ]  # fmt: skip
    changes = [
        *[(f"INSERT INTO ev VALUES {', '.join(rows)}",) for rows in rounds],
        (
            "DELETE FROM ev WHERE id = 50 OR ts = TIMESTAMP'2026-01-01 12:00:00Z'",
            "UPDATE ev SET k = 'b' WHERE id IN (4, 51)",
        ),
        ("UPDATE ev SET ts = ts + INTERVAL '1' MICROSECOND WHERE k = 'b'",),
        ("UPDATE ev SET v = v + 1 WHERE id = 5",),
    ]
    for number, change in enumerate(changes):
        for statement in change:
            events.sql(statement)
        by_spark, *windows = (events.refresh(name) for name in ("by_spark", "visited", "visit"))
        # The last change is one of a column that only some of the tables have.
        strategy = "keys" if number else "full"
        assert [outcome.strategy for outcome in (by_spark, *windows)] == [
            strategy, "noop" if number == 4 else strategy, strategy
        ], (by_spark, windows)  # fmt: skip

        rows = [in_utc(row) for row in events.sql("SELECT id, k, ts FROM ev")]
        expected = sessions_of(rows)
        assert {in_utc(row) for row in events.rows("visited")} == expected, change
        visits = {in_utc(row) for row in events.rows("visit")}
        assert {row[:3] for row in visits} == {row[1:] for row in expected}
        assert all(end - last == A_MICROSECOND for _, _, end, last, *_ in visits)
        assert {(*row[:3], *row[4:]) for row in visits} == {in_utc(row) for row in events.rows("by_spark")}


# -- windows of so many rows ---------------------------------------------------------------------------------------


def counted(
    rows: Sequence[Sequence[Any]], size: int, slide: int, *, newest_first: bool = False
) -> set[tuple[Any, ...]]:
    """By definition, of rows (id, key, time): the row at place n of its key is in each window [s, s + size) that has n,
    where s is a whole number of slides and not negative. A window is bounded by the times of its first and last row."""
    found: set[tuple[Any, ...]] = set()
    for key in {row[1] for row in rows}:
        own = sorted(((at, number) for number, of, at in rows if of == key and at is not None), reverse=newest_first)
        for window, begin in enumerate(range(0, len(own), slide)):
            inside = own[begin : begin + size]
            times = [at for at, _ in inside]
            found |= {(number, key, window, min(times), max(times)) for _, number in inside}
    return found


@pytest.mark.long
@pytest.mark.parametrize("names", [("thirds", "newest", "sliding")])
def test_a_late_row_moves_the_rows_behind_it_into_later_windows(events, names):
    head = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
    all_calls = {
        "thirds": ("PARTITION BY k ORDER BY ts, id, SIZE => 3", (3, 3, False)),
        "newest": ("PARTITION BY (k) ORDER BY ts DESC, id DESC, SIZE => 2", (2, 2, True)),
        "sliding": ("PARTITION BY k ORDER BY ts, id, SIZE => 4, SLIDE => 2", (4, 2, False)),
    }
    calls = {name: all_calls[name] for name in names}
    for name, (clauses, _) in calls.items():
        events.declare(
            f"CREATE MATERIALIZED TABLE {name} {head} id, k, window_number, window_start, window_end "
            f"FROM COUNT_WINDOW(TABLE ev {clauses})"
        )
    events.declare(
        f"CREATE MATERIALIZED TABLE sums {head} k, window_number, window_end, window_time, count(*) AS n, sum(v) AS s "
        "FROM TABLE(COUNT_WINDOW(TABLE ev PARTITION BY k ORDER BY ts, id, SIZE => 3)) "
        "GROUP BY k, window_number, window_end, window_time"
    )
    # Many rows of one time, a row before 1970, one without a time, and a key that is NULL.
    at = [NOON, NOON, NOON, NOON, NOON, NOON, NOON + MINUTE, EPOCH - MINUTE, None, NOON + 2 * MINUTE]
    rows = [
        f"({10 * n + key}, {('NULL', repr('a'), repr('b'))[key]}, {n}, {sql_time(time)})"
        for n, time in enumerate(at)
        for key in range(3)
        if (n + key) % 4
    ]
    changes = [
        (f"INSERT INTO ev VALUES {', '.join(rows)}",),
        (f"INSERT INTO ev VALUES (200, 'a', 5, {sql_time(EPOCH)}), (5, NULL, 5, {sql_time(NOON)})",),
        (
            f"DELETE FROM ev WHERE ts = {sql_time(NOON)} AND k = 'b'",
            f"UPDATE ev SET k = 'b', ts = coalesce(ts, {sql_time(NOON)}) WHERE id IN (200, 5) OR ts IS NULL",
        ),
        ("UPDATE ev SET v = v + 1 WHERE k = 'a'",),
    ]
    for number, change in enumerate(changes):
        for statement in change:
            events.sql(statement)
        outcomes = [events.refresh(name) for name in (*calls, "sums")]
        last = "full" if number == 0 else "keys"
        expected = ["noop" if number == 3 else last] * len(calls) + [last]
        assert [outcome.strategy for outcome in outcomes] == expected, outcomes

        stored = [in_utc(row) for row in events.sql("SELECT id, k, ts FROM ev")]
        for name, (_, (size, slide, newest_first)) in calls.items():
            windows = counted(stored, size, slide, newest_first=newest_first)
            assert {in_utc(row) for row in events.rows(name)} == windows, (change, name)
        thirds = counted(stored, 3, 3)
        sums = [in_utc(row) for row in events.rows("sums")]
        assert {row[:3] for row in sums} == {(key, window, end) for _, key, window, _, end in thirds}, change
        assert sum(row[4] for row in sums) == len(thirds)
        assert all(end == last_time for _, _, end, last_time, *_ in sums)
        assert events.diff("sums") == []


def test_a_column_that_is_no_time_fails_before_any_work(events):
    fill(events, [EPOCH])
    head = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT"
    events.declare(
        f"CREATE MATERIALIZED TABLE daily {head} id, CAST(ts AS DATE) AS day, CAST(ts AS STRING) AS said FROM ev"
    )
    events.declare(
        f"CREATE MATERIALIZED TABLE t {head} window_start, count(*) AS n FROM "
        "TUMBLE(TABLE daily, DESCRIPTOR(day), INTERVAL '1' HOUR) GROUP BY window_start"
    )
    events.refresh("daily")

    outcome = events.refresh("t")

    assert outcome.state == "FAILED"
    assert outcome.error is not None
    assert "DATE and no TIMESTAMP" in outcome.error.message
    assert (outcome.error.as_json()["rule"], events.receipt("t")) == ("WINDOW_TIME", None)


# -- calendars -----------------------------------------------------------------------------------------------------

ZONES = {
    "America/New_York": (2024, 3, 8),  # a day of 23 hours
    "America/Sao_Paulo": (2018, 11, 2),  # a day without a midnight
    "America/St_Johns": (2010, 11, 5),  # clocks go back at one minute past midnight, into the day before
    "Asia/Kathmandu": (1985, 12, 30),  # 15 minutes are skipped at midnight
    "Pacific/Apia": (2011, 12, 28),  # a day that does not exist
    "Europe/Berlin": (1969, 12, 27),
}


def first_instants(zone: str, begin: date, count: int) -> list[datetime]:
    """The first instant of each day of a zone, found minute by minute."""
    at = datetime(begin.year, begin.month, begin.day, tzinfo=UTC) - timedelta(days=2)
    here, day = ZoneInfo(zone), begin
    found: list[datetime] = []
    while len(found) < count:
        if at.astimezone(here).date() >= day:
            found.append(at)
            day += timedelta(days=1)
        else:
            at += MINUTE
    return found


def test_days_of_a_time_zone_begin_at_its_midnights(events):
    bounds = {zone: first_instants(zone, date(*begin), 6) for zone, begin in ZONES.items()}
    times: dict[str, dict[int, datetime]] = {}
    for zone, starts in bounds.items():
        own = [at for start, end in pairwise(starts) for at in (start, start + (end - start) / 3, end - MINUTE / 60)]
        own += [start + MINUTE * minutes for start in starts[:-1] for minutes in range(0, 75, 7)]
        times[zone] = {1000 * len(times) + number: at for number, at in enumerate(own, 1) if at < starts[-1]}
    for by_key in times.values():
        fill(events, list(by_key.values()), first=min(by_key))
    for number, zone in enumerate(ZONES):
        events.declare(
            f"CREATE MATERIALIZED TABLE t{number} FRESHNESS = INTERVAL '5' MINUTE AS SELECT id, window_start, "
            f"window_end FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, TIME_ZONE => '{zone}')"
        )
    events.refresh_all()

    for number, (zone, starts) in enumerate(bounds.items()):
        days = [(start, end) for start, end in pairwise(starts) if start < end]
        expected = {key: next(day for day in days if day[0] <= at < day[1]) for key, at in times[zone].items()}
        found = {key: tuple(bounds) for key, *bounds in map(in_utc, events.rows(f"t{number}"))}
        assert {key: found[key] for key in expected} == expected, zone


def test_weeks_begin_on_mondays_and_months_on_their_first_day(events):
    berlin = ZoneInfo("Europe/Berlin")
    local = [datetime(2026, 3, day, 12, tzinfo=berlin) for day in range(1, 32)]
    local += [datetime(1969, 12, 30, tzinfo=berlin), datetime(2026, 1, 1, tzinfo=berlin)]
    fill(events, [at.astimezone(UTC) for at in local])
    head = "FRESHNESS = INTERVAL '5' MINUTE AS SELECT id, window_start, window_end FROM"
    tail = "TIME_ZONE => 'Europe/Berlin')"
    events.declare(f"CREATE MATERIALIZED TABLE week {head} TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' WEEK, {tail}")
    events.declare(
        f"CREATE MATERIALIZED TABLE quarter {head} TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '3' MONTHS, {tail}"
    )
    events.declare(
        f"CREATE MATERIALIZED TABLE so_far {head} CUMULATE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' DAY, "
        f"INTERVAL '1' WEEK, {tail}"
    )
    events.refresh_all()

    def midnight(day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=berlin).astimezone(UTC)

    def shown(name: str) -> set[tuple[int, datetime, datetime]]:
        return {in_utc(row) for row in events.rows(name)}

    weeks, quarters, days = set(), set(), set()
    for number, at in enumerate(local, 1):
        monday = at.date() - timedelta(days=at.weekday())
        weeks.add((number, midnight(monday), midnight(monday + timedelta(days=7))))
        days |= {
            (number, midnight(monday), midnight(monday + timedelta(days=day))) for day in range(at.weekday() + 1, 8)
        }
        first = at.month - (at.month - 1) % 3
        after = date(at.year + (first == 10), first % 12 + 3 if first < 10 else 1, 1)
        quarters.add((number, midnight(date(at.year, first, 1)), midnight(after)))
    assert shown("week") == weeks
    assert shown("quarter") == quarters
    assert shown("so_far") == days


# -- only the span of time that a change can touch is read ---------------------------------------------------------

NARROW = {
    "tumbled": "SELECT window_start, count(DISTINCT v) AS n FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '6' HOURS, "
    "INTERVAL '1' HOUR) GROUP BY window_start",
    "ended": "SELECT k, window_end, count(DISTINCT v) AS n FROM TABLE(TUMBLE((SELECT * FROM ev WHERE v >= 0), "
    "DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY k, window_end",
    "cumulated": "SELECT window_start, count(DISTINCT v) AS n FROM CUMULATE(TABLE ev, DESCRIPTOR(ts), "
    "INTERVAL '8' HOURS, INTERVAL '1' DAY) GROUP BY window_start",
    "truncated": "SELECT date_trunc('HOUR', ts) AS at, count(DISTINCT v) AS n FROM ev GROUP BY date_trunc('HOUR', ts)",
    "dated": "SELECT CAST(ts AS DATE) AS day, count(DISTINCT v) AS n FROM ev GROUP BY CAST(ts AS DATE)",
    "alone": "SELECT ts, count(DISTINCT v) AS n FROM ev GROUP BY ts",
}


def files_by_day(lab, source: str, days: int, fill_day: Callable[[int], None]) -> dict[int, set[Path]]:
    """The files of a source after each day was filled."""
    found: dict[int, set[Path]] = {}
    for day in range(days):
        fill_day(day)
        found[day] = set(lab.path(source).glob("*.parquet")) - set().union(*found.values())
    return found


def follow_without(away: Sequence[set[Path]], lab, names: Iterable[str], change: str) -> None:
    """Tables are refreshed by keys after a change while some files are away, each day of which has one."""
    assert all(away)
    with without_files(file for files in away for file in files):
        lab.sql(change)
        for name in names:
            outcome = lab.refresh(name)
            assert (outcome.strategy, outcome.error) == ("keys", None), (name, outcome)
    assert [name for name in names if lab.diff(name)] == []


@pytest.mark.parametrize("names", few_or_many(("ended",), tuple(NARROW)))
def test_a_late_row_reads_the_files_of_its_window_and_no_others(events, names):
    files = files_by_day(
        events, "ev", 9,
        lambda day: fill(events, [NOON + timedelta(days=day, hours=hour) for hour in (-9, 0, 9)], first=10 * day),
    )  # fmt: skip
    for name in names:
        events.declare(f"CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '5' MINUTE AS {NARROW[name]}")
    events.refresh_all()
    late, now = sql_time(NOON), sql_time(NOON + timedelta(days=8))
    away = [files[day] for day in range(2, 7)]
    follow_without(away, events, names, f"INSERT INTO ev VALUES (200, 'a', 99, {late}), (201, 'a', 99, {now})")


TIMES_WITHOUT_ZONE: list[list[tuple[int, str | None, str]]] = [
    [(1, "a", "1969-12-31 23:59:59.5"), (2, "a", "2026-01-01 00:30:00"), (3, None, "2026-01-01 01:00:00")],
    # A late one, which joins two sessions of its key.
    [(4, "a", "2026-01-01 02:10:00"), (5, "a", "2026-01-01 01:20:00")],
]
WITHOUT_ZONE = {
    "tumble": "TUMBLE(TABLE {ev}, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    "hop": "HOP(TABLE {ev}, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOURS)",
    "cumulate": "CUMULATE(TABLE {ev}, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOURS)",
    "session": "SESSION(TABLE {ev} PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    "counted": "COUNT_WINDOW(TABLE {ev} PARTITION BY k ORDER BY ts, id, SIZE => 2)",
}


@pytest.mark.long
@pytest.mark.parametrize("tables", few_or_many(("session",), tuple(WITHOUT_ZONE)))
def test_a_time_without_a_zone_is_in_the_windows_of_utc(lab, tables):
    for name, kind in (("ev", "TIMESTAMP_NTZ"), ("zoned", "TIMESTAMP")):
        lab.source(name, f"id BIGINT, k STRING, ts {kind}", primary_key=["id"])
        for table in tables:
            windows = WITHOUT_ZONE[table].format(ev=name)
            lab.declare(
                f"CREATE MATERIALIZED TABLE {table}_{name} FRESHNESS = INTERVAL '1' HOUR AS "
                f"SELECT window_start, window_end, k, count(*) AS n FROM {windows} GROUP BY window_start, window_end, k"
            )
    for number, rows in enumerate(TIMES_WITHOUT_ZONE):
        for name, kind in (("ev", "TIMESTAMP_NTZ"), ("zoned", "TIMESTAMP")):
            texts = [f"({i}, {'NULL' if k is None else repr(k)}, {kind}'{at}')" for i, k, at in rows]
            lab.sql(f"INSERT INTO {name} VALUES {', '.join(texts)}")
        for table in tables:
            assert lab.refresh(f"{table}_ev", strategy="keys" if number else None).error is None
            assert lab.refresh(f"{table}_zoned").error is None
            assert lab.diff(f"{table}_ev") == []
            assert lab.rows(f"{table}_ev") == lab.rows(f"{table}_zoned") != []
