"""The messages of a stream of RabbitMQ: what the stream has and the log has not.

A stream is read by offsets, which nobody else moves, and nothing is acknowledged for good. An inspection reads the last
message that the log has again: another one in its place, or none, is another stream. The end is the newest message. It
is known without waiting: a broker that was given an acknowledgement sends all that it has before it answers the next
question on the same channel.
"""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from pika.adapters.blocking_connection import BlockingChannel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from freshline.compute.cancellation import Cancellation
from freshline.compute.inputs import RECORD
from freshline.errors import BrokerError, OffsetsLostError, QueueError, QueueReplacedError, RequestError
from freshline.sources.rabbitmq.client import DeliveredMessage, RabbitClient, heard_at, receive
from freshline.sources.rabbitmq.connector import RabbitMq
from freshline.sources.rabbitmq.position import RabbitPosition, StreamPosition
from freshline.sources.rabbitmq.properties import digest_of
from freshline.sources.rabbitmq.rows import MessageRows
from freshline.sources.reader import SMALL_ROWS, Group, Host, Inspection, Portion, ReadRequest, Records, Tail
from freshline.sources.spill import SpillingReader
from freshline.values.receipt import Receipt
from freshline.values.spec import SourceSpec

# So many messages, or so many bytes of them, are one commit.
BATCH_MESSAGES, BATCH_BYTES = 200_000, 512 * 1024 * 1024
# A union read has the tail in memory.
MOST_TAIL_BYTES = 64 * 1024 * 1024
# So many messages are on their way at once. The size of a message is not known before, so it is not more.
_PREFETCH = 1_000
# The seconds that a broker may take to send the first message, and those after which silence means that a stream is
# empty of which the log has read nothing.
_ANSWER_SECONDS, _EMPTY_SECONDS = 15.0, 0.5
# The seconds to wait for a message that may not be there, before the broker is asked what is there.
_SHORT_SECONDS = 2.0
_LOOK_SECONDS = 0.05
# A broker that has just started knows the end of a stream only after a while.
SETTLE_SECONDS = 10.0


@dataclass(frozen=True)
class NewestMessage:
    """The newest message of a stream."""

    offset: int
    digest: str


@dataclass(frozen=True)
class Beginning:
    """The place where reading begins. `at` is that of the request to the broker: an offset, `first` or a moment.

    `expected` is the offset that the first message must have, None for any, and `digest` that message's, empty for any.
    With `is_read` the log has that message already.
    """

    at: int | str | datetime
    expected: int | None = None
    digest: str = ""
    is_read: bool = False


@dataclass(frozen=True)
class StreamInspection(Inspection):
    """The stream up to the newest message, None for one that is empty, and where reading it begins."""

    before: StreamPosition | None = None
    newest: NewestMessage | None = None
    beginning: Beginning | None = None
    generation: int = 0


@dataclass(frozen=True)
class StreamPortion(Portion):
    """Messages from a beginning up to the offset `end`. `rows` are there once it is prepared."""

    beginning: Beginning | None = None
    newest: NewestMessage | None = None
    rows: MessageRows | None = None


