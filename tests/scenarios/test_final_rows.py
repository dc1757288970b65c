"""Rows of EMIT FINAL without windows are a function of their logs: OVER, joins by time, and matches."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any

import pytest

from freshline.patterns.matcher import PartitionRows, Skip, SkipTo, find_matches
from freshline.patterns.pattern import parse_pattern
from freshline.patterns.program import compile_pattern
from freshline.values.names import TableName
from tests.lanes import long_but
from tests.scenarios.test_final import (
    EPOCH,
    EVENTS,
    MINUTE,
    START,
    Bag,
    Event,
    ThreeTables,
    declare,
    drawn_batches,
    event,
    require_each_row_once_after_crashes,
    require_refusal,
    shown,
    time_of,
    watermarks,
)

Batches = Sequence[Sequence[Event]]
# The rows of the table and its late rows, as they are by definition.
Oracle = Callable[[Batches, timedelta], tuple[Bag, Bag]]


def in_time(batches: Batches, lateness: timedelta) -> tuple[list[Event], Bag]:
    """The rows with a time that came in time, and the numbers of the late ones with how late they are in seconds."""
    found: list[Event] = []
    late: Bag = Counter()
    for before, batch in zip(watermarks(batches), batches, strict=False):
        for row in batch:
            if time_of(row) is None:
                continue
            if before is not None and at(row) + lateness <= before:
                late[(row["id"], Decimal((before - at(row) - lateness) // timedelta(microseconds=1)) / 10**6)] += 1
            else:
                found.append(row)
    return found, late


def late_rows(lab, name: str) -> Bag:
    return Counter((row["id"], row["late_by"]) for row in lab.late(name))


def value(row: Event) -> int:
    return int(str(row["v"]))


def at(row: Event) -> datetime:
    return datetime.fromisoformat(str(row["ts"]))


def frames(before: timedelta | None, behind: timedelta, batches: Batches, lateness: timedelta) -> tuple[Bag, Bag]:
    rows, late = in_time(batches, lateness)
    mark = watermarks(batches)[-1]
    found: Bag = Counter()
    for row in rows:
        if mark is None or at(row) + behind + lateness > mark:
            continue
        near = [
            value(other)
            for other in rows
            if other["k"] == row["k"]
            and (before is None or at(other) >= at(row) - before)
            and at(other) <= at(row) + behind
        ]
        found[(row["id"], row["k"], at(row), sum(near), len(near))] += 1
    return found, late


FRAME = """SELECT id, k, ts, sum(v) OVER (PARTITION BY k ORDER BY ts {frame}) AS total,
  count(*) OVER (PARTITION BY k ORDER BY ts {frame}) AS n
