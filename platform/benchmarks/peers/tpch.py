"""Workload B: one table over those of TPC-H, and a thousandth of the rows of one input that change at each increment.

The inputs are Delta tables with a change data feed, which delta-rs writes: no session of Spark but those of the peers
runs while they are measured. The right rows are DuckDB's for the same query.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from benchmarks.peers import answers
from benchmarks.tpch_tables.declarations import sources_of
from benchmarks.tpch_tables.shapes import SHAPES, Altered, Shape

SHARE = 0.001
"""Of the rows of the input that changes, those that change at each increment."""
MEASURED: tuple[Shape, ...] = tuple(
    shape for shape in SHAPES if shape.name in ("aggregate", "aggregate of a join", "join")
)
AVERAGE = (
    "CREATE MACRO avg(x) AS CAST(((CAST(sum(x) * 100 AS HUGEINT) * 20000 + count(x)) // (2 * count(x))) / 1000000.0 "
    "AS DECIMAL(19, 6))"
)
"""The average of amounts of money as Spark has it: a decimal of six digits, rounded half up. DuckDB has a float."""


def land(made: Path, shape: Shape, landing: Path, step: int) -> None:
    """Write the inputs of a table below `landing` at step 0, and change some rows of one of them at later ones."""
    if step == 0:
        for name in sources_of(shape.query):
            rows = duckdb.read_parquet(str(made / f"{name}.parquet")).to_arrow_reader()
            write_deltalake(landing / name, rows, configuration={"delta.enableChangeDataFeed": "true"})
        return
    change = shape.change
    if not isinstance(change, Altered):
        raise TypeError(f"{shape.name} adds rows, and only altered ones can be landed")
    table = DeltaTable(landing / change.source)
    table.update(updates={change.column: f"{change.column} + 1"}, predicate=change.chosen(SHARE, step))


def answer(landing: Path, shape: Shape) -> pa.Table:
    """The rows that the query of a table has over the inputs now."""
    with duckdb.connect() as database:
        database.execute(AVERAGE)
        for name in sources_of(shape.query):
            database.register(name, DeltaTable(landing / name).to_pyarrow_dataset())
        return database.sql(shape.query).to_arrow_table()


def difference(landing: Path, shape: Shape, found: pa.Table) -> str | None:
    """How the rows of a table differ from those that it must have now; None if they are equal."""
    with duckdb.connect() as database:
        return answers.difference(database, shape.table, answer(landing, shape), found)
