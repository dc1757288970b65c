"""The places of a query where the time stands, and the SQL that takes their place.

They are values of a query that was read before, so nothing here needs its tree.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The call that stands for the time in a query that is analysed.
CLOCK = "freshline_clock"


@dataclass(frozen=True)
class ClockCall:
    """One call of a function of the time: the characters [start, end) of the text, and the SQL of its value.

    `bare` says that it has no parentheses.
    """

    start: int
    end: int
    form: str
    bare: bool = False

    def value(self, clock: int | None) -> str:
        """The SQL in its place: the time in microseconds since 1970, or the call that rules know."""
        return self.form.format(f"{CLOCK}()" if clock is None else moment_text(clock))


def moment_text(clock: int) -> str:
    """A time in microseconds since 1970 as SQL."""
    return f"timestamp_micros({clock})"


def as_microseconds(moment: datetime) -> int:
    """Microseconds since 1970 in UTC, exactly."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def from_microseconds(microseconds: int) -> datetime:
    """The inverse of `as_microseconds`.

    >>> print(from_microseconds(-1))
    1969-12-31 23:59:59.999999+00:00
    """
    return _EPOCH + timedelta(microseconds=microseconds)