FROM ev"""
OVERS: dict[str, tuple[str, Oracle]] = {
    "trailing": (
        FRAME.format(frame="RANGE BETWEEN INTERVAL '5' MINUTES PRECEDING AND CURRENT ROW"),
        lambda batches, lateness: frames(5 * MINUTE, 0 * MINUTE, batches, lateness),
    ),
    "around": (
        FRAME.format(frame="RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND INTERVAL '2' MINUTES FOLLOWING"),
        lambda batches, lateness: frames(1 * MINUTE, 2 * MINUTE, batches, lateness),
    ),
    "so_far": (
        FRAME.format(frame="").replace("FROM ev", "FROM ev AS e WHERE e.v < 100 -- all"),
        lambda batches, lateness: frames(None, 0 * MINUTE, batches, lateness),
    ),
}


def play(lab, query: str, oracle: Oracle, lateness: int, batches: Batches) -> tuple[Bag, Bag]:
    lab.files("ev", EVENTS, primary_key=["id"])
    tables = ThreeTables(lab, query, lateness, late_rows)
    for number, batch in enumerate(batches, 1):
        lab.land("ev", f"{number}.json", batch)
        found = oracle(batches[:number], lateness * MINUTE)
        tables.refresh_each_time(found, first=number == 1)
        if number == len(batches) // 2:
            assert lab.refresh("anew").error is None
    tables.end(found)
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", OVERS)
def test_rows_with_frames_are_the_same_however_often_they_are_refreshed(lab, name: str) -> None:
    rows, late = play(lab, *OVERS[name], 0 if name == "trailing" else 3, drawn_batches(len(name), 4))
    # Else the case says little.
    assert rows
    assert late


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 220))
def test_rows_with_frames_are_the_same_for_other_rows_too(lab, seed: int) -> None:
    chance = random.Random(seed)
    query, oracle = OVERS[chance.choice(list(OVERS))]
    play(lab, query, oracle, chance.choice((0, 1, 3, 30)), drawn_batches(seed, count=chance.randint(4, 10)))


@pytest.mark.long
def test_rows_are_final_when_the_watermark_has_passed_their_frame(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    declare(lab, "t", OVERS["around"][0], 1)
    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "a", 2, 3), event(3, None, 3, 5)])
    assert lab.refresh("t").error is None
    # The watermark is at minute 4: the frame of the first row ends at 3, and a minute is allowed.
    minutes = [START + n * MINUTE for n in range(10)]
    assert shown(lab, "t") == {(1, "a", minutes[1], 3, 2): 1}
    # A row at the end of a frame that is closed, and one a microsecond behind that.
    close = START + 3 * MINUTE + timedelta(microseconds=1)
    lab.land("ev", "2.json", [event(4, "a", 10, 3), {"id": 5, "k": "a", "v": 20, "ts": close.isoformat()}])
    lab.land("ev", "2b.json", [event(6, None, 1, None)])
    assert lab.refresh("t").strategy == "noop"
    assert late_rows(lab, "t") == {(4, Decimal(0)): 1}
    lab.land("ev", "3.json", [event(7, "b", 1, 20)])
    result = lab.refresh("t")
    assert result.strategy == "append"
    assert result.reason.startswith("WINDOWS_CLOSED")
    assert shown(lab, "t") == {
        (1, "a", minutes[1], 3, 2): 1, (2, "a", minutes[3], 22, 2): 1, (5, "a", close, 22, 2): 1,
        (3, None, minutes[5], 3, 1): 1,
    }  # fmt: skip
    assert lab.verify("t").equal


@pytest.mark.long
def test_places_of_a_total_order_are_final_and_queries_around_them_stay(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    declare(
        lab, "t", "SELECT id, ts, v - before AS rise FROM (SELECT *, lag(v) OVER (PARTITION BY k ORDER BY ts, id) "
        "AS before,\n sum(v) FILTER (WHERE v > 0) OVER (PARTITION BY k ORDER BY ts ASC, id ROWS BETWEEN 1 PRECEDING "
        "AND CURRENT ROW) AS s FROM ev WHERE v IS NOT NULL QUALIFY s > 4) AS x WHERE v > before", 0,
    )  # fmt: skip
    declare(lab, "top", "SELECT ts AS at, id, rank() OVER (PARTITION BY k ORDER BY ts) AS place FROM ev", 0)
    declare(lab, "minutes", "SELECT window_start, count(*) AS n, max(place) AS place FROM TABLE(TUMBLE(TABLE top, "
            "DESCRIPTOR(at), INTERVAL '5' MINUTES)) GROUP BY window_start", 0)  # fmt: skip
    lab.land("ev", "1.json", [event(2, "a", 3, 1), event(1, "a", 1, 1), event(3, "a", 5, 2), event(4, "a", 9, 6)])
    for name in ("t", "minutes"):
        assert lab.refresh(name).error is None
    assert shown(lab, "t") == {(3, START + 2 * MINUTE, 2): 1}
    lab.land("ev", "2.json", [event(5, "a", 1, 5), event(6, "a", 7, 5.5), event(7, "b", 1, 20)])
    for name in ("t", "minutes"):
        assert lab.refresh(name).error is None
    assert shown(lab, "t") == {
        (3, START + 2 * MINUTE, 2): 1, (6, START + 5.5 * MINUTE, 2): 1, (4, START + 6 * MINUTE, 2): 1
    }  # fmt: skip
    assert shown(lab, "minutes") == {(START, 3, 3): 1, (START + 5 * MINUTE, 2, 5): 1}
    assert [row["id"] for row in lab.late("t")] == [5]
    assert lab.late("minutes") == []
    for name in ("t", "top", "minutes"):
        assert lab.verify(name).equal


@pytest.mark.long
def test_killed_anywhere_rows_with_frames_come_once(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    query, oracle = OVERS["around"]
    declare(lab, "t", query, 1)
    require_each_row_once_after_crashes(lab, {"ev": 5}, oracle, late_rows)


@pytest.mark.long
def test_a_refresh_reads_the_files_of_its_frames_only(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    declare(lab, "t", OVERS["trailing"][0], 0)
    for number in range(8):
        lab.land("ev", f"{number}.json", [event(number, "a", 1, 60.0 * number)])
        assert lab.refresh("t").error is None
    text = lab.runtime.graph.table(TableName.parse("t")).query.text
    assert "ts` > timestamp_micros(freshline_closed_after(300000000))" in text
    assert len(shown(lab, "t")) == 7
    assert lab.verify("t").equal


@pytest.fixture(scope="module")
def inputs(shared_lab):
    """The inputs of the refused tables."""
    shared_lab.files("ev", EVENTS.replace("ts TIMESTAMP", "ts TIMESTAMP, at TIMESTAMP"), primary_key=["id"])
    shared_lab.files("other", EVENTS, primary_key=["id"])
    shared_lab.files("two", "id BIGINT, ts TIMESTAMP, other TIMESTAMP, WATERMARK FOR ts AS ts")
    shared_lab.source("plain", "id BIGINT, v INT, ts TIMESTAMP")
    declare(shared_lab, "done", "SELECT id, ts, rank() OVER (ORDER BY ts) AS x FROM ev", 0)
    return shared_lab


def over(frame: str) -> str:
    return f"SELECT id, {frame} AS x FROM ev"


@pytest.mark.parametrize(
    ("code", "query", "said"),
    [
        ("FINAL_INPUT", over("sum(v) OVER (PARTITION BY k)"), "without ORDER BY"),
        ("FINAL_INPUT", over("lead(v) OVER (ORDER BY ts, id)"), "later rows"),
        ("FINAL_INPUT", over("lag(v, -1) OVER (ORDER BY ts, id)"), "later rows"),
        ("FINAL_INPUT", over("ntile(4) OVER (ORDER BY ts, id)"), "later rows"),
        ("FINAL_INPUT", over("sum(v) OVER (ORDER BY ts DESC)"), "no ascending column"),
        ("FINAL_INPUT", over("sum(v) OVER (ORDER BY date_trunc('hour', ts))"), "no ascending column"),
        ("FINAL_INPUT", over("sum(v) OVER (ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"), "a frame up to"),
        ("FINAL_INPUT", over("sum(v) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)"), "a frame"),
        ("FINAL_INPUT", over("sum(v) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '-1' HOUR PRECEDING)"),
         "a plain interval"),
        ("FINAL_INPUT", over("sum(v) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '-1' HOUR FOLLOWING AND CURRENT ROW)"),
         "a plain interval"),
        ("FINAL_INPUT", over("sum(v) OVER (ORDER BY ts, id ROWS BETWEEN CURRENT ROW AND -1 PRECEDING)"),
         "a plain interval"),
        ("FINAL_INPUT", over("sum(v) OVER w") + " WINDOW w AS (ORDER BY ts)", "WINDOW"),
        ("FINAL_INPUT", "SELECT DISTINCT id, rank() OVER (ORDER BY ts) AS x FROM ev", "DISTINCT"),
        ("FINAL_INPUT", over("rank() OVER (ORDER BY ts)") + " ORDER BY id", "ORDER BY"),
        ("FINAL_INPUT", over("rank() OVER (ORDER BY ts)") + " UNION ALL SELECT id, 1 FROM ev", "UNION"),
        ("FINAL_INPUT", "SELECT k, sum(x) AS x FROM (" + over("rank() OVER (ORDER BY ts)").replace("id,", "k,")
         + ") GROUP BY k", "GROUP BY"),
        ("FINAL_INPUT", "SELECT id, rank() OVER (ORDER BY ts) AS x, sum(v) OVER (ORDER BY id) AS y FROM ev", "by id"),
        ("FINAL_INPUT", "SELECT x, rank() OVER (ORDER BY x) AS y FROM (" + over("rank() OVER (ORDER BY ts)") + ")",
         "several SELECTs"),
        ("FINAL_INPUT", "SELECT e.id, rank() OVER (ORDER BY e.ts) AS x FROM ev e JOIN ev f ON e.id = f.id", "JOIN"),
        ("FINAL_INPUT", "WITH c AS (SELECT * FROM ev) SELECT id, rank() OVER (ORDER BY ts) AS x FROM c", "WITH"),
        ("FINAL_INPUT", over("rank() OVER (ORDER BY ts)").replace("ev", "plain"), "neither"),
        ("COUNT_ORDER", over("row_number() OVER (PARTITION BY k ORDER BY ts)"), "PRIMARY KEY"),
        ("WATERMARK_MISSING", over("rank() OVER (ORDER BY other)").replace("ev", "two"), "of ts"),
    ],
)  # fmt: skip
def test_rows_that_are_never_final_are_refused(inputs, code: str, query: str, said: str) -> None:
    require_refusal(inputs, query, code, said)


# -- joins by an interval

PAIRS = """SELECT x.id AS a, y.id AS b, x.k AS k, coalesce(x.v, 0) + coalesce(y.v, 0) AS total
FROM ev AS x {kind} JOIN other AS y
  ON x.k = y.k AND (x.v > 0 OR y.v > 0) AND y.ts BETWEEN x.ts - INTERVAL '1' MINUTE AND x.ts + INTERVAL '3' MINUTES"""


def both_in_time(
    names: str, left: Batches, right: Batches, lateness: timedelta
) -> tuple[list[list[Event]], Bag, datetime | None]:
    """The rows of two logs that came in time, the late ones with the letter of their side, and the lesser watermark."""
    sides: list[list[Event]] = []
    late: Bag = Counter()
    for name, batches in zip(names, (left, right), strict=True):
        rows, too_late = in_time(batches, lateness)
        sides.append(rows)
        late.update({(name, *key): n for key, n in too_late.items()})
    marks = [watermarks(each)[-1] for each in (left, right)]
    return sides, late, None if None in marks else min(each for each in marks if each is not None)


def pairs(kind: str, left: Batches, right: Batches, lateness: timedelta) -> tuple[Bag, Bag]:
    """By definition, with all batches of both logs read."""
    sides, late, mark = both_in_time("xy", left, right, lateness)
    found: Bag = Counter()
    met: tuple[set[object], set[object]] = (set(), set())
    for x in sides[0]:
        for y in sides[1]:
            apart = at(y) - at(x)
            if x["k"] is not None and x["k"] == y["k"] and -MINUTE <= apart <= 3 * MINUTE:
                found[(x["id"], y["id"], x["k"], value(x) + value(y))] += 1
                met[0].add(x["id"])
                met[1].add(y["id"])
    for number, (kinds, ahead) in enumerate(((("LEFT", "FULL"), 3 * MINUTE), (("RIGHT", "FULL"), MINUTE))):
        for row in sides[number] if kind in kinds else ():
            if row["id"] not in met[number] and mark is not None and at(row) + ahead + lateness <= mark:
                alone = (None, row["id"], None) if number else (row["id"], None, row["k"])
                found[(*alone, value(row))] += 1
    return found, late


def late_of_both(lab, name: str, sides: str = "xy") -> Bag:
    return Counter(
        (side, row[side]["id"], row["late_by"]) for row in lab.late(name) for side in sides if row[side] is not None
    )


@pytest.mark.parametrize("kind", long_but(["FULL OUTER"], ["", "LEFT", "FULL OUTER"]))
def test_pairs_are_the_same_however_often_they_are_refreshed(lab, kind: str) -> None:
    seed = len(kind) + 40
    play_pairs(lab, kind, 0 if kind == "LEFT" else 1, drawn_batches(seed, 3), drawn_batches(seed + 10, 3))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(300, 315))
def test_pairs_are_the_same_for_other_rows_too(lab, seed: int) -> None:
    chance = random.Random(seed)
    kind = chance.choice(("INNER", "LEFT", "RIGHT OUTER", "FULL"))
    play_pairs(lab, kind, chance.choice((0, 1, 3)), drawn_batches(seed, 6), drawn_batches(seed + 1000, 6), chance)


def play_pairs(
    lab, kind: str, lateness: int, left: Batches, right: Batches, chance: random.Random | None = None
) -> None:
    definition = partial(pairs, kind.split(" ")[0])
    play_both(lab, PAIRS.format(kind=kind), definition, late_of_both, lateness, left, right, chance or random.Random(1))


def play_both(
    lab,
    query: str,
    definition: Callable[[Batches, Batches, timedelta], tuple[Bag, Bag]],
    late: Callable[[Any, str], Bag],
    lateness: int,
    left: Batches,
    right: Batches,
    chance: random.Random,
) -> None:
    """As `play`, over two logs."""
    for log in ("ev", "other"):
        lab.files(log, EVENTS, primary_key=["id"])
    tables = ThreeTables(lab, query, lateness, late)
    read = {"ev": 0, "other": 0}
    while read["ev"] < len(left) or read["other"] < len(right):
        for log, batches in (("ev", left), ("other", right)):
            # Now one side is ahead, now the other.
            if read[log] < len(batches) and chance.random() < 0.7:
                lab.land(log, f"{read[log]}.json", batches[read[log]])
                read[log] += 1
        found = definition(left[: read["ev"]], right[: read["other"]], lateness * MINUTE)
        tables.refresh_each_time(found, first=not tables.seen)
        if read["ev"] == len(left) // 2:
            assert lab.refresh("anew").error is None
    tables.end(found)
    assert all(found)


def columns_of(prefix: str) -> str:
    """The columns of a log with other names, so that `*` over a join has each name once."""
    return EVENTS.replace(
        "id BIGINT, k STRING, v INT, ts TIMESTAMP",
        ", ".join(f"{prefix}_{column}" for column in ("id BIGINT", "k STRING", "v INT", "ts TIMESTAMP")),
    ).replace("FOR ts AS ts", f"FOR {prefix}_ts AS {prefix}_ts")


def renamed(prefix: str, rows: Sequence[Event]) -> list[Event]:
    return [{f"{prefix}_{name}": each for name, each in row.items()} for row in rows]


@pytest.mark.long
def test_a_pair_is_written_at_once_and_a_row_alone_when_its_interval_has_passed(lab) -> None:
    for log in ("ev", "other"):
        lab.files(log, EVENTS, primary_key=["id"])
    lab.files("ad", columns_of("ad"), primary_key=["ad_id"])
    declare(
        lab, "t", "SELECT * FROM (SELECT e.*, other.id AS b FROM ev e LEFT JOIN other ON (other.k = e.k AND e.ts <= "
        "other.ts\n) AND other.ts < e.ts + INTERVAL '5 minutes' WHERE e.v > 0 OR other.v > 0 -- none\n) AS z "
        "WHERE id < 90", 0,
    )  # fmt: skip
    # The second side is before the first: its rows were there when the others come.
    declare(
        lab, "back", "SELECT * EXCEPT (k) FROM ev AS e RIGHT OUTER JOIN ad AS o ON o.ad_k = e.k AND "
        "o.ad_ts >= e.ts + INTERVAL '1' MINUTE AND e.ts + INTERVAL '2' MINUTES >= o.ad_ts", 0,
    )  # fmt: skip

    def land_both(name: str, rows: list[Event]) -> None:
        lab.land("other", name, rows)
        lab.land("ad", name, renamed("ad", rows))

    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "b", 2, 3), event(99, "c", 2, 3)])
    land_both("1.json", [event(11, "a", 5, 2)])
    for name in ("t", "back"):
        assert lab.refresh(name).error is None
    minutes = [START + n * MINUTE for n in range(40)]
    assert shown(lab, "t") == {(1, "a", 1, minutes[1], 11): 1}
    assert shown(lab, "back") == {(1, 1, minutes[1], 11, "a", 5, minutes[2]): 1}
    land_both("2.json", [event(12, "a", 5, 5), event(13, "b", 5, 7.5)])
    lab.land("ev", "2.json", [event(3, "c", 3, 30), event(4, "c", 3, None)])
    for name in ("t", "back"):
        assert lab.refresh(name).reason.startswith("INSERTS_ONLY")
    assert shown(lab, "t") == {
        (1, "a", 1, minutes[1], 11): 1, (1, "a", 1, minutes[1], 12): 1, (2, "b", 2, minutes[3], 13): 1,
    }  # fmt: skip
    land_both("3.json", [event(14, "d", 5, 40)])
    for name in ("t", "back"):
        assert lab.refresh(name).error is None
    # The watermark is the least of both: at minute 29.
    assert (99, "c", 2, minutes[3], None) not in shown(lab, "t")
    assert [row for row in shown(lab, "t") if row[-1] is None] == []
    assert sorted(str(row[3]) for row in shown(lab, "back")) == ["11", "12", "13"]
    lab.land("ev", "3.json", [event(5, "d", 3, 60), event(6, "b", 3, 28)])
    assert lab.refresh("t").error is None
    assert [row for row in shown(lab, "t") if row[-1] is None] == [(3, "c", 3, minutes[30], None)]
    assert [(row["e"]["id"], row["other"]) for row in lab.late("t")] == [(6, None)]
    for name in ("t", "back", "t__late"):
        assert lab.verify(name).equal


@pytest.mark.long
def test_killed_anywhere_pairs_come_once(lab) -> None:
    for log in ("ev", "other"):
        lab.files(log, EVENTS, primary_key=["id"])
    declare(lab, "t", PAIRS.format(kind="FULL"), 1)
    require_each_row_once_after_crashes(lab, {"ev": 5, "other": 15}, partial(pairs, "FULL"), late_of_both)


@pytest.mark.long
def test_restored_pairs_come_again(lab) -> None:
    for log in ("ev", "other"):
        lab.files(log, EVENTS, primary_key=["id"])
    declare(lab, "t", PAIRS.format(kind="LEFT"), 0)
    both = drawn_batches(81, 4), drawn_batches(82, 4)
    for number in range(4):
        for log, batches in zip(("ev", "other"), both, strict=True):
            lab.land(log, f"{number}.json", batches[number])
        assert lab.refresh("t").error is None
        if number == 1:
            kept = shown(lab, "t"), late_of_both(lab, "t")
            lab.create_savepoint("s")
    assert shown(lab, "t") != kept[0]
    lab.restore_savepoint("s")
    assert (shown(lab, "t"), late_of_both(lab, "t")) == kept
    # The files that the logs had after the savepoint are read again, in one batch each.
    assert lab.refresh("t").error is None
    again = [[*batches[:2], [row for batch in batches[2:] for row in batch]] for batches in both]
    assert (shown(lab, "t"), late_of_both(lab, "t")) == pairs("LEFT", again[0], again[1], 0 * MINUTE)
    assert lab.verify("t").equal


IN_AN_HOUR = "b.ts BETWEEN a.ts AND a.ts + INTERVAL '1' HOUR"


@pytest.mark.parametrize(
    ("code", "query", "said"),
    [
        ("FINAL_INPUT", "SELECT a.id FROM ev a JOIN ev b ON a.k = b.k", "without an interval"),
        ("FINAL_INPUT", "SELECT a.id FROM ev a JOIN ev b ON a.k = b.k AND a.ts <= b.ts", "without an interval"),
        ("FINAL_INPUT", f"SELECT a.id FROM ev a JOIN ev b ON {IN_AN_HOUR} OR a.k = b.k", "OR"),
        ("FINAL_INPUT", f"SELECT a.id FROM ev a JOIN ev b ON NOT {IN_AN_HOUR}", "without an interval"),
        ("FINAL_INPUT", f"SELECT a.id FROM ev a LEFT SEMI JOIN ev b ON {IN_AN_HOUR}", "LEFT SEMI JOIN"),
        ("FINAL_INPUT", f"SELECT a.id FROM ev a JOIN ev b ON {IN_AN_HOUR} JOIN ev c ON a.k = c.k", "several JOINs"),
        ("FINAL_INPUT", "SELECT a.id FROM ev a JOIN ev b USING (id)", "without ON"),
        ("FINAL_INPUT", f"SELECT a.id FROM (SELECT * FROM ev) a JOIN ev b ON {IN_AN_HOUR}", "SELECT * FROM ev"),
        ("FINAL_INPUT", f"SELECT a.k, count(*) AS n FROM ev a JOIN ev b ON {IN_AN_HOUR} GROUP BY a.k", "GROUP BY"),
        ("FINAL_INPUT", f"SELECT a.id FROM ev a JOIN done b ON {IN_AN_HOUR}", "done is a table"),
        ("FINAL_INPUT", f"SELECT a.id FROM ev a JOIN plain b ON {IN_AN_HOUR}", "neither"),
        ("WATERMARK_MISSING", f"SELECT a.id FROM ev a JOIN two b ON {IN_AN_HOUR.replace('b.ts', 'b.other')}", "of ts"),
    ],
)
def test_joins_that_are_never_final_are_refused(inputs, code: str, query: str, said: str) -> None:
    require_refusal(inputs, query, code, said)


# -- as-of joins

AS_OF = """SELECT e.id, e.ts, r.id AS version, r.v AS rate
FROM ev AS e {kind} JOIN other FOR SYSTEM_TIME AS OF e.ts AS r ON r.k = e.k"""


def met_versions(kind: str, rows: Batches, versions: Batches, lateness: timedelta) -> tuple[Bag, Bag]:
    sides, late, mark = both_in_time("er", rows, versions, lateness)
    found: Bag = Counter()
    for row in sides[0]:
        if mark is None or at(row) + lateness > mark:
            continue
        held = [each for each in sides[1] if row["k"] is not None and each["k"] == row["k"] and at(each) <= at(row)]
        best = max(held, key=at, default=None)
        if best is not None or kind == "LEFT":
            found[(row["id"], at(row), *((None, None) if best is None else (best["id"], best["v"])))] += 1
    return found, late


def distinct_versions(batches: Batches) -> Batches:
    """The first row of each key and time: two versions of one time fail a refresh."""
    seen: set[tuple[object, object]] = set()
    found: list[list[Event]] = []
    for batch in batches:
        kept = []
        for row in batch:
            if row["ts"] is None or (row["k"], row["ts"]) not in seen:
                kept.append(row)
                seen.add((row["k"], row["ts"]))
        found.append(kept)
    return found


def play_versions(lab, kind: str, lateness: int, seed: int, count: int) -> None:
    left, right = drawn_batches(seed, count), distinct_versions(drawn_batches(seed + 500, count))
    chance = random.Random(seed)
    play_both(
        lab,
        AS_OF.format(kind=kind),
        partial(met_versions, kind),
        partial(late_of_both, sides="er"),
        lateness,
        left,
        right,
        chance,
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", ["", "LEFT"])
def test_rows_match_their_version_once(lab, kind: str) -> None:
    play_versions(lab, kind, 2 if kind else 0, seed=60, count=4)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(400, 410))
def test_other_rows_match_their_version_once_too(lab, seed: int) -> None:
    play_versions(lab, ("LEFT", "")[seed % 2], (0, 1, 5)[seed % 3], seed, 6)


@pytest.mark.long
def test_stars_and_deleted_versions_of_final_rows(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    lab.files(
        "r", columns_of("r"), primary_key=["r_id"], **{"as-of.delete-when": "r_v = 0", "as-of.tie-breaker": "r_id"}
    )
    declare(
        lab, "t", "SELECT * FROM (SELECT *, e.v AS w FROM ev AS e JOIN r FOR SYSTEM_TIME AS OF e.ts ON r.r_k = "
        "e.k -- none\n WHERE e.v > 0) AS z WHERE w > 0", 0,
    )  # fmt: skip
    declare(lab, "met", "SELECT e.ts AS at, n.r_v AS v FROM ev e LEFT JOIN r FOR SYSTEM_TIME AS OF e.ts AS n ON "
            "n.r_k = e.k", 0)  # fmt: skip
    declare(lab, "sums", "SELECT window_start, sum(v) AS v FROM TUMBLE(TABLE met, DESCRIPTOR(at), INTERVAL '5' MINUTES)"
            " GROUP BY window_start", 0)  # fmt: skip
    versions = [event(1, "a", 5, 0), event(2, "a", 6, 0), event(3, "a", 0, 3), event(4, "a", 7, 20)]
    lab.land("r", "1.json", renamed("r", versions))
    lab.land("ev", "1.json", [event(11, "a", 1, 2), event(12, "a", 1, 4), event(13, "a", 1, 19)])
    for name in ("t", "sums"):
        assert lab.refresh(name).error is None
    minutes = [START + n * MINUTE for n in range(40)]
    assert shown(lab, "t") == {(11, "a", 1, minutes[2], 2, "a", 6, minutes[0], 1): 1}
    assert shown(lab, "sums") == {(START, 6): 1}
    lab.land("r", "2.json", renamed("r", [event(5, "a", 9, 1), event(6, "b", 9, 60)]))
    lab.land("ev", "2.json", [event(14, "a", 2, 21), event(15, "a", 2, 60)])
    for name in ("t", "sums"):
        assert lab.refresh(name).error is None
    assert {row[0]: row[4] for row in shown(lab, "t")} == {11: 2, 14: 4}
    assert [(row["e"], row["r"]["r_id"]) for row in lab.late("t")] == [(None, 5)]
    assert shown(lab, "sums")[START + 20 * MINUTE, 7] == 1
    for name in ("t", "met", "sums", "t__late"):
        assert lab.verify(name).equal


@pytest.mark.parametrize(
    ("code", "query", "said"),
    [
        ("FINAL_INPUT", AS_OF.format(kind="") + " JOIN ev AS f ON f.id = e.id", "beside another join"),
        ("FINAL_INPUT", AS_OF.format(kind="").replace("AS OF e.ts", "AS OF PROCTIME()"), "SYSTEM_TIME"),
        ("FINAL_INPUT", AS_OF.format(kind="").replace("other", "ev"), "itself"),
        ("FINAL_INPUT", AS_OF.format(kind="").replace("e.id, e.ts, r.id AS version, r.v AS rate", "DISTINCT r.v"),
         "DISTINCT"),
        ("WATERMARK_MISSING", AS_OF.format(kind="").replace("e.ts AS r", "e.at AS r"), "of ts"),
    ],
)  # fmt: skip
def test_as_of_joins_that_are_never_final_are_refused(inputs, code: str, query: str, said: str) -> None:
    require_refusal(inputs, query, code, said)


# -- matches

RISES = """SELECT k, began, ended, n, number FROM ev MATCH_RECOGNIZE (
  PARTITION BY k ORDER BY ts, id
  MEASURES FIRST(A.ts) AS began, LAST(ts) AS ended, count(*) AS n, MATCH_NUMBER() AS number
  PATTERN (A B+) {within} DEFINE B AS B.v > PREV(B.v)) AS m
