"""Why a table is late: the deepest reason that is known, as a sentence.

The decision of a person comes first, then a failure, then a silent process, then a promise that cannot be kept, and
last a mere delay: the reason that must be removed for the others to matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from freshline.freshness.intentions import Suspension
from freshline.report.alerts.conditions import AlertSituation, TableCondition, Voice, moment_text
from freshline.report.alerts.history import Failing
from freshline.report.table_text import duration_text
from freshline.values.names import TableName
from freshline.values.spec import Mode

_LONGEST = 600  # an error may be as long as a query


def drivers(name: TableName, situation: AlertSituation) -> list[TableCondition]:
    """Everything that drives the table, near or far, in the order of the graph."""
    standings = situation.standings
    seen: set[TableName] = set()
    waiting = list(standings[name].driving)
    while waiting:
        other = waiting.pop()
        if other in standings and other not in seen:
            seen.add(other)
            waiting.extend(standings[other].driving)
    return [standings[other] for other in sorted(seen, key=situation.places.__getitem__)]


def suspended_above(name: TableName, situation: AlertSituation) -> TableCondition | None:
    """The suspended table that blocks this one, the nearest to the roots; None where none does."""
    return next((standing for standing in drivers(name, situation) if standing.suspension is not None), None)


def late_cause(name: TableName, situation: AlertSituation, now: datetime) -> str:
    """Why the table is late."""
    own, above = situation.standings[name], drivers(name, situation)
    return (
        _failure_cause(own, above)
        or _process_cause(own, above, situation)
        or _freshness_cause(own, above)
        or _upstream_cause(above, now)
        or _slow_cause(own)
    )


def suspended_cause(suspension: Suspension) -> str:
    """Who suspended it, since when, until when and why."""
    who = "after failures in a row" if suspension.automatic else f"by {suspension.by}"
    until = f", until {moment_text(suspension.until)}" if suspension.until else ""
    why = f": {suspension.reason}" if suspension.reason else ""
    return _short(f"suspended {who} since {moment_text(suspension.at)}{until}{why}")


def failing_cause(failing: Failing) -> str:
    """How often it failed, since when, and the newest error."""
    times = "its newest refresh failed" if failing.count == 1 else f"its {failing.count} newest refreshes failed"
    return _short(f"{times}, since {moment_text(failing.since)}: {error_text(failing.error)}")


def error_text(error: Mapping[str, Any]) -> str:
    """Code, place and sentence of an error on one line."""
    where = f" {error['where']}:" if error.get("where") else ""
    return " ".join(f"{error.get('code', 'FRESHLINE')}{where} {error.get('message', '')}".split())


def _failure_cause(own: TableCondition, above: list[TableCondition]) -> str | None:
    for standing in (own, *above):
        prefix = "" if standing is own else f"it waits for {standing.name}: "
        if standing.unreadable is not None:
            return _short(f"{prefix}its log cannot be read: {error_text(standing.unreadable)}")
        if standing.failing is not None:
            return _short(f"{prefix}{failing_cause(standing.failing)}")
    return None


def _process_cause(own: TableCondition, above: list[TableCondition], situation: AlertSituation) -> str | None:
    if situation.engine.voice is Voice.SILENT:
        return situation.engine.cause
    if situation.engine.voice is Voice.ABSENT:
        return "no engine keeps the tables; `freshline up` or `freshline engine start` starts one"
    for standing in (own, *above):
        prefix = "" if standing is own else f"it waits for {standing.name}, and "
        # The rows that arrive at sources are brought in whatever is switched off.
        if standing.mode in situation.switched_off and not standing.is_source:
            return f"{prefix}the sensor of {standing.mode} tables is switched off in Dagster"
        if standing.mode is Mode.BATCH and not standing.is_source and situation.scheduler.voice is Voice.SILENT:
            return f"{prefix}{situation.scheduler.cause}"
    return None


def _freshness_cause(own: TableCondition, above: list[TableCondition]) -> str | None:
    for standing in (own, *above):
        if standing.infeasible:
            prefix = "" if standing is own else f"it waits for {standing.name}: "
            return _short(f"{prefix}its freshness cannot be kept: {standing.infeasible}")
    return None


def _upstream_cause(above: list[TableCondition], now: datetime) -> str | None:
    for standing in above:
        if standing.data_timestamp is None:
            return f"it waits for {standing.name}, which was never refreshed"
        since = standing.late_since
        if since is not None and since < now:
            return f"it waits for {standing.name}, which is late since {moment_text(since)}"
    return None


def _slow_cause(own: TableCondition) -> str:
    if own.data_timestamp is None:
        return "it was never refreshed"
    took = "" if own.refresh_seconds is None else f"; the newest took {duration_text(own.refresh_seconds)}"
    return f"its refreshes do not fail, and come too late or take too long{took}"


def _short(sentence: str) -> str:
    sentence = " ".join(sentence.split())
    return sentence if len(sentence) <= _LONGEST else f"{sentence[: _LONGEST - 3]}..."
