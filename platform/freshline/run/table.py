"""One refresh of one table: pin, classify, choose, compute, one fenced commit, read back.

Stopped at any point, either the commit with its receipt is there or the table is as it was; the next refresh begins
from the newest receipt in both cases.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import assert_never
from uuid import uuid4

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from freshline.commit.delta_log import (
    Newest,
    classify,
    count_rows,
    exists,
    newest_version,
    position_of,
    read_newest,
)
from freshline.commit.write import (
    Committed,
    append_rows,
    create_table,
    merge_rows,
    overwrite_table,
    replace_partitions,
    write_and_read_back,
)
from freshline.declare.names import TableName
from freshline.declare.query import PythonQuery
from freshline.declare.spec import MergeKind, Mode, SourceSpec, TableSpec
from freshline.errors import (
    CancelledError,
    DefinitionChangedError,
    FencedError,
    FreshlineError,
    IncrementalError,
    PartitionError,
    SourceError,
    UpstreamChangedError,
)
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.position import Position, TablePosition, position_from_json
from freshline.plan.reason import Reason
from freshline.plan.receipt import Receipt
from freshline.plan.record import RefreshRecord
from freshline.plan.request import RefreshRequest
from freshline.plan.shape import Origin, groups_by, read_shape
from freshline.plan.step import (
    Append,
    Full,
    MergeRows,
    Noop,
    ReplaceNamedPartitions,
    ReplacePartitions,
    Situation,
    Step,
    choose_step,
)
from freshline.refresh.cancellation import Cancellation
from freshline.refresh.fold import (
    DELETE,
    ORDER,
    drop_beaten,
    fold_rows,
    has_key,
    read_rows,
    stored_order,
    update_condition,
)
from freshline.refresh.inputs import (
    FILE,
    RECORD,
    SEQ,
    Pinned,
    drop_views,
    read_inserted,
    read_net_images,
    read_whole,
    shadow_inputs,
)
from freshline.refresh.literal import for_literal, from_spark, partition_predicate, quoted
from freshline.report.outcome import Outcome
from freshline.run.compute import check_key, check_key_against, check_lookups, compute_whole, run_query, whole_inputs
from freshline.run.failure import translate
from freshline.run.log import HISTORY_SECONDS, commit_null_keys, refresh_log
from freshline.run.partitions import partition_condition, partition_key, read_partition
from freshline.run.pin import Pins, pin_at, pin_inputs
from freshline.run.runtime import Progress, Runtime

ATTEMPTS = 3
# The steps that read changes of inputs, and not only their newest versions.
BY_CHANGES = (Append, MergeRows, ReplacePartitions)
MOST_PARTITIONS = 5_000
FEW_ROWS = 100_000
CONTINUOUS_HISTORY_SECONDS = 2 * 86400
# A position that only the control store knows must not fall behind what the inputs still hold.
CARRY_AFTER = timedelta(hours=1)
CARRY_AFTER_VERSIONS = 1000


def refresh_table(
    runtime: Runtime,
    name: TableName,
    request: RefreshRequest,
    *,
    cancellation: Cancellation,
    progress: Progress,
) -> Outcome:
    """Bring one table, log table or source to its inputs' newest versions, and tell what happened.

    Never raises for a refresh that failed or was cancelled: the outcome says so. A second call for the same
    table waits for the first.
    """
    started = time.monotonic()
    graph = runtime.graph
    spec = graph.spec(name)
    kind = "table" if isinstance(spec, TableSpec) else "log" if spec.is_log else "source"
    with runtime.lock(name):
        try:
            cancellation.check()
            if isinstance(spec, TableSpec):
                outcome = _refresh(runtime, spec, request, cancellation, progress)
            elif request.partitions or (request.full and spec.is_log):
                raise (
                    PartitionError(
                        f"{name} is a source: it has no partitions and cannot be computed again", where=str(name)
                    )
                    if request.partitions
                    else DefinitionChangedError(
                        "a log table only grows; it cannot be refreshed in full. Refresh the tables that read it.",
                        where=str(name),
                    )
                )
            elif spec.is_log:
                outcome = refresh_log(runtime, spec, request, cancellation=cancellation, progress=progress)
            else:
                outcome = _check_source(runtime, spec)
        except Exception as error:  # noqa: BLE001 - the edge of a refresh: every failure becomes an outcome
            failure = translate(error, spec, cancellation)
            cancelled = isinstance(failure, CancelledError)
            outcome = Outcome(
                table=name,
                kind=kind,
                state="CANCELLED" if cancelled else "FAILED",
                strategy=None,
                reason=f"{failure.code}: {failure.message}",
                version=newest_version(runtime.warehouse.location(spec)),
                rows_in=0,
                rows_out=0,
                seconds=0.0,
                mode=str(graph.mode(name)),
                error=failure,
            )
            if not isinstance(error, FreshlineError) and not cancelled:
                failure.__cause__ = error
        outcome = replace(outcome, seconds=time.monotonic() - started)
        _record(runtime, outcome, spec.fingerprint)
        return outcome


def _record(runtime: Runtime, outcome: Outcome, fingerprint: str) -> None:
    runtime.control.record_refresh(
        RefreshRecord(
            table=outcome.table,
            at=runtime.clock(),
            state=outcome.state,
            strategy=outcome.strategy,
            reason=outcome.reason,
            seconds=outcome.seconds,
            version=outcome.version,
            rows_in=outcome.rows_in,
            rows_out=outcome.rows_out,
            rejected=outcome.rejected,
            committed=outcome.committed,
            fingerprint=fingerprint,
            data_timestamp=outcome.data_timestamp,
            error=None if outcome.error is None else outcome.error.as_json(),
            problems=tuple(str(problem) for problem in outcome.problems),
        )
    )


def _check_source(runtime: Runtime, spec: SourceSpec) -> Outcome:
    """Look at a source that is read in place; nothing is copied."""
    now = runtime.clock()
    path = Path(spec.path)
    version = newest_version(path)
    if version is None:
        raise SourceError(
            f"there is no Delta table at {path}. Write it, or correct `path`.", where=str(spec.written_at)
        )
    runtime.control.record_check(spec.name, now, json.dumps(position_of(path, version).as_json()))
    return Outcome(
        table=spec.name,
        kind="source",
        state="SUCCEEDED",
        strategy="noop",
        reason=str(Reason("NOTHING_NEW", "read in place")),
        version=version,
        rows_in=0,
        rows_out=0,
        seconds=0.0,
        mode=str(runtime.graph.mode(spec.name)),
        data_timestamp=now,
    )


@dataclass(frozen=True)
class _Work:
    """What a step has to write: the statement, and what the receipt says of it. `write` None: nothing would change."""

    write: Callable[[Receipt], None] | None
    strategy: str
    reason: Reason
    rows_in: int
    positions: Mapping[TableName, Position]
    partitions: Mapping[str, Mapping[TableName, Position]]
    rejected: int = 0


def _refresh(
    runtime: Runtime,
    spec: TableSpec,
    request: RefreshRequest,
    cancellation: Cancellation,
    progress: Progress,
) -> Outcome:
    path = runtime.warehouse.path(spec.name)
    mode = str(runtime.graph.mode(spec.name))
    gone: str | None = None
    for _ in range(ATTEMPTS):
        started = time.monotonic()
        newest = read_newest(path)
        receipt = None if newest is None else newest.receipt
        _require_same_definition(spec, receipt, request)
        base = _base_positions(runtime, spec, receipt)
        pins = pin_inputs(runtime, spec, base)
        runtime.failpoint("table-pinned")
        changes = _classify(spec, pins, base)
        step = choose_step(Situation(spec, receipt, newest is not None and newest.foreign, changes, request))
        if gone is not None and isinstance(step, BY_CHANGES):
            step = Full(Reason("HISTORY_GONE", gone))
        _require_allowed(spec, step, changes)
        if pins.mixed:
            progress(f"{Reason('MIXED_CUT', ', '.join(pins.mixed))}")
        if isinstance(step, Noop) and not _far_ahead(receipt, pins, spec.lookups):
            return _noop(runtime, spec, newest, pins, step.reason, mode)
        progress(_describe(step))
        try:
            with (
                runtime.working(cancellation, pool=request.cause, what=f"refresh {spec.name}") as spark,
                ExitStack() as held,
            ):
                held.callback(drop_views, spark, spec.reads)
                work = _prepare(runtime, spark, spec, step, pins, changes, receipt, held, cancellation, mode)
                if work.write is None:
                    return _noop(runtime, spec, newest, pins, work.reason, mode, work)
                new = _receipt(runtime, spec, receipt, pins, work, mode, time.monotonic() - started)
                cancellation.check()
                runtime.failpoint("table-before-commit")
                committed = write_and_read_back(partial(work.write, new), path, new)
                runtime.failpoint("table-after-commit")
        except Exception as error:
            gone = _lost_changes(error, spec, step, cancellation)
            if gone is None:
                raise
            progress("changes of an input are gone; planning again")
            continue
        if committed is not None:
            return _succeeded(spec, committed, work, mode)
        progress("another refresh was committed meanwhile; planning again")
    raise FencedError(f"{ATTEMPTS} refreshes of this table were overtaken by others. Ask again.", where=str(spec.name))


def _lost_changes(error: Exception, spec: TableSpec, step: Step, cancellation: Cancellation) -> str | None:
    """What is gone, where a step failed because the log tells of changes whose rows are no longer there."""
    if isinstance(error, FreshlineError) or not isinstance(step, BY_CHANGES):
        return None
    failure = translate(error, spec, cancellation)
    return failure.message if isinstance(failure, SourceError) else None


def _require_same_definition(spec: TableSpec, receipt: Receipt | None, request: RefreshRequest) -> None:
    if receipt is None or receipt.fingerprint == spec.fingerprint or request.full:
        return
    if isinstance(spec.query, PythonQuery):
        # A table in Python is computed whole by every refresh, so its new code replaces all rows of the old.
        return
    raise DefinitionChangedError(
        "the declaration changed since the newest refresh, and rows of the old and the new one must not mix. "
        f"Compute it from the beginning with `freshline refresh {spec.name} --full`.",
        where=str(spec.written_at),
    )


def _base_positions(runtime: Runtime, spec: TableSpec, receipt: Receipt | None) -> Mapping[TableName, Position]:
    """Up to where the table is known to have read: its receipt, or a later check that found nothing to write."""
    if receipt is None:
        return {}
    check = runtime.control.checks().get(spec.name)
    if check is None:
        return receipt.positions
    known = json.loads(check.position or "{}")
    if known.get("seq") != receipt.seq or "positions" not in known:
        return receipt.positions
    return {TableName.parse(key): position_from_json(value) for key, value in known["positions"].items()}


def _classify(spec: TableSpec, pins: Pins, base: Mapping[TableName, Position]) -> dict[TableName, Changes]:
    found = {}
    for name, pinned in pins.inputs.items():
        before = base.get(name)
        found[name] = classify(
            name,
            pinned.path,
            before if isinstance(before, TablePosition) else None,
            pinned.position,
            log=pinned.is_log,
        )
    return found


def _require_allowed(spec: TableSpec, step: Step, changes: Mapping[TableName, Changes]) -> None:
    if isinstance(step, Full) and spec.incremental_strict and step.reason.code not in ("REQUESTED", "NO_RECEIPT"):
        raise IncrementalError(
            f"`incremental = strict`, but this change needs a full refresh: {step.reason}. "
            f"Run `freshline refresh {spec.name} --full`, or declare `incremental = auto`.",
            where=str(spec.name),
        )
    if spec.merge is not None and spec.merge.upstream_deletes == "error" and isinstance(step, Full):
        hit = [
            c for n in spec.driving if (c := changes[n]).kind in (ChangeKind.MUTATE, ChangeKind.REPLACE) and c.before
        ]
        if hit and step.reason.code == "UPSTREAM_DELETES":
            raise UpstreamChangedError(
                f"{hit[0].name} updated or deleted rows (versions {hit[0].before and hit[0].before.version + 1} to "
                f"{hit[0].after.version}), and `upstream-deletes` is `error`. Run `freshline refresh {spec.name} --full` to "
                "take them in.",
                where=str(spec.name),
            )


def _far_ahead(receipt: Receipt | None, pins: Pins, pinned_only: frozenset[TableName]) -> bool:
    """Whether the checked position has run so far ahead of the receipt that it must be carried into the log."""
    if receipt is None:
        return False
    moved = False
    for name in receipt.positions:
        pinned = pins.inputs.get(name)
        before = receipt.table_position(name)
        # A log table is read by batch number, and dimensions do not drive: neither can be left behind by retention.
        if pinned is None or pinned.is_log or name in pinned_only or before is None:
            continue
        if before.version == pinned.position.version:
            continue
        moved = True
        if pinned.position.version - before.version > CARRY_AFTER_VERSIONS:
            return True
    stamp = receipt.data_timestamp
    return moved and stamp is not None and pins.data_timestamp - stamp > CARRY_AFTER


def _noop(
    runtime: Runtime,
    spec: TableSpec,
    newest: Newest | None,
    pins: Pins,
    reason: Reason,
    mode: str,
    work: _Work | None = None,
) -> Outcome:
    receipt = None if newest is None else newest.receipt
    if receipt is not None:
        # Lookup tables keep the dimension versions that their rows met; only what drives is moved.
        positions = {name: position.as_json() for name, position in pins.positions.items()}
        runtime.control.record_check(
            spec.name,
            pins.data_timestamp,
            json.dumps({"seq": receipt.seq, "positions": {str(name): value for name, value in positions.items()}}),
        )
    return Outcome(
        table=spec.name,
        kind="table",
        state="SUCCEEDED",
        strategy="noop",
        reason=str(reason),
        version=None if newest is None else newest.version,
        rows_in=0 if work is None else work.rows_in,
        rows_out=0,
        rejected=0 if work is None else work.rejected,
        seconds=0.0,
        mode=mode,
        data_timestamp=pins.data_timestamp,
    )


def _succeeded(spec: TableSpec, committed: Committed, work: _Work, mode: str) -> Outcome:
    return Outcome(
        table=spec.name,
        kind="table",
        state="SUCCEEDED",
        strategy=work.strategy,
        reason=str(work.reason),
        version=committed.version,
        rows_in=work.rows_in,
        rows_out=committed.rows_out,
        rejected=work.rejected,
        seconds=0.0,
        mode=mode,
        data_timestamp=committed.receipt.data_timestamp,
        committed=True,
    )


def _receipt(
    runtime: Runtime, spec: TableSpec, previous: Receipt | None, pins: Pins, work: _Work, mode: str, seconds: float
) -> Receipt:
    seq = 1 if previous is None else previous.seq + 1
    moves = work.positions is pins.positions or work.positions == pins.positions
    return Receipt(
        table=spec.name,
        fingerprint=spec.fingerprint,
        epoch=runtime.epoch,
        seq=seq,
        mode=mode,
        strategy=work.strategy,
        reason=str(work.reason),
        data_timestamp=pins.data_timestamp if moves or previous is None else previous.data_timestamp,
        positions=work.positions,
        rows_in=work.rows_in,
        rows_out=None,
        rejected=work.rejected,
        attempt=uuid4().hex,
        cut=pins.cut if moves or previous is None else previous.cut,
        partitions=work.partitions,
        replayed_from=seq if work.strategy == "full" or previous is None else previous.replayed_from,
        seconds=seconds,
    )


def _describe(step: Step) -> str:
    match step:
        case Noop():
            return "carrying the checked position into the log"
        case Append():
            return "appending new rows"
        case MergeRows():
            return "merging new rows"
        case ReplacePartitions() | ReplaceNamedPartitions():
            return "computing partitions again"
        case Full():
            return f"computing everything ({step.reason.code})"
    assert_never(step)


def _prepare(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    step: Step,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    receipt: Receipt | None,
    held: ExitStack,
    cancellation: Cancellation,
    mode: str,
) -> _Work:
    """Compute what the step writes; caches that it needs are let go of by `held`."""
    path = runtime.warehouse.path(spec.name)
    match step:
        case Noop():
            return _carry(spark, spec, path, pins, receipt, step)
        case Append():
            return _prepare_append(runtime, spark, spec, path, step, pins, changes, held)
        case MergeRows():
            return _prepare_merge(runtime, spark, spec, path, step, pins, changes, held, mode)
        case ReplacePartitions():
            return _prepare_partitions(runtime, spark, spec, path, step, pins, changes, held, cancellation, mode)
        case ReplaceNamedPartitions():
            return _prepare_named(runtime, spark, spec, path, step, pins, receipt, held)
        case Full():
            return _prepare_full(runtime, spark, spec, path, pins, step.reason, held, cancellation, mode)
    assert_never(step)


def _carry(spark: SparkSession, spec: TableSpec, path: Path, pins: Pins, receipt: Receipt | None, step: Noop) -> _Work:
    empty = spark.read.format("delta").load(str(path)).limit(0)
    return _Work(lambda new: append_rows(empty, path, new), "noop", step.reason, 0, pins.positions, {})


def _prepare_append(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: Append,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    held: ExitStack,
) -> _Work:
    whole = [name for name in pins.inputs if name not in step.as_changes]
    frames = whole_inputs(spark, spec, pins.inputs, only=whole)
    for name in step.as_changes:
        frames[name] = read_inserted(spark, pins.inputs[name], changes[name])
    shadow_inputs(spark, frames)
    check_lookups(runtime, spark, spec, pins.inputs)
    rows = run_query(spark, spec, pins.inputs)
    rows_in = sum(changes[name].rows for name in step.as_changes)
    if spec.primary_key:
        rows = _held(rows, held)
        if rows.limit(1).count() == 0:
            return _Work(None, "noop", Reason("NO_NET_CHANGE"), rows_in, pins.positions, {})
        check_key(rows, spec)
        check_key_against(rows, spark.read.format("delta").load(str(path)), spec)
    return _Work(lambda new: append_rows(rows, path, new), "append", step.reason, rows_in, pins.positions, {})


def _held(rows: DataFrame, held: ExitStack) -> DataFrame:
    """Keep rows that are looked at before they are written, until the refresh is over."""
    kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
    held.callback(kept.unpersist)
    return kept


def _prepare_merge(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: MergeRows,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    held: ExitStack,
    mode: str,
) -> _Work:
    merge = spec.merge
    assert merge is not None
    assert spec.columns is not None
    pinned = pins.inputs[step.input]
    change = changes[step.input]
    shadow_inputs(spark, {step.input: read_inserted(spark, pinned, change, arrival=pinned.is_log)})
    rows = read_rows(spark, spec, arrival=pinned.is_log)
    rejected = _quarantine_null_keys(runtime, spark, spec, pinned, rows, mode)
    folded = fold_rows(rows, spec)
    stored = stored_order(spec)
    settled_by_table = merge.kind is MergeKind.FIRST_ROW and (merge.order is None or merge.late == "ignore")
    ties_resolved = False
    if not settled_by_table and (merge.delete_when is not None or stored.order is None or stored.ties is None):
        folded = drop_beaten(folded, _older_rows(spark, spec, pinned, change, folded), spec)
        ties_resolved = stored.ties is None or stored.order is None
    # Computed once, read twice by MERGE, which refuses a cached source; the blocks go with the last reference.
    folded = folded.localCheckpoint(eager=True)
    if folded.limit(1).count() == 0:
        return _Work(None, "noop", Reason("NO_NET_CHANGE"), change.rows, pins.positions, {}, rejected)
    condition = update_condition(spec, folded.schema, ties_resolved=ties_resolved)
    delete = DELETE if merge.delete_when is not None else None
    columns = spec.columns
    return _Work(
        lambda new: merge_rows(
            spark, folded, path, new, keys=spec.primary_key, columns=columns, update_when=condition, delete=delete
        ),
        "merge",
        step.reason,
        change.rows,
        pins.positions,
        {},
        rejected,
    )


def _older_rows(spark: SparkSession, spec: TableSpec, pinned: Pinned, change: Changes, folded: DataFrame) -> DataFrame:
    """Rows of the change set's keys that were read before, as far as the stored row cannot speak for them.

    A key that is absent may have been deleted by a later event, so deletes are looked up; a tie that the table cannot
    break is broken by the rows of equal order; where the order is not stored at all, every older row counts.
    """
    assert spec.merge is not None
    before = Pinned(pinned.spec, pinned.path, change.before or TablePosition(pinned.position.table_id, 0, 0))
    shadow_inputs(spark, {pinned.name: read_whole(spark, before, arrival=pinned.is_log)})
    older = read_rows(spark, spec).where(has_key(spec))
    stored = stored_order(spec)
    keys = [F.col(quoted(key)) for key in spec.primary_key]
    if stored.order is not None and spec.merge.order is not None:
        wanted = F.broadcast(folded.select(*keys, F.col(f"{ORDER}.k.o").alias("_freshline_o")))
        met = F.col(DELETE)
        if stored.ties is None:
            met = met | F.col(f"{ORDER}.k.o").eqNullSafe(F.col("_freshline_o"))
        joined = (
            older.join(wanted, list(spec.primary_key))
            if stored.ties is None
            else older.join(F.broadcast(folded.select(*keys)), list(spec.primary_key), "left_semi")
        )
        return joined.where(met)
    return older.join(F.broadcast(folded.select(*keys)), list(spec.primary_key), "left_semi")


def _quarantine_null_keys(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, pinned: Pinned, rows: DataFrame, mode: str
) -> int:
    """Rows with a NULL in the key cannot be in the table; they are kept in the log's quarantine table."""
    without = rows.where(~has_key(spec))
    if not pinned.is_log or not isinstance(pinned.spec, SourceSpec):
        # A table that is read in place keeps them itself; they are counted.
        return without.count()
    assert spec.columns is not None
    raw = F.to_json(F.struct(*[F.col(quoted(name)) for name in spec.columns])).cast("binary")
    records = without.select(
        F.col(SEQ),
        F.col(FILE).alias("file"),
        F.col(RECORD).alias("line"),
        raw.alias("raw"),
        F.lit(f"NULL_KEY({spec.name})").alias("error"),
        F.lit(f"a column of PRIMARY KEY ({', '.join(spec.primary_key)}) is NULL").alias("message"),
        F.lit(runtime.clock()).alias("quarantined_at"),
    )
    if records.limit(1).count() == 0:
        return 0
    return commit_null_keys(runtime, spark, pinned.spec, records, spec.name, pinned.position.seq or 0, mode)


