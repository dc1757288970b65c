"""A topic of a real broker, and a producer that knows what the broker has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from resources.broker import Broker
from resources.topics import java_map, open_gateway

PARTITIONS = 2


class Producer:
    """Sends records to a topic; needs the broker. It is a JVM of the harness's own, and not a part that is attacked."""

    def __init__(self, broker: Broker) -> None:
        self._gateway = open_gateway(broker)
        self._broker = broker
        self._client: Any = None

    def create_topic(self, name: str) -> None:
        """Make the topic, unless it is there."""
        kafka = self._gateway.jvm.org.apache.kafka.clients
        admin = kafka.admin.Admin.create(java_map(self._gateway, {"bootstrap.servers": self._broker.servers}))
        if not admin.listTopics().names().get().contains(name):
            topics = self._gateway.jvm.java.util.ArrayList()
            topics.add(kafka.admin.NewTopic(name, PARTITIONS, 1))
            admin.createTopics(topics).all().get()
        admin.close()

    def send(self, topic: str, records: Sequence[bytes]) -> None:
        """Send records, and return when the broker has all of them. Raises py4j's error where it does not take them."""
        if self._client is None:
            serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
            self._client = self._gateway.jvm.org.apache.kafka.clients.producer.KafkaProducer(
                java_map(
                    self._gateway,
                    {
                        "bootstrap.servers": self._broker.servers,
                        "key.serializer": serializer,
                        "value.serializer": serializer,
                        "acks": "all",
                        # Without this a send that is tried again could be there twice, and the oracle would be wrong.
                        "enable.idempotence": "true",
                        "delivery.timeout.ms": "600000",
                        "max.block.ms": "600000",
                    },
                )
            )
        record = self._gateway.jvm.org.apache.kafka.clients.producer.ProducerRecord
        waits = [self._client.send(record(topic, value)) for value in records]
        self._client.flush()
        for each in waits:
            each.get()

    def close(self) -> None:
        self._gateway.shutdown()
