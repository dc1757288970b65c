"""`freshline consumers`: who has yet to read changes of a table."""

from __future__ import annotations

import json
from pathlib import Path

import click

from freshline.cli.options import json_option, open_settings, project_option, written_out


@click.group(epilog="\b\nExample:\n  freshline consumers list")
def command() -> None:
    """Retain the changes of a table for a consumer that has yet to read them."""


@command.command("list", epilog="\b\nExample:\n  freshline consumers list --json")
@project_option
@json_option
def list_(project: Path | None, as_json: bool) -> None:
    """List the registered consumers with their positions, including expired ones."""
    # Readers of Delta logs are imported when they are used.
    from freshline.engine.reading import consumers, utc_now
    from freshline.report.table_text import table_text

    found, now = consumers(project=open_settings(project)), utc_now()
    if as_json:
        click.echo(json.dumps([{**one.as_json(), "expired": one.is_expired(now)} for one in found], indent=2))
    elif not found:
        click.echo("there is no consumer")
    else:
        rows = [
            [
                one.name,
                one.table,
                str(one.version),
                one.moved_at.isoformat(timespec="seconds"),
                f"{one.expires_at.isoformat(timespec='seconds')}{' (expired)' if one.is_expired(now) else ''}",
            ]
            for one in found
        ]
        click.echo(table_text(["consumer", "table", "version", "moved at", "expires at"], rows, right=[2]))


@command.command(epilog="\b\nExample:\n  freshline consumers register billing enriched_orders --expires-after 14d")
@click.argument("name")
@click.argument("table")
@click.option("--version", type=click.IntRange(0), metavar="N", help="Version that it has read.  [default: the newest]")
@click.option("--expires-after", default="30d", metavar="DURATION", help="How long it may stay away.  [default: 30d]")
@project_option
@json_option
def register(
    name: str, table: str, version: int | None, expires_after: str, project: Path | None, as_json: bool
) -> None:
    """Retain the changes after a version of a table for a consumer, until the consumer expires."""
    from freshline.engine.reading import register_consumer

    consumer = register_consumer(
        name, table, version=version, expires_after=written_out(expires_after), project=open_settings(project)
    )
    expires = consumer.expires_at.isoformat(timespec="seconds")
    sentence = f"consumer {name} has read {consumer.table} up to version {consumer.version}; it expires at {expires}"
    click.echo(json.dumps(consumer.as_json(), indent=2) if as_json else sentence)


@command.command(epilog="\b\nExample:\n  freshline consumers drop billing")
@click.argument("name")
@project_option
@json_option
def drop(name: str, project: Path | None, as_json: bool) -> None:
    """Stop retaining changes for a consumer."""
    from freshline.engine.reading import drop_consumer

    drop_consumer(name, project=open_settings(project))
    click.echo(json.dumps({"dropped": name}) if as_json else f"consumer {name} is dropped")
