"""`freshline sql`: query tables by name, one statement or a shell."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import click

from freshline.cli.ask import ask, connect
from freshline.cli.explain import explain
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.shell import converse, one_statement, read_pipe, read_terminal
from freshline.declare.settings import Settings
from freshline.engine.client import EngineClient
from freshline.report.rows_text import rows_json, rows_text

EXPLAIN = re.compile(r"EXPLAIN\s+MATERIALIZED\s+TABLE\s+([\w`.]+)", re.IGNORECASE)
SHOWN_ROWS = 1000
ALL_ROWS = 2**31 - 2  # the most that Spark can be asked for


@click.command(epilog='\b\nExample:\n  freshline sql "SELECT * FROM spend ORDER BY customer"')
@click.argument("statement", required=False)
@click.option(
    "--limit",
    type=click.IntRange(0, 2**31 - 4),
    metavar="N",
    help=f"Print at most N rows, 0 for all.  [default: {SHOWN_ROWS} on a terminal, else all]",
)
@project_option
@json_option
def command(statement: str | None, limit: int | None, project: Path | None, as_json: bool) -> None:
    """Query tables and sources by name, in Spark SQL.

    Without a statement: a shell that reads statements up to a semicolon, from the terminal or from a pipe; \\q ends it.
    """
    settings = open_settings(project)
    if limit is None:
        limit = SHOWN_ROWS if sys.stdout.isatty() and not as_json else 0
    if statement is not None:
        _answer(settings, None, one_statement(statement), limit, as_json)
        return
    with Progress() as progress:
        client = connect(settings, progress)
    terminal = sys.stdin.isatty()
    statements = read_terminal(settings.state / "sql_history") if terminal else read_pipe()
    if terminal:
        converse(statements, lambda text: _answer(settings, client, text, limit, as_json))
    else:
        for text in statements:
            _answer(settings, client, text, limit, as_json)


def _answer(settings: Settings, client: EngineClient | None, statement: str, limit: int, as_json: bool) -> None:
    explained = EXPLAIN.fullmatch(statement.strip())
    if explained is not None:
        # It is told from declarations alone: no engine is started for it.
        text, value = explain(settings, [explained.group(1).replace("`", "")])[0]
        click.echo(json.dumps([value], indent=2) if as_json else text)
        return
    columns: list[tuple[str, str]] = []
    rows: list[str] = []
    with Progress() as progress:
        client = client or connect(settings, progress)
        # One row more than is shown tells whether there are more.
        asked = limit + 1 if limit else ALL_ROWS
        for event in ask(client, "sql", progress, statement=statement, limit=asked):
            if event["type"] == "rows":
                columns = [(name, kind) for name, kind in event["columns"]]
                rows.extend(event["rows"])
    shown = rows[:limit] if limit else rows
    click.echo(rows_json(shown) if as_json else rows_text(columns, shown))
    if len(shown) < len(rows):
        click.echo(f"There are more rows than these {limit}; --limit 0 prints all.", err=True)
