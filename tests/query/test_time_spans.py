"""Reading only the span of time around changes and affected keys gives no other rows, checked in DuckDB.

Random rows at two times: a search for keys is run over the rows that its bounds leave, and the query over the rows that
the reaches of its keys leave. Both must give the rows that they give over whole inputs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from freshline.compute.covering_ranges import near_values, time_condition
from freshline.query import exactness
from freshline.query.resolved import ResolvedQuery
from freshline.query.rules import key_columns, keys, literal_bounds, time_distance
from freshline.query.rules.keys import Affected, find_affected
from freshline.query.rules.literal_bounds import OPEN, find_bounds, with_conditions
from freshline.query.tree import sources_of
from freshline.values.reason import Reason
from tests.query import two_times
from tests.query.two_times import TIME_WINDOW, TwoTimes, translated

RELATIONS = {"ev": ("id", "k", "v", "ts"), "seen": ("id", "k", "w", "fell")}
TYPES = {
    "ev": {"id": "BIGINT", "k": "STRING", "v": "INT", "ts": "TIMESTAMP"},
    "seen": {"id": "BIGINT", "k": "STRING", "w": "INT", "fell": "TIMESTAMP"},
}
TIMES = ("ts", "fell", "begun", "fell")
ON = "s.k = e.k AND s.fell BETWEEN e.ts - INTERVAL 2 HOURS AND e.ts + INTERVAL 1 HOUR"
RANGE = "OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN"
QUERIES = {
    "frame": f"SELECT k, ts, id, sum(v) {RANGE} INTERVAL 2 HOURS PRECEDING AND INTERVAL 1 HOUR FOLLOWING) AS s FROM ev",
    # The searches are of all columns in one order, whatever that of the select list is.
    "time before its key": f"SELECT ts, id, k, sum(v) {RANGE} INTERVAL 2 HOURS PRECEDING AND CURRENT ROW) AS s FROM ev",
    "frame of the past": f"SELECT k, ts, count(v) {RANGE} INTERVAL 3 HOURS PRECEDING AND INTERVAL 1 HOUR PRECEDING) "
    "AS s FROM ev WHERE v > 0",
    "two frames": f"SELECT k, ts, v, max(v) {RANGE} CURRENT ROW AND INTERVAL '90 minutes' FOLLOWING) AS g, "
    "min(v) OVER (PARTITION BY k, v ORDER BY ts DESC RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS m "
    "FROM ev",
    "open frame": f"SELECT k, ts, sum(v) {RANGE} UNBOUNDED PRECEDING AND INTERVAL 1 HOUR PRECEDING) AS s FROM ev",
    "open behind": f"SELECT k, ts, sum(v) {RANGE} INTERVAL 1 HOUR FOLLOWING AND UNBOUNDED FOLLOWING) AS s FROM ev",
    "frame inside": "SELECT e.ts, e.s, x.id FROM (SELECT k, ts, sum(v) OVER (PARTITION BY k ORDER BY ts RANGE BETWEEN "
    "INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS s FROM ev) e JOIN seen x ON x.k = e.k AND x.fell = e.ts",
    "frame over a join": "SELECT e.k, e.ts, s.id, count(s.w) OVER (PARTITION BY e.k ORDER BY e.ts RANGE BETWEEN "
    f"INTERVAL 1 HOUR PRECEDING AND CURRENT ROW) AS n FROM ev e LEFT JOIN seen s ON {ON}",
    "inner": f"SELECT e.id, e.ts, s.w FROM ev e JOIN seen s ON {ON}",
    "left": f"SELECT e.id, e.ts, s.w FROM ev e LEFT JOIN seen s ON {ON}",
    "right": f"SELECT e.id, s.fell, s.w FROM ev e RIGHT JOIN seen s ON {ON}",
    "full": f"SELECT e.id, e.ts, s.w, s.fell FROM ev e FULL JOIN seen s ON {ON}",
    "semi": f"SELECT e.id, e.ts FROM ev e LEFT SEMI JOIN seen s ON {ON}",
    "anti": f"SELECT e.id, e.ts FROM ev e LEFT ANTI JOIN seen s ON {ON}",
    "by where": "SELECT e.id, e.ts, s.w FROM ev e LEFT JOIN seen s ON s.k = e.k "
    "WHERE s.fell > e.ts - INTERVAL 1 HOUR AND e.ts + INTERVAL 1 HOUR >= s.fell",
    "three": f"SELECT e.id, e.ts, s.w, x.v FROM ev e LEFT JOIN seen s ON {ON} "
    "LEFT JOIN ev x ON x.k = s.k AND x.ts >= s.fell AND x.ts < s.fell + INTERVAL 1 HOUR",
    "around": "SELECT e.id, e.ts, s.w FROM seen s LEFT JOIN ev x ON x.k = s.k AND x.ts BETWEEN s.fell "
    f"AND s.fell + INTERVAL 1 HOUR RIGHT JOIN ev e ON {ON} AND x.v = e.v",
    "optional": f"SELECT e.id, e.ts, x.fell AS begun, s.w FROM ev e JOIN seen x ON x.k = e.k LEFT JOIN seen s ON {ON} "
    "AND x.fell <= s.fell AND x.fell >= s.fell",
    "asked by a join": f"SELECT e.ts, e.id, s.w FROM ev e LEFT JOIN seen s ON {ON} "
    "AND EXISTS (SELECT 1 FROM ev x WHERE x.k = s.k AND x.v > 1)",
    "itself": "SELECT e.ts, count(s.id) AS n FROM ev e LEFT JOIN ev s ON s.k = e.k "
    "AND s.ts BETWEEN e.ts - INTERVAL 2 HOURS AND e.ts GROUP BY e.ts",
    "hours": "SELECT date_trunc('HOUR', ts) AS begun, max(v) AS g FROM ev GROUP BY date_trunc('HOUR', ts)",
    "hours of both": "SELECT e.begun, e.g, s.w FROM (SELECT date_trunc('HOUR', ts) AS begun, max(v) AS g FROM ev "
    "GROUP BY date_trunc('HOUR', ts)) e LEFT JOIN seen s ON date_trunc('HOUR', s.fell) = e.begun",
    "as of": "SELECT e.id, e.ts, r.w FROM ev e LEFT JOIN (SELECT s.*, min(s.fell) OVER (PARTITION BY s.k ORDER BY "
    "unix_micros(s.fell) DESC RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS until FROM seen s "
    "WHERE s.fell IS NOT NULL) r ON r.k = e.k AND e.ts >= r.fell AND (r.until IS NULL OR e.ts < r.until)",
    "either": f"SELECT id, ts FROM ev WHERE v > 1 UNION ALL SELECT e.id, s.fell FROM ev e JOIN seen s ON {ON}",
    # A condition of WHERE that is true for a row without a partner says nothing of the changed row that it would match.
    "missing or later": "SELECT e.id, e.ts FROM ev e LEFT JOIN seen s ON s.id = e.id "
    "WHERE s.fell IS NULL OR s.fell > e.ts + INTERVAL 1 HOUR",
    "missing or later, counted": "SELECT e.k, count(*) AS n FROM ev e LEFT JOIN seen s ON s.id = e.id "
    "WHERE s.fell IS NULL OR e.ts < s.fell GROUP BY e.k",
    "missing or later on the right": "SELECT s.id, s.fell FROM ev e RIGHT JOIN seen s ON s.id = e.id "
    "WHERE e.ts IS NULL OR e.ts > s.fell - INTERVAL 1 HOUR",
    # A condition of an outer join says nothing of the sources before it.
    "optional by those before": "SELECT e.id, s.id AS sid FROM ev e JOIN seen s ON s.k = e.k "
    "LEFT JOIN ev x ON x.k = s.k AND s.fell >= e.ts WHERE coalesce(x.v, 0) < 2",
    "forbidden by those before": "SELECT e.id, s.id AS sid FROM ev e JOIN seen s ON s.k = e.k "
    "LEFT ANTI JOIN ev x ON x.k = s.k AND s.fell >= e.ts",
    "optional inside": "SELECT e.id, e.ts FROM ev e WHERE EXISTS (SELECT 1 FROM seen s "
    "LEFT JOIN ev x ON x.k = s.k AND x.ts >= s.fell AND s.fell >= e.ts WHERE s.k = e.k AND coalesce(x.v, 0) < 2)",
    "forbidden inside": "SELECT e.id, e.ts FROM ev e WHERE EXISTS (SELECT 1 FROM seen s "
    "LEFT ANTI JOIN ev x ON x.k = s.k AND s.fell > e.ts WHERE s.k = e.k)",
    "kept by the right inside": "SELECT e.id, e.ts FROM ev e WHERE EXISTS (SELECT 1 FROM ev x "
    "RIGHT JOIN seen s ON x.k = s.k AND s.fell > e.ts WHERE s.k = e.k AND coalesce(x.v, 0) < 2)",
    "kept by both inside": "SELECT e.id, e.ts FROM ev e WHERE EXISTS (SELECT 1 FROM ev x "
    "FULL JOIN seen s ON x.k = s.k AND s.fell > e.ts WHERE s.k = e.k AND coalesce(x.v, 0) < 2)",
    # Spark's own windows, in queries that are joined, asked for or ranked.
    "windows in a join": "SELECT a.s, a.n, b.m FROM "
    "(SELECT window(ts, '2 hours').start AS s, count(*) AS n FROM ev GROUP BY window(ts, '2 hours')) a LEFT JOIN "
    "(SELECT window(fell, '2 hours').start AS s, max(w) AS m FROM seen GROUP BY window(fell, '2 hours')) b "
    "ON a.s = b.s",
    "windows inside": "SELECT e.id, e.ts FROM ev e WHERE EXISTS (SELECT 1 FROM (SELECT k, "
    "window(fell, '1 hour').end AS f FROM seen GROUP BY k, window(fell, '1 hour') HAVING count(*) > 1) b "
    "WHERE b.k = e.k AND b.f BETWEEN e.ts AND e.ts + INTERVAL 1 HOUR)",
    "windows among others": "SELECT id, v FROM ev WHERE date_trunc('HOUR', ts) IN "
    "(SELECT window(fell, '1 hour').start FROM seen WHERE w > 0 GROUP BY window(fell, '1 hour'))",
    "the first of windows": "SELECT window(ts, '2 hours').start AS s, k, count(*) AS n FROM ev "
    "GROUP BY window(ts, '2 hours'), k QUALIFY row_number() OVER "
    "(PARTITION BY window(ts, '2 hours').start ORDER BY count(*) DESC, k) = 1",
    "ranks in windows": "SELECT window(ts, '2 hours').start AS s, k, count(*) AS n, "
    "rank() OVER (PARTITION BY window(ts, '2 hours').start ORDER BY count(*) DESC) AS r FROM ev "
    "GROUP BY window(ts, '2 hours'), k",
    "where there is one": "SELECT e.id, e.ts FROM ev e WHERE EXISTS (SELECT 1 FROM seen s WHERE s.k = e.k "
    "AND s.fell BETWEEN e.ts AND e.ts + INTERVAL 1 HOUR)",
}  # fmt: skip
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Narrow(TwoTimes):
    """Searches that read only the rows within their bounds."""

    def searched(self, query: str) -> str:
        conditions = {}
        for bounds in find_bounds(query):
            if bounds.column in (*TIMES, "until") and bounds.table not in conditions:
                asked = self.connection.execute(translated(bounds.asked)).fetchall()
                ends = [
                    (-float("inf") if least <= -OPEN else least, float("inf") if greatest >= OPEN else greatest)
                    for least, greatest in asked
                    if least <= greatest
                ]
                conditions[bounds.table] = time_condition(f"`{bounds.column}`", ends)
        return with_conditions(query, conditions) if conditions else query


def drawn(chance: random.Random, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows at the ends of frames, a microsecond beside them, ties, a month ago, before 1970, and without a time."""
    found: list[tuple[Any, ...]] = []
    for number in range(chance.randint(0, 14)):
        base = chance.choice((NOON, NOON, NOON, NOON - timedelta(days=31), datetime(1969, 12, 31, 23, tzinfo=UTC)))
        at = base + timedelta(minutes=30 * chance.randint(-6, 6), microseconds=chance.choice((-1, 0, 0, 0, 1)))
        time = None if chance.random() < 0.12 else at.replace(tzinfo=None)
        found.append((number, chance.choice(("a", "b", None)), chance.randint(0, 3), time))
    assert len(names) == 4
    return found


