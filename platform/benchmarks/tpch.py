"""Keeping tables over TPC-H up by their changes, beside computing them whole.

Of every table there are three: one is refreshed by its incremental strategy, one in full, and for one the choice is
left to freshline. Each share of the rows changes once for the three, which then are refreshed one after the other, in
an order that turns from round to round, and must be equal before a time counts.

The rows that change are spread evenly: of a table by keys that is the most work for a share, since nearly every row
brings a key of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Cost, cost_of, middle
from project import Project, refresh, same
from pyspark.sql import SparkSession

from benchmarks.tpch_tables.data import generate
from benchmarks.tpch_tables.declarations import SOURCES
from benchmarks.tpch_tables.shapes import SHAPES, Shape
from freshline.run import Runtime
from freshline.values.names import TableName

SHARES = (0.0001, 0.001, 0.01, 0.1)
# Whoever is first after a change pays for reading the log of the sources: each of the three is first once.
ROUNDS = 3
FORCED, WHOLE, CHOSEN = "forced", "whole", "chosen"
# The three in the order of a round, so that none of them always finds the files of the sources already read.
ORDERS = ((FORCED, WHOLE, CHOSEN), (CHOSEN, FORCED, WHOLE), (WHOLE, CHOSEN, FORCED))


@dataclass(frozen=True)
class Share:
    """The cost of refreshes after one share of changes: by the forced strategy, in full, and as freshline chose."""

    shape: str
    share: float
    rows: int
    strategy: str
    forced: Cost
    whole: Cost
    choice: str
    chosen: Cost

    @property
    def name(self) -> str:
        return f"{self.shape} {100 * self.share:g} %"

    @property
    def ratio(self) -> float:
        """CPU-seconds of the incremental refresh, with those of the full one as 1."""
        return self.forced.cpu / self.whole.cpu

    @property
    def regret(self) -> float:
        """CPU-seconds of freshline's choice, with those of the better of the two as 1."""
        return self.chosen.cpu / min(self.forced.cpu, self.whole.cpu)

    def line(self) -> str:
        return (
            f"{self.name:<26} {self.rows:>8} rows   {self.strategy:<6} {self.forced.cpu:6.2f} CPU-s "
            f"{self.forced.wall:6.2f} s   full {self.whole.cpu:6.2f} CPU-s {self.whole.wall:6.2f} s   "
            f"ratio {self.ratio:5.2f}   chosen {self.choice:<6} {self.regret:4.2f} of the best"
        )


def tpch(
    spark: SparkSession, folder: Path, scale: float, *, shapes: Sequence[str] = (), shares: Sequence[float] = SHARES
) -> Iterator[Share]:
    """Each shape (or those named) after each share of changes, the small ones first."""
    (folder / "sources").mkdir(parents=True)
    files = generate(folder / "made", scale)
    declarations = {name: _source(folder / "sources" / name, name) for name in SOURCES}
    for shape in SHAPES:
        for which in (FORCED, WHOLE, CHOSEN):
            table = _table(shape, which)
            declarations[table] = (
                f"CREATE MATERIALIZED TABLE {table} {shape.header} FRESHNESS = INTERVAL '1' HOUR AS {shape.query};"
            )
    for name in ("customer", "orders", "lineitem"):
        spark.read.parquet(str(files[name])).write.format("delta").option("delta.enableChangeDataFeed", "true").save(
            str(folder / "sources" / name)
        )
    runtime = Project(folder / "project", declarations).open(spark)
    for shape in [shape for shape in SHAPES if not shapes or shape.name in shapes]:
        for which in (FORCED, WHOLE, CHOSEN):
            refresh(runtime, _table(shape, which))
        # Once before anything counts: code is compiled, and each of the three has been refreshed by its strategy.
        _change(spark, folder, shape, SHARES[0], 0)
        _refresh_three(runtime, shape, ORDERS[0])
        _require_same(spark, runtime, shape)
        number = 1
        for share in shares:
            measured = []
            for _ in range(ROUNDS):
                _change(spark, folder, shape, share, number)
                measured.append(_refresh_three(runtime, shape, ORDERS[number % 3]))
                number += 1
            _require_same(spark, runtime, shape)
            yield _middle(shape, share, measured)


def _table(shape: Shape, which: str) -> str:
    return f"{shape.table}_{which}"


def _source(path: Path, name: str) -> str:
    return f"CREATE SOURCE {name} ({SOURCES[name].columns}) WITH ('connector' = 'delta', 'path' = '{path}');"


def _change(spark: SparkSession, folder: Path, shape: Shape, share: float, number: int) -> None:
    statement = shape.change.statement(share, number)
    for name in SOURCES:
        for before in ("UPDATE", "INTO", "FROM"):
            statement = statement.replace(f"{before} {name} ", f"{before} delta.`{folder / 'sources' / name}` ")
    spark.sql(statement)


@dataclass(frozen=True)
class _Three:
    costs: dict[str, Cost]
    rows: int
    choice: str


def _refresh_three(runtime: Runtime, shape: Shape, order: tuple[str, ...]) -> _Three:
    strategies = {FORCED: shape.strategy, WHOLE: "full", CHOSEN: None}
    costs, outcomes = {}, {}
    for which in order:
        table, strategy = _table(shape, which), strategies[which]

        def work(table: str = table, strategy: str | None = strategy, which: str = which) -> None:
            outcomes[which] = refresh(runtime, table, strategy=strategy)

        costs[which] = cost_of(work)
    return _Three(costs, outcomes[FORCED].rows_in, outcomes[CHOSEN].strategy)


def _require_same(spark: SparkSession, runtime: Runtime, shape: Shape) -> None:
    forced, whole, chosen = (
        spark.read.format("delta").load(str(runtime.warehouse.path(TableName.parse(_table(shape, which)))))
        for which in (FORCED, WHOLE, CHOSEN)
    )
    same(forced, whole)
    same(chosen, whole)


def _middle(shape: Shape, share: float, measured: list[_Three]) -> Share:
    costs = {which: middle([three.costs[which] for three in measured]) for which in (FORCED, WHOLE, CHOSEN)}
    last = measured[-1]
    return Share(shape.name, share, last.rows, shape.strategy, costs[FORCED], costs[WHOLE], last.choice, costs[CHOSEN])
