"""`/metrics`: what a scrape of Prometheus shows of a running engine.

A scrape costs no Spark and reads no table. It shows the status of all tables at the newest check, for which it waits a
moment only. Checks are those of the loops, and those that a scrape begins in a thread of its own: a check of a few
tables ends before the answer, and the next scrape shows one of a thousand. All checks together may take a small part
of one processor. A check that hangs, because a disk or a control store is away, therefore keeps no scrape waiting, and
the time of the newest check shows it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime

import psutil
from py4j.protocol import Py4JError

from freshline.declare.graph import Graph
from freshline.engine.process import ProcessId
from freshline.errors import FreshlineError
from freshline.freshness.alert import Alert
from freshline.report.alerts.conditions import lag_limits
from freshline.report.metrics.counts import Durations, PromiseSeconds, RefreshCounts, strategy_of
from freshline.report.metrics.exposition import Family
from freshline.report.metrics.families import EngineFigures, Heap, ProcessFigures, TableFigures, families_of
from freshline.report.status import TableStatus
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State, kind_of

LOG = logging.getLogger(__name__)

# A scrape waits so long for a check that it began.
WAIT_SECONDS = 0.05
SHORTEST_PAUSE_SECONDS = 1.0
COUNT_SECONDS = 60.0
# Checks may take this part of one processor's time, and those that open logs for counts take the second part.
_LOOK_SHARE = 0.05
_COUNT_SHARE = 0.02


@dataclass(frozen=True)
class Look:
    """The status of all tables at a moment. `begun` and `ended` are seconds of a clock that nobody sets.

    Statuses that are not `counted` have no numbers of rows and files.
    """

    at: datetime
    begun: float
    ended: float
    counted: bool
    statuses: tuple[TableStatus, ...]


@dataclass(frozen=True)
class Activity:
    """The work of the engine at this moment: refreshes that wait and run, open requests by kind, whether loops run."""

    waiting: int
    running: int
    requests: Mapping[str, int]
    loops: bool


@dataclass(frozen=True)
class MetricSources:
    """The parts of the engine that metrics read.

    `look` reads the status of all tables, with counts or without. `activity`, `alerts` and `heap` are called when they
    are shown, the last two with a check. `heap` is None where there is no JVM.
    """

    version: str
    graph: Callable[[], Graph]
    look: Callable[[bool], object]
    activity: Callable[[], Activity]
    alerts: Callable[[], Sequence[Alert]]
    heap: Callable[[], Heap | None]
    engine: ProcessId
    jvm: ProcessId | None


class Metrics:
    """The metrics of one engine. The engine reports each refresh that ended, and each check of the tables."""

    def __init__(self, surroundings: MetricSources, passed: Callable[[], float] = time.monotonic) -> None:
        self._surroundings = surroundings
        self._passed = passed
        self._changed = threading.Condition()
        self._counts: dict[TableName, RefreshCounts] = {}
        self._durations: dict[str, Durations] = {}
        self._kept: dict[TableName, PromiseSeconds] = {}
        self._newest: Look | None = None
        self._counted: Mapping[TableName, TableStatus] = {}
        self._beside = EngineFigures(surroundings.version, False)
        self._is_looking = self._is_closed = False
        self._next_look = self._next_count = passed()
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._trouble = ""

    def close(self) -> None:
        """Begin no more checks; one that runs is left to end."""
        with self._changed:
            self._is_closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    # -- reports of the engine

    def on_outcome(self, name: TableName, outcome: RefreshResult | None) -> None:
        """Count a refresh that ended; without an outcome it failed in a way that it must not."""
        with self._changed:
            self._counts[name] = self._counts.get(name, RefreshCounts()).after(outcome)
            if outcome is not None and outcome.state == State.SUCCEEDED:
                strategy = strategy_of(outcome)
                self._durations[strategy] = self._durations.get(strategy, Durations()).after(outcome.seconds)

    def on_look(self, look: Look) -> None:
        """Take up a check, whoever made it. One that began before the newest one is too old."""
        with self._changed:
            before = self._newest
            if before is not None and look.begun < before.begun:
                return
            seconds = 0.0 if before is None else look.begun - before.begun
            found = {status.table: status for status in look.statuses}
            # Tables that are not declared any more are forgotten, and new ones were not observed before.
            self._kept = {
                name: self._kept[name].after(status, seconds) if name in self._kept else PromiseSeconds()
                for name, status in found.items()
            }
            graph = self._surroundings.graph()
            self._counts = {name: counts for name, counts in self._counts.items() if name in graph}
            if look.counted:
                self._counted = found
            self._newest = look
            self._next_look = max(self._next_look, self._passed() + SHORTEST_PAUSE_SECONDS)
            self._changed.notify_all()

    # -- a scrape

    def families(self) -> tuple[Family, ...]:
        """The metrics now."""
        self._look_if_due()
        activity = self._surroundings.activity()
        graph = self._surroundings.graph()
        with self._changed:
            beside, look = self._beside, self._newest
            tables = self._tables(graph, {} if look is None else {each.table: each for each in look.statuses})
            durations = dict(self._durations)
        return families_of(
            replace(
                beside,
                loops=activity.loops,
                tables=tables,
                looked_at=None if look is None else look.at,
                look_seconds=None if look is None else look.ended - look.begun,
                durations=durations,
                waiting=activity.waiting,
                running=activity.running,
                requests=activity.requests,
                engine=_process_figures(self._surroundings.engine),
                jvm=None if self._surroundings.jvm is None else _process_figures(self._surroundings.jvm),
            )
        )

    def _tables(self, graph: Graph, statuses: Mapping[TableName, TableStatus]) -> tuple[TableFigures, ...]:
        found = []
        for name in graph.order:
            spec, freshness = graph.specs[name], graph.freshness(name).seconds
            warn_after, fail_after = lag_limits(freshness, spec.warn_after_seconds, spec.fail_after_seconds)
            found.append(
                TableFigures(
                    name=str(name),
                    kind=str(kind_of(spec)),
                    mode=str(graph.mode(name)),
                    freshness_seconds=freshness,
                    warn_after=warn_after,
                    fail_after=fail_after,
                    status=statuses.get(name),
                    counted=self._counted.get(name),
                    counts=self._counts.get(name, RefreshCounts()),
                    kept=self._kept.get(name, PromiseSeconds()),
                )
            )
        return tuple(found)

    # -- checks

    def _look_if_due(self) -> None:
        """Begin a check where it is time for one, and wait a moment for the one that runs."""
        with self._changed:
            if not self._is_looking and not self._is_closed and self._passed() >= self._next_look:
                self._is_looking = True
                self._thread.submit(self._look)
            if self._is_looking:
                before = self._newest
                self._changed.wait_for(lambda: self._newest is not before or not self._is_looking, WAIT_SECONDS)

    def _look(self) -> None:
        try:
            began = self._passed()
            self._note_beside()
            self._surroundings.look(False)
            with self._changed:
                self._next_look = self._passed() + self._pause(began, SHORTEST_PAUSE_SECONDS, _LOOK_SHARE)
            if self._passed() >= self._next_count:
                began = self._passed()
                self._surroundings.look(True)
                self._next_count = self._passed() + self._pause(began, COUNT_SECONDS, _COUNT_SHARE)
            self._trouble = ""
        except FreshlineError as error:
            self._note_failure()
            if str(error) != self._trouble:
                self._trouble = str(error)
                LOG.warning("/metrics shows what was known before: %s", error)
        except Exception:  # a mistake in one check must not end all that follow
            self._note_failure()
            LOG.exception("a look for /metrics ended in a way that it must not")
        finally:
            with self._changed:
                self._is_looking = False
                self._changed.notify_all()

    def _pause(self, began: float, shortest: float, share: float) -> float:
        return max(shortest, (self._passed() - began) / share)

    def _note_failure(self) -> None:
        with self._changed:
            self._beside = replace(self._beside, failed_looks=self._beside.failed_looks + 1)
            self._next_look = self._passed() + SHORTEST_PAUSE_SECONDS

    def _note_beside(self) -> None:
        """Note alerts and the heap, which are shown as they are at a check."""
        try:
            heap = self._surroundings.heap()
        except (Py4JError, OSError) as error:
            LOG.debug("the heap of the JVM is not known: %s", error)
            heap = None
        with self._changed:
            self._beside = replace(self._beside, heap=heap)
        alerts = tuple(self._surroundings.alerts())
        with self._changed:
            self._beside = replace(self._beside, alerts=alerts)


def open_by_kind(kinds: Iterable[str], open_requests: Iterable[str]) -> dict[str, int]:
    """The number of open requests of each kind, with 0 for the kinds that have none.

    >>> open_by_kind(["sql", "tick"], ["sql", "sql"])
    {'sql': 2, 'tick': 0}
    """
    counts = Counter(open_requests)
    return {kind: counts[kind] for kind in kinds}


def _process_figures(process: ProcessId) -> ProcessFigures | None:
    """The figures of a process, None where it has ended or the system does not give them."""
    try:
        found = psutil.Process(process.pid)
        with found.oneshot():
            times = found.cpu_times()
            return ProcessFigures(
                cpu_seconds=times.user + times.system,
                resident_bytes=found.memory_info().rss,
                open_files=found.num_fds(),
                started=process.started,
            )
    except (psutil.Error, OSError):
        return None
