"""An outbox: the things put into it leave in a thread of its own, and whoever puts them there never waits.

It has room for a bounded number of things. While the other end is away, the oldest are dropped, and the log says once
that it is away and once, with the number that was lost, that it is back. The bodies are made in the thread too, so that
a refresh pays nothing for it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from freshline.errors import DeliveryError

LOG = logging.getLogger(__name__)

MOST = 1_000
LONGEST_PAUSE_SECONDS = 60.0
# The server has read it and does not want it, now or later.
_REFUSED = frozenset((400, 413, 415, 422))


class Outbox:
    """Delivers what is put, one after the other. `name` is that of the other end in the log.

    `deliver` gets what a thing put into it makes, and raises DeliveryError where it does not arrive.
    """

    def __init__(self, name: str, deliver: Callable[[Any], None], *, most: int = MOST) -> None:
        self._name = name
        self._deliver = deliver
        self._most = most
        self._waiting: deque[Callable[[], Any]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._lost = 0
        self._is_away = False
        self._thread = threading.Thread(target=self._run, name=f"outbox-{name}", daemon=True)
        self._thread.start()

    def put(self, make: Callable[[], Any]) -> None:
        """Let what `make` returns leave later."""
        with self._changed:
            if len(self._waiting) >= self._most:
                self._waiting.popleft()
                self._lost += 1
            self._waiting.append(make)
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Deliver what waits, at most so long; the rest is lost."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(max(0.0, deadline - time.monotonic()))

    def _run(self) -> None:
        failures = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting) or self._closed)
                if not self._waiting:
                    return
                make = self._waiting.popleft()
            if self._send(make):
                failures = 0
                continue
            failures += 1
            with self._changed:
                if self._closed:
                    return
                if len(self._waiting) < self._most:
                    self._waiting.appendleft(make)
                else:
                    self._lost += 1
                self._changed.wait_for(lambda: self._closed, min(2.0 ** min(failures - 1, 10), LONGEST_PAUSE_SECONDS))

    def _send(self, make: Callable[[], Any]) -> bool:
        """Whether it needs no other try."""
        try:
            self._deliver(make())
        except DeliveryError as error:
            if error.status in _REFUSED:
                LOG.warning("%s refused one of what was sent, which is left out: %s", self._name, error)
                return True
            if not self._is_away:
                self._is_away = True
                LOG.warning(
                    "%s cannot be reached: %s Up to %d are kept and sent later; refreshes go on.",
                    self._name,
                    error,
                    self._most,
                )
            return False
        except Exception:  # a mistake in one must not keep the others
            LOG.exception("what goes to %s could not be made", self._name)
            return True
        if self._is_away:
            self._is_away = False
            with self._changed:
                lost, self._lost = self._lost, 0
            LOG.info("%s is reached again; %d were lost meanwhile", self._name, lost)
        return True
