"""Frozen figures of an engine, for the tests of metrics."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from freshline.freshness.alert import Alert, AlertKind, AlertLevel
from freshline.report.metrics.counts import Durations, PromiseSeconds, RefreshCounts
from freshline.report.metrics.families import EngineFigures, Heap, ProcessFigures, TableFigures
from freshline.report.status import LastRefresh, TableStatus
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
# Quotes, a tag, a line feed, a backslash at the end, a mark that turns the direction, half a character, and much of it.
HOSTILE = (
    '"} 1\nup{job="x"} 0',
    "<script>alert(1)</script>",
    "back\\",
    "\\n",
    "right\u202eleft",
    "half \ud800 of one",
    "{{ .Value }} {{ printf `x` }}",
    "\x1b[2J\x00",
    "",
    "x" * 10_240,
    "y" * 10_240 + "z",
)


def status(name: str = "orders", **changes: Any) -> TableStatus:
    """A table that is kept: one second behind, with a promise of ten."""
    found = TableStatus(
        table=TableName.parse(name), kind="table", mode="continuous", mode_reason="", freshness_seconds=10,
        data_timestamp=NOW - timedelta(seconds=1), lag_seconds=1.0, state="SUCCEEDED", version=3, rows=None,
        quarantined=None, last_refresh=LastRefresh("append", "new rows", 0.1, NOW),
    )  # fmt: skip
    return replace(found, **changes)


def outcome(name: str = "orders", **changes: Any) -> RefreshResult:
    """A refresh that appended two of three rows in half a second."""
    found = RefreshResult(
        table=TableName.parse(name), at=NOW, state=State.SUCCEEDED, reason="new rows", strategy="append", version=3,
        committed=True, rows_in=3, rows_out=2, rejected=1, late_rows=1, seconds=0.5, cpu_seconds=0.25,
    )  # fmt: skip
    return replace(found, **changes)


def table(name: str = "orders", **changes: Any) -> TableFigures:
    """A table of which everything is known."""
    counted = status(
        name, rows=100, quarantined=1, files=4, size_bytes=4_096, watermark=NOW, retained_bytes=1_024, feasible=True
    )
    found = TableFigures(
        name=name, kind="table", mode="continuous", freshness_seconds=10, warn_after=10, fail_after=20,
        status=counted, counted=counted, counts=RefreshCounts().after(outcome(name)), kept=PromiseSeconds(100.0, 10.0),
    )  # fmt: skip
    return replace(found, **changes)


def alert(subject: str = "orders", kind: AlertKind = AlertKind.LATE, level: AlertLevel = AlertLevel.FAIL) -> Alert:
    """An open alert."""
    return Alert(subject, kind, level, "its lag is 20 s", since=NOW, raised_at=NOW, reminded_at=NOW)


def figures(**changes: Any) -> EngineFigures:
    """An engine with one table, of which everything is known."""
    found = EngineFigures(
        version="0.1.0", loops=True, tables=(table(),), looked_at=NOW, look_seconds=0.01,
        durations={"append": Durations().after(0.5)}, waiting=1, running=2, requests={"refresh": 1, "sql": 0},
        alerts=(alert(),), heap=Heap(1_000, 2_000), engine=ProcessFigures(1.5, 1 << 20, 12, 1_700_000_000.0),
        jvm=ProcessFigures(2.5, 1 << 21, 40, 1_700_000_001.0),
    )  # fmt: skip
    return replace(found, **changes)
