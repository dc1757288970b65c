"""`freshline refresh`: bring tables up to date, upstreams first."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from freshline.cli.ask import ask, connect
from freshline.cli.failures import FAILED, line_of
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.errors import PartitionError, RequestError
from freshline.report.table_text import count_text, duration_text, padded, printable

NEXT_PAIR = re.compile(r",(?=\s*[A-Za-z_][A-Za-z0-9_]*\s*=)")
FINE = ("SUCCEEDED", "SKIPPED")
# The reason of what somebody decided to leave alone; what is blocked by a failure has another.
SUSPENDED = ", suspended)"


@click.command(epilog="\b\nExample:\n  freshline refresh daily_spend --partition ds=2026-11-01")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="Replace exactly this partition of the table. May be repeated. "
    "A partition by several columns is written with commas: a=1,b=2.",
)
@click.option("--full", is_flag=True, help="Compute the named tables again from all data of their inputs.")
@click.option("--only", is_flag=True, help="Do not refresh the inputs of the tables first.")
@project_option
@json_option
def command(
    tables: Sequence[str], partitions: Sequence[str], full: bool, only: bool, project: Path | None, as_json: bool
) -> int:
    """Bring tables up to date: all of them, or the named ones and their inputs, upstreams first.

    One line per table shows the strategy and the reason. Exit code 1 if a refresh failed.
    """
    settings = open_settings(project)
    arguments = refresh_arguments(tables, partitions, full, only)
    with Progress() as progress:
        client = connect(settings, progress, tables or None)
        return show_outcomes(ask(client, "refresh", progress, **arguments), progress, as_json)


def refresh_arguments(tables: Sequence[str], partitions: Sequence[str], full: bool, only: bool) -> dict[str, Any]:
    """The request as the engine takes it. Raises RequestError and PartitionError."""
    if partitions and len(tables) != 1:
        raise RequestError("--partition names partitions of one table: name that table, and no other.")
    if partitions and full:
        raise RequestError("--full replaces all partitions: leave out --partition or --full.")
    if full and not tables:
        raise RequestError("--full computes tables anew: name them.")
    return {
        "tables": list(tables),
        "full": full,
        "partitions": [parse_partition(text) for text in partitions],
        # Exactly the named partitions are replaced, at positions that the table already has.
        "upstreams": not (partitions or only),
    }


def parse_partition(text: str) -> list[list[str]]:
    """Pairs of column and value. Raises PartitionError for anything else.

    >>> parse_partition("ds=2026-11-01,region=a,b")
    [['ds', '2026-11-01'], ['region', 'a,b']]
    """
    pairs = []
    for piece in NEXT_PAIR.split(text):
        column, equals, value = piece.partition("=")
        if not equals or not column.strip():
            raise PartitionError(f"{text!r} is not a partition. Write COLUMN=VALUE, for example ds=2026-11-01.")
        pairs.append([column.strip(), value.strip()])
    return pairs


def show_outcomes(events: Iterable[Mapping[str, Any]], progress: Progress, as_json: bool) -> int:
    """Print each outcome as it comes (or all as one list in JSON); the exit code says whether all went well."""
    outcomes = print_each(events, "outcome", outcome_lines, progress, quiet=as_json)
    if as_json:
        click.echo(json.dumps(outcomes, indent=2))
    elif not outcomes:
        progress.print("nothing to do")
    return exit_code(outcomes)


def print_each(
    events: Iterable[Mapping[str, Any]],
    kind: str,
    lines_of: Callable[[Mapping[str, Any]], Iterable[str]],
    progress: Progress,
    *,
    quiet: bool,
) -> list[dict[str, Any]]:
    """The answers of one kind among the events; each is printed as it comes, unless `quiet`."""
    found = []
    for event in events:
        if event["type"] == kind:
            found.append(dict(event[kind]))
            for line in () if quiet else lines_of(event[kind]):
                progress.print(line)
    return found


def exit_code(outcomes: Iterable[Mapping[str, Any]]) -> int:
    """0 where all went well."""
    return 0 if all(_is_fine(outcome) for outcome in outcomes) else FAILED


def _is_fine(outcome: Mapping[str, Any]) -> bool:
    blocked_on_purpose = outcome["state"] == "BLOCKED" and str(outcome["reason"]).endswith(SUSPENDED)
    return (outcome["state"] in FINE or blocked_on_purpose) and not outcome.get("problems")


def outcome_lines(outcome: Mapping[str, Any]) -> list[str]:
    """One line for the outcome, and one below it for its error and for each problem."""
    what = outcome["strategy"] if outcome["state"] == "SUCCEEDED" and outcome["strategy"] else outcome["state"].lower()
    version = "no version" if outcome["version"] is None else f"version {outcome['version']}"
    rows = f"{count_text(outcome['rows_in'])} in, {count_text(outcome['rows_out'])} out"
    if outcome.get("rejected"):
        rows += f", {count_text(outcome['rejected'])} rejected"
    cells = (
        padded(outcome["table"], 24),
        padded(what, 10),
        padded(rows, 24),
        padded(version, 11),
        padded(duration_text(outcome["seconds"]), 7, right=True),
        # The reason of a failure is its error, which stands below.
        "" if outcome.get("error") else outcome["reason"] or "",
    )
    errors = [outcome.get("error"), *(outcome.get("problems") or ())]
    return [printable("  ".join(cells).rstrip()), *(f"    {line_of(error)}" for error in errors if error)]
