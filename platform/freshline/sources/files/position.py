"""The position of a log table in a landing folder: the files that it has read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from freshline.values.connector import Position


@dataclass(frozen=True, order=True)
class FileMark:
    """A landing file as it was when it was read: path below the source's folder, bytes, modification time in ns."""

    path: str
    size: int
    modified_ns: int


@dataclass(frozen=True)
class FilesPosition(Position):
    """The files that a log table has read.

    All files with a batch number up to `flushed_seq` stand in the table `<log>__file`; `recent` are those
    read since. Together they are the whole position.

    `undeclared` are the names of the fields that files had and the declaration has not, where files name their fields:
    each is reported once.
    """

    kind = "files"

    flushed_seq: int
    recent: tuple[FileMark, ...]
    undeclared: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "flushed_seq": self.flushed_seq,
            "recent": [[mark.path, mark.size, mark.modified_ns] for mark in self.recent],
            **({"undeclared": list(self.undeclared)} if self.undeclared else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `as_json`. Raises ValueError for a path that leads out of the folder.

        A position is read out of a receipt, and out of the token of a union read, which anybody may have written.
        """
        recent = tuple(FileMark(_below(path), int(size), int(modified)) for path, size, modified in value["recent"])
        return cls(int(value["flushed_seq"]), recent, tuple(str(name) for name in value.get("undeclared", ())))


def _below(path: object) -> str:
    if not isinstance(path, str) or any(step in ("", ".", "..") for step in path.split("/")):
        raise ValueError(f"{path!r} is no path below a folder")
    return path
