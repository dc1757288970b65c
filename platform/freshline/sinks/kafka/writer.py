"""Kafka as a sink: records and the position after them in one transaction of one producer.

The position is asked of the brokers before anything of another writer is ended, and again when nobody else can write
any more. Then come the records, then the position, then the commit. A refresh that is stopped before the commit leaves
nothing that readers of committed records see.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from freshline.errors import SinkError, SinkRefusedError, SinkRejectedError, SinkSchemaError
from freshline.sinks.kafka.client import RECORD_BYTES, Address, TopicClient, Writing
from freshline.sinks.kafka.folded import Folded, Recorded
from freshline.sinks.kafka.json_rows import broken_texts, decode_rows, encode_rows
from freshline.sinks.kafka.properties import for_librdkafka
from freshline.sinks.kafka.sink import KafkaSink
from freshline.sinks.writer import (
    Delivered,
    Delivery,
    KeepRejected,
    OutgoingRows,
    RejectedRow,
    SinkHost,
    SinkWriter,
)
from freshline.sources.kafka.connector import CLIENT
from freshline.values.sink import OnReject
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

# The codes of rows that the topic does not take.
TOO_LARGE, NOT_UTF8 = "MSG_SIZE_TOO_LARGE", "NOT_UTF8"
_DIGEST = 16


class KafkaWriter(SinkWriter):
    """Writes a topic."""

    def __init__(self, spec: TableSpec, host: SinkHost) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.sink, KafkaSink)
        self._sink = spec.sink

    def position(self) -> SinkPosition | None:
        with self._client() as client:
            return self._position(client, settled=False)

    def apply(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._client() as client, self._writing(client, delivery, keep_rejected) as sending:
            deleted = sending.delete(rows) if rows.deletes else 0
            written = sending.upsert(rows) if rows.upserts else 0
        return Delivered(written, deleted)

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._client() as client, self._writing(client, delivery, keep_rejected) as sending:
            ends = self._ends(client)
            if all(first == end for first, end in ends.values()):
                return Delivered(sending.upsert(rows), 0)
            may_replace = delivery.takes_over or delivery.was_written or sending.held is not None
            with closing(self._folded(client, ends, may_replace=may_replace)) as there:
                written = sending.upsert(rows, there)
                deleted = sending.delete_left(there)
        return Delivered(written, deleted)

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._client() as client, closing(Folded()) as there:
            for records in client.records(self._ends(client)):
                there.add(_recorded(message) for message in records if message.key() is not None)
            for values in there.values():
                try:
                    yield decode_rows(values, schema)
                except ValueError as error:
                    raise self._misfit(f"topic {client.address.topic} has a record that is no row: {error}") from error

    # -- the topic

    def _client(self) -> TopicClient:
        sink = self._sink
        client = {name: self.secret(f"{CLIENT}{name}", value) for name, value in sink.client.items()}
        try:
            properties = for_librdkafka(client)
        except ValueError as error:
            raise SinkRefusedError(str(error), where=self.where) from None
        topic, servers = self.secret("topic", sink.topic), self.secret("bootstrap.servers", sink.servers)
        return TopicClient(Address(topic, servers, properties, f"freshline-sink-{self.spec.name}", self.where))

    def _position(self, client: TopicClient, *, settled: bool) -> SinkPosition | None:
        text = client.position(settled=settled)
        try:
            return None if text is None else SinkPosition.from_json(text)
        except (ValueError, KeyError, TypeError) as error:
            raise self._misfit(
                f"the position of group {client.address.owner_group} is none of freshline. Delete that group, then run "
                f"`freshline refresh {self.spec.name} --full`"
            ) from error

    def _ends(self, client: TopicClient) -> dict[int, tuple[int, int]]:
        ends = client.ends()
        if ends is None:
            raise SinkRefusedError(
                f"there is no topic {client.address.topic} at {client.address.servers}. Create it, or declare "
                "'partitions', with which the first refresh creates it.",
                where=self.where,
            )
        return ends

    def _provide_topic(self, client: TopicClient) -> None:
        if self._sink.partitions is not None and client.ends() is None:
            client.create(self._sink.partitions, self._sink.replication, {"cleanup.policy": "compact"})
        self._ends(client)

    def _misfit(self, sentence: str) -> SinkSchemaError:
        return SinkSchemaError(f"{sentence}.", where=self.where)

    def _folded(self, client: TopicClient, ends: dict[int, tuple[int, int]], *, may_replace: bool) -> Folded:
        """The state of the topic, values as digests. Raises SinkSchemaError for records of others."""
        found = Folded()
        try:
            for records in client.records(ends):
                if not may_replace:
                    raise self._misfit(
                        f"topic {client.address.topic} has records that freshline has not written. `freshline refresh "
                        f"{self.spec.name} --full` replaces them; else name another topic"
                    )
                if any(message.key() is None for message in records):
                    raise self._misfit(
                        f"topic {client.address.topic} has records without a key, which cannot be taken back. Name "
                        "another topic"
                    )
                found.add(_recorded(message, digest=True) for message in records)
        except BaseException:
            found.close()
            raise
        return found

    @contextmanager
    def _writing(self, client: TopicClient, delivery: Delivery, keep_rejected: KeepRejected) -> Iterator[_Sending]:
        """A transaction that nobody else can come between; committed with the position at the end."""
        # Whoever is refused here has not ended the transaction of the one who may write.
        known = self._position(client, settled=False)
        self.require_position(known, delivery)
        self._provide_topic(client)
        most_bytes = client.most_bytes()
        writing = client.begin(most_bytes)
        try:
            held = self._position(client, settled=True)
            if held != known:
                raise SinkError(
                    "the position of the topic moved while this refresh began. Nothing was written; it is tried again.",
                    where=self.where,
                )
            sending = _Sending(self.spec, writing, most_bytes, held)
            yield sending
            if sending.rejected:
                keep_rejected(sending.rejected)
            writing.put_position(delivery.after.table.version + 1, delivery.after.to_json())
            self.host.failpoint("sink-before-commit")
            writing.commit()
        except BaseException:
            writing.abort()
            raise
        self.host.failpoint("sink-committed")


class _Sending:
    """Rows of one refresh as records."""

    def __init__(self, spec: TableSpec, writing: Writing, most_bytes: int, held: SinkPosition | None) -> None:
        self.held = held
        self.rejected: list[RejectedRow] = []
        self._spec = spec
        self._writing = writing
        self._most_bytes = most_bytes - RECORD_BYTES

    def upsert(self, rows: OutgoingRows, there: Folded | None = None) -> int:
        """Send rows, without those that are in the topic already; how many were sent."""
        sent = 0
        for batch in _with_notes(rows.read_upserts(), rows.schema):
            taken = self._without_broken(batch, there)
            keys, values = _bytes(encode_rows(taken, self._spec.primary_key)), _bytes(encode_rows(taken))
            known: Sequence[bytes | None] = [None] * len(keys)
            if there is not None:
                known = there.find(keys)
                there.keep(keys)
            for at, (key, value, before) in enumerate(zip(keys, values, known, strict=True)):
                if before is not None and before == _digest(value):
                    continue
                if len(key) + len(value) > self._most_bytes:
                    self._reject_large(taken, at, len(key) + len(value))
                    continue
                self._writing.send(key, value)
                sent += 1
        return sent

    def delete(self, rows: OutgoingRows) -> int:
        """Send tombstones; how many."""
        sent = 0
        for batch in _with_notes(rows.read_deletes(), rows.schema):
            # A key that is no text was never taken.
            keys = batch.select(list(self._spec.primary_key))
            broken = set(broken_texts(keys))
            taken = keys.take([at for at in range(keys.num_rows) if at not in broken]) if broken else keys
            for key in _bytes(encode_rows(taken)):
                self._writing.send(key, None)
            sent += taken.num_rows
        return sent

    def delete_left(self, there: Folded) -> int:
        """Send tombstones for keys that do not belong there, to the partitions that have them; how many."""
        sent = 0
        for key, partition, _ in there.left():
            self._writing.send(key, None, partition)
            sent += 1
        return sent

    def _without_broken(self, batch: pa.RecordBatch, there: Folded | None) -> pa.RecordBatch:
        """The rows whose texts are UTF-8; the others are rejected, and what the topic has of their keys stays."""
        broken = broken_texts(batch)
        if not broken:
            return batch
        for at in broken:
            self._reject(batch, at, NOT_UTF8, "a text is no UTF-8, which JSON must be")
        left = batch.take(broken).select(list(self._spec.primary_key))
        if there is not None and not broken_texts(left):
            there.keep(_bytes(encode_rows(left)))
        whole = set(broken)
        return batch.take([at for at in range(batch.num_rows) if at not in whole])

    def _reject_large(self, batch: pa.RecordBatch, at: int, size: int) -> None:
        self._reject(batch, at, TOO_LARGE, f"its record has {size} bytes, and the topic takes {self._most_bytes}")

    def _reject(self, batch: pa.RecordBatch, at: int, code: str, message: str) -> None:
        if self._spec.on_reject is not OnReject.QUARANTINE:
            raise SinkRejectedError(
                f"the topic does not take a row: {message}. Nothing was written. Correct the row or the topic "
                "(max.message.bytes), or declare 'on-reject' = 'quarantine'.",
                where=str(self._spec.name),
            )
        self.rejected.append(RejectedRow(_row_text(batch.slice(at, 1)), code, message))


def _with_notes(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Batches with the metadata of their columns, which say what is JSON."""
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)


def _bytes(texts: pa.Array) -> list[bytes]:
    found: list[bytes] = texts.cast(pa.large_binary()).to_pylist()
    return found


def _digest(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=_DIGEST).digest()


def _recorded(message: Any, *, digest: bool = False) -> Recorded:
    value = message.value()
    if digest and value is not None:
        value = _digest(value)
    return Recorded(message.key(), message.partition(), message.timestamp()[1], value)


def _row_text(row: pa.RecordBatch) -> str:
    """A row as a JSON text, also where its texts are no UTF-8."""
    values = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        if pa.types.is_string(column.type):
            content = column.view(pa.binary()).to_pylist()[0]
            values[name] = None if content is None else content.decode(errors="replace")
        else:
            values[name] = column.to_pylist()[0]
    return json.dumps(values, ensure_ascii=False, default=str)
