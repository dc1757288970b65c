"""The position of a log table in a table of a database that is read by queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from freshline.values.connector import Position


@dataclass(frozen=True)
class QueryPosition(Position):
    """The rows that queries up to `read_at`, a time of the server, gave.

    `system`, `timeline`, `database` and `table_id` name what was read: a server, a history of it or a table that was
    made anew has others. They are empty where the database does not say. `place` is how far the server had written its
    log, None where it does not say. `reads` is how many reads were committed, `rows` how many rows are stored at most:
    those of the last whole reading, and all that were read since. `asked` is a digest of what was asked for, `digest`
    one of the rows that the next read gives while nothing changes. `value` is that of the growing column, or of `xmin`,
    from which on the next read goes on, None for a table that is always read as a whole. `reconciled_at` is when it was
    read as a whole, by the clock of the engine.
    """

    kind = "jdbc"

    system: str
    timeline: int
    database: str
    table: str
    table_id: str
    place: int | None
    read_at: str
    reads: int
    rows: int
    asked: str
    digest: str
    value: str | None = None
    reconciled_at: str | None = None

    @property
    def loss(self) -> str:
        """The text by which `accept-database` names the replacement of what was read up to this position."""
        return self.read_at

    def as_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **vars(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        def text(name: str) -> str | None:
            return None if value[name] is None else str(value[name])

        return cls(
            str(value["system"]),
            int(value["timeline"]),
            str(value["database"]),
            str(value["table"]),
            str(value["table_id"]),
            None if value["place"] is None else int(value["place"]),
            str(value["read_at"]),
            int(value["reads"]),
            int(value["rows"]),
            str(value["asked"]),
            str(value["digest"]),
            text("value"),
            text("reconciled_at"),
        )
