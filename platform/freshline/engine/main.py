"""The engine: the one process that owns Spark and does all writes of a warehouse.

In this order: the lock on the warehouse, the end of what a killed engine left, HTTP for posts of events, the control
store, Spark and a new epoch, HTTP for everything else, and last the state file, so that whoever reads it finds an
engine that answers. It stops in the opposite order: no new requests, no new refreshes, those that run finish, Spark
ends, the state file goes, the lock is given back. Killed at any point, the next start takes over from the tables' own
logs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyspark
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from freshline.commit.control_store import ControlStore
from freshline.commit.purge import finish_purges
from freshline.declare.graph import Graph
from freshline.declare.project import find_project, read_settings
from freshline.engine import spark
from freshline.engine.catalogs import CatalogKeeper
from freshline.engine.changes import Changes
from freshline.engine.commit_consumers import CommitConsumers
from freshline.engine.connector_jars import provide_connector_jars
from freshline.engine.declarations import Declarations
from freshline.engine.down_mark import require_not_down
from freshline.engine.effective_graph import EffectiveGraph
from freshline.engine.failpoint import read_failpoint
from freshline.engine.lock import WarehouseLock
from freshline.engine.loops import Loops
from freshline.engine.maintenance import Maintenance
from freshline.engine.metrics import Activity, Metrics, MetricSources, open_by_kind
from freshline.engine.process import ProcessId
from freshline.engine.python_tables import PythonTables
from freshline.engine.requests import KINDS, Request, Requests
from freshline.engine.scrape_files import chosen_token, forget_target, write_target, write_token
from freshline.engine.server import EngineServer, bind
from freshline.engine.state_file import EngineState, remove_state, write_state
from freshline.engine.telemetry import Lineage, Tracing, open_lineage, open_tracing
from freshline.engine.work import Job, WorkQueue
from freshline.errors import EngineError, FreshlineError, RefreshError, StorageError
from freshline.refresh.runtime import utc_now
from freshline.report.log_lines import line_formatter
from freshline.report.metrics.exposition import Family
from freshline.report.metrics.families import Heap
from freshline.run import Runtime, finish_restore, is_restoring, maintain_table, open_runtime, refresh_table
from freshline.values.names import TableName
from freshline.values.registry import ExtensionError, optional_part
from freshline.values.result import RefreshResult, State
from freshline.values.settings import Settings
from freshline.values.spec import Mode
from freshline.version import __version__

if TYPE_CHECKING:
    from freshline.engine.ingest import Ingest

LOG = logging.getLogger(__name__)

DRAIN_SECONDS = 60.0
_CANCELLED_SECONDS = 20.0
_TELL_SECONDS = 2.0
_MAINTENANCE_SECONDS = 20.0
_WATCH_SECONDS = 0.5
_REFRESH_LOG_SECONDS = 30.0
_DISPLACED_SECONDS = 5.0
_LOG_BYTES = 10_000_000

Report = Callable[[Mapping[str, Any]], None]


class Engine:
    """A running engine: what is behind its HTTP."""

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        effective_graph: EffectiveGraph,
        jvm: ProcessId,
        python_tables: PythonTables,
        heap: Callable[[], tuple[int, int]],
        lineage: Lineage | None = None,
        tracing: Tracing | None = None,
        catalogs: CatalogKeeper | None = None,
    ) -> None:
        self._settings = settings
        self._effective_graph = effective_graph
        self._runtime = runtime
        self._jvm = jvm
        self._lineage = lineage
        self._tracing = tracing
        self._catalogs = catalogs
        self._ending = threading.Event()
        self._drain_seconds = DRAIN_SECONDS
        self._state: EngineState | None = None
        self._loops_lock = threading.Lock()
        self._work = WorkQueue(self._refresh, settings.parallel_refreshes, self._on_outcome, self._takes_long)
        self._metrics = Metrics(
            MetricSources(
                version=__version__,
                graph=lambda: effective_graph.graph,
                look=lambda counted: self._loops.status(counted=counted),
                activity=self._activity,
                alerts=runtime.control.alerts.open_alerts,
                heap=lambda: Heap(*heap()),
                engine=ProcessId.own(),
                jvm=jvm,
            )
        )
        self._loops = Loops(runtime, effective_graph, self._work, on_look=self._metrics.on_look)
        python_tables.give_way(self._work.giving_way)
        self._maintenance = Maintenance(self._maintain)
        # Before the first request: from then on refreshes end.
        self._consumers = CommitConsumers(self._metrics, lineage, catalogs, self._loops, self._maintenance)
        self._requests = Requests(
            runtime, effective_graph, self._work, self._loops.due, self._consumers.call_after_restore
        )
        self._requests.adopt()
        self._logged_at = time.monotonic()
        self._log_trouble = ""
        self._displaced_at = 0.0

    # -- what the server offers

    def health(self) -> dict[str, Any]:
        """The version and process of this engine, and whether it keeps the tables by itself."""
        return {
            "version": __version__,
            "pid": os.getpid(),
            "warehouse": str(self._settings.warehouse),
            "loops": self._loops.on,
            "stopping": self._ending.is_set(),
            "epoch": self._runtime.epoch,
            "overridden": [str(name) for name in self._effective_graph.intentions.overrides],
            "suspended": [str(name) for name in self._effective_graph.intentions.suspensions],
        }

    def submit(self, kind: str, arguments: Mapping[str, Any], asker: int | None) -> Request:
        self._runtime.require_warehouse()
        return self._requests.submit(kind, arguments, asker)

    def find(self, request_id: str) -> Request:
        return self._requests.find(request_id)

    def status(self) -> list[dict[str, Any]]:
        return [status.as_json() for status in self._loops.status()]

    def metrics(self) -> Sequence[Family]:
        return self._metrics.families()

    def _activity(self) -> Activity:
        return Activity(
            waiting=self._work.waiting,
            running=len(self._work.running),
            requests=open_by_kind(KINDS, (request.kind for request in self._requests.open)),
            loops=self._loops.on,
        )

    def set_loops(self, on: bool) -> None:
        """Start or stop the loops; the state file says which."""
        with self._loops_lock:
            if self._ending.is_set():
                raise EngineError("the engine is stopping. Start it again when it has ended.")
            if on:
                self._loops.start()
            else:
                self._loops.stop()
            if self._state is not None:
                self.publish(self._state)

    def stop(self, seconds: float | None) -> None:
        """Begin to end; running work may go on for so many seconds."""
        if seconds is not None:
            self._drain_seconds = seconds
        self._requests.stop()
        self._ending.set()

    # -- its life

    @property
    def state(self) -> EngineState | None:
        """This engine as its state file shows it."""
        return self._state

    def publish(self, state: EngineState) -> None:
        """Write the state file, by which others find this engine."""
        self._state = EngineState(**{**vars(state), "loops": self._loops.on})
        write_state(self._settings.state, self._state)

    def run(self) -> int:
        """Serve until asked to stop, until idle without loops, or until the JVM is gone; returns the exit code."""
        while not self._ending.wait(_WATCH_SECONDS):
            self._requests.watch_over()
            if time.monotonic() - self._logged_at >= _REFRESH_LOG_SECONDS:
                self._log_refreshes()
            if not self._jvm.alive:
                LOG.error("the JVM (process %d) has ended by itself; the engine ends too", self._jvm.pid)
                self.stop(5.0)
                return 1
            if self._is_displaced():
                LOG.error("the warehouse is not at %s any more; the engine ends", self._settings.warehouse)
                self.stop(5.0)
                return 1
            idle = time.monotonic() - self._requests.used_at
            if not self._loops.on and not self._requests.open and idle > self._settings.idle_seconds:
                LOG.info("idle for %.0f s", idle)
                self.stop(None)
        return 0

    def _is_displaced(self) -> bool:
        """Whether the warehouse has not been at its path for a while: a disk may come back in a moment."""
        try:
            self._runtime.require_warehouse()
        except StorageError:
            self._displaced_at = self._displaced_at or time.monotonic()
            return time.monotonic() - self._displaced_at >= _DISPLACED_SECONDS
        self._displaced_at = 0.0
        return False

    def drain(self) -> None:
        """Let running work finish within its time, then cancel it; returns when nothing writes any more."""
        LOG.info("stopping; running work may go on for %.0f s", self._drain_seconds)
        self._requests.stop()
        self._loops.stop(in_order=self._jvm.alive)
        self._metrics.close()
        deadline = time.monotonic() + self._drain_seconds
        finished = False
        while not finished and time.monotonic() < deadline:
            # Askers may still go away; their work need not be waited for.
            self._requests.watch_over()
            finished = self._requests.wait(_WATCH_SECONDS) and self._work.wait_until_idle(_WATCH_SECONDS)
        if not finished:
            LOG.warning("cancelling what still runs")
            deadline = time.monotonic() + _CANCELLED_SECONDS
            while not finished and time.monotonic() < deadline:
                self._requests.cancel_all()
                self._work.cancel_all()
                finished = self._requests.wait(_WATCH_SECONDS) and self._work.wait_until_idle(_WATCH_SECONDS)
        # Those who poll get to know how it ended.
        self._requests.wait(_TELL_SECONDS, delivered=True)
        if not self._maintenance.stop(_MAINTENANCE_SECONDS):
            LOG.warning("maintenance is left where it is; it goes on at the next start")
        self._work.close(1.0)
        self._log_refreshes()
        for travelling in (self._lineage, self._tracing, self._catalogs):
            if travelling is not None:
                travelling.close(_TELL_SECONDS)

    def _log_refreshes(self) -> None:
        """Append what happened to the refresh log; what cannot be written now is written later."""
        self._logged_at = time.monotonic()
        try:
            self._runtime.require_warehouse()
            self._runtime.refresh_log.flush()
            self._log_trouble = ""
        except FreshlineError as error:
            if str(error) != self._log_trouble:
                self._log_trouble = str(error)
                LOG.warning("%s; tried again every %.0f s", error, _REFRESH_LOG_SECONDS)

    def _refresh(self, job: Job) -> RefreshResult:
        do = partial(
            refresh_table,
            self._runtime,
            job.table,
            job.request,
            cancellation=job.cancellation,
            progress=job.progress,
        )
        return do() if self._tracing is None else self._tracing.refresh(job.asked_at, do)

    def _takes_long(self, name: TableName) -> bool:
        graph = self._runtime.graph
        return name in graph and graph.mode(name) is not Mode.CONTINUOUS

    def _maintain(self, name: TableName) -> None:
        # A table that is left out for a mistake may have to read what would be removed.
        if name in self._runtime.graph and not self._effective_graph.partial:
            maintain_table(self._runtime, name)

    def _on_outcome(self, job: Job, outcome: RefreshResult | None) -> None:
        self._consumers.call_after_refresh(job, outcome)
        if outcome is None:
            self._record_mistake(job)
        elif outcome.committed or outcome.state != State.SUCCEEDED:
            LOG.info(
                "%s: %s %s (%s), %.2f s", job.table, outcome.state, outcome.strategy, outcome.reason, outcome.seconds
            )

    def _record_mistake(self, job: Job) -> None:
        """Record a refresh that ended without an outcome, which it must not, as FAILED in the table's status."""
        graph = self._runtime.graph
        if job.table not in graph:
            return
        error = RefreshError("the refresh ended without an outcome; see the engine's log", where=str(job.table))
        self._runtime.control.record_refresh(
            RefreshResult(
                table=job.table,
                at=self._runtime.clock(),
                state=State.FAILED,
                strategy=None,
                reason=f"{error.code}: {error.message}",
                seconds=0.0,
                version=None,
                fingerprint=graph.spec(job.table).fingerprint,
                error=error,
            )
        )


