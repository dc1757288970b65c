"""What a refresh will cost, from what earlier ones took.

The price of a strategy is its newest measured duration, scaled by how many changed rows there are now: half of a
refresh is the same for any number of rows, the other half grows with them. A full refresh grows with its inputs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from freshline.plan.record import RefreshRecord

# An incremental refresh must be cheaper by this factor: its price is the less certain one.
MARGIN = 1.2
# A table that is computed whole in less than this is kept up by its changes all the same: of so short a refresh most
# is the commit, and tables that read this one are spared a change set of all its rows.
LEAST_SECONDS = 20.0
FIXED_SHARE = 0.5
# An incremental refresh that takes this many times what a full one took is given up.
BUDGET = 2.0


@dataclass(frozen=True)
class Price:
    """Seconds that an incremental refresh and a full one are expected to take."""

    incremental: float
    full: float

    @property
    def prefers_full(self) -> bool:
        """Whether computing everything is the cheaper way, by a margin and by enough to matter.

        >>> Price(incremental=4.0, full=3.0).prefers_full
        False
        >>> Price(incremental=40.0, full=30.0).prefers_full
        True
        """
        return self.full >= LEAST_SECONDS and self.incremental * MARGIN >= self.full

    def __str__(self) -> str:
        return f"incremental={self.incremental:.1f} s, full={self.full:.1f} s"


def price_of(strategy: str, rows: int, records: Iterable[RefreshRecord], fingerprint: str) -> Price | None:
    """The price of refreshing `rows` changed rows by `strategy`; None where one of the two was never measured.

    `records` are committed refreshes of the table, newest first; those of another declaration do not count.
    """
    same = [record for record in records if record.fingerprint == fingerprint and record.committed]
    full = next((record for record in same if record.strategy == "full"), None)
    last = next((record for record in same if record.strategy == strategy), None)
    if full is None or last is None:
        return None
    share = rows / last.rows_in if last.rows_in else 1.0
    return Price(last.seconds * (FIXED_SHARE + (1 - FIXED_SHARE) * share), full.seconds)


def budget_of(records: Iterable[RefreshRecord], fingerprint: str) -> float | None:
    """Seconds after which an incremental refresh is given up for a full one; None where no full one was measured.

    Full refreshes that take less than LEAST_SECONDS leave that long: who is in a hurry has no measure of trouble.
    """
    for record in records:
        if record.fingerprint == fingerprint and record.committed and record.strategy == "full":
            return BUDGET * max(record.seconds, LEAST_SECONDS)
    return None
