"""Checks that the supervisor reports without a run: when they change, else about once an hour."""

from __future__ import annotations

from datetime import timedelta

import pytest
from dagster import AssetCheckEvaluation, AssetKey, build_sensor_context

from freshline.dagster.sensors import verify_sensor
from freshline.values.receipt import Violation

pytestmark = pytest.mark.seconds

JUDGED = (
    "CREATE MATERIALIZED TABLE live (PRIMARY KEY (id), CONSTRAINT named EXPECT (id <> '')) "
    "FRESHNESS = INTERVAL '10' SECOND AS SELECT id FROM event"
)


@pytest.fixture
def declarations():
    return {"live": JUDGED}


def told(result, check, key="live"):
    return [
        event
        for event in result.asset_events
        if isinstance(event, AssetCheckEvaluation) and event.asset_key == AssetKey(key) and event.check_name == check
    ]


def minutes(bench, check, count=3):
    """The reports of a check while the table is kept, tick by tick."""
    found = []
    for _ in range(6 * count):
        bench.check("event", "live")
        found += told(bench.supervise(), check)
    return found


@pytest.mark.long
def test_a_violation_is_reported_once_with_samples_and_so_is_its_end(bench):
    bench.commit("event")
    bench.commit("live")
    [first] = minutes(bench, "constraint_named")
    assert first.passed

    bench.commit("live", violations={"named": Violation(2, ('{"id":""}',))})
    [broken] = minutes(bench, "constraint_named")
    assert not broken.passed
    assert broken.metadata["violations"].value == 2
    assert '{"id":""}' in broken.metadata["samples"].value

    bench.now += timedelta(minutes=61)
    bench.commit("live")
    # Dagster notes real times, so after an hour of the bench each turn finds what it has to be old.
    again = minutes(bench, "constraint_named")
    assert again
    assert all(event.passed for event in again)


def test_the_engine_that_falls_silent_is_reported_at_its_tables(bench):
    bench.commit("event")
    bench.commit("live")
    bench.control.heartbeats.beat("engine", bench.now, {})
    bench.check("event", "live")
    [first] = told(bench.supervise(5), "alive")
    assert (first.passed, first.description) == (True, "the engine keeps it (continuous)")

    [silent] = minutes(bench, "alive")

    assert not silent.passed
    assert silent.description.startswith("the engine was not heard of for")


def test_two_rows_of_a_key_are_reported_at_its_check(bench):
    bench.commit("event")
    bench.commit("live")
    [first] = minutes(bench, "unique_key")
    assert first.passed
    error = {"code": "DUPLICATE_KEY", "message": "the query yields more than one row"}
    bench.record("live", state="FAILED", strategy=None, reason="DUPLICATE_KEY", error=error)

    [broken] = [event for _ in range(3) for event in told(bench.supervise(), "unique_key")]

    assert not broken.passed
    assert broken.description == "the query yields more than one row"


def test_one_table_after_the_other_is_verified_the_one_of_longest_ago_first(bench):
    for name in ("live", "hourly"):
        bench.commit(name)
    sensor = verify_sensor(bench.settings, bench.graph, bench.keys, lambda: bench.now)
    cursor, chosen = None, []
    for hours in (0, 0.5, 1, 1, 6, 6, 6):
        bench.now += timedelta(hours=hours)
        context = build_sensor_context(
            instance=bench.instance, cursor=cursor, repository_def=bench.loaded.get_repository_def()
        )
        data = sensor.evaluate_tick(context)
        cursor = data.cursor or cursor
        assert data.run_requests is not None
        for request in data.run_requests:
            assert request.asset_selection == []
            assert request.asset_check_keys is not None
            chosen += [(key.asset_key.to_user_string(), key.name) for key in request.asset_check_keys]

    assert chosen == [("hourly", "verify"), ("live", "verify"), ("hourly", "verify"), ("live", "verify")]
