"""What a step has to write: the rows, and the statement that writes them; each kind of step has a module in `steps`.

Every step computes over pinned inputs in a session that nothing else uses, and returns the write for the commit.
Nothing is written here but rows that no table can hold, which go to the quarantine table first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from freshline.plan.history import inputs_short, inputs_short_after
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
from freshline.run.attempt import Attempt, Work
from freshline.run.quarantine import next_seq
from freshline.run.steps.append import append
from freshline.run.steps.begin import begin
from freshline.run.steps.full import full
from freshline.run.steps.keys import refold_keys, refresh_keys
from freshline.run.steps.merge import merge
from freshline.run.steps.named_partitions import replace_named
from freshline.run.steps.noop import carry_position
from freshline.run.steps.time_partitions import fill_missing, replace_named_times
from freshline.run.steps.touched_partitions import replace_touched


def prepare(attempt: Attempt, step: Step) -> Work:
    """Compute what the step writes."""
    # Before anything is computed: rows that an unfinished refresh rejected are not known yet.
    seq = next_seq(attempt.runtime, attempt.spark, attempt.spec, attempt.receipt, attempt.mode)
    work, judge = _prepare(attempt, step), attempt.judge
    short = inputs_short(attempt.receipt)
    if work.write is None and (judge.violations or inputs_short_after(attempt.receipt, step) != short):
        # Nothing changes in the table, and yet its receipt counts what was left out, and up to where, or says which
        # input has deleted rows.
        work = replace(carry_position(attempt, work.reason), rows_in=work.rows_in, rejected=work.rejected)
    if work.write is None:
        return work
    return replace(
        work,
        write=judge.write(work.write),
        rejected=work.rejected + judge.rejected,
        seq=seq,
        violations=judge.violations,
    )


def _prepare(attempt: Attempt, step: Step) -> Work:
    match step:
        case Noop():
            return carry_position(attempt, step.reason)
        case Append():
            return append(attempt, step)
        case MergeRows():
            return merge(attempt, step)
        case RefoldKeys():
            return refold_keys(attempt, step)
        case RefreshKeys():
            return refresh_keys(attempt, step)
        case ReplacePartitions():
            return replace_touched(attempt, step)
        case ReplaceNamedPartitions() if attempt.spec.time_partitions is not None:
            return replace_named_times(attempt, step)
        case ReplaceNamedPartitions():
            return replace_named(attempt, step)
        case FillPartitions():
            return fill_missing(attempt, step)
        case Begin():
            return begin(attempt, step)
        case Full():
            return full(attempt, step.reason)
    assert_never(step)
