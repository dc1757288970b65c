"""The generator's events through Kafka topics, on a broker of its own: `freshline demo --kafka`.

The generator writes its files as ever, and each of their lines is sent as one record to the topic of its kind. So what
arrived can be counted in the files, by nothing else.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from freshline.values.settings import Settings
from resources.broker import Broker, new_broker
from resources.generator import KEYS

PARTITIONS = 2
_FORWARD_SECONDS = 0.2
_SOURCE = "'connector' = 'files',"
_PATH = "'path' = '.freshline/${{environment}}/landing/{kind}',"
_SETTLE = "'settle' = '0 seconds'"


class Events(Protocol):
    """The part of the generator that is needed here."""

    landing: Path

    def prepare(self) -> None: ...

    def landed(self, kind: str) -> int: ...

    def portion(self, i: int, of: int, touches: int, orders: int, customer_changes: int) -> None: ...

    def run(self, until: threading.Event, rate: float) -> object: ...


def declare_topics(assets: Path, declarations: Path, servers: str) -> None:
    """Copy the declarations of the reference deployment, with topics in place of landing folders."""
    shutil.rmtree(declarations, ignore_errors=True)
    declarations.mkdir(parents=True)
    for file in sorted(assets.glob("*.sql")):
        text = file.read_text(encoding="utf-8")
        kind = file.stem
        if kind in KEYS:
            for before, after in (
                (_SOURCE, "'connector' = 'kafka',"),
                (_PATH.format(kind=kind), f"'topic' = '{kind}',"),
                (_SETTLE, f"'bootstrap.servers' = '{servers}'"),
            ):
                if before not in text:
                    raise ValueError(f"{file} has no {before}")
                text = text.replace(before, after)
        (declarations / file.name).write_text(text, encoding="utf-8")


class TopicGenerator:
    """A generator whose events go on to topics; it owns the broker and a JVM with Kafka's producer."""

    def __init__(self, events: Events, broker: Broker) -> None:
        self._events = events
        self._broker = broker
        self._sent: set[Path] = set()
        self._gateway: JavaGateway | None = None
        self._producer: Any = None
        self._lock = threading.Lock()

    def prepare(self) -> None:
        """Start the broker, make the topics, and what the generator prepares itself."""
        self._events.prepare()
        if self._gateway is None:
            self._broker.start()
            self._gateway = open_gateway(self._broker)
            self._make_topics()

    def landed(self, kind: str) -> int:
        return self._events.landed(kind)

    def portion(self, i: int, of: int, touches: int, orders: int, customer_changes: int) -> None:
        self._events.portion(i, of, touches, orders, customer_changes)
        self.forward()

    def run(self, until: threading.Event, rate: float) -> object:
        """Make events and send them until `until` is set; the last ones are sent before it returns."""
        with ThreadPoolExecutor(1) as threads:
            made = threads.submit(self._events.run, until, rate)
            while not made.done():
                self.forward()
                until.wait(_FORWARD_SECONDS)
            self.forward()
            return made.result()

    def forward(self) -> None:
        """Send the lines of files that are new, in the order of the files, and wait until the broker has them."""
        gateway = self._gateway
        assert gateway is not None
        with self._lock:
            record = gateway.jvm.org.apache.kafka.clients.producer.ProducerRecord
            for kind in KEYS:
                found = [file for file in (self._events.landing / kind).glob("[!.]*") if file not in self._sent]
                for file in sorted(found, key=lambda file: (file.stat().st_mtime_ns, file.name)):
                    for line in file.read_bytes().splitlines():
                        self._producer.send(record(kind, line))
                    self._sent.add(file)
            self._producer.flush()

    def close(self) -> None:
        """End the producer's JVM and the broker."""
        if self._gateway is not None:
            self._gateway.shutdown()
        self._broker.kill()

    def _make_topics(self) -> None:
        gateway = self._gateway
        assert gateway is not None
        kafka = gateway.jvm.org.apache.kafka.clients
        serializer = "org.apache.kafka.common.serialization.ByteArraySerializer"
        admin = kafka.admin.Admin.create(java_map(gateway, {"bootstrap.servers": self._broker.servers}))
        topics = gateway.jvm.java.util.ArrayList()
        for kind in KEYS:
            topics.add(kafka.admin.NewTopic(kind, PARTITIONS, 1))
        admin.createTopics(topics).all().get()
        admin.close()
        self._producer = kafka.producer.KafkaProducer(
            java_map(
                gateway,
                {
                    "bootstrap.servers": self._broker.servers,
                    "key.serializer": serializer,
                    "value.serializer": serializer,
                    "linger.ms": "20",
                },
            )
        )


def open_topics(
    settings: Settings, make_events: Callable[[], Events], progress: Callable[[str], None]
) -> TopicGenerator:
    """A generator over a new broker in the state folder. The topics are declared in the folder of declarations."""
    progress("starting a broker")
    broker = new_broker(settings, settings.state / "broker")
    declare_topics(settings.root / "assets", settings.declarations, broker.servers)
    return TopicGenerator(make_events(), broker)


def open_gateway(broker: Broker) -> JavaGateway:
    """A JVM with the classes of Kafka's clients, which ends with this process."""
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, token = launch_gateway(
        jarpath=str(jar),
        classpath=broker.class_path,
        javaopts=["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m"],
        java_path=str(broker.java),
        die_on_exit=True,
        enable_auth=True,
    )
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))


def java_map(gateway: JavaGateway, values: Mapping[str, str]) -> Any:
    """The map of Java with these values."""
    made = gateway.jvm.java.util.HashMap()
    for key, value in values.items():
        made.put(key, value)
    return made
