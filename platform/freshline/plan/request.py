"""The request for one refresh."""

from __future__ import annotations

from dataclasses import dataclass

MANUAL = "manual"
LIVE = "live"
BACKFILL = "backfill"


@dataclass(frozen=True)
class RefreshRequest:
    """One refresh of one table.

    `full` recomputes everything. `partitions` names partitions to replace, each as pairs of column and value text.
    `strategy` asks for one strategy and no other. `cause` is who asks: `manual`, `live` or `backfill`, which is also
    the order they are served in and the scheduler pool they run in. `wait_for_settle` makes a log table wait for files
    that are still being written. `start` says from when on a changed declaration applies: `now`, or a date as
    `2026-11-01`; it counts only where the declaration changed. From the beginning is `full`.
    `backfill` is the backfill that the partitions are replaced for. `retry` decodes the quarantined records of a log
    table again, and reads nothing of its source. Of a table it asks again for the rows without an answer of a lookup.
    """

    full: bool = False
    partitions: tuple[tuple[tuple[str, str], ...], ...] = ()
    cause: str = MANUAL
    wait_for_settle: bool = False
    strategy: str | None = None
    start: str | None = None
    backfill: str | None = None
    retry: bool = False
