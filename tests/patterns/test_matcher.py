"""Matches are those of the definition, found in a time that the rows cannot make grow."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import pytest

from freshline.patterns import matcher, program
from freshline.patterns.matcher import BudgetError, Match, PartitionRows, Skip, SkipError, SkipTo, find_matches
from freshline.patterns.pattern import Pattern, parse_pattern, variables_of
from freshline.patterns.program import PatternTooLargeError, compile_pattern
from tests.patterns.by_definition import Condition, Definition, Row, Way, by_expression

pytestmark = pytest.mark.seconds

NAMES = ("A", "B", "C")
NUMBERS = {name: number for number, name in enumerate(NAMES)}


def skip_of(text: str) -> Skip:
    if text in ("past", "next"):
        return Skip(SkipTo.PAST_LAST_ROW if text == "past" else SkipTo.NEXT_ROW)
    end, name = text.split()
    return Skip(SkipTo.FIRST if end == "first" else SkipTo.LAST, frozenset({NUMBERS[name]}))


def found(
    pattern: Pattern,
    rows: Sequence[Row],
    skip: str = "past",
    times: Sequence[int | None] = (),
    within: int | None = None,
    *,
    backtracking: bool = False,
    conditions: Mapping[str, Condition] = MappingProxyType({}),
) -> list[tuple[int, Way]]:
    """The matches in the words of the definition."""
    compiled = compile_pattern(pattern, NUMBERS)
    masks = [sum(1 << NUMBERS[name] for name in row) for row in rows]
    always = {0: lambda labels, start, row: True} if backtracking else None
    asked = {NUMBERS[name]: with_numbers(name, condition) for name, condition in conditions.items()}
    searched = find_matches(
        compiled, PartitionRows(masks, times), skip=skip_of(skip), within=within, conditions=asked or always
    )
    matches: list[tuple[int, Way]] = []
    try:
        matches.extend((match.begin, way_of(match, compiled)) for match in searched)
    except SkipError as error:
        matches.append((error.row, (("began" if error.began else "missing", True),)))
    return matches


def with_numbers(name: str, condition: Condition) -> matcher.Condition:
    """A condition of the definition as the matcher asks it: without the row's own variable, and by numbers."""
    return lambda labels, start, row: condition([*(NAMES[label] for label in labels), name], start)


def way_of(match: Match, compiled: program.Program) -> Way:
    return tuple((NAMES[compiled.variables[place]], compiled.excluded[place]) for place in match.places)


def random_pattern(rng: random.Random, depth: int = 3, *, excluding: bool = False) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.3:
        return rng.choice(NAMES)
    if kind < 0.5:
        return " ".join(random_pattern(rng, depth - 1, excluding=excluding) for _ in range(rng.randint(2, 3)))
    if kind < 0.65:
        return f"({' | '.join(random_pattern(rng, depth - 1, excluding=excluding) for _ in range(2))})"
    if kind < 0.9:
        inner = random_pattern(rng, depth - 1, excluding=excluding)
        inner = "A" if inner in ("^", "$") else inner
        least = rng.randint(0, 2)
        bounds = f"{{{least},{max(1, least + rng.randint(0, 2))}}}"
        quantifier = rng.choice(["*", "+", "?", f"{{{least},}}", bounds, "{2}"])
        return f"({inner}){quantifier}{rng.choice(['', '', '?'])}"
    if kind < 0.93 and not excluding:
        return f"{{- {random_pattern(rng, depth - 1, excluding=True)} -}}"
    if kind < 0.96:
        return f"PERMUTE({random_pattern(rng, depth - 2 if depth > 1 else 0, excluding=excluding)}, B, C)"
    return rng.choice(["()", "^", "$", "^ A", "C $", "(A |)"]).replace("|)", "| ())")


def random_rows(rng: random.Random) -> list[Row]:
    share = rng.choice([0.3, 0.5, 0.8])
    return [frozenset(name for name in NAMES if rng.random() < share) for _ in range(rng.choice([0, 1, 2, 3, 5, 8]))]


SKIPS = ("past", "next", "first A", "last A", "first B", "last B", "last C")


