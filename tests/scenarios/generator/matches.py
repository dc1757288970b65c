"""Random MATCH_RECOGNIZE, and the rows that it gives by definition.

The definition is `tests.patterns.by_definition`, which tries all ways in the order of preference. Conditions and
measures are drawn as SQL together with a function of the rows, so that nothing of freshline computes what it is
compared with. Where each row can be of one variable only, Python's `re` finds the matches once more.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from freshline.patterns.pattern import parse_pattern
from tests.patterns.by_definition import Definition, by_expression
from tests.scenarios.generator.values import Column, Relation

NAMES = ("A", "B", "C")
MICROSECOND = timedelta(microseconds=1)
# DuckDB's times have no zone.
EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Taken:
    """Rows of one partition in their order; those from `start` on are taken as `labels`, one after the other."""

    rows: Rows
    start: int
    labels: Sequence[str]

    def places(self, variable: str | None) -> list[int]:
        """The rows taken as a variable, or as any."""
        return [self.start + n for n, label in enumerate(self.labels) if variable in (None, label)]

    def at(self, place: int, column: str) -> Any:
        """A value of a row of the partition; None beyond its ends."""
        return self.rows[place][column] if 0 <= place < len(self.rows) else None

    def picked(self, variable: str | None, column: str, *, last: bool, skip: int = 0, step: int = 0) -> Any:
        """FIRST and LAST, and PREV and NEXT of them."""
        places = self.places(variable)
        if skip >= len(places):
            return None
        return self.at((places[-1 - skip] if last else places[skip]) + step, column)

    def values(self, variable: str | None, column: str) -> list[Any]:
        """The values that are not NULL in the rows of a variable."""
        return [value for place in self.places(variable) if (value := self.rows[place][column]) is not None]


Value = Callable[[Taken], Any]


@dataclass(frozen=True)
class Asked:
    """SQL with its meaning. `alone` says that it does not read rows matched so far."""

    text: str
    value: Value
    alone: bool = True


@dataclass(frozen=True)
class Measure:
    """A measure with its meaning; `final` ones are of the whole match in each of its rows."""

    name: str
    kind: str
    text: str
    value: Callable[[Taken, int], Any]
    final: bool = False


@dataclass(frozen=True)
class Matching:
    """A MATCH_RECOGNIZE over a relation, or over a query in parentheses, as text and by its parts.

    `name` is the table of the second engine that has its rows, `columns` are these rows'. Rows are ordered by `time`
    and by `key`, which no two of them share. `shows` is one, all, omit or unmatched. `lettered` says that each row can
    be of one variable at most.
    """

    name: str
    data: str
    text: str
    columns: tuple[Column, ...]
    keys: tuple[str, ...]
    time: str
    key: str
    newest_first: bool
    pattern: str
    skip: str
    within: timedelta | None
    shows: str
    conditions: tuple[tuple[str, Asked], ...]
    measures: tuple[Measure, ...]
    lettered: bool

    def rows(self, rows: Rows) -> Iterator[tuple[Any, ...]]:
        """The rows of the result, from those of the input. Raises AssertionError where `re` finds other matches."""
        partitions: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
        for row in sorted(rows, key=self._place):
            partitions.setdefault(tuple(row[key] for key in self.keys), []).append(row)
        for found in partitions.values():
            yield from self._matched(found)

    def _place(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        at = row[self.time]
        micros = 0 if at is None else (at - EPOCH) // MICROSECOND
        return ((at is None, -micros) if self.newest_first else (at is not None, micros), row[self.key])

    def _matched(self, rows: Rows) -> Iterator[tuple[Any, ...]]:
        conditions = dict(self.conditions)
        marks = [
            frozenset(
                name
                for name in set(re.findall("[ABC]", self.pattern))
                if name not in conditions
                or not conditions[name].alone
                or conditions[name].value(Taken(rows, place, (name,))) is True
            )
            for place in range(len(rows))
        ]
        of_history = {
            name: lambda labels, start, asked=asked: asked.value(Taken(rows, start, labels)) is True
            for name, asked in self.conditions
            if not asked.alone
        }
        times = [None if row[self.time] is None else (row[self.time] - EPOCH) // MICROSECOND for row in rows]
        within = None if self.within is None else self.within // MICROSECOND
        definition = Definition(marks, times, within, of_history)
        ways = definition.matches(parse_pattern(self.pattern), self.skip)
        if self.lettered and self.within is None and self.skip == "past":
            letters = "".join(next(iter(mark), "x") for mark in marks)
            again = by_expression(re.sub(r"\s", "", self.pattern), letters)
            found = [(begin, "".join(name for name, _ in way)) for begin, way in ways]
            assert again == found, f"re finds {again} and the definition {found} of {self.pattern} in {letters}"
        covered: set[int] = set()
        for number, (begin, way) in enumerate(ways, 1):
            whole = Taken(rows, begin, tuple(label for label, _ in way))
            covered |= {begin + n for n in range(max(1, len(way)))}
            if self.shows == "one":
                yield (*(rows[0][key] for key in self.keys), *(each.value(whole, number) for each in self.measures))
            elif not way and self.shows != "omit":
                yield (*rows[begin].values(), *(each.value(whole, number) for each in self.measures))
            for place, (_, excluded) in enumerate(way):
                if self.shows != "one" and not excluded:
                    so_far = Taken(rows, begin, whole.labels[: place + 1])
                    values = (each.value(whole if each.final else so_far, number) for each in self.measures)
                    yield (*rows[begin + place].values(), *values)
        if self.shows == "unmatched":
            for place, row in enumerate(rows):
                if place not in covered:
                    yield (*row.values(), *(None for _ in self.measures))


def draw_matching(random: Random, relation: Relation, time: str, name: str, *, near: bool) -> Matching:
    """A matching over a relation with a key and a column of times.

    With `near` it has the form whose refreshes read a part of a partition: WITHIN, the columns of PARTITION BY, and the
    time of the first row, without reading beyond the match.
    """
    return _Drawing(random, relation, time, near=near).matching(name)


class _Drawing:
    def __init__(self, random: Random, relation: Relation, time: str, *, near: bool) -> None:
        assert relation.key is not None
        self.random = random
        self.relation = relation
        self.time = time
        self.key = relation.key
        self.near = near
        self.numbers = [column for column in relation.columns if column.kind == "int"]
        self.plain = [c.name for c in relation.columns if c.kind in ("int", "long", "text") and c.name != self.key]

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def matching(self, name: str) -> Matching:
        random = self.random
        lettered = self.chance(0.2)
        shows = "one" if self.near else random.choice(("one", "one", "all", "all", "omit", "unmatched"))
        skips = ["past", "past", "past", "next"]
        skip = random.choice(skips if lettered else [*skips, "first B", "last B", "last C"])
        pattern = self._pattern(skip, shows, lettered=lettered)
        variables = sorted(set(re.findall("[ABC]", pattern)))
        letter = random.choice(self.numbers).name
        conditions: list[tuple[str, Asked]] = []
        for number, variable in enumerate(variables):
            if lettered:
                conditions.append((variable, _equal(f"{variable}.{letter}", letter, number)))
            elif self.chance(0.8) or number == 0:
                conditions.append((variable, self._condition(variable, variables)))
        measures = tuple(self._measures(variables, shows))
        # Of a key there are to be several rows, so it is mostly the column with the fewest values.
        keys = tuple(random.sample(self.plain, min(len(self.plain), random.choice((1, 1, 1, 2)))))
        newest_first = not self.near and self.chance(0.15)
        hours = random.choice((6, 12, 13, 30, 24 * 40))
        within = timedelta(hours=hours) if self.near or (not newest_first and self.chance(0.3)) else None
        spanned = "" if within is None else f" WITHIN INTERVAL '{hours}' HOURS"
        filtered = self.chance(0.15)
        data = f"(SELECT * FROM {self.relation.name} WHERE {keys[0]} IS NOT NULL)" if filtered else self.relation.name
        own = self.relation.columns
        shown = tuple(c for key in keys for c in own if c.name == key) if shows == "one" else own
        return Matching(
            name=name,
            data=data,
            text=f"{data} MATCH_RECOGNIZE (PARTITION BY {', '.join(keys)} ORDER BY {self.time}"
            f"{' DESC' if newest_first else ''}, {self.key} "
            f"MEASURES {', '.join(f'{each.text} AS {each.name}' for each in measures)} {_SHOWS[shows]} "
            f"AFTER MATCH SKIP {_SKIPS.get(skip, f'TO {skip.upper()}')} PATTERN ({pattern})"
            f"{spanned} "
            f"DEFINE {', '.join(f'{variable} AS {asked.text}' for variable, asked in conditions)})",
            columns=(*shown, *(Column(each.name, each.kind) for each in measures)),
            keys=keys,
            time=self.time,
            key=self.key,
            newest_first=newest_first,
            pattern=pattern,
            skip=skip,
            within=within,
            shows=shows,
            conditions=tuple(conditions),
            measures=measures,
            lettered=lettered,
        )

    # -- the pattern

    def _pattern(self, skip: str, shows: str, *, lettered: bool) -> str:
        random = self.random
        parts = [self._part(lettered=lettered) for _ in range(random.choice((1, 2, 2, 3)))]
        if " " in skip:
            # A variable to skip to is in every match, behind its first row.
            wanted = skip.split()[1]
            return " ".join(["A", *parts[:1], wanted + random.choice(("", "+", "+?", "{1,2}")), *parts[1:2]])
        if self.near and self.chance(0.8):
            parts.insert(0, "A")
        if shows in ("all", "omit") and not lettered and self.chance(0.25):
            parts.insert(random.randint(0, len(parts)), "{- B -}")
        if not lettered and not self.near and self.chance(0.1):
            parts = random.choice((["^", *parts], [*parts, "$"]))
        return " ".join(parts)

    def _part(self, *, lettered: bool) -> str:
        random = self.random
        form = random.choice(("one", "one", "one", "either", "group", "permute"))
        one, two = random.sample(NAMES, 2)
        few = random.choice(("", "", "?"))
        if form == "one":
            quantifier = random.choice(("", "*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}"))
            return f"{one}{quantifier}{few if quantifier else ''}"
        quantifier = random.choice(("", "?", "{1,3}", "{2}", "+" if lettered else "{0,2}"))
        few = few if quantifier else ""
        if form == "either":
            return f"({one} | {two}){quantifier}{few}"
        if form == "group":
            return f"({one} {two}{random.choice(('', '?', '+'))}){quantifier}{few}"
        return f"({one} | {two} {one})" if lettered else f"PERMUTE({one}, {two})"

    # -- conditions

    def _condition(self, variable: str, variables: Sequence[str]) -> Asked:
        one = self._comparison(variable, variables)
        if self.chance(0.7):
            return one
        other = self._comparison(variable, variables)
        word = self.random.choice(("AND", "OR"))

        def value(taken: Taken) -> Any:
            stops = word == "OR"
            found = [one.value(taken), other.value(taken)]
            if stops in found:
                return stops
            return None if None in found else not stops

        return Asked(f"({one.text} {word} {other.text})", value, one.alone and other.alone)

    def _comparison(self, variable: str, variables: Sequence[str]) -> Asked:
        random = self.random
        name = random.choice(self.numbers).name
        column, sign, number = f"{variable}.{name}", random.choice(tuple(_COMPARED)), random.choice((0, 1, 2))
        compare = _COMPARED[sign]
        other = random.choice(variables)
        step = random.choice((1, 1, 2))
        steps = "" if step == 1 else f", {step}"
        last = random.choice((True, False))
        end = "LAST" if last else "FIRST"
        hours = random.choice((6, 13, 30))
        forms: list[Asked] = [
            Asked(f"{column} {sign} {number}", lambda t: compare(t.picked(variable, name, last=True), number)),
            Asked(f"{column} IS NOT NULL", lambda t: t.picked(variable, name, last=True) is not None),
            Asked(
                f"{column} {sign} PREV({column}{steps})",
                lambda t: compare(t.picked(variable, name, last=True), t.picked(variable, name, last=True, step=-step)),
            ),
        ]
        if not self.near:
            forms.append(
                Asked(
                    f"{column} {sign} NEXT({column}{steps})",
                    lambda t: compare(
                        t.picked(variable, name, last=True), t.picked(variable, name, last=True, step=step)
                    ),
                )
            )
        if not self.near or self.chance(0.5):
            forms += [
                Asked(
                    f"{column} {sign} {end}({other}.{name})",
                    lambda t: compare(t.picked(variable, name, last=True), t.picked(other, name, last=last)),
                    alone=False,
                ),
                Asked(f"count(*) <= {number + 1}", lambda t: len(t.labels) <= number + 1, alone=False),
                Asked(f"count({other}.*) < {number + 1}", lambda t: len(t.places(other)) < number + 1, alone=False),
                Asked(
                    f"sum({column}) {sign} {number + 1}",
                    lambda t: compare(_sum(t.values(variable, name)), number + 1),
                    alone=False,
                ),
                Asked(
                    f"max({other}.{name}) {sign} {column}",
                    lambda t: compare(max(t.values(other, name), default=None), t.picked(variable, name, last=True)),
                    alone=False,
                ),
                Asked(
                    f"{variable}.{self.time} - INTERVAL '{hours}' HOURS <= FIRST({self.time})",
                    lambda t: _near(
                        t.picked(variable, self.time, last=True), t.picked(None, self.time, last=False), hours
                    ),
                    alone=False,
                ),
            ]
        return random.choice(forms)

    # -- measures

    def _measures(self, variables: Sequence[str], shows: str) -> Iterator[Measure]:
        random, time = self.random, self.time
        yield Measure("began", "time", f"FIRST({time})", lambda t, _: t.picked(None, time, last=False))
        yield Measure("many", "long", "count(*)", lambda t, _: len(t.labels))
        variable, name = random.choice(variables), random.choice(self.numbers).name
        column = f"{variable}.{name}"
        forms = [
            Measure("latest", "int", column, lambda t, _: t.picked(variable, name, last=True)),
            Measure("latest", "int", f"LAST({column}, 1)", lambda t, _: t.picked(variable, name, last=True, skip=1)),
            Measure("latest", "long", f"LAST({self.key})", lambda t, _: t.picked(None, self.key, last=True)),
            Measure("total", "long", f"sum({column})", lambda t, _: _sum(t.values(variable, name))),
            Measure("least", "int", f"min({column})", lambda t, _: min(t.values(variable, name), default=None)),
            Measure("counted", "long", f"count({variable}.*)", lambda t, _: len(t.places(variable))),
            Measure("named", "text", "CLASSIFIER()", lambda t, _: t.labels[-1] if t.labels else None),
        ]
        if not self.near:
            forms += [
                Measure("number", "long", "MATCH_NUMBER()", lambda _, number: number),
                Measure(
                    "before",
                    "int",
                    f"PREV(FIRST({column}))",
                    lambda t, _: t.picked(variable, name, last=False, step=-1),
                ),
                Measure(
                    "behind", "int", f"NEXT(LAST({column}))", lambda t, _: t.picked(variable, name, last=True, step=1)
                ),
            ]
        if shows != "one":
            forms.append(
                Measure(
                    "whole", "long", f"FINAL sum({column})", lambda t, _: _sum(t.values(variable, name)), final=True
                )
            )
        seen: set[str] = set()
        for each in random.sample(forms, random.choice((1, 2, 3))):
            if each.name not in seen:
                seen.add(each.name)
                yield each


_SHOWS = {
    "one": "ONE ROW PER MATCH",
    "all": "ALL ROWS PER MATCH",
    "omit": "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
    "unmatched": "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
}
_SKIPS = {"past": "PAST LAST ROW", "next": "TO NEXT ROW"}


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool | None]:
    return lambda one, other: None if one is None or other is None else compare(one, other)


_COMPARED = {
    "<": _compared(lambda one, other: one < other),
    "<=": _compared(lambda one, other: one <= other),
    ">": _compared(lambda one, other: one > other),
    ">=": _compared(lambda one, other: one >= other),
    "=": _compared(lambda one, other: one == other),
    "<>": _compared(lambda one, other: one != other),
}


def _equal(text: str, name: str, number: int) -> Asked:
    return Asked(f"{text} = {number}", lambda t: t.picked(None, name, last=True) == number)


def _sum(values: Sequence[Any]) -> Any:
    return sum(values) if values else None


def _near(at: datetime | None, first: datetime | None, hours: int) -> bool | None:
    return None if at is None or first is None else at - timedelta(hours=hours) <= first
