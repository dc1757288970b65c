"""Stretches of a line that together hold some values: few enough to be written into a condition that skips files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from freshline.query.rules.time_range import TimeRange
from freshline.refresh.literal import EPOCH, sql_literal

# One late row of a month ago must not make a scan read the whole month.
MOST_STRETCHES = 16
_MICROSECOND = timedelta(microseconds=1)


def stretches(found: Iterable[tuple[int, int]], most: int = MOST_STRETCHES) -> list[tuple[int, int]]:
    """At most so many stretches, both ends included, that hold all of the given ones and leave out the widest gaps.

    >>> stretches([(5, 9), (1, 2), (8, 12), (90, 99)])
    [(1, 2), (5, 12), (90, 99)]
    >>> stretches([(1, 2), (5, 12), (90, 99)], most=2)
    [(1, 12), (90, 99)]
    """
    joined: list[tuple[int, int]] = []
    for least, greatest in sorted(found):
        if joined and least <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(greatest, joined[-1][1]))
        else:
            joined.append((least, greatest))
    gaps = sorted((after[0] - before[1] for before, after in pairwise(joined)), reverse=True)
    narrowest = gaps[most - 2] if len(gaps) >= most else 0
    kept: list[tuple[int, int]] = []
    for least, greatest in joined:
        if kept and (least - kept[-1][1] < narrowest or len(kept) == most):
            kept[-1] = (kept[-1][0], greatest)
        else:
            kept.append((least, greatest))
    return kept


def time_condition(column: str, values: Iterable[object], near: TimeRange, *, whole: bool) -> str | None:
    """A condition in SQL on a column of times that holds wherever a value computed from it can be one of these.

    `values` are times or dates: all of them where they are `whole`, else the least and the greatest. None where an end
    lies outside of the years that have a literal.
    """
    moments = [(_moment(value) - EPOCH) // _MICROSECOND for value in values]
    ends = zip(moments, moments, strict=True) if whole else [(min(moments), max(moments))]
    found = stretches((least - near.greatest, greatest - near.least) for least, greatest in ends)
    try:
        texts = [[sql_literal(EPOCH + end * _MICROSECOND) for end in each] for each in found]
    except OverflowError:
        return None
    return " OR ".join(f"{column} BETWEEN {least} AND {greatest}" for least, greatest in texts)


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    assert isinstance(value, date)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)
