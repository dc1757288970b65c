"""`freshline suspend`: leave a table as it is."""

from __future__ import annotations

import json
from pathlib import Path

import click

from freshline.cli.declared import named_mistakes
from freshline.cli.options import json_option, open_settings, project_option, written_out


@click.command(epilog='\b\nExample:\n  freshline suspend customer --for 2h --because "wrong prices"')
@click.argument("table")
@click.option("--for", "lasts", metavar="DURATION", help="Duration: 30min, 2h, 1d.  [default: until it is resumed]")
@click.option("--because", metavar="TEXT", help="Reason, which status and alerts show.")
@project_option
@json_option
def command(table: str, lasts: str | None, because: str | None, project: Path | None, as_json: bool) -> None:
    """Stop the refreshes of a table and of its downstream tables.

    A running refresh finishes. A manual refresh of the table still works. Suspending it again changes nothing.
    """
    settings = open_settings(project)
    # SQLAlchemy is imported when it is used, like all that is heavy.
    from freshline.manage.suspension import suspend

    with named_mistakes():
        decision = suspend(table, for_=None if lasts is None else written_out(lasts), because=because, project=settings)
    click.echo(json.dumps(decision.as_json(), indent=2) if as_json else decision.sentence)
