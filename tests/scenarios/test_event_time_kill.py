"""The engine is killed in refreshes of tables over event time: each table is as before, or as after."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import networkx as nx
import pytest

from freshline.commit.delta_log import newest_version
from freshline.commit.warehouse import Warehouse
from freshline.declare.project_settings import read_settings
from freshline.engine.reading import read_rows
from freshline.plan.project import open_project
from freshline.testing.models import linear_model
from tests.scenarios.shop import FILES, Bag, Shop, bag, land_file

Event = dict[str, Any]
FRESHNESS = "FRESHNESS = INTERVAL '10' DAY"
DECLARATIONS = {
    "ev": "CREATE SOURCE ev (id BIGINT, k STRING, ts TIMESTAMP, v INT, PRIMARY KEY (id), "
    f"WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) {FILES}",
    "guess": "CREATE MODEL guess WITH ('path' = 'guess.onnx')",
    "visit": f"CREATE MATERIALIZED TABLE visit {FRESHNESS} AS SELECT k, window_start, window_end, count(*) AS n "
    "FROM SESSION(TABLE ev PARTITION BY k, DESCRIPTOR(ts), INTERVAL '5' MINUTES) GROUP BY k, window_start, window_end",
    "near": f"CREATE MATERIALIZED TABLE near {FRESHNESS} AS SELECT id, count(*) OVER (PARTITION BY k ORDER BY ts "
    "RANGE BETWEEN INTERVAL '10' MINUTES PRECEDING AND INTERVAL '10' MINUTES FOLLOWING) AS n FROM ev",
    "recent": f"CREATE MATERIALIZED TABLE recent {FRESHNESS} AS SELECT id FROM ev "
    "WHERE ts > now() - INTERVAL '30' DAYS",
    "rises": f"CREATE MATERIALIZED TABLE rises {FRESHNESS} AS SELECT k, low, high FROM ev MATCH_RECOGNIZE ("
    "PARTITION BY k ORDER BY ts, id MEASURES FIRST(A.id) AS low, LAST(B.id) AS high ONE ROW PER MATCH "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN INTERVAL '10' MINUTES DEFINE B AS B.v > PREV(B.v))",
    "groups": f"CREATE MATERIALIZED TABLE groups {FRESHNESS} AS SELECT node, component "
    "FROM CONNECTED_COMPONENTS((SELECT k AS src, concat('v', v) AS dst FROM ev WHERE v < 4), DESCRIPTOR(src, dst))",
    "guessed": f"CREATE MATERIALIZED TABLE guessed {FRESHNESS} AS SELECT id, ml_predict(guess, v) AS g FROM ev",
}
ALARM = """
from datetime import timedelta

import freshline


@freshline.process(reads="ev", keys=["k"], order=["ts", "id"], columns="k STRING, at TIMESTAMP, seen INT",
                   freshness="10 days")
class alarm:
    seen: int = 0
    key: str | None

    def row(self, row, out):
        self.key = row.k
        self.seen += 1
        out.timer(row.ts + timedelta(minutes=3))

    def timer(self, at, out):
        out.emit(self.key, at, self.seen)
