"""MATCH_RECOGNIZE in FROM, in Spark's SQL.

Neither Spark nor sqlglot's Spark reads it. The rows of a partition are collected into one array, in their order. Which
variables a row may be is one number for each, computed by Spark from the row and its neighbours; `freshline_match`
finds the matches among these numbers; and measures are aggregates over the rows that were matched. So values are
computed by Spark alone, and rows leave it as numbers only.

The grammar is that of SQL:2016 (ISO/IEC 19075-5), and Flink's WITHIN. Line ends are kept, so that what follows stays on
its line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from freshline.errors import DeclarationError
from freshline.patterns.pattern import Pattern, PatternTextError, parse_pattern, variables_of
from freshline.patterns.program import MATCH, PatternTooLargeError, Program, compile_pattern, depths_of
from freshline.sql.call_reader import TokenReader
from freshline.sql.match_expressions import Conditions, Measures, Variables, quoted_text
from freshline.sql.tokens import Text, Token, TokenKind
from freshline.sql.window_functions import (
    WINDOW_FUNCTIONS,
    WINDOWED,
    LoweredQuery,
    read_interval,
    rows_of_logs,
)
from freshline.values.closing import (
    AFTER,
    ARRIVED,
    TIMED,
    UNTIL,
    Final,
    TimedRows,
    came_in_time,
    late_by,
    micros_of,
    until_time,
)
from freshline.values.names import TableName, quoted
from freshline.values.query import MATCH_FUNCTION, MATCHED_ROWS, RANK, WITHIN, WindowTime
from freshline.values.rules import declaration_error, nearest

# The mark of each variable is a bit of a BIGINT.
MOST_VARIABLES = 60
_GROUP, _FOUND = "freshline_partition", "freshline_found"
_SHAPE = (
    "MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES LAST(B.v) AS v ONE ROW PER MATCH "
    "AFTER MATCH SKIP PAST LAST ROW PATTERN (A B+) DEFINE B AS B.v > PREV(B.v))"
)
# How each clause begins, in their order.
_CLAUSES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "PARTITION BY": (("PARTITION", "BY"),),
    "ORDER BY": (("ORDER", "BY"),),
    "MEASURES": (("MEASURES",),),
    "ROWS PER MATCH": (("ONE", "ROW", "PER", "MATCH"), ("ALL", "ROWS", "PER", "MATCH")),
    "AFTER MATCH": (("AFTER", "MATCH"),),
    "PATTERN": (("PATTERN", "("),),
    "WITHIN": (("WITHIN", "INTERVAL"),),
    "SUBSET": (("SUBSET",),),
    "DEFINE": (("DEFINE",),),
}
_SHOWS = {
    (): "all",
    ("SHOW", "EMPTY", "MATCHES"): "all",
    ("OMIT", "EMPTY", "MATCHES"): "omit",
    ("WITH", "UNMATCHED", "ROWS"): "unmatched",
}


def lower_patterns(text: Text, final: Final | None = None) -> LoweredQuery:
    """The query with each MATCH_RECOGNIZE as a query in parentheses; with `final`, of matches that no row changes.

    Raises DeclarationError: PATTERN_SYNTAX, PATTERN_VARIABLE, PATTERN_EMPTY_SKIP and PATTERN_EXPRESSION; FINAL_INPUT
    for matches that are never final; QUERY_FUNCTION.
    """
    written = text.text
    called = re.search(rf"\b{MATCH_FUNCTION}\b", written, re.IGNORECASE)
    if called is not None:
        raise declaration_error(
            "QUERY_FUNCTION",
            f"{MATCH_FUNCTION}(..) is for freshline alone. Write MATCH_RECOGNIZE (..).",
            text.at(called.start()),
        )
    found = LoweredQuery(written)
    while re.search(r"\bMATCH_RECOGNIZE\b", found.text, re.IGNORECASE):
        lowering = _Lowering(text.lowered(found.text), final)
        lowered = lowering.first()
        if lowered is None:
            break
        if found.late is not None:
            raise lowering.refuse_final("several MATCH_RECOGNIZE")
        found = replace(
            found,
            text=lowered,
            times=lowering.times,
            late=lowering.late,
            timed=lowering.timed,
            spans=(*found.spans, *lowering.spans),
        )
    return found


@dataclass(frozen=True)
class _Clauses:
    """The tokens [first, last) of each clause, without the words that it begins with."""

    found: Mapping[str, tuple[int, int]]

    def __contains__(self, name: str) -> bool:
        return name in self.found

    def __getitem__(self, name: str) -> tuple[int, int]:
        return self.found[name]


@dataclass
class _Lowering(TokenReader):
    text: Text
    final: Final | None = None
    tokens: list[Token] = field(init=False)
    at: int = 0
    times: tuple[WindowTime, ...] = ()
    spans: tuple[WindowTime, ...] = ()
    late: str | None = None
    timed: TimedRows | None = None

    def __post_init__(self) -> None:
        self.tokens = self.text.tokens()

    def first(self) -> str | None:
        """The text with the first MATCH_RECOGNIZE lowered; None without one. In an input of another it comes first."""
        for index in range(len(self.tokens)):
            if self.word(index) == "MATCH_RECOGNIZE" and self.word(index + 1) == "(":
                self.at = index
                break
        else:
            return None
        closing = self.closing(self.at + 1)
        begin, source = self._input()
        if self.word(begin) in WINDOW_FUNCTIONS:
            # As it may be written, and then lowered; an input is a name or stands in parentheses.
            start, end = self.tokens[begin].start, self.tokens[self.at - 1].end
            return f"{self.text.text[:start]}TABLE({source}){self.text.text[end:]}"
        clauses = self._clauses(self.at + 2, closing)
        if self.final is not None:
            source = self._final_source(begin, source, clauses, self.final.lateness)
        lowered = self._lowered(source, clauses)
        start, end = self.tokens[begin].start, self.tokens[closing].end
        kept = self.text.text[start:end].count("\n") - lowered.count("\n")
        return self.text.text[:start] + lowered + "\n" * kept + self.text.text[end:]

    # -- rows that are final

    def refuse_final(self, what: str) -> DeclarationError:
        return self._refuse(
            "FINAL_INPUT",
            f"EMIT FINAL writes each match once, when no row to come can change it, and this query has {what}. Remove "
            "that, or leave EMIT FINAL out, and a late row corrects the matches that it changes",
        )

    def _final_source(self, begin: int, source: str, clauses: _Clauses, lateness: int) -> str:
        """The rows of the input that came in time, up to the watermark; the late ones are a query of their own."""
        order = self._order(clauses)
        (column, direction), token = order[0], self.tokens[clauses["ORDER BY"][0]]
        if "DESC" in direction:
            raise self.refuse_final(f"ORDER BY {token.raw} DESC, which begins with the last row")
        if self._show(clauses) == "unmatched":
            raise self.refuse_final("WITH UNMATCHED ROWS, where a row is unmatched until one to come is not")
        if any(self._is_call(index, "NEXT") for index in range(self.at, self.closing(self.at + 1))):
            raise self.refuse_final("NEXT(..), of a row that may still come")
        if any(each.raw == "$" for each in self._of_pattern(clauses["PATTERN"])):
            raise self.refuse_final("$, the end of a partition to which rows may still come")
        table: TableName | None = None
        if self.word(begin) in ("(", "TABLE"):
            first = begin + (self.word(begin) == "TABLE")
            source = rows_of_logs(self.text, self.tokens, first, self.at, self._refuse_input)
        else:
            table = self.table_of(begin, self.at)
        at = f"{WINDOWED}.{column}"
        hidden = ", ".join(ARRIVED)
        by, is_late = late_by(WINDOWED, micros_of(at), lateness)
        self.late = (
            f"SELECT {WINDOWED}.* EXCEPT ({hidden}), {by} AS late_by, {WINDOWED}.{ARRIVED[1]} AS position "
            f"FROM {source} AS {WINDOWED} WHERE {is_late}"
        )
        self.times = (WindowTime("MATCH_RECOGNIZE", table, token.value, self.text.line(token.start)),)
        self.timed = TimedRows("matches")
        return (
            f"(SELECT {WINDOWED}.* EXCEPT ({hidden}) FROM {source} AS {WINDOWED} "
            f"WHERE {came_in_time(WINDOWED, at, lateness)} AND {until_time(at, lateness)})"
        )

    def _refuse_input(self, rule: str, sentence: str) -> DeclarationError:
        return self._refuse(rule, f"MATCH_RECOGNIZE: {sentence}")

    # -- where things stand

    def _words(self, index: int, count: int) -> tuple[str, ...]:
        return tuple(self.word(each) for each in range(index, index + count))

    def _refuse(self, rule: str, sentence: str, index: int | None = None) -> DeclarationError:
        at = self.tokens[self.at if index is None else min(index, len(self.tokens) - 1)]
        return declaration_error(rule, f"{sentence}.", self.text.at(at.start))

    def _not_closed(self, opening: int) -> DeclarationError:
        return self._refuse("PATTERN_SYNTAX", "MATCH_RECOGNIZE ( is not closed by )", opening)

    def _input(self) -> tuple[int, str]:
        """The token with which the input begins, and the input as SQL."""
        end = self.at - 1
        if self.word(end) == ")":
            depth, begin = 0, end
            for begin in range(end, -1, -1):
                depth += (self.word(begin) == ")") - (self.word(begin) == "(")
                if depth == 0:
                    break
            if self.word(begin - 1) == "TABLE" or self.word(begin - 1) in WINDOW_FUNCTIONS:
                begin -= 1
        else:
            begin = self.name_begin(end)
        named = begin == end or self.word(end) == ")" or self.word(begin + 1) == "."
        if not named or self.word(begin - 1) not in ("FROM", "JOIN", ","):
            raise self._refuse(
                "PATTERN_SYNTAX",
                "MATCH_RECOGNIZE stands behind the name of its input, or a query in parentheses, without an alias "
                "between them. An alias for the matches stands behind it",
            )
        return begin, self.text.text[self.tokens[begin].start : self.tokens[end].end]

    def _clauses(self, first: int, last: int) -> _Clauses:
        found: dict[str, tuple[int, int]] = {}
        open_name, open_first = "", first
        depth = 0
        for index in range(first, last):
            name, length = self._clause_at(index) if depth == 0 else ("", 0)
            depth += (self.word(index) == "(") - (self.word(index) == ")")
            if not name:
                if not open_name:
                    raise self._refuse(
                        "PATTERN_SYNTAX", f"no clause begins with {self.tokens[index].raw}. Write {_SHAPE}", index
                    )
                continue
            if name in found or name == open_name:
                raise self._refuse("PATTERN_SYNTAX", f"{name} is written twice", index)
            order = list(_CLAUSES)
            if open_name and order.index(name) < order.index(open_name):
                raise self._refuse(
                    "PATTERN_SYNTAX", f"{name} stands behind {open_name}. The order is {', '.join(order)}", index
                )
            if open_name:
                found[open_name] = (open_first, index)
            open_name, open_first = name, index + length
        if open_name:
            found[open_name] = (open_first, last)
        for name in ("ORDER BY", "PATTERN", "DEFINE"):
            if name not in found:
                raise self._refuse("PATTERN_SYNTAX", f"{name} is missing. Write {_SHAPE}")
        for name, (begin, end) in found.items():
            if begin >= end and name not in ("ROWS PER MATCH",):
                raise self._refuse("PATTERN_SYNTAX", f"{name} is empty", begin)
        return _Clauses(found)

    def _clause_at(self, index: int) -> tuple[str, int]:
        """The clause that begins at a token, and how many tokens its words are."""
        for name, begins in _CLAUSES.items():
            for words in begins:
                # Behind these a name stands, which may be a word of the grammar.
                named = self.word(index - 1) in (".", "AS")
                if self._words(index, len(words)) == words and not named:
                    # The parenthesis of PATTERN and the INTERVAL of WITHIN are a part of what follows.
                    kept = 1 if name in ("PATTERN", "WITHIN") else 0
                    return name, len(words) - kept
        return "", 0

    def _name(self, index: int) -> str:
        """A variable's name: in upper case, unless it is quoted."""
        token = self.tokens[index]
        if token.kind in (TokenKind.NAME, TokenKind.STRING):
            return token.value
        if token.kind is TokenKind.WORD and re.fullmatch(r"[^\W\d]\w*", token.raw):
            return token.word
        raise self._refuse("PATTERN_SYNTAX", f"{token.raw} is no name of a variable", index)

    def _column(self, index: int) -> str:
        """A column's name as SQL."""
        token = self.tokens[index]
        if token.kind is TokenKind.NAME or (token.kind is TokenKind.WORD and re.fullmatch(r"[^\W\d]\w*", token.raw)):
            return quoted(token.value)
        raise self._refuse("PATTERN_SYNTAX", f"{token.raw} is no column. PARTITION BY and ORDER BY take columns", index)

    # -- clauses

    def _lowered(self, source: str, clauses: _Clauses) -> str:
        keys = self._keys(clauses)
        order = self._order(clauses)
        pattern, primary = self._pattern(clauses["PATTERN"])
        variables = Variables(primary, self._subsets(clauses, primary))
        within = self._within(clauses, order)
        show = self._show(clauses)
        skip = self._skip(clauses, variables, pattern)
        conditions = Conditions(self.text, self.tokens, variables)
        for name, first, last in self._definitions(clauses, variables):
            conditions.add(name, first, last)
        measures = Measures(self.text, self.tokens, variables, show=show, keys=keys)
        for name, first, last in self._named(clauses, "MEASURES"):
            measures.add(name, first, last)
        program = json.dumps(
            {
                "pattern": " ".join(token.raw for token in self._of_pattern(clauses["PATTERN"])),
                "variables": list(primary),
                "skip": skip,
                "within": within,
                "show": show,
                "conditions": conditions.of_history,
                "time": order[0][0],
                "began": None if within is None else self._began(clauses, order[0][0], pattern, conditions, measures),
            },
            separators=(",", ":"),
        )
        timed = within is not None or self.final is not None
        rows = _Rows(source, keys, order, conditions.mask(), conditions.values(), timed, measures.offsets)
        matched = rows.matched(self._asked(program))
        lowered = measures.by_match(matched) if show == "one" else measures.by_row(matched, excluding="{ -" in program)
        return lowered if self.final is None else f"(SELECT {TIMED}.* FROM {lowered} AS {TIMED})"

    def _asked(self, program: str) -> str:
        """The program as SQL; of final matches with the times between which they are decided."""
        if self.final is None:
            return quoted_text(program)
        less = self.final.lateness
        parts = (f'{program[:-1]},"after":', ',"until":', "}")
        begin, middle, end = (quoted_text(part) for part in parts)
        return f"concat({begin}, {AFTER}({less}), {middle}, {UNTIL}({less}), {end})"

    def _keys(self, clauses: _Clauses) -> tuple[str, ...]:
        if "PARTITION BY" not in clauses:
            return ()
        found = []
        for first, last in self.items(*clauses["PARTITION BY"]):
            if last - first != 1:
                raise self._refuse("PATTERN_SYNTAX", "PARTITION BY takes columns, such as PARTITION BY a, b", first)
            found.append(self._column(first))
        return tuple(found)

    def _order(self, clauses: _Clauses) -> tuple[tuple[str, str], ...]:
        """The columns of ORDER BY, each with its direction as SQL, empty for the default one."""
        found = []
        for first, last in self.items(*clauses["ORDER BY"]):
            words = list(self._words(first + 1, last - first - 1)) if last > first else []
            allowed: tuple[list[str], ...] = ([], ["ASC"], ["DESC"])
            nulls: tuple[list[str], ...] = ([], ["NULLS", "FIRST"], ["NULLS", "LAST"])
            if last <= first or not any(words == [*way, *place] for way in allowed for place in nulls):
                raise self._refuse("PATTERN_SYNTAX", "ORDER BY takes columns, such as ORDER BY ts, id DESC", first)
            direction = " ".join(words)
            default = direction in ("", "ASC", "NULLS FIRST", "ASC NULLS FIRST")
            found.append((self._column(first), "" if default else direction))
        return tuple(found)

    def _of_pattern(self, clause: tuple[int, int]) -> Sequence[Token]:
        first, last = clause
        return self.tokens[first + 1 : last - 1]

    def _pattern(self, clause: tuple[int, int]) -> tuple[Pattern, tuple[str, ...]]:
        first, last = clause
        if self.closing(first) != last - 1:
            raise self._refuse("PATTERN_SYNTAX", "behind PATTERN ( ) stands what is no clause", self.closing(first) + 1)
        inside = self._of_pattern(clause)
        places, text = [], ""
        for token in inside:
            places.append(len(text))
            text += token.raw + " "
        try:
            pattern = parse_pattern(text)
            names = variables_of(pattern)
            compile_pattern(pattern, {name: number for number, name in enumerate(names)})
        except PatternTextError as error:
            at = max((number for number, place in enumerate(places) if place <= error.offset), default=0)
            raise self._refuse("PATTERN_SYNTAX", f"PATTERN: {error.message}", first + 1 + at) from error
        except PatternTooLargeError as error:
            raise self._refuse(
                "PATTERN_SYNTAX", "PATTERN: its repetitions in each other are too many. Write smaller numbers", first
            ) from error
        if len(names) > MOST_VARIABLES:
            raise self._refuse("PATTERN_SYNTAX", f"PATTERN has more than {MOST_VARIABLES} variables", first)
        return pattern, names

    def _subsets(self, clauses: _Clauses, primary: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """SUBSET u = (a, b), v = (c)."""
        found: dict[str, tuple[str, ...]] = {}
        for first, last in self.items(*clauses["SUBSET"]) if "SUBSET" in clauses else ():
            if self._words(first + 1, 2) != ("=", "(") or self.word(last - 1) != ")" or last - first < 5:
                raise self._refuse("PATTERN_SYNTAX", "SUBSET names several variables. Write SUBSET u = (a, b)", first)
            name = self._name(first)
            parts = [self._name(begin) for begin, _ in self.items(first + 3, last - 1)]
            self._require_known(parts, primary, "SUBSET", first)
            if name in found or name in primary:
                raise self._refuse("PATTERN_VARIABLE", f"SUBSET {name}: the name is in use already", first)
            found[name] = tuple(parts)
        return found

    def _require_known(self, names: Sequence[str], known: Sequence[str], clause: str, index: int) -> None:
        for name in names:
            if name not in known:
                near = nearest(name, known)
                sentence = f"{clause} names {name}, which is not in PATTERN.{near}".rstrip(".")
                raise self._refuse("PATTERN_VARIABLE", sentence, index)

    def _definitions(self, clauses: _Clauses, variables: Variables) -> Iterator[tuple[str, int, int]]:
        seen: set[str] = set()
        for first, last in self.items(*clauses["DEFINE"]):
            if self.word(first + 1) != "AS" or last - first < 3:
                raise self._refuse("PATTERN_SYNTAX", "DEFINE gives conditions. Write DEFINE B AS B.v > 1", first)
            name = self._name(first)
            self._require_known([name], variables.primary, "DEFINE", first)
            if name in seen:
                raise self._refuse("PATTERN_VARIABLE", f"DEFINE has {name} twice", first)
            seen.add(name)
            yield name, first + 2, last

    def _named(self, clauses: _Clauses, clause: str) -> Iterator[tuple[str, int, int]]:
        seen: set[str] = set()
        for first, last in self.items(*clauses[clause]) if clause in clauses else ():
            if self.word(last - 2) != "AS" or last - first < 3:
                raise self._refuse("PATTERN_SYNTAX", f"{clause}: each has a name. Write LAST(B.v) AS v", first)
            name = self._column(last - 1)
            if name.lower() in seen:
                raise self._refuse("PATTERN_SYNTAX", f"{clause} has {name} twice", last - 1)
            seen.add(name.lower())
            yield name, first, last - 2

    def _within(self, clauses: _Clauses, order: Sequence[tuple[str, str]]) -> int | None:
        """The span in microseconds that a match is shorter than."""
        if "WITHIN" not in clauses:
            return None
        first, last = clauses["WITHIN"]

        def refuse(rule: str, sentence: str) -> DeclarationError:
            del rule
            return self._refuse("PATTERN_SYNTAX", sentence, first)

        span = read_interval(self.tokens[first:last], "WITHIN", refuse).microseconds
        if span is None or span <= 0:
            raise refuse("", "WITHIN takes a positive interval of days or less, such as INTERVAL '1' DAY")
        if order[0][1]:
            raise refuse("", "with WITHIN the first column of ORDER BY is the time, and ascends")
        table = None
        with suppress(DeclarationError):
            begin, _ = self._input()
            table = self.table_of(begin, self.at)
        time = self.tokens[clauses["ORDER BY"][0]]
        self.spans = (WindowTime(WITHIN, table, time.value, self.text.line(time.start)),)
        return span

    def _began(
        self, clauses: _Clauses, time: str, pattern: Pattern, conditions: Conditions, measures: Measures
    ) -> str | None:
        """The measure with the time at which a match began, by which a refresh finds the old matches near a change.

        None without one, and where matches follow from more than WITHIN says: from the number of matches before them,
        from rows beside them, or from the first and the last row of the partition.
        """
        variables, program = conditions.variables, self._program(pattern, conditions.variables)
        anchored = any(token.raw in ("^", "$") for token in self._of_pattern(clauses["PATTERN"]))
        counted = any(self._is_call(index, "MATCH_NUMBER") for index in range(self.at, self.closing(self.at + 1)))
        if anchored or counted or measures.offsets or measures.show == "unmatched":
            return None
        if MATCH in (*program.first, *program.start) or not self._looks_inside(clauses, program, conditions):
            return None
        begins = {variables.primary[program.variables[place]] for place in (*program.first, *program.start)}
        for name, first, last in self._named(clauses, "MEASURES"):
            first += self.word(first) in ("FINAL", "RUNNING")
            plain = self._is_call(first, "FIRST") and self.closing(first + 1) == last - 1
            of, column = (None, first + 2) if last - first == 4 else (first + 2, first + 4)
            if not plain or last - first not in (4, 6) or (of is not None and self.word(of + 1) != "."):
                continue
            if self._column(column).lower() == time.lower() and (
                of is None or begins <= set(variables.parts(self._name(of)))
            ):
                return name
        return None

    def _looks_inside(self, clauses: _Clauses, program: Program, conditions: Conditions) -> bool:
        """Whether the conditions read rows of the match alone, and the row that is asked about."""
        depths = depths_of(program)
        for name, first, last in self._definitions(clauses, conditions.variables):
            for index in range(first, last):
                if self._is_call(index, "NEXT"):
                    return False
                if self._is_call(index, "PREV"):
                    number = self.word(self.closing(index + 1) - 1)
                    step = int(number) if number.isdigit() and self.word(self.closing(index + 1) - 2) == "," else 1
                    if name in conditions.of_history or step > depths[conditions.variables.primary.index(name)]:
                        return False
        return True

    def _is_call(self, index: int, name: str) -> bool:
        return self._words(index, 2) == (name, "(")

    @staticmethod
    def _program(pattern: Pattern, variables: Variables) -> Program:
        return compile_pattern(pattern, {name: number for number, name in enumerate(variables.primary)})

    def _show(self, clauses: _Clauses) -> str:
        if "ROWS PER MATCH" not in clauses:
            return "one"
        first, last = clauses["ROWS PER MATCH"]
        words = self._words(first, last - first)
        if self.word(first - 4) == "ONE":
            if words:
                raise self._refuse("PATTERN_SYNTAX", f"ONE ROW PER MATCH is followed by {' '.join(words)}", first)
            return "one"
        if words not in _SHOWS:
            raise self._refuse(
                "PATTERN_SYNTAX",
                "behind ALL ROWS PER MATCH may stand SHOW EMPTY MATCHES, OMIT EMPTY MATCHES or WITH UNMATCHED ROWS",
                first,
            )
        return _SHOWS[words]

    def _skip(self, clauses: _Clauses, variables: Variables, pattern: Pattern) -> list[object]:
        """`past`, `next`, or `first` and `last` with the numbers of variables."""
        if "AFTER MATCH" not in clauses:
            return ["past"]
        first, last = clauses["AFTER MATCH"]
        words = self._words(first, last - first)
        if words == ("SKIP", "PAST", "LAST", "ROW"):
            return ["past"]
        if words == ("SKIP", "TO", "NEXT", "ROW"):
            return ["next"]
        named = len(words) - (words[2:3] in (("FIRST",), ("LAST",)) and len(words) == 4)
        if words[:2] != ("SKIP", "TO") or named != 3:
            raise self._refuse(
                "PATTERN_SYNTAX",
                "AFTER MATCH takes SKIP PAST LAST ROW, SKIP TO NEXT ROW, or SKIP TO [FIRST | LAST] and a variable",
                first,
            )
        name = self._name(last - 1)
        self._require_known([name], variables.known, "AFTER MATCH SKIP TO", last - 1)
        numbers = [variables.primary.index(part) for part in variables.parts(name)]
        to = "first" if len(words) == 4 and words[2] == "FIRST" else "last"
        program = compile_pattern(pattern, {each: number for number, each in enumerate(variables.primary)})
        begins = {program.variables[place] for place in program.start if place >= 0}
        if to == "first" and begins and begins <= set(numbers):
            raise self._refuse(
                "PATTERN_EMPTY_SKIP",
                f"SKIP TO FIRST {name} is the row with which every match begins, so the same match would be found "
                "without end. Skip to another variable, or to the next row",
                first,
            )
        return [to, *numbers]


@dataclass(frozen=True)
class _Rows:
    """The matched rows as SQL: `mask` and `values` are computed from the rows of a partition's array."""

    source: str
    keys: tuple[str, ...]
    order: tuple[tuple[str, str], ...]
    mask: str
    values: str
    timed: bool
    offsets: tuple[int, ...]

    def matched(self, program: str) -> str:
        """The query in parentheses that has one row for each row that is matched or shown; `program` is SQL.

        Its columns are the keys, and `freshline_match`, `freshline_place`, `freshline_label`, `freshline_excluded`,
        `freshline_row` and, for each offset, the row that is so many places away.
        """
        keys = "".join(f"{_GROUP}.{key}, " for key in self.keys)
        array = f"{_GROUP}.freshline_array"
        time = f"unix_micros(CAST(freshline_r.row.{self.order[0][0]} AS TIMESTAMP))"
        times = f"transform({array}, freshline_r -> {time})" if self.timed else "CAST(NULL AS ARRAY<BIGINT>)"
        masks = f"transform({array}, (freshline_r, freshline_i) -> {self.mask})"
        found = (
            f"(SELECT {keys}{array}, {MATCH_FUNCTION}({program}, {masks}, {times}, {self.values}) "
            f"AS freshline_matches FROM {self._arrays()} AS {_GROUP})"
        )
        beside = "".join(
            f", get({_FOUND}.freshline_array, freshline_x.place {offset:+d}).row AS {offset_name(offset)}"
            for offset in self.offsets
        )
        names = ["freshline_match", "freshline_place", "freshline_label", "freshline_excluded", "freshline_row"]
        names += [offset_name(offset) for offset in self.offsets]
        fields = (
            "struct(freshline_x.number, freshline_x.place, freshline_x.label, freshline_x.excluded, "
            f"get({_FOUND}.freshline_array, freshline_x.place).row AS row{beside})"
        )
        keys = "".join(f"{_FOUND}.{key}, " for key in self.keys)
        return (
            f"(SELECT {keys}{', '.join(f'freshline_shown.{name}' for name in names)} FROM {found} AS {_FOUND} "
            f"LATERAL VIEW inline(transform({_FOUND}.freshline_matches, freshline_x -> {fields})) "
            f"freshline_shown AS {', '.join(names)})"
        )

    def _arrays(self) -> str:
        """The query in parentheses with the rows of each partition in their order; ties go by all columns."""
        keys = "".join(f"{MATCHED_ROWS}.{key}, " for key in self.keys)
        group = f" GROUP BY {', '.join(f'{MATCHED_ROWS}.{key}' for key in self.keys)}" if self.keys else ""
        source, first = (
            self.source,
            [f"{MATCHED_ROWS}.{column} AS o{number}" for number, (column, _) in enumerate(self.order)],
        )
        if any(direction for _, direction in self.order):
            # An array is sorted upwards; `rank` of a total order is the same each time, of equal rows too.
            by = ", ".join(f"{MATCHED_ROWS}.{column} {direction}".rstrip() for column, direction in self.order)
            over = f"PARTITION BY {', '.join(f'{MATCHED_ROWS}.{key}' for key in self.keys)} " if self.keys else ""
            ranked = f"rank() OVER ({over}ORDER BY {by}, struct({MATCHED_ROWS}.*)) AS {RANK}"
            source = f"(SELECT {MATCHED_ROWS}.*, {ranked} FROM {source} AS {MATCHED_ROWS})"
            first = [f"{MATCHED_ROWS}.{RANK} AS o0"]
        hidden = "" if source == self.source else f" EXCEPT ({RANK})"
        row = f"struct({', '.join(first)}, struct({MATCHED_ROWS}.*{hidden}) AS row)"
        # Spark compiles the order of `sort_array`. The one of `array_sort` may be anything, and is interpreted.
        return (
            f"(SELECT {keys}sort_array(collect_list({row})) AS freshline_array FROM {source} AS {MATCHED_ROWS}{group})"
        )


def offset_name(offset: int) -> str:
    """The column with the row that is so many places behind, or before where it is negative."""
    return f"freshline_{'behind' if offset > 0 else 'before'}{abs(offset)}"
