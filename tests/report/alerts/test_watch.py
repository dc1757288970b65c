"""A check of real tables and a real control store, at moments that the test chooses."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from freshline.freshness.alert import Alert, AlertEvent, AlertKind, AlertLevel
from freshline.freshness.intentions import FreshnessOverride, Suspension
from freshline.report.alerts.watch import Watch, WatchSurroundings
from freshline.values.freshness import Freshness
from tests.lanes import long_but
from tests.report.alerts.shop import ORDERS, SPEND, Shop, make_shop
from tests.report.alerts.situations import NOW

pytestmark = pytest.mark.seconds

RAISED, WORSENED, REMINDER, RECOVERED = AlertEvent
LATE, STUCK, FAILING, QUARANTINE, WATERMARK, LATE_ROWS, RETAINED, SUSPENDED = list(AlertKind)[:8]
CATALOG, ENGINE_SILENT, SCHEDULER_SILENT = list(AlertKind)[8:]


@dataclass
class Dagster:
    """The content of Dagster's storage."""

    daemon_heartbeat: datetime | None = None
    sensors: Mapping[str, str] = field(default_factory=lambda: {"supervisor": "RUNNING", "batch": "RUNNING"})


@dataclass
class Scene:
    """A shop, a watch over it, and the time."""

    shop: Shop
    now: datetime = NOW
    passed: float = 1000.0
    dagster: Dagster | None = None
    ended: Collection[str] = ()
    url: str | None = "http://127.0.0.1:3000"
    reads: int = 0

    def __post_init__(self) -> None:
        self.watch = self.new_watch()

    def new_watch(self, *, stays: bool = True) -> Watch:
        """A watch that remembers nothing, as after a restart."""
        surroundings = WatchSurroundings(
            graph=lambda: self.shop.graph,
            scheduler=lambda: self.dagster,
            ended=lambda _: self.ended,
            dagster_url=lambda: self.url,
        )
        shop = self.shop
        return Watch(
            shop.control,
            shop.warehouse,
            shop.settings.alerts,
            surroundings,
            lambda: self.now,
            lambda: self.passed,
            stays=stays,
        )

    def wait(self, seconds: float, jump: float = 0.0) -> None:
        self.now += timedelta(seconds=seconds + jump)
        self.passed += seconds

    def engine_beats(self) -> None:
        self.shop.control.heartbeats.beat("engine", self.now, {"pid": 12, "loops": True})

    def keep(self) -> None:
        """The engine beats, by whichever clock there is, and refreshes both tables."""
        self.engine_beats()
        self.shop.refresh(2, self.now)

    def check(self) -> list[tuple[AlertEvent, str, AlertKind]]:
        return [(piece.event, piece.alert.subject, piece.alert.kind) for piece in self.watch.check().news]

    def checks(self, seconds: float, do: Callable[[], Any] = lambda: None) -> list[tuple[AlertEvent, str, AlertKind]]:
        """A check every two seconds, with something before each."""
        told = []
        for _ in range(int(seconds / 2)):
            do()
            told += self.check()
            self.wait(2)
        return told

    def alert(self, subject: str, kind: AlertKind) -> Alert:
        return next(
            alert for alert in self.shop.control.alerts.alerts() if (alert.subject, alert.kind) == (subject, kind)
        )


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    url = request.getfixturevalue("postgres").new_database() if request.param == "postgres" else None
    shop = make_shop(tmp_path / "shop", control_store=url)
    yield Scene(shop)
    shop.control.close()


def test_tables_that_are_refreshed_in_time_are_no_alert(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)

    def keep() -> None:
        scene.engine_beats()
        if (scene.now - NOW).total_seconds() % 8 == 0:
            scene.shop.refresh(2, scene.now)

    assert scene.checks(40, keep) == []


