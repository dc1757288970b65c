"""Keeping tables over TPC-H up by their changes, beside computing them whole.

Of every table there are three: one is refreshed by its incremental strategy, one in full, and for one the choice is
left to freshline. Each share of the rows changes once for the three, which then are refreshed one after the other, in
an order that turns from round to round, and must be equal before a time counts.

The rows that change are spread evenly: of a table by keys that is the most work for a share, since nearly every row
brings a key of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measure import Cost, cost_of, middle
from project import Project, refresh, same
from pyspark.sql import SparkSession

from benchmarks.tpch_tables.data import column_names, generate
from benchmarks.tpch_tables.declarations import SOURCES
from freshline.declare.names import TableName
from freshline.run import Runtime

SHARES = (0.0001, 0.001, 0.01, 0.1)
# Whoever is first after a change pays for reading the log of the sources: each of the three is first once.
ROUNDS = 3
FORCED, WHOLE, CHOSEN = "forced", "whole", "chosen"
# The three in the order of a round, so that none of them always finds the files of the sources already read.
ORDERS = ((FORCED, WHOLE, CHOSEN), (CHOSEN, FORCED, WHOLE), (WHOLE, CHOSEN, FORCED))


@dataclass(frozen=True)
class Shape:
    """A kind of query, how it is kept up, and the input of which a share changes: its rows are added, or altered."""

    name: str
    strategy: str
    header: str
    query: str
    changes: Callable[[float, int], str]


def altered(column: str, key: str, source: str) -> Callable[[float, int], str]:
    def change(share: float, number: int) -> str:
        return f"UPDATE {source} SET {column} = {column} + 1 WHERE {_chosen(share, number, key)}"

    return change


def added(source: str, key: str, number_column: str) -> Callable[[float, int], str]:
    def change(share: float, number: int) -> str:
        items = ", ".join(
            f"{column} + {100 * (number + 1)}" if column == number_column else column for column in column_names(source)
        )
        return (
            f"INSERT INTO {source} SELECT {items} FROM {source} "
            f"WHERE {_chosen(share, number, key)} AND {number_column} < 100"
        )

    return change


def _chosen(share: float, number: int, key: str) -> str:
    return f"pmod(xxhash64({key}, {number}), 1000000) < {round(share * 1_000_000)}"


LINE = "l_orderkey, l_linenumber"
SHAPES = (
    Shape(
        "append-only",
        "append",
        "",
        "SELECT l_orderkey, l_linenumber, l_shipdate, l_extendedprice * (1 - l_discount) AS price, "
        "upper(l_comment) AS note FROM lineitem WHERE l_quantity > 5",
        added("lineitem", LINE, "l_linenumber"),
    ),
    Shape(
        "aggregate",
        "keys",
        "(PRIMARY KEY (l_partkey, l_returnflag))",
        "SELECT l_partkey, l_returnflag, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price, "
        "sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, avg(l_quantity) AS avg_qty, "
        "avg(l_discount) AS avg_disc, count(*) AS count_order FROM lineitem "
        "WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY GROUP BY l_partkey, l_returnflag",
        altered("l_quantity", LINE, "lineitem"),
    ),
    Shape(
        "aggregate of a join",
        "keys",
        "(PRIMARY KEY (o_custkey, o_orderpriority))",
        "SELECT o_custkey, o_orderpriority, count(*) AS lines, sum(l_extendedprice * (1 - l_discount)) AS revenue, "
        "max(o_orderdate) AS latest FROM orders JOIN lineitem ON l_orderkey = o_orderkey "
        "GROUP BY o_custkey, o_orderpriority",
        altered("l_extendedprice", LINE, "lineitem"),
    ),
    Shape(
        "join",
        "keys",
        "(PRIMARY KEY (l_orderkey, l_linenumber))",
        "SELECT l.l_orderkey, l.l_linenumber, o.o_orderdate, o.o_totalprice, c.c_name, c.c_mktsegment, "
        "l.l_extendedprice * (1 - l.l_discount) AS price FROM lineitem l "
        "JOIN orders o ON o.o_orderkey = l.l_orderkey LEFT JOIN customer c ON c.c_custkey = o.o_custkey",
        altered("o_totalprice", "o_orderkey", "orders"),
    ),
    Shape(
        "window",
        "keys",
        "(PRIMARY KEY (l_orderkey, l_linenumber))",
        "SELECT l_orderkey, l_linenumber, l_partkey, "
        "rank() OVER (PARTITION BY l_partkey ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber) AS place, "
        "sum(l_quantity) OVER (PARTITION BY l_partkey) AS of_part FROM lineitem",
        altered("l_quantity", LINE, "lineitem"),
    ),
)


@dataclass(frozen=True)
class Share:
    """What refreshes after one share of changes cost: by the forced strategy, in full, and as freshline chose."""

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
    return f"{shape.name.replace('-', '_').replace(' ', '_')}_{which}"


def _source(path: Path, name: str) -> str:
    return f"CREATE SOURCE {name} ({SOURCES[name].columns}) WITH ('connector' = 'delta', 'path' = '{path}');"


def _change(spark: SparkSession, folder: Path, shape: Shape, share: float, number: int) -> None:
    statement = shape.changes(share, number)
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
