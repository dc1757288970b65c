"""Connections of a client that several threads use, each by one of them at a time.

The threads that ask for keys end with their refresh. A connection that belonged to one of them would stay open, and the
next refresh would open as many again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

C = TypeVar("C")


class Connections(Generic[C]):
    """As many connections as are used at once. They stay open between uses. Safe to use in several threads."""

    def __init__(self, make: Callable[[], C], close: Callable[[C], None]) -> None:
        self._make, self._close = make, close
        self._resting: list[C] = []
        self._used: list[C] = []
        self._guard = threading.Lock()

    def take(self, *, new: bool = False) -> tuple[C, bool]:
        """One that rests, or else one that is made now, and whether it was; with `new` always the latter."""
        with self._guard:
            if self._resting and not new:
                found = self._resting.pop()
                self._used.append(found)
                return found, False
        made = self._make()
        with self._guard:
            self._used.append(made)
        return made, True

    def give_back(self, connection: C) -> None:
        """Let the next one use it."""
        with self._guard:
            if self._leaves(connection):
                self._resting.append(connection)

    def end(self, connection: C) -> None:
        """Close one that is of no use any more."""
        with self._guard:
            self._leaves(connection)
        self._close(connection)

    def close(self) -> None:
        """Close all of them, also those that are used now."""
        with self._guard:
            every = [*self._resting, *self._used]
            self._resting.clear()
            self._used.clear()
        for connection in every:
            self._close(connection)

    def _leaves(self, connection: C) -> bool:
        """Whether it was in use, which it is no more; one that was closed meanwhile was not."""
        for at, used in enumerate(self._used):
            if used is connection:
                del self._used[at]
                return True
        return False
