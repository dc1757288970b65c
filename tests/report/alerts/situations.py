"""Situations for the tests of alerts: tables that stand as a test says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from freshline.freshness.alert import Alert, AlertEvent, AlertKind
from freshline.freshness.intentions import Suspension
from freshline.report.alerts.conditions import AlertSituation, TableCondition, Voice, WatchedProcess
from freshline.report.alerts.evaluate import Evaluation, evaluate
from freshline.report.alerts.history import Failing
from freshline.values.names import TableName
from freshline.values.settings import AlertSettings
from freshline.values.spec import Mode

NOW = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)


def name(text: str) -> TableName:
    return TableName.parse(text)


def table(
    text: str, *reads: str, lag: float | None = 0.0, freshness: int = 10, now: datetime = NOW, **more: Any
) -> TableCondition:
    """A table whose data is `lag` seconds old at `now`; it warns above its freshness and fails above twice that."""
    stamp = None if lag is None else now - timedelta(seconds=lag)
    standing = TableCondition(name(text), Mode.CONTINUOUS, freshness, freshness, 2 * freshness, stamp)
    return replace(standing, driving=tuple(map(name, reads)), **more)


def situation(*tables: TableCondition, **more: Any) -> AlertSituation:
    """Tables in the order of the graph, with an engine that is heard of."""
    return AlertSituation({standing.name: standing for standing in tables}, **more)


def silent(cause: str, since: datetime = NOW) -> WatchedProcess:
    return WatchedProcess(Voice.SILENT, since, cause)


def failing(count: int = 1, *, retry_helps: bool = False, code: str = "QUERY") -> Failing:
    error = {"code": code, "message": "it cannot be.", "where": "assets/x.sql:3", "retry_helps": retry_helps}
    return Failing(count, NOW - timedelta(minutes=3), error)


def suspension(text: str, **more: Any) -> Suspension:
    return Suspension(name(text), "ann", NOW - timedelta(hours=1), **more)


class Ledger:
    """Keeps open alerts from one evaluation to the next, as the control store does, and all that was reported."""

    def __init__(self, settings: AlertSettings | None = None) -> None:
        self.settings = settings or AlertSettings()
        self.open: list[Alert] = []
        self.told: list[tuple[AlertEvent, str, AlertKind]] = []
        self._ids = count(1)

    def check(self, found: AlertSituation, now: datetime) -> list[tuple[AlertEvent, str, AlertKind]]:
        """Evaluate, keep, and return what is reported this time."""
        return self.keep(evaluate(found, self.open, self.settings, now))

    def keep(self, evaluation: Evaluation) -> list[tuple[AlertEvent, str, AlertKind]]:
        changed = [*evaluation.quiet, *(piece.alert for piece in evaluation.news)]
        kept = {alert.id: alert for alert in self.open}
        for alert in changed:
            number = next(self._ids) if alert.id is None else alert.id
            kept[number] = replace(alert, id=number)
        self.open = [alert for alert in kept.values() if alert.recovered_at is None]
        told = [(piece.event, piece.alert.subject, piece.alert.kind) for piece in evaluation.news]
        self.told += told
        return told

    @property
    def causes(self) -> Mapping[tuple[str, AlertKind], str]:
        return {(alert.subject, alert.kind): alert.cause for alert in self.open}


class Clock:
    """Stands until a test moves it, either way."""

    def __init__(self, start: datetime = NOW) -> None:
        self.now = start

    def __call__(self) -> datetime:
        return self.now

    def advance(self, *, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
