"""The loops decide: what is woken, what is due, what waits for its inputs, what rests after a failure."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.names import TableName
from freshline.declare.project import read_declarations
from freshline.engine.loops import LONGEST_PAUSE_SECONDS, Failures, Loops, Want
from freshline.engine.work import Job
from freshline.errors import QueryError
from freshline.plan.request import LIVE, MANUAL, RefreshRequest
from freshline.refresh.cancellation import Cancellation
from freshline.report.outcome import Outcome

SOURCE = (
    "CREATE SOURCE {name} (id BIGINT) FRESHNESS = {freshness} "
    "WITH ('connector' = 'files', 'format' = 'json', 'path' = '{name}')"
)
TABLE = "CREATE MATERIALIZED TABLE {name} FRESHNESS = {freshness} AS SELECT id FROM {reads}"


class Work:
    """Takes jobs and does none."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.running: frozenset[TableName] = frozenset()

    @property
    def busy(self) -> frozenset[TableName]:
        return self.running | {job.table for job in self.jobs}

    def submit(self, job: Job) -> Job:
        self.jobs.append(job)
        return job

    def take(self) -> list[str]:
        """The tables that were asked for since the last call, in order."""
        names = sorted(str(job.table) for job in self.jobs)
        self.jobs.clear()
        return names


class Bench:
    """Loops over a graph, with work that a test does by hand."""

    def __init__(self, settings: Any, control: ControlStore, graph: Graph) -> None:
        self.work = Work()
        self.now = datetime(2026, 11, 1, 12, tzinfo=UTC)
        runtime: Any = SimpleNamespace(
            settings=settings, control=control, warehouse=Warehouse(settings.warehouse), clock=lambda: self.now
        )
        declarations: Any = SimpleNamespace(graph=graph, look=lambda: graph)
        self.loops = Loops(runtime, declarations, self.work, random_number=lambda: 0.0)  # type: ignore[arg-type]

    def tell(self, table: str, *, state: str = "SUCCEEDED", committed: bool = False, cause: str = LIVE) -> None:
        name = TableName.parse(table)
        job = Job(name, RefreshRequest(cause=cause), Cancellation(), lambda message: None)
        error = QueryError("no", where=table) if state == "FAILED" else None
        self.loops.told(
            job,
            Outcome(
                table=name,
                kind="table",
                state=state,
                strategy="noop",
                reason="",
                version=1 if committed else 0,
                rows_in=0,
                rows_out=0,
                seconds=0.1,
                committed=committed,
                error=error,
            ),
        )

    def ready(self) -> list[str]:
        with self.loops._lock:
            return sorted(str(name) for name in self.loops._ready(self.work.busy, time.monotonic()))


@pytest.fixture
def bench(settings) -> Iterator[Bench]:
    """orders (10 s) -> clean (20 s, continuous) -> hourly (5 min, incremental) -> daily (1 day, batch)"""
    graph = read_declarations(
        {
            "orders.sql": SOURCE.format(name="orders", freshness="INTERVAL '10' SECOND"),
            "clean.sql": TABLE.format(name="clean", freshness="INTERVAL '20' SECOND", reads="orders"),
            "hourly.sql": TABLE.format(name="hourly", freshness="INTERVAL '5' MINUTE", reads="clean"),
            "daily.sql": TABLE.format(name="daily", freshness="INTERVAL '1' DAY", reads="hourly"),
        },
        settings,
    )
    control = ControlStore.open(settings.control_store)
    yield Bench(settings, control, graph)
    control.close()


def test_a_commit_wakes_continuous_readers_and_no_others(bench):
    bench.tell("orders", committed=True)
    bench.tell("clean", committed=True)

    assert bench.ready() == ["clean"]


def test_a_commit_of_a_manual_refresh_wakes_too(bench):
    bench.tell("orders", committed=True, cause=MANUAL)

    assert bench.ready() == ["clean"]


def test_a_look_that_found_nothing_wakes_nobody(bench):
    bench.tell("orders", committed=False)

    assert bench.ready() == []


def test_what_was_never_refreshed_is_brought_in_upstreams_first(bench):
    order = []
    bench.loops._step()
    while bench.work.jobs:
        names = bench.work.take()
        order += names
        for name in names:
            bench.tell(name)
        with bench.loops._lock:
            bench.loops._submit(bench.loops._ready(bench.work.busy, time.monotonic()))

    assert order == ["orders", "clean", "hourly", "daily"]


def test_a_first_refresh_waits_for_the_first_version_of_what_it_reads(bench):
    bench.loops._committed(TableName.parse("orders"))
    bench.work.running = frozenset({TableName.parse("orders")})

    assert bench.ready() == []


def test_a_reader_of_a_log_that_always_grows_runs_beside_it(bench):
    bench.tell("orders", committed=True)
    with bench.loops._lock:
        bench.loops._want(TableName.parse("orders"), Want("polled"))
    assert bench.ready() == ["clean", "orders"]

    bench.work.running = frozenset({TableName.parse("orders")})
    assert bench.ready() == ["clean"]


def test_a_table_that_is_due_waits_for_what_is_brought_in_for_it(bench):
    for name in ("orders", "clean"):
        bench.tell(name)
    with bench.loops._lock:
        bench.loops._memory.wanted.clear()
        for name in ("orders", "clean", "hourly"):
            bench.loops._want(TableName.parse(name), Want("due", frozenset({TableName.parse("hourly")})))
        bench.loops._submit(bench.loops._ready(bench.work.busy, time.monotonic()))
        # Polled again while it runs: that is for nobody in particular.
        bench.loops._want(TableName.parse("orders"), Want("polled"))
    assert bench.work.take() == ["orders"]
    bench.work.running = frozenset({TableName.parse("orders")})
    assert bench.ready() == []

    bench.work.running = frozenset()
    bench.tell("orders")
    assert bench.ready() == ["clean", "orders"]


def test_a_table_that_is_being_refreshed_is_not_asked_for_again(bench):
    bench.tell("orders", committed=True)
    bench.work.running = frozenset({TableName.parse("clean")})

    assert bench.ready() == []


def test_a_failed_table_rests_and_what_is_only_due_waits_with_it(bench):
    bench.loops._step()
    assert bench.work.take() == ["orders"]

    bench.tell("orders", state="FAILED")

    assert bench.ready() == []
    failures = bench.loops._memory.failures[TableName.parse("orders")]
    assert failures.count == 1
    bench.tell("orders")
    assert not bench.loops._memory.failures


def test_a_failed_manual_refresh_does_not_count(bench):
    bench.tell("orders", state="FAILED", cause=MANUAL)

    assert not bench.loops._memory.failures


def test_slow_tables_leave_a_thread_to_those_that_must_not_wait(bench):
    bench.work.running = frozenset({TableName.parse("hourly")})
    with bench.loops._lock:
        bench.loops._memory.wanted.clear()
        for name in ("daily", "orders"):
            bench.loops._want(TableName.parse(name), Want("due"))
        bench.loops._submit([TableName.parse("daily"), TableName.parse("orders")])

    assert bench.work.take() == ["orders"]


def test_pauses_grow_to_a_cap_with_jitter():
    failures = Failures()
    pauses = [failures.add("no", 0.0, jitter=0.0) for _ in range(10)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]

    assert failures.add("no", 100.0, jitter=0.999) <= LONGEST_PAUSE_SECONDS
    assert 159 < failures.again_at <= 160
