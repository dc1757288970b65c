"""The columns of a table as Dagster shows them.

A source shows what it declares. A table shows what its Delta log says, and before its first commit the names that
its query yields. Only the newest entry of the log is read: no rows and no JVM.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dagster import TableColumn, TableColumnConstraints, TableConstraints, TableSchema
from deltalake.schema import Field

from freshline.commit.columns import sql_type
from freshline.commit.delta_log import newest_version, open_table
from freshline.declare.spec import SourceSpec, Spec, TableSpec

UNKNOWN_TYPE = "known after the first refresh"


def column_schema(spec: Spec, path: Path, *, version: int | None = None) -> TableSchema | None:
    """The columns of a table or source; None for a table written in Python before its first commit.

    `path` is the folder of its Delta table, which need not exist. Raises SourceError where its log cannot be read.
    """
    if isinstance(spec, SourceSpec):
        return _schema(spec, {column.name: (column.type, True) for column in spec.columns})
    if newest_version(path) is not None:
        fields = open_table(path, version).schema().fields
        return _schema(spec, {field.name: (sql_type(field.type), field.nullable) for field in _shown(spec, fields)})
    if spec.columns is None:
        return None
    return _schema(spec, dict.fromkeys(spec.columns, (UNKNOWN_TYPE, True)))


def _shown(spec: TableSpec, fields: list[Field]) -> list[Field]:
    """Without the columns that freshline keeps for itself beside those of the query."""
    if spec.columns is None:
        return fields
    declared = {name.lower() for name in spec.columns}
    return [field for field in fields if field.name.lower() in declared]


def _schema(spec: Spec, columns: Mapping[str, tuple[str, bool]]) -> TableSchema:
    key = [column.lower() for column in spec.primary_key]
    partition = [column.lower() for column in spec.partitioned_by] if isinstance(spec, TableSpec) else []
    metadata = (
        {column.name: f"METADATA FROM '{column.metadata}'" for column in spec.columns if column.metadata}
        if isinstance(spec, SourceSpec)
        else {}
    )
    return TableSchema(
        columns=[
            TableColumn(
                name=name,
                type=type_,
                description=metadata.get(name),
                constraints=TableColumnConstraints(
                    nullable=nullable,
                    # A log keeps every event: its key is unique only within the horizon of `deduplicate`.
                    unique=isinstance(spec, TableSpec) and key == [name.lower()],
                    other=["partition column"] if name.lower() in partition else [],
                ),
            )
            for name, (type_, nullable) in columns.items()
        ],
        constraints=TableConstraints(other=[f"PRIMARY KEY ({', '.join(spec.primary_key)})"] if key else []),
    )
