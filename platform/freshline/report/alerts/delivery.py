"""Bringing news to channels: each channel has a courier, in a thread of its own.

A message stays in the control store until it was taken or given up, so a courier that is killed loses nothing. It may
bring a message twice when it is killed between the two; the message has the same id then.
A channel that does not take one is left alone for a while, longer each time.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from traceback import format_tb

from freshline.commit.control_store.alerts import AlertStore
from freshline.errors import DeliveryError, FreshlineError
from freshline.freshness.alert import Delivery
from freshline.report.alerts.channels.channel import Channel
from freshline.report.alerts.message import Message

LOG = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 900.0
GIVEN_UP_AFTER = timedelta(days=1)
_LOOK_SECONDS = 2.0
# How often a channel that cannot be opened is tried without a message, and how long its class may take.
_PREPARE_SECONDS, _PATIENCE_SECONDS = 30.0, 10.0


def due_deliveries(pending: Sequence[Delivery], now: datetime) -> list[Delivery]:
    """Those whose time has come, of each alert the earliest only: its end is never reported before its begin."""
    found: dict[int | None, Delivery] = {}
    for delivery in pending:
        found.setdefault(delivery.alert.id, delivery)
    # Further away than the longest pause is nothing but a clock that was set back.
    latest = now + timedelta(seconds=LONGEST_PAUSE_SECONDS)
    return [delivery for delivery in found.values() if delivery.next_at <= now or delivery.next_at > latest]


def pause_seconds(attempts: int, jitter: float) -> float:
    """How long a channel is left alone after so many failed tries of a message; `jitter` is in [0, 1).

    >>> [pause_seconds(attempts, 0.0) for attempts in (1, 2, 3, 99)]
    [2.5, 5.0, 10.0, 450.0]
    """
    longest = min(FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 20), LONGEST_PAUSE_SECONDS)
    return longest * (0.5 + jitter / 2)


class Courier:
    """Brings what is pending for one channel, as long as it runs."""

    def __init__(
        self,
        name: str,
        channel: Channel,
        store: AlertStore,
        message: Callable[[Delivery], Message],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        random_number: Callable[[], float] = random.random,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """`prepare` gets the channel ready, and raises FreshlineError where it cannot be opened yet."""
        self.name = name
        self._channel = channel
        self._store = store
        self._message = message
        self._clock = clock
        self._random_number = random_number
        self._prepare = prepare
        self._trouble: str | None = None
        self._preparing_since: float | None = None
        self._next_at = 0.0  # when it is got ready again
        self._ready = False
        self._raised: set[str] = set()
        self._unwritten: set[int] = set()  # taken by the channel, and the store did not take note of it
        self._stopped = False
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to deliver."""
        self._thread = threading.Thread(target=self._run, name=f"channel {self.name}", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str | None:
        """Why the channel takes no message, by the newest try; None where it took the newest, or none was tried."""
        since = self._preparing_since
        if since is not None and time.monotonic() - since > _PATIENCE_SECONDS:
            return "its class has not loaded yet"
        return self._trouble

    def prepare(self) -> bool:
        """Get the channel ready before there is a message; return whether it is. A trouble is logged once."""
        self._preparing_since = time.monotonic()
        try:
            self._prepare()
        except FreshlineError as error:
            if error.message != self._trouble:
                LOG.error("channel %s cannot be had, and its messages wait: %s", self.name, error.message)
            self._trouble = error.message
        else:
            if self._trouble is not None:
                LOG.info("channel %s can be had again", self.name)
            self._trouble, self._ready = None, True
        finally:
            self._preparing_since, self._next_at = None, time.monotonic() + _PREPARE_SECONDS
        return self._ready

    def wake(self) -> None:
        """There may be news."""
        self._wake.set()

    def stop(self, seconds: float) -> None:
        """Begin no more deliveries and wait for the one under way; one that takes longer is brought again later."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def deliver_due(self) -> int:
        """Bring what is due, up to the first that is not taken; returns how many are still pending.

        Raises StorageError where the control store cannot be used.
        """
        pending = self._store.pending(self.name)
        left = len(pending)
        for delivery in due_deliveries(pending, self._clock()):
            if self._stopped:
                break
            if not self._bring(delivery):
                return left
            left -= 1
        return left

    def _bring(self, delivery: Delivery) -> bool:
        """Try once; return whether the channel may be tried further."""
        if delivery.id not in self._unwritten:
            try:
                self._channel.deliver(self._message(delivery))
            except DeliveryError as error:
                self._failed(delivery, error.message, final=error.final)
                return False
            except Exception as error:  # noqa: BLE001 - a channel of the project may raise anything
                kind = type(self._channel)
                raised = f"{kind.__module__}:{kind.__qualname__}.deliver raised {type(error).__name__}"
                # Once: it is tried again and again. The text of the exception may have a secret in it, and is left out.
                if raised not in self._raised:
                    self._raised.add(raised)
                    LOG.error("channel %s: %s\n%s", self.name, raised, "".join(format_tb(error.__traceback__)))
                self._failed(delivery, raised, final=False)
                return False
            self._unwritten.add(delivery.id)
        self._store.delivered(delivery.id, self._clock())
        self._unwritten.discard(delivery.id)
        if self._trouble is not None:
            LOG.info("channel %s takes messages again", self.name)
            self._trouble = None
        return True

    def _failed(self, delivery: Delivery, sentence: str, *, final: bool) -> None:
        now = self._clock()
        troubled, self._trouble = self._trouble is not None, sentence
        what = f"that {delivery.alert.subject} is {delivery.alert.kind} ({delivery.event})"
        if final or now - delivery.created_at >= GIVEN_UP_AFTER:
            LOG.error("channel %s was not told %s, and is not tried again: %s", self.name, what, sentence)
            self._store.given_up(delivery.id, now, sentence)
            return
        LOG.log(
            logging.DEBUG if troubled else logging.WARNING,
            "channel %s was not told %s, and is tried again: %s",
            self.name,
            what,
            sentence,
        )
        attempts = delivery.attempts + 1
        pause = pause_seconds(attempts, self._random_number())
        self._store.failed(delivery.id, attempts, now + timedelta(seconds=pause), sentence)

    def _run(self) -> None:
        left = 1
        while not self._stopped:
            if not self._ready and time.monotonic() >= self._next_at:
                self.prepare()
            try:
                left = self.deliver_due()
            except FreshlineError as error:
                # The watch reports the store; here it is only waited for. Nobody knows the pending messages until then.
                left = 1
                LOG.debug("channel %s waits for the control store: %s", self.name, error)
            # With nothing pending there is nothing to deliver until there is news.
            pause = None if self._ready else _PREPARE_SECONDS
            self._wake.wait(_LOOK_SECONDS if left else pause)
            self._wake.clear()
