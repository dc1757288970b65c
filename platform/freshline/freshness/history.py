"""The past of a table's freshness as values: how far it lagged, and the refreshes it had.

A check of the lag is a sample, and a span stands for the samples of a minute or an hour: the first, the last and the
greatest lag of it. An hour also sums up its refreshes. Spans are kept for 7 days and hours for 30, so an old hour has
lost its shape and not its extremes. Everything here comes from the arguments: no clock and no storage is read.

A lag grows with the clock as long as the data stays, and a sample that lies on this line says nothing new. The time
between two checks therefore counts as late exactly where the data stayed; where newer data came in between, one half of
it counts by the lag before and the other by the lag after.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta

from freshline.values.result import RefreshResult

KEPT_SPANS = timedelta(days=7)
KEPT_HOURS = timedelta(days=30)
# A longer gap has no check: it counts neither as in time nor as late.
LONGEST_GAP = timedelta(hours=1)
# A line is written in pieces of this length, so that a page need not guess whether checks were made.
LONGEST_SPAN = timedelta(minutes=10)
# Checks are made by a clock, and data timestamps are those of another process.
_SAME_DATA_SECONDS = 0.5
# Of a reason; a mark with its indexes stays below 1 KB, also with the longest name.
MOST_REASON_BYTES = 300


@dataclass(frozen=True)
class LagSample:
    """The lag of a table at one moment, and the freshness that it promised then, both in seconds."""

    at: datetime
    lag_seconds: float
    freshness_seconds: int


@dataclass(frozen=True)
class LagSpan:
    """The lag of a table from `first_at` to `last_at`; a single sample is a span without length.

    `freshness_seconds` is the promise at the end. `judged_seconds` is the time that checks stand for, and
    `late_seconds` the part of it in which the promise was broken: both are 0 in a span that no check made.
    """

    first_at: datetime
    first_seconds: float
    last_at: datetime
    last_seconds: float
    greatest_seconds: float
    freshness_seconds: int
    judged_seconds: float = 0.0
    late_seconds: float = 0.0

    @classmethod
    def of(cls, sample: LagSample) -> LagSpan:
        """The span of one sample."""
        lag = sample.lag_seconds
        return cls(sample.at, lag, sample.at, lag, lag, sample.freshness_seconds)

    def with_span(self, other: LagSpan) -> LagSpan:
        """Both as one, whichever was first.

        >>> from datetime import UTC
        >>> noon = datetime(2026, 11, 1, 12, tzinfo=UTC)
        >>> one, two = (LagSpan.of(LagSample(noon + timedelta(minutes=m), lag, 60)) for m, lag in ((0, 5.0), (1, 90.0)))
        >>> both = two.with_span(one)
        >>> both.first_seconds, both.last_seconds, both.greatest_seconds
        (5.0, 90.0, 90.0)
        """
        first, last = (self, other) if self.first_at <= other.first_at else (other, self)
        end = other if other.last_at >= self.last_at else self
        return LagSpan(
            first.first_at,
            first.first_seconds,
            end.last_at,
            end.last_seconds,
            max(first.greatest_seconds, last.greatest_seconds),
            end.freshness_seconds,
            self.judged_seconds + other.judged_seconds,
            self.late_seconds + other.late_seconds,
        )


@dataclass(frozen=True)
class RefreshSums:
    """The sums of the refreshes of some time.

    `checks` are those of `refreshes` that found nothing new. `measured` are those whose CPU is in `cpu_seconds`: other
    work ran beside the rest.
    """

    refreshes: int = 0
    checks: int = 0
    failed: int = 0
    rows_in: int = 0
    rows_out: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    measured: int = 0


@dataclass(frozen=True)
class Hour:
    """One hour of a table, from `begin`; `lag` is None where nothing is known of it."""

    begin: datetime
    lag: LagSpan | None
    sums: RefreshSums


@dataclass(frozen=True)
class Mark:
    """A refresh, or a decision about the table, as a chart of the lag shows it: a result without what is large.

    `reason` is cut after 300 bytes. The other fields are those of a result.
    """

    at: datetime
    state: str
    reason: str
    strategy: str | None = None
    committed: bool = False
    version: int | None = None
    rows_in: int | None = None
    rows_out: int | None = None
    rejected: int = 0
    seconds: float = 0.0
    cpu_seconds: float | None = None
    lag_seconds: float | None = None
    freshness_seconds: int | None = None
    mode: str | None = None
    cause: str | None = None


@dataclass(frozen=True)
class Summary:
    """A table's day and week: the time that was judged and the part that was late, and what a day cost."""

    judged_day: float = 0.0
    late_day: float = 0.0
    judged_week: float = 0.0
    late_week: float = 0.0
    day: RefreshSums = RefreshSums()

    @property
    def share_day(self) -> float | None:
        """The share of the last 24 hours within the promise, from 0 to 1; None where no check was made."""
        return _share(self.judged_day, self.late_day)

    @property
    def share_week(self) -> float | None:
        """The same of the last 7 days."""
        return _share(self.judged_week, self.late_week)

    @property
    def cpu_seconds_a_day(self) -> float | None:
        """The CPU-seconds of the day's refreshes; those that were not measured count as the others on average."""
        day = self.day
        return day.cpu_seconds * day.refreshes / day.measured if day.measured else None


