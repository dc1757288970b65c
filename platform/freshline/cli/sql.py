"""`freshline sql`: query tables by name and manage them, one statement or a shell."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from freshline.cli.ask import ask, connect
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.shell import converse, one_statement, read_pipe, read_terminal
from freshline.engine.client import EngineClient
from freshline.report.rows_text import rows_json, rows_text
from freshline.values.settings import Settings

# Statements that are not for Spark begin with one of these; what they mean is read when one does.
MANAGING = ("ALTER", "CREATE", "DROP", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "VERIFY", "RESTORE")
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
@click.option("--snapshot", is_flag=True, help="Query the newest versions that agree with each other.")
@project_option
@json_option
def command(statement: str | None, limit: int | None, snapshot: bool, project: Path | None, as_json: bool) -> int:
    """Query tables and sources by name, in Spark SQL, or manage them with ALTER, CREATE, DROP, SHOW, DESCRIBE, EXPLAIN.

    Without a statement it is a shell. It reads statements up to a semicolon, from the terminal or from a pipe. \\q ends
    it.
    """
    settings = open_settings(project)
    if limit is None:
        limit = SHOWN_ROWS if sys.stdout.isatty() and not as_json else 0
    if statement is not None:
        return _answer(settings, None, one_statement(statement), limit, as_json, snapshot)
    if not sys.stdin.isatty():
        return max((_answer(settings, None, text, limit, as_json, snapshot) for text in read_pipe()), default=0)
    with Progress() as progress:
        client = connect(settings, progress, ())
    statements = read_terminal(settings.state / "sql_history")
    converse(statements, lambda text: _answer(settings, client, text, limit, as_json, snapshot))
    return 0


def _answer(
    settings: Settings, client: EngineClient | None, statement: str, limit: int, as_json: bool, snapshot: bool
) -> int:
    if any(word in statement.upper() for word in MANAGING):
        from freshline.sql.managing import read_managing

        managing = read_managing(statement)
        if managing is not None:
            from freshline.cli.managing import answer_managing

            return answer_managing(settings, client, managing, limit, as_json)
    columns: list[tuple[str, str]] = []
    rows: list[str] = []
    with Progress() as progress:
        client = client or connect(settings, progress, ())
        # One row more than is shown, to know whether there are more.
        asked = limit + 1 if limit else ALL_ROWS
        more = {"snapshot": True} if snapshot else {}
        for event in ask(client, "sql", progress, statement=statement, limit=asked, **more):
            if event["type"] == "rows":
                columns = [(name, kind) for name, kind in event["columns"]]
                rows.extend(event["rows"])
    shown = rows[:limit] if limit else rows
    click.echo(rows_json(shown) if as_json else rows_text(columns, shown))
    if len(shown) < len(rows):
        click.echo(f"There are more rows than these {limit}; --limit 0 prints all.", err=True)
    return 0
