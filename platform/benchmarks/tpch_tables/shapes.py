"""Kinds of queries over TPC-H that are kept up while a share of the rows of one input changes.

The rows that change are spread evenly: of a table by keys that is the most work for a share, since nearly every row
brings a key of its own. Which rows these are is plain arithmetic, so that Spark, DuckDB and delta-rs choose the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.tpch_tables.data import column_names

# Primes: keys times these, modulo the next one, are spread evenly. The last one, a golden section of it, separates
# changes: the rows of one are far from those of the changes before. The products are below 2^63 up to scale 100.
_FACTORS = (2_654_435_761, 805_459_861)
_MODULUS, _STEP = 1_000_003, 618_041


@dataclass(frozen=True)
class Altered:
    """Rows of a source in which a column grows by one. `keys` are whole numbers that identify its rows."""

    source: str
    column: str
    keys: tuple[str, ...]

    def chosen(self, share: float, number: int) -> str:
        """The condition of the rows that change: a share of them, which are others for each number."""
        return _chosen(self.keys, share, number)

    def statement(self, share: float, number: int) -> str:
        return f"UPDATE {self.source} SET {self.column} = {self.column} + 1 WHERE {self.chosen(share, number)}"


@dataclass(frozen=True)
class Added:
    """Rows of a source that come again under a new number, which is one of the keys."""

    source: str
    column: str
    keys: tuple[str, ...]

    def statement(self, share: float, number: int) -> str:
        items = ", ".join(
            f"{name} + {100 * (number + 1)}" if name == self.column else name for name in column_names(self.source)
        )
        return (
            f"INSERT INTO {self.source} SELECT {items} FROM {self.source} "
            f"WHERE {_chosen(self.keys, share, number)} AND {self.column} < 100"
        )


def _chosen(keys: tuple[str, ...], share: float, number: int) -> str:
    total = " + ".join(f"CAST({key} AS BIGINT) * {factor}" for key, factor in zip(keys, _FACTORS, strict=False))
    return f"({total} + {number * _STEP}) % {_MODULUS} < {round(share * _MODULUS)}"


@dataclass(frozen=True)
class Shape:
    """A kind of query, how it is kept up, and the input of which a share changes: its rows are added, or altered."""

    name: str
    strategy: str
    header: str
    query: str
    change: Altered | Added

    @property
    def table(self) -> str:
        """Its name as that of a table."""
        return self.name.replace("-", "_").replace(" ", "_")


LINE = ("l_orderkey", "l_linenumber")
SHAPES = (
    Shape(
        "append-only",
        "append",
        "",
        "SELECT l_orderkey, l_linenumber, l_shipdate, l_extendedprice * (1 - l_discount) AS price, "
        "upper(l_comment) AS note FROM lineitem WHERE l_quantity > 5",
        Added("lineitem", "l_linenumber", LINE),
    ),
    Shape(
        "aggregate",
        "keys",
        "(PRIMARY KEY (l_partkey, l_returnflag))",
        "SELECT l_partkey, l_returnflag, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price, "
        "sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, avg(l_quantity) AS avg_qty, "
        "avg(l_discount) AS avg_disc, count(*) AS count_order FROM lineitem "
        "WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY GROUP BY l_partkey, l_returnflag",
        Altered("lineitem", "l_quantity", LINE),
    ),
    Shape(
        "aggregate of a join",
        "keys",
        "(PRIMARY KEY (o_custkey, o_orderpriority))",
        "SELECT o_custkey, o_orderpriority, count(*) AS lines, sum(l_extendedprice * (1 - l_discount)) AS revenue, "
        "max(o_orderdate) AS latest FROM orders JOIN lineitem ON l_orderkey = o_orderkey "
        "GROUP BY o_custkey, o_orderpriority",
        Altered("lineitem", "l_extendedprice", LINE),
    ),
    Shape(
        "join",
        "keys",
        "(PRIMARY KEY (l_orderkey, l_linenumber))",
        "SELECT l.l_orderkey, l.l_linenumber, o.o_orderdate, o.o_totalprice, c.c_name, c.c_mktsegment, "
        "l.l_extendedprice * (1 - l.l_discount) AS price FROM lineitem l "
        "JOIN orders o ON o.o_orderkey = l.l_orderkey LEFT JOIN customer c ON c.c_custkey = o.o_custkey",
        Altered("orders", "o_totalprice", ("o_orderkey",)),
    ),
    Shape(
        "window",
        "keys",
        "(PRIMARY KEY (l_orderkey, l_linenumber))",
        "SELECT l_orderkey, l_linenumber, l_partkey, "
        "rank() OVER (PARTITION BY l_partkey ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber) AS place, "
        "sum(l_quantity) OVER (PARTITION BY l_partkey) AS of_part FROM lineitem",
        Altered("lineitem", "l_quantity", LINE),
    ),
)


def shape_named(name: str) -> Shape:
    """Raises KeyError if there is none."""
    return {shape.name: shape for shape in SHAPES}[name]
