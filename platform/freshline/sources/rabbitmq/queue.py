"""The messages of a classic or quorum queue of RabbitMQ, acknowledged after the commit.

A queue has no offsets: it gives each message to one consumer, and forgets it when that acknowledges. So messages stay
unacknowledged while they are committed, on a channel that is kept, also over refreshes that fail: then the next one
commits the same batch. After a kill before the acknowledgement, the broker sends them again, and those that the log or
its quarantine have are left out: by a digest over all that was published, which distinguishes messages where each has a
key or an id of its own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pika import exceptions
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from freshline.commit.delta_log import exists
from freshline.commit.notes import read_note, write_note
from freshline.compute.cancellation import Cancellation
from freshline.errors import (
    BrokerError,
    FreshlineError,
    OffsetsLostError,
    QueueForeignError,
    QueueReplacedError,
    RedeliveredError,
    StorageError,
)
from freshline.sources.rabbitmq.client import DeliveredMessage, RabbitClient, heard_at, message_of, receive
from freshline.sources.rabbitmq.connector import AT_LEAST_ONCE, DIGEST, RabbitMq
from freshline.sources.rabbitmq.position import QueuePosition, RabbitPosition
from freshline.sources.rabbitmq.properties import digest_of
from freshline.sources.rabbitmq.rows import MessageRows
from freshline.sources.rabbitmq.stream import verdict_of
from freshline.sources.reader import SMALL_ROWS, VERDICT, Group, Host, Inspection, Portion, ReadRequest, Records
from freshline.sources.records import REDELIVERED
from freshline.sources.spill import SpillingReader
from freshline.values.connector import Position
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

# So many messages, or so many bytes of them, are one commit. All of them are unacknowledged at once.
BATCH_MESSAGES, BATCH_BYTES = 100_000, 256 * 1024 * 1024
# Before the size of messages is known, and as many as the broker is asked for at once at most.
FIRST_MESSAGES, _MOST_AT_ONCE = 16, 60_000
# So long another consumer may be there before the queue counts as in use: a broker notices within seconds that an
# engine was killed.
_SETTLE_SECONDS, _LOOK_SECONDS = 15.0, 0.05
# A silence of so long means that the messages that an inspection counted went elsewhere, or expired.
_QUIET_SECONDS, _ANSWER_SECONDS = 0.5, 15.0
# A quorum queue that does not answer the broker in a quarter of a second is asked again.
_BUSY_SECONDS, _MOST_ANSWERS = 0.2, 5


@dataclass(frozen=True)
class QueueInspection(Inspection):
    """The position of the log, the number of the next message, and the one behind those that waited."""

    before: QueuePosition | None = None
    start: int = 0
    end: int = 0


@dataclass(frozen=True)
class QueuePortion(Portion):
    """Up to `wanted` messages. `held` is the batch once it is prepared."""

    wanted: int = 0
    held: UnacknowledgedBatch | None = None


@dataclass
class UnacknowledgedBatch:
    """A batch that was received and not acknowledged.

    `first` is the number of its first message, `tag` is that of its last one. `may_be_known` says that messages without
    the mark of a redelivery may have been committed too. `deliveries` is how often the broker counts that a message was
    delivered before. A quorum queue counts a consumer that was cancelled for as long as its messages are not
    acknowledged, so `consumers` may all be ours.
    """

    rows: MessageRows
    position: Position | None
    first: int
    channel: BlockingChannel
    tag: int = 0
    may_be_known: bool = False
    has_redelivered: bool = False
    deliveries: int = 0
    consumers: int = 0
    is_drained: bool = False


class QueueReader(SpillingReader[QueueInspection, QueuePortion]):
    """Reads every message that the queue has now. It is the only consumer of the queue."""

    has_tail: ClassVar[bool] = False

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.connection, RabbitMq)
        self._rabbit = spec.connection
        self._client = RabbitClient(spec.connection, self.where)
        self._channel: BlockingChannel | None = None
        self._held: UnacknowledgedBatch | None = None
        # Whether the queue was empty once since the channel was opened: messages that come then were never sent before,
        # unless they are marked.
        self._was_empty = False
        self._clean = True
        self._mean_bytes = 0
        # The inspection that is read, and the one whose messages went elsewhere before they were.
        self._inspection: QueueInspection | None = None
        self._drained: QueueInspection | None = None
        # Whether the broker allows two things with this queue: to be its only consumer, and to ask for a message.
        self._is_exclusive = self._can_get = True

    @property
    def _url(self) -> str:
        return self.secret("url", self._rabbit.url)

    # -- inspecting

    def inspect(self, position: RabbitPosition | None, asked: ReadRequest) -> QueueInspection:
        at, url = self.host.clock(), self._url
        before = self._of_queue(position)
        ready, consumers = self._count(url)
        own = 0 if self._held is None else self._held.consumers
        if consumers > own:
            ready, consumers = self._unused(url, own, asked)
        if consumers > own:
            raise self._foreign(f"it has {consumers - own} other consumers")
        given_back = self._keep_or_acknowledge(url, before)
        if given_back:
            # A quorum queue takes a while for it.
            deadline = time.monotonic() + _ANSWER_SECONDS
            while (ready := self._count(url)[0]) < given_back and time.monotonic() < deadline:
                asked.cancellation.wait(_LOOK_SECONDS)
                asked.cancellation.check()
        held = self._held
        count = 0 if held is None else held.rows.count
        start = self._start(before)
        return QueueInspection(
            at,
            ready + count,
            is_new=position is None or ready + count > 0,
            before=before,
            start=start,
            end=start + ready + count,
        )

    def _of_queue(self, position: RabbitPosition | None) -> QueuePosition | None:
        if position is None:
            return None
        if not isinstance(position, QueuePosition):
            raise QueueReplacedError(
                f"the log has messages of a stream, and {self._rabbit.queue} is declared as a queue. Declare a source "
                "under a new name.",
                where=self.where,
            )
        if position.queue not in (self._rabbit.queue, self._rabbit.accepted_queue):
            raise QueueReplacedError(
                f"queue {position.queue} was read before, and queue {self._rabbit.queue} is declared now. The rows "
                "that are there stay, and what the other queue still has is not read. Declare a source under a new "
                f"name, or, to go on with this queue, add 'accept-queue' = '{position.queue}'.",
                where=self.where,
            )
        return position

    @property
    def _note(self) -> Path:
        """The file with the number of messages that the queue has forgotten, which a log that is put back lacks."""
        return self.host.warehouse.notes / "queues" / f"{self.spec.name}.json"

    def _start(self, before: QueuePosition | None) -> int:
        """The number of the next message. Raises OffsetsLostError where the queue has forgotten more than was read."""
        if before is None:
            return 0
        note = read_note(self._note)
        forgotten = int(note["messages"]) if note is not None and note.get("queue") == before.queue else 0
        if forgotten <= before.messages or self._rabbit.accepted_gap == (before.messages, forgotten):
            return max(forgotten, before.messages)
        raise OffsetsLostError(
            f"queue {before.queue}: the log has {before.messages} messages, and {forgotten} were acknowledged, so it "
            "was put back to an earlier state. The broker does not send them again. To go on without them, add "
            f"'accept-gap' = '{before.messages}-{forgotten}'.",
            where=self.where,
        )

    def _count(self, url: str) -> tuple[int, int]:
        """The numbers of waiting messages and of consumers of the queue. Raises QueueError for no queue."""
        with self._client.channel(url) as channel:
            method = self._passive(channel)
            return int(method.message_count), int(method.consumer_count)

    def _unused(self, url: str, own: int, asked: ReadRequest) -> tuple[int, int]:
        """As `_count`, once nobody else consumes, or when the time to wait for that is over."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            found = self._count(url)
            if found[1] <= own or time.monotonic() > deadline:
                return found
            asked.cancellation.wait(_LOOK_SECONDS * 4)
            asked.cancellation.check()

    def _foreign(self, found: str) -> QueueForeignError:
        return QueueForeignError(
            f"queue {self._rabbit.queue} is consumed by somebody else: {found}, which would get a part of its "
            "messages. A queue is for one source alone: end who consumes it, or bind a queue of its own to the "
            "exchange.",
            where=self.where,
        )

    def _keep_or_acknowledge(self, url: str, before: QueuePosition | None) -> int:
        """Keep a batch that was not committed, acknowledge one that was, and give back one that nobody waits for.

        Returns how many messages were given back.
        """
        held = self._held
        if held is None:
            return 0
        messages = 0 if before is None else before.messages
        if not held.channel.is_open or not self._client.is_open:
            # The broker has given them back already.
            self._forget()
        elif before == held.position:
            return 0
        elif messages == held.first + held.rows.count:
            # It was committed, and the refresh did not come to know it.
            self._acknowledge(url, held)
        else:
            # The log was put back, or another one went on. The broker sends the messages again.
            with self._client.asking(url):
                held.channel.basic_nack(held.tag, multiple=True, requeue=True)
                self._passive(held.channel)
            self._forget()
            return held.rows.count
        return 0

    def _forget(self) -> None:
        held, self._held, self._channel, self._was_empty = self._held, None, None, False
        if held is not None:
            held.rows.remove()

    # -- cutting

    def cut(self, inspection: QueueInspection, position: RabbitPosition | None) -> QueuePortion | None:
        if not inspection.is_new or self._drained is inspection:
            return None
        read = inspection.start
        if isinstance(position, QueuePosition) and position != inspection.before:
            read = position.messages
        wanted = inspection.end - read
        if wanted <= 0 and position is not None:
            return None
        after = QueuePosition(self._rabbit.queue, read)
        progress = f"reading {wanted} messages of queue {self._rabbit.queue}"
        self._inspection = inspection
        return QueuePortion(position, after, inspection.at, 0, progress, wanted=wanted)

    # -- reading

    def prepare(
        self, spark: SparkSession, portion: QueuePortion, previous: Receipt | None, cancellation: Cancellation
    ) -> QueuePortion:
        """Receive the messages of the portion, unless they were received before."""
        url, held = self._url, self._held
        if held is None:
            try:
                held = self._receive(url, portion, cancellation)
            except _SharedQueueError:
                held = self._receive(url, portion, cancellation)
            self._held = held
        after = portion.after
        assert isinstance(after, QueuePosition)
        after = replace(after, messages=after.messages + held.rows.count)
        left = 0 if held.is_drained else max(0, portion.wanted - held.rows.count)
        if held.is_drained:
            self._drained = self._inspection
        return replace(
            portion,
            after=after,
            at=portion.at if not left else None if previous is None else previous.data_timestamp,
            left=left,
            most_records=held.rows.count,
            small=not held.rows.is_spilled and held.rows.count <= SMALL_ROWS,
            clean=self._clean and not held.has_redelivered and not held.may_be_known,
            held=held,
        )

    def _receive(self, url: str, portion: QueuePortion, cancellation: Cancellation) -> UnacknowledgedBatch:
        rows = MessageRows(self.folder)
        # A process that was killed may have left files.
        rows.remove()
        with self._client.asking(url) as connection:
            assert isinstance(portion.after, QueuePosition)
            first = portion.after.messages
            batch = _Batch(rows, self._rabbit, first)
            if self._channel is None or not self._channel.is_open:
                self._channel = self._open(connection, batch)
            held = UnacknowledgedBatch(rows, portion.before, first, self._channel, may_be_known=not self._was_empty)
            try:
                if not portion.wanted:
                    # Nothing waits. The queue, and that nobody else consumes it, is checked now all the same.
                    tag = self._begin(held, batch, 1)
                    held.channel.basic_cancel(tag)
                while rows.count < portion.wanted and not batch.is_full and not held.is_drained:
                    held.is_drained = not self._consume(held, batch, self._step(batch, portion.wanted), cancellation)
                if self._can_get and not batch.is_full and self._is_empty(held.channel, batch):
                    self._was_empty = True
                batch.finish()
            except BaseException:
                rows.remove()
                # Whatever came goes back.
                self._channel = None
                self._client.close()
                if batch.error is not None:
                    raise self.no_room(batch.error) from batch.error
                raise
        held.tag, held.has_redelivered, held.deliveries = batch.tag, batch.has_redelivered, batch.deliveries
        held.consumers += batch.asked
        if rows.count:
            self._mean_bytes = rows.bytes // rows.count
        return held

    def _open(self, connection: BlockingConnection, batch: _Batch) -> BlockingChannel:
        """A new channel, on which the first message may have come already."""
        self._was_empty = False
        channel = connection.channel()
        if self._can_get:
            try:
                self._was_empty = self._is_empty(channel, batch)
            except exceptions.ChannelClosedByBroker as error:
                if error.reply_code != 405:
                    raise
                # A quorum queue with a single active consumer gives no message to who asks for one.
                self._can_get = False
                channel = connection.channel()
        return channel

    def _step(self, batch: _Batch, wanted: int) -> int:
        """The number of messages that the broker is asked for next, so that they are not too many bytes."""
        mean = batch.rows.bytes // batch.rows.count if batch.rows.count else self._mean_bytes
        room = FIRST_MESSAGES if not mean else max(1, (BATCH_BYTES - batch.rows.bytes) // mean)
        # As many again as came, so that one that is larger than the others does not come a thousand times.
        grown = max(FIRST_MESSAGES, batch.rows.count * 8)
        return min(room, grown, wanted - batch.rows.count, BATCH_MESSAGES - batch.rows.count, _MOST_AT_ONCE)

    def _consume(self, held: UnacknowledgedBatch, batch: _Batch, step: int, cancellation: Cancellation) -> bool:
        """Receive so many messages; False where there were fewer."""
        tag = self._begin(held, batch, step)
        channel, end, heard = held.channel, batch.rows.count + step, time.monotonic()
        count = batch.rows.count
        while batch.rows.count < end and batch.error is None:
            channel.connection.process_data_events(_LOOK_SECONDS)
            cancellation.check()
            silent = time.monotonic() - max(heard, heard_at(channel))
            if batch.rows.count > count:
                count, heard = batch.rows.count, time.monotonic()
            elif silent > _QUIET_SECONDS:
                if self._is_empty(channel, batch):
                    break
                if silent > _ANSWER_SECONDS:
                    raise BrokerError(
                        f"the broker does not send what queue {self._rabbit.queue} has. Nothing was committed; it is "
                        "tried again.",
                        where=self.where,
                    )
        if batch.error is not None:
            raise batch.error
        channel.basic_cancel(tag)
        return batch.rows.count >= end

    def _begin(self, held: UnacknowledgedBatch, batch: _Batch, step: int) -> str:
        """Begin to consume; returns the consumer's tag. Raises QueueForeignError where somebody else consumes."""
        try:
            return self._subscribe(held, batch, step)
        except exceptions.ChannelClosedByBroker as error:
            if error.reply_code != 403 or not self._is_exclusive:
                raise
        # A classic queue with a single active consumer has none that is exclusive.
        self._is_exclusive = False
        raise _SharedQueueError

    def _subscribe(self, held: UnacknowledgedBatch, batch: _Batch, step: int) -> str:
        channel = held.channel
        # The broker sends no more than this, so that none is on its way when the consumer is cancelled.
        channel.basic_qos(prefetch_count=step)
        # A stream does not know priorities of consumers, and says so.
        tag = receive(channel, self._rabbit.queue, batch, exclusive=self._is_exclusive, arguments={"x-priority": 0})
        # A quorum queue lets others consume beside one that is exclusive.
        held.consumers += 1
        own = held.consumers + batch.asked
        consumers = int(self._passive(channel, consumers=1).consumer_count)
        if consumers > own:
            raise self._foreign(f"it has {consumers - own} other consumers")
        return tag

    def _passive(self, channel: BlockingChannel, *, consumers: int = 0) -> Any:
        """The number of messages that wait, and of consumers, of which there are so many at least.

        A quorum queue that is busy for a quarter of a second has no messages and no consumers in this answer.
        """
        method: Any = None
        for _ in range(_MOST_ANSWERS):
            asked = time.monotonic()
            method = channel.queue_declare(self._rabbit.queue, passive=True).method
            is_doubtful = not method.message_count and time.monotonic() - asked > _BUSY_SECONDS
            if method.consumer_count >= consumers and not is_doubtful:
                break
        return method

    def _is_empty(self, channel: BlockingChannel, batch: _Batch) -> bool:
        """Whether the queue has no message. One that it has is taken into the batch."""
        if not self._can_get:
            return not self._passive(channel).message_count
        method, properties, body = channel.basic_get(self._rabbit.queue)
        if method is not None:
            # Whoever got a message in this way counts as a consumer too.
            batch.asked = 1
            batch(message_of(method, properties, body))
        return method is None

    def read(self, spark: SparkSession, portion: QueuePortion) -> Records:
        held = portion.held
        assert held is not None
        rows = held.rows.messages(spark, self._rabbit.queue)
        if self._rabbit.delivery != AT_LEAST_ONCE and (held.may_be_known or held.has_redelivered):
            rows = self._marked(spark, rows, held)
        return Records((Group(rows),))

    def _marked(self, spark: SparkSession, rows: DataFrame, held: UnacknowledgedBatch) -> DataFrame:
        """The messages with the verdict of those that the log or its quarantine have already."""
        warehouse, known = self.host.warehouse, []
        log = warehouse.path(self.spec.name)
        if exists(log):
            known.append(spark.read.format("delta").load(str(log)).select(DIGEST))
        quarantine = warehouse.quarantine(self.spec.name)
        if exists(quarantine):
            known.append(spark.read.format("delta").load(str(quarantine)).select(F.col("digest").alias(DIGEST)))
        for table in known:
            wanted = table.join(F.broadcast(rows.select(DIGEST).distinct()), DIGEST, "left_semi").distinct()
            found = wanted.withColumn("_freshline_known", F.lit(True))
            is_known = F.col("_freshline_known") & self._may_be_known(held)
            verdict = F.when(is_known, F.lit(REDELIVERED)).otherwise(F.col(VERDICT))
            rows = rows.join(F.broadcast(found), DIGEST, "left").withColumn(VERDICT, verdict).drop("_freshline_known")
        return rows

    @staticmethod
    def _may_be_known(held: UnacknowledgedBatch) -> Column:
        return F.lit(True) if held.may_be_known else F.col("_freshline_redelivered")

    # -- after the commit

    def release(self, portion: QueuePortion, *, seconds: float, rejected: int) -> None:
        self._clean = rejected == 0
        self.host.failpoint("queue-before-acknowledged")
        held = portion.held
        assert held is not None
        self._acknowledge(self._url, held)
        if held.deliveries >= self._rabbit.most_deliveries:
            raise RedeliveredError(
                f"queue {self._rabbit.queue} had messages that were delivered {held.deliveries} times before they were "
                "committed. A quorum queue with a delivery-limit drops them when they reach it. See which refreshes "
                "failed.",
                where=self.where,
            )

    def _acknowledge(self, url: str, held: UnacknowledgedBatch) -> None:
        """Let the queue forget a batch that was committed, and wait until it has. Raises BrokerError."""
        try:
            with self._client.asking(url):
                if not held.channel.is_open:
                    raise BrokerError(
                        f"the channel to queue {self._rabbit.queue} was closed before its messages were acknowledged. "
                        "They are committed. The broker sends them again, and they are left out.",
                        where=self.where,
                    )
                if held.rows.count:
                    # The note comes first: messages that the queue forgets from here on are known to be forgotten.
                    self._write_note(held.first + held.rows.count)
                    held.channel.basic_ack(held.tag, multiple=True)
                    self._passive(held.channel)
        except FreshlineError:
            # Whatever is not acknowledged goes back, else nobody would get it.
            self._channel, self._was_empty = None, False
            self._client.close()
            raise
        finally:
            held.rows.remove()
            self._held = None

    def _write_note(self, messages: int) -> None:
        try:
            self._note.parent.mkdir(parents=True, exist_ok=True)
            write_note(self._note, {"queue": self._rabbit.queue, "messages": str(messages)})
        except OSError as error:
            raise StorageError(
                f"that messages of queue {self._rabbit.queue} are acknowledged cannot be noted, so they are not: "
                f"{error.strerror or error}. Make room.",
                where=self.where,
            ) from error

    def waiting(self, left: int) -> str:
        return f"{left} messages wait"

    def close(self) -> None:
        """Let go of the connection. The broker sends again all messages that were not acknowledged."""
        self._forget()
        self._client.close()


class _SharedQueueError(Exception):
    """The queue has no exclusive consumers. Begin again without."""


class _Batch:
    """Takes messages into rows, each with its number and digest."""

    def __init__(self, rows: MessageRows, declared: RabbitMq, first: int) -> None:
        self.rows = rows
        self.tag, self.deliveries = 0, 0
        self.has_redelivered = False
        self.asked = 0
        self.error: OSError | None = None
        self._declared, self._first = declared, first

    @property
    def is_full(self) -> bool:
        return self.rows.count >= BATCH_MESSAGES or self.rows.bytes >= BATCH_BYTES

    def finish(self) -> None:
        """Say that all messages are there. Raises OSError where the disk is full."""
        if self.error is not None:
            raise self.error
        try:
            self.rows.finish()
        except OSError as error:
            self.error = error
            raise

    def __call__(self, message: DeliveredMessage) -> None:
        properties = message.properties
        verdict = verdict_of(message)
        if verdict is None and self._declared.identity and properties.message_id is None:
            verdict = "NO_MESSAGE_ID"
        digest = digest_of(message.body, message.exchange, message.routing_key, properties)
        try:
            self.rows.add(message, self._first + self.rows.count, digest, verdict)
        except OSError as error:
            # Not raised within pika, whose connection would be taken for broken.
            self.error = self.error or error
            return
        # One that was asked for is here before those that are on their way.
        self.tag = max(self.tag, message.tag)
        self.deliveries = max(self.deliveries, properties.deliveries)
        self.has_redelivered = self.has_redelivered or message.is_redelivered
