"""The claims behind reading a stretch of a key: what lies outside of it neither changes nor matters."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from freshline.patterns.matcher import PartitionRows, Skip, SkipError, SkipTo, find_matches
from freshline.patterns.pattern import parse_pattern
from freshline.patterns.program import Program, compile_pattern
from tests.lanes import few_or_many

GAP = 10
Session = tuple[int, ...]


def sessions_of(times: list[int]) -> list[Session]:
    """The sessions of a key's times, a row each."""
    rows = sorted(times)
    begins = [place for place, at in enumerate(rows) if place == 0 or at - rows[place - 1] > GAP]
    return [tuple(rows[begin:end]) for begin, end in pairwise([*begins, len(rows)])]


def refreshed(old: list[int], new: list[int], changed: set[int], reach: int) -> list[Session]:
    """The sessions after a refresh that reads again those within `reach` of a changed time, and keeps the others."""
    stored = sessions_of(old)
    near = [session for session in stored if any(session[0] - reach <= at <= session[-1] + reach for at in changed)]
    stretches = [(session[0], session[-1]) for session in near] + [(at, at) for at in changed]
    read = [at for at in new if any(low <= at <= high for low, high in stretches)]
    return sorted([session for session in stored if session not in near] + sessions_of(read))


def drawn(chance: random.Random) -> tuple[list[int], list[int], set[int]]:
    """A key's times before and after some came, went or moved by about a gap, and the times of the changes."""
    old = [chance.randint(-8, 8) * GAP // 2 + chance.choice((-1, 0, 1)) for _ in range(chance.randint(0, 12))]
    new, changed = list(old), set()
    for _ in range(chance.randint(1, 4)):
        if new and chance.random() < 0.5:
            changed.add(new.pop(chance.randrange(len(new))))
        if chance.random() < 0.6:
            new.append(chance.randint(-8, 8) * GAP // 2 + chance.choice((-1, 0, 1)))
            changed.add(new[-1])
    return old, new, changed


def wrong(reach: int, cases: int) -> int:
    chance = random.Random(18)
    drawn_cases = [drawn(chance) for _ in range(cases)]
    return sum(refreshed(old, new, changed, reach) != sessions_of(new) for old, new, changed in drawn_cases)


@pytest.mark.parametrize("cases", few_or_many(3_000, 20_000))
def test_sessions_within_a_gap_of_a_change_are_all_that_change(cases):
    assert wrong(GAP, cases) == 0


def test_a_session_without_its_neighbour_is_found():
    # Exactly a gap away is near.
    assert wrong(GAP - 1, 2_000) > 0
    assert wrong(0, 2_000) > 100


# -- matches WITHIN an interval ------------------------------------------------------------------------------------

WITHIN = 6
PATTERNS = ("A B+", "A B{2,}?", "(A | B) B* C", "A (B | C)*? C", "A+ B?")
SKIPS = (Skip(), Skip(SkipTo.NEXT_ROW), Skip(SkipTo.LAST, frozenset({1})))
Row = tuple[int, int, int]
"""A time, an identity that breaks ties, and the variables that it may be."""
Found = tuple[int, tuple[tuple[int, int], ...]]


def matches_of(rows: list[Row], program: Program, skip: Skip) -> list[Found]:
    """The time at which each match begins, and its rows with their places. Raises SkipError."""
    rows = sorted(rows)
    asked = PartitionRows([mask for _, _, mask in rows], [at for at, _, _ in rows])
    return [
        (rows[match.begin][0], tuple((rows[match.begin + n][1], place) for n, place in enumerate(match.places)))
        for match in find_matches(program, asked, skip=skip, within=WITHIN)
    ]


def matched_again(
    old: list[Row],
    new: list[Row],
    changed: set[int],
    program: Program,
    skip: Skip,
    *,
    off: int = 0,
    ties: bool = True,
    ahead: int | None = 3 * WITHIN,
    decided: bool = True,
    unchanged: bool = True,
) -> list[Found]:
    """The matches after a refresh that reads the rows from a time on, up to `ahead` behind the last changed one.

    Planted mistakes: `off` moves the first time, and without `ties` rows of one time are taken for one. Without
    `decided` a match is believed that rows behind those that are read may alter. Without `unchanged` one is believed
    that begins with a changed row.
    """
    first, last = min(changed), max(changed)
    stored = matches_of(old, program, skip)
    near = sorted({began for began, _ in stored if first - 2 * WITHIN < began <= first - WITHIN}, reverse=True)[:8]
    alone = [began for began in near if not ties or sum(at == began for at, _, _ in new) == 1]
    if near and not alone:
        return matches_of(new, program, skip)
    low = (alone[0] if alone else first - WITHIN + 1) + off
    kept = [each for each in stored if each[0] < low]
    if ahead is not None:
        # Where an old match and a new one begin with one row, all that follow are the same.
        high = last + ahead
        found = matches_of([row for row in new if low <= row[0] <= high], program, skip)
        begun = {began for began, _ in found if not decided or began <= high - WITHIN}
        begun &= {began for began, _ in stored if began > last or not unchanged}
        again = [began for began in sorted(begun) if not ties or sum(at == began for at, _, _ in new) == 1]
        if again:
            return [
                *kept,
                *(each for each in found if each[0] < again[0]),
                *(each for each in stored if each[0] >= again[0]),
            ]
    return kept + matches_of([row for row in new if row[0] >= low], program, skip)


def wrong_matches(cases: int, **mistake: Any) -> tuple[int, int]:
    """In how many cases a refresh is wrong, and in how many it does not read all rows."""
    chance = random.Random(6)
    found = less = 0
    for number in range(cases):
        program = compile_pattern(parse_pattern(PATTERNS[number % 5]), {"A": 0, "B": 1, "C": 2})
        skip = SKIPS[number // 5 % 3]

        def row(at: int, identity: int) -> Row:
            return at, identity, chance.choice((1, 2, 2, 3, 4, 6, 0))

        step = chance.choice((1, 2, 3))
        old = [row(step * chance.randint(-15, 15), each) for each in range(chance.randint(0, 40))]
        gone = set(chance.sample(old, min(len(old), chance.randint(0, 2))))
        come = {row(step * chance.randint(-15, 15), 100 + each) for each in range(chance.randint(0, 2))}
        new = [each for each in old if each not in gone] + list(come)
        if not gone | come:
            continue
        changed = {at for at, _, _ in gone | come}
        try:
            expected = matches_of(new, program, skip)
            found += matched_again(old, new, changed, program, skip, **mistake) != expected
        except SkipError:
            continue
        less += any(at < min(changed) - 2 * WITHIN for at, _, _ in new)
    return found, less


@pytest.mark.parametrize("cases", few_or_many(1_200, 6_000))
def test_matches_that_began_so_long_before_a_change_stay(cases):
    wrong_cases, with_rows_before = wrong_matches(cases)
    assert wrong_cases == 0
    assert with_rows_before > cases // 6


@pytest.mark.seconds
def test_a_search_that_goes_on_with_another_row_is_found():
    assert wrong_matches(3_000, off=1)[0] > 0
    assert wrong_matches(3_000, ties=False)[0] > 0


@pytest.mark.seconds
@pytest.mark.parametrize("cases", few_or_many(600, 6_000))
def test_matches_behind_one_that_begins_again_stay(cases):
    assert all(wrong_matches(cases, ahead=ahead)[0] == 0 for ahead in (None, WITHIN, 2 * WITHIN, 5 * WITHIN))


@pytest.mark.long
def test_a_search_that_stops_too_early_is_found():
    assert wrong_matches(4_000, decided=False, ahead=WITHIN // 2)[0] > 0
    assert wrong_matches(3_000, unchanged=False)[0] > 0


# -- windows of so many rows ---------------------------------------------------------------------------------------

Placed = tuple[int, int]
"""A time, and what breaks ties. Where the promise of a key is broken, two rows are equal."""
Counted = dict[int, tuple[Placed, ...]]


def counted(rows: list[Placed], size: int, slide: int) -> Counted:
    """The rows of each window: a row's place is the number of rows before it."""
    found: dict[int, list[Placed]] = {}
    for row in sorted(rows):
        place = sum(other < row for other in rows)
        for number in range(max(place // slide - size // slide + 1, 0), place // slide + 1):
            found.setdefault(number, []).append(row)
    return {number: tuple(window) for number, window in found.items()}


def counted_again(
    old: list[Placed],
    new: list[Placed],
    first: int,
    size: int,
    slide: int,
    *,
    full: bool = True,
    ties: bool = True,
    alone: bool = True,
) -> Counted:
    """The windows after a refresh that reads the rows behind a window that ends before `first`.

    Planted mistakes: without `full` an unfilled window is taken for a full one, without `ties` rows of one time are
    separated, and without `alone` the key of the input is relied on.
    """
    stored, by = counted(old, size, slide), size // slide
    hit = min((number for number, window in stored.items() if window[-1][0] >= first), default=None)
    last = max(stored, default=0) - (by - 1 if full else -1) if hit is None else hit
    begins = [
        number
        for number, window in stored.items()
        if number <= last and number - by in stored and (not ties or stored[number - by][-1][0] < window[0][0])
    ]
    begin = max(begins, default=0)
    end = stored[begin - by][-1][0] if begin else None
    at_end = [row for row in new if row[0] == end]
    if alone and len(set(at_end)) < len(at_end):
        begin, end = 0, None
    read = counted([row for row in new if end is None or row[0] > end], size, slide)
    kept = {number: window for number, window in stored.items() if number < begin}
    return kept | {number + begin: window for number, window in read.items()}


def wrong_counts(cases: int, **mistake: bool) -> int:
    chance = random.Random(12)
    found = 0
    for _ in range(cases):
        slide = chance.randint(1, 3)
        size = slide * chance.randint(1, 3)
        old = [(chance.randint(0, 25), chance.randint(0, 40)) for _ in range(chance.randint(0, 30))]
        gone = chance.sample(old, min(len(old), chance.randint(0, 2)))
        came = [(chance.randint(0, 30), chance.randint(0, 40)) for _ in range(chance.randint(0, 2))]
        new = [row for row in old if row not in gone] + came
        changed = {at for at, _ in (*gone, *came)}
        if changed:
            found += counted_again(old, new, min(changed), size, slide, **mistake) != counted(new, size, slide)
    return found


@pytest.mark.parametrize("cases", few_or_many(3_000, 20_000))
def test_windows_that_were_full_before_a_change_stay(cases):
    assert wrong_counts(cases) == 0


@pytest.mark.seconds
def test_a_window_that_begins_with_another_row_is_found():
    assert wrong_counts(3_000, full=False) > 0
    assert wrong_counts(3_000, ties=False) > 0
    assert wrong_counts(3_000, alone=False) > 0
