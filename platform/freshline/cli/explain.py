"""`freshline explain`: how a table would be refreshed after each kind of change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.declared import open_declared
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.terminal import show, terminal_width
from freshline.errors import RequestError
from freshline.report.table_text import wrapped_lines
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from freshline.declare.graph import Graph
    from freshline.freshness.cost import MeasuredCosts
    from freshline.values.spec import TableSpec


@click.command(epilog="\b\nExample:\n  freshline explain daily_spend --freshness")
@click.argument("tables", nargs=-1, metavar="[TABLE]...")
@click.option(
    "--freshness", is_flag=True, help="Show whether the freshness is feasible, its critical path and its cost."
)
@project_option
@json_option
def command(tables: Sequence[str], freshness: bool, project: Path | None, as_json: bool) -> None:
    """Show the strategy of a refresh after each kind of change, and why it is not another one.

    Without a name, all tables are shown. Starts no process and writes nothing.
    """
    settings = open_settings(project)
    found = explain_promises(settings, tables) if freshness else explain(settings, tables)
    if as_json:
        click.echo(json.dumps([item[1] for item in found], indent=2))
    else:
        said = "\n\n".join(item[0] for item in found) or "no table is declared"
        show(wrapped_lines(said, terminal_width()))


def explain(settings: Settings, tables: Sequence[str]) -> list[tuple[str, object]]:
    """The explanation of each table as a text and as a JSON object. Raises RequestError for what is no table."""
    from freshline.values.rules import nearest

    graph = open_declared(settings, tables)
    specs = {str(spec.name).lower(): spec for spec in graph.tables}
    chosen: list[TableSpec] = []
    for text in tables or [str(spec.name) for spec in graph.tables]:
        spec = specs.get(text.lower())
        if spec is None:
            is_source = any(str(source.name).lower() == text.lower() for source in graph.sources)
            what = "is a source; tables are explained" if is_source else "is not declared."
            raise RequestError(f"{text} {what}{'' if is_source else nearest(text, specs)}", where=text)
        chosen.append(spec)
    # delta-rs is imported when it is used, like all that is heavy.
    from freshline.commit.warehouse import Warehouse
    from freshline.report.explain import explanations

    found = explanations(graph, Warehouse(settings.warehouse), chosen)
    return [(str(item), item.as_json()) for item in found]


def explain_promises(settings: Settings, tables: Sequence[str]) -> list[tuple[str, object]]:
    """EXPLAIN FRESHNESS of each table or source, as a text and as a JSON object.

    Raises RequestError for a name that is not declared.
    """
    from freshline.commit.control_store import ControlStore
    from freshline.freshness.cost import MeasuredCosts
    from freshline.freshness.intentions import apply_overrides
    from freshline.report.explain import read_measured

    graph = open_declared(settings, tables)
    measured = MeasuredCosts({}, {})
    with ExitStack() as stack:
        if settings.has_control_store:
            store = ControlStore.open(settings.control_store, settings.umask)
            stack.callback(store.close)
            graph = apply_overrides(graph, store.intentions.read().at(datetime.now(UTC)))
            measured = read_measured(graph, store, settings.parallel_refreshes)
    return _explained(graph, measured, tables)


def _explained(graph: Graph, measured: MeasuredCosts, tables: Sequence[str]) -> list[tuple[str, object]]:
    from freshline.freshness.cost import explain_freshness
    from freshline.values.rules import nearest

    known = {str(name).lower(): name for name in graph.order}
    chosen = []
    for text in tables or [str(spec.name) for spec in graph.tables]:
        if text.lower() not in known:
            raise RequestError(f"{text} is not declared.{nearest(text, known)}", where=text)
        chosen.append(known[text.lower()])
    found = [explain_freshness(graph, name, measured) for name in chosen]
    return [(str(item), item.as_json()) for item in found]
