"""The reports to Dagster: changes at once, else each table in its turn, and never too much."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from freshline.report.notices import (
    EVENTS_A_TICK,
    EVENTS_AN_HOUR,
    Memory,
    NoticeKind,
    Punctuality,
    TableUpkeep,
    decide_notices,
    silence_seconds,
    turn_seconds,
    why_late,
)
from freshline.report.status import LastRefresh, TableStatus
from freshline.values.names import TableName

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ORDERS = TableName.parse("orders")
MATERIALIZED, OBSERVED, CHECKED = NoticeKind.MATERIALIZED, NoticeKind.OBSERVED, NoticeKind.CHECKED


def status(table: TableName = ORDERS, **changes: object) -> TableStatus:
    found = TableStatus(
        table=table, kind="table", mode="continuous", mode_reason="", freshness_seconds=10, data_timestamp=NOW,
        lag_seconds=1.0, state="SUCCEEDED", version=3, rows=None, quarantined=None,
        last_refresh=LastRefresh("append", "new rows", 0.1, NOW),
    )  # fmt: skip
    return replace(found, **changes)  # type: ignore[arg-type]


class Told:
    """Ticks of ten seconds over tables whose standing the test sets."""

    def __init__(self, *statuses: TableStatus, turn: float | None = 60.0) -> None:
        self.statuses = {each.table: each for each in statuses}
        self.turns = {} if turn is None else dict.fromkeys(self.statuses, turn)
        self.left_alone: dict[TableName, TableUpkeep] = {}
        self.memory = Memory()
        self.now = NOW
        self.told_otherwise = False

    def set(self, table: TableName = ORDERS, **changes: object) -> None:
        self.statuses[table] = replace(self.statuses[table], **changes)  # type: ignore[arg-type]

    def tick(self, seconds: float = 10) -> list[tuple[str, NoticeKind]]:
        self.now += timedelta(seconds=seconds)
        found, memory = decide_notices(
            list(self.statuses.values()), self.turns, self.left_alone, self.memory, self.now,
            lambda _: self.told_otherwise,
        )  # fmt: skip
        self.notices = found
        # The memory goes through the text that a sensor keeps.
        self.memory = Memory.from_json(memory.to_json())
        return [(str(each.table), each.kind) for each in found]

    def ticks(self, count: int) -> Counter[NoticeKind]:
        return Counter(kind for _ in range(count) for _, kind in self.tick())


def test_a_table_that_is_kept_is_reported_once_a_turn_and_checked_once_an_hour():
    told = Told(status())

    assert told.tick() == [("orders", MATERIALIZED), ("orders", CHECKED)]
    found = told.ticks(6 * 60)
    assert found == {MATERIALIZED: 60, CHECKED: 1}


def test_also_when_nothing_was_new():
    told = Told(status(last_refresh=LastRefresh("noop", "nothing new", 0.0, NOW - timedelta(days=3))))

    assert told.ticks(60)[MATERIALIZED] >= 10


def test_a_table_that_is_not_kept_up_is_not_reported_and_one_that_is_late_but_moves_on_is():
    told = Told(status())
    told.tick()
    told.set(lag_seconds=500.0, last_refresh=LastRefresh("append", "", 0.1, NOW - timedelta(hours=1)))
    assert told.ticks(60)[MATERIALIZED] == 0

    for _ in range(60):
        told.set(last_refresh=LastRefresh("append", "", 0.1, told.now))
        told.tick()
        if any(each.kind is MATERIALIZED for each in told.notices):
            return
    pytest.fail("a table that is refreshed, late or not, is told")


def test_turns_follow_each_other_without_gap_or_overlap_also_over_a_silence():
    told = Told(status())
    told.tick()
    spans = []
    for seconds in (10, 7, 31, 10, 55, 61, 400, 10, 9, 60, 60, 3):
        told.tick(seconds)
        spans += [(each.since, each.until) for each in told.notices if each.kind is MATERIALIZED]

    assert len(spans) >= 6
    assert all(before[1] == after[0] for before, after in itertools.pairwise(spans))


def test_a_failure_is_reported_at_once_and_once_and_so_is_its_end():
    told = Told(status())
    told.tick()
    told.set(state="FAILED", error={"code": "SOURCE", "message": "gone"})

    assert told.tick() == [("orders", OBSERVED)]
    assert told.notices[0].standing is TableUpkeep.FAILED
    assert told.ticks(30) == {}
    told.set(state="SUCCEEDED", error=None)
    assert told.tick() == [("orders", MATERIALIZED)]


def test_a_table_that_fails_now_and_then_does_not_fill_the_log():
    told = Told(status())
    told.tick()
    events = 0
    for number in range(360):
        told.set(state="FAILED" if number % 2 else "SUCCEEDED")
        events += len(told.tick())

    assert events <= 2 * 60 + 60 + 1


def test_a_table_that_is_left_alone_is_reported_by_its_standing_whatever_else_is_wrong():
    told = Told(status(state="FAILED"))
    told.tick()
    told.left_alone = {ORDERS: TableUpkeep.SUSPENDED}

    assert told.tick() == [("orders", OBSERVED)]
    assert told.notices[0].standing is TableUpkeep.SUSPENDED


def test_a_table_without_data_is_reported_when_its_first_data_come():
    told = Told(status(version=None, lag_seconds=None, state="SCHEDULED", last_refresh=None))
    assert told.ticks(30) == {}

    told.set(version=0, lag_seconds=2.0, state="SUCCEEDED")
    assert told.tick() == [("orders", MATERIALIZED), ("orders", CHECKED)]


def test_the_check_changes_at_once_for_worse_and_after_a_minute_for_better():
    told = Told(status())
    told.tick()
    told.set(lag_seconds=11.0)
    assert ("orders", CHECKED) in told.tick()
    assert told.notices[0].punctuality is Punctuality.WARN
    told.set(lag_seconds=21.0)
    assert ("orders", CHECKED) in told.tick()
    told.set(lag_seconds=1.0)
    found = [told.tick() for _ in range(6)]

    assert [("orders", CHECKED) in each for each in found] == [False] * 5 + [True]


def test_a_table_at_the_edge_of_its_promise_does_not_fill_the_log():
    told = Told(status())
    told.tick()
    checks = 0
    for number in range(360):
        told.set(lag_seconds=11.0 if number % 2 else 9.0)
        checks += told.tick().count(("orders", CHECKED))

    assert checks <= 2 * 60


def test_a_batch_table_is_reported_only_when_something_else_than_a_run_refreshed_it():
    before = LastRefresh("full", "yesterday", 1.0, NOW - timedelta(days=1))
    told = Told(status(freshness_seconds=3600, last_refresh=before), turn=None)
    told.tick()
    assert told.ticks(60) == {}
    told.set(last_refresh=LastRefresh("full", "by hand", 1.0, told.now))
    assert told.ticks(12)[MATERIALIZED] == 1

    told.told_otherwise = True
    told.set(last_refresh=LastRefresh("full", "by a run", 1.0, told.now))
    # Its check is: Dagster shows none that is older than the materialization.
    assert told.ticks(12) == {CHECKED: 1}


@pytest.mark.slow
def test_a_thousand_tables_are_reported_within_the_bounds_and_none_is_forgotten():
    tables = [TableName.parse(f"t{number}") for number in range(1000)]
    told = Told(*(status(table) for table in tables), turn=turn_seconds(10, 1000))
    seen: Counter[str] = Counter()
    total = 0
    for _ in range(120):
        found = told.tick()
        assert len(found) <= EVENTS_A_TICK
        total += len(found)
        seen.update(table for table, kind in found if kind is MATERIALIZED)

    assert total <= EVENTS_AN_HOUR
    assert len(seen) == 1000


def test_changes_that_find_no_room_are_reported_by_the_next_check():
    tables = [TableName.parse(f"t{number}") for number in range(250)]
    told = Told(*(status(table) for table in tables), turn=turn_seconds(10, 250))
    told.tick()
    for table in tables:
        told.set(table, state="FAILED")

    failed = [table for _ in range(3) for table, kind in told.tick() if kind is OBSERVED]
    assert sorted(failed) == sorted(str(table) for table in tables)


def test_a_clock_that_is_set_back_silences_nothing():
    told = Told(status())
    told.tick()

    assert ("orders", MATERIALIZED) in told.tick(-3600)
    assert told.ticks(12)[MATERIALIZED] >= 2


@pytest.mark.parametrize("text", [None, "", "[]", "{}", "null", '{"format":99}', '{"format":1,"at":"x"}'])
def test_a_memory_that_cannot_be_read_is_empty(text):
    assert Memory.from_json(text) == Memory()


@pytest.mark.parametrize("freshness", [1, 10, 60, 300, 1799, 86_400])
@pytest.mark.parametrize("tables", [1, 10, 1000])
def test_turns_are_shorter_than_the_window_of_the_policy_by_more_than_a_missed_one(freshness, tables):
    turn = turn_seconds(freshness, tables)

    assert silence_seconds(freshness, tables) >= 2 * turn
    assert tables * 3600 / turn <= EVENTS_AN_HOUR


def test_why_a_table_is_late_is_its_own_failure_or_what_drives_it():
    upstream = status(TableName.parse("raw"), lag_seconds=99.0)
    known = {upstream.table: upstream}

    assert why_late(status(error={"code": "A", "message": "b"}), known, [upstream.table]) == "A: b"
    assert why_late(status(), known, [upstream.table]) == "what drives it is late: raw"
    assert why_late(status(version=None), {}, []) == "it was never refreshed"
