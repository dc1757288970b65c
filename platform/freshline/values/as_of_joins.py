"""As-of joins in Spark's SQL: each row is joined with the version that was valid at its own time.

Every row of the table on the right is a version of its key, valid from its time on until that of the next. So the next
one's time is put beside it, and the join asks for the version whose stretch of time contains the row's.
"""

from __future__ import annotations

from dataclasses import dataclass

from freshline.values.closing import ARRIVED, FINAL_TIME, came_in_time, micros_of
from freshline.values.names import TableName, quoted

# So begins the message with which a query fails where two versions of one key have one time.
DUPLICATE = "ASOF_DUPLICATE"
_VERSIONS, _UNTIL = "freshline_versions", "freshline_until"


@dataclass(frozen=True)
class Versions:
    """The meaning of a table's rows as versions, by its declaration.

    `column` has the time since when each is valid. Of two of one key and time the one wins that has the greatest values
    of `tie_breaker`. A version for which `delete_when` (SQL over its columns) is true ends its key until the next.
    """

    column: str
    tie_breaker: tuple[str, ...] = ()
    delete_when: str | None = None


@dataclass(frozen=True)
class AsOfJoin:
    """`JOIN versions FOR SYSTEM_TIME AS OF row.time AS alias ON ..`.

    `keys` are columns of `table`, the versions, and `time` is the row's time: alias and column. `start` is where the
    name of the table stands in the text, `end` where its ON ends, and `stars` where edits go that keep a column of ours
    out of `*`, each with whether an EXCEPT is there. `number` counts the joins of a query, from 1. `versions` is None
    until the declaration of the table is known. With `lateness`, in microseconds, only versions that came in time are
    joined. `late` says that nothing is joined: the query is of the rows that came too late, and reads all versions,
    each with its time.
    """

    table: TableName
    alias: str
    keys: tuple[str, ...]
    time: tuple[str, str]
    start: int
    end: int
    stars: tuple[tuple[int, bool], ...]
    number: int
    line: int
    versions: Versions | None = None
    lateness: int | None = None
    late: bool = False

    def columns(self, declared: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of the table as a query of FINAL rows sees them."""
        return (*declared, *ARRIVED, FINAL_TIME) if self.late else declared

    def rows(self, view: str) -> str:
        """The query in parentheses that has the versions, each with the time of the next."""
        known = self._known
        rows, at = _VERSIONS, f"{_VERSIONS}.{quoted(known.column)}"
        by = ", ".join(f"{rows}.{quoted(key)}" for key in self.keys)
        # A version with a NULL in its key is joined with nothing, so that two of them are no duplicates either.
        met = " AND ".join(f"{rows}.{quoted(key)} IS NOT NULL" for key in self.keys)
        source = f"`{view}`"
        if self.late:
            return f"(SELECT {rows}.*, {at} AS {FINAL_TIME} FROM {source} AS {rows})"
        if self.lateness is not None:
            in_time = came_in_time(rows, at, self.lateness)
            source = f"(SELECT {rows}.* EXCEPT ({', '.join(ARRIVED)}) FROM {source} AS {rows} WHERE {in_time})"
        if known.tie_breaker:
            order = ", ".join(f"{rows}.{quoted(column)} DESC" for column in known.tie_breaker)
            winner = f"rank() OVER (PARTITION BY {by}, {at} ORDER BY {order}) = 1"
            source = f"(SELECT {rows}.* FROM {source} AS {rows} QUALIFY {winner})"
        # By values and not by places, so that no row depends on the order among rows of one time; and backwards, which
        # Spark computes in one pass.
        over = f"OVER (PARTITION BY {by} ORDER BY {micros_of(at)} DESC RANGE BETWEEN"
        following = f"min({at}) {over} UNBOUNDED PRECEDING AND 1 PRECEDING)"
        sample = f"raise_error(concat('{DUPLICATE} {self.number} ', to_json(struct({by}, {at}))))"
        # No other place sees two versions of one time without reading them once more.
        several = f"count(*) {over} CURRENT ROW AND CURRENT ROW) > 1"
        until = f"CASE WHEN {several} THEN CAST({sample} AS TIMESTAMP) ELSE {following} END"
        text = f"(SELECT {rows}.*, {until} AS {self._until} FROM {source} AS {rows} WHERE {at} IS NOT NULL AND {met})"
        if known.delete_when is None:
            return text
        return f"(SELECT {rows}.* FROM {text} AS {rows} WHERE NOT coalesce(({known.delete_when}), false))"

    @property
    def condition(self) -> str:
        """The condition that is asked beside the equalities of ON."""
        time, alias = f"{quoted(self.time[0])}.{quoted(self.time[1])}", quoted(self.alias)
        until = f"{alias}.{self._until}"
        return f" AND {time} >= {alias}.{quoted(self._known.column)} AND ({until} IS NULL OR {time} < {until})"

    def edits(self) -> list[tuple[int, int, str]]:
        """The edits of the query's text: start and end of what is replaced, and what comes there."""
        if self.late:
            return []
        hidden = [
            (place, place, f"{self._until}, " if excepting else f" EXCEPT ({self._until})")
            for place, excepting in self.stars
        ]
        return [(self.end, self.end, self.condition), *hidden]

    @property
    def _until(self) -> str:
        return f"{_UNTIL}_{self.number}"

    @property
    def _known(self) -> Versions:
        assert self.versions is not None, "the declaration of the versions is not read yet"
        return self.versions
