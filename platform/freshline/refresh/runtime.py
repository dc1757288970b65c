"""The means of a refresh: the graph, the warehouse, sessions, the control store and a clock, all handed in."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from pyspark.sql import SparkSession

from freshline.commit.control_store import ControlStore
from freshline.commit.definitions import keep_definition
from freshline.commit.delta_log import newest_epoch
from freshline.commit.models import keep_model
from freshline.commit.refresh_log import RefreshLog
from freshline.commit.warehouse import Warehouse
from freshline.compute.cancellation import Cancellation
from freshline.compute.input_cache import CachedRows
from freshline.compute.inputs import Pinned
from freshline.compute.log_keys import KnownKeys
from freshline.compute.predicting import note_file
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError, SourceError
from freshline.plan.definition import definition_of
from freshline.refresh.cpu import CpuMeter
from freshline.refresh.stages import StageName, unrecorded
from freshline.sinks.writer import SinkWriter
from freshline.sources.reader import Reader
from freshline.values.extension import given
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, TableSpec

LOG = logging.getLogger(__name__)

T = TypeVar("T")
Clock = Callable[[], datetime]
Progress = Callable[[str], None]


def utc_now() -> datetime:
    """The time now, in UTC."""
    return datetime.now(UTC)


class PythonTables(Protocol):
    """Runs the functions of tables written in Python, elsewhere than in the engine's own process."""

    def compute(
        self,
        spec: TableSpec,
        inputs: Sequence[Pinned],
        cancellation: Cancellation,
        views: Mapping[TableName, str] = ...,
    ) -> str:
        """Call a table's function on its inputs at their positions; the result is the global temporary view named.

        Inputs in `views` are global temporary views with some of their rows.
        """
        ...

    def drop(self, view: str) -> None:
        """Let go of a result."""
        ...


class Sessions:
    """Sessions of one JVM, each used by one refresh at a time, so that views and confs cannot collide."""

    def __init__(self, spark: SparkSession, wall_clock: Callable[[], float] = time.time) -> None:
        self.root = spark
        self._wall_clock = wall_clock
        self._seen_at = wall_clock()
        self._free: list[SparkSession] = []
        self._lock = threading.Lock()

    @contextmanager
    def take(self) -> Iterator[SparkSession]:
        """A session for one piece of work."""
        with self._lock:
            now = self._wall_clock()
            if now < self._seen_at:
                # Delta takes a snapshot for fresh when it was read after the statement began, by the clock of the wall.
                # One from before a clock was set back would be the newest version until the clock has caught up.
                jvm: Any = self.root._jvm
                jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
            self._seen_at = now
            session = self._free.pop() if self._free else self._new()
        try:
            yield session
        finally:
            with self._lock:
                self._seen_at = max(self._seen_at, self._wall_clock())
                self._free.append(session)

    def _new(self) -> SparkSession:
        session = self.root.newSession()
        # Spark would put environment variables and settings into a query: '${env:NAME}' is a text like any other.
        session.conf.set("spark.sql.variable.substitute", "false")
        # Work of the engine has no modules of its own, so all of it can share processes of Python. Starting those of a
        # session takes some four CPU-seconds. Nor has it classes: with a loader of its own, each session would compile
        # again what another has compiled.
        session.conf.set("spark.sql.artifact.isolation.enabled", "false")
        session.conf.set("spark.sql.artifact.isolation.alwaysApplyClassloader", "false")
        return session


