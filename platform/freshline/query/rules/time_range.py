"""Where a row's time lies, told from a value that is computed from it: the start of its window, its hour, its day.

Scans skip files by the least and greatest values of columns, and know nothing of what is computed from them. So a
condition on a computed value is told again as one on the column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from freshline.declare.expression import parse_expression
from freshline.query.functions import name_of

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


@dataclass(frozen=True)
class TimeRange:
    """A row whose `column` is t has a value from t + `least` to t + `greatest`, in microseconds."""

    column: str
    least: int = 0
    greatest: int = 0

    def moved(self, by: int) -> TimeRange:
        """The range of a value that is greater by so many microseconds."""
        return replace(self, least=self.least + by, greatest=self.greatest + by)


@lru_cache(maxsize=1024)
def find_time_range(expression: str) -> TimeRange | None:
    """The range of an expression over one column of times; None for one that is not understood.

    >>> find_time_range("timestamp_micros((unix_micros(ts) - pmod(unix_micros(ts), 900000000)))")
    TimeRange(column='ts', least=-899999999, greatest=0)
    >>> find_time_range("date_trunc('HOUR', ts)")
    TimeRange(column='ts', least=-3600000000, greatest=0)
    >>> find_time_range("ts")
    TimeRange(column='ts', least=0, greatest=0)
    >>> find_time_range("pmod(ts, 7)") is None
    True
    """
    try:
        parsed = parse_expression(expression, several=False).unnest()
        return _of_column(parsed, 0) if isinstance(parsed, exp.Column) else _range_of(parsed)
    except ValueError:
        return None


def _range_of(node: exp.Expr) -> TimeRange | None:
    node = node.unnest()
    if isinstance(node, exp.Sub | exp.Add):
        return _sum_of(node)
    if isinstance(node, exp.Cast) and node.to.is_type("date"):
        return _of_column(node.this, DAY)
    if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
        unit = _UNITS.get(str(node.args["unit"].name).upper())
        return None if unit is None else _of_column(node.this, unit)
    called = name_of(node)
    if isinstance(node, exp.UnixMicros):
        return _of_column(node.this, 0)
    if called == "timestamp_micros" and len(node.expressions) == 1:
        return _range_of(node.expressions[0])
    return None


def _of_column(node: exp.Expr, cut_off: int) -> TimeRange | None:
    column = node.unnest()
    return TimeRange(column.name, -cut_off, 0) if isinstance(column, exp.Column) else None


def _sum_of(node: exp.Sub | exp.Add) -> TimeRange | None:
    """The range of x + n, x - n, and x - pmod(.., n)."""
    found, other = _range_of(node.this), node.expression.unnest()
    if found is None:
        return None
    sign = -1 if isinstance(node, exp.Sub) else 1
    if isinstance(other, exp.Literal) and other.is_int:
        return found.moved(sign * int(other.name))
    if sign < 0 and name_of(other) == "pmod" and len(other.expressions) == 2:
        size = other.expressions[1].unnest()
        if isinstance(size, exp.Literal) and size.is_int:
            return replace(found, least=found.least - int(size.name) + 1)
    return None
