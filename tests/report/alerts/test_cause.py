"""The cause of a late table is the deepest reason that is known."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from freshline.report.alerts.cause import late_cause
from freshline.report.alerts.conditions import AlertSituation, Voice, WatchedProcess
from freshline.values.spec import Mode
from tests.report.alerts.situations import NOW, failing, name, silent, situation, table


def cause(found: AlertSituation, subject: str = "report") -> str:
    return late_cause(name(subject), found, NOW)


LOG = table("orders", lag=1.0)
SPEND = table("spend", "orders", lag=1.0)
REPORT = table("report", "spend", lag=100.0)


UNREADABLE = {"code": "SOURCE", "message": "the log is gone.", "where": "orders"}
ENDED = silent("Dagster's daemon has ended")
CAUSES = {
    "a failure of its own is named with code and sentence": (
        situation(LOG, SPEND, replace(REPORT, failing=failing(2))),
        "its 2 newest refreshes failed, since 2026-11-27 07:57:00 UTC: QUERY assets/x.sql:3: it cannot be.",
    ),
    "a log that cannot be read is a cause": (
        situation(replace(LOG, unreadable=UNREADABLE), SPEND, REPORT),
        "it waits for orders: its log cannot be read: SOURCE orders: the log is gone.",
    ),
    "a silent engine is named": (
        situation(LOG, SPEND, REPORT, engine=silent("the engine is silent")),
        "the engine is silent",
    ),
    "without an engine it says how to start one": (
        situation(LOG, SPEND, REPORT, engine=WatchedProcess(Voice.ABSENT)),
        "no engine keeps the tables; `freshline up` or `freshline engine start` starts one",
    ),
    "a table that waits for a batch table names the scheduler": (
        situation(LOG, replace(SPEND, mode=Mode.BATCH), REPORT, scheduler=ENDED),
        "it waits for spend, and Dagster's daemon has ended",
    ),
    "a sensor that was switched off is named": (
        situation(LOG, SPEND, REPORT, switched_off=frozenset({Mode.CONTINUOUS})),
        "the sensor of continuous tables is switched off in Dagster",
    ),
    "a freshness that cannot be kept is named": (
        situation(LOG, SPEND, replace(REPORT, infeasible="the way from orders takes 12 s")),
        "its freshness cannot be kept: the way from orders takes 12 s",
    ),
    "a late table above is named with since when": (
        situation(LOG, table("spend", "orders", lag=70.0), REPORT),
        "it waits for spend, which is late since 2026-11-27 07:59:00 UTC",
    ),
    "a table above that was never refreshed is named": (
        situation(LOG, table("spend", "orders", lag=None), REPORT),
        "it waits for spend, which was never refreshed",
    ),
    "a table that is only slow says what its refresh took": (
        situation(LOG, SPEND, replace(REPORT, refresh_seconds=12.0)),
        "its refreshes do not fail, and come too late or take too long; the newest took 12 s",
    ),
    "a table that was never refreshed says so": (
        situation(LOG, SPEND, replace(REPORT, data_timestamp=None, first_seen=NOW - timedelta(days=1))),
        "it was never refreshed",
    ),
}


@pytest.mark.parametrize(("found", "said"), CAUSES.values(), ids=CAUSES)
def test_each_cause_is_a_sentence(found: AlertSituation, said: str) -> None:
    assert cause(found) == said


def test_a_failure_far_above_is_named_with_its_table() -> None:
    found = situation(replace(LOG, failing=failing()), SPEND, REPORT)

    assert cause(found).startswith("it waits for orders: its newest refresh failed, since")


def test_the_failure_nearest_to_the_roots_is_named() -> None:
    found = situation(replace(LOG, failing=failing(code="SOURCE")), replace(SPEND, failing=failing()), REPORT)

    assert "it waits for orders: its newest refresh failed" in cause(found)
    assert "SOURCE" in cause(found)


def test_a_silent_scheduler_is_the_cause_of_batch_tables_only() -> None:
    batch = replace(REPORT, mode=Mode.BATCH)

    assert cause(situation(LOG, SPEND, batch, scheduler=ENDED)) == "Dagster's daemon has ended"
    assert "Dagster" not in cause(situation(LOG, SPEND, REPORT, scheduler=ENDED))


def test_an_error_as_long_as_a_query_is_cut_to_one_line() -> None:
    error = {"code": "QUERY", "message": "x\ny " * 1000}
    said = cause(situation(LOG, SPEND, replace(REPORT, unreadable=error)))

    assert len(said) == 600
    assert "\n" not in said
