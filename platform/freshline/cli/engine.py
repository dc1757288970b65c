"""`freshline engine`: the one process that owns Spark and does all writes of a warehouse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from freshline.cli.ask import running_engine
from freshline.cli.declared import open_declared
from freshline.cli.failures import FAILED
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.engine.client import EngineClient


@click.group(epilog="\b\nExample:\n  freshline engine start")
def command() -> None:
    """Start, stop or show the engine, the one process that writes the tables.

    Commands that need an engine start one by themselves. Such an engine only serves requests, and ends when it is idle.
    """


@command.command(epilog="\b\nExample:\n  freshline engine start")
@project_option
@json_option
def start(project: Path | None, as_json: bool) -> None:
    """Start the engine with its loops. It refreshes the tables by their modes until you stop it."""
    settings = open_settings(project)
    # The mistakes of some tables are named, and the others are kept.
    open_declared(settings)
    with Progress() as progress:
        running = running_engine(settings)
        already = running is not None and bool(running.health().get("loops"))
        engine = EngineClient.connect(settings, start=True, loops=True, progress=progress)
        health = engine.health()
    _show(health, "runs already" if already else "started", as_json)


@command.command(epilog="\b\nExample:\n  freshline engine stop")
@project_option
@json_option
def stop(project: Path | None, as_json: bool) -> None:
    """Stop the engine. A refresh that is committing finishes first. It is not a mistake if none runs."""
    settings = open_settings(project)
    with Progress() as progress:
        progress("stopping the engine")
        running = running_engine(settings)
        if running is not None:
            running.stop()
    if as_json:
        click.echo(json.dumps({"running": False, "stopped": running is not None}))
    else:
        click.echo("no engine was running" if running is None else "stopped")


@command.command(epilog="\b\nExample:\n  freshline engine status --json")
@project_option
@json_option
def status(project: Path | None, as_json: bool) -> int:
    """Show whether an engine runs, and its process. Exit code 1 if none runs."""
    running = running_engine(open_settings(project))
    if running is None:
        click.echo(json.dumps({"running": False}) if as_json else "no engine is running")
        return FAILED
    _show(running.health(), "running", as_json)
    return 0


def _show(health: dict[str, Any], state: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"running": True, **health}))
        return
    loops = "keeps the tables by their modes" if health.get("loops") else "serves requests only"
    click.echo(f"{state}: process {health['pid']}, {loops}, warehouse {health['warehouse']}")
