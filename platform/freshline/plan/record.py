"""What is remembered of a refresh after it ended, and of a look at a source.

These are memories, not truths: what a table contains is in its own log. Losing them loses no row; it loses the
reasons of refreshes that wrote nothing, and the durations from which the next ones are foretold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from freshline.declare.names import TableName

# The states of what was decided about a table; all other states are those of a refresh.
DECISIONS = ("ALTERED", "SUSPENDED", "RESUMED", "INFEASIBLE", "RESTORED", "MAINTAINED")


@dataclass(frozen=True)
class RefreshRecord:
    """One refresh that ended, or one decision about a table, at the time `at`.

    `state` is a word of rule 10 for a refresh, one of DECISIONS for a decision. `seconds` is
    what it took. `version` is the Delta version that holds the result, `committed` whether this refresh wrote it.
    `fingerprint` is that of the declaration which was refreshed. `error` is the error as a JSON object, `problems` are
    sentences about what did not stop the refresh and yet needs a person.

    `mode` is the table's mode then, `cause` what began it: manual, live or backfill. `cpu_seconds` are those of the
    engine's process tree while it ran, None where other work ran beside it. `predicted_seconds` and `full_seconds` are
    what it was expected to take and what a full refresh was. `lag_seconds` is the lag when it ended, `late_rows`
    are those behind the watermark. `id` grows with every record of the store, None before it is stored.
    """

    table: TableName
    at: datetime
    state: str
    strategy: str | None
    reason: str
    seconds: float
    version: int | None
    fingerprint: str
    rows_in: int | None = None
    rows_out: int | None = None
    rejected: int = 0
    committed: bool = False
    data_timestamp: datetime | None = None
    error: Mapping[str, Any] | None = None
    problems: tuple[str, ...] = ()
    mode: str | None = None
    cause: str | None = None
    cpu_seconds: float | None = None
    predicted_seconds: float | None = None
    full_seconds: float | None = None
    lag_seconds: float | None = None
    late_rows: int | None = None
    id: int | None = field(default=None, compare=False)

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline refreshes --json` prints."""
        return {
            "id": self.id,
            "table": str(self.table),
            "at": self.at.isoformat(),
            "state": self.state,
            "mode": self.mode,
            "cause": self.cause,
            "strategy": self.strategy,
            "reason": self.reason,
            "seconds": round(self.seconds, 3),
            "cpu_seconds": self.cpu_seconds,
            "predicted_seconds": self.predicted_seconds,
            "full_seconds": self.full_seconds,
            "version": self.version,
            "committed": self.committed,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "rejected": self.rejected,
            "late_rows": self.late_rows,
            "data_timestamp": None if self.data_timestamp is None else self.data_timestamp.isoformat(),
            "lag_seconds": self.lag_seconds,
            "error": None if self.error is None else dict(self.error),
            "problems": list(self.problems),
        }


def columns_of(record: RefreshRecord) -> dict[str, Any]:
    """A record as it is stored, column by column: its table as text, its error and problems as JSON; times are times.

    Its id is given by the store.
    """
    return {
        "table": str(record.table),
        "at": record.at,
        "state": record.state,
        "strategy": record.strategy,
        "reason": record.reason,
        "seconds": record.seconds,
        "version": record.version,
        "fingerprint": record.fingerprint,
        "rows_in": record.rows_in,
        "rows_out": record.rows_out,
        "rejected": record.rejected,
        "committed": record.committed,
        "data_timestamp": record.data_timestamp,
        "error": None if record.error is None else json.dumps(dict(record.error)),
        "problems": json.dumps(list(record.problems)),
        "mode": record.mode,
        "cause": record.cause,
        "cpu_seconds": record.cpu_seconds,
        "predicted_seconds": record.predicted_seconds,
        "full_seconds": record.full_seconds,
        "lag_seconds": record.lag_seconds,
        "late_rows": record.late_rows,
    }


def record_of(row: Mapping[str, Any]) -> RefreshRecord:
    """The record of stored columns; `fingerprint`, `problems` and `id` are not kept everywhere."""
    return RefreshRecord(
        table=TableName.parse(row["table"]),
        at=row["at"],
        state=row["state"],
        strategy=row["strategy"],
        reason=row["reason"],
        seconds=float(row["seconds"]),
        version=row["version"],
        fingerprint=row.get("fingerprint", ""),
        rows_in=row["rows_in"],
        rows_out=row["rows_out"],
        rejected=row["rejected"],
        committed=bool(row["committed"]),
        data_timestamp=row["data_timestamp"],
        error=None if row["error"] is None else json.loads(row["error"]),
        problems=tuple(json.loads(row.get("problems", "[]"))),
        mode=row["mode"],
        cause=row["cause"],
        cpu_seconds=row["cpu_seconds"],
        predicted_seconds=row["predicted_seconds"],
        full_seconds=row["full_seconds"],
        lag_seconds=row["lag_seconds"],
        late_rows=row["late_rows"],
        id=row.get("id"),
    )


@dataclass(frozen=True)
class Check:
    """A look at the inputs of a table, or at a source, that needed no commit.

    Everything that was there up to `data_timestamp` is at `position` (JSON text of whoever checked).
    """

    data_timestamp: datetime
    position: str
    checked_at: datetime


@dataclass(frozen=True)
class RequestRecord:
    """A request that was made to an engine; `arguments` is a JSON text."""

    id: str
    kind: str
    arguments: str
    created_at: datetime


@dataclass(frozen=True)
class Heartbeat:
    """When a process was last heard of, and what it said of itself."""

    at: datetime
    detail: Mapping[str, Any]