def mark_of(result: RefreshResult) -> Mark:
    """The mark of a result."""
    same = {each.name: getattr(result, each.name) for each in fields(Mark)}
    return Mark(**{**same, "state": str(result.state), "reason": cut_text(result.reason)})


def sums_of(result: RefreshResult) -> RefreshSums:
    """A single refresh, as what it adds."""
    return RefreshSums(
        refreshes=1,
        checks=int(result.is_check),
        failed=int(result.state == "FAILED"),
        rows_in=result.rows_in or 0,
        rows_out=result.rows_out or 0,
        seconds=result.seconds,
        cpu_seconds=result.cpu_seconds or 0.0,
        measured=int(result.cpu_seconds is not None),
    )


def sample_of(result: RefreshResult) -> LagSample | None:
    """The lag at the end of a refresh; None where the refresh does not report it."""
    if result.lag_seconds is None or result.freshness_seconds is None:
        return None
    return LagSample(result.at, result.lag_seconds, result.freshness_seconds)


def cut_text(text: str, most: int = MOST_REASON_BYTES) -> str:
    """The text in at most so many bytes of UTF-8, with an ellipsis where something is missing.

    >>> cut_text("abcdef", 6), cut_text("abcdefg", 6), cut_text("ääää", 6)
    ('abcdef', 'abc…', 'ä…')
    """
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= most:
        return encoded.decode("utf-8")
    ellipsis = "…".encode()
    return (encoded[: most - len(ellipsis)]).decode("utf-8", "ignore") + "…"


# -- checks


def judged(before: LagSample | None, sample: LagSample) -> tuple[float, float]:
    """The seconds between two checks, and those of them in which the promise was broken.

    Nothing counts where the clock was set back, or where no check was made for long.
    """
    if before is None:
        return 0.0, 0.0
    passed = (sample.at - before.at).total_seconds()
    if not 0.0 < passed <= LONGEST_GAP.total_seconds():
        return 0.0, 0.0
    if _is_same_data(before, sample):
        late = sample.lag_seconds - max(before.lag_seconds, float(before.freshness_seconds))
        return passed, min(max(late, 0.0), passed)
    half = passed / 2
    return passed, sum(half for one in (before, sample) if one.lag_seconds > one.freshness_seconds)


def _is_same_data(before: LagSample, sample: LagSample) -> bool:
    passed = (sample.at - before.at).total_seconds()
    return abs(before.lag_seconds + passed - sample.lag_seconds) < _SAME_DATA_SECONDS


@dataclass(frozen=True)
class SeenLag:
    """The state of one table that is kept from one check of its lag to the next.

    `last` is the newest sample, and `pending` the span that is not written yet, None directly after it was. `on_line`
    says that the data has stayed since the span began.
    """

    last: LagSample
    pending: LagSpan | None
    on_line: bool = True


def look(before: SeenLag | None, sample: LagSample) -> tuple[SeenLag, LagSpan | None]:
    """The state after a check, and the span to write, if one is over.

    A span ends with its minute, or after ten minutes where its samples lie on one line; also when the promise breaks or
    is kept again, when it changes, and when the clock is set back.
    """
    if before is None:
        # At once: a page has the table from its first check on.
        return SeenLag(sample, None), LagSpan.of(sample)
    seconds, late = judged(before.last, sample)
    added = replace(LagSpan.of(sample), judged_seconds=seconds, late_seconds=late)
    if sample.at < before.last.at:
        return SeenLag(sample, added), before.pending
    pending = added if before.pending is None else before.pending.with_span(added)
    on_line = before.on_line and _is_same_data(before.last, sample)
    other_promise = before.last.freshness_seconds != sample.freshness_seconds
    turned = _is_late(before.last) != _is_late(sample)
    length = sample.at - pending.first_at
    ends = length >= LONGEST_SPAN or (not on_line and sample.at.minute != pending.first_at.minute)
    if ends or other_promise or turned:
        return SeenLag(sample, None), pending
    return SeenLag(sample, pending, on_line), None


def _is_late(sample: LagSample) -> bool:
    return sample.lag_seconds > sample.freshness_seconds


def hour_of(at: datetime) -> datetime:
    """The begin of the hour."""
    return at.replace(minute=0, second=0, microsecond=0)


def minute_of(at: datetime) -> datetime:
    """The begin of the minute."""
    return at.replace(second=0, microsecond=0)


def _share(judged_seconds: float, late_seconds: float) -> float | None:
    return None if judged_seconds <= 0.0 else 1.0 - min(late_seconds / judged_seconds, 1.0)
