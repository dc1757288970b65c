"""The expected cost of a refresh, from that of earlier ones.

The price of a strategy is a measured cost, scaled by how many changed rows there are now: ten times the rows take about
twice as much, as the benchmarks over TPC-H show. Refreshes of a similar size speak first, and of these the cheapest:
other work of the machine, and code that is compiled at the first refresh, only add. A full refresh grows with its
inputs. CPU-seconds decide where all of them were measured, seconds elsewhere.

A price that is too high is never corrected, because what it is the price of is not done again; one that is too low
is measured and then right. So prices are guessed low: both kinds while they rest on few refreshes, an incremental one
the longer ago it was measured, a full one too, but by no more than what a fresh JVM adds to it. That bounds what a
needless try costs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from freshline.values.result import RefreshResult, Strategy

# An incremental refresh must be cheaper by this factor: its price is the less certain one.
MARGIN = 1.2
# Most of so short a refresh is the commit, which both have, and what is left is noise.
LEAST_SECONDS = 0.5
# Neither do prices count where few rows of few changed: tables that read this one are spared a change set of all rows.
FEW_ROWS = 100_000
FEW_CHANGED = 1_000
GROWTH = 0.3  # ten times the rows: 10 ** 0.3 = 2
FIXED_SHARE = 0.5  # of a full refresh; the rest grows with its inputs
FORGOTTEN = 0.97  # of an incremental price, after each full refresh since
FORGOTTEN_FULL = 0.99  # of a full price, after each other refresh since
COMPARED = 20
# A price rests on this many refreshes of a similar size, or it is guessed lower by HOPED until there are as many.
SIMILAR = 1  # doublings of the rows
CERTAIN = 2
SPEAKING = 3
HOPED = 0.6
# The first full refresh of a table is often the first in its JVM, and so is its first incremental one: up to so much of
# it is code that is loaded and compiled once, in CPU-seconds (and, with a core to spare, about as many seconds). Of an
# incremental one, which runs more kinds of code over fewer rows, it may be nearly all.
ONCE = 4.0
LEAST_HOPED = 0.25
# Before anything was measured: what incremental refreshes of many rows took of a full one, by the share that changed.
# From the benchmarks over TPC-H; a first guess that the first refresh replaces.
GUESSED_FROM = 10_000
GUESSED_FIXED = 0.4
GUESSED_GROWTH = 10.0
# An incremental refresh whose tasks take this many times the CPU-seconds of a full one is given up, but not one that
# takes less than this many times BUDGET_SECONDS.
BUDGET = 2.0
BUDGET_SECONDS = 20.0


@dataclass(frozen=True)
class Price:
    """Seconds that an incremental refresh and a full one are expected to take, and CPU-seconds (None: not measured).

    `full` is as low as may be hoped for, `full_measured` what full refreshes took, in seconds (None: the same).
    """

    incremental: float
    full: float
    incremental_cpu: float | None = None
    full_cpu: float | None = None
    full_measured: float | None = None

    @property
    def full_seconds(self) -> float:
        """The seconds of a full refresh, as they were measured."""
        return self.full if self.full_measured is None else self.full_measured

    @property
    def prefers_full(self) -> bool:
        """Whether computing everything is the cheaper way, by a margin and by enough to matter.

        >>> Price(incremental=0.6, full=0.4).prefers_full
        False
        >>> Price(incremental=4.0, full=3.0).prefers_full
        True
        >>> Price(incremental=4.0, full=3.0, incremental_cpu=4.0, full_cpu=6.0).prefers_full
        False
        """
        incremental, full, _ = self._decisive()
        return self.full_seconds >= LEAST_SECONDS and incremental * MARGIN >= full

    def _decisive(self) -> tuple[float, float, str]:
        if self.incremental_cpu is None or self.full_cpu is None:
            return self.incremental, self.full, "s"
        return self.incremental_cpu, self.full_cpu, "CPU-s"

    def __str__(self) -> str:
        incremental, full, unit = self._decisive()
        return f"incremental={incremental:.1f} {unit}, full={full:.1f} {unit}"


def counts(changed: int, rows: int) -> bool:
    """Whether prices are compared: `changed` rows of `rows` in the inputs and the table together."""
    return changed >= FEW_CHANGED or rows >= FEW_ROWS


def price_of(
    strategy: str, changed: int, records: Iterable[RefreshResult], fingerprint: str, *, rows: int | None = None
) -> Price | None:
    """The price of refreshing `changed` rows by `strategy`, of `rows` that the driving inputs have (None: unknown).

    `records` are committed refreshes of the table, newest first; those of another declaration do not count. None where
    no full refresh was measured, or no incremental one while few rows changed.
    """
    same = [record for record in records if record.fingerprint == fingerprint and record.committed]
    full = _full_cost(same, rows)
    if full is None:
        return None
    measured = [record for record in same if record.strategy == strategy and record.rows_in][:COMPARED]
    if not measured:
        if rows is None or changed < GUESSED_FROM:
            return None
        guess = GUESSED_FIXED + GUESSED_GROWTH * changed / max(1, rows)
        return Price(full.seconds * guess, full.seconds)
    similar = [record for record in measured if _distance(changed, record.rows_in or 1) <= SIMILAR][:SPEAKING]
    speaking = similar or [min(measured, key=lambda record: _distance(changed, record.rows_in or 1))]
    since = sum(record.strategy == Strategy.FULL for record in same[: same.index(speaking[0])])
    grown = [(max(1, changed) / (record.rows_in or 1)) ** GROWTH for record in speaking]
    incremental = _least(speaking, grown)
    if len(similar) < CERTAIN:
        incremental = incremental.map(_hope)
    incremental = incremental.map(lambda cost: cost * FORGOTTEN**since)
    hoped = full.hoped()
    return Price(incremental.seconds, hoped.seconds, incremental.cpu, hoped.cpu, full.seconds)


@dataclass(frozen=True)
class _Cost:
    seconds: float
    cpu: float | None

    def map(self, change: Callable[[float], float]) -> _Cost:
        return _Cost(change(self.seconds), None if self.cpu is None else change(self.cpu))


def _hope(cost: float) -> float:
    """The time that an incremental refresh may take that took `cost` once, maybe as the first of its kind in its JVM.

    >>> _hope(6.2), _hope(20.0), round(_hope(1.0), 2)
    (2.2, 12.0, 0.25)
    """
    return max(LEAST_HOPED * cost, min(HOPED * cost, cost - ONCE))


@dataclass(frozen=True)
class _FullCost:
    """The cost of full refreshes, of how many (at most SPEAKING), and how many others there were since."""

    least: _Cost
    measured: int
    since: int

    @property
    def seconds(self) -> float:
        return self.least.seconds

    def hoped(self) -> _Cost:
        return self.least.map(self._guess)

    def _guess(self, cost: float) -> float:
        lowest = max(HOPED * cost, cost - ONCE)
        return lowest if self.measured < CERTAIN else max(lowest, cost * FORGOTTEN_FULL**self.since)


def _full_cost(same: Sequence[RefreshResult], rows: int | None) -> _FullCost | None:
    """The cheapest of the newest full refreshes, each as it would be over `rows`; None where there was none."""
    found = [(index, record) for index, record in enumerate(same) if record.strategy == Strategy.FULL][:SPEAKING]
    if not found:
        return None
    full = [record for _, record in found]
    grown = [max(1.0, rows / record.rows_in) if rows is not None and record.rows_in else 1.0 for record in full]
    scales = [FIXED_SHARE + (1 - FIXED_SHARE) * times for times in grown]
    return _FullCost(_least(full, scales), len(full), found[0][0])


def _least(records: Sequence[RefreshResult], scales: Sequence[float]) -> _Cost:
    """The least of what the records took, each times its scale; in CPU-seconds too where all of them were measured."""
    seconds = min(record.seconds * scale for record, scale in zip(records, scales, strict=True))
    cpu = [
        record.cpu_seconds * scale
        for record, scale in zip(records, scales, strict=True)
        if record.cpu_seconds is not None
    ]
    return _Cost(seconds, min(cpu) if len(cpu) == len(records) else None)


def _distance(changed: int, rows: int) -> int:
    """The doublings, in whole ones, from one number to the other: of records as near as each other the newest counts.

    >>> _distance(100, 110), _distance(100, 1000), _distance(1000, 100)
    (0, 3, 3)
    """
    greater, less = max(changed, rows, 1), max(1, min(changed, rows))
    return (greater // less).bit_length() - 1


def budget_of(records: Iterable[RefreshResult], fingerprint: str, *, cores: int, is_local: bool) -> float | None:
    """CPU-seconds after which an incremental refresh is given up for a full one; None where no full one was measured.

    Time on the clock says nothing on a machine that is busy with other work. Where the CPU-seconds of the newest full
    refresh are not known, all `cores` count for as long as it took. They are not known where Spark runs elsewhere
    (`is_local`): what was measured is this machine's part then.
    """
    for record in records:
        if record.fingerprint == fingerprint and record.committed and record.strategy == Strategy.FULL:
            measured = record.cpu_seconds if is_local else None
            return BUDGET * max(record.seconds * cores if measured is None else measured, BUDGET_SECONDS)
    return None