def run_engine(settings: Settings, *, loops: bool, report: Report, down_mark: str | None = None) -> int:
    """Be the engine of a project until it is stopped; the exit code. Raises FreshlineError when it cannot start.

    `down_mark` is the mark of `freshline down` that was there when somebody asked for this engine.
    """
    token = secrets.token_urlsafe(32)
    with ExitStack() as stack:
        ending = _Ending()

        def progress(message: str) -> None:
            LOG.info(message)
            report({"type": "progress", "message": message})

        lock = WarehouseLock.acquire(settings.warehouse, project=settings.root, state=settings.state, progress=progress)
        stack.callback(lock.release)
        if down_mark is not None:
            # Only now: a `down` from here on finds the holder of the warehouse.
            require_not_down(settings.state, down_mark)
        remove_state(settings.state, None)
        # Refusals come before the seconds that a JVM takes.
        declarations = Declarations(settings)
        own_scrape_token = chosen_token(settings, os.environ)
        scrape_token = own_scrape_token or secrets.token_urlsafe(32)
        lineage = open_lineage(settings, os.environ, lambda: declarations.graph, pyspark.__version__)
        tracing = open_tracing(settings, os.environ)
        listener = bind(settings.engine_port)
        stack.callback(listener.close)
        failpoint = read_failpoint(os.environ)
        ingest = _open_ingest(lambda: declarations.graph, settings.root, failpoint)
        if ingest is not None:
            stack.callback(ingest.close)
        changes = Changes(lambda: declarations.graph, settings, os.environ)
        server = EngineServer(None, token, listener, ingest=ingest, changes=changes, scrape_token=scrape_token)
        # Posts and those who follow tables need neither Spark nor the control store.
        server.start()
        stack.callback(server.stop)
        control = ControlStore.open(settings.control_store, settings.umask)
        stack.callback(control.close)
        progress("starting Spark")
        session = spark.build_session(settings, connect_token=token, progress=_jar_progress(progress))
        stack.callback(spark.stop_session, session)
        jvm = spark.jvm_process(session)
        lock.record_jvm(jvm)
        connect_port = spark.connect_port(session)
        python_tables = PythonTables(
            settings, connect_port=connect_port, token=token, drop_view=session.catalog.dropGlobalTempView
        )
        stack.callback(python_tables.close)
        progress("reading the tables' logs")
        effective_graph = EffectiveGraph(declarations, control, utc_now)
        runtime = open_runtime(
            settings,
            effective_graph.graph,
            session,
            control,
            python_tables=python_tables,
            failpoint=failpoint,
            provide_jars=lambda name: provide_connector_jars(name, settings, session, progress=_jar_progress(progress)),
            require_warehouse=lock.require_in_place,
        )
        # Not while tables are left out for a mistake: whether one of them is declared again is not known.
        declared = None if effective_graph.partial else effective_graph.graph.order
        for purged in () if declared is None else finish_purges(runtime.warehouse, declared):
            LOG.info("deleted what was left of %s, which was dropped", purged)
            control.forget_checks([purged])
        if tracing is not None:
            runtime.stage = tracing.recorder.stage
        catalogs = CatalogKeeper(
            settings,
            control,
            lambda: effective_graph.graph,
            lambda: not effective_graph.partial,
            utc_now,
            lock.require_in_place,
        )

        def on_graph(graph: Graph) -> None:
            runtime.graph = graph
            catalogs.on_graph()

        effective_graph.on_change(on_graph)
        is_half_restored = is_restoring(runtime)
        try:
            finish_restore(runtime)
            if is_half_restored:
                catalogs.on_restore(runtime.graph.order)
        except (FreshlineError, PySparkException, Py4JError, OSError) as error:
            # Every refresh and query tries it again and reports it; without an engine nobody could help.
            LOG.error("a restore that was stopped half way cannot be finished: %s", error)
        engine = Engine(
            settings,
            runtime,
            effective_graph,
            jvm,
            python_tables,
            lambda: spark.heap_of(session),
            lineage,
            tracing,
            catalogs,
        )
        ending.report(engine)
        server.attach(engine)
        # Before Spark ends: requests of the engine want it.
        stack.callback(server.stop)
        # And before that: answers that have no end of their own.
        stack.callback(changes.close)
        state = EngineState(
            process=ProcessId.own(),
            jvm=jvm,
            http_port=server.port,
            connect_port=connect_port,
            token=token,
            warehouse=str(settings.warehouse),
            version=__version__,
            loops=loops,
        )
        if loops:
            engine.set_loops(True)
        engine.publish(state)
        stack.callback(lambda: remove_state(settings.state, engine.state))
        if own_scrape_token is None:
            write_token(settings, scrape_token)
        write_target(settings, server.port)
        # Before the port is given up: whoever takes it next is no target.
        stack.callback(forget_target, settings, server.port)
        LOG.info("ready: epoch %d, port %d, JVM %d, loops %s", runtime.epoch, server.port, jvm.pid, loops)
        report({"type": "ready"})
        code = engine.run()
        engine.drain()
    LOG.info("ended")
    return code


