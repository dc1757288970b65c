"""Alerts as values (rule 16 of docs/rules.md): a trouble of a table or a process, its begin, and its deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class AlertKind(StrEnum):
    """The kind of trouble that an alert reports."""

    LATE = "late"  # the data lag is above what was promised
    STUCK = "stuck"  # it is late, and refreshes do not help although all of its inputs are newer
    FAILING = "failing"  # its refreshes fail
    QUARANTINE = "quarantine"  # more of what arrives is rejected than was allowed
    WATERMARK = "watermark"  # the watermark stands still
    LATE_ROWS = "late_rows"  # more of what arrives is behind the watermark than was allowed
    RETAINED = "retained"  # the system outside keeps more for a source than was allowed
    SUSPENDED = "suspended"  # a person, or failures in a row, left it as it is
    CATALOG = "catalog"  # a catalog in which tables are entered is not where the tables are
    ENGINE_SILENT = "engine_silent"
    SCHEDULER_SILENT = "scheduler_silent"


# Trouble of a process or a catalog, of no table.
PROCESSES = frozenset({AlertKind.CATALOG, AlertKind.ENGINE_SILENT, AlertKind.SCHEDULER_SILENT})


class AlertLevel(StrEnum):
    """The severity of an alert."""

    WARN = "WARN"
    FAIL = "FAIL"


class AlertEvent(StrEnum):
    """The reason for which news of an alert is sent."""

    RAISED = "raised"
    WORSENED = "worsened"  # from WARN to FAIL
    REMINDER = "reminder"
    RECOVERED = "recovered"


@dataclass(frozen=True)
class Alert:
    """One alert, open until `recovered_at`.

    `subject` is the table's name, the process (`engine`, `scheduler`), or `catalog` and the name of one. `cause` is a
    sentence. `since` is when the trouble began, `raised_at` when the alert was, `reminded_at` when it was last
    reported, `calm_since` since when the trouble is away, not yet for long enough to be over. `id` is None
    before it is stored. `delivered_to` are the channels that took the news of it.
    """

    subject: str
    kind: AlertKind
    level: AlertLevel
    cause: str
    since: datetime
    raised_at: datetime
    reminded_at: datetime
    calm_since: datetime | None = None
    recovered_at: datetime | None = None
    link: str | None = None
    id: int | None = None
    delivered_to: tuple[str, ...] = ()

    @property
    def table(self) -> str | None:
        """The table's name, None where it is about a process or a catalog."""
        return None if self.kind in PROCESSES else self.subject


@dataclass(frozen=True)
class News:
    """One change of an alert that people should hear of. Its alert has no id when it is new."""

    event: AlertEvent
    alert: Alert


@dataclass(frozen=True)
class Delivery:
    """One piece of news for one channel, kept until the channel took it or it was given up."""

    id: int
    channel: str
    event: AlertEvent
    alert: Alert
    created_at: datetime
    attempts: int
    next_at: datetime


def open_alerts(alerts: Sequence[Alert]) -> list[Alert]:
    """Those that have not recovered."""
    return [alert for alert in alerts if alert.recovered_at is None]
