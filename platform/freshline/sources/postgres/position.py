"""How far a log table has read a table of Postgres, and how places in its log are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from freshline.declare.connector import Position

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


@dataclass(frozen=True)
class WalPosition(Position):
    """All transactions whose commits begin before `lsn` were read, by the slot `slot`.

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
        )
