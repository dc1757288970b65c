"""The range of a row's time, from a value that is computed from it: the start of its window, its hour, its day.

Scans skip files by the least and greatest values of columns, and know nothing of what is computed from them. So a
condition on a computed value is written again as one on the column.

Whole numbers can stand for times on the way: microseconds, days and months since 1970. All are taken for the point of
time at which they begin, so that the distance of two of them is a number of microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from sqlglot import exp

from freshline.query.functions import WINDOW_BOUNDS, is_time_window, name_of
from freshline.sql.expression import parse_expression

DAY = 86_400_000_000
# The greatest length of what date_trunc cuts off, in microseconds.
_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": DAY,
    "WEEK": 7 * DAY,
    "MONTH": 31 * DAY,
    "QUARTER": 92 * DAY,
    "YEAR": 366 * DAY,
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_NUMBER_AND_UNIT = re.compile(r"\s*([+-]?\d+(?:\.\d{1,6})?)\s+([A-Za-z]+)\s*")


class Scale(StrEnum):
    """The form in which values stand for points of time."""

    TIME = "time"  # a timestamp or a date
    MICROSECONDS = "microseconds"
    DAYS = "days"
    MONTHS = "months"


@dataclass(frozen=True)
class TimeRange:
    """A row whose `column` is t has a value from t + `least` to t + `greatest`, in microseconds.

    `table` is the alias that the column stands under, empty for none, and `scale` says how t is written in it.
    """

    column: str
    least: int = 0
    greatest: int = 0
    table: str = ""
    scale: Scale = Scale.TIME

    def moved(self, least: int, greatest: int) -> TimeRange:
        """The range of a value that is greater by so many microseconds."""
        return replace(self, least=self.least + least, greatest=self.greatest + greatest)


# The expression of LATERAL VIEW that a column is of, None for other columns.
Lateral = Callable[[exp.Column], exp.Expr | None]


def no_lateral(_: exp.Column) -> None:
    """There is no LATERAL VIEW."""


@lru_cache(maxsize=1024)
def find_time_range(expression: str) -> TimeRange | None:
    """The range of an expression over one column of times; None for one that is not understood.

    >>> find_time_range("timestamp_micros((unix_micros(ts) - pmod(unix_micros(ts), 900000000)))")
    TimeRange(column='ts', least=-899999999, greatest=0, table='', scale=<Scale.TIME: 'time'>)
    >>> found = find_time_range("date_trunc('HOUR', ts) + INTERVAL '1' HOUR")
    >>> found.least, found.greatest
    (0, 3600000000)
    >>> find_time_range("pmod(ts, 7)") is None
    True
    """
    try:
        return range_of(parse_expression(expression, several=False))
    except ValueError:
        return None


def range_of(node: exp.Expr, scale: Scale = Scale.TIME, lateral: Lateral = no_lateral) -> TimeRange | None:
    """The range of an expression whose value is a point of time on some scale; None for one not understood.

    The value is NULL where the column is NULL, and only there.
    """
    node = node.unnest()
    if isinstance(node, exp.Column):
        made = lateral(node)
        if made is not None:
            return _of_sequence(made, scale, lateral)
        return TimeRange(node.name.lower(), table=node.table, scale=scale)
    if scale is Scale.MONTHS and (of := _month_of(node)) is not None:
        return _cut(of, 31 * DAY, lateral)
    if isinstance(node, exp.Sub | exp.Add):
        return _sum_of(node, scale, lateral)
    if scale is Scale.TIME:
        return _of_time(node, lateral)
    if scale is Scale.MICROSECONDS and isinstance(node, exp.UnixMicros):
        return range_of(node.this, lateral=lateral)
    if scale is Scale.DAYS and isinstance(node, exp.DateDiff) and _is_epoch(node.expression) and _is_of_days(node):
        return _cut(node.this, DAY, lateral)
    return None


def _is_of_days(node: exp.DateDiff) -> bool:
    unit = node.args.get("unit")
    return unit is None or unit.name.upper() in ("DAY", "D", "DAYOFYEAR")


def width_of(interval: exp.Expr) -> tuple[int, int] | None:
    """The least and the greatest number of microseconds that an interval can be; None for another expression.

    >>> width_of(parse_expression("INTERVAL '1 hour 30 minutes'", several=False))
    (5400000000, 5400000000)
    """
    node = interval.unnest()
    if isinstance(node, exp.Neg):
        found = width_of(node.this)
        return None if found is None else (-found[1], -found[0])
    if isinstance(node, exp.Add):
        both = (width_of(node.this), width_of(node.expression))
        return None if both[0] is None or both[1] is None else (both[0][0] + both[1][0], both[0][1] + both[1][1])
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    unit = node.args.get("unit")
    if unit is not None and not isinstance(unit, exp.Var):
        return None
    return _width_of_text(node.this.name if unit is None else f"{node.this.name} {unit.name}")


def _width_of_text(text: str) -> tuple[int, int] | None:
    parts = list(_NUMBER_AND_UNIT.finditer(text))
    if not parts or "".join(part[0] for part in parts) != text:
        return None
    least = greatest = 0
    for part in parts:
        unit, whole = part[2].upper().removesuffix("S"), "." not in part[1]
        if unit in _MONTHS and whole:
            months = int(part[1]) * _MONTHS[unit]
            shorter, longer = sorted((28 * DAY * months, 31 * DAY * months))
        elif unit in _UNITS and unit not in _MONTHS:
            number, _, fraction = part[1].partition(".")
            sign = -1 if number.startswith("-") else 1
            millionths = abs(int(number)) * 1_000_000 + int(fraction.ljust(6, "0") or 0)
            exact, rest = divmod(millionths * _UNITS[unit], 1_000_000)
            if rest:
                return None
            shorter = longer = sign * exact
        else:
            return None
        least, greatest = least + shorter, greatest + longer
    return least, greatest


def _of_time(node: exp.Expr, lateral: Lateral) -> TimeRange | None:
    """The range of a timestamp or a date."""
    if isinstance(node, exp.TsOrDsToDate) and not node.args.get("format"):
        return _cut(node.this, DAY, lateral)
    if isinstance(node, exp.Cast):
        if node.to.is_type("date"):
            return _cut(node.this, DAY, lateral)
        return range_of(node.this, lateral=lateral) if node.to.is_type("timestamp", "timestamptz") else None
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        unit = _UNITS.get(str(node.args["unit"].name).upper())
        # `trunc` gives a date, which has no unit shorter than a week: of others it is NULL.
        known = unit is not None and (isinstance(node, exp.TimestampTrunc) or unit >= 7 * DAY)
        return _cut(node.this, unit, lateral) if unit is not None and known else None
    if isinstance(node, exp.AtTimeZone | exp.FromTimeZone):
        # No zone is further from UTC. In a zone that is NULL there is no time.
        found = range_of(node.this, lateral=lateral) if isinstance(node.args["zone"], exp.Literal) else None
        return None if found is None else found.moved(-DAY, DAY)
    if isinstance(node, exp.TsOrDsAdd) and _is_epoch(node.this) and str(node.args["unit"].name).upper() == "DAY":
        return range_of(node.expression, Scale.DAYS, lateral)
    if isinstance(node, exp.AddMonths) and _is_epoch(node.this):
        return range_of(node.expression, Scale.MONTHS, lateral)
    if isinstance(node, exp.Dot) and is_time_window(node.this):
        return _of_window(node, lateral)
    if name_of(node) == "timestamp_micros" and len(node.expressions) == 1:
        return range_of(node.expressions[0], Scale.MICROSECONDS, lateral)
    return None


def _of_window(bound: exp.Dot, lateral: Lateral) -> TimeRange | None:
    """The range of `window(ts, ..).start` or `.end`."""
    time, length, *_ = bound.this.expressions
    found, width = range_of(time, lateral=lateral), _width_of_text(length.name)
    side = bound.expression.name.lower()
    if found is None or width is None or side not in WINDOW_BOUNDS:
        return None
    return found.moved(-width[1], 0) if side == "start" else found.moved(0, width[1])


def _cut(node: exp.Expr, unit: int, lateral: Lateral) -> TimeRange | None:
    """The range of a time of which less than a unit is cut off."""
    found = range_of(node, lateral=lateral)
    return None if found is None else found.moved(-unit, 0)


def _sum_of(node: exp.Sub | exp.Add, scale: Scale, lateral: Lateral) -> TimeRange | None:
    """The range of x + n, x - n, and x - pmod(.., n), and of times and intervals."""
    found, other = range_of(node.this, scale, lateral), node.expression.unnest()
    moved = None if found is None else _moved_by(other, scale)
    if found is None or moved is None:
        return None
    if name_of(other) == "pmod" and any(
        (column.name.lower(), column.table) != (found.column, found.table)
        for column in other.expressions[0].find_all(exp.Column)
    ):
        # NULL in another column would be NULL here.
        return None
    least, greatest = moved
    return found.moved(-greatest, -least) if isinstance(node, exp.Sub) else found.moved(least, greatest)


def _moved_by(other: exp.Expr, scale: Scale) -> tuple[int, int] | None:
    """The least and the greatest distance by which a value that is added to a time moves it."""
    if scale is Scale.TIME:
        # A number that is added to a date is one of days, so it is left alone.
        return width_of(other)
    if isinstance(other, exp.Literal) and other.is_int:
        return _numbers(int(other.name), int(other.name), scale)
    if isinstance(other, exp.Case) and other.this is None:
        results = [branch.args["true"] for branch in other.args["ifs"]] + [other.args.get("default")]
        numbers = [int(each.name) for each in results if isinstance(each, exp.Literal) and each.is_int]
        return _numbers(min(numbers), max(numbers), scale) if len(numbers) == len(results) else None
    if name_of(other) == "pmod" and len(other.expressions) == 2:
        size = other.expressions[1].unnest()
        if isinstance(size, exp.Literal) and size.is_int and int(size.name) > 0:
            return _numbers(0, int(size.name) - 1, scale)
    return None


def _numbers(least: int, greatest: int, scale: Scale) -> tuple[int, int]:
    """The span between these numbers of a scale's units, in microseconds."""
    if scale is Scale.MONTHS:
        shortest = (28 if least >= 0 else 31) * DAY
        longest = (31 if greatest >= 0 else 28) * DAY
        return least * shortest, greatest * longest
    unit = DAY if scale is Scale.DAYS else 1
    return least * unit, greatest * unit


