"""A project whose tables are there, written by delta-rs: catalogs need neither Spark nor an engine."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from freshline.catalogs.sync import CatalogSync, sync_catalog
from freshline.catalogs.wanted import WantedEntries, provide_warehouse_id
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.declare.project import read_project, read_settings
from freshline.values.names import TableName
from freshline.values.registrar import CatalogEntry
from freshline.values.settings import Settings
from tests.declared_project import Project

ORDERS = {"id": [1, 2], "customer": ["ada", "alan"], "amount": [1.5, 2.5]}
# A name with all that Delta takes in the name of a column.
ODD = "x\"'DROP.UP`y"


class CatalogProject(Project):
    """A project with sources and tables, and catalogs in its settings."""

    def read_settings(self) -> Settings:
        return read_settings(self.root, self.environ)

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(self.read_settings().warehouse)

    @property
    def warehouse_id(self) -> str:
        return provide_warehouse_id(self.warehouse)

    def source(self, name: str, columns: str = "id BIGINT, customer STRING, amount DOUBLE", more: str = "") -> None:
        self.declare(
            f"{name.replace('.', '/')}.sql",
            f"CREATE SOURCE {name} ({columns}) {more} "
            f"WITH ('connector' = 'files', 'format' = 'json', 'path' = 'landing/{name}');",
        )

    def undeclare(self, name: str) -> None:
        (self.root / "assets" / f"{name.replace('.', '/')}.sql").unlink()

    def fill(self, name: str, rows: Mapping[str, Any] | pa.Table | None = None, **options: Any) -> Path:
        """The Delta table of a name, with these columns."""
        path = self.warehouse.path(TableName.parse(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        table = rows if isinstance(rows, pa.Table) else pa.table(dict(ORDERS if rows is None else rows))
        deltalake.write_deltalake(str(path), table, mode="overwrite", schema_mode="overwrite", **options)
        return path

    def add(self, name: str, rows: Mapping[str, Any] | None = None, **declared: Any) -> None:
        """A source with its table."""
        self.source(name, **declared)
        self.fill(name, rows)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.warehouse.path(TableName.parse(name)))

    def graph(self) -> Graph:
        return read_project(self.read_settings(), self.environ)

    def wanted(self) -> tuple[CatalogEntry, ...]:
        return WantedEntries(self.warehouse, self.warehouse_id).read(self.graph())

    def sync(self, catalog: str = "it", **options: Any) -> CatalogSync:
        settings = self.read_settings()
        (chosen,) = (each for each in settings.catalogs if each.name == catalog)
        return sync_catalog(chosen, settings, self.wanted(), self.warehouse_id, **options)

    def changes(self, catalog: str = "it", **options: Any) -> list[str]:
        """The changes of one sync; raises its error."""
        done = self.sync(catalog, **options)
        if done.error is not None:
            raise done.error
        return [str(change) for change in done.changes]
