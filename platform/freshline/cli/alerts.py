"""`freshline alerts`: what is wrong, and what was."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from freshline.cli.failures import name_beside
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.status import untold_alerts
from freshline.freshness.alert import Alert
from freshline.report.table_text import table_text

HEADERS = ("table", "kind", "level", "since", "recovered at", "told", "cause")


@click.command(epilog="\b\nExample:\n  freshline alerts --all")
@click.option("--all", "past", is_flag=True, help="Also list past alerts, the newest first: the last 100.")
@project_option
@json_option
def command(past: bool, project: Path | None, as_json: bool) -> None:
    """List the open alerts with their table, kind, level, start and cause, and the channels that accepted them.

    `freshline watch` raises alerts. Where none is raised, or a channel takes none, the reason stands on stderr.
    `--json` has past alerts too, with the time of their recovery. Starts no process.
    """
    settings = open_settings(project)
    # SQLAlchemy is imported when it is used, like all that is heavy.
    from freshline.commit.control_store import ControlStore

    with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
        alerts = store.alerts.alerts() if past or as_json else store.alerts.open_alerts()
        untold = untold_alerts(settings, store, datetime.now(UTC))
    click.echo(json.dumps([alert_json(alert) for alert in alerts], indent=2) if as_json else alerts_text(alerts, past))
    name_beside(untold)


def alert_json(alert: Alert) -> dict[str, Any]:
    """The object that `freshline alerts --json` prints."""
    return {
        "table": alert.table,
        "kind": str(alert.kind),
        "level": str(alert.level),
        "cause": alert.cause,
        "since": alert.since.isoformat(),
        "raised_at": alert.raised_at.isoformat(),
        "recovered_at": None if alert.recovered_at is None else alert.recovered_at.isoformat(),
        "delivered_to": list(alert.delivered_to),
        "link": alert.link,
    }


def alerts_text(alerts: Sequence[Alert], past: bool) -> str:
    """The alerts as a person reads them."""
    if not alerts:
        return "there were no alerts" if past else "there are no open alerts"
    return table_text(
        HEADERS,
        [
            [
                alert.subject,
                str(alert.kind),
                str(alert.level),
                f"{alert.since:%Y-%m-%d %H:%M:%S}",
                "-" if alert.recovered_at is None else f"{alert.recovered_at:%Y-%m-%d %H:%M:%S}",
                ", ".join(alert.delivered_to) or "-",
                alert.cause,
            ]
            for alert in alerts
        ],
    )
