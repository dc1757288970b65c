"""One sync of one catalog: compare what stands in it with the tables that there are, and carry out the difference."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from freshline.errors import CatalogError, FreshlineError, SettingsError
from freshline.values.catalog_settings import declared_registrar, shown_table
from freshline.values.extension import calling, given
from freshline.values.names import TableName
from freshline.values.registrar import (
    Catalog,
    CatalogChange,
    CatalogChangeKind,
    CatalogEntry,
    CatalogHost,
    FoundEntry,
    Registrar,
    apply_changes,
    plan_catalog,
)
from freshline.values.secret import resolve_reference
from freshline.values.settings import CatalogSettings, Settings


@dataclass(frozen=True)
class CatalogSync:
    """The changes that one catalog was found to need, and `applied`, whether they were carried out.

    `tables` has each table that is to be there, with its place. `error` is set where the catalog could not be compared
    or brought there; the changes are then unknown.
    """

    catalog: str
    type: str
    address: str = ""
    tables: tuple[tuple[TableName, str], ...] = ()
    changes: tuple[CatalogChange, ...] = ()
    applied: bool = False
    error: FreshlineError | None = None

    @property
    def conflicts(self) -> tuple[CatalogChange, ...]:
        """The tables whose places are somebody else's."""
        return tuple(change for change in self.changes if change.kind is CatalogChangeKind.CONFLICT)

    @property
    def needed(self) -> tuple[CatalogChange, ...]:
        """The changes that are carried out, or would be."""
        return tuple(change for change in self.changes if change.kind is not CatalogChangeKind.CONFLICT)

    @property
    def ok(self) -> bool:
        """Whether every table is found in the catalog now, or would be."""
        return self.error is None and not self.conflicts

    def as_json(self) -> dict[str, Any]:
        """The object that `freshline catalog sync --json` prints."""
        return {
            "catalog": self.catalog,
            "type": self.type,
            "address": self.address,
            "tables": len(self.tables),
            "applied": self.applied,
            "changes": [change.as_json() for change in self.changes],
            "error": None if self.error is None else self.error.as_json(),
        }


def open_registrar(catalog: CatalogSettings, settings: Settings) -> Registrar:
    """The registrar of a catalog. Raises CatalogError, with the place of its settings."""
    try:
        return declared_registrar(catalog, str(settings.root / "pyproject.toml"))
    except SettingsError as error:
        raise CatalogError(error.message, where=error.where, refused=True) from error


def host_of(settings: Settings, environ: Mapping[str, str] = os.environ) -> CatalogHost:
    """The project of a catalog, as its registrar sees it."""
    return CatalogHost(settings.root, resolve_in(settings.root, environ))


def resolve_in(root: Path, environ: Mapping[str, str]) -> Callable[[str], str]:
    """A function that resolves references of a project; it raises CatalogError for one to something not there."""

    def resolve(text: str) -> str:
        try:
            return resolve_reference(text, root, environ)
        except ValueError as error:
            raise CatalogError(str(error), refused=True) from error

    return resolve


def sync_catalog(
    catalog: CatalogSettings,
    settings: Settings,
    wanted: Sequence[CatalogEntry],
    warehouse_id: str,
    *,
    dry: bool = False,
    may_drop: bool = True,
    environ: Mapping[str, str] = os.environ,
) -> CatalogSync:
    """Bring a catalog there, or say with `dry` what it needs. A failure is in the answer and never raised."""
    answer = CatalogSync(catalog.name, catalog.type)
    try:
        registrar = open_registrar(catalog, settings)
        tables = tuple((entry.name, registrar.place(entry.name)) for entry in wanted)
        answer = replace(answer, address=registrar.address, tables=tables)
        host = host_of(settings, environ)
        changes = bring_catalog(registrar, host, wanted, warehouse_id, dry=dry, may_drop=may_drop)
    except FreshlineError as error:
        return replace(answer, error=_placed(error, catalog))
    return replace(answer, changes=changes, applied=not dry)


def bring_catalog(
    registrar: Registrar,
    host: CatalogHost,
    wanted: Sequence[CatalogEntry],
    warehouse_id: str,
    *,
    dry: bool = False,
    may_drop: bool = True,
) -> tuple[CatalogChange, ...]:
    """Open a catalog and carry out the changes that it needs, or only find them with `dry`. Raises CatalogError."""
    places = {registrar.place(entry.name) for entry in wanted}
    # A generator of another package runs only while it is gone through, so a guard around its call is not enough.
    with calling(type(registrar), "open"), registrar.open(host) as opened:
        given(opened, Catalog, type(registrar), "open")
        with calling(type(opened), "find"):
            found = [given(each, FoundEntry, type(opened), "find") for each in opened.find(warehouse_id, places)]
        changes = plan_catalog(registrar, wanted, found, warehouse_id, may_drop=may_drop)
        if not dry:
            apply_changes(opened, changes)
    return changes


def _placed(error: FreshlineError, catalog: CatalogSettings) -> FreshlineError:
    """The error with the place of the catalog's settings, where it names none."""
    if isinstance(error, CatalogError) and error.where is None:
        return CatalogError(error.message, where=shown_table(catalog.name), refused=error.refused)
    return error


def conflict_error(catalog: str, conflicts: Sequence[CatalogChange]) -> CatalogError:
    """The error for tables that are not entered because their places are somebody else's."""
    named = ", ".join(f"{change.entry.name} ({change.place}: {change.reason})" for change in conflicts if change.entry)
    return CatalogError(
        f"{len(conflicts)} tables are not entered: {named}. Remove or rename the entry that is in the way, or enter "
        "the tables elsewhere by the settings of the catalog.",
        where=shown_table(catalog),
        refused=True,
    )
