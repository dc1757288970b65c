"""The values in the rows of the control store, whoever has read them: SQLAlchemy, or `control_reading` without it.

A row is anything that gives a column by its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from freshline.freshness.intentions import FreshnessOverride, Intentions, Suspension
from freshline.freshness.record import Check, Heartbeat
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import RefreshResult

# The newest format of the store, and the tables that it has.
FORMAT = 5
TABLES = (
    "freshline_alert",
    "freshline_awaited",
    "freshline_check",
    "freshline_delivery",
    "freshline_epoch",
    "freshline_failure",
    "freshline_format",
    "freshline_generation",
    "freshline_heartbeat",
    "freshline_hour",
    "freshline_identity",
    "freshline_mark",
    "freshline_override",
    "freshline_refresh",
    "freshline_request",
    "freshline_span",
    "freshline_suspension",
)
# Of how many of the newest commits of a table the seconds are asked for.
COUNTED_REFRESHES = 50
# From so many on one slow refresh is not all of the 95th percentile.
_MANY_REFRESHES = 20


def time_of(text: str) -> datetime:
    """The time that is kept as `text`."""
    return datetime.fromisoformat(text)


def checks_of(rows: Iterable[Any]) -> dict[TableName, Check]:
    """The check of each table and source."""
    return {
        TableName.parse(row["name"]): Check(time_of(row["data_timestamp"]), row["position"], time_of(row["checked_at"]))
        for row in rows
    }


def heartbeat_of(row: Any) -> Heartbeat:
    """The heartbeat in a row of `freshline_heartbeat`."""
    return Heartbeat(time_of(row["at"]), json.loads(row["detail"]))


def intentions_of(generation: int, overrides: Iterable[Any], suspensions: Iterable[Any]) -> Intentions:
    """The decisions in the rows of overrides and suspensions."""
    return Intentions(
        generation,
        {
            (name := TableName.parse(row["name"])): FreshnessOverride(
                table=name,
                freshness=Freshness(row["freshness_seconds"]),
                by=row["decided_by"],
                at=time_of(row["decided_at"]),
                until=None if row["until"] is None else time_of(row["until"]),
            )
            for row in overrides
        },
        {
            (name := TableName.parse(row["name"])): Suspension(
                table=name,
                by=row["decided_by"],
                at=time_of(row["decided_at"]),
                until=None if row["until"] is None else time_of(row["until"]),
                reason=row["reason"],
                automatic=bool(row["automatic"]),
            )
            for row in suspensions
        },
    )


def record_of(row: Any) -> RefreshResult:
    """The refresh or decision in the columns `id` and `result` of `freshline_refresh`."""
    return replace(RefreshResult.from_json(json.loads(row["result"])), id=row["id"])


def seconds_of_tables(rows: Iterable[Any]) -> dict[TableName, float]:
    """The seconds that a refresh of each table surely takes, from name, version and seconds of the newest commits.

    The 95th percentile, the median where these are few: one of them may have had a cold engine. Commits that made a
    table do not count; tables with nothing else are missing.
    """
    return {
        table: seconds
        for table, (later, _) in split_seconds(rows).items()
        if (seconds := percentile_95(later) if len(later) >= _MANY_REFRESHES else _median(later)) is not None
    }


def split_seconds(rows: Iterable[Any]) -> dict[TableName, tuple[list[float], list[float]]]:
    """The seconds of each table: of later refreshes, and of those that made it."""
    found: dict[TableName, tuple[list[float], list[float]]] = {}
    # A thousand tables have hundreds of thousands of rows, and a name is read once.
    known: dict[str, tuple[list[float], list[float]]] = {}
    for name, version, seconds in rows:
        split = known.get(name)
        if split is None:
            split = known[name] = found.setdefault(TableName.parse(name), ([], []))
        # A table is made empty, as version 0, and filled, or both at once.
        making = version is not None and version <= 1
        split[making].append(float(seconds))
    return found


def _median(seconds: Sequence[float]) -> float | None:
    """The middle value, of two the smaller.

    >>> _median([24.0, 2.0, 3.0]), _median([24.0, 2.0]), _median([])
    (3.0, 2.0, None)
    """
    return sorted(seconds)[(len(seconds) - 1) // 2] if seconds else None


def percentile_95(seconds: Sequence[float]) -> float | None:
    """The least value that 95 of 100 do not exceed.

    >>> percentile_95([1.0, 3.0, 2.0]), percentile_95([])
    (3.0, None)
    """
    if not seconds:
        return None
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, -(-95 * len(ordered) // 100) - 1)]
