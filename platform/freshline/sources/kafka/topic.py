"""The records of a Kafka topic that a log table reads next.

An inspection of the topic is compared with the position in the newest receipt. Records between the two are read in
portions of bounded size. Records that should be there and are not are an error: going on would lose rows unseen.
Everything here comes from the arguments: no broker and no clock is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from freshline.errors import OffsetsLostError, TopicReplacedError
from freshline.sources.kafka.connector import Kafka
from freshline.sources.kafka.position import TopicPosition

FIRST_PORTION = 20_000
# The cost of a batch beside its records does not shrink with them: smaller ones would only fall further behind.
LEAST_PORTION = 20_000
GREATEST_PORTION = 2_000_000
# A portion that takes this long is committed often enough, and large enough to be worth its commit.
PORTION_SECONDS = 10.0
# It takes longer where more than this share of it would be for other things than its records, up to a minute.
MOST_OVERHEAD = 0.25
MOST_PORTION_SECONDS = 60.0
# A source that nobody read for hours may not fetch all of that time's allowance at once.
MOST_SECONDS_OF_RATE = 60.0

Offsets = Mapping[int, int]


@dataclass(frozen=True)
class TopicInspection:
    """The state of a topic at one moment.

    `earliest` are the offsets of the oldest records that it still has, `ends` those behind the newest that readers of
    committed records may see, both by partition.
    """

    cluster_id: str
    topic: str
    topic_id: str
    earliest: Offsets
    ends: Offsets


@dataclass(frozen=True)
class TopicRange:
    """Records from the offsets `start` up to, and without, the offsets `end`; both have the same partitions."""

    start: Offsets
    end: Offsets

    @property
    def offsets(self) -> int:
        """The number of offsets, which is at least that of records."""
        return sum(self.end[partition] - self.start[partition] for partition in self.end)


def find_range(
    declared: Kafka, state: TopicInspection, position: TopicPosition | None, first: Offsets | None, *, where: str
) -> TopicRange:
    """Everything that the topic has and the log has not.

    `first` are the offsets at which a source begins that has no position yet. Partitions that the topic gained are
    read from their beginning. Raises TopicReplacedError and OffsetsLostError.
    """
    if position is None:
        begin = {partition: 0 if first is None else first.get(partition, 0) for partition in state.ends}
        start = {partition: max(offset, state.earliest[partition]) for partition, offset in begin.items()}
        # A time or `latest` was asked of the topic before its ends were; nothing before it is read later.
        return TopicRange(start, {partition: max(state.ends[partition], at) for partition, at in start.items()})
    position = _accept_topic(declared, state, position, where)
    gone = sorted(set(position.offsets) - set(state.ends))
    if gone:
        raise TopicReplacedError(
            f"topic {state.topic} had partition {gone[0]}, and now it has {len(state.ends)} partitions. Kafka takes no "
            "partition away, so these are other brokers' records. Correct bootstrap.servers, or declare a source "
            "under a new name.",
            where=where,
        )
    start = {partition: position.offsets.get(partition, 0) for partition in state.ends}
    start = _pass_gaps(declared, state, start, known=set(position.offsets), where=where)
    return TopicRange(start, dict(state.ends))


def _accept_topic(declared: Kafka, state: TopicInspection, position: TopicPosition, where: str) -> TopicPosition:
    if state.topic_id == position.topic_id:
        return position
    if declared.accepted_topic == state.topic_id:
        return TopicPosition(state.cluster_id, state.topic, state.topic_id, {})
    cluster = (
        f"is one of cluster {state.cluster_id}, and rows of cluster {position.cluster_id} were read"
        if state.cluster_id != position.cluster_id
        else "was deleted and made anew"
        if state.topic == position.topic
        else f"takes the place of topic {position.topic}"
    )
    raise TopicReplacedError(
        f"topic {state.topic} {cluster}: its id is {state.topic_id}, and {position.topic_id} was read. The rows that "
        "are there stay. Declare a source under a new name, or, to go on with the records of this topic from their "
        f"beginning, add 'accept-topic' = '{state.topic_id}'.",
        where=where,
    )


def _pass_gaps(
    declared: Kafka, state: TopicInspection, start: dict[int, int], *, known: set[int], where: str
) -> dict[int, int]:
    accepted = set(declared.accepted_gaps)
    lost: list[tuple[int, int, int]] = []
    for partition, offset in sorted(start.items()):
        if state.ends[partition] < offset:
            raise OffsetsLostError(
                f"topic {state.topic} ends at offset {state.ends[partition]} in partition {partition}, and was read up "
                f"to {offset}: its newest records were lost. If they come back, so will this source. Otherwise declare "
                "a source under a new name.",
                where=where,
            )
        if state.earliest[partition] > offset:
            gap = (partition, offset, state.earliest[partition])
            if partition not in known and offset == 0 and state.earliest[partition] == state.ends[partition]:
                # Nothing that is there to be read is missing from a partition that nobody has read.
                start[partition] = state.earliest[partition]
            elif any(p == partition and low <= offset and high >= gap[2] for p, low, high in accepted):
                start[partition] = gap[2]
            else:
                lost.append(gap)
    if lost:
        shown = ", ".join(f"{partition}:{low}-{high}" for partition, low, high in lost)
        partition, low, high = lost[0]
        raise OffsetsLostError(
            f"topic {state.topic}: the records from offset {low} to {high - 1} of partition {partition} expired before "
            f"they were read. Keep records longer (retention.ms, retention.bytes). To go on without them, add "
            f"'accept-gap' = '{shown}'.",
            where=where,
        )
    return start


def take_portion(whole: TopicRange, most: int) -> TopicRange:
    """The first records of a range, at most so many (and one of each partition, so that it always goes on).

    Partitions are taken from in the proportion of what they have, so that none is left behind.
    """
    total = whole.offsets
    if total <= most:
        return whole
    end = {}
    for partition, start in whole.start.items():
        left = whole.end[partition] - start
        end[partition] = start + min(left, max(1, left * most // total)) if left else start
    return TopicRange(whole.start, end)


@dataclass(frozen=True)
class PortionSize:
    """The number of records that the next portion of a topic may have, from the seconds that portions took.

    A portion takes a time of its own, for planning and the commit, and one for its records. On a busy machine the first
    may be all of PORTION_SECONDS, and portions made for that time would only be smaller. `fixed` is that time in
    seconds, None before portions of two sizes were read, and `newest` the size and the seconds of the last full one.
    """

    records: int = FIRST_PORTION
    fixed: float | None = None
    newest: tuple[int, float] | None = None

    def after(self, offsets: int, seconds: float) -> PortionSize:
        """The size after a portion of so many offsets; it grows and shrinks at most fourfold at a time."""
        if offsets < self.records // 2 and seconds < PORTION_SECONDS:
            # It says little about a full one.
            return self
        fixed = self._fixed(offsets, seconds)
        wanted = self._wanted(offsets, seconds, fixed)
        most = min(GREATEST_PORTION, self.records * 4)
        return PortionSize(max(LEAST_PORTION, self.records // 4, min(most, wanted)), fixed, (offsets, seconds))

    def _fixed(self, offsets: int, seconds: float) -> float | None:
        if self.newest is None:
            return None
        before, took = self.newest
        if max(before, offsets) < 2 * min(before, offsets):
            return None if self.fixed is None else min(self.fixed, seconds)
        for_each = max(0.0, (seconds - took) / (offsets - before))
        return max(0.0, min(seconds, took, seconds - for_each * offsets))

    def _wanted(self, offsets: int, seconds: float, fixed: float | None) -> int:
        if fixed is None:
            if self.newest is None and seconds < MOST_PORTION_SECONDS / 4:
                # A second size shows the seconds of a portion beside its records.
                return self.records * 4
            fixed = 0.0
        whole = min(MOST_PORTION_SECONDS, max(PORTION_SECONDS, fixed / MOST_OVERHEAD))
        for_each = (seconds - fixed) / max(1, offsets)
        # Only what is left of the time is for records; where a portion takes no more for more of them, it may grow.
        return int(max(0.0, whole - fixed) / for_each) if for_each > 0 else self.records * 4


def allowed_by_rate(rate: int | None, seconds: float | None) -> int | None:
    """The number of records that a `rate-limit` allows, `seconds` after the last batch (None: there was none).

    None: any number.
    """
    if rate is None:
        return None
    return int(rate * (1.0 if seconds is None else max(0.0, min(seconds, MOST_SECONDS_OF_RATE))))


def advanced(position: TopicPosition | None, state: TopicInspection, read: TopicRange) -> TopicPosition:
    """The position when a range was read."""
    known = position if position is not None and position.topic_id == state.topic_id else None
    before, undeclared = ({}, ()) if known is None else (known.offsets, known.undeclared)
    return TopicPosition(state.cluster_id, state.topic, state.topic_id, {**before, **read.end}, undeclared)


def rest_of(whole: TopicRange, state: TopicInspection, position: TopicPosition | None) -> TopicRange:
    """The part of a range behind a position; all of it where the position is of another topic."""
    if position is None or position.topic_id != state.topic_id:
        return whole
    start = {partition: max(at, position.offsets.get(partition, 0)) for partition, at in whole.start.items()}
    return TopicRange(start, whole.end)


@dataclass(frozen=True)
class TopicTail:
    """The places of the records of a tail: up to `logged` in the log table, the others in the topic."""

    logged: Offsets
    unread: TopicRange


def split_topic(
    start: TopicPosition, end: TopicPosition, newest: TopicPosition | None, *, earliest: Offsets | None, where: str
) -> TopicTail:
    """The places of the records between two positions now.

    `newest` is the position of the log. `earliest` are the oldest offsets that the topic still has, where all is to be
    read from it as long as all is there, None where the log comes first. Raises TopicReplacedError.
    """
    if newest is not None and newest.topic_id != end.topic_id:
        raise TopicReplacedError(
            f"the token is of topic {end.topic_id}, and the log has gone on with topic {newest.topic_id}. Read anew.",
            where=where,
        )
    first = {partition: start.offsets.get(partition, 0) for partition in end.offsets}
    if earliest is not None and all(earliest.get(partition, 0) <= offset for partition, offset in first.items()):
        logged = first
    else:
        read = {} if newest is None else newest.offsets
        logged = {
            partition: min(end.offsets[partition], max(offset, read.get(partition, 0)))
            for partition, offset in first.items()
        }
    return TopicTail(logged, TopicRange(logged, dict(end.offsets)))


def require_unread(tail: TopicTail, state: TopicInspection, topic_id: str, *, where: str) -> None:
    """Raise an error unless the topic still has what is to be read from it."""
    if state.topic_id != topic_id:
        raise TopicReplacedError(
            f"topic {state.topic} was deleted and made anew (its id is {state.topic_id}, the token's {topic_id}), and "
            "part of what the token names was not in the log. Read anew.",
            where=where,
        )
    for partition, end in sorted(tail.unread.end.items()):
        offset = tail.unread.start[partition]
        if offset < end and (state.earliest.get(partition, end) > offset or state.ends.get(partition, -1) < end):
            raise OffsetsLostError(
                f"topic {state.topic} no longer has offsets {offset} to {end - 1} of partition {partition}, which were "
                "not in the log either. Nothing was read.",
                where=where,
            )
