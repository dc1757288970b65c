"""Requests: what is asked is checked, ordered by the graph, and ends only when its work has."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, write_deltalake

from freshline.commit.control_store import ControlStore
from freshline.commit.warehouse import Warehouse
from freshline.declare.project import read_declarations
from freshline.engine.requests import ASKER_GONE_SECONDS, KEPT_SECONDS, read_refresh
from freshline.engine.work import Job
from freshline.errors import DeclarationError, DeclarationErrors, EngineError, QueryError, RequestError
from freshline.plan.request import LIVE
from freshline.values.names import TableName
from freshline.values.receipt import Receipt
from freshline.values.result import RefreshResult, State
from tests.engine.benches import Bench, runtime_of, succeeded
from tests.run.small_tables import SmallTables

pytestmark = pytest.mark.seconds

SOURCE = "CREATE SOURCE {name} (id BIGINT) WITH ('connector' = 'files', 'format' = 'json', 'path' = '{name}')"
TABLE = "CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '1' HOUR AS SELECT id FROM {reads}"


class RefreshBench(Bench):
    """Requests over a small graph (a -> b -> c, a -> d), of which d is due."""

    def __init__(self, settings: Any, control: ControlStore) -> None:
        graph = read_declarations(
            {
                "a.sql": SOURCE.format(name="a"),
                "b.sql": TABLE.format(name="b", reads="a"),
                "c.sql": TABLE.format(name="c", reads="b"),
                "d.sql": TABLE.format(name="d", reads="a"),
            },
            settings,
        )
        runtime = runtime_of(settings, control, graph, lambda: datetime.now(UTC))
        super().__init__(runtime, due=(TableName.parse("d"),))

    def ask(self, **arguments: Any) -> list[dict[str, Any]]:
        return self.wait(self.requests.submit("refresh", arguments))


@pytest.fixture
def bench(settings) -> Iterator[RefreshBench]:
    control = ControlStore.open(settings.control_store)
    bench = RefreshBench(settings, control)
    yield bench
    bench.work.close(5)
    control.close()


def states(events: list[dict[str, Any]]) -> dict[str, str]:
    return {event["outcome"]["table"]: event["outcome"]["state"] for event in events if event["type"] == "outcome"}


def test_no_names_are_all_tables_and_sources_upstreams_first(bench):
    events = bench.ask()

    order = [str(job.table) for job in bench.jobs]
    assert sorted(order) == ["a", "b", "c", "d"]
    assert order[0] == "a"
    assert order.index("b") < order.index("c")
    assert events[-1] == {"type": "done", "state": "SUCCEEDED", "error": None}


def test_a_named_table_brings_its_upstreams_unless_asked_not_to(bench):
    bench.ask(tables=["C"], full=True)
    assert [(str(job.table), job.request.full) for job in bench.jobs] == [("a", False), ("b", False), ("c", True)]

    bench.jobs.clear()
    bench.ask(tables=["c"], upstreams=False)
    assert [str(job.table) for job in bench.jobs] == ["c"]


def test_who_asks_is_the_cause_and_a_scheduler_does_not_wait_for_files_to_be_complete(bench):
    bench.ask(tables=["a"])
    bench.ask(tables=["a"], cause="live")

    assert [(job.request.cause, job.request.wait_for_settle) for job in bench.jobs] == [
        ("manual", True),
        ("live", False),
    ]


def test_partitions_of_a_table_without_are_refused_before_any_work(bench):
    events = bench.ask(tables=["b"], partitions=[[["ds", "2026-11-01"]]])

    assert (events[-1]["state"], events[-1]["error"]["code"]) == ("FAILED", "PARTITION")
    assert bench.jobs == []


def test_a_table_that_reads_one_that_failed_is_blocked_and_the_rest_goes_on(bench):
    def refresh(job: Job) -> RefreshResult:
        if str(job.table) != "b":
            return succeeded(job)
        return replace(succeeded(job), state=State.FAILED, error=QueryError("no", where="b"))

    bench.refresh = refresh
    events = bench.ask()

    assert states(events) == {"a": "SUCCEEDED", "b": "FAILED", "c": "BLOCKED", "d": "SUCCEEDED"}
    blocked = next(e["outcome"] for e in events if e["type"] == "outcome" and e["outcome"]["table"] == "c")
    assert blocked["reason"] == "BLOCKED(b)"
    assert events[-1] == {"type": "done", "state": "FAILED", "error": None}
    assert bench.control.last_refreshes()[TableName.parse("c")].state == "BLOCKED"


def test_all_tables_are_without_suspended_ones_and_those_below(bench):
    bench.suspend("b")

    events = bench.ask()

    assert states(events) == {"a": "SUCCEEDED", "b": "SKIPPED", "c": "BLOCKED", "d": "SUCCEEDED"}
    reasons = {e["outcome"]["table"]: e["outcome"]["reason"] for e in events if e["type"] == "outcome"}
    assert (reasons["b"], reasons["c"]) == ("SKIPPED(suspended)", "BLOCKED(b, suspended)")
    assert events[-1] == {"type": "done", "state": "SUCCEEDED", "error": None}
    assert bench.control.last_refreshes()[TableName.parse("b")].state == "SKIPPED"


def test_a_suspended_table_or_one_below_is_refreshed_by_hand(bench):
    bench.suspend("b")

    assert states(bench.ask(tables=["b"])) == {"a": "SUCCEEDED", "b": "SUCCEEDED"}
    assert states(bench.ask(tables=["c"])) == {"a": "SUCCEEDED", "b": "SKIPPED", "c": "SUCCEEDED"}


def test_a_schedule_that_names_a_suspended_table_leaves_it(bench):
    bench.suspend("b")

    events = bench.ask(tables=["b", "d"], upstreams=False, cause="live")

    assert states(events) == {"b": "SKIPPED", "d": "SUCCEEDED"}
    assert [job.request.cause for job in bench.jobs] == [LIVE]


def test_a_mistake_of_freshline_is_the_outcome_of_its_table_only(bench):
    def refresh(job: Job) -> RefreshResult:
        if str(job.table) == "d":
            raise RuntimeError("a mistake")
        return succeeded(job)

    bench.refresh = refresh

    assert states(bench.ask()) == {"a": "SUCCEEDED", "b": "SUCCEEDED", "c": "SUCCEEDED", "d": "FAILED"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"tables": ["nothere"]}, "there is no table or source nothere"),
        ({"tables": ["a.b.c"]}, "is not a name"),
        ({"tables": "a"}, "a list of names"),
        ({"tables": ["b"], "partitions": [["ds"]]}, "column, value"),
        ({"tables": ["b"], "partitions": [[["ds", 1]]]}, "both texts"),
        ({"tables": ["b"], "partitions": "ds=1"}, "a list of partitions"),
        ({"tables": ["b"], "cause": "whim"}, "manual, live or backfill, not 'whim'"),
    ],
)
def test_a_request_that_cannot_be_asked_is_refused_before_any_work(bench, arguments, sentence):
    events = bench.ask(**arguments)

    assert [event["type"] for event in events] == ["done"]
    assert sentence in events[0]["error"]["message"]
    assert bench.jobs == []
    with pytest.raises(RequestError):
        read_refresh(bench.graph, arguments)


def test_an_unknown_kind_is_no_request(bench):
    with pytest.raises(RequestError, match="refresh, backfill, verify, sql, tick"):
        bench.requests.submit("dance", {})


def test_a_tick_refreshes_what_stands_and_names_the_mistakes_beside_it(bench):
    bench.declarations.error = DeclarationErrors([DeclarationError("SYNTAX", "it is wrong.", where="assets/x.sql:1")])
    events = bench.wait(bench.requests.submit("tick", {}))

    assert states(events) == {"d": "SUCCEEDED"}
    assert [event["error"]["errors"][0]["where"] for event in events if event["type"] == "mistakes"] == [
        "assets/x.sql:1"
    ]
    assert events[-1]["state"] == "SUCCEEDED"


def test_a_tick_refreshes_what_is_due(bench):
    events = bench.wait(bench.requests.submit("tick", {}))

    assert states(events) == {"d": "SUCCEEDED"}


def test_a_cancelled_request_ends_when_its_work_has_let_go(bench):
    begun, let_go = threading.Event(), threading.Event()

    def refresh(job: Job) -> RefreshResult:
        begun.set()
        assert job.cancellation.wait(10)
        assert let_go.wait(10)
        return replace(succeeded(job), state=State.CANCELLED)

    bench.refresh = refresh
    request = bench.requests.submit("refresh", {})
    assert begun.wait(10)
    request.interrupt()
    assert not bench.requests.wait(0.3)
    assert [open_.id for open_ in bench.control.open_requests()] == [request.id]
    let_go.set()

    events = bench.wait(request)

    assert events[-1] == {"type": "done", "state": "CANCELLED", "error": None}
    assert [str(job.table) for job in bench.jobs] == ["a"]  # nothing new was begun
    assert bench.control.open_requests() == []


def test_a_request_whose_process_was_killed_is_cancelled_at_the_next_check(bench):
    begun = bench.wait_until_cancelled()
    asker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    request = bench.requests.submit("refresh", {}, asker.pid)
    assert begun.wait(10)
    bench.requests.watch_over()
    assert not request.cancellation.cancelled
    asker.kill()
    asker.wait()

    bench.requests.watch_over()

    assert request.cancellation.cancelled
    assert bench.wait(request)[-1]["state"] == "CANCELLED"


def test_a_request_whose_asker_has_gone_is_cancelled(bench):
    begun = bench.wait_until_cancelled()
    request = bench.requests.submit("refresh", {})
    assert begun.wait(10)
    bench.requests.watch_over()
    assert not request.cancellation.cancelled

    request.asked_at -= ASKER_GONE_SECONDS + 1
    bench.requests.watch_over()

    assert request.cancellation.cancelled
    assert bench.wait(request)[-1]["state"] == "CANCELLED"


def test_a_request_that_ended_long_ago_is_forgotten(bench):
    request = bench.requests.submit("refresh", {})
    bench.wait(request)
    assert bench.requests.find(request.id) is request

    request.ended_at = time.monotonic() - KEPT_SECONDS - 1
    bench.requests.watch_over()

    with pytest.raises(RequestError, match="ended long ago"):
        bench.requests.find(request.id)


def test_requests_of_an_engine_that_died_are_recorded_as_failed(bench):
    bench.control.create_request("left", "refresh", "{}", datetime.now(UTC))

    bench.requests.adopt()

    assert bench.control.open_requests() == []


def test_an_engine_that_stops_takes_no_more(bench):
    bench.requests.stop()

    with pytest.raises(EngineError, match="stopping"):
        bench.requests.submit("refresh", {})


def test_the_data_of_a_table_that_is_declared_no_more_is_deleted_with_what_was_checked_of_it(bench, settings):
    gone = TableName.parse("sales.gone")
    path = Warehouse(settings.warehouse).path(gone)
    receipt = Receipt(
        table=gone, fingerprint="f", epoch=1, seq=1, mode="batch", strategy="full", reason="", data_timestamp=None,
        positions={}, rows_in=1, rows_out=1, attempt="a",
    )  # fmt: skip
    write_deltalake(
        path,
        pa.table({"k": ["a"]}),
        commit_properties=CommitProperties(custom_metadata={"userMetadata": receipt.to_json()}),
    )
    bench.control.record_check(gone, datetime.now(UTC), '{"seq": 1}')

    events = bench.wait(bench.requests.submit("purge", {"table": "sales.gone"}))

    assert events[-2:] == [
        {"type": "purged", "table": "sales.gone", "folders": [str(path)]},
        {"type": "done", "state": "SUCCEEDED", "error": None},
    ]
    assert not path.exists()
    assert bench.control.checks() == {}


@pytest.mark.parametrize(("table", "said"), [("b", "b is declared: drop it first"), ("a.b.c", "is not a name")])
def test_a_table_that_is_declared_is_not_purged(bench, table, said):
    (event,) = bench.wait(bench.requests.submit("purge", {"table": table}))

    assert (event["state"], said in event["error"]["message"]) == ("FAILED", True)


@pytest.mark.parametrize(("start", "said"), [("now", None), ("2026-11-01", None), ("soon", "is now or a date")])
def test_the_start_of_a_changed_declaration_is_checked(bench, start, said):
    events = bench.ask(tables=["b"], start=start, upstreams=False)

    if said is None:
        assert [(job.table, job.request.start) for job in bench.jobs] == [(TableName.parse("b"), start)]
    else:
        assert said in events[-1]["error"]["message"]


def test_a_side_output_takes_a_changed_declaration_up_with_its_table(settings):
    header = "FRESHNESS = INTERVAL '1' HOUR {} AS SELECT id FROM a"
    outputs = "SIDE OUTPUT same WHERE (id < 0) SIDE OUTPUT other WHERE (id > {})"
    before, after = (f"CREATE MATERIALIZED TABLE b {header.format(outputs.format(number))}" for number in (8, 9))
    tables = SmallTables(settings, {"a": SOURCE.format(name="a"), "b": before})
    for name in ("b", "same", "other"):
        tables.commit(name, [1])
    (settings.declarations / "b.sql").write_text(after)
    tables.open()
    bench = Bench(tables.runtime, threads=1)

    events = bench.wait(bench.requests.submit("refresh", {"tables": ["b"], "full": True, "upstreams": False}))
    bench.work.close(5)

    assert events[-1]["state"] == "SUCCEEDED"
    assert {str(job.table): job.request.full for job in bench.jobs} == {"b": True, "same": False, "other": True}


def test_savepoints_are_made_and_dropped_and_a_wrong_wish_is_reported(settings):
    tables = SmallTables(settings, {"a": SOURCE.format(name="a"), "b": TABLE.format(name="b", reads="a")})
    tables.commit("b", [1])
    bench = Bench(tables.runtime, threads=1)

    def ask(**arguments: Any) -> list[dict[str, Any]]:
        return bench.wait(bench.requests.submit("savepoint", arguments))

    made = ask(action="create", name="calm")
    assert made[0]["savepoint"]["action"] == "create"
    assert [table["table"] for table in made[0]["savepoint"]["tables"]] == ["b"]
    tables.commit("b", [2])
    restored = ask(action="restore", name="calm")[-2]["savepoint"]
    assert (list(restored["restored"]), tables.ids("b")) == (["b"], [1])
    assert bench.restored == [TableName.parse("b")]
    assert ask(action="drop", name="calm")[-1]["state"] == "SUCCEEDED"
    for arguments, said in (
        ({"action": "drop", "name": "calm"}, "there is no savepoint calm"),
        ({"action": "forget", "name": "calm"}, "create, restore or drop, not 'forget'"),
        ({"action": "create"}, "has a `name`"),
        ({"action": "create", "name": "x", "tables": ["bb"]}, "there is no table or source bb. Did you mean b?"),
    ):
        (done,) = ask(**arguments)
        assert (done["state"], said in done["error"]["message"]) == ("FAILED", True), done
    bench.work.close(5)
