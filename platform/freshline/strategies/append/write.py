"""Rows are added: those of the query over the rows that inputs gained, the other inputs read as a whole.

That is all there is to write where every operator only ever adds rows for rows that come. A table with retries of
lookups adds the rows that found their dimension or gave up; the others are parked beside it. Those that were parked
when the declaration still had retries give up at once.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as F

from freshline.commit.write import append_rows
from freshline.compute.inputs import read_inserted, shadow_inputs
from freshline.compute.materialize import FEW_ROWS, LIKELY_MANY, collect_if_small
from freshline.plan.step import AddTriggered, CloseWindows
from freshline.query.final import written_once_by
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import (
    check_key,
    check_key_against,
    check_lookups,
    run_before_constraints,
    whole_inputs,
)
from freshline.refresh.pending_lookups import look_up, takes_pending_lookups
from freshline.strategies.append.rule import Append
from freshline.values.names import quoted
from freshline.values.result import Strategy


def close_windows(attempt: Attempt, step: CloseWindows) -> Work:
    """The append of the rows of windows that were closed since the newest receipt."""
    spark, spec, path = attempt.spark, attempt.spec, attempt.path
    shadow_inputs(whole_inputs(spark, spec, attempt.inputs))
    rows = run_before_constraints(spark, spec, attempt.inputs)
    rows = attempt.constraint_check.rows(rows, again=False)
    rows_in = sum(changes.rows for changes in attempt.changes.values())
    few = collect_if_small(rows) if rows_in <= LIKELY_MANY else None
    rows = attempt.hold(rows) if few is None else few[0]
    if few[1] == 0 if few is not None else rows.isEmpty():
        return attempt.nothing(rows_in)
    if spec.primary_key:
        check_key(rows, spec)
        check_key_against(rows, attempt.stored(), spec)
    return attempt.work(
        step, lambda new: append_rows(rows, path, new, count=None if few is None else few[1]), rows_in=rows_in
    )


def add_triggered(attempt: Attempt, step: AddTriggered) -> Work:
    """The append of the rows for which the condition of WHEN is true, of keys that have no row yet.

    The rows that are there are those of the newest receipt: a commit between would be in the way of this one.
    """
    spark, spec, path = attempt.spark, attempt.spec, attempt.path
    shadow_inputs(whole_inputs(spark, spec, attempt.inputs))
    check_lookups(attempt.runtime, spark, spec, attempt.inputs)
    rows = run_before_constraints(spark, spec, attempt.inputs)
    key = written_once_by(spec)
    there = attempt.stored().select(*[F.col(quoted(column)) for column in key]).alias("there")
    same = [F.col(f"new.{quoted(column)}").eqNullSafe(F.col(f"there.{quoted(column)}")) for column in key]
    rows = rows.alias("new").join(there, same, "left_anti")
    # A row that a constraint leaves out is computed again at the next refresh.
    rows = attempt.constraint_check.rows(rows, again=True)
    rows_in = sum(changes.rows for changes in attempt.changes.values())
    few = collect_if_small(rows) if rows_in <= LIKELY_MANY else None
    rows = attempt.hold(rows) if few is None else few[0]
    if few[1] == 0 if few is not None else rows.isEmpty():
        return attempt.nothing(rows_in)
    check_key(rows, replace(spec, primary_key=key))
    return attempt.work(
        step, lambda new: append_rows(rows, path, new, count=None if few is None else few[1]), rows_in=rows_in
    )


def append(attempt: Attempt, step: Append) -> Work:
    """The append of the query over what the inputs of the step gained."""
    spark, spec, path, inputs = attempt.spark, attempt.spec, attempt.path, attempt.inputs
    frames = whole_inputs(spark, spec, inputs, only=[name for name in inputs if name not in step.as_changes])
    for name in step.as_changes:
        frames[name] = read_inserted(spark, inputs[name], attempt.changes[name], arrived=spec.query.arrived)
    shadow_inputs(frames)
    check_lookups(attempt.runtime, spark, spec, inputs)
    rows_in = sum(attempt.changes[name].rows for name in step.as_changes)
    looked_up = None
    if spec.may_wait or takes_pending_lookups(spec, attempt.receipt):
        looked_up = look_up(attempt, frames, attempt.receipt)
        rows = looked_up.rows
    else:
        rows = run_before_constraints(spark, spec, inputs, attempt.covered)
    rows = attempt.constraint_check.rows(rows, again=False)
    if spec.primary_key:
        rows = attempt.hold(rows)
        # Rows that found nothing must not find a later version where `verify` follows refreshes by their receipts.
        if looked_up is None and not spec.lookups and rows.limit(1).count() == 0:
            return attempt.nothing(rows_in)
        check_key(rows, spec)
        check_key_against(rows, attempt.stored(), spec)
    few = collect_if_small(rows) if rows_in <= FEW_ROWS else None
    rows = rows if few is None else few[0]
    return Work(
        lambda new: append_rows(rows, path, new, count=None if few is None else few[1]),
        Strategy.APPEND,
        step.reason,
        rows_in,
        attempt.pins.positions,
        {},
        looked_up=looked_up,
    )
