"""The words of a declaration, read from left to right.

The header is our own grammar, but its words, quotes and comments are those of Spark SQL: sqlglot's tokenizer
cuts both, so header and query can stand in one file. Lines are counted from offsets, not taken from
tokens: a token of several lines would otherwise be located at its end.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property

from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from freshline.errors import DeclarationError
from freshline.values.location import Location
from freshline.values.names import TableName
from freshline.values.rules import declaration_error

_PLAIN = re.compile(r"[A-Za-z_]\w*\Z")
_COMMENT = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_SEVERAL_WORDS = re.compile(r"\w+(?:\s+\w+)+\Z")


class TokenKind(Enum):
    WORD = "word"  # a keyword, a plain name, a number or a mark
    NAME = "name"  # a name in backquotes
    STRING = "string"
    COMMAND = "command"  # text that sqlglot leaves as it is


@dataclass(frozen=True)
class Token:
    """Characters [start, end) of a text; `value` is without quotes and escapes."""

    kind: TokenKind
    value: str
    raw: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """The word or mark in upper case; empty for a string or a quoted name."""
        return self.raw.upper() if self.kind is TokenKind.WORD else ""


@dataclass(frozen=True)
class Text:
    """A text of a file; `first_line` is the line of the file on which the text begins.

    `moved` are parts that stand elsewhere in the file, in their order: pairs of a line of the text, counted from 0, and
    the line of the file for it. Each goes on up to the next.
    """

    text: str
    path: str
    first_line: int = 1
    moved: tuple[tuple[int, int], ...] = ()

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", self.text))]

    def line(self, offset: int) -> int:
        return self.line_of_file(bisect_right(self._line_starts, offset) - 1)

    def line_of_file(self, line: int) -> int:
        """The line of the file for one of the text, counted from 0."""
        begins, there = max(((at, there) for at, there in self.moved if at <= line), default=(0, self.first_line))
        return there + line - begins

    def lowered(self, text: str) -> Text:
        """Another text in the place of this one, line by line the same."""
        return replace(self, text=text)

    def at(self, offset: int) -> Location:
        return Location(self.path, self.line(offset))

    def tokens(self) -> list[Token]:
        """All tokens; raises DeclarationError for a quote or comment without an end.

        Also for a comment that ends elsewhere to Spark, which takes the next line for a part of it after a backslash.
        """
        try:
            found = Spark().tokenize(self.text)
        except TokenError as error:
            # sqlglot gives the line of the end and the offset of the beginning.
            missing = re.search(r"Missing (.+?) from \d+:(\d+)", f"{error.__cause__}")
            offset = int(missing[2]) if missing else max(self.text.rfind("/*"), 0)
            what = f"the {missing[1]}" if missing else "the quote or comment"
            raise declaration_error(
                "SYNTAX", f"{what} that begins here has no end. Close it.", self.at(offset)
            ) from error
        self._check_comments([(token.start, token.end + 1) for token in found])
        tokens: list[Token] = []
        for token in found:
            start, end = token.start, token.end + 1
            raw = self.text[start:end]
            if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
                tokens.append(Token(TokenKind.STRING, token.text, raw, start, end))
            elif token.token_type == TokenType.IDENTIFIER:
                tokens.append(Token(TokenKind.NAME, token.text, raw, start, end))
            elif "'" in raw or '"' in raw:
                tokens.append(Token(TokenKind.COMMAND, token.text, raw, start, end))
            elif _SEVERAL_WORDS.match(raw):
                # sqlglot has one token for PRIMARY KEY, but two when a comment stands between the words.
                tokens.extend(
                    Token(TokenKind.WORD, word[0], word[0], start + word.start(), start + word.end())
                    for word in re.finditer(r"\w+", raw)
                )
            else:
                tokens.append(Token(TokenKind.WORD, raw, raw, start, end))
        return tokens

    def _check_comments(self, tokens: Sequence[tuple[int, int]]) -> None:
        if "\\\n" not in self.text:
            return
        ends, starts = [0, *(end for _, end in tokens)], [*(start for start, _ in tokens), len(self.text)]
        for between, beyond in zip(ends, starts, strict=True):
            for comment in _COMMENT.finditer(self.text, between, beyond):
                if comment[0].startswith("--") and comment[0].endswith("\\"):
                    raise declaration_error(
                        "SYNTAX",
                        "a comment ends with a backslash: to Spark the next line is a part of it. Remove the "
                        "backslash.",
                        self.at(comment.start()),
                    )


class Tokens:
    """A cursor over the tokens of one declaration, or of what else `whole` names."""

    def __init__(self, text: Text, tokens: Iterable[Token], whole: str = "the declaration") -> None:
        self.text = text
        self._whole = whole
        self._tokens = list(tokens)
        self._next = 0

    @property
    def token(self) -> Token | None:
        """The token at the cursor, None at the end."""
        return self._tokens[self._next] if self._next < len(self._tokens) else None

    @property
    def previous(self) -> Token:
        return self._tokens[self._next - 1]

    @property
    def offset(self) -> int:
        token = self.token
        if token is not None:
            return token.start
        return self._tokens[-1].end - 1 if self._tokens else 0

    @property
    def line(self) -> int:
        return self.text.line(self.offset)

    @property
    def here(self) -> Location:
        return self.text.at(self.offset)

    def rest(self) -> list[Token]:
        return self._tokens[self._next :]

    def advance(self) -> Token:
        token = self.token
        if token is None:
            raise self.refuse("more is expected")
        self._next += 1
        return token

    def refuse(self, expected: str) -> DeclarationError:
        token = self.token
        first, _, _ = ("" if token is None else token.raw).partition("\n")
        shown = f"{self._whole} ends" if token is None else f"{first[:60]} stands"
        return declaration_error("SYNTAX", f"{expected} where {shown}.", self.here)

    def word(self, ahead: int = 0) -> str:
        """The word or mark at the cursor in upper case; empty for a string, a quoted name or the end."""
        index = self._next + ahead
        return self._tokens[index].word if index < len(self._tokens) else ""

    def at(self, *words: str) -> bool:
        return all(self.word(index) == word for index, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Step over the words if they stand here."""
        if not self.at(*words):
            return False
        self._next += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.accept(*words):
            raise self.refuse(f"{' '.join(words)} is expected")

    def identifier(self, what: str) -> str:
        """A name, plain or in backquotes."""
        token = self.token
        quoted = token is not None and token.kind is TokenKind.NAME and token.raw.startswith("`")
        if token is None or not (quoted or (token.kind is TokenKind.WORD and _PLAIN.match(token.raw))):
            raise self.refuse(f"{what} is expected")
        self._next += 1
        return token.value

    def table_name(self) -> TableName:
        at = self.here
        token = self.token
        parts = [self.identifier("a name")]
        while self.accept("."):
            parts.append(self.identifier("a name"))
        following = self.token
        # `2bad` and `my-table` are cut into several tokens: show them as they were meant.
        adjacent = following is not None and following.start == self.previous.end and following.word not in "(;,"
        if token is not None and following is not None and adjacent:
            end = re.compile(r"[^\s(;,]*").match(self.text.text, following.start)
            return parse_name(self.text.text[token.start : end.end() if end else following.end], at)
        return parse_name(".".join(parts), at)

    def string(self, what: str) -> str:
        """A string in single or double quotes; a doubled quote inside stands for one."""
        token = self.token
        if token is None or token.kind is not TokenKind.STRING:
            raise self.refuse(f"{what} in quotes is expected")
        self._next += 1
        value, quote = token.value, token.raw[-1]
        following = self.token
        while (
            following is not None
            and following.kind is TokenKind.STRING
            and following.start == self.previous.end
            and following.raw[0] == quote
        ):
            value += quote + following.value
            self._next += 1
            following = self.token
        return value

    def comma_separated(self, one: Callable[[], str]) -> tuple[str, ...]:
        """`( one, one, .. )` with at least one."""
        self.expect("(")
        items = [one()]
        while self.accept(","):
            items.append(one())
        if not self.accept(")"):
            raise self.refuse(", or ) is expected")
        return tuple(items)


def parse_name(text: str, at: Location) -> TableName:
    """A declared or read name; raises DeclarationError where it is none."""
    try:
        return TableName.parse(text)
    except ValueError as error:
        raise declaration_error("NAME", str(error), at) from error


def in_lower_case(text: str) -> str:
    """SQL with its words and names in lower case, which mean the same there; texts stay as they are.

    >>> in_lower_case("SELECT A.`Id` FROM b A WHERE A.n = 'X'")
    "select a.`id` from b a where a.n = 'X'"
    """
    for token in Text(text, "").tokens():
        if token.kind in (TokenKind.WORD, TokenKind.NAME):
            text = text[: token.start] + token.raw.lower() + text[token.end :]
    return text