@dataclass
class Runtime:
    """Everything that the functions of `freshline.run` need.

    `graph` may be replaced by a newer one between refreshes. `epoch` is this writer's. `failpoint` is called with the
    name of each point at which a test may want to stop the process; it does nothing otherwise. `provide_jars` makes
    the classes of a named set of jars known to the JVM, and may be called more than once. It is the host of readers.
    """

    settings: Settings
    graph: Graph
    warehouse: Warehouse
    sessions: Sessions
    control: ControlStore
    clock: Clock
    epoch: int
    python_tables: PythonTables | None
    failpoint: Callable[[str], None]
    provide_jars: Callable[[str], None] = lambda name: None
    # Raises StorageError where the warehouse is not the one that this writer has locked. Called before each write.
    require_warehouse: Callable[[], None] = lambda: None
    # Called with the name of each stage of a refresh, which is the block: pin, compute, commit.
    stage: StageName = unrecorded
    kept: CachedRows = field(default_factory=CachedRows)
    known_keys: KnownKeys = field(default_factory=KnownKeys)
    cpu: CpuMeter = field(default_factory=CpuMeter)
    # From which version on everything was kept of a table at the last search for files that nobody needs.
    cleaned_up_to: dict[Path, int] = field(default_factory=dict)
    # Files of which the sum was checked, with their size and time then.
    checked_files: dict[Path, tuple[int, int]] = field(default_factory=dict)
    # Taken by work on all tables at once, before the lock of any of them.
    whole: threading.RLock = field(default_factory=threading.RLock)
    # Queries that Spark was found to read as the analysis of affected keys does, for these changed inputs.
    _understood: set[tuple[str, frozenset[TableName]]] = field(default_factory=set)
    # Fingerprints whose definitions are known to be kept.
    _kept_definitions: set[str] = field(default_factory=set)
    _readers: dict[TableName, Reader[Any, Any]] = field(default_factory=dict)
    _writers: dict[TableName, SinkWriter] = field(default_factory=dict)
    _shared: dict[str, Any] = field(default_factory=dict)
    _locks: dict[TableName, threading.Lock] = field(default_factory=dict)
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _readers_guard: threading.Lock = field(default_factory=threading.Lock)
    # Locked while jars are fetched, which keeps only those waiting that need them too.
    _shared_guard: threading.Lock = field(default_factory=threading.Lock)

    @cached_property
    def refresh_log(self) -> RefreshLog:
        """The refresh log of the warehouse."""
        return RefreshLog(self.control, self.warehouse.root)

    @property
    def root(self) -> Path:
        """The folder of the project."""
        return self.settings.root

    @property
    def spark(self) -> SparkSession:
        """The session of the process."""
        return self.sessions.root

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """A thing that all readers of a connector share, made when it is first asked for."""
        with self._shared_guard:
            if name not in self._shared:
                self._shared[name] = make()
            found: T = self._shared[name]
            return found

    def reader(self, spec: SourceSpec) -> Reader[Any, Any]:
        """The reader of a source, kept until the source is declared otherwise."""
        with self._readers_guard:
            reader = self._readers.get(spec.name)
            if reader is not None and reader.spec == spec:
                return reader
            if reader is not None:
                _close(reader)
            made: Reader[Any, Any] = given(
                spec.connection.open(spec, self), Reader, type(spec.connection), "open", spec
            )
            self._readers[spec.name] = made
            return made

    @property
    def sink_notes(self) -> Path:
        """The folder of sinks whose systems cannot keep a position."""
        return self.warehouse.notes / "sinks"

    def sink_writer(self, spec: TableSpec) -> SinkWriter:
        """The writer of a sink, kept until the sink is declared otherwise."""
        assert spec.sink is not None
        with self._readers_guard:
            writer = self._writers.get(spec.name)
            if writer is not None and writer.spec == spec:
                return writer
            if writer is not None:
                _close(writer)
            made: SinkWriter = given(spec.sink.open(spec, self), SinkWriter, type(spec.sink), "open", spec)
            self._writers[spec.name] = made
            return made

    def forget_reader(self, name: TableName) -> None:
        """Forget how far a source was read: its log was put back."""
        with self._readers_guard:
            reader = self._readers.pop(name, None)
        if reader is not None:
            _close(reader)

    def close_readers(self) -> None:
        """Let go of the connections of all sources and sinks."""
        with self._readers_guard:
            readers: list[Reader[Any, Any] | SinkWriter] = [*self._readers.values(), *self._writers.values()]
            self._readers.clear()
            self._writers.clear()
        for reader in readers:
            _close(reader)

    def lock(self, name: TableName) -> threading.Lock:
        """The lock of one table: one refresh at a time."""
        with self._guard:
            return self._locks.setdefault(name, threading.Lock())

    def keep_definition(self, spec: TableSpec) -> None:
        """Keep the definition of a table beside the tables. Raises StorageError."""
        if spec.fingerprint not in self._kept_definitions:
            keep_definition(self.warehouse.root, definition_of(spec))
            self._kept_definitions.add(spec.fingerprint)

    def keep_models(self, spec: TableSpec) -> None:
        """Keep the files of the models that a query asks, for the refresh and for whoever verifies it later.

        Raises ModelError and StorageError.
        """
        for model in spec.query.models:
            note_file(model.sha256, keep_model(self.warehouse.root, model))

    def is_understood(self, fingerprint: str, changed: frozenset[TableName]) -> bool:
        """Whether the analysis of affected keys was compared with Spark's own reading of the query."""
        return (fingerprint, changed) in self._understood

    def note_understood(self, fingerprint: str, changed: frozenset[TableName]) -> None:
        """Note that the analysis and Spark's own reading agree."""
        self._understood.add((fingerprint, changed))

    @contextmanager
    def working(self, cancellation: Cancellation, *, pool: str, what: str) -> Iterator[SparkSession]:
        """A session for one refresh: its Spark jobs run in the pool and are interrupted when the request is cancelled.

        Job group and pool belong to the thread (PySpark pins each Python thread to one of the JVM).
        """
        context = self.sessions.root.sparkContext
        group = f"freshline-{uuid4().hex}"
        context.setJobGroup(group, what, interruptOnCancel=True)
        context.setLocalProperty("spark.scheduler.pool", pool)

        def interrupt() -> None:
            # Also of jobs that the group has yet to start: a query that is still being planned has none.
            context._jsc.sc().cancelJobGroupAndFutureJobs(group)

        try:
            with self.sessions.take() as spark:
                cancellation.on_cancel(interrupt)
                try:
                    yield spark
                finally:
                    cancellation.forget(interrupt)
        finally:
            for key in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
                context.setLocalProperty(key, None)  # type: ignore[arg-type]


