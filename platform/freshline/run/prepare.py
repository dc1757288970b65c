"""What a step has to write: the rows, and the statement that writes them.

Each function computes over pinned inputs in a session that nothing else uses, and returns the write for the commit.
Nothing is written here but rows that no table can hold, which go to the quarantine table first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import assert_never

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DateType, StringType, StructType

from freshline.commit.delta_log import (
    count_rows,
    exists,
    newest_version,
    open_table,
)
from freshline.commit.small import open_small
from freshline.commit.write import (
    append_rows,
    apply_changes,
    create_table,
    insert_new_keys,
    merge_rows,
    overwrite_table,
    replace_partitions,
)
from freshline.declare.managing import NOW
from freshline.declare.names import TableName
from freshline.declare.query import PythonQuery, SqlQuery
from freshline.declare.spec import MergeKind, Mode, SourceSpec, TableSpec
from freshline.errors import DefinitionChangedError, PartitionError
from freshline.plan.changes import Changes
from freshline.plan.disk import history_seconds
from freshline.plan.history import inputs_short, inputs_short_after
from freshline.plan.partition import Interval, Span, put_span
from freshline.plan.position import Position, TablePosition
from freshline.plan.reason import Reason
from freshline.plan.receipt import Receipt, Violation
from freshline.plan.shape import Origin, read_shape
from freshline.plan.step import (
    Append,
    Begin,
    FillPartitions,
    Full,
    MergeRows,
    Noop,
    RefoldKeys,
    RefreshKeys,
    ReplaceNamedPartitions,
    ReplacePartitions,
    Step,
)
from freshline.plan.stored_order import stored_order
from freshline.refresh.cancellation import Cancellation
from freshline.refresh.fold import (
    DELETE,
    ORDER,
    decide,
    drop_beaten,
    fold_rows,
    has_key,
    not_judged,
    read_rows,
    read_unjudged,
    update_condition,
    winning_rows,
)
from freshline.refresh.inputs import (
    FILE,
    RECORD,
    SEQ,
    Pinned,
    read_inserted,
    read_net_images,
    read_upserted,
    read_version,
    read_whole,
    shadow_inputs,
)
from freshline.refresh.keys import (
    INSERT,
    OP,
    difference_by_key,
)
from freshline.refresh.literal import for_literal, from_spark, partition_predicate, quoted
from freshline.refresh.settle import FEW_ROWS, few_rows, settle
from freshline.run.by_keys import Changed, find_changes, refold
from freshline.run.compute import (
    check_key,
    check_key_against,
    check_lookups,
    compute_whole,
    is_unique_by_query,
    run_unjudged,
    whole_inputs,
)
from freshline.run.judge import Judge
from freshline.run.log import commit_null_keys, next_seq
from freshline.run.parked import Met, meet
from freshline.run.partitions import partition_condition, partition_key, read_partition
from freshline.run.pin import Pins, pin_at
from freshline.run.runtime import Runtime
from freshline.run.spans import interval_condition, read_time_partition, wanted_end, within

# Up to this share of a table a difference is merged; beyond it an overwrite is cheaper, for readers too.
SMALL_DIFFERENCE = 0.2
MOST_PARTITIONS = 5_000
# Up to this many rows one task makes distinct; a shuffle would cost more than they do.
ONE_TASK_ROWS = 100_000


@dataclass(frozen=True)
class Work:
    """What a step has to write: the statement, and what the receipt says of it. `write` None: nothing would change.

    `whole` says that the write brings the table as a whole to `positions`; partitions that were named do not. `spans`
    are those of a table with time partitions after it, None for those before, at the new positions. `brought_in` are
    the stretches of time that are there as a whole now, `replaced` the keys of partitions that were named. `seq` is the
    number of the refresh.
    """

    write: Callable[[Receipt], None] | None
    strategy: str
    reason: Reason
    rows_in: int
    positions: Mapping[TableName, Position]
    partitions: Mapping[str, Mapping[TableName, Position]]
    rejected: int = 0
    met: Met | None = None
    cache_hits: int = 0
    begins: bool = False
    seq: int = 1
    violations: Mapping[str, Violation] = field(default_factory=dict)
    whole: bool = True
    spans: tuple[Span, ...] | None = None
    brought_in: tuple[Interval, ...] = ()
    replaced: tuple[str, ...] = ()


def prepare(
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
) -> Work:
    """Compute what the step writes; caches that it needs are let go of by `held`."""
    path = runtime.warehouse.path(spec.name)
    # Before anything is computed: rows that an unfinished refresh rejected are not known yet.
    seq = next_seq(runtime, spark, spec, receipt, mode)
    judge = Judge(runtime, spark, spec, pins, held)
    work = _prepare(runtime, spark, spec, path, step, pins, changes, receipt, judge, held, cancellation, mode)
    if work.write is None and (judge.violations or inputs_short_after(receipt, step) != inputs_short(receipt)):
        # Nothing changes in the table, and yet its receipt counts what was left out, and up to where, or which input
        # has deleted rows.
        work = replace(_carry(spark, path, pins, Noop(work.reason)), rows_in=work.rows_in, rejected=work.rejected)
    if work.write is None:
        return work
    return replace(
        work,
        write=judge.write(work.write),
        rejected=work.rejected + judge.rejected,
        seq=seq,
        violations=judge.violations,
    )


def _prepare(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: Step,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
    cancellation: Cancellation,
    mode: str,
) -> Work:
    match step:
        case Noop():
            return _carry(spark, path, pins, step)
        case Append():
            return _prepare_append(runtime, spark, spec, path, step, pins, changes, receipt, judge, held)
        case MergeRows():
            return _prepare_merge(runtime, spark, spec, path, step, pins, changes, judge, mode)
        case RefoldKeys():
            change = changes[step.input]
            found = refold(spark, spec, path, step, pins.inputs[step.input], change, judge)
            return _change(spark, path, found, change.rows, pins)
        case RefreshKeys():
            return _prepare_keys(
                runtime, spark, spec, path, step, pins, changes, receipt, judge, held, cancellation, mode
            )
        case ReplacePartitions():
            return _prepare_partitions(
                runtime, spark, spec, path, step, pins, changes, receipt, judge, held, cancellation, mode
            )
        case ReplaceNamedPartitions() if spec.time_partitions is not None:
            return _prepare_time(runtime, spark, spec, path, step, pins, changes, receipt, judge, held)
        case ReplaceNamedPartitions():
            return _prepare_named(runtime, spark, spec, path, step, pins, receipt, judge, held)
        case FillPartitions():
            return _prepare_fill(runtime, spark, spec, path, step, changes, receipt, judge, held)
        case Begin():
            return _prepare_begin(runtime, spark, spec, path, step, pins, receipt, judge, held, cancellation)
        case Full():
            return _prepare_full(
                runtime, spark, spec, path, pins, step.reason, receipt, judge, held, cancellation, mode
            )
    assert_never(step)


def _carry(spark: SparkSession, path: Path, pins: Pins, step: Noop) -> Work:
    schema = StructType.fromJson(json.loads(open_table(path).schema().to_json()))
    empty = spark.createDataFrame([], schema)
    return Work(lambda new: append_rows(empty, path, new, count=0), "noop", step.reason, 0, pins.positions, {})


def _prepare_append(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: Append,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
) -> Work:
    whole = [name for name in pins.inputs if name not in step.as_changes]
    frames = whole_inputs(spark, spec, pins.inputs, only=whole)
    for name in step.as_changes:
        frames[name] = read_inserted(spark, pins.inputs[name], changes[name])
    shadow_inputs(frames)
    check_lookups(runtime, spark, spec, pins.inputs)
    rows_in = sum(changes[name].rows for name in step.as_changes)
    met = None
    if spec.lookup_attempts:
        met = _meet(runtime, spark, spec, pins, frames, receipt)
        rows = met.rows
    else:
        rows = run_unjudged(spark, spec, pins.inputs, _covered(spec, receipt))
    rows = judge.rows(rows, again=False)
    if spec.primary_key:
        rows = _held(rows, held)
        if met is None and rows.limit(1).count() == 0:
            return Work(None, "noop", Reason("NO_NET_CHANGE"), rows_in, pins.positions, {})
        check_key(rows, spec)
        check_key_against(rows, spark.read.format("delta").load(str(path)), spec)
    few = few_rows(rows) if rows_in <= FEW_ROWS else None
    rows = rows if few is None else few[0]
    return Work(
        lambda new: append_rows(rows, path, new, count=None if few is None else few[1]),
        "append",
        step.reason,
        rows_in,
        pins.positions,
        {},
        met=met,
    )


def _covered(spec: TableSpec, receipt: Receipt | None) -> tuple[Interval, ...] | None:
    """The stretches of time that the table holds; None for one without time partitions."""
    if spec.time_partitions is None or receipt is None:
        return None
    return tuple(span.interval for span in receipt.spans or ())


def _meet(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    pins: Pins,
    frames: Mapping[TableName, DataFrame],
    receipt: Receipt | None,
) -> Met:
    assert isinstance(spec.query, SqlQuery)
    (name,) = spec.driving
    versions = {join.alias.lower(): pins.inputs[join.table].position.version for join in spec.query.lookup_joins}
    return meet(runtime, spark, spec, versions, pins.inputs[name], frames[name], receipt)


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
    judge: Judge,
    mode: str,
) -> Work:
    merge = spec.merge
    assert merge is not None
    assert spec.columns is not None
    pinned = pins.inputs[step.input]
    change = changes[step.input]
    new = read_upserted(spark, pinned, change) if step.updates else None
    shadow_inputs({step.input: read_inserted(spark, pinned, change, arrival=pinned.is_log) if new is None else new})
    rows = read_unjudged(spark, spec, arrival=pinned.is_log)
    rejected = _quarantine_null_keys(runtime, spark, spec, pinned, rows, mode)
    rows = judge.rows(rows, again=False, but=not_judged(spec))
    folded = fold_rows(rows, spec)
    stored = stored_order(spec)
    settled_by_table = merge.kind is MergeKind.FIRST_ROW and (merge.order is None or merge.late == "ignore")
    ties_resolved = False
    if not settled_by_table and (merge.delete_when is not None or stored.order is None or stored.ties is None):
        before = Pinned(pinned.spec, pinned.path, change.before or TablePosition(pinned.position.table_id, 0, 0))
        folded = drop_beaten(folded, older_rows(spark, spec, before, folded), spec)
        ties_resolved = stored.ties is None or stored.order is None
    # Computed once, read twice by MERGE, which refuses a cached source; the blocks go with the last reference.
    folded, count = settle(folded)
    if count == 0:
        return Work(None, "noop", Reason("NO_NET_CHANGE"), change.rows, pins.positions, {}, rejected)
    condition = update_condition(spec, folded.schema, ties_resolved=ties_resolved)
    delete = DELETE if merge.delete_when is not None else None
    columns = spec.columns
    write = partial(
        merge_rows, spark, folded, path, keys=spec.primary_key, columns=columns, update_when=condition, delete=delete
    )
    if open_small(path, found_by=spec.primary_key, rows=count) is not None:
        if condition is None:
            write = partial(_insert_new_keys, winning_rows(folded, spec), path, spec.primary_key, write)
        else:
            version = newest_version(path)
            assert version is not None
            changed, count = settle(decide(folded, read_version(spark, path, version), spec, condition))
            if count == 0:
                return Work(None, "noop", Reason("NO_NET_CHANGE"), change.rows, pins.positions, {}, rejected)
            write = partial(
                apply_changes, spark, changed, path, op=OP, keys=spec.primary_key, unique=True, near=None, count=count
            )
    return Work(lambda new: write(receipt=new), "merge", step.reason, change.rows, pins.positions, {}, rejected)


def _insert_new_keys(
    rows: DataFrame, path: Path, keys: Sequence[str], otherwise: Callable[..., None], *, receipt: Receipt
) -> None:
    if not insert_new_keys(rows, path, receipt, keys=keys):
        otherwise(receipt=receipt)


def older_rows(spark: SparkSession, spec: TableSpec, before: Pinned, folded: DataFrame) -> DataFrame:
    """Rows of the change set's keys in what was read `before`, as far as the stored row cannot speak for them.

    A key that is absent may have been deleted by a later event, so deletes are looked up; a tie that the table cannot
    break is broken by the rows of equal order; where the order is not stored at all, every older row counts.
    """
    assert spec.merge is not None
    shadow_inputs({before.name: read_whole(spark, before, arrival=before.is_log)})
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
    none, queue = F.lit(None), pinned.spec.kafka is not None
    places = [
        (none.cast("string") if queue else F.col(FILE)).alias("file"),
        (none.cast("bigint") if queue else F.col(RECORD)).alias("line"),
    ]
    # The place in a queue is topic-partition, and a topic's name may hold hyphens.
    in_queue = [
        F.regexp_replace(FILE, "-[0-9]+$", "").alias("topic"),
        F.substring_index(FILE, "-", -1).cast("int").alias("partition"),
        F.col(RECORD).alias("offset"),
        none.cast("binary").alias("key"),
    ]
    records = without.select(
        F.col(SEQ),
        *places,
        raw.alias("raw"),
        F.lit(f"NULL_KEY({spec.name})").alias("error"),
        F.lit(f"a column of PRIMARY KEY ({', '.join(spec.primary_key)}) is NULL").alias("message"),
        F.lit(runtime.clock()).alias("quarantined_at"),
        *(in_queue if queue else []),
    )
    if records.limit(1).count() == 0:
        return 0
    return commit_null_keys(runtime, spark, pinned.spec, records, spec.name, pinned.position.seq or 0, mode)


def _prepare_keys(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: RefreshKeys,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
    cancellation: Cancellation,
    mode: str,
) -> Work:
    intervals = _covered(spec, receipt)
    found, hits = find_changes(runtime, spark, spec, path, step, pins, changes, judge, held, intervals)
    if isinstance(found, Reason):
        return _prepare_full(runtime, spark, spec, path, pins, found, receipt, judge, held, cancellation, mode)
    rows_in = sum(changes[name].rows for name in step.changed)
    return replace(_change(spark, path, found, rows_in, pins), cache_hits=hits)


def _change(spark: SparkSession, path: Path, found: Changed, rows_in: int, pins: Pins) -> Work:
    """The write of changes to rows that have some of the keys."""
    changed = found.rows
    if changed is None or found.count == 0:
        return Work(None, "noop", Reason("NO_NET_CHANGE"), rows_in, pins.positions, {})
    write: Callable[..., None]
    if not changed.where(F.col(OP) != INSERT).take(1):
        write = partial(append_rows, changed.drop(OP), path, count=found.count)
    else:
        write = partial(
            apply_changes,
            spark,
            changed,
            path,
            op=OP,
            keys=found.found_by or found.keys.columns,
            unique=bool(found.found_by),
            near=found.keys.near("t"),
            count=found.count,
        )
    return Work(lambda new: write(receipt=new), "keys", found.reason, rows_in, pins.positions, {})


def _prepare_partitions(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: ReplacePartitions,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
    cancellation: Cancellation,
    mode: str,
) -> Work:
    pinned, change = pins.inputs[step.input], changes[step.input]
    schema = spark.read.format("delta").load(str(path)).schema
    kinds = [schema[column].dataType for column in spec.partitioned_by]
    expressions = _stored_expressions(spec, schema, Origin(step.input, step.expressions))
    parts = [for_literal(F.expr(text), kind) for text, kind in zip(expressions, kinds, strict=True)]
    images = read_net_images(spark, pinned, change)
    covered = _covered(spec, receipt)
    if covered is not None:
        images = images.where(interval_condition(spec, f"({expressions[0]})", kinds[0], covered))
    images = images.select(*parts)
    distinct = images.coalesce(1).distinct() if change.rows <= ONE_TASK_ROWS else images.distinct()
    touched = distinct.limit(MOST_PARTITIONS + 1).collect()
    if not touched:
        return Work(None, "noop", Reason("NO_NET_CHANGE"), change.rows, pins.positions, {})
    if len(touched) > MOST_PARTITIONS:
        reason = Reason("UNSUPPORTED", f"more than {MOST_PARTITIONS} partitions changed")
        return _prepare_full(runtime, spark, spec, path, pins, reason, receipt, judge, held, cancellation, mode)
    values = [tuple(from_spark(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in touched]
    frames = whole_inputs(spark, spec, pins.inputs)
    frames[step.input] = frames[step.input].where(
        partition_predicate([f"({expression})" for expression in expressions], values)
    )
    shadow_inputs(frames)
    predicate = partition_predicate([quoted(column) for column in spec.partitioned_by], values)
    rows = judge.rows(run_unjudged(spark, spec, pins.inputs).where(predicate), again=True)
    if spec.primary_key and not is_unique_by_query(spec):
        rows = _held(rows, held)
        check_key(rows, spec)
        _check_keys_apart(spark, rows, spec, path, predicate)
    return Work(
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


def _prepare_named(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: ReplaceNamedPartitions,
    pins: Pins,
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
) -> Work:
    if receipt is None:
        raise PartitionError(
            f"the table has no version yet. Run `freshline refresh {spec.name}` first.", where=str(spec.name)
        )
    if isinstance(spec.query, PythonQuery) or spec.merge is not None or spec.lookup_attempts:
        raise PartitionError(
            "a table with a merge type, with retries of lookups, or written in Python, is refreshed as a whole",
            where=str(spec.name),
        )
    schema = spark.read.format("delta").load(str(path)).schema
    named = [read_partition(spark, spec, schema, partition) for partition in step.partitions]
    shape = read_shape(spec.query, spec.partitioned_by)
    by_partition = shape.origin is not None and not spec.lookups
    # A table kept by change sets computes at the positions of its newest receipt and does not move them.
    inputs = pins.inputs if by_partition else pin_at(runtime, spec, receipt.positions)
    frames = whole_inputs(spark, spec, inputs)
    predicate = " OR ".join(f"({partition_condition(values)})" for values in named)
    if shape.origin is not None:
        expressions = dict(zip(spec.partitioned_by, _stored_expressions(spec, schema, shape.origin), strict=True))
        over = " OR ".join(f"({partition_condition(values, expressions)})" for values in named)
        frames[shape.origin.input] = frames[shape.origin.input].where(over)
    shadow_inputs(frames)
    check_lookups(runtime, spark, spec, inputs)
    rows = judge.rows(run_unjudged(spark, spec, inputs).where(predicate), again=True)
    if spec.primary_key and not is_unique_by_query(spec):
        rows = _held(rows, held)
        check_key(rows, spec)
        _check_keys_apart(spark, rows, spec, path, predicate)
    partitions = dict(receipt.partitions)
    if by_partition or spec.lookups:
        for values in named:
            # The last one stands last: where two overlap, its rows are the ones that are there.
            partitions.pop(partition_key(values), None)
            partitions[partition_key(values)] = {name: item.position for name, item in inputs.items()}
    return Work(
        lambda new: replace_partitions(rows, path, new, predicate=predicate),
        "partition",
        step.reason,
        0,
        receipt.positions,
        partitions,
        whole=False,
    )


def _prepare_begin(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: Begin,
    pins: Pins,
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
    cancellation: Cancellation,
) -> Work:
    """Keep the rows that are there, or those of partitions before a date; columns that they lack are NULL in them.

    The positions stay: what the table has not read yet follows the new declaration, and the next refresh brings it in.
    """
    assert receipt is not None, "what has no receipt is computed from the beginning"
    positions = {name: receipt.positions.get(name, pinned.position) for name, pinned in pins.inputs.items()}
    # Nothing is computed from now on, only what the rows will look like.
    inputs = pins.inputs if step.start == NOW else pin_at(runtime, spec, positions)
    # Judged below, once it is known which of the rows are written.
    rows, view = compute_whole(runtime, spark, spec, inputs, cancellation, judge=lambda every: every)
    if view is not None and runtime.python_tables is not None:
        held.callback(runtime.python_tables.drop, view)
    if step.start == NOW:
        empty = spark.createDataFrame([], rows.schema)
        return Work(
            lambda new: append_rows(empty, path, new, merge_schema=True),
            "append",
            step.reason,
            0,
            positions,
            receipt.partitions,
            begins=True,
        )
    condition = _from_date(spec, rows.schema, step.start)
    check_lookups(runtime, spark, spec, inputs)
    rows = rows.where(condition)
    if spec.merge is None:
        rows = judge.rows(rows, again=True)
    else:
        # What is folded is judged, which is more than the rows of a date.
        (name,) = spec.driving
        every = read_unjudged(spark, spec, arrival=inputs[name].is_log)
        judge.rows(every, again=True, but=not_judged(spec))
    if spec.primary_key and spec.merge is None:
        rows = _held(rows, held)
        check_key(rows, spec)
    return Work(
        lambda new: replace_partitions(rows, path, new, predicate=condition, merge_schema=True),
        "partition",
        step.reason,
        0,
        positions,
        receipt.partitions,
        begins=True,
    )


def _from_date(spec: TableSpec, schema: StructType, text: str) -> str:
    """The condition of the partitions from a date on. Raises PartitionError."""
    types = {field.name.lower(): field.dataType for field in schema}
    columns = [column for column in spec.partitioned_by if isinstance(types.get(column.lower()), DateType)]
    if len(columns) != 1 or len(spec.partitioned_by) != 1 or spec.lookup_attempts:
        raise PartitionError(
            "FROM DATE is for tables with PARTITIONED BY one column of the type DATE, whose rows wait for nothing. "
            "Start it from the beginning or from now.",
            where=str(spec.written_at),
        )
    try:
        begin = date.fromisoformat(text)
    except ValueError as error:
        raise PartitionError(f"{text!r} is no date. Write it as 2026-11-01.", where=str(spec.name)) from error
    return f"{quoted(columns[0])} >= DATE'{begin.isoformat()}'"


def _prepare_time(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: ReplaceNamedPartitions,
    pins: Pins,
    changes: Mapping[TableName, Changes],
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
) -> Work:
    """The write of time partitions that were named; the first ones make the table."""
    named = [read_time_partition(spec, partition, runtime.clock()) for partition in step.partitions]
    if receipt is None:
        inputs, positions, own = pins.inputs, pins.positions, False
    else:
        # A batch table has positions a partition. One that is kept by change sets computes where it stands, so that the
        # next change set fits all of its partitions.
        own = runtime.graph.mode(spec.name) is Mode.BATCH
        positions = {name: change.before for name, change in changes.items() if change.before is not None}
        inputs = pins.inputs if own else pin_at(runtime, spec, positions)
        if own and len(receipt.spans or ()) == 0:
            positions, own = pins.positions, False
    intervals = tuple((partition.start, partition.end) for partition in named)
    write = _write_of_intervals(runtime, spark, spec, path, inputs, intervals, receipt, judge, held)
    spans = (receipt.spans if receipt is not None else None) or ()
    computed = {name: item.position for name, item in inputs.items()}
    for start, end in intervals:
        spans = put_span(spans, Span(start, end, spec.fingerprint, computed if own and computed != positions else None))
    return Work(
        write,
        "partition",
        step.reason,
        0,
        positions,
        {},
        whole=False,
        spans=spans,
        brought_in=intervals,
        replaced=tuple(partition.key for partition in named),
    )


def _prepare_fill(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    step: FillPartitions,
    changes: Mapping[TableName, Changes],
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
) -> Work:
    """The write of what is missing, at the positions that the other partitions have: what came since comes next."""
    assert receipt is not None
    positions: dict[TableName, Position] = {
        name: change.before for name, change in changes.items() if change.before is not None
    }
    inputs = pin_at(runtime, spec, positions)
    write = _write_of_intervals(runtime, spark, spec, path, inputs, step.intervals, receipt, judge, held)
    spans = receipt.spans or ()
    for start, end in step.intervals:
        spans = put_span(spans, Span(start, end, spec.fingerprint))
    return Work(write, "partition", step.reason, 0, positions, {}, spans=spans, brought_in=step.intervals)


def _write_of_intervals(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    inputs: Mapping[TableName, Pinned],
    intervals: Sequence[Interval],
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
) -> Callable[[Receipt], None]:
    """The write of exactly the rows of these stretches of time; the condition is pushed into the input it is about."""
    assert isinstance(spec.query, SqlQuery)
    frames = whole_inputs(spark, spec, inputs)
    shadow_inputs(frames)
    schema = run_unjudged(spark, spec, inputs).schema
    origin = read_shape(spec.query, spec.partitioned_by).origin
    if origin is not None:
        (expression,) = _stored_expressions(spec, schema, origin)
        (column,) = spec.partitioned_by
        kind = next(field.dataType for field in schema.fields if field.name.lower() == column.lower())
        condition = interval_condition(spec, f"({expression})", kind, intervals)
        frames[origin.input] = frames[origin.input].where(condition)
        shadow_inputs(frames)
    # With the condition pushed down there is no other row; Delta refuses one, rather than that it is left out unseen.
    rows = judge.rows(run_unjudged(spark, spec, inputs, None if origin is not None else intervals), again=True)
    predicate = within(spec, schema, intervals)
    if exists(path):
        _require_same_columns(spec, path, schema)
        if receipt is None and (count_rows(path) or 0) > 0:
            raise PartitionError(
                f"the table has rows and no receipt. Run `freshline refresh {spec.name} --full`.", where=str(spec.name)
            )
    if spec.primary_key and not is_unique_by_query(spec):
        rows = _held(rows, held)
        check_key(rows, spec)
        if exists(path):
            _check_keys_apart(spark, rows, spec, path, predicate)
    _create(runtime, spark, spec, path, schema)
    return lambda new: replace_partitions(rows, path, new, predicate=predicate)


def _require_same_columns(spec: TableSpec, path: Path, schema: StructType) -> None:
    stored = StructType.fromJson(json.loads(open_table(path).schema().to_json()))
    if [(f.name, f.dataType) for f in stored.fields] != [(f.name, f.dataType) for f in schema.fields]:
        raise DefinitionChangedError(
            "the declaration has other columns than the table, so its partitions cannot be replaced one by one. "
            f"Compute it from the beginning with `freshline refresh {spec.name} --full`.",
            where=str(spec.written_at),
        )


def _prepare_full(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    pins: Pins,
    reason: Reason,
    receipt: Receipt | None,
    judge: Judge,
    held: ExitStack,
    cancellation: Cancellation,
    mode: str,
) -> Work:
    spans: tuple[Span, ...] | None = None
    if spec.time_partitions is not None:
        # Partitions that were named before they were wanted stay in the table.
        ends = [span.end for span in (receipt.spans if receipt else None) or ()]
        last = max([wanted_end(runtime, spec), *ends])
        spans = put_span((), Span(spec.time_partitions.first.start, last, spec.fingerprint))

    def judged(every: DataFrame) -> DataFrame:
        if spans is not None:
            every = every.where(within(spec, every.schema, [span.interval for span in spans]))
        return judge.rows(every, again=True)

    if spec.lookup_attempts:
        # The rows are those that met their dimension, or gave up: they are judged below.
        rows, view = compute_whole(runtime, spark, spec, pins.inputs, cancellation)
    else:
        rows, view = compute_whole(runtime, spark, spec, pins.inputs, cancellation, judge=judged)
    if view is not None and runtime.python_tables is not None:
        held.callback(runtime.python_tables.drop, view)
    check_lookups(runtime, spark, spec, pins.inputs)
    rejected = 0
    met = None
    if spec.lookup_attempts:
        (driving,) = spec.driving
        frames = whole_inputs(spark, spec, pins.inputs, only=[driving])
        met = _meet(runtime, spark, spec, pins, frames, None)
        rows = judged(met.rows)
    if spec.merge is not None:
        (name,) = spec.driving
        every = read_unjudged(spark, spec, arrival=pins.inputs[name].is_log)
        judge.rows(every, again=True, but=not_judged(spec))
        rejected = _quarantine_null_keys(runtime, spark, spec, pins.inputs[name], every, mode)
    elif spec.primary_key and not is_unique_by_query(spec):
        rows = _held(rows, held)
        check_key(rows, spec)
    counts = {name: count_rows(pinned.path, pinned.position.version) for name, pinned in pins.inputs.items()}
    rows_in = sum(counts[name] or 0 for name in spec.driving)
    write = _write_of_difference(runtime, spark, spec, path, rows) or _write_of_all(
        runtime, spark, spec, path, rows, counts
    )
    return Work(
        lambda new: write(receipt=new),
        "full",
        reason,
        rows_in,
        pins.positions,
        {},
        rejected,
        met,
        spans=spans,
        brought_in=tuple(span.interval for span in spans or ()),
    )


def _write_of_difference(
    runtime: Runtime, spark: SparkSession, spec: TableSpec, path: Path, rows: DataFrame
) -> Callable[..., None] | None:
    """The write of what differs from the stored rows; None where an overwrite suits better."""
    if not _is_followed(runtime, spec, path, rows):
        return None
    changed, count, fraction = _smallest_difference(spark, spec, path, rows)
    if fraction > SMALL_DIFFERENCE:
        return None
    keys = spec.primary_key
    return partial(apply_changes, spark, changed, path, op=OP, keys=keys, unique=True, near=None, count=count)


def _write_of_all(
    runtime: Runtime,
    spark: SparkSession,
    spec: TableSpec,
    path: Path,
    rows: DataFrame,
    counts: Mapping[TableName, int | None],
) -> Callable[..., None]:
    """The write of all rows over what is stored; the table is created where there is none."""
    _create(runtime, spark, spec, path, rows.schema)
    few = few_rows(rows) if all(count is not None and count <= FEW_ROWS for count in counts.values()) else None
    return partial(
        overwrite_table,
        rows if few is None else few[0],
        path,
        partitioned_by=spec.partitioned_by,
        cluster_by=spec.cluster_by,
        few=few is not None,
    )


def _create(runtime: Runtime, spark: SparkSession, spec: TableSpec, path: Path, schema: StructType) -> None:
    """Make the table, empty, where there is none."""
    if exists(path):
        return
    history = history_seconds(spec, runtime.graph.mode(spec.name))
    create_table(
        spark,
        path,
        schema,
        partitioned_by=spec.partitioned_by,
        cluster_by=spec.cluster_by,
        history_seconds=history,
    )
    runtime.failpoint("table-created")


def _is_followed(runtime: Runtime, spec: TableSpec, path: Path, rows: DataFrame) -> bool:
    """Whether tables follow the changes of this one, so that an overwrite would tell them that every row changed."""
    if not spec.primary_key or not exists(path) or not runtime.graph.consumers(spec.name):
        return False
    stored = StructType.fromJson(json.loads(open_table(path).schema().to_json()))
    return [(f.name, f.dataType) for f in stored.fields] == [(f.name, f.dataType) for f in rows.schema.fields]


def _smallest_difference(
    spark: SparkSession, spec: TableSpec, path: Path, rows: DataFrame
) -> tuple[DataFrame, int, float]:
    """The rows by which a new computation differs from what is stored, how many, and their share of the stored ones."""
    version = newest_version(path)
    assert version is not None
    stored = read_version(spark, path, version)
    new = rows.select(*[F.col(quoted(name)) for name in stored.columns])
    changed, count = settle(difference_by_key(new, stored, spec.primary_key))
    return changed, count, count / max(1, count_rows(path, version) or 0)
