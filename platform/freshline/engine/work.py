"""The refreshes that are asked for, in the order in which they run (rule 9 of docs/rules.md).

Manual ones before live ones before backfills, each kind in the order in which it was asked; never two of one table at
once. A job that waits for its table does not keep others waiting. Backfills have threads of their own, half as many:
what is live never waits for one to end, unless it is of the same table. Live refreshes that may take long leave one
thread, of two or more, to those that must not wait, whoever asks for them: a scheduler that asks for every batch table
at once stops no continuous one. Manual ones leave it too, while a live one that must not wait is there, and begin with
the tables that must not wait: a person who refreshes a thousand tables stops no continuous one. A job that waits for
something else than its own work may give up its place meanwhile.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field

from freshline.compute.cancellation import Cancellation
from freshline.plan.request import BACKFILL, LIVE, MANUAL, RefreshRequest
from freshline.values.names import TableName
from freshline.values.result import RefreshResult

LOG = logging.getLogger(__name__)

_LOOK_SECONDS = 0.5
_RANKS = {MANUAL: 0, LIVE: 1, BACKFILL: 2}


@dataclass(eq=False)
class Job:
    """One refresh of one table. `outcome` is there when the thread that worked on it has let go of it.

    `asked_at` is when it was asked for, in seconds of the monotonic clock.
    """

    table: TableName
    request: RefreshRequest
    cancellation: Cancellation
    progress: Callable[[str], None]
    outcome: Future[RefreshResult] = field(default_factory=Future)
    asked_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True)
class Places:
    """The number of refreshes at one time: `most`, and `backfills` beside them."""

    most: int
    backfills: int

    def has_room(self, job: Job, running: Iterable[Job], takes_long: Callable[[TableName], bool]) -> bool:
        """Whether a job may begin beside those that are running."""
        others = list(running)
        if job.request.cause == BACKFILL:
            return sum(other.request.cause == BACKFILL for other in others) < self.backfills
        ahead = [other for other in others if other.request.cause != BACKFILL]
        if len(ahead) >= self.most:
            return False
        if job.request.cause != LIVE or not takes_long(job.table):
            return True
        long = sum(other.request.cause == LIVE and takes_long(other.table) for other in ahead)
        return long < max(1, self.most - 1)

    def leave_one_to_live(self, running: Iterable[Job]) -> bool:
        """Whether manual refreshes have all places but the one that live ones may have first."""
        manual = sum(job.request.cause == MANUAL for job in running)
        return self.most > 1 and manual >= self.most - 1


class WorkQueue:
    """A few threads that run jobs, and half as many more (one at least) that backfills have for themselves.

    `refresh` does one; it is called in one thread for one table at a time. `on_outcome` gets each job with its outcome,
    in the thread that did it; a job that raised, which is a mistake in freshline, has none. `takes_long` says which
    tables' live refreshes leave a thread to others.
    """

    def __init__(
        self,
        refresh: Callable[[Job], RefreshResult],
        threads: int,
        on_outcome: Callable[[Job, RefreshResult | None], None],
        takes_long: Callable[[TableName], bool] = lambda table: False,
    ) -> None:
        self._refresh = refresh
        self._on_outcome = on_outcome
        self._takes_long = takes_long
        self._changed = threading.Condition()
        self._waiting: list[tuple[int, int, Job]] = []
        self._running: dict[TableName, Job] = {}
        # Jobs that gave up their places, and those that wait to have them back.
        self._aside: list[Job] = []
        self._returning: list[Job] = []
        self._mine = threading.local()
        self._numbers = itertools.count()
        self._closed = False
        self._places = Places(threads, max(1, threads // 2))
        self._threads: list[threading.Thread] = []
        for _ in range(threads + self._places.backfills):
            self._add_thread()

    def _add_thread(self) -> None:
        thread = threading.Thread(target=self._run, name=f"refresh-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def submit(self, job: Job) -> Job:
        """Let the job run when it is its turn."""
        with self._changed:
            heapq.heappush(self._waiting, (_RANKS[job.request.cause], next(self._numbers), job))
            self._changed.notify_all()
        return job

    @property
    def running(self) -> frozenset[TableName]:
        """The tables that are being refreshed."""
        with self._changed:
            return frozenset(self._running)

    @property
    def waiting(self) -> int:
        """The number of jobs that have not begun."""
        with self._changed:
            return len(self._waiting)

    @property
    def busy(self) -> frozenset[TableName]:
        """The tables that are being refreshed or wait for it, without backfills: live refreshes go before these."""
        with self._changed:
            jobs = [*self._running.values(), *(job for _, _, job in self._waiting)]
            return frozenset(job.table for job in jobs if job.request.cause != BACKFILL)

    @property
    def aside(self) -> frozenset[TableName]:
        """The tables whose refreshes gave up their places for now; they are `running` and `busy` too."""
        with self._changed:
            return frozenset(job.table for job in self._aside)

    @contextmanager
    def giving_way(self) -> Iterator[None]:
        """In the thread of a job: give up its place inside, and wait at the end until it has one again.

        In any other thread nothing happens. A job that is cancelled does not wait.
        """
        job: Job | None = getattr(self._mine, "job", None)
        if job is None:
            yield
            return
        with self._changed:
            self._aside.append(job)
            if len(self._threads) < self._places.most + self._places.backfills + len(self._aside):
                self._add_thread()
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._aside.remove(job)
                self._returning.append(job)
                while not (self._closed or job.cancellation.cancelled or self._may_return(job)):
                    self._changed.wait(_LOOK_SECONDS)
                self._returning.remove(job)
                self._changed.notify_all()

    def _may_return(self, job: Job) -> bool:
        later = self._returning[self._returning.index(job) :]
        others = [other for other in self._running.values() if other not in self._aside and other not in later]
        return self._places.has_room(job, others, self._takes_long)

    def wait_until_idle(self, seconds: float) -> bool:
        """Wait until nothing runs or waits, at most `seconds`; whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._running and not self._waiting, seconds)

    def cancel_all(self) -> None:
        """Cancel everything that runs or waits."""
        with self._changed:
            jobs = [*self._running.values(), *(job for _, _, job in self._waiting)]
        for job in jobs:
            job.cancellation.cancel()

    def close(self, seconds: float) -> None:
        """End the threads; jobs that were not begun are never run."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in list(self._threads):
            thread.join(seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._next() is not None)
                if self._closed:
                    return
                entry = self._next()
                assert entry is not None
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
                job = entry[2]
                self._running[job.table] = job
            self._do(job)

    def _next(self) -> tuple[int, int, Job] | None:
        # Those that wait for their places come before those that have not begun.
        running = [job for job in self._running.values() if job not in self._aside]
        left_to_live = self._places.leave_one_to_live(running)

        def turn(entry: tuple[int, int, Job]) -> tuple[int, bool, int]:
            rank, number, job = entry
            is_long = self._takes_long(job.table)
            if left_to_live and job.request.cause == LIVE and not is_long:
                return (-1, False, number)
            return (rank, is_long and job.request.cause == MANUAL, number)

        free = (
            entry
            for entry in self._waiting
            if entry[2].table not in self._running and self._places.has_room(entry[2], running, self._takes_long)
        )
        return min(free, key=turn, default=None)

    def _do(self, job: Job) -> None:
        outcome: RefreshResult | None = None
        failure: Exception | None = None
        self._mine.job = job
        try:
            outcome = self._refresh(job)
        except Exception as error:
            LOG.exception("the refresh of %s ended in a way that it must not", job.table)
            failure = error
        self._mine.job = None
        with self._changed:
            del self._running[job.table]
            self._changed.notify_all()
        # Reported before the asker gets it: who sees the outcome finds the table's readers woken.
        self._report(job, outcome)
        if outcome is not None:
            job.outcome.set_result(outcome)
        else:
            assert failure is not None
            job.outcome.set_exception(failure)

    def _report(self, job: Job, outcome: RefreshResult | None) -> None:
        try:
            self._on_outcome(job, outcome)
        except Exception:  # the thread must live
            LOG.exception("telling the outcome of %s failed", job.table)
