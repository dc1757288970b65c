"""Graph functions: the components of new edges beside those of all, and the rounds of ranks from stored ones."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
from event_time_growth import append
from measure import Comparison, cost_of, middle
from project import Project, refresh, same_by_hash
from pyspark.sql import SparkSession

from freshline.commit.delta_log import newest_version
from freshline.compute.graph_in_memory import Edges, Numbers, Ranks, number_nodes, ranks
from freshline.compute.ranks import DAMPING, MOST_RANK_ROUNDS, PART, RankChange, remaining_error
from freshline.values.names import TableName

EDGES, PER_COMPONENT, NEW, FILES = 5_000_000, 10, 1_000, 20
ROUNDS, WARM_UP = 4, 1
FULL_ROUNDS = 1
TOLERANCE = 1e-6


def graph_components(spark: SparkSession, folder: Path) -> Iterator[Comparison]:
    """A thousand new edges, which join components of ten edges each, into five million."""
    source = folder / "edge"
    nodes = PER_COMPONENT + 1
    # A chain in each component, with its nodes anywhere among all.
    edges = spark.range(0, EDGES, numPartitions=FILES).selectExpr(
        f"xxhash64(id div {PER_COMPONENT} * {nodes} + id % {PER_COMPONENT}) AS src",
        f"xxhash64(id div {PER_COMPONENT} * {nodes} + id % {PER_COMPONENT} + 1) AS dst",
    )
    append(edges, source)
    declared = {
        "edge": f"CREATE SOURCE edge (src BIGINT, dst BIGINT) WITH ('connector' = 'delta', 'path' = '{source}');",
        "part": "CREATE MATERIALIZED TABLE part (PRIMARY KEY (node)) FRESHNESS = INTERVAL '10' MINUTE AS "
        "SELECT node, component FROM CONNECTED_COMPONENTS(TABLE edge, DESCRIPTOR(src, dst));",
    }
    runtime = Project(folder / "project", declared).open(spark)
    refresh(runtime, "part")
    follow = []
    every = EDGES // PER_COMPONENT * nodes
    for number in range(WARM_UP + ROUNDS):
        ends = (f"xxhash64(pmod(xxhash64(id, {end}), {every}))" for end in (1, 2))
        new = spark.range(number * NEW, (number + 1) * NEW, numPartitions=1)
        append(new.selectExpr(*(f"{end} AS {name}" for end, name in zip(ends, ("src", "dst"), strict=True))), source)
        cost = cost_of(partial(refresh, runtime, "part", strategy="keys"))
        if number >= WARM_UP:
            follow.append(cost)
    path = runtime.warehouse.path(TableName.parse("part"))
    version = newest_version(path)
    full = [cost_of(partial(refresh, runtime, "part", strategy="full")) for _ in range(FULL_ROUNDS)]
    table = spark.read.format("delta")
    same_by_hash(table.load(str(path)), table.option("versionAsOf", version).load(str(path)))
    yield Comparison("components, 1,000 edges", middle(follow), middle(full), 0.1, beside="full")


@dataclass(frozen=True)
class Rounds:
    """Rounds over all edges until ranks are right: from the ranks before some edges came, and from the beginning.

    `plain` is from the beginning too, with each round from the ranks of the last.
    """

    name: str
    warm: int
    cold: int
    plain: int
    warm_seconds: float
    cold_seconds: float

    @property
    def ratio(self) -> float:
        return self.warm / self.cold

    def line(self) -> str:
        verdict = "met" if self.ratio <= 0.5 else "MISSED"
        return (
            f"{self.name:<34} from stored ranks {self.warm:4d} rounds {self.warm_seconds:5.2f} CPU-s   "
            f"from the beginning {self.cold:4d} rounds {self.cold_seconds:5.2f} CPU-s   "
            f"ratio {self.ratio:4.2f}   goal 0.50 {verdict}   of {self.plain} plain ones {self.warm / self.plain:4.2f}"
        )


def graph_ranks(spark: SparkSession, folder: Path) -> Iterator[Rounds]:
    """A thousand new edges in a component of 100,000 nodes and half a million edges, of four kinds."""
    del spark, folder
    chance = np.random.default_rng(1)
    nodes, edges = 100_000, 500_000
    first = chance.integers(0, nodes, edges)
    earlier = np.repeat(np.arange(1, nodes), edges // nodes)
    kinds = {
        "any two nodes": (first, chance.integers(0, nodes, edges)),
        "neighbours on a ring": (first, (first + chance.integers(-5, 6, edges)) % nodes),
        "a few hubs": (first, (chance.pareto(1.2, edges) * 20).astype(np.int64) % nodes),
        "to earlier nodes": (earlier, (earlier * chance.random(len(earlier)) ** 2).astype(np.int64)),
    }
    for kind, (source, target) in kinds.items():
        for many in (10, 1_000):
            new = chance.choice(source, many), chance.choice(target, many)
            stored = _ranked(_edges(source, target), None)[0]
            after = _edges(np.r_[source, new[0]], np.r_[target, new[1]])
            (warm, warm_rounds, warm_seconds) = _ranked(after, stored)
            (cold, cold_rounds, cold_seconds) = _ranked(after, None)
            if np.abs(warm - cold).max() > TOLERANCE:
                raise SystemExit(f"{kind}: the two ways gave different ranks")
            rounds = warm_rounds, cold_rounds, _plain_rounds(after)
            yield Rounds(f"{kind}, {many:,} new edges", *rounds, warm_seconds, cold_seconds)


def _edges(source: Numbers, target: Numbers) -> Edges:
    return number_nodes(pa.chunked_array([pa.array(source)]), pa.chunked_array([pa.array(target)]))


def _ranked(edges: Edges, start: Ranks | None) -> tuple[Ranks, int, float]:
    """The ranks, the rounds and the CPU-seconds. No node comes with the new edges, so stored ranks are in order."""
    began = time.process_time()
    found = ranks(edges, np.ones(edges.count) if start is None else start, TOLERANCE * PART, MOST_RANK_ROUNDS, _none)
    assert found is not None
    return *found, time.process_time() - began


def _plain_rounds(edges: Edges) -> int:
    out = np.maximum(np.bincount(edges.source, minlength=edges.count), 1)
    before = np.ones(edges.count)
    for number in count(1):
        given = (before / out)[edges.source]
        after = 1.0 - DAMPING + DAMPING * np.bincount(edges.target, weights=given, minlength=edges.count)
        moved = np.abs(after - before)
        if remaining_error(RankChange(moved.sum(), moved.max(), after.max())) <= TOLERANCE * PART:
            return number
        before = after
    raise AssertionError


def _none() -> None:
    """Nothing is cancelled."""
