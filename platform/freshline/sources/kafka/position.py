"""The position of a log table in a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from freshline.values.connector import Position


@dataclass(frozen=True)
class TopicPosition(Position):
    """The position of a log table in a Kafka topic.

    `offsets` are the next ones by partition: everything before was read. A topic that was deleted and made anew has
    another `topic_id`. `undeclared` are the names of the fields that records had and the declaration has not, where
    their schemas name them: each is reported once.
    """

    kind = "kafka"

    cluster_id: str
    topic: str
    topic_id: str
    offsets: Mapping[int, int]
    undeclared: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "cluster_id": self.cluster_id,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "offsets": {str(partition): self.offsets[partition] for partition in sorted(self.offsets)},
            **({"undeclared": list(self.undeclared)} if self.undeclared else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        offsets = {int(partition): int(offset) for partition, offset in value["offsets"].items()}
        undeclared = tuple(str(name) for name in value.get("undeclared", ()))
        return cls(str(value["cluster_id"]), str(value["topic"]), str(value["topic_id"]), offsets, undeclared)
