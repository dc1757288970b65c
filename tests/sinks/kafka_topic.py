"""A topic of a real broker as tests of sinks need it: made, filled and read by librdkafka, without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, IsolationLevel, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from freshline.compute.outgoing import Outgoing
from freshline.declare.project import read_declarations
from freshline.query.rules.algebra import SIGN
from freshline.sinks.kafka.writer import KafkaWriter
from freshline.sinks.writer import Delivered, Delivery, RejectedRow
from freshline.values.names import TableName
from freshline.values.position import TablePosition
from freshline.values.settings import Settings
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec
from tests.sinks.delivering import Host

_NAMES = count()
Pair = tuple[tuple[Any, ...] | None, tuple[Any, ...] | None]


@dataclass
class Topic:
    """A topic by its name, which no other test has; it is made where a test says so."""

    servers: str
    name: str = field(default_factory=lambda: f"sink-{next(_NAMES)}")

    @cached_property
    def admin(self) -> AdminClient:
        """A client that lives as long as its answers."""
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create(self, partitions: int = 1, **configuration: str) -> None:
        """Make it; `configuration` has `_` for `.`."""
        config = {name.replace("_", "."): value for name, value in configuration.items()}
        self.admin.create_topics([NewTopic(self.name, partitions, 1, config=config)])[self.name].result()

    def send(self, *records: tuple[bytes | None, bytes | None]) -> None:
        """Send records of somebody else."""
        producer = Producer({"bootstrap.servers": self.servers})
        for key, value in records:
            producer.produce(self.name, value, key)
        assert producer.flush(10) == 0

    def records(self, *, committed: bool = True) -> list[tuple[bytes | None, bytes | None]]:
        """The records, partition by partition; those of open and aborted transactions too unless `committed`."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "tests",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        partitions = consumer.list_topics(self.name, 10).topics[self.name].partitions
        if committed:
            self._await_settled(list(partitions))
        consumer.assign([TopicPartition(self.name, each, 0) for each in partitions])
        left, found = set(partitions), list[tuple[Any, Any, Any, Any]]()
        while left:
            message = consumer.poll(10)
            assert message is not None
            error = message.error()
            if error is None:
                found.append((message.partition(), message.offset(), message.key(), message.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                left.discard(message.partition())
        consumer.close()
        return [(key, value) for _, _, key, value in sorted(found)]

    def _await_settled(self, partitions: Sequence[int]) -> None:
        """Wait until no transaction is open, for two seconds: a commit is confirmed before each partition shows it."""
        asked = {TopicPartition(self.name, each): OffsetSpec.latest() for each in partitions}
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            ends = [
                {each.partition: answer.result().offset for each, answer in found.items()}
                for found in (self.admin.list_offsets(asked, isolation_level=level) for level in IsolationLevel)
            ]
            if ends[0] == ends[1]:
                return
            self.admin.poll(0.01)

    def state(self) -> dict[str, Any]:
        """The newest value of each key, both as JSON; keys whose newest record is a tombstone are not there."""
        newest = dict(self.records())
        return {(key or b"").decode(): json.loads(value) for key, value in sorted(newest.items()) if value is not None}


@dataclass
class Shipped:
    """A sink of a table with versions, whose rows are given by tests, and the engine that writes it."""

    topic: Topic
    host: Host
    spec: TableSpec
    schema: pa.Schema
    epoch: int = 1
    owner: str = "out 1"
    rejected: list[RejectedRow] = field(default_factory=list)
    # Columns of bytes become texts whatever they are, as those of a table.
    as_texts: bool = False

    def writer(self) -> KafkaWriter:
        return KafkaWriter(self.spec, self.host)

    def at(self, version: int) -> SinkPosition:
        return SinkPosition(self.owner, TablePosition("t", version, version, 0), version, self.epoch)

    def whole(self, version: int, *rows: tuple[Any, ...], **asked: bool) -> Delivered:
        """Send all rows of a version."""
        return self.writer().compare(
            self._outgoing(rows, ()), Delivery(None, self.at(version), **asked), self.rejected.extend
        )

    def changes(
        self, version: int, came: Sequence[tuple[Any, ...]] = (), gone: Sequence[tuple[Any, ...]] = ()
    ) -> Delivered:
        """Send what changed since the position that the topic has."""
        writer = self.writer()
        held = writer.position()
        return writer.apply(self._outgoing(came, gone), Delivery(held, self.at(version)), self.rejected.extend)

    def images(self, version: int, *pairs: Pair) -> Delivered:
        """Send changes with both images, since the position that the topic has."""
        writer = self.writer()
        held = writer.position()
        return writer.apply(with_images(self.schema, pairs), Delivery(held, self.at(version)), self.rejected.extend)

    def _outgoing(self, came: Sequence[tuple[Any, ...]], gone: Sequence[tuple[Any, ...]]) -> Outgoing:
        found = outgoing(self.schema, came, gone)
        if not self.as_texts:
            return found

        def read() -> Iterator[pa.RecordBatch]:
            for batch in found.read():
                columns = [each.view(pa.string()) if pa.types.is_binary(each.type) else each for each in batch.columns]
                yield pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

        fields = [pa.field(each.name, pa.string()) if pa.types.is_binary(each.type) else each for each in found.schema]
        return Outgoing(pa.schema(fields), found.upserts, found.deletes, read)

    def read(self) -> list[dict[str, Any]]:
        """The rows, as verify reads them."""
        return [row for batch in self.writer().read(self.schema) for row in batch.to_pylist()]


def outgoing(schema: pa.Schema, came: Sequence[tuple[Any, ...]], gone: Sequence[tuple[Any, ...]]) -> Outgoing:
    """Rows on their way out."""
    rows = [*came, *gone]
    columns = [pa.array([row[at] for row in rows], each.type) for at, each in enumerate(schema)]
    signs = pa.array([1] * len(came) + [-1] * len(gone), pa.int32())
    table = pa.Table.from_arrays([*columns, signs], names=[*schema.names, SIGN])

    def read() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=3)

    return Outgoing(schema, len(came), len(gone), read)


def with_images(schema: pa.Schema, pairs: Sequence[Pair]) -> Outgoing:
    """Changes on their way out, as Spark computes them: rows, their sign, and the rows before them by number."""
    rows = [before if after is None else after for before, after in pairs]
    found = outgoing(schema, [row for row in rows if row is not None], ())
    (whole,) = pa.Table.from_batches(found.read()).combine_chunks().to_batches()
    signs = pa.array([-1 if after is None else 1 for _, after in pairs], pa.int32())
    before = [
        pa.array([None if was is None else was[at] for was, _ in pairs], each.type) for at, each in enumerate(schema)
    ]
    had = pa.array([was is not None for was, _ in pairs])
    batch = pa.RecordBatch.from_arrays(
        [*whole.select(schema.names).columns, signs, *before, had],
        names=[*schema.names, SIGN, *[f"_freshline_before_{at}" for at in range(len(schema))], "_freshline_had"],
    )
    gone = sum(after is None for _, after in pairs)
    return Outgoing(schema, len(pairs) - gone, gone, lambda: iter((batch,)))


def declared(settings: Settings, topic: Topic, columns: str, keys: str = "id", **options: str) -> TableSpec:
    """The sink `out` of a table with these columns; `options` have `_` for `.`."""
    given: Mapping[str, str] = {
        "connector": "kafka",
        "topic": topic.name,
        "bootstrap.servers": topic.servers,
        **{name.replace("__", "-").replace("_", "."): value for name, value in options.items()},
    }
    text = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    key = f" (PRIMARY KEY ({keys}))" if keys else ""
    files = {
        "src.sql": f"CREATE SOURCE src ({columns}) WITH ('connector' = 'delta', 'path' = '/nowhere')",
        "big.sql": f"CREATE MATERIALIZED TABLE big{key} AS SELECT * FROM src",
        "out.sql": f"CREATE SINK out FROM big WITH ({text})",
    }
    graph = read_declarations(files, settings)
    found = graph.spec(TableName.parse("out"))
    assert isinstance(found, TableSpec)
    return found
