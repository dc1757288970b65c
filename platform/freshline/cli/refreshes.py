"""`freshline refreshes`: every refresh and decision, the newest first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.declared import find_declared, open_declared, parse_name
from freshline.cli.options import json_option, open_settings, project_option
from freshline.report.table_text import count_text, duration_text, table_text
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.values.result import RefreshResult

HEADERS = ("at", "table", "state", "mode", "strategy", "version", "in", "out", "took", "reason")
RIGHT = (5, 6, 7, 8)
SHOWN = 20


@click.command(epilog="\b\nExample:\n  freshline refreshes enriched_orders --limit 50")
@click.argument("table", required=False)
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=SHOWN, show_default=True, metavar="N", help="At most N records."
)
@click.option("--changes", is_flag=True, help="Omit checks that found nothing new.")
@project_option
@json_option
def command(table: str | None, limit: int, changes: bool, project: Path | None, as_json: bool) -> None:
    """Show past refreshes and decisions of one table or of all, the newest first, with reasons and durations.

    Starts no process and writes nothing.
    """
    settings = open_settings(project)
    records = read_refreshes(settings, table, limit, changes=changes)
    click.echo(json.dumps([record.as_json() for record in records], indent=2) if as_json else refreshes_text(records))


def read_refreshes(settings: Settings, table: str | None, limit: int, *, changes: bool = False) -> list[RefreshResult]:
    """The newest records. Raises RequestError for a table that is not declared and has none."""
    name = None if table is None else parse_name(table)
    records: list[RefreshResult] = []
    if settings.has_control_store:
        # SQLAlchemy is imported when it is used, like all that is heavy.
        from freshline.commit.control_store import ControlStore

        with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
            records = store.refreshes(name, limit, checks=not changes)
    if not records and name is not None:
        find_declared(open_declared(settings, [str(name)]), name)
    return records


def refreshes_text(records: Sequence[RefreshResult]) -> str:
    """The records as a person reads them."""
    if not records:
        return "nothing was refreshed or decided yet"
    return table_text(HEADERS, [refresh_cells(record) for record in records], right=RIGHT)


def refresh_cells(record: RefreshResult) -> list[str]:
    """One line of the table, in the order of HEADERS."""
    return [
        record.at.isoformat(sep=" ", timespec="seconds"),
        str(record.table),
        record.state,
        record.mode or "-",
        record.strategy or "-",
        "-" if record.version is None else str(record.version),
        count_text(record.rows_in),
        count_text(record.rows_out),
        duration_text(record.seconds) if record.seconds else "-",
        record.reason,
    ]
