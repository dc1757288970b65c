"""What is remembered of a refresh after it ended, and of a look at a source.

These are memories, not truths: what a table contains is in its own log. Losing them loses no row; it loses the
reasons of refreshes that wrote nothing, and the durations from which the next ones are foretold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from freshline.declare.names import TableName


@dataclass(frozen=True)
class RefreshRecord:
    """One refresh that ended, or one decision about a table, at the time `at`.

    `state` is a word of rule 10 for a refresh; ALTERED, SUSPENDED, RESUMED or INFEASIBLE for a decision. `seconds` is
    what it took. `version` is the Delta version that holds the result, `committed` whether this refresh wrote it.
    `fingerprint` is that of the declaration which was refreshed. `error` is the error as a JSON object, `problems` are
    sentences about what did not stop the refresh and yet needs a person.

    `mode` is the table's mode then, `cause` what began it: manual, live or backfill. `cpu_seconds` are those of the
    engine's process tree while it ran, None where other work ran beside it. `predicted_seconds` and `full_seconds` are
    what it was expected to take and what a full refresh was. `lag_seconds` is the lag when it ended, `positions` are
    those it reached. `id` grows with every record of the store, None before it is stored.
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
    positions: Mapping[str, Any] | None = None
    id: int | None = field(default=None, compare=False)


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
