"""Patterns: how many rows a CPU-second the matcher takes, and a new row of a key that has a long history."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from event_time_growth import append
from measure import Comparison, Cost, cost_of, middle
from project import Project, refresh
from pyspark.sql import SparkSession

from freshline.patterns.matcher import PartitionRows, find_matches
from freshline.patterns.pattern import parse_pattern
from freshline.patterns.program import compile_pattern

LEAST_RATE = 200_000
MOST_GROWTH = 12.0
RUNS = 5
SHORT, LONG = 1_000, 1_000_000
ROUNDS, WARM_UP, LATE_ROUNDS = 8, 2, 3
FIRST = "unix_micros(TIMESTAMP'2024-01-01 00:00:00')"
MINUTE = 60_000_000


@dataclass(frozen=True)
class Rate:
    """Rows a CPU-second of this process, for a number of rows and for ten times as many; medians."""

    name: str
    rows: int
    seconds: float
    tenfold_seconds: float

    @property
    def ratio(self) -> float:
        return self.tenfold_seconds / self.seconds

    def line(self) -> str:
        few, many = self.rows / self.seconds, 10 * self.rows / self.tenfold_seconds
        verdict = "met" if min(few, many) >= LEAST_RATE and self.ratio <= MOST_GROWTH else "MISSED"
        return (
            f"{self.name:<26} {few:,.0f} rows a CPU-s, {many:,.0f} of ten times the rows (goal {LEAST_RATE:,})   "
            f"time for these {self.ratio:4.1f} times as long   goal {MOST_GROWTH:.0f} {verdict}"
        )


def matcher(spark: SparkSession, folder: Path) -> Iterator[Rate]:
    """`A B+ C+`, a fall and then a rise, among values drawn at random: all at once, and begun one by one."""
    del spark, folder
    yield _rate("matcher", None)
    yield _rate("matcher, WITHIN", 100)


def _rate(name: str, within: int | None) -> Rate:
    program = compile_pattern(parse_pattern("A B+ C+"), {"A": 0, "B": 1, "C": 2})
    count = 100_000
    values = np.random.default_rng(1).integers(0, 100, 10 * count)
    falls, rises = values < np.roll(values, 1), values > np.roll(values, 1)
    masks = (1 + 2 * falls + 4 * rises).tolist()
    times = list(range(len(masks)))

    def seconds(rows: PartitionRows) -> float:
        found = []
        for _ in range(RUNS):
            began = time.process_time()
            if sum(1 for _ in find_matches(program, rows, within=within)) < len(rows.masks) // 20:
                raise SystemExit(f"{name}: too few matches to say something")
            found.append(time.process_time() - began)
        return sorted(found)[RUNS // 2]

    few, many = seconds(PartitionRows(masks[:count], times[:count])), seconds(PartitionRows(masks, times))
    return Rate(name, count, few, many)


def long_key(spark: SparkSession, folder: Path) -> Iterator[Comparison]:
    """A new row of a key of a million rows, and of one of a thousand, at the end of both and within the long one.

    A key has a row a minute. The files are those of a log that was written in the order of time.
    """
    source = folder / "event"
    for part in range(20):
        _write(spark, source, "long", part * LONG // 20, LONG // 20)
    _write(spark, source, "short", LONG - SHORT, SHORT)
    declared = {
        "event": "CREATE SOURCE event (id BIGINT, k STRING, ts TIMESTAMP, v BIGINT, PRIMARY KEY (id)) "
        f"WITH ('connector' = 'delta', 'path' = '{source}');",
        "found": "CREATE MATERIALIZED TABLE found FRESHNESS = INTERVAL '10' MINUTE AS SELECT * FROM event "
        "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES FIRST(ts) AS began, LAST(ts) AS ended, count(*) AS n "
        "PATTERN (A B+ C+) WITHIN INTERVAL '1' HOUR DEFINE B AS v < PREV(v), C AS v > PREV(v));",
    }
    runtime = Project(folder / "project", declared).open(spark)
    refresh(runtime, "found")
    costs: dict[str, list[Cost]] = {}
    places = {"short": LONG, "long": LONG, "late": LONG // 3}
    # In turns, so that what slows the machine down for a while is in both. A late row has the rows behind it read.
    turns = ["short", "long", "long", "short"] * ((ROUNDS + WARM_UP) // 2) + ["late"] * LATE_ROUNDS
    for number, name in enumerate(turns):
        _write(spark, source, "short" if name == "short" else "long", places[name] + number, 1, new=True)
        cost = cost_of(partial(refresh, runtime, "found", strategy="keys"))
        if number >= 2 * WARM_UP:
            costs.setdefault(name, []).append(cost)
    short = middle(costs["short"])
    yield Comparison("a key of 1,000,000 rows", middle(costs["long"]), short, 2.0, beside="1,000 rows")
    yield Comparison("a row a third of it back", middle(costs["late"]), short, 2.0, beside="1,000 rows")


def _write(spark: SparkSession, source: Path, key: str, first: int, count: int, *, new: bool = False) -> None:
    """Rows of a key, one a minute; `new` ones between those that are there already."""
    micros = f"{FIRST} + id * {MINUTE} + {30_000_000 if new else 0}"
    rows = spark.range(first, first + count, numPartitions=1).selectExpr(
        f"xxhash64('{key}', id, {str(new).lower()}) AS id",
        f"'{key}' AS k",
        f"timestamp_micros({micros}) AS ts",
        "pmod(xxhash64(id), 100) AS v",
    )
    append(rows, source)
