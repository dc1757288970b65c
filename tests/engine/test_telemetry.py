"""Lineage events and a trace leave after a refresh, both of a real one, and neither of them delays it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from freshline.compute.cancellation import Cancellation
from freshline.engine.telemetry import open_lineage, open_tracing
from freshline.errors import SettingsError
from freshline.plan.request import RefreshRequest
from freshline.run import refresh_table
from freshline.testing import Lab
from freshline.values.result import RefreshResult
from freshline.values.settings import Destination, OpenLineageSettings, Settings
from tests.report.alerts.servers import WebServer, web_server
from tests.report.telemetry.openlineage_schema import check_event
from tests.report.telemetry.test_traces import attributes_of, spans_of

TOKEN = {"COLLECTOR": "a-token-of-the-collector"}


@pytest.mark.seconds
def test_without_the_settings_no_library_of_theirs_is_loaded():
    code = (
        "import sys, freshline.engine.main\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'opentelemetry', 'openlineage'}))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert said.stdout.strip() == "[]", said.stderr


def test_without_the_extra_the_engine_says_what_to_install(settings: Settings, monkeypatch):
    for name in ("lineage", "traces"):
        monkeypatch.delitem(sys.modules, f"freshline.report.telemetry.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.setitem(sys.modules, "openlineage", None)
    for key in [key for key in sys.modules if key.startswith(("opentelemetry.", "openlineage."))]:
        monkeypatch.setitem(sys.modules, key, None)
    there = Destination("https://collector.example.com")
    chosen = replace(settings, otel=there, openlineage=OpenLineageSettings(there))

    with pytest.raises(SettingsError, match=r"pip install 'freshline\[otel\]'"):
        open_tracing(chosen, {})
    with pytest.raises(SettingsError, match=r"pip install 'freshline\[openlineage\]'"):
        open_lineage(chosen, {}, lambda: pytest.fail("nothing is made"), "4.2.0")


class Shop:
    """A lab with a table, whose refreshes a test sends away."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        lab.source("orders", "id BIGINT, amount INT")
        self.table = lab.declare(
            "CREATE MATERIALIZED TABLE spent FRESHNESS = INTERVAL '10' SECOND "
            "AS SELECT id, amount * 2 AS twice FROM orders"
        )

    def refresh(self) -> RefreshResult:
        return refresh_table(
            self.lab.runtime, self.table, RefreshRequest(), cancellation=Cancellation(), progress=lambda text: None
        )


def wait_until(condition: Callable[[], bool]) -> None:
    deadline, tick = time.monotonic() + 30, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        tick.wait(0.05)


@pytest.fixture
def shop(lab):
    return Shop(lab)


def test_one_refresh_is_one_trace_at_a_collector_and_two_events_at_an_address(shop, caplog):
    lab = shop.lab
    lab.sql("INSERT INTO orders VALUES (1, 5), (2, 7)")
    with web_server(WebServer()) as collector, web_server(WebServer()) as catalogue:
        chosen = replace(
            lab.settings,
            otel=Destination(collector.url, "${env:COLLECTOR}", private_addresses=True),
            openlineage=OpenLineageSettings(
                Destination(catalogue.url, private_addresses=True), lab.settings.root / "lineage.jsonl"
            ),
        )
        tracing = open_tracing(chosen, TOKEN)
        lineage = open_lineage(chosen, {}, lambda: lab.runtime.graph, "4.2.0")
        assert tracing is not None
        assert lineage is not None
        lab.runtime.stage = tracing.recorder.stage
        results = [tracing.refresh(time.monotonic() - 2, shop.refresh) for _ in range(2)]
        for result in results:
            lineage.on_outcome(result)
        tracing.close(30)
        lineage.close(30)

        assert [result.is_check for result in results] == [False, True], "the second finds nothing, and leaves nothing"
        assert len(collector.received) == 1
        assert collector.received[0].headers["Authorization"] == "Bearer a-token-of-the-collector"
        assert collector.received[0].headers["Content-Type"] == "application/x-protobuf"
        spans = spans_of(collector.received[0].body)
        assert list(spans) == ["pin", "compute", "commit", "request"]
        said = attributes_of(spans["request"])
        assert (said["freshline.table"], said["freshline.rows_out"]) == ("spent", 2)
        assert (said["freshline.strategy"], said["freshline.reason"]) == (results[0].strategy, results[0].reason)
        assert said["freshline.waited_seconds"] >= 2
        begins = [spans[name].start_time_unix_nano for name in ("request", "pin", "compute", "commit")]
        assert begins == sorted(begins)

        events = [check_event(each.body.decode()) for each in catalogue.received]
        assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
        lines = Path(lab.settings.root / "lineage.jsonl").read_text().strip().split("\n")
        assert [check_event(line) for line in lines] == events
        fields = events[1]["outputs"][0]["facets"]["columnLineage"]["fields"]
        assert [each["field"] for each in fields["twice"]["inputFields"]] == ["amount"]
    assert "a-token" not in caplog.text


def test_an_address_that_is_away_delays_no_refresh_and_is_said_once(shop, caplog):
    lab = shop.lab
    with web_server(WebServer(trickle=True)) as hanging:
        there = Destination(hanging.url, private_addresses=True)
        gone = Destination("http://127.0.0.1:9/v1/lineage", private_addresses=True)
        chosen = replace(lab.settings, otel=there, openlineage=OpenLineageSettings(gone))
        tracing, lineage = open_tracing(chosen, {}), open_lineage(chosen, {}, lambda: lab.runtime.graph, "4.2.0")
        assert tracing is not None
        assert lineage is not None
        for number in range(3):
            lab.sql(f"INSERT INTO orders VALUES ({number}, 1)")
            result = tracing.refresh(time.monotonic(), shop.refresh)
            began = time.monotonic()
            lineage.on_outcome(result)
            assert time.monotonic() - began < 0.5
            assert result.ok
        wait_until(lambda: "openlineage cannot be reached" in caplog.text)
        began = time.monotonic()
        tracing.close(0.1)
        lineage.close(0.1)
        assert time.monotonic() - began < 5

    assert caplog.text.count("openlineage cannot be reached") == 1
