"""Stretches of a line that together cover some values: few enough to be written into a condition that skips files."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TypeVar

from freshline.compute.literal import EPOCH, sql_literal

# One late row of a month ago must not make a scan read the whole month.
MOST_RANGES = 16
Number = TypeVar("Number", int, float)
_MICROSECOND = timedelta(microseconds=1)
# The years that have a literal.
_FIRST = (datetime(1, 1, 3, tzinfo=UTC) - EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 29, tzinfo=UTC) - EPOCH) // _MICROSECOND


def cover_ranges(found: Iterable[tuple[Number, Number]], most: int = MOST_RANGES) -> list[tuple[Number, Number]]:
    """At most so many stretches, both ends included, that cover all of the given ones and leave out the widest gaps.

    >>> cover_ranges([(5, 9), (1, 2), (8, 12), (90, 99)])
    [(1, 2), (5, 12), (90, 99)]
    >>> cover_ranges([(1, 2), (5, 12), (90, 99)], most=2)
    [(1, 12), (90, 99)]
    """
    joined: list[tuple[Number, Number]] = []
    for least, greatest in sorted(found):
        if joined and least <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(greatest, joined[-1][1]))
        else:
            joined.append((least, greatest))
    gaps = sorted((after[0] - before[1] for before, after in pairwise(joined)), reverse=True)
    narrowest = gaps[most - 2] if len(gaps) >= most else 0
    kept: list[tuple[Number, Number]] = []
    for least, greatest in joined:
        if kept and (least - kept[-1][1] < narrowest or len(kept) == most):
            kept[-1] = (kept[-1][0], greatest)
        else:
            kept.append((least, greatest))
    return kept


def near_values(values: Iterable[object], least: float, greatest: float, *, whole: bool) -> list[tuple[float, float]]:
    """The stretches from `least` to `greatest` around times or dates, in microseconds since 1970.

    `values` are all of them where they are `whole`, else the least and the greatest.
    """
    moments = [(_moment(value) - EPOCH) // _MICROSECOND for value in values]
    if not moments:
        return []
    ends = zip(moments, moments, strict=True) if whole else [(min(moments), max(moments))]
    return [(first + least, last + greatest) for first, last in ends]


def time_condition(column: str, near: Iterable[tuple[float, float]], *, nulls: bool = False) -> str:
    """A condition in SQL on a column of times, true wherever one lies in one of these stretches, if not elsewhere.

    With `nulls` it is true for NULL too. An end outside of the years that have a literal is none.

    >>> time_condition("ts", [(float("-inf"), 0)], nulls=True)
    "(ts <= TIMESTAMP'1970-01-01 00:00:00+00:00') OR (ts IS NULL)"
    """
    texts = [f"({_within(column, least, greatest)})" for least, greatest in cover_ranges(near)]
    if nulls:
        texts.append(f"({column} IS NULL)")
    return " OR ".join(texts) or "false"


def _within(column: str, least: float, greatest: float) -> str:
    first, last = (_literal(end) for end in (least, greatest))
    if first is not None and last is not None:
        return f"{column} BETWEEN {first} AND {last}"
    if first is None and last is None:
        return f"{column} IS NOT NULL"
    return f"{column} >= {first}" if last is None else f"{column} <= {last}"


def _literal(end: float) -> str | None:
    return sql_literal(EPOCH + int(end) * _MICROSECOND) if _FIRST <= end <= _LAST else None


def _moment(value: object) -> datetime:
    if isinstance(value, datetime):
        return value
    assert isinstance(value, date)
    return datetime(value.year, value.month, value.day, tzinfo=UTC)
