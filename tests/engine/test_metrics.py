"""A scrape shows the newest check, waits for no disk and no store, and counts every refresh once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from freshline.declare.graph import Graph
from freshline.declare.project import read_declarations
from freshline.engine.metrics import COUNT_SECONDS, WAIT_SECONDS, Activity, Look, Metrics, MetricSources, open_by_kind
from freshline.engine.process import ProcessId
from freshline.errors import StorageError
from freshline.freshness.alert import Alert
from freshline.report.metrics.exposition import text_of
from freshline.report.metrics.families import Heap
from freshline.report.status import TableStatus
from freshline.values.names import TableName
from freshline.values.result import State
from freshline.values.settings import Settings
from tests.report.metrics.figures import NOW, alert, outcome, status

SOURCE = "CREATE SOURCE {name} (id BIGINT) WITH ('connector' = 'files', 'format' = 'json', 'path' = '{name}')"


def graph_of(settings: Settings, *names: str) -> Graph:
    return read_declarations({f"{name}.sql": SOURCE.format(name=name) for name in names}, settings)


class Bench:
    """Metrics of an engine whose checks and clock a test makes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.passed = 100.0
        self.statuses: dict[str, TableStatus] = {str(name): status(str(name)) for name in graph.order}
        self.looks: list[bool] = []
        self.trouble: Exception | None = None
        self.may_look = threading.Event()
        self.may_look.set()
        self.alerts: list[Alert] = []
        self.heap: Heap | None = Heap(1, 2)
        self.metrics = Metrics(
            MetricSources(
                version="0.1.0",
                graph=lambda: self.graph,
                look=self._look,
                activity=lambda: Activity(3, 1, open_by_kind(["sql"], []), True),
                alerts=lambda: self.alerts,
                heap=lambda: self.heap,
                engine=ProcessId.own(),
                jvm=None,
            ),
            lambda: self.passed,
        )

    def _look(self, counted: bool) -> None:
        self.looks.append(counted)
        begun = self.passed
        assert self.may_look.wait(20)
        if self.trouble is not None:
            raise self.trouble
        self.metrics.on_look(self.look_at(begun, counted))

    def look_at(self, begun: float, counted: bool = False) -> Look:
        at = datetime(2026, 11, 1, 12, tzinfo=UTC) + timedelta(seconds=begun)
        return Look(at, begun, begun + 0.01, counted, tuple(self.statuses.values()))

    def scrape(self) -> dict[str, float]:
        """The samples by name and labels."""
        lines = text_of(self.metrics.families()).split("\n")
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line and line[0] != "#"}

    def check(self) -> None:
        """Scrape, and wait until the check that it began has ended."""
        self.scrape()
        self.settle()

    def settle(self) -> None:
        """Wait until no check runs."""
        self.metrics._thread.submit(lambda: None).result(20)


@pytest.fixture
def bench(settings: Settings) -> Iterator[Bench]:
    made = Bench(graph_of(settings, "orders", "prices"))
    yield made
    made.may_look.set()
    made.metrics.close()


LAG = 'freshline_table_lag_seconds{table="orders"}'


def test_a_scrape_checks_first_and_shows_what_it_found(bench: Bench) -> None:
    found = bench.scrape()

    assert found[LAG] == 1.0
    assert found["freshline_look_timestamp_seconds"] == NOW.timestamp() + 100
    assert found["freshline_refreshes_waiting"] == 3
    assert found['freshline_requests_open{kind="sql"}'] == 0
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_start_time_seconds"] == ProcessId.own().started


def test_scrapes_one_after_the_other_share_a_check(bench: Bench) -> None:
    bench.check()
    looks = list(bench.looks)
    bench.scrape()
    assert bench.looks == looks

    bench.passed += 2
    bench.statuses["orders"] = status("orders", lag_seconds=4.0)

    assert bench.scrape()[LAG] == 4.0


