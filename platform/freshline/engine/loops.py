"""The loops, which keep the tables by their modes while nobody asks for it (rule 3 of docs/rules.md).

One thread decides, the threads of `WorkQueue` do. A table is wished for because an input of it has a new version
(continuous), or because it is due (all modes), or because one that is due depends on it. A source that is watched is
wished for every second or so. `freshness/schedule.py` decides which wish is fulfilled when. A failed refresh waits
longer each time before it is tried again, and never ends the loops.

Every step follows the decisions about tables: other freshnesses are a new graph, which is taken up without a restart,
and suspended tables are left alone with those below. A refresh that runs is left to end at its commit. The next one
begins from the newest receipt, in whichever mode the table is then, so that no row is lost or repeated.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from freshline.commit.delta_log import read_newest
from freshline.compute.cancellation import Cancellation
from freshline.declare.graph import Graph
from freshline.engine.effective_graph import EffectiveGraph
from freshline.engine.metrics import Look
from freshline.engine.work import Job, WorkQueue
from freshline.errors import DefinitionChangedError, FreshlineError
from freshline.freshness.alter import decide_suspension
from freshline.freshness.due import due_tables, next_due, poll_seconds, with_driving
from freshline.freshness.exclusion import TableExclusion, intended_exclusions
from freshline.freshness.failures import count_failure, is_to_suspend, suspension_reason
from freshline.freshness.schedule import DUE, POLLED, WOKEN, Schedule
from freshline.manage.decide import IntentionWriter
from freshline.plan.request import BACKFILL, LIVE, RefreshRequest
from freshline.report.status import RowCounts, TableStatus, read_status
from freshline.run import Runtime
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from freshline.values.spec import Mode, SourceSpec

LOG = logging.getLogger(__name__)

LONGEST_PAUSE_SECONDS = 60.0
ENGINE = "engine"
FRESHLINE = "freshline"
_BEAT_SECONDS = 2.0
_LOOK_SECONDS = 2.0
_STEP_SECONDS = 0.25
# Reading every log costs about a millisecond a table: it may take this part of one processor's time. It is done when
# the first table becomes due, or after a while for changes that nobody here knows of: another process, another clock.
_STATUS_SHARE = 0.05
_STATUS_SECONDS = 30.0


@dataclass
class Failures:
    """Failures of one table in a row, and when it may be tried again (monotonic seconds)."""

    count: int = 0
    again_at: float = 0.0
    message: str = ""

    def add(self, message: str, now: float, jitter: float) -> float:
        """Note one more; returns the pause in seconds. `jitter` is in [0, 1)."""
        self.count += 1
        self.message = message
        pause = min(LONGEST_PAUSE_SECONDS, 2.0 ** min(self.count - 1, 10)) * (0.5 + jitter / 2)
        self.again_at = now + pause
        return pause


@dataclass
class _Memory:
    """The knowledge of the loops about the graph in force.

    `seconds` are the seconds that refreshes may take, by which tables are due; `measured` those that they surely take,
    by which promises are judged.
    """

    graph: Graph
    schedule: Schedule
    polled_at: dict[TableName, float] = field(default_factory=dict)
    due_again_at: dict[TableName, float] = field(default_factory=dict)
    seconds: dict[TableName, float] = field(default_factory=dict)
    measured: dict[TableName, float] = field(default_factory=dict)
    failures: dict[TableName, Failures] = field(default_factory=dict)
    versions: dict[TableName, int | None] = field(default_factory=dict)
    held: Mapping[TableName, TableExclusion] = field(default_factory=dict)


class Loops:
    """Keeps the tables of one engine. `on_outcome` must get the outcome of every refresh, whoever asked for it.

    `on_look` is called with each check of all tables.
    """

    def __init__(
        self,
        runtime: Runtime,
        effective_graph: EffectiveGraph,
        work: WorkQueue,
        random_number: Callable[[], float] = random.random,
        on_look: Callable[[Look], None] = lambda _: None,
    ) -> None:
        self._runtime = runtime
        self._effective_graph = effective_graph
        self._work = work
        self._random_number = random_number
        self._on_look = on_look
        self._rows = RowCounts()
        self._lock = threading.RLock()
        self._wake = threading.Condition(self._lock)
        self._memory = _Memory(effective_graph.graph, Schedule(effective_graph.graph), held=effective_graph.held)
        self._on = False
        self._thread: threading.Thread | None = None
        self._looked_at = 0.0
        # The next check of all ages, whatever they are, and the first moment for one because a table becomes due.
        self._status_at = 0.0
        self._rested_at = 0.0
        self._looked = self._next_due = datetime.min.replace(tzinfo=UTC)
        self._beaten_at = -_BEAT_SECONDS
        self._trouble = ""
        self._infeasible: set[TableName] = set()
        # The tables whose row of failures in the store a success ends.
        self._failing = set(runtime.control.intentions.failures())

    @property
    def on(self) -> bool:
        return self._on

    def start(self) -> None:
        """Begin to keep the tables; a second start changes nothing."""
        with self._lock:
            if self._on:
                return
            self._on = True
            self._take_up(self._effective_graph.follow())
            # Nothing woke a table for what was committed while no loop ran.
            graph = self._memory.graph
            self._awake(name for name in graph.order if graph.mode(name) is Mode.CONTINUOUS)
            self._beaten_at = -_BEAT_SECONDS
            self._thread = threading.Thread(target=self._run, name="loops", daemon=True)
            self._thread.start()
        LOG.info("the loops run")

    def stop(self, *, in_order: bool = True) -> None:
        """Begin no more refreshes; those that run go on. Unless it is `in_order`, the heartbeat stays and grows old."""
        with self._lock:
            self._on = False
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(10.0)
            self._thread = None
            if in_order:
                self._forget_heartbeat()

    def _forget_heartbeat(self) -> None:
        """Remove the heartbeat: the silence of loops that were ended is no alarm."""
        try:
            self._runtime.control.heartbeats.forget(ENGINE)
        except FreshlineError as error:
            LOG.warning("the heartbeat of this engine stays in the control store: %s", error)

    def status(self, *, counted: bool = True) -> list[TableStatus]:
        """The status of each table. Only reads; without counts it takes a tenth of the time where versions are new."""
        begun, now = time.monotonic(), self._runtime.clock()
        statuses = read_status(
            self._effective_graph.graph,
            self._runtime.control,
            self._runtime.warehouse,
            now,
            running=self._work.running,
            count_rows=self._rows,
            counted=counted,
            seconds=dict(self._memory.measured) if self._on else None,
        )
        self._on_look(Look(now, begun, time.monotonic(), counted, tuple(statuses)))
        return statuses

    def due(self, graph: Graph) -> tuple[TableName, ...]:
        """The tables that are due now and those that drive them, in order, without suspended ones and those below."""
        stamps = {status.table: status.data_timestamp for status in self.status(counted=False)}
        held = intended_exclusions(self._effective_graph.held)
        due = due_tables(graph, stamps, self._runtime.control.seconds(), self._runtime.clock())
        wanted = with_driving(graph, [name for name in due if name not in held])
        return tuple(name for name in wanted if name not in held)

    def on_outcome(self, job: Job, outcome: RefreshResult | None) -> None:
        """Take note of the end of a refresh: wake what reads the table, or let it rest after a failure."""
        now = time.monotonic()
        name = job.table
        with self._lock:
            memory = self._memory
            if name not in memory.graph:
                return
            succeeded = outcome is not None and outcome.state == State.SUCCEEDED
            # Refreshes of partitions bring in nothing that is newer than the rest of the table.
            brought_in = succeeded and job.request.cause != BACKFILL and not job.request.partitions
            memory.schedule, passed_by = memory.schedule.end(name, brought_in=brought_in, again=name in self._work.busy)
            for table in passed_by:
                memory.due_again_at.pop(table, None)
            if outcome is None or outcome.state == State.FAILED:
                if job.request.cause == LIVE:
                    self._failed(name, outcome, now)
            elif outcome.state == State.SUCCEEDED:
                memory.failures.pop(name, None)
                if outcome.committed or memory.versions.get(name, outcome.version) != outcome.version:
                    self._committed(name)
                if outcome.data_timestamp is not None or outcome.committed:
                    # A first check of a source that left all of it for the next one has brought in nothing.
                    memory.versions[name] = outcome.version
            self._wake.notify_all()
        try:
            self._count(job, outcome)
        except FreshlineError as error:
            LOG.warning("whether %s failed in a row is not recorded: %s", name, error)

    def _count(self, job: Job, outcome: RefreshResult | None) -> None:
        """Count failures in a row in the control store, and suspend the table if needed (rule 12 of docs/rules.md)."""
        name, intentions = job.table, self._runtime.control.intentions
        if outcome is not None and outcome.state == State.SUCCEEDED:
            if name in self._failing:
                intentions.forget_failures(name)
                self._failing.discard(name)
            return
        failed = outcome is None or outcome.state == State.FAILED
        helpless = outcome is None or outcome.error is None or not outcome.error.retry_helps
        graph = self._effective_graph.graph
        if not failed or not helpless or job.request.cause != LIVE or name not in graph:
            return
        if isinstance(graph.spec(name), SourceSpec):
            return  # records that arrive there later must not be left lying
        if outcome is not None and isinstance(outcome.error, DefinitionChangedError):
            return  # it waits for its start to be stated, which a suspension would outlive
        error = {"code": "REFRESH", "message": "it ended in a way that it must not; see the engine's log"}
        row = count_failure(
            intentions.failures().get(name),
            name,
            error if outcome is None or outcome.error is None else outcome.error.as_json(),
            graph.freshness(name),
            self._runtime.clock(),
        )
        intentions.record_failures(row)
        self._failing.add(name)
        if is_to_suspend(row):
            decision = self._writer().suspension(
                lambda known, now: decide_suspension(
                    graph,
                    known,
                    str(name),
                    until=None,
                    reason=suspension_reason(row),
                    by=FRESHLINE,
                    now=now,
                    automatic=True,
                ),
                cause=LIVE,
            )
            LOG.warning("%s", decision.sentence)

    def _writer(self) -> IntentionWriter:
        return IntentionWriter(self._effective_graph.declared, self._runtime.control, self._runtime.clock)

    # -- under the lock

    def _committed(self, name: TableName) -> None:
        memory = self._memory
        try:
            taken = self._runtime.control.seconds_of(name)
            memory.measured.update(self._runtime.control.seconds(name))
        except FreshlineError as error:
            # The seconds known before will do: its readers are woken all the same.
            LOG.debug("what refreshes of %s take is not known: %s", name, error)
        else:
            if (taken or 0.0) > memory.seconds.get(name, 0.0):
                # A table that takes longer is due earlier.
                self._next_due = self._looked
            memory.seconds[name] = taken or 0.0
        for reader in memory.graph.consumers(name):
            if memory.graph.mode(reader) is Mode.CONTINUOUS and name in memory.graph.driving(reader):
                self._wish((reader,), WOKEN)

    def _failed(self, name: TableName, outcome: RefreshResult | None, now: float) -> None:
        memory = self._memory
        message = "it ended in a way that it must not; see above" if outcome is None else str(outcome.error)
        failures = memory.failures.setdefault(name, Failures())
        known = failures.message == message
        pause = failures.add(message, now, self._random_number())
        LOG.log(
            logging.DEBUG if known else logging.WARNING,
            "%s failed (%d in a row), tried again in %.0f s: %s",
            name,
            failures.count,
            pause,
            message,
        )
        # A table that is due only because of its age gains nothing while its inputs stay old.
        wishes = memory.schedule.wishes
        idle = [reader for reader in memory.graph.downstream(name) if reader in wishes and wishes[reader].why == DUE]
        memory.schedule = memory.schedule.without(idle)
        memory.due_again_at.update(dict.fromkeys(idle, failures.again_at))
        if memory.graph.mode(name) is Mode.CONTINUOUS and not isinstance(memory.graph.spec(name), SourceSpec):
            self._wish((name,), WOKEN)

    def _wish(self, names: Iterable[TableName], why: str) -> None:
        memory = self._memory
        wanted = [name for name in names if name not in memory.held]
        memory.schedule = memory.schedule.wish(wanted, why, time.monotonic())

    def _awake(self, names: Iterable[TableName]) -> None:
        memory = self._memory
        memory.schedule = memory.schedule.wish_awake(names, time.monotonic(), memory.held)

    def _take_up(self, graph: Graph) -> None:
        before = self._memory
        known = before.graph
        same = {name for name in graph.order if name in known and known.specs[name] == graph.specs[name]}
        measured = before.measured
        if set(graph.order) - set(before.seconds):
            measured = self._runtime.control.seconds()
        self._memory = _Memory(
            graph,
            before.schedule.over(graph, same),
            polled_at={name: at for name, at in before.polled_at.items() if name in same},
            seconds={name: before.seconds.get(name, measured.get(name)) or 0.0 for name in graph.order},
            measured={name: taken for name, taken in measured.items() if name in graph},
            failures={name: failures for name, failures in before.failures.items() if name in same},
            versions={name: version for name, version in before.versions.items() if name in graph},
            held=self._effective_graph.held,
        )
        self._memory.schedule = self._memory.schedule.without(self._effective_graph.held)
        # Nothing woke a table that was missing, had another declaration, was left alone, or was kept in another mode.
        others = (
            name
            for name in graph.order
            if name not in same or name in before.held or known.mode(name) is not graph.mode(name)
        )
        self._wish((name for name in others if graph.mode(name) is Mode.CONTINUOUS), WOKEN)
        self._status_at = 0.0

    def _hold(self, held: Mapping[TableName, TableExclusion]) -> None:
        """Leave these tables alone from now on, and go on with those that are not among them any more."""
        memory = self._memory
        freed = set(memory.held) - set(held)
        memory.held = held
        memory.schedule = memory.schedule.without(held)
        for name in freed:
            memory.due_again_at.pop(name, None)
        self._awake(name for name in freed if name in memory.graph and memory.graph.mode(name) is Mode.CONTINUOUS)
        if freed:
            self._status_at = 0.0

    def _poll(self, now: float) -> None:
        memory = self._memory
        asked = []
        for source in memory.graph.sources:
            name = source.name
            if memory.graph.mode(name) is not Mode.CONTINUOUS:
                continue
            if now - memory.polled_at.get(name, -LONGEST_PAUSE_SECONDS) >= poll_seconds(memory.graph, name):
                memory.polled_at[name] = now
                asked.append(name)
        if asked:
            self._wish(asked, POLLED)

    def _wish_due(self, stamps: Mapping[TableName, datetime | None], now: float) -> None:
        memory = self._memory
        due = due_tables(memory.graph, stamps, memory.seconds, self._runtime.clock())
        memory.schedule, added = memory.schedule.wish_due(
            (name for name in due if now >= memory.due_again_at.get(name, 0.0)), time.monotonic(), memory.held
        )
        for name in added:
            pause = max(1.0, min(LONGEST_PAUSE_SECONDS, memory.graph.freshness(name).seconds / 10))
            memory.due_again_at[name] = now + pause

    def _ready(self, busy: Collection[TableName], now: float) -> tuple[TableName, ...]:
        resting = {name for name, failures in self._memory.failures.items() if now < failures.again_at}
        return self._memory.schedule.ready(busy, resting, self._has_version)

    def _has_version(self, name: TableName) -> bool:
        """Whether something was read into a table or source: the empty table that CREATE makes has no rows yet."""
        if name in self._memory.versions:
            return True
        spec = self._memory.graph.spec(name)
        if isinstance(spec, SourceSpec) and spec.is_lookup:
            return True  # it has no answer until it is asked
        newest = read_newest(self._runtime.warehouse.location(spec))
        in_place = spec.is_read_in_place
        return newest is not None and (in_place or newest.receipt is not None)

    # -- the thread

    def _run(self) -> None:
        while self._on:
            try:
                self._step()
            except FreshlineError as error:
                LOG.warning("the loops could not look at the tables: %s", error)
                self._pause(1.0)
            except Exception:  # one table's mistake must not leave all others old
                LOG.exception("the loops stumbled")
                self._pause(1.0)
            self._pause(_STEP_SECONDS)

    def _pause(self, seconds: float) -> None:
        with self._lock:
            if self._on:
                self._wake.wait(seconds)

    def _step(self) -> None:
        now = time.monotonic()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            graph = self._effective_graph.check()
        else:
            graph = self._effective_graph.follow()
        with self._lock:
            if graph is not self._memory.graph:
                self._take_up(graph)
            elif self._effective_graph.held is not self._memory.held:
                self._hold(self._effective_graph.held)
            self._poll(now)
        try:
            if self._on and now - self._beaten_at >= _BEAT_SECONDS:
                self._beaten_at = now
                detail = {"pid": os.getpid(), "loops": True}
                self._runtime.control.heartbeats.beat(ENGINE, self._runtime.clock(), detail)
            if self._is_time_for_ages(now):
                self._check_ages(now)
            self._trouble = ""
        except FreshlineError as error:
            # The known graph suffices to wake tables. Ages are checked again in a moment.
            self._status_at = self._rested_at = now + 1.0
            if str(error) != self._trouble:
                self._trouble = str(error)
                LOG.warning("the loops go on with what they know: %s", error)
        with self._lock:
            self._submit(self._ready(self._work.busy, now))

    def _is_time_for_ages(self, now: float) -> bool:
        if now >= self._status_at:
            return True
        clock = self._runtime.clock()
        # A clock that was put back makes the known next moment worthless.
        return now >= self._rested_at and (clock >= self._next_due or clock < self._looked)

    def _check_ages(self, now: float) -> None:
        statuses = self.status(counted=False)
        stamps = {status.table: status.data_timestamp for status in statuses}
        rest = max(1.0, (time.monotonic() - now) / _STATUS_SHARE)
        self._rested_at = now + rest
        self._status_at = now + max(rest, _STATUS_SECONDS)
        with self._lock:
            self._wish_due(stamps, now)
            memory, clock = self._memory, self._runtime.clock()
            later = clock + timedelta(seconds=_STATUS_SECONDS)
            self._looked = clock
            self._next_due = next_due(memory.graph, stamps, memory.seconds, clock, memory.held) or later
        self._record_infeasible(statuses)

    def _record_infeasible(self, statuses: Sequence[TableStatus]) -> None:
        """Record each promise that, by measurements, cannot be kept, once until they say otherwise."""
        for status in statuses:
            if status.feasible:
                self._infeasible.discard(status.table)
            elif status.feasible is False and status.table not in self._infeasible and status.kind == "table":
                reason = f"freshness {Freshness(status.freshness_seconds)} cannot be kept: {status.feasible_reason}"
                LOG.warning("%s: %s", status.table, reason)
                self._runtime.control.record_refresh(
                    self._writer().record(
                        status.table,
                        State.INFEASIBLE,
                        reason,
                        self._effective_graph.intentions,
                        self._runtime.clock(),
                        LIVE,
                    )
                )
                self._infeasible.add(status.table)

    def _submit(self, ready: Sequence[TableName]) -> None:
        memory = self._memory
        occupied = self._work.busy - self._work.aside
        for name in memory.schedule.choose(ready, occupied, self._runtime.settings.parallel_refreshes):
            memory.schedule = memory.schedule.begin(name)
            self._work.submit(Job(name, RefreshRequest(cause=LIVE), Cancellation(), partial(_log_progress, name)))


def _log_progress(name: TableName, message: str) -> None:
    LOG.debug("%s: %s", name, message)
