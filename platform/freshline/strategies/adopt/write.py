"""A new declaration applies from now or from a date on: rows from before stay, with NULL in columns that they lack.

The positions stay: rows that the table has not read yet follow the new declaration, and the next refresh brings them
in.
"""

from __future__ import annotations

from datetime import date

from pyspark.sql.types import DateType, StructType

from freshline.commit.write import append_rows, replace_partitions
from freshline.compute.fold import read_before_constraints, without_constraints
from freshline.errors import PartitionError
from freshline.plan.step import AdoptDefinition
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import check_key, check_key_against, check_lookups, compute_whole
from freshline.refresh.pin import pin_at
from freshline.sql.managing import NOW
from freshline.strategies.partition.rows import is_apart
from freshline.values.names import quoted
from freshline.values.result import Strategy
from freshline.values.spec import TableSpec


def adopt_definition(attempt: Attempt, step: AdoptDefinition) -> Work:
    """The write of no row and the new columns, or of the partitions from a date on."""
    spark, spec, path, receipt = attempt.spark, attempt.spec, attempt.path, attempt.receipt
    assert receipt is not None, "what has no receipt is computed from the beginning"
    positions = {name: receipt.positions.get(name, pinned.position) for name, pinned in attempt.inputs.items()}
    # Nothing is computed from now on, only the columns of the rows.
    inputs = attempt.inputs if step.start == NOW else pin_at(attempt.runtime, spec, positions)
    # Judged below, once it is known which of the rows are written.
    rows, view = compute_whole(
        attempt.runtime, spark, spec, inputs, attempt.cancellation, constraint_check=lambda every: every
    )
    if view is not None and attempt.runtime.python_tables is not None:
        attempt.held.callback(attempt.runtime.python_tables.drop, view)
    if step.start == NOW:
        empty = spark.createDataFrame([], rows.schema)
        return Work(
            lambda new: append_rows(empty, path, new, merge_schema=True),
            Strategy.APPEND,
            step.reason,
            0,
            positions,
            receipt.partitions,
            adopts_definition=True,
        )
    condition = _from_date(spec, rows.schema, step.start, waiting=receipt.pending_lookups is not None)
    check_lookups(attempt.runtime, spark, spec, inputs)
    rows = rows.where(condition)
    if spec.merge is None:
        rows = attempt.constraint_check.rows(rows, again=True)
    else:
        # The folded rows are judged, which are more than the rows of a date.
        (name,) = spec.driving
        every = read_before_constraints(spark, spec, arrival=inputs[name].is_log)
        attempt.constraint_check.rows(every, again=True, but=without_constraints(spec))
    if spec.primary_key:
        rows = attempt.hold(rows)
        check_key(rows, spec)
        if not is_apart(spec):
            # A row that is kept may have the key of one that comes.
            check_key_against(rows, attempt.stored().where(f"NOT coalesce(({condition}), false)"), spec)
    return Work(
        lambda new: replace_partitions(rows, path, new, predicate=condition, merge_schema=True),
        Strategy.PARTITION,
        step.reason,
        0,
        positions,
        receipt.partitions,
        adopts_definition=True,
    )


def _from_date(spec: TableSpec, schema: StructType, text: str, *, waiting: bool) -> str:
    """The condition of the partitions from a date on; `waiting`: rows wait for a dimension. Raises PartitionError."""
    if spec.merge is not None and not is_apart(spec):
        raise PartitionError(
            "of a merge, the row of a key may lie on the other side of the date by the new declaration. FROM DATE "
            "needs the column of PARTITIONED BY in the PRIMARY KEY. Start it from the beginning or from now.",
            where=str(spec.written_at),
        )
    types = {field.name.lower(): field.dataType for field in schema}
    columns = [column for column in spec.partitioned_by if isinstance(types.get(column.lower()), DateType)]
    if len(columns) != 1 or len(spec.partitioned_by) != 1 or spec.may_wait or waiting:
        raise PartitionError(
            "FROM DATE is for tables with PARTITIONED BY one column of the type DATE, whose rows wait for nothing. "
            "Start it from the beginning or from now.",
            where=str(spec.written_at),
        )
    try:
        start = date.fromisoformat(text)
    except ValueError as error:
        raise PartitionError(f"{text!r} is no date. Write it as 2026-11-01.", where=str(spec.name)) from error
    return f"{quoted(columns[0])} >= DATE'{start.isoformat()}'"
