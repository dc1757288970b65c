"""The position of a log table in a stream or a queue of RabbitMQ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from freshline.values.connector import Position


class RabbitPosition(Position):
    """A position in a stream, or in a queue: the one has offsets, the other gives each message once."""

    kind = "rabbitmq"

    @abstractmethod
    def as_json(self) -> dict[str, Any]:
        """A JSON object, which has `kind`, and `stream` or `queue`."""

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RabbitPosition:
        if "stream" in value:
            return StreamPosition(
                str(value["stream"]), int(value["generation"]), int(value["next"]), str(value["digest"])
            )
        return QueuePosition(str(value["queue"]), int(value["messages"]))


@dataclass(frozen=True)
class StreamPosition(RabbitPosition):
    """All messages before the offset `next` were read.

    A stream has no identity that a client can ask for, so `digest` is that of the newest message before `next`, empty
    where there was none: a stream that was made anew has another message there, or none. `generation` is how many
    streams were accepted in the place of the first one.
    """

    stream: str
    generation: int
    next: int
    digest: str

    @property
    def loss(self) -> str:
        """The text by which `accept-stream` names the loss of what comes behind this position."""
        return f"{self.stream}@{self.next}-{self.digest[:8] or '0'}"

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **vars(self)}


@dataclass(frozen=True)
class QueuePosition(RabbitPosition):
    """`messages` were taken from the queue, rejected ones and repeated ones included: the number of the next one."""

    queue: str
    messages: int

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **vars(self)}
