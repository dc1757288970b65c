"""The promise as Dagster shows it: the check `freshness`, on the lag of the data.

Dagster's own freshness policy (see `asset.py`) knows only the age of the newest materialization.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckResult,
    AssetCheckSeverity,
    AssetKey,
)

from freshline.report.notices import Punctuality, punctuality, why_late
from freshline.report.status import TableStatus
from freshline.values.names import TableName

CHECK = "freshness"
DESCRIPTION = "The data lags its root sources by no more than the declared freshness"


@dataclass(frozen=True)
class Verdict:
    """The judgement of one check about one table."""

    table: TableName
    passed: bool
    severity: AssetCheckSeverity
    description: str
    metadata: Mapping[str, Any]
    check: str = CHECK

    def evaluation(self, key: AssetKey) -> AssetCheckEvaluation:
        """As an event without a run; `key` is that of the table."""
        return AssetCheckEvaluation(**self._facts(key), blocking=False)

    def result(self, key: AssetKey) -> AssetCheckResult:
        """As the result of a run of the check; `key` is that of the table."""
        return AssetCheckResult(**self._facts(key))

    def _facts(self, key: AssetKey) -> dict[str, Any]:
        return {
            "asset_key": key,
            "check_name": self.check,
            "passed": self.passed,
            "severity": self.severity,
            "description": self.description,
            "metadata": self.metadata,
        }


def verdict(
    status: TableStatus,
    statuses: Mapping[TableName, TableStatus],
    driving: Collection[TableName],
    reasons: Mapping[TableName, str],
) -> Verdict:
    """The check of one table. `reasons` says why a table is left alone, where it is."""
    level = punctuality(status.lag_seconds, status.freshness_seconds)
    promise = _duration(status.freshness_seconds)
    metadata: dict[str, Any] = {"freshness_seconds": status.freshness_seconds, "mode": status.mode}
    if status.lag_seconds is not None:
        metadata["lag_seconds"] = round(status.lag_seconds, 3)
    if level is Punctuality.PASS:
        said = f"lags {_duration(status.lag_seconds or 0.0)}; promised is {promise}"
        return Verdict(status.table, True, AssetCheckSeverity.WARN, said, metadata)
    cause = reasons.get(status.table) or why_late(status, statuses, driving)
    metadata["cause"] = cause
    lag = "has no data yet" if status.lag_seconds is None else f"lags {_duration(status.lag_seconds)}"
    return Verdict(
        status.table,
        False,
        AssetCheckSeverity.ERROR if level is Punctuality.FAIL else AssetCheckSeverity.WARN,
        f"{lag}; promised is {promise}: {cause}",
        metadata,
    )


def _duration(seconds: float) -> str:
    """Two units at most.

    >>> _duration(7.25), _duration(300), _duration(7260), _duration(93600)
    ('7.2 s', '5 min', '2 h 1 min', '1 d 2 h')
    """
    if seconds < 60:
        return f"{round(seconds, 1):g} s"
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    left = int(seconds)
    parts: list[str] = []
    for unit, size in units:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)
