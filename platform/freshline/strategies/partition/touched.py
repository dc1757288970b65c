"""The partitions that changed rows are in, or were in, are replaced as a whole.

Right where the partition's values follow from the columns of one input: its changed rows name the partitions, and the
condition for them is pushed into that input.
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import functions as F

from freshline.commit.write import replace_partitions, stored_schema
from freshline.compute.inputs import read_images, read_net_images, shadow_inputs
from freshline.compute.keys import comes_back
from freshline.compute.literal import for_literal, from_spark, partition_predicate
from freshline.query.rules.partition import Origin
from freshline.refresh.attempt import Attempt, NotIncremental, Work
from freshline.refresh.computed_rows import run_before_constraints, whole_inputs
from freshline.refresh.time_partitions import interval_condition
from freshline.strategies.partition.rows import stored_expressions, with_good_keys
from freshline.strategies.partition.rule import ReplacePartitions
from freshline.values.names import quoted
from freshline.values.reason import Reason
from freshline.values.result import Strategy

MOST_PARTITIONS = 5_000
# Up to this many rows one task makes distinct; a shuffle would cost more than they do.
ONE_TASK_ROWS = 100_000


def replace_touched(attempt: Attempt, step: ReplacePartitions) -> Work:
    """The write of the partitions that the changed rows of one input name; a full one where these are too many."""
    spark, spec, path = attempt.spark, attempt.spec, attempt.path
    pinned, change = attempt.inputs[step.input], attempt.changes[step.input]
    schema = stored_schema(attempt.path)
    kinds = [schema[column].dataType for column in spec.partitioned_by]
    expressions = stored_expressions(spec, schema, Origin(step.input, step.expressions))
    parts = [for_literal(F.expr(text), kind) for text, kind in zip(expressions, kinds, strict=True)]
    # A partition that was refreshed separately may have rows that were undone since.
    apart = attempt.receipt is not None and attempt.receipt.has_partition_positions
    images = (read_images if apart else read_net_images)(spark, pinned, change)
    if attempt.covered is not None:
        images = images.where(interval_condition(spec, f"({expressions[0]})", kinds[0], attempt.covered))
    sound = reduce(and_, [comes_back(F.expr(text), kind) for text, kind in zip(expressions, kinds, strict=True)])
    images = images.select(*[F.when(sound, part) for part in parts], sound)
    distinct = images.coalesce(1).distinct() if change.rows <= ONE_TASK_ROWS else images.distinct()
    touched = distinct.limit(MOST_PARTITIONS + 1).collect()
    if not touched:
        return attempt.nothing(change.rows)
    if len(touched) > MOST_PARTITIONS:
        raise NotIncremental(Reason("UNSUPPORTED", f"more than {MOST_PARTITIONS} partitions changed"))
    if not all(row[-1] for row in touched):
        raise NotIncremental(Reason("UNSUPPORTED", "a partition with a value that has no literal"))
    values = [tuple(from_spark(value, kind) for value, kind in zip(row[:-1], kinds, strict=True)) for row in touched]
    frames = whole_inputs(spark, spec, attempt.inputs)
    frames[step.input] = frames[step.input].where(
        partition_predicate([f"({expression})" for expression in expressions], values)
    )
    shadow_inputs(frames)
    predicate = partition_predicate([quoted(column) for column in spec.partitioned_by], values)
    rows = attempt.constraint_check.rows(
        run_before_constraints(spark, spec, attempt.inputs).where(predicate), again=True
    )
    rows = with_good_keys(attempt, rows, predicate)
    return Work(
        lambda new: replace_partitions(rows, path, new, predicate=predicate),
        Strategy.PARTITION,
        step.reason,
        change.rows,
        attempt.pins.positions,
        {},
    )
