"""Events of any number in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from freshline.sources.databases.format import BROKEN
from freshline.sources.databases.text_values import arrow_type
from freshline.sources.postgres.connector import COMMIT
from freshline.sources.postgres.events import PostgresColumn, PostgresEvent
from freshline.sources.postgres.position import ordered_lsn
from freshline.sources.spill import Spill
from freshline.values.change import BEFORE, CHANGED_AT, OP, POSITION, TRANSACTION, UNFIT, UNSENT
from freshline.values.connector import RECORD
from freshline.values.format import PARSED, VALUE

# Debezium writes positions of Postgres with this name too.
DATABASE = "postgresql"


class EventRows(Spill[PostgresEvent]):
    """Events in the order in which they are added, numbered from `first` on."""

    def __init__(self, columns: Sequence[PostgresColumn], folder: Path, first: int) -> None:
        self._first = first
        self._parsed = pa.struct([pa.field(column.name, arrow_type(column.type)) for column in columns])
        schema = pa.schema(
            [
                (VALUE, pa.string()),
                (RECORD, pa.int64()),
                (COMMIT, pa.string()),
                (PARSED, self._parsed),
                (OP, pa.string()),
                (POSITION, pa.string()),
                (CHANGED_AT, pa.timestamp("us", tz="UTC")),
                (TRANSACTION, pa.string()),
                (UNSENT, pa.list_(pa.string())),
                (BROKEN, pa.string()),
                (BEFORE, pa.struct([*self._parsed, pa.field(UNFIT, pa.bool_())])),
            ]
        )
        super().__init__(schema, folder)

    def add(self, event: PostgresEvent) -> None:
        """Add an event. Raises OSError where the disk is full."""
        self.append(event, event.size)

    def batch(self, rows: Sequence[PostgresEvent], first: int) -> Any:
        first += self._first
        names = [field.name for field in self._parsed]
        columns = list(zip(*(event.values for event in rows), strict=True)) or [()] * len(self._parsed)
        arrays = [pa.array(values, type=field.type) for values, field in zip(columns, self._parsed, strict=True)]
        # Most events of a batch have one commit.
        commits: dict[int, str] = {}
        given: list[Any] = [
            [event.raw for event in rows],
            range(first, first + len(rows)),
            [commits.get(each.commit) or commits.setdefault(each.commit, ordered_lsn(each.commit)) for each in rows],
            None,
            [event.op for event in rows],
            [f"{DATABASE}:{ordered_lsn(event.position)}" for event in rows],
            [event.changed_at for event in rows],
            [event.transaction for event in rows],
            [event.unsent for event in rows],
            [event.broken for event in rows],
            [_before(names, event) for event in rows],
        ]
        made = [
            pa.StructArray.from_arrays(arrays, fields=list(self._parsed))
            if values is None
            else pa.array(values, field.type)
            for values, field in zip(given, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(made, schema=self.schema)


def _before(names: Sequence[str], event: PostgresEvent) -> dict[str, Any] | None:
    if event.before is None:
        return None
    return dict(zip(names, event.before, strict=True)) if event.before else {UNFIT: True}
