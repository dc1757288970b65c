"""The places of a SELECT's parts whose rows are final by their time, and the changes of its text there.

Only tokens are read, so what was written stays as it was, on its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from freshline.errors import DeclarationError
from freshline.sql.call_reader import CallReader
from freshline.sql.token_places import case_step, expects_operand, keyword
from freshline.sql.tokens import TokenKind
from freshline.sql.window_functions import WINDOWED, read_interval
from freshline.values.closing import (
    ARRIVED,
    FINAL_TIME,
    TIMED,
    came_in_time,
    from_time,
    is_closed,
    late_by,
    micros_of,
    until_time,
)
from freshline.values.names import TableName, quoted
from freshline.values.rules import declaration_error

# Behind FROM of a SELECT whose rows are final by time.
_CLAUSES = (
    "WHERE",
    *("GROUP", "HAVING", "QUALIFY", "WINDOW", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE", "LIMIT", "OFFSET"),
    *("UNION", "INTERSECT", "EXCEPT", "MINUS", "LATERAL", "PIVOT", "UNPIVOT", "TABLESAMPLE"),
)
_INSTEAD = "Declare a FINAL table for what lies below it, and read that, or leave EMIT FINAL out"


@dataclass(frozen=True)
class Source:
    """A table in FROM: the tokens [first, last) and the name by which its columns are called, as SQL."""

    table: TableName
    alias: str
    first: int
    last: int


@dataclass(frozen=True)
class Select:
    """The tokens of a SELECT: its own word, FROM, the clauses behind that with their [first, last), and its end."""

    first: int
    from_: int
    clauses: tuple[tuple[str, int, int], ...]
    last: int

    def clause(self, word: str) -> tuple[int, int] | None:
        return next(((first, last) for name, first, last in self.clauses if name == word), None)

    @property
    def from_end(self) -> int:
        return self.clauses[0][1] if self.clauses else self.last


class SelectReader(CallReader):
    """Finds the parts of SELECTs by their tokens."""

    def word(self, index: int) -> str:
        """The word of a token; empty also for one behind a dot, which is the name of a column or table."""
        return keyword(self.tokens, index) if index < len(self.tokens) else ""

    def windows(self) -> Iterator[int]:
        """The places of OVER behind a call."""
        for index in range(1, len(self.tokens)):
            if self.word(index) == "OVER" and self.word(index - 1) in (")", "NULLS"):
                yield index

    def words(self, word: str) -> list[int]:
        """The places of a word."""
        return [index for index in range(len(self.tokens)) if self.word(index) == word]

    def select_of(self, index: int) -> int:
        """The SELECT in whose expressions a token stands."""
        depth = least = 0
        for place in range(index, -1, -1):
            depth += (self.word(place) == ")") - (self.word(place) == "(")
            least = min(least, depth)
            if self.word(place) == "SELECT" and depth == least:
                return place
        raise self.refuse(index, f"{self.word(index)} outside of a SELECT")

    def select(self, first: int) -> Select:
        depth, last = 0, len(self.tokens)
        found: list[tuple[str, int]] = []
        from_ = 0
        for index in range(first + 1, len(self.tokens)):
            word = self.word(index)
            depth += (word == "(") - (word == ")")
            if depth < 0 or (depth == 0 and word == ";"):
                last = index
                break
            if depth:
                continue
            distinct = self.word(index - 1) == "DISTINCT" and self.word(index - 2) in ("IS", "NOT")
            if word == "FROM" and not from_ and not distinct:
                from_ = index
            elif from_ and word in _CLAUSES and not expects_operand(self.tokens, index):
                found.append((word, index))
        if not from_:
            raise self.refuse(first, "a SELECT without FROM")
        ends = [*(index for _, index in found[1:]), *([last] if found else [])]
        clauses = tuple((word, index, end) for (word, index), end in zip(found, ends, strict=True))
        for word, begin, _ in clauses:
            if word not in ("WHERE", "QUALIFY"):
                raise self.refuse(begin, word if word not in ("GROUP", "ORDER", "SORT") else f"{word} BY")
        if self.word(first + 1) == "DISTINCT":
            raise self.refuse(first, "DISTINCT")
        if self.word(first - 1) in ("ALL", "UNION", "DISTINCT", "EXCEPT", "MINUS", "INTERSECT"):
            raise self.refuse(first, self.word(first - 1 if self.word(first - 1) != "ALL" else first - 2))
        return Select(first, from_, clauses, last)

    def source(self, first: int, last: int) -> Source:
        """A table in FROM, with or without an alias."""
        end = self.name_end(first)
        rest = self.tokens[end + (self.word(end) == "AS") : last]
        if not all(self._is_of_name(index) for index in range(first, end)) or len(rest) > 1:
            raise self.refuse(first, self.written(first, last))
        table = self.table_of(first, end)
        alias = rest[0].value if rest else table.name
        return Source(table, quoted(alias), first, last)

    def written(self, first: int, last: int) -> str:
        """The characters of the tokens [first, last)."""
        return self.text.text[self.tokens[first].start : self.tokens[last - 1].end]

    def outside(self, first: int, last: int) -> Iterator[int]:
        """The tokens outside of parentheses and of CASE .. END."""
        depth = cases = 0
        for index in range(first, last):
            depth += (self.word(index) == "(") - (self.word(index) == ")")
            cases += case_step(self.tokens, index, cases)
            if depth == 0 and cases == 0:
                yield index
        if cases:
            raise self.refuse(first, "CASE without its END")

    def opening(self, closing: int) -> int:
        """The place of the token that opens a parenthesis."""
        depth = 0
        for index in range(closing, -1, -1):
            depth += (self.word(index) == ")") - (self.word(index) == "(")
            if depth == 0:
                return index
        raise self.refuse(closing, ") without (")

    def named(self, source: Source) -> str:
        """The name of a table as it is written, without its alias."""
        return self.written(source.first, self.name_end(source.first))

    def column(self, first: int, last: int, alias: str = "") -> str | None:
        """The name of a column that stands alone, in front of it an alias or nothing; None for anything else.

        With `alias`, only that may be in front of it: what is behind another name may be a field of a STRUCT.
        """
        if last - first not in (1, 3) or (last - first == 3 and self.word(first + 1) != "."):
            return None
        if alias and last - first == 3 and not self._is_named(first, alias):
            return None
        token = self.tokens[last - 1]
        is_name = token.kind is TokenKind.NAME or (token.kind is TokenKind.WORD and not token.raw[0].isdigit())
        return token.value if is_name and self._is_of_name(first) else None

    def interval(self, first: int, last: int) -> int | None:
        """The microseconds of INTERVAL ..; None for what is none, or has months."""

        def refuse(rule: str, sentence: str) -> DeclarationError:
            return declaration_error(rule, f"{sentence}.", self.text.at(self.tokens[first].start))

        try:
            return read_interval(self.tokens[first:last], "", refuse).microseconds
        except DeclarationError:
            return None

    def timed(
        self,
        select: Select,
        source: Source,
        column: str,
        lateness: int,
        *,
        behind: int = 0,
        before: int | None = None,
    ) -> str:
        """The query with one SELECT whose rows are final by their time, `behind` microseconds after it.

        Of the source, rows are read from `before` microseconds before the first of these on; None for all of them.
        """
        at = f"{WINDOWED}.{quoted(column)}"
        rows = (
            f"(SELECT {WINDOWED}.* EXCEPT ({', '.join(ARRIVED)}) FROM {self.named(source)} AS {WINDOWED} WHERE "
            f"{came_in_time(WINDOWED, at, lateness)} AND {until_time(at, lateness)}"
        )
        if before is not None:
            rows += f" AND {from_time(at, lateness + behind + before)}"
        tokens = self.tokens
        begin, end = tokens[select.first].start, tokens[select.last - 1].end
        items_end = tokens[select.from_ - 1].end
        closed = is_closed(micros_of(f"{TIMED}.{FINAL_TIME}"), lateness + behind)
        return self.edited(
            [
                (begin, begin, f"SELECT {TIMED}.* EXCEPT ({FINAL_TIME}) FROM ("),
                (items_end, items_end, f", {source.alias}.{quoted(column)} AS {FINAL_TIME}"),
                (tokens[source.first].start, tokens[source.last - 1].end, f"{rows}) AS {source.alias}"),
                (end, end, f") AS {TIMED} WHERE {closed}"),
            ]
        )

    def shown(self, select: Select, column: str, alias: str, *, joined: bool = False) -> tuple[str, ...]:
        """The columns of the result that have a column of the source, where a SELECT is the outermost.

        Where the source is `joined`, only those that are written with its alias.
        """
        if select.first != 0:
            return ()
        found = []
        for begin, last in self.items(select.first + 1, select.from_):
            first = begin + (self.word(begin) == "ALL" and last - begin > 1)
            end = last - 2 if self.word(last - 2) == "AS" else last
            of_alias = end - first == 3 and self.word(first + 1) == "." and self._is_named(first, alias)
            if not of_alias and (joined or end - first != 1):
                continue
            if self.word(end - 1) == "*":
                found += [] if joined else [column.lower()]
            elif (self.column(first, end, alias) or "").lower() == column.lower():
                found.append(self.tokens[last - 1].value.lower())
        return tuple(dict.fromkeys(found))

    def _is_named(self, index: int, alias: str) -> bool:
        return quoted(self.tokens[index].value).lower() == alias.lower()

    def late_values(
        self, alias: str, time: str, named: str, others: Sequence[str], lateness: int, *, hidden: str
    ) -> str:
        """The late rows of one of several tables, each as one value under its alias; those of the others are NULL."""
        by, is_late = late_by(alias, micros_of(time), lateness)
        row = f"struct({alias}.* EXCEPT ({hidden})) AS {alias}"
        values = ", ".join(row if each == alias else f"NULL AS {each}" for each in others)
        return (
            f"SELECT {values}, {by} AS late_by, {alias}.{ARRIVED[1]} AS position FROM {named} AS {alias} "
            f"WHERE {is_late}"
        )

    def refuse(self, index: int, what: str, instead: str = _INSTEAD) -> DeclarationError:
        shown = " ".join(what.split())
        shown = shown if len(shown) <= 80 else f"{shown[:77]}.."
        return declaration_error(
            "FINAL_INPUT",
            f"EMIT FINAL writes each window once, or each row of a log table, and this query has {shown}. {instead}.",
            self.text.at(self.tokens[min(index, len(self.tokens) - 1)].start),
        )

    def edited(self, edits: Sequence[tuple[int, int, str]]) -> str:
        """The text with the characters [start, end) replaced; of two edits at one place the first one comes first."""
        text = self.text.text
        for _, (start, end, instead) in sorted(enumerate(edits), key=lambda each: (each[1][0], each[0]), reverse=True):
            text = text[:start] + instead + text[end:]
        return text
