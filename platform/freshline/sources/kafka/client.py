"""A Kafka topic: its offsets, asked of its brokers, and its records, read by Spark.

The brokers are asked by Kafka's own client in the JVM of the session, which takes milliseconds and no Spark job. A
range of offsets is fixed before reading begins, so that the same range always gives the same rows. Readers see
committed records only. Nothing is written here, and no consumer group is used: positions are in receipts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.errors import BrokerError, SourceError, TopicError
from freshline.sources.kafka.connector import Kafka
from freshline.sources.kafka.topic import Offsets, TopicInspection, TopicRange
from freshline.values.secret import resolve_reference

T = TypeVar("T")

# The milliseconds that brokers may take to answer one request.
_ANSWER_MS = 6_000
_REQUEST_MS = 3_000
_ADMIN = {"default.api.timeout.ms": str(_ANSWER_MS), "request.timeout.ms": str(_REQUEST_MS)}
_REFUSED = ("AuthenticationException", "AuthorizationException", "ConfigException", "InvalidTopicException")
_UNKNOWN = "UnknownTopicOrPartitionException"


@dataclass(frozen=True)
class Brokers:
    """A topic with its references resolved: what a client needs. Its text shows no property, which may be a secret."""

    topic: str
    servers: str
    client: Mapping[str, str] = field(repr=False)
    where: str


def resolve_brokers(declared: Kafka, root: Path, environ: Mapping[str, str], *, where: str) -> Brokers:
    """Raises TopicError for a reference to something that is not there."""

    def resolve(name: str, text: str) -> str:
        try:
            return resolve_reference(text, root, environ)
        except ValueError as error:
            raise TopicError(f"option '{name}': {error}", where=where) from error

    client = {name: resolve(f"kafka.{name}", value) for name, value in declared.client.items()}
    return Brokers(resolve("topic", declared.topic), resolve("bootstrap.servers", declared.servers), client, where)


class TopicClient:
    """Asks brokers about topics; one client for each set of brokers is kept. Safe to use in several threads."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        # By the hash of their properties, some of which are secrets; and of each source which one it uses.
        self._clients: dict[int, Any] = {}
        self._used: dict[str, int] = {}
        # The partitions of a topic, as Kafka names them: to make one is a call into the JVM for each.
        self._partitions: dict[str, list[Any]] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Let go of all connections."""
        with self._lock:
            for client in self._clients.values():
                client.close(self._jvm.java.time.Duration.ofMillis(0))
            self._clients.clear()
            self._used.clear()
            self._partitions.clear()

    def ends(self, brokers: Brokers) -> tuple[str, Offsets]:
        """The topic's id, and by partition the offset behind the newest record that is committed."""
        return self._asking(brokers, lambda client: self._ends(client, brokers))

    def inspect(self, brokers: Brokers) -> TopicInspection:
        """All that is to be known of the topic. Raises BrokerError and TopicError."""

        def ask(client: Any) -> TopicInspection:
            # The oldest records before the newest: what expires meanwhile is found missing, never overlooked.
            topic_id, ends = self._ends(client, brokers)
            earliest = self._offsets(client, brokers, list(ends), self._specs.earliest(), committed=False)
            cluster = str(client.describeCluster().clusterId().get())
            return TopicInspection(cluster, brokers.topic, topic_id, earliest, ends)

        return self._asking(brokers, ask)

    def starting(self, brokers: Brokers, starting: str) -> Offsets:
        """The offsets where a new source begins: `earliest`, `latest` or the first record from a moment."""

        def ask(client: Any) -> Offsets:
            _, ends = self._ends(client, brokers)
            if starting == "latest":
                return ends
            if starting == "earliest":
                return self._offsets(client, brokers, list(ends), self._specs.earliest(), committed=False)
            moment = int(datetime.fromisoformat(starting).timestamp() * 1000)
            found = self._offsets(client, brokers, list(ends), self._specs.forTimestamp(moment), committed=True)
            # A partition without a record from then on answers -1.
            return {partition: ends[partition] if at < 0 else at for partition, at in found.items()}

        return self._asking(brokers, ask)

    # -- one question each

    @cached_property
    def _kafka(self) -> Any:
        return self._jvm.org.apache.kafka

    @cached_property
    def _specs(self) -> Any:
        return self._kafka.clients.admin.OffsetSpec

    @cached_property
    def _committed(self) -> Mapping[bool, Any]:
        # The end for readers of committed records is before the first record of a transaction that is still open.
        options, levels = self._kafka.clients.admin.ListOffsetsOptions, self._kafka.common.IsolationLevel
        return {True: options(levels.READ_COMMITTED), False: options(levels.READ_UNCOMMITTED)}

    def _ends(self, client: Any, brokers: Brokers) -> tuple[str, Offsets]:
        names = self._jvm.java.util.ArrayList()
        names.add(brokers.topic)
        described = client.describeTopics(names).allTopicNames().get().get(brokers.topic)
        # Kafka numbers the partitions of a topic from 0 on, and takes none of them away.
        partitions = range(int(described.partitions().size()))
        return str(described.topicId().toString()), self._offsets(
            client, brokers, partitions, self._specs.latest(), committed=True
        )

    def _offsets(
        self, client: Any, brokers: Brokers, partitions: Collection[int], spec: Any, *, committed: bool
    ) -> dict[int, int]:
        named = self._named(brokers.topic, max(partitions, default=-1) + 1)
        asked = self._jvm.java.util.HashMap()
        for partition in partitions:
            asked.put(named[partition], spec)
        answers = client.listOffsets(asked, self._committed[committed]).all().get()
        return {partition: int(answers.get(named[partition]).offset()) for partition in partitions}

    def _named(self, topic: str, count: int) -> list[Any]:
        """At least so many partitions of a topic."""
        known = self._partitions.get(topic, [])
        if len(known) < count:
            made = self._kafka.common.TopicPartition
            # Another list, since another thread may read the one that is known.
            known = [*known, *[made(topic, partition) for partition in range(len(known), count)]]
            self._partitions[topic] = known
        return known

    def _asking(self, brokers: Brokers, ask: Callable[[Any], T]) -> T:
        try:
            return ask(self._client(brokers))
        except Py4JJavaError as error:
            raise source_error(error, brokers) from error

    def _client(self, brokers: Brokers) -> Any:
        properties = {**_ADMIN, **brokers.client, "bootstrap.servers": brokers.servers}
        made_of = hash(tuple(sorted(properties.items())))
        with self._lock:
            client = self._clients.get(made_of)
            if client is None:
                given = self._jvm.java.util.HashMap()
                for name, value in properties.items():
                    given.put(name, value)
                client = self._clients[made_of] = self._jvm.org.apache.kafka.clients.admin.Admin.create(given)
            before = self._used.get(brokers.where, made_of)
            self._used[brokers.where] = made_of
            unused = None if before in self._used.values() else self._clients.pop(before)
        if unused is not None:
            # A secret was changed. Another thread may still wait for an answer.
            unused.close(self._jvm.java.time.Duration.ofMillis(_ANSWER_MS))
        return client