def _close(reader: Reader[Any, Any] | SinkWriter) -> None:
    """Close a reader or writer. One that fails at it is forgotten all the same, and a new one is made."""
    try:
        reader.close()
    except FreshlineError as error:
        LOG.warning("the connection of %s is not closed: %s", reader.where, error)


def open_runtime(
    settings: Settings,
    graph: Graph,
    spark: SparkSession,
    control: ControlStore,
    *,
    clock: Clock = utc_now,
    epoch: int | None = None,
    python_tables: PythonTables | None = None,
    failpoint: Callable[[str], None] = lambda name: None,
    provide_jars: Callable[[str], None] = lambda name: None,
    require_warehouse: Callable[[], None] = lambda: None,
) -> Runtime:
    """Make a runtime; without `epoch` a new one is taken.

    The new epoch is above the control store's and above every table's newest transaction's, so that a lost store never
    makes writes seem old.
    """
    warehouse = Warehouse(settings.warehouse)
    warehouse.root.mkdir(parents=True, exist_ok=True)
    if epoch is None:
        epoch = control.take_epoch(1 + _greatest_epoch(warehouse, graph))
    return Runtime(
        settings,
        graph,
        warehouse,
        Sessions(spark),
        control,
        clock,
        epoch,
        python_tables,
        failpoint,
        provide_jars,
        require_warehouse,
    )


def _greatest_epoch(warehouse: Warehouse, graph: Graph) -> int:
    """Of all tables that are there: one that is not declared now may be declared again later, under this epoch."""
    places = (warehouse.path, warehouse.quarantine, warehouse.files, warehouse.pending_lookups, warehouse.answers)
    declared = {place(name) for name in graph.order for place in places}
    found = 0
    for path in warehouse.tables():
        try:
            found = max(found, newest_epoch(path))
        except SourceError as error:
            if path in declared:
                raise
            LOG.warning("what stands in the warehouse and is not declared is left alone: %s", error)
    return found
