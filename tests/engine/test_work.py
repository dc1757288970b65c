"""The order of refreshes: manual, live, backfill; one at a time a table; no job waits behind one that cannot run."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.engine.work import Job, WorkQueue
from freshline.plan.request import BACKFILL, LIVE, MANUAL, RefreshRequest
from freshline.values.names import TableName
from freshline.values.result import RefreshResult
from tests.engine.benches import succeeded


def job(table: str, cause: str = MANUAL) -> Job:
    return Job(TableName.parse(table), RefreshRequest(cause=cause), Cancellation(), lambda message: None)


class Bench:
    """Work whose refreshes wait until they are let go."""

    def __init__(
        self,
        threads: int,
        on_outcome: Callable[[Job, RefreshResult | None], None] = lambda job, outcome: None,
        takes_long: Callable[[TableName], bool] = lambda table: False,
    ) -> None:
        self.begun: list[tuple[str, str]] = []
        self.changed = threading.Condition()
        self.gates: dict[str, threading.Event] = {}
        self.work = WorkQueue(self.refresh, threads, on_outcome, takes_long)

    def refresh(self, job: Job) -> RefreshResult:
        with self.changed:
            self.begun.append((str(job.table), job.request.cause))
            gate = self.gates.get(str(job.table))
            self.changed.notify_all()
        if gate is not None:
            assert gate.wait(10)
        return succeeded(job)

    def hold(self, table: str) -> threading.Event:
        self.gates[table] = threading.Event()
        return self.gates[table]

    def wait_for(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, 10)


def test_manual_comes_before_live_and_a_backfill_has_a_thread_of_its_own():
    bench = Bench(threads=1)
    gate = bench.hold("first")
    bench.work.submit(job("first"))
    bench.wait_for(1)

    jobs = [
        bench.work.submit(job(f"t{number}", cause))
        for number, cause in enumerate((BACKFILL, LIVE, MANUAL, LIVE, MANUAL))
    ]
    # The one thread that the others share was busy.
    jobs[0].outcome.result(10)
    gate.set()
    for each in jobs:
        each.outcome.result(10)

    assert [cause for _, cause in bench.begun[1:]] == [BACKFILL, MANUAL, MANUAL, LIVE, LIVE]
    assert [table for table, cause in bench.begun if cause == LIVE] == ["t1", "t3"]


def test_a_scheduler_that_asks_for_every_batch_table_at_once_leaves_a_thread_to_continuous_ones():
    bench = Bench(threads=2, takes_long=lambda table: str(table).startswith("daily"))
    gate = bench.hold("daily1")
    bench.gates["daily2"] = bench.gates["daily3"] = gate
    slow = [bench.work.submit(job(f"daily{number}", LIVE)) for number in (1, 2)]
    bench.wait_for(1)

    bench.work.submit(job("clean", LIVE)).outcome.result(10)
    # A person does not wait for what a clock asked for.
    bench.work.submit(job("daily3", MANUAL))
    bench.wait_for(3)

    assert [table for table, _ in bench.begun] == ["daily1", "clean", "daily3"]
    gate.set()
    for each in slow:
        each.outcome.result(10)


def test_a_person_who_refreshes_many_tables_stops_no_continuous_one():
    bench = Bench(threads=2, takes_long=lambda table: str(table).startswith("daily"))
    gates = [bench.hold(f"daily{number}") for number in range(6)]
    # Jobs that must not wait begin first, so that their next live refresh is soon asked for.
    asked = [bench.work.submit(job(name)) for name in ("daily0", "daily1")]
    bench.wait_for(2)
    asked += [bench.work.submit(job(name)) for name in ("daily2", "heard", "daily3")]
    gates[0].set()
    asked[0].outcome.result(10)
    asked[3].outcome.result(10)
    bench.wait_for(4)
    assert [table for table, _ in bench.begun][2:] == ["heard", "daily2"]

    # Both places are taken; the next one that is free is for what is live, and then for the person again.
    bench.work.submit(job("daily4", LIVE))
    live = [bench.work.submit(job(name, LIVE)) for name in ("heard", "beat")]
    gates[1].set()
    for each in live:
        each.outcome.result(10)
    bench.wait_for(7)

    assert [table for table, _ in bench.begun[4:]] == ["heard", "beat", "daily3"]
    for gate in gates:
        gate.set()
    for each in asked:
        each.outcome.result(10)


def test_with_one_thread_everything_has_its_turn():
    bench = Bench(threads=1, takes_long=lambda table: True)

    bench.work.submit(job("daily", LIVE)).outcome.result(10)


def test_a_job_that_waits_for_its_table_lets_others_pass():
    bench = Bench(threads=2)
    gate = bench.hold("orders")
    bench.work.submit(job("orders"))
    bench.wait_for(1)
    second = bench.work.submit(job("orders"))

    bench.work.submit(job("revenue", BACKFILL)).outcome.result(10)

    assert bench.work.running == {TableName.parse("orders")}
    assert not second.outcome.done()
    gate.set()
    second.outcome.result(10)
    assert [table for table, _ in bench.begun] == ["orders", "revenue", "orders"]


def test_a_refresh_that_raises_does_not_end_the_thread():
    on_outcome: list[tuple[str, bool]] = []

    def refresh(job: Job) -> RefreshResult:
        if str(job.table) == "broken":
            raise RuntimeError("a mistake")
        return succeeded(job)

    work = WorkQueue(refresh, 1, lambda job, outcome: on_outcome.append((str(job.table), outcome is not None)))
    broken = work.submit(job("broken"))
    with pytest.raises(RuntimeError, match="a mistake"):
        broken.outcome.result(10)

    assert work.submit(job("sound")).outcome.result(10).state == "SUCCEEDED"
    assert on_outcome == [("broken", False), ("sound", True)]


def test_who_sees_an_outcome_finds_everybody_informed():
    on_outcome = threading.Event()
    work = WorkQueue(succeeded, 1, lambda job, outcome: on_outcome.set())

    work.submit(job("orders")).outcome.result(10)

    assert on_outcome.is_set()


def test_closing_leaves_what_was_not_begun():
    bench = Bench(threads=1)
    gate = bench.hold("orders")
    bench.work.submit(job("orders"))
    bench.wait_for(1)
    waiting = bench.work.submit(job("revenue"))
    assert not bench.work.wait_until_idle(0.05)

    bench.work.close(0.0)
    gate.set()
    bench.work.close(10.0)

    assert not waiting.outcome.done()


def test_a_table_that_is_only_backfilled_is_not_busy_so_that_live_refreshes_come_between():
    bench = Bench(threads=2)
    gate = bench.hold("t")
    name = TableName.parse("t")
    first = bench.work.submit(job("t", BACKFILL))
    bench.wait_for(1)

    assert (bench.work.running, bench.work.busy) == (frozenset({name}), frozenset())
    live = bench.work.submit(job("t", LIVE))
    assert bench.work.busy == {name}
    next_one = bench.work.submit(job("t", BACKFILL))
    gate.set()
    for each in (first, live, next_one):
        each.outcome.result(10)
    assert [cause for _, cause in bench.begun] == [BACKFILL, LIVE, BACKFILL]
    bench.work.close(5)


def test_a_job_that_gives_way_has_no_place_and_has_one_again_before_it_goes_on():
    places: list[str] = []
    aside, back = threading.Event(), threading.Event()
    held = threading.Event()

    def refresh(job: Job) -> RefreshResult:
        if str(job.table) == "hanging":
            with work.giving_way():
                aside.set()
                assert held.wait(10)
            back.set()
        elif str(job.table) == "next":
            assert next_may_end.wait(10)
        places.append(str(job.table))
        return succeeded(job)

    next_may_end = threading.Event()
    work = WorkQueue(refresh, 1, lambda job, outcome: None)
    hanging = work.submit(job("hanging"))
    assert aside.wait(10)
    assert work.aside == work.busy == {TableName.parse("hanging")}

    # Others run although it is not done, also more than one after the other.
    work.submit(job("first")).outcome.result(10)
    following = work.submit(job("next"))
    while following.table not in work.running:
        threading.Event().wait(0.01)
    held.set()
    last = work.submit(job("last"))
    assert not back.wait(0.2)
    next_may_end.set()

    hanging.outcome.result(10)
    last.outcome.result(10)
    # It waited for its place, and came before what had not begun.
    assert places == ["first", "next", "hanging", "last"]
    assert work.wait_until_idle(10)


def test_a_job_that_is_cancelled_does_not_wait_for_its_place():
    aside, gate = threading.Event(), threading.Event()

    def refresh(job: Job) -> RefreshResult:
        if str(job.table) == "hanging":
            with work.giving_way():
                aside.set()
                assert job.cancellation.wait(10)
        else:
            assert gate.wait(10)
        return succeeded(job)

    work = WorkQueue(refresh, 1, lambda job, outcome: None)
    hanging = work.submit(job("hanging"))
    assert aside.wait(10)
    other = work.submit(job("other"))
    hanging.cancellation.cancel()

    hanging.outcome.result(10)
    gate.set()
    other.outcome.result(10)


def test_whoever_is_no_job_gives_nothing_away():
    work = WorkQueue(succeeded, 1, lambda job, outcome: None)

    with work.giving_way():
        assert work.aside == frozenset()
