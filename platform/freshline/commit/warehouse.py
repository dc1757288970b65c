"""The places of the tables of a warehouse.

A table `name` is the folder `name` under the warehouse root, `namespace.name` is `namespace/name`. Beside a log
table stand `<name>__quarantine` (what could not be a row) and `<name>__file` (the files that were read); beside a table
with a lookup join `<name>__parked` (the rows that wait for their dimension), beside a sink `<name>__rejected` (the rows
that its system does not take). In the place of a source that is asked by key stands `<name>__answer` (the answers that
it gave). Savepoints are small files below `.freshline`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from freshline.values.names import TableName
from freshline.values.spec import SourceSpec, Spec, TableSpec


@dataclass(frozen=True)
class Warehouse:
    """The root folder of all tables of one environment."""

    root: Path

    def path(self, name: TableName) -> Path:
        """The folder of a table of ours. Names have only letters, digits and underscores, so it stays below the
        root.
        """
        return self.root.joinpath(*name.parts)

    def quarantine(self, name: TableName) -> Path:
        return self.path(TableName(name.namespace, f"{name.name}__quarantine"))

    def rejections(self, spec: Spec) -> Path:
        """The table of what was rejected of a declaration: by a log or a constraint, or by the system of a sink."""
        if isinstance(spec, TableSpec) and spec.sink is not None:
            return self.side(spec.name, "rejected")
        return self.quarantine(spec.name)

    def pending_lookups(self, name: TableName) -> Path:
        return self.path(TableName(name.namespace, f"{name.name}__parked"))

    def answers(self, name: TableName) -> Path:
        return self.path(TableName(name.namespace, f"{name.name}__answer"))

    def files(self, name: TableName) -> Path:
        return self.path(TableName(name.namespace, f"{name.name}__file"))

    def tables(self) -> Iterator[Path]:
        """The folders of all Delta tables that are there, declared or not, those beside tables included."""
        for folder in _folders(self.root):
            if folder.name.startswith("_freshline_"):
                continue  # what freshline keeps there beside tables
            if _is_table(folder):
                yield folder
            else:
                yield from (each for each in _folders(folder) if _is_table(each))

    def side(self, name: TableName, side: str) -> Path:
        """The path of a table beside a table: `quarantine`, `file`, `parked` or `rejected`."""
        return self.path(TableName(name.namespace, f"{name.name}__{side}"))

    @property
    def notes(self) -> Path:
        """The folder of the notes beside the data: savepoints, and a restore under way. No table has its name."""
        return self.root / ".freshline"

    def location(self, spec: Spec) -> Path:
        """The Delta table that queries read for a declaration: ours, or the one that is read in place."""
        if isinstance(spec, SourceSpec) and spec.is_lookup:
            return self.answers(spec.name)
        if isinstance(spec, SourceSpec) and not spec.is_log:
            return Path(spec.connection.table_path)
        return self.path(spec.name)


def _folders(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.is_dir()) if path.is_dir() else []


def _is_table(path: Path) -> bool:
    return (path / "_delta_log").is_dir()