def source_error(error: Py4JError, brokers: Brokers) -> SourceError:
    """The error to report for one of Kafka's client. It never shows a property."""
    text = str(error)
    if _UNKNOWN in text:
        return TopicError(
            f"there is no topic {brokers.topic} at {brokers.servers}. Create it, or correct `topic`.",
            where=brokers.where,
        )
    cause = next((line for line in text.split("\n") if any(sign in line for sign in _REFUSED)), None)
    if cause is not None:
        kind = next(sign for sign in _REFUSED if sign in cause)
        said = _without_value(cause.rpartition(f"{kind}:")[2].strip()) or kind
        return TopicError(
            f"the brokers at {brokers.servers} refuse topic {brokers.topic}: {said}. "
            "Correct the source's `kafka.` options.",
            where=brokers.where,
        )
    if "bootstrap" in text and "KafkaException" in text:
        return TopicError(
            f"no broker can be found by bootstrap.servers = {brokers.servers}. Correct it.", where=brokers.where
        )
    return BrokerError(
        f"the brokers at {brokers.servers} do not answer for topic {brokers.topic}. Nothing was read; it is tried "
        "again.",
        where=brokers.where,
    )


def _without_value(said: str) -> str:
    """The client's text about a property, without the value that it repeats: it may be a secret in the wrong place.

    >>> _without_value("Invalid value hunter2 for configuration security.protocol: String must be one of: SSL")
    'invalid value for configuration security.protocol: String must be one of: SSL'
    >>> _without_value("Invalid value of which the rest is on the next line")
    'invalid value'
    """
    before, is_value, rest = said.partition("Invalid value ")
    if not is_value:
        return said
    _, is_named, name = rest.rpartition(" for configuration ")
    return f"{before}invalid value for configuration {name}" if is_named else f"{before}invalid value"


def read_range(spark: SparkSession, brokers: Brokers, wanted: TopicRange) -> DataFrame:
    """The records of a range, with Kafka's own columns: key, value, topic, partition, offset, timestamp, headers."""
    partitions = sorted(wanted.end)
    reader = spark.read.format("kafka")
    options = {
        "kafka.bootstrap.servers": brokers.servers,
        **{f"kafka.{name}": value for name, value in brokers.client.items()},
        "kafka.isolation.level": "read_committed",
        "assign": json.dumps({brokers.topic: partitions}),
        "startingOffsets": json.dumps({brokers.topic: {str(p): wanted.start[p] for p in partitions}}),
        "endingOffsets": json.dumps({brokers.topic: {str(p): wanted.end[p] for p in partitions}}),
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }
    return reader.options(**options).load().select(*[F.col(name) for name in _COLUMNS])


_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
