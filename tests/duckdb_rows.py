"""Rows of tables and queries by delta-rs and DuckDB, where both know what Spark knows: a tenth of the CPU-seconds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from sqlglot.errors import SqlglotError

from freshline.compute.inputs import Pinned
from freshline.values.connector import SEQ
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec, TableSpec
from tests.stand_in import connection

# Raised for whatever only Spark knows: a feature of Delta, a function, a type.
UNKNOWN = (DeltaError, duckdb.Error, SqlglotError, pa.ArrowException, NotImplementedError, KeyError, ValueError)

# Another answer with each call.
_VOLATILE = re.compile(r"\b(now|current_\w+|localtimestamp|rand\w*|uuid|unix_timestamp)\b", re.IGNORECASE)


def read_pinned(pinned: Pinned) -> pa.Table:
    """The rows of an input at its position, with its declared columns. Raises one of UNKNOWN."""
    opened = DeltaTable(str(pinned.path), version=pinned.position.version)
    if "delta.columnMapping.mode" in opened.metadata().configuration:
        # delta-rs gives NULL for the columns that have other names in the files.
        raise NotImplementedError("column mapping")
    table = opened.to_pyarrow_table()
    spec = pinned.spec
    if not isinstance(spec, SourceSpec):
        return table.select([name for name in table.column_names if not name.startswith("_freshline_")])
    if pinned.is_log:
        table = table.filter(pc.field(SEQ) <= (pinned.position.seq or 0))
    stored = [spec.stored_column(column.name) if pinned.is_log else column.name for column in spec.columns]
    return table.select(stored).rename_columns([column.name for column in spec.columns])


def computed(query: str, inputs: Mapping[TableName, Pinned]) -> pa.Table:
    """The rows of a query in Spark's SQL over these versions. Raises one of UNKNOWN."""
    database = connection()
    for name, pinned in inputs.items():
        database.register(str(name), read_pinned(pinned))
    try:
        found = database.sql(sqlglot.transpile(query, read="spark", write="duckdb")[0]).to_arrow_table()
    finally:
        for name in inputs:
            database.unregister(str(name))
    return found.cast(pa.schema([(field.name, _as_spark(field.type)) for field in found.schema]))


def equals_its_query(spec: TableSpec, receipt: Receipt, stored: Pinned, inputs: Mapping[TableName, Pinned]) -> bool:
    """Whether DuckDB finds the rows of a table in its query; False means that Spark has to say.

    Two engines that agree on every row, of which one computed it by changes and the other from all rows of the
    receipt's positions, leave nothing to Spark. Where they do not agree, the functions and types of DuckDB may be why.
    """
    if receipt.fingerprint != spec.fingerprint or receipt.partitions or not _is_plain(spec):
        return False
    try:
        rows = read_pinned(stored)
        found = computed(spec.sql.text, inputs)
        if [name.lower() for name in found.column_names] != [name.lower() for name in rows.column_names]:
            return False
        return _counted(rows) == _counted(found.rename_columns(rows.column_names).cast(rows.schema))
    except UNKNOWN:
        return False


def _is_plain(spec: TableSpec) -> bool:
    """Whether the text of a query is all that decides its rows."""
    if spec.merge is not None or spec.constraints or spec.lookups or spec.final:
        return False
    query = spec.query
    if not isinstance(query, SqlQuery):
        return False
    if _VOLATILE.search(query.text):
        return False
    places = (query.as_of_joins, query.moments, query.model_calls, query.clock_calls, query.version_calls)
    return not any(places) and query.closing is None and query.timed is None and query.graph is None


def _counted(table: pa.Table) -> Counter[str]:
    """How often each row is there; by texts, in which a zero has its sign and NaN is equal to NaN."""
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


def _as_spark(kind: pa.DataType) -> pa.DataType:
    """A type of DuckDB's as Spark would have it: its sums of whole numbers have 128 bits."""
    return pa.int64() if pa.types.is_decimal(kind) and kind.scale == 0 else kind


def rows_of(pinned: Pinned) -> list[dict[str, Any]]:
    """The rows of a table or source as a Lab has them. Raises one of UNKNOWN."""
    found: list[dict[str, Any]] = read_pinned(pinned).to_pylist(maps_as_pydicts="strict")
    return found
