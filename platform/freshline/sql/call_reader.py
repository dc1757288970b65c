"""Calls of table functions of our own, read from the tokens of a query: arguments by place and by name, and inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from freshline.errors import DeclarationError
from freshline.sql.token_places import keyword
from freshline.sql.tokens import Text, Token, TokenKind, parse_name
from freshline.values.names import TableName
from freshline.values.rules import declaration_error, nearest

# Makes an error of a rule and a sentence, at the place that is read.
Refuse = Callable[[str, str], DeclarationError]


class TokenReader:
    """The words of a query, and where lists and parentheses end among them."""

    def __init__(self, text: Text, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens

    def word(self, index: int) -> str:
        """The word of a token; empty for one that is none, and outside of the query."""
        return self.tokens[index].word if 0 <= index < len(self.tokens) else ""

    def closing(self, opening: int) -> int:
        """The place of the token that closes a parenthesis. Raises DeclarationError where none does."""
        depth = 0
        for index in range(opening, len(self.tokens)):
            depth += (self.word(index) == "(") - (self.word(index) == ")")
            if depth == 0:
                return index
        raise self._not_closed(opening)

    def _not_closed(self, opening: int) -> DeclarationError:
        raise NotImplementedError

    def items(self, first: int, last: int) -> list[tuple[int, int]]:
        """The tokens [first, last) between commas that stand outside of parentheses."""
        found, depth, begin = [], 0, first
        for index in range(first, last):
            depth += (self.word(index) == "(") - (self.word(index) == ")")
            if depth == 0 and self.word(index) == ",":
                found.append((begin, index))
                begin = index + 1
        return [*found, (begin, last)] if first < last else []

    def top(self, words: Sequence[str], first: int, last: int) -> Iterator[int]:
        """The places of these words among tokens, outside of parentheses in them and not behind a dot."""
        depth = 0
        for index in range(first, last):
            depth += (self.word(index) == "(") - (self.word(index) == ")")
            if depth == 0 and keyword(self.tokens, index) in words:
                yield index

    def name_begin(self, last: int) -> int:
        """The first token of a name with dots in it, by its last."""
        while last >= 2 and self.word(last - 1) == ".":
            last -= 2
        return last

    def name_end(self, first: int) -> int:
        """The token behind a name with dots in it, by its first."""
        end = first + 1
        while self.word(end) == ".":
            end += 2
        return end

    def table_of(self, first: int, last: int) -> TableName:
        """The name that the tokens [first, last) are. Raises DeclarationError where they are none."""
        written = "".join(token.value for token in self.tokens[first:last])
        return parse_name(written, self.text.at(self.tokens[first].start))


class CallReader(TokenReader):
    """Where the arguments of a call stand among the words of a query."""

    def _not_closed(self, opening: int) -> DeclarationError:
        return self._refuse("QUERY_SYNTAX", opening - 1, f"{self.tokens[opening - 1].raw}( is not closed by )")

    def _refuse(self, rule: str, index: int, sentence: str) -> DeclarationError:
        return declaration_error(rule, sentence + ".", self.text.at(self.tokens[index].start))

    def _is_of_name(self, index: int) -> bool:
        token = self.tokens[index]
        return token.kind is TokenKind.NAME or token.word == "." or bool(re.fullmatch(r"\w+", token.word))

    def _named(
        self, function: str, index: int, items: Sequence[tuple[int, int]], names: Sequence[str], shape: str
    ) -> Mapping[str, tuple[int, int]]:
        """For each parameter of `names` the tokens [first, last) that are given for it.

        `items` are the tokens of the arguments of the call at `index`, and `shape` is how it is written.
        """
        found: dict[str, tuple[int, int]] = {}
        by_name = False
        for place, (first, last) in enumerate(items):
            name = names[place] if place < len(names) else ""
            if self.word(first + 1) == "=>":
                by_name = True
                name = self.word(first)
                if name not in names:
                    raise self._refuse(
                        "QUERY_SYNTAX",
                        index,
                        f"{function} has no argument {self.tokens[first].raw}.{nearest(name, names)} Arguments are "
                        f"{', '.join(names)}",
                    )
                first += 2
            elif by_name or not name:
                what = "an argument without a name stands behind one with a name" if by_name else "too many arguments"
                raise self._refuse("QUERY_SYNTAX", index, f"{function}: {what}. Write {shape}")
            if name in found or first >= last:
                what = f"{name} is given twice" if name in found else f"{name} is empty"
                raise self._refuse("QUERY_SYNTAX", index, f"{function}: {what}. Write {shape}")
            found[name] = (first, last)
        return found

    def _table(self, first: int, last: int, refuse: Refuse) -> TableName:
        """The table that these tokens name, behind TABLE."""
        if self.word(first - 1) != "TABLE" or not all(self._is_of_name(index) for index in range(first, last)):
            raise refuse("QUERY_SYNTAX", "the input is TABLE and a name, or a query in parentheses")
        return self.table_of(first, last)
