"""Positions: how far into a source a version of a table has read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class TablePosition:
    """A version of a Delta table.

    `table_id` is the id in Delta's metadata: another id is another table, whatever its path. `seq` is the
    sequence number of the newest receipt at that version, None for a table that freshline does not write; two
    versions with one seq hold the same rows, because only maintenance commits without counting it up.
    """

    table_id: str
    version: int
    seq: int | None = None

    def as_json(self) -> dict[str, Any]:
        return {"table_id": self.table_id, "version": self.version, "seq": self.seq}


@dataclass(frozen=True, order=True)
class FileMark:
    """A landing file as it was when it was read: path below the source's folder, bytes, modification time in ns."""

    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class FilesPosition:
    """The files that a log table has read.

    All files with a batch number up to `flushed_seq` stand in the table `<log>__file`; `recent` are those
    read since. Together they are the whole position.
    """

    flushed_seq: int
    recent: tuple[FileMark, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "flushed_seq": self.flushed_seq,
            "recent": [[mark.path, mark.size, mark.modified_ns] for mark in self.recent],
        }


@dataclass(frozen=True)
class TopicPosition:
    """How far a log table has read a Kafka topic.

    `offsets` are the next ones by partition: everything before was read. A topic that was deleted and made anew has
    another `topic_id`.
    """

    cluster_id: str
    topic: str
    topic_id: str
    offsets: Mapping[int, int]

    def as_json(self) -> dict[str, Any]:
        return {
            "cluster_id": self.cluster_id,
            "topic": self.topic,
            "topic_id": self.topic_id,
            "offsets": {str(partition): self.offsets[partition] for partition in sorted(self.offsets)},
        }


Position = TablePosition | FilesPosition | TopicPosition


def position_from_json(value: Mapping[str, Any]) -> Position:
    """The inverse of `as_json`."""
    if "flushed_seq" in value:
        return FilesPosition(
            int(value["flushed_seq"]), tuple(FileMark(str(p), int(s), int(m)) for p, s, m in value["recent"])
        )
    if "offsets" in value:
        offsets = {int(partition): int(offset) for partition, offset in value["offsets"].items()}
        return TopicPosition(str(value["cluster_id"]), str(value["topic"]), str(value["topic_id"]), offsets)
    seq = value.get("seq")
    return TablePosition(str(value["table_id"]), int(value["version"]), None if seq is None else int(seq))
