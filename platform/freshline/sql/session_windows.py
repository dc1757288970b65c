"""SESSION in Spark's SQL: rows of one key that follow each other closely enough are in one window.

By counting, so that no row depends on the order among rows of one time: a row begins a session where no row of its key
lies at most a gap before it, and the number of such rows up to its time identifies its session.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from freshline.values.closing import micros_of

BEGINS, _SESSION = "freshline_begins", "freshline_session"


def except_columns(names: Sequence[str]) -> str:
    """The text behind a star that leaves these columns out."""
    return f" EXCEPT ({', '.join(names)})" if names else ""


@dataclass(frozen=True)
class SessionCall:
    """One call: the input in Spark's SQL, the key's columns, and the greatest distance of neighbours.

    `source`, `time` and `keys` are SQL; the last two name columns of `rows`, the alias of the input. `gap` is in
    microseconds, and exactly as far is not too far, as in Spark. `hidden` are columns of the input not to show.
    """

    function: ClassVar[str] = "SESSION"

    source: str
    rows: str
    time: str
    keys: tuple[str, ...]
    gap: int
    hidden: tuple[str, ...] = ()

    def lower(self) -> str:
        """The query in parentheses that has the input's rows with the bounds of their sessions."""
        rows, at = self.rows, micros_of(self.time)
        by = ", ".join(self.keys)
        partition = f"PARTITION BY {by} " if by else ""
        near = f"OVER ({partition}ORDER BY {at} RANGE BETWEEN {self.gap} PRECEDING AND 1 PRECEDING)"
        begun = (
            f"(SELECT {rows}.*, CASE WHEN count(*) {near} = 0 THEN 1 ELSE 0 END AS {BEGINS} "
            f"FROM {self.source} AS {rows} WHERE {self.time} IS NOT NULL)"
        )
        numbered = (
            f"(SELECT {rows}.* EXCEPT ({BEGINS}), "
            f"sum({rows}.{BEGINS}) OVER ({partition}ORDER BY {at}) AS {_SESSION} FROM {begun} AS {rows})"
        )
        together = f"OVER (PARTITION BY {', '.join((*self.keys, f'{rows}.{_SESSION}'))})"
        end = f"max({at}) {together} + {self.gap}"
        return (
            f"(SELECT {rows}.*{except_columns((_SESSION, *self.hidden))}, "
            f"timestamp_micros(min({at}) {together}) AS window_start, "
            f"timestamp_micros({end}) AS window_end, timestamp_micros({end} - 1) AS window_time "
            f"FROM {numbered} AS {rows})"
        )
