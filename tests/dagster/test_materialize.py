"""Materialize against an engine that answers from a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from dagster import AssetKey, DagsterInstance, DataVersion, materialize
from dagster._core.errors import DagsterExecutionInterruptedError
from deltalake import write_deltalake

from freshline.commit.warehouse import Warehouse
from freshline.dagster.asset import asset_spec
from freshline.dagster.executable import executable_asset
from freshline.dagster.keys import AssetKeys
from freshline.dagster.materialize import (
    PROCESS,
    SCHEDULED,
    Materialization,
    outcome_metadata,
    process_ended,
    sample_metadata,
)
from freshline.dagster.translator import FreshlineTranslator
from freshline.declare.graph import Graph
from freshline.errors import EngineError
from freshline.report.samples import Mask
from freshline.sources.files.connector import Files
from freshline.sources.formats.json import Json
from freshline.values.freshness import Freshness
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.settings import Settings
from freshline.values.spec import Column, Mode, SourceSpec

NAME = TableName(None, "touch_event")
DONE = {"type": "done", "state": "SUCCEEDED", "error": None}


def outcome(**changes: Any) -> dict[str, Any]:
    values = {
        "table": "touch_event", "kind": "log", "state": "SUCCEEDED", "mode": "continuous", "strategy": "append",
        "reason": "2 new files", "version": 0, "rows_in": 3, "rows_out": 3, "rejected": 0, "seconds": 0.5,
        "data_timestamp": "2026-11-01T12:00:00+00:00", "error": None, "problems": [],
    }  # fmt: skip
    return {"type": "outcome", "outcome": {**values, **changes}}


class Engine:
    """Answers with the events it was given, and remembers what was asked and whether it was taken back."""

    def __init__(self, *events: Mapping[str, Any] | BaseException) -> None:
        self.events = events
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.cancelled = False

    def run(self, kind: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        self.asked.append((kind, arguments))
        ended = False
        try:
            for event in self.events:
                if isinstance(event, BaseException):
                    raise event
                yield dict(event)
            ended = True
        finally:
            self.cancelled = not ended


@pytest.fixture
def asset(settings: Settings):
    """The asset of one log table, whose engine is given."""
    spec = SourceSpec(NAME, Files("/landing"), (Column("event_id", "STRING"),), Location("touch_event.sql", 1), Json())
    (settings.root / "touch_event.sql").write_text("CREATE SOURCE touch_event (event_id STRING)")
    warehouse = Warehouse(settings.warehouse)
    graph = Graph({NAME: spec}, (NAME,), {NAME: Freshness(10)}, {NAME: (Mode.CONTINUOUS, "fresh")})
    shown = asset_spec(graph, NAME, settings, AssetKeys.of(graph), FreshlineTranslator())

    def of(engine: Any):
        connect = engine if callable(engine) else lambda progress: engine
        return executable_asset(shown, Materialization(spec, AssetKeys.of(graph)[spec.name], warehouse), connect)

    write_deltalake(str(warehouse.path(NAME)), pa.table({"event_id": ["a", "b", "c"]}))
    return of


def run(asset, instance=None):
    return materialize([asset], raise_on_error=False, instance=instance)


def failure_of(result):
    [failed] = [event for event in result.all_events if event.is_step_failure]
    return failed.step_failure_data.user_failure_data


def test_the_request_is_for_this_table_alone(asset):
    engine = Engine(outcome(), DONE)

    assert run(asset(engine)).success
    [(kind, arguments)] = engine.asked
    assert arguments.pop("id")
    assert (kind, arguments) == ("refresh", {"tables": ["touch_event"], "upstreams": False, "cause": "manual"})


def test_a_run_that_a_sensor_requested_counts_as_scheduled(asset):
    engine = Engine(outcome(), DONE)

    materialize([asset(engine)], tags={SCHEDULED: "true"})

    assert engine.asked[0][1]["cause"] == "live"


def test_a_run_names_its_process_so_that_a_killed_one_is_found_out(asset):
    with DagsterInstance.ephemeral() as instance:
        run_id = run(asset(Engine(outcome(), DONE)), instance).run_id
        noted = instance.get_run_by_id(run_id)
        assert noted is not None
        tag = noted.tags[PROCESS]

    assert not process_ended(tag)
    host, pid, started, named = tag.split(" ")
    assert named == run_id
    assert process_ended(f"{host} {pid} {float(started) - 1000}")
    assert not process_ended(f"elsewhere {pid} {float(started) - 1000}")
    assert not process_ended("not ours")


def test_the_materialization_shows_version_rows_strategy_and_reason(asset):
    result = run(asset(Engine(outcome(), DONE)))

    [event] = result.get_asset_materialization_events()
    shown = {key: value.value for key, value in event.materialization.metadata.items()}
    assert shown["dagster/row_count"] == 3
    assert shown["version"] == 0
    assert shown["strategy"] == "append"
    assert shown["reason"] == "2 new files"
    assert (shown["rows_in"], shown["rows_out"], shown["rejected"], shown["seconds"]) == (3, 3, 0, 0.5)
    assert shown["mode"] == "continuous"
    assert shown["lag_seconds"] >= 0
    assert [column.name for column in shown["dagster/column_schema"].columns] == ["event_id"]
    assert event.materialization.tags["dagster/data_version"] == DataVersion("0").value


def test_some_rows_are_in_the_event_and_masked_columns_are_not(tmp_path, settings):
    spec = SourceSpec(NAME, Files("/landing"), (Column("id", "STRING"),), Location("touch_event.sql", 1), Json())
    warehouse = Warehouse(settings.warehouse)
    hostile = "<script>alert(1)</script>\u202e"
    rows = {"id": [hostile, None], "email": ["a@example.com", "b@example.com"]}
    write_deltalake(str(warehouse.path(NAME)), pa.table(rows))
    asked = Materialization(spec, AssetKey("touch_event"), warehouse, sample_rows=20, mask=Mask(frozenset({"email"})))

    shown = sample_metadata(asked)["sample"]

    assert [record.data for record in shown.records] == [{"id": "<script>alert(1)</script>\\u202e"}, {"id": ""}]
    assert sample_metadata(replace(asked, sample_rows=0)) == {}


def test_rows_behind_a_watermark_are_shown_as_numbers_of_the_event():
    shown = outcome_metadata(
        outcome(late_rows=2, ahead_rows=0, late_by_seconds=7.5)["outcome"], datetime(2026, 11, 1, 12, tzinfo=UTC)
    )

    assert (shown["late_rows"], shown["ahead_rows"], shown["late_by_seconds"]) == (2, 0, 7.5)


def test_a_materialization_names_the_versions_of_its_models():
    shown = outcome_metadata(
        outcome(models={"delay": "ab" * 32, "air.speed": "01" * 32})["outcome"], datetime(2026, 11, 1, 12, tzinfo=UTC)
    )

    assert shown["models"] == "delay abababababab, air.speed 010101010101"


def test_lag_is_measured_to_the_data_and_not_to_the_refresh():
    shown = outcome_metadata(outcome()["outcome"], datetime(2026, 11, 1, 12, 0, 7, tzinfo=UTC))

    assert shown["lag_seconds"] == 7.0


def test_before_the_first_commit_there_is_nothing_to_count(asset):
    result = run(asset(Engine(outcome(version=None, strategy="noop", data_timestamp=None), DONE)))

    [event] = result.get_asset_materialization_events()
    assert {"version", "dagster/row_count", "lag_seconds"}.isdisjoint(event.materialization.metadata)


def test_progress_and_problems_are_in_the_log_of_the_run(asset):
    problem = {"code": "FILE_CHANGED", "message": "changed after it was read", "where": "a.json", "retry_helps": False}
    engine = Engine(
        {"type": "progress", "table": "touch_event", "message": "reading 2 files"}, outcome(problems=[problem]), DONE
    )

    with DagsterInstance.ephemeral() as instance:
        result = run(asset(engine), instance)
        said = [(entry.level, entry.user_message) for entry in instance.all_logs(result.run_id)]

    assert (20, "touch_event: reading 2 files") in said
    assert (30, "a.json: changed after it was read") in said
    assert (20, "touch_event: append (2 new files); 3 rows in, 3 out, 0.5 s, version 0") in said


def test_waiting_for_the_engine_to_start_is_logged_once_a_step(asset):
    def connect(progress):
        for message in ("starting the engine", "starting the engine (1 s)", "starting the engine (2 s)", "ready"):
            progress(message)
        return Engine(outcome(), DONE)

    with DagsterInstance.ephemeral() as instance:
        result = run(asset(connect), instance)
        said = [entry.user_message for entry in instance.all_logs(result.run_id)]

    assert [message for message in said if message in ("ready", "starting the engine") or "(1 s)" in message] == [
        "starting the engine",
        "ready",
    ]


def test_a_failed_refresh_fails_the_step_with_the_sentence_of_the_engine(asset):
    error = {"code": "DUPLICATE_KEY", "message": "two rows for one key", "where": "touch_event", "retry_helps": False}
    result = run(asset(Engine(outcome(state="FAILED", error=error), {**DONE, "state": "FAILED"})))

    assert not result.success
    assert result.get_asset_materialization_events() == []
    failed = failure_of(result)
    assert failed.description == "touch_event: two rows for one key"
    assert failed.metadata["code"].value == "DUPLICATE_KEY"
    assert failed.metadata["retry_helps"].value is False


def test_a_blocked_or_skipped_refresh_is_not_shown_as_a_materialization(asset):
    result = run(asset(Engine(outcome(state="BLOCKED", strategy=None, reason="customer is suspended"), DONE)))

    assert not result.success
    assert "blocked (customer is suspended)" in failure_of(result).description


@pytest.mark.seconds
def test_a_request_that_ends_without_an_outcome_fails_and_says_so(asset):
    error = {"code": "REQUEST", "message": "the warehouse is closing", "where": None, "retry_helps": True}

    failed = failure_of(run(asset(Engine({"type": "done", "state": "FAILED", "error": error}))))
    assert failed.description == "the warehouse is closing"

    failed = failure_of(run(asset(Engine({"type": "done", "state": "CANCELLED", "error": None}))))
    assert failed.description == "the refresh of touch_event was cancelled; nothing of it was committed"


def test_an_engine_that_does_not_start_fails_with_its_sentence(asset):
    def connect(progress):
        raise EngineError("Java 17 or newer is needed")

    failed = failure_of(run(asset(connect)))

    assert failed.description == "Java 17 or newer is needed"
    assert failed.metadata["retry_helps"].value is True


def test_a_run_goes_on_with_the_next_engine_when_one_ends(asset):
    engines = [Engine(EngineError("the engine ended before it had answered")), Engine(outcome(), DONE)]
    asked = list(engines)

    result = run(asset(lambda progress: asked.pop(0)))

    assert result.success
    first, second = (engine.asked[0][1] for engine in engines)
    assert first["id"] == second["id"]


def test_a_run_whose_engines_end_again_and_again_fails_with_a_sentence_and_no_stack_trace_of_the_client(asset):
    ends = Engine(EngineError("the engine ended before it had answered"))

    result = run(asset(ends))

    [failed] = [event for event in result.all_events if event.is_step_failure]
    assert failure_of(result).description == "the engine ended before it had answered"
    assert failed.step_failure_data.error.cause is None
    assert len(ends.asked) > 1


@pytest.mark.parametrize("interruption", [DagsterExecutionInterruptedError, KeyboardInterrupt])
def test_an_interrupted_run_takes_its_request_back_before_the_step_ends(asset, interruption):
    engine = Engine({"type": "progress", "table": "touch_event", "message": "working"}, interruption())

    result = run(asset(engine))

    assert not result.success
    assert engine.cancelled


def test_an_interruption_between_two_events_takes_the_request_back(asset):
    engine = Engine({"type": "nonsense"}, outcome(), DONE)

    assert not run(asset(engine)).success
    assert engine.cancelled
