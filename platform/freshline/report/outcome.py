"""The outcome of one refresh: what a person and a program are told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from freshline.declare.names import TableName
from freshline.errors import FreshlineError
from freshline.plan.receipt import Violation


@dataclass(frozen=True)
class Outcome:
    """What one refresh of one table or log table came to.

    `state` is SUCCEEDED, FAILED, CANCELLED, BLOCKED or SKIPPED. `version` is the Delta version that holds the result
    (the newest one where nothing was written), None before the first commit. `rows_in` counts the changed rows that
    were read,
    `rows_out` the rows written, `rejected` those that went to quarantine. `problems` are errors that did not stop
    the refresh, such as a landing file that changed after it was read. `cache_hits` is how many inputs of a join were
    still kept from an earlier refresh. `late_rows` are those that came behind the watermark of a log table; they are in
    it like all others; None without a watermark. `violations` are those of each constraint that was not met.

    `cpu_seconds` are those of the engine's processes, None where other work ran beside it; `predicted_seconds` is what
    the strategy and `full_seconds` what a full refresh was expected to take, None where that did not count.
    `partitions` are the keys of the time partitions that were written, also of those that have no rows.
    """

    table: TableName
    kind: str  # "log", "source" or "table"
    state: str
    strategy: str | None
    reason: str
    version: int | None
    rows_in: int
    rows_out: int
    seconds: float
    rejected: int = 0
    mode: str | None = None
    data_timestamp: datetime | None = None
    committed: bool = False
    error: FreshlineError | None = None
    problems: tuple[FreshlineError, ...] = field(default=())
    cache_hits: int = 0
    late_rows: int | None = None
    ahead_rows: int | None = None
    cpu_seconds: float | None = None
    predicted_seconds: float | None = None
    full_seconds: float | None = None
    violations: Mapping[str, Violation] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing failed and nothing needs a person."""
        return self.state in ("SUCCEEDED", "SKIPPED") and not self.problems

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline refresh --json` prints."""
        return {
            "table": str(self.table),
            "kind": self.kind,
            "state": self.state,
            "mode": self.mode,
            "strategy": self.strategy,
            "reason": self.reason,
            "version": self.version,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rejected": self.rejected,
            "seconds": round(self.seconds, 3),
            "late_rows": self.late_rows,
            "ahead_rows": self.ahead_rows,
            "cpu_seconds": None if self.cpu_seconds is None else round(self.cpu_seconds, 3),
            "predicted_seconds": self.predicted_seconds,
            "full_seconds": self.full_seconds,
            "cache_hits": self.cache_hits,
            "violations": {name: each.as_json() for name, each in self.violations.items()},
            "partitions": list(self.partitions),
            "data_timestamp": None if self.data_timestamp is None else self.data_timestamp.isoformat(),
            "error": None if self.error is None else self.error.as_json(),
            "problems": [problem.as_json() for problem in self.problems],
        }
