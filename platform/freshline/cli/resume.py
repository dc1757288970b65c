"""`freshline resume`: keep a suspended table fresh again."""

from __future__ import annotations

import json
from pathlib import Path

import click

from freshline.cli.declared import named_mistakes
from freshline.cli.options import json_option, open_settings, project_option


@click.command(epilog="\b\nExample:\n  freshline resume customer")
@click.argument("table")
@project_option
@json_option
def command(table: str, project: Path | None, as_json: bool) -> None:
    """Refresh a suspended table again, from where it stopped, and the downstream tables that only it blocked.

    Resuming a table that is not suspended changes nothing.
    """
    settings = open_settings(project)
    # SQLAlchemy is imported when it is used, like all that is heavy.
    from freshline.manage.suspension import resume

    with named_mistakes():
        decision = resume(table, project=settings)
    click.echo(json.dumps(decision.as_json(), indent=2) if as_json else decision.sentence)
