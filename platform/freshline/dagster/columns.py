"""The columns of a table as Dagster shows them.

A source shows what it declares. A table shows what its Delta log says, and before its first commit the names that
its query yields. Only the newest entry of the log is read: no rows and no JVM. Opening a log takes milliseconds, which
a thousand tables would feel at every load, so what it said is kept by its newest commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dagster import TableColumn, TableColumnConstraints, TableConstraints, TableSchema

from freshline.commit.columns import sql_type
from freshline.commit.delta_log import exists, newest_commit, open_table
from freshline.declare.cache import DeclarationCache
from freshline.errors import SourceError
from freshline.values.settings import Settings
from freshline.values.spec import SourceSpec, Spec, TableSpec

UNKNOWN_TYPE = "known after the first refresh"
# Changes with what is kept of a log.
FORMAT = "1"

# A column's type, and whether it may be NULL.
Columns = Mapping[str, tuple[str, bool]]


class KnownColumns:
    """The columns of Delta tables as the last load found them; one that has another newest commit is opened again."""

    def __init__(self, settings: Settings) -> None:
        self._cache: DeclarationCache[Columns] = DeclarationCache(settings.state / "cache" / "columns", Columns)

    def read(self, path: Path) -> Columns | None:
        """The columns of the newest version, None where there is no table. Raises SourceError."""
        newest = newest_commit(path)
        if newest is None:
            return None
        try:
            stat = newest.stat()
        except OSError as error:
            raise SourceError(f"the log of the table cannot be read: {error.strerror}.", where=str(newest)) from error
        # The file too: a table that was dropped and made again may have the same version.
        key = self._cache.key(FORMAT, str(newest), str(stat.st_mtime_ns), str(stat.st_size))
        columns = self._cache.get(key)
        if columns is None:
            columns = read_columns(path)
            self._cache.put(key, columns)
        return columns

    def save(self) -> None:
        self._cache.save()


def read_columns(path: Path, version: int | None = None) -> Columns:
    """The columns in the log of a Delta table. Raises SourceError where it cannot be read."""
    fields = open_table(path, version).schema().fields
    return {field.name: (sql_type(field.type), field.nullable) for field in fields}


def column_schema(
    spec: Spec,
    path: Path,
    *,
    version: int | None = None,
    known: KnownColumns | None = None,
    descriptions: Mapping[str, str] | None = None,
) -> TableSchema | None:
    """The columns of a table or source; None for a table written in Python before its first commit.

    `path` is the folder of its Delta table, which need not exist. `descriptions` are those of its columns, by the names
    in lower case. Raises SourceError where its log cannot be read.
    """
    texts = descriptions or {}
    if isinstance(spec, SourceSpec):
        return _schema(spec, texts, {column.name: (column.type, True) for column in spec.columns})
    columns = known.read(path) if known is not None else read_columns(path, version) if exists(path) else None
    if columns is not None:
        return _schema(spec, texts, _shown(spec, columns))
    if spec.columns is None:
        return None
    return _schema(spec, texts, dict.fromkeys(spec.columns, (UNKNOWN_TYPE, True)))


def _shown(spec: TableSpec, columns: Columns) -> Columns:
    """Without the columns that freshline keeps for itself beside those of the query."""
    if spec.columns is None:
        return columns
    declared = {name.lower() for name in spec.columns}
    return {name: column for name, column in columns.items() if name.lower() in declared}


def _schema(spec: Spec, descriptions: Mapping[str, str], columns: Columns) -> TableSchema:
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
                description=descriptions.get(name.lower()) or metadata.get(name),
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
