"""Alerts are reported once on the change, by reminders, and once when they are over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshline.freshness.alert import AlertEvent, AlertKind, AlertLevel
from freshline.report.alerts.conditions import AlertSituation, CatalogCondition, TableCondition, moment_text
from freshline.report.alerts.evaluate import calm_seconds, compare
from freshline.report.alerts.history import Arrivals
from freshline.report.alerts.trouble import Trouble
from freshline.values.settings import AlertSettings
from tests.report.alerts.situations import NOW, Ledger, failing, silent, situation, suspension, table

RAISED, WORSENED, REMINDER, RECOVERED = AlertEvent
LATE, STUCK, FAILING, QUARANTINE, WATERMARK, LATE_ROWS, RETAINED, SUSPENDED = list(AlertKind)[:8]
CATALOG, ENGINE_SILENT, SCHEDULER_SILENT = list(AlertKind)[8:]


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def orders(seconds: float, lag: float | None, **more: Any) -> TableCondition:
    """The table `orders`, whose freshness is 10 seconds, at a moment."""
    return table("orders", lag=lag, now=at(seconds), **more)


# -- late


def test_a_table_inside_its_promise_is_no_alert() -> None:
    ledger = Ledger()
    for second in range(0, 120, 2):
        # Refreshed every 9.9 seconds: it is anything up to 9.9 seconds old when it is checked.
        assert ledger.check(situation(orders(second, second % 9.9)), at(second)) == []


def test_a_late_table_is_reported_once_within_15_seconds_and_once_when_it_is_over() -> None:
    ledger = Ledger()
    told = {}
    for second in range(0, 61, 2):
        lag = float(second) if second < 40 else 1.0  # nothing refreshes it for 40 seconds
        for event, *_ in ledger.check(situation(orders(second, lag)), at(second)):
            told[event] = second

    assert ledger.told == [(RAISED, "orders", LATE), (WORSENED, "orders", LATE), (RECOVERED, "orders", LATE)]
    assert told[RAISED] - 10 < 15
    assert told == {RAISED: 16, WORSENED: 26, RECOVERED: 50}


def test_a_refresh_that_takes_a_moment_longer_is_no_alert() -> None:
    assert Ledger().check(situation(orders(0, 14.9)), NOW) == []


def test_a_status_that_was_read_a_while_ago_says_nothing_of_now() -> None:
    # Three seconds late when it was read; it may have been refreshed since.
    found = situation(orders(-4, 13.0), read_at=at(-4))

    assert Ledger().check(found, NOW) == []


def test_a_table_that_breaks_its_promise_in_each_cycle_stays_one_alert() -> None:
    ledger = Ledger()
    for second in range(0, 600, 2):
        # Its lag goes from 2 to 19 seconds, over and over.
        ledger.check(situation(orders(second, 2.0 + second % 17)), at(second))

    assert [event for event, *_ in ledger.told] == [RAISED]


def test_a_table_far_behind_is_reported_as_fail_at_once() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 3600.0)), NOW)

    assert ledger.open[0].level is AlertLevel.FAIL
    assert ledger.open[0].since == at(-3590)


def test_the_declared_lags_win_over_the_freshness() -> None:
    patient = replace(orders(0, 100.0), warn_after=99, fail_after=3600)
    assert Ledger().check(situation(patient), NOW) == []
    assert Ledger().check(situation(replace(patient, warn_after=90)), NOW) == [(RAISED, "orders", LATE)]


def test_a_level_that_falls_and_rises_again_is_reported_once() -> None:
    ledger = Ledger()
    for second, lag in enumerate([30.0, 17.0, 30.0, 17.0, 30.0]):
        ledger.check(situation(orders(second, lag)), at(second))

    assert [event for event, *_ in ledger.told] == [RAISED]


def test_a_table_without_data_is_late_when_it_was_waited_for_longer_than_its_freshness() -> None:
    waited = replace(orders(0, None), first_seen=at(-14))
    assert Ledger().check(situation(waited), NOW) == []
    assert Ledger().check(situation(replace(waited, first_seen=at(-16))), NOW) == [(RAISED, "orders", LATE)]


def test_a_table_that_is_not_known_at_all_is_no_alert() -> None:
    assert Ledger().check(situation(orders(0, None)), NOW) == []


def test_an_open_alert_reminds_every_so_often() -> None:
    ledger = Ledger(AlertSettings(remind_after_seconds=60))
    for second in range(0, 150, 10):
        ledger.check(situation(orders(second, 100.0 + second)), at(second))

    assert [event for event, *_ in ledger.told] == [RAISED, REMINDER, REMINDER]


def test_an_alert_of_a_table_that_is_not_declared_any_more_is_over() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 100.0)), NOW)

    assert ledger.check(situation(), at(2)) == [(RECOVERED, "orders", LATE)]


def test_another_cause_is_kept_without_news() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 100.0)), NOW)
    news = ledger.check(situation(orders(2, 102.0), engine=silent("the engine is silent")), at(2))

    assert ("orders", LATE) not in [(subject, kind) for _, subject, kind in news]
    assert ledger.causes["orders", LATE] == "the engine is silent"


# -- failing, quarantine, silence


def test_a_failure_that_a_retry_cannot_help_is_reported_at_once() -> None:
    ledger = Ledger()
    assert ledger.check(situation(orders(0, 1.0, failing=failing())), NOW) == [(RAISED, "orders", FAILING)]
    assert ledger.open[0].level is AlertLevel.FAIL
    assert "QUERY assets/x.sql:3: it cannot be." in ledger.open[0].cause


def test_a_failure_that_a_retry_can_help_is_reported_after_three_in_a_row() -> None:
    ledger = Ledger()
    for second, count in enumerate([1, 2, 3, 4]):
        ledger.check(situation(orders(second, 1.0, failing=failing(count, retry_helps=True))), at(second))

    assert ledger.told == [(RAISED, "orders", FAILING)]
    assert ledger.open[0].level is AlertLevel.WARN


def test_a_success_ends_a_failing_alert_after_a_while() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 1.0, failing=failing())), NOW)

    assert ledger.check(situation(orders(2, 1.0)), at(2)) == []
    assert ledger.check(situation(orders(32, 1.0)), at(32)) == [(RECOVERED, "orders", FAILING)]


@pytest.mark.parametrize(
    ("rows", "rejected", "told"), [(100, 5, False), (100, 6, True), (19, 19, False), (20, 20, True), (0, 0, False)]
)
def test_more_rejected_rows_than_allowed_are_reported(rows: int, rejected: int, told: bool) -> None:
    news = Ledger().check(situation(orders(0, 1.0, arrivals=Arrivals(rows, rejected))), NOW)

    assert news == ([(RAISED, "orders", QUARANTINE)] if told else [])


@pytest.mark.parametrize(
    ("share", "rows", "late", "told"),
    [(0.05, 100, 5, False), (0.05, 100, 6, True), (0.05, 19, 19, False), (0.0, 20, 1, True), (None, 100, 100, False)],
)
def test_more_late_rows_than_declared_are_reported(share: float | None, rows: int, late: int, told: bool) -> None:
    news = Ledger().check(situation(orders(0, 1.0, arrivals=Arrivals(rows, 0, late), late_share=share)), NOW)

    assert news == ([(RAISED, "orders", AlertKind.LATE_ROWS)] if told else [])


@pytest.mark.parametrize(
    ("kept", "limit", "told"), [(100, 100, False), (101, 100, True), (None, 100, False), (9, None, False)]
)
def test_a_system_that_keeps_more_than_allowed_for_a_source_is_reported(
    kept: int | None, limit: int | None, told: bool
) -> None:
    news = Ledger().check(situation(orders(0, 1.0, retained_bytes=kept, retained_above=limit)), NOW)

    assert news == ([(RAISED, "orders", RETAINED)] if told else [])


def test_a_watermark_that_stands_still_is_reported_once_again_and_when_it_moves() -> None:
    ledger = Ledger(AlertSettings(remind_after_seconds=3600))

    def standing(second: float, moved: float) -> AlertSituation:
        held = {
            "watermark_moved_at": at(moved),
            "watermark": at(moved - 300),
            "watermark_held_by": ("orders (partition 3)",),
        }
        return situation(orders(second, 1.0, watermark_after=600, **held))

    assert ledger.check(standing(600, 0), at(600)) == []
    assert ledger.check(standing(601, 0), at(601)) == [(RAISED, "orders", AlertKind.WATERMARK)]
    assert ledger.open[0].cause == (
        f"the watermark stands at {moment_text(at(-300))} since {moment_text(NOW)}, held up by orders (partition 3)"
    )
    assert ledger.check(standing(700, 0), at(700)) == []
    assert ledger.check(standing(4300, 0), at(4300)) == [(REMINDER, "orders", AlertKind.WATERMARK)]
    ledger.check(standing(4310, 4305), at(4310))
    ledger.check(standing(4320, 4305), at(4320))
    assert ledger.told[-1] == (RECOVERED, "orders", AlertKind.WATERMARK)


def test_without_the_option_or_a_watermark_nothing_is_reported_of_it() -> None:
    moved = at(-1_000_000)
    assert Ledger().check(situation(orders(0, 1.0, watermark_moved_at=moved)), NOW) == []
    assert Ledger().check(situation(orders(0, 1.0, watermark_after=1)), NOW) == []


def test_a_silent_engine_is_reported_and_its_return() -> None:
    ledger = Ledger()
    ledger.check(situation(engine=silent("the engine is silent")), NOW)
    ledger.check(situation(), at(5))
    ledger.check(situation(), at(16))

    assert ledger.told == [(RAISED, "engine", ENGINE_SILENT), (RECOVERED, "engine", ENGINE_SILENT)]


def test_an_engine_that_comes_and_goes_is_one_alert() -> None:
    ledger = Ledger()
    for second in range(0, 60, 6):
        found = situation(engine=silent("the engine is silent")) if second % 12 == 0 else situation()
        ledger.check(found, at(second))

    assert ledger.told == [(RAISED, "engine", ENGINE_SILENT)]


def test_a_silent_scheduler_is_reported() -> None:
    news = Ledger().check(situation(scheduler=silent("Dagster's daemon has ended")), NOW)

    assert news == [(RAISED, "scheduler", SCHEDULER_SILENT)]


# -- catalogs


def behind(since: datetime, **more: Any) -> AlertSituation:
    return situation(catalogs=(CatalogCondition("lake", since, "the metastore does not answer.", **more),))


def test_a_catalog_that_is_away_for_a_moment_is_not_reported() -> None:
    ledger = Ledger()
    for second in range(0, 60, 2):
        ledger.check(behind(NOW), at(second))
    ledger.check(situation(), at(60))

    assert ledger.told == []


def test_a_catalog_that_stays_away_is_one_alert_until_it_is_as_the_tables_are() -> None:
    ledger = Ledger()
    for second in range(0, 600, 2):
        ledger.check(behind(NOW), at(second))
    assert ledger.causes == {("catalog lake", CATALOG): "the metastore does not answer."}

    ledger.check(situation(), at(600))

    assert ledger.told == [(RAISED, "catalog lake", CATALOG), (RECOVERED, "catalog lake", CATALOG)]


def test_a_catalog_that_refuses_is_reported_at_once() -> None:
    assert Ledger().check(behind(NOW, refused=True), at(1)) == [(RAISED, "catalog lake", CATALOG)]


# -- suspended


def test_a_suspended_table_is_reported_in_the_place_of_late() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 100.0)), NOW)
    news = ledger.check(situation(orders(2, 102.0, suspension=suspension("orders", reason="a sale"))), at(2))

    assert news == [(RAISED, "orders", SUSPENDED)]
    # The late alert is closed without a word: the promise is not kept again.
    assert [alert.kind for alert in ledger.open] == [SUSPENDED]
    assert ledger.open[0].cause == "suspended by ann since 2026-11-27 07:00:00 UTC: a sale"
    assert ledger.check(situation(orders(99, 199.0, suspension=suspension("orders", reason="a sale"))), at(99)) == []


def test_a_table_below_a_suspended_one_is_reported_when_its_promise_is_broken() -> None:
    ledger = Ledger()
    above = orders(0, 1.0, suspension=suspension("orders", until=at(3600)))
    assert ledger.check(situation(above, table("revenue", "orders", lag=1.0)), NOW) == [(RAISED, "orders", SUSPENDED)]
    later = situation(above, table("revenue", "orders", lag=20.0))

    assert ledger.check(later, NOW) == [(RAISED, "revenue", SUSPENDED)]
    assert ledger.causes["revenue", SUSPENDED] == (
        "blocked by orders, suspended by ann since 2026-11-27 07:00:00 UTC, until 2026-11-27 09:00:00 UTC"
    )


def test_a_dimension_that_is_suspended_blocks_nothing() -> None:
    customers = table("customers", suspension=suspension("customers"))
    ledger = Ledger()
    ledger.check(situation(customers, table("orders", lag=100.0)), NOW)

    assert (RAISED, "orders", LATE) in ledger.told


def test_a_resumed_table_that_catches_up_is_over_and_never_late() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 100.0, suspension=suspension("orders"))), NOW)
    assert ledger.check(situation(orders(2, 102.0)), at(2)) == []
    assert ledger.check(situation(orders(8, 1.0)), at(8)) == [(RECOVERED, "orders", SUSPENDED)]


def test_a_resumed_table_that_does_not_catch_up_is_late_in_the_end() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 100.0, suspension=suspension("orders"))), NOW)
    for second in range(2, 100, 2):
        ledger.check(situation(orders(second, 100.0 + second)), at(second))

    assert ledger.told == [(RAISED, "orders", SUSPENDED), (RAISED, "orders", LATE)]


def test_an_automatic_suspension_is_a_fail() -> None:
    ledger = Ledger()
    ledger.check(situation(orders(0, 1.0, suspension=suspension("orders", automatic=True, reason="QUERY"))), NOW)

    assert ledger.open[0].level is AlertLevel.FAIL
    assert "suspended after failures in a row" in ledger.open[0].cause


# -- over random sequences

KEYS = [("orders", LATE), ("orders", FAILING), ("orders", SUSPENDED), ("engine", ENGINE_SILENT)]
TROUBLES = st.tuples(
    st.sampled_from(KEYS), st.sampled_from(AlertLevel), st.booleans(), st.sampled_from(["one cause", "another"])
)
TICKS = st.lists(st.tuples(st.integers(1, 400), st.lists(TROUBLES, max_size=3)), max_size=60)


@given(TICKS)
def test_each_change_is_reported_once_and_each_alert_is_over_once(ticks) -> None:
    settings = AlertSettings(remind_after_seconds=900)
    ledger = Ledger(settings)
    now = NOW
    opened: dict[tuple[str, AlertKind], list[AlertEvent]] = {key: [] for key in KEYS}
    for seconds, found in ticks:
        now += timedelta(seconds=seconds)
        troubles = {
            (subject, kind): Trouble(subject, kind, level, now, cause, ripe)
            for (subject, kind), level, ripe, cause in found
        }
        before = {(alert.subject, alert.kind): alert for alert in ledger.open}
        for event, subject, kind in ledger.keep(compare(troubles, ledger.open, {"orders": 10}, settings, now)):
            key = (subject, kind)
            opened[key].append(event)
            if event is RECOVERED:
                assert key not in troubles
            if event is RAISED:
                assert troubles[key].ripe
            if event is REMINDER:
                assert now - before[key].reminded_at >= timedelta(seconds=900)
        # One open alert a subject and kind, and none that was reported as over.
        open_now = [(alert.subject, alert.kind) for alert in ledger.open]
        assert len(open_now) == len(set(open_now))
        # Whatever is ripe is open, unless the table is given time after it was resumed.
        for key, trouble in troubles.items():
            if trouble.ripe and key != ("orders", LATE):
                assert key in open_now

    for (_, kind), events in opened.items():
        check_order(kind, events)


def check_order(kind: AlertKind, events: list[AlertEvent]) -> None:
    """One alert after the other: raised, at most once worsened, over; reminded only in between."""
    open_now, worsened = False, False
    for event in events:
        if event is RAISED:
            # A late alert may have been replaced by a suspension, and the other way round, without a word.
            assert not open_now or kind in (LATE, SUSPENDED)
            open_now, worsened = True, False
        else:
            assert open_now
            assert not (event is WORSENED and worsened)
            worsened = worsened or event is WORSENED
            open_now = event is not RECOVERED


@pytest.mark.parametrize(("freshness", "seconds"), [(1, 10.0), (60, 60.0), (86_400, 300.0)])
def test_a_promise_must_be_kept_for_as_long_as_itself_within_bounds(freshness: int, seconds: float) -> None:
    assert calm_seconds(freshness) == seconds


def test_a_late_table_whose_inputs_are_newer_is_reported_as_standing_still_in_place_of_late() -> None:
    ledger, why = Ledger(), "its inputs contain different parts of one source"

    ledger.check(situation(orders(17, 17)), at(17))
    ledger.check(situation(orders(18, 18, stands_still=why)), at(18))
    ledger.check(situation(orders(20, 20, stands_still=why)), at(20))

    assert ledger.told == [(RAISED, "orders", LATE), (RAISED, "orders", STUCK)]
    assert ledger.causes == {("orders", STUCK): why}
    ledger.check(situation(orders(22, 2)), at(22))
    ledger.check(situation(orders(40, 2)), at(40))
    assert ledger.told[2:] == [(RECOVERED, "orders", STUCK)]
