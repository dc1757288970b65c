"""Cancelling a request: a flag that work reads, and a way to interrupt what is running."""

from __future__ import annotations

import threading
from collections.abc import Callable

from freshline.errors import CancelledError

# How often the use of limited work is inspected; an inspection takes some milliseconds.
LOOK_SECONDS = 5.0


class Cancellation:
    """Shared by the asker and the work. Once `cancel` was called, `check` raises and nothing more is committed."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._interrupts: list[Callable[[], None]] = []

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self) -> None:
        """Set the flag and interrupt running work; calling it again interrupts again."""
        self._event.set()
        with self._lock:
            interrupts = list(self._interrupts)
        for interrupt in interrupts:
            interrupt()

    def on_cancel(self, interrupt: Callable[[], None]) -> None:
        """Register what stops running work; called at once where the request is cancelled already."""
        with self._lock:
            self._interrupts.append(interrupt)
        if self.cancelled:
            interrupt()

    def forget(self, interrupt: Callable[[], None]) -> None:
        """Take back what `on_cancel` registered."""
        with self._lock:
            self._interrupts.remove(interrupt)

    def check(self) -> None:
        """Raise CancelledError when the request was cancelled."""
        if self.cancelled:
            raise CancelledError("the request was cancelled before anything was committed")

    def wait(self, seconds: float) -> bool:
        """Sleep up to `seconds`; True as soon as the request is cancelled."""
        return self._event.wait(seconds)


class Limited(Cancellation):
    """A cancellation that comes with the one it is made from, and by itself when too much was used (None: never).

    It counts while it is entered, from when `count` was called.
    """

    def __init__(self, outer: Cancellation, allowed: float | None, *, every_seconds: float = LOOK_SECONDS) -> None:
        super().__init__()
        self.allowed = allowed
        self.exceeded = False
        self._outer = outer
        self._every_seconds = every_seconds
        self._left = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Limited:
        self._outer.on_cancel(self.cancel)
        return self

    def __exit__(self, *error: object) -> None:
        self._left.set()
        self._outer.forget(self.cancel)

    def count(self, used: Callable[[], float]) -> None:
        """Compare what was used with what is allowed every few seconds, in a thread of its own."""
        if self.allowed is not None:
            self._thread = threading.Thread(target=self._watch, args=(used,), name="limit", daemon=True)
            self._thread.start()

    def _watch(self, used: Callable[[], float]) -> None:
        assert self.allowed is not None
        while not self._left.wait(self._every_seconds):
            if used() > self.allowed and not self._left.is_set():
                self.exceeded = True
                self.cancel()
                return
