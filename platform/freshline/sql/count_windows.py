"""COUNT_WINDOW in Spark's SQL: so many rows of one key, one after another, are in one window.

A row's place among the rows of its key is its number in a total order, from 0. So a row that comes late moves those
behind it, and a table is the same in whichever order its rows arrived. It is counted by `rank`, which in a total order
is `row_number`, and which the rules of affected keys know to give the same each time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from freshline.sql.session_windows import except_columns
from freshline.values.closing import micros_of

PLACE, _COUNTED = "freshline_place", "freshline_counted"
NUMBER = "window_number"


@dataclass(frozen=True)
class CountCall:
    """One call: the input in Spark's SQL, the key's columns, the order, and how many rows a window has.

    `source`, `keys`, `order` and `time` are SQL; the last three name columns of `rows`, the alias of the input, and
    `time` is the first of the order. A window begins every `slide` rows and has `size`, a multiple of it.
    `hidden` are columns of the input not to show.
    """

    function: ClassVar[str] = "COUNT_WINDOW"

    source: str
    rows: str
    time: str
    keys: tuple[str, ...]
    order: tuple[str, ...]
    size: int
    slide: int
    hidden: tuple[str, ...] = ()

    def lower(self) -> str:
        """The query in parentheses that has the input's rows, once for each of their windows, with its bounds."""
        rows, place, at = self.rows, f"{self.rows}.{PLACE}", micros_of(self.time)
        partition = f"PARTITION BY {', '.join(self.keys)} " if self.keys else ""
        placed = (
            f"(SELECT {rows}.*, "
            f"CAST(rank() OVER ({partition}ORDER BY {', '.join(self.order)}) AS BIGINT) - 1 AS {PLACE} "
            f"FROM {self.source} AS {rows} WHERE {self.time} IS NOT NULL)"
        )
        last, view = f"{place} div {self.slide}", ""
        number = last
        if self.size > self.slide:
            # The first rows of a key are in fewer windows: none begins before them.
            first = f"greatest({last} - {self.size // self.slide - 1}, 0L)"
            number = f"{_COUNTED}.{NUMBER}"
            view = f" LATERAL VIEW explode(sequence({first}, {last}, 1L)) {_COUNTED} AS {NUMBER}"
        numbers = except_columns((PLACE, *(name for name in self.hidden if name == NUMBER)))
        bounds = except_columns([name for name in self.hidden if name != NUMBER])
        numbered = f"(SELECT {rows}.*{numbers}, {number} AS {NUMBER} FROM {placed} AS {rows}{view})"
        together = f"OVER (PARTITION BY {', '.join((*self.keys, f'{rows}.{NUMBER}'))})"
        end = f"timestamp_micros(max({at}) {together})"
        return (
            f"(SELECT {rows}.*{bounds}, timestamp_micros(min({at}) {together}) AS window_start, {end} AS window_end, "
            f"{end} AS window_time FROM {numbered} AS {rows})"
        )
