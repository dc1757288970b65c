"""The result of a refresh: the one value that a person, a program and the refresh history see of it.

A result describes a refresh that ended, or a decision about a table (SUSPENDED, ALTERED ..). The engine reports it to
whoever asked, the control store keeps the newest of each table, and the refresh log keeps all. None of these is the
truth about rows: that is the receipt in the table's own log. Losing a result loses no row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from freshline.errors import FreshlineError
from freshline.values.json import from_json, to_compact_json, to_json
from freshline.values.names import TableName
from freshline.values.receipt import Violation
from freshline.values.spec import Spec, TableSpec


class State(StrEnum):
    """The end of a refresh, or the kind of a decision."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    BLOCKED = "BLOCKED"
    # Decisions about a table.
    ALTERED = "ALTERED"
    SUSPENDED = "SUSPENDED"
    RESUMED = "RESUMED"
    INFEASIBLE = "INFEASIBLE"
    RESTORED = "RESTORED"
    MAINTAINED = "MAINTAINED"


DECISIONS = frozenset(
    (State.ALTERED, State.SUSPENDED, State.RESUMED, State.INFEASIBLE, State.RESTORED, State.MAINTAINED)
)


class Strategy(StrEnum):
    """The strategies that freshline ships. Others have names of their own."""

    NOOP = "noop"
    APPEND = "append"
    MERGE = "merge"
    KEYS = "keys"
    PARTITION = "partition"
    FULL = "full"


class TableKind(StrEnum):
    """A table, the log table of a source, a source that is read in place, or a sink."""

    TABLE = "table"
    LOG = "log"
    SOURCE = "source"
    SINK = "sink"


def kind_of(spec: Spec) -> TableKind:
    """TABLE or SINK, LOG for a source whose rows arrive in a log table, SOURCE for one that is read in place."""
    if isinstance(spec, TableSpec):
        return TableKind.TABLE if spec.sink is None else TableKind.SINK
    return TableKind.LOG if spec.is_log else TableKind.SOURCE


@dataclass(frozen=True, kw_only=True)
class RefreshResult:
    """One refresh of one table or log table that ended, or one decision about it.

    `version` is the Delta version that has the rows (the newest one where nothing was written), None before the first
    commit; `committed` says whether this refresh wrote it. `rows_in` counts the changed rows that were read, `rows_out`
    the rows written, `rejected` those that went to quarantine. `late_rows` are those behind the watermark of a log
    table and `ahead_rows` those too far ahead of it; both are in the log, and None without a watermark, as is
    `late_by_seconds`, the most that one of them is late by. `retained_bytes` is what the system outside kept for a
    source when it was checked, None where it keeps nothing. `violations` are counted by constraint. `partitions` are
    the keys of the time partitions that were written. `problems` did not stop the refresh and need a person.
    `cache_hits` counts the inputs that were still cached from an earlier refresh.

    `clock` is the time that temporal filters compared rows with, None for a table without such. `models` are
    the SHA-256 of the files of its models, by their names: rows that are computed now are predicted with these.

    `mode` is the table's mode then, `cause` who asked: manual, live or backfill. `seconds` is the duration.
    `cpu_seconds` are those of the engine's process tree, None where other work ran beside it. `predicted_seconds` and
    `full_seconds` are what the strategy and a full refresh were expected to take, None where no price was compared.
    `at` is the time of the end, `lag_seconds` the lag then, `freshness_seconds` the promise then (None for decisions),
    and `fingerprint` that of the declaration. `id` grows with every result of one control store, None until it is
    stored.
    """

    table: TableName
    at: datetime
    state: State
    reason: str
    kind: TableKind = TableKind.TABLE
    strategy: str | None = None
    version: int | None = None
    committed: bool = False
    rows_in: int | None = None
    rows_out: int | None = None
    rejected: int = 0
    late_rows: int | None = None
    ahead_rows: int | None = None
    late_by_seconds: float | None = None
    retained_bytes: int | None = None
    seconds: float = 0.0
    cpu_seconds: float | None = None
    predicted_seconds: float | None = None
    full_seconds: float | None = None
    lag_seconds: float | None = None
    freshness_seconds: int | None = None
    data_timestamp: datetime | None = None
    clock: datetime | None = None
    models: Mapping[str, str] = field(default_factory=dict)
    mode: str | None = None
    cause: str | None = None
    cache_hits: int = 0
    violations: Mapping[str, Violation] = field(default_factory=dict)
    partitions: tuple[str, ...] = ()
    error: FreshlineError | None = None
    problems: tuple[FreshlineError, ...] = ()
    fingerprint: str = ""
    id: int | None = field(default=None, compare=False)

    @property
    def ok(self) -> bool:
        """Whether nothing failed and nothing needs a person."""
        return self.state in (State.SUCCEEDED, State.SKIPPED) and not self.problems

    @property
    def is_check(self) -> bool:
        """Whether the refresh found nothing new and committed nothing."""
        return self.state == State.SUCCEEDED and not self.committed and self.strategy == Strategy.NOOP

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline refresh --json` and `freshline refreshes --json` print."""
        values: dict[str, Any] = to_json(self)
        return values

    def as_stored(self) -> dict[str, Any]:
        """The object that the control store keeps: without fields that have their default."""
        values: dict[str, Any] = to_compact_json(self)
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RefreshResult:
        """The inverse of `as_json` and of `as_stored`."""
        result: RefreshResult = from_json(values, cls)
        return result
