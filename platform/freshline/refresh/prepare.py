"""The write of a step: the rows, and the statement that writes them, which its strategy computes.

Every step computes over pinned inputs in a session that nothing else uses, and returns the write for the commit.
Nothing is written here but rows that no table can have, which go to the quarantine table first.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

from freshline.plan.history import inputs_short, inputs_short_after
from freshline.plan.step import Noop, Step
from freshline.refresh.attempt import Attempt, Work
from freshline.refresh.quarantine import next_seq
from freshline.values.extension import calling


def prepare(attempt: Attempt, step: Step) -> Work:
    """Compute what the step writes."""
    # Before anything is computed: rows that an unfinished refresh rejected are not known yet.
    sent = _number_sent(attempt)
    seq = next_seq(attempt.runtime, attempt.spark, attempt.spec, attempt.receipt, attempt.mode, sent=sent)
    work, constraint_check = _compute(attempt, step), attempt.constraint_check
    short = inputs_short(attempt.receipt)
    if work.write is None and (constraint_check.violations or inputs_short_after(attempt.receipt, step) != short):
        # Nothing changes in the table, and yet its receipt counts what was left out, and up to where, or says which
        # input has deleted rows.
        work = replace(_compute(attempt, Noop(work.reason)), rows_in=work.rows_in, rejected=work.rejected)
    if work.write is None:
        return work
    unanswered = None if work.looked_up is None else work.looked_up.unanswered
    return replace(
        work,
        write=constraint_check.write(work.write, unanswered),
        rejected=work.rejected + constraint_check.rejected + (0 if unanswered is None else unanswered.count),
        seq=seq,
        violations=constraint_check.violations,
    )


def _number_sent(attempt: Attempt) -> int:
    """The number of the newest refresh that the system of a sink has; 0 for a table, and before the first."""
    if attempt.spec.sink is None:
        return 0
    held = attempt.runtime.sink_writer(attempt.spec).position()
    return 0 if held is None else held.seq


def _compute(attempt: Attempt, step: Step) -> Work:
    module, _, name = step.computed_by.partition(":")
    with calling(type(step), "computed_by", attempt):
        function = getattr(import_module(module), name)
    with calling(function, "", attempt, runs_query=True):
        work: Work = function(attempt, step)
    return work
