"""The header of a declaration, clause by clause, before it is judged.

The SQL and the Python door both end here, so that every rule is checked in one place for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from freshline.values.closing import Final
from freshline.values.freshness import Freshness
from freshline.values.location import Location, Written
from freshline.values.names import TableName
from freshline.values.query import PythonQuery
from freshline.values.spec import Column, Constraint, Downstream, SideOutput, Spec, Watermark


@dataclass(frozen=True)
class QueryText:
    """SQL as it was written, from its first to its last token; `line` is the line of the first."""

    text: str
    line: int


@dataclass(frozen=True)
class ProcessOutput:
    """An output of a class as it was written: its table, and what makes the rows."""

    name: TableName
    query: PythonQuery


@dataclass(frozen=True)
class TableClauses:
    """A materialized table as its header says it; `mode` is the word after REFRESH_MODE, in upper case."""

    name: TableName
    written_at: Location
    query: QueryText | PythonQuery
    primary_key: Written[tuple[str, ...]] | None = None
    partitioned_by: Written[tuple[str, ...]] | None = None
    cluster_by: Written[tuple[str, ...]] | None = None
    comment: str | None = None
    freshness: Written[Freshness | Downstream] | None = None
    mode: Written[str] | None = None
    watermark: Written[Watermark] | None = None
    constraints: tuple[Written[Constraint], ...] = ()
    options: Mapping[str, Written[str]] = field(default_factory=dict)
    final: Written[Final] | None = None
    side_outputs: tuple[Written[SideOutput], ...] = ()
    process_outputs: tuple[ProcessOutput, ...] = ()


@dataclass(frozen=True)
class SourceClauses:
    """A source as its header says it."""

    name: TableName
    written_at: Location
    columns: tuple[Written[Column], ...]
    primary_key: Written[tuple[str, ...]] | None = None
    comment: str | None = None
    freshness: Written[Freshness | Downstream] | None = None
    watermark: Written[Watermark] | None = None
    constraints: tuple[Written[Constraint], ...] = ()
    options: Mapping[str, Written[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class SinkClauses:
    """A sink as its header says it; `table` is the one whose rows go out."""

    name: TableName
    written_at: Location
    table: Written[TableName]
    comment: str | None = None
    freshness: Written[Freshness | Downstream] | None = None
    options: Mapping[str, Written[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class ModelClauses:
    """A model as its header says it."""

    name: TableName
    written_at: Location
    comment: str | None = None
    options: Mapping[str, Written[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Declaration:
    """A judged declaration: its spec, and the lines of its clauses for what only the graph can judge.

    The path of a source is still as written, and a freshness that was not stated is a placeholder:
    both depend on the environment, so they are filled in when the project is read. `beside` declares the tables that
    come with this one: that of the rows that came too late for it, and its side outputs.
    """

    spec: Spec
    lines: Mapping[str, int]
    beside: tuple[Declaration, ...] = ()

    @property
    def freshness_stated(self) -> bool:
        return "FRESHNESS" in self.lines

    def at(self, clause: str) -> Location:
        """The place of the clause; that of the declaration when it has no line of its own."""
        written_at = self.spec.written_at
        return Location(written_at.path, self.lines.get(clause, written_at.line))
