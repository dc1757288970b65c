"""Positions: how far into a source a version of a table has read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from freshline.declare.connector import Position
from freshline.declare.registry import ExtensionError, find_connector

__all__ = ["Position", "TablePosition", "UnknownPosition", "position_from_json"]


@dataclass(frozen=True)
class TablePosition(Position):
    """A version of a Delta table.

    `table_id` is the id in Delta's metadata: another id is another table, whatever its path. `seq` is the
    sequence number of the newest receipt at that version, None for a table that freshline does not write; two
    versions with one seq hold the same rows, because only maintenance commits without counting it up. `epoch` is the
    writer's of that receipt, None where it is not known: where a log lost its newest commits, by a power cut or with an
    older copy, numbers are given a second time, by a writer of a higher epoch.
    """

    kind = "table"

    table_id: str
    version: int
    seq: int | None = None
    epoch: int | None = None

    def as_json(self) -> dict[str, Any]:
        # Without a kind, as receipts always had it: every position that has none is one of a table.
        value = {"table_id": self.table_id, "version": self.version, "seq": self.seq}
        return value if self.epoch is None else {**value, "epoch": self.epoch}

    def is_other_writers(self, other: TablePosition) -> bool:
        """Whether the same numbers are surely those of other commits."""
        return self.epoch is not None and other.epoch is not None and self.epoch != other.epoch

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        seq, epoch = value.get("seq"), value.get("epoch")
        return cls(
            str(value["table_id"]),
            int(value["version"]),
            None if seq is None else int(seq),
            None if epoch is None else int(epoch),
        )


@dataclass(frozen=True)
class UnknownPosition(Position):
    """A position of a connector that is not installed. It is kept as it was written."""

    kind = "unknown"

    value: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        return dict(self.value)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(value)


def position_from_json(value: Mapping[str, Any]) -> Position:
    """The inverse of `as_json`."""
    kind = value.get("kind")
    if kind is None:
        # Receipts from before positions had a kind.
        kind = "files" if "flushed_seq" in value else "kafka" if "offsets" in value else TablePosition.kind
    if kind == TablePosition.kind:
        return TablePosition.from_json(value)
    try:
        of = find_connector(str(kind)).position
    except ExtensionError:
        return UnknownPosition.from_json(value)
    return UnknownPosition.from_json(value) if of is None else of.from_json(value)
