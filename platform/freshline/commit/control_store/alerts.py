"""Alerts and their deliveries, in the control store.

An alert's change and its deliveries are one transaction: each change is delivered, also when its sender died in
between.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, and_, delete, insert, or_, select, update

from freshline.commit.control_rows import key_of, text_of, text_or_none, time_of, time_or_none
from freshline.commit.control_store.database import Database, put
from freshline.commit.control_store.schema import ALERTS, AWAITED, DELIVERIES
from freshline.freshness.alert import Alert, AlertEvent, AlertKind, AlertLevel, Delivery, News
from freshline.values.names import TableName

KEPT_ALERTS = 1000


class AlertStore:
    """The alerts of one environment."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open_alerts(self) -> list[Alert]:
        """Alerts that have not recovered, the oldest first."""
        return self._read(ALERTS.c.recovered_at.is_(None), newest_first=False)

    def alerts(self, limit: int = 100) -> list[Alert]:
        """The newest alerts and all that are open, the newest first."""
        newest = select(ALERTS.c.id).order_by(ALERTS.c.id.desc()).limit(limit)
        wanted = or_(ALERTS.c.recovered_at.is_(None), ALERTS.c.id.in_(newest))
        return self._read(wanted, newest_first=True)

    def record(
        self, news: Sequence[News], quiet: Sequence[Alert], channels: Sequence[str], now: datetime
    ) -> list[News]:
        """Write what changed, with one delivery a piece of news and channel; returns the news with their numbers.

        `quiet` are open alerts whose cause or link changed without news.
        """
        stored: list[News] = []
        if not news and not quiet:
            return stored
        with self._database.write() as connection:
            for alert in quiet:
                connection.execute(update(ALERTS).where(ALERTS.c.id == alert.id).values(**_values(alert)))
            for piece in news:
                alert = piece.alert
                if alert.id is None:
                    alert_id = connection.execute(insert(ALERTS).values(**_values(alert))).inserted_primary_key
                    assert alert_id is not None
                    number = int(alert_id[0])
                else:
                    number = alert.id
                    connection.execute(update(ALERTS).where(ALERTS.c.id == number).values(**_values(alert)))
                stored.append(replace(piece, alert=replace(alert, id=number)))
                for channel in channels:
                    connection.execute(
                        insert(DELIVERIES).values(
                            alert_id=number,
                            channel=channel,
                            event=str(piece.event),
                            created_at=text_of(now),
                            attempts=0,
                            next_at=text_of(now),
                        )
                    )
            self._forget_old(connection)
        return stored

    def awaited(self, without_data: Collection[TableName], now: datetime) -> dict[TableName, datetime]:
        """The time since when each of the tables without data is awaited; `now` for one that is new here.

        A table that is not among them has data, or is not declared any more, and is forgotten.
        """
        wanted = {key_of(name): name for name in without_data}
        with self._database.read() as connection:
            known = {row["key"]: time_of(row["at"]) for row in connection.execute(select(AWAITED)).mappings()}
        if known.keys() != wanted.keys():
            with self._database.write() as connection:
                for key in known.keys() - wanted.keys():
                    connection.execute(delete(AWAITED).where(AWAITED.c.key == key))
                for key in wanted.keys() - known.keys():
                    put(connection, AWAITED, key=key, name=str(wanted[key]), at=text_of(now))
        return {name: known.get(key, now) for key, name in wanted.items()}

    def pending(self, channel: str) -> list[Delivery]:
        """The deliveries that a channel has not taken yet, in the order in which they happened."""
        statement = (
            select(DELIVERIES)
            .where(
                and_(
                    DELIVERIES.c.channel == channel,
                    DELIVERIES.c.delivered_at.is_(None),
                    DELIVERIES.c.given_up_at.is_(None),
                )
            )
            .order_by(DELIVERIES.c.id)
        )
        with self._database.read() as connection:
            rows = connection.execute(statement).mappings().all()
            wanted = {row["alert_id"] for row in rows}
            alerts = {
                row["id"]: _alert(row, ())
                for row in connection.execute(select(ALERTS).where(ALERTS.c.id.in_(wanted))).mappings()
            }
        return [
            Delivery(
                row["id"],
                row["channel"],
                AlertEvent(row["event"]),
                alerts[row["alert_id"]],
                time_of(row["created_at"]),
                row["attempts"],
                time_of(row["next_at"]),
            )
            for row in rows
            # An alert that was forgotten between the two statements has nothing left to deliver.
            if row["alert_id"] in alerts
        ]

    def delivered(self, delivery: int, now: datetime) -> None:
        """Note that the channel took a delivery."""
        self._update(delivery, delivered_at=text_of(now), error=None)

    def failed(self, delivery: int, attempts: int, next_at: datetime, error: str) -> None:
        """Note that the channel did not take a delivery, which is tried again at `next_at`."""
        self._update(delivery, attempts=attempts, next_at=text_of(next_at), error=error)

    def given_up(self, delivery: int, now: datetime, error: str) -> None:
        """Note that a delivery is not tried again."""
        self._update(delivery, given_up_at=text_of(now), error=error)

    def _update(self, delivery: int, **values: Any) -> None:
        with self._database.write() as connection:
            connection.execute(update(DELIVERIES).where(DELIVERIES.c.id == delivery).values(**values))

    def _read(self, condition: Any, *, newest_first: bool) -> list[Alert]:
        statement = select(ALERTS).where(condition).order_by(ALERTS.c.id.desc() if newest_first else ALERTS.c.id)
        with self._database.read() as connection:
            rows = connection.execute(statement).mappings().all()
            taken = connection.execute(
                select(DELIVERIES.c.alert_id, DELIVERIES.c.channel)
                .where(
                    and_(DELIVERIES.c.alert_id.in_([row["id"] for row in rows]), DELIVERIES.c.delivered_at.is_not(None))
                )
                .distinct()
            ).all()
        channels: dict[int, list[str]] = {}
        for alert_id, channel in taken:
            channels.setdefault(alert_id, []).append(channel)
        return [_alert(row, tuple(sorted(channels.get(row["id"], ())))) for row in rows]

    @staticmethod
    def _forget_old(connection: Any) -> None:
        oldest = (
            select(ALERTS.c.id)
            .where(ALERTS.c.recovered_at.is_not(None))
            .order_by(ALERTS.c.id.desc())
            .offset(KEPT_ALERTS)
            .limit(1)
        )
        found = connection.execute(oldest).scalar()
        if found is not None:
            gone = and_(ALERTS.c.id <= found, ALERTS.c.recovered_at.is_not(None))
            connection.execute(delete(DELIVERIES).where(DELIVERIES.c.alert_id.in_(select(ALERTS.c.id).where(gone))))
            connection.execute(delete(ALERTS).where(gone))


def _values(alert: Alert) -> dict[str, Any]:
    return {
        "subject": alert.subject,
        "kind": str(alert.kind),
        "level": str(alert.level),
        "cause": alert.cause,
        "since": text_of(alert.since),
        "raised_at": text_of(alert.raised_at),
        "reminded_at": text_of(alert.reminded_at),
        "calm_since": text_or_none(alert.calm_since),
        "recovered_at": text_or_none(alert.recovered_at),
        "link": alert.link,
    }


def _alert(row: RowMapping, delivered_to: tuple[str, ...]) -> Alert:
    return Alert(
        subject=row["subject"],
        kind=AlertKind(row["kind"]),
        level=AlertLevel(row["level"]),
        cause=row["cause"],
        since=time_of(row["since"]),
        raised_at=time_of(row["raised_at"]),
        reminded_at=time_of(row["reminded_at"]),
        calm_since=time_or_none(row["calm_since"]),
        recovered_at=time_or_none(row["recovered_at"]),
        link=row["link"],
        id=row["id"],
        delivered_to=delivered_to,
    )
