"""The progress of the events of a log table: the watermark after each batch, as a value.

The watermark after a batch is the greatest of the one before it and, over the source's partitions, the least of their
greatest times so far, less the delay. It never goes back. A partition that is silent for long is left out, so that it
does not delay the others. Everything here comes from the arguments: no clock and no storage is read, and the receipt
of a batch has the value, so that the log alone says what its watermark was after each of its batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from freshline.values.clock import as_microseconds, from_microseconds
from freshline.values.spec import SourceSpec

_FIRST = datetime.min.replace(tzinfo=UTC)
# A time before this one has no place in a Python value. Spark reads such texts, and they move nothing.
FIRST_MICROSECOND = as_microseconds(_FIRST)
# The source partition of a connector whose records are all of one.
WHOLE_SOURCE = ""


class MovedBy(StrEnum):
    """The cause of the watermark after a batch."""

    EVENTS = "events"  # the times of rows
    CLOCK = "clock"  # the engine's clock, because every partition was idle
    NOTHING = "nothing"  # it stands where it stood


@dataclass(frozen=True)
class WatermarkRules:
    """The declared rules of a watermark.

    `delay_seconds` is d in `WATERMARK FOR c AS c - d`. `idle_seconds` is how long a partition may have nothing to read
    before it is left out. `max_ahead_seconds` is how far a time may be ahead of its arrival and still count. With
    `follows_clock` the watermark follows the clock while all partitions are idle, else it stands still.
    """

    delay_seconds: float = 0.0
    idle_seconds: float = 60.0
    max_ahead_seconds: float = 86_400.0
    follows_clock: bool = False


def rules_of(spec: SourceSpec) -> WatermarkRules:
    """The rules that a source declares of its watermark."""
    delay = 0 if spec.watermark is None else spec.watermark.delay_seconds
    return WatermarkRules(
        delay_seconds=delay,
        idle_seconds=spec.idle_seconds,
        max_ahead_seconds=spec.max_ahead_seconds,
        follows_clock=spec.follows_clock,
    )


@dataclass(frozen=True)
class PartitionTime:
    """One partition of a source.

    `greatest` is the greatest time so far that counted, None before the first. `active_at` is when, by the engine's
    clock, a record of it last counted or it had unread records. `idle` says that the batch's decision left it out.
    """

    greatest: datetime | None
    active_at: datetime
    idle: bool = False


@dataclass(frozen=True)
class SeenTimes:
    """The times of the accepted rows of one batch.

    `greatest` are the greatest times that count, by partition. `late` is how many rows are before the watermark before
    the batch, `ahead` how many are too far ahead of their arrival to count. `late_by_seconds` is how far the earliest
    late one is behind that watermark.
    """

    greatest: Mapping[str, datetime] = field(default_factory=dict)
    late: int = 0
    ahead: int = 0
    late_by_seconds: float = 0.0


@dataclass(frozen=True)
class EventTime:
    """The facts that a log table has of its events after a batch.

    `column` is the stored column of the times. `watermark` is the watermark after the batch and `before` the one before
    it, None where there is none yet. `partitions` are those of the source, by their text; none where rows came that
    were not inspected, because no watermark was declared then. `moved_by` says what the
    watermark follows from. `late` and `ahead` count rows of this batch, and `late_by_seconds` is the most that one of
    them is late by. `moved_at` is when, by the engine's clock, the watermark moved last, None in receipts of earlier
    commits.
    """

    column: str
    watermark: datetime | None = None
    before: datetime | None = None
    partitions: Mapping[str, PartitionTime] = field(default_factory=dict)
    moved_by: MovedBy = MovedBy.NOTHING
    late: int = 0
    ahead: int = 0
    late_by_seconds: float = 0.0
    moved_at: datetime | None = None

    @property
    def greatest(self) -> datetime | None:
        """The greatest time that counted, in any partition."""
        return max((each.greatest for each in self.partitions.values() if each.greatest is not None), default=None)

    @property
    def held_by(self) -> tuple[str, ...]:
        """The partitions that delay the watermark: those with the least time of all that were not left out.

        >>> at = datetime(2026, 1, 1, tzinfo=UTC)
        >>> slow, fast = PartitionTime(at, at), PartitionTime(at + timedelta(hours=1), at)
        >>> EventTime("ts", partitions={"0": fast, "1": slow}).held_by
        ('1',)
        >>> EventTime("ts", partitions={"0": fast, "1": PartitionTime(None, at), "2": slow}).held_by
        ('1',)
        """
        active = {name: each.greatest for name, each in sorted(self.partitions.items()) if not each.idle}
        empty = tuple(name for name, greatest in active.items() if greatest is None)
        least = min((greatest for greatest in active.values() if greatest is not None), default=None)
        return empty or tuple(name for name, greatest in active.items() if greatest == least)


@dataclass(frozen=True)
class TableWatermark:
    """The watermark of a table or of a source.

    `at` is None where there is none yet, or an input never has one. `held_by` are the sources, with the partition where
    they have several, that delay it.
    """

    at: datetime | None
    held_by: tuple[str, ...] = ()


def source_watermark(name: str, event_time: EventTime | None) -> TableWatermark:
    """The watermark of a log table by the value in its receipt, None where the receipt has none.

    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> partitions = {"0": PartitionTime(None, at), "1": PartitionTime(at, at)}
    >>> source_watermark("orders", EventTime("ts", at, partitions=partitions)).held_by
    ('orders (partition 0)',)
    >>> source_watermark("orders", EventTime("ts", at, partitions={"": PartitionTime(at, at, idle=True)})).held_by
    ('orders (idle)',)
    """
    if event_time is None:
        return TableWatermark(None, (name,))
    held = tuple(name if each == WHOLE_SOURCE else f"{name} (partition {each})" for each in event_time.held_by)
    return TableWatermark(event_time.watermark, held or (f"{name} (idle)",))


def least_watermark(inputs: Sequence[TableWatermark]) -> TableWatermark:
    """The watermark of a table: the least of its inputs', and none where one of them has none.

    >>> at = datetime(2026, 1, 1, tzinfo=UTC)
    >>> later = TableWatermark(at + timedelta(hours=1), ("b",))
    >>> least_watermark([later, TableWatermark(at, ("a",)), TableWatermark(at, ("c", "a"))]).held_by
    ('a', 'c')
    >>> least_watermark([later, TableWatermark(None, ("d",))])
    TableWatermark(at=None, held_by=('d',))
    """
    times = [each.at for each in inputs if each.at is not None]
    least = min(times) if times and len(times) == len(inputs) else None
    return TableWatermark(least, tuple(dict.fromkeys(by for each in inputs if each.at == least for by in each.held_by)))


def after_batch(
    before: EventTime | None,
    seen: SeenTimes,
    unread: Mapping[str, bool],
    *,
    now: datetime,
    rules: WatermarkRules,
    column: str,
) -> EventTime:
    """The value after a batch.

    `before` is the one after the batch before it, None for the first. `unread` are the partitions that the source has,
    each with whether it still has records behind this batch. `now` is the engine's clock.

    >>> at = datetime(2026, 1, 1, 10, tzinfo=UTC)
    >>> rules = WatermarkRules(delay_seconds=300)
    >>> def batch(before, hour, minute, now=at):
    ...     seen = SeenTimes({"": at.replace(hour=hour, minute=minute)})
    ...     return after_batch(before, seen, {"": False}, now=now, rules=rules, column="ts")
    >>> first = batch(None, 10, 10)
    >>> print(first.watermark, first.moved_by)
    2026-01-01 10:05:00+00:00 events
    >>> print(batch(first, 10, 0).watermark, batch(first, 10, 20).watermark)
    2026-01-01 10:05:00+00:00 2026-01-01 10:15:00+00:00
    """
    known = {} if before is None else before.partitions
    partitions = {
        name: _partition(known.get(name), seen.greatest.get(name), now, rules, unread=unread.get(name, False))
        for name in sorted({*known, *unread, *seen.greatest})
    }
    was = None if before is None else before.watermark
    target, moved_by = _target(partitions, now, rules)
    if target is None or (was is not None and target <= was):
        target, moved_by = was, MovedBy.NOTHING
    moved_at = before.moved_at if before is not None and moved_by is MovedBy.NOTHING else now
    return EventTime(column, target, was, partitions, moved_by, seen.late, seen.ahead, seen.late_by_seconds, moved_at)


def _partition(
    known: PartitionTime | None, seen: datetime | None, now: datetime, rules: WatermarkRules, *, unread: bool
) -> PartitionTime:
    times = [time for time in (None if known is None else known.greatest, seen) if time is not None]
    greatest = max(times, default=None)
    if known is None or seen is not None or unread:
        # A clock that was set back must not make a partition seem silent later.
        return PartitionTime(greatest, now if known is None else max(known.active_at, now))
    silent = (now - known.active_at).total_seconds()
    return PartitionTime(greatest, known.active_at, idle=silent >= rules.idle_seconds)


def _target(
    partitions: Mapping[str, PartitionTime], now: datetime, rules: WatermarkRules
) -> tuple[datetime | None, MovedBy]:
    """The watermark that the partitions would give, had there been none before."""
    active = [each.greatest for each in partitions.values() if not each.idle]
    if active:
        least = None if None in active else min(time for time in active if time is not None)
        return (None if least is None else earlier(least, rules.delay_seconds)), MovedBy.EVENTS
    if partitions and rules.follows_clock:
        return earlier(now, rules.delay_seconds + rules.idle_seconds), MovedBy.CLOCK
    return None, MovedBy.NOTHING


def after_pause(
    before: EventTime, unread: Mapping[str, bool], *, now: datetime, rules: WatermarkRules
) -> EventTime | None:
    """The value after an empty batch where one is due; None where the watermark would stand, or move by too little.

    One is due when a partition that has fallen silent no longer delays the others, and, where the watermark follows
    the clock, once in `idle_seconds`: more often, the commits would cost more than they are worth.

    >>> at = datetime(2026, 1, 1, 10, tzinfo=UTC)
    >>> rules = WatermarkRules(idle_seconds=60, follows_clock=True)
    >>> before = EventTime("ts", at, at, {"": PartitionTime(at, at)})
    >>> def pause(seconds):
    ...     return after_pause(before, {"": False}, now=at + timedelta(seconds=seconds), rules=rules)
    >>> pause(59), pause(119)
    (None, None)
    >>> after = pause(120)
    >>> print(after.watermark, after.moved_by)
    2026-01-01 10:01:00+00:00 clock
    """
    after = after_batch(before, SeenTimes(), unread, now=now, rules=rules, column=before.column)
    if after.watermark is None or after.moved_by is MovedBy.NOTHING:
        return None
    if after.moved_by is MovedBy.CLOCK and before.watermark is not None:
        moved = (after.watermark - before.watermark).total_seconds()
        return after if moved >= rules.idle_seconds else None
    return after


def count_times(
    rows: Iterable[tuple[str, int | None]], *, before: datetime | None, now: datetime, rules: WatermarkRules
) -> SeenTimes:
    """The times of rows, each its partition and the microseconds since 1970 in UTC, None for a NULL.

    `before` is the watermark before the batch, `now` when the rows arrived.

    >>> now = datetime(2026, 1, 1, tzinfo=UTC)
    >>> at = as_microseconds(now)
    >>> rows = [("", at), ("", at - 1), ("", None), ("", at + 86_400_000_001)]
    >>> seen = count_times(rows, before=now, now=now, rules=WatermarkRules())
    >>> print(seen.greatest[""], seen.late, seen.ahead, seen.late_by_seconds)
    2026-01-01 00:00:00+00:00 1 1 1e-06
    """
    limit, edge = last_microsecond(now, rules), None if before is None else as_microseconds(before)
    greatest: dict[str, int] = {}
    late = ahead = late_by = 0
    for partition, time in rows:
        if time is None:
            continue
        if edge is not None and time < edge:
            late += 1
            late_by = max(late_by, edge - time)
        if time > limit:
            ahead += 1
        elif time >= FIRST_MICROSECOND:
            greatest[partition] = max(time, greatest.get(partition, time))
    times = {name: from_microseconds(time) for name, time in greatest.items()}
    return SeenTimes(times, late, ahead, late_by / 1_000_000)


def last_microsecond(now: datetime, rules: WatermarkRules) -> int:
    """The last time that counts of a row that arrives now, in microseconds since 1970."""
    return as_microseconds(now) + round(rules.max_ahead_seconds * 1_000_000)


def earlier(moment: datetime, seconds: float) -> datetime:
    """The moment so much before another; the first moment of all where there is none so early.

    >>> print(earlier(_FIRST, 60))
    0001-01-01 00:00:00+00:00
    """
    try:
        return moment - timedelta(seconds=seconds)
    except OverflowError:
        return _FIRST