class _Ending:
    """SIGTERM and SIGINT: the engine stops in order; while it still starts, it gives up."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._signalled)

    def report(self, engine: Engine) -> None:
        self._engine = engine

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        if self._engine is None:
            raise EngineError(f"ended by {signal.Signals(number).name} while it started")
        self._engine.stop(None)


def _open_ingest(graph: Callable[[], Graph], root: Path, failpoint: Callable[[str], None]) -> Ingest | None:
    """The door for posts of events; None where this installation lacks the connector `http`."""
    try:
        with optional_part("'http'"):
            from freshline.engine.ingest import Ingest
            from freshline.sources.http.landing import Landing
    except ExtensionError:
        return None
    return Ingest(graph, root, os.environ, Landing(failpoint=failpoint))


def _jar_progress(progress: Callable[[str], None]) -> Callable[[str, int, int], None]:
    on_outcome: dict[str, int] = {}

    def on_jar(name: str, done: int, size: int) -> None:
        tenth = 10 * done // max(1, size)
        if on_outcome.get(name) != tenth:
            on_outcome[name] = tenth
            progress(f"fetching {name}: {done / 1e6:.1f} of {size / 1e6:.1f} MB")

    return on_jar


def _reporter(descriptor: int | None) -> Report:
    """The function that reports progress to the command that started this engine; that command may be gone."""
    if descriptor is None:
        return lambda _: None
    # Neither the JVM nor the worker may keep it open.
    os.set_inheritable(descriptor, False)

    def report(message: Mapping[str, Any]) -> None:
        try:
            os.write(descriptor, json.dumps(dict(message)).encode() + b"\n")
        except OSError:
            LOG.debug("nobody waits for this engine any more")

    return report


def _log_to(settings: Settings) -> None:
    try:
        folder = settings.state / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(folder / "engine.log", maxBytes=_LOG_BYTES, backupCount=3, encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"the state directory cannot be written: {error.strerror or error}. Make it writable for this user.",
            where=str(settings.state),
        ) from error
    text = "%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"
    handler.setFormatter(line_formatter(settings.log_format, text))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # Every refused job of a cancelled request would be a page of stack.
    for noisy in ("py4j", "py4j.clientserver", "SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        logging.getLogger(noisy).setLevel(logging.CRITICAL)
    logging.captureWarnings(True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an engine in this process. Exit code 1 with one line on stderr when it cannot start."""
    parser = argparse.ArgumentParser(prog="python -m freshline.engine.main", description=main.__doc__)
    parser.add_argument("--project", type=Path, required=True, help="the project's folder")
    parser.add_argument("--loops", action="store_true", help="keep the tables by their modes until stopped")
    parser.add_argument("--down-mark", default=None, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=int, default=None, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    report = _reporter(given.report)
    if os.getpgrp() != os.getpid():
        # A group of its own, so that all of it can be ended at once.
        os.setsid()
    try:
        settings = read_settings(find_project(given.project.absolute()), os.environ)
        # It applies to this process, the JVM and the worker: tables, logs and tokens are their owner's.
        os.umask(settings.umask)
        _log_to(settings)
        return run_engine(settings, loops=given.loops, report=report, down_mark=given.down_mark)
    except FreshlineError as error:
        LOG.error("%s", error)
        print(f"freshline engine: {error}", file=sys.stderr)
        report({"type": "error", "error": error.as_json()})
        return 1
    except Exception as error:
        LOG.exception("the engine ended in a way that it must not")
        report({"type": "error", "error": EngineError(f"{type(error).__name__}: {error}").as_json()})
        return 1


if __name__ == "__main__":
    code = main()
    logging.shutdown()
    # Threads that still wait for a JVM that is gone must not delay the end.
    os._exit(code)
