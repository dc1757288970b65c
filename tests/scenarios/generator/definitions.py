"""Window functions, as-of joins and patterns in the words of their definitions, for DuckDB to compute.

In a query each of them is replaced by text that shares nothing with the one that freshline makes of it: windows are
rows of a table that a row is joined with, sessions follow from the time before and after each, as-of joins are DuckDB's
own ASOF JOIN, and matches are found by trying all ways. So a mistake in what freshline makes of them shows as well as
one in how it follows their changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import sqlglot
from sqlglot import exp

from tests.scenarios.generator.matches import Matching

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
TUMBLED, HOPPED, CUMULATED = "TUMBLE", "HOP", "CUMULATE"
GAP = timedelta(hours=12, minutes=30)
# Temporary tables of the second engine: all windows around the times that generated rows have.
WINDOWS = "freshline_windows"
_SPANS = (
    (datetime(1969, 12, 20, tzinfo=UTC), datetime(1970, 1, 10, tzinfo=UTC)),
    (datetime(2025, 11, 20, tzinfo=UTC), datetime(2026, 1, 20, tzinfo=UTC)),
)
# The mark of the condition by which a row matches the newest version before it.
AS_OF = "freshline_as_of"
_R, _W, _D, _N = "freshline_r", "freshline_w", "freshline_d", "freshline_n"


@dataclass(frozen=True)
class Meaning:
    """A text in a query, and one that gives the same rows by definition. The latter may contain such texts again.

    Of a `matching` it is the name of a table whose rows are not computed by SQL.
    """

    written: str
    defined: str
    matching: Matching | None = None


def defined(query: str, meanings: Sequence[Meaning]) -> str:
    """The query with everything by its definition. None of the texts that are replaced contains a longer one."""
    for meaning in sorted(meanings, key=lambda each: len(each.written), reverse=True):
        query = query.replace(meaning.written, meaning.defined)
    return query


@lru_cache(maxsize=10_000)
def translated_definition(text: str) -> str:
    """In DuckDB's SQL, from what `defined` returns."""
    tree = sqlglot.parse_one(text, dialect="spark")
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.lower() == AS_OF:
            join = call.find_ancestor(exp.Join)
            assert join is not None
            call.replace(call.expressions[0])
            join.set("method", "ASOF")
    return tree.sql(dialect="duckdb")


def all_windows() -> Iterator[tuple[str, datetime, datetime]]:
    """Each window of the functions that are drawn, with its function: it begins a whole number of steps from 1970."""
    for function, step, sizes in (
        (TUMBLED, 12 * HOUR, (12 * HOUR,)),
        (HOPPED, 6 * HOUR, (24 * HOUR,)),
        (CUMULATED, 24 * HOUR, (8 * HOUR, 16 * HOUR, 24 * HOUR)),
    ):
        for first, last in _SPANS:
            at = EPOCH + (first - EPOCH) // step * step
            while at < last:
                yield from ((function, at, at + size) for size in sizes)
                at += step


def in_windows(function: str, rows: str, time: str) -> str:
    """The rows with each window that begins at or before their time and ends behind it."""
    return (
        f"(SELECT {_R}.*, {_W}.window_start, {_W}.window_end, "
        f"{_W}.window_end - INTERVAL '1' MICROSECOND AS window_time "
        f"FROM {rows} AS {_R} JOIN {WINDOWS} AS {_W} ON {_W}.function = '{function}' "
        f"AND {_R}.{time} >= {_W}.window_start AND {_R}.{time} < {_W}.window_end)"
    )


def in_sessions(rows: str, keys: Sequence[str], time: str) -> str:
    """The rows with the first and last time of the run that theirs is in, in which no pause is longer than the gap."""
    gap = f"INTERVAL '{GAP // timedelta(minutes=1)}' MINUTE"
    by = f"PARTITION BY {', '.join(keys)} ORDER BY {time}"
    times = f"(SELECT DISTINCT {', '.join((*keys, time))} FROM {rows} AS {_R} WHERE {time} IS NOT NULL)"
    beside = (
        f"(SELECT {_D}.*, lag({time}) OVER ({by}) AS before, lead({time}) OVER ({by}) AS behind FROM {times} AS {_D})"
    )
    begins = f"CASE WHEN before IS NULL OR {time} > before + {gap} THEN {time} END"
    ends = f"CASE WHEN behind IS NULL OR behind > {time} + {gap} THEN {time} END"
    runs = (
        f"(SELECT {', '.join((*keys, time))}, "
        f"max({begins}) OVER ({by} ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS begun, "
        f"min({ends}) OVER ({by} ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS ended FROM {beside} AS {_N})"
    )
    on = " AND ".join(f"{_R}.{key} <=> {_W}.{key}" for key in keys)
    return (
        f"(SELECT {_R}.*, {_W}.begun AS window_start, {_W}.ended + {gap} AS window_end, "
        f"{_W}.ended + {gap} - INTERVAL '1' MICROSECOND AS window_time "
        f"FROM {rows} AS {_R} JOIN {runs} AS {_W} ON {on} AND {_R}.{time} = {_W}.{time})"
    )


def in_counted(rows: str, keys: Sequence[str], time: str, tie: str, slide: int) -> str:
    """The rows with each window of two places, one of which begins every `slide` places of a key, that has theirs."""
    by = ", ".join(keys)
    placed = (
        f"(SELECT {_D}.*, row_number() OVER (PARTITION BY {by} ORDER BY {time}, {tie}) - 1 AS place "
        f"FROM {rows} AS {_D} WHERE {time} IS NOT NULL)"
    )
    if slide == 2:
        numbered = f"(SELECT {_N}.*, CAST(floor(place / 2) AS BIGINT) AS window_number FROM {placed} AS {_N})"
    else:
        back = "(SELECT 0 AS back UNION ALL SELECT 1 AS back)"
        numbered = (
            f"(SELECT {_N}.*, place - back AS window_number FROM {placed} AS {_N} CROSS JOIN {back} AS {_W} "
            "WHERE place >= back)"
        )
    over = f"OVER (PARTITION BY {by}, window_number)"
    return (
        f"(SELECT {_R}.*, min({time}) {over} AS window_start, max({time}) {over} AS window_end, "
        f"max({time}) {over} AS window_time FROM {numbered} AS {_R})"
    )


def met_as_of(kind: str, versions: str, since: str, tie: str, alias: str, key: str, other: str, time: str) -> str:
    """A join with the newest version at or before a time, where of two of one time the greatest `tie` wins."""
    newest = (
        f"(SELECT {_D}.*, row_number() OVER (PARTITION BY {_D}.{key}, {_D}.{since} ORDER BY {_D}.{tie} DESC) AS place "
        f"FROM {versions} AS {_D} WHERE {_D}.{since} IS NOT NULL)"
    )
    winners = f"(SELECT {_R}.* FROM {newest} AS {_R} WHERE {_R}.place = 1)"
    return f"{kind} {winners} AS {alias} ON {alias}.{key} = {other} AND {AS_OF}({time} >= {alias}.{since})"
