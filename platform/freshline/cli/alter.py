"""`freshline alter`: another freshness than the declared one, for a while or until it is reset."""

from __future__ import annotations

import json
from pathlib import Path

import click

from freshline.cli.declared import named_mistakes
from freshline.cli.options import json_option, open_settings, project_option, written_out
from freshline.errors import RequestError


@click.command(epilog="\b\nExample:\n  freshline alter enriched_orders --freshness 5s --for 48h --cascade")
@click.argument("table")
@click.option("--freshness", metavar="DURATION", help="How far the table may lag from now on: 5s, 10min, 6h, 1d.")
@click.option("--for", "lasts", metavar="DURATION", help="Duration of the override.  [default: until it is reset]")
@click.option("--cascade", is_flag=True, help="Also change upstream tables, where that is needed.")
@click.option("--reset", is_flag=True, help="Return to the declared freshness.")
@project_option
@json_option
def command(
    table: str,
    freshness: str | None,
    lasts: str | None,
    cascade: bool,
    reset: bool,
    project: Path | None,
    as_json: bool,
) -> None:
    """Override the freshness in the file of a table. Its mode follows.

    The control store keeps the override, so it survives restarts. A running engine applies it within a second.
    """
    if reset == (freshness is not None):
        raise RequestError("state either --freshness, or --reset for the declared one.", where=table)
    if reset and lasts is not None:
        raise RequestError("--reset has no end: leave out --for.", where=table)
    settings = open_settings(project)
    # SQLAlchemy is imported when it is used, like all that is heavy.
    from freshline.manage.freshness import reset_freshness, set_freshness

    with named_mistakes():
        if freshness is None:
            decision = reset_freshness(table, cascade=cascade, project=settings)
        else:
            decision = set_freshness(
                table,
                written_out(freshness),
                for_=None if lasts is None else written_out(lasts),
                cascade=cascade,
                project=settings,
            )
    click.echo(
        json.dumps(decision.as_json(), indent=2) if as_json else "\n".join([decision.sentence, *decision.warnings])
    )
