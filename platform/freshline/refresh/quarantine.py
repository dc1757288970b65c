"""Rejected records and rows: the table `<name>__quarantine` beside a log table, or beside a table with constraints or
lookups.

Its rows have the number of the batch or refresh that went on without them, and are committed before it is. Rows that an
unfinished batch or refresh left there are taken away by the next.

A record that became a row of the log later, by a retry, stays there with the number of that batch, which is committed
after it too: the record is given back where the batch did not finish, or where the log lost it. Nothing is deleted for
a retry, so that it can be taken back at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.data_files import read_column
from freshline.commit.delta_log import exists, last_seq, open_table, read_newest
from freshline.commit.write import (
    append_rows,
    create_table,
    fenced_session,
    set_null,
    stored_schema,
    write_and_read_back,
)
from freshline.compute.constraints import LOOKUP_QUARANTINE_SCHEMA, TABLE_QUARANTINE_SCHEMA, WAITING_ROW
from freshline.compute.fold import has_key
from freshline.compute.inputs import FILE, RECORD, SEQ, Pinned
from freshline.compute.materialize import has_rows
from freshline.errors import FencedError
from freshline.plan.disk import HISTORY_SECONDS
from freshline.refresh.runtime import Runtime
from freshline.sources.records import quarantine_schema
from freshline.values.connector import RETRIED_IN, Metadata
from freshline.values.merge import REJECTED
from freshline.values.names import quoted
from freshline.values.receipt import Receipt, side_receipt
from freshline.values.sink import OnReject
from freshline.values.spec import OnViolation, SourceSpec, Spec, TableSpec


def next_seq(
    runtime: Runtime, spark: SparkSession, spec: Spec, previous: Receipt | None, mode: str, *, sent: int = 0
) -> int:
    """One above every number used so far; takes away what a batch that never finished left in the quarantine table.

    `sent` is the number of the newest refresh that a sink has: it finished, although its receipt may be missing.
    """
    log_seq = max(sent, 0 if previous is None else previous.seq)
    # Where somebody's RESTORE brought an earlier receipt back, what it took away has had numbers too.
    used = max(log_seq, last_seq(runtime.warehouse.path(spec.name)))
    path = runtime.warehouse.rejections(spec)
    newest = read_newest(path)
    if newest is None or newest.receipt is None or newest.receipt.seq <= log_seq:
        return used + 1
    left = newest.receipt.seq
    receipt = side_receipt(
        spec, runtime.epoch, left + 1, mode, "rows of an unfinished batch are taken away", runtime.clock()
    )
    with fenced_session(spark, path, receipt):
        spark.sql(f"DELETE FROM delta.{quoted(str(path))} WHERE {SEQ} > {log_seq}")
    if has_retried(path, log_seq):
        left += 1
        receipt = side_receipt(
            spec, runtime.epoch, left + 1, mode, "records of an unfinished retry are given back", runtime.clock()
        )
        set_null(spark, path, RETRIED_IN, f"{RETRIED_IN} > {log_seq}", receipt)
    return max(used + 1, left + 2)


def has_retried(path: Path, seq: int) -> bool:
    """Whether records became rows of the log with a batch above `seq`, as the quarantine table has it."""
    if RETRIED_IN not in {field.name for field in open_table(path).schema().fields}:
        # It is of an earlier commit, and nothing was tried again.
        return False
    return _greatest(path, RETRIED_IN) > seq


def last_kept_seq(path: Path) -> int:
    """The greatest number of a refresh whose rejected rows a quarantine table has; 0 where there is none."""
    return _greatest(path, SEQ) if exists(path) else 0


def _greatest(path: Path, column: str) -> int:
    return int(pc.max(read_column(open_table(path), path, column)).as_py() or 0)


def commit_quarantine(
    runtime: Runtime,
    spark: SparkSession,
    spec: Spec,
    rows: DataFrame,
    receipt: Receipt,
    *,
    count: int | None,
    schema: StructType,
    left: DataFrame | None = None,
) -> None:
    """Keep rejected rows, under the number of the batch or refresh that goes on without it.

    `left` has the WAITING_ROW of rows that leave the quarantine with it, where the schema has that column.
    """
    path = runtime.warehouse.rejections(spec)
    _provide(runtime, spark, path, schema)
    if isinstance(spec, TableSpec):
        # It may have the columns of lookups, which an earlier declaration had.
        stored, there = stored_schema(path), set(rows.columns)
        rows = rows.select(
            *[F.col(f.name) if f.name in there else F.lit(None).cast(f.dataType).alias(f.name) for f in stored.fields]
        )
    side = replace(
        receipt, positions={}, rows_out=receipt.rejected, rejected=0, violations={}, planned=None, event_time=None
    )

    def write() -> None:
        if left is None:
            append_rows(rows, path, side, count=count)
            return
        leaving = left.select(WAITING_ROW, F.lit(receipt.seq).cast("bigint").alias(RETRIED_IN))
        found = rows.unionByName(leaving, allowMissingColumns=True)
        with fenced_session(spark, path, side):
            table = DeltaTable.forPath(spark, str(path)).alias("stored")
            merge = table.merge(found.alias("found"), f"stored.{WAITING_ROW} = found.{WAITING_ROW}")
            # A row that waits again has none, where a savepoint brought it back.
            merge = merge.whenMatchedUpdate(set={RETRIED_IN: F.col(f"found.{RETRIED_IN}")})
            merge.whenNotMatchedInsertAll().execute()

    _write_fenced(runtime, spec, path, side, write)


def has_quarantine(spec: Spec) -> bool:
    """Whether rows can be rejected that a table beside this one keeps."""
    if isinstance(spec, SourceSpec):
        return spec.is_log
    if spec.sink is not None:
        return spec.on_reject is OnReject.QUARANTINE
    return bool(spec.quarantined_lookups) or any(
        each.on_violation is OnViolation.QUARANTINE for each in spec.constraints
    )


def table_quarantine_schema(spec: TableSpec) -> StructType:
    """The columns of the quarantine of a table."""
    return LOOKUP_QUARANTINE_SCHEMA if spec.quarantined_lookups else TABLE_QUARANTINE_SCHEMA


def read_quarantine(runtime: Runtime, spark: SparkSession, spec: Spec) -> DataFrame:
    """The rejected rows beside a log table or a table with constraints or lookups; none where nothing was rejected yet.

    Those of a batch or refresh that has not finished are left out.
    """
    path = runtime.warehouse.rejections(spec)
    if not exists(path):
        schema = quarantine_schema(spec) if isinstance(spec, SourceSpec) else table_quarantine_schema(spec)
        return spark.createDataFrame([], schema)
    newest = read_newest(runtime.warehouse.path(spec.name))
    finished = 0 if newest is None or newest.receipt is None else newest.receipt.seq
    return spark.read.format("delta").load(str(path)).where(F.col(SEQ) <= finished)


def mark_retried(
    runtime: Runtime, spark: SparkSession, spec: SourceSpec, records: DataFrame, receipt: Receipt, *, count: int
) -> None:
    """Give quarantined records the number of the batch with which they become rows of the log.

    `records` has the columns SEQ, FILE and RECORD of `count` rows of the quarantine table.
    """
    path = runtime.warehouse.rejections(spec)
    side = replace(receipt, positions={}, rows_in=0, rows_out=count, violations={}, planned=None, event_time=None)
    same = " AND ".join(f"stored.{name} <=> found.{name}" for name in (SEQ, FILE, RECORD))

    def write() -> None:
        with fenced_session(spark, path, side):
            table = DeltaTable.forPath(spark, str(path)).alias("stored")
            merge = table.merge(records.select(SEQ, FILE, RECORD).alias("found"), same)
            merge.whenMatchedUpdate(set={RETRIED_IN: F.lit(receipt.seq).cast("bigint")}).execute()

    _write_fenced(runtime, spec, path, side, write)


def _write_fenced(runtime: Runtime, spec: Spec, path: Path, side: Receipt, write: Callable[[], None]) -> None:
    if write_and_read_back(write, path, side, runtime.require_warehouse) is None:
        raise FencedError(
            "another writer's rows came to the quarantine table meanwhile. Ask again.", where=str(spec.name)
        )


def provide_quarantine(runtime: Runtime, spark: SparkSession, spec: SourceSpec) -> None:
    """Create the quarantine table of a log, or add the columns that it has not yet."""
    _provide(runtime, spark, runtime.warehouse.quarantine(spec.name), quarantine_schema(spec))


def _provide(runtime: Runtime, spark: SparkSession, path: Path, schema: StructType) -> None:
    if not exists(path):
        runtime.require_warehouse()
        create_table(spark, path, schema, history_seconds=HISTORY_SECONDS)
        return
    stored = {field.name.lower() for field in open_table(path).schema().fields}
    added = [field for field in schema.fields if field.name.lower() not in stored]
    if added:
        names = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in added)
        spark.sql(f"ALTER TABLE delta.{quoted(str(path))} ADD COLUMNS ({names})")


def keep_rejected(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, pinned: Pinned, rejected: DataFrame, mode: str
) -> int:
    """Keep rows that a merge does not fold, with a NULL in the key or rejected by it, in the log's quarantine table.

    Returns how many they are, of a log those that were not there already.
    """
    log = pinned.spec
    if not isinstance(log, SourceSpec) or not log.is_log:
        # A table that is read in place keeps them itself; they are counted.
        return rejected.count()
    if not has_rows(rejected):
        return 0
    assert spec.columns is not None
    assert spec.merge is not None
    raw = F.to_json(F.struct(*[F.col(quoted(name)) for name in spec.columns])).cast("binary")
    none, own = F.lit(None), log.quarantined_metadata
    has_place = bool(log.connection.quarantined_metadata())
    no_key = f"a column of PRIMARY KEY ({', '.join(spec.primary_key)}) is NULL"
    code, message = F.lit("NULL_KEY"), F.lit(no_key)
    for each, sentence in spec.merge.rejections.items():
        met = has_key(spec) & (F.col(REJECTED) == each)
        code, message = F.when(met, each).otherwise(code), F.when(met, sentence).otherwise(message)
    records = rejected.select(
        F.col(SEQ),
        (none.cast("string") if has_place else F.col(FILE)).alias("file"),
        (none.cast("bigint") if has_place else F.col(RECORD)).alias("line"),
        raw.alias("raw"),
        F.concat(code, F.lit(f"({spec.name})")).alias("error"),
        message.alias("message"),
        F.lit(runtime.clock()).alias("quarantined_at"),
        *[_from_place(each).alias(name) for name, each in own.items()],
    )
    errors = [f"{each}({spec.name})" for each in ("NULL_KEY", *spec.merge.rejections)]
    return _commit_rejected(runtime, spark, log, records, errors, pinned.position.seq or 0, mode)


def _from_place(metadata: Metadata) -> Column:
    """The value that the place of a record gives; NULL for the rest, which a query does not hand on."""
    if metadata.stored == RECORD:
        return F.col(RECORD)
    if not metadata.in_place:
        return F.lit(None).cast(metadata.type)
    return F.regexp_extract(FILE, metadata.in_place, 1).cast(metadata.type)


def _commit_rejected(
    runtime: Runtime,
    spark: SparkSession,
    spec: SourceSpec,
    rows: DataFrame,
    errors: Sequence[str],
    up_to: int,
    mode: str,
) -> int:
    """Put rows of a log that a table with a merge does not fold into the log's quarantine table.

    `rows` has the quarantine's columns, its errors are of `errors`, which name the table. Each row goes there once for
    a table: what an earlier refresh of this table put there is known by the error's text and the greatest batch number.
    Returns how many were added.
    """
    path = runtime.warehouse.rejections(spec)
    fresh = rows
    if exists(path):
        stored = spark.read.format("delta").load(str(path)).where(F.col("error").isin(*errors))
        # Each error for itself: one that the declaration had not before has no row there yet.
        for error, last in stored.groupBy("error").agg(F.max(SEQ)).collect():
            fresh = fresh.where((F.col("error") != error) | (F.col(SEQ) > last))
    else:
        provide_quarantine(runtime, spark, spec)
    count = fresh.count()
    if count:
        # No fence: one engine writes, and a repeat finds its rows by their number. The receipt on top stays the log's.
        newest = read_newest(path)
        base = None if newest is None else newest.receipt
        seq = up_to if base is None else base.seq
        receipt = side_receipt(spec, runtime.epoch, seq, mode, " ".join(errors), runtime.clock())
        fresh.write.format("delta").mode("append").option("userMetadata", receipt.to_json()).save(str(path))
    return count
