"""Couriers: each piece of news reaches each channel, in order, whatever the channel does meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from freshline.commit.control_store import ControlStore
from freshline.commit.control_store.alerts import AlertStore
from freshline.errors import DeliveryError, StorageError
from freshline.freshness.alert import Alert, AlertEvent, AlertKind, AlertLevel, Delivery, News
from freshline.report.alerts.channels.channel import resolver
from freshline.report.alerts.channels.webhook import WebhookChannel
from freshline.report.alerts.delivery import Courier, due_deliveries
from freshline.report.alerts.message import Message, message_of
from tests.report.alerts.servers import WebServer
from tests.report.alerts.situations import NOW, Clock

LATE = Alert("orders", AlertKind.LATE, AlertLevel.WARN, "it waits", NOW, NOW, NOW)


class Memory:
    """A channel that keeps the messages it receives, or refuses them."""

    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[Message] = []
        self.tries = 0
        self.error = error

    def deliver(self, message: Message) -> None:
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.told.append(message)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def alerts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[AlertStore]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").new_database()
    else:
        url = f"sqlite:///{tmp_path / 'control.db'}"
    store = ControlStore.open(url)
    yield store.alerts
    store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock(NOW)


def courier(alerts: AlertStore, channel: object, clock: Clock, name: str = "pager") -> Courier:
    return Courier(name, channel, alerts, lambda d: message_of(d, "local", "shop"), clock, lambda: 0.0)  # type: ignore[arg-type]


def raise_late(alerts: AlertStore, *channels: str, subject: str = "orders") -> None:
    alerts.record([News(AlertEvent.RAISED, replace(LATE, subject=subject))], [], channels or ["pager"], NOW)


def recover(alerts: AlertStore) -> None:
    (kept,) = alerts.open_alerts()
    alerts.record([News(AlertEvent.RECOVERED, replace(kept, recovered_at=NOW))], [], ["pager"], NOW)


def test_news_are_delivered_once_and_in_order(alerts: AlertStore, clock: Clock) -> None:
    channel = Memory()
    found = courier(alerts, channel, clock)
    raise_late(alerts)
    recover(alerts)
    while found.deliver_due():
        pass
    found.deliver_due()

    assert [message.event for message in channel.told] == [AlertEvent.RAISED, AlertEvent.RECOVERED]
    assert len({message.id for message in channel.told}) == 2
    assert alerts.alerts()[0].delivered_to == ("pager",)


def test_a_channel_that_fails_is_left_alone_for_longer_each_time(alerts: AlertStore, clock: Clock) -> None:
    channel = Memory(DeliveryError("it answered 500."))
    found = courier(alerts, channel, clock)
    raise_late(alerts)
    tries = []
    for _ in range(60):
        before = channel.tries
        found.deliver_due()
        if channel.tries > before:
            tries.append((clock() - NOW).total_seconds())
        clock.advance(seconds=1)

    assert tries == [0, 3, 8, 18, 38]


def test_a_channel_that_is_back_gets_what_it_missed(alerts: AlertStore, clock: Clock) -> None:
    channel = Memory(DeliveryError("it answered 500."))
    found = courier(alerts, channel, clock)
    raise_late(alerts)
    recover(alerts)
    found.deliver_due()
    channel.error = None
    clock.advance(seconds=10)
    while found.deliver_due():
        pass

    assert [message.event for message in channel.told] == [AlertEvent.RAISED, AlertEvent.RECOVERED]


def test_that_it_is_over_is_not_reported_before_that_it_began(alerts: AlertStore, clock: Clock) -> None:
    raise_late(alerts)
    recover(alerts)
    first, _ = alerts.pending("pager")
    alerts.failed(first.id, 1, NOW + timedelta(seconds=5), "it answered 500.")

    assert due_deliveries(alerts.pending("pager"), NOW) == []


def test_a_message_that_is_refused_does_not_delay_others(alerts: AlertStore, clock: Clock) -> None:
    class Picky(Memory):
        def deliver(self, message: Message) -> None:
            if message.subject == "orders":
                raise DeliveryError("it answered 400.")
            super().deliver(message)

    channel = Picky()
    found = courier(alerts, channel, clock)
    raise_late(alerts)
    raise_late(alerts, subject="spend")
    found.deliver_due()
    found.deliver_due()

    assert [message.subject for message in channel.told] == ["spend"]


def test_after_a_day_it_is_given_up_with_a_line(
    alerts: AlertStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    found = courier(alerts, Memory(DeliveryError("it answered 500.")), clock)
    raise_late(alerts)
    for _ in range(30):
        found.deliver_due()
        clock.advance(seconds=3600)

    assert alerts.pending("pager") == []
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert errors == [
        "channel pager was not told that orders is late (raised), and is not tried again: it answered 500."
    ]
    # The outage is reported once, not at each try.
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 1


def test_a_message_that_another_try_would_harm_is_given_up_at_once(alerts: AlertStore, clock: Clock) -> None:
    found = courier(alerts, Memory(DeliveryError("one was refused.", final=True)), clock)
    raise_late(alerts)
    found.deliver_due()

    assert alerts.pending("pager") == []


def test_a_channel_of_the_project_may_raise_anything(
    alerts: AlertStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    found = courier(alerts, Memory(RuntimeError("a secret")), clock)
    raise_late(alerts)
    found.deliver_due()

    assert alerts.pending("pager")[0].attempts == 1
    assert ".deliver raised RuntimeError" in caplog.text
    assert "a secret" not in caplog.text


def test_a_clock_that_was_set_back_does_not_delay_a_message(alerts: AlertStore, clock: Clock) -> None:
    channel = Memory(DeliveryError("it answered 500."))
    found = courier(alerts, channel, clock)
    raise_late(alerts)
    found.deliver_due()
    channel.error = None
    clock.advance(seconds=-3600)
    found.deliver_due()

    assert len(channel.told) == 1


def test_the_same_event_has_the_same_id_in_every_try_and_channel(alerts: AlertStore, clock: Clock) -> None:
    one, other = Memory(), Memory()
    raise_late(alerts, "one", "other")
    for _ in range(2):
        # As after a kill between the delivery and its note: it is pending still.
        for delivery in (*alerts.pending("one"), *alerts.pending("other")):
            (one if delivery.channel == "one" else other).deliver(message_of(delivery, "local", "shop"))

    assert len({message.id for message in (*one.told, *other.told)}) == 1


class Forgetful(AlertStore):
    """A store that is away when a delivery is to be noted."""

    def __init__(self, store: AlertStore) -> None:
        super().__init__(store._database)
        self.away = True

    def delivered(self, delivery: int, now: datetime) -> None:
        if self.away:
            raise StorageError("the control store is locked")
        super().delivered(delivery, now)


def test_a_delivery_that_could_not_be_noted_is_not_repeated(alerts: AlertStore, clock: Clock) -> None:
    store, channel = Forgetful(alerts), Memory()
    found = courier(store, channel, clock)
    raise_late(alerts)
    with pytest.raises(StorageError):
        found.deliver_due()
    store.away = False
    found.deliver_due()

    assert len(channel.told) == 1
    assert alerts.pending("pager") == []


class Away(AlertStore):
    """A store that is away for one check."""

    def __init__(self, store: AlertStore, checks: int) -> None:
        super().__init__(store._database)
        self.checks = checks

    def pending(self, channel: str) -> list[Delivery]:
        self.checks -= 1
        if self.checks == 0:
            raise StorageError("the control store is locked")
        return super().pending(channel)


def test_a_courier_checks_again_after_the_store_was_away(
    alerts: AlertStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("freshline.report.alerts.delivery._LOOK_SECONDS", 0.05)
    store, web = Away(alerts, checks=2), Memory()
    arrived = threading.Event()
    monkeypatch.setattr(web, "deliver", lambda message: arrived.set())
    found = courier(store, web, clock)
    found.start()
    try:
        while store.checks > 1:  # it has seen that nothing is pending, and sleeps
            threading.Event().wait(0.01)
        raise_late(alerts)
        found.wake()

        assert arrived.wait(10)
    finally:
        found.stop(10)


class Stuck:
    """A channel that takes no message until it is let go."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()

    def deliver(self, message: Message) -> None:
        self.asked.set()
        self.go_on.wait(30)