def _prepare_partitions(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: ReplacePartitions,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    held: ExitStack,
    cancellation: Cancellation,
    mode: str,
) -> _Work:
    pinned, change = pins.inputs[step.input], changes[step.input]
    schema = spark.read.format("delta").load(str(path)).schema
    kinds = [schema[column].dataType for column in spec.partitioned_by]
    expressions = _stored_expressions(spec, schema, Origin(step.input, step.expressions))
    parts = [for_literal(F.expr(text), kind) for text, kind in zip(expressions, kinds, strict=True)]
    images = read_net_images(spark, pinned, change).select(*parts)
    # Few rows are made distinct by one task; a shuffle would cost more than they do.
    distinct = images.coalesce(1).distinct() if change.rows <= FEW_ROWS else images.distinct()
    touched = distinct.limit(MOST_PARTITIONS + 1).collect()
    if not touched:
        return _Work(None, "noop", Reason("NO_NET_CHANGE"), change.rows, pins.positions, {})
    if len(touched) > MOST_PARTITIONS:
        reason = Reason("UNSUPPORTED", f"more than {MOST_PARTITIONS} partitions changed")
        return _prepare_full(runtime, spark, spec, path, pins, reason, held, cancellation, mode)
    values = [tuple(from_spark(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in touched]
    frames = whole_inputs(spark, spec, pins.inputs)
    frames[step.input] = frames[step.input].where(
        partition_predicate([f"({expression})" for expression in expressions], values)
    )
    shadow_inputs(spark, frames)
    predicate = partition_predicate([quoted(column) for column in spec.partitioned_by], values)
    rows = run_query(spark, spec, pins.inputs).where(predicate)
    if spec.primary_key and not _unique_by_query(spec):
        rows = _held(rows, held)
        check_key(rows, spec)
        _check_keys_apart(spark, rows, spec, path, predicate)
    return _Work(
        lambda new: replace_partitions(rows, path, new, predicate=predicate),
        "partition",
        step.reason,
        change.rows,
        pins.positions,
        {},
    )


def _stored_expressions(spec: TableSpec, schema: StructType, origin: Origin) -> list[str]:
    """The partition's values from the input's columns, as the table keeps them (see `as_stored`)."""
    kinds = [schema[column].dataType for column in spec.partitioned_by]
    return [
        f"nullif({text}, '')" if isinstance(kind, StringType) else f"CAST(({text}) AS {kind.simpleString()})"
        for text, kind in zip(origin.expressions, kinds, strict=True)
    ]


def _check_keys_apart(spark: SparkSession, rows: DataFrame, spec: TableSpec, path: Path, predicate: str) -> None:
    """Refuse new rows of some partitions whose primary key stands in another partition already."""
    if not {column.lower() for column in spec.partitioned_by} <= {key.lower() for key in spec.primary_key}:
        others = spark.read.format("delta").load(str(path)).where(f"NOT coalesce(({predicate}), false)")
        check_key_against(rows, others, spec)


def _unique_by_query(spec: TableSpec) -> bool:
    """Whether the outermost GROUP BY already makes the primary key unique."""
    keys = groups_by(spec.query) if not isinstance(spec.query, PythonQuery) else None
    return keys is not None and keys <= {key.lower() for key in spec.primary_key}


def _prepare_named(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: ReplaceNamedPartitions,
    pins: Pins,
    receipt: Receipt | None,
    held: ExitStack,
) -> _Work:
    if receipt is None:
        raise PartitionError(
            f"the table has no version yet. Run `freshline refresh {spec.name}` first.", where=str(spec.name)
        )
    if isinstance(spec.query, PythonQuery) or spec.merge is not None:
        raise PartitionError(
            "a table with a merge type, or written in Python, is refreshed as a whole", where=str(spec.name)
        )
    schema = spark.read.format("delta").load(str(path)).schema
    named = [read_partition(spark, spec, schema, partition) for partition in step.partitions]
    shape = read_shape(spec.query, spec.partitioned_by, spec.columns)
    by_partition = shape.origin is not None and not spec.lookups
    # A table kept by change sets computes at the positions of its newest receipt and does not move them.
    inputs = pins.inputs if by_partition else pin_at(runtime, spec, receipt.positions)
    frames = whole_inputs(spark, spec, inputs)
    predicate = " OR ".join(f"({partition_condition(values)})" for values in named)
    if shape.origin is not None:
        expressions = dict(zip(spec.partitioned_by, _stored_expressions(spec, schema, shape.origin), strict=True))
        over = " OR ".join(f"({partition_condition(values, expressions)})" for values in named)
        frames[shape.origin.input] = frames[shape.origin.input].where(over)
    shadow_inputs(spark, frames)
    check_lookups(runtime, spark, spec, inputs)
    rows = run_query(spark, spec, inputs).where(predicate)
    if spec.primary_key and not _unique_by_query(spec):
        rows = _held(rows, held)
        check_key(rows, spec)
        _check_keys_apart(spark, rows, spec, path, predicate)
    partitions = dict(receipt.partitions)
    if by_partition or spec.lookups:
        for values in named:
            # The last one stands last: where two overlap, its rows are the ones that are there.
            partitions.pop(partition_key(values), None)
            partitions[partition_key(values)] = {name: item.position for name, item in inputs.items()}
    return _Work(
        lambda new: replace_partitions(rows, path, new, predicate=predicate),
        "partition",
        step.reason,
        0,
        receipt.positions,
        partitions,
    )


def _prepare_full(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    pins: Pins,
    reason: Reason,
    held: ExitStack,
    cancellation: Cancellation,
    mode: str,
) -> _Work:
    rows, view = compute_whole(runtime, spark, spec, pins.inputs, cancellation)
    if view is not None and runtime.python_tables is not None:
        held.callback(runtime.python_tables.drop, view)
    check_lookups(runtime, spark, spec, pins.inputs)
    rejected = 0
    if spec.merge is not None:
        (name,) = spec.driving
        every = read_rows(spark, spec, arrival=pins.inputs[name].is_log)
        rejected = _quarantine_null_keys(runtime, spark, spec, pins.inputs[name], every, mode)
    elif spec.primary_key and not _unique_by_query(spec):
        rows = _held(rows, held)
        check_key(rows, spec)
    if not exists(path):
        history = spec.history_seconds or (
            CONTINUOUS_HISTORY_SECONDS if runtime.graph.mode(spec.name) is Mode.CONTINUOUS else HISTORY_SECONDS
        )
        create_table(
            spark,
            path,
            rows.schema,
            partitioned_by=spec.partitioned_by,
            cluster_by=spec.cluster_by,
            history_seconds=history,
        )
        runtime.failpoint("table-created")
    rows_in = 0
    for pinned in pins.inputs.values():
        if pinned.name in spec.driving:
            rows_in += count_rows(pinned.path, pinned.position.version) or 0
    return _Work(
        lambda new: overwrite_table(rows, path, new, partitioned_by=spec.partitioned_by),
        "full",
        reason,
        rows_in,
        pins.positions,
        {},
        rejected,
    )
