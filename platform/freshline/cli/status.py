"""`freshline status`: how fresh every table is."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from freshline.cli.ask import running_engine
from freshline.cli.declared import open_declared
from freshline.cli.failures import line_of, name_beside
from freshline.cli.options import json_option, open_settings, project_option
from freshline.cli.progress import Progress
from freshline.cli.terminal import show, terminal_width
from freshline.commit.control_reading import ControlReader, open_for_a_look
from freshline.commit.warehouse import Warehouse
from freshline.declare.graph import Graph
from freshline.engine.watch_health import read_watch_problems
from freshline.errors import DeliveryError, EngineError
from freshline.report.intention_text import intention_lines
from freshline.report.table_text import (
    count_text,
    duration_text,
    freshness_text,
    kept_columns,
    printable,
    table_text,
    width,
    wrapped_lines,
)
from freshline.values.names import TableName
from freshline.values.result import State
from freshline.values.settings import Settings

if TYPE_CHECKING:
    from rich.console import RenderableType

    from freshline.report.status import TableStatus

LATE = "LATE"
WATCH_SECONDS = 2.0
HEADERS = (
    "table",
    "kind",
    "mode",
    "freshness",
    "lag",
    "state",
    "rows",
    "quarantined",
    "version",
    "last",
    "took",
    "ago",
)
RIGHT = (3, 4, 6, 7, 8, 10, 11)
# The columns that a narrow terminal omits, the first one first. Table, lag, state and the last strategy stay.
OMIT = (8, 10, 1, 7, 2, 11, 6, 3)


@click.command(epilog="\b\nExample:\n  freshline status --json")
@click.option("--watch", is_flag=True, help="Look every two seconds, until Ctrl-C.")
@project_option
@json_option
def command(watch: bool, project: Path | None, as_json: bool) -> None:
    """Show for every source and table its lag, its freshness, its state and its newest refresh.

    Lag is how far the data is behind the root sources, never the time since the last run. Starts no process.
    """
    settings = open_settings(project)
    graph = open_declared(settings)
    if watch:
        with open_status(settings, graph) as read:
            watch_status(read, threading.Event(), as_json=as_json)
        return
    with Progress() as progress:
        progress("reading the logs of the tables")
        with open_status(settings, graph, once=True) as read:
            statuses, now = read()
            untold = read.untold(now)
    if as_json:
        click.echo(json.dumps([status.as_json() for status in statuses], indent=2))
        name_beside(untold)
    else:
        show(status_text(statuses, now, terminal_width(), untold))


def watch_status(read: StatusReader, over: threading.Event, *, as_json: bool) -> None:
    """Show the status until it is over or Ctrl-C: one table that changes, and without a terminal one text a reading.

    As JSON each reading is one line.
    """
    try:
        if as_json or not sys.stdout.isatty():
            _print_looks(read, over, as_json=as_json)
        else:
            _draw_looks(read, over)
    except KeyboardInterrupt:
        # The end that everybody wants in the end.
        return


def _print_looks(read: StatusReader, over: threading.Event, *, as_json: bool) -> None:
    while True:
        statuses, now = read()
        if as_json:
            click.echo(json.dumps([status.as_json() for status in statuses]))
        else:
            click.echo(f"{status_text(statuses, now, terminal_width(), read.untold(now))}\n")
        if over.wait(WATCH_SECONDS):
            return


def _draw_looks(read: StatusReader, over: threading.Event) -> None:
    from rich.live import Live

    with Live(auto_refresh=False) as live:
        while True:
            statuses, now = read()
            errors = [f"{status.table}: {line_of(status.error)}" for status in statuses if status.error]
            errors += [line_of(error.as_json()) for error in read.untold(now)]
            live.update(drawn_status(statuses, now, errors[-5:], live.console.width), refresh=True)
            if over.wait(WATCH_SECONDS):
                return


class StatusReader:
    """Reads the status of all tables, with its moment, as often as it is called."""

    def __init__(self, settings: Settings, graph: Graph, store: ControlReader) -> None:
        # delta-rs is imported when it is used, like all that is heavy.
        from freshline.report.status import RowCounts

        self._settings = settings
        self._graph = graph
        self._store = store
        self._rows = RowCounts()

    def __call__(self) -> tuple[list[TableStatus], datetime]:
        """The status of this moment."""
        from freshline.report.status import read_status

        now, settings = datetime.now(UTC), self._settings
        running = running_tables(settings)
        warehouse = Warehouse(settings.warehouse)
        return read_status(self._graph, self._store, warehouse, now, running=running, count_rows=self._rows), now

    def untold(self, now: datetime) -> list[DeliveryError]:
        """Why alerts are not sent, or not through every channel."""
        return untold_alerts(self._settings, self._store, now)


@contextmanager
def open_status(settings: Settings, graph: Graph, *, once: bool = False) -> Iterator[StatusReader]:
    """A reader of the status. With `once` for a single call, which then loads no SQLAlchemy."""
    with closing(_open_store(settings, once=once)) as store:
        yield StatusReader(settings, graph, store)


def untold_alerts(settings: Settings, store: ControlReader, now: datetime) -> list[DeliveryError]:
    """Why alerts of the project are not sent, or not through every channel."""
    return [DeliveryError(sentence) for sentence in read_watch_problems(settings, store.heartbeats.read(), now)]


def _open_store(settings: Settings, *, once: bool) -> ControlReader:
    if once:
        return open_for_a_look(settings.control_store, settings.umask)
    from freshline.commit.control_store import ControlStore

    return ControlStore.open(settings.control_store, settings.umask)


def running_tables(settings: Settings) -> frozenset[TableName]:
    """The tables that the engine is refreshing now; none where no engine runs."""
    engine = running_engine(settings)
    if engine is None:
        return frozenset()
    try:
        told = engine.status()
    except EngineError:
        return frozenset()  # it has ended since
    return frozenset(TableName.parse(str(table["table"])) for table in told if table.get("state") == "RUNNING")


def status_text(
    statuses: Sequence[TableStatus], now: datetime, most: int | None = None, untold: Sequence[DeliveryError] = ()
) -> str:
    """The status as a person reads it, in lines of at most `most`; decisions and problems stand below."""
    if not statuses:
        return "nothing is declared"
    cells = [status_cells(status, now) for status in statuses]
    text = table_text(HEADERS, cells, right=RIGHT, most=most, omit=OMIT)
    errors = [f"{status.table}: {line_of(status.error)}" for status in statuses if status.error]
    problems = [f"{status.table}: {printable(problem)}" for status in statuses for problem in status.problems]
    intentions = [line for status in statuses for line in intention_lines(status)]
    below = [*watermark_lines(statuses), *intentions, *errors, *problems]
    below += [line_of(error.as_json()) for error in untold]
    return "\n".join([text, *(wrapped_lines(line, most) for line in below)])


def watermark_lines(statuses: Sequence[TableStatus]) -> list[str]:
    """One sentence for each table with a watermark, or without one although a source of it has one."""
    lines = []
    for status in statuses:
        if status.watermark_held_by:
            at = "none yet" if status.watermark is None else f"{status.watermark:%Y-%m-%d %H:%M:%S}"
            held_by = printable(", ".join(status.watermark_held_by))
            lines.append(f"{status.table}: watermark {at}, held up by {held_by}")
    return lines


def state_text(status: TableStatus) -> str:
    """The state, where a table that is late beside that says both.

    A refresh that succeeded says nothing of a table that is late: its sources have stopped, or it has not caught up.
    """
    if not status.late:
        return status.state
    return LATE if status.state == State.SUCCEEDED else f"{status.state}, {LATE}"


def status_cells(status: TableStatus, now: datetime) -> list[str]:
    """One line of the table, in the order of HEADERS."""
    last = status.last_refresh
    return [
        str(status.table),
        status.kind,
        status.mode,
        freshness_text(status.freshness_seconds),
        duration_text(status.lag_seconds),
        state_text(status),
        count_text(status.rows),
        count_text(status.quarantined) if status.quarantined else "-",
        "-" if status.version is None else str(status.version),
        "-" if last is None else last.strategy or "-",
        "-" if last is None else duration_text(last.seconds),
        "-" if last is None else duration_text(max(0.0, (now - last.at).total_seconds())),
    ]


def drawn_status(statuses: Sequence[TableStatus], now: datetime, told: Sequence[str], most: int) -> RenderableType:
    """The status as a live table of at most so many columns, with sentences below it."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    cells = [[printable(cell) for cell in status_cells(status, now)] for status in statuses]
    widths = [max(map(width, column)) for column in zip(HEADERS, *cells, strict=True)]
    # Two spaces stand between columns, and one behind the last.
    kept = kept_columns(widths, gap="  ", most=most - 1, omit=OMIT)
    table = Table(box=None, pad_edge=False)
    for index in kept:
        table.add_column(HEADERS[index], justify="right" if index in RIGHT else "left", no_wrap=True)
    for status, row in zip(statuses, cells, strict=True):
        style = "red" if status.state == "FAILED" or status.late else "green" if status.state == "RUNNING" else ""
        table.add_row(*(Text(row[index]) for index in kept), style=style)
    return Group(table, *(Text(printable(sentence)) for sentence in told))
