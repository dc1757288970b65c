"""One attempt at a refresh: the values that all of its steps share, and the write of one of them.

An attempt stands on inputs that were pinned once. Where its commit was overtaken, the next one pins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession

from freshline.commit.columns import column_types
from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import Pinned
from freshline.plan.changes import ChangeKind, Changes
from freshline.plan.step import Step
from freshline.refresh.constraint_check import ConstraintCheck, UnansweredRows
from freshline.refresh.pin import Pins
from freshline.refresh.runtime import Runtime
from freshline.values.closing import Closing
from freshline.values.names import TableName
from freshline.values.partition import Interval, PartitionSpan
from freshline.values.position import Position
from freshline.values.reason import Reason
from freshline.values.receipt import Receipt, Violation
from freshline.values.result import Strategy
from freshline.values.spec import TableSpec


class NotIncremental(Exception):
    """A step found only from the rows that everything is to be computed, with the reason; nothing is written yet."""

    is_expected_of_extensions = True

    def __init__(self, reason: Reason) -> None:
        super().__init__(str(reason))
        self.reason = reason


@dataclass(frozen=True)
class Attempt:
    """The values that the steps of one attempt share.

    `path` is the table's, `spark` a session that nothing else uses. `changes` are those of each input between the
    position that the table has read and the one in `pins`. `receipt` is the newest one, None before the first. `held`
    lets go of caches when the attempt is over. With `push_down` the condition for a partition is put into the input
    that decides it, where rows that the query leaves out are computed too. `planned` is the version of the table on
    which the attempt is based, None before the first; `foreign`: others than freshline wrote to that one. `closing` are
    the windows that are written, None for a table without EMIT FINAL; the query of `spec` gives these. `clock` is the
    time for which the query of `spec` gives rows, None for a table without temporal filters. `retry`: rows in
    quarantine are asked for again now.
    """

    runtime: Runtime
    spark: SparkSession
    spec: TableSpec
    path: Path
    mode: str
    pins: Pins
    changes: Mapping[TableName, Changes]
    receipt: Receipt | None
    constraint_check: ConstraintCheck
    held: ExitStack
    cancellation: Cancellation
    push_down: bool = True
    planned: int | None = None
    foreign: bool = False
    closing: Closing | None = None
    clock: datetime | None = None
    retry: bool = False

    @property
    def inputs(self) -> Mapping[TableName, Pinned]:
        """Every input at the position that was pinned."""
        return self.pins.inputs

    @property
    def covered(self) -> tuple[Interval, ...] | None:
        """The stretches of time that the table covers; None for one without time partitions."""
        if self.spec.time_partitions is None or self.receipt is None:
            return None
        return tuple(span.interval for span in self.receipt.spans or ())

    def at_inputs(self, inputs: Mapping[TableName, Pinned]) -> Attempt:
        """The same attempt at other positions of its inputs; no row has been judged yet."""
        pins = replace(self.pins, inputs=inputs)
        check = ConstraintCheck(self.runtime, self.spark, self.spec, pins, self.held)
        return replace(self, pins=pins, constraint_check=check)

    def stored(self) -> DataFrame:
        """The table's rows as they are now."""
        return self.spark.read.format("delta").load(str(self.path))

    def require_stored_columns(self, rows: DataFrame) -> None:
        """Raises NotIncremental where rows of a function have other columns than the table.

        Its code is the same where an input is declared with another column.
        """
        stored, made = ({name.lower(): name for name in names} for names in (column_types(self.path), rows.columns))
        found = [f"new column {name}" for key, name in made.items() if key not in stored]
        found += [f"column {name} goes away" for key, name in stored.items() if key not in made]
        if found:
            raise NotIncremental(Reason("DEFINITION_CHANGED", "; ".join(found)))

    def hold(self, rows: DataFrame) -> DataFrame:
        """Keep rows that are checked before they are written, until the attempt is over."""
        kept = rows.persist(StorageLevel.MEMORY_AND_DISK)
        self.held.callback(kept.unpersist)
        return kept

    def work(self, step: Step, write: Callable[[Receipt], None], *, rows_in: int) -> Work:
        """A write that brings the whole table to the pinned positions, for `rows_in` changed rows of inputs."""
        return Work(write, step.strategy, step.reason, rows_in, self.pins.positions, {})

    def nothing(self, rows_in: int, *, rejected: int = 0) -> Work:
        """Nothing to write: what changed in the inputs changes no row of the table."""
        still = self.clock is not None and all(each.kind is ChangeKind.NOTHING for each in self.changes.values())
        reason = Reason("NO_ROW_CROSSED" if still else "NO_NET_CHANGE")
        return Work(None, Strategy.NOOP, reason, rows_in, self.pins.positions, {}, rejected)


@dataclass(frozen=True)
class LookedUp:
    """Rows of a lookup join to add, and the parked rows that there are from then on: their version and how many.

    `unanswered` are the rows that come to the quarantine because they have no answer, and those that leave it.
    """

    rows: DataFrame
    pending_lookups: int | None
    waiting: int
    unanswered: UnansweredRows | None = None


@dataclass(frozen=True)
class Work:
    """The write of a step: the statement, and the facts for the receipt. `write` None: nothing would change.

    `whole` says that the write brings the table as a whole to `positions`; partitions that were named do not. `spans`
    are those of a table with time partitions after it, None for those before, at the new positions. `brought_in` are
    the stretches of time that are there as a whole now, `replaced` the keys of partitions that were named. `seq` is the
    number of the refresh. `replays`: the rows are those that the refreshes before gave, at their own positions.
    """

    write: Callable[[Receipt], None] | None
    strategy: str
    reason: Reason
    rows_in: int
    positions: Mapping[TableName, Position]
    partitions: Mapping[str, Mapping[TableName, Position]]
    rejected: int = 0
    looked_up: LookedUp | None = None
    cache_hits: int = 0
    adopts_definition: bool = False
    seq: int = 1
    violations: Mapping[str, Violation] = field(default_factory=dict)
    whole: bool = True
    spans: tuple[PartitionSpan, ...] | None = None
    brought_in: tuple[Interval, ...] = ()
    replaced: tuple[str, ...] = ()
    replays: bool = False