def test_a_check_that_hangs_keeps_no_scrape_waiting_and_is_not_begun_twice(bench: Bench) -> None:
    bench.check()
    bench.looks.clear()
    bench.passed += 1_000
    bench.may_look.clear()
    began = datetime.now(UTC)
    found = [bench.scrape() for _ in range(5)]

    assert (datetime.now(UTC) - began).total_seconds() < 5 * WAIT_SECONDS + 5
    assert [each[LAG] for each in found] == [1.0] * 5
    assert found[0]["freshline_look_timestamp_seconds"] == NOW.timestamp() + 100
    assert len(bench.looks) == 1


@pytest.mark.seconds
def test_a_scrape_of_a_thousand_tables_takes_less_than_a_tenth_of_a_second(settings: Settings) -> None:
    names = [f"source_{number}" for number in range(500)]
    table = "CREATE MATERIALIZED TABLE {name} FRESHNESS = INTERVAL '1' MINUTE AS SELECT id FROM {reads}"
    files = {f"{name}.sql": SOURCE.format(name=name) for name in names}
    files |= {f"of_{name}.sql": table.format(name=f"of_{name}", reads=name) for name in names}
    bench = Bench(read_declarations(files, settings))
    bench.check()
    for name in bench.graph.order:
        bench.metrics.on_outcome(name, outcome(str(name)))
    took = []
    for _ in range(5):
        began = time.thread_time()
        text = text_of(bench.metrics.families())
        took.append(time.thread_time() - began)
    bench.metrics.close()

    assert text.count("freshline_table_lag_seconds{") == 1_000
    assert min(took) < 0.1


def test_before_the_first_check_lags_are_absent_and_promises_are_there(bench: Bench) -> None:
    bench.may_look.clear()

    found = bench.scrape()

    assert LAG not in found
    assert "freshline_look_timestamp_seconds" not in found
    assert found['freshline_table_freshness_seconds{table="orders"}'] > 0
    assert found['freshline_refreshes_total{table="orders",strategy="none",state="FAILED"}'] == 0


@pytest.mark.parametrize("trouble", [StorageError("the store is away"), RuntimeError("a mistake")])
def test_a_check_that_fails_is_counted_and_the_next_one_made(bench: Bench, trouble: Exception) -> None:
    bench.check()
    bench.trouble = trouble
    for _ in range(3):
        bench.passed += 10
        bench.check()
    found = bench.scrape()
    assert found["freshline_look_failures_total"] == 3
    assert found[LAG] == 1.0

    bench.trouble = None
    bench.statuses["orders"] = status("orders", lag_seconds=7.0)
    bench.passed += 10

    assert bench.scrape()[LAG] == 7.0


def test_a_check_that_takes_long_is_made_seldom(bench: Bench) -> None:
    slow = bench.metrics._surroundings.look

    def look(counted: bool) -> None:
        bench.passed += 5.0
        slow(counted)

    object.__setattr__(bench.metrics._surroundings, "look", look)
    bench.check()
    begun = bench.passed
    for _ in range(400):
        bench.passed += 1
        bench.check()

    looks = len(bench.looks) - 2
    # A twentieth of the time for plain checks, and a fiftieth for those that count.
    assert 5.0 * looks <= 0.075 * (bench.passed - begun)
    assert looks > 2


def test_rows_and_files_are_counted_once_a_minute_and_shown_until_then(bench: Bench) -> None:
    bench.statuses["orders"] = status("orders", rows=5, files=2, size_bytes=1_000, quarantined=0)
    bench.check()
    assert bench.looks == [False, True]
    bench.statuses["orders"] = status("orders", rows=None, files=None)
    bench.passed += COUNT_SECONDS / 2

    found = bench.scrape()

    assert found['freshline_table_rows{table="orders"}'] == 5
    assert found['freshline_table_files{table="orders"}'] == 2
    bench.settle()
    assert bench.looks == [False, True, False]
    bench.passed += COUNT_SECONDS
    bench.check()
    assert bench.looks[-1] is True