def changed(chance: random.Random, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Some rows go away, come, or have another time or value."""
    found = [row for row in rows if chance.random() > 0.1]
    more = [(100 + row[0], *row[1:]) for row in drawn(chance, ("",) * 4) if chance.random() < 0.15]
    moved = [(*row[:3], more[0][3]) if more and chance.random() < 0.1 else row for row in found]
    return [*[(*row[:2], 9, row[3]) if chance.random() < 0.05 else row for row in moved], *more]


def fill(connection: duckdb.DuckDBPyConnection, chance: random.Random) -> None:
    for name, columns in RELATIONS.items():
        rows = drawn(chance, columns)
        for time, present in (("old", rows), ("new", changed(chance, rows))):
            table = f"{time}_{name}"
            kinds = ("BIGINT", "VARCHAR", "INTEGER", "TIMESTAMP")
            described = ", ".join(f"{column} {kind}" for column, kind in zip(columns, kinds, strict=True))
            connection.execute(f"CREATE OR REPLACE TABLE {table} ({described})")
            if present:
                connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", present)


def narrowed(found: Affected, key_rows: set[tuple[Any, ...]]) -> dict[str, str]:
    """The condition on each input by the reaches of the keys, as `freshline.compute.narrowing` has it."""
    values = {column: [row[place] for row in key_rows] for place, column in enumerate(found.columns)}
    made: dict[str, str] = {}
    choices, nullable = [], []
    for column in dict.fromkeys(reach.key for reach in found.reaches):
        if None not in values[column] or all(reach.null_keys for reach in found.reaches if reach.key == column):
            choices.append([column])
        else:
            nullable.append(column)
    if len(nullable) > 1 and all(any(row) for row in zip(*(values[column] for column in nullable), strict=True)):
        choices.append(nullable)
    for columns in choices:
        for relation in RELATIONS:
            parts = []
            for column in columns:
                readings = [reach for reach in found.reaches if (reach.key, reach.relation) == (column, relation)]
                present = [value.replace(tzinfo=UTC) for value in values[column] if value is not None]
                for reach in readings:
                    near = near_values(present, reach.least, reach.greatest, whole=True)
                    nulls = reach.nulls or (len(columns) == 1 and None in values[column])
                    parts.append(time_condition(reach.column, near, nulls=nulls))
                if not readings:
                    parts = []
                    break
            if parts and relation not in made:
                made[relation] = " OR ".join(parts)
    return made


def find_mistake(name: str, seeds: range) -> str | None:
    """How many searches or queries over less than all give other rows, for one of the queries."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(TIME_WINDOW)
    query = QUERIES[name]
    for seed in seeds:
        fill(connection, random.Random(seed))
        times = Narrow(connection, RELATIONS, TYPES)
        found = times.look(query)
        assert not isinstance(found, Reason), found
        if found.missing:
            return f"{name}, {seed}: {found.missing} are not found"
        read = {relation: columns for relation, columns in RELATIONS.items() if f"FROM {relation}" in query or
                f"JOIN {relation}" in query}  # fmt: skip
        both = find_affected(ResolvedQuery.of(query, read, TYPES), frozenset(read))
        assert isinstance(both, Affected)
        if not found.keys or both.columns != found.columns:
            continue
        conditions = narrowed(both, set(found.keys))
        on = ", ".join(both.columns)
        results = []
        for less in (False, True):
            for relation in read:
                condition = conditions.get(relation, "true") if less else "true"
                text = translated(f"SELECT * FROM new_{relation} WHERE {condition}")
                connection.execute(f"CREATE OR REPLACE TEMP VIEW {relation} AS {text}")
            rows = connection.execute(f"SELECT {on}, q.* FROM ({translated(query)}) q").fetchall()
            results.append(sorted((row for row in rows if row[: len(both.columns)] in found.keys), key=repr))
        if results[0] != results[1]:
            return f"{name}, {seed}: {results[0]} is {results[1]} where {conditions}"
    return None


@pytest.fixture(autouse=True)
def nothing_kept():
    kept = (keys.find_affected, exactness.read_exactness, literal_bounds.find_bounds, *two_times.KEPT)
    for each in kept:
        each.cache_clear()
    yield
    for each in kept:
        each.cache_clear()


@pytest.mark.seconds
@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 300), marks=pytest.mark.long)], ids=["few", "many"])
@pytest.mark.parametrize("name", QUERIES)
def test_less_is_read_for_the_same_rows(name, seeds):
    assert find_mistake(name, seeds) is None


