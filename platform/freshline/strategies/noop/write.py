"""An empty commit: the checked position goes into the table's log, by the rule that its newest commit tells of it."""

from __future__ import annotations

import json

from pyspark.sql.types import StructType

from freshline.attempt.attempt import Attempt, Work
from freshline.commit.delta_log import open_table
from freshline.commit.write import append_rows
from freshline.declare.query import PythonQuery
from freshline.plan.result import Strategy
from freshline.plan.step import Noop


def carry_position(attempt: Attempt, step: Noop) -> Work:
    """The write of no row."""
    schema = StructType.fromJson(json.loads(open_table(attempt.path).schema().to_json()))
    empty = attempt.spark.createDataFrame([], schema)
    positions = dict(attempt.pins.positions)
    if isinstance(attempt.spec.query, PythonQuery) and attempt.receipt is not None:
        # The rows are still those of the dimensions that they met.
        met = attempt.receipt.positions
        positions |= {name: met[name] for name in attempt.spec.lookups if name in met}
    return Work(
        lambda new: append_rows(empty, attempt.path, new, count=0),
        Strategy.NOOP,
        step.reason,
        0,
        positions,
        {},
    )
