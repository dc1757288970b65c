"""Conditions on the rows matched so far, as the matcher asks them.

A condition is a tree of lists, as it comes out of JSON: `["and" | "or", a, b]`, `["not", a]`, `["null", a]` for IS
NULL, `["=" | "<>" | "<" | "<=" | ">" | ">=" | "+" | "-", a, b]`, and leaves. A leaf names one of the values that each
row comes with, by number: `["value", n]` of the row that is asked about; `["first" | "last", variables, k, step, n]` of
the k-th row from that end among those taken as one of the variables (None: as any), `step` rows further in the
partition; `["count" | "sum" | "min" | "max", variables, n]` over such rows, where n is None to count rows. The row that
is asked about counts as taken.

NULL is None, and a condition that is neither true nor false does not match, as in SQL. A NaN equals itself and is
greater than any number, as in Spark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from functools import reduce
from typing import Any

from freshline.patterns.matcher import Condition


@dataclass(frozen=True)
class _Asked:
    """The rows taken so far, as their variables, from the row `start` on, and the row that is asked about."""

    labels: Sequence[int]
    start: int
    row: int


_Value = Callable[[_Asked], Any]
_COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}

# In this order: a bool is an int in Python, too.
_KINDS: Mapping[type | tuple[type, ...], str] = {
    bool: "BOOLEAN",
    (int, float, Decimal): "a number",
    str: "STRING",
    bytes: "BINARY",
    date: "DATE",
    timedelta: "INTERVAL",
}
# More digits than two decimals of 38 digits and their sum over any partition can have.
_EXACT = Context(prec=100)


def read_condition(tree: Sequence[Any], own: int, values: Mapping[int, Sequence[Any]]) -> Condition:
    """The condition of the variable `own`; `values` has for each number the value of every row of the partition.

    The condition raises TypeError for values that cannot be compared or added.
    """
    value = _Reader(own, values).read(tree)

    def holds(labels: Sequence[int], start: int, row: int) -> bool:
        return _truth(value(_Asked(labels, start, row))) is True

    return holds


@dataclass(frozen=True)
class _Reader:
    own: int
    values: Mapping[int, Sequence[Any]]

    def read(self, tree: Sequence[Any]) -> _Value:
        kind, *parts = tree
        if kind == "value":
            column = self.values[parts[0]]
            return lambda asked: column[asked.row]
        if kind in ("first", "last"):
            return self._row_value(kind, *parts)
        if kind in ("count", "sum", "min", "max"):
            return self._aggregate(kind, *parts)
        read = [self.read(part) for part in parts]
        if kind == "not":
            return lambda asked: _not(_truth(read[0](asked)))
        if kind == "null":
            return lambda asked: read[0](asked) is None
        if kind in ("and", "or"):
            return self._joined(read[0], read[1], stops=kind == "or")
        one, other = read
        if kind in _COMPARED:
            compare = _COMPARED[kind]
            return lambda asked: _compared(compare, one(asked), other(asked))
        return lambda asked: _added(one(asked), other(asked), negative=kind == "-")

    def _joined(self, one: _Value, other: _Value, *, stops: bool) -> _Value:
        def value(asked: _Asked) -> Any:
            first = _truth(one(asked))
            if first is stops:
                return stops
            second = _truth(other(asked))
            if second is stops:
                return stops
            return None if first is None or second is None else not stops

        return value

    def _taken(self, asked: _Asked, variables: Sequence[int] | None, *, backwards: bool) -> Iterator[int]:
        """The rows that were taken as one of the variables."""
        count = len(asked.labels)
        order = range(count, -1, -1) if backwards else range(count + 1)
        for place in order:
            label = self.own if place == count else asked.labels[place]
            if variables is None or label in variables:
                yield asked.start + place

    def _row_value(self, which: str, variables: Sequence[int] | None, count: int, step: int, number: int) -> _Value:
        column, backwards = self.values[number], which == "last"

        def value(asked: _Asked) -> Any:
            for place, row in enumerate(self._taken(asked, variables, backwards=backwards)):
                if place == count:
                    return column[row + step] if 0 <= row + step < len(column) else None
            return None

        return value

    def _aggregate(self, which: str, variables: Sequence[int] | None, number: int | None) -> _Value:
        column = None if number is None else self.values[number]

        def value(asked: _Asked) -> Any:
            rows = self._taken(asked, variables, backwards=False)
            if column is None:
                return sum(1 for _ in rows)
            found = [column[row] for row in rows if column[row] is not None]
            if which == "count":
                return len(found)
            if not found:
                return None
            if which == "sum":
                return reduce(_sum, found)
            return (min if which == "min" else max)(found, key=_order)

        return value


def _order(value: Any) -> Any:
    return (math.isnan(value), value) if isinstance(value, float) else value


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"{_kind(value)} stands where a condition has to be: compare it, as in `B.v = 1`")


def _not(value: bool | None) -> bool | None:
    return None if value is None else not value


def _alike(one: Any, other: Any) -> tuple[Any, Any]:
    """Two numbers as Spark compares and adds them: beside a DOUBLE a DECIMAL or an integer is one."""
    if isinstance(one, float) and isinstance(other, (int, Decimal)) and not isinstance(other, bool):
        return one, float(other)
    if isinstance(other, float) and isinstance(one, (int, Decimal)) and not isinstance(one, bool):
        return float(one), other
    return one, other


def _compared(compare: Callable[[Any, Any], bool], one: Any, other: Any) -> bool | None:
    if one is None or other is None:
        return None
    one, other = _alike(one, other)
    kinds = _kind(one), _kind(other)
    if kinds[0] != kinds[1]:
        # Spark would cast one of them. Python calls them unequal, whatever they say.
        raise TypeError(f"{kinds[0]} and {kinds[1]} are compared: cast one of them to the type of the other")
    if isinstance(one, float) or isinstance(other, float):
        nan_one, nan_other = math.isnan(one), math.isnan(other)
        if nan_one or nan_other:
            return compare(nan_one, nan_other)
    return compare(one, other)


def _kind(value: Any) -> str:
    """The type of a value, as a person would write it; numbers are of one."""
    if isinstance(value, datetime):
        return "TIMESTAMP_NTZ" if value.tzinfo is None else "TIMESTAMP"
    return next((name for kind, name in _KINDS.items() if isinstance(value, kind)), type(value).__name__)


def _added(one: Any, other: Any, *, negative: bool) -> Any:
    if one is None or other is None:
        return None
    one, other = _alike(one, other)
    if isinstance(other, timedelta):
        if negative and type(one) is int and one == 0:
            return -other  # the sign before an interval
        if _kind(one) == "DATE" and other % timedelta(days=1):
            raise TypeError("hours are added to a DATE: cast it to TIMESTAMP")
    elif _kind(one) == "DATE" and _is_whole(other):
        other = timedelta(days=other)
    elif _kind(other) == "DATE" and _is_whole(one) and not negative:
        one = timedelta(days=one)
    try:
        return _difference(one, other) if negative else _sum(one, other)
    except OverflowError as error:
        raise TypeError("a time is before the year 1 or after the year 9999") from error


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _sum(one: Any, other: Any) -> Any:
    for value in (one, other):
        if isinstance(value, (str, bytes, bool)):
            raise TypeError(f"{_kind(value)} is added: cast it to a number")
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return _EXACT.add(one, other)
    return one + other


def _difference(one: Any, other: Any) -> Any:
    if isinstance(one, Decimal) or isinstance(other, Decimal):
        return _EXACT.subtract(one, other)
    return one - other
