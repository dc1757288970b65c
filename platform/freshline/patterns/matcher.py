"""The search for the matches of a pattern among the rows of one partition, in their order.

Without conditions on the match so far, all beginnings are followed at once, as threads in the order of preference: an
earlier beginning first, then what the pattern prefers. Two threads at one place have one future, so the second is
dropped; there are never more than the pattern has places, whatever the rows are (K. Thompson 1968; the order of
preference is R. Pike's). With WITHIN the future follows from the beginning too, so beginnings are tried one by one. A
condition that reads the rows matched so far makes every way its own: then one way is followed after another.

Where further rows may come, the search ends with the first match that they could change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from freshline.patterns.program import MATCH, Program

# Steps for one partition where ways cannot be merged; about half a minute of one core.
BUDGET = 50_000_000

# Whether a row, the last argument, may be taken as a place's variable, after the variables of the rows from the first
# number on.
Condition = Callable[[Sequence[int], int, int], bool]


class BudgetError(Exception):
    """A partition whose ways through the pattern are more than are tried."""


class _UndecidedError(Exception):
    """Rows to come may make another match of this one."""


class SkipError(Exception):
    """AFTER MATCH SKIP TO names a row that a match has not, or the one with which it began.

    `row` is where the match began, and `began` whether the row is that one.
    """

    def __init__(self, row: int, *, began: bool) -> None:
        self.row = row
        self.began = began
        super().__init__(row, began)


class SkipTo(Enum):
    """The place where the search goes on behind a match."""

    PAST_LAST_ROW = "past last row"
    NEXT_ROW = "next row"
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class Skip:
    """The place where the search goes on; FIRST and LAST have the numbers of the variables one of which the row has."""

    to: SkipTo = SkipTo.PAST_LAST_ROW
    variables: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Match:
    """A match from the row `begin` on, with the place of the program that each of its rows took; empty without."""

    begin: int
    places: tuple[int, ...]


@dataclass(frozen=True)
class PartitionRows:
    """The rows of a partition in their order.

    `masks` has for each row the sum of 2 to the number of each variable whose condition is true for it. `times` are
    microseconds, or None; they are needed with WITHIN only. `more_from` is the least time of the rows that may come
    behind these, None where there are no more.
    """

    masks: Sequence[int]
    times: Sequence[int | None] = ()
    more_from: int | None = None


def find_matches(
    program: Program,
    rows: PartitionRows,
    *,
    skip: Skip = Skip(),
    within: int | None = None,
    conditions: Mapping[int, Condition] | None = None,
    budget: int = BUDGET,
) -> Iterator[Match]:
    """The matches, in the order of their first rows.

    `within` are microseconds: the time of a match's last row is less than that after the time of its first, while it is
    searched for. A row without a time is a match of one row at most. `conditions` are asked of variables by number,
    beside the masks. Where more rows may come, the matches are those that these rows leave as they are, up to the first
    that they may change; `$` matches nowhere then.

    Raises BudgetError and SkipError.
    """
    if conditions:
        search: _Search = _Backtracking(program, rows, within, conditions, budget)
    elif within is not None:
        search = _OneByOne(program, rows, within, budget)
    else:
        search = _AllAtOnce(program, rows, budget)
    begin = 0
    while (match := _next(search, begin)) is not None:
        yield match
        begin = _after(match, program, skip)


def _next(search: _Search, begin: int) -> Match | None:
    try:
        return search.next(begin)
    except _UndecidedError:
        return None


def _after(match: Match, program: Program, skip: Skip) -> int:
    """The row with which the next match may begin."""
    if skip.to is SkipTo.NEXT_ROW or not match.places:
        return match.begin + 1
    if skip.to is SkipTo.PAST_LAST_ROW:
        return match.begin + len(match.places)
    rows = [row for row, place in enumerate(match.places) if program.variables[place] in skip.variables]
    if not rows:
        raise SkipError(match.begin, began=False)
    row = rows[0] if skip.to is SkipTo.FIRST else rows[-1]
    if row == 0:
        raise SkipError(match.begin, began=True)
    return match.begin + row


# The places of a thread's rows, the last one first: a pair of the ones before it and one.
_History = tuple["_History", int] | None
_Thread = tuple[int, int, _History]


class _Search:
    """One way of searching."""

    def __init__(self, program: Program, rows: PartitionRows) -> None:
        self.program = program
        self.masks = rows.masks
        self.times = rows.times
        self.more_from = rows.more_from
        self.bits = [1 << variable for variable in program.variables]
        # Behind the last row a match is complete, or is none.
        self.at_last = [(MATCH,) if ends else () for ends in program.ends]

    def next(self, begin: int) -> Match | None:
        """The match with the first beginning at or behind a row."""
        raise NotImplementedError

    def _followed(self, row: int) -> Sequence[tuple[int, ...]]:
        """The places that may follow each place that takes a row."""
        is_last = row == len(self.masks) - 1 and self.more_from is None
        return self.at_last if is_last else self.program.following

    def _may_go_on(self, start: int, within: int | None) -> bool:
        """Whether a row to come can be in a match that begins with a row."""
        if self.more_from is None or within is None:
            return self.more_from is not None
        first = self.times[start]
        return first is not None and self.more_from - first < within

    def _firsts(self, row: int) -> tuple[int, ...]:
        return self.program.start if row == 0 else self.program.first


def _match(begin: int, history: _History) -> Match:
    places: list[int] = []
    while history is not None:
        history, place = history
        places.append(place)
    return Match(begin, tuple(reversed(places)))


class _AllAtOnce(_Search):
    def __init__(self, program: Program, rows: PartitionRows, budget: int) -> None:
        super().__init__(program, rows)
        # One pass over the rows is always made. Behind a short match that was taken because a long one failed, the
        # rows of the long one are searched again.
        self.budget = budget + len(rows.masks) * len(self.bits)
        # For each place the row before which a thread came to it last.
        self.seen = [-1] * len(self.bits)
        # The variables one of which the first row of a match has; None where a match may have no row.
        first = program.first
        self.first_bits = None if MATCH in first else sum({self.bits[place] for place in first})

    def next(self, begin: int) -> Match | None:
        masks, first_bits = self.masks, self.first_bits
        self.seen = [-1] * len(self.bits)
        threads: list[_Thread] = []
        found: tuple[int, _History] | None = None
        for row in range(begin, len(masks)):
            if found is None:
                if not threads and row and first_bits is not None and not masks[row] & first_bits:
                    continue
                if self._begin(threads, row):
                    found = (row, None)
            if threads:
                self.budget -= len(threads)
                if self.budget < 0:
                    raise BudgetError
                threads, complete = self._take(threads, row)
                found = complete or found
            if found is not None and not threads:
                break
        if threads and self.more_from is not None:
            raise _UndecidedError
        return None if found is None else _match(*found)

    def _begin(self, threads: list[_Thread], row: int) -> bool:
        """Add the threads that begin with a row, behind the others; whether a match without a row comes next."""
        seen = self.seen
        for place in self._firsts(row):
            if place == MATCH:
                return True
            if seen[place] != row:
                seen[place] = row
                threads.append((place, row, None))
        return False

    def _take(self, threads: Sequence[_Thread], row: int) -> tuple[list[_Thread], tuple[int, _History] | None]:
        """The threads that can take a row, behind it, up to the first one that is complete, and that one."""
        mask, bits, seen, behind = self.masks[row], self.bits, self.seen, row + 1
        following = self._followed(row)
        on: list[_Thread] = []
        for place, start, history in threads:
            if mask & bits[place]:
                taken = (history, place)
                for to in following[place]:
                    if to == MATCH:
                        return on, (start, taken)
                    if seen[to] != behind:
                        seen[to] = behind
                        on.append((to, start, taken))
        return on, None


class _FromEachRow(_Search):
    """Searches for a match from one row after the other."""

    def __init__(self, program: Program, rows: PartitionRows, within: int | None, budget: int) -> None:
        super().__init__(program, rows)
        self.within = within
        self.budget = budget

    def next(self, begin: int) -> Match | None:
        for start in range(begin, len(self.masks)):
            found = self._from(start)
            if found is not None:
                return found
        return None

    def _from(self, start: int) -> Match | None:
        """The preferred match from a row on."""
        raise NotImplementedError

    def _is_within(self, start: int, row: int) -> bool:
        if self.within is None or row == start:
            return True
        first, at = self.times[start], self.times[row]
        return first is not None and at is not None and at - first < self.within


class _OneByOne(_FromEachRow):
    def _from(self, start: int) -> Match | None:
        firsts = self._firsts(start)
        found: tuple[int, _History] | None = None
        if MATCH in firsts:
            found = (start, None)
            firsts = firsts[: firsts.index(MATCH)]
        threads: list[_Thread] = [(place, start, None) for place in firsts]
        row = start
        while threads and row < len(self.masks) and self._is_within(start, row):
            self.budget -= len(threads)
            if self.budget < 0:
                raise BudgetError
            threads, complete = self._take(threads, row)
            found = complete or found
            row += 1
        if threads and row == len(self.masks) and self._may_go_on(start, self.within):
            raise _UndecidedError
        return None if found is None else _match(*found)

    def _take(self, threads: Sequence[_Thread], row: int) -> tuple[list[_Thread], tuple[int, _History] | None]:
        mask, bits, following = self.masks[row], self.bits, self._followed(row)
        seen: set[int] = set()
        on: list[_Thread] = []
        for place, start, history in threads:
            if mask & bits[place]:
                taken = (history, place)
                for to in following[place]:
                    if to == MATCH:
                        return on, (start, taken)
                    if to not in seen:
                        seen.add(to)
                        on.append((to, start, taken))
        return on, None


class _Backtracking(_FromEachRow):
    def __init__(
        self,
        program: Program,
        rows: PartitionRows,
        within: int | None,
        conditions: Mapping[int, Condition],
        budget: int,
    ) -> None:
        super().__init__(program, rows, within, budget)
        self.conditions = conditions

    def _from(self, start: int) -> Match | None:
        """The preferred match from a row on: the first that a search in the order of preference comes to."""
        program = self.program
        # Pairs that are still to be tried, the preferred at the end: a place, and how many rows were taken before it.
        waiting = [(place, 0) for place in reversed(self._firsts(start))]
        places: list[int] = []
        labels: list[int] = []
        while waiting:
            place, count = waiting.pop()
            del places[count:], labels[count:]
            if place == MATCH:
                return Match(start, tuple(places))
            row = start + count
            self.budget -= 1 + count // 16
            if self.budget < 0:
                raise BudgetError
            if row == len(self.masks):
                if self._may_go_on(start, self.within):
                    raise _UndecidedError
                continue
            if not self._takes(place, labels, start, row):
                continue
            places.append(place)
            labels.append(program.variables[place])
            waiting += [(to, count + 1) for to in reversed(self._followed(row)[place])]
        return None

    def _takes(self, place: int, labels: Sequence[int], start: int, row: int) -> bool:
        if not self.masks[row] & self.bits[place] or not self._is_within(start, row):
            return False
        condition = self.conditions.get(self.program.variables[place])
        return condition is None or condition(labels, start, row)
