"""The values in the rows of the control store, and the texts in which it keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from freshline.freshness.record import Heartbeat
from freshline.values.names import TableName
from freshline.values.result import RefreshResult

# The format of the store, and the tables that it has.
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


def key_of(name: TableName) -> str:
    """A table's name as rows are found by it."""
    return str(name).lower()


def text_of(time: datetime) -> str:
    """A time as it is kept: in UTC, to the microsecond, so that texts sort as times do."""
    return time.astimezone(UTC).isoformat(timespec="microseconds")


def time_of(text: str) -> datetime:
    """The time that is kept as `text`."""
    return datetime.fromisoformat(text)


def text_or_none(time: datetime | None) -> str | None:
    return None if time is None else text_of(time)


def time_or_none(text: str | None) -> datetime | None:
    return None if text is None else time_of(text)


def heartbeat_of(at: str, detail: str) -> Heartbeat:
    """The heartbeat in these columns of `freshline_heartbeat`."""
    return Heartbeat(time_of(at), json.loads(detail))


def record_of(number: int, result: str) -> RefreshResult:
    """The refresh or decision in the columns `id` and `result` of `freshline_refresh`."""
    return replace(RefreshResult.from_json(json.loads(result)), id=number)


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


def median(seconds: Sequence[float]) -> float | None:
    """The middle value, of two the smaller.

    >>> median([24.0, 2.0, 3.0]), median([24.0, 2.0]), median([])
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
