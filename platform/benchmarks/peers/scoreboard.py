"""The scoreboard: freshline beside each peer, by the figures of the runs of one round each.

A ratio is of two runs of the same round. Its range is that of all rounds. A range that includes 1.0 says "equal",
whichever side its median is on.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.measure import Cost
from benchmarks.peers.run import Run

FAR = range(100, 111)
"""The increments after a hundred, whose costs count as one figure: their mean."""


@dataclass(frozen=True)
class Spread:
    """The median of several rounds, with the least and the greatest."""

    middle: float
    least: float
    greatest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(statistics.median(values), min(values), max(values))

    def text(self, digits: int) -> str:
        return f"{self.middle:.{digits}f} ({self.least:.{digits}f} to {self.greatest:.{digits}f})"


@dataclass(frozen=True)
class Figure:
    """One step of one peer: CPU-seconds and wall seconds, freshline's of the same rounds, and their ratio."""

    peer: str
    step: str
    rounds: int
    cpu: Spread
    wall: Spread
    ours_cpu: Spread
    ours_wall: Spread
    ratio: Spread
    """CPU-seconds of freshline, with those of the peer as 1."""

    @property
    def verdict(self) -> str:
        if self.rounds < 2:
            return "one pair"
        if self.ratio.least <= 1.0 <= self.ratio.greatest:
            return "equal"
        return "freshline less" if self.ratio.middle < 1 else "freshline more"


@dataclass(frozen=True)
class Line:
    """All that is known of one peer. `why` is why it has no figures, or fewer; None if it has all. `lines` is 0
    where all ways share what a user writes: the query."""

    peer: str
    title: str
    lines: int
    figures: Sequence[Figure]
    peak_bytes: Spread | None = None
    why: str | None = None


def steps_of(increments: int, far: bool, fresh: bool = False) -> tuple[list[int], frozenset[int]]:
    """The steps that a run makes, and those whose cost counts. The one of a `fresh` process is the last."""
    last = FAR[-1] if far else increments
    counted = frozenset(range(increments + 1)) | (frozenset(FAR) if far else frozenset())
    return list(range(last + 1 + fresh)), counted | (frozenset({last + 1}) if fresh else frozenset())


def costs_by_name(run: Run) -> Mapping[str, Cost]:
    """The costs of a run by the name of the step."""
    named = {"first load": run.costs[0]} if 0 in run.costs else {}
    named |= {f"increment {step}": cost for step, cost in run.costs.items() if 0 < step < FAR[0] and step != run.fresh}
    if all(step in run.costs for step in FAR):
        far = [run.costs[step] for step in FAR]
        named[f"increments {FAR[0]} to {FAR[-1]}"] = Cost(
            statistics.mean(cost.cpu for cost in far), statistics.mean(cost.wall for cost in far)
        )
    if run.fresh is not None and run.fresh in run.costs:
        named["an increment of a fresh process, start included"] = run.costs[run.fresh]
    return named


def figures_of(pairs: Sequence[tuple[Run, Run]]) -> Iterator[Figure]:
    """The figures of a peer from its rounds: freshline's run and the peer's. A step counts where both have a cost."""
    rounds = [(costs_by_name(ours), costs_by_name(theirs)) for ours, theirs in pairs]
    names = dict.fromkeys(name for ours, theirs in rounds for name in ours if name in theirs)
    for name in names:
        both = [(ours[name], theirs[name]) for ours, theirs in rounds if name in ours and name in theirs]
        yield Figure(
            pairs[0][1].peer,
            name,
            len(both),
            Spread.of([theirs.cpu for _, theirs in both]),
            Spread.of([theirs.wall for _, theirs in both]),
            Spread.of([ours.cpu for ours, _ in both]),
            Spread.of([ours.wall for ours, _ in both]),
            Spread.of([ours.cpu / theirs.cpu for ours, theirs in both]),
        )


def table(lines: Sequence[Line]) -> str:
    """The scoreboard as a table in Markdown, a row for each step of each peer, and a line for each that has none."""
    found = [
        "| beside | step | freshline, CPU-s | peer, CPU-s | freshline, s | peer, s | ratio of CPU-s | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in lines:
        for figure in line.figures:
            ours, theirs = figure.ours_cpu.text(1), figure.cpu.text(1)
            walls = f"{figure.ours_wall.middle:.1f} | {figure.wall.middle:.1f}"
            found.append(
                f"| {line.title} | {figure.step} | {ours} | {theirs} | {walls} | {figure.ratio.text(2)} "
                f"| {figure.verdict} |"
            )
    found += ["", "| way | lines that a user writes | peak of memory, MB | |", "|---|---|---|---|"]
    for line in lines:
        peak = "" if line.peak_bytes is None else f"{line.peak_bytes.middle / 1e6:,.0f}"
        why = "" if line.why is None else f"not run: {_one_line(line.why)}"
        found.append(f"| {line.title} | {line.lines or ''} | {peak} | {why} |")
    return "\n".join(found)


def _one_line(text: str) -> str:
    """In a cell of a table a line break or a bar would end it."""
    short = " ".join(text.split()).replace("|", "\\|")
    return short if len(short) <= 300 else f"{short[:300]} .."
