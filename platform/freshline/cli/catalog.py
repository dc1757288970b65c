"""`freshline catalog`: the catalogs in which others find the tables by name."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.failures import FAILED
from freshline.cli.options import json_option, open_settings, project_option
from freshline.errors import SettingsError
from freshline.report.table_text import printable, table_text
from freshline.values.registrar import CatalogChangeKind
from freshline.values.rules import nearest
from freshline.values.settings import CatalogSettings, Settings, as_private

if TYPE_CHECKING:
    from freshline.catalogs.sync import CatalogSync

# How a table stands in a catalog, by the change that it needs.
_STATES = {
    CatalogChangeKind.CREATE: "missing",
    CatalogChangeKind.CHANGE: "differs",
    CatalogChangeKind.RENAME: "under another name",
    CatalogChangeKind.CONFLICT: "somebody else's",
}


@click.group(epilog="\b\nExample:\n  freshline catalog sync --dry-run")
def command() -> None:
    """Enter all tables in the declared catalogs, so that others find them by name."""


@command.command(epilog="\b\nExample:\n  freshline catalog sync --dry-run")
@click.argument("names", nargs=-1, metavar="[CATALOG]...")
@click.option("--dry-run", "dry", is_flag=True, help="Show the changes, and make none.")
@project_option
@json_option
def sync(names: tuple[str, ...], dry: bool, project: Path | None, as_json: bool) -> int:
    """Bring the catalogs, or those that are named, to the state of the tables.

    Entries that are not freshline's are never touched. Exit code 1 if a table is not found in a catalog afterwards.
    """
    settings = open_settings(project)
    done = list(_syncs(settings, names, dry=dry))
    if not dry:
        _forget_trouble(settings, [each.catalog for each in done if each.ok])
    if as_json:
        click.echo(json.dumps([each.as_json() for each in done], indent=2))
        return 0 if all(each.ok for each in done) else FAILED
    for each in done:
        click.echo(f"{each.catalog} ({printable(each.type)}, {printable(each.address)}): {_summary(each, dry=dry)}")
        for change in each.changes:
            click.echo(f"  {printable(str(change))}")
    return 0 if all(each.ok for each in done) else FAILED


@command.command(epilog="\b\nExample:\n  freshline catalog show")
@project_option
@json_option
def show(project: Path | None, as_json: bool) -> int:
    """Show each table's name in every catalog, and whether it is found there.

    Exit code 1 if a catalog cannot be asked.
    """
    settings = open_settings(project)
    done = list(_syncs(settings, (), dry=True))
    rows = [(each.catalog, *row) for each in done for row in _rows(each)]
    if as_json:
        shown = [
            {
                **each.as_json(),
                "entries": [dict(zip(("table", "place", "state"), row, strict=True)) for row in _rows(each)],
            }
            for each in done
        ]
        click.echo(json.dumps(shown, indent=2))
    else:
        if rows:
            click.echo(table_text(["catalog", "table", "name in the catalog", "state"], [list(row) for row in rows]))
        for each in done:
            if each.error is not None:
                click.echo(f"{each.catalog}: {printable(str(each.error))}")
    return 0 if all(each.error is None for each in done) else FAILED


def examine_catalogs(settings: Settings) -> list[tuple[str, bool]]:
    """A sentence about each declared catalog, and whether it is a problem. Nothing is changed."""
    found = []
    for each in _syncs(settings, (), dry=True) if settings.catalogs else ():
        problem = each.error
        if problem is None and each.conflicts:
            from freshline.catalogs.sync import conflict_error

            problem = conflict_error(each.catalog, each.conflicts)
        if problem is not None:
            found.append((str(problem), True))
        else:
            found.append((f"{each.catalog}: {_summary(each, dry=True)}", False))
    return found


def _summary(done: CatalogSync, *, dry: bool) -> str:
    if done.error is not None:
        return printable(str(done.error))
    if not done.needed:
        return f"{len(done.tables)} tables, nothing to change"
    return f"{len(done.tables)} tables, {len(done.needed)} changes{' needed' if dry else ''}"


def _rows(done: CatalogSync) -> Iterator[tuple[str, str, str]]:
    """Each table with its name in the catalog and its state, and the entries that have no table any more."""
    # Without an answer of the catalog nothing is known of its entries.
    default = "unknown" if done.error is not None else "entered"
    states = {change.entry.name: _STATES[change.kind] for change in done.changes if change.entry is not None}
    for name, place in done.tables:
        yield str(name), place, states.get(name, default)
    for change in done.changes:
        if change.kind is CatalogChangeKind.DROP:
            yield "", change.place, "dropped with the next sync"


def _syncs(settings: Settings, names: Sequence[str], *, dry: bool) -> Iterator[CatalogSync]:
    """A sync of each chosen catalog, one after the other. Raises SettingsError for a catalog that is not declared."""
    chosen = _chosen(settings, names)
    # Readers of Delta logs are imported when they are used.
    from freshline.catalogs.sync import sync_catalog
    from freshline.catalogs.wanted import WantedEntries, provide_warehouse_id, read_warehouse_id
    from freshline.commit.warehouse import Warehouse
    from freshline.plan.valid_project import log_mistake, open_valid_project

    standing = open_valid_project(settings)
    for error in standing.errors:
        log_mistake(error)
    warehouse = Warehouse(settings.warehouse)
    with as_private(settings.umask):
        # A warehouse without an id has no entries yet.
        own = (read_warehouse_id(warehouse) or "") if dry else provide_warehouse_id(warehouse)
        entries = WantedEntries(warehouse, own)
        wanted = entries.read(standing.graph)
        for unreadable in entries.unreadable.values():
            click.echo(printable(str(unreadable)), err=True)
        whole = not standing.mistaken and not entries.unreadable
        for catalog in chosen:
            yield sync_catalog(catalog, settings, wanted, own, dry=dry, may_drop=whole, environ=os.environ)


def _forget_trouble(settings: Settings, names: Sequence[str]) -> None:
    """The catalogs are where the tables are, so no alert of an engine that has ended stays."""
    if not names or not settings.has_control_store:
        return
    from freshline.commit.control_store import ControlStore
    from freshline.freshness.record import CATALOG_HEARTBEAT

    with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
        for name in names:
            store.heartbeats.forget(f"{CATALOG_HEARTBEAT}{name}")


def _chosen(settings: Settings, names: Sequence[str]) -> tuple[CatalogSettings, ...]:
    known = {catalog.name: catalog for catalog in settings.catalogs}
    if not known:
        raise SettingsError(
            "no catalog is declared. Declare one as [tool.freshline.catalogs.NAME] with its `type`.",
            where=str(settings.root / "pyproject.toml"),
        )
    for name in names:
        if name not in known:
            raise SettingsError(
                f"there is no catalog {name}.{nearest(name, known)} There are {', '.join(known)}.",
                where=str(settings.root / "pyproject.toml"),
            )
    return tuple(known[name] for name in dict.fromkeys(names)) or settings.catalogs
