"""The difference between a few rows and the stored ones, computed in the engine's own process.

One query of Spark brings both sides. By Spark alone it takes four: one computes the new rows, one asks whether a key is
there twice, one compares, and one hands the result over. Each is planned and sent for longer than it works.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from freshline.compute.arrow_rows import ArrowRows, are_served, is_exact, take
from freshline.compute.keys import DELETE, INSERT, OP, UPDATE
from freshline.compute.materialize import FEW_ROWS
from freshline.values.names import quoted

_NEW = "new"


def difference_of_few(new: DataFrame, old: DataFrame, key: Sequence[str]) -> ArrowRows | None:
    """The changes that turn `old` into `new`, as `keys.difference_by_key` gives them: the columns of both, and OP.

    None where Spark has to find them: of types that are not compared here, of more rows than a few, and where a key is
    there twice. Of fractions -0.0 differs from 0.0 here, so that the query's own is stored.
    """
    schema = old.schema
    if not _is_told(schema, new.schema, key):
        return None
    new, old = (
        side.select(F.lit(is_new).alias(OP), *[F.col(quoted(name)) for name in schema.names])
        for side, is_new in ((new, True), (old, False))
    )
    both = take(new.unionAll(old), 4 * FEW_ROWS)
    found = None if both is None else _compared(both.table, [_place(schema, name) for name in key])
    if found is None:
        return None
    table, ops = found
    table = table.rename_columns(schema.names).append_column(OP, pa.array(ops, pa.string()).cast(pa.binary()))
    return ArrowRows(table, StructType([*schema.fields, StructField(OP, StringType())]), new.sparkSession)


def _is_told(old: StructType, new: StructType, key: Sequence[str]) -> bool:
    if [field.dataType for field in new.fields] != [field.dataType for field in old.fields]:
        return False
    return are_served(old) and all(is_exact(old.fields[_place(old, name) - 1].dataType) for name in key)


def _place(schema: StructType, name: str) -> int:
    """The number of a column, from 1."""
    return [each.lower() for each in schema.names].index(name.lower()) + 1


def _compared(both: pa.Table, key: Sequence[int]) -> tuple[pa.Table, list[str]] | None:
    """The rows that differ, and what becomes of each; None where a side has a key twice.

    The first column says whether a row is new; `key` are the numbers of columns.
    """
    kinds = [both.schema.field(number).type for number in range(1, both.num_columns)]
    names = [f"c{number}" for number in range(1, both.num_columns)]
    columns = [plain_values(both.column(number)) for number in range(1, both.num_columns)]
    is_new = both.column(0).combine_chunks()
    plain = pa.table([is_new, *columns], names=[_NEW, *names])
    keys = [f"c{number}" for number in key]
    times = plain.group_by([_NEW, *keys], use_threads=False).aggregate([([], "count_all")])
    if times.num_rows and pc.max(times["count_all"]).as_py() > 1:
        return None
    # A row that both sides have is two of one group.
    groups = plain.group_by(names, use_threads=False).aggregate([(_NEW, "max"), ([], "count_all")])
    differ = groups.filter(pc.equal(groups["count_all"], 1))
    came, gone = differ.filter(differ[f"{_NEW}_max"]), differ.filter(pc.invert(differ[f"{_NEW}_max"]))
    before, after = _values(gone, keys), _values(came, keys)
    had, has = set(before), set(after)
    gone = gone.filter(pa.array([value not in has for value in before], pa.bool_()))
    ops = [UPDATE if value in had else INSERT for value in after] + [DELETE] * gone.num_rows
    rows = pa.concat_tables([came, gone]).select(names).combine_chunks()
    shown = [_array(rows.column(number)).view(kind) for number, kind in enumerate(kinds)]
    return pa.table(shown, names=names), ops


def plain_values(column: pa.ChunkedArray) -> pa.Array:
    """A column as numbers where it has times or fractions, and bytes for texts: compared by their bits."""
    array, kind = _array(column), column.type
    if pa.types.is_string(kind):
        # Its bytes need not be a text for Python.
        return array.view(pa.binary())
    if pa.types.is_floating(kind):
        # There are many that are not a number, and Spark has one.
        array = pc.if_else(pc.is_nan(array), pa.scalar(math.nan, kind), array)
    if pa.types.is_timestamp(kind) or pa.types.is_float64(kind):
        return array.view(pa.int64())
    return array.view(pa.int32()) if pa.types.is_date32(kind) or pa.types.is_float32(kind) else array


def _array(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _values(rows: pa.Table, keys: Sequence[str]) -> list[tuple[object, ...]]:
    return list(zip(*[rows[key].to_pylist() for key in keys], strict=True))
