"""`freshline engine`: the one process that owns Spark and does all writes of a warehouse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from freshline.cli.ask import running_engine
from freshline.cli.failures import FAILED
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.engine.client import EngineClient
from freshline.plan.project import open_project


@click.group(epilog="\b\nExample:\n  freshline engine start")
def command() -> None:
    """Start, stop or look at the engine, the one process that writes the tables.

    Commands that need an engine start one by themselves; that one serves requests only and ends when it is idle.
    """


@command.command(epilog="\b\nExample:\n  freshline engine start")
@project_option
@json_option
def start(project: Path | None, as_json: bool) -> None:
    """Start the engine with its loops: it keeps the tables by their modes until it is stopped."""
    settings = open_settings(project)
    open_project(settings)
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
    """Stop the engine; a refresh that is being committed is finished first. None running is no mistake."""
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
    """Say whether an engine runs, and which. Exit code 1 if none does."""
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
