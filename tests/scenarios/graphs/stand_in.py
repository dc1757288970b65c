"""The rows of random graphs, computed by DuckDB in milliseconds instead of by Spark in a second (`tests/stand_in.py`).

A case without logs, lookups, models and FINAL windows needs no Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager

import pyarrow as pa
from deltalake import DeltaTable

from freshline.errors import ConstraintError
from freshline.refresh.attempt import Attempt
from tests.scenarios.graphs.case import Table
from tests.stand_in import Inputs, connection, rows_by

_ARROW = {"id": pa.int32(), "g": pa.string(), "v": pa.int64(), "w": pa.int32()}


def computing_by_duckdb(tables: Mapping[str, Table]) -> AbstractContextManager[None]:
    """Within it, rows of tables are computed by these definitions, as they are then."""

    def rows_of(attempt: Attempt, inputs: Inputs) -> pa.Table:
        return _rows(inputs, tables[str(attempt.spec.name)])

    return rows_by(rows_of, of=lambda attempt: str(attempt.spec.name) in tables)


def _rows(inputs: Inputs, table: Table) -> pa.Table:
    """The rows of the table over its inputs at the positions that were pinned. Raises ConstraintError."""
    database = connection()
    for name, pinned in inputs.items():
        rows = DeltaTable(str(pinned.path), version=pinned.position.version).to_pyarrow_table()
        database.register(str(name), rows.select(["id", "g", "v"]))
    found = database.sql(table.defined).to_arrow_table()
    every = database.sql(table.meaning or table.query).to_arrow_table() if table.expected else found
    for name in inputs:
        database.unregister(str(name))
    violated = every.num_rows - found.num_rows
    if table.violated == "FAIL" and violated:
        raise ConstraintError(table.name, "good", table.expected, violated, ["a row"])
    if table.wide:
        found = found.append_column("w", pa.array([1] * found.num_rows))
    return found.cast(pa.schema([(name, _ARROW[name]) for name in found.column_names]))
