"""`freshline quarantine`: records that were rejected, and what to do with them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.ask import ask, connect
from freshline.cli.declared import find_declared, parse_name
from freshline.cli.failures import name_beside
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.refresh import show_outcomes
from freshline.cli.terminal import show, terminal_width
from freshline.plan.valid_project import open_valid_project
from freshline.report.table_text import printable, wrapped_lines
from freshline.values.names import TableName
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.report.quarantine import RejectedRecord

SHOWN = 20
SHOW = "show"
# A terminal is shown so many characters of a record.
_MOST_TEXT = 200


class Sources(click.Group):
    """The subcommands, where the name of a source stands for showing its records."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """A line that begins with no subcommand is one of `show`."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "-h"):
            args = [SHOW, *args]
        return super().parse_args(ctx, args)


@click.group(cls=Sources, epilog="\b\nExample:\n  freshline quarantine event")
def command() -> None:
    """Show the rejected records of a source, or decode them again.

    `freshline quarantine SOURCE` is `freshline quarantine show SOURCE`. `freshline sql` reads them too: the table is
    <source>__quarantine.
    """


@command.command(SHOW, epilog="\b\nExample:\n  freshline quarantine event --limit 5")
@click.argument("source")
@click.option(
    "--limit", type=click.IntRange(0), default=SHOWN, show_default=True, metavar="N", help="At most N, 0 for all."
)
@project_option
@json_option
def show_(source: str, limit: int, project: Path | None, as_json: bool) -> None:
    """Show the rejected records of a source, a sink, or a table with a constraint, the newest first.

    Each has its code, the reason, the place that it came from and its bytes, escaped. Starts no process.
    """
    settings = open_settings(project)
    name = _name(source, settings)
    # delta-rs is imported when it is used, like all that is heavy.
    from freshline.commit.warehouse import Warehouse
    from freshline.report.quarantine import read_rejected

    spec = open_valid_project(settings).graph.specs.get(name)
    warehouse = Warehouse(settings.warehouse)
    path = warehouse.quarantine(name) if spec is None else warehouse.rejections(spec)
    found = read_rejected(path, limit + 1 if limit else None)
    shown = found[:limit] if limit else found
    if as_json:
        click.echo(json.dumps([record.as_json() for record in shown], indent=2))
    else:
        show(rejected_text(shown, name, terminal_width()))
    if len(shown) < len(found):
        click.echo(f"There are more records than these {limit}; --limit 0 shows all.", err=True)


def rejected_text(records: Sequence[RejectedRecord], name: TableName, most: int | None = None) -> str:
    """The records as a person reads them, in lines of at most `most`: a line of facts, and the bytes below it."""
    if not records:
        return f"no record of {name} is in quarantine"
    lines = []
    for record in records:
        content = record.content if len(record.content) <= _MOST_TEXT else f"{record.content[:_MOST_TEXT]}..."
        first = printable(f"{record.at:%Y-%m-%d %H:%M:%S}  {record.code}  {record.place_text}")
        # The bytes as they are: a line that is wrapped loses spaces.
        lines += [wrapped_lines(first, most), wrapped_lines(printable(f"  {record.reason}"), most), f"  {content}"]
    return "\n".join(lines)


def _name(text: str, settings: Settings) -> TableName:
    """The source as it is declared. One whose declaration has a mistake is there too. Raises RequestError."""
    name, standing = parse_name(text), open_valid_project(settings)
    name_beside(standing.errors)
    return name if name in standing.left_out else find_declared(standing.graph, name)


@command.command(epilog="\b\nExample:\n  freshline quarantine retry event")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@project_option
@json_option
def retry(sources: Sequence[str], project: Path | None, as_json: bool) -> int:
    """Decode the rejected records of sources again, under the declaration of now, or ask again for rows of a table.

    Those that are rows now go to the log table in one commit. The others stay in quarantine. Of a table, rows whose
    lookups have no answer are looked up again.
    """
    settings = open_settings(project)
    with Progress() as progress:
        client = connect(settings, progress, sources)
        asked = {"tables": list(sources), "retry": True, "upstreams": False}
        return show_outcomes(ask(client, "refresh", progress, **asked), progress, as_json)
