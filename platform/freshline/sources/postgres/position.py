"""The position of a log table in a table of Postgres, and the text of places in the database's log."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from freshline.values.connector import Position

if TYPE_CHECKING:
    from freshline.sources.postgres.events import NamedValues, PostgresColumn

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def lsn_text(lsn: int) -> str:
    """A place in the write-ahead log as Postgres writes it.

    >>> lsn_text(22196944), lsn_text(1 << 32)
    ('0/152B2D0', '1/0')
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """The inverse of `lsn_text`. Raises ValueError for another text."""
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no place in a write-ahead log")
    return int(match[1], 16) << 32 | int(match[2], 16)


def ordered_lsn(lsn: int) -> str:
    """The same with all its digits, so that texts are in the order of the log.

    >>> ordered_lsn(22196944)
    '00000000/0152B2D0'
    """
    return f"{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}"


class KnownType(NamedTuple):
    """A type whose values have names: its oid, the greatest oid of a label, and a digest of the labels up to it."""

    id: int
    last: int
    digest: str

    @classmethod
    def of(cls, found: NamedValues) -> KnownType:
        last = max((oid for oid, _ in found.labels), default=0)
        return cls(found.id, last, _digest(found, last))


@dataclass(frozen=True)
class KnownColumn:
    """A column that was read: by its declared name, its number, and the types whose values have names.

    Labels that a type gains change no row, so a digest is that of those that were there.
    """

    name: str
    number: int
    types: tuple[KnownType, ...] = ()

    @classmethod
    def of(cls, column: PostgresColumn) -> KnownColumn:
        return cls(column.name, column.number, tuple(KnownType.of(each) for each in column.named_values))

    def difference(self, column: PostgresColumn) -> str | None:
        """The difference of the column as it is now, None where it is the same."""
        if column.number != self.number:
            return f"is column number {column.number}, and {self.number} was read: it was dropped and added, or renamed"
        known = {each.id: each for each in self.types}
        for found in column.named_values:
            before = known.get(found.id)
            if before is not None and before.digest != _digest(found, before.last):
                return f"has the type {found.name}, whose values were renamed or have other parts"
        return None

    def as_json(self) -> list[Any]:
        return [self.name, self.number, *([[list(each) for each in self.types]] if self.types else [])]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> KnownColumn:
        types = value[2] if len(value) > 2 else ()
        return cls(str(value[0]), int(value[1]), tuple(KnownType(int(a), int(b), str(c)) for a, b, c in types))


def _digest(found: NamedValues, last: int) -> str:
    labels = json.dumps([[oid, label] for oid, label in sorted(found.labels) if oid <= last])
    return hashlib.sha256(labels.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class WalPosition(Position):
    """All transactions whose commits begin before `lsn` were read, by the slot `slot`.

    `columns` are those that were read, which a position of an earlier version does not say.

    `system_id` and `timeline` name the server and its history, `table_id` is the table's oid: a table or server that
    was made anew has others. `records` is how many records the log has had, rejected ones included: the number of the
    next one.
    """

    kind = "postgres"

    slot: str
    system_id: str
    timeline: int
    database: str
    table: str
    table_id: int
    lsn: int
    records: int
    columns: tuple[KnownColumn, ...] = ()

    def knowing(self, columns: Sequence[PostgresColumn]) -> Self:
        """The same with the columns of now, and those that are not declared any more as they were."""
        found = {each.name: each for each in self.columns}
        found |= {each.name: KnownColumn.of(each) for each in columns}
        return replace(self, columns=tuple(found.values()))

    def changed_column(self, columns: Sequence[PostgresColumn]) -> tuple[str, str] | None:
        """A column that is another one now than that which was read, and why; None where each is the same."""
        known = {each.name: each for each in self.columns}
        for column in columns:
            before = known.get(column.name)
            why = None if before is None else before.difference(column)
            if why is not None:
                return f"column {column.found}", why
        return None

    @property
    def loss(self) -> str:
        """The text by which `accept-slot` names the loss of what comes behind this position."""
        return f"{self.slot}@{lsn_text(self.lsn)}"

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "slot": self.slot,
            "system_id": self.system_id,
            "timeline": self.timeline,
            "database": self.database,
            "table": self.table,
            "table_id": self.table_id,
            "lsn": lsn_text(self.lsn),
            "records": self.records,
            **({"columns": [each.as_json() for each in self.columns]} if self.columns else {}),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        return cls(
            str(value["slot"]),
            str(value["system_id"]),
            int(value["timeline"]),
            str(value["database"]),
            str(value["table"]),
            int(value["table_id"]),
            lsn_of(str(value["lsn"])),
            int(value["records"]),
            tuple(KnownColumn.from_json(each) for each in value.get("columns", ())),
        )
