"""A log table that is read by queries, as far as it matters without Spark.

A commit is a position that is kept, as the receipt keeps it, and the rows that were read for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from freshline.commit.warehouse import Warehouse
from freshline.compute.cancellation import Cancellation
from freshline.declare.source import declare_source
from freshline.errors import FreshlineError
from freshline.sources.jdbc.reader import QueryReader
from freshline.sources.reader import ReadRequest
from freshline.sql.clauses import SourceClauses
from freshline.sql.statement import read_statement
from freshline.sql.tokens import Text
from freshline.testing.clock import LabClock
from freshline.values.position import position_from_json
from freshline.values.spec import SourceSpec

COLUMNS = "id INT, name STRING, PRIMARY KEY (id)"
GROWING = {"read": "incremental", "column": "n", "overlap": "0"}


@dataclass
class Host:
    """The part of an engine that a reader uses."""

    root: Path
    clock: Any = field(default_factory=LabClock)

    @property
    def warehouse(self):
        return Warehouse(self.root / "warehouse")

    def require_warehouse(self):
        return


@dataclass
class Queried:
    """The rows of each commit, and the position of the last one."""

    host: Host
    options: dict[str, str] = field(default_factory=dict)
    columns: str = COLUMNS
    position: Any = None
    commits: list[list[tuple[Any, ...]]] = field(default_factory=list)
    step: Any = None
    reader: Any = None

    def open(self, **options):
        """Go on as another engine would, with options of the declaration that are others than before."""
        if self.reader is not None:
            self.reader.close()
        self.options = {**self.options, **options}
        given = {"url": "${env:SHOP_URL}", "table": "t", "read": "snapshot", **self.options}
        pairs = ", ".join(f"'{name.replace('_', '-')}' = '{value}'" for name, value in given.items())
        text = f"CREATE SOURCE feed ({self.columns}) WITH ('connector' = 'jdbc', {pairs})"
        clauses = read_statement(Text(text, "assets/feed.sql"))
        assert isinstance(clauses, SourceClauses)
        spec = declare_source(clauses).spec
        assert isinstance(spec, SourceSpec)
        host: Any = self.host
        self.reader = QueryReader(spec, host)
        return self.reader

    def refresh(self):
        """The rows that a refresh reads and does not find equal to the last ones, None where it commits nothing."""
        reader = self.reader or self.open()
        inspection = reader.inspect(self.position, ReadRequest(Cancellation()))
        portion = reader.cut(inspection, self.position)
        portion = reader.prepare(None, portion, None, Cancellation())
        self.step = str(portion.step)
        if portion.after == portion.before:
            return None
        rows = [
            tuple(row["_freshline_parsed"].values()) if row["_freshline_broken"] is None else row["_freshline_broken"]
            for row in portion.rows.table.to_pylist()
        ]
        reader.finish(None)
        self.position = position_from_json(portion.after.as_json())
        assert self.position == portion.after
        self.commits.append(rows)
        return sorted(rows, key=str)

    def error(self, code):
        with pytest.raises(FreshlineError) as raised:
            self.refresh()
        error = raised.value
        assert error.code == code, error
        assert error.where == "assets/feed.sql:1"
        assert "hunter2" not in f"{error} {error.as_json()}"
        return error
