"""One piece of news as channels get it: the same values, and the same words, through each of them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from freshline.freshness.alert import PROCESSES, AlertEvent, AlertKind, AlertLevel, Delivery
from freshline.report.alerts.conditions import moment_text
from freshline.report.table_text import printable
from freshline.values.json import to_json

_WORDS = {
    AlertKind.LATE: "late",
    AlertKind.STUCK: "standing still",
    AlertKind.FAILING: "failing",
    AlertKind.QUARANTINE: "quarantining rows",
    AlertKind.WATERMARK: "standing still in event time",
    AlertKind.LATE_ROWS: "receiving late rows",
    AlertKind.RETAINED: "keeping a database's log",
    AlertKind.SUSPENDED: "suspended",
    AlertKind.CATALOG: "behind",
    AlertKind.ENGINE_SILENT: "silent",
    AlertKind.SCHEDULER_SILENT: "silent",
}


@dataclass(frozen=True)
class Message:
    """The content of one message.

    `id` is the same in every try and through every channel, and of no other event: who gets it twice may drop one.
    `subject` is a table's name, `engine`, `scheduler`, or `catalog` and the name of one. `at` is when it happened,
    `since` when the trouble began.
    `cause` and `project` come from outside: show them as text, never as markup or as part of a header.
    """

    id: str
    event: AlertEvent
    level: AlertLevel
    subject: str
    kind: AlertKind
    cause: str
    since: datetime
    at: datetime
    recovered_at: datetime | None
    link: str | None
    environment: str
    project: str

    @property
    def headline(self) -> str:
        """One line, such as `FAIL: orders is late` or `recovered: orders is not late any more`."""
        state = _WORDS[self.kind]
        if self.event is AlertEvent.RECOVERED:
            return printable(f"recovered: {self.subject} is not {state} any more")
        still = "still " if self.event is AlertEvent.REMINDER else ""
        return printable(f"{self.level}: {self.subject} is {still}{state}")

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines below the headline, without control characters."""
        found = [f"cause: {self.cause}", f"since: {moment_text(self.since)}"]
        if self.recovered_at is not None:
            found.append(f"recovered at: {moment_text(self.recovered_at)}")
        found.append(f"project: {self.project}, environment {self.environment}")
        return tuple(printable(line) for line in found)

    def as_json(self) -> dict[str, Any]:
        """The object that a webhook gets."""
        values = to_json(self)
        subject = values.pop("subject")
        return {**values, "table": None if self.kind in PROCESSES else subject}


def message_of(delivery: Delivery, environment: str, project: str) -> Message:
    """The message of one delivery."""
    alert = delivery.alert
    # Numbers of a control store begin again when it is lost; with its moment an event is never taken for another.
    event = f"{project}/{environment}/{alert.id}/{delivery.event}/{delivery.created_at.isoformat()}"
    recovered = delivery.event is AlertEvent.RECOVERED
    return Message(
        id=hashlib.sha256(event.encode()).hexdigest()[:32],
        event=delivery.event,
        level=alert.level,
        subject=alert.subject,
        kind=alert.kind,
        cause=alert.cause,
        since=alert.since,
        at=delivery.created_at,
        recovered_at=alert.recovered_at if recovered else None,
        link=alert.link,
        environment=environment,
        project=project,
    )
