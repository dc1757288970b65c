"""The process of `freshline watch`: one check after the other, until it is asked to end.

One watch checks an environment at a time: it holds the heartbeat `watch` as a lease. A second one says who has it and
ends, and takes over from one whose process is gone or that was not heard of for 15 seconds. While the control store is
locked or away nothing can be known or written: that is said once, and the next check that succeeds goes on from there.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.errors import EngineError, StorageError
from freshline.freshness.alert import Delivery, News
from freshline.freshness.record import Heartbeat
from freshline.report.alerts.channels.configured import ConfiguredChannel, open_channels
from freshline.report.alerts.conditions import moment_text
from freshline.report.alerts.delivery import Courier
from freshline.report.alerts.message import Message, message_of
from freshline.report.alerts.watch import Watch, WatchSurroundings
from freshline.report.alerts.watch_health import CHANNELS, WATCH
from freshline.values.settings import Settings

LOG = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
HELD = timedelta(seconds=15)
_STOP_SECONDS = 5.0


@dataclass(frozen=True)
class Identity:
    """Who watches: `detail` has at least `pid` and `host`; `is_gone` says by such a detail that its process ended."""

    detail: Mapping[str, Any]
    is_gone: Callable[[Mapping[str, Any]], bool]


def run(settings: Settings, surroundings: WatchSurroundings, identity: Identity, over: threading.Event) -> None:
    """Check and send messages until `over` is set.

    A channel that cannot be opened is logged and named in the heartbeat, while the others go on. Raises EngineError
    where another watch has the environment, and FormatError for a control store of a newer freshline.
    """
    channels = open_channels(settings)
    store = _open_store(settings, over)
    if store is None:
        return
    lease = Lease(store, identity)
    couriers = _couriers(settings, store, channels)
    try:
        watch = _watch(settings, surroundings, store, stays=True)
        _check_on(watch, lease, couriers, over)
    finally:
        deadline = time.monotonic() + _STOP_SECONDS
        for courier in couriers:
            courier.stop(0.0)
        for courier in couriers:
            courier.stop(max(0.0, deadline - time.monotonic()))
        lease.release()
        store.close()


@dataclass(frozen=True)
class Checked:
    """The result of one check: the messages, and the channels that cannot be opened with the reason of each."""

    messages: tuple[Message, ...]
    missing: Mapping[str, str]


def check_once(settings: Settings, surroundings: WatchSurroundings, identity: Identity) -> Checked:
    """Check once, and try every pending message once.

    Raises as `run` does, and StorageError where the control store cannot be used.
    """
    channels = open_channels(settings)
    store = ControlStore.open(settings.control_store, settings.umask)
    lease = Lease(store, identity)
    try:
        lease.renew()
        found = _watch(settings, surroundings, store, stays=False).check()
        missing = {}
        for courier in _couriers(settings, store, channels):
            if not courier.prepare():
                missing[courier.name] = courier.trouble or ""
            before = None
            while (left := courier.deliver_due()) and left != before:
                before = left
        return Checked(tuple(_message(settings, _as_reported(piece)) for piece in found.news), missing)
    finally:
        lease.release()
        store.close()


class Lease:
    """The right to watch, which one process an environment has."""

    def __init__(self, store: ControlStore, identity: Identity) -> None:
        self._store = store
        self._owner = secrets.token_hex(8)
        self._identity = identity
        self._held = False

    def renew(self, channels: Mapping[str, str] | None = None) -> None:
        """Take or renew it, and say which channels take no message and why.

        Raises EngineError, which names the holder, where somebody else has it.
        """
        identity = self._identity
        holder = self._store.heartbeats.take(
            WATCH,
            self._owner,
            datetime.now(UTC),
            {**identity.detail, CHANNELS: dict(channels or {})},
            held=HELD,
            renewing=self._held,
            is_gone=lambda known: identity.is_gone(known.detail),
        )
        if holder is not None:
            raise EngineError(f"{_who(holder)}. One looks at an environment at a time: use that one, or end it.")
        self._held = True

    def release(self) -> None:
        """Give it back; another that waits need not wait for longer."""
        try:
            self._store.heartbeats.release(WATCH, self._owner)
        except StorageError as error:
            LOG.warning("the next watch has to wait for %.0f seconds: %s", HELD.total_seconds(), error)


def _who(holder: Heartbeat) -> str:
    process, host = holder.detail.get("pid"), holder.detail.get("host")
    return f"freshline watch runs already: process {process} on {host}, last heard of {moment_text(holder.at)}"


def _check_on(watch: Watch, lease: Lease, couriers: Collection[Courier], over: threading.Event) -> None:
    trouble: str | None = None
    begun = False
    while not over.is_set():
        begin = time.monotonic()
        try:
            lease.renew({each.name: each.trouble for each in couriers if each.trouble is not None})
            if not begun:
                begun = True
                LOG.info("watching")
                # Not before the lease is taken: another watch that has it sends the same messages.
                for courier in couriers:
                    courier.start()
            found = watch.check()
            if trouble is not None:
                LOG.info("watching again")
                trouble = None
            if found.news:
                for courier in couriers:
                    courier.wake()
        except (StorageError, OSError) as error:
            watch.could_not_check()
            # Once, not every two seconds: it may last for hours.
            if trouble is None:
                LOG.error("nothing can be watched for now: %s", error)
            trouble = str(error)
        over.wait(max(0.0, LOOK_SECONDS - (time.monotonic() - begin)))


def _open_store(settings: Settings, over: threading.Event) -> ControlStore | None:
    """The control store as soon as it can be opened, None when that was not worth waiting for any more."""
    told = False
    while not over.is_set():
        try:
            return ControlStore.open(settings.control_store, settings.umask)
        except StorageError as error:
            if not told:
                LOG.error("nothing can be watched for now: %s", error)
                told = True
            over.wait(LOOK_SECONDS)
    return None


def _watch(settings: Settings, surroundings: WatchSurroundings, store: ControlStore, *, stays: bool) -> Watch:
    warehouse = Warehouse(settings.warehouse)
    return Watch(
        store, warehouse, settings.alerts, surroundings, lambda: datetime.now(UTC), time.monotonic, stays=stays
    )


def _couriers(settings: Settings, store: ControlStore, channels: Mapping[str, ConfiguredChannel]) -> list[Courier]:
    return [
        Courier(name, channel, store.alerts, partial(_message, settings), prepare=channel.open)
        for name, channel in channels.items()
    ]


def _message(settings: Settings, delivery: Delivery) -> Message:
    return message_of(delivery, settings.environment, settings.root.name)


def _as_reported(news: News) -> Delivery:
    """The news as channels get it, with the time at which it happened."""
    at = news.alert.recovered_at or news.alert.reminded_at
    return Delivery(0, "", news.event, news.alert, at, 0, at)
