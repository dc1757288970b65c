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
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.delta_log import Newest, count_all, count_rows, newest_version, read_newest
from freshline.compute.cancellation import Cancellation
from freshline.compute.execution import suited_to
from freshline.compute.fold import as_stored, fold_keys, read_rows
from freshline.compute.inputs import (
    SEQ,
    Pinned,
    drop_views,
    read_upserted,
    read_version,
    read_whole,
    shadow_inputs,
)
from freshline.errors import ModelError, PartitionError, RefreshError, RequestError
from freshline.merges.one_row import ORDER
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.models import at_models, is_mixed
from freshline.plan.request import MANUAL
from freshline.query.final import written_once_by
from freshline.query.query import read_query
from freshline.refresh.computed_rows import compute_whole
from freshline.refresh.failure import translate
from freshline.refresh.functions import Function
from freshline.refresh.partitions import partition_condition, read_partition
from freshline.refresh.pin import pin_at
from freshline.refresh.replay import (
    Expected,
    at_models_of,
    condition_of,
    receipts_replayed,
    replay_lookups,
    replay_refresh,
    rows_at,
)
from freshline.refresh.runtime import Progress, Runtime
from freshline.refresh.time_partitions import read_time_partition, within
from freshline.run.comparison import Verification, compare
from freshline.run.savepoint import finish_restore
from freshline.run.verify_sink import verify_sink
from freshline.values.closing import Closing
from freshline.values.names import TableName, quoted
from freshline.values.partition import Interval, partition_name
from freshline.values.position import Position
from freshline.values.query import GraphFunction, PythonQuery, SqlQuery
from freshline.values.receipt import Receipt
from freshline.values.spec import TableSpec

# The refresh of a row, by its place in the order in which they are replayed.
_NUMBER = "_freshline_refresh"


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
) -> Expected:
    if receipt.fingerprint != spec.fingerprint:
        return Expected(None, detail="the declaration changed since this version")
    if receipt.valid_from_seq is not None:
        return Expected(None, detail="rows from before the start of the declaration follow an earlier one")
    try:
        runtime.keep_models(spec)
    except ModelError as error:
        return Expected(None, detail=error.message)
    query = spec.query
    if isinstance(query, SqlQuery):
        volatile = read_query(query).volatile
        if volatile is not None:
            return Expected(None, detail=f"the query has {volatile}, which gives another value each time")
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
        condition = " OR ".join(f"({condition_of(spark, spec, rows.schema, key)})" for key, _ in keys)
        rows = rows.where(f"NOT coalesce(({condition}), false)").unionByName(
            rows_at(runtime, spark, spec, keys[0][1]).where(condition)
        )
    return Expected(rows)


