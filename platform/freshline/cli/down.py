"""`freshline down`: end what runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.supervisor import end_all


@click.command(epilog="\b\nExample:\n  freshline down")
@project_option
@json_option
def command(project: Path | None, as_json: bool) -> None:
    """End all processes that `up` and `engine start` started in this environment.

    A refresh that is committing finishes first. It is not a mistake if nothing runs.
    """
    settings = open_settings(project)
    with Progress() as progress:
        progress("ending")
        ended = end_all(settings, progress)
    if as_json:
        click.echo(json.dumps({"ended": ended}))
    else:
        click.echo("ended" if ended else "nothing was running")
