"""Many keys are asked: so many at once, so many in a second, each again where the system is away for a moment.

An answer is kept by the thread that asked for it, before it asks for another: a kill of the process loses those that
are on their way and no others. A system that is away for long is noticed: when a request has used all of its tries and
none other had an answer meanwhile, each of the others has one try, until one has an answer again.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from freshline.sources.lookups.client import Answer, AwayError, Key, LookupClient

TRIES = 5
FIRST_WAIT, LONGEST_WAIT = 0.2, 30.0
# A service that wants to be left alone for longer has no answer for this refresh.
MOST_ASKED_WAIT = 120.0


class EndedError(Exception):
    """A request that waited for its turn when asking ended."""


@dataclass(frozen=True)
class Limits:
    """How a system is asked: `concurrency` requests at once, and `per_second` of them, None for no limit."""

    concurrency: int
    per_second: int | None = None


@dataclass
class Asking:
    """The state that all requests to one system share. Safe to use in several threads.

    `stop` is asked while a request waits, and raises where nobody wants the answer any more.
    """

    limits: Limits
    stop: Callable[[], None]
    clock: Callable[[], float] = time.monotonic
    _next_turn: float = 0.0
    _resting_until: float = 0.0
    _answered_at: float = 0.0
    _is_away: bool = False
    _stopped: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, client: LookupClient, keys: Sequence[Key]) -> list[Answer]:
        """The answers to keys of one request; all of them failed where the system stayed away. Raises SourceErrors."""
        started = self.clock()
        for tried in range(1, TRIES + 1):
            self._wait_turn()
            try:
                answers = list(client.ask(keys))
            except AwayError as error:
                wanted = error.wait_seconds
                pause = min(LONGEST_WAIT, FIRST_WAIT * 2 ** (tried - 1)) * random.uniform(0.8, 1.2)
                if wanted is not None:
                    pause = max(pause, wanted)
                with self._lock:
                    is_over = tried == TRIES or self._is_away or (wanted or 0) > MOST_ASKED_WAIT
                    if is_over:
                        self._is_away = self._is_away or self._answered_at < started
                    elif wanted is not None:
                        # It is busy for all requests, and not for this one alone.
                        self._resting_until = max(self._resting_until, self.clock() + wanted)
                if is_over:
                    return [Answer(None, f"{error} (asked {tried} times)", away=True)] * len(keys)
                self._pause(pause)
            else:
                if len(answers) != len(keys):
                    raise RuntimeError(f"{type(client).__name__} gave {len(answers)} answers to {len(keys)} keys")
                with self._lock:
                    self._answered_at, self._is_away = self.clock(), False
                return answers
        raise AssertionError("the last try returns")

    def end(self) -> None:
        """Let requests that wait go on no longer."""
        self._stopped.set()

    @property
    def is_ended(self) -> bool:
        """Whether nobody waits for answers any more."""
        return self._stopped.is_set()

    def _wait_turn(self) -> None:
        with self._lock:
            now = self.clock()
            turn = max(now, self._resting_until)
            if self.limits.per_second is not None:
                turn = max(turn, self._next_turn)
                self._next_turn = turn + 1 / self.limits.per_second
        self._pause(turn - now)

    def _pause(self, seconds: float) -> None:
        until = self.clock() + seconds
        while (left := until - self.clock()) > 0:
            self.stop()
            if self._stopped.wait(min(left, 0.2)):
                raise EndedError


def ask_all(
    client: LookupClient,
    keys: Sequence[Key],
    limits: Limits,
    stop: Callable[[], None],
    keep: Callable[[Sequence[tuple[Key, Answer]]], bool],
) -> None:
    """Ask for keys, each once, until all are answered.

    `keep` is given answers as they arrive, in the threads that ask, and says whether more are wanted. `stop` is called
    often, and raises where nobody waits for answers any more. Raises SourceErrors, after requests that were open have
    been answered.
    """
    asking = Asking(limits, stop)
    left, guard = iter(keys), threading.Lock()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while not asking.is_ended:
                with guard:
                    asked = list(islice(left, client.most_keys))
                if not asked:
                    return
                if not keep(list(zip(asked, asking.ask(client, asked), strict=True))):
                    asking.end()
        except EndedError:
            return
        except BaseException as error:  # noqa: BLE001 - it is raised by who waits for the answers
            errors.append(error)
            asking.end()

    many = min(limits.concurrency, -(-len(keys) // client.most_keys))
    threads = [threading.Thread(target=work, name=f"freshline-lookup-{number}", daemon=True) for number in range(many)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            while thread.is_alive():
                thread.join(0.2)
                stop()
    finally:
        asking.end()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
