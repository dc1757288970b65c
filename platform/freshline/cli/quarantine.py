"""`freshline quarantine`: what to do with records that were rejected."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from freshline.cli.ask import ask, connect
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.refresh import show_outcomes


@click.group(epilog="\b\nExample:\n  freshline quarantine retry event")
def command() -> None:
    """Decode rejected records again. `freshline sql` reads them: the table is <source>__quarantine."""


@command.command(epilog="\b\nExample:\n  freshline quarantine retry event")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@project_option
@json_option
def retry(sources: Sequence[str], project: Path | None, as_json: bool) -> int:
    """Decode the rejected records of sources again, under the declaration of now.

    Those that are rows now go to the log table in one commit. The others stay in quarantine.
    """
    settings = open_settings(project)
    with Progress() as progress:
        client = connect(settings, progress, sources)
        asked = {"tables": list(sources), "retry": True, "upstreams": False}
        return show_outcomes(ask(client, "refresh", progress, **asked), progress, as_json)
