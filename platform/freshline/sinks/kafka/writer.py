"""Kafka as a sink: records and the position after them in one transaction of one producer.

The position is asked of the brokers before anything of another writer is ended, and again when nobody else can write
any more. Then come the records, then the position, then the commit. A refresh that is stopped before the commit leaves
nothing that readers of committed records see.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pyarrow as pa

from freshline.errors import SinkError, SinkRefusedError, SinkSchemaError
from freshline.sinks.kafka.client import Address, TopicClient
from freshline.sinks.kafka.envelope import Envelope
from freshline.sinks.kafka.folded import Counted, Folded, Recorded
from freshline.sinks.kafka.forms import AvroForm, JsonForm, RecordForm
from freshline.sinks.kafka.properties import for_librdkafka
from freshline.sinks.kafka.registered import RegisteredSchemas
from freshline.sinks.kafka.sending import ChangeSending, UpsertSending, digest_of
from freshline.sinks.kafka.sink import KafkaSink, Mode, ValueFormat
from freshline.sinks.writer import (
    Delivered,
    Delivery,
    KeepRejected,
    OutgoingRows,
    SinkHost,
    SinkWriter,
)
from freshline.sources.kafka.connector import CLIENT
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec


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
        with self._client() as client, self._writing(client, rows.schema, delivery, keep_rejected) as sending:
            if isinstance(sending, ChangeSending):
                return sending.change(rows)
            deleted = sending.delete(rows) if rows.deletes else 0
            return Delivered(sending.upsert(rows) if rows.upserts else 0, deleted)

    def compare(self, rows: OutgoingRows, delivery: Delivery, keep_rejected: KeepRejected) -> Delivered:
        with self._client() as client, self._writing(client, rows.schema, delivery, keep_rejected) as sending:
            ends = self._ends(client)
            may_replace = delivery.takes_over or delivery.was_written or sending.held is not None
            if isinstance(sending, ChangeSending):
                with closing(self._images(client, sending.form, ends, may_replace=may_replace)) as there:
                    return sending.compare(rows, there)
            if all(first == end for first, end in ends.values()):
                return Delivered(sending.upsert(rows), 0)
            with closing(self._folded(client, ends, may_replace=may_replace)) as known:
                written = sending.upsert(rows, known)
                return Delivered(written, sending.delete_left(known))

    def read(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with self._client() as client:
            client.await_settled()
            form = self._form(client, schema, Envelope())
            with closing(self._state(client, form)) as there:
                yield from self._rows(client, there, form, schema)

    def _rows(
        self, client: TopicClient, there: Folded | Counted, form: RecordForm, schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for values in there.values():
            try:
                yield form.rows(values, schema, images=self._sink.mode is Mode.CHANGES)
            except ValueError as error:
                raise self._misfit(f"topic {client.address.topic} has a record that is no row: {error}") from error

    def _state(self, client: TopicClient, form: RecordForm) -> Folded | Counted:
        if self._sink.mode is Mode.CHANGES:
            return self._images(client, form, self._ends(client), may_replace=True)
        found = Folded()
        for records in client.records(self._ends(client)):
            found.add(_recorded(message, message.value()) for message in records if message.key() is not None)
        return found

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
            configuration = {"cleanup.policy": "compact"} if self._sink.mode is Mode.UPSERT else {}
            client.create(self._sink.partitions, self._sink.replication, configuration)
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
                found.add(_digested(message) for message in records)
        except BaseException:
            found.close()
            raise
        return found

    def _images(
        self, client: TopicClient, form: RecordForm, ends: dict[int, tuple[int, int]], *, may_replace: bool
    ) -> Folded | Counted:
        """The rows that the changes in the topic leave. Raises SinkSchemaError for records of others."""
        by_key, counted = Folded(), Counted()
        has_key = bool(self.spec.primary_key)
        try:
            for records in client.records(ends):
                try:
                    if not may_replace:
                        raise ValueError("freshline has not written it")
                    images = form.images_of([message.value() or b"" for message in records])
                    found = [(message, *both) for message, both in zip(records, images, strict=True)]
                    if any((message.key() is None) is has_key for message, *_ in found):
                        raise ValueError("its key is none of the table's")
                except ValueError as error:
                    raise self._misfit(
                        f"topic {client.address.topic} has a record that is no change of {self.spec.reads[0]}: "
                        f"{error}. Name another topic"
                    ) from error
                if has_key:
                    by_key.add(_recorded(message, after) for message, _, after in found)
                else:
                    counted.add((before, -1) for _, before, _ in found if before is not None)
                    counted.add((after, 1) for _, _, after in found if after is not None)
        except BaseException:
            by_key.close()
            counted.close()
            raise
        unused, used = (counted, by_key) if has_key else (by_key, counted)
        unused.close()
        return used

    def _form(self, client: TopicClient, columns: pa.Schema, envelope: Envelope) -> RecordForm:
        """The form of the records of a table with these columns."""
        sink, topic = self._sink, client.address.topic
        if sink.registry is None:
            return JsonForm(envelope)
        try:
            address = sink.registry.resolve(self.host.root, os.environ)
        except ValueError as error:
            raise SinkRefusedError(str(error), where=self.where) from None
        schemas = RegisteredSchemas(address, topic, self.where)
        try:
            return AvroForm(
                columns,
                self.spec.primary_key,
                self.spec.reads[0].name,
                schemas,
                of_changes=sink.mode is Mode.CHANGES,
            )
        except ValueError as error:
            raise self._misfit(f"there is no schema of Avro for {self.spec.reads[0]}: {error}") from error

    def _form_of(self, client: TopicClient, columns: pa.Schema, delivery: Delivery) -> RecordForm:
        """The form of the records that one refresh writes. Schemas are in the registry before a record names them."""
        envelope = Envelope()
        if self._sink.value_format is ValueFormat.DEBEZIUM_JSON:
            envelope = Envelope.of_debezium(str(self.spec.name), delivery.after, self.host.clock())
        form = self._form(client, columns, envelope)
        if isinstance(form, AvroForm):
            form.register(has_key=bool(self.spec.primary_key))
        return form

    @contextmanager
    def _writing(
        self, client: TopicClient, columns: pa.Schema, delivery: Delivery, keep_rejected: KeepRejected
    ) -> Iterator[UpsertSending]:
        """A transaction that nobody else can come between; committed with the position at the end."""
        # Whoever is refused here has not ended the transaction of the one who may write.
        known = self._position(client, settled=False)
        self.require_position(known, delivery)
        self._provide_topic(client)
        form = self._form_of(client, columns, delivery)
        most_bytes = client.most_bytes()
        writing = client.begin(most_bytes)
        try:
            held = self._position(client, settled=True)
            if held != known:
                raise SinkError(
                    "the position of the topic moved while this refresh began. Nothing was written; it is tried again.",
                    where=self.where,
                )
            kind = UpsertSending if self._sink.mode is Mode.UPSERT else ChangeSending
            sending = kind(self.spec, form, writing, most_bytes, held)
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


def _recorded(message: Any, value: bytes | None) -> Recorded:
    return Recorded(message.key(), message.partition(), message.timestamp()[1], value)


def _digested(message: Any) -> Recorded:
    value = message.value()
    return _recorded(message, None if value is None else digest_of(value))
