"""An empty commit: the checked position goes into the table's log, by the rule that its newest commit has it."""

from __future__ import annotations

from freshline.commit.write import carry_receipt
from freshline.plan.step import Noop
from freshline.refresh.attempt import Attempt, Work
from freshline.values.query import PythonQuery
from freshline.values.result import Strategy


def carry_position(attempt: Attempt, step: Noop) -> Work:
    """The write of no row."""
    positions = dict(attempt.pins.positions)
    if isinstance(attempt.spec.query, PythonQuery) and attempt.receipt is not None:
        # The rows are still those of the dimensions that they were joined with.
        met = attempt.receipt.positions
        positions |= {name: met[name] for name in attempt.spec.lookups if name in met}
    return Work(
        lambda new: carry_receipt(lambda: attempt.spark, attempt.path, new),
        Strategy.NOOP,
        step.reason,
        0,
        positions,
        {},
    )