def _of_sequence(made: exp.Expr, scale: Scale, lateral: Lateral) -> TimeRange | None:
    """The range of each element of `explode(sequence(first, last, step))`."""
    sequence = made.this if isinstance(made, exp.Explode) else None
    if not isinstance(sequence, exp.GenerateSeries):
        return None
    step = sequence.args.get("step")
    first, last = (range_of(sequence.args[end], scale, lateral) for end in ("start", "end"))
    if first is None or last is None or not (isinstance(step, exp.Literal) and step.is_int):
        return None
    if (first.column, first.table, first.scale) != (last.column, last.table, last.scale):
        return None
    return replace(first, greatest=last.greatest)


def _month_of(node: exp.Expr) -> exp.Expr | None:
    """d of `year(d) * 12 + month(d) - 23641`, the months from 1970 on."""
    if not isinstance(node, exp.Sub) or node.expression.unnest().name != str(1970 * 12 + 1):
        return None
    total = node.this.unnest()
    if not isinstance(total, exp.Add):
        return None
    years, months = total.this.unnest(), total.expression.unnest()
    if not (isinstance(years, exp.Mul) and isinstance(years.this.unnest(), exp.Year) and isinstance(months, exp.Month)):
        return None
    year = years.this.unnest()
    if years.expression.unnest().name != "12" or year.this != months.this:
        return None
    found: exp.Expr = year.this
    return found


def _is_epoch(node: exp.Expr) -> bool:
    """Whether an expression is DATE'1970-01-01'."""
    while isinstance(node, exp.TsOrDsToDate | exp.Paren):
        node = node.this
    return isinstance(node, exp.Cast) and node.to.is_type("date") and node.this.name == "1970-01-01"