class StreamReader(SpillingReader[StreamInspection, StreamPortion]):
    """Reads every message that the stream has now."""

    has_tail: ClassVar[bool] = True

    def __init__(self, spec: SourceSpec, host: Host) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.connection, RabbitMq)
        self._rabbit = spec.connection
        self._client = RabbitClient(spec.connection, self.where)
        self._clean = True

    @property
    def _url(self) -> str:
        return self.secret("url", self._rabbit.url)

    # -- inspecting

    def inspect(self, position: RabbitPosition | None, asked: ReadRequest) -> StreamInspection:
        at, url = self.host.clock(), self._url
        if position is None:
            return self._first(url, at, asked, before=None, generation=0)
        position = self._of_stream(position)
        try:
            if position.stream != self._rabbit.stream:
                raise self._replaced(position, f"stream {position.stream} was read before")
            beginning, is_all_read = self._continued(url, position, asked)
        except QueueReplacedError:
            if self._rabbit.accepted_stream != position.loss:
                raise
            return self._first(url, at, asked, before=position, generation=position.generation + 1)
        if is_all_read:
            return StreamInspection(at, 0, is_new=False, before=position)
        newest = self._newest(url, asked, _ANSWER_SECONDS)
        if newest is None or newest.offset < position.next:
            raise BrokerError(
                f"stream {self._rabbit.stream} gave messages, and then none. It is tried again.", where=self.where
            )
        left = newest.offset + 1 - (beginning.expected or 0)
        return StreamInspection(
            at, left, is_new=True, before=position, newest=newest, beginning=beginning, generation=position.generation
        )

    def _of_stream(self, position: RabbitPosition) -> StreamPosition:
        if isinstance(position, StreamPosition):
            return position
        raise QueueReplacedError(
            f"the log has messages of a queue, and {self._rabbit.stream} is declared as a stream. Declare a source "
            "under a new name.",
            where=self.where,
        )

    def _first(
        self, url: str, at: datetime, asked: ReadRequest, *, before: StreamPosition | None, generation: int
    ) -> StreamInspection:
        """An inspection of a stream that nothing was read of."""
        starting = "earliest" if before is not None else self._rabbit.starting
        # A message that is not known now would be left out for ever, or read although it came before.
        newest = self._newest(url, asked, None if starting == "earliest" else _ANSWER_SECONDS)
        beginning: Beginning | None = Beginning("first")
        if starting == "latest":
            beginning = None
        elif starting != "earliest":
            moment = datetime.fromisoformat(starting)
            is_past = newest is not None and moment <= at
            beginning = self._since(url, moment, asked, _ANSWER_SECONDS if is_past else _SHORT_SECONDS)
        left = 0 if newest is None or beginning is None else newest.offset + 1
        return StreamInspection(
            at, left, is_new=True, before=before, newest=newest, beginning=beginning, generation=generation
        )

    def _since(self, url: str, moment: datetime, asked: ReadRequest, wait: float) -> Beginning | None:
        """The beginning of the messages from a moment on; None where there are none."""
        with self._client.channel(url) as channel:
            found = _Heads(channel, self._rabbit.stream, moment, prefetch=2)
            first = found.wait(wait, asked.cancellation)
        return None if first is None else Beginning(self._offset(first), expected=self._offset(first))

    def _continued(self, url: str, position: StreamPosition, asked: ReadRequest) -> tuple[Beginning, bool]:
        """The place to read on from, and whether nothing is there yet. Raises OffsetsLostError, QueueReplacedError."""
        begin = continued(position)
        with self._client.channel(url) as channel:
            found = _Heads(channel, self._rabbit.stream, begin.at, prefetch=2)
            first = found.wait(_SHORT_SECONDS if position.digest else found.patience(), asked.cancellation)
            if first is None and position.digest:
                self._require_there(url, position, asked)
                first = found.wait(_ANSWER_SECONDS, asked.cancellation)
            if first is None:
                if position.digest:
                    raise self._silent()
                return begin, True
            begin = self._judge(position, begin, first)
            count = found.count
            found.acknowledge()
            is_more = found.count > count or count > 1 or not begin.is_read
            return begin, not is_more

    def _judge(self, position: StreamPosition, begin: Beginning, first: DeliveredMessage) -> Beginning:
        """The beginning, when the first message behind it is known."""
        offset = self._offset(first)
        if begin.digest and offset == begin.expected:
            if stream_digest(first) != begin.digest:
                raise self._replaced(
                    position, f"its message at offset {offset} is another one than the one that was read"
                )
            return begin
        lost_from = position.next if not begin.digest else begin.expected
        if offset == lost_from:
            return begin
        gap = self._rabbit.accepted_gap
        assert lost_from is not None
        if gap is not None and gap[0] <= lost_from and gap[1] >= offset:
            return Beginning(offset, expected=offset)
        raise self._expired(lost_from, offset)

    def _expired(self, lost_from: int, offset: int) -> OffsetsLostError:
        return OffsetsLostError(
            f"stream {self._rabbit.stream}: the messages from offset {lost_from} to {offset - 1} expired before they "
            "were read, or before the next one was. Keep messages longer (max-age, max-length-bytes). To go on without "
            f"them, add 'accept-gap' = '{lost_from}-{offset}'.",
            where=self.where,
        )

    def _require_there(self, url: str, position: StreamPosition, asked: ReadRequest) -> None:
        """Raise an error if the stream is shorter than what was read of it."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            newest = self._newest(url, asked, SETTLE_SECONDS)
            if newest is not None and newest.offset >= position.next - 1:
                return
            if time.monotonic() > deadline:
                ends = "it has no messages" if newest is None else f"it ends at offset {newest.offset}"
                raise self._replaced(position, ends)
            asked.cancellation.wait(_LOOK_SECONDS)
            asked.cancellation.check()

    def _replaced(self, position: StreamPosition, found: str) -> QueueReplacedError:
        return QueueReplacedError(
            f"stream {self._rabbit.stream} is not the one that was read: {found}, and {position.stream} was read up to "
            f"offset {position.next - 1}. It was deleted and made anew, or its newest messages were lost. The rows "
            "that are there stay. Declare a source under a new name, or, to go on with the messages of this stream "
            f"from its beginning, add 'accept-stream' = '{position.loss}'.",
            where=self.where,
        )

    def _silent(self) -> BrokerError:
        return BrokerError(
            f"the broker does not send what stream {self._rabbit.stream} has. Nothing was read; it is tried again.",
            where=self.where,
        )

    def _offset(self, message: DeliveredMessage) -> int:
        offset = message.properties.offset
        if offset is None:
            raise QueueError(f"{self._rabbit.stream} is no stream. Declare it with 'queue'.", where=self.where)
        return offset

    def _newest(
        self, url: str, asked: ReadRequest, wait: float | None = None, client: RabbitClient | None = None
    ) -> NewestMessage | None:
        """The newest message of the stream; None where there is none, or none came in time."""
        with (client or self._client).channel(url) as channel:
            found = _Heads(channel, self._rabbit.stream, "last", prefetch=_PREFETCH)
            if found.wait(wait or found.patience(), asked.cancellation) is None:
                return None
            while found.acknowledge():
                asked.cancellation.check()
            newest = found.newest
            assert newest is not None
            return NewestMessage(self._offset(newest), stream_digest(newest))

    # -- cutting

    def cut(self, inspection: StreamInspection, position: RabbitPosition | None) -> StreamPortion | None:
        if not inspection.is_new:
            return None
        newest, beginning = inspection.newest, inspection.beginning
        end = 0 if newest is None else newest.offset + 1
        if position != inspection.before:
            assert isinstance(position, StreamPosition)
            if position.next >= end:
                return None
            beginning = continued(position)
        left = 0 if beginning is None else inspection.left
        if isinstance(position, StreamPosition) and position != inspection.before:
            left = end - position.next
        after = StreamPosition(self._rabbit.stream, inspection.generation, end, "" if newest is None else newest.digest)
        return StreamPortion(
            position,
            after,
            inspection.at,
            0,
            f"reading up to {left} messages of stream {self._rabbit.stream}",
            beginning=beginning if newest is not None else None,
            newest=newest,
        )

    # -- reading

    def prepare(
        self, spark: SparkSession, portion: StreamPortion, previous: Receipt | None, cancellation: Cancellation
    ) -> StreamPortion:
        """Read the portion out of the stream, before it is known where it ends."""
        rows = MessageRows(self.folder)
        if portion.beginning is None or portion.newest is None:
            return replace(portion, rows=rows, small=True)
        with self.filling(rows):
            last = self._read(
                self._client, self._url, portion.beginning, portion.newest, rows, cancellation, BATCH_BYTES
            )
        after = portion.after
        assert isinstance(after, StreamPosition)
        after = replace(after, next=last.offset + 1, digest=last.digest)
        is_all = last.offset >= portion.newest.offset
        return replace(
            portion,
            after=after,
            at=portion.at if is_all else None if previous is None else previous.data_timestamp,
            left=portion.newest.offset - last.offset,
            most_records=rows.count,
            small=not rows.is_spilled and rows.count <= SMALL_ROWS,
            clean=self._clean,
            rows=rows,
        )

    def _read(
        self,
        client: RabbitClient,
        url: str,
        beginning: Beginning,
        newest: NewestMessage,
        rows: MessageRows,
        cancellation: Cancellation,
        most_bytes: int,
    ) -> NewestMessage:
        """Read messages up to the newest one, or until they are enough; returns the last one."""
        batch = _Batch(rows, beginning, newest.offset, most_bytes)
        with client.channel(url) as channel:
            channel.basic_qos(prefetch_count=_PREFETCH)
            receive(channel, self._rabbit.stream, batch, arguments={"x-stream-offset": beginning.at})
            connection, heard = channel.connection, time.monotonic()
            while not batch.is_full:
                before = batch.received
                connection.process_data_events(_LOOK_SECONDS)
                cancellation.check()
                if batch.error is not None:
                    raise self.no_room(batch.error)
                if batch.received > before:
                    heard = time.monotonic()
                    channel.basic_ack(batch.tag, multiple=True)
                elif time.monotonic() - max(heard, heard_at(channel)) > _ANSWER_SECONDS:
                    raise self._silent()
        try:
            rows.finish()
        except OSError as error:
            raise self.no_room(error) from error
        if batch.wrong is not None:
            raise self._changed(batch.wrong, beginning)
        assert batch.last is not None
        return NewestMessage(self._offset(batch.last), stream_digest(batch.last))

    def _changed(self, first: DeliveredMessage, beginning: Beginning) -> Exception:
        """The error for a stream that is another one, or lost messages, since it was inspected."""
        offset, expected = self._offset(first), beginning.expected
        if expected is not None and offset > expected:
            return self._expired(expected, offset)
        return BrokerError(
            f"stream {self._rabbit.stream} changed while it was read. Nothing was committed; it is tried again.",
            where=self.where,
        )

    def read(self, spark: SparkSession, portion: StreamPortion) -> Records:
        assert portion.rows is not None
        return Records((Group(portion.rows.messages(spark, self._rabbit.stream)),))

    def release(self, portion: StreamPortion, *, seconds: float, rejected: int) -> None:
        # Nothing is released: a stream keeps its messages for everybody.
        self._clean = rejected == 0

    def waiting(self, left: int) -> str:
        return f"{left} messages wait"

    def close(self) -> None:
        self._client.close()

    # -- union read

    def find_tail(
        self, position: RabbitPosition, seq: int, asked: ReadRequest
    ) -> tuple[StreamPosition, StreamPosition]:
        start = self._of_stream(position)
        with closing(RabbitClient(self._rabbit, self.where)) as client:
            newest = self._newest(self._url, asked, _ANSWER_SECONDS if start.digest else None, client)
        if newest is None or newest.offset < start.next:
            return start, start
        return start, replace(start, next=newest.offset + 1, digest=newest.digest)

    def tail(
        self,
        spark: SparkSession,
        start: StreamPosition,
        end: StreamPosition,
        position: RabbitPosition | None,
        asked: ReadRequest,
    ) -> Tail:
        if start.next >= end.next:
            return Tail()
        read = self._of_stream(position) if position is not None else start
        if read.generation != end.generation or end.stream != self._rabbit.stream:
            raise QueueReplacedError(
                f"the token is of stream {end.stream}, and the log has gone on with another one. Read anew.",
                where=self.where,
            )
        if self.spec.primary_key:
            # Of two messages with one key, the order of arrival decides which stays. So the tail of a source with a key
            # is judged as one batch each time, for as long as the stream has it.
            try:
                return Tail(unread=self._unread(start, end, asked))
            except OffsetsLostError:
                if read.next <= start.next:
                    raise
        logged = (F.col(RECORD) >= start.next) & (F.col(RECORD) < end.next) if read.next > start.next else None
        return Tail(logged, self._unread(read, end, asked) if read.next < end.next else None)

    def _unread(self, start: StreamPosition, end: StreamPosition, asked: ReadRequest) -> StreamPortion:
        """The messages between two positions, in memory. Raises RequestError for too many of them."""
        rows = MessageRows(None)
        newest = NewestMessage(end.next - 1, end.digest)
        beginning = continued(start)
        with closing(RabbitClient(self._rabbit, self.where)) as client:
            last = self._read(client, self._url, beginning, newest, rows, asked.cancellation, MOST_TAIL_BYTES)
        if last.offset < newest.offset:
            raise RequestError(
                f"union_read of {self.spec.name}: the stream has more unread messages than a union read takes. Run "
                f"`freshline refresh {self.spec.name}` first."
            )
        if last != newest:
            raise QueueReplacedError(
                f"stream {end.stream} is not the one that the token was made of. Read anew.", where=self.where
            )
        return StreamPortion(start, end, None, 0, "", beginning=beginning, newest=newest, rows=rows)


def continued(position: StreamPosition) -> Beginning:
    """The place to read on from behind a position: the last message that was read, where there was one."""
    if position.digest:
        return Beginning(position.next - 1, expected=position.next - 1, digest=position.digest, is_read=True)
    return Beginning(position.next, expected=position.next)


def stream_digest(message: DeliveredMessage) -> str:
    """The digest by which a message of a stream is known again."""
    return digest_of(message.body, message.exchange, message.routing_key, message.properties).hex()


class _Heads:
    """A consumer that only wants to know what is there: the first message, the newest, and how many came."""

    def __init__(self, channel: BlockingChannel, name: str, at: int | str | datetime, *, prefetch: int) -> None:
        self.first: DeliveredMessage | None = None
        self.newest: DeliveredMessage | None = None
        self.count = 0
        self._channel, self._name = channel, name
        channel.basic_qos(prefetch_count=prefetch)
        receive(channel, name, self._take, arguments={"x-stream-offset": at})

    def _take(self, message: DeliveredMessage) -> None:
        self.first = self.first or message
        self.newest = message
        self.count += 1

    def wait(self, seconds: float, cancellation: Cancellation) -> DeliveredMessage | None:
        """The first message; None where none comes in time."""
        begun = time.monotonic()
        while self.first is None and time.monotonic() < max(begun, heard_at(self._channel)) + seconds:
            self._channel.connection.process_data_events(_LOOK_SECONDS)
            cancellation.check()
        return self.first

    def patience(self) -> float:
        """The seconds to wait for a message of a stream that may be empty.

        A broker may report none for a stream that has some, but not the other way round.
        """
        return _ANSWER_SECONDS if self._passive().message_count else _EMPTY_SECONDS

    def acknowledge(self) -> bool:
        """Acknowledge what came, and wait for all that the broker then has; whether that was anything."""
        count = self.count
        assert self.newest is not None
        self._channel.basic_ack(self.newest.tag, multiple=True)
        self._passive()
        self._channel.connection.process_data_events(0)
        return self.count > count

    def _passive(self) -> Any:
        return self._channel.queue_declare(self._name, passive=True).method


class _Batch:
    """Takes the messages from a beginning up to an offset, or until they are enough, into rows."""

    def __init__(self, rows: MessageRows, beginning: Beginning, end: int, most_bytes: int) -> None:
        self.last: DeliveredMessage | None = None
        self.wrong: DeliveredMessage | None = None
        self.is_full = False
        self.received, self.tag = 0, 0
        self._rows, self._beginning, self._end, self._most_bytes = rows, beginning, end, most_bytes
        self.error: OSError | None = None

    def __call__(self, message: DeliveredMessage) -> None:
        self.received, self.tag = self.received + 1, message.tag
        if self.is_full:
            return
        offset = message.properties.offset
        if offset is None:
            self.wrong, self.is_full = message, True
            return
        if self.received == 1 and not self._is_expected(message, offset):
            self.wrong, self.is_full = message, True
            return
        if not (self.received == 1 and self._beginning.is_read):
            if offset > self._end:
                self.is_full = True
                return
            try:
                self._rows.add(message, offset, None, verdict_of(message))
            except OSError as error:
                # Not raised within pika, whose connection would be taken for broken.
                self.error, self.is_full = error, True
                return
        self.last = message
        self.is_full = offset >= self._end or self._rows.count >= BATCH_MESSAGES or self._rows.bytes >= self._most_bytes

    def _is_expected(self, message: DeliveredMessage, offset: int) -> bool:
        begin = self._beginning
        return (begin.expected is None or offset == begin.expected) and (
            not begin.digest or stream_digest(message) == begin.digest
        )


def verdict_of(message: DeliveredMessage) -> str | None:
    """The code of a message that is rejected whatever its body is."""
    return "NOT_PROPERTIES" if message.properties.is_broken else None
