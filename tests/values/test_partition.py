"""The state of partitions by the spans of a receipt: done, stale, missing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshline.values.names import TableName
from freshline.values.partition import (
    PartitionSpan,
    PartitionState,
    find_gaps,
    put_span,
    settle_spans,
    spans_as_json,
    spans_from_json,
    state_of,
    wanted_until,
)
from freshline.values.position import TablePosition
from freshline.values.time_partition import PartitionUnit, TimePartitions

DAYS = TimePartitions(PartitionUnit.DAY, "2026-01-01")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
AT_3 = {TableName.parse("s"): TablePosition("id", 3)}


def day(number: int) -> datetime:
    return BEGIN + timedelta(days=number)


def span(first: int, last: int, fingerprint: str = "f", positions=None) -> PartitionSpan:
    return PartitionSpan(day(first), day(last), fingerprint, positions)


SPANS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6), st.sampled_from("fg"), st.sampled_from([None, AT_3])), max_size=12
)


@given(SPANS)
def test_of_spans_put_one_after_another_the_last_one_applies_everywhere(items):
    spans: tuple[PartitionSpan, ...] = ()
    expected: dict[int, tuple[str, object]] = {}
    for first, length, fingerprint, positions in items:
        spans = put_span(spans, span(first, first + length, fingerprint, positions))
        expected |= dict.fromkeys(range(first, first + length), (fingerprint, positions))

    found = {
        number: (item.fingerprint, item.positions)
        for item in spans
        for number in range((item.start - BEGIN).days, (item.end - BEGIN).days)
    }
    assert found == expected
    assert all(left.end <= right.start for left, right in pairwise(spans))
    assert spans_from_json(json.loads(json.dumps(spans_as_json(spans)))) == spans
    gaps = find_gaps(spans, "f", BEGIN, day(30))
    missing = {number for start, end in gaps for number in range((start - BEGIN).days, (end - BEGIN).days)}
    assert missing == {number for number in range(30) if expected.get(number, ("",))[0] != "f"}


def test_neighbours_that_say_the_same_are_one_span():
    spans = put_span(put_span((span(0, 2),), span(2, 4)), span(5, 6))

    assert spans == (span(0, 4), span(5, 6))
    assert put_span(spans, span(4, 5)) == (span(0, 6),)
    assert settle_spans(put_span(spans, span(1, 2, positions=AT_3))) == spans


def test_many_partitions_at_the_same_positions_are_written_in_a_few_characters():
    apart = tuple(span(2 * number, 2 * number + 1, positions=AT_3) for number in range(100))

    assert len(json.dumps(spans_as_json(apart))) < 100 * 80


@pytest.mark.parametrize(
    ("spans", "changed", "state"),
    [
        ((), (), PartitionState.MISSING),
        ((span(0, 1),), (), PartitionState.MISSING),
        ((span(0, 3),), (), PartitionState.DONE),
        ((span(0, 3, "old"),), (), PartitionState.STALE),
        ((PartitionSpan(day(1), day(1) + timedelta(hours=1), "f"),), (), PartitionState.MISSING),
        ((span(0, 3),), ((day(1), day(2)),), PartitionState.STALE),
        ((span(0, 3),), ((day(2), day(3)),), PartitionState.DONE),
    ],
)
def test_a_partition_is_missing_stale_or_done(spans, changed, state):
    (second,) = DAYS.inside(day(1), day(2))

    assert state_of(second, spans, "f", changed=changed) is state


def test_the_open_partition_is_wanted_where_freshness_asks_for_it():
    noon = day(3) + timedelta(hours=12)

    assert wanted_until(DAYS, noon, open_too=True) == day(4)
    assert wanted_until(DAYS, noon, open_too=False) == day(3)
    assert wanted_until(DAYS, BEGIN - timedelta(days=5), open_too=True) == BEGIN
