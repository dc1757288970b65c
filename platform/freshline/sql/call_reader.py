"""Calls of table functions of our own, read from the tokens of a query: arguments by place and by name, and inputs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from freshline.errors import DeclarationError
from freshline.sql.tokens import Text, Token, TokenKind
from freshline.values.names import TableName
from freshline.values.rules import declaration_error, nearest


class CallReader:
    """The words of a query, and where the arguments of a call stand among them."""

    def __init__(self, text: Text, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens

    def _word(self, index: int) -> str:
        return self.tokens[index].word if 0 <= index < len(self.tokens) else ""

    def _closing(self, opening: int) -> int:
        """The place of the token that closes a parenthesis."""
        depth = 0
        for index in range(opening, len(self.tokens)):
            depth += (self._word(index) == "(") - (self._word(index) == ")")
            if depth == 0:
                return index
        raise self._refuse("QUERY_SYNTAX", opening - 1, f"{self.tokens[opening - 1].raw}( is not closed by )")

    def _refuse(self, rule: str, index: int, sentence: str) -> DeclarationError:
        return declaration_error(rule, sentence + ".", self.text.at(self.tokens[index].start))

    def _items(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        depth = 0
        begin = first
        for index in range(first, last):
            depth += (self._word(index) == "(") - (self._word(index) == ")")
            if depth == 0 and self._word(index) == ",":
                yield begin, index
                begin = index + 1
        if first < last:
            yield begin, last

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
            if self._word(first + 1) == "=>":
                by_name = True
                name = self._word(first)
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

    def _table(self, first: int, last: int, refuse: Callable[[str, str], DeclarationError]) -> TableName:
        """The table that these tokens name, behind TABLE."""
        if self._word(first - 1) != "TABLE" or not all(self._is_of_name(index) for index in range(first, last)):
            raise refuse("QUERY_SYNTAX", "the input is TABLE and a name, or a query in parentheses")
        try:
            return TableName.parse("".join(token.value for token in self.tokens[first:last]))
        except ValueError as error:
            raise declaration_error("NAME", str(error), self.text.at(self.tokens[first].start)) from error
