"""`freshline report`: the freshness board as one file."""

from __future__ import annotations

import json
import os
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.options import json_option, open_settings, project_option, written_out
from freshline.cli.progress import Progress
from freshline.cli.status import running_tables, untold_alerts
from freshline.errors import RequestError
from freshline.plan.valid_project import open_valid_project
from freshline.report.table_text import bytes_text, count_text
from freshline.values.freshness import parse_seconds

if TYPE_CHECKING:
    from freshline.report.board.board import Board
    from freshline.values.settings import Settings

# A page has some tens of kilobytes; a file of many thousand would open slowly.
MOST_PAGES = 100
_KEPT = timedelta(days=30)


@click.command(epilog="\b\nExample:\n  freshline report board.html --since 1d")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--since", default="7d", show_default=True, metavar="DURATION", help="Show this much of the past, at most 30d."
)
@project_option
@json_option
def command(file: Path, since: str, project: Path | None, as_json: bool) -> None:
    """Write the freshness board to one HTML file that loads nothing: all tables, the graph, and a page for each table.

    An existing file is replaced. Starts no process.
    """
    settings = open_settings(project)
    shown = duration_of(since)
    with Progress() as progress:
        progress("reading the tables and their past")
        board = read_board(settings, shown, datetime.now(UTC))
        # Templates are imported when they are used, like all that is heavy.
        from freshline.report.board.page import render_file

        text = render_file(board)
    size = write_file(file, text)
    if as_json:
        told = {"file": str(file.absolute()), "bytes": size, "tables": len(board.rows), "pages": len(board.pages)}
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"wrote {file}: {count_text(len(board.rows))} tables and sources, {bytes_text(size)}")
    if len(board.pages) < len(board.rows):
        click.echo(f"{count_text(len(board.pages))} of them have a page: those that are not fresh, then the first")


def duration_of(text: str) -> timedelta:
    """The time that is shown. Raises RequestError for one that cannot be read, and for more than is kept."""
    try:
        found = timedelta(seconds=parse_seconds(written_out(text), "duration for --since"))
    except ValueError as error:
        raise RequestError(str(error)) from error
    if found > _KEPT:
        raise RequestError("--since: the past is kept for 30 days. Ask for 30d or less.")
    return found


def read_board(settings: Settings, shown: timedelta, now: datetime) -> Board:
    """The board of a project, with the pages of at most MOST_PAGES tables."""
    # SQLAlchemy and delta-rs are imported when they are used, like all that is heavy.
    from freshline.commit.control_store import ControlStore
    from freshline.report.board.board import worst_first
    from freshline.report.board.read import BoardReader

    standing = open_valid_project(settings)
    mistakes = [str(error) for each in standing.mistaken for error in each.errors]
    with closing(ControlStore.open(settings.control_store, settings.umask)) as store:
        reader = BoardReader(
            settings,
            store,
            running=lambda: running_tables(settings),
            untold=lambda moment: [error.message for error in untold_alerts(settings, store, moment)],
        )
        return reader.read(
            standing.graph, now, now - shown, lambda rows: worst_first(rows, MOST_PAGES), mistakes=mistakes
        )


def write_file(file: Path, text: str) -> int:
    """Write it whole or not at all; its bytes. Raises RequestError where that is not possible."""
    content = text.encode()
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        try:
            temporary.write_bytes(content)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise RequestError(f"{file} cannot be written: {error.strerror or error}.") from error
    return len(content)
