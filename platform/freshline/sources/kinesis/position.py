"""The position of a log table in a stream of Kinesis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from freshline.values.connector import Position


@dataclass(frozen=True)
class ShardPosition:
    """The position in one shard. Times are milliseconds since 1970 by the clock of the service.

    `sequence` is the number of the newest record that was read, empty where there was none, and `arrived` when it came,
    None where the service did not say. `records` is the number that the next row of the shard gets. Everything that
    came before `until` was read; None where nothing is known of that. Nothing more comes from a shard that `is_closed`.
    """

    sequence: str = ""
    records: int = 0
    arrived: int | None = None
    until: int | None = None
    is_closed: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "sequence": self.sequence,
            "records": self.records,
            "arrived": self.arrived,
            "until": self.until,
            "closed": self.is_closed,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        arrived, until = value["arrived"], value["until"]
        return cls(
            str(value["sequence"]),
            int(value["records"]),
            None if arrived is None else int(arrived),
            None if until is None else int(until),
            bool(value["closed"]),
        )


@dataclass(frozen=True)
class KinesisPosition(Position):
    """The position of a log table in a stream: the parts that `shards` say were read, and nothing of other shards.

    A stream that was deleted and made anew has the same `arn`, and was `created` at another time, in milliseconds since
    1970. `starting` is where a shard begins that nothing was read of: `earliest`, or a moment as ISO 8601 has it.
    `base` is the number of the first row of such a shard, greater than those of a stream that was read before.
    `forgotten` is a number greater than those of all rows of shards that are not in `shards` any more.
    `undeclared` are the names of fields that records had and the declaration has not: each is reported once.
    """

    kind = "kinesis"

    arn: str
    created: int
    starting: str = "earliest"
    base: int = 0
    shards: Mapping[str, ShardPosition] = field(default_factory=dict)
    undeclared: tuple[str, ...] = ()
    forgotten: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "arn": self.arn,
            "created": self.created,
            "starting": self.starting,
            "base": self.base,
            "shards": {name: self.shards[name].as_json() for name in sorted(self.shards)},
            **({"undeclared": list(self.undeclared)} if self.undeclared else {}),
            **({"forgotten": self.forgotten} if self.forgotten else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            str(value["arn"]),
            int(value["created"]),
            str(value["starting"]),
            int(value["base"]),
            {str(name): ShardPosition.from_json(shard) for name, shard in value["shards"].items()},
            tuple(str(name) for name in value.get("undeclared", ())),
            int(value.get("forgotten", 0)),
        )
