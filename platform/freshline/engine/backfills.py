"""Backfills: partitions of one table replaced one by one, each in a commit of its own, behind everything else.

The table's own log shows which partitions are done: a backfill that was stopped in any way goes on with those that the
log does not have yet. Nothing of it is kept anywhere else, so nothing can be lost or be wrong. The next chunk is asked
for when the one before has ended, so that whatever else waits for the table comes first. A partition that fails does
not keep the others from being done.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Protocol

from freshline.compute.cancellation import Cancellation
from freshline.declare.graph import Graph
from freshline.engine.work import Job, WorkQueue
from freshline.errors import (
    CancelledError,
    FreshlineError,
    PartitionError,
    RefreshError,
    RequestError,
    RestoreBusyError,
)
from freshline.freshness.exclusion import intended_exclusions
from freshline.plan.backfill import BackfillAction, BackfillChunk, RequestedBackfill, plan_backfill
from freshline.plan.request import BACKFILL, RefreshRequest
from freshline.refresh.partition_states import committed_keys, has_refreshed_whole, read_state_of_values, read_states
from freshline.refresh.partitions import partition_column
from freshline.refresh.time_partitions import partitions_of, read_time_partition, wanted_end
from freshline.run import Runtime
from freshline.values.names import TableName
from freshline.values.partition import PartitionState, partition_name
from freshline.values.result import RefreshResult, State
from freshline.values.rules import nearest
from freshline.values.spec import TableSpec
from freshline.values.time_partition import TimePartition

MOST_PARTITIONS = 100_000
_INTERRUPT_SECONDS = 0.5
_MOMENT = timedelta(microseconds=1)

Values = tuple[tuple[str, str], ...]


class Teller(Protocol):
    """The request that a backfill is done for."""

    @property
    def cancellation(self) -> Cancellation: ...
    def report(self, event: dict[str, Any]) -> None: ...
    def progress(self, message: str, table: TableName | None = None) -> None: ...
    def interrupt(self) -> None: ...


@dataclass(frozen=True)
class BackfillRequest:
    """The checked arguments of a backfill.

    `values` name partitions one by one, `ranges` time partitions from one key to another (None: the first, the last
    that should be there). `id` is the backfill's name in receipts; with `resume`, what has it is not done again.
    """

    table: TableName
    id: str
    values: tuple[Values, ...] = ()
    ranges: tuple[tuple[str | None, str | None, str | None], ...] = ()
    again: bool = False
    cascade: bool = False
    full: bool = False
    dry_run: bool = False
    resume: bool = False
    cause: str = BACKFILL


@dataclass
class _Run:
    """The progress of a backfill."""

    done: list[BackfillChunk] = field(default_factory=list)
    failed: list[tuple[BackfillChunk, Mapping[str, Any]]] = field(default_factory=list)
    left: list[BackfillChunk] = field(default_factory=list)
    seconds: float = 0.0


class Backfills:
    """Plans and runs the backfills of one engine."""

    def __init__(self, runtime: Runtime, work: WorkQueue, held: Callable[[], Any]) -> None:
        """`held` returns the tables that the loops leave alone now."""
        self._runtime = runtime
        self._work = work
        self._held = held
        self._running: dict[TableName, str] = {}
        self._asked: list[BackfillRequest] = []
        self._lock = threading.Lock()

    def run(self, reporter: Teller, graph: Graph, asked: BackfillRequest) -> State:
        """Report the plan, do it unless only the plan was asked for, and return the state. Raises before any work."""
        chunks = self.plan(graph, asked, reporter.cancellation)
        shown = [self._shown(chunk) for chunk in chunks]
        reporter.report({"type": "plan", "id": asked.id, "chunks": shown})
        if asked.dry_run:
            return State.SUCCEEDED
        run = _Run(left=[chunk for chunk in chunks if chunk.action is not BackfillAction.SKIP])
        with self._lock:
            self._asked.append(asked)
        try:
            self._run(reporter, graph, asked, run)
        finally:
            with self._lock:
                self._asked.remove(asked)
        reporter.report({"type": "backfill", "id": asked.id, **self._result(graph, asked, run)})
        if run.left:
            return State.CANCELLED
        return State.FAILED if run.failed else State.SUCCEEDED

    def require_none(self) -> None:
        """Raise RestoreBusyError while a backfill runs: between two of its partitions no table is being refreshed."""
        with self._lock:
            asked = list(self._asked)
        if asked:
            raise RestoreBusyError(
                f"backfill {asked[0].id} of this table is running, and would go on over what is restored. Nothing was "
                "restored: cancel it, or ask again when it has ended.",
                where=str(asked[0].table),
            )

    def _run(self, reporter: Teller, graph: Graph, asked: BackfillRequest, run: _Run) -> None:
        failed: set[TableName] = set()
        while run.left and not reporter.cancellation.cancelled:
            chunk = run.left[0]
            blocked = next((name for name in graph.upstream(chunk.table) if name in failed), None)
            hold = intended_exclusions(self._held()).get(chunk.table) if chunk.table != asked.table else None
            if blocked is not None or hold is not None:
                why = (
                    f"{blocked}, which it reads, was not done" if blocked is not None else "it is left alone: suspended"
                )
                error = RefreshError(f"{why}. Refresh it when that has changed.", where=str(chunk.table)).as_json()
                run.failed.append((chunk, error))
            else:
                outcome = self._do(reporter, asked, chunk, run)
                if outcome.state == State.CANCELLED:
                    break
                reporter.report({"type": "outcome", "outcome": {**outcome.as_json(), "partition": chunk.key}})
                self._note(run, chunk, outcome, failed)
            run.left.pop(0)

    def plan(self, graph: Graph, asked: BackfillRequest, cancellation: Cancellation) -> list[BackfillChunk]:
        """The chunks of a backfill. Raises PartitionError and RequestError for what cannot be asked."""
        spec = graph.spec(asked.table)
        if not isinstance(spec, TableSpec):
            raise PartitionError(
                f"{spec.name} is a source: it has no partitions and cannot be computed again", where=str(spec.name)
            )
        wanted = RequestedBackfill(spec.name, again=asked.again, cascade=asked.cascade, full=asked.full)
        if spec.time_partitions is None:
            return self._plan_values(graph, spec, asked, wanted)
        partitions = _partitions(self._runtime, spec, asked)
        states: Mapping[str, PartitionState] = {}
        if partitions:
            states = read_states(self._runtime, spec, partitions, cancellation)
        finished = committed_keys(self._runtime, spec.name, asked.id) if asked.resume else frozenset[str]()
        wanted = replace(wanted, partitions=tuple(partitions), finished=finished)
        return plan_backfill(graph, wanted, states, self._runtime.clock())

    def _plan_values(
        self, graph: Graph, spec: TableSpec, asked: BackfillRequest, wanted: RequestedBackfill
    ) -> list[BackfillChunk]:
        values = (*asked.values, *_between(spec, asked)) if asked.ranges else asked.values
        for partition in values:
            if not spec.partitioned_by:
                raise PartitionError("the table has no partitions. Refresh the whole table.", where=str(spec.name))
            if not partition:
                raise PartitionError("no partition is named", where=str(spec.name))
            for column, _ in partition:
                partition_column(spec, column)
        states: Mapping[str, PartitionState] = {}
        if spec.partition_values and values:
            state = read_state_of_values(self._runtime, spec)
            states = {partition_name(spec, partition): state for partition in values}
        finished: Collection[str] = frozenset()
        if asked.resume:
            finished = committed_keys(self._runtime, spec.name, asked.id)
            if has_refreshed_whole(self._runtime, spec.name, asked.id):
                finished = {partition_name(spec, partition) for partition in values}
        wanted = replace(wanted, values=tuple(dict.fromkeys(values)), finished=finished)
        return plan_backfill(graph, wanted, states, self._runtime.clock())

    def _shown(self, chunk: BackfillChunk) -> dict[str, object]:
        with self._lock:
            running = chunk.key is not None and self._running.get(chunk.table) == chunk.key
        shown = chunk.as_json()
        return {**shown, "state": str(PartitionState.RUNNING)} if running else shown

    def _do(self, reporter: Teller, asked: BackfillRequest, chunk: BackfillChunk, run: _Run) -> RefreshResult:
        """One chunk, from its turn to its end."""
        reporter.progress(_progress(chunk, run), chunk.table)
        request = RefreshRequest(
            full=chunk.full,
            partitions=(chunk.values,) if chunk.values else (),
            cause=asked.cause,
            backfill=asked.id,
        )
        cancellation = reporter.cancellation
        job = Job(chunk.table, request, cancellation, lambda message: reporter.progress(message, chunk.table))
        with self._noted(chunk):
            self._work.submit(job)
            while not wait([job.outcome], timeout=_INTERRUPT_SECONDS).done:
                if cancellation.cancelled:
                    # Spark forgets an interruption that comes before the job it is meant for.
                    reporter.interrupt()
        failure = job.outcome.exception()
        if failure is None:
            return job.outcome.result()
        known = isinstance(failure, FreshlineError)
        error = failure if known else RefreshError(f"{type(failure).__name__}: {failure}", where=str(chunk.table))
        assert isinstance(error, FreshlineError)
        state = State.CANCELLED if isinstance(error, CancelledError) else State.FAILED
        return RefreshResult(
            table=chunk.table,
            at=self._runtime.clock(),
            state=state,
            reason=f"{error.code}: {error.message}",
            rows_in=0,
            rows_out=0,
            error=error,
        )

    @contextmanager
    def _noted(self, chunk: BackfillChunk) -> Iterator[None]:
        if chunk.key is None:
            yield
            return
        with self._lock:
            self._running[chunk.table] = chunk.key
        try:
            yield
        finally:
            with self._lock:
                self._running.pop(chunk.table, None)

    def _note(self, run: _Run, chunk: BackfillChunk, outcome: RefreshResult, failed: set[TableName]) -> None:
        run.seconds += outcome.seconds
        if outcome.state == State.SUCCEEDED:
            run.done.append(chunk)
            return
        error = RefreshError(outcome.reason, where=str(chunk.table)) if outcome.error is None else outcome.error
        run.failed.append((chunk, error.as_json()))
        failed.add(chunk.table)

    def _result(self, graph: Graph, asked: BackfillRequest, run: _Run) -> dict[str, Any]:
        """The partitions that are done, failed (with reasons) and left, and those that became stale meanwhile.

        Another declaration of the table makes them stale.
        """
        result: dict[str, Any] = {
            "done": [_name(chunk) for chunk in run.done],
            "failed": [{**_name(chunk), "error": dict(error)} for chunk, error in run.failed],
            "left": [_name(chunk) for chunk in run.left],
            "stale": [],
        }
        now = self._runtime.graph
        fingerprint = graph.spec(asked.table).fingerprint
        if asked.table in now and now.spec(asked.table).fingerprint != fingerprint:
            spec = now.table(asked.table)
            keys = {chunk.key for chunk in run.done if chunk.table == asked.table and chunk.key is not None}
            if spec.time_partitions is not None and keys:
                partitions = [item for item in _every(self._runtime, spec) if item.key in keys]
                states = read_states(self._runtime, spec, partitions, Cancellation())
                result["stale"] = [key for key, state in states.items() if state is PartitionState.STALE]
            elif spec.partition_values and read_state_of_values(self._runtime, spec) is PartitionState.STALE:
                result["stale"] = sorted(keys)
        return result


def _name(chunk: BackfillChunk) -> dict[str, Any]:
    return {"table": str(chunk.table), "partition": chunk.key}


def _progress(chunk: BackfillChunk, run: _Run) -> str:
    """The partition that is done now, how far the backfill is, and how long it may take."""
    ended = len(run.done) + len(run.failed)
    text = f"{chunk.key or 'refreshing'}, {ended + 1} of {ended + len(run.left)}"
    if run.failed:
        text += f", {len(run.failed)} failed"
    if run.done:
        text += f", about {len(run.left) * run.seconds / len(run.done):.0f} s left"
    return text


def _every(runtime: Runtime, spec: TableSpec) -> list[TimePartition]:
    return partitions_of(spec).begun(runtime.clock())


def _partitions(runtime: Runtime, spec: TableSpec, asked: BackfillRequest) -> list[TimePartition]:
    """The time partitions that are asked for, each once. Raises PartitionError."""
    now = runtime.clock()
    partitions = partitions_of(spec)
    found = {item.start: item for item in (read_time_partition(spec, values, now) for values in asked.values)}
    for column, first, last in asked.ranges:
        if column is not None:
            partition_column(spec, column)
        begin = partitions.start if first is None else first
        end = partitions.at(wanted_end(runtime, spec) - _MOMENT).key if last is None else last
        try:
            inside = partitions.between(begin, end, now)
        except ValueError as error:
            raise PartitionError(f"{error}.", where=str(spec.name)) from None
        if len(inside) > MOST_PARTITIONS:
            raise PartitionError(
                f"from {begin} to {end} there are {len(inside)} partitions; a backfill takes at most "
                f"{MOST_PARTITIONS}. Ask for fewer.",
                where=str(spec.name),
            )
        found |= {item.start: item for item in inside}
    return [found[start] for start in sorted(found)]


def _between(spec: TableSpec, asked: BackfillRequest) -> Iterator[Values]:
    """The declared values from one to another, in the order of the declaration. Raises PartitionError."""
    if not spec.partition_values:
        # Its error names the tables that have ranges.
        partitions_of(spec)
    (own,) = spec.partitioned_by
    declared = spec.partition_values
    for column, first, last in asked.ranges:
        if column is not None:
            partition_column(spec, column)
        begin, end = declared[0] if first is None else first, declared[-1] if last is None else last
        for value in (begin, end):
            if value not in declared:
                raise PartitionError(
                    f"{value!r} is not among the 'partition.values' of the table.{nearest(value, declared)}",
                    where=str(spec.name),
                )
        inside = declared[declared.index(begin) : declared.index(end) + 1]
        if not inside:
            raise PartitionError(
                f"from {begin!r} to {end!r} there is no partition: the first is declared after the last.",
                where=str(spec.name),
            )
        yield from (((own, value),) for value in inside)


def read_backfill(
    graph: Graph, arguments: Mapping[str, Any], name: TableName, own_id: str, cause: str
) -> BackfillRequest:
    """The arguments of a backfill of one table. Raises RequestError for what is no such."""
    identity = arguments.get("id")
    if identity is not None and (not isinstance(identity, str) or not 0 < len(identity) <= 100):
        raise RequestError("`id` names a backfill: a text of at most 100 characters")
    ranges = []
    for item in _list(arguments, "ranges"):
        texts = isinstance(item, list) and len(item) == 3 and all(e is None or isinstance(e, str) for e in item)
        if not texts:
            raise RequestError("a range is [column, first, last], texts or null")
        ranges.append((item[0], item[1], item[2]))
    return BackfillRequest(
        graph.spec(name).name,
        own_id if identity is None else identity,
        tuple(read_partition_values(item) for item in _list(arguments, "partitions")),
        tuple(ranges),
        again=bool(arguments.get("again", False)),
        cascade=bool(arguments.get("cascade", False)),
        full=bool(arguments.get("full", False)),
        dry_run=bool(arguments.get("dry_run", False)),
        resume=bool(arguments.get("resume", False)),
        cause=cause,
    )


def read_partition_values(value: object) -> Values:
    """One partition: pairs of column and text. Raises RequestError."""
    pairs = []
    for pair in value if isinstance(value, list) else [None]:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(item, str) for item in pair):
            raise RequestError("a partition is a list of [column, value], both texts")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _list(arguments: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = arguments.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError(f"`{key}` is a list")
    return value
