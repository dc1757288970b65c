"""The charts of the board as coordinates: lines of lag, the promise in them, refreshes, and the graph.

Templates draw them as SVG, so a page needs no library and no JavaScript for them. All coordinates are numbers and every
text is a text, which the templates escape. However much history there is, a chart has as many points as a screen shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise

from freshline.freshness.history import Hour, LagSpan, Mark, hour_of
from freshline.report.board.board import BoardRow
from freshline.report.table_text import count_text, duration_text, freshness_text
from freshline.values.names import TableName
from freshline.values.result import DECISIONS, State

SPARK_WIDTH, SPARK_HEIGHT = 120, 28
CHART_WIDTH, CHART_HEIGHT, STRIP = 960, 240, 34
_LEFT, _TOP, _BOTTOM = 56, 12, 26
_MOST_POINTS = 480
_MOST_SPARK = 60
_BIN = 5
_SHORTEST = timedelta(minutes=10)

Point = tuple[datetime, float]


@dataclass(frozen=True)
class Spark:
    """A small line of lag: the path of SVG, the height of the promise, and the same in words."""

    path: str
    promise_y: float
    text: str


@dataclass(frozen=True)
class Tick:
    """A mark of an axis: its place and its text."""

    at: float
    text: str


@dataclass(frozen=True)
class Bin:
    """The refreshes of one place of the strip: `kind` is the gravest of `failed`, `decision`, `other` and `done`.

    `target` is the number of its newest refresh in the list below, None where that is not in it.
    """

    x: float
    kind: str
    text: str
    target: int | None


@dataclass(frozen=True)
class LagChart:
    """The lag of one table over time with the promise in it, and its refreshes below."""

    path: str
    promise: str
    bins: tuple[Bin, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    text: str


@dataclass(frozen=True)
class Box:
    """A table in the graph, with its name cut to the box; `chosen` is the one whose page it is."""

    table: TableName
    name: str
    state: str
    text: str
    x: float
    y: float
    chosen: bool = False
    critical: bool = False


@dataclass(frozen=True)
class Arrow:
    """From an input to the table that reads it."""

    path: str
    critical: bool = False


@dataclass(frozen=True)
class GraphChart:
    """The graph, from left to right."""

    width: int
    height: int
    boxes: tuple[Box, ...] = ()
    arrows: tuple[Arrow, ...] = field(default=())


BOX_WIDTH, BOX_HEIGHT = 180, 30
_COLUMN, _LINE = 230, 40
_LONGEST_NAME = 24


# -- lag


def spark(row: BoardRow, now: datetime, begin: datetime) -> Spark | None:
    """The lag of a table from `begin` on; None where nothing is known of it."""
    status = row.status
    points = _thinned(_points(row.spans, (), status.lag_seconds, now), begin, now, _MOST_SPARK)
    if not points:
        return None
    promise = float(status.freshness_seconds)
    top = max(1.5 * promise, *(lag for _, lag in points))
    x, y = _scales(begin, now, top, (0.0, float(SPARK_WIDTH)), (2.0, SPARK_HEIGHT - 2.0))
    drawn = [(x(at), y(lag)) for at, lag in points]
    # A single sample is a short line, which can be seen.
    path = _path(drawn if len(drawn) > 1 else [(drawn[0][0] - 4.0, drawn[0][1]), *drawn])
    greatest = max(lag for _, lag in points)
    text = f"lag up to {duration_text(greatest)}, promise {freshness_text(status.freshness_seconds)}"
    return Spark(path, round(y(promise), 1), text)


def first_moment(rows: Sequence[BoardRow], now: datetime) -> datetime:
    """Where the small lines of all tables begin: with the oldest span of them, and not less than ten minutes ago."""
    return min([span.first_at for row in rows for span in row.spans] + [now - _SHORTEST])


def lag_chart(
    row: BoardRow,
    spans: Sequence[LagSpan],
    hours: Sequence[Hour],
    marks: Sequence[Mark],
    now: datetime,
    since: datetime,
    targets: Mapping[int, int],
) -> LagChart | None:
    """The chart of one table, from what is known since `since`; None where nothing is.

    `targets` are the numbers in the list of refreshes, by the place of a mark in `marks`.
    """
    status = row.status
    known = _points(spans, hours, status.lag_seconds, now)
    begin = max(since, min([at for at, _ in known] + [mark.at for mark in marks] + [now - _SHORTEST]))
    points = _thinned(known, begin, now, _MOST_POINTS)
    if not points and not marks:
        return None
    steps = _promise_steps(spans, hours, status.freshness_seconds, begin, now)
    greatest = max([lag for _, lag in points], default=0.0)
    top = 1.15 * max(greatest, *(float(seconds) for _, seconds in steps))
    x, y = _scales(begin, now, top, (float(_LEFT), float(CHART_WIDTH)), (float(_TOP), float(CHART_HEIGHT)))
    stairs: list[tuple[float, float]] = []
    for (at, seconds), (end, _) in zip(steps, [*steps[1:], (now, 0)], strict=True):
        stairs += [(x(at), y(seconds)), (x(end), y(seconds))]
    failed = sum(mark.state == State.FAILED for mark in marks)
    text = (
        f"lag up to {duration_text(greatest)}, now {duration_text(status.lag_seconds)}, promise "
        f"{freshness_text(status.freshness_seconds)}; {count_text(len(marks))} refreshes and decisions, {failed} failed"
    )
    return LagChart(
        _path([(x(at), y(lag)) for at, lag in points]),
        _path(stairs),
        _bins(marks, x, targets),
        tuple(_time_ticks(begin, now, x)),
        tuple(Tick(round(y(seconds), 1), _whole_text(seconds)) for seconds in _lag_ticks(top)),
        text,
    )


def _points(spans: Sequence[LagSpan], hours: Sequence[Hour], lag_seconds: float | None, now: datetime) -> list[Point]:
    """The lag over time: by hours where there is nothing finer, then by spans, then now."""
    finer = min((span.first_at for span in spans), default=now)
    old = [hour.lag for hour in hours if hour.lag is not None and hour.lag.last_at < hour_of(finer)]
    found: list[Point] = []
    for span in (*old, *spans):
        found.append((span.first_at, span.first_seconds))
        if span.greatest_seconds > max(span.first_seconds, span.last_seconds):
            found.append((span.first_at + (span.last_at - span.first_at) / 2, span.greatest_seconds))
        if span.last_at > span.first_at:
            found.append((span.last_at, span.last_seconds))
    if lag_seconds is not None:
        found.append((now, lag_seconds))
    return found


def _thinned(points: Sequence[Point], begin: datetime, end: datetime, most: int) -> list[Point]:
    """At most twice so many points: of each place the greatest, and the last."""
    shown = [(at, lag) for at, lag in points if begin <= at <= end]
    if len(shown) <= most:
        return shown
    length = max((end - begin).total_seconds(), 1.0)
    places: dict[int, list[Point]] = {}
    for point in shown:
        places.setdefault(int((point[0] - begin).total_seconds() / length * most), []).append(point)
    found = []
    for place in sorted(places):
        greatest, last = max(places[place], key=lambda point: point[1]), places[place][-1]
        found += [greatest] if greatest is last else [greatest, last]
    return sorted(found)


def _promise_steps(
    spans: Sequence[LagSpan], hours: Sequence[Hour], promise: int, begin: datetime, now: datetime
) -> list[tuple[datetime, int]]:
    """The times at which promises began to apply; the first one from the begin of the chart on."""
    finer = min((span.first_at for span in spans), default=now)
    old = [hour.lag for hour in hours if hour.lag is not None and hour.lag.last_at < hour_of(finer)]
    steps: list[tuple[datetime, int]] = []
    for span in (*old, *spans):
        if not steps or steps[-1][1] != span.freshness_seconds:
            steps.append((max(span.last_at if steps else begin, begin), span.freshness_seconds))
    if not steps:
        return [(begin, promise)]
    if steps[-1][1] != promise:
        steps.append((now, promise))
    return steps


def _bins(marks: Sequence[Mark], x: _Scale, targets: Mapping[int, int]) -> tuple[Bin, ...]:
    places: dict[int, list[int]] = {}
    for number, mark in enumerate(marks):
        places.setdefault(int(x(mark.at) / _BIN), []).append(number)
    found = []
    for place in sorted(places):
        numbers = places[place]
        here = [marks[number] for number in numbers]
        gravest = min(here, key=lambda mark: _GRAVE.index(mark_kind(mark)))
        found.append(Bin(place * _BIN, mark_kind(gravest), _bin_text(here), targets.get(numbers[-1])))
    return tuple(found)


_GRAVE = ("failed", "decision", "other", "done")


def mark_kind(mark: Mark) -> str:
    """The kind by which a mark is drawn: a failure, a decision, a commit, or the rest."""
    if mark.state == State.FAILED:
        return "failed"
    if mark.state in DECISIONS:
        return "decision"
    return "done" if mark.committed else "other"


def _bin_text(marks: Sequence[Mark]) -> str:
    newest = marks[-1]
    if len(marks) == 1:
        rows = "" if newest.rows_out is None else f", {count_text(newest.rows_out)} rows"
        cpu = "" if newest.cpu_seconds is None else f", {newest.cpu_seconds:.1f} CPU-seconds"
        took = f", {duration_text(newest.seconds)}{rows}{cpu}" if newest.seconds else ""
        return f"{newest.at:%Y-%m-%d %H:%M:%S} {newest.strategy or newest.state}{took}: {newest.reason}"
    failed = sum(mark.state == State.FAILED for mark in marks)
    return (
        f"{marks[0].at:%Y-%m-%d %H:%M} to {newest.at:%H:%M}: {len(marks)} refreshes, {failed} failed, "
        f"{count_text(sum(mark.rows_out or 0 for mark in marks))} rows, {duration_text(sum(m.seconds for m in marks))}"
    )


# -- scales


class _Scale:
    """From a moment or a number to a coordinate."""

    def __init__(self, begin: float, end: float, low: float, high: float) -> None:
        self._begin, self._low = begin, low
        self._factor = (high - low) / ((end - begin) or 1.0)

    def __call__(self, value: datetime | float) -> float:
        number = value.timestamp() if isinstance(value, datetime) else value
        return self._low + (number - self._begin) * self._factor


def _scales(
    begin: datetime, end: datetime, top: float, across: tuple[float, float], down: tuple[float, float]
) -> tuple[_Scale, _Scale]:
    high, low = down
    return _Scale(begin.timestamp(), end.timestamp(), *across), _Scale(0.0, max(top, 0.001), low, high)


def _path(points: Sequence[tuple[float, float]]) -> str:
    """The path of SVG through these points.

    >>> _path([(0, 1), (2.34, 5)])
    'M0.0 1.0L2.3 5.0'
    """
    return "".join(f"{'L' if place else 'M'}{x:.1f} {y:.1f}" for place, (x, y) in enumerate(points))


_STEPS = tuple(
    timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 30, 60, 120, 240, 720, 1_440, 2_880, 7_200, 14_400)
)


def _time_ticks(begin: datetime, end: datetime, x: _Scale) -> list[Tick]:
    """At most eight whole times."""
    step = next((step for step in _STEPS if (end - begin) / step <= 8), _STEPS[-1])
    day = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    at = day + ((begin - day) // step + 1) * step
    pattern = "%H:%M" if step < timedelta(days=1) and end - begin <= timedelta(days=1) else "%d %b %H:%M"
    found = []
    while at <= end:
        found.append(Tick(round(x(at), 1), at.strftime(pattern if step < timedelta(days=1) else "%d %b")))
        at += step
    return found


_LAG_STEPS = tuple(
    unit * count
    for unit, counts in (
        (0.1, (1, 2, 5)),
        (1, (1, 2, 5, 10, 20, 30)),
        (60, (1, 2, 5, 10, 20, 30)),
        (3_600, (1, 2, 4, 8)),
    )
    for count in counts
)


def _lag_ticks(top: float) -> list[float]:
    """Nothing, and at most five whole lags above it.

    >>> _lag_ticks(70), _lag_ticks(4 * 86_400)
    ([0.0, 20.0, 40.0, 60.0], [0.0, 86400.0, 172800.0, 259200.0, 345600.0])
    """
    days = 86_400.0 * max(1, -(-int(top) // (5 * 86_400)))
    step = next((float(step) for step in _LAG_STEPS if top / step <= 5), days)
    return [step * number for number in range(int(top / step) + 1)]


def _whole_text(seconds: float) -> str:
    return duration_text(seconds).replace(".0 ", " ")


# -- graph


def graph_chart(
    rows: Sequence[BoardRow], chosen: TableName | None = None, critical: Sequence[TableName] = ()
) -> GraphChart:
    """The graph of these rows, which are in the order of the graph: inputs to the left of what reads them."""
    depths: dict[TableName, int] = {}
    places: dict[TableName, _Place] = {}
    lines: dict[int, int] = {}
    steps = set(pairwise(critical))
    arrows = []

    def next_place(depth: int) -> _Place:
        line = lines.setdefault(depth, 0)
        lines[depth] = line + 1
        return depth * _COLUMN + 6, line * _LINE + 6

    for row in rows:
        reads = [read for read in row.reads if read in places]
        depth = depths[row.name] = max((depths[read] + 1 for read in reads), default=0)
        # An arrow over several columns has a place of its own in each, and so passes through no box.
        ways = [[next_place(between) for between in range(depths[read] + 1, depth)] for read in reads]
        place = places[row.name] = next_place(depth)
        arrows += [
            Arrow(_bow([places[read], *way, place]), (read, row.name) in steps)
            for read, way in zip(reads, ways, strict=True)
        ]
    boxes = tuple(
        Box(
            row.name,
            _short(str(row.name)),
            str(row.state),
            f"{row.name}: {row.state}, lag {duration_text(row.status.lag_seconds)}, promise "
            f"{freshness_text(row.status.freshness_seconds)}",
            *places[row.name],
            row.name == chosen,
            row.name in critical,
        )
        for row in rows
    )
    width = (max(depths.values(), default=0)) * _COLUMN + BOX_WIDTH + 12
    return GraphChart(width, max(lines.values(), default=0) * _LINE + 12, boxes, tuple(arrows))


_Place = tuple[int, int]


def _bow(places: Sequence[_Place]) -> str:
    """From the right of the first place to the left of the last, straight through those between."""
    middle = BOX_HEIGHT / 2
    path = f"M{places[0][0] + BOX_WIDTH} {places[0][1] + middle}"
    for (x, y), (to_x, to_y) in pairwise(places):
        half = (x + BOX_WIDTH + to_x) / 2
        path += f"C{half} {y + middle} {half} {to_y + middle} {to_x} {to_y + middle}H{to_x + BOX_WIDTH}"
    # The last place is a box, which the arrow only reaches.
    return path.rpartition("H")[0]


def _short(name: str) -> str:
    """A name as it fits: of a long one the end, which says more than its begin."""
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"
