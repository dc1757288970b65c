"""The entries that a project's tables are to have in a catalog: from the declarations, and the logs of the tables.

Only tables and logs that are there have one: a table is entered with its first commit. Nothing is written here but the
id of the warehouse, once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from uuid import uuid4

from deltalake.schema import ArrayType, DataType, MapType, StructType

from freshline.commit.columns import sql_type
from freshline.commit.delta_log import exists, open_table
from freshline.commit.notes import ENDING, read_note, write_note
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.errors import FreshlineError
from freshline.query.resolved import find_lineage
from freshline.report.descriptions import describe_columns
from freshline.values.names import PART, TableName, late_name, quoted
from freshline.values.registrar import CatalogColumn, CatalogEntry
from freshline.values.spec import TableSpec

_ID = "id"


def read_warehouse_id(warehouse: Warehouse) -> str | None:
    """The id by which a warehouse knows its entries, None before the first sync. Raises StorageError."""
    note = read_note(warehouse.notes / f"warehouse{ENDING}")
    return None if note is None else str(note.get(_ID))


def provide_warehouse_id(warehouse: Warehouse) -> str:
    """The id by which a warehouse knows its entries, made where there is none. Raises StorageError."""
    # Of two that make one at the same time the first wins, and both have its.
    if read_warehouse_id(warehouse) is None:
        write_note(warehouse.notes / f"warehouse{ENDING}", {_ID: uuid4().hex}, new=True)
    return str(read_warehouse_id(warehouse))


@dataclass(frozen=True)
class _Stored:
    """A table as its log has it; the comments are those in the log."""

    table_id: str
    columns: tuple[CatalogColumn, ...]


class WantedEntries:
    """Reads the entries that the tables of a warehouse are to have, each table's log when it may have changed."""

    def __init__(self, warehouse: Warehouse, warehouse_id: str) -> None:
        self._warehouse = warehouse
        self.warehouse_id = warehouse_id
        self._stored: dict[TableName, _Stored | None] = {}
        self._graph: Graph | None = None
        self._comments: Mapping[TableName, Mapping[str, str]] = {}
        self._made: dict[TableName, tuple[_Stored, CatalogEntry]] = {}
        # Tables whose logs cannot be read: their entries stay as they are.
        self.unreadable: dict[TableName, FreshlineError] = {}

    def read(self, graph: Graph, changed: Collection[TableName] | None = None) -> tuple[CatalogEntry, ...]:
        """The entries of all tables that are there, in the order of the graph.

        Only the logs of `changed` tables and of those not read yet are read, of all where it is None. A table whose log
        cannot be read keeps the entry that it had here, and is in `unreadable`.
        """
        # The rows of a sink are elsewhere: its own table is empty.
        names = [name for name in graph.kept if not graph.is_sink(name)]
        for name in names:
            if changed is None or self._stored.get(name) is None or _is_written_with(graph, name, changed):
                self._read(name)
        if graph is not self._graph:
            self._graph, self._comments, self._made = graph, self._describe(graph), {}
        return tuple(
            self._entry(graph, name, stored) for name in names if (stored := self._stored.get(name)) is not None
        )

    def _read(self, name: TableName) -> None:
        path = self._warehouse.path(name)
        try:
            self._stored[name] = None
            if exists(path):
                table = open_table(path)
                fields = table.schema().fields
                columns = tuple(
                    CatalogColumn(field.name, _type_text(field.type), field.metadata.get("comment")) for field in fields
                )
                self._stored[name] = _Stored(str(table.metadata().id), columns)
            self.unreadable.pop(name, None)
        except FreshlineError as error:
            self.unreadable[name] = error

    def _describe(self, graph: Graph) -> Mapping[TableName, Mapping[str, str]]:
        """The comments that sources declare, at the columns that carry them on."""
        described = {name for name in graph.order if not isinstance(graph.spec(name), TableSpec)}
        if not any(column.comment for name in described for column in graph.source(name).columns):
            return {}
        columns = {
            name: tuple(column.name for column in stored.columns)
            for name, stored in self._stored.items()
            if stored is not None
        }
        lineages = {
            spec.name: find_lineage(spec, {read: columns[read] for read in spec.reads if read in columns})
            for spec in graph.tables
        }
        return describe_columns(graph, lineages)

    def _entry(self, graph: Graph, name: TableName, stored: _Stored) -> CatalogEntry:
        known = self._made.get(name)
        if known is None or known[0] is not stored:
            known = self._made[name] = (stored, self._make(graph, name, stored))
        return known[1]

    def _make(self, graph: Graph, name: TableName, stored: _Stored) -> CatalogEntry:
        own = self._comments.get(name, {})
        columns = tuple(
            CatalogColumn(column.name, column.type, own.get(column.name.lower()) or column.comment)
            for column in stored.columns
        )
        spec = graph.spec(name)
        path = str(self._warehouse.path(spec.name))
        return CatalogEntry(spec.name, path, stored.table_id, self.warehouse_id, columns, spec.comment)


def _is_written_with(graph: Graph, name: TableName, changed: Collection[TableName]) -> bool:
    """Whether a refresh of one of these tables writes a table: it is that table, or stands beside it."""
    spec = graph.spec(name)
    beside = spec.side_output_of if isinstance(spec, TableSpec) else None
    return name in changed or beside in changed or any(name == late_name(each) for each in changed)


def _type_text(kind: DataType) -> str:
    """A type in the spelling of declarations, with names of fields quoted where they need it.

    >>> from deltalake.schema import Field, PrimitiveType
    >>> _type_text(StructType([Field("a b", PrimitiveType("long")), Field("c", PrimitiveType("string"))]))
    'STRUCT<`a b`: BIGINT, c: STRING>'
    """
    match kind:
        case ArrayType():
            return f"ARRAY<{_type_text(kind.element_type)}>"
        case MapType():
            return f"MAP<{_type_text(kind.key_type)}, {_type_text(kind.value_type)}>"
        case StructType():
            fields = (f"{_shown(field.name)}: {_type_text(field.type)}" for field in kind.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return sql_type(kind)


def _shown(name: str) -> str:
    return name if PART.match(name) else quoted(name)
