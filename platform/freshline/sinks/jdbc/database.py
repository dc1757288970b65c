"""The half of a writer of databases that all of them share: sentences, positions, and rows that are not taken."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from freshline.errors import SinkSchemaError
from freshline.sinks.jdbc.sink import JdbcSink
from freshline.sinks.writer import SinkHost, SinkWriter
from freshline.values.sink import JSON
from freshline.values.sink_position import SinkPosition
from freshline.values.spec import TableSpec

# The table that has the positions, in the schema of the table that is written.
POSITIONS = "freshline_sink"


class DatabaseWriter(SinkWriter):
    """Writes a table of a database. `full_name` is the table as people write it."""

    full_name: str

    def __init__(self, spec: TableSpec, host: SinkHost) -> None:
        super().__init__(spec, host)
        assert isinstance(spec.sink, JdbcSink)
        self.sink = spec.sink

    @property
    def url(self) -> str:
        """The address, which has the password: keep it nowhere."""
        return self.secret("url", self.sink.url)

    def read_position(self, text: str, place: str) -> SinkPosition:
        """The position of a text that stands at `place`. Raises SinkSchemaError."""
        try:
            return SinkPosition.from_json(text)
        except (ValueError, KeyError, TypeError) as error:
            raise SinkSchemaError(
                f"the position of {self.full_name} in {place} is none of freshline. Delete that row, "
                f"then run `freshline refresh {self.spec.name} --full`.",
                where=self.where,
            ) from error

    def misfit(self, sentence: str) -> SinkSchemaError:
        """The error for a table that does not fit."""
        return SinkSchemaError(f"{sentence}.", where=self.where)

    def wrong_type(self, column: str, there: str, wanted: str) -> SinkSchemaError:
        """The error for a column of another type."""
        return self.misfit(
            f"column {column} of {self.full_name} is {there}, and rows have {wanted}. "
            "Change its type there, or take the table away"
        )

    def required_column(self, column: str) -> SinkSchemaError:
        """The error for a column that must have a value, and that the rows have not."""
        return self.misfit(
            f"column {column} of {self.full_name} must have a value, and {self.spec.reads[0]} has no such "
            "column. Give it a default there"
        )

    def rows_of_others(self) -> SinkSchemaError:
        """The error for a table with rows before the first write."""
        return self.misfit(
            f"{self.full_name} has rows that freshline has not written. `freshline refresh {self.spec.name} "
            "--full` replaces them; else name another table"
        )


def row_text(row: pa.RecordBatch) -> str:
    """One row as a JSON text, whatever is wrong with its values.

    >>> row_text(pa.record_batch({"k": ["a"], "n": [1]}))
    '{"k": "a", "n": 1}'
    """
    values = {field.name: _shown(row.column(index), field) for index, field in enumerate(row.schema)}
    return json.dumps(values, ensure_ascii=False, default=str)


def _shown(column: pa.Array, field: pa.Field) -> Any:
    if not column[0].is_valid:
        return None
    if pa.types.is_string(field.type):
        text = column.cast(pa.binary())[0].as_py().decode("utf-8", "replace")
        if field.metadata and JSON in field.metadata:
            try:
                return json.loads(text)
            except ValueError:
                return text
        return text
    try:
        return column[0].as_py()
    except (ValueError, OverflowError):
        # A time that Python has not.
        return column.cast(pa.string())[0].as_py()
