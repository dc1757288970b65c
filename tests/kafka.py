"""Topics of a real broker: made, filled and inspected by Kafka's own client in the JVM of the tests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pyspark.sql import SparkSession

from resources.broker import Broker

Header = tuple[str, bytes]


@dataclass(frozen=True)
class Record:
    """A record to send. `value` is JSON of whatever it is, bytes as they are, None a tombstone."""

    value: object
    key: bytes | None = None
    partition: int | None = None
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None


@dataclass
class Topics:
    """A broker and a session whose JVM has Kafka's classes."""

    broker: Broker
    spark: SparkSession
    _numbers: Iterator[int] = field(default_factory=count)

    @property
    def servers(self) -> str:
        return self.broker.servers

    @property
    def _jvm(self) -> Any:
        return self.spark._jvm

    def new(self, *, partitions: int = 1, **configuration: str) -> str:
        """Create an empty topic with a name of its own; `configuration` has `_` for `.`."""
        name = f"topic-{next(self._numbers)}"
        self.create(name, partitions=partitions, **configuration)
        return name

    def create(self, name: str, *, partitions: int = 1, **configuration: str) -> None:
        """Create a topic of this name."""
        topic = self._jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1)
        topic.configs(self._map({key.replace("_", "."): value for key, value in configuration.items()}))
        with self._admin() as admin:
            admin.client.createTopics(self._list([topic])).all().get()

    def delete(self, name: str) -> None:
        """Delete a topic and its records."""
        with self._admin() as admin:
            admin.client.deleteTopics(self._list([name])).all().get()

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        more = self._jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(partitions)
        with self._admin() as admin:
            admin.client.createPartitions(self._map({name: more})).all().get()

    def expire(self, name: str, *, before: Mapping[int, int]) -> None:
        """Take away the records before these offsets, as retention does."""
        wanted = self._jvm.java.util.HashMap()
        for partition, offset in before.items():
            wanted.put(self._jvm.org.apache.kafka.common.TopicPartition(name, partition), self._before(offset))
        with self._admin() as admin:
            admin.client.deleteRecords(wanted).all().get()

    def _before(self, offset: int) -> Any:
        """RecordsToDelete.beforeOffset(long), found by its type: py4j finds the one without an argument instead."""
        lang, gateway = self._jvm.java.lang, self.spark.sparkContext._gateway
        assert gateway is not None
        loader = lang.Thread.currentThread().getContextClassLoader()
        types, values = gateway.new_array(lang.Class, 1), gateway.new_array(lang.Object, 1)
        types[0], values[0] = lang.Long.TYPE, lang.Long.valueOf(offset)
        made = lang.Class.forName("org.apache.kafka.clients.admin.RecordsToDelete", True, loader)
        return made.getMethod("beforeOffset", types).invoke(None, values)

    def send(self, name: str, records: Iterable[Record | object], *, transaction: str | None = None) -> Any:
        """Send records in their order, and wait until the broker has them.

        With `transaction` they are in a transaction of that id, which stays open: the producer is returned, and is to
        be committed or aborted, and closed.
        """
        producer = self._producer(transaction)
        if transaction is not None:
            producer.initTransactions()
            producer.beginTransaction()
        for record in records:
            producer.send(self._record(name, record if isinstance(record, Record) else Record(record)))
        producer.flush()
        if transaction is None:
            producer.close()
        return producer

    def _record(self, name: str, record: Record) -> Any:
        value = record.value
        data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        kafka = self._jvm.org.apache.kafka
        headers = [kafka.common.header.internals.RecordHeader(key, value) for key, value in record.headers]
        return kafka.clients.producer.ProducerRecord(
            name, record.partition, record.timestamp_ms, record.key, data, self._list(headers)
        )

    def _producer(self, transaction: str | None) -> Any:
        properties = {
            "bootstrap.servers": self.servers,
            "key.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
            "value.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer",
            "linger.ms": "5",
        }
        if transaction is not None:
            properties["transactional.id"] = transaction
        return self._jvm.org.apache.kafka.clients.producer.KafkaProducer(self._map(properties))

    def _admin(self) -> _Admin:
        given = self._map({"bootstrap.servers": self.servers})
        return _Admin(self._jvm.org.apache.kafka.clients.admin.Admin.create(given))

    def _map(self, values: Mapping[str, Any]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made

    def _list(self, values: Iterable[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made


@dataclass
class _Admin:
    client: Any

    def __enter__(self) -> _Admin:
        return self

    def __exit__(self, *error: object) -> None:
        self.client.close()
