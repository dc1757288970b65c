"""The function `freshline_match` of Spark's SQL, which finds the matches of MATCH_RECOGNIZE.

It is called for whole batches of partitions at a time, with one number a row, so a partition costs no call of its own
between Spark and Python. It is not for users: declarations are written with MATCH_RECOGNIZE.
"""

from __future__ import annotations

import json
import os
import sys
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from freshline.errors import PatternBudgetError, PatternExpressionError, PatternSkipError
from freshline.patterns.conditions import read_condition
from freshline.patterns.matcher import (
    BudgetError,
    Condition,
    Match,
    PartitionRows,
    Skip,
    SkipError,
    SkipTo,
    find_matches,
)
from freshline.patterns.pattern import parse_pattern
from freshline.patterns.program import Program, compile_pattern
from freshline.values.query import MATCH_ERROR, MATCH_FUNCTION

RETURNED = "array<struct<number: bigint, place: int, label: string, excluded: boolean>>"
_TYPE = pa.list_(
    pa.struct([("number", pa.int64()), ("place", pa.int32()), ("label", pa.string()), ("excluded", pa.bool_())])
)
# The number of the match, the place of the row, its variable, and whether it is excluded.
Shown = tuple[int | None, int, str | None, bool]


class MatchError(Exception):
    """An error that the rows of a partition showed, as its code and its facts."""

    def __init__(self, code: str, told: str) -> None:
        super().__init__(f"{MATCH_ERROR}{code} {told}")


@dataclass(frozen=True)
class Search:
    """The declaration of the matches, as `freshline_match` gets it.

    With `decided`, only matches are wanted that rows behind the second of two times cannot change, and rows behind the
    first could; in microseconds since 1970.
    """

    program: Program
    names: tuple[str, ...]
    skip: Skip
    within: int | None
    show: str
    conditions: Mapping[str, Sequence[Any]]
    decided: tuple[int, int] | None = None

    @classmethod
    @lru_cache(maxsize=64)
    def read(cls, text: str) -> Search:
        """The search of a JSON text."""
        facts = json.loads(text)
        names = tuple(facts["variables"])
        program = compile_pattern(parse_pattern(facts["pattern"]), {name: number for number, name in enumerate(names)})
        to, *variables = facts["skip"]
        ways = {"past": SkipTo.PAST_LAST_ROW, "next": SkipTo.NEXT_ROW, "first": SkipTo.FIRST, "last": SkipTo.LAST}
        skip = Skip(ways[to], frozenset(variables))
        decided = (facts["after"], facts["until"]) if "until" in facts else None
        return cls(program, names, skip, facts["within"], facts["show"], facts["conditions"], decided)

    def conditions_on(self, values: Sequence[Mapping[str, Any]] | None) -> dict[int, Condition]:
        """The conditions on the match so far, by the number of their variable, over a partition's values."""
        if not self.conditions or (values is not None and not values):
            return {}
        # A condition may compare nothing but counts of rows, and needs no values then.
        width = len(values[0]) if values else 0
        columns = {number: [row[f"v{number}"] for row in values or ()] for number in range(width)}
        numbers = {name: number for number, name in enumerate(self.names)}
        return {numbers[name]: read_condition(tree, numbers[name], columns) for name, tree in self.conditions.items()}


def provide_matching(spark: SparkSession) -> None:
    """Make `freshline_match` known to a session; nothing where it is known."""
    if spark.catalog.functionExists(MATCH_FUNCTION):
        return
    if "PYSPARK_PYTHON" not in os.environ:
        # Spark would take the first `python3` of the path, which may have neither freshline nor pyarrow.
        spark.sparkContext.pythonExec = sys.executable
    spark.udf.register(MATCH_FUNCTION, arrow_udf(match_rows, RETURNED))  # type: ignore[call-overload]  # by its hints


def match_rows(searches: pa.Array, masks: pa.Array, times: pa.Array, values: pa.Array) -> pa.Array:
    """For each partition the rows that are matched or shown, in order.

    `masks`, `times` and `values` have for each partition an array with an item for each row; the last two may be NULL.
    A result has the number of its match (NULL for an unmatched row), its place from 0, its variable (NULL for the row
    with which an empty match begins) and whether {- -} is around it.

    Raises MatchError.
    """
    found = []
    search = Search.read(searches[0].as_py()) if len(searches) else None
    for row in range(len(masks)):
        assert search is not None
        rows = PartitionRows(masks[row].as_py() or (), times[row].as_py() or ())
        found.append(list(_shown(search, rows, search.conditions_on(values[row].as_py()))))
    return pa.array(found, _TYPE)


def _numbered(search: Search, rows: PartitionRows, conditions: Mapping[int, Condition]) -> Iterator[tuple[int, Match]]:
    """The matches with their numbers; of those that are decided only the ones that were not before."""

    def found(among: PartitionRows) -> Iterator[Match]:
        return find_matches(search.program, among, skip=search.skip, within=search.within, conditions=conditions)

    known = 0
    if search.decided is not None:
        after, until = search.decided
        # Those of before are found again as they were, because nothing that came since changes them.
        earlier = bisect_right(rows.times, after, key=_known)
        known = sum(1 for _ in found(PartitionRows(rows.masks[:earlier], rows.times[:earlier], after + 1)))
        rows = replace(rows, more_from=until + 1)
    return islice(enumerate(found(rows), start=1), known, None)


def _known(time: int | None) -> int:
    assert time is not None, "rows without a time are in no partition of FINAL matches"
    return time


def _shown(search: Search, rows: PartitionRows, conditions: Mapping[int, Condition]) -> Iterator[Shown]:
    program, names = search.program, search.names
    seen: set[int] = set()
    number = 0
    try:
        for number, match in _numbered(search, rows, conditions):
            if not match.places:
                seen.add(match.begin)
                if search.show != "omit":
                    yield number, match.begin, None, False
            for row, place in enumerate(match.places, start=match.begin):
                seen.add(row)
                yield number, row, names[program.variables[place]], program.excluded[place]
    except BudgetError as error:
        raise MatchError(PatternBudgetError.code, f"{len(rows.masks):,}") from error
    except SkipError as error:
        raise MatchError(PatternSkipError.code, f"{'began' if error.began else 'missing'} {error.row}") from error
    except TypeError as error:
        raise MatchError(PatternExpressionError.code, str(error)) from error
    if search.show == "unmatched":
        for row in range(len(rows.masks)):
            if row not in seen:
                yield None, row, None, False
