"""What a refresh will cost, from what earlier ones took.

The price of a strategy is a measured cost, scaled by how many changed rows there are now: ten times the rows take about
twice as much, as the benchmarks over TPC-H show. Refreshes of a similar size speak first, and of these the cheapest:
other work of the machine, and code that is compiled at the first refresh, only add. A full refresh grows with its
inputs. CPU-seconds decide where all of them were measured, seconds elsewhere.

A price that is too high is never corrected, because what it is the price of is not done again; one that is too low
is measured and then right. So prices are guessed low, and lose some of their weight with each full refresh since.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from freshline.plan.record import RefreshRecord

# An incremental refresh must be cheaper by this factor: its price is the less certain one.
MARGIN = 1.2
# A difference of parts of a second is noise, and most of so short a refresh is the commit.
LEAST_SECONDS = 1.0
# Neither do prices count where few rows of few changed: tables that read this one are spared a change set of all rows.
FEW_ROWS = 100_000
FEW_CHANGED = 1_000
GROWTH = 0.3  # ten times the rows: 10 ** 0.3 = 2
FIXED_SHARE = 0.5  # of a full refresh; the rest grows with its inputs
FORGOTTEN = 0.97  # of a price, after each full refresh since
COMPARED = 20
# A price rests on this many refreshes of a similar size, or it is guessed lower by HOPED until there are as many.
SIMILAR = 1  # doublings of the rows
CERTAIN = 2
SPEAKING = 3
HOPED = 0.6
# Before anything was measured: what incremental refreshes of many rows took of a full one, by the share that changed.
# From the benchmarks over TPC-H; a first guess that the first refresh replaces.
GUESSED_FROM = 10_000
GUESSED_FIXED = 0.4
GUESSED_GROWTH = 10.0
# An incremental refresh that takes this many times what a full one took is given up, but not before BUDGET_SECONDS.
BUDGET = 2.0
BUDGET_SECONDS = 20.0


@dataclass(frozen=True)
class Price:
    """Seconds that an incremental refresh and a full one are expected to take, and CPU-seconds (None: not measured)."""

    incremental: float
    full: float
    incremental_cpu: float | None = None
    full_cpu: float | None = None

    @property
    def prefers_full(self) -> bool:
        """Whether computing everything is the cheaper way, by a margin and by enough to matter.

        >>> Price(incremental=0.4, full=0.3).prefers_full
        False
        >>> Price(incremental=4.0, full=3.0).prefers_full
        True
        >>> Price(incremental=4.0, full=3.0, incremental_cpu=4.0, full_cpu=6.0).prefers_full
        False
        """
        incremental, full, _ = self._decisive()
        return self.full >= LEAST_SECONDS and incremental * MARGIN >= full

    def _decisive(self) -> tuple[float, float, str]:
        if self.incremental_cpu is None or self.full_cpu is None:
            return self.incremental, self.full, "s"
        return self.incremental_cpu, self.full_cpu, "CPU-s"

    def __str__(self) -> str:
        incremental, full, unit = self._decisive()
        return f"incremental={incremental:.1f} {unit}, full={full:.1f} {unit}"


def counts(changed: int, rows: int) -> bool:
    """Whether prices are looked at: `changed` rows of `rows` in the inputs and the table together."""
    return changed >= FEW_CHANGED or rows >= FEW_ROWS


def price_of(
    strategy: str, changed: int, records: Iterable[RefreshRecord], fingerprint: str, *, rows: int | None = None
) -> Price | None:
    """The price of refreshing `changed` rows by `strategy`, of `rows` that the driving inputs have (None: unknown).

    `records` are committed refreshes of the table, newest first; those of another declaration do not count. None where
    no full refresh was measured, or no incremental one while few rows changed.
    """
    same = [record for record in records if record.fingerprint == fingerprint and record.committed]
    full = next((record for record in same if record.strategy == "full"), None)
    if full is None:
        return None
    grown = max(1.0, rows / full.rows_in) if rows is not None and full.rows_in else 1.0
    whole = FIXED_SHARE + (1 - FIXED_SHARE) * grown
    whole_cpu = None if full.cpu_seconds is None else full.cpu_seconds * whole
    measured = [record for record in same if record.strategy == strategy and record.rows_in][:COMPARED]
    if not measured:
        if rows is None or changed < GUESSED_FROM:
            return None
        guess = GUESSED_FIXED + GUESSED_GROWTH * changed / max(1, rows)
        return Price(full.seconds * whole * guess, full.seconds * whole)
    similar = [record for record in measured if _distance(changed, record.rows_in or 1) <= SIMILAR][:SPEAKING]
    speaking = similar or [min(measured, key=lambda record: _distance(changed, record.rows_in or 1))]
    since = sum(record.strategy == "full" for record in same[: same.index(speaking[0])])
    weight = FORGOTTEN**since * (1.0 if len(similar) >= CERTAIN else HOPED)
    scales = [weight * (max(1, changed) / (record.rows_in or 1)) ** GROWTH for record in speaking]
    seconds = min(record.seconds * scale for record, scale in zip(speaking, scales, strict=True))
    cpu = [
        record.cpu_seconds * scale
        for record, scale in zip(speaking, scales, strict=True)
        if record.cpu_seconds is not None
    ]
    return Price(seconds, full.seconds * whole, min(cpu) if len(cpu) == len(speaking) else None, whole_cpu)


def _distance(changed: int, rows: int) -> int:
    """How many times, in whole doublings, one number is the other: of records as near as each other the newest counts.

    >>> _distance(100, 110), _distance(100, 1000), _distance(1000, 100)
    (0, 3, 3)
    """
    greater, less = max(changed, rows, 1), max(1, min(changed, rows))
    return (greater // less).bit_length() - 1


def budget_of(records: Iterable[RefreshRecord], fingerprint: str) -> float | None:
    """Seconds after which an incremental refresh is given up for a full one; None where no full one was measured."""
    for record in records:
        if record.fingerprint == fingerprint and record.committed and record.strategy == "full":
            return BUDGET * max(record.seconds, BUDGET_SECONDS)
    return None
