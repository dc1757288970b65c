"""The records of a Kafka topic that the log does not have yet.

An inspection of the topic fixes the end. Its records are read in portions, each one commit whose receipt has the next
offsets. So a stop at any point loses and repeats nothing, and no checkpoint decides which records were read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from operator import or_
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.compute.inputs import FILE, RECORD
from freshline.errors import BrokerError, FreshlineError, SourceError, TopicReplacedError
from freshline.sources.kafka.client import Brokers, TopicClient, read_range, resolve_brokers
from freshline.sources.kafka.connector import HEADERS, KEY, PARTITION, TIMESTAMP, TOPIC, Kafka
from freshline.sources.kafka.position import TopicPosition
from freshline.sources.kafka.topic import (
    Offsets,
    PortionSize,
    TopicInspection,
    TopicRange,
    advanced,
    allowed_by_rate,
    find_range,
    require_unread,
    rest_of,
    split_topic,
    take_portion,
)
from freshline.sources.prepare import note_undeclared
from freshline.sources.reader import (
    SMALL_ROWS,
    Group,
    Host,
    Inspection,
    Portion,
    Reader,
    ReadRequest,
    Records,
    Tail,
)
from freshline.values.format import VALUE
from freshline.values.spec import SourceSpec

# A broker that has just started knows the ends of its topics only after a while.
SETTLE_SECONDS = 10.0
_LOOK_SECONDS = 0.2
# Errors of Kafka's client, and of Spark's reader of its records, about records that they were not given.
_OF_BROKERS = re.compile(
    r"org\.apache\.kafka\.(?:common|clients)\S*(?:Exception|Error)|KAFKA_DATA_LOSS|data may have been lost|Cannot fetch"
)


@dataclass(frozen=True)
class KafkaInspection(Inspection):
    """The topic and the unread part of it; both None where a short check found nothing new."""

    topic: TopicInspection | None = None
    whole: TopicRange | None = None


@dataclass(frozen=True)
class KafkaPortion(Portion):
    """A range of offsets."""

    range: TopicRange = TopicRange({}, {})  # noqa: RUF009 - frozen, and never written to


@dataclass(frozen=True)
class PortionMemory:
    """The memory of reading a topic.

    `size` says how many records the next portion may have, `read_at` when the last was read, and `clean` whether all of
    its records were good.
    """

    size: PortionSize = PortionSize()  # noqa: RUF009 - frozen, and never written to
    read_at: datetime | None = None
    clean: bool = True


class KafkaReader(Reader[KafkaInspection, KafkaPortion]):
    """Reads every record that the topic has now; part of them where `rate-limit` ends."""

    has_tail: ClassVar[bool] = True

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.connection, Kafka)
        self._kafka = spec.connection
        self._memory = PortionMemory()

    @property
    def _topics(self) -> TopicClient:
        """Asks the brokers. Raises JarError where the client's jars cannot be had."""

        def make() -> TopicClient:
            self.host.provide_jars("kafka")
            return TopicClient(self.host.spark)

        return self.host.shared("kafka", make)

    def _brokers(self) -> Brokers:
        """The brokers with their references resolved, in this process and for this time."""
        return resolve_brokers(self._kafka, self.host.root, os.environ, where=self.where)

    def inspect(self, position: TopicPosition | None, asked: ReadRequest) -> KafkaInspection:
        brokers, at = self._brokers(), self.host.clock()
        if position is not None and self._is_all_read(brokers, position):
            return KafkaInspection(at, 0, is_new=False)
        # Asked before the ends: what comes between the two is read.
        first = self._topics.starting(brokers, self._kafka.starting) if position is None else None
        state = self._look_behind(brokers, lambda state: position is None or covers(state, position), asked)
        whole = find_range(self._kafka, state, position, first, where=self.where)
        return KafkaInspection(at, whole.offsets, position is None or whole.offsets > 0, topic=state, whole=whole)

    def _is_all_read(self, brokers: Brokers, position: TopicPosition) -> bool:
        """Whether a short check finds the topic where it was; another topic never is."""
        topic_id, ends = self._topics.ends(brokers)
        return topic_id == position.topic_id and dict(ends) == dict(position.offsets)

    def _look_behind(
        self, brokers: Brokers, reached: Callable[[TopicInspection], bool], asked: ReadRequest
    ) -> TopicInspection:
        """Inspect a topic; where it has less than is known of it, again for as long as a broker needs to start.

        The last inspection is returned in any case.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            state = self._topics.inspect(brokers)
            if reached(state) or time.monotonic() > deadline:
                return state
            asked.cancellation.wait(_LOOK_SECONDS)
            asked.cancellation.check()

    def cut(self, state: KafkaInspection, position: TopicPosition | None) -> KafkaPortion | None:
        if state.topic is None or state.whole is None:
            return None
        rest = rest_of(state.whole, state.topic, position)
        most = self._most()
        if position is not None and (most == 0 or rest.offsets == 0):
            return None
        portion = take_portion(rest, most)
        left = rest.offsets - portion.offsets
        return KafkaPortion(
            before=position,
            after=advanced(position, state.topic, portion),
            at=None if left else state.at,
            left=left,
            progress=f"reading up to {portion.offsets} records, {left} are left",
            most_records=portion.offsets,
            small=portion.offsets <= SMALL_ROWS,
            clean=self._memory.clean,
            range=portion,
        )

    def _most(self) -> int:
        read_at = self._memory.read_at
        seconds = None if read_at is None else (self.host.clock() - read_at).total_seconds()
        allowed = allowed_by_rate(self._kafka.rate_limit, seconds)
        most = self._memory.size.records
        return most if allowed is None else min(most, allowed)

    def read(self, spark: SparkSession, portion: KafkaPortion) -> Records:
        return Records((Group(as_records(read_range(spark, self._brokers(), portion.range))),))

    def note_fields(
        self, portion: KafkaPortion, fields: Mapping[str, str]
    ) -> tuple[KafkaPortion, tuple[FreshlineError, ...]]:
        after = _of(portion.after)
        noted, problems = note_undeclared(after.undeclared, fields, is_first=portion.before is None, where=self.where)
        return replace(portion, after=replace(after, undeclared=noted)), problems

    def partitions(self, inspection: KafkaInspection, position: TopicPosition | None, left: int) -> Mapping[str, bool]:
        read = {} if position is None else position.offsets
        ends = read if inspection.whole is None else inspection.whole.end
        return {str(partition): end > read.get(partition, 0) for partition, end in ends.items()}

    def confirm(self, portion: KafkaPortion, found: Mapping[str, int] | None) -> None:
        # The records are read. Were they those of a topic that was made anew meanwhile, offsets would say nothing.
        brokers = self._brokers()
        topic_id, _ = self._topics.ends(brokers)
        if topic_id != _of(portion.after).topic_id:
            raise TopicReplacedError(
                f"topic {brokers.topic} was deleted and made anew while it was read; nothing of it was committed.",
                where=self.where,
            )

    def explain(self, error: Exception, portion: KafkaPortion) -> FreshlineError | None:
        if not _OF_BROKERS.search(str(error)):
            return None
        # The brokers themselves name the fault: the topic is gone, or no longer the one that was inspected.
        brokers = self._brokers()
        state = self._topics.inspect(brokers)
        find_range(self._kafka, state, replace(_of(portion.after), offsets=portion.range.start), None, where=self.where)
        return BrokerError(
            f"reading topic {brokers.topic} from {brokers.servers} was interrupted. Nothing of it was committed; "
            "it is tried again.",
            where=self.where,
        )

    def release(self, portion: KafkaPortion, *, seconds: float, rejected: int) -> None:
        size = self._memory.size.after(portion.most_records, seconds)
        self._memory = PortionMemory(size, self.host.clock(), clean=rejected == 0)

    def waiting(self, left: int) -> str:
        return f"rate-limit, {left} records wait"

    # -- union read

    def find_tail(self, position: TopicPosition, seq: int, asked: ReadRequest) -> tuple[TopicPosition, TopicPosition]:
        state = self._look_behind(self._brokers(), lambda state: covers(state, position), asked)
        if state.topic_id != position.topic_id:
            raise SourceError(
                f"topic {state.topic} is not the one that was read. `freshline refresh {self.spec.name}` says more.",
                where=self.where,
            )
        ends = {partition: max(end, position.offsets.get(partition, 0)) for partition, end in state.ends.items()}
        return position, replace(position, offsets={**position.offsets, **ends})

    def tail(
        self, spark: SparkSession, start: TopicPosition, end: TopicPosition, position: TopicPosition, asked: ReadRequest
    ) -> Tail:
        if all(start.offsets.get(partition, 0) == offset for partition, offset in end.offsets.items()):
            return Tail()
        brokers = self._brokers()
        tail = split_topic(start, end, position, earliest=self._earliest(brokers, end.topic_id), where=self.where)
        logged = [
            # Records from before may be in a later batch too: those that were tried again.
            (F.col(PARTITION) == partition)
            & (F.col(RECORD) >= start.offsets.get(partition, 0))
            & (F.col(RECORD) < offset)
            for partition, offset in tail.logged.items()
            if offset > start.offsets.get(partition, 0)
        ]
        unread = None
        if tail.unread.offsets:
            state = self._look_behind(brokers, lambda state: covers(state, end), asked)
            require_unread(tail, state, end.topic_id, where=self.where)
            unread = KafkaPortion(start, end, None, 0, "", range=tail.unread)
        return Tail(reduce(or_, logged) if logged else None, unread)

    def _earliest(self, brokers: Brokers, topic_id: str) -> Offsets | None:
        """The earliest offsets of a topic, where the tail is to be read from it rather than from the log.

        Of two records with one key, the order of arrival decides which stays. So the tail of a source with a key is
        judged as one batch each time, and not as the batches in which it arrived, for as long as the topic has it.
        """
        if not self.spec.primary_key:
            return None
        try:
            state = self._topics.inspect(brokers)
        except SourceError:
            return None
        return state.earliest if state.topic_id == topic_id else None


def covers(state: TopicInspection, position: TopicPosition) -> bool:
    """Whether a topic has all partitions, up to the offsets, that a position has read; True for another topic."""
    return state.topic_id != position.topic_id or all(
        state.ends.get(partition, -1) >= offset for partition, offset in position.offsets.items()
    )


def as_records(rows: DataFrame) -> DataFrame:
    """Records as the loop takes them, from rows with Kafka's own columns."""
    return rows.select(
        F.col("value").cast("string").alias(VALUE),
        F.concat_ws("-", "topic", "partition").alias(FILE),
        F.col("offset").alias(RECORD),
        F.col("topic").alias(TOPIC),
        F.col("partition").alias(PARTITION),
        F.col("timestamp").alias(TIMESTAMP),
        F.col("key").alias(KEY),
        F.col("headers").alias(HEADERS),
    )


def _of(position: object) -> TopicPosition:
    assert isinstance(position, TopicPosition)
    return position
