"""The promises of a table over event time, in words: its watermark, when rows are final, and the cost of a late row.

Everything comes from the declarations, from the case that EXPLAIN found for added rows, and from where the watermark
stands, which the caller reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from freshline.declare.graph import Graph
from freshline.values.mode import driving_inputs
from freshline.values.names import TableName, late_name
from freshline.values.result import Strategy
from freshline.values.spec import SourceSpec, TableSpec
from freshline.values.watermark import TableWatermark

_BY_STRATEGY: Mapping[str, str] = {
    Strategy.APPEND: "a late row is one more new row: its rows are added, and no stored row is read",
    Strategy.MERGE: "a late row is compared with the stored row of its key, and one row is written where it wins",
    Strategy.PARTITION: "the partitions of a late row are computed again and replaced",
    Strategy.FULL: "each refresh reads all rows, so a late row costs what a row of now costs",
}


@dataclass(frozen=True)
class WatermarkSource:
    """A log table whose watermark counts: by which column, and how many seconds it stays behind."""

    name: TableName
    column: str
    delay_seconds: float

    def __str__(self) -> str:
        behind = f" - {timedelta(seconds=self.delay_seconds)}" if self.delay_seconds else ""
        return f"{self.name}.{self.column}{behind}"


@dataclass(frozen=True)
class EventTimeFacts:
    """The facts that EXPLAIN shows of one table over event time.

    `sources` are the log tables behind its watermark, `watermark` is where that stands. `final` is `windows`, `time`,
    `pairs`, `matches`, `rows` or `when`, None for EMIT CHANGES. `lateness_seconds` is None where nothing is closed.
    `late_row` says what a late row costs.
    """

    sources: tuple[WatermarkSource, ...]
    watermark: TableWatermark | None
    final: str | None
    lateness_seconds: int | None
    late_row: str

    @property
    def watermark_text(self) -> str:
        """The watermark in one line."""
        if self.watermark is None:
            return "none, because no input declares WATERMARK FOR"
        at = "none yet" if self.watermark.at is None else f"{self.watermark.at:%Y-%m-%d %H:%M:%S} UTC"
        of = f" of {' and '.join(map(str, self.sources))}" if self.sources else ""
        held = f", held up by {', '.join(self.watermark.held_by)}" if self.watermark.held_by else ""
        return f"{at}{of}{held}"

    @property
    def rows_text(self) -> str:
        """The times at which rows change, in one line."""
        match self.final:
            case "windows":
                lateness = timedelta(seconds=self.lateness_seconds or 0)
                return f"final once the watermark has passed the end of their window, allowed lateness {lateness}"
            case "time":
                lateness = timedelta(seconds=self.lateness_seconds or 0)
                return (
                    f"final once the watermark has passed all times that they follow from, allowed lateness {lateness}"
                )
            case "matches":
                lateness = timedelta(seconds=self.lateness_seconds or 0)
                return f"final once no row that is still to come can change them, allowed lateness {lateness}"
            case "pairs":
                lateness = timedelta(seconds=self.lateness_seconds or 0)
                return (
                    "final once both are there, without a partner once the watermark has passed the interval, allowed "
                    f"lateness {lateness}"
                )
            case "when":
                return "final once the condition of WHEN is true"
            case "rows":
                return "final when they are written"
            case _:
                return "corrected by late rows (EMIT CHANGES)"

    def as_json(self) -> dict[str, Any]:
        """The object in `freshline explain --json` and `freshline plan --json`."""
        at = None if self.watermark is None else self.watermark.at
        return {
            "sources": [
                {"name": str(each.name), "column": each.column, "delay_seconds": each.delay_seconds}
                for each in self.sources
            ],
            "watermark": None if at is None else at.isoformat(),
            "watermark_held_by": [] if self.watermark is None else list(self.watermark.held_by),
            "final": self.final,
            "lateness_seconds": self.lateness_seconds,
            "late_row": self.late_row,
        }

    def __str__(self) -> str:
        return "\n".join(
            [f"  watermark: {self.watermark_text}", f"  rows: {self.rows_text}", f"  late rows: {self.late_row}"]
        )


def is_over_event_time(spec: TableSpec, graph: Graph) -> bool:
    """Whether rows of the table follow from times of events, or its sources say how far these are."""
    query = spec.query
    over_times = bool(query.window_times or query.as_of_joins)
    return spec.final is not None or over_times or any(_sources(spec, graph))


def event_time_facts(
    spec: TableSpec, graph: Graph, watermark: TableWatermark | None, strategy: str, *, uses_stored_values: bool
) -> EventTimeFacts:
    """The facts of one table; `strategy` is that for rows that are added to its inputs, with what its step may use."""
    final = None
    if spec.final is not None:
        timed = spec.query.timed
        closed = "windows" if timed is None else timed.kind
        final = "when" if spec.is_triggered else closed if spec.closes_windows else "rows"
    return EventTimeFacts(
        tuple(dict.fromkeys(_sources(spec, graph))),
        watermark,
        final,
        spec.final.lateness_seconds if spec.final is not None and spec.closes_windows else None,
        _late_row(spec, strategy, uses_stored_values=uses_stored_values),
    )


def _sources(spec: TableSpec, graph: Graph) -> Iterator[WatermarkSource]:
    for name in driving_inputs(spec):
        read = graph.spec(name)
        if isinstance(read, TableSpec):
            yield from _sources(read, graph)
        elif isinstance(read, SourceSpec) and read.is_log and read.watermark is not None:
            yield WatermarkSource(name, read.watermark.column, read.watermark.delay_seconds)


def _late_row(spec: TableSpec, strategy: str, *, uses_stored_values: bool) -> str:
    if spec.closes_windows:
        return f"one row of {late_name(spec.name)}; nothing of this table is read or written"
    if spec.is_triggered:
        return "it changes rows that are not written yet; of those that are written nothing changes"
    if strategy == Strategy.KEYS:
        found = "the rows of its keys are read again, and of the stored rows those are written that differ"
        return (
            f"one stored row per group, where aggregates follow from stored values; else {found}"
            if (uses_stored_values)
            else found
        )
    return _BY_STRATEGY.get(strategy, f"strategy {strategy} follows it like any other change")