def test_a_channel_that_hangs_delays_no_other(alerts: AlertStore, clock: Clock, web: WebServer) -> None:
    stuck = Stuck()
    webhook = WebhookChannel({"url": web.url, "private-addresses": True}, resolver(Path("/"), {}))
    slow, quick = courier(alerts, stuck, clock, "slow"), courier(alerts, webhook, clock, "quick")
    slow.start()
    quick.start()
    try:
        raise_late(alerts, "slow", "quick")
        slow.wake()
        quick.wake()

        assert stuck.asked.wait(10)
        assert web.came.wait(10)
    finally:
        stuck.go_on.set()
        slow.stop(10)
        quick.stop(10)
    assert alerts.open_alerts()[0].delivered_to == ("quick", "slow")


def test_a_server_that_answers_500_is_tried_until_it_does_not(alerts: AlertStore, clock: Clock, web: WebServer) -> None:
    webhook = WebhookChannel({"url": web.url, "private-addresses": True}, resolver(Path("/"), {}))
    found = courier(alerts, webhook, clock)
    raise_late(alerts)
    web.status = 500
    found.deliver_due()
    web.status = 204
    clock.advance(seconds=5)
    found.deliver_due()

    assert len(web.received) == 2
    assert len({received.headers["Freshline-Event"] for received in web.received}) == 1
    assert alerts.open_alerts()[0].delivered_to == ("pager",)


def test_a_delivery_of_an_alert_that_is_forgotten_is_no_delivery() -> None:
    delivery = Delivery(1, "pager", AlertEvent.RAISED, replace(LATE, id=1), NOW, 0, NOW)

    assert due_deliveries([delivery, replace(delivery, id=2)], NOW) == [delivery]
