"""The constraints of one table, over the rows that one refresh computes.

Rows for quarantine are committed before the table is, with the number of the refresh, as those of log tables are: what
a refresh that did not finish left there is taken away before the next one writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import exists
from freshline.compute.constraints import (
    LOOKUP_QUARANTINE_SCHEMA,
    TABLE_QUARANTINE_SCHEMA,
    VIOLATED,
    WAITING_ROW,
    count_violations,
    in_quarantine,
    kept,
    rejected_rows,
    violated,
)
from freshline.compute.inputs import FILE, RECORD
from freshline.compute.materialize import materialize_once
from freshline.refresh.pin import Pins
from freshline.refresh.quarantine import commit_quarantine
from freshline.refresh.runtime import Runtime
from freshline.values.connector import RETRIED_IN
from freshline.values.receipt import Receipt, Violation
from freshline.values.spec import OnViolation, TableSpec


def positions_text(pins: Pins) -> str:
    """The positions that a refresh reads, as JSON."""
    return json.dumps({str(name): position.as_json() for name, position in pins.positions.items()})


def position_of_row(rows: DataFrame, positions: str) -> Column:
    """Where a row came from: its record where that is known, else what the refresh read."""
    if FILE in rows.columns:
        return F.to_json(F.struct(F.col(FILE).alias("file"), F.col(RECORD).alias("record")))
    return F.lit(positions)


@dataclass(frozen=True)
class UnansweredRows:
    """Rows that come to the quarantine because a lookup has no answer for them, and those that leave it.

    `new` are `count` rows with the columns of the quarantine, but for the number and the time, and `left` has the
    WAITING_ROW of those that leave, None where none does.
    """

    new: DataFrame
    count: int
    left: DataFrame | None

    def in_quarantine(self, seq: int, now: datetime) -> DataFrame:
        """The new rows as rows of the quarantine table."""
        rows = in_quarantine(self.new, seq, now, also=[WAITING_ROW])
        return rows.withColumn(RETRIED_IN, F.lit(None).cast("bigint"))


class ConstraintCheck:
    """Judges the rows of one refresh, and keeps what it found until they are written.

    Rows that are computed once more, after a strategy was given up, are judged anew.
    """

    def __init__(self, runtime: Runtime, spark: SparkSession, spec: TableSpec, pins: Pins, held: ExitStack) -> None:
        self._runtime = runtime
        self._spark = spark
        self._spec = spec
        self._held = held
        self._positions = positions_text(pins)
        self._rejected: DataFrame | None = None
        self.violations: Mapping[str, Violation] = {}
        self.rejected = 0

    def rows(self, computed: DataFrame, *, again: bool, but: Column | None = None) -> DataFrame:
        """The rows that the table has, of those that were computed.

        `again` says that they may have been computed by an earlier refresh too: a row that was rejected then is in
        quarantine already. Rows that satisfy `but` are not judged. Raises ConstraintError.
        """
        constraints = self._spec.constraints
        if not constraints:
            return computed
        names = violated(constraints)
        if but is not None:
            names = F.when(but, F.array().cast("array<string>")).otherwise(names)
        marked = computed.withColumn(VIOLATED, names).persist(StorageLevel.MEMORY_AND_DISK)
        self._held.callback(marked.unpersist)
        self.violations = count_violations(marked, constraints, str(self._spec.name))
        self._rejected, self.rejected = None, 0
        if any(each.name in self.violations for each in constraints if each.on_violation is OnViolation.QUARANTINE):
            fresh = rejected_rows(marked, constraints, self._position_of(marked))
            self._rejected, self.rejected = materialize_once(self._unknown(fresh) if again else fresh)
        return kept(marked, constraints)

    def write(
        self, write: Callable[[Receipt], None], unanswered: UnansweredRows | None = None
    ) -> Callable[[Receipt], None]:
        """The write that puts what was rejected into quarantine first, and rows that have no answer of a lookup."""
        if not self.rejected and unanswered is None:
            return write
        return partial(self._write, write, unanswered)

    def _write(self, write: Callable[[Receipt], None], unanswered: UnansweredRows | None, receipt: Receipt) -> None:
        now, count = self._runtime.clock(), self.rejected
        rows = None if self._rejected is None else in_quarantine(self._rejected, receipt.seq, now)
        if unanswered is not None:
            new = unanswered.in_quarantine(receipt.seq, now)
            rows = new if rows is None else rows.unionByName(new, allowMissingColumns=True)
            count += unanswered.count
        assert rows is not None
        self._runtime.failpoint("table-before-quarantine")
        commit_quarantine(
            self._runtime,
            self._spark,
            self._spec,
            rows,
            receipt,
            count=count,
            schema=TABLE_QUARANTINE_SCHEMA if unanswered is None else LOOKUP_QUARANTINE_SCHEMA,
            left=None if unanswered is None else unanswered.left,
        )
        self._runtime.failpoint("table-after-quarantine")
        write(receipt)

    def _position_of(self, marked: DataFrame) -> Column:
        """Where a row came from: its record where that is known, else what the refresh read."""
        return position_of_row(marked, self._positions)

    def _unknown(self, rejected: DataFrame) -> DataFrame:
        path = self._runtime.warehouse.quarantine(self._spec.name)
        if not exists(path):
            return rejected
        known = self._spark.read.format("delta").load(str(path)).select("error", "raw").distinct()
        return rejected.join(known, ["error", "raw"], "left_anti")