# Rows by which conditions were found to be taken for others, where the first seeds have no such rows.
TELLING = {
    "missing or later, counted": 34,
    "optional inside": 35,
    "forbidden inside": 35,
    "kept by the right inside": 35,
    "kept by both inside": 35,
}


@pytest.mark.seconds
@pytest.mark.parametrize("name", TELLING)
def test_a_condition_bounds_only_the_rows_that_it_is_asked_of(name):
    assert find_mistake(name, range(TELLING[name], TELLING[name] + 1)) is None


def test_times_with_more_digits_than_a_float_has_are_not_rounded():
    query = "SELECT ts, max(v) AS g FROM ev GROUP BY ts"
    found = find_affected(ResolvedQuery.of(query, {"ev": RELATIONS["ev"]}, TYPES), frozenset({"ev"}))
    assert isinstance(found, Affected)

    condition = narrowed(found, {(datetime(2300, 1, 1, microsecond=1, tzinfo=UTC),)})["ev"]

    time = "TIMESTAMP'2300-01-01 00:00:00.000001+00:00'"
    assert condition == f"(ts BETWEEN {time} AND {time})"


# -- planted bugs --------------------------------------------------------------------------------------------------


def with_open_ends(real):
    """A frame is taken for one without its ends."""

    def frame_of(window):
        frame = real(window)
        return None if frame is None else replace(frame, before=frame.before - 1, after=frame.after - 1)

    return frame_of


