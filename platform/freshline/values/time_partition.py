"""Time partitions: the half-open intervals [start, end) that a table is divided into, in one time zone.

Everything here is a value; the clock is handed in. A partition has one key, which statements, the command line and
Dagster use alike: `2026-11-01` for a day, a week (its Monday) or a month (its first day), `2026-11-01-05:00` for an
hour. The hour that comes twice when clocks go back has its offset behind the second one: `2026-10-25-02:00+0100`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from zoneinfo import ZoneInfo

from freshline.values.time_zones import known_time_zones

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_HOUR = re.compile(r"(\d{4}-\d{2}-\d{2}-\d{2}:\d{2})([+-]\d{4})?", re.ASCII)
_HOUR_FORMAT = "%Y-%m-%d-%H:%M"


class PartitionUnit(StrEnum):
    """The length of a partition."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def seconds(self) -> int:
        """The least length of such a partition where no clock is changed."""
        return {"hour": 3_600, "day": 86_400, "week": 7 * 86_400, "month": 28 * 86_400}[self.value]

    @property
    def example(self) -> str:
        """A key of this unit."""
        return {
            "hour": "2026-11-01-05:00",
            "day": "2026-11-01",
            "week": "2026-11-02, a Monday",
            "month": "2026-11-01, the first day of a month",
        }[self.value]


@dataclass(frozen=True, order=True)
class TimePartition:
    """One partition: the moments from `start` up to, and without, `end`, both in UTC."""

    start: datetime
    end: datetime
    key: str


@dataclass(frozen=True)
class TimePartitions:
    """All partitions of a table: `start` is the key of the first, and there is no last."""

    unit: PartitionUnit
    start: str
    time_zone: str = "UTC"

    @property
    def first(self) -> TimePartition:
        """The first partition."""
        return self._read(self.start)

    def named(self, key: str, now: datetime) -> TimePartition:
        """The partition of a key. Raises ValueError with a sentence for one that is none, or has not begun at `now`.

        >>> days = TimePartitions(PartitionUnit.DAY, "2026-03-01", "Europe/Paris")
        >>> days.named("2026-03-29", datetime(2026, 4, 1, tzinfo=UTC)).end
        datetime.datetime(2026, 3, 29, 22, 0, tzinfo=datetime.timezone.utc)
        """
        found = self._read(key)
        if found.start < self.first.start:
            raise ValueError(f"{key!r} is before the first partition, which is {self.start}")
        if found.start > now:
            raise ValueError(f"{key!r} is in the future: that partition begins at {found.start:%Y-%m-%d %H:%M} UTC")
        return found

    def between(self, first: str, last: str, now: datetime) -> list[TimePartition]:
        """The partitions from one key to another, both included. Raises ValueError as `named`, and for an empty set."""
        begin, end = self.named(first, now), self.named(last, now)
        if end.start < begin.start:
            raise ValueError(f"from {first!r} to {last!r} there is no partition: the first is after the last")
        return list(self.inside(begin.start, end.end))

    def at(self, moment: datetime) -> TimePartition:
        """The partition that a moment is in; it may be before the first."""
        return self._of(self._floor(moment))

    def inside(self, start: datetime, end: datetime) -> Iterator[TimePartition]:
        """The partitions that touch [start, end), in order, none before the first."""
        found = self.at(max(start, self.first.start))
        while found.start < end:
            yield found
            found = self.at(found.end)

    def begun(self, now: datetime) -> list[TimePartition]:
        """Every partition that has begun, the open one last."""
        return list(self.inside(self.first.start, now + timedelta(microseconds=1)))

    def closed_until(self, now: datetime) -> datetime:
        """The start of the open partition: everything from the first one up to there is closed."""
        return max(self.first.start, self.at(now).start)

    def local_date(self, moment: datetime) -> date:
        """The date that a calendar in the time zone shows at a moment."""
        return moment.astimezone(self._zone).date()

    def beginning_of(self, day: date) -> datetime:
        """The first moment of a date in the time zone; where clocks change at midnight, that is not 00:00."""
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)

    # -- how instants and keys follow from each other

    @property
    def _zone(self) -> ZoneInfo:
        return _zone(self.time_zone)

    def _read(self, key: str) -> TimePartition:
        refused = ValueError(
            f"{key!r} is not a partition. Partitions are named by the {self.unit}: {self.unit.example}"
        )
        found = _HOUR.fullmatch(key) if self.unit is PartitionUnit.HOUR else _DAY.fullmatch(key)
        if found is None:
            raise refused
        try:
            if self.unit is PartitionUnit.HOUR:
                # One without offset is the first of two hours of that name.
                parsed = datetime.fromisoformat(f"{key[:10]}T{key[11:]}")
                moment = (parsed if found[2] else parsed.replace(tzinfo=self._zone)).astimezone(UTC)
            else:
                moment = self.beginning_of(date.fromisoformat(key))
            partition = self._of(moment)
        except (ValueError, OverflowError):
            raise ValueError(f"{key!r} is no date that there is. {refused}") from None
        if partition.key != key or self._floor(moment) != moment:
            raise refused
        return partition

    def _of(self, start: datetime) -> TimePartition:
        return TimePartition(start, self._next(start), self._key(start))

    def _key(self, start: datetime) -> str:
        local = start.astimezone(self._zone)
        if self.unit is not PartitionUnit.HOUR:
            return local.date().isoformat()
        second = local.replace(fold=1).utcoffset() != local.replace(fold=0).utcoffset() and local.fold == 1
        return local.strftime(_HOUR_FORMAT + ("%z" if second else ""))

    def _floor(self, moment: datetime) -> datetime:
        if self.unit is PartitionUnit.HOUR:
            # Offsets that change do so by whole hours (`check`), so hours are as long as everywhere.
            offset = (moment.astimezone(self._zone).utcoffset() or timedelta()) % timedelta(hours=1)
            whole = (moment + offset).replace(minute=0, second=0, microsecond=0)
            return whole.astimezone(UTC) - offset
        day = self.local_date(moment)
        if self.unit is PartitionUnit.WEEK:
            day -= timedelta(days=day.weekday())
        elif self.unit is PartitionUnit.MONTH:
            day = day.replace(day=1)
        return self.beginning_of(day)

    def _next(self, start: datetime) -> datetime:
        if self.unit is PartitionUnit.HOUR:
            return start + timedelta(hours=1)
        day = self.local_date(start)
        if self.unit is PartitionUnit.MONTH:
            following = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
        else:
            following = day + timedelta(days=7 if self.unit is PartitionUnit.WEEK else 1)
        return self.beginning_of(following)


def read_time_partitions(unit: PartitionUnit, start: str, time_zone: str) -> TimePartitions:
    """The partitions that three options declare. Raises ValueError with a sentence for what cannot be."""
    if time_zone not in known_time_zones():
        raise ValueError(f"there is no time zone {time_zone!r}. Time zones are named as Europe/Paris or UTC")
    found = TimePartitions(unit, start, time_zone)
    try:
        first = found.first
    except ValueError as error:
        raise ValueError(f"'partition.start': {error}") from None
    if unit is PartitionUnit.HOUR:
        zone = _zone(time_zone)
        parts = {
            ((first.start + timedelta(days=30 * month)).astimezone(zone).utcoffset() or timedelta())
            % timedelta(hours=1)
            for month in range(25)
        }
        if len(parts) > 1:
            raise ValueError(f"in {time_zone} clocks change by less than an hour; hours there cannot be partitions")
    return found


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