def test_a_refresh_is_counted_once(bench: Bench) -> None:
    orders = TableName.parse("orders")
    bench.metrics.on_outcome(orders, outcome())
    bench.metrics.on_outcome(orders, outcome(state=State.FAILED, rejected=0))
    bench.metrics.on_outcome(orders, None)

    found = bench.scrape()

    assert found['freshline_refreshes_total{table="orders",strategy="append",state="SUCCEEDED"}'] == 1
    assert found['freshline_refreshes_total{table="orders",strategy="none",state="FAILED"}'] == 2
    assert found['freshline_table_consecutive_failures{table="orders"}'] == 2
    assert found['freshline_table_consecutive_failures{table="prices"}'] == 0
    assert found['freshline_refresh_duration_seconds_count{strategy="append"}'] == 1


def test_refreshes_of_many_threads_add_up(bench: Bench) -> None:
    def refresh() -> None:
        for _ in range(200):
            bench.metrics.on_outcome(TableName.parse("orders"), outcome())

    threads = [threading.Thread(target=refresh) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert bench.scrape()['freshline_refresh_rows_written_total{table="orders"}'] == 8 * 200 * 2


def test_the_series_of_a_dropped_table_end_and_begin_anew(bench: Bench, settings: Settings) -> None:
    bench.metrics.on_outcome(TableName.parse("prices"), outcome("prices"))
    bench.scrape()
    both = bench.graph
    bench.graph = graph_of(settings, "orders")

    assert not [name for name in bench.scrape() if '"prices"' in name]

    del bench.statuses["prices"]
    bench.passed += 10
    bench.check()
    bench.graph = both

    assert bench.scrape()['freshline_refresh_rows_written_total{table="prices"}'] == 0


def test_a_name_in_other_letters_is_the_same_table(bench: Bench) -> None:
    bench.metrics.on_outcome(TableName.parse("ORDERS"), outcome("ORDERS"))

    assert bench.scrape()['freshline_refresh_rows_written_total{table="orders"}'] == 2


def test_lateness_is_counted_from_check_to_check_whoever_checks(bench: Bench) -> None:
    late = 'freshline_table_late_seconds_total{table="orders"}'
    bench.metrics.on_look(bench.look_at(100))
    bench.statuses["orders"] = status("orders", lag_seconds=25.0)
    bench.metrics.on_look(bench.look_at(130))
    # A check that began before the newest one came later.
    bench.metrics.on_look(bench.look_at(120))

    found = bench.scrape()

    assert found[late] == 15.0
    assert found['freshline_table_observed_seconds_total{table="orders"}'] == 30.0


def test_a_table_that_is_new_was_not_observed_before(bench: Bench) -> None:
    first = bench.statuses.pop("orders")
    bench.metrics.on_look(bench.look_at(100))
    bench.statuses["orders"] = first
    bench.metrics.on_look(bench.look_at(500))

    found = bench.scrape()

    assert found['freshline_table_observed_seconds_total{table="orders"}'] == 0
    assert found['freshline_table_observed_seconds_total{table="prices"}'] == 400


def test_alerts_and_the_heap_are_those_of_a_check(bench: Bench) -> None:
    bench.alerts = [alert(), alert("prices")]

    found = bench.scrape()

    assert found['freshline_alerts_open{subject="prices",kind="late",level="FAIL"}'] == 1
    assert found["freshline_jvm_heap_max_bytes"] == 2


def test_a_jvm_that_does_not_answer_has_no_heap_and_all_else_is_shown(bench: Bench) -> None:
    def heap() -> Any:
        raise ConnectionRefusedError

    object.__setattr__(bench.metrics._surroundings, "heap", heap)

    found = bench.scrape()

    assert "freshline_jvm_heap_used_bytes" not in found
    assert found[LAG] == 1.0
    assert found["freshline_look_failures_total"] == 0


def test_an_engine_that_ends_shows_what_it_knew(bench: Bench) -> None:
    bench.check()
    bench.metrics.close()
    bench.passed += 1_000

    assert bench.scrape()[LAG] == 1.0
