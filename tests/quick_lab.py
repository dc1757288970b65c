"""A Lab without Spark, for stories of refreshes whose queries are no part of their claim: a hundredth of the time.

Rows come from DuckDB (`tests/stand_in.py`). A story of log tables, merges, lookups, models, FINAL windows or time
partitions needs Spark, and a Lab that comes to one of them ends with NotImplementedError or AttributeError.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlglot
from deltalake import DeltaTable, write_deltalake
from sqlglot import exp

from freshline.errors import RequestError
from freshline.refresh.attempt import Attempt
from freshline.refresh.pin import pin_at
from freshline.testing.lab import in_order
from freshline.values.names import TableName
from freshline.values.query import SqlQuery
from tests.duckdb_rows import computed, rows_of
from tests.plain_lab import PlainLab, create_source
from tests.stand_in import Inputs, no_spark, rows_by


class QuickLab(PlainLab):
    """As its base; `sql` knows INSERT, UPDATE, DELETE and queries. Columns are of plain types."""

    def __init__(self, *, start: datetime | None = None) -> None:
        super().__init__(no_spark(), start=start)
        self._computing = ExitStack()
        folder = self.settings.root
        self._computing.enter_context(
            rows_by(self._rows_at, of=lambda attempt: attempt.runtime.settings.root == folder)
        )

    def close(self) -> None:
        """As of a Lab."""
        self._computing.close()
        super().close()

    def _make_source(
        self, name: TableName, path: Path, columns: str, partitioned_by: Sequence[str], properties: Mapping[str, str]
    ) -> None:
        create_source(path, columns, partitioned_by, properties)

    def sql(self, statement: str) -> list[dict[str, Any]]:
        """Change a source, or ask for rows. The conditions of UPDATE and DELETE are DataFusion's."""
        parsed = sqlglot.parse_one(statement, read="spark")
        if isinstance(parsed, exp.Query):
            found: list[dict[str, Any]] = self._rows_of(statement).to_pylist()
            return found
        if self._is_written(statement):
            return []
        assert isinstance(parsed, exp.Insert | exp.Update | exp.Delete), statement
        table = DeltaTable(str(self.path(parsed.this.sql("spark"))))
        where = parsed.args.get("where")
        condition = None if where is None else where.this.sql("spark")
        if isinstance(parsed, exp.Insert):
            schema = pa.schema(table.schema())
            rows = self._rows_of(parsed.expression.sql("spark")).rename_columns(schema.names).cast(schema)
            write_deltalake(table, rows, mode="overwrite" if parsed.args.get("overwrite") else "append")
        elif isinstance(parsed, exp.Update):
            table.update({each.this.name: each.expression.sql("spark") for each in parsed.expressions}, None, condition)
        else:
            table.delete(condition)
        return []

    def rows(self, name: str) -> list[dict[str, Any]]:
        """As of a Lab."""
        stored = self._newest(name)
        if stored is None:
            raise RequestError("it has no version yet. Refresh it first.", where=name)
        return in_order(rows_of(stored))

    def diff(self, name: str) -> list[tuple[str, dict[str, Any]]]:
        """As of a Lab, by DuckDB."""
        spec, receipt = self.runtime.graph.table(TableName.parse(name)), self.receipt(name)
        assert receipt is not None
        named = computed(spec.sql.text, pin_at(self.runtime, spec, receipt.positions)).to_pylist()
        stored, wanted = (Counter(tuple(row.items()) for row in rows) for rows in (self.rows(name), named))
        more = [("+", dict(row)) for row in (stored - wanted).elements()]
        return [*more, *(("-", dict(row)) for row in (wanted - stored).elements())]

    def _rows_at(self, attempt: Attempt, inputs: Inputs) -> pa.Table:
        spec = attempt.spec
        if spec.constraints or spec.merge is not None or not isinstance(spec.query, SqlQuery):
            raise NotImplementedError(f"{spec.name} needs Spark")
        return computed(spec.query.text, inputs)

    def _rows_of(self, query: str) -> pa.Table:
        names = [str(name) for name in self.runtime.graph.order]
        inputs = {TableName.parse(name): pinned for name in names if (pinned := self._newest(name)) is not None}
        return computed(query, inputs)