def _replay_arrival(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> Expected | None:
    """The rows of a declaration that is about arrival, refresh by refresh; None for any other."""
    if spec.is_triggered:
        return _replay_triggers(runtime, spark, spec, receipt)
    if spec.lookups:
        return replay_lookups(runtime, spark, spec, receipt)
    if is_mixed(receipt):
        return _replay_models(runtime, spark, spec, receipt)
    if spec.merge is not None and spec.merge.depends_on_refreshes:
        return _replay_late(runtime, spark, spec, receipt)
    if spec.merge is not None and spec.merge.upstream_deletes == "ignore":
        return _replay_ignored(runtime, spark, spec, receipt)
    return None


def _key_of(positions: Mapping[TableName, Position]) -> str:
    return json.dumps({str(name): position.as_json() for name, position in positions.items()}, sort_keys=True)


def _at_spans(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt, only: str | None) -> Expected:
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
        computed = rows_at(runtime, spark, spec, positions)
        rows = rows.unionByName(computed.where(within(spec, computed.schema, intervals)))
    return Expected(rows, unverified, "partitions of an older declaration" if unverified else "")


def _replay_triggers(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> Expected:
    """Of each key the row of the first refresh at which the condition of WHEN was true.

    A refresh is replayed at the positions and the watermark in its receipt. From one that cannot be replayed on, the
    first refresh of a key is not known.
    """
    chain = receipts_replayed(runtime, spec, receipt)
    if not chain or chain[0].seq != receipt.replayed_from:
        return Expected(None, detail="receipts since the last full refresh are gone")
    rows: DataFrame | None = None
    gone = False
    for number, item in enumerate(chain):
        if item.strategy in ("noop", "restore"):
            continue
        try:
            then = spec.at_closing(Closing.between(None, item.closed_until))
            found = rows_at(runtime, spark, then, item.positions).withColumn(_NUMBER, F.lit(number))
        except RefreshError:
            gone = True
            break
        rows = found if rows is None else rows.unionByName(found)
    if rows is None:
        return Expected(None, detail="no refresh since the last full one can be replayed")
    key = Window.partitionBy(*[F.col(quoted(column)) for column in written_once_by(spec)])
    rows = rows.withColumn("_freshline_first", F.min(_NUMBER).over(key)).where(
        F.col("_freshline_first") == F.col(_NUMBER)
    )
    rows = rows.drop(_NUMBER, "_freshline_first")
    if not gone:
        return Expected(rows)
    total = count_rows(runtime.warehouse.path(spec.name)) or 0
    return Expected(rows, max(1, total - rows.count()), "some versions are gone")


def _replay_models(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> Expected:
    """The rows of the last refresh at which all followed one file of each model, and what each one since has added."""
    chain = receipts_replayed(runtime, spec, receipt)
    alike = [number for number, item in enumerate(chain) if not is_mixed(item)]
    if not alike:
        return Expected(None, detail="the receipts of rows that keep an earlier model are gone")
    rows: DataFrame | None = None
    previous: Receipt | None = None
    for item in chain[alike[-1] :]:
        if rows is None or item.strategy == "append":
            try:
                added = replay_refresh(runtime, spark, at_models_of(runtime, spec, item), item, previous)
            except RefreshError as error:
                return Expected(None, detail=error.message)
            rows = added if rows is None else rows.unionByName(added)
        previous = item
    return Expected(rows)


def _replay_late(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> Expected:
    """first_row with `late = ignore`: of each key the best row of the first refresh that saw the key."""
    assert spec.columns is not None
    (name,) = spec.driving
    pins = pin_at(runtime, spec, receipt.positions)
    pinned = pins[name]
    if not pinned.is_log:
        return Expected(None, detail="arrival can be replayed over log tables only")
    chain = receipts_replayed(runtime, spec, receipt)
    if not chain or chain[0].seq != receipt.replayed_from:
        return Expected(None, detail="receipts since the last full refresh are gone")
    ends = [(item.table_position(name) or pinned.position).seq or 0 for item in chain]
    shadow_inputs({name: read_whole(spark, pinned, arrival=True)})
    rows = read_rows(spark, spec, arrival=True)
    refresh: Column = F.lit(len(ends))
    for number in range(len(ends) - 1, -1, -1):
        refresh = F.when(F.col(SEQ) <= ends[number], F.lit(number)).otherwise(refresh)
    ordered = rows.withColumn(ORDER, F.struct(refresh.alias("refresh"), F.col(ORDER).alias("order")))
    return Expected(fold_keys(ordered, spec))


def _replay_ignored(runtime: Runtime, spark: SparkSession, spec: TableSpec, receipt: Receipt) -> Expected:
    """`upstream-deletes` = `ignore`: the fold of what there was at the last full refresh and of all that came since."""
    assert spec.merge is not None
    assert spec.columns is not None
    (name,) = spec.driving
    pins = pin_at(runtime, spec, receipt.positions)
    if spec.merge.is_by_arrival:
        return Expected(None, detail="a first row by arrival can be replayed over log tables only")
    pinned = pins[name]
    rows = read_whole(spark, pinned)
    if not pinned.is_log:
        chain = receipts_replayed(runtime, spec, receipt)
        first = chain[0].table_position(name) if chain and chain[0].seq == receipt.replayed_from else None
        if first is None:
            return Expected(None, detail="receipts since the last full refresh are gone")
        rows = read_whole(spark, Pinned(pinned.spec, pinned.path, first))
        if first.version != pinned.position.version:
            since = Changes(name, first, pinned.position, ChangeKind.MUTATE, change_feed=True)
            rows = rows.unionByName(read_upserted(spark, pinned, since))
    shadow_inputs({name: rows})
    return Expected(fold_keys(read_rows(spark, spec), spec))


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
