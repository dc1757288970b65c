"""Which records of a topic are read next: what is there, what is missing, and how many at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from freshline.errors import OffsetsLostError, TopicReplacedError
from freshline.plan.position import position_from_json
from freshline.sources.kafka.connector import Kafka
from freshline.sources.kafka.position import TopicPosition
from freshline.sources.kafka.topic import (
    FIRST_PORTION,
    GREATEST_PORTION,
    LEAST_PORTION,
    TopicInspection,
    TopicRange,
    advanced,
    allowed_by_rate,
    find_range,
    next_portion_size,
    rest_of,
    take_portion,
)

DECLARED = Kafka("t", "h:1")
POSITION = TopicPosition("c", "t", "id-1", {0: 10, 1: 20})
LOOK = TopicInspection("c", "t", "id-1", {0: 0, 1: 0}, {0: 15, 1: 20})


def find(inspection, position=POSITION, declared=DECLARED, first=None):
    return find_range(declared, inspection, position, first, where="s")


def test_what_is_new_is_between_the_position_and_the_ends():
    assert find(LOOK) == TopicRange({0: 10, 1: 20}, {0: 15, 1: 20})
    assert find(LOOK).offsets == 5


def test_a_partition_that_is_new_is_read_from_its_beginning():
    inspection = replace(LOOK, earliest={0: 0, 1: 0, 2: 0}, ends={0: 10, 1: 20, 2: 7})
    assert find(inspection) == TopicRange({0: 10, 1: 20, 2: 0}, {0: 10, 1: 20, 2: 7})


def test_a_source_without_a_position_begins_where_it_was_told_to_and_not_before_what_is_there():
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
def test_what_is_missing_is_told(inspection, error, said):
    with pytest.raises(error) as raised:
        find(inspection)
    assert said in str(raised.value)
    assert not raised.value.retry_helps


def test_several_gaps_are_told_together_and_accepted_by_name():
    inspection = replace(LOOK, earliest={0: 12, 1: 25}, ends={0: 15, 1: 30})
    with pytest.raises(OffsetsLostError, match="'0:10-12, 1:20-25'"):
        find(inspection)

    accepted = replace(DECLARED, accepted_gaps=((0, 10, 12), (1, 20, 25)))
    assert find(inspection, declared=accepted).start == {0: 12, 1: 25}
    # What expired after that is another loss.
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


def test_portions_become_as_large_as_their_time_allows():
    assert next_portion_size(FIRST_PORTION, FIRST_PORTION, 1.0) == 4 * FIRST_PORTION
    large = 16 * LEAST_PORTION
    assert next_portion_size(large, large, 20.0) == large // 2
    assert next_portion_size(large, large, 4_000.0) == large // 4
    assert next_portion_size(FIRST_PORTION, 10, 1.0) == FIRST_PORTION
    assert next_portion_size(LEAST_PORTION, LEAST_PORTION, 1e6) == LEAST_PORTION
    assert next_portion_size(GREATEST_PORTION, GREATEST_PORTION, 0.1) == GREATEST_PORTION


def test_a_rate_is_kept_on_average_and_does_not_pile_up():
    assert allowed_by_rate(None, 5.0) is None
    assert allowed_by_rate(10, None) == 10
    assert allowed_by_rate(10, 2.5) == 25
    assert allowed_by_rate(10, 86_400.0) == 600
    assert allowed_by_rate(10, 0.0) == 0
