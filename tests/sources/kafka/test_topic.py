"""Which records of a topic are read next: what is there, what is missing, and how many at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.errors import OffsetsLostError, TopicReplacedError
from freshline.sources.kafka.connector import Kafka
from freshline.sources.kafka.position import TopicPosition
from freshline.sources.kafka.topic import (
    FIRST_PORTION,
    GREATEST_PORTION,
    LEAST_PORTION,
    PortionSize,
    TopicInspection,
    TopicRange,
    advanced,
    allowed_by_rate,
    find_range,
    rest_of,
    take_portion,
)
from freshline.values.position import position_from_json

DECLARED = Kafka("t", "h:1")
POSITION = TopicPosition("c", "t", "id-1", {0: 10, 1: 20})
LOOK = TopicInspection("c", "t", "id-1", {0: 0, 1: 0}, {0: 15, 1: 20})


def find(inspection, position=POSITION, declared=DECLARED, first=None):
    return find_range(declared, inspection, position, first, where="s")


def test_new_records_are_between_the_position_and_the_ends():
    assert find(LOOK) == TopicRange({0: 10, 1: 20}, {0: 15, 1: 20})
    assert find(LOOK).offsets == 5


def test_a_partition_that_is_new_is_read_from_its_beginning():
    inspection = replace(LOOK, earliest={0: 0, 1: 0, 2: 0}, ends={0: 10, 1: 20, 2: 7})
    assert find(inspection) == TopicRange({0: 10, 1: 20, 2: 0}, {0: 10, 1: 20, 2: 7})


def test_a_source_without_a_position_begins_where_it_was_asked_to_and_not_before_what_is_there():
    inspection = replace(LOOK, earliest={0: 4, 1: 0})

    assert find(inspection, None, first={0: 2, 1: 18}) == TopicRange({0: 4, 1: 18}, {0: 15, 1: 20})
    # Asked for the end first, and a record was taken back since: nothing is read, and nothing twice.
    assert find(inspection, None, first={0: 16, 1: 20}) == TopicRange({0: 16, 1: 20}, {0: 16, 1: 20})


@pytest.mark.parametrize(
    ("inspection", "error", "said"),
    [
        (replace(LOOK, earliest={0: 12, 1: 0}), OffsetsLostError, "'accept-gap' = '0:10-12'"),
        (replace(LOOK, earliest={0: 12, 1: 20}), OffsetsLostError, "offset 10 to 11 of partition 0"),
        (replace(LOOK, ends={0: 9, 1: 20}), OffsetsLostError, "ends at offset 9 in partition 0"),
        (replace(LOOK, topic_id="id-2"), TopicReplacedError, "was deleted and made anew: its id is id-2"),
        (replace(LOOK, topic_id="id-2", cluster_id="d"), TopicReplacedError, "is one of cluster d"),
        (replace(LOOK, topic_id="id-2", topic="u"), TopicReplacedError, "takes the place of topic t"),
        (replace(LOOK, ends={0: 15}, earliest={0: 0}), TopicReplacedError, "had partition 1, and now it has 1"),
    ],
)
def test_missing_records_and_replaced_topics_are_reported(inspection, error, said):
    with pytest.raises(error) as raised:
        find(inspection)
    assert said in str(raised.value)
    assert not raised.value.retry_helps


def test_several_gaps_are_reported_together_and_accepted_by_name():
    inspection = replace(LOOK, earliest={0: 12, 1: 25}, ends={0: 15, 1: 30})
    with pytest.raises(OffsetsLostError, match="'0:10-12, 1:20-25'"):
        find(inspection)

    accepted = replace(DECLARED, accepted_gaps=((0, 10, 12), (1, 20, 25)))
    assert find(inspection, declared=accepted).start == {0: 12, 1: 25}
    # Records that expired after that are another loss.
    with pytest.raises(OffsetsLostError, match="'1:20-26'"):
        find(replace(inspection, earliest={0: 12, 1: 26}), declared=accepted)
    # Half of the gap may have been read since it was accepted.
    assert find(inspection, replace(POSITION, offsets={0: 11, 1: 30}), declared=accepted).start == {0: 12, 1: 30}


def test_another_topic_is_read_from_its_beginning_when_its_id_is_accepted():
    inspection = replace(LOOK, topic_id="id-2", ends={0: 3})
    accepted = replace(DECLARED, accepted_topic="id-2")
    found = find(inspection, declared=accepted)

    assert found == TopicRange({0: 0}, {0: 3})
    assert advanced(POSITION, inspection, found) == TopicPosition("c", "t", "id-2", {0: 3})
    with pytest.raises(TopicReplacedError):
        find(replace(inspection, topic_id="id-3"), declared=accepted)


def test_portions_cover_a_range_without_gap_or_overlap():
    whole = TopicRange({0: 0, 1: 100, 2: 5}, {0: 1_000, 1: 110, 2: 5})
    left, position, portions = whole, None, 0
    while left.offsets:
        portion = take_portion(left, 100)
        assert 0 < portion.offsets <= 102
        position = advanced(position, LOOK, portion)
        assert rest_of(left, LOOK, position).start == portion.end
        left, portions = rest_of(left, LOOK, position), portions + 1

    assert portions >= 10
    assert position is not None
    assert position.offsets == {0: 1_000, 1: 110, 2: 5}
    assert position_from_json(position.as_json()) == position


def test_no_partition_is_left_behind():
    portion = take_portion(TopicRange({0: 0, 1: 0}, {0: 1_000_000, 1: 3}), 10)
    assert portion.end[1] == 1
    assert portion.end[0] >= 9


def portions(records: int, fixed: float, for_each: float) -> list[tuple[int, float]]:
    """The portions in which so many records are read, each with its seconds: `fixed`, and those of its records."""
    size, found = PortionSize(), []
    while records:
        offsets = min(records, size.records)
        seconds = fixed + for_each * offsets
        found.append((offsets, seconds))
        size = size.after(offsets, seconds)
        records -= offsets
    return found


def test_portions_become_as_large_as_their_time_allows():
    assert PortionSize().after(FIRST_PORTION, 1.0).records == 4 * FIRST_PORTION
    assert PortionSize().after(10, 1.0) == PortionSize()
    assert PortionSize().after(FIRST_PORTION, 1e6).records == LEAST_PORTION
    greatest = PortionSize(GREATEST_PORTION, 0.0, (GREATEST_PORTION // 4, 0.1))
    assert greatest.after(GREATEST_PORTION, 0.1).records == GREATEST_PORTION
    large = PortionSize(16 * LEAST_PORTION, 0.0, (16 * LEAST_PORTION, 10.0))
    assert large.after(16 * LEAST_PORTION, 20.0).records == 8 * LEAST_PORTION
    assert large.after(16 * LEAST_PORTION, 4_000.0).records == 4 * LEAST_PORTION


@pytest.mark.parametrize("fixed", [0.1, 0.5, 2.0])
def test_a_portion_takes_ten_seconds_where_its_records_are_what_takes_long(fixed):
    read = portions(5_000_000, fixed, 50e-6)

    assert all(9.0 <= seconds <= 11.0 for _, seconds in read[3:-1]), read


@pytest.mark.parametrize("fixed", [5.0, 8.0, 12.0])
def test_portions_of_a_busy_machine_are_not_made_small_by_what_they_take_beside_their_records(fixed):
    read = portions(5_000_000, fixed, 20e-6)

    assert sum(fixed for _ in read) < 0.5 * sum(seconds for _, seconds in read), read
    assert max(seconds for _, seconds in read) <= 61.0


def test_portions_follow_a_machine_that_becomes_busy_and_idle_again():
    size, sizes = PortionSize(), []
    for busy in [1] * 6 + [5] * 6 + [1] * 6:
        seconds = busy * (0.5 + 20e-6 * size.records)
        size = size.after(size.records, seconds)
        sizes.append(size.records)

    assert sizes[5] > 2 * sizes[11]
    assert sizes[-1] > 2 * sizes[11]
    assert min(sizes) >= LEAST_PORTION


def test_a_rate_is_kept_on_average_and_does_not_pile_up():
    assert allowed_by_rate(None, 5.0) is None
    assert allowed_by_rate(10, None) == 10
    assert allowed_by_rate(10, 2.5) == 25
    assert allowed_by_rate(10, 86_400.0) == 600
    assert allowed_by_rate(10, 0.0) == 0
