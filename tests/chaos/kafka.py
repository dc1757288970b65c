"""A topic of a real broker, and a producer that knows what the broker has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayParameters, JavaGateway

from resources.broker import Broker

PARTITIONS = 2


class Producer:
    """Sends records to a topic; needs the broker. It is a JVM of the harness's own, and not a part that is attacked."""

    def __init__(self, gateway: JavaGateway, broker: Broker) -> None:
        self._gateway = gateway
        self._broker = broker
        self._client: Any = None

    def create_topic(self, name: str) -> None:
        """Make the topic, unless it is there."""
        kafka = self._gateway.jvm.org.apache.kafka.clients
        admin = kafka.admin.Admin.create(self._map({"bootstrap.servers": self._broker.servers}))
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
                self._map(
                    {
                        "bootstrap.servers": self._broker.servers,
                        "key.serializer": serializer,
                        "value.serializer": serializer,
                        "acks": "all",
                        # Without this a send that is tried again could be there twice, and the oracle would be wrong.
                        "enable.idempotence": "true",
                        "delivery.timeout.ms": "600000",
                        "max.block.ms": "600000",
                    }
                )
            )
        record = self._gateway.jvm.org.apache.kafka.clients.producer.ProducerRecord
        waits = [self._client.send(record(topic, value)) for value in records]
        self._client.flush()
        for each in waits:
            each.get()

    def close(self) -> None:
        self._gateway.shutdown()

    def _map(self, values: Mapping[str, str]) -> Any:
        made = self._gateway.jvm.java.util.HashMap()
        for key, value in values.items():
            made.put(key, value)
        return made


def launch_producer(broker: Broker) -> Producer:
    """A producer in a JVM of its own, which ends with this process."""
    import pyspark
    from py4j.java_gateway import launch_gateway

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(jar),
        classpath=broker.class_path,
        javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"],
        java_path=str(broker.java),
        die_on_exit=True,
        enable_auth=True,
    )
    return Producer(JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)), broker)
