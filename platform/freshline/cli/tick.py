"""`freshline tick`: one evaluation of what is due, for cron, for another scheduler, or for a test."""

from __future__ import annotations

from pathlib import Path

import click

from freshline.cli.ask import ask, connect
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.refresh import show_outcomes


@click.command(epilog="\b\nExample:\n  freshline tick --json")
@project_option
@json_option
def command(project: Path | None, as_json: bool) -> int:
    """Check once which tables are due by their freshness, and refresh these.

    A second tick at the same moment does nothing. Exit code 1 if a refresh failed. A table whose declaration has a
    mistake costs the others nothing.
    """
    settings = open_settings(project)
    with Progress() as progress:
        return show_outcomes(ask(connect(settings, progress, ()), "tick", progress), progress, as_json)
