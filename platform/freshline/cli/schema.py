"""`freshline schema`: JSON schemas with which an editor completes and checks settings and tables in YAML."""

from __future__ import annotations

import json

import click

from freshline.cli.options import json_option
from freshline.declare.schema import settings_schema, yaml_schema

SCHEMAS = {"settings": settings_schema, "yaml": yaml_schema}


@click.command(epilog="\b\nExample:\n  freshline schema settings > freshline-settings.json")
@click.argument("kind", metavar="settings|yaml", type=click.Choice(tuple(SCHEMAS)))
@json_option
def command(kind: str, as_json: bool) -> None:
    """Print a JSON schema (draft 2020-12) for editors: of pyproject.toml, or of a defs.yaml with tables.

    With --json it is one line.
    """
    click.echo(json.dumps(SCHEMAS[kind](), indent=None if as_json else 2))
