"""From the troubles of now and the open alerts to the news that are to be sent (rule 16 of docs/rules.md).

State-based: an alert is open from the news that raised it to the news that it is over, one a subject and kind. Each of
RAISED, WORSENED and RECOVERED is sent once; while it stays open, a REMINDER comes every so often. Pure: the same
arguments give the same news, and whoever stores them together with the alerts may be killed at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from freshline.freshness.alert import PROCESSES, Alert, AlertEvent, AlertKind, AlertLevel, News
from freshline.report.alerts.conditions import AlertSituation, Voice
from freshline.report.alerts.trouble import Trouble, find_troubles
from freshline.values.settings import AlertSettings

# How long a trouble must be away before it is over, where the table does not say otherwise.
CALM_SECONDS: Mapping[AlertKind, float] = {
    AlertKind.FAILING: 30.0,
    AlertKind.QUARANTINE: 300.0,
    AlertKind.WATERMARK: 0.0,
    AlertKind.LATE_ROWS: 300.0,
    AlertKind.RETAINED: 60.0,
    AlertKind.SUSPENDED: 0.0,
    AlertKind.CATALOG: 0.0,
    AlertKind.ENGINE_SILENT: 10.0,
    AlertKind.SCHEDULER_SILENT: 10.0,
}
SHORTEST_CALM_SECONDS, LONGEST_CALM_SECONDS = 10.0, 300.0
# The time that a resumed table gets, at least and at most, to become fresh again before it counts as late.
SHORTEST_GRACE_SECONDS, LONGEST_GRACE_SECONDS = 60.0, 600.0

# A table that is late is one of these.
_LAG_KINDS = (AlertKind.LATE, AlertKind.STUCK)

Key = tuple[str, AlertKind]


@dataclass(frozen=True)
class Evaluation:
    """The news that are to be sent, and the alerts that changed without news (another cause, another link, a calm)."""

    news: tuple[News, ...] = ()
    quiet: tuple[Alert, ...] = ()


def evaluate(
    situation: AlertSituation,
    open_alerts: Sequence[Alert],
    settings: AlertSettings,
    now: datetime,
    link: Callable[[str], str | None] = lambda _: None,
) -> Evaluation:
    """Compare what is wrong with the open alerts; `link` gives the page of a subject."""
    troubles = {(trouble.subject, trouble.kind): trouble for trouble in find_troubles(situation, settings, now)}
    freshness = {str(name): standing.freshness_seconds for name, standing in situation.standings.items()}
    voices = {AlertKind.ENGINE_SILENT: situation.engine.voice, AlertKind.SCHEDULER_SILENT: situation.scheduler.voice}
    undecided = {kind for kind, voice in voices.items() if voice is Voice.UNKNOWN}
    # Whether these are over will be seen: until then they are as they were.
    decided = [alert for alert in open_alerts if alert.kind not in undecided]
    return compare(troubles, decided, freshness, settings, now, link)


def compare(
    troubles: Mapping[Key, Trouble],
    open_alerts: Sequence[Alert],
    freshness: Mapping[str, int],
    settings: AlertSettings,
    now: datetime,
    link: Callable[[str], str | None] = lambda _: None,
) -> Evaluation:
    """The news, from troubles by subject and kind. `freshness` has the seconds of every table that is declared."""
    news: list[News] = []
    quiet: list[Alert] = []
    alerts = {(alert.subject, alert.kind): alert for alert in open_alerts}
    graced: set[str] = set()
    for key, alert in alerts.items():
        trouble = troubles.get(key)
        if trouble is not None:
            _keep(alert, trouble, settings, now, link(alert.subject), news, quiet)
        elif _is_replaced(alert, troubles, freshness, now):
            quiet.append(replace(alert, recovered_at=now))
        elif alert.kind is AlertKind.SUSPENDED and any((alert.subject, kind) in troubles for kind in _LAG_KINDS):
            # It was resumed and has yet to catch up: that is no new trouble.
            graced.add(alert.subject)
            _calm(alert, now, quiet)
        elif _is_over(alert, freshness, now):
            news.append(News(AlertEvent.RECOVERED, replace(alert, recovered_at=now)))
        else:
            _calm(alert, now, quiet)
    for key, trouble in troubles.items():
        late_in_grace = trouble.kind in _LAG_KINDS and trouble.subject in graced
        if key not in alerts and trouble.ripe and not late_in_grace:
            raised = Alert(
                trouble.subject,
                trouble.kind,
                trouble.level,
                trouble.cause,
                since=min(trouble.since, now),
                raised_at=now,
                reminded_at=now,
                link=link(trouble.subject),
            )
            news.append(News(AlertEvent.RAISED, raised))
    return Evaluation(tuple(news), tuple(quiet))


def _keep(
    alert: Alert,
    trouble: Trouble,
    settings: AlertSettings,
    now: datetime,
    link: str | None,
    news: list[News],
    quiet: list[Alert],
) -> None:
    worse = trouble.ripe and alert.level is AlertLevel.WARN and trouble.level is AlertLevel.FAIL
    # The worst that it has been: a level that falls and rises again would be reported each time.
    level = AlertLevel.FAIL if worse else alert.level
    kept = replace(alert, level=level, cause=trouble.cause, link=link or alert.link, calm_since=None)
    if worse:
        news.append(News(AlertEvent.WORSENED, replace(kept, reminded_at=now)))
    elif now - alert.reminded_at >= timedelta(seconds=settings.remind_after_seconds):
        news.append(News(AlertEvent.REMINDER, replace(kept, reminded_at=now)))
    elif kept != alert:
        quiet.append(kept)


def _is_replaced(alert: Alert, troubles: Mapping[Key, Trouble], freshness: Mapping[str, int], now: datetime) -> bool:
    """Whether the same lag has another name now.

    A late table was suspended or stands still, one that stood still is only late, or one that was resumed stays late.
    """
    if alert.kind in _LAG_KINDS:
        others = (troubles.get((alert.subject, kind)) for kind in (AlertKind.SUSPENDED, *_LAG_KINDS))
        return any(other is not None and other.ripe for other in others)
    if alert.kind is AlertKind.SUSPENDED and alert.calm_since is not None:
        late = (troubles.get((alert.subject, kind)) for kind in _LAG_KINDS)
        own = freshness.get(alert.subject, 0)
        grace = min(max(own, SHORTEST_GRACE_SECONDS), LONGEST_GRACE_SECONDS)
        is_ripe = any(trouble is not None and trouble.ripe for trouble in late)
        return is_ripe and now - alert.calm_since >= timedelta(seconds=grace)
    return False


def _is_over(alert: Alert, freshness: Mapping[str, int], now: datetime) -> bool:
    if alert.kind in PROCESSES or alert.subject in freshness:
        seconds = CALM_SECONDS.get(alert.kind, calm_seconds(freshness.get(alert.subject, 0)))
        return now - (alert.calm_since or now) >= timedelta(seconds=seconds)
    return True  # it is not declared any more


def _calm(alert: Alert, now: datetime, quiet: list[Alert]) -> None:
    if alert.calm_since is None:
        quiet.append(replace(alert, calm_since=now))


def calm_seconds(freshness: int) -> float:
    """How long a late table must keep its promise before it is no longer late.

    A table that breaks its promise in each cycle keeps it, in between, for less than its freshness: its lag falls to
    something above nothing and grows from there. Only a table that has recovered keeps it for a whole freshness.
    """
    return min(max(float(freshness), SHORTEST_CALM_SECONDS), LONGEST_CALM_SECONDS)
