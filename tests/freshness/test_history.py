"""The past of a table's freshness: checks become spans, and their time counts as in time or late."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from freshline.freshness.history import (
    LagSample,
    LagSpan,
    RefreshSums,
    SeenLag,
    Summary,
    cut_text,
    judged,
    look,
    mark_of,
    sample_of,
    sums_of,
)
from freshline.values.names import TableName
from freshline.values.result import RefreshResult, State

NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)
RESULT = RefreshResult(
    table=TableName.parse("spend"), at=NOON, state=State.SUCCEEDED, strategy="append", reason="INSERTS_ONLY: added",
    committed=True, version=3, rows_in=4, rows_out=5, seconds=1.5, cpu_seconds=0.5, lag_seconds=2.0,
    freshness_seconds=60, mode="incremental", cause="live",
)  # fmt: skip


def at(seconds: float, lag: float, freshness: int = 60) -> LagSample:
    return LagSample(NOON + timedelta(seconds=seconds), lag, freshness)


def looks(samples: list[LagSample]) -> tuple[list[LagSpan], SeenLag | None]:
    """The spans that are written for checks in a row, and the knowledge after the last."""
    seen: SeenLag | None = None
    written = []
    for sample in samples:
        seen, span = look(seen, sample)
        written += [] if span is None else [span]
    return written, seen


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (None, at(0, 5), (0, 0)),
        (at(0, 5), at(10, 15), (10, 0)),
        (at(0, 55), at(10, 65), (10, 5)),
        (at(0, 65), at(10, 75), (10, 10)),
        # Newer data came in between, and nobody knows when.
        (at(0, 100), at(10, 1), (10, 5)),
        (at(0, 1), at(10, 1), (10, 0)),
        (at(0, 100), at(10, 90), (10, 10)),
        # Nobody checked, and the clock was set back.
        (at(0, 5), at(3_601, 3_606), (0, 0)),
        (at(0, 5), at(-10, 0), (0, 0)),
        (at(0, 5), at(0, 5), (0, 0)),
    ],
)
def test_the_time_between_two_checks_is_late_where_the_promise_was_broken(before, after, expected):
    assert judged(before, after) == expected


def test_a_first_check_is_written_at_once():
    written, seen = looks([at(0, 5)])

    assert written == [LagSpan.of(at(0, 5))]
    assert seen == SeenLag(at(0, 5), None)


def test_a_table_whose_data_moves_has_a_span_a_minute_with_its_extremes():
    # Each check finds other data.
    written, _ = looks([at(10 * n, lag) for n, lag in enumerate([3, 7, 50, 2, 9, 1, 4, 8])])

    first, minute = written
    assert first == LagSpan.of(at(0, 3))
    assert (minute.first_at, minute.last_at) == (NOON + timedelta(seconds=10), NOON + timedelta(seconds=60))
    assert (minute.first_seconds, minute.last_seconds, minute.greatest_seconds) == (7, 4, 50)
    assert (minute.judged_seconds, minute.late_seconds) == (60, 0)


def test_a_line_of_ten_minutes_is_one_span():
    written, seen = looks([at(10 * n, 10 * n, freshness=86_400) for n in range(62)])

    assert [(span.first_at - NOON, span.last_at - NOON) for span in written] == [
        (timedelta(0), timedelta(0)),
        (timedelta(seconds=10), timedelta(seconds=610)),
    ]
    assert written[1].judged_seconds == 610
    assert seen is not None
    assert seen.pending is None


def test_a_promise_that_breaks_or_changes_is_written_at_once():
    late, _ = looks([at(0, 50), at(10, 60), at(20, 70)])
    changed, _ = looks([at(0, 50), at(10, 60), at(20, 70, freshness=600)])

    assert late[-1].last_seconds == 70
    assert late[-1].late_seconds == 10
    assert changed[-1].freshness_seconds == 600


def test_a_clock_that_is_set_back_ends_a_span_and_counts_nothing():
    written, seen = looks([at(0, 5), at(10, 15), at(-3_600, 0), at(-3_590, 10)])

    assert [span.last_at for span in written] == [NOON, NOON + timedelta(seconds=10)]
    assert seen is not None
    assert seen.pending is not None
    assert (seen.pending.judged_seconds, seen.pending.first_at) == (10, NOON - timedelta(hours=1))


def test_two_spans_are_one_in_either_order():
    one, two = LagSpan.of(at(0, 9)), replace(LagSpan.of(at(30, 4, freshness=10)), judged_seconds=30, late_seconds=3)

    assert one.with_span(two) == two.with_span(one)
    assert one.with_span(two) == LagSpan(NOON, 9, NOON + timedelta(seconds=30), 4, 9, 10, 30, 3)


def test_a_mark_is_small_whatever_the_reason():
    mark = mark_of(replace(RESULT, reason="‮<script>" + "ä" * 10_000))

    assert len(mark.reason.encode()) <= 300
    assert mark.reason.startswith("‮<script>ää")
    assert cut_text("\ud800") == "?"


def test_a_refresh_gives_its_lag_and_what_it_adds_up_to():
    failed = replace(RESULT, state=State.FAILED, cpu_seconds=None, rows_in=None, lag_seconds=None)

    assert sample_of(RESULT) == at(0, 2)
    assert sample_of(failed) is None
    assert sums_of(RESULT) == RefreshSums(1, 0, 0, 4, 5, 1.5, 0.5, 1)
    assert sums_of(failed) == RefreshSums(1, 0, 1, 0, 5, 1.5, 0.0, 0)
    assert sums_of(replace(RESULT, strategy="noop", committed=False)).checks == 1


def test_a_share_is_known_where_somebody_checked_and_a_cost_where_something_was_measured():
    nothing = Summary()
    some = Summary(100, 25, 1_000, 2_000, RefreshSums(refreshes=4, measured=2, cpu_seconds=3.0))

    assert (nothing.share_day, nothing.share_week, nothing.cpu_seconds_a_day) == (None, None, None)
    assert (some.share_day, some.share_week, some.cpu_seconds_a_day) == (0.75, 0.0, 6.0)