def test_a_late_table_is_reported_once_with_its_cause_and_link_and_once_when_it_is_over(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    told = scene.checks(18, scene.engine_beats)
    assert sorted(told) == [(RAISED, "orders", LATE), (RAISED, "sales.spend", LATE)]
    alert = scene.alert("sales.spend", LATE)
    assert (alert.level, alert.since) == (AlertLevel.WARN, NOW + timedelta(seconds=10))
    assert (alert.raised_at - alert.since).total_seconds() < 15
    assert alert.cause == "it waits for orders, which is late since 2026-11-27 08:00:10 UTC"
    assert alert.link == "http://127.0.0.1:3000/assets/sales/spend"

    assert sorted(scene.checks(30, scene.keep)) == [(RECOVERED, "orders", LATE), (RECOVERED, "sales.spend", LATE)]
    assert scene.shop.control.alerts.open_alerts() == []


def test_the_lag_that_the_watch_sees_is_kept_for_the_board(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    begin = scene.now

    scene.checks(80)

    history = scene.shop.control.history
    promise = scene.shop.graph.freshness(SPEND).seconds
    summary = history.summaries(scene.now)[SPEND]
    greatest = max(span.greatest_seconds for span in history.recent_spans(begin, scene.now)[SPEND])
    assert promise < greatest <= 80
    assert summary.judged_day == pytest.approx(greatest, abs=2)
    assert summary.late_day == pytest.approx(greatest - promise, abs=2)


def test_a_restart_of_the_watch_reports_nothing_again(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    scene.checks(18, scene.engine_beats)
    scene.watch = scene.new_watch()

    assert scene.checks(6, scene.engine_beats) == []


def test_a_killed_engine_is_reported_and_is_the_cause_of_what_becomes_late(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    scene.engine_beats()
    told = scene.checks(18)

    assert told[0] == (RAISED, "engine", ENGINE_SILENT)
    assert scene.alert("engine", ENGINE_SILENT).raised_at - NOW <= timedelta(seconds=12)
    said = (
        "the engine, process 12, is silent, last heard of 2026-11-27 08:00:00 UTC; `freshline engine start` starts one"
    )
    assert scene.alert("sales.spend", LATE).cause == said


def test_an_engine_whose_process_is_gone_is_reported_earlier(scene: Scene) -> None:
    scene.engine_beats()
    scene.ended = ["engine"]
    scene.checks(8)

    assert scene.alert("engine", ENGINE_SILENT).raised_at - NOW == timedelta(seconds=6)


def test_an_engine_that_was_stopped_is_no_alert_and_is_a_cause(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    scene.engine_beats()
    scene.check()
    scene.shop.control.heartbeats.forget("engine")
    told = scene.checks(20)

    assert ENGINE_SILENT not in [kind for *_, kind in told]
    assert scene.alert("orders", LATE).cause.startswith("no engine keeps the tables")


def test_a_table_that_was_never_refreshed_is_late_after_its_freshness_also_when_the_watch_restarts(
    scene: Scene,
) -> None:
    assert scene.checks(8, scene.engine_beats) == []
    scene.watch = scene.new_watch()

    assert sorted(scene.checks(12, scene.engine_beats)) == [(RAISED, "orders", LATE), (RAISED, "sales.spend", LATE)]
    assert scene.alert("orders", LATE).cause == "it was never refreshed"
    assert scene.alert("sales.spend", LATE).cause == "it waits for orders, which was never refreshed"


def test_a_suspended_table_is_reported_in_the_place_of_late(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    # A source may be noted as suspended, since it was a table once: that says nothing.
    suspended = [Suspension(table, "ann", NOW, reason="a sale") for table in (SPEND, ORDERS)]
    scene.shop.control.intentions.change(set_suspensions=suspended)
    told = scene.checks(20, scene.engine_beats)

    assert told == [(RAISED, "sales.spend", SUSPENDED), (RAISED, "orders", LATE)]
    assert scene.alert("sales.spend", SUSPENDED).cause == ("suspended by ann since 2026-11-27 08:00:00 UTC: a sale")


def test_a_failure_that_happened_before_the_watch_began_is_reported(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    for second in (-3, -2, -1):
        scene.shop.fail(SPEND, NOW + timedelta(seconds=second), "SOURCE", retry_helps=True)

    assert scene.check() == [(RAISED, "sales.spend", FAILING)]
    assert scene.alert("sales.spend", FAILING).cause.startswith("its 3 newest refreshes failed, since")


def test_failures_are_counted_from_check_to_check_and_a_success_ends_them(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    assert scene.check() == []
    scene.shop.fail(SPEND, scene.now)
    assert scene.check() == [(RAISED, "sales.spend", FAILING)]
    scene.shop.record(SPEND, scene.now)

    assert scene.checks(40, scene.keep) == [(RECOVERED, "sales.spend", FAILING)]


def test_rejected_rows_of_the_last_hour_are_reported_also_after_a_restart(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    scene.shop.record(ORDERS, NOW - timedelta(minutes=90), rows_in=100, rejected=100)
    scene.shop.record(ORDERS, NOW - timedelta(minutes=30), rows_in=90, rejected=0)
    assert scene.check() == []
    scene.shop.record(ORDERS, scene.now, rows_in=10, rejected=9)

    assert scene.check() == [(RAISED, "orders", QUARANTINE)]
    assert "`freshline quarantine orders` shows them" in scene.alert("orders", QUARANTINE).cause


def test_a_log_that_cannot_be_read_does_not_make_a_table_younger(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    scene.checks(18, scene.engine_beats)
    (log,) = (scene.shop.path(ORDERS) / "_delta_log").glob("*0.json")
    log.write_text("not a commit")
    scene.wait(10)

    assert scene.checks(30, scene.engine_beats) == [(WORSENED, "orders", LATE), (WORSENED, "sales.spend", LATE)]
    assert {alert.subject for alert in scene.shop.control.alerts.open_alerts()} == {"orders", "sales.spend"}
    assert "its log cannot be read" in scene.alert("orders", LATE).cause


# -- the clock


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scene", "jump"),
    long_but([("sqlite", 3600.0)], itertools.product(("sqlite", "postgres"), (3600.0, -3600.0))),
    indirect=["scene"],
)
def test_a_clock_that_jumps_an_hour_is_said_once_and_raises_no_storm(
    scene: Scene, jump: float, caplog: pytest.LogCaptureFixture
) -> None:
    scene.shop.refresh(1, scene.now)
    scene.engine_beats()
    scene.checks(6)
    scene.wait(0, jump)

    assert scene.checks(4) == []
    assert scene.checks(120, scene.keep) == []
    assert [r.levelno for r in caplog.records if "the clock moved by" in r.getMessage()] == [logging.WARNING]


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_an_engine_that_dies_as_the_clock_jumps_is_reported_all_the_same(scene: Scene, jump: float) -> None:
    scene.engine_beats()
    scene.check()
    scene.wait(2, jump)

    assert (RAISED, "engine", ENGINE_SILENT) in scene.checks(80)


# -- the scheduler


def test_a_daemon_that_runs_is_noted_and_its_end_is_reported(scene: Scene) -> None:
    scene.dagster = Dagster(scene.now - timedelta(seconds=20))
    scene.check()
    heartbeat = scene.shop.control.heartbeats.read()["scheduler"]
    assert (heartbeat.at, heartbeat.detail) == (scene.dagster.daemon_heartbeat, scene.dagster.sensors)
    told = scene.checks(100)

    assert (RAISED, "scheduler", SCHEDULER_SILENT) in told
    assert scene.alert("scheduler", SCHEDULER_SILENT).cause.startswith("Dagster's daemon is silent, last heard of")


def test_a_daemon_that_was_ended_in_order_does_not_come_back_by_its_last_words(scene: Scene) -> None:
    scene.dagster = Dagster(scene.now)
    scene.check()
    scene.shop.control.heartbeats.forget("scheduler")
    told = scene.checks(120)

    assert "scheduler" not in scene.shop.control.heartbeats.read()
    assert SCHEDULER_SILENT not in [kind for *_, kind in told]


def test_a_sensor_that_is_switched_off_is_handed_on_and_is_a_cause(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    scene.dagster = Dagster(scene.now, {"supervisor": "STOPPED", "batch": "RUNNING"})
    scene.shop.control.heartbeats.beat("scheduler", scene.now, {"supervisor": "RUNNING"})

    def keep() -> None:
        scene.engine_beats()
        scene.dagster = Dagster(scene.now, {"supervisor": "STOPPED", "batch": "RUNNING"})

    told = scene.checks(18, keep)

    detail = scene.shop.control.heartbeats.read()["scheduler"].detail
    assert detail == {"supervisor": "STOPPED", "batch": "RUNNING"}
    assert SCHEDULER_SILENT not in [kind for *_, kind in told]
    assert scene.alert("sales.spend", LATE).cause == "the sensor of continuous tables is switched off in Dagster"


def test_without_dagster_no_scheduler_is_expected(scene: Scene) -> None:
    assert SCHEDULER_SILENT not in [kind for *_, kind in scene.checks(200, scene.engine_beats)]


def test_a_daemon_whose_process_is_gone_is_reported_at_once(scene: Scene) -> None:
    scene.dagster = Dagster(scene.now)
    scene.check()
    scene.ended = ["scheduler"]

    assert (RAISED, "scheduler", SCHEDULER_SILENT) in scene.checks(2)


# -- the beginning


def test_a_table_that_was_late_before_the_watch_came_is_left_to_an_engine_that_is_there(scene: Scene) -> None:
    scene.shop.refresh(1, NOW - timedelta(hours=8))

    def keep() -> None:
        scene.engine_beats()
        if scene.now - NOW > timedelta(seconds=30):
            scene.shop.refresh(2, scene.now)

    assert scene.checks(80, keep) == []


def test_a_table_that_stays_late_is_reported_after_a_minute(scene: Scene) -> None:
    scene.shop.refresh(1, NOW - timedelta(hours=8))

    assert scene.checks(60, scene.engine_beats) == []
    assert sorted(scene.checks(4, scene.engine_beats)) == [(RAISED, "orders", LATE), (RAISED, "sales.spend", LATE)]


def test_without_an_engine_there_is_nothing_to_wait_for(scene: Scene) -> None:
    scene.shop.refresh(1, NOW - timedelta(hours=8))

    assert sorted(scene.check()) == [(RAISED, "orders", LATE), (RAISED, "sales.spend", LATE)]


def test_a_single_check_reports_what_it_sees(scene: Scene) -> None:
    scene.shop.refresh(1, NOW - timedelta(hours=8))
    scene.engine_beats()
    scene.watch = scene.new_watch(stays=False)

    assert sorted(scene.check()) == [(RAISED, "orders", LATE), (RAISED, "sales.spend", LATE)]


def test_a_dagster_that_was_just_started_is_not_silent_by_its_last_words(scene: Scene) -> None:
    scene.shop.control.heartbeats.beat("scheduler", NOW - timedelta(hours=8), {"supervisor": "RUNNING"})
    scene.dagster = Dagster(NOW - timedelta(hours=8))

    assert SCHEDULER_SILENT not in [kind for *_, kind in scene.checks(60)]
    assert SCHEDULER_SILENT in [kind for *_, kind in scene.checks(60)]


# -- what was decided, and what was measured


@pytest.mark.parametrize("restarted", [False, True])
def test_a_freshness_that_became_shorter_is_judged_by_from_then_on(scene: Scene, restarted: bool) -> None:
    scene.shop.refresh(1, scene.now)
    assert scene.checks(8, scene.engine_beats) == []
    scene.shop.control.intentions.change(set_overrides=[FreshnessOverride(SPEND, Freshness(4), "ann", scene.now)])
    if restarted:
        scene.watch = scene.new_watch()
    promised = scene.now

    # The table is 8 seconds old, and was promised just now to be less than 4.
    assert scene.checks(8, scene.engine_beats) == []
    # A watch that just began leaves an earlier breach to the engine for a minute.
    told = scene.checks(60 if restarted else 6, scene.engine_beats)
    assert (RAISED, "sales.spend", LATE) in told
    assert scene.alert("sales.spend", LATE).since == promised + timedelta(seconds=4)


def test_a_table_that_was_late_before_its_freshness_became_shorter_stays_so(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    assert (RAISED, "sales.spend", LATE) in scene.checks(18, scene.engine_beats)
    scene.shop.control.intentions.change(set_overrides=[FreshnessOverride(SPEND, Freshness(6), "ann", scene.now)])

    assert (RECOVERED, "sales.spend", LATE) not in scene.checks(10, scene.engine_beats)


# -- a control store that is away


def test_an_outage_of_the_control_store_silences_nobody(scene: Scene) -> None:
    scene.shop.control.heartbeats.beat("scheduler", scene.now, {"supervisor": "RUNNING"})
    scene.dagster = Dagster(scene.now)
    scene.shop.refresh(1, scene.now)
    assert scene.checks(6, scene.engine_beats) == []
    scene.wait(120)
    scene.watch.could_not_check()
    scene.shop.refresh(2, scene.now)

    # Nobody could beat meanwhile; first checks, then beats.
    silent = {ENGINE_SILENT, SCHEDULER_SILENT}
    assert silent.isdisjoint(kind for *_, kind in [*scene.check(), *scene.checks(8)])
    assert ENGINE_SILENT in {kind for *_, kind in scene.checks(8)}


def test_a_restarted_watch_does_not_take_last_words_for_a_recovery(scene: Scene) -> None:
    scene.shop.control.heartbeats.beat("scheduler", scene.now, {"supervisor": "RUNNING"})
    scene.dagster = Dagster(scene.now)
    assert (RAISED, "scheduler", SCHEDULER_SILENT) in scene.checks(100, scene.engine_beats)
    scene.watch = scene.new_watch()

    assert SCHEDULER_SILENT not in {kind for *_, kind in scene.checks(200, scene.engine_beats)}


# Of a store that is a file: another one is put in its place.
@pytest.mark.parametrize("scene", ["sqlite"], indirect=True)
def test_alerts_of_a_store_that_was_lost_are_raised_anew_and_end(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    assert (RAISED, "orders", LATE) in scene.checks(18, scene.engine_beats)
    Path(scene.shop.settings.control_store.removeprefix("sqlite:///")).unlink()

    assert (RAISED, "orders", LATE) in scene.checks(20, scene.engine_beats)
    assert [alert.subject for alert in scene.shop.control.alerts.open_alerts()] == ["orders", "sales.spend"]

    assert (RECOVERED, "orders", LATE) in scene.checks(40, scene.keep)


def test_a_promise_that_no_rhythm_could_keep_is_the_cause(scene: Scene) -> None:
    scene.shop.refresh(1, scene.now)
    scene.shop.record(SPEND, scene.now, seconds=60.0, version=7)
    scene.checks(18, scene.engine_beats)

    assert scene.alert("sales.spend", LATE).cause.startswith("its freshness cannot be kept: ")


def test_a_catalog_that_stays_behind_is_an_alert_with_the_address_of_the_ui(scene: Scene) -> None:
    detail = {"cause": "the metastore does not answer.", "since": NOW.isoformat(), "refused": False}
    scene.shop.control.heartbeats.beat("catalog:lake", NOW, detail)

    assert (RAISED, "catalog lake", CATALOG) in scene.checks(80, scene.keep)
    alert = scene.alert("catalog lake", CATALOG)
    assert (alert.cause, alert.link, alert.table) == ("the metastore does not answer.", "http://127.0.0.1:3000", None)
    scene.shop.control.heartbeats.forget("catalog:lake")
    assert (RECOVERED, "catalog lake", CATALOG) in scene.checks(4, scene.keep)
