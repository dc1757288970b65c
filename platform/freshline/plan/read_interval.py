"""The span of time that a refresh reads around the times of affected keys, for people and programs who ask before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from freshline.query.rules.time_distance import TimeDistance
from freshline.values.names import TableName

_UNITS = (
    ("day", 86_400_000_000),
    ("hour", 3_600_000_000),
    ("minute", 60_000_000),
    ("second", 1_000_000),
    ("microsecond", 1),
)


@dataclass(frozen=True)
class ReadInterval:
    """A refresh reads rows of `input` whose `column` is near the values of the column `key` of affected keys.

    `before` and `after` are in microseconds; None for an end without a bound.
    """

    input: TableName
    column: str
    key: str
    before: int | None
    after: int | None

    def as_json(self) -> dict[str, Any]:
        seconds = [None if end is None else end / 1_000_000 for end in (self.before, self.after)]
        return {
            "input": str(self.input),
            "column": self.column,
            "key": self.key,
            "before_seconds": seconds[0],
            "after_seconds": seconds[1],
        }

    def __str__(self) -> str:
        """As in `ev.ts within 15 minutes of ts`."""
        read = f"{self.input}.{self.column}"
        match self.before, self.after:
            case (0, 0):
                return f"{read} at {self.key}"
            case (before, after) if before == after and before is not None:
                return f"{read} within {_duration(before)} of {self.key}"
            case (None, after) if after is not None:
                return f"{read} up to {_side(after, self.key)}"
            case (before, None) if before is not None:
                return f"{read} from {_side(-before, self.key)} on"
            case (before, after) if before is not None and after is not None:
                return f"{read} from {_side(-before, self.key)} to {_side(after, self.key)}"
            case _:
                return f"{read} at any time"


def read_intervals(reaches: Iterable[TimeDistance], inputs: Mapping[str, TableName]) -> tuple[ReadInterval, ...]:
    """The spans of a step, by the first column of the key that bounds an input; `inputs` by relation in lower case.

    Several readings of an input are shown as one span that covers them.
    """
    found: dict[str, ReadInterval] = {}
    for reach in reaches:
        known = found.get(reach.relation)
        before = None if math.isinf(reach.least) else -int(reach.least)
        after = None if math.isinf(reach.greatest) else int(reach.greatest)
        if known is None:
            found[reach.relation] = ReadInterval(inputs[reach.relation], reach.column, reach.key, before, after)
        elif (known.key, known.column) == (reach.key, reach.column):
            wider = (_further(known.before, before), _further(known.after, after))
            found[reach.relation] = ReadInterval(known.input, known.column, known.key, *wider)
    return tuple(found.values())


def _further(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else max(one, other)


def _side(distance: int, key: str) -> str:
    if distance == 0:
        return key
    return f"{_duration(abs(distance))} {'after' if distance > 0 else 'before'} {key}"


def _duration(microseconds: int) -> str:
    """A length of time in words.

    >>> _duration(5_400_000_001)
    '1 hour 30 minutes 1 microsecond'
    """
    parts = []
    rest = abs(microseconds)
    for name, size in _UNITS:
        number, rest = divmod(rest, size)
        if number:
            parts.append(f"{number:,} {name}{'s' if number > 1 else ''}")
    return " ".join(parts)
