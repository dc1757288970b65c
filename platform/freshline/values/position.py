"""Positions: how far into a source a version of a table has read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from freshline.errors import ExtensionFailedError
from freshline.values.connector import Position
from freshline.values.extension import broken, given, is_own, where_of
from freshline.values.registry import ExtensionError, find_connector

__all__ = [
    "Position",
    "TablePosition",
    "UnknownPosition",
    "position_from_json",
    "require_known",
    "require_lasting",
]


@dataclass(frozen=True)
class TablePosition(Position):
    """A version of a Delta table.

    `table_id` is the id in Delta's metadata: another id is another table, whatever its path. `seq` is the
    sequence number of the newest receipt at that version, None for a table that freshline does not write; two
    versions with one seq have the same rows, because only maintenance commits without counting it up. `epoch` is the
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
    """A position of a connector that is not installed, or cannot read it. It is kept as it was written.

    `problem` is the error of a connector that cannot read it. The table stays readable, and its rows are right: only
    what reads on from the position raises it.
    """

    kind = "unknown"

    value: Mapping[str, Any]
    problem: ExtensionFailedError | None = field(default=None, compare=False)

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
    if of is None:
        return UnknownPosition.from_json(value)
    try:
        return given(of.from_json(value), of, of, "from_json")
    except ExtensionFailedError as error:
        return replace(UnknownPosition.from_json(value), problem=error)


def require_known(position: Position | None, spec: Any) -> None:
    """Raise the error of a connector that cannot read the position from which `spec` is to be read on."""
    if isinstance(position, UnknownPosition) and position.problem is not None:
        problem = position.problem
        raise ExtensionFailedError(
            problem.package,
            problem.method,
            f"cannot read the position that the newest receipt has: it {problem.sentence}. The rows of the table stay "
            "as they are",
            where=where_of(spec),
        ) from problem


def require_lasting(before: Position | None, after: Position, connector: type[Any], spec: Any) -> None:
    """Refuse a position of another package that its receipt would not give back as it is, before it is committed.

    Raises ExtensionFailedError: with such a receipt rows would be read again or left out.
    """
    if isinstance(after, Position) and is_own(type(after)):
        return
    of = connector.position
    kind = type(given(after, of, connector, "position", spec))
    value = after.as_json()
    try:
        written = json.loads(json.dumps(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise broken(kind, "as_json", f"gives {value!r}, which JSON cannot have ({error})", spec) from error
    if not isinstance(written, dict) or written.get("kind") != connector.name:
        said = f"gives {value!r}, which does not have the kind '{connector.name}' that its connector has"
        raise broken(kind, "as_json", said, spec)
    again = position_from_json(written)
    require_known(again, spec)
    if again != after:
        said = f"gives another position than `as_json` wrote: {again!r}, and not {after!r}"
        raise broken(kind, "from_json", said, spec)
    if before is not None and type(before) is kind and (before == after) != (before.as_json() == value):
        same = "equal" if before == after else "different"
        raise broken(kind, "__eq__", f"says that {before!r} and {after!r} are {same}, and their JSON does not", spec)