def random_conditions(rng: random.Random) -> dict[str, Condition]:
    """Conditions on the rows matched so far: how many there are of a variable, which came last, where they began."""

    def drawn() -> Condition:
        other, most = rng.choice(NAMES), rng.randint(1, 3)
        return rng.choice(
            (
                lambda labels, start: labels.count(other) <= most,
                lambda labels, start: labels[-2:-1] != [other],
                lambda labels, start: (len(labels) + start) % 3 != most % 3,
                lambda labels, start: labels[0] == other or len(labels) > most,
            )
        )

    return {name: drawn() for name in rng.sample(NAMES, rng.randint(1, 3))}


def differing(seeds: range) -> list[str]:
    """The random cases in which the matcher finds something else than the definition has."""
    wrong = []
    for seed in seeds:
        rng = random.Random(seed)
        text = random_pattern(rng)
        pattern, rows, skip = parse_pattern(text), random_rows(rng), rng.choice(SKIPS)
        times = sorted(rng.choice([None, rng.randint(-9, 9)]) or 0 for _ in rows)
        nulls = [None if rng.random() < 0.1 else at for at in times]
        expected = Definition(rows).matches(pattern, skip)
        expected_within = Definition(rows, nulls, 4).matches(pattern, skip)
        asked = random_conditions(rng)
        expected_asked = Definition(rows, nulls, 4, asked).matches(pattern, skip)
        for way, got, want in (
            ("all at once", found(pattern, rows, skip), expected),
            ("backtracking", found(pattern, rows, skip, backtracking=True), expected),
            ("within", found(pattern, rows, skip, nulls, 4), expected_within),
            ("backtracking within", found(pattern, rows, skip, nulls, 4, backtracking=True), expected_within),
            ("of the match so far", found(pattern, rows, skip, nulls, 4, conditions=asked), expected_asked),
        ):
            if got != want:
                wrong.append(f"{seed} {way}: {text} over {rows} {nulls} skip {skip}: {got} for {want}")
    return wrong


def test_random_patterns_match_as_the_definition_says():
    assert differing(range(2_000)) == []


@pytest.mark.long
def test_many_random_patterns_match_as_the_definition_says():
    assert differing(range(2_000, 60_000)) == []


def test_where_each_row_is_of_one_variable_python_finds_the_same():
    """`re` is a second judge: rows are letters, and a pattern is an expression over them."""
    for seed in range(1_500):
        rng = random.Random(seed)
        text = random_pattern(rng, 2)
        if any(mark in text for mark in ("{-", "PERMUTE", "()", "^", "$")):
            continue
        letters = "".join(rng.choice(NAMES) for _ in range(rng.randint(0, 12)))
        got = found(parse_pattern(text), [frozenset(letter) for letter in letters])
        got_letters = [(begin, "".join(name for name, _ in way)) for begin, way in got]
        assert got_letters == by_expression(re.sub(r"\s", "", text), letters), (seed, text, letters)


@pytest.mark.parametrize(
    ("text", "rows", "expected"),
    [
        ("A B+ C+", "ABBCCABC", [(0, "ABBCC"), (5, "ABC")]),
        ("A+? B", "AAB", [(0, "AAB")]),
        ("A | A B", "AB", [(0, "A")]),
        ("A{2,3}", "AAAAA", [(0, "AAA"), (3, "AA")]),
        ("A{2,3}?", "AAAAA", [(0, "AA"), (2, "AA")]),
        ("PERMUTE(A, B)", "BAAB", [(0, "BA"), (2, "AB")]),
        ("A*", "BA", [(0, ""), (1, "A")]),
        ("^ A", "AA", [(0, "A")]),
        ("A $", "AA", [(1, "A")]),
        ("(A*)*", "AAB", [(0, "AA"), (2, "")]),
    ],
)
def test_a_pattern_finds(text, rows, expected):
    got = found(parse_pattern(text), [frozenset(row) for row in rows])

    assert [(begin, "".join(name for name, _ in way)) for begin, way in got] == expected


def test_a_row_that_is_excluded_is_matched_and_marked():
    assert found(parse_pattern("A {- B -} C"), [frozenset("A"), frozenset("B"), frozenset("C")]) == [
        (0, (("A", False), ("B", True), ("C", False)))
    ]


