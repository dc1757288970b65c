"""Some rows of a table for a person to read: as texts, and without the columns that the settings mask.

A masked column is not read. A column that is computed from a masked one is masked too, in every table behind it. Where
it is not known from which columns a table is computed, as of a table in Python, all columns of it are masked as soon as
one of an input is. It only reads, and needs no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from deltalake import QueryBuilder

from freshline.commit import delta_log
from freshline.commit.data_files import is_plain, read_stored
from freshline.declare.graph import Graph
from freshline.errors import ReadError
from freshline.freshness.history import cut_text
from freshline.values.connector import RETRIED_IN
from freshline.values.names import RESERVED_COLUMN, TableName
from freshline.values.spec import TableSpec

MOST_TEXT = 200
# These columns of a quarantine table have values of all columns of a record.
_WHOLE_RECORD = frozenset({"raw", "message", "row"})


@dataclass(frozen=True)
class Mask:
    """The columns of one table that nobody is shown, in lower case; with `everything`, all of it."""

    columns: frozenset[str] = frozenset()
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.columns)

    def hides(self, column: str) -> bool:
        return self.everything or column.lower() in self.columns


@dataclass(frozen=True)
class Sample:
    """Some rows: a text for each of `columns`, None for NULL. `masked` are the columns that are left out."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str | None, ...], ...] = ()
    masked: tuple[str, ...] = ()


def find_masks(graph: Graph, written: Sequence[str]) -> Mapping[TableName, Mask]:
    """The mask of each table and source. `written` has names of columns, with a table before them or for all tables.

    Nothing is analyzed where nothing is written.
    """
    if not written:
        return dict.fromkeys(graph.order, Mask())
    found: dict[TableName, Mask] = {}
    for name in graph.order:
        table = str(name).lower()
        places = [each.lower().rpartition(".") for each in written]
        named = frozenset(column for place, _, column in places if place in ("", table))
        found[name] = _with_origins(graph, name, Mask(named), found)
    return found


def _with_origins(graph: Graph, name: TableName, own: Mask, found: Mapping[TableName, Mask]) -> Mask:
    spec = graph.spec(name)
    # A name for all tables is in every mask, and hides nothing of an input that has no such column.
    above = {read: found[read] for read in graph.reads(name) if read in found and _hides_any(graph, read, found[read])}
    if not isinstance(spec, TableSpec) or not above:
        return own
    # Queries are analyzed where something is masked, and only there is sqlglot needed.
    from freshline.query.resolved import find_lineage

    known = {read: columns for read in spec.reads if (columns := graph.columns(read)) is not None}
    lineage = find_lineage(spec, known)
    if not lineage:
        return Mask(own.columns, everything=True)
    derived = {
        column.lower()
        for column, origins in lineage.items()
        if any(table in above and above[table].hides(origin) for table, origin in origins)
    }
    return Mask(own.columns | derived)


def _hides_any(graph: Graph, name: TableName, mask: Mask) -> bool:
    columns = graph.columns(name)
    return bool(mask) if columns is None else any(mask.hides(column) for column in columns)


def read_sample(path: Path, most: int, mask: Mask) -> Sample | None:
    """At most so many rows of a table; None where there is no table or no row is wanted.

    Raises SourceError where its log cannot be read, and ReadError where its rows cannot.
    """
    return _read(path, most, mask)


def read_quarantine(path: Path, most: int, mask: Mask) -> Sample | None:
    """The same of a quarantine table, of records that are no rows yet.

    A record as it arrived has all columns in it, so it is not shown where one is masked.
    """
    return _read(path, most, Mask(mask.columns | _WHOLE_RECORD, mask.everything) if mask else mask)


def _read(path: Path, most: int, mask: Mask) -> Sample | None:
    if most <= 0 or not delta_log.exists(path):
        return None
    table = delta_log.open_table(path)
    names = [field.name for field in table.schema().fields]
    stored = [name for name in names if not name.lower().startswith(RESERVED_COLUMN) and name != RETRIED_IN]
    shown = [name for name in stored if not mask.hides(name)]
    masked = tuple(name for name in stored if mask.hides(name))
    if not shown:
        return Sample(masked=masked)
    columns = ", ".join(quoted(name) for name in shown)
    condition = f" WHERE {quoted(RETRIED_IN)} IS NULL" if RETRIED_IN in names else ""
    query = f"SELECT {columns} FROM sample{condition} LIMIT {most}"
    try:
        # A table that delta-rs has no query for is read file by file.
        read = None if is_plain(table) or condition else read_stored(table, path, shown, most)
        rows = (
            pa.table(QueryBuilder().register("sample", table).execute(query).read_all()) if read is None else read
        ).to_pylist()
    except Exception as error:
        # The errors of reading the files have no class of their own in delta-rs.
        raise ReadError(f"no rows of it can be shown: {error}", where=str(path)) from error
    return Sample(tuple(shown), tuple(tuple(value_text(row[name]) for name in shown) for row in rows), masked)


def value_text(value: object) -> str | None:
    """A value as a person reads it, cut after 200 bytes; None for NULL.

    >>> value_text(None), value_text(True), value_text(b"a\\xff"), value_text({"a": [1, None]}), value_text("")
    (None, 'true', 'a\\\\xff', '{"a": [1, null]}', '')
    """
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case bytes():
            text = value[: 4 * MOST_TEXT].decode("utf-8", "backslashreplace")
        case dict() | list():
            text = json.dumps(value, ensure_ascii=False, default=str)
        case _:
            text = str(value)
    return cut_text(text, MOST_TEXT)


def quoted(name: str) -> str:
    """A name in quotes, as DataFusion has it."""
    return '"' + name.replace('"', '""') + '"'
