"""Refreshes that are computed again, each over the positions in its own receipt.

The rows of a table with lookup joins depend on what its dimensions had when it was refreshed. The receipts since the
last full refresh say that, so the rows can be computed again: `verify` compares them, and a full refresh of a table
that looks up outside writes them, because nobody can be asked for what was answered then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.delta_log import count_rows, read_receipts
from freshline.compute.constraints import leave_out
from freshline.compute.inputs import (
    Pinned,
    read_inserted,
    read_whole,
    shadow_inputs,
)
from freshline.compute.netting import without
from freshline.errors import RefreshError
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.models import at_models
from freshline.query.query import read_query
from freshline.query.rules.algebra import SIGN
from freshline.query.rules.append import find_branches
from freshline.query.rules.lookups import find_lookups
from freshline.refresh.changed_lookups import FRESH, ChangedInput, follow_changes
from freshline.refresh.computed_rows import run_before_constraints, run_query, whole_inputs
from freshline.refresh.partitions import named_partition, partition_condition, read_partition
from freshline.refresh.pending_lookups import OF_WAITING, read_pending_lookups
from freshline.refresh.pin import pin_at
from freshline.refresh.runtime import Runtime
from freshline.values.names import TableName
from freshline.values.position import Position, TablePosition
from freshline.values.query import SqlQuery
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec


@dataclass(frozen=True)
class Expected:
    """The rows that a table has by its receipts: None where they cannot be computed, for the reason in `detail`.

    `unverified` is the number of stored rows that cannot be computed again and are not among them.
    """

    rows: DataFrame | None
    unverified: int = 0
    detail: str = ""


def rows_at(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, positions: Mapping[TableName, Position]
) -> DataFrame:
    pins = pin_at(runtime, spec, positions)
    shadow_inputs(whole_inputs(spark, spec, pins))
    return run_query(spark, spec, pins)


def condition_of(spark: SparkSession, spec: TableSpec, schema: StructType, key: str) -> str:
    return partition_condition(read_partition(spark, spec, schema, named_partition(key)))


def receipts_replayed(runtime: Runtime, spec: TableSpec, receipt: Receipt) -> list[Receipt]:
    """The receipts since the last full refresh, oldest first, as far as the log still has them."""
    found = []
    upper: int | None = None
    for _, item in read_receipts(runtime.warehouse.path(spec.name)):
        if item.seq < receipt.replayed_from:
            break
        if upper is not None and item.seq > upper:
            # A restore took it back.
            continue
        upper = item.restored
        found.append(item)
    return list(reversed(found))


def is_replay(item: Receipt) -> bool:
    """Whether a full refresh wrote the rows that the refreshes before it gave, and is no beginning of its own."""
    return item.strategy == "full" and 0 < item.replayed_from < item.seq


def replay_lookups(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> Expected:
    """The union of the rows that each refresh added: its change set joined with the dimensions at its own versions."""
    chain = receipts_replayed(runtime, spec, receipt)
    complete = bool(chain) and chain[0].seq == receipt.replayed_from
    rows: DataFrame | None = None
    unverified = 0
    previous: Receipt | None = None
    for item in chain:
        if item.strategy in ("noop", "restore") or is_replay(item):
            previous = item
            continue
        try:
            spec = at_models_of(runtime, spec, item)
            if item.strategy == "partition":
                assert rows is not None
                changed = {
                    key: positions
                    for key, positions in item.partitions.items()
                    if previous is None or previous.partitions.get(key) != positions
                }
                for key, positions in changed.items():
                    condition = condition_of(spark, spec, rows.schema, key)
                    again = rows_at(runtime, spark, spec, positions).where(condition)
                    rows = rows.where(f"NOT coalesce(({condition}), false)").unionByName(again)
            elif item.strategy == "keys":
                assert rows is not None
                assert previous is not None
                rows = _followed(runtime, spark, spec, item, previous, rows)
            else:
                added = replay_refresh(runtime, spark, spec, item, previous if item.strategy != "full" else None)
                rows = added if rows is None or item.strategy == "full" else rows.unionByName(added)
        except RefreshError:
            unverified += item.rows_in
        previous = item
    if rows is None:
        return Expected(None, detail="no refresh since the last full one can be replayed")
    if not complete:
        total = count_rows(runtime.warehouse.path(spec.name)) or 0
        unverified = max(unverified, total - rows.count())
    return Expected(rows, unverified, "" if complete and not unverified else "some versions are gone")


def at_models_of(runtime: Runtime, spec: TableSpec, item: Receipt) -> TableSpec:
    """The table as a refresh computed it, with the models that it asked. Raises ModelError."""
    asked = at_models(spec, item)
    runtime.keep_models(asked)
    return asked


def replay_refresh(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, item: Receipt, previous: Receipt | None
) -> DataFrame:
    pins = pin_at(runtime, spec, item.positions)
    frames = whole_inputs(spark, spec, pins)
    if previous is not None:
        for name, rows in _added_inputs(spark, spec, pins, previous).items():
            frames[name] = rows
    before, after = (_waiting(runtime, spark, spec, each) for each in (previous, item))
    if before is not None or after is not None:
        (name,) = spec.driving
        frames[name] = _asked(frames[name], before, after, frames[name].columns)
    shadow_inputs(frames)
    return run_query(spark, spec, pins)


def _waiting(runtime: Runtime, spark: SparkSession, spec: TableSpec, item: Receipt | None) -> DataFrame | None:
    """The rows that wait for their dimension after a refresh; None where none does."""
    if item is None or item.pending_lookups is None:
        return None
    return read_pending_lookups(runtime, spark, spec, item.pending_lookups).drop(*OF_WAITING)


def _asked(came: DataFrame, before: DataFrame | None, after: DataFrame | None, columns: Sequence[str]) -> DataFrame:
    """The rows that were added: those that came, and those that waited, without those that wait on.

    Rows are alike that are in these columns.
    """
    rows = came if before is None else came.unionByName(before, allowMissingColumns=True)
    return rows if after is None else without(rows, after, columns)


def _followed(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, item: Receipt, previous: Receipt, rows: DataFrame
) -> DataFrame:
    """The rows of a table with lookup joins after a refresh that looked up changed rows."""
    pins = pin_at(runtime, spec, item.positions)
    inputs = whole_inputs(spark, spec, pins)
    changed = []
    for name in spec.driving:
        position = previous.table_position(name)
        if position is None or position == pins[name].position:
            continue
        before = read_whole(spark, Pinned(pins[name].spec, pins[name].path, position))
        signed = (
            inputs[name]
            .withColumn(SIGN, F.lit(1))
            .unionByName(before.withColumn(SIGN, F.lit(-1)), allowMissingColumns=True)
        )
        changed.append(ChangedInput(name, before, inputs[name], signed))
    columns = {name: frame.columns for name, frame in inputs.items()}
    lookups = find_lookups(spec, columns, [each.name for each in changed])
    if isinstance(lookups, Reason):
        raise RefreshError(f"the refresh cannot be replayed: {lookups}", where=str(spec.name))

    def with_retries(came: DataFrame, left: DataFrame | None) -> DataFrame:
        (driving,) = spec.driving
        read = lookups.own.columns_read(driving.view.lower())
        columns = [name for name in came.columns if name.lower() in read]
        shadow_inputs({driving: _asked(came, left, _waiting(runtime, spark, spec, item), columns)})
        return run_before_constraints(spark, spec, pins)

    waits = spec.may_wait or any(each.pending_lookups is not None for each in (previous, item))
    waiting = _waiting(runtime, spark, spec, previous)
    found = follow_changes(
        spark,
        spec,
        pins,
        lookups,
        inputs,
        changed,
        rows,
        waiting=waiting,
        look_up=with_retries if waits else None,
    ).rows
    fresh = leave_out(found.where(FRESH).drop(FRESH), spec.constraints)
    return found.where(~F.col(FRESH)).drop(FRESH).unionByName(fresh)


def _added_inputs(
    spark: SparkSession, spec: TableSpec, pins: Mapping[TableName, Pinned], previous: Receipt
) -> dict[TableName, DataFrame]:
    """The inputs of which an append read the new rows only, with these; it read the others whole."""
    every = {name: _added(spark, pins[name], previous.table_position(name)) for name in spec.driving}
    if len(every) == 1 or not isinstance(spec.query, SqlQuery):
        return every
    branches = find_branches(read_query(spec.query))
    if isinstance(branches, Reason):
        return every
    moved = {name for name in every if previous.table_position(name) != pins[name].position}
    inputs = branches.delta_inputs(frozenset(moved))
    if isinstance(inputs, Reason):
        # A commit of no row, such as one that puts files together, moves an input too.
        inputs = branches.delta_inputs(frozenset(name for name in moved if every[name].limit(1).count()))
    return every if isinstance(inputs, Reason) else {name: every[name] for name in inputs}


def _added(spark: SparkSession, pinned: Pinned, before: TablePosition | None) -> DataFrame:
    """The rows that an input gained since an earlier position: by batch number, or from the two snapshots."""
    if before is None:
        return read_whole(spark, pinned)
    if pinned.is_log:
        gained = Changes(pinned.name, before, pinned.position, ChangeKind.APPEND, log=True)
        return read_inserted(spark, pinned, gained)
    now, then = read_whole(spark, pinned), read_whole(spark, Pinned(pinned.spec, pinned.path, before))
    # A column that the input gained, which the query does not read, is NULL in the earlier rows.
    return without_gone(now, now.limit(0).unionByName(then, allowMissingColumns=True))


def without_gone(rows: DataFrame, gone: DataFrame) -> DataFrame:
    """The rows without those that are gone, each as often as it is."""
    return without(rows, gone, rows.columns) if "map<" in rows.schema.simpleString() else rows.exceptAll(gone)
