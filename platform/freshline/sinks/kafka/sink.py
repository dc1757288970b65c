"""A topic of Kafka as a sink: one transaction has the records and the position."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from freshline.errors import SinkRefusedError
from freshline.sinks.kafka.properties import problem_of
from freshline.sources.formats.registry import REGISTRY_OPTIONS, Registry
from freshline.sources.kafka.connector import CLIENT
from freshline.sources.kafka.connector import OWN as OWN_OF_SOURCES
from freshline.values.options import Carrier, Kind, Option, Options, Reference
from freshline.values.sink import VALUES_WITHIN, Sink, refuse_type

if TYPE_CHECKING:
    from freshline.values.spec import TableSpec

# Properties of Kafka's client that freshline sets itself: another value would lose or repeat records.
OWN = (
    *OWN_OF_SOURCES,
    "transactional.id",
    "enable.idempotence",
    "acks",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "delivery.report.only.error",
    "partitioner",
    "key.serializer",
    "value.serializer",
)
# Properties that have a secret are references.
_SECRET = re.compile(r"(password|jaas\.config|secret|key\.pem|keystore\.key|token|oauthbearer\.config)\Z")
# Functions of Python, and stores of Java alone, which the client of sinks cannot take.
_NOT_TAKEN = re.compile(r"(_cb|^on_delivery|^logger)\Z")
# All but the one that says how records are read. None of them is for topics of sources alone.
_REGISTRY_OPTIONS = tuple(
    replace(option, required="", carrier=Carrier.ANY)
    for option in REGISTRY_OPTIONS
    if option.name != "registry.unknown-id"
)
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_AVRO = re.compile(r"\bVARIANT\b(?!:)|\bMAP<(?!STRING,)")
_MEMBER = re.compile(r"[<,]([^<>,:()]+):")


class Mode(StrEnum):
    """The meaning of a record."""

    UPSERT = "upsert"  # the newest row of a key; without a value the row is gone
    CHANGES = "changes"  # a change, with the row before and the row after it


class ValueFormat(StrEnum):
    """The form of keys and values."""

    JSON = "json"
    DEBEZIUM_JSON = "debezium-json"
    AVRO = "avro"  # with the schemas of a registry


@dataclass(frozen=True)
class KafkaSink(Sink):
    """A topic, as it is declared.

    `topic`, `servers` and the values of `client` (properties of Kafka's client) may be references, which are resolved
    where they are used. `partitions` and `replication` are of the topic that a refresh makes where there is none;
    without `partitions` it makes none. `registry` has the schemas of Avro.
    """

    topic: str
    servers: str
    mode: Mode = Mode.UPSERT
    value_format: ValueFormat = ValueFormat.JSON
    partitions: int | None = None
    replication: int | None = None
    client: Mapping[str, str] = field(default_factory=dict)
    registry: Registry | None = None

    name: ClassVar[str] = "kafka"
    title: ClassVar[str] = "Kafka"
    delivery: ClassVar[str] = "exactly once for readers of committed records: records and position are one transaction"
    # Changes go out of tables without a key too.
    needs_key: ClassVar[bool] = False
    writer: ClassVar[str] = "freshline.sinks.kafka.writer:KafkaWriter"
    options: ClassVar[tuple[Option, ...]] = (
        Option("topic", "the topic", required="the topic's name", reference=Reference.WHOLE),
        Option(
            "bootstrap.servers",
            "the brokers",
            field="servers",
            required="the brokers, as host:port",
            reference=Reference.WHOLE,
        ),
        Option("mode", "the meaning of a record", Kind.CHOICE, choices=tuple(Mode)),
        Option("value.format", "the form of keys and values", Kind.CHOICE, choices=tuple(ValueFormat)),
        Option("partitions", "the partitions of a topic that is made", Kind.WHOLE, greatest=100_000),
        Option("replication", "the copies of each of these partitions", Kind.WHOLE, greatest=1_000),
        Option(CLIENT, "properties of Kafka's client", field="client", reference=Reference.WHOLE, is_beginning=True),
        *_REGISTRY_OPTIONS,
    )

    @classmethod
    def declare(cls, options: Options) -> Self:
        client = options.beginning(CLIENT)
        for name in client:
            _check_property(options, name, client)
        mode, value_format = options.choice("mode", tuple(Mode)), options.choice("value.format", tuple(ValueFormat))
        options.require("replication", "'partitions'", "partitions" in options)
        if value_format == ValueFormat.DEBEZIUM_JSON:
            options.require("value.format", "'mode' = 'changes'", mode == Mode.CHANGES)
        registry = _registry(options, is_avro=value_format == ValueFormat.AVRO)
        return cls(
            topic=options.text("topic") or "",
            servers=options.text("bootstrap.servers") or "",
            mode=Mode.UPSERT if mode is None else Mode(mode),
            value_format=ValueFormat.JSON if value_format is None else ValueFormat(value_format),
            partitions=options.whole("partitions", 1, 100_000),
            replication=options.whole("replication", 1, 1_000),
            client=client,
            registry=registry,
        )

    @property
    def meaning(self) -> tuple[object, ...]:
        return (self.topic, str(self.mode), str(self.value_format))

    @property
    def shown(self) -> Mapping[str, str]:
        # As they are written: the value of a reference is not shown.
        return {"topic": self.topic, "bootstrap.servers": self.servers}

    @property
    def left_behind(self) -> str:
        return f"Topic {self.topic} and its records stay as they are."

    @property
    def takes_nested(self) -> bool:  # type: ignore[override]  # it follows from the format
        return self.value_format is ValueFormat.AVRO

    @property
    def needs_before(self) -> bool:
        return self.mode is Mode.CHANGES

    def find_problems(self, *, has_key: bool) -> tuple[tuple[str, str, str], ...]:
        if self.mode is Mode.UPSERT and not has_key:
            sentence = (
                "a topic with 'mode' = 'upsert' has the newest row of each key, and the table has no key. Give it a "
                "PRIMARY KEY, or declare 'mode' = 'changes'."
            )
            return (("SINK_KEY", "connector", sentence),)
        return ()

    def open(self, spec: TableSpec, host: Any) -> Any:
        try:
            return super().open(spec, host)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "confluent_kafka":
                raise
            raise SinkRefusedError(
                "confluent-kafka is not installed, by which topics are written. Run: pip install 'freshline[kafka]'.",
                where=str(spec.name),
            ) from error

    def refuses(self, column_type: str, *, is_key: bool) -> str | None:
        if self.value_format is ValueFormat.AVRO and column_type.startswith(VALUES_WITHIN) and not is_key:
            return _refused_by_avro(column_type)
        return refuse_type(column_type, is_key=is_key)

    def find_column_problems(self, columns: Sequence[str]) -> str | None:
        if self.value_format is not ValueFormat.AVRO:
            return None
        wrong = [name for name in columns if not _AVRO_NAME.fullmatch(name)]
        return (
            f"{wrong[0]} is no name of Avro, which has letters, digits and _. Give it another name" if wrong else None
        )


def _refused_by_avro(column_type: str) -> str | None:
    """The reason why Avro has no such value of values; None where it has."""
    if _NO_AVRO.search(column_type):
        return "Avro has arrays, records, and maps whose keys are texts"
    wrong = [name for name in _MEMBER.findall(column_type) if not _AVRO_NAME.fullmatch(name.strip())]
    return f"{wrong[0].strip()} is no name of Avro, which has letters, digits and _" if wrong else None


def _registry(options: Options, *, is_avro: bool) -> Registry | None:
    """The registry of a sink, which belongs to Avro alone."""
    for option in _REGISTRY_OPTIONS:
        options.require(option.name, "'value.format' = 'avro'", is_avro)
    if not is_avro:
        return None
    options.require("value.format", "'registry.url', the address of a schema registry", "registry.url" in options)
    return Registry.declare(options)


def _check_property(options: Options, name: str, client: Mapping[str, str]) -> None:
    """Refuse a property of the client that is not the declaration's, and a secret that is written out."""
    key = f"{CLIENT}{name}"
    if name in OWN:
        options.problems.add(
            "OPTION_VALUE", f"option '{key}': freshline sets {name} itself. Remove the option.", options.at(key)
        )
    elif _NOT_TAKEN.search(name):
        options.problems.add(
            "OPTION_VALUE", f"option '{key}': {name} is no text, so it cannot be declared. Remove it.", options.at(key)
        )
    elif problem := problem_of(name, client):
        options.problems.add("OPTION_VALUE", f"option '{key}' {problem}.", options.at(key))
    elif _SECRET.search(name):
        options.require_reference(key, secret=True)
