"""`freshline backfill`: bring partitions of a table in, one by one, behind everything else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from freshline.cli.ask import ask_on, connect
from freshline.cli.failures import FAILED, line_of
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.refresh import outcome_lines
from freshline.report.table_text import padded, printable


@click.command(epilog="\b\nExample:\n  freshline backfill daily_spend --from 2026-11-01 --to 2026-11-30 --dry-run")
@click.argument("table")
@click.option("--from", "first", metavar="KEY", help="The first partition.  [default: the first of the table]")
@click.option("--to", "last", metavar="KEY", help="The last partition, included.  [default: the newest of the table]")
@click.option("--cascade", is_flag=True, help="Afterwards refresh the tables that read this one.")
@click.option("--again", is_flag=True, help="Replace partitions that are done, too.")
@click.option("--id", "name", metavar="NAME", help="Name of the backfill, which repeats none of its commits.")
@click.option("--dry-run", is_flag=True, help="Show the plan with its reasons, and do nothing.")
@project_option
@json_option
def command(
    table: str,
    first: str | None,
    last: str | None,
    cascade: bool,
    again: bool,
    name: str | None,
    dry_run: bool,
    project: Path | None,
    as_json: bool,
) -> int:
    """Replace the partitions of a table that are missing or stale, the oldest first, each in its own commit.

    Committed partitions stay. After a stop or a failure, the same command continues where it was. Exit code 1 if a
    partition failed.
    """
    settings = open_settings(project)
    arguments = {
        "tables": [table],
        "ranges": [[None, first, last]],
        "cascade": cascade,
        "again": again,
        "dry_run": dry_run,
        **({} if name is None else {"id": name, "resume": True}),
    }
    with Progress() as progress:
        events = ask_on(lambda: connect(settings, progress, [table]), "backfill", progress, **arguments)
        return show_backfill(events, progress, as_json, dry_run=dry_run)


def show_backfill(
    events: Iterable[Mapping[str, Any]], progress: Progress, as_json: bool, *, dry_run: bool = False
) -> int:
    """Print the plan, each partition as it is done, and the result; return the exit code."""
    found = _Found()
    for event in events:
        lines = found.take(event, dry_run=dry_run)
        for line in () if as_json else lines:
            progress.print(line)
    result = found.result
    if as_json:
        shown = {key: result[key] for key in ("done", "failed", "left", "stale")}
        click.echo(json.dumps({"plan": list(found.plan), "outcomes": found.outcomes, **shown}, indent=2))
    elif not dry_run:
        for line in result_lines(result):
            progress.print(line)
    return FAILED if result["failed"] else 0


class _Found:
    """The content of a backfill's events so far."""

    def __init__(self) -> None:
        self.plan: Sequence[Mapping[str, Any]] = []
        self.outcomes: list[Mapping[str, Any]] = []
        self.result: Mapping[str, Any] = {"done": [], "failed": [], "left": [], "stale": []}

    def take(self, event: Mapping[str, Any], *, dry_run: bool) -> list[str]:
        """Note an event; the lines that a person sees of it."""
        if event["type"] == "plan" and not self.plan:
            # A backfill that goes on in the next engine sends a plan again; the first one is what was asked for.
            self.plan = event["chunks"]
            return plan_lines(self.plan, whole=dry_run)
        if event["type"] == "outcome":
            self.outcomes.append(event["outcome"])
            return chunk_lines(event["outcome"])
        if event["type"] == "backfill":
            self.result = event
        return []


def plan_lines(chunks: Sequence[Mapping[str, Any]], *, whole: bool) -> list[str]:
    """A line for each table and partition of the plan; unless it is `whole`, what is left alone is only counted."""
    shown = [chunk for chunk in chunks if whole or chunk["action"] != "skip"]
    lines = []
    for chunk in shown:
        cells = (padded(chunk["table"], 24), padded(chunk["partition"] or "", 22), padded(chunk["action"], 8))
        # Partitions are values of data, and must not be able to move the cursor.
        lines.append(printable("  ".join((*cells, chunk["why"])).rstrip()))
    done = len(chunks) - len(shown)
    if done:
        lines.append(f"{done} partitions are done and stay as they are")
    return lines or ["nothing to do"]


def chunk_lines(outcome: Mapping[str, Any]) -> list[str]:
    """The lines of an outcome with its partition in front."""
    first, *more = outcome_lines(outcome)
    partition = outcome.get("partition")
    return [first if partition is None else f"{printable(padded(partition, 22))}  {first}", *more]


def result_lines(result: Mapping[str, Any]) -> list[str]:
    """One sentence about all of it, and a line for each failure."""
    text = ", ".join(f"{len(result[key])} {key}" for key in ("done", "failed", "left"))
    stale = result["stale"]
    if stale:
        text += f"; {len(stale)} of them stale, the declaration changed meanwhile"
    failed = [(printable(each["partition"] or each["table"]), line_of(each["error"])) for each in result["failed"]]
    return [text, *(f"  {name}: {line}" for name, line in failed)]
