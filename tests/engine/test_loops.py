"""The loops decide which tables are woken, are due, wait for their inputs, or rest after a failure."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.compute.cancellation import Cancellation
from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.engine.effective_graph import EffectiveGraph
from freshline.engine.loops import LONGEST_PAUSE_SECONDS, Failures, Loops
from freshline.engine.work import Job
from freshline.errors import DefinitionChangedError, FreshlineError, QueryError, SourceError, StorageError
from freshline.freshness.alter import (
    FreshnessDecision,
    decide_freshness,
    decide_reset,
    decide_resume,
    decide_suspension,
)
from freshline.freshness.intentions import Intentions
from freshline.freshness.record import Heartbeat
from freshline.freshness.schedule import POLLED, WOKEN, Schedule
from freshline.manage.decide import IntentionWriter
from freshline.plan.request import BACKFILL, LIVE, MANUAL, RefreshRequest
from freshline.values.freshness import Freshness
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State
from freshline.values.spec import Mode

pytestmark = pytest.mark.seconds

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
        self.aside: frozenset[TableName] = frozenset()

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
        self.control = control
        declarations: Any = SimpleNamespace(graph=graph, check=lambda: declarations.graph)
        self.declarations = declarations
        self.effective_graph = EffectiveGraph(declarations, control, lambda: self.now)
        self.writer = IntentionWriter(graph, control, lambda: self.now)
        self.runtime = runtime
        self.begin()

    def begin(self) -> None:
        """Go on with the loops of a new engine."""
        self.loops = Loops(self.runtime, self.effective_graph, self.work, random_number=lambda: 0.0)  # type: ignore[arg-type]

    def report(
        self,
        table: str,
        *,
        state: str = "SUCCEEDED",
        committed: bool = False,
        cause: str = LIVE,
        error: FreshlineError | None = None,
        brought_in: bool = True,
    ) -> None:
        name = TableName.parse(table)
        job = Job(name, RefreshRequest(cause=cause), Cancellation(), lambda message: None)
        if state == "FAILED" and error is None:
            error = QueryError("no", where=table)
        self.loops.on_outcome(
            job,
            RefreshResult(
                table=name,
                at=self.now,
                state=State(state),
                strategy="noop",
                reason="",
                version=1 if committed else 0,
                data_timestamp=self.now if brought_in else None,
                rows_in=0,
                rows_out=0,
                seconds=0.1,
                committed=committed,
                error=error,
            ),
        )

    def alter(self, table: str, seconds: int | None, *, lasts: timedelta | None = None) -> None:
        """Another freshness, None for the declared one, as `freshline alter` has it."""

        def decide(known: Intentions, now: datetime) -> FreshnessDecision:
            if seconds is None:
                return decide_reset(self.writer.graph, known, table, cascade=True, by="operator", now=now)
            until = None if lasts is None else now + lasts
            return decide_freshness(
                self.writer.graph, known, table, Freshness(seconds), until=until, cascade=True, by="operator", now=now
            )

        self.writer.freshness(decide)

    def suspend(self, table: str, *, lasts: timedelta | None = None) -> None:
        until = None if lasts is None else self.now + lasts
        self.writer.suspension(
            lambda known, now: decide_suspension(
                self.writer.graph, known, table, until=until, reason=None, by="operator", now=now
            )
        )

    def resume(self, table: str) -> None:
        self.writer.suspension(
            lambda known, now: decide_resume(self.writer.graph, known, table, by="operator", now=now)
        )

    def step(self) -> list[str]:
        """The tables that one step of the loops asks for, when it is time to check every source."""
        self.loops._memory.polled_at.clear()
        self.loops._status_at = 0.0
        self.loops._step()
        return self.work.take()

    def bring_in_all(self) -> None:
        """Every table has a version that is as new as can be."""
        for name in self.effective_graph.graph.order:
            self.control.record_check(name, self.now, "{}")
            self.loops._memory.versions[name] = 1
        self.forget_wishes()

    def forget_wishes(self) -> None:
        """Nothing is wished for and nothing is under way."""
        self.loops._memory.schedule = Schedule(self.loops._memory.graph)

    def wish(self, why: str, *tables: str) -> None:
        with self.loops._lock:
            self.loops._wish([TableName.parse(table) for table in tables], why)

    def wish_due(self, *tables: str) -> None:
        memory = self.loops._memory
        with self.loops._lock:
            memory.schedule, _ = memory.schedule.wish_due([TableName.parse(table) for table in tables], 0.0)

    def submit(self) -> list[str]:
        """Hand over the tables that may begin, and return them."""
        with self.loops._lock:
            self.loops._submit(self.loops._ready(self.work.busy, time.monotonic()))
        return self.work.take()

    def fail(self, times: int, table: str = "hourly", **how: Any) -> None:
        """Report failures, five minutes apart."""
        for _ in range(times):
            self.report(table, state="FAILED", **how)
            self.now += timedelta(minutes=5)

    def wait_for_heartbeat(self) -> Heartbeat:
        """Start the loops, and wait until they are heard of."""
        self.loops.start()
        deadline = time.monotonic() + 10
        while not self.control.heartbeats.read() and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.control.heartbeats.read()["engine"]

    def states(self, table: str) -> list[tuple[str, str]]:
        return [(record.state, record.reason) for record in self.control.refreshes(TableName.parse(table))]

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
    bench.report("orders", committed=True)
    bench.report("clean", committed=True)

    assert bench.ready() == ["clean"]


def test_a_commit_of_a_manual_refresh_wakes_too(bench):
    bench.report("orders", committed=True, cause=MANUAL)

    assert bench.ready() == ["clean"]


def test_a_check_that_found_nothing_wakes_nobody(bench):
    bench.report("orders", committed=False)

    assert bench.ready() == []


def test_tables_that_were_never_refreshed_are_brought_in_upstreams_first(bench):
    order = []
    bench.loops._step()
    while bench.work.jobs:
        names = bench.work.take()
        order += names
        for name in names:
            bench.report(name)
        with bench.loops._lock:
            bench.loops._submit(bench.loops._ready(bench.work.busy, time.monotonic()))

    assert order == ["orders", "clean", "hourly", "daily"]


def test_a_first_refresh_waits_for_the_first_version_of_what_it_reads(bench):
    bench.loops._committed(TableName.parse("orders"))
    bench.work.running = frozenset({TableName.parse("orders")})

    assert bench.ready() == []


def test_a_check_of_a_source_that_left_all_of_it_for_the_next_one_is_no_version(bench):
    bench.report("orders", brought_in=False)
    bench.wish(WOKEN, "clean")
    bench.wish(POLLED, "orders")
    assert bench.ready() == ["orders"]

    bench.report("orders")
    bench.wish(POLLED, "orders")
    assert bench.ready() == ["clean", "orders"]


def test_a_reader_of_a_log_that_always_grows_runs_beside_it(bench):
    bench.report("orders", committed=True)
    bench.wish(POLLED, "orders")
    assert bench.ready() == ["clean", "orders"]

    bench.work.running = frozenset({TableName.parse("orders")})
    assert bench.ready() == ["clean"]


def test_a_table_that_is_due_waits_for_what_is_brought_in_for_it(bench):
    for name in ("orders", "clean"):
        bench.report(name)
    bench.forget_wishes()
    bench.wish_due("hourly")
    assert bench.submit() == ["orders"]
    # It is polled again while it runs, and no table has asked for that.
    bench.wish(POLLED, "orders")
    bench.work.running = frozenset({TableName.parse("orders")})
    assert bench.ready() == []

    bench.work.running = frozenset()
    bench.report("orders")
    bench.wish(POLLED, "orders")
    assert bench.submit() == ["clean", "orders"]


def test_a_table_that_is_being_refreshed_is_not_asked_for_again(bench):
    bench.report("orders", committed=True)
    bench.work.running = frozenset({TableName.parse("clean")})

    assert bench.ready() == []


def test_a_failed_table_rests_and_what_is_only_due_waits_with_it(bench):
    bench.loops._step()
    assert bench.work.take() == ["orders"]

    bench.report("orders", state="FAILED")

    assert bench.ready() == []
    failures = bench.loops._memory.failures[TableName.parse("orders")]
    assert failures.count == 1
    bench.report("orders")
    assert not bench.loops._memory.failures


def test_a_failed_manual_refresh_does_not_count(bench):
    bench.report("orders", state="FAILED", cause=MANUAL)

    assert not bench.loops._memory.failures


def test_slow_tables_leave_a_thread_to_those_that_must_not_wait(bench):
    bench.work.running = frozenset({TableName.parse("hourly")})
    bench.bring_in_all()
    bench.wish(WOKEN, "daily", "orders")

    assert bench.submit() == ["orders"]


def test_a_table_whose_function_hangs_does_not_take_the_place_of_slow_tables(bench):
    bench.bring_in_all()
    bench.work.running = bench.work.aside = frozenset({TableName.parse("hourly")})
    bench.wish(WOKEN, "daily")

    assert bench.submit() == ["daily"]


def test_pauses_grow_to_a_cap_with_jitter():
    failures = Failures()
    pauses = [failures.add("no", 0.0, jitter=0.0) for _ in range(10)]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0]

    assert failures.add("no", 100.0, jitter=0.999) <= LONGEST_PAUSE_SECONDS
    assert 159 < failures.again_at <= 160


# -- what was decided about tables


def test_a_longer_freshness_is_kept_in_another_mode_from_the_next_step_on(bench):
    bench.bring_in_all()
    bench.alter("hourly", 21)
    bench.loops._step()

    assert bench.loops._memory.graph.mode(TableName.parse("hourly")) is Mode.CONTINUOUS
    bench.work.take()
    bench.forget_wishes()
    bench.report("clean", committed=True)
    assert bench.ready() == ["hourly"]

    bench.alter("hourly", None)
    bench.loops._step()
    bench.forget_wishes()
    bench.report("clean", committed=True)
    assert bench.ready() == []
    assert [state for state, _ in bench.states("hourly")] == ["ALTERED", "ALTERED"]


def test_a_table_that_becomes_continuous_is_refreshed_at_once(bench):
    bench.bring_in_all()
    bench.alter("hourly", 21)

    assert "hourly" in bench.step()


def test_a_refresh_in_flight_is_not_begun_again_by_another_mode(bench):
    bench.bring_in_all()
    bench.work.running = frozenset({TableName.parse("hourly")})
    bench.alter("hourly", 21)

    assert "hourly" not in bench.step()
    bench.work.running = frozenset()
    bench.report("hourly", committed=True)
    assert "hourly" in bench.step()


def test_an_override_ends_by_itself_and_that_is_recorded_once(bench):
    bench.bring_in_all()
    bench.alter("hourly", 21, lasts=timedelta(hours=1))
    bench.step()
    bench.now += timedelta(hours=1)
    bench.bring_in_all()

    bench.step()
    bench.step()

    assert bench.effective_graph.graph.mode(TableName.parse("hourly")) is Mode.INCREMENTAL
    assert bench.control.intentions.read().overrides == {}
    assert [reason for _, reason in bench.states("hourly")][:-1] == [
        (
            "freshness 21 seconds, set by operator, ended by itself at 2026-11-01 13:00:00+00:00; "
            "the declared 5 minutes is in force again"
        )
    ]


def test_a_suspended_table_and_those_below_are_left_alone_until_it_is_resumed(bench):
    bench.suspend("clean")
    bench.loops._step()
    bench.work.take()
    bench.report("orders", committed=True)

    assert bench.step() == ["orders"]
    bench.report("orders", committed=True)
    assert bench.step() == ["orders"]

    bench.report("orders")
    bench.resume("clean")
    assert bench.step() == ["orders"]  # clean is due, and orders is brought in for it
    bench.report("orders", committed=True)
    assert bench.step() == ["clean", "orders"]


def test_resuming_frees_only_what_nobody_else_suspended(bench):
    bench.suspend("clean")
    bench.suspend("hourly")
    bench.step()
    assert {str(name): str(hold.by) for name, hold in bench.effective_graph.held.items()} == {
        "clean": "SUSPENDED", "hourly": "SUSPENDED", "daily": "BLOCKED",
    }  # fmt: skip

    bench.resume("clean")
    bench.step()

    assert {str(name): str(hold.by) for name, hold in bench.effective_graph.held.items()} == {
        "hourly": "SUSPENDED", "daily": "BLOCKED",
    }  # fmt: skip


def test_a_suspension_ends_by_itself_also_after_a_restart(bench):
    bench.suspend("clean", lasts=timedelta(hours=1))
    bench.now += timedelta(hours=2)

    later = EffectiveGraph(bench.declarations, bench.control, lambda: bench.now)

    assert later.held == {}
    assert bench.states("clean")[0] == (
        "RESUMED",
        "the suspension by operator since 2026-11-01 12:00:00+00:00 until 2026-11-01 13:00:00+00:00 ended by itself",
    )


def test_a_table_that_fails_five_times_over_fifteen_minutes_is_suspended_with_its_error(bench):
    for _ in range(5):
        assert not bench.control.intentions.read().suspensions
        bench.report("hourly", state="FAILED")
        bench.now += timedelta(minutes=4)

    (suspension,) = bench.control.intentions.read().suspensions.values()
    assert (str(suspension.table), suspension.by, suspension.automatic) == ("hourly", "freshline", True)
    assert suspension.reason == ("5 failures in a row over 16 minutes that a retry cannot help, the last one QUERY: no")
    assert bench.states("hourly")[0][0] == "SUSPENDED"
    bench.step()
    assert "hourly" in {str(name) for name in bench.effective_graph.held}


def test_a_table_that_waits_for_its_start_to_be_stated_is_not_suspended_meanwhile(bench):
    for _ in range(9):
        bench.report("hourly", state="FAILED", error=DefinitionChangedError("say from when on", where="hourly"))
        bench.now += timedelta(minutes=4)

    assert not bench.control.intentions.read().suspensions
    assert not bench.control.intentions.failures()


def test_a_success_begins_the_count_anew(bench):
    for number in range(9):
        bench.report("hourly", state="SUCCEEDED" if number == 4 else "FAILED")
        bench.now += timedelta(minutes=5)

    assert bench.control.intentions.failures()[TableName.parse("hourly")].count == 4
    assert not bench.control.intentions.read().suspensions


def test_failures_are_counted_on_after_a_restart(bench):
    bench.fail(4)
    bench.begin()

    bench.fail(1)

    assert bench.control.intentions.read().suspensions


def test_a_success_ends_a_row_of_failures_of_before_a_restart(bench):
    bench.fail(4)
    bench.begin()

    bench.report("hourly", state="SUCCEEDED")

    assert not bench.control.intentions.failures()
    bench.report("hourly", state="FAILED")
    assert not bench.control.intentions.read().suspensions


@pytest.mark.parametrize(
    ("table", "cause", "error"),
    [
        ("hourly", LIVE, SourceError("the broker is away", where="hourly")),
        ("hourly", LIVE, StorageError("the disk is full", where="hourly")),
        ("hourly", MANUAL, QueryError("no", where="hourly")),
        ("hourly", BACKFILL, QueryError("no", where="hourly")),
        ("orders", LIVE, QueryError("no", where="orders")),
    ],
)
def test_neither_transient_errors_nor_what_nobody_scheduled_suspends(bench, table, cause, error):
    bench.fail(10, table, cause=cause, error=error)

    assert bench.control.intentions.failures() == {}
    assert not bench.control.intentions.read().suspensions


def test_batch_tables_are_left_to_dagster_once_it_was_heard_of(bench):
    def hold() -> dict[str, str]:
        bench.effective_graph._scheduler_at = -10.0
        bench.step()
        return {str(name): str(hold.by) for name, hold in bench.effective_graph.held.items()}

    assert hold() == {}

    bench.control.heartbeats.beat("scheduler", bench.now - timedelta(days=2), {"supervisor": "RUNNING"})
    assert hold() == {"daily": "SCHEDULER"}

    bench.control.heartbeats.beat("scheduler", bench.now, {"supervisor": "STOPPED", "batch": "STOPPED"})
    assert hold() == {"clean": "PAUSED", "hourly": "PAUSED", "daily": "PAUSED"}


def test_the_engine_is_heard_of_while_its_loops_run_and_forgotten_when_they_end(bench):
    beat = bench.wait_for_heartbeat()
    bench.loops.stop()

    assert (beat.at, beat.detail) == (bench.now, {"pid": os.getpid(), "loops": True})
    assert bench.control.heartbeats.read() == {}


def test_the_heartbeat_of_an_engine_whose_spark_has_died_stays_and_grows_old(bench):
    bench.wait_for_heartbeat()
    bench.loops.stop(in_order=False)

    assert list(bench.control.heartbeats.read()) == ["engine"]


def test_a_store_that_is_away_stops_nothing_and_is_reported_once(bench, settings, caplog):
    bench.bring_in_all()
    bench.suspend("hourly")
    bench.step()
    file = Path(settings.control_store.removeprefix("sqlite:///"))
    aside = file.with_suffix(".aside")
    bench.control.close()
    file.rename(aside)
    file.mkdir()

    with caplog.at_level("INFO", logger="freshline.engine"):
        for _ in range(3):
            bench.report("orders", committed=True)
            assert bench.step() == ["clean", "orders"]
            bench.report("clean")

    assert "hourly" in {str(name) for name in bench.effective_graph.held}
    on_outcome = [record.levelname for record in caplog.records if record.levelname != "INFO"]
    assert on_outcome == ["WARNING", "WARNING"]

    file.rmdir()
    aside.rename(file)
    bench.resume("hourly")
    bench.step()
    assert bench.effective_graph.held == {}


def test_a_due_list_leaves_out_what_is_suspended_and_what_is_below(bench):
    graph = bench.effective_graph.graph
    assert [str(name) for name in bench.loops.due(graph)] == ["orders", "clean", "hourly", "daily"]

    bench.suspend("hourly")
    bench.effective_graph.follow()

    assert [str(name) for name in bench.loops.due(graph)] == ["orders", "clean"]


def test_ages_are_read_when_the_first_table_becomes_due_and_not_before(bench, monkeypatch):
    checks = []
    check = bench.loops.status

    def counted(**how):
        checks.append(bench.now)
        return check(**how)

    monkeypatch.setattr(bench.loops, "status", counted)

    def steps(seconds: float) -> int:
        """The number of checks in a step, after a time in which the loops have rested."""
        bench.now += timedelta(seconds=seconds)
        bench.loops._rested_at = 0.0
        before = len(checks)
        bench.loops._step()
        bench.work.take()
        return len(checks) - before

    bench.bring_in_all()
    assert steps(0) == 1
    assert [steps(3), steps(3), steps(3)] == [0, 0, 0]
    # orders, after ten seconds: it is late until somebody brings it in.
    assert [steps(1), steps(1)] == [1, 1]
    bench.bring_in_all()
    assert [steps(1), steps(1)] == [1, 0]
    # A clock that was put back, then one that jumps ahead.
    assert [steps(-3600), steps(1)] == [1, 1]
    bench.now += timedelta(seconds=3600)
    bench.bring_in_all()
    assert [steps(0), steps(1), steps(3600)] == [1, 0, 1]
    # A table whose refresh takes longer is due earlier.
    bench.bring_in_all()
    assert [steps(0), steps(1)] == [1, 0]
    bench.control.record_refresh(
        RefreshResult(
            table=TableName.parse("orders"),
            at=bench.now,
            state=State.SUCCEEDED,
            strategy="append",
            reason="",
            seconds=9.0,
            version=1,
            committed=True,
        )
    )
    bench.report("orders", committed=True)
    assert steps(0) == 1


def test_a_promise_that_cannot_be_kept_is_recorded_once_until_it_can(bench):
    hourly = TableName.parse("hourly")
    bench.loops._memory.measured.update(dict.fromkeys(bench.effective_graph.graph.order, 1.0))
    bench.loops._on = True

    def measured(seconds: float) -> list[str]:
        bench.loops._memory.measured[hourly] = seconds
        bench.step()
        return [reason for state, reason in bench.states("hourly") if state == "INFEASIBLE"]

    assert measured(1.0) == []
    (reason,) = measured(400.0)
    assert reason.startswith("freshness 5 minutes cannot be kept: the refreshes from orders on take 402.0 s")
    assert len(measured(500.0)) == 1
    assert len(measured(1.0)) == 1
    assert len(measured(400.0)) == 2
