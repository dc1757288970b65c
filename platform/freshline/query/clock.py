"""The time in a query that is analysed: a thing that changes like an input, and is read as it is or as it was.

`freshline_clock()` stands for it in the text of a query with temporal filters. The rules write
`freshline_clock_new()` and `freshline_clock_old()` for the two instants between which rows entered or left.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from sqlglot import exp

from freshline.values.clock import CLOCK, as_microseconds, moment_text

_CALL = re.compile(rf"\b{CLOCK}(?:_(new|old))?\(\)", re.IGNORECASE)


@dataclass(frozen=True)
class ClockSpan:
    """The instant for which the rows of a table with temporal filters are stored, and that of a refresh.

    `before` is None where it is not known.
    """

    before: datetime | None
    after: datetime

    @classmethod
    def until(cls, before: datetime | None, now: datetime) -> ClockSpan:
        """The span up to now; a clock that was set back does not take the table back."""
        return cls(before, now if before is None else max(before, now))

    def fill(self, text: str) -> str:
        """A text of the rules with the two instants in place of the calls."""
        before = self.after if self.before is None else self.before
        return _CALL.sub(
            lambda call: moment_text(as_microseconds(before if (call[1] or "").lower() == "old" else self.after)), text
        )

    def __str__(self) -> str:
        before = "the beginning" if self.before is None else _shown(self.before)
        return f"{before} to {_shown(self.after)}"


def _shown(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M:%S}"


def is_clock(node: exp.Expr) -> bool:
    """Whether a node of a tree is the call that stands for the time."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() == CLOCK


def reads_clock(node: exp.Expr) -> bool:
    """Whether the time stands somewhere below a node."""
    return any(is_clock(each) for each in node.find_all(exp.Anonymous))


def clock_as(node: exp.Expr, reading: str) -> None:
    """Let the calls below a node be those of one reading, `new` or `old`."""
    for each in list(node.find_all(exp.Anonymous)):
        if is_clock(each):
            each.set("this", f"{CLOCK}_{reading}")


def as_written(text: str) -> str:
    """A text for people: the function that a call stands for."""
    return _CALL.sub("now()", text)
