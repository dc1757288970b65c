"""`freshline verify`: recompute tables from their inputs and compare with what is stored."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from freshline.cli.ask import ask, connect
from freshline.cli.failures import FAILED
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.refresh import parse_partition, print_each
from freshline.errors import RequestError
from freshline.report.table_text import count_text, duration_text, padded, printable


@click.command(epilog="\b\nExample:\n  freshline verify daily_spend")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option(
    "--partition",
    "partitions",
    metavar="COLUMN=VALUE",
    multiple=True,
    help="Compare only this partition of the table. May be repeated. "
    "A partition by several columns is written with commas: a=1,b=2.",
)
@click.option("--sinks", is_flag=True, help="Compare all sinks with their tables, and nothing else.")
@project_option
@json_option
def command(tables: Sequence[str], partitions: Sequence[str], sinks: bool, project: Path | None, as_json: bool) -> int:
    """Compute tables again at the positions of their newest refresh, and compare the rows.

    The rows of a sink are read from its system and compared with its table. Rows of refreshes whose inputs are no
    longer retained count as unverified, never as equal. Exit code 1 unless all tables are equal.
    """
    if sinks and tables:
        raise RequestError("--sinks compares all sinks. Name some, or give --sinks.")
    settings = open_settings(project)
    if partitions and len(tables) != 1:
        raise RequestError("--partition names partitions of one table: name that table, and no other.")
    named = [parse_partition(text) for text in partitions]
    with Progress() as progress:
        client = connect(settings, progress, tables or None)
        only = {"sinks": True} if sinks else {}
        events = ask(client, "verify", progress, tables=list(tables), partitions=named, **only)
        return show_verifications(events, progress, as_json)


def show_verifications(events: Iterable[Mapping[str, Any]], progress: Progress, as_json: bool) -> int:
    """Print each verification as it comes (or all as one list in JSON); the exit code says whether all are equal."""
    verifications = print_each(events, "verification", verification_lines, progress, quiet=as_json)
    if as_json:
        click.echo(json.dumps(verifications, indent=2))
    return 0 if all(verification["equal"] for verification in verifications) else FAILED


def verification_lines(verification: Mapping[str, Any]) -> list[str]:
    """One line for the table, and one below it for each sample of a row that differs."""
    found = [
        f"{count_text(verification[side])} {side}"
        for side in ("missing", "extra", "unverified")
        if verification.get(side)
    ]
    found += [str(verification[key]) for key in ("error", "detail") if verification.get(key)]
    cells = (
        padded(verification["table"], 24),
        padded(_verdict(verification), 10),
        padded(duration_text(verification.get("seconds")), 7, right=True),
        printable(", ".join(found)),
    )
    samples = verification.get("samples") or ()
    return ["  ".join(cells).rstrip(), *(f"    {printable(str(sample))}" for sample in samples)]


def _verdict(verification: Mapping[str, Any]) -> str:
    if verification["equal"]:
        return "equal"
    if verification["missing"] or verification["extra"]:
        return "different"
    return "failed" if verification.get("error") else "unverified"