def not_mirrored(real):
    """The rows that a changed one sees are taken for those that see it."""
    return lambda frame, time, parts: real(replace(frame, before=frame.after, after=frame.before), time, parts)


def without_neighbours(real):
    """Only the rows that are written are read."""

    def around(select, item, found, asked):
        made = real(select, item, found, asked)
        if made is None:
            return None
        span = replace(made[0], least=asked.least - found.greatest, greatest=asked.greatest - found.least)
        return span, made[1]

    return around


def with_shorter_frames(real):
    """Around affected keys an hour less is read than their frames span."""

    def frame_of(window):
        frame = real(window)
        less = timedelta(hours=1) // timedelta(microseconds=1)
        return None if frame is None else replace(frame, before=frame.before - less, after=frame.after - less)

    return frame_of


def from_every_condition(real):
    """A condition of any join is taken for one that says which rows of any source are needed."""
    return lambda self, *sources: True


def without_padded_rows(real):
    """A key that is NULL is taken for one of rows without a time."""
    return lambda select: frozenset(source.alias_or_name for source in sources_of(select))


def without_one_reading(real):
    """Of an input that is read twice, the first reading decides."""
    return lambda query, column: tuple({reach.relation: reach for reach in reversed(real(query, column))}.values())


def until_now(real):
    """A version without a next one is taken for one that ends at once."""
    return lambda null, compared: [replace(each, or_null=False) for each in real(null, compared)]


