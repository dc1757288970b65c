"""Everything is computed anew, and written over what is stored in one commit.

Where other tables follow this one and little differs, only the difference is written: an overwrite would report to them
that every row changed. Always right, and so where every other step ends that cannot go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from freshline.commit.delta_log import count_rows, exists, newest_version
from freshline.commit.write import apply_changes, create_table, overwrite_table, stored_schema
from freshline.compute.fold import as_stored, read_before_constraints, without_constraints
from freshline.compute.inputs import read_version, read_whole
from freshline.compute.keys import OP, difference_by_key
from freshline.compute.materialize import FEW_ROWS, collect_if_small, materialize_once
from freshline.plan.disk import history_seconds
from freshline.plan.step import Full
from freshline.refresh.attempt import Attempt, LookedUp, Work
from freshline.refresh.computed_rows import check_key, check_lookups, compute_whole, is_unique_by_query, whole_inputs
from freshline.refresh.functions import Function
from freshline.refresh.pending_lookups import look_up
from freshline.refresh.process_keys import entries_of, keep, keeping_state
from freshline.refresh.replay import replay_lookups
from freshline.refresh.time_partitions import wanted_end, within
from freshline.strategies.merge.write import quarantine_rejected
from freshline.values.names import TableName, quoted
from freshline.values.partition import PartitionSpan, put_span
from freshline.values.query import PythonQuery
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy

# Up to this share of a table a difference is merged; beyond it an overwrite is cheaper, for readers too.
SMALL_DIFFERENCE = 0.2
# Reasons for which all rows are computed although their inputs can be followed.
_AS_THEY_WERE = ("REQUESTED", "FOREIGN_WRITE", "DEFINITION_CHANGED", "MODEL_CHANGED")


def full(attempt: Attempt, step: Full) -> Work:
    """The write of all rows."""
    return _replay(attempt, step) or _compute(attempt, step)


def _compute(attempt: Attempt, step: Full) -> Work:
    """The write of all rows, computed at the pinned positions."""
    runtime, spark, spec, inputs = attempt.runtime, attempt.spark, attempt.spec, attempt.inputs
    spans: tuple[PartitionSpan, ...] | None = None
    if spec.time_partitions is not None:
        # Partitions that were named before they were wanted stay in the table.
        ends = [span.end for span in (attempt.receipt.spans if attempt.receipt else None) or ()]
        last = max([wanted_end(runtime, spec), *ends])
        spans = put_span((), PartitionSpan(spec.time_partitions.first.start, last, spec.fingerprint))

    def checked(every: DataFrame) -> DataFrame:
        if spans is not None:
            every = every.where(within(spec, every.schema, [span.interval for span in spans]))
        return attempt.constraint_check.rows(every, again=True)

    # Where rows may wait, the rows are those that found their dimension, or gave up: they are judged below.
    constraint_check = None if spec.may_wait else checked
    is_process = isinstance(spec.query, PythonQuery) and spec.query.process is not None
    computed = keeping_state(spec) if is_process else spec
    rows, view = compute_whole(
        runtime, spark, computed, inputs, attempt.cancellation, constraint_check=constraint_check
    )
    entries: DataFrame | None = None
    if view is not None and runtime.python_tables is not None:
        attempt.held.callback(runtime.python_tables.drop, view)
        made = spark.table(f"global_temp.{view}")
        if is_process:
            # It is read twice, for the rows and for the entries of keys.
            entries = entries_of([attempt.hold(made)])
        elif _is_untried(attempt):
            # Rows that constraints leave out are no matter of the promise.
            function = Function(runtime, spark, spec, inputs, attempt.held, attempt.cancellation)
            function.try_promise(as_stored(made, spec))
    check_lookups(runtime, spark, spec, inputs)
    rejected = 0
    looked_up = None
    if spec.may_wait:
        (driving,) = spec.driving
        looked_up = look_up(attempt, whole_inputs(spark, spec, inputs, only=[driving]), None)
        rows = checked(looked_up.rows)
    if spec.merge is not None:
        (name,) = spec.driving
        every = read_before_constraints(spark, spec, arrival=inputs[name].is_log)
        attempt.constraint_check.rows(every, again=True, but=without_constraints(spec))
        rejected = quarantine_rejected(attempt, inputs[name], every)
    elif spec.primary_key and not is_unique_by_query(spec):
        rows = attempt.hold(rows)
        check_key(rows, spec)
    counts = {name: count_rows(pinned.path, pinned.position.version) for name, pinned in inputs.items()}
    rows_in = sum(counts[name] or 0 for name in spec.driving)
    write = _write_of_difference(attempt, rows) or _write_of_all(attempt, rows, counts)

    def write_all(new: Receipt) -> None:
        if entries is not None:
            (pinned,) = inputs.values()
            schema = read_whole(spark, pinned).schema
            keep(attempt, entries, None, new, attempt.pins.positions, schema, complete=True)
        write(receipt=new)

    return Work(
        write_all,
        Strategy.FULL,
        step.reason,
        rows_in,
        attempt.pins.positions,
        {},
        rejected,
        looked_up,
        spans=spans,
        brought_in=tuple(span.interval for span in spans or ()),
    )


def _replay(attempt: Attempt, step: Full) -> Work | None:
    """The write of the rows that a table which looks up outside has by its receipts, at the positions of the newest.

    Each row has the answer that it was joined with, which nobody could be asked for again. None for other tables, and
    where receipts or versions of inputs are gone: then each row has the newest answer to its key.
    """
    receipt, spec = attempt.receipt, attempt.spec
    asked = any(pinned.ask is not None for pinned in attempt.inputs.values())
    if receipt is None or not asked or step.reason.code not in _AS_THEY_WERE:
        return None
    found = replay_lookups(attempt.runtime, attempt.spark, spec, receipt)
    if found.rows is None or found.unverified:
        return None
    rows = attempt.hold(attempt.constraint_check.rows(found.rows, again=True))
    if spec.primary_key:
        check_key(rows, spec)
    waiting = None if receipt.pending_lookups is None else LookedUp(rows, receipt.pending_lookups, 0)
    write = _write_of_difference(attempt, rows) or _write_of_all(attempt, rows, {})
    return Work(
        lambda new: write(receipt=new),
        Strategy.FULL,
        step.reason,
        receipt.rows_in,
        receipt.positions,
        receipt.partitions,
        looked_up=waiting,
        replays=True,
    )


def _is_untried(attempt: Attempt) -> bool:
    """Whether the promise of a function was not tried on rows of this declaration yet."""
    receipt, query = attempt.receipt, attempt.spec.query
    if not isinstance(query, PythonQuery) or not query.promise or query.process is not None:
        return False
    return receipt is None or receipt.fingerprint != attempt.spec.fingerprint or receipt.promise != query.promise


def _write_of_difference(attempt: Attempt, rows: DataFrame) -> Callable[..., None] | None:
    """The write of the rows that differ from the stored ones; None where an overwrite suits better."""
    if not _is_followed(attempt, rows):
        return None
    changed, count, fraction = _smallest_difference(attempt, rows)
    if fraction > SMALL_DIFFERENCE:
        return None
    keys = attempt.spec.primary_key
    return partial(
        apply_changes, attempt.spark, changed, attempt.path, op=OP, keys=keys, unique=True, near=None, count=count
    )


def _write_of_all(attempt: Attempt, rows: DataFrame, counts: Mapping[TableName, int | None]) -> Callable[..., None]:
    """The write of all rows over what is stored; the table is created where there is none."""
    create(attempt, rows.schema)
    few = collect_if_small(rows) if all(count is not None and count <= FEW_ROWS for count in counts.values()) else None
    return partial(
        overwrite_table,
        rows if few is None else few[0],
        attempt.path,
        partitioned_by=attempt.spec.partitioned_by,
        cluster_by=attempt.spec.cluster_by,
        few=few is not None,
    )


def create(attempt: Attempt, schema: StructType) -> None:
    """Make the table, empty, where there is none."""
    if exists(attempt.path):
        return
    spec = attempt.spec
    history = history_seconds(spec, attempt.runtime.graph.mode(spec.name))
    attempt.runtime.require_warehouse()
    create_table(
        attempt.spark,
        attempt.path,
        schema,
        partitioned_by=spec.partitioned_by,
        cluster_by=spec.cluster_by,
        history_seconds=history,
    )
    attempt.runtime.failpoint("table-created")


def _is_followed(attempt: Attempt, rows: DataFrame) -> bool:
    """Whether tables follow the changes of this one: an overwrite would report to them that every row changed."""
    spec, path = attempt.spec, attempt.path
    if not spec.primary_key or not exists(path) or not attempt.runtime.graph.consumers(spec.name):
        return False
    stored = stored_schema(path)
    return [(f.name, f.dataType) for f in stored.fields] == [(f.name, f.dataType) for f in rows.schema.fields]


def _smallest_difference(attempt: Attempt, rows: DataFrame) -> tuple[DataFrame, int, float]:
    """The rows by which a new computation differs from what is stored, how many, and their share of the stored ones."""
    version = newest_version(attempt.path)
    assert version is not None
    stored = read_version(attempt.spark, attempt.path, version)
    new = rows.select(*[F.col(quoted(name)) for name in stored.columns])
    changed, count = materialize_once(difference_by_key(new, stored, attempt.spec.primary_key))
    return changed, count, count / max(1, count_rows(attempt.path, version) or 0)
