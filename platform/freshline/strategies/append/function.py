"""The rows that the function of a table in Python makes of new rows are added: each row gives rows by itself."""

from __future__ import annotations

from freshline.commit.write import append_rows
from freshline.compute.inputs import read_inserted
from freshline.compute.materialize import materialize_once
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.computed_rows import check_key, check_key_against
from freshline.refresh.functions import Function
from freshline.strategies.append.rule import AppendOfFunction


def append_of_function(attempt: Attempt, step: AppendOfFunction) -> Work:
    """The append of the function's rows for what the input gained."""
    spark, spec = attempt.spark, attempt.spec
    function = Function(attempt.runtime, spark, spec, attempt.inputs, attempt.held, attempt.cancellation)
    gained = read_inserted(spark, attempt.inputs[step.input], attempt.changes[step.input])
    made = attempt.constraint_check.rows(function.rows({step.input: gained}), again=False)
    attempt.require_stored_columns(made)
    rows, count = materialize_once(made)
    rows_in = attempt.changes[step.input].rows
    if count == 0:
        return attempt.nothing(rows_in)
    if spec.primary_key:
        check_key(rows, spec)
        check_key_against(rows, attempt.stored(), spec)
    return attempt.work(step, lambda new: append_rows(rows, attempt.path, new, count=count), rows_in=rows_in)
