"""The constraints of one table, over the rows that one refresh computes.

Rows for quarantine are committed before the table is, with the number of the refresh, as those of log tables are: what
a refresh that did not finish left there is taken away before the next one writes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import exists
from freshline.compute.constraints import (
    TABLE_QUARANTINE_SCHEMA,
    VIOLATED,
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
from freshline.values.receipt import Receipt, Violation
from freshline.values.spec import OnViolation, TableSpec


class ConstraintCheck:
    """Judges the rows of one refresh, and keeps what it found until they are written.

    Rows that are computed once more, after a strategy was given up, are judged anew.
    """

    def __init__(self, runtime: Runtime, spark: SparkSession, spec: TableSpec, pins: Pins, held: ExitStack) -> None:
        self._runtime = runtime
        self._spark = spark
        self._spec = spec
        self._held = held
        self._positions = json.dumps({str(name): position.as_json() for name, position in pins.positions.items()})
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

    def write(self, write: Callable[[Receipt], None]) -> Callable[[Receipt], None]:
        """The write that puts what was rejected into quarantine first."""
        return write if self._rejected is None or not self.rejected else partial(self._write, write)

    def _write(self, write: Callable[[Receipt], None], receipt: Receipt) -> None:
        assert self._rejected is not None
        rows = in_quarantine(self._rejected, receipt.seq, self._runtime.clock())
        self._runtime.failpoint("table-before-quarantine")
        commit_quarantine(
            self._runtime, self._spark, self._spec, rows, receipt, count=self.rejected, schema=TABLE_QUARANTINE_SCHEMA
        )
        self._runtime.failpoint("table-after-quarantine")
        write(receipt)

    def _position_of(self, marked: DataFrame) -> Column:
        """Where a row came from: its record where that is known, else what the refresh read."""
        if FILE in marked.columns:
            return F.to_json(F.struct(F.col(FILE).alias("file"), F.col(RECORD).alias("record")))
        return F.lit(self._positions)

    def _unknown(self, rejected: DataFrame) -> DataFrame:
        path = self._runtime.warehouse.quarantine(self._spec.name)
        if not exists(path):
            return rejected
        known = self._spark.read.format("delta").load(str(path)).select("error", "raw").distinct()
        return rejected.join(known, ["error", "raw"], "left_anti")
