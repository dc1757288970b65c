"""A pattern as a program: from each place where a row is taken, the places that may follow, the preferred first.

A place is one occurrence of a variable; a part that is repeated a number of times has so many copies. The steps between
two places take no row, so they are walked once, here, and not for each row. The walk goes on like a search with
backtracking, and stops where it comes again to a step with the same loops entered: whatever could follow is in the list
already, and preferred.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from freshline.patterns.pattern import Alternation, Anchor, Exclusion, Pattern, PatternSequence, Repetition, Variable

# The place behind the last one: the match is complete.
MATCH = -1
# More places, or more steps between them, are taken for a mistake: each takes memory for as long as the engine runs.
MOST_PLACES = 20_000
MOST_STEPS = 2_000_000


class PatternTooLargeError(Exception):
    """A pattern whose program would have too many places or steps."""


@dataclass(frozen=True)
class Program:
    """The places of a pattern, by number.

    `variables` has the number of each place's variable, as they were handed in, and `excluded` whether {- -} is around
    it. `following` has the places that may come after each, MATCH among them, and `ends` whether the match may be
    complete behind it where no row follows. `first` and `start` are the places with which a match may begin, elsewhere
    and at the first row of the partition.
    """

    variables: tuple[int, ...]
    excluded: tuple[bool, ...]
    following: tuple[tuple[int, ...], ...]
    ends: tuple[bool, ...]
    first: tuple[int, ...]
    start: tuple[int, ...]


def compile_pattern(pattern: Pattern, numbers: Mapping[str, int]) -> Program:
    """The program of a pattern whose variables have these numbers. Raises PatternTooLargeError."""
    code = _Code(numbers)
    code.add(pattern, excluded=False)
    code.steps.append(_Step("match"))
    walk = _Walk(code)
    places = [number for number, step in enumerate(code.steps) if step.kind == "row"]
    number_of = {step: place for place, step in enumerate(places)}
    lists = [walk.after(step + 1, at_start=False, at_end=False) for step in places]
    first, start = (walk.after(0, at_start=at_start, at_end=False) for at_start in (False, True))
    at_end = [bool(walk.after(step + 1, at_start=False, at_end=True)) for step in places]
    return Program(
        variables=tuple(code.steps[step].variable for step in places),
        excluded=tuple(code.steps[step].excluded for step in places),
        following=tuple(tuple(number_of.get(step, MATCH) for step in found) for found in lists),
        ends=tuple(at_end),
        first=tuple(number_of.get(step, MATCH) for step in first),
        start=tuple(number_of.get(step, MATCH) for step in start),
    )


def depths_of(program: Program) -> Mapping[int, int]:
    """For each variable the least number of rows of a match before one of it."""
    found: dict[int, int] = {}
    seen: set[int] = set()
    places, depth = {*program.first, *program.start}, 0
    while places:
        for place in places - {MATCH}:
            found.setdefault(program.variables[place], depth)
        seen |= places
        places = {to for place in places - {MATCH} for to in program.following[place]} - seen
        depth += 1
    return found


@dataclass
class _Step:
    """One step: `row` takes a row, `fork` goes to `to` in order, `enter` and `again` are the ends of a loop's round."""

    kind: str
    variable: int = 0
    excluded: bool = False
    to: tuple[int, ...] = ()
    loop: int = 0


@dataclass
class _Code:
    numbers: Mapping[str, int]
    steps: list[_Step] = field(default_factory=list)
    loops: int = 0

    def add(self, pattern: Pattern, *, excluded: bool) -> None:
        if len(self.steps) > 3 * MOST_PLACES:
            raise PatternTooLargeError
        if isinstance(pattern, Variable):
            self.steps.append(_Step("row", self.numbers[pattern.name], excluded))
        elif isinstance(pattern, PatternSequence):
            for part in pattern.parts:
                self.add(part, excluded=excluded)
        elif isinstance(pattern, Exclusion):
            self.add(pattern.part, excluded=True)
        elif isinstance(pattern, Anchor):
            self.steps.append(_Step("start" if pattern.is_start else "end"))
        elif isinstance(pattern, Alternation):
            self._alternation(pattern, excluded)
        else:
            self._repetition(pattern, excluded)

    def _alternation(self, pattern: Alternation, excluded: bool) -> None:
        fork = _Step("fork")
        self.steps.append(fork)
        begins, jumps = [], []
        for option in pattern.options:
            begins.append(len(self.steps))
            self.add(option, excluded=excluded)
            jumps.append(_Step("fork"))
            self.steps.append(jumps[-1])
        fork.to = tuple(begins)
        for jump in jumps:
            jump.to = (len(self.steps),)

    def _repetition(self, pattern: Repetition, excluded: bool) -> None:
        for _ in range(pattern.least):
            self.add(pattern.part, excluded=excluded)
        if pattern.most is None:
            self._round(pattern, excluded, loops=True)
            return
        left = [self._round(pattern, excluded, loops=False) for _ in range(pattern.most - pattern.least)]
        # One round more is there only behind the one before it, so all of them leave to the same step.
        for choice, again in left:
            begin = choice.to[0]
            choice.to = (begin, len(self.steps)) if not pattern.reluctant else (len(self.steps), begin)
            again.to = (again.to[0], len(self.steps))

    def _round(self, pattern: Repetition, excluded: bool, *, loops: bool) -> tuple[_Step, _Step]:
        """One round that may be left out: a choice, the part, and the question whether it took a row."""
        self.loops += 1
        loop, at = self.loops, len(self.steps)
        choice, again = _Step("fork"), _Step("again", loop=loop)
        self.steps += [choice, _Step("enter", loop=loop)]
        self.add(pattern.part, excluded=excluded)
        self.steps.append(again)
        behind = len(self.steps)
        begin = at + 1
        choice.to = (begin, behind) if not pattern.reluctant else (behind, begin)
        # After a round that took a row, and after one that took none.
        again.to = (at if loops else behind, behind)
        if not loops:
            choice.to = (begin,)
        return choice, again


class _Walk:
    """The steps that take rows, and the end, that can be reached without taking one."""

    def __init__(self, code: _Code) -> None:
        self.steps = code.steps
        self.walked = 0

    def after(self, begin: int, *, at_start: bool, at_end: bool) -> tuple[int, ...]:
        """The numbers of the steps, the preferred first; at the end of the rows only the last step counts."""
        return tuple(dict.fromkeys(self._reach(begin, at_start=at_start, at_end=at_end)))

    def _reach(self, begin: int, *, at_start: bool, at_end: bool) -> Iterator[int]:
        # The loops whose round has begun since the last row; a round that ends among these took none.
        waiting: list[tuple[int, frozenset[int]]] = [(begin, frozenset())]
        seen: set[tuple[int, frozenset[int]]] = set()
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            self.walked += 1
            if self.walked > MOST_STEPS:
                raise PatternTooLargeError
            number, entered = at
            step = self.steps[number]
            if step.kind == "match" or (step.kind == "row" and not at_end):
                yield number
            elif step.kind == "fork":
                waiting += [(to, entered) for to in reversed(step.to)]
            elif step.kind == "enter":
                waiting.append((number + 1, entered | {step.loop}))
            elif step.kind == "again":
                on, out = step.to
                waiting.append((out, entered - {step.loop}) if step.loop in entered else (on, entered))
            elif (step.kind == "start" and at_start) or (step.kind == "end" and at_end):
                waiting.append((number + 1, entered))
