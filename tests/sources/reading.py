"""A source that is read without Spark: its reader, and the part of an engine that a reader uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshline.commit.warehouse import Warehouse
from freshline.declare.source import declare_source
from freshline.errors import FreshlineError
from freshline.sql.clauses import SourceClauses
from freshline.sql.statement import read_statement
from freshline.sql.tokens import Text
from freshline.testing.clock import LabClock
from freshline.testing.crash import Crash
from freshline.values.spec import SourceSpec


@dataclass
class Host:
    """The part of an engine that a reader uses. It stops at the failpoint `stop_at`."""

    root: Path
    stop_at: str = ""
    clock: Any = field(default_factory=LabClock)

    @property
    def warehouse(self):
        return Warehouse(self.root / "warehouse")

    def failpoint(self, name):
        if name == self.stop_at:
            raise Crash(name)

    def require_warehouse(self):
        return


def open_reader(host: Any, columns: str, options: Mapping[str, str], name: str = "s") -> Any:
    """The reader of a source that is declared with these options, on line 1 of its file."""
    pairs = ", ".join("'{}' = '{}'".format(key, value.replace("'", "''")) for key, value in options.items())
    clauses = read_statement(Text(f"CREATE SOURCE {name} ({columns}) WITH ({pairs})", f"assets/{name}.sql"))
    assert isinstance(clauses, SourceClauses)
    spec = declare_source(clauses).spec
    assert isinstance(spec, SourceSpec)
    return spec.connection.open(spec, host)


def failure_of(refresh: Callable[[], object], name: str) -> FreshlineError:
    """The error of a refresh, which names the declaration and shows no secret."""
    with pytest.raises(FreshlineError) as raised:
        refresh()
    error = raised.value
    assert error.where == f"assets/{name}.sql:1"
    assert "hunter2" not in f"{error} {error.as_json()}"
    return error


def table_of(rows: Any) -> Any:
    """The rows of a portion that is prepared, in memory or in files."""
    return pa.concat_tables([pq.read_table(file) for file in rows.files]) if rows.is_spilled else rows.table
