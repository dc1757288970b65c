"""The rows that a refresh writes, computed by DuckDB in milliseconds instead of by Spark in a second.

For claims about which versions of its inputs a refresh reads, when it may leave them, and what its receipt says. All of
that is freshline's own: planning, pinning, cuts, receipts, the fence, the control store, savepoints. Only rows come
from here, by the definition of their table, and only those that differ are written, by freshline's writer of few rows.
Log tables, FINAL windows, lookups and models are computed by Spark as always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from freshline.commit import small
from freshline.commit.small import change_small, open_small, replace_small
from freshline.compute.inputs import Pinned
from freshline.plan.step import AdoptDefinition, FillPartitions, Full, Noop, ReplaceNamedPartitions, Step
from freshline.query.rules.partition import origin_of
from freshline.refresh import prepare
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.partitions import partition_key
from freshline.refresh.pin import pin_at
from freshline.strategies.full.write import create
from freshline.values.names import TableName
from freshline.values.partition import partition_name
from freshline.values.query import SqlQuery
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy

Inputs = Mapping[TableName, Pinned]
# The rows of a table over its inputs at the positions that were pinned.
RowsOf = Callable[[Attempt, Inputs], pa.Table]

_OP = "op"
_LEFT_ALONE = (Noop, AdoptDefinition, FillPartitions)


class NoSpark:
    """Stands in for a session where Spark computes nothing: the calls that a Lab and a refresh make around it."""

    def __init__(self) -> None:
        self.conf = SimpleNamespace(get=lambda name, default=None: default, set=_nothing)
        self.catalog = SimpleNamespace(dropTempView=_nothing)
        jobs = SimpleNamespace(sc=lambda: SimpleNamespace(cancelJobGroupAndFutureJobs=_nothing))
        self.sparkContext = SimpleNamespace(
            setJobGroup=_nothing, setLocalProperty=_nothing, getLocalProperty=_nothing, defaultParallelism=2, _jsc=jobs
        )

    def newSession(self) -> NoSpark:  # noqa: N802 - as Spark has it
        return self


def _nothing(*arguments: object, **named: object) -> None:
    return None


def no_spark() -> SparkSession:
    """A session that computes nothing."""
    return cast("SparkSession", NoSpark())


@contextmanager
def rows_by(rows_of: RowsOf, *, of: Callable[[Attempt], bool] = lambda attempt: True) -> Iterator[None]:
    """Within it, these are the rows of the tables that `of` accepts, where Spark is not needed for the step."""
    real = prepare._compute

    def compute(attempt: Attempt, step: Step) -> Work:
        if not of(attempt) or not _is_plain(attempt, step):
            return real(attempt, step)
        return _compute(attempt, step, rows_of)

    prepare._compute = compute
    try:
        yield
    finally:
        prepare._compute = real


def _is_plain(attempt: Attempt, step: Step) -> bool:
    spec = attempt.spec
    if isinstance(step, _LEFT_ALONE) or not isinstance(spec.query, SqlQuery):
        return False
    return not (spec.lookups or spec.query.models or attempt.closing or spec.final)


def _compute(attempt: Attempt, step: Step, rows_of: RowsOf) -> Work:
    spec = attempt.spec
    if isinstance(step, ReplaceNamedPartitions):
        return _named(attempt, step, rows_of)
    new = rows_of(attempt, attempt.inputs)
    rows_in = sum(attempt.changes[name].rows for name in spec.driving)
    if attempt.receipt is None:
        create(attempt, from_arrow_schema(new.schema))
    # An overwrite means to readers that all rows changed; where a full refresh finds few that differ, it writes those.
    redefined = attempt.receipt is None or attempt.receipt.fingerprint != spec.fingerprint
    if isinstance(step, Full) and (redefined or not spec.primary_key):
        write = partial(_replace, attempt, new)
        return Work(write, Strategy.FULL, step.reason, rows_in, attempt.pins.positions, {})
    changes = difference(_stored(attempt), new)
    if changes.num_rows == 0 and not isinstance(step, Full):
        return attempt.nothing(rows_in)
    return attempt.work(step, partial(_change, attempt, changes), rows_in=rows_in)


def _named(attempt: Attempt, step: ReplaceNamedPartitions, rows_of: RowsOf) -> Work:
    """As `freshline.strategies.partition.named` has it."""
    spec, receipt = attempt.spec, attempt.receipt
    assert receipt is not None
    by_partition = origin_of(spec) is not None
    inputs = attempt.inputs if by_partition else pin_at(attempt.runtime, spec, receipt.positions)
    values = [dict(partition) for partition in step.partitions]

    def is_named(row: dict[str, Any]) -> bool:
        return {name: row[name] for name in values[0]} in values

    new, old = rows_of(attempt, inputs), _stored(attempt)
    kept = [row for row in old.to_pylist() if not is_named(row)] + [row for row in new.to_pylist() if is_named(row)]
    changes = difference(old, pa.Table.from_pylist(kept, schema=new.schema))
    partitions = dict(receipt.partitions)
    positions = {name: item.position for name, item in inputs.items()}
    for value in values if by_partition else ():
        partitions.pop(partition_key(value), None)
        if positions != receipt.positions:
            partitions[partition_key(value)] = positions
    return Work(
        partial(_change, attempt, changes),
        Strategy.PARTITION,
        step.reason,
        0,
        receipt.positions,
        partitions,
        whole=False,
        replaced=tuple(partition_name(spec, partition) for partition in step.partitions),
    )


@cache
def connection() -> duckdb.DuckDBPyConnection:
    """One connection for all: opening one takes longer than a query."""
    connection = duckdb.connect(":memory:", config={"threads": "1"})
    connection.execute("PRAGMA disable_optimizer")
    return connection


def _stored(attempt: Attempt) -> pa.Table:
    return DeltaTable(str(attempt.path)).to_pyarrow_table()


def difference(old: pa.Table, new: pa.Table) -> pa.Table:
    """As freshline has it of rows without a key: one D for all rows of a value, and an I for each that stays."""
    before, after = _counted(old.select(new.column_names)), _counted(new)
    rows: list[tuple[Any, ...]] = []
    for row in {**before, **after}:
        if before[row] != after[row]:
            rows += [(*row, "D")] if before[row] else []
            rows += [(*row, "I")] * after[row]
    schema = pa.schema([*new.schema, (_OP, pa.string())])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema=schema)


def _counted(rows: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def _change(attempt: Attempt, changes: pa.Table, receipt: Receipt) -> None:
    keys = [name for name in changes.column_names if name != _OP]
    table = open_small(attempt.path, found_by=keys)
    assert table is not None
    assert change_small(table, changes, receipt, op=_OP, keys=keys, unique=False)


def _replace(attempt: Attempt, rows: pa.Table, receipt: Receipt) -> None:
    table = open_small(attempt.path)
    assert table is not None
    if replace_small(table, rows, receipt):
        return
    # Of a changed declaration, with a column more.
    write: Callable[[CommitProperties], None] = lambda properties: write_deltalake(  # noqa: E731
        table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties
    )
    assert small._commit(table, receipt, write)
