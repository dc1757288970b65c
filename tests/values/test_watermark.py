"""The watermark of a log table as a value: it never goes back, and no partition delays it for ever."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from freshline.values.clock import as_microseconds, from_microseconds
from freshline.values.json import from_json, to_compact_json
from freshline.values.watermark import (
    EventTime,
    MovedBy,
    PartitionTime,
    SeenTimes,
    WatermarkRules,
    after_batch,
    after_pause,
    count_times,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds):
    return START + timedelta(seconds=seconds)


def fold(batches, rules=WatermarkRules()):  # noqa: B008 - a frozen value
    """The values after batches, each (now, times by partition, unread by partition)."""
    values, value = [], None
    for now, times, unread in batches:
        seen = SeenTimes({name: at(time) for name, time in times.items()})
        value = after_batch(value, seen, unread, now=at(now), rules=rules, column="ts")
        values.append(value)
    return values


def watermarks(batches, rules=WatermarkRules()):  # noqa: B008 - a frozen value
    found = [value.watermark for value in fold(batches, rules)]
    return [None if each is None else (each - START).total_seconds() for each in found]


READ = {"0": False, "1": False}


def test_the_slowest_partition_decides():
    batches = [(0, {"0": 100, "1": 40}, READ), (1, {"0": 200}, READ), (2, {"1": 150}, READ)]

    assert watermarks(batches, WatermarkRules(delay_seconds=10)) == [30, 30, 140]


def test_a_partition_without_any_row_delays_the_watermark_until_it_is_idle():
    batches = [(0, {"0": 100}, READ), (59, {"0": 200}, READ), (60, {"0": 300}, READ)]

    assert watermarks(batches) == [None, None, 300]
    assert [value.held_by for value in fold(batches)] == [("1",), ("1",), ("0",)]


def test_an_idle_partition_is_left_out_until_its_next_record():
    batches = [
        (0, {"0": 100, "1": 50}, READ),
        (60, {"0": 200}, READ),
        (61, {"0": 300, "1": 60}, READ),
        (62, {"0": 400, "1": 350}, READ),
    ]

    values = fold(batches)

    assert [value.partitions["1"].idle for value in values] == [False, True, False, False]
    assert watermarks(batches) == [50, 200, 200, 350]


def test_a_partition_with_unread_records_is_never_idle():
    batches = [(0, {"0": 100, "1": 50}, READ), (600, {"0": 200}, {"0": False, "1": True})]

    assert watermarks(batches) == [50, 50]


def test_a_new_partition_does_not_take_the_watermark_back():
    batches = [(0, {"0": 100}, {"0": False}), (1, {"0": 200, "1": 5}, READ), (2, {"1": 150}, READ)]

    assert watermarks(batches) == [100, 100, 150]


def test_a_longer_delay_does_not_take_the_watermark_back():
    first = fold([(0, {"0": 100}, {"0": False})])[-1]
    longer = WatermarkRules(delay_seconds=50)

    second = after_batch(first, SeenTimes({"0": at(120)}), {"0": False}, now=at(1), rules=longer, column="ts")
    third = after_batch(second, SeenTimes({"0": at(160)}), {"0": False}, now=at(2), rules=longer, column="ts")

    assert (second.watermark, second.moved_by) == (at(100), MovedBy.NOTHING)
    assert (third.before, third.watermark) == (at(100), at(110))


def test_with_all_idle_the_watermark_stands_or_follows_the_clock():
    before = fold([(0, {"0": 10}, {"0": False})])[-1]

    def pause(now, rules):
        return after_pause(before, {"0": False}, now=at(now), rules=rules)

    assert pause(10_000, WatermarkRules()) is None
    clock = WatermarkRules(delay_seconds=5, follows_clock=True)
    assert pause(59, clock) is None
    found = pause(600, clock)
    assert (found.watermark, found.moved_by, found.held_by) == (at(535), MovedBy.CLOCK, ())


def test_a_partition_that_falls_silent_is_left_out_by_an_empty_batch():
    before = fold([(0, {"1": 50}, READ), (30, {"0": 100}, READ)])[-1]

    assert after_pause(before, READ, now=at(59), rules=WatermarkRules()) is None
    found = after_pause(before, READ, now=at(60), rules=WatermarkRules())
    assert found is not None

    assert (before.watermark, found.watermark, found.moved_by) == (at(50), at(100), MovedBy.EVENTS)
    again = after_pause(found, READ, now=at(61), rules=WatermarkRules())
    assert again is None


def test_a_clock_that_is_set_back_makes_no_partition_idle():
    batches = [(1000, {"0": 100, "1": 50}, READ), (0, {"0": 200, "1": 60}, READ), (1010, {"0": 300}, READ)]

    assert watermarks(batches) == [50, 60, 60]


def test_times_too_far_ahead_and_before_the_year_1_are_counted_and_move_nothing():
    rules = WatermarkRules(max_ahead_seconds=1)
    rows = [("0", as_microseconds(at(1))), ("0", as_microseconds(at(1)) + 1), ("1", -(10**17)), ("1", None)]

    seen = count_times(rows, before=at(0), now=at(0), rules=rules)

    late_by = (as_microseconds(at(0)) + 10**17) / 1_000_000
    assert seen == SeenTimes({"0": at(1)}, late=1, ahead=1, late_by_seconds=late_by)


def test_the_receipt_says_when_the_watermark_moved_last():
    def batch(before, time, now):
        seen = SeenTimes({"0": at(time)})
        return after_batch(before, seen, {"0": False}, now=at(now), rules=WatermarkRules(), column="ts")

    first = batch(None, 1, 10)
    assert first.moved_at == at(10)
    still = batch(first, 0, 20)
    assert (still.watermark, still.moved_at) == (first.watermark, at(10))
    assert batch(still, 2, 30).moved_at == at(30)


def test_a_delay_longer_than_all_time_gives_the_first_moment():
    seen = SeenTimes({"": datetime(1, 1, 1, tzinfo=UTC)})

    found = after_batch(None, seen, {}, now=START, rules=WatermarkRules(delay_seconds=300), column="ts")

    assert found.watermark == datetime(1, 1, 1, tzinfo=UTC)


def test_the_value_is_the_same_after_a_receipt():
    value = EventTime("ts", at(1), None, {"0": PartitionTime(None, at(3), idle=True)}, MovedBy.CLOCK, 2, 1, 0.5, at(2))

    assert from_json(to_compact_json(value), EventTime) == value


@given(st.integers(-(10**14), 10**14))
def test_microseconds_are_exact(microseconds):
    assert as_microseconds(from_microseconds(microseconds)) == microseconds


PARTITIONS = ("0", "1", "2")
BATCHES = st.lists(
    st.tuples(
        st.integers(0, 40),
        st.dictionaries(st.sampled_from(PARTITIONS), st.integers(-500, 500)),
        st.dictionaries(st.sampled_from(PARTITIONS), st.booleans()),
        st.integers(0, 100),
        st.booleans(),
    ),
    max_size=12,
)


@given(BATCHES)
def test_the_watermark_never_goes_back_and_is_never_ahead_of_what_it_follows(batches):
    """By definition: the least over active partitions of their greatest time so far, less the delay, or the clock."""
    value, now = None, START
    greatest: dict[str, int] = {}
    for passed, times, unread, delay, follows_clock in batches:
        now += timedelta(seconds=passed)
        rules = WatermarkRules(delay_seconds=delay, idle_seconds=60, follows_clock=follows_clock)
        seen = SeenTimes({name: at(time) for name, time in times.items()})
        after = after_batch(value, seen, unread, now=now, rules=rules, column="ts")
        for name, time in times.items():
            greatest[name] = max(time, greatest.get(name, time))
        was = None if value is None else value.watermark
        known = set(after.partitions)
        active = {name for name in known if not after.partitions[name].idle}
        assert {name for name in PARTITIONS if name in times or unread.get(name)} <= active
        target = None
        if active and active <= set(greatest):
            target = min(at(greatest[name] - delay) for name in active)
        if not active and known and follows_clock:
            target = now - timedelta(seconds=delay + 60)
        assert after.watermark == max((each for each in (was, target) if each is not None), default=None)
        assert after.before == was
        value = after
