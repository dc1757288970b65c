"""A topic of Kafka, asked and written by librdkafka.

Clients are made for one refresh and closed with it, so nothing is connected while there is nothing to send. The id of
transactions is that of the topic: whoever begins to write to it ends the transaction of everybody who did before, and
from then on these are refused by the brokers. The position is the offset of a group, committed in the transaction of
the records. It stands twice: in the group of the topic, by which freshline finds it whatever a sink is called, and in
that of the sink's name, for people.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from freshline.errors import SinkError, SinkFencedError, SinkRefusedError

T = TypeVar("T")

# The seconds in which brokers answer one request.
ANSWER_SECONDS = 15.0
# The seconds in which a transaction is begun, or committed: the brokers write it down in several places.
_TRANSACTION_SECONDS = 60.0
# The seconds without a record, or room for one, after which brokers count as away.
_STILL_SECONDS = 30.0
# A commit that was asked for is seen everywhere after milliseconds. A transaction that stays open is a dead engine's.
_SETTLING_SECONDS = 2.0
# The time in which a transaction of a killed engine is open if nobody starts again: the most that brokers allow by
# themselves, because so long may the first refresh of a large table take.
_TIMEOUT_MS = 900_000
_LEAST_QUEUE_KB = 65_536
# The bytes of a record in a batch of its own, beside key and value.
RECORD_BYTES = 100
_RECORDS = 5_000

_LOG = logging.getLogger(__name__)
# Without a handler of an application, Python would print the client's warnings.
_LOG.addHandler(logging.NullHandler())

_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_REFUSED = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
    KafkaError._SSL,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.INVALID_REQUIRED_ACKS,
)
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)
# Reports of a client on an address that it does not reach, those that name it first.
_UNREACHED = ((KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._BAD_MSG), (KafkaError._ALL_BROKERS_DOWN,))
# Brokers that start, or hand on what they coordinate, answer so for a moment.
_LOADING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
)


# The position is within a transaction that does not end.
_UNSETTLED = (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT)


@dataclass(frozen=True)
class Address:
    """A topic with its references resolved: what a client needs. Its text shows no property, which may be a secret."""

    topic: str
    servers: str
    client: Mapping[str, str] = field(repr=False)
    group: str
    where: str

    @property
    def owner_group(self) -> str:
        """The group that has the position, and the id of transactions."""
        return f"freshline-topic-{self.topic}"


@dataclass
class TopicClient:
    """One topic for one refresh. Every method raises the errors of sinks."""

    address: Address
    _admin: AdminClient | None = None
    _open: list[Any] = field(default_factory=list)
    _consumers: dict[tuple[str, str], Any] = field(default_factory=dict)
    # Clients report on their own what requests only end in as a time-out: a wrong password, a certificate.
    _reported: list[KafkaError] = field(default_factory=list)

    def __enter__(self) -> TopicClient:
        return self

    def __exit__(self, *error: object) -> None:
        for client in self._open:
            try:
                client.close()
            except KafkaException as last:
                # Of a producer that was refused before; that was reported.
                _LOG.info("a client ends with an error: %s", last)
        self._open.clear()
        self._consumers.clear()
        self._admin = None

    # -- the topic

    def ends(self) -> dict[int, tuple[int, int]] | None:
        """By partition the first offset and the one behind the newest committed record.

        None where there is no topic.
        """
        with self.explained("be asked"):
            return self._when_ready(self._ends, ANSWER_SECONDS)

    def await_settled(self) -> None:
        """Wait for transactions whose end was asked for: brokers confirm a commit before each partition shows it.

        One that stays open for longer is another producer's, and no consumer sees what is behind its begin.
        """
        partitions = [TopicPartition(self.address.topic, each) for each in self.ends() or ()]
        deadline, pause = time.monotonic() + _SETTLING_SECONDS, 0.005
        with self.explained("be asked"):
            while partitions and time.monotonic() < deadline:
                if self._when_ready(lambda: self._is_settled(partitions), ANSWER_SECONDS):
                    return
                self.admin.poll(pause)
                pause = min(2 * pause, 0.2)

    def _is_settled(self, partitions: list[TopicPartition]) -> bool:
        latest = OffsetSpec.latest()
        return self._offsets(partitions, latest) == self._offsets(partitions, latest, IsolationLevel.READ_UNCOMMITTED)

    def _ends(self) -> dict[int, tuple[int, int]] | None:
        # Metadata of a topic that is not there would make it, where brokers are set up so. A description does not.
        asked = self.admin.describe_topics(TopicCollection([self.address.topic]), request_timeout=ANSWER_SECONDS)
        try:
            found = asked[self.address.topic].result()
        except KafkaException as error:
            if _error_of(error).code() in _UNKNOWN:
                return None
            raise
        partitions = [TopicPartition(self.address.topic, each.id) for each in found.partitions]
        first, last = self._offsets(partitions, OffsetSpec.earliest()), self._offsets(partitions, OffsetSpec.latest())
        return {each: (first[each], last[each]) for each in first}

    def _offsets(
        self,
        partitions: list[TopicPartition],
        at: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[int, int]:
        asked = self.admin.list_offsets(
            dict.fromkeys(partitions, at), isolation_level=isolation, request_timeout=ANSWER_SECONDS
        )
        return {each.partition: answer.result().offset for each, answer in asked.items()}

    def create(self, partitions: int, replication: int | None, configuration: Mapping[str, str]) -> None:
        """Make the topic; one that another has made meanwhile is taken."""
        topic = NewTopic(
            self.address.topic,
            num_partitions=partitions,
            replication_factor=-1 if replication is None else replication,
            config=dict(configuration),
        )
        with self.explained("be made"):
            try:
                self.admin.create_topics([topic], request_timeout=ANSWER_SECONDS)[self.address.topic].result()
            except KafkaException as error:
                if _error_of(error).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
            # Brokers hear of it one after the other.
            self._when_ready(self._there, ANSWER_SECONDS)

    def _there(self) -> None:
        if self._ends() is None:
            raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))

    def most_bytes(self) -> int:
        """The bytes that a record may have, by the declaration or else by the topic."""
        declared = self.address.client.get("message.max.bytes")
        if declared is not None and declared.isdigit():
            return int(declared)
        asked = ConfigResource(ResourceType.TOPIC, self.address.topic)
        with self.explained("be asked for its configuration"):
            found = self.admin.describe_configs([asked], request_timeout=ANSWER_SECONDS)[asked].result()
            return int(found["max.message.bytes"].value)

    # -- the position

    def position(self, *, settled: bool) -> str | None:
        """The text of the position, None without one.

        A transaction whose end was asked for is waited for. One that stays open is that of a dead engine, or of a
        living one: with `settled` that is an error, else the position before it is taken.
        """
        with self.explained("be asked for the position"):
            try:
                seconds = ANSWER_SECONDS if settled else _SETTLING_SECONDS
                return self._when_ready(lambda: self._committed("read_committed", seconds), ANSWER_SECONDS)
            except KafkaException as error:
                if settled or _error_of(error).code() not in _UNSETTLED or self._refusals():
                    raise
            return self._when_ready(lambda: self._committed("read_uncommitted", ANSWER_SECONDS), ANSWER_SECONDS)

    def _committed(self, isolation: str, seconds: float) -> str | None:
        """The position, asked as a consumer does it: asked as an administrator, librdkafka 2.16 may end the process."""
        consumer = self._consumer(self.address.owner_group, isolation)
        (found,) = consumer.committed([TopicPartition(self.address.topic, 0)], timeout=seconds)
        if found.error is not None:
            raise KafkaException(found.error)
        return found.metadata if found.offset >= 0 and found.metadata else None

    def _when_ready(self, ask: Callable[[], T], seconds: float) -> T:
        """The answer of brokers, which may have to be asked again for some seconds."""
        deadline, pause = time.monotonic() + seconds, 0.005
        while True:
            try:
                return ask()
            except KafkaException as error:
                if _error_of(error).code() not in _LOADING or time.monotonic() > deadline:
                    raise
            self.admin.poll(pause)
            pause = min(2 * pause, 0.2)

    # -- writing

    def begin(self, most_bytes: int) -> Writing:
        """Begin a transaction; that of every other writer of the topic is aborted, and its producer refused."""
        queue = max(_LEAST_QUEUE_KB, 2 * most_bytes // 1024)
        producer = self._made(
            Producer,
            {
                "transaction.timeout.ms": _TIMEOUT_MS,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.kbytes": queue,
                **self.address.client,
                "message.max.bytes": max(most_bytes, 1000),
                "transactional.id": self.address.owner_group,
                # As the clients in Java do it, so that equal keys of other producers are in the same partition.
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: self._reported.append(error),
            },
        )
        with self.explained("be written"):
            self._again(lambda: producer.init_transactions(_TRANSACTION_SECONDS))
            producer.begin_transaction()
        return Writing(self, producer)

    def group_of(self, name: str) -> bytes:
        """A group as a transaction names it."""
        found: bytes = self._consumer(name, "read_committed").consumer_group_metadata()
        return found

    def _consumer(self, group: str, isolation: str) -> Any:
        """A consumer that joins no group: it asks for offsets, and reads the partitions that it is given."""
        if (group, isolation) not in self._consumers:
            self._consumers[group, isolation] = self._made(
                Consumer,
                {
                    "queued.max.messages.kbytes": 16_384,
                    "fetch.wait.max.ms": 100,
                    **self.address.client,
                    "group.id": group,
                    "isolation.level": isolation,
                    "enable.auto.commit": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                },
            )
        return self._consumers[group, isolation]

    def _again(self, ask: Callable[[], object]) -> None:
        """Ask for a step of a transaction, again where the client says that this helps."""
        deadline = time.monotonic() + _TRANSACTION_SECONDS
        while True:
            try:
                ask()
                return
            except KafkaException as error:
                if not _error_of(error).retriable() or time.monotonic() > deadline:
                    raise

    # -- reading

    def records(self, ends: Mapping[int, tuple[int, int]]) -> Iterator[list[Message]]:
        """The committed records up to `ends`, some at a time."""
        left = {partition: end for partition, (first, end) in ends.items() if end > first}
        if not left:
            return
        consumer = self._consumer(self.address.owner_group, "read_committed")
        with self.explained("be read"):
            consumer.assign([TopicPartition(self.address.topic, each, OFFSET_BEGINNING) for each in left])
            moved = time.monotonic()
            while left:
                found = []
                for message in consumer.consume(_RECORDS, timeout=0.1):
                    moved, error = time.monotonic(), message.error()
                    partition = message.partition()
                    if error is None:
                        if message.offset() < ends[partition][1]:
                            found.append(message)
                        if message.offset() + 1 >= ends[partition][1]:
                            left.pop(partition, None)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        # The last offsets are those of transactions, which are no records.
                        left.pop(partition, None)
                    elif not error.retriable():
                        raise KafkaException(error)
                if found:
                    yield found
                if time.monotonic() - moved > _STILL_SECONDS:
                    raise self._away("be read")

    # -- clients and errors

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            with self.explained("be asked"):
                self._admin = AdminClient(self._properties({**self.address.client}))
        return self._admin

    def _made(self, kind: Callable[[dict[str, Any]], Any], properties: Mapping[str, Any]) -> Any:
        with self.explained("be written"):
            client = kind(self._properties({**self.address.client, **properties}))
        self._open.append(client)
        return client

    def _properties(self, properties: dict[str, Any]) -> dict[str, Any]:
        return {
            **properties,
            "bootstrap.servers": self.address.servers,
            "error_cb": self._reported.append,
            "logger": _LOG,
        }

    @contextmanager
    def explained(self, doing: str) -> Iterator[None]:
        """Report errors of the client as those of sinks; `doing` says what cannot be done with the topic."""
        try:
            yield
        except KafkaException as error:
            raise self._explain(_error_of(error), doing) from None

    def _explain(self, error: KafkaError, doing: str) -> SinkError:
        topic, where = self.address.topic, self.address.where
        refusals = self._refusals()
        causes = [error, *self._reported]
        if any(each.code() in _FENCED for each in causes):
            return SinkFencedError(
                f"another engine or sink began to write to topic {topic}, which ended this transaction. Nothing of it "
                "can be read.",
                where=where,
            )
        if error.code() == KafkaError._INVALID_ARG:
            return SinkRefusedError(
                f"Kafka's client does not take an option that begins with `kafka.`: {_without_value(error)}. Correct "
                "it.",
                where=where,
            )
        if error.code() == KafkaError.UNSTABLE_OFFSET_COMMIT:
            return SinkError(
                f"a transaction of topic {topic} does not end. Nothing was written; it is tried again.", where=where
            )
        if error.code() in _UNKNOWN:
            return SinkRefusedError(f"there is no topic {topic} at {self.address.servers}.", where=where)
        refused = error if error.code() in _REFUSED else next(iter(refusals), None)
        if refused is None:
            return self._away(doing, error)
        remedy = _REMEDIES.get(refused.code(), "")
        return SinkRefusedError(
            f"topic {topic} at {self.address.servers} cannot {doing}: {_said(refused)}.{remedy}", where=where
        )

    def _refusals(self) -> list[KafkaError]:
        """The reports of clients on why brokers refuse them: these come only when they are asked for."""
        for client in (self._admin, *self._open):
            try:
                found = None if client is None else client.poll(0)
                # A consumer gives them in the place of records.
                while isinstance(found, Message):
                    if (said := found.error()) is not None:
                        self._reported.append(said)
                    found = client.poll(0)
            except KafkaException as error:
                self._reported.append(_error_of(error))
        return [each for each in self._reported if each.code() in _REFUSED]

    def _away(self, doing: str, error: KafkaError | None = None) -> SinkError:
        said = "" if error is None else f": {_said(error)}"
        # The request itself has but timed out.
        for codes in _UNREACHED:
            found = [each for each in self._reported if each.code() in codes]
            if found:
                said += f" ({_said(found[-1])})"
                break
        return SinkError(
            f"topic {self.address.topic} at {self.address.servers} cannot {doing}{said}. It is tried again.",
            where=self.address.where,
        )


@dataclass
class Writing:
    """One transaction. It is aborted by `abort`, or else by whoever writes next."""

    client: TopicClient
    _producer: Producer

    def send(self, key: bytes | None, value: bytes | None, partition: int = -1) -> None:
        """Send a record; where memory is full this waits for the brokers."""
        try:
            self._producer.produce(self.client.address.topic, value, key, partition)
        except BufferError:
            self._send_later(key, value, partition)
        except KafkaException as error:
            raise self.client._explain(_error_of(error), "be written") from None

    def _send_later(self, key: bytes | None, value: bytes | None, partition: int) -> None:
        deadline = time.monotonic() + _STILL_SECONDS
        with self.client.explained("be written"):
            waiting = len(self._producer)
            while True:
                self._producer.poll(0.1)
                try:
                    self._producer.produce(self.client.address.topic, value, key, partition)
                    return
                except BufferError:
                    if len(self._producer) < waiting:
                        waiting, deadline = len(self._producer), time.monotonic() + _STILL_SECONDS
                    if time.monotonic() > deadline:
                        raise self.client._away("be written") from None

    def put_position(self, offset: int, text: str) -> None:
        """Put the position into the transaction, after its records."""
        address = self.client.address
        with self.client.explained("be written"):
            for group in (address.owner_group, address.group):
                at, named = TopicPartition(address.topic, 0, offset, text), self.client.group_of(group)
                self.client._again(
                    lambda at=at, named=named: self._producer.send_offsets_to_transaction(  # type: ignore[misc]
                        [at], named, _TRANSACTION_SECONDS
                    )
                )
            # Whatever the brokers refuse is known before the commit is asked for.
            self._flush()

    def _flush(self) -> None:
        deadline, waiting = time.monotonic() + _STILL_SECONDS, len(self._producer)
        while waiting and self._producer.flush(0.5):
            if len(self._producer) < waiting:
                waiting, deadline = len(self._producer), time.monotonic() + _STILL_SECONDS
            if time.monotonic() > deadline:
                raise self.client._away("be written")

    def commit(self) -> None:
        """End the transaction: from now on its records are read."""
        with self.client.explained("be written"):
            self.client._again(lambda: self._producer.commit_transaction(_TRANSACTION_SECONDS))

    def abort(self) -> None:
        """Leave nothing of the transaction; where brokers are away, they abort it by themselves later."""
        try:
            self._producer.abort_transaction(ANSWER_SECONDS)
        except KafkaException as error:
            _LOG.info("a transaction is left to the brokers: %s", error)


_REMEDIES = {
    KafkaError.INVALID_TRANSACTION_TIMEOUT: (
        " Declare 'kafka.transaction.timeout.ms' with at most transaction.max.timeout.ms of the brokers."
    ),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: (
        " The user needs Read, Write, Describe and DescribeConfigs of the topic, and Create where 'partitions' is "
        "declared."
    ),
    KafkaError.GROUP_AUTHORIZATION_FAILED: " The user needs Read of groups whose names begin with freshline-.",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        " The user needs Write of transactional ids that begin with freshline-."
    ),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: " The user needs IdempotentWrite of the cluster.",
    KafkaError._AUTHENTICATION: " Correct the sink's `kafka.` options.",
    KafkaError.SASL_AUTHENTICATION_FAILED: " Correct the sink's `kafka.` options.",
    KafkaError._SSL: " Correct the sink's `kafka.ssl.` options.",
}


def _error_of(error: KafkaException) -> KafkaError:
    found: KafkaError = error.args[0]
    return found


def _said(error: KafkaError) -> str:
    return error.str().strip().rstrip(".")


def _without_value(error: KafkaError) -> str:
    """The client's text about a property without the value, which may be a secret in the wrong place."""
    text = error.str()
    named = re.search(r'configuration property:? "([^"]+)"', text)
    return "one of them" if named is None else named[1]
