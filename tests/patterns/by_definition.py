"""Matching as the standard defines it: all ways in the order of preference, and the first of them that is one.

It shares no code with the matcher: it walks the pattern itself, row by row, with Python's own calls, and takes a time
that grows with the number of ways. For patterns whose rows are letters, Python's `re` is another judge.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from freshline.patterns.pattern import Alternation, Anchor, Exclusion, Pattern, Repetition, Variable
from freshline.patterns.pattern import PatternSequence as Parts

Way = tuple[tuple[str, bool], ...]
Row = frozenset[str]
# Whether a row may be taken as a variable, by the variables of the rows from the first one of the match up to it.
Condition = Callable[[Sequence[str], int], bool]


class Definition:
    """Rows as the sets of the variables that they may be taken as, with times in microseconds.

    `conditions` are of variables whose rows depend on those matched before. They get the variables so far, the one of
    the row at the end, and the number of the first row.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        times: Sequence[int | None] = (),
        within: int | None = None,
        conditions: Mapping[str, Condition] | None = None,
    ) -> None:
        self.rows = rows
        self.times = times
        self.within = within
        self.conditions = conditions or {}

    def matches(self, pattern: Pattern, skip: str) -> list[tuple[int, Way]]:
        """Each match as its first row, and the variable of each of its rows with whether it is excluded.

        `skip` is `past`, `next`, or `first X`, `last X`; ends with ("missing", row) or ("began", row) for a wrong one.
        """
        found: list[tuple[int, Way]] = []
        begin = 0
        while begin < len(self.rows):
            way = next((way for _, way in self._ways(pattern, begin, begin, (), excluded=False)), None)
            if way is None:
                begin += 1
                continue
            found.append((begin, way))
            if skip == "next" or not way:
                begin += 1
            elif skip == "past":
                begin += len(way)
            else:
                end, name = skip.split()
                places = [place for place, (label, _) in enumerate(way) if label == name]
                if not places:
                    return [*found, (begin, (("missing", True),))]
                place = min(places) if end == "first" else max(places)
                if place == 0:
                    return [*found, (begin, (("began", True),))]
                begin += place
        return found

    def _may_take(self, name: str, start: int, row: int, way: Way) -> bool:
        if row >= len(self.rows) or name not in self.rows[row]:
            return False
        condition = self.conditions.get(name)
        if condition is not None and not condition([*(label for label, _ in way), name], start):
            return False
        if self.within is None or row == start:
            return True
        first, at = self.times[start], self.times[row]
        return first is not None and at is not None and at - first < self.within

    def _ways(self, pattern: Pattern, start: int, row: int, way: Way, *, excluded: bool) -> Iterator[tuple[int, Way]]:
        if isinstance(pattern, Variable):
            if self._may_take(pattern.name, start, row, way):
                yield row + 1, (*way, (pattern.name, excluded))
        elif isinstance(pattern, Anchor):
            if row == (0 if pattern.is_start else len(self.rows)):
                yield row, way
        elif isinstance(pattern, Exclusion):
            yield from self._ways(pattern.part, start, row, way, excluded=True)
        elif isinstance(pattern, Alternation):
            for option in pattern.options:
                yield from self._ways(option, start, row, way, excluded=excluded)
        elif isinstance(pattern, Parts):
            yield from self._in_turn(pattern.parts, start, row, way, excluded=excluded)
        else:
            yield from self._times(pattern, 0, start, row, way, excluded=excluded)

    def _in_turn(
        self, parts: Sequence[Pattern], start: int, row: int, way: Way, *, excluded: bool
    ) -> Iterator[tuple[int, Way]]:
        if not parts:
            yield row, way
            return
        for reached, longer in self._ways(parts[0], start, row, way, excluded=excluded):
            yield from self._in_turn(parts[1:], start, reached, longer, excluded=excluded)

    def _times(
        self, loop: Repetition, count: int, start: int, row: int, way: Way, *, excluded: bool
    ) -> Iterator[tuple[int, Way]]:
        enough = count >= loop.least
        if enough and loop.reluctant:
            yield row, way
        if loop.most is None or count < loop.most:
            for reached, longer in self._ways(loop.part, start, row, way, excluded=excluded):
                if enough and reached == row:
                    # A round that takes no row is the last one.
                    yield reached, longer
                else:
                    yield from self._times(loop, count + 1, start, reached, longer, excluded=excluded)
        if enough and not loop.reluctant:
            yield row, way


def by_expression(expression: str, letters: str) -> list[tuple[int, str]]:
    """The matches from each letter on, where the one before ended; `finditer` has a rule of its own for empty ones."""
    compiled = re.compile(expression)
    matches = []
    begin = 0
    while begin < len(letters):
        match = compiled.match(letters, begin)
        if match is not None:
            matches.append((begin, match[0]))
        begin += max(1, len(match[0]) if match else 0)
    return matches
