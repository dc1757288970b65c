"""Time partitions are replaced: those that were named, or those that should be there and are not.

They are computed where the other partitions of the table stand, so that the next change set fits all of them. Only a
batch table has positions a partition: one of its partitions that is named is brought to the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql.types import StructType

from freshline.commit.delta_log import count_rows, exists
from freshline.commit.write import replace_partitions, stored_schema
from freshline.compute.inputs import Pinned, shadow_inputs
from freshline.errors import DefinitionChangedError, PartitionError
from freshline.plan.step import FillPartitions, ReplaceNamedPartitions
from freshline.query.rules.partition import origin_of
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import run_before_constraints, whole_inputs
from freshline.refresh.pin import pin_at
from freshline.refresh.time_partitions import interval_condition, read_time_partition, within
from freshline.strategies.full.write import create
from freshline.strategies.partition.rows import stored_expressions, with_good_keys
from freshline.values.names import TableName
from freshline.values.partition import Interval, PartitionSpan, put_span
from freshline.values.position import Position
from freshline.values.receipt import Receipt
from freshline.values.result import Strategy
from freshline.values.spec import Mode


def replace_named_times(attempt: Attempt, step: ReplaceNamedPartitions) -> Work:
    """The write of time partitions that were named; the first ones make the table."""
    runtime, spec, pins, receipt = attempt.runtime, attempt.spec, attempt.pins, attempt.receipt
    named = [read_time_partition(spec, partition, runtime.clock()) for partition in step.partitions]
    if receipt is None:
        inputs, positions, own = pins.inputs, pins.positions, False
    else:
        # A batch table has positions a partition. One that is kept by change sets computes where it stands, so that the
        # next change set fits all of its partitions.
        own = runtime.graph.mode(spec.name) is Mode.BATCH
        positions = _positions_before(attempt)
        inputs = pins.inputs if own else pin_at(runtime, spec, positions)
        if own and len(receipt.spans or ()) == 0:
            positions, own = pins.positions, False
    intervals = tuple((partition.start, partition.end) for partition in named)
    write = _write_of_intervals(attempt, inputs, intervals)
    spans = (receipt.spans if receipt is not None else None) or ()
    computed = {name: item.position for name, item in inputs.items()}
    for start, end in intervals:
        spans = put_span(
            spans, PartitionSpan(start, end, spec.fingerprint, computed if own and computed != positions else None)
        )
    return Work(
        write,
        Strategy.PARTITION,
        step.reason,
        0,
        positions,
        {},
        whole=False,
        spans=spans,
        brought_in=intervals,
        replaced=tuple(partition.key for partition in named),
    )


def fill_missing(attempt: Attempt, step: FillPartitions) -> Work:
    """The write of missing partitions, at the positions of the other ones: rows that came since come next."""
    assert attempt.receipt is not None
    positions = _positions_before(attempt)
    inputs = pin_at(attempt.runtime, attempt.spec, positions)
    write = _write_of_intervals(attempt, inputs, step.intervals)
    spans = attempt.receipt.spans or ()
    for start, end in step.intervals:
        spans = put_span(spans, PartitionSpan(start, end, attempt.spec.fingerprint))
    return Work(write, Strategy.PARTITION, step.reason, 0, positions, {}, spans=spans, brought_in=step.intervals)


def _positions_before(attempt: Attempt) -> dict[TableName, Position]:
    """Up to where the table has read its inputs."""
    return {name: change.before for name, change in attempt.changes.items() if change.before is not None}


def _write_of_intervals(
    attempt: Attempt, inputs: Mapping[TableName, Pinned], intervals: Sequence[Interval]
) -> Callable[[Receipt], None]:
    """The write of exactly the rows of these stretches of time; the condition is pushed into the input it is about."""
    spark, spec, path = attempt.spark, attempt.spec, attempt.path
    frames = whole_inputs(spark, spec, inputs)
    shadow_inputs(frames)
    schema = run_before_constraints(spark, spec, inputs).schema
    origin = origin_of(spec) if attempt.push_down else None
    if origin is not None:
        (expression,) = stored_expressions(spec, schema, origin)
        (column,) = spec.partitioned_by
        kind = next(field.dataType for field in schema.fields if field.name.lower() == column.lower())
        condition = interval_condition(spec, f"({expression})", kind, intervals)
        frames[origin.input] = frames[origin.input].where(condition)
        shadow_inputs(frames)
    # With the condition pushed down there is no other row; Delta refuses one, rather than that it is left out unseen.
    rows = run_before_constraints(spark, spec, inputs, None if origin is not None else intervals)
    rows = attempt.constraint_check.rows(rows, again=True)
    predicate = within(spec, schema, intervals)
    if exists(path):
        _require_same_columns(attempt, schema)
        if attempt.receipt is None and (count_rows(path) or 0) > 0:
            raise PartitionError(
                f"the table has rows and no receipt. Run `freshline refresh {spec.name} --full`.", where=str(spec.name)
            )
    rows = with_good_keys(attempt, rows, predicate)
    create(attempt, schema)
    return lambda new: replace_partitions(rows, path, new, predicate=predicate)


def _require_same_columns(attempt: Attempt, schema: StructType) -> None:
    stored = stored_schema(attempt.path)
    if [(f.name, f.dataType) for f in stored.fields] != [(f.name, f.dataType) for f in schema.fields]:
        raise DefinitionChangedError(
            "the declaration has other columns than the table, so its partitions cannot be replaced one by one. "
            f"Compute it from the beginning with `freshline refresh {attempt.spec.name} --full`.",
            where=str(attempt.spec.written_at),
        )
