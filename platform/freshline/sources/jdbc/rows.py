"""Rows of a query, as values of the declared columns, of any number in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from freshline.sources.databases.format import BROKEN
from freshline.sources.databases.text_values import AlteredValueError, arrow_type
from freshline.sources.jdbc.facts import JdbcColumn
from freshline.sources.spill import Spill
from freshline.values.connector import RECORD
from freshline.values.format import PARSED, VALUE

VALUE_CHANGED, NOT_UTF8, TOO_LARGE, NULL_KEY = "VALUE_CHANGED", "NOT_UTF8", "TOO_LARGE", "NULL_KEY"
Fields = Sequence[bytes | None]


class ReadRow(NamedTuple):
    """One row. `values` are those of the declared columns, in their order.

    `broken` is a code of quarantine, None for a good row. `raw` is the row as JSON where it is broken: equal for rows
    that are equal, so that it is known again when the table is read the next time.
    """

    values: tuple[Any, ...]
    broken: str | None
    raw: str


class RowReader:
    """Reads the fields of rows, which are texts of the database."""

    def __init__(self, table: str, columns: Sequence[JdbcColumn], most_bytes: int) -> None:
        self._table = table
        self._columns = columns
        self._readers = [(column.reader, column.name, column.is_key) for column in columns]
        self._most_bytes = most_bytes

    def read(self, fields: Fields, size: int) -> ReadRow:
        """A row of about `size` bytes. `fields` may have more than the columns."""
        values: list[Any] = []
        broken = None
        for (read, name, is_key), text in zip(self._readers, fields, strict=False):
            if text is None:
                values.append(None)
                if is_key:
                    broken = broken or NULL_KEY
                continue
            try:
                values.append(read(text))
            except AlteredValueError:
                broken = f"{VALUE_CHANGED}({name})"
                values.append(None)
            except UnicodeDecodeError:
                broken = NOT_UTF8
                values.append(None)
        if size > self._most_bytes:
            # A row that is rejected as too large is not kept, but for its key.
            values = [value if is_key else None for value, (_, _, is_key) in zip(values, self._readers, strict=True)]
            broken = TOO_LARGE
        raw = "" if broken is None else self._raw(fields, is_cut=broken == TOO_LARGE)
        return ReadRow(tuple(values), broken, raw)

    def _raw(self, fields: Fields, *, is_cut: bool) -> str:
        most = max(1, self._most_bytes // (2 * max(1, len(self._columns)))) if is_cut else None
        row = {
            column.name: None if text is None else text[:most].decode("utf-8", "backslashreplace")
            for column, text in zip(self._columns, fields, strict=False)
        }
        return json.dumps({"table": self._table, "row": row}, ensure_ascii=False)


class ReadRows(Spill[ReadRow]):
    """Rows in the order in which they are added, numbered from 0 on."""

    def __init__(self, columns: Sequence[JdbcColumn], folder: Path) -> None:
        self._parsed = pa.struct([pa.field(column.name, arrow_type(column.type)) for column in columns])
        schema = pa.schema([(VALUE, pa.string()), (RECORD, pa.int64()), (PARSED, self._parsed), (BROKEN, pa.string())])
        super().__init__(schema, folder)

    def batch(self, rows: Sequence[ReadRow], first: int) -> Any:
        columns = list(zip(*(row.values for row in rows), strict=True)) or [()] * len(self._parsed)
        arrays = [pa.array(values, type=field.type) for values, field in zip(columns, self._parsed, strict=True)]
        made = [
            pa.array([row.raw for row in rows], pa.string()),
            pa.array(range(first, first + len(rows)), pa.int64()),
            pa.StructArray.from_arrays(arrays, fields=list(self._parsed)),
            pa.array([row.broken for row in rows], pa.string()),
        ]
        return pa.RecordBatch.from_arrays(made, schema=self.schema)