WHERE n < 100"""
FALLS = """SELECT id, v, k, ts, number FROM (SELECT id, v, k, ts FROM ev -- all
  WHERE v > 1) MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts ASC, id
  MEASURES MATCH_NUMBER() AS number ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B{1,2})
  DEFINE B AS B.v < LAST(A.v))"""


def matches(batches: Batches, lateness: timedelta, within: timedelta | None, *, rises: bool) -> tuple[Bag, Bag]:
    """The matches among rows up to the watermark that no row behind it can change."""
    kept = [[row for row in batch if rises or value(row) > 1] for batch in batches]
    # The watermark is of all rows, whether the query reads them or not.
    rows, late = in_time(batches, lateness)
    if not rises:
        values = {row["id"]: value(row) for batch in batches for row in batch}
        rows = [row for row in rows if any(row in batch for batch in kept)]
        late = Counter({key: n for key, n in late.items() if values[key[0]] > 1})
    mark = watermarks(batches)[-1]
    found: Bag = Counter()
    if mark is None:
        return found, late
    program = compile_pattern(parse_pattern("A B+" if rises else "A B{1,2}"), {"A": 0, "B": 1})
    skip = Skip() if rises else Skip(SkipTo.NEXT_ROW)
    for key in {row["k"] for row in rows}:
        known = [row for row in rows if row["k"] == key and at(row) + lateness <= mark]
        known.sort(key=lambda row: (at(row), str(row["id"]).zfill(9)))
        rising = [bool(n) and value(row) > value(known[n - 1]) for n, row in enumerate(known)]
        times = [(at(row) - EPOCH) // timedelta(microseconds=1) for row in known]
        more_from = (mark - lateness - EPOCH) // timedelta(microseconds=1) + 1
        masks = [1 | 2 * each for each in rising] if rises else [3] * len(known)
        asked = {} if rises else {1: falling([value(row) for row in known])}
        span = None if within is None else within // timedelta(microseconds=1)
        searched = find_matches(
            program, PartitionRows(masks, times, more_from), skip=skip, within=span, conditions=asked
        )
        for number, match in enumerate(searched, 1):
            part = known[match.begin : match.begin + len(match.places)]
            if rises:
                found[(key, at(part[0]), at(part[-1]), len(part), number)] += 1
            else:
                found.update((row["id"], value(row), key, at(row), number) for row in part)
    return found, late


def falling(values: Sequence[int]) -> Callable[[Sequence[int], int, int], bool]:
    """Whether a row has a lower value than the first of its match, which is its only A."""
    return lambda labels, start, row: values[row] < values[start]


MATCHES: dict[str, tuple[str, Oracle]] = {
    "rises": (RISES.format(within=""), lambda batches, lateness: matches(batches, lateness, None, rises=True)),
    "within": (
        RISES.format(within="WITHIN INTERVAL '6' MINUTES"),
        lambda batches, lateness: matches(batches, lateness, 6 * MINUTE, rises=True),
    ),
    "falls": (FALLS, lambda batches, lateness: matches(batches, lateness, None, rises=False)),
}


@pytest.mark.long
@pytest.mark.parametrize("name", MATCHES)
def test_matches_are_the_same_however_often_they_are_refreshed(lab, name: str) -> None:
    rows, late = play(lab, *MATCHES[name], 2 if name == "within" else 0, drawn_batches(70 + len(name), 4))
    assert rows
    assert late


@pytest.mark.long
@pytest.mark.parametrize("seed", range(500, 515))
def test_matches_are_the_same_for_other_rows_too(lab, seed: int) -> None:
    chance = random.Random(seed)
    query, oracle = MATCHES[chance.choice(list(MATCHES))]
    play(lab, query, oracle, chance.choice((0, 1, 3)), drawn_batches(seed, count=chance.randint(4, 9)))


@pytest.mark.long
def test_a_match_is_written_when_no_row_to_come_can_change_it(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    declare(lab, "t", RISES.format(within=""), 0)
    declare(lab, "w", RISES.format(within="WITHIN INTERVAL '6' MINUTES"), 0)
    lab.land("ev", "1.json", [event(1, "a", 1, 1), event(2, "a", 2, 2), event(3, "a", 3, 5)])
    for name in ("t", "w"):
        assert lab.refresh(name).error is None
    # The watermark is at minute 4. Rows that come behind it may continue the rise.
    assert shown(lab, "t") == shown(lab, "w") == Counter()
    lab.land("ev", "2.json", [event(4, "b", 1, 7.5), event(5, "a", 9, 4), event(6, "a", 4, 4.5)])
    for name in ("t", "w"):
        assert lab.refresh(name).error is None
    minutes = [START + n * MINUTE for n in range(40)]
    # Row 5 is late. The rise ends with the fall from 4 to 3, which came first.
    rise = ("a", minutes[1], minutes[4] + MINUTE / 2, 3, 1)
    assert shown(lab, "t") == shown(lab, "w") == {rise: 1}
    lab.land("ev", "3.json", [event(7, "b", 2, 8), event(8, "c", 2, 14.6)])
    for name in ("t", "w"):
        assert lab.refresh(name).error is None
    assert shown(lab, "t") == {rise: 1}
    # Within six minutes nothing can go on behind the watermark at 13.6.
    assert shown(lab, "w") == {rise: 1, ("b", minutes[7] + MINUTE / 2, minutes[8], 2, 1): 1}
    assert late_rows(lab, "w") == late_rows(lab, "t") == {(5, Decimal(0)): 1}
    for name in ("t", "w", "t__late"):
        assert lab.verify(name).equal


@pytest.mark.long
def test_killed_anywhere_matches_come_once(lab) -> None:
    lab.files("ev", EVENTS, primary_key=["id"])
    query, oracle = MATCHES["within"]
    declare(lab, "t", query, 1)
    require_each_row_once_after_crashes(lab, {"ev": 9}, oracle, late_rows)


MATCH = "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES count(*) AS n PATTERN (A B) DEFINE B AS B.v > 1)"


@pytest.mark.parametrize(
    ("code", "query", "said"),
    [
        ("FINAL_INPUT", f"SELECT n FROM ev {MATCH.replace('BY ts', 'BY ts DESC')}", "DESC"),
        ("FINAL_INPUT", f"SELECT n FROM ev {MATCH.replace('B.v > 1', 'NEXT(B.v) > 1')}", "NEXT"),
        ("FINAL_INPUT", f"SELECT n FROM ev {MATCH.replace('(A B)', '(A B $)')}", "$"),
        ("FINAL_INPUT",
         f"SELECT n FROM ev {MATCH.replace('PATTERN', 'ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN')}", "UNMATCHED"),
        ("FINAL_INPUT", f"SELECT k, count(*) AS c FROM ev {MATCH} GROUP BY k", "GROUP BY"),
        ("FINAL_INPUT", f"SELECT n, rank() OVER (ORDER BY n) AS r FROM ev {MATCH}", "RANK()"),
        ("FINAL_INPUT", f"SELECT m.n FROM ev {MATCH} AS m JOIN ev ON ev.k = m.k", "JOIN"),
        ("FINAL_INPUT", f"SELECT a.n FROM ev {MATCH} AS a JOIN ev {MATCH} AS b ON a.k = b.k", "several MATCH"),
        ("FINAL_INPUT", f"SELECT n FROM (SELECT k, v, max(ts) AS ts FROM ev GROUP BY k, v) {MATCH}", "GROUP"),
        ("FINAL_INPUT", f"SELECT n FROM plain {MATCH}", "neither"),
        ("FINAL_INPUT", f"SELECT n FROM (SELECT * FROM TUMBLE(TABLE ev, DESCRIPTOR(ts), INTERVAL '1' HOUR)) {MATCH}",
         "reads one table"),
        ("WATERMARK_MISSING", f"SELECT n FROM ev {MATCH.replace('BY ts', 'BY at')}", "of ts"),
    ],
)  # fmt: skip
def test_matches_that_are_never_final_are_refused(lab, code: str, query: str, said: str) -> None:
    lab.files("ev", EVENTS.replace("ts TIMESTAMP", "ts TIMESTAMP, at TIMESTAMP"), primary_key=["id"])
    lab.source("plain", "k STRING, v INT, ts TIMESTAMP")
    require_refusal(lab, query, code, said)