def a_microsecond_less(real):
    """The ends of an interval are left out."""
    return lambda compared, *arguments: (
        (column, anchor, side, f"{text} {'-+'[side == 0]} 1")
        for column, anchor, side, text in real(compared, *arguments)
    )


BUGS = [
    (key_columns, "frame_of", with_open_ends, "frame"),
    (time_distance, "frame_of", with_shorter_frames, "frame"),
    (key_columns, "_seeing", not_mirrored, "frame"),
    (time_distance, "_around", without_neighbours, "frame"),
    (time_distance._Condition, "leads", from_every_condition, "optional"),
    (time_distance, "kept_sources", without_padded_rows, "full"),
    (keys, "find_time_distances", without_one_reading, "itself"),
    (time_distance, "_until", until_now, "as of"),
    (literal_bounds, "_ends", a_microsecond_less, "inner"),
    (literal_bounds._Condition, "leads", from_every_condition, "optional by those before"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("place", "name", "plant", "query"), BUGS, ids=[f"{bug[2].__name__}-{bug[1]}" for bug in BUGS])
def test_a_planted_bug_is_found(monkeypatch, place, name, plant, query):
    monkeypatch.setattr(place, name, plant(getattr(place, name)))

    assert any(find_mistake(query, range(first, first + 10)) is not None for first in range(0, 100, 10)), plant.__doc__
