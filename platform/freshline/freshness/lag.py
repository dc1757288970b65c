"""Lag: how far a table's data is behind its root sources (rule 1 of docs/rules.md).

The data timestamp of a table is a time up to which everything that its driving roots had is in its newest
version. It moves forward without a commit: a check that finds nothing new in a source is handed on to every table
that has read the newest version of each of its inputs. A new version of an input does not take that back: its receipt
says how far the version before it was. Everything here comes from the arguments; no clock and no storage is read.

When the values were read one after the other, a table may stand beside an older check of what it reads. The answer
is then too early, never too late: read the checks first, then tables before what they read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from freshline.values.names import TableName
from freshline.values.position import Position, TablePosition

# A commit may come between the moment that a status is of and the reading of its receipt.
CLOCK_SLACK = timedelta(seconds=5)


@dataclass(frozen=True)
class LagFacts:
    """The facts that are known of one table or source.

    `driving` are the inputs that count in its lag (none for a source). `newest` is its own newest version, `reached`
    the positions of the inputs in its newest receipt. `data_timestamp` is that of the last check for a source and of
    the newest receipt for a table, None where there is neither. `superseded` has the inputs of which there are newer
    versions than the one reached, where it is known, with the time up to which that one had everything.
    """

    newest: TablePosition | None
    data_timestamp: datetime | None
    driving: tuple[TableName, ...] = ()
    reached: Mapping[TableName, Position] = field(default_factory=dict)
    superseded: Mapping[TableName, datetime] = field(default_factory=dict)


def data_timestamps(held: Mapping[TableName, LagFacts]) -> dict[TableName, datetime | None]:
    """The data timestamp of each; the graph of `driving` has no cycle."""
    known: dict[TableName, datetime | None] = {}

    def of(name: TableName) -> datetime | None:
        if name not in known:
            known[name] = _data_timestamp(held[name])
        return known[name]

    def _data_timestamp(table: LagFacts) -> datetime | None:
        own = table.data_timestamp
        if table.newest is None or not table.driving:
            return own
        handed_on: list[datetime] = []
        for name in table.driving:
            has_newest = name in held and is_newest(table.reached.get(name), held[name].newest)
            stamp = of(name) if has_newest else table.superseded.get(name)
            if stamp is None:
                return own
            handed_on.append(stamp)
        # The statement of the receipt stays true, also when the time of a later check is not known any more.
        return max([min(handed_on), *([] if own is None else [own])])

    return {name: of(name) for name in held}


def newest_stamp(stamps: Iterable[datetime], now: datetime) -> datetime | None:
    """The newest of several data timestamps that are all true; None for none.

    One in the future was taken before the clock was put back. By the clock as it is now it says less than one of the
    past, and counts only where there is no other.

    >>> from datetime import UTC
    >>> past, now, future = (datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in (11, 12, 13))
    >>> newest_stamp([past, future], now) == past, newest_stamp([future], now) == future
    (True, True)
    """
    known = list(stamps)
    return max([stamp for stamp in known if not is_future(stamp, now)] or known, default=None)


def is_future(stamp: datetime, now: datetime) -> bool:
    """Whether the clock was put back since a time was taken: by more than two readings of it may differ."""
    return stamp > now + CLOCK_SLACK


def is_newest(reached: Position | None, newest: TablePosition | None) -> bool:
    """Whether the position reached has the same rows as the newest version.

    >>> is_newest(TablePosition("a", 4, seq=2), TablePosition("a", 9, seq=2))
    True
    >>> is_newest(TablePosition("a", 4), TablePosition("b", 4))
    False
    >>> is_newest(TablePosition("a", 4, seq=2, epoch=1), TablePosition("a", 4, seq=2, epoch=3))
    False
    """
    if not isinstance(reached, TablePosition) or newest is None or reached.table_id != newest.table_id:
        return False
    by_seq = reached.seq is not None and newest.seq is not None
    same = reached.seq == newest.seq if by_seq else reached.version == newest.version
    return same and not reached.is_other_writers(newest)


def stands_still(
    data_timestamp: datetime | None, allowed: float, refreshed_from: datetime | None, inputs: Iterable[datetime | None]
) -> bool:
    """Whether a table is late and a refresh did not help, although everything that drives it is newer.

    `allowed` are the seconds of its promise, `refreshed_from` is when its newest refresh began, None unless that
    succeeded. A refresh that begins when the table is late already, and ends well, brings in what its inputs have.

    >>> from datetime import UTC
    >>> past, refreshed, now = (datetime(2026, 11, 1, 8, minute, tzinfo=UTC) for minute in (0, 7, 9))
    >>> stands_still(past, 300, refreshed, [now, now]), stands_still(past, 300, refreshed, [now, past])
    (True, False)
    >>> stands_still(past, 600, refreshed, [now])
    False
    """
    if data_timestamp is None or refreshed_from is None:
        return False
    late_since = data_timestamp + timedelta(seconds=allowed)
    stamps = list(inputs)
    newer = bool(stamps) and all(stamp is not None and stamp > late_since for stamp in stamps)
    return newer and refreshed_from > late_since


def lag_seconds(data_timestamp: datetime | None, now: datetime) -> float | None:
    """The seconds that the data is behind `now`, never negative; None where there is no data yet."""
    return None if data_timestamp is None else max(0.0, (now - data_timestamp).total_seconds())
