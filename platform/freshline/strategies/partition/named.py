"""Partitions that a person named by their values are replaced as a whole.

Where the partition's values follow from one input they are computed at the newest positions, which the receipt keeps a
partition. Other tables compute them at the positions that they have: those move for all rows at once.
"""

from __future__ import annotations

from freshline.commit.write import replace_partitions, stored_schema
from freshline.compute.inputs import shadow_inputs
from freshline.errors import PartitionError
from freshline.plan.step import ReplaceNamedPartitions
from freshline.query.rules.partition import origin_of
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import check_lookups, run_before_constraints, whole_inputs
from freshline.refresh.partitions import partition_condition, partition_key, read_partition
from freshline.refresh.pin import pin_at
from freshline.strategies.partition.rows import stored_expressions, with_good_keys
from freshline.strategies.partition.times import replace_named_times
from freshline.values.partition import partition_name
from freshline.values.query import PythonQuery
from freshline.values.result import Strategy


def replace_named(attempt: Attempt, step: ReplaceNamedPartitions) -> Work:
    """The write of the partitions that were named. Raises PartitionError."""
    if attempt.spec.time_partitions is not None:
        return replace_named_times(attempt, step)
    spark, spec, receipt = attempt.spark, attempt.spec, attempt.receipt
    if receipt is None:
        raise PartitionError(
            f"the table has no version yet. Run `freshline refresh {spec.name}` first.", where=str(spec.name)
        )
    waiting = spec.may_wait or receipt.pending_lookups is not None
    if isinstance(spec.query, PythonQuery) or spec.merge is not None or waiting:
        raise PartitionError(
            "a table with a merge type, with retries of lookups, or written in Python, is refreshed as a whole",
            where=str(spec.name),
        )
    if spec.query.kept_models:
        raise PartitionError(
            "a table whose rows keep the prediction of an earlier model is refreshed as a whole", where=str(spec.name)
        )
    schema = stored_schema(attempt.path)
    named = [read_partition(spark, spec, schema, partition) for partition in step.partitions]
    origin = origin_of(spec)
    by_partition = origin is not None and not spec.lookups
    # A table kept by change sets computes at the positions of its newest receipt and does not move them.
    inputs = attempt.inputs if by_partition else pin_at(attempt.runtime, spec, receipt.positions)
    frames = whole_inputs(spark, spec, inputs)
    predicate = " OR ".join(f"({partition_condition(values)})" for values in named)
    if origin is not None and attempt.push_down:
        expressions = dict(zip(spec.partitioned_by, stored_expressions(spec, schema, origin), strict=True))
        over = " OR ".join(f"({partition_condition(values, expressions)})" for values in named)
        frames[origin.input] = frames[origin.input].where(over)
    shadow_inputs(frames)
    check_lookups(attempt.runtime, spark, spec, inputs)
    rows = attempt.constraint_check.rows(run_before_constraints(spark, spec, inputs).where(predicate), again=True)
    rows = with_good_keys(attempt, rows, predicate)
    partitions = dict(receipt.partitions)
    if by_partition or spec.lookups:
        for values in named:
            # The last one stands last: where two overlap, its rows are the ones that are there.
            partitions.pop(partition_key(values), None)
            positions = {name: item.position for name, item in inputs.items()}
            if spec.lookups or positions != receipt.positions:
                partitions[partition_key(values)] = positions
    return Work(
        lambda new: replace_partitions(rows, attempt.path, new, predicate=predicate),
        Strategy.PARTITION,
        step.reason,
        0,
        receipt.positions,
        partitions,
        whole=False,
        replaced=tuple(partition_name(spec, partition) for partition in step.partitions),
    )
