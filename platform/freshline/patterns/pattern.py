"""PATTERN of MATCH_RECOGNIZE as values.

The language is that of SQL:2016 (ISO/IEC 19075-5): variables, sequences, `|`, groups, `()`, the quantifiers `*`, `+`,
`?`, `{n}`, `{n,}`, `{n,m}` and `{,m}`, each with `?` behind it for as few as possible, `PERMUTE`, `{- -}`, `^` and `$`.
The first one is preferred: of `A | B` the A, of `A*` as many as there are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

# More are taken for a mistake: PERMUTE of six variables are 720 sequences.
MOST_PERMUTED = 6
# A quantifier is so many copies of what it stands behind.
MOST_REPEATED = 10_000
# Beyond it, parentheses in parentheses are more than Python's own calls can follow.
MOST_NESTED = 100


class PatternTextError(Exception):
    """A text that is no pattern; `offset` is where in it, in characters."""

    def __init__(self, message: str, offset: int) -> None:
        self.message = message
        self.offset = offset
        super().__init__(message)


@dataclass(frozen=True)
class Variable:
    """One row for which the condition of the variable is true. The name is in upper case, unless it was quoted."""

    name: str


@dataclass(frozen=True)
class PatternSequence:
    """All of the parts, one behind another; without parts, no row."""

    parts: tuple[Pattern, ...]


@dataclass(frozen=True)
class Alternation:
    """One of the options, the first that leads to a match."""

    options: tuple[Pattern, ...]


@dataclass(frozen=True)
class Repetition:
    """The part `least` times up to `most` times (None: any number), as often as possible or, if `reluctant`, as rarely.

    Behind the first `least` times, one that takes no row is the last.
    """

    part: Pattern
    least: int
    most: int | None
    reluctant: bool = False


@dataclass(frozen=True)
class Exclusion:
    """The part, whose rows are matched and measured, but not shown by ALL ROWS PER MATCH."""

    part: Pattern


@dataclass(frozen=True)
class Anchor:
    """The place before the first row of the partition (`^`), or behind its last row (`$`)."""

    is_start: bool


Pattern = Variable | PatternSequence | Alternation | Repetition | Exclusion | Anchor

_TOKEN = re.compile(
    r"\s*(?:(?P<name>[^\W\d]\w*)|(?P<quoted>`(?:[^`]|``)*`|\"(?:[^\"]|\"\")*\")"
    r"|(?P<bounds>\{\s*(?P<least>\d*)\s*(?P<comma>,?)\s*(?P<most>\d*)\s*\})"
    r"|(?P<mark>\{\s*-|-\s*\}|[()|*+?^$,]))"
)


def parse_pattern(text: str) -> Pattern:
    """The pattern that stands between the parentheses of PATTERN ( ). Raises PatternError."""
    return _Parser(text).whole()


def variables_of(pattern: Pattern) -> tuple[str, ...]:
    """The names of the variables, each once, in the order in which they stand first."""
    return tuple(dict.fromkeys(_variables(pattern)))


def _variables(pattern: Pattern) -> Iterator[str]:
    if isinstance(pattern, Variable):
        yield pattern.name
    elif isinstance(pattern, PatternSequence | Alternation):
        for part in pattern.parts if isinstance(pattern, PatternSequence) else pattern.options:
            yield from _variables(part)
    elif isinstance(pattern, Repetition | Exclusion):
        yield from _variables(pattern.part)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[re.Match[str]] = []
        self.next = 0
        self.depth = 0
        self.excluding = False
        place = 0
        while text[place:].strip():
            token = _TOKEN.match(text, place)
            if token is None:
                offset = place + len(text[place:]) - len(text[place:].lstrip())
                raise PatternTextError(f"{text[offset : offset + 10]!r} is no part of a pattern", offset)
            self.tokens.append(token)
            place = token.end()

    def whole(self) -> Pattern:
        pattern = self._alternation()
        if self.next < len(self.tokens):
            raise self._error(f"{self._mark() or self._token[0].strip()} stands where it means nothing")
        return pattern

    @property
    def _token(self) -> re.Match[str]:
        return self.tokens[self.next]

    def _mark(self) -> str:
        return "".join((self._token["mark"] or "").split()) if self.next < len(self.tokens) else ""

    def _error(self, message: str) -> PatternTextError:
        if self.next < len(self.tokens):
            token = self._token
            return PatternTextError(message, token.start() + len(token[0]) - len(token[0].lstrip()))
        return PatternTextError(message, len(self.text))

    def _take(self, mark: str, within: str) -> None:
        if self._mark() != mark:
            raise self._error(f"{within} is not closed by {mark}")
        self.next += 1

    def _alternation(self) -> Pattern:
        self.depth += 1
        if self.depth > MOST_NESTED:
            raise self._error(f"more than {MOST_NESTED} parentheses in each other")
        options = [self._sequence()]
        while self._mark() == "|":
            self.next += 1
            options.append(self._sequence())
        self.depth -= 1
        return options[0] if len(options) == 1 else Alternation(tuple(options))

    def _sequence(self) -> Pattern:
        first = self.next
        parts: list[Pattern] = []
        while self.next < len(self.tokens) and self._mark() not in ("|", ")", "-}", ","):
            parts.append(self._repeated())
        if not parts:
            self.next = first
            raise self._error("a pattern is missing here. No row at all is written ()")
        return parts[0] if len(parts) == 1 else PatternSequence(tuple(parts))

    def _repeated(self) -> Pattern:
        part = self._primary()
        if self.next == len(self.tokens):
            return part
        token = self._token
        least, most = 0, None
        if token["bounds"]:
            least, most = self._bounds(token)
        elif token["mark"] in ("*", "+", "?"):
            least = 1 if token["mark"] == "+" else 0
            most = 1 if token["mark"] == "?" else None
        else:
            return part
        if isinstance(part, Anchor):
            raise self._error("^ and $ are places, which are not repeated")
        self.next += 1
        reluctant = self._mark() == "?"
        if reluctant:
            self.next += 1
        if self.next < len(self.tokens) and (self._token["bounds"] or self._mark() in ("*", "+", "?")):
            raise self._error("two quantifiers stand behind each other. Put the first one into parentheses")
        return Repetition(part, least, most, reluctant)

    def _bounds(self, token: re.Match[str]) -> tuple[int, int | None]:
        if not token["least"] and not token["most"]:
            raise self._error("{} says no number. Write one such as {2}, {2,} or {2,5}")
        least = int(token["least"] or 0)
        most = int(token["most"]) if token["most"] else None if token["comma"] else least
        if most == 0 or (most is not None and most < least):
            raise self._error(f"{token['bounds']} is never met: its greatest number is 0, or less than its least one")
        if max(least, most or 0) > MOST_REPEATED:
            raise self._error(f"{token['bounds']} is more than {MOST_REPEATED:,} times, the most there are")
        return least, most

    def _primary(self) -> Pattern:
        token = self._token
        if token["name"] or token["quoted"]:
            name = token["name"].upper() if token["name"] else _unquoted(token["quoted"])
            following = self.tokens[self.next + 1]["mark"] if self.next + 1 < len(self.tokens) else ""
            if name == "PERMUTE" and token["name"] and following == "(":
                return self._permuted()
            self.next += 1
            return Variable(name)
        mark = self._mark()
        if mark in ("^", "$"):
            self.next += 1
            return Anchor(mark == "^")
        if mark == "(":
            self.next += 1
            if self._mark() == ")":
                self.next += 1
                return PatternSequence(())
            inner = self._alternation()
            self._take(")", "(")
            return inner
        if mark == "{-":
            if self.excluding:
                raise self._error("{- stands inside of another {- -}")
            self.excluding = True
            self.next += 1
            inner = self._alternation()
            self._take("-}", "{-")
            self.excluding = False
            return Exclusion(inner)
        raise self._error(f"{token[0].strip()} has nothing before it that it belongs to")

    def _permuted(self) -> Pattern:
        begin = self.next
        self.next += 2
        parts = [self._alternation()]
        while self._mark() == ",":
            self.next += 1
            parts.append(self._alternation())
        self._take(")", "PERMUTE(")
        if len(parts) > MOST_PERMUTED:
            self.next = begin
            raise self._error(f"PERMUTE has {len(parts)} parts, and at most {MOST_PERMUTED} are put in every order")
        orders = tuple(PatternSequence(order) for order in permutations(parts))
        return orders[0] if len(orders) == 1 else Alternation(orders)


def _unquoted(text: str) -> str:
    return text[1:-1].replace(text[0] * 2, text[0])
