"""The freshness that a table must have: a positive whole number of seconds (rule 2 of docs/rules.md).

One value, three spellings: a SQL interval, a Python timedelta and an ISO-8601 duration. A refused value is
shown with the reason and with what is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

ACCEPTED = (
    "Accepted is a positive whole number of seconds, minutes, hours or days, from 1 second to 36500 days, "
    "such as INTERVAL '30' SECOND, timedelta(minutes=5) or PT6H."
)
GREATEST = 36_500 * 86_400

_UNITS = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_NUMBER = r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
# The quotes stand around the number, as in INTERVAL '30' SECOND, or around number and unit, as in '30 seconds'.
_INTERVAL = re.compile(
    rf"\s*(?:INTERVAL\s*)?(?P<sign>-\s*)?(?P<quote>['\"]?)\s*{_NUMBER}\s*(?:(?P=quote)\s*(?P<unit>[A-Za-z_]*)"
    r"|(?P<inside>[A-Za-z_]+)\s*(?P=quote))\s*\Z",
    re.IGNORECASE,
)
_ISO = re.compile(
    r"\s*(?P<sign>-?)P(?:(?P<day>[0-9.,+-]+)D)?(?:T(?:(?P<hour>[0-9.,+-]+)H)?(?:(?P<minute>[0-9.,+-]+)M)?"
    r"(?:(?P<second>[0-9.,+-]+)S)?)?\s*\Z",
    re.IGNORECASE,
)


@dataclass(frozen=True, order=True)
class Freshness:
    """The promise: the table's data lags behind its root sources by at most this many seconds."""

    seconds: int

    @property
    def allowed_lag(self) -> timedelta:
        return timedelta(seconds=self.seconds)

    @classmethod
    def parse(cls, value: object) -> Freshness:
        """Read an interval; raises ValueError, with a sentence, for anything that is not accepted.

        >>> Freshness.parse("INTERVAL '30' SECOND")
        Freshness(seconds=30)
        >>> Freshness.parse(timedelta(hours=5)) == Freshness.parse("PT5H")
        True
        """
        return cls(parse_seconds(value, "freshness"))

    def describe(self) -> str:
        """The value in the largest unit in which it is whole.

        >>> Freshness(300).describe(), Freshness(86400).describe(), Freshness(90).describe()
        ('5 minutes', '1 day', '90 seconds')
        """
        for unit, size in reversed(_UNITS.items()):
            if self.seconds % size == 0:
                number = self.seconds // size
                return f"{number} {unit}" if number == 1 else f"{number} {unit}s"
        raise AssertionError("every whole number of seconds is whole in seconds")

    def __str__(self) -> str:
        return self.describe()


def parse_seconds(value: object, what: str, *, least: int = 1) -> int:
    """Whole seconds of a timedelta, a SQL interval or an ISO-8601 duration.

    `what` is what the error calls it, `least` the smallest number of seconds that is accepted. Raises ValueError.
    """
    shown = value if isinstance(value, str) else repr(value)
    accepted = ACCEPTED if least == 1 else ACCEPTED.replace("positive ", "").replace("1 second", f"{least} seconds")

    def refuse(why: str) -> ValueError:
        return ValueError(f"{shown} is not a {what}: {why}. {accepted}")

    if isinstance(value, timedelta):
        if value.microseconds:
            raise refuse("it is not a whole number of seconds")
        seconds = value.days * 86_400 + value.seconds
    elif isinstance(value, str):
        seconds = _text_seconds(value, refuse)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        raise refuse("it has no unit")
    else:
        raise refuse(f"it is a {type(value).__name__}")
    if seconds < least:
        raise refuse("it is not positive" if seconds <= 0 and least > 0 else f"it is below {least} seconds")
    if seconds > GREATEST:
        raise refuse("it is too long")
    return seconds


def _text_seconds(text: str, refuse: Callable[[str], ValueError]) -> int:
    interval = _INTERVAL.match(text)
    if interval:
        unit = (interval["unit"] or interval["inside"] or "").lower()
        if not unit:
            raise refuse("it has no unit")
        if unit.rstrip("s") in ("month", "year"):
            raise refuse(f"a {unit.rstrip('s')} has no fixed length")
        size = _UNITS.get(unit) or _UNITS.get(unit.removesuffix("s"))
        if size is None:
            raise refuse(f"{unit} is not a unit")
        number = _whole(interval["number"], refuse)
        return (-number if interval["sign"] else number) * size
    iso = _ISO.match(text)
    if iso and any(iso[unit] for unit in _UNITS):
        total = sum(_whole(iso[unit], refuse) * size for unit, size in _UNITS.items() if iso[unit])
        return -total if iso["sign"] else total
    if re.match(r"\s*-?P[0-9]+[YMW]", text, re.IGNORECASE):
        raise refuse("years, months and weeks are not accepted")
    raise refuse("it is not an interval")


def _whole(number: str, refuse: Callable[[str], ValueError]) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", number):
        raise refuse("it is not a whole number")
    if len(number) > 20:
        raise refuse("it is too long")
    return int(number)