"""
# Bounds of the temporal filter pass through the rows while the story runs.
START = datetime.now(UTC).replace(microsecond=0) - timedelta(days=30)
TABLES = ("visit", "near", "recent", "rises", "groups", "guessed", "alarm")


def rows_by_key(events: Iterable[Event]) -> dict[str | None, list[Event]]:
    """Rows by key, in the order of time and id."""
    found: dict[str | None, list[Event]] = {}
    for event in sorted(events, key=lambda each: (each["ts"], each["id"])):
        found.setdefault(event["k"], []).append(event)
    return found


def visits(events: list[Event]) -> Bag:
    found: Bag = Counter()
    gap = timedelta(minutes=5)
    for key, rows in rows_by_key(events).items():
        start, last, count = rows[0]["ts"], rows[0]["ts"], 0
        for row in rows:
            if row["ts"] - last > gap:
                found[key, start, last + gap, count] += 1
                start, count = row["ts"], 0
            last, count = row["ts"], count + 1
        found[key, start, last + gap, count] += 1
    return found


def near(events: list[Event]) -> Bag:
    width = timedelta(minutes=10)
    return Counter(
        (row["id"], sum(abs(other["ts"] - row["ts"]) <= width for other in rows))
        for rows in rows_by_key(events).values()
        for row in rows
    )


def rises(events: list[Event]) -> Bag:
    found: Bag = Counter()
    for key, rows in rows_by_key(events).items():
        for one, two in itertools.pairwise(rows):
            if two["v"] > one["v"] and two["ts"] - one["ts"] < timedelta(minutes=10):
                found[key, one["id"], two["id"]] += 1
    return found


def groups(events: list[Event]) -> Bag:
    pairs = [(event["k"], f"v{event['v']}") for event in events if event["k"] is not None and event["v"] < 4]
    return Counter((node, min(group)) for group in nx.connected_components(nx.Graph(pairs)) for node in group)


def alarms(events: list[Event]) -> Bag:
    """A timer runs once the watermark is there, behind the rows of its time."""
    until = max(event["ts"] for event in events) - timedelta(minutes=1)
    found: Bag = Counter()
    for key, rows in rows_by_key(events).items():
        for row in rows:
            at = row["ts"] + timedelta(minutes=3)
            if at <= until:
                found[key, at, sum(other["ts"] <= at for other in rows)] += 1
    return found


EXPECTED: dict[str, Callable[[list[Event]], Bag]] = {
    "visit": visits,
    "near": near,
    "rises": rises,
    "groups": groups,
    "guessed": lambda events: Counter((event["id"], 2.0 * event["v"] + 1) for event in events),
    "alarm": alarms,
}
KILLS = (
    "table-before-commit:2",
    "table-after-commit:5",
    "table-keys-kept",
    "table-writing:4",
    "table-pinned:6",
    "table-after-commit:1",
)


def drawn(chance: random.Random, start: int) -> list[Event]:
    """Rows of a batch: most of them late, some at one time, NULL for a key."""
    return [
        {
            "id": number,
            "k": chance.choice(["a", "b", "c", "d", "e", None]),
            "ts": START + timedelta(seconds=20 * chance.randrange(60)),
            "v": chance.randrange(8),
        }
        for number in range(start, start + 12)
    ]


def stored(shop: Shop, name: str) -> Bag:
    """The rows of a table, read without the engine."""
    settings = read_settings(shop.root, {})
    graph = open_project(settings)
    spec = next(graph.spec(each) for each in graph.order if str(each) == name)
    if newest_version(Warehouse(settings.warehouse).location(spec)) is None:
        return Counter()
    return bag(read_rows(name, project=settings).to_pylist())


@pytest.mark.spark
@pytest.mark.long
def test_six_kills_leave_every_table_as_before_or_as_after(tmp_path):
    shop = Shop(tmp_path / "shop", DECLARATIONS)
    (shop.root / "assets" / "alarm.py").write_text(ALARM)
    (shop.root / "guess.onnx").write_bytes(linear_model([2.0], 1.0))
    chance, events = random.Random(5), list[Event]()
    before: dict[str, Bag] = {name: Counter() for name in EXPECTED}
    for number, kill_at in enumerate(KILLS):
        batch = drawn(chance, number * 12)
        events += batch
        land_file(shop.root / "in", str(number), ({**event, "ts": event["ts"].isoformat()} for event in batch))

        assert shop.exit_code("refresh", kill_at=kill_at) != 0, kill_at

        after = {name: rows(events) for name, rows in EXPECTED.items()}
        for name in EXPECTED:
            assert stored(shop, name) in (before[name], after[name]), (kill_at, name)
        outcomes = {each["table"]: each for each in json.loads(shop.run("refresh", "--json"))}
        assert {name: stored(shop, name) for name in EXPECTED} == after, kill_at
        since = datetime.fromisoformat(outcomes["recent"]["clock"]) - timedelta(days=30)
        assert stored(shop, "recent") == Counter((event["id"],) for event in events if event["ts"] > since), kill_at
        shop.run("engine", "stop")
        before = after
    assert all(before.values())
    assert {each["table"] for each in shop.verify()} >= set(TABLES)
    shop.stop_engine()
