"""The places of a query where the time stands, and the SQL that takes their place.

They are values of a query that was read before, so nothing here needs its tree.
"""

from __future__ import annotations

from dataclasses import dataclass

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
