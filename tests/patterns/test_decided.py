"""Matches that are decided before further rows come are those that are found when all rows are there."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

import pytest

from freshline.patterns.matcher import Condition, Match, PartitionRows, Skip, SkipError, SkipTo, find_matches
from freshline.patterns.pattern import parse_pattern
from freshline.patterns.program import compile_pattern
from tests.lanes import few_or_many

NUMBERS = {"A": 0, "B": 1, "C": 2}
PATTERNS = (
    *("A", "A B", "A+", "A*", "A B* C", "A+? B", "(A | B C)", "(A B | A) C?", "A{2,3}", "PERMUTE(A, B)", "A B+ C"),
    *("^ A+ B", "(A | B)+ C", "A? B?", "(A B?)* C", "{- A -} B+"),
)
SKIPS = (Skip(), Skip(SkipTo.NEXT_ROW), Skip(SkipTo.LAST, frozenset({1})), Skip(SkipTo.FIRST, frozenset({1})))


def decided(
    pattern: str, rows: PartitionRows, skip: Skip, within: int | None, conditions: Mapping[int, Condition]
) -> list[Match | str]:
    """The matches, with a word at the end where SKIP TO names a row that is not there."""
    found: list[Match | str] = []
    program = compile_pattern(parse_pattern(pattern), NUMBERS)
    try:
        found.extend(find_matches(program, rows, skip=skip, within=within, conditions=conditions))
    except SkipError:
        found.append("skip")
    return found


def longer(labels: Sequence[int], start: int, row: int) -> bool:
    """A condition on the match so far: no more than three rows."""
    return row - start < 3


@pytest.mark.seconds
@pytest.mark.parametrize("cases", few_or_many(30, 150))
@pytest.mark.parametrize("pattern", PATTERNS)
def test_rows_to_come_change_no_decided_match(pattern: str, cases: int) -> None:
    chance = random.Random(pattern)
    compared = 0
    for _ in range(cases):
        masks = [chance.randrange(8) for _ in range(chance.randint(0, 9))]
        times: list[int | None] = []
        for _ in masks:
            times.append(int(times[-1] or 0 if times else 0) + chance.choice((0, 1, 1, 3)))
        skip, within = chance.choice(SKIPS), chance.choice((None, None, 1, 3))
        conditions = chance.choice(({}, {0: longer}, {1: longer}))
        whole = decided(pattern, PartitionRows(masks, times), skip, within, conditions)
        # The rows up to each time, all of those at that time among them.
        found = []
        for until in range(-1, 30):
            known = sum(1 for time in times if time is not None and time <= until)
            found.append(
                decided(pattern, PartitionRows(masks[:known], times[:known], until + 1), skip, within, conditions)
            )
        for fewer, more in pairwise([*found, whole]):
            assert more[: len(fewer)] == fewer
        compared += sum(map(len, found))
    assert compared


@pytest.mark.parametrize(
    ("pattern", "masks", "within", "more_from", "count"),
    [
        ("A B+", [1, 2, 2], None, 3, 0),  # it may go on
        ("A B+", [1, 2, 1], None, 3, 1),
        ("A B+", [1, 2, 2], 5, 4, 0),
        ("A B+", [1, 2, 2], 5, 5, 1),  # nothing to come is within
        ("A B", [1, 2], None, 2, 1),  # it cannot go on
        ("A B?", [1], None, 1, 0),
        ("A (B C)?", [1, 2], None, 2, 0),
        ("A (B C)?", [1, 2, 1], None, 3, 1),
        ("A{2}", [1, 1, 1], None, 3, 1),
    ],
)
def test_a_match_is_decided_when_no_row_to_come_can_be_in_it(pattern, masks, within, more_from, count) -> None:
    rows = PartitionRows(masks, range(len(masks)), more_from)

    assert len(decided(pattern, rows, Skip(), within, {})) == count
    assert len(decided(pattern, rows, Skip(), within, {0: lambda labels, start, row: True})) == count
