"""The board as HTML: one self-contained file, or pages that the guard serves.

Every text is escaped by the templates. Besides, control characters and marks that turn the direction of writing are
shown as escapes, because a name or an error must not be able to imitate another one. A page loads nothing: its style
and its script stand in it, and the Content-Security-Policy allows exactly these two. Without JavaScript all is there
but sorting and searching in the file, which the served page does by its address.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from freshline.freshness.history import Mark
from freshline.report.board.board import SORTS, Board, BoardRow, BoardState, Choice, TablePage, chosen_rows, sort_value
from freshline.report.board.chart import (
    BOX_HEIGHT,
    BOX_WIDTH,
    CHART_HEIGHT,
    CHART_WIDTH,
    SPARK_HEIGHT,
    SPARK_WIDTH,
    STRIP,
    GraphChart,
    LagChart,
    Spark,
    first_moment,
    graph_chart,
    lag_chart,
    mark_kind,
    spark,
)
from freshline.report.table_text import bytes_text, count_text, duration_text, freshness_text, printable
from freshline.values.names import TableName

if TYPE_CHECKING:
    from jinja2 import Environment

ADDRESS = "/freshline/"
# A graph of more is a wall; the page of each table has its own part of it.
MOST_IN_GRAPH = 200
SERVED_MARKS, MARKS_IN_FILE = 100, 25
_TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class Listed:
    """A row with what is drawn of it: its line, and the numbers by which a browser sorts."""

    row: BoardRow
    spark: Spark | None
    values: dict[str, float]


@dataclass(frozen=True)
class ListedMark:
    """A refresh in the list of a page: its number, how it is drawn, and its receipt, None where there is none."""

    number: int
    mark: Mark
    kind: str
    receipt: str | None


@dataclass(frozen=True)
class Shown:
    """The page of one table with its charts and the list of its newest refreshes, the newest first."""

    page: TablePage
    anchor: str
    chart: LagChart | None
    graph: GraphChart
    marks: tuple[ListedMark, ...]
    omitted: int


def render_file(board: Board) -> str:
    """The whole board as one file: all tables, and below them the pages that the board has."""
    numbers = {row.name: number for number, row in enumerate(board.rows)}
    paged = {page.row.name for page in board.pages}

    def link(name: TableName) -> str | None:
        return f"#t{numbers[name]}" if name in paged else None

    return _render(
        "file.html",
        board,
        link,
        listed=_listed(board, board.rows),
        choice=Choice(),
        graph=_graph(board),
        pages=[_shown(page, board, f"t{numbers[page.row.name]}", MARKS_IN_FILE) for page in board.pages],
        in_file=True,
    )


def render_all(board: Board, choice: Choice) -> str:
    """The served page of all tables, of which `choice` says which are shown and in which order."""
    return _render(
        "all.html",
        board,
        table_address,
        listed=_listed(board, chosen_rows(board.rows, choice)),
        choice=choice,
        graph=_graph(board),
        in_file=False,
    )


def render_table(board: Board, *, buttons: bool = False) -> str:
    """The served page of one table, the first of the board's pages; `buttons` post decisions about it."""
    page = _shown(board.pages[0], board, "t", SERVED_MARKS)
    return _render("table.html", board, table_address, shown=page, in_file=False, buttons=buttons)


def render_message(title: str, text: str) -> str:
    """A served page that says why there is no other."""
    return (
        _environment()
        .get_template("message.html")
        .render(title=title, text=text, policy=policy(in_file=False), in_file=False, board=None)
    )


def table_address(name: TableName) -> str:
    """Where the page of a table is served."""
    return f"{ADDRESS}table/{quote(str(name))}"


def policy(*, in_file: bool) -> str:
    """The Content-Security-Policy of a page: nothing is loaded, and nothing runs but its own script."""
    own = "" if in_file else "; connect-src 'self'; frame-ancestors 'none'"
    action = "'none'" if in_file else "'self'"
    style, script = (_hash(_asset(name)) for name in ("board.css", "board.js"))
    return (
        f"default-src 'none'; style-src '{style}'; script-src '{script}'; img-src data:; base-uri 'none'; "
        f"form-action {action}{own}"
    )


