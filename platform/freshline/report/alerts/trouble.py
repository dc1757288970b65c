"""The troubles of now, table by table and process by process. Pure: a test may choose any situation.

Lag is seen from outside, every two seconds or so, and a table moves in steps: one of 10 seconds that is refreshed every
9.9 is never late, and its lag reads anything up to 9.9. The begin of a breach is known exactly all the same: it is the
data timestamp plus the promise. So a breach counts as trouble at once, and is ripe to be reported when it is `HOLD`
old: a refresh that took a moment longer than foretold is no alert, and a breach that lasts is reported well within 15
seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from freshline.freshness.alert import AlertKind, AlertLevel
from freshline.report.alerts.cause import failing_cause, late_cause, suspended_above, suspended_cause
from freshline.report.alerts.conditions import (
    ENGINE,
    SCHEDULER,
    AlertSituation,
    CatalogCondition,
    TableCondition,
    Voice,
    WatchedProcess,
    moment_text,
)
from freshline.values.settings import AlertSettings

HOLD = timedelta(seconds=5)
# A broker or a disk that is away for a moment fails one refresh, and the next goes well.
FAILURES_IN_A_ROW = 3
# A metastore that is started again is away for about so long.
CATALOG_HOLD = timedelta(seconds=60)


@dataclass(frozen=True)
class Trouble:
    """One thing that is wrong now; `ripe` when it is to be reported, else it only keeps an open alert open."""

    subject: str
    kind: AlertKind
    level: AlertLevel
    since: datetime
    cause: str
    ripe: bool = True


def find_troubles(situation: AlertSituation, settings: AlertSettings, now: datetime) -> list[Trouble]:
    """Everything that is wrong, processes first; at most one trouble a subject and kind."""
    found = [
        *_silence(ENGINE, AlertKind.ENGINE_SILENT, situation.engine, now),
        *_silence(SCHEDULER, AlertKind.SCHEDULER_SILENT, situation.scheduler, now),
    ]
    found += (_catalog(each, now) for each in situation.catalogs)
    for standing in situation.standings.values():
        found += _lag(standing, situation, now)
        found += _failures(standing)
        found += _quarantine(standing, settings, now)
        found += _late_rows(standing, settings, now)
        found += _watermark(standing, now)
        found += _retained(standing, now)
    return found


def _silence(subject: str, kind: AlertKind, process: WatchedProcess, now: datetime) -> Iterator[Trouble]:
    if process.voice is Voice.SILENT:
        yield Trouble(subject, kind, AlertLevel.FAIL, process.since or now, process.cause)


def _catalog(catalog: CatalogCondition, now: datetime) -> Trouble:
    ripe = catalog.refused or now - catalog.since > CATALOG_HOLD
    return Trouble(f"catalog {catalog.name}", AlertKind.CATALOG, AlertLevel.WARN, catalog.since, catalog.cause, ripe)


def _lag(standing: TableCondition, situation: AlertSituation, now: datetime) -> Iterator[Trouble]:
    name = str(standing.name)
    suspension = standing.suspension
    if suspension is not None:
        level = AlertLevel.FAIL if suspension.automatic else AlertLevel.WARN
        yield Trouble(name, AlertKind.SUSPENDED, level, suspension.at, suspended_cause(suspension))
        return
    since, read_at = standing.late_since, situation.read_at or now
    if since is None or read_at <= since:
        return
    reported_from = standing.reported_from or since
    fails = read_at - reported_from > timedelta(seconds=standing.fail_after - standing.warn_after) + HOLD
    level = AlertLevel.FAIL if fails else AlertLevel.WARN
    left_alone = situation.catching_up_since is not None and since < situation.catching_up_since
    ripe = read_at - reported_from > HOLD and not left_alone
    since = min(reported_from, now)
    blocking = suspended_above(standing.name, situation)
    if blocking is not None and blocking.suspension is not None:
        cause = f"blocked by {blocking.name}, {suspended_cause(blocking.suspension)}"
        yield Trouble(name, AlertKind.SUSPENDED, AlertLevel.WARN, since, cause, ripe)
        return
    if standing.stands_still and standing.failing is None:
        yield Trouble(name, AlertKind.STUCK, level, since, standing.stands_still, ripe)
        return
    yield Trouble(name, AlertKind.LATE, level, since, late_cause(standing.name, situation, now), ripe)


def _failures(standing: TableCondition) -> Iterator[Trouble]:
    failing = standing.failing
    if failing is not None:
        level = AlertLevel.WARN if failing.retry_helps else AlertLevel.FAIL
        ripe = not failing.retry_helps or failing.count >= FAILURES_IN_A_ROW
        yield Trouble(str(standing.name), AlertKind.FAILING, level, failing.since, failing_cause(failing), ripe)


def _quarantine(standing: TableCondition, settings: AlertSettings, now: datetime) -> Iterator[Trouble]:
    rows, rejected = standing.arrivals.rows, standing.arrivals.rejected
    if rows >= settings.quarantine_rows and rejected > settings.quarantine_share * rows:
        cause = (
            f"more than {settings.quarantine_share:.3g} of the rows that arrived within an hour were rejected; "
            f"`freshline quarantine {standing.name}` shows them, with the reason of each"
        )
        yield Trouble(str(standing.name), AlertKind.QUARANTINE, AlertLevel.WARN, now, cause)


def _late_rows(standing: TableCondition, settings: AlertSettings, now: datetime) -> Iterator[Trouble]:
    rows, late = standing.arrivals.rows, standing.arrivals.late
    if standing.late_share is not None and rows >= settings.quarantine_rows and late > standing.late_share * rows:
        cause = (
            f"more than {standing.late_share:.3g} of the rows that arrived within an hour were behind the watermark; "
            "a longer delay in WATERMARK FOR makes fewer rows late"
        )
        yield Trouble(str(standing.name), AlertKind.LATE_ROWS, AlertLevel.WARN, now, cause)


def _watermark(standing: TableCondition, now: datetime) -> Iterator[Trouble]:
    moved_at = standing.watermark_moved_at
    if standing.watermark_after is None or moved_at is None:
        return
    since = moved_at + timedelta(seconds=standing.watermark_after)
    if now <= since:
        return
    stands = "has none yet" if standing.watermark is None else f"stands at {moment_text(standing.watermark)}"
    held = f", held up by {', '.join(standing.watermark_held_by)}" if standing.watermark_held_by else ""
    cause = f"the watermark {stands} since {moment_text(moved_at)}{held}"
    yield Trouble(str(standing.name), AlertKind.WATERMARK, AlertLevel.WARN, since, cause)


def _retained(standing: TableCondition, now: datetime) -> Iterator[Trouble]:
    kept, limit = standing.retained_bytes, standing.retained_above
    if kept is not None and limit is not None and kept > limit:
        cause = (
            f"the database keeps more than {limit // 1024**2} MB of its log until the source has read it; a database "
            "stops when its disk is full"
        )
        yield Trouble(str(standing.name), AlertKind.RETAINED, AlertLevel.WARN, now, cause)
