"""A topic of Kafka: every record once, by the offsets that were read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self

from freshline.sources.kafka.position import TopicPosition
from freshline.sources.starting import read_starting
from freshline.values.connector import RECORD, WHEN_INGESTED, Connector, Metadata, Position
from freshline.values.options import Kind, Option, Options, Reference

# Options that begin like this are handed to the client of Kafka as they are, without these letters.
CLIENT = "kafka."
# Properties of Kafka's client that freshline or Spark sets: another value would lose or repeat records.
OWN = (
    "bootstrap.servers",
    "group.id",
    "group.instance.id",
    "auto.offset.reset",
    "key.deserializer",
    "value.deserializer",
    "enable.auto.commit",
    "isolation.level",
    "interceptor.classes",
)
# Properties that have a secret are references.
_SECRET = re.compile(r"(password|jaas\.config|secret|keystore\.key|token)\Z")
_GAP = re.compile(r"([0-9]{1,9}):([0-9]{1,18})-([0-9]{1,18})")

TOPIC = "_freshline_topic"
PARTITION = "_freshline_partition"
TIMESTAMP = "_freshline_timestamp"
KEY = "_freshline_key"
HEADERS = "_freshline_headers"


@dataclass(frozen=True)
class Kafka(Connector):
    """A topic, as it is declared.

    `topic`, `servers` and the values of `client` (properties of Kafka's own client) may be references, which are
    resolved where they are used. `starting` is `earliest`, `latest` or a moment in UTC as ISO 8601 has it. `rate_limit`
    is in records a second, None for no limit. `accepted_gaps` are ranges of offsets (from, to) by partition that may be
    missing, `accepted_topic` the id of a topic that may take the place of the one that was read.
    """

    topic: str
    servers: str
    starting: str = "earliest"
    rate_limit: int | None = None
    accepted_gaps: tuple[tuple[int, int, int], ...] = ()
    accepted_topic: str | None = None
    client: Mapping[str, str] = field(default_factory=dict)

    name: ClassVar[str] = "kafka"
    title: ClassVar[str] = "Kafka"
    options: ClassVar[tuple[Option, ...]] = (
        Option("topic", "the topic", required="the topic's name", reference=Reference.WHOLE),
        Option(
            "bootstrap.servers",
            "the brokers",
            field="servers",
            required="the brokers, as host:port",
            reference=Reference.WHOLE,
        ),
        Option("starting", "where a source begins that has read nothing yet"),
        Option("rate-limit", "how many records a second are read", Kind.WHOLE, greatest=10**9),
        Option("accept-gap", "offsets that may be missing", field="accepted_gaps"),
        Option("accept-topic", "the id of a topic that takes the place of the one that was read"),
        Option(CLIENT, "properties of Kafka's client", field="client", reference=Reference.WHOLE, is_beginning=True),
    )
    # A record's place is topic-partition, and its offset.
    metadata: ClassVar[Mapping[str, Metadata]] = {
        **WHEN_INGESTED,
        "topic": Metadata("STRING", TOPIC, quarantined=True, in_place="^(.*)-[0-9]+$"),
        "partition": Metadata("INT", PARTITION, ordered=True, quarantined=True, in_place="-([0-9]+)$"),
        "offset": Metadata("BIGINT", RECORD, ordered=True, quarantined=True),
        "timestamp": Metadata("TIMESTAMP", TIMESTAMP, ordered=True),
        "key": Metadata("BINARY", KEY, quarantined=True),
        "headers": Metadata("ARRAY<STRUCT<key: STRING, value: BINARY>>", HEADERS),
    }
    position: ClassVar[type[Position] | None] = TopicPosition
    reader: ClassVar[str | None] = "freshline.sources.kafka.reader:KafkaReader"
    partition: ClassVar[str | None] = PARTITION
    record_key: ClassVar[str | None] = KEY
    record_time: ClassVar[str | None] = TIMESTAMP
    kind: ClassVar[str | None] = "kafka"

    @classmethod
    def declare(cls, options: Options) -> Self:
        client = options.beginning(CLIENT)
        for name in client:
            key = f"{CLIENT}{name}"
            if name in OWN:
                options.problems.add(
                    "OPTION_VALUE", f"option '{key}': freshline sets {name} itself. Remove the option.", options.at(key)
                )
            elif _SECRET.search(name):
                options.require_reference(key, secret=True)
        return cls(
            topic=options.text("topic") or "",
            servers=options.text("bootstrap.servers") or "",
            starting=read_starting(options),
            rate_limit=options.whole("rate-limit", 1, 10**9),
            accepted_gaps=_accepted_gaps(options),
            accepted_topic=options.text("accept-topic"),
            client=client,
        )

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.topic,)

    @property
    def shown(self) -> Mapping[str, str]:
        # As they are written: what a reference stands for is not shown.
        return {"topic": self.topic, "bootstrap.servers": self.servers}

    @property
    def dataset(self) -> tuple[str, str]:
        # The value of a reference is not shown, not even here.
        first = self.servers.partition(",")[0].strip()
        return "kafka" if "${" in first else f"kafka://{first}", self.topic


def _accepted_gaps(options: Options) -> tuple[tuple[int, int, int], ...]:
    text = options.text("accept-gap")
    found = []
    for part in [] if text is None else text.split(","):
        match = _GAP.fullmatch(part.strip())
        if match is None or int(match[2]) >= int(match[3]):
            options.reject("accept-gap", "what OFFSETS_LOST shows, partition:from-to, several with commas")
            return ()
        found.append((int(match[1]), int(match[2]), int(match[3])))
    return tuple(found)
