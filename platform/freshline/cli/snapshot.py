"""`freshline snapshot`: the newest versions of all tables that agree."""

from __future__ import annotations

import json
from pathlib import Path

import click

from freshline.cli.declared import open_declared
from freshline.cli.options import json_option, open_settings, project_option


@click.command(epilog="\b\nExample:\n  freshline snapshot --json")
@project_option
@json_option
def command(project: Path | None, as_json: bool) -> None:
    """Show the newest versions of all tables that contain the same part of their sources.

    `freshline sql --snapshot` runs a query over them.
    """
    # Readers of Delta logs are imported when they are used.
    from freshline.commit.snapshot import newest_snapshot
    from freshline.commit.warehouse import Warehouse
    from freshline.report.table_text import table_text

    settings = open_settings(project)
    found = newest_snapshot(open_declared(settings), Warehouse(settings.warehouse))
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
        return
    rows = [
        [str(name), str(position.version), "-" if position.seq is None else str(position.seq)]
        for name, position in found.positions.items()
    ]
    click.echo(table_text(["table", "version", "batch"], rows, right=[1, 2]) if rows else "no table has a version yet")