# -- values


def _listed(board: Board, rows: Sequence[BoardRow]) -> list[Listed]:
    begin = first_moment(board.rows, board.at)
    sorts = [sort for sort in SORTS if sort not in ("graph", "name")]
    return [Listed(row, spark(row, board.at, begin), {sort: sort_value(row, sort) for sort in sorts}) for row in rows]


def _graph(board: Board) -> GraphChart | None:
    return graph_chart(board.rows) if 1 < len(board.rows) <= MOST_IN_GRAPH else None


def _shown(page: TablePage, board: Board, anchor: str, most: int) -> Shown:
    first = max(0, len(page.marks) - most)
    targets = {place: len(page.marks) - 1 - place for place in range(first, len(page.marks))}
    listed = [
        ListedMark(
            targets[place],
            mark,
            mark_kind(mark),
            page.receipts.get(mark.version) if mark.committed and mark.version is not None else None,
        )
        for place, mark in reversed(list(enumerate(page.marks)))
        if place >= first
    ]
    chart = lag_chart(page.row, page.spans, page.hours, page.marks, board.at, board.since, targets)
    graph = graph_chart(page.near[:MOST_IN_GRAPH], page.row.name, page.critical_path)
    return Shown(page, anchor, chart, graph, tuple(listed), first)


# -- templates


def _render(template: str, board: Board, link: Callable[[TableName], str | None], **values: Any) -> str:
    rows = board.rows
    return (
        _environment()
        .get_template(template)
        .render(
            board=board,
            link=link,
            states=list(BoardState),
            namespaces=sorted({row.name.namespace for row in rows if row.name.namespace}),
            modes=sorted({row.status.mode for row in rows}),
            owners=sorted({row.owner for row in rows if row.owner}),
            policy=policy(in_file=values["in_file"]),
            **values,
        )
    )


@cache
def _environment() -> Environment:
    # Loaded with the first page: the UI starts without it.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_plain,
    )
    environment.filters |= {
        "duration": duration_text,
        "freshness": freshness_text,
        "count": count_text,
        "bytes": lambda size: "-" if size is None else bytes_text(size),
        "share": share_text,
        "moment": lambda at: at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),
        "cpu": lambda seconds: "-" if seconds is None else f"{seconds:,.{1 if seconds < 100 else 0}f}",
        "css": lambda state: str(state).replace(" ", "-"),
        "sorted_by": _sorted_by,
    }
    environment.globals |= {
        "style": Markup(_asset("board.css")),
        "script": Markup(_asset("board.js")),
        "address": ADDRESS,
        "spark_size": (SPARK_WIDTH, SPARK_HEIGHT),
        "chart_size": (CHART_WIDTH, CHART_HEIGHT, STRIP),
        "box_size": (BOX_WIDTH, BOX_HEIGHT),
    }
    return environment


def share_text(share: float | None) -> str:
    """A share in percent, rounded down: 100 % is all of the time.

    >>> share_text(None), share_text(1.0), share_text(0.99999), share_text(0.5)
    ('-', '100 %', '99.99 %', '50 %')
    """
    if share is None:
        return "-"
    return f"{int(share * 10_000) / 100:.2f}".rstrip("0").rstrip(".") + " %"


def _sorted_by(choice: Choice, sort: str) -> str:
    """The address of the same choice in another order."""
    fields = {"search": choice.search, "namespace": choice.namespace, "mode": choice.mode, "owner": choice.owner}
    return "?" + urlencode(
        {name: value for name, value in {**fields, "state": choice.state, "sort": sort}.items() if value}
    )


def _plain(value: Any) -> Any:
    """A text without characters that would move others; everything else as it is."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return (
        value if value.isprintable() else "\n".join(printable(line) for line in value.replace("\t", "    ").split("\n"))
    )


@cache
def _asset(name: str) -> str:
    return (_TEMPLATES / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
