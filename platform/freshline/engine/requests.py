"""The requests of people and programs to the engine: refresh, verify, sql, tick, savepoint.

A request has events, which its asker polls for; polling is also its sign of life. A request whose asker has gone is
cancelled, its Spark work interrupted. Its last event, `done`, comes and is recorded only when every thread that worked
for it has let go: nothing is committed for a request after it was reported as cancelled or failed.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

from py4j.protocol import Py4JError

from freshline.commit.definitions import change_of
from freshline.commit.delta_log import exists, newest_version, read_newest
from freshline.commit.purge import purge_table
from freshline.compute.cancellation import Cancellation
from freshline.declare.graph import Graph
from freshline.engine.backfills import Backfills, read_backfill, read_partition_values
from freshline.engine.effective_graph import EffectiveGraph
from freshline.engine.process import ProcessId
from freshline.engine.work import Job, WorkQueue
from freshline.errors import CancelledError, EngineError, FreshlineError, RefreshError, RequestError
from freshline.freshness.exclusion import TableExclusion, intended_exclusions
from freshline.plan.definition import ChangeClass
from freshline.plan.request import BACKFILL, LIVE, MANUAL, RefreshRequest
from freshline.reads.sql import query
from freshline.run import (
    Runtime,
    Verification,
    create_savepoint,
    drop_savepoint,
    refresh_order,
    restore_savepoint,
    verify_table,
)
from freshline.sql.managing import NOW
from freshline.values.names import TableName, late_name
from freshline.values.result import RefreshResult, State, kind_of
from freshline.values.spec import SourceSpec, TableSpec

LOG = logging.getLogger(__name__)

KINDS = ("refresh", "backfill", "verify", "sql", "tick", "purge", "savepoint")
ASKER_GONE_SECONDS = 15.0
KEPT_SECONDS = 600.0
# A request that refreshes only waits, so it may have many neighbours.
_AT_ONCE = 32
_INTERRUPT_SECONDS = 0.5

Event = dict[str, Any]
T = TypeVar("T")
Partition = tuple[tuple[str, str], ...]


class Request:
    """One request, its events and its cancellation."""

    def __init__(self, kind: str, arguments: Mapping[str, Any], asker: ProcessId | None = None) -> None:
        self.asker = asker
        self.id = uuid4().hex
        self.kind = kind
        self.arguments = arguments
        self.cancellation = Cancellation()
        self.asked_at = time.monotonic()
        self.ended_at: float | None = None
        self.delivered = False
        self._events: list[Event] = []
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def done(self) -> bool:
        return self.ended_at is not None

    def report(self, event: Event) -> None:
        """Add an event for the asker."""
        with self._lock:
            self._events.append(event)
            if event["type"] == "done":
                self.ended_at = time.monotonic()
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def progress(self, message: str, table: TableName | None = None) -> None:
        self.report({"type": "progress", "table": None if table is None else str(table), "message": message})

    def events(self, after: int) -> tuple[list[Event], bool]:
        """The events after the first `after`, and whether the last one is among them or before them."""
        self.asked_at = time.monotonic()
        with self._lock:
            done = self.ended_at is not None
            if done:
                self.delivered = True
            return self._events[after:], done

    def listen(self, after: int, listener: Callable[[], None]) -> None:
        """Call `listener` once, at the next event, or now when there is one after the first `after` already."""
        with self._lock:
            if len(self._events) <= after and self.ended_at is None:
                self._listeners.append(listener)
                return
        listener()

    def interrupt(self) -> None:
        """Cancel it; called again, what has begun meanwhile is interrupted too."""
        try:
            self.cancellation.cancel()
        except (Py4JError, OSError) as error:
            # The JVM is gone, and with it what there was to interrupt.
            LOG.warning("interrupting request %s: %s", self.id, error)


@dataclass(frozen=True)
class _Asked:
    """The checked arguments of a refresh. `cause` is LIVE when no person asks for it, but a clock."""

    names: tuple[TableName, ...] = ()
    full: bool = False
    partitions: tuple[Partition, ...] = ()
    upstreams: bool = True
    cause: str = MANUAL
    start: str | None = None
    retry: bool = False


class Requests:
    """Accepts requests and works on them."""

    def __init__(
        self,
        runtime: Runtime,
        effective_graph: EffectiveGraph,
        work: WorkQueue,
        due: Callable[[Graph], Sequence[TableName]],
        on_restore: Callable[[Collection[TableName]], None],
    ) -> None:
        """`due` says what one evaluation of the graph would refresh; `on_restore` is given the tables of a restore."""
        self._runtime = runtime
        self._effective_graph = effective_graph
        self._work = work
        self._due = due
        self._on_restore = on_restore
        self._backfills = Backfills(runtime, work, lambda: effective_graph.held)
        self._requests: dict[str, Request] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="request")
        self.used_at = time.monotonic()

    def adopt(self) -> None:
        """Record requests of an engine that died as failed: nothing works on them any more."""
        error = json.dumps(EngineError("the engine ended before the request had ended").as_json())
        for left in self._runtime.control.open_requests():
            self._runtime.control.finish_request(left.id, State.FAILED, error, self._runtime.clock())

    def submit(self, kind: str, arguments: Mapping[str, Any], asker: int | None = None) -> Request:
        """Accept a request of the process with the number `asker`, if that is known.

        Raises RequestError for one that cannot be served, EngineError while the engine stops.
        """
        if kind not in KINDS:
            raise RequestError(f"there is no request {kind!r}. There are {', '.join(KINDS)}.")
        if self._stopping:
            raise EngineError("the engine is stopping and takes no more requests. Ask again when it has ended.")
        request = Request(kind, arguments, None if asker is None else ProcessId.of(asker))
        self._runtime.control.create_request(request.id, kind, json.dumps(arguments), self._runtime.clock())
        with self._lock:
            self._requests[request.id] = request
            self.used_at = time.monotonic()
        self._threads.submit(self._serve, request)
        return request

    def find(self, request_id: str) -> Request:
        """A request that is being worked on, or has ended some minutes ago at most. Raises RequestError."""
        with self._lock:
            self.used_at = time.monotonic()
            try:
                return self._requests[request_id]
            except KeyError:
                raise RequestError(
                    f"there is no request {request_id}. It ended long ago, or was made to an engine before this one."
                ) from None

    @property
    def open(self) -> list[Request]:
        """The requests that have not ended."""
        with self._lock:
            return [request for request in self._requests.values() if not request.done]

    def watch_over(self) -> None:
        """Cancel what nobody asks about any more, and forget what ended long ago. Called every second or so."""
        now = time.monotonic()
        with self._lock:
            requests = list(self._requests.values())
        for request in requests:
            if request.ended_at is not None:
                if now - request.ended_at > KEPT_SECONDS:
                    with self._lock:
                        del self._requests[request.id]
            elif not request.cancellation.cancelled and _has_lost_its_asker(request, now):
                LOG.warning("request %s (%s) is cancelled: its asker has gone", request.id, request.kind)
                request.interrupt()

    def stop(self) -> None:
        """Take no more requests."""
        self._stopping = True

    def wait(self, seconds: float, *, delivered: bool = False) -> bool:
        """Wait until all requests have ended (and the askers know it), at most `seconds`; whether that is so."""
        deadline = time.monotonic() + seconds
        ended = threading.Event()
        while True:
            left = self.open
            if not left and not delivered:
                return True
            with self._lock:
                unknown = [r for r in self._requests.values() if r.done and not r.delivered]
            if not left and not unknown:
                return True
            if ended.wait(min(0.05, max(0.0, deadline - time.monotonic()))) or time.monotonic() >= deadline:
                return False

    def cancel_all(self) -> None:
        """Cancel everything that has not ended."""
        for request in self.open:
            request.interrupt()

    # -- one request

    def _serve(self, request: Request) -> None:
        state, error = State.SUCCEEDED, None  # type: State, dict[str, object] | None
        try:
            state = self._answer(request)
        except CancelledError:
            state = State.CANCELLED
        except FreshlineError as failure:
            state, error = State.FAILED, failure.as_json()
        except Exception as failure:
            LOG.exception("request %s (%s) ended in a way that it must not", request.id, request.kind)
            state, error = State.FAILED, RefreshError(f"{type(failure).__name__}: {failure}").as_json()
        if error is not None and request.cancellation.cancelled:
            state, error = State.CANCELLED, None
        try:
            self._runtime.control.finish_request(
                request.id, state, None if error is None else json.dumps(error), self._runtime.clock()
            )
        except FreshlineError as failure:
            LOG.warning("the end of request %s was not recorded: %s", request.id, failure)
        request.report({"type": "done", "state": state, "error": error})

    def _answer(self, request: Request) -> State:
        match request.kind:
            case "refresh":
                return self._refresh(request)
            case "tick":
                # As the loops do: what stands is kept, and the mistakes are named.
                graph = self._effective_graph.check_whole(request.cancellation.check)
                if self._effective_graph.error is not None:
                    request.report({"type": "mistakes", "error": self._effective_graph.error.as_json()})
                return self._run(request, graph, _Asked(cause=LIVE), self._due(graph))
            case "backfill":
                return self._backfill(request)
            case "verify":
                return self._verify(request)
            case "purge":
                return self._purge(request)
            case "savepoint":
                return self._savepoint(request)
            case _:
                return self._query(request)

    def _purge(self, request: Request) -> State:
        """Delete the data of a table that is declared no more."""
        graph = self._effective_graph.check_strictly(request.cancellation.check)
        name = _name(request.arguments.get("table"))
        if name in graph:
            raise RequestError(f"{name} is declared: drop it first.", where=str(name))
        runtime = self._runtime
        # A refresh that runs ends before; none begins, since it is declared no more.
        newest = read_newest(runtime.warehouse.path(name))
        is_final = newest is not None and newest.receipt is not None and newest.receipt.closed_until is not None
        is_final = is_final and exists(runtime.warehouse.path(late_name(name)))  # with WHEN there are no late rows
        folders = []
        # Its late rows go first: while it is there, a purge that was stopped half way knows of them.
        for each in (late_name(name), name) if is_final and late_name(name) not in graph else (name,):
            with runtime.lock(each):
                folders += purge_table(runtime.warehouse, each, graph.order, runtime.failpoint)
                runtime.control.forget_checks([each])
                runtime.control.intentions.forget_failures(each)
        request.report({"type": "purged", "table": str(name), "folders": [str(folder) for folder in folders]})
        return State.SUCCEEDED

    def _graph_of(self, request: Request) -> Graph:
        """The graph in force for the tables that a request names; a mistake elsewhere in the files costs it nothing."""
        given = request.arguments.get("tables")
        named = [text for text in given if isinstance(text, str)] if isinstance(given, list) else []
        return self._effective_graph.check_strictly(request.cancellation.check, tuple(map(_name, named)))

    def _refresh(self, request: Request) -> State:
        graph = self._graph_of(request)
        asked = read_refresh(graph, request.arguments)
        if asked.partitions and asked.names:
            # Named partitions are replaced one by one, however they were named.
            return self._backfill(request)
        return self._run(request, graph, asked, refresh_order(graph, asked.names, upstreams=asked.upstreams))

    def _backfill(self, request: Request) -> State:
        graph = self._graph_of(request)
        names = read_names(graph, request.arguments)
        if len(names) != 1:
            raise RequestError("partitions are those of one table: name that table, and no other.")
        manual = request.kind == "refresh"
        cause = _cause(request.arguments.get("cause", MANUAL if manual else BACKFILL))
        asked = read_backfill(graph, request.arguments, names[0], request.id, cause)
        return self._backfills.run(request, graph, replace(asked, again=True) if manual else asked)

    def _run(self, request: Request, graph: Graph, asked: _Asked, order: Sequence[TableName]) -> State:
        """Refresh these, each when everything before it that it depends on has ended."""
        holds = {
            name: hold
            for name, hold in intended_exclusions(self._effective_graph.held).items()
            if asked.cause != MANUAL or name not in asked.names
        }
        left = list(order)
        chosen = frozenset(order)
        cancelled = False
        bad: dict[TableName, TableName] = {}
        ended: set[TableName] = set()
        running: dict[Future[RefreshResult], Job] = {}
        while running or (left and not request.cancellation.cancelled):
            for name in list(left):
                if request.cancellation.cancelled:
                    break
                cause = next((bad[read] for read in graph.reads(name) if read in bad), None)
                if name in holds:
                    # Somebody decided so: that is no failure, and does not keep a table that was named.
                    left.remove(name)
                    ended.add(name)
                    self._report(request, self._left_alone(graph, name, asked, _reason_of(holds[name])))
                elif cause is not None:
                    left.remove(name)
                    bad[name] = cause
                    ended.add(name)
                    self._report(request, self._left_alone(graph, name, asked, f"{State.BLOCKED}({cause})"))
                elif all(other in ended for other in graph.upstream(name) if other in chosen):
                    left.remove(name)
                    job = self._work.submit(self._job(request, graph, asked, name))
                    running[job.outcome] = job
            if not running:
                continue
            finished, _ = wait(running, timeout=_INTERRUPT_SECONDS, return_when=FIRST_COMPLETED)
            if request.cancellation.cancelled:
                # Spark forgets an interruption that comes before the job it is meant for.
                request.interrupt()
            for future in finished:
                job = running.pop(future)
                outcome = self._outcome(graph, job)
                ended.add(job.table)
                cancelled = cancelled or outcome.state == State.CANCELLED
                if outcome.state not in (State.SUCCEEDED, State.SKIPPED):
                    bad[job.table] = job.table
                self._report(request, outcome)
        # Everything may have ended before the cancellation came.
        if left or cancelled:
            return State.CANCELLED
        return State.FAILED if bad else State.SUCCEEDED

    def _job(self, request: Request, graph: Graph, asked: _Asked, name: TableName) -> Job:
        named = name in asked.names or self._is_changed_beside(graph, asked, name)
        refresh = RefreshRequest(
            full=asked.full and named,
            partitions=asked.partitions if named else (),
            cause=asked.cause,
            start=asked.start if named else None,
            retry=asked.retry and named,
            # A person waits for what was just put there; a scheduler comes again.
            wait_for_settle=isinstance(graph.spec(name), SourceSpec)
            and request.kind == "refresh"
            and asked.cause == MANUAL,
        )
        return Job(name, refresh, request.cancellation, lambda message: request.progress(message, name))

    def _is_changed_beside(self, graph: Graph, asked: _Asked, name: TableName) -> bool:
        """Whether it is a side output of a table that was named, and its declaration changed with that of the table."""
        spec = graph.spec(name)
        if not isinstance(spec, TableSpec) or spec.side_output_of not in asked.names:
            return False
        change = change_of(self._runtime.warehouse, spec)
        return change is not None and change.kind is not ChangeClass.UNCHANGED

    def _outcome(self, graph: Graph, job: Job) -> RefreshResult:
        failure = job.outcome.exception()
        if failure is None:
            return job.outcome.result()
        error = failure if isinstance(failure, FreshlineError) else RefreshError(f"{type(failure).__name__}: {failure}")
        return self._without_work(graph, job.table, State.FAILED, f"{error.code}: {error.message}", error)

    def _left_alone(self, graph: Graph, name: TableName, asked: _Asked, reason: str) -> RefreshResult:
        """The outcome, recorded, of a table that is SKIPPED or BLOCKED for a reason that begins with that word."""
        outcome = self._without_work(graph, name, State(reason.partition("(")[0]), reason, None)
        outcome = replace(outcome, cause=asked.cause, fingerprint=graph.spec(name).fingerprint)
        self._runtime.control.record_refresh(outcome)
        return outcome

    def _without_work(
        self, graph: Graph, name: TableName, state: State, reason: str, error: FreshlineError | None
    ) -> RefreshResult:
        spec = graph.spec(name)
        return RefreshResult(
            table=name,
            at=self._runtime.clock(),
            kind=kind_of(spec),
            state=state,
            reason=reason,
            version=newest_version(self._runtime.warehouse.location(spec)),
            rows_in=0,
            rows_out=0,
            seconds=0.0,
            mode=str(graph.mode(name)),
            error=error,
        )

    def _report(self, request: Request, outcome: RefreshResult) -> None:
        request.report({"type": "outcome", "outcome": outcome.as_json()})

    def _verify(self, request: Request) -> State:
        graph = self._graph_of(request)
        only_sinks = bool(request.arguments.get("sinks"))
        every = tuple(table.name for table in graph.verified if table.sink is not None or not only_sinks)
        names = read_names(graph, request.arguments) or every
        partitions = tuple(read_partition_values(item) for item in _list(request.arguments.get("partitions")))
        if partitions and len(names) != 1:
            raise RequestError("partitions are those of one table: name that table, and no other.")
        failure: FreshlineError | None = None
        for name in names:
            request.cancellation.check()
            request.progress("verifying", name)
            try:
                verification = self._interruptible(request, partial(self._verify_one, request, name, partitions))
            except CancelledError:
                raise
            except FreshlineError as error:
                # One table that cannot be verified must not hide what is known of the others.
                request.progress(str(error), name)
                failure = failure or error
                continue
            request.report({"type": "verification", "verification": verification.as_json()})
        if failure is not None:
            raise failure
        return State.SUCCEEDED

    def _verify_one(self, request: Request, name: TableName, partitions: Sequence[Partition]) -> Verification:
        return verify_table(
            self._runtime,
            name,
            partitions=partitions,
            cancellation=request.cancellation,
            progress=lambda message: request.progress(message, name),
        )

    def _savepoint(self, request: Request) -> State:
        arguments = request.arguments
        action, name = arguments.get("action"), arguments.get("name")
        if not isinstance(name, str):
            raise RequestError("a savepoint has a `name`")
        graph = self._effective_graph.check_strictly(request.cancellation.check)
        done: dict[str, Any]
        match action:
            case "create":
                done = create_savepoint(self._runtime, name, read_names(graph, arguments)).as_json()
            case "restore":
                self._backfills.require_none()
                restored = restore_savepoint(
                    self._runtime, name, cancellation=request.cancellation, progress=request.progress
                )
                self._on_restore(restored.tables)
                done = restored.as_json()
            case "drop":
                done = drop_savepoint(self._runtime, name).as_json()
            case _:
                raise RequestError(f"`action` is create, restore or drop, not {action!r}")
        request.report({"type": "savepoint", "savepoint": {"action": action, **done}})
        return State.SUCCEEDED

    def _query(self, request: Request) -> State:
        statement, limit = request.arguments.get("statement"), request.arguments.get("limit")
        if not isinstance(statement, str) or not statement.strip():
            raise RequestError("sql needs a `statement`")
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise RequestError(f"`limit` is a whole number of rows, not {limit!r}")
        self._effective_graph.check_whole(request.cancellation.check)
        result = self._interruptible(
            request,
            lambda: query(
                self._runtime,
                statement,
                limit=limit,
                cancellation=request.cancellation,
                snapshot=bool(request.arguments.get("snapshot", False)),
                left_out=self._effective_graph.left_out,
            ),
        )
        request.report(
            {
                "type": "rows",
                "columns": [list(column) for column in result.columns],
                "rows": list(result.rows),
                "truncated": result.truncated,
                "tokens": [token.as_json() for token in result.tokens],
            }
        )
        return State.SUCCEEDED

    def _interruptible(self, request: Request, work: Callable[[], T]) -> T:
        """Do something that Spark has a part in; a cancelled request raises CancelledError, whatever Spark said."""
        ended = threading.Event()

        def interrupt_again() -> None:
            while not ended.wait(_INTERRUPT_SECONDS):
                if request.cancellation.cancelled:
                    request.interrupt()

        threading.Thread(target=interrupt_again, name=f"interrupt-{request.id[:8]}", daemon=True).start()
        try:
            return work()
        except Exception as error:
            if request.cancellation.cancelled:
                raise CancelledError("the request was cancelled") from error
            raise
        finally:
            ended.set()


def _reason_of(hold: TableExclusion) -> str:
    return f"{State.SKIPPED}(suspended)" if hold.cause is None else f"{State.BLOCKED}({hold.cause}, suspended)"


def read_names(graph: Graph, arguments: Mapping[str, Any]) -> tuple[TableName, ...]:
    """The tables and sources that a request names, each once. Raises RequestError, with the nearest name."""
    given = arguments.get("tables") or []
    if not isinstance(given, list) or not all(isinstance(item, str) for item in given):
        raise RequestError("`tables` is a list of names")
    names: dict[TableName, None] = {}
    for text in given:
        names[graph.require(_name(text)).name] = None
    return tuple(names)


def _has_lost_its_asker(request: Request, now: float) -> bool:
    """Whether its process has ended, or nobody has asked about it for long: that is how one elsewhere is found out."""
    ended = request.asker is not None and not request.asker.alive
    return ended or now - request.asked_at > ASKER_GONE_SECONDS


def read_refresh(graph: Graph, arguments: Mapping[str, Any]) -> _Asked:
    """The arguments of a refresh. Raises RequestError."""
    names = read_names(graph, arguments)
    return _Asked(
        names,
        bool(arguments.get("full", False)),
        tuple(read_partition_values(item) for item in _list(arguments.get("partitions"))),
        bool(arguments.get("upstreams", True)),
        _cause(arguments.get("cause", MANUAL)),
        _start(arguments.get("start")),
        bool(arguments.get("retry", False)),
    )


def _start(value: object) -> str | None:
    if value is None or value == NOW:
        return None if value is None else NOW
    try:
        return date.fromisoformat(str(value)).isoformat()
    except ValueError as error:
        raise RequestError(f"`start` is {NOW} or a date as 2026-11-01, not {value!r}") from error


def _name(value: object) -> TableName:
    try:
        return TableName.parse(str(value))
    except ValueError as error:
        raise RequestError(str(error)) from error


def _cause(value: object) -> str:
    if value not in (MANUAL, LIVE, BACKFILL):
        raise RequestError(f"`cause` is {MANUAL}, {LIVE} or {BACKFILL}, not {value!r}")
    return str(value)


def _list(value: object) -> Iterable[object]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise RequestError("`partitions` is a list of partitions, each a list of [column, value]")
    return value
