"""Counts of an engine since its start: of refreshes that ended, and of the seconds in which promises were kept.

They begin at 0 with each engine, as Prometheus expects of counters: `rate()` and `increase()` know a restart by it.
Counts from the refresh log would stand still at a restart too, and would jump where a log is lost or put back.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from freshline.report.metrics.exposition import label_text
from freshline.report.status import TableStatus
from freshline.values.result import RefreshResult, State

# Upper bounds in seconds. Continuous tables take tenths of a second, a full refresh takes minutes or hours.
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
# The label of a refresh that did not succeed, whichever strategy it had begun with.
NO_STRATEGY = "none"


@dataclass(frozen=True)
class RefreshCounts:
    """The refreshes of one table that ended.

    `ended` counts them by strategy and state. Rows are those read, written, rejected, and of a log table those behind
    its watermark. `seconds` is the time that they took, `cpu_seconds` the CPU of those that ran alone.
    `failures_in_a_row` counts since the last success; a cancelled refresh changes nothing of it.
    """

    ended: Mapping[tuple[str, str], int] = field(
        # A counter that begins with 1 hides its first event from `increase()`.
        default_factory=lambda: {("noop", str(State.SUCCEEDED)): 0, (NO_STRATEGY, str(State.FAILED)): 0}
    )
    rows_read: int = 0
    rows_written: int = 0
    rows_rejected: int = 0
    rows_late: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    failures_in_a_row: int = 0

    def after(self, outcome: RefreshResult | None) -> RefreshCounts:
        """The counts with one refresh more. None is a refresh that ended without an outcome, which has failed."""
        if outcome is None:
            return replace(self, ended=self._ended(None), failures_in_a_row=self.failures_in_a_row + 1)
        failures = self.failures_in_a_row
        if outcome.state == State.SUCCEEDED:
            failures = 0
        elif outcome.state == State.FAILED:
            failures += 1
        return RefreshCounts(
            ended=self._ended(outcome),
            rows_read=self.rows_read + (outcome.rows_in or 0),
            rows_written=self.rows_written + (outcome.rows_out or 0),
            rows_rejected=self.rows_rejected + outcome.rejected,
            rows_late=self.rows_late + (outcome.late_rows or 0),
            seconds=self.seconds + outcome.seconds,
            cpu_seconds=self.cpu_seconds + (outcome.cpu_seconds or 0.0),
            failures_in_a_row=failures,
        )

    def _ended(self, outcome: RefreshResult | None) -> dict[tuple[str, str], int]:
        key = (strategy_of(outcome), str(State.FAILED if outcome is None else outcome.state))
        return {**self.ended, key: self.ended.get(key, 0) + 1}


def strategy_of(outcome: RefreshResult | None) -> str:
    """The label of the strategy of a refresh."""
    if outcome is None or outcome.state != State.SUCCEEDED or outcome.strategy is None:
        return NO_STRATEGY
    return label_text(outcome.strategy)


@dataclass(frozen=True)
class Durations:
    """How long refreshes took: `counts` has one number for each of BUCKETS and one for longer ones."""

    counts: tuple[int, ...] = (0,) * (len(BUCKETS) + 1)
    seconds: float = 0.0

    def after(self, seconds: float) -> Durations:
        """With one refresh more.

        >>> Durations().after(0.1).after(7200.0).counts
        (1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
        """
        place = bisect_left(BUCKETS, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return Durations(counts, self.seconds + seconds)


@dataclass(frozen=True)
class PromiseSeconds:
    """The seconds in which the engine observed the promise of a table, and those of them in which it was broken."""

    observed: float = 0.0
    late: float = 0.0

    def after(self, status: TableStatus, seconds: float) -> PromiseSeconds:
        """With the time since the check before: `seconds` by a clock that nobody sets.

        A table without data, and one that is suspended, blocked or paused, has no promise to keep meanwhile. One that
        is late has been so since its lag passed the promise, and not for longer than there was to observe.
        """
        if status.lag_seconds is None or is_held(status):
            return self
        late = min(seconds, max(0.0, status.lag_seconds - status.freshness_seconds))
        return PromiseSeconds(self.observed + seconds, self.late + late)


def is_held(status: TableStatus) -> bool:
    """Whether somebody decided that the table is left as it is."""
    return status.suspended is not None or status.blocked_by is not None or status.paused is not None
