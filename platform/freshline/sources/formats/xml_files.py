"""The elements of XML files that are records, found in bounded memory.

The frame around the records must be whole: what begins in it ends in it, so that a file that was cut off is known. A
record that is broken within is rejected alone.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO, ClassVar
from xml.sax.saxutils import escape

import pyarrow as pa

from freshline.sources.formats import fit as fit_module
from freshline.sources.formats import text_files as text_module
from freshline.sources.formats import xml_values as values_module
from freshline.sources.formats.container import Container, Contents, NoContainer
from freshline.sources.formats.fit import CUT_BYTES, LINE, PLACE, TOO_LARGE, VALUE, VERDICT, Wanted
from freshline.sources.formats.text_files import BLOCK_BYTES, BYTE_ORDER_MARK, ROWS
from freshline.sources.formats.xml_values import NoElement, to_json

NOT_XML = "NOT_XML"
# The column with what is decoded.
JSON = "_freshline_json"
_BATCH_BYTES = 1 << 20
# Of bytes outside a record only so many are kept, because a token may begin in them.
_LONGEST_TOKEN = 64 << 10
_DEEPEST = 1_000
_ENCODING = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
_DECLARATION_BYTES = 256
_READ = ("utf-8", "utf8", "us-ascii", "ascii")
_OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00", b"<\x00", b"\x00<")
# The parts between elements: how each begins, and how it ends.
_PASSED_OVER = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}
_ANY = re.compile(rb"<!--|<!\[CDATA\[|<\?|<!DOCTYPE|<(/?)([^\s/>!?<\[]+)(?=[\s/>])")
_NEXT_TAG, _BRACKET = re.compile(rb"<"), re.compile(rb"[<>]")
_TAG_END = re.compile(rb"(?:[^\"'<>]++|\"[^\"<]*+\"|'[^'<]*+')*+>")


@dataclass(frozen=True)
class _Element:
    """An element as it is written; `number` counts them from 1, `line` is the one in which it begins.

    One that is too large, or is not closed, has only its beginning here, and `verdict` says so.
    """

    text: bytes
    number: int
    line: int
    verdict: str | None = None


@dataclass(frozen=True)
class Elements(Container):
    """The elements of a name, which are not in each other. A file is read by one task."""

    wanted: Wanted
    tag: str

    is_unpacked: ClassVar[bool] = True
    has_values: ClassVar[bool] = False

    @property
    def rows(self) -> pa.Schema:
        return ROWS.append(pa.field(JSON, pa.string()))

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        return (fit_module, text_module, values_module, sys.modules[__name__])

    def inspect(self, file: BinaryIO, size: int, check: Callable[[], None]) -> Contents:
        records = weight = 0
        for element in _Scanner(file, self.tag.encode(), self.wanted.most_bytes, check).elements():
            records, weight = records + 1, weight + len(element.text)
        return Contents(records, weight)

    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        columns: dict[str, list[Any]] = {name: [] for name in self.rows.names}
        held = 0
        for element in _Scanner(file, self.tag.encode(), self.wanted.most_bytes, lambda: None).elements():
            found, verdict = None, element.verdict
            if verdict is None:
                try:
                    element.text.decode()
                    found = to_json(element.text, self.wanted.schema)
                except UnicodeDecodeError:
                    pass  # it has a code of its own, as in every format
                except NoElement:
                    verdict = NOT_XML
            row = {VALUE: element.text, PLACE: element.number, LINE: element.line, VERDICT: verdict, JSON: found}
            for name, value in row.items():
                columns[name].append(value)
            held += len(element.text) + len(found or "")
            if held >= _BATCH_BYTES:
                yield pa.RecordBatch.from_pydict(columns, schema=self.rows)
                columns, held = {name: [] for name in self.rows.names}, 0
        if columns[VALUE]:
            yield pa.RecordBatch.from_pydict(columns, schema=self.rows)


class _Scanner:
    """Goes through a file once. `data` is what is in memory of it, from `base` on; `at` is the place in it."""

    def __init__(self, file: Any, tag: bytes, most: int, check: Callable[[], None]) -> None:
        self._file, self._tag, self._most, self._check = file, tag, most, check
        self._within = re.compile(rb"<!--|<!\[CDATA\[|<\?|<(/?)(%b)(?=[\s/>])" % re.escape(tag))
        self._data, self._at, self._is_end = b"", 0, False
        # The first byte that must stay, None for none; and what is kept of a record that is too large.
        self._kept: int | None = None
        self._beginning: bytes | None = None
        self._was_large = False
        # The line of the place `_counted`.
        self._line, self._counted = 1, 0

    def elements(self) -> Iterator[_Element]:
        """The records. Raises NoContainer where the frame is not whole, or the file is no XML."""
        self._begin()
        frame: list[bytes] = []
        number, is_any = 0, False
        while (token := self._find(_ANY)) is not None:
            if self._pass_over(token):
                continue
            closes, name = token[1] == b"/", token[2]
            at, line = token.start(), self._line_of(token.start())
            self._kept = at if name == self._tag and not closes else None
            is_empty = self._end_tag(token.end())
            is_any = True
            if closes:
                if not frame or frame.pop() != name:
                    raise NoContainer("UNREADABLE", f"{_said(name)} ends in line {line} without having begun")
            elif name == self._tag:
                number += 1
                yield self._record(number, line, is_empty)
            elif not is_empty:
                frame.append(name)
                if len(frame) > _DEEPEST:
                    raise NoContainer("UNREADABLE", f"more than {_DEEPEST} elements are in each other in line {line}")
        if frame:
            raise NoContainer("UNREADABLE", f"it ends before {_said(frame[-1])} does")
        if not is_any:
            raise NoContainer(NOT_XML, "there is no element in it")

    def _begin(self) -> None:
        while len(self._data) < _DECLARATION_BYTES and not self._is_end:
            self._more()
        data = self._data
        encoding = _ENCODING.match(data.removeprefix(BYTE_ORDER_MARK))
        other = "UTF-16 or UTF-32" if data.startswith(_OTHER_MARKS) else None
        if encoding is not None and encoding[1].lower().decode() not in _READ:
            other = encoding[1].decode()
        if other is not None:
            raise NoContainer("UNREADABLE", f"it is {other}, and only UTF-8 is read. Convert it")

    def _record(self, number: int, line: int, is_empty: bool) -> _Element:
        """The record that began at the kept place, whose first tag was read. One of its name within is part of it."""
        depth = 0 if is_empty else 1
        while depth:
            token = self._find(self._within)
            if token is None:
                self._at = len(self._data)
                text = self._taken()
                return _Element(text, number, line, TOO_LARGE if self._was_large else NOT_XML)
            if self._pass_over(token):
                continue
            is_empty = self._end_tag(token.end())
            if token[1] == b"/":
                depth -= 1
            elif not is_empty:
                depth += 1
        text = self._taken()
        return _Element(text, number, line, TOO_LARGE if self._was_large else None)

    def _taken(self) -> bytes:
        """The record from the kept place to this one, or its beginning."""
        beginning, kept = self._beginning, self._kept
        self._beginning, self._kept = None, None
        text = self._data[kept : self._at] if beginning is None and kept is not None else beginning or b""
        self._was_large = beginning is not None or len(text) > self._most
        return text[:CUT_BYTES] if self._was_large else text

    def _pass_over(self, token: re.Match[bytes]) -> bool:
        """Go behind a comment and the like, if it is one; to the end of the file where it does not end."""
        if token[0] == b"<!DOCTYPE":
            if self._to(re.compile(rb"[\[>]")) == b"[":
                self._to(re.compile(rb"\]\s*>"))
            return True
        end = _PASSED_OVER.get(token[0])
        if end is None:
            return False
        self._to(re.compile(re.escape(end)))
        return True

    def _to(self, pattern: re.Pattern[bytes]) -> bytes | None:
        found = self._find(pattern)
        if found is None:
            self._at = len(self._data)
        return None if found is None else found[0]

    def _end_tag(self, at: int) -> bool:
        """Go behind a tag whose name ends here; whether it is an element without an end of its own.

        A tag that is broken ends with its name. Then its record is broken too.
        """
        self._at = at
        # No tag goes beyond the next one, so that a quote that is not closed takes no other record along.
        following = self._find(_NEXT_TAG, move=False)
        found = _TAG_END.match(self._data, self._at)
        if found is None and following is None and not self._is_end:
            # It is longer than a record may be, so that nobody asks what is in it.
            found = self._find(_BRACKET)
            if found is not None and found[0] == b"<":
                self._at, found = found.start(), None
        if found is None:
            return False
        self._at = found.end()
        return self._data[found.end() - 2 : found.end() - 1] == b"/"

    def _find(
        self, pattern: re.Pattern[bytes], *, move: bool = True, begin: int | None = None
    ) -> re.Match[bytes] | None:
        """The next match, behind which it goes on; None at the end of the file.

        Without `move` it stays, and searches no further than a record may be large.
        """
        look = self._at if begin is None else begin
        while True:
            found = pattern.search(self._data, look)
            # A match that ends with the data may go on in the next block.
            if found is not None and (found.end() < len(self._data) or self._is_end):
                if move:
                    self._at = found.end()
                return found
            if self._is_end or (not move and len(self._data) - self._at > self._most + _LONGEST_TOKEN):
                return None
            look = max(look, len(self._data) - _LONGEST_TOKEN) if found is None else found.start()
            if move:
                self._at = look
            look -= self._more()

    def _more(self) -> int:
        """Read the next block, and forget what is behind; returns by how many bytes places have moved."""
        self._check()
        keep = self._at if self._kept is None else min(self._at, self._kept)
        if self._kept is not None and len(self._data) - self._kept > self._most + _LONGEST_TOKEN:
            self._beginning = self._beginning or self._data[self._kept : self._kept + CUT_BYTES]
            keep = self._at
            self._kept = self._at
        self._line_of(keep)
        block = self._file.read(BLOCK_BYTES)
        self._is_end = not block
        self._data = self._data[keep:] + block
        self._at -= keep
        self._counted -= keep
        if self._kept is not None:
            self._kept -= keep
        return keep

    def _line_of(self, at: int) -> int:
        """The number of the line of a place that was not passed before."""
        self._line += self._data.count(b"\n", self._counted, at)
        self._counted = max(self._counted, at)
        return self._line


def _said(name: bytes) -> str:
    return f"<{name[:100].decode(errors='replace')}>"


def encode(rows: Sequence[Mapping[str, object]], tag: str) -> str:
    """A file with these rows; what is within a value is written by its names."""
    records = "".join(f"  <{tag}>{_encoded(row)}</{tag}>\n" for row in rows)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<rows>\n{records}</rows>\n'


def _encoded(row: Mapping[str, object]) -> str:
    parts = []
    for name, value in row.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                text = _encoded(each) if isinstance(each, Mapping) else escape(_text(each))
                parts.append(f"<{name}>{text}</{name}>")
    return "".join(parts)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
