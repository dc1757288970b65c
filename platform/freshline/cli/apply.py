"""`freshline apply`: take up what changed in declarations, from where somebody says."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from freshline.cli.ask import ask, connect
from freshline.cli.declared import open_declared
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.refresh import exit_code, outcome_lines, print_each
from freshline.declare.graph import Graph
from freshline.engine.client import EngineClient
from freshline.sql.managing import read_start
from freshline.values.names import TableName
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.plan.definition import DefinitionChange


@click.command(epilog="\b\nExample:\n  freshline apply daily_spend --from beginning")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option(
    "--from",
    "start",
    metavar="START",
    help="Start of the changed declarations: beginning, now, or a date such as 2026-11-01.",
)
@click.option("--force", is_flag=True, help="With --from beginning: also remove columns or change keys.")
@project_option
@json_option
def command(tables: Sequence[str], start: str | None, force: bool, project: Path | None, as_json: bool) -> int:
    """Apply the declarations that changed since the newest refresh of their table: all, or those of the named tables.

    New columns need no start. A breaking change needs one, and a destructive change is refused unless you force it. All
    changes are checked first. `freshline plan` shows them without applying them.
    """
    settings = open_settings(project)
    graph = open_declared(settings, tables)
    changes = changed_tables(settings, graph, tables)
    from freshline.plan.definition import may_start_at_date, start_arguments

    start = read_start(start)
    asked = {
        name: start_arguments(
            name, change, start, force=force, by_date=may_start_at_date(graph.table(name)), in_sql=False
        )
        for name, change in changes.items()
    }
    outcomes: list[dict[str, Any]] = []
    with Progress() as progress:
        if not as_json:
            for name, change in changes.items():
                progress.print(f"{name}: {change.kind}: {change.text}")
            if not changes:
                progress.print("no declaration has changed")
        if asked:
            outcomes = take_up(
                connect(settings, progress, [str(name) for name in asked]), asked, progress, quiet=as_json
            )
    if as_json:
        found = [
            {"table": str(name), "change": str(change.kind), "about": list(change.about)}
            for name, change in changes.items()
        ]
        click.echo(json.dumps({"changes": found, "outcomes": outcomes}, indent=2))
    return exit_code(outcomes)


def changed_tables(settings: Settings, graph: Graph, tables: Sequence[str]) -> dict[TableName, DefinitionChange]:
    """The changes since their newest refresh, of the named tables or of all, in the order of refreshing."""
    # delta-rs is imported when it is used, like all that is heavy.
    from freshline.commit.definitions import change_of
    from freshline.commit.warehouse import Warehouse
    from freshline.freshness.alter import find_table
    from freshline.plan.definition import ChangeClass

    named = [find_table(graph, text) for text in tables]
    found = {}
    for spec in graph.tables:
        if not named or spec.name in named:
            change = change_of(Warehouse(settings.warehouse), spec)
            if change is not None and change.kind is not ChangeClass.UNCHANGED:
                found[spec.name] = change
    return found


def take_up(
    engine: EngineClient, asked: Mapping[TableName, Mapping[str, Any]], progress: Progress, *, quiet: bool
) -> list[dict[str, Any]]:
    """Refresh the tables as it is asked of each, one after the other, and print each outcome unless `quiet`."""
    outcomes: list[dict[str, Any]] = []
    for name, arguments in asked.items():
        events = ask(engine, "refresh", progress, tables=[str(name)], **arguments)
        outcomes += print_each(events, "outcome", outcome_lines, progress, quiet=quiet)
    return outcomes
