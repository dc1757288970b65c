"""Alerts in the control store: what changed and what is to be reported of it are written together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from freshline.commit.control_store import ControlStore
from freshline.commit.control_store.alerts import AlertStore
from freshline.freshness.alert import Alert, AlertEvent, AlertKind, AlertLevel, News
from freshline.values.names import TableName

NOW = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)
LATE = Alert("orders", AlertKind.LATE, AlertLevel.WARN, "it waits", NOW, NOW, NOW, link="http://127.0.0.1:3000/x")
ORDERS, SPEND = TableName.parse("Orders"), TableName.parse("spend")


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def alerts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AlertStore]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    else:
        url = f"sqlite:///{tmp_path / 'control.db'}"
    store = ControlStore.open(url)
    yield store.alerts
    store.close()


def test_an_alert_is_kept_with_one_delivery_a_channel(alerts: AlertStore) -> None:
    alerts.record([News(AlertEvent.RAISED, LATE)], [], ["log", "pager"], NOW)
    (kept,) = alerts.open_alerts()

    assert replace(kept, id=None) == LATE
    for channel in ("log", "pager"):
        (delivery,) = alerts.pending(channel)
        assert (delivery.event, delivery.alert, delivery.attempts) == (AlertEvent.RAISED, kept, 0)


def test_a_calm_is_kept_without_a_delivery(alerts: AlertStore) -> None:
    alerts.record([News(AlertEvent.RAISED, LATE)], [], [], NOW)
    (kept,) = alerts.open_alerts()
    calm = replace(kept, calm_since=NOW + timedelta(seconds=5))
    alerts.record([], [calm], ["log"], NOW)

    assert alerts.open_alerts() == [calm]
    assert alerts.pending("log") == []


def test_an_alert_that_is_over_is_past_and_says_who_was_informed(alerts: AlertStore) -> None:
    alerts.record([News(AlertEvent.RAISED, LATE)], [], ["log", "pager"], NOW)
    (kept,) = alerts.open_alerts()
    alerts.delivered(alerts.pending("pager")[0].id, NOW)
    alerts.record([News(AlertEvent.RECOVERED, replace(kept, recovered_at=NOW))], [], ["log"], NOW)

    assert alerts.open_alerts() == []
    (past,) = alerts.alerts()
    assert (past.recovered_at, past.delivered_to) == (NOW, ("pager",))
    assert [delivery.event for delivery in alerts.pending("log")] == [AlertEvent.RAISED, AlertEvent.RECOVERED]


def test_a_delivery_that_was_not_taken_stays_pending_until_it_is_given_up(alerts: AlertStore) -> None:
    alerts.record([News(AlertEvent.RAISED, LATE)], [], ["pager"], NOW)
    number = alerts.pending("pager")[0].id
    again = NOW + timedelta(seconds=5)
    alerts.failed(number, 1, again, "it answered 500")
    (delivery,) = alerts.pending("pager")
    assert (delivery.attempts, delivery.next_at) == (1, again)

    alerts.given_up(number, NOW, "it answered 500")
    assert alerts.pending("pager") == []
    assert alerts.open_alerts()[0].delivered_to == ()


def test_a_table_without_data_is_waited_for_from_the_first_check_on(alerts: AlertStore) -> None:
    assert alerts.awaited([ORDERS], NOW) == {ORDERS: NOW}
    later = NOW + timedelta(hours=1)
    assert alerts.awaited([TableName.parse("orders"), SPEND], later) == {ORDERS: NOW, SPEND: later}


def test_a_table_that_got_data_and_lost_it_is_waited_for_anew(alerts: AlertStore) -> None:
    alerts.awaited([ORDERS], NOW)
    alerts.awaited([], NOW)
    later = NOW + timedelta(hours=1)

    assert alerts.awaited([ORDERS], later) == {ORDERS: later}
