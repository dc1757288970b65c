"""Verify: a table against a recompute of its query at the positions in its receipt.

The comparison is of bags; floating-point values count as equal within 1e-9 of their size. Where a declaration is about
arrival (lookup joins, `merge.late = ignore`), the refreshes since the last full one are replayed, each over the
positions in its own receipt; rows of a refresh whose versions are gone are counted as unverified, never as equal.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.delta_log import Newest, count_all, count_rows, newest_version, read_newest, read_receipts
from freshline.compute.cancellation import Cancellation
from freshline.compute.constraints import leave_out
from freshline.compute.execution import suited_to
from freshline.compute.fold import as_stored, fold_keys, read_rows
from freshline.compute.inputs import (
    SEQ,
    Pinned,
    drop_views,
    read_inserted,
    read_upserted,
    read_version,
    read_whole,
    shadow_inputs,
)
from freshline.compute.netting import without
from freshline.errors import ModelError, PartitionError, RefreshError, RequestError
from freshline.merges.one_row import ORDER
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.models import at_models, is_mixed
from freshline.plan.request import MANUAL
from freshline.query.final import written_once_by
from freshline.query.query import read_query
from freshline.query.rules.algebra import SIGN
from freshline.query.rules.append import find_branches
from freshline.query.rules.lookups import find_lookups
from freshline.refresh.changed_lookups import FRESH, ChangedInput, follow_changes
from freshline.refresh.computed_rows import compute_whole, run_before_constraints, run_query, whole_inputs
from freshline.refresh.failure import translate
from freshline.refresh.functions import Function
from freshline.refresh.partitions import named_partition, partition_condition, read_partition
from freshline.refresh.pending_lookups import RETRY_AT, TRIES_LEFT, read_pending_lookups
from freshline.refresh.pin import pin_at
from freshline.refresh.runtime import Progress, Runtime
from freshline.refresh.time_partitions import read_time_partition, within
from freshline.run.comparison import Verification, compare
from freshline.run.savepoint import finish_restore
from freshline.run.verify_sink import verify_sink
from freshline.values.closing import Closing
from freshline.values.names import TableName, quoted
from freshline.values.partition import Interval, partition_name
from freshline.values.position import Position, TablePosition
from freshline.values.query import GraphFunction, PythonQuery, SqlQuery
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec

# The refresh of a row, by its place in the order in which they are replayed.
_NUMBER = "_freshline_refresh"


@dataclass(frozen=True)
class _Expected:
    rows: DataFrame | None
    unverified: int = 0
    detail: str = ""


def verify_table(
    runtime: Runtime,
    name: TableName,
    *,
    partitions: Sequence[Sequence[tuple[str, str]]] = (),
    cancellation: Cancellation,
    progress: Progress,
) -> Verification:
    """Recompute a table at its receipt's positions and compare; a failure to do so is part of the answer.

    With `partitions`, pairs of column and value text, only their rows are compared. Raises RequestError for a source
    and PartitionError for what is no partition of the table.
    """
    spec = runtime.graph.spec(name)
    if not isinstance(spec, TableSpec):
        raise RequestError(f"{name} is a source; tables are verified", where=str(name))
    if spec.sink is not None:
        if partitions:
            raise PartitionError("a sink has no partitions; verify all of it.", where=str(name))
        return verify_sink(runtime, spec, cancellation, progress)
    found = _verify(runtime, spec, partitions, cancellation, progress)
    return replace(found, partitions=tuple(partition_name(spec, partition) for partition in partitions))


def _verify(
    runtime: Runtime,
    spec: TableSpec,
    partitions: Sequence[Sequence[tuple[str, str]]],
    cancellation: Cancellation,
    progress: Progress,
) -> Verification:
    started, name = time.monotonic(), spec.name
    path = runtime.warehouse.path(name)
    finish_restore(runtime)
    # While it is verified the table stands still: its newest receipt and version belong together.
    with runtime.lock(name):
        newest = read_newest(path)
        if newest is None or newest.receipt is None:
            return Verification(name, False, 0, 0, 0, None, 0.0, error="NO_VERSION: the table has no version yet")
        if spec.follows_watermark:
            spec = spec.at_closing(Closing.between(None, newest.receipt.watermark_read))
        # Of rows that keep their prediction: as the newest of them were computed.
        spec = at_models(spec, newest.receipt)
        if spec.is_temporal and newest.receipt.clock is None:
            return _without_clock(path, newest, name)
        spec = spec.at_clock(newest.receipt.clock)
        try:
            read = [path, *(runtime.warehouse.location(runtime.graph.spec(each)) for each in spec.reads)]
            with (
                runtime.working(cancellation, pool=MANUAL, what=f"verify {name}") as spark,
                suited_to(spark, count_all(read)),
            ):
                progress("computing the query at the positions of the receipt")
                stored = read_version(spark, path, newest.version)
                only = _condition_of(runtime, spark, spec, stored.schema, partitions)
                expected = _expected(runtime, spark, spec, newest.receipt, cancellation, only)
                if expected.rows is None:
                    rows = (count_rows(path, newest.version) or 0) if only is None else stored.where(only).count()
                    return Verification(
                        name, False, 0, 0, rows, newest.version, time.monotonic() - started, detail=expected.detail
                    )
                try:
                    near = _with_stored_ranks(spec, expected.rows, stored)
                    missing, extra, differences = compare(
                        *((stored, near) if only is None else (stored.where(only), near.where(only)))
                    )
                finally:
                    drop_views(spark, spec.reads)
        except PartitionError:
            raise
        except Exception as error:  # noqa: BLE001 - the edge: what went wrong is the answer
            failure = translate(error, spec, cancellation)
            return Verification(name, False, 0, 0, 0, newest.version, time.monotonic() - started, error=str(failure))
    # Of time partitions, what cannot be recomputed counts as it is stored.
    extra = extra if spec.time_partitions is not None else max(0, extra - expected.unverified)
    equal = missing == 0 and extra == 0 and expected.unverified == 0
    return Verification(
        name,
        equal,
        missing,
        extra,
        expected.unverified,
        newest.version,
        time.monotonic() - started,
        differences=differences,
        detail=expected.detail,
    )


def _without_clock(path: Path, newest: Newest, name: TableName) -> Verification:
    """The result for a table whose receipt does not say for which time its rows passed temporal filters."""
    rows = count_rows(path, newest.version) or 0
    detail = "the receipt does not have the time for which rows passed the temporal filters"
    return Verification(name, False, 0, 0, rows, newest.version, 0.0, detail=detail)


def _condition_of(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    schema: StructType,
    partitions: Sequence[Sequence[tuple[str, str]]],
) -> str | None:
    """The condition that is true for exactly the rows of these partitions; None where none is named."""
    if not partitions:
        return None
    if spec.time_partitions is not None:
        named = [read_time_partition(spec, partition, runtime.clock()) for partition in partitions]
        return within(spec, schema, [(item.start, item.end) for item in named])
    values = [read_partition(spark, spec, schema, partition) for partition in partitions]
    return " OR ".join(f"({partition_condition(each)})" for each in values)


def _expected(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    receipt: Receipt,
    cancellation: Cancellation,
    only: str | None,
) -> _Expected:
    if receipt.fingerprint != spec.fingerprint:
        return _Expected(None, detail="the declaration changed since this version")
    if receipt.valid_from_seq is not None:
        return _Expected(None, detail="rows from before the start of the declaration follow an earlier one")
    try:
        runtime.keep_models(spec)
    except ModelError as error:
        return _Expected(None, detail=error.message)
    query = spec.query
    if isinstance(query, SqlQuery):
        volatile = read_query(query).volatile
        if volatile is not None:
            return _Expected(None, detail=f"the query has {volatile}, which gives another value each time")
        replayed = _replay_arrival(runtime, spark, spec, receipt)
        if replayed is not None:
            return replayed
    if spec.time_partitions is not None:
        return _at_spans(runtime, spark, spec, receipt, only)
    pins = pin_at(runtime, spec, receipt.positions)
    rows, view = compute_whole(runtime, spark, spec, pins, cancellation)
    if isinstance(query, PythonQuery) and query.promise and query.process is None:
        # Rows that constraints leave out are no matter of the promise.
        with ExitStack() as held:
            made = as_stored(spark.table(f"global_temp.{view}"), spec)
            Function(runtime, spark, spec, pins, held, cancellation).try_promise(made)
    if view is not None and runtime.python_tables is not None:
        # The plan has the rows' definition, not the view.
        runtime.python_tables.drop(view)
    # Where two overlap the later one stands, so only neighbours at the same positions are put together.
    for _, alike in groupby(receipt.partitions.items(), key=lambda item: _key_of(item[1])):
        keys = list(alike)
        condition = " OR ".join(f"({_condition(spark, spec, rows.schema, key)})" for key, _ in keys)
        rows = rows.where(f"NOT coalesce(({condition}), false)").unionByName(
            _rows_at(runtime, spark, spec, keys[0][1]).where(condition)
        )
    return _Expected(rows)


def _replay_arrival(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> _Expected | None:
    """The rows of a declaration that is about arrival, refresh by refresh; None for any other."""
    if spec.is_triggered:
        return _replay_triggers(runtime, spark, spec, receipt)
    if spec.lookups:
        return _replay_lookups(runtime, spark, spec, receipt)
    if is_mixed(receipt):
        return _replay_models(runtime, spark, spec, receipt)
    if spec.merge is not None and spec.merge.depends_on_refreshes:
        return _replay_late(runtime, spark, spec, receipt)
    if spec.merge is not None and spec.merge.upstream_deletes == "ignore":
        return _replay_ignored(runtime, spark, spec, receipt)
    return None


def _key_of(positions: Mapping[TableName, Position]) -> str:
    return json.dumps({str(name): position.as_json() for name, position in positions.items()}, sort_keys=True)


def _at_spans(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt, only: str | None) -> _Expected:
    """The rows of every span at its positions; those of another declaration cannot be computed any more."""
    alike: dict[str, tuple[Mapping[TableName, Position], list[Interval]]] = {}
    older: list[Interval] = []
    for span in receipt.spans or ():
        positions = receipt.positions if span.positions is None else span.positions
        if span.fingerprint != spec.fingerprint:
            older.append(span.interval)
        else:
            alike.setdefault(_key_of(positions), (positions, []))[1].append(span.interval)
    stored = read_version(
        spark, runtime.warehouse.path(spec.name), newest_version(runtime.warehouse.path(spec.name)) or 0
    )
    rows = stored.where(within(spec, stored.schema, older))
    unverified = (rows if only is None else rows.where(only)).count() if older else 0
    for positions, intervals in alike.values():
        computed = _rows_at(runtime, spark, spec, positions)
        rows = rows.unionByName(computed.where(within(spec, computed.schema, intervals)))
    return _Expected(rows, unverified, "partitions of an older declaration" if unverified else "")


def _condition(spark: SparkSession, spec: TableSpec, schema: StructType, key: str) -> str:
    return partition_condition(read_partition(spark, spec, schema, named_partition(key)))


def _rows_at(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, positions: Mapping[TableName, Position]
) -> DataFrame:
    pins = pin_at(runtime, spec, positions)
    shadow_inputs(whole_inputs(spark, spec, pins))
    return run_query(spark, spec, pins)


def _chain(runtime: Runtime, spec: TableSpec, receipt: Receipt) -> list[Receipt]:
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


def _replay_lookups(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> _Expected:
    """The union of the rows that each refresh added: its change set joined with the dimensions at its own versions."""
    chain = _chain(runtime, spec, receipt)
    complete = bool(chain) and chain[0].seq == receipt.replayed_from
    rows: DataFrame | None = None
    unverified = 0
    previous: Receipt | None = None
    for item in chain:
        if item.strategy in ("noop", "restore"):
            previous = item
            continue
        try:
            spec = _asking(runtime, spec, item)
            if item.strategy == "partition":
                assert rows is not None
                changed = {
                    key: positions
                    for key, positions in item.partitions.items()
                    if previous is None or previous.partitions.get(key) != positions
                }
                for key, positions in changed.items():
                    condition = _condition(spark, spec, rows.schema, key)
                    again = _rows_at(runtime, spark, spec, positions).where(condition)
                    rows = rows.where(f"NOT coalesce(({condition}), false)").unionByName(again)
            elif item.strategy == "keys":
                assert rows is not None
                assert previous is not None
                rows = _followed(runtime, spark, spec, item, previous, rows)
            else:
                added = _replayed(runtime, spark, spec, item, previous if item.strategy != "full" else None)
                rows = added if rows is None or item.strategy == "full" else rows.unionByName(added)
        except RefreshError:
            unverified += item.rows_in
        previous = item
    if rows is None:
        return _Expected(None, detail="no refresh since the last full one can be replayed")
    if not complete:
        total = count_rows(runtime.warehouse.path(spec.name)) or 0
        unverified = max(unverified, total - rows.count())
    return _Expected(rows, unverified, "" if complete and not unverified else "some versions are gone")


def _replay_triggers(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> _Expected:
    """Of each key the row of the first refresh at which the condition of WHEN was true.

    A refresh is replayed at the positions and the watermark in its receipt. From one that cannot be replayed on, the
    first refresh of a key is not known.
    """
    chain = _chain(runtime, spec, receipt)
    if not chain or chain[0].seq != receipt.replayed_from:
        return _Expected(None, detail="receipts since the last full refresh are gone")
    rows: DataFrame | None = None
    gone = False
    for number, item in enumerate(chain):
        if item.strategy in ("noop", "restore"):
            continue
        try:
            then = spec.at_closing(Closing.between(None, item.closed_until))
            found = _rows_at(runtime, spark, then, item.positions).withColumn(_NUMBER, F.lit(number))
        except RefreshError:
            gone = True
            break
        rows = found if rows is None else rows.unionByName(found)
    if rows is None:
        return _Expected(None, detail="no refresh since the last full one can be replayed")
    key = Window.partitionBy(*[F.col(quoted(column)) for column in written_once_by(spec)])
    rows = rows.withColumn("_freshline_first", F.min(_NUMBER).over(key)).where(
        F.col("_freshline_first") == F.col(_NUMBER)
    )
    rows = rows.drop(_NUMBER, "_freshline_first")
    if not gone:
        return _Expected(rows)
    total = count_rows(runtime.warehouse.path(spec.name)) or 0
    return _Expected(rows, max(1, total - rows.count()), "some versions are gone")


def _asking(runtime: Runtime, spec: TableSpec, item: Receipt) -> TableSpec:
    """The table as a refresh computed it, with the models that it asked. Raises ModelError."""
    asked = at_models(spec, item)
    runtime.keep_models(asked)
    return asked


def _replay_models(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> _Expected:
    """The rows of the last refresh at which all followed one file of each model, and what each one since has added."""
    chain = _chain(runtime, spec, receipt)
    alike = [number for number, item in enumerate(chain) if not is_mixed(item)]
    if not alike:
        return _Expected(None, detail="the receipts of rows that keep an earlier model are gone")
    rows: DataFrame | None = None
    previous: Receipt | None = None
    for item in chain[alike[-1] :]:
        if rows is None or item.strategy == "append":
            try:
                added = _replayed(runtime, spark, _asking(runtime, spec, item), item, previous)
            except RefreshError as error:
                return _Expected(None, detail=error.message)
            rows = added if rows is None else rows.unionByName(added)
        previous = item
    return _Expected(rows)


def _replayed(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, item: Receipt, previous: Receipt | None
) -> DataFrame:
    pins = pin_at(runtime, spec, item.positions)
    frames = whole_inputs(spark, spec, pins)
    if previous is not None:
        for name, rows in _added_inputs(spark, spec, pins, previous).items():
            frames[name] = rows
    if spec.lookup_attempts:
        (name,) = spec.driving
        before, after = (_waiting(runtime, spark, spec, each) for each in (previous, item))
        frames[name] = _asked(frames[name], before, after, frames[name].columns)
    shadow_inputs(frames)
    return run_query(spark, spec, pins)


def _waiting(runtime: Runtime, spark: SparkSession, spec: TableSpec, item: Receipt | None) -> DataFrame | None:
    """The rows that wait for their dimension after a refresh; None where none does."""
    if item is None or item.pending_lookups is None:
        return None
    return read_pending_lookups(runtime, spark, spec, item.pending_lookups).drop(TRIES_LEFT, RETRY_AT)


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

    waits = bool(spec.lookup_attempts) or previous.pending_lookups is not None
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
    return _without(now, now.limit(0).unionByName(then, allowMissingColumns=True))


def _replay_late(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> _Expected:
    """first_row with `late = ignore`: of each key the best row of the first refresh that saw the key."""
    assert spec.columns is not None
    (name,) = spec.driving
    pins = pin_at(runtime, spec, receipt.positions)
    pinned = pins[name]
    if not pinned.is_log:
        return _Expected(None, detail="arrival can be replayed over log tables only")
    chain = _chain(runtime, spec, receipt)
    if not chain or chain[0].seq != receipt.replayed_from:
        return _Expected(None, detail="receipts since the last full refresh are gone")
    ends = [(item.table_position(name) or pinned.position).seq or 0 for item in chain]
    shadow_inputs({name: read_whole(spark, pinned, arrival=True)})
    rows = read_rows(spark, spec, arrival=True)
    refresh: Column = F.lit(len(ends))
    for number in range(len(ends) - 1, -1, -1):
        refresh = F.when(F.col(SEQ) <= ends[number], F.lit(number)).otherwise(refresh)
    ordered = rows.withColumn(ORDER, F.struct(refresh.alias("refresh"), F.col(ORDER).alias("order")))
    return _Expected(fold_keys(ordered, spec))


def _replay_ignored(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> _Expected:
    """`upstream-deletes` = `ignore`: the fold of what there was at the last full refresh and of all that came since."""
    assert spec.merge is not None
    assert spec.columns is not None
    (name,) = spec.driving
    pins = pin_at(runtime, spec, receipt.positions)
    if spec.merge.is_by_arrival:
        return _Expected(None, detail="a first row by arrival can be replayed over log tables only")
    pinned = pins[name]
    rows = read_whole(spark, pinned)
    if not pinned.is_log:
        chain = _chain(runtime, spec, receipt)
        first = chain[0].table_position(name) if chain and chain[0].seq == receipt.replayed_from else None
        if first is None:
            return _Expected(None, detail="receipts since the last full refresh are gone")
        rows = read_whole(spark, Pinned(pinned.spec, pinned.path, first))
        if first.version != pinned.position.version:
            since = Changes(name, first, pinned.position, ChangeKind.MUTATE, change_feed=True)
            rows = rows.unionByName(read_upserted(spark, pinned, since))
    shadow_inputs({name: rows})
    return _Expected(fold_keys(read_rows(spark, spec), spec))


def _with_stored_ranks(spec: TableSpec, expected: DataFrame, stored: DataFrame) -> DataFrame:
    """The computed rows of a table, with ranks of PAGERANK as they are stored where they are within TOLERANCE."""
    graph = spec.query.graph if isinstance(spec.query, SqlQuery) else None
    if graph is None or graph.function is not GraphFunction.PAGERANK or graph.value is None:
        return expected
    node, rank, known, there = quoted(graph.node), F.col(quoted(graph.value)), "_freshline_node", "_freshline_rank"
    ranks = stored.groupBy(F.col(node).alias(known)).agg(F.min(rank).alias(there))
    near = F.abs(rank - F.col(there)) <= F.lit(graph.tolerance)
    columns = [
        F.when(near, F.col(there)).otherwise(rank).alias(name) if name.lower() == graph.value.lower() else quoted(name)
        for name in expected.columns
    ]
    return expected.join(ranks, F.col(node).eqNullSafe(F.col(known)), "left").select(*columns)


def _without(rows: DataFrame, gone: DataFrame) -> DataFrame:
    """The rows without those that are gone, each as often as it is."""
    return without(rows, gone, rows.columns) if "map<" in rows.schema.simpleString() else rows.exceptAll(gone)
