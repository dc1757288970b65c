"""Backfills in the engine: one partition after another, behind everything else, and reported as they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.compute.cancellation import Cancellation
from freshline.declare.project import read_declarations
from freshline.engine.requests import Request
from freshline.engine.work import Job
from freshline.errors import SourceError
from freshline.plan.request import BACKFILL, LIVE, MANUAL, RefreshRequest
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult
from tests.engine.benches import NOW, Bench, runtime_of, succeeded

pytestmark = pytest.mark.seconds

SOURCE = "CREATE SOURCE s (ds DATE, n INT) WITH ('connector' = 'delta', 'path' = 's')"
DAILY = (
    "CREATE MATERIALIZED TABLE {name} PARTITIONED BY (ds) WITH ('partition.unit' = 'day', "
    "'partition.start' = '2026-03-01') FRESHNESS = INTERVAL '6' HOUR AS SELECT ds, n FROM {reads}"
)
PLAIN = "CREATE MATERIALIZED TABLE {name} PARTITIONED BY (r) FRESHNESS = INTERVAL '6' HOUR AS SELECT n AS r, ds FROM t"
LISTED = PLAIN.replace("FRESHNESS", "WITH ('partition.values' = 'de, fr, nl') FRESHNESS")
DAYS = [f"2026-03-0{day}" for day in range(1, 6)]


class BackfillBench(Bench):
    """s -> t (days) -> below (days), t -> regions and countries (by value)."""

    def __init__(self, settings: Any, control: ControlStore) -> None:
        graph = read_declarations(
            {
                "s.sql": SOURCE,
                "t.sql": DAILY.format(name="t", reads="s"),
                "below.sql": DAILY.format(name="below", reads="t"),
                "regions.sql": PLAIN.format(name="regions"),
                "countries.sql": LISTED.format(name="countries"),
            },
            settings,
        )
        super().__init__(runtime_of(settings, control, graph, lambda: NOW), threads=4)

    def submit(self, table: str = "t", kind: str = "backfill", **arguments: Any) -> Request:
        return self.requests.submit(kind, {"tables": [table], **arguments})

    def ask(self, table: str = "t", **arguments: Any) -> list[dict[str, Any]]:
        return self.wait(self.submit(table, **arguments))


@pytest.fixture
def bench(settings) -> Iterator[BackfillBench]:
    control = ControlStore.open(settings.control_store)
    bench = BackfillBench(settings, control)
    yield bench
    bench.work.close(5)
    control.close()


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["type"] == kind]


def asked(bench: Bench) -> list[tuple[str, str | None]]:
    return [(str(job.table), job.request.partitions[0][0][1] if job.request.partitions else None) for job in bench.jobs]


def test_each_partition_is_a_refresh_of_its_own_from_the_oldest_on(bench):
    events = bench.ask(ranges=[[None, DAYS[0], DAYS[2]]])

    assert asked(bench) == [("t", day) for day in DAYS[:3]]
    assert {job.request.cause for job in bench.jobs} == {BACKFILL}
    assert len({job.request.backfill for job in bench.jobs}) == 1
    (plan,) = of(events, "plan")
    assert [(each["partition"], each["state"], each["action"]) for each in plan["chunks"]] == [
        (day, "missing", "replace") for day in DAYS[:3]
    ]
    assert [event["outcome"]["partition"] for event in of(events, "outcome")] == DAYS[:3]
    (result,) = of(events, "backfill")
    assert [each["partition"] for each in result["done"]] == DAYS[:3]
    assert (result["failed"], result["left"], result["stale"]) == ([], [], [])
    said = [event["message"] for event in of(events, "progress")]
    assert said == ["2026-03-01, 1 of 3", "2026-03-02, 2 of 3, about 4 s left", "2026-03-03, 3 of 3, about 2 s left"]
    assert events[-1]["state"] == "SUCCEEDED"


def test_without_bounds_it_is_all_that_a_refresh_would_bring_in(bench):
    bench.ask(ranges=[[None, None, None]])

    assert asked(bench) == [("t", day) for day in DAYS]


def test_a_dry_run_reports_the_plan_and_does_nothing(bench):
    events = bench.ask(ranges=[["ds", DAYS[1], DAYS[2]]], cascade=True, dry_run=True)

    (plan,) = of(events, "plan")
    assert [(each["table"], each["partition"], each["action"]) for each in plan["chunks"]] == [
        ("t", DAYS[1], "replace"),
        ("t", DAYS[2], "replace"),
        ("below", DAYS[1], "replace"),
        ("below", DAYS[2], "replace"),
        ("countries", None, "refresh"),
        ("regions", None, "refresh"),
    ]
    assert bench.jobs == []
    assert events[-1]["state"] == "SUCCEEDED"


def test_a_cascade_does_what_it_showed_tables_above_first(bench):
    bench.ask(partitions=[[["DS", DAYS[1]]]], cascade=True)

    assert asked(bench)[:2] == [("t", DAYS[1]), ("below", DAYS[1])]
    assert asked(bench)[2:] == [("countries", None), ("regions", None)]


def test_a_partition_that_fails_keeps_no_other_from_being_done_but_what_is_below(bench):
    def refresh(job: Job) -> RefreshResult:
        if job.request.partitions == ((("ds", DAYS[1]),),):
            raise SourceError("its history is gone. Restore it.", where="s")
        return succeeded(job)

    bench.refresh = refresh
    events = bench.ask(ranges=[[None, DAYS[0], DAYS[2]]], cascade=True)

    assert asked(bench) == [("t", day) for day in DAYS[:3]]
    (result,) = of(events, "backfill")
    assert [each["partition"] for each in result["done"]] == [DAYS[0], DAYS[2]]
    assert result["failed"][0]["partition"] == DAYS[1]
    assert result["failed"][0]["error"]["code"] == "SOURCE"
    assert {each["table"] for each in result["failed"][1:]} == {"below", "countries", "regions"}
    assert "t, which it reads, was not done" in result["failed"][1]["error"]["message"]
    assert events[-1]["state"] == "FAILED"


def test_live_refreshes_of_the_table_come_between_two_partitions(bench):
    order: list[str] = []
    live = Job(TableName.parse("t"), RefreshRequest(cause=LIVE), Cancellation(), lambda message: None)
    manual = Job(TableName.parse("t"), RefreshRequest(cause=MANUAL), Cancellation(), lambda message: None)

    def refresh(job: Job) -> RefreshResult:
        order.append(job.request.cause)
        if len(order) == 1:
            bench.work.submit(live)
            bench.work.submit(manual)
        return succeeded(job)

    bench.refresh = refresh
    bench.ask(ranges=[[None, DAYS[0], DAYS[2]]])

    # The chunk after the first may be asked for before or after the others; it is never before them.
    assert order == [BACKFILL, MANUAL, LIVE, BACKFILL, BACKFILL]


def test_backfills_have_half_as_many_threads_and_leave_the_others_to_what_is_live(bench):
    begun, release = threading.Semaphore(0), threading.Event()

    def refresh(job: Job) -> RefreshResult:
        begun.release()
        assert release.wait(10)
        return succeeded(job)

    bench.refresh = refresh
    first = [bench.submit(table, partitions=[[["ds", DAYS[0]]]]) for table in ("t", "below")]
    third = bench.submit("regions", partitions=[[["r", "1"]]])
    assert begun.acquire(timeout=10)
    assert begun.acquire(timeout=10)
    assert not begun.acquire(timeout=0.2), "a third backfill began"
    live = Job(TableName.parse("s"), RefreshRequest(cause=LIVE), Cancellation(), lambda message: None)
    bench.work.submit(live)
    assert begun.acquire(timeout=10)
    release.set()
    assert bench.requests.wait(10)
    assert all(request.done for request in (*first, third))


def test_a_cancelled_backfill_reports_what_is_done_and_what_is_left(bench):
    running = threading.Event()

    def refresh(job: Job) -> RefreshResult:
        if job.request.partitions == ((("ds", DAYS[1]),),):
            running.set()
            assert job.cancellation.wait(10)
            job.cancellation.check()
        return succeeded(job)

    bench.refresh = refresh
    request = bench.submit(ranges=[[None, DAYS[0], DAYS[3]]])
    assert running.wait(10)
    assert [each["state"] for each in of(bench_plan(bench), "plan")[0]["chunks"]][1] == "running"
    request.interrupt()
    assert bench.requests.wait(10)

    events = request.events(0)[0]
    (result,) = of(events, "backfill")
    assert [each["partition"] for each in result["done"]] == [DAYS[0]]
    assert [each["partition"] for each in result["left"]] == DAYS[1:4]
    assert events[-1]["state"] == "CANCELLED"


def test_nothing_is_restored_while_a_backfill_runs_and_it_goes_on(bench):
    refused: list[dict[str, Any]] = []

    def refresh(job: Job) -> RefreshResult:
        if not refused:
            restore = bench.requests.submit("savepoint", {"action": "restore", "name": "calm"})
            answered = threading.Event()
            while not restore.done:
                restore.listen(len(restore.events(0)[0]), answered.set)
                assert answered.wait(10)
                answered.clear()
            refused.append(restore.events(0)[0][-1]["error"])
        return succeeded(job)

    bench.refresh = refresh
    events = bench.ask(ranges=[[None, DAYS[0], DAYS[2]]])

    assert (refused[0]["code"], refused[0]["where"]) == ("RESTORE_BUSY", "t")
    assert "backfill" in refused[0]["message"]
    assert len(of(events, "backfill")[0]["done"]) == 3
    bench.requests._backfills.require_none()


def bench_plan(bench: BackfillBench) -> list[dict[str, Any]]:
    """The plan that another person sees meanwhile."""
    request = bench.submit(ranges=[[None, DAYS[0], DAYS[3]]], dry_run=True)
    seen = threading.Event()
    for number in range(100):
        events, done = request.events(0)
        if done:
            return events
        request.listen(len(events), seen.set)
        assert seen.wait(10), number
        seen.clear()
    raise AssertionError("the plan was not told")


def test_a_table_that_is_suspended_below_is_left_alone_and_the_named_table_is_not(bench):
    bench.suspend("t")
    bench.suspend("regions")

    events = bench.ask(partitions=[[["ds", DAYS[1]]]], cascade=True)

    assert ("t", DAYS[1]) in asked(bench)
    assert ("regions", None) not in asked(bench)
    assert "left alone" in str(of(events, "backfill")[0]["failed"])


def test_a_partition_by_values_is_a_chunk_too(bench):
    events = bench.ask("regions", partitions=[[["r", "1"]], [["r", "it's; DROP TABLE x"]]])

    assert [job.request.partitions for job in bench.jobs] == [((("r", "1"),),), ((("r", "it's; DROP TABLE x"),),)]
    assert events[-1]["state"] == "SUCCEEDED"


def commit(
    bench: Bench, name: str, seq: int, *replaced: str, backfill: str | None = None, fingerprint: str | None = None
) -> None:
    """A version of a table, as its present declaration makes it unless another `fingerprint` is said."""
    spec = bench.graph.table(TableName.parse(name))
    receipt = Receipt(
        table=spec.name, fingerprint=fingerprint or spec.fingerprint, epoch=1, seq=seq, mode="batch", strategy="full",
        reason="FIRST", data_timestamp=None, rows_in=0, rows_out=1, attempt="a", positions={}, replaced=replaced,
        backfill=backfill,
    )  # fmt: skip
    write_deltalake(
        bench.runtime.warehouse.path(spec.name), pa.table({"r": ["de"]}), mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": receipt.to_json()}),
    )  # fmt: skip


def chunks(events: list[dict[str, Any]], table: str = "countries") -> list[tuple[str | None, str, str | None]]:
    (plan,) = of(events, "plan")
    return [(each["partition"], each["action"], each["state"]) for each in plan["chunks"] if each["table"] == table]


def test_before_its_first_version_a_table_with_declared_values_is_refreshed_as_a_whole(bench):
    events = bench.ask("countries", ranges=[[None, None, None]], again=True)

    assert chunks(events) == [(None, "refresh", None)]
    assert asked(bench) == [("countries", None)]
    assert [event["outcome"]["partition"] for event in of(events, "outcome")] == [None]


def test_declared_values_are_replaced_in_their_order_where_they_are_asked_for_again(bench):
    commit(bench, "countries", 1)

    done = [("de", "skip", "done"), ("fr", "skip", "done"), ("nl", "skip", "done")]
    assert chunks(bench.ask("countries", ranges=[[None, None, None]])) == done
    assert bench.jobs == []
    events = bench.ask("countries", ranges=[["R", "de", "fr"]], partitions=[[["r", "xx"]]], again=True)
    assert [event["outcome"]["partition"] for event in of(events, "outcome")] == ["xx", "de", "fr"]
    assert asked(bench) == [("countries", value) for value in ("xx", "de", "fr")]


def test_a_backfill_of_values_that_is_asked_for_again_leaves_out_what_it_has_committed(bench):
    commit(bench, "countries", 1)
    commit(bench, "countries", 2, "fr", backfill="b")
    commit(bench, "countries", 3, "nl", backfill="another")

    events = bench.ask("countries", ranges=[[None, None, None]], again=True, id="b", resume=True)

    assert [action for _, action, _ in chunks(events)] == ["replace", "skip", "replace"]
    assert asked(bench) == [("countries", "de"), ("countries", "nl")]


def test_values_that_another_declaration_made_are_taken_up_together(bench):
    commit(bench, "countries", 1, fingerprint="another")

    assert chunks(bench.ask("countries", ranges=[[None, None, None]], again=True)) == [(None, "refresh", None)]


def test_a_first_refresh_whose_answer_was_lost_is_not_followed_by_every_value(bench):
    commit(bench, "countries", 1, backfill="b")

    events = bench.ask("countries", ranges=[[None, None, None]], again=True, id="b", resume=True)

    assert {action for _, action, _ in chunks(events)} == {"skip"}
    assert bench.jobs == []


def test_a_refresh_that_names_partitions_goes_the_same_way(bench):
    events = bench.ask("t", kind="refresh", partitions=[[["ds", DAYS[3]]], [["ds", DAYS[0]]]])

    assert asked(bench) == [("t", DAYS[0]), ("t", DAYS[3])]
    assert {job.request.cause for job in bench.jobs} == {MANUAL}
    assert len(of(events, "outcome")) == 2


@pytest.mark.parametrize(
    ("table", "arguments", "sentence"),
    [
        ("t", {"ranges": [[None, "2026-03-06", None]]}, "in the future"),
        ("t", {"ranges": [[None, "2026-02-28", None]]}, "before the first partition"),
        ("t", {"ranges": [[None, "2026-03-03", "2026-03-02"]]}, "the first is after the last"),
        ("t", {"ranges": [[None, "x'; DROP TABLE t; --", None]]}, "is not a partition"),
        ("t", {"ranges": [["n", DAYS[0], DAYS[1]]]}, "n is not a partition column"),
        ("t", {"ranges": [[DAYS[0]]]}, "a range is"),
        ("t", {"ranges": "all"}, "is a list"),
        ("t", {"partitions": [[]]}, "no partition is named"),
        ("t", {"partitions": [[["ds", "../../etc"]]]}, "is not a partition"),
        ("t", {"partitions": [["ds"]]}, "a list of"),
        ("t", {"partitions": [[["ds", DAYS[0]]], [["ds", "2026-02-30"]]]}, "no date that there is"),
        ("t", {"id": "x" * 101}, "names a backfill"),
        ("regions", {"ranges": [[None, "a", "b"]]}, "no partitions in time"),
        ("regions", {"partitions": [[["x", "1"]]]}, "x is not a partition column"),
        ("countries", {"ranges": [[None, "d", None]]}, "'d' is not among the 'partition.values'"),
        ("countries", {"ranges": [[None, "de", "../../etc"]]}, "is not among the 'partition.values'"),
        ("countries", {"ranges": [[None, "nl", "de"]]}, "the first is declared after the last"),
        ("countries", {"ranges": [["ds", "de", "fr"]]}, "ds is not a partition column"),
        ("s", {"ranges": [[None, "a", "b"]]}, "is a source"),
        ("nowhere", {}, "there is no table"),
    ],
)
def test_a_backfill_that_cannot_be_asked_is_refused_before_any_work(bench, table, arguments, sentence):
    events = bench.ask(table, **arguments)

    assert events[-1]["state"] == "FAILED"
    assert sentence in events[-1]["error"]["message"]
    assert bench.jobs == []
    assert of(events, "plan") == []
