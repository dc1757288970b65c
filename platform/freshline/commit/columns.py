"""The columns of tables: from declarations, or from the logs of tables that only Spark knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from deltalake.schema import ArrayType, DataType, MapType, PrimitiveType, StructType

from freshline.commit.delta_log import describe_table, exists
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.values.names import RESERVED_COLUMN, TableName
from freshline.values.spec import TableSpec

# Delta's names of types that Spark SQL spells otherwise; the rest differ in letter case only.
SQL_TYPES: Mapping[str, str] = {
    "long": "BIGINT",
    "integer": "INT",
    "short": "SMALLINT",
    "byte": "TINYINT",
}

# Where Delta keeps that a column is of a collation, or CHAR: readers that ignore it take its type for a plain text.
COMPARED = frozenset({"__COLLATIONS", "__CHAR_VARCHAR_TYPE_STRING"})


def input_columns(graph: Graph, warehouse: Warehouse, spec: TableSpec) -> dict[TableName, tuple[str, ...]]:
    """The names of the columns of every input whose columns are known without Spark."""
    found = {}
    for name in spec.reads:
        known = graph.columns(name)
        path = warehouse.location(graph.spec(name))
        if known is None and exists(path):
            names = (field.name for field in describe_table(path).schema.fields)
            known = tuple(column for column in names if not column.lower().startswith(RESERVED_COLUMN))
        if known is not None:
            found[name] = known
    return found


def input_types(graph: Graph, warehouse: Warehouse, spec: TableSpec) -> dict[TableName, dict[str, str]]:
    """The types of the columns of every input that is there, the columns in lower case; without texts that compare in
    a way of their own: of a collation, or padded."""
    found = {}
    for name in spec.reads:
        path = warehouse.location(graph.spec(name))
        if exists(path):
            fields = describe_table(path).schema.fields
            found[name] = {
                field.name.lower(): sql_type(field.type) for field in fields if not COMPARED & field.metadata.keys()
            }
    return found


def column_types(path: Path) -> dict[str, str]:
    """The columns of the newest version of a Delta table with their types, without those of freshline's own."""
    fields = describe_table(path).schema.fields
    return {field.name: sql_type(field.type) for field in fields if not field.name.lower().startswith(RESERVED_COLUMN)}


def sql_type(type_: DataType) -> str:
    """Spark SQL's spelling of a Delta type, in upper case as in declarations.

    >>> sql_type(ArrayType(PrimitiveType("long"), contains_null=True))
    'ARRAY<BIGINT>'
    """
    match type_:
        case PrimitiveType():
            return SQL_TYPES.get(type_.type, type_.type.upper())
        case ArrayType():
            return f"ARRAY<{sql_type(type_.element_type)}>"
        case MapType():
            return f"MAP<{sql_type(type_.key_type)}, {sql_type(type_.value_type)}>"
        case StructType():
            return f"STRUCT<{', '.join(f'{field.name}: {sql_type(field.type)}' for field in type_.fields)}>"
        case _:
            return str(type_)
