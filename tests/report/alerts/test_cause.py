"""The cause of a late table is the deepest reason that is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from freshline.report.alerts.cause import late_cause
from freshline.report.alerts.conditions import Process, Situation, Voice
from freshline.values.spec import Mode
from tests.report.alerts.situations import NOW, failing, name, silent, situation, table


def cause(found: Situation, subject: str = "report") -> str:
    return late_cause(name(subject), found, NOW)


LOG = table("orders", lag=1.0)
SPEND = table("spend", "orders", lag=1.0)
REPORT = table("report", "spend", lag=100.0)


def test_a_failure_of_its_own_is_named_with_code_and_sentence() -> None:
    found = situation(LOG, SPEND, replace(REPORT, failing=failing(2)))

    assert cause(found) == (
        "its 2 newest refreshes failed, since 2026-11-27 07:57:00 UTC: QUERY assets/x.sql:3: it cannot be."
    )


def test_a_failure_far_above_is_named_with_its_table() -> None:
    found = situation(replace(LOG, failing=failing()), SPEND, REPORT)

    assert cause(found).startswith("it waits for orders: its newest refresh failed, since")


def test_the_failure_nearest_to_the_roots_is_named() -> None:
    found = situation(replace(LOG, failing=failing(code="SOURCE")), replace(SPEND, failing=failing()), REPORT)

    assert "it waits for orders: its newest refresh failed" in cause(found)
    assert "SOURCE" in cause(found)


def test_a_log_that_cannot_be_read_is_a_cause() -> None:
    error = {"code": "SOURCE", "message": "the log is gone.", "where": "orders"}
    found = situation(replace(LOG, unreadable=error), SPEND, REPORT)

    assert cause(found) == "it waits for orders: its log cannot be read: SOURCE orders: the log is gone."


def test_a_silent_engine_is_named() -> None:
    assert cause(situation(LOG, SPEND, REPORT, engine=silent("the engine is silent"))) == "the engine is silent"


def test_without_an_engine_it_says_how_to_start_one() -> None:
    said = cause(situation(LOG, SPEND, REPORT, engine=Process(Voice.ABSENT)))

    assert said == "no engine keeps the tables; `freshline up` or `freshline engine start` starts one"


def test_a_silent_scheduler_is_the_cause_of_batch_tables_only() -> None:
    scheduler = silent("Dagster's daemon has ended")
    batch = replace(REPORT, mode=Mode.BATCH)

    assert cause(situation(LOG, SPEND, batch, scheduler=scheduler)) == "Dagster's daemon has ended"
    assert "Dagster" not in cause(situation(LOG, SPEND, REPORT, scheduler=scheduler))


def test_a_table_that_waits_for_a_batch_table_names_the_scheduler() -> None:
    above = replace(SPEND, mode=Mode.BATCH)
    said = cause(situation(LOG, above, REPORT, scheduler=silent("Dagster's daemon has ended")))

    assert said == "it waits for spend, and Dagster's daemon has ended"


def test_a_sensor_that_was_switched_off_is_named() -> None:
    found = situation(LOG, SPEND, REPORT, switched_off=frozenset({Mode.CONTINUOUS}))

    assert cause(found) == "the sensor of continuous tables is switched off in Dagster"


def test_a_freshness_that_cannot_be_kept_is_named() -> None:
    found = situation(LOG, SPEND, replace(REPORT, infeasible="the way from orders takes 12 s"))

    assert cause(found) == "its freshness cannot be kept: the way from orders takes 12 s"


def test_a_late_table_above_is_named_with_since_when() -> None:
    found = situation(LOG, table("spend", "orders", lag=70.0), REPORT)

    assert cause(found) == "it waits for spend, which is late since 2026-11-27 07:59:00 UTC"


def test_a_table_above_that_was_never_refreshed_is_named() -> None:
    assert cause(situation(LOG, table("spend", "orders", lag=None), REPORT)) == (
        "it waits for spend, which was never refreshed"
    )


def test_a_table_that_is_only_slow_says_what_its_refresh_took() -> None:
    found = situation(LOG, SPEND, replace(REPORT, refresh_seconds=12.0))

    assert cause(found) == "its refreshes do not fail, and come too late or take too long; the newest took 12 s"


def test_a_table_that_was_never_refreshed_says_so() -> None:
    found = situation(LOG, SPEND, replace(REPORT, data_timestamp=None, first_seen=NOW - timedelta(days=1)))

    assert cause(found) == "it was never refreshed"


def test_an_error_as_long_as_a_query_is_cut_to_one_line() -> None:
    error = {"code": "QUERY", "message": "x\ny " * 1000}
    said = cause(situation(LOG, SPEND, replace(REPORT, unreadable=error)))

    assert len(said) == 600
    assert "\n" not in said
