"""`freshline savepoint`: keep the state of all tables under a name, and bring it back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from freshline.cli.ask import ask, connect
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.values.settings import Settings


@click.group(epilog="\b\nExample:\n  freshline savepoint create before_the_sale")
def command() -> None:
    """Keep the state of all tables and log tables under a name, with their positions, and restore it."""


@command.command(epilog="\b\nExample:\n  freshline savepoint create before_the_sale")
@click.argument("name")
@click.argument("tables", metavar="[TABLE]...", nargs=-1)
@project_option
@json_option
def create(name: str, tables: tuple[str, ...], project: Path | None, as_json: bool) -> None:
    """Keep the state of all tables, or of these and their upstreams. Refreshes continue."""
    _act(project, as_json, action="create", name=name, tables=list(tables))


@command.command(epilog="\b\nExample:\n  freshline savepoint restore before_the_sale")
@click.argument("name")
@project_option
@json_option
def restore(name: str, project: Path | None, as_json: bool) -> None:
    """Restore the tables of a savepoint.

    A restore waits up to one minute for running refreshes. Files that arrived since are read again. The savepoint
    stays.
    """
    _act(project, as_json, action="restore", name=name)


@command.command(epilog="\b\nExample:\n  freshline savepoint drop before_the_sale")
@click.argument("name")
@project_option
@json_option
def drop(name: str, project: Path | None, as_json: bool) -> None:
    """Remove a savepoint, so that its versions may be cleaned up."""
    _act(project, as_json, action="drop", name=name)


@command.command("list", epilog="\b\nExample:\n  freshline savepoint list --json")
@project_option
@json_option
def list_(project: Path | None, as_json: bool) -> None:
    """List the savepoints, the oldest first."""
    found = read_savepoints(open_settings(project))
    click.echo(json.dumps(found, indent=2) if as_json else savepoints_text(found))


def _act(project: Path | None, as_json: bool, **arguments: Any) -> None:
    settings = open_settings(project)
    with Progress() as progress:
        (done,) = ask(connect(settings, progress), "savepoint", progress, **arguments)
    value = done["savepoint"]
    click.echo(json.dumps(value, indent=2) if as_json else savepoint_text(value))


def read_savepoints(settings: Settings) -> list[dict[str, Any]]:
    """The savepoints of a project's warehouse, as JSON objects."""
    # Readers of Delta logs are imported when they are used.
    from freshline.engine.savepoints import savepoints

    return [savepoint.as_json() for savepoint in savepoints(project=settings)]


def savepoint_text(value: dict[str, Any]) -> str:
    """The result of CREATE, RESTORE or DROP, for people."""
    match value["action"]:
        case "create":
            return f"savepoint {value['name']} keeps {_tables(len(value['tables']))}"
        case "drop":
            return f"savepoint {value['name']} is dropped; its versions may be cleaned up"
        case _:
            lines = [f"{_tables(len(value['restored']))} as of savepoint {value['savepoint']} ({value['created_at']})"]
            lines += [f"  {name}: now version {version}" for name, version in value["restored"].items()]
            if value["unchanged"]:
                lines.append(f"unchanged: {', '.join(value['unchanged'])}")
            if value["behind"]:
                lines.append(f"not in the savepoint, their next refresh follows: {', '.join(value['behind'])}")
            if value["redeclared"]:
                lines.append(f"declared otherwise than then: {', '.join(value['redeclared'])}")
            return "\n".join(lines)


def savepoints_text(savepoints: Sequence[dict[str, Any]]) -> str:
    """The savepoints as a table for people."""
    if not savepoints:
        return "there is no savepoint"
    from freshline.report.table_text import table_text

    rows = [
        [one["name"], one["created_at"], ", ".join(table["table"] for table in one["tables"])] for one in savepoints
    ]
    return table_text(["savepoint", "made at", "tables"], rows)


def _tables(count: int) -> str:
    return "one table" if count == 1 else f"{count} tables"
