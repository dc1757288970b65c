"""The time partitions of a table as a calendar: a cell for each, in groups as a calendar on a wall has them.

The state of a partition follows from the receipt of the newest commit alone: whether its rows are there, and are those
of the declaration of now. Whether an input has changed since is unknown, because Spark would have to read the changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from freshline.values.partition import PartitionSpan, PartitionState, state_of
from freshline.values.time_partition import PartitionUnit, TimePartition, TimePartitions

MOST_CELLS = 372
# The part of a key that names a group, and the part that names a cell in it.
_CUT = {PartitionUnit.HOUR: 10, PartitionUnit.DAY: 7, PartitionUnit.WEEK: 4, PartitionUnit.MONTH: 4}


@dataclass(frozen=True)
class Cell:
    """One partition: its key, a short label, its state, whether it is still open, and the column of a grid, from 1."""

    key: str
    label: str
    state: PartitionState
    is_open: bool
    column: int


@dataclass(frozen=True)
class CellGroup:
    """The partitions of one month, day or year."""

    label: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Calendar:
    """The newest partitions that have begun, the oldest first; `is_cut` where there are others before these."""

    unit: PartitionUnit
    groups: tuple[CellGroup, ...]
    is_cut: bool

    def count(self, state: PartitionState) -> int:
        """How many of the shown partitions have a state."""
        return sum(cell.state is state for group in self.groups for cell in group.cells)


def make_calendar(
    partitions: TimePartitions, spans: Sequence[PartitionSpan], fingerprint: str, now: datetime
) -> Calendar:
    """The calendar of a table; `spans` are those of its newest receipt, none where it was never refreshed."""
    first = partitions.first.start
    # Not all of years of hours are made. The begin is rough: a day on which clocks change has one more or less.
    begin = max(first, now - timedelta(seconds=partitions.unit.seconds * MOST_CELLS))
    shown = list(partitions.inside(begin, now + timedelta(microseconds=1)))[-MOST_CELLS:]
    groups: dict[str, list[Cell]] = {}
    for partition in shown:
        label = partition.key[: _CUT[partitions.unit]]
        state = state_of(partition, spans, fingerprint)
        cell = Cell(
            partition.key,
            _label(partition, partitions.unit),
            state,
            partition.end > now,
            _column(partition, partitions),
        )
        groups.setdefault(label, []).append(cell)
    made = tuple(CellGroup(label, tuple(cells)) for label, cells in groups.items())
    return Calendar(partitions.unit, made, bool(shown) and shown[0].start > first)


def _label(partition: TimePartition, unit: PartitionUnit) -> str:
    rest = partition.key[_CUT[unit] + 1 :]
    return rest[:2] if unit in (PartitionUnit.HOUR, PartitionUnit.MONTH) else rest


def _column(partition: TimePartition, partitions: TimePartitions) -> int:
    """The weekday of a day, from 1 for Monday; 0 where cells simply follow each other."""
    if partitions.unit is not PartitionUnit.DAY:
        return 0
    return partitions.local_date(partition.start).isoweekday()