def test_a_pattern_that_makes_others_try_every_way_is_followed_in_one_pass():
    compiled = compile_pattern(parse_pattern("((A+)+)+ B"), NUMBERS)

    began = time.process_time()
    assert list(find_matches(compiled, PartitionRows([1] * 10_000))) == []
    assert time.process_time() - began < 2


def test_ways_that_cannot_be_merged_are_counted():
    compiled = compile_pattern(parse_pattern("((A+)+)+ B"), NUMBERS)

    with pytest.raises(BudgetError):
        list(find_matches(compiled, PartitionRows([1] * 60), conditions={0: lambda *_: True}, budget=100_000))
    with pytest.raises(BudgetError):
        list(find_matches(compiled, PartitionRows([1] * 2_000, range(2_000)), within=1_500, budget=100_000))


def test_rows_that_are_searched_again_and_again_are_counted():
    compiled = compile_pattern(parse_pattern("(A+ B) | A"), NUMBERS)

    with pytest.raises(BudgetError):
        list(find_matches(compiled, PartitionRows([1] * 2_000), budget=100_000))
    assert len(list(find_matches(compiled, PartitionRows([1] * 200), budget=100_000))) == 200
    # One pass over rows is never too much.
    assert len(list(find_matches(compiled, PartitionRows([1, 1, 2] * 50_000), budget=0))) == 50_000


def test_a_core_matches_two_hundred_thousand_rows_a_second_and_more():
    compiled = compile_pattern(parse_pattern("A B+ C+"), NUMBERS)
    rng = random.Random(2)
    rows = PartitionRows([1 | rng.choice((0, 2, 4, 6)) for _ in range(100_000)], range(100_000))

    def rate(within: int | None) -> float:
        began = time.process_time()
        assert sum(1 for _ in find_matches(compiled, rows, within=within)) > 1_000
        return len(rows.masks) / (time.process_time() - began)

    assert max(rate(None) for _ in range(3)) > 200_000
    assert max(rate(50) for _ in range(3)) > 200_000


def test_a_pattern_of_too_many_places_is_refused():
    with pytest.raises(PatternTooLargeError):
        compile_pattern(parse_pattern("((((A{100}){100}){100}){100})"), NUMBERS)
    with pytest.raises(PatternTooLargeError):
        compile_pattern(parse_pattern("((A?){1,9000}){1,9}"), NUMBERS)


def test_ten_times_the_rows_take_at_most_twelve_times_as_long():
    compiled = compile_pattern(parse_pattern("A B+ C+"), NUMBERS)

    def seconds(count: int) -> float:
        rng = random.Random(1)
        masks = [1 << rng.choice((0, 1, 1, 2, 2)) for _ in range(count)]
        began = time.process_time()
        assert sum(1 for _ in find_matches(compiled, PartitionRows(masks))) > count // 50
        return time.process_time() - began

    # In pairs, because other processes take caches away for a while. By the square of the rows it would be a hundred.
    assert min(seconds(200_000) / seconds(20_000) for _ in range(5)) < 12


@pytest.mark.parametrize("mistake", ["reluctant", "skip", "within", "anchor"])
def test_a_planted_mistake_is_found(mistake, monkeypatch):
    if mistake == "reluctant":
        monkeypatch.setattr(program._Code, "_round", without_reluctance(program._Code._round))
    elif mistake == "skip":
        right = matcher._after
        monkeypatch.setattr(matcher, "_after", lambda match, *rest: right(match, *rest) + (len(match.places) > 1))
    elif mistake == "within":
        monkeypatch.setattr(matcher._OneByOne, "__init__", with_a_longer_span(matcher._OneByOne.__init__))
    else:
        monkeypatch.setattr(matcher._AllAtOnce, "_firsts", lambda self, row: self.program.start)

    assert any(differing(range(first, first + 100)) for first in range(0, 3_000, 100))


def without_reluctance(right):
    from dataclasses import replace

    return lambda self, pattern, excluded, **how: right(self, replace(pattern, reluctant=False), excluded, **how)


def with_a_longer_span(right):
    return lambda self, compiled, rows, within, budget: right(self, compiled, rows, within + 1, budget)


def test_variables_are_listed_in_order():
    assert variables_of(parse_pattern('B (a | "c d")* A')) == ("B", "A", "c d")
