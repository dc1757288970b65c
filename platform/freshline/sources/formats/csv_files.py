"""Records of CSV files that may go over several lines: a line break inside quotes ends none."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, BinaryIO, ClassVar, Self

import pyarrow as pa

from freshline.sources.formats import csv_fields as fields_module
from freshline.sources.formats import fit as fit_module
from freshline.sources.formats import text_files as text_module
from freshline.sources.formats.container import PART_BYTES, Container, Contents, NoContainer
from freshline.sources.formats.csv_fields import Dialect
from freshline.sources.formats.fit import CUT_BYTES, LINE, PLACE, TOO_LARGE, VALUE, VERDICT
from freshline.sources.formats.text_files import BLOCK_BYTES, BYTE_ORDER_MARK, ROWS

# A batch of records has about so many bytes.
_BATCH_BYTES = 1 << 20
# A carriage return and a byte order mark do not count in the size of a record.
_SLACK = 4


@dataclass(frozen=True)
class _Record:
    """A record without its line break; `line` are the lines before it, `end` and `next_line` the place behind it.

    One that is too large has only its beginning here.
    """

    text: bytes
    line: int
    end: int
    next_line: int
    is_large: bool = False


@dataclass(frozen=True)
class QuotedRecords(Container):
    """The records of a file; a place is an offset between two of them. `skip` says that the first names the columns.

    A record has at most `most_bytes`. `separator` and `escape` are those of `freshline.sources.formats.csv_fields`.
    """

    most_bytes: int
    separator: str = ","
    escape: str | None = None
    skip: bool = False

    is_unpacked: ClassVar[bool] = True
    has_values: ClassVar[bool] = False

    @property
    def rows(self) -> pa.Schema:
        return ROWS

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        return (fit_module, text_module, fields_module, sys.modules[__name__])

    def behind_header(self) -> Self:
        return replace(self, skip=True)

    def inspect(self, file: BinaryIO, size: int, check: Callable[[], None]) -> Contents:
        records, weight, breaks, at = 0, 0, [], 0
        first: bytes | None = None
        for record in self._records(file, None, 0, check):
            if record.line == 0 and not record.is_large:
                first = record.text
            if record.text:
                records, weight = records + 1, weight + len(record.text)
            if record.end - at >= PART_BYTES:
                breaks.append((record.end, record.next_line))
                at = record.end
        return Contents(records, weight, tuple(breaks), first)

    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        if start:
            file.seek(start)
        texts: list[bytes] = []
        lines: list[int] = []
        verdicts: list[str | None] = []
        held = 0
        for record in self._records(file, None if end is None else end - start, before, lambda: None):
            if (self.skip and record.line == 0) or not record.text:
                continue
            text, verdict = record.text, TOO_LARGE if record.is_large else None
            texts.append(text)
            lines.append(record.line + 1)
            verdicts.append(verdict)
            held += len(text)
            if held >= _BATCH_BYTES:
                yield _batch(texts, lines, verdicts)
                texts, lines, verdicts, held = [], [], [], 0
        if texts:
            yield _batch(texts, lines, verdicts)

    def _patterns(self) -> tuple[re.Pattern[bytes], re.Pattern[bytes]]:
        """A record that ends with its line, and one that may end with the file.

        Text behind a closing quote has no meaning, and ends no record.
        """
        sign, quoted = re.escape(self.separator), Dialect(self.separator, self.escape).quoted
        field = rf'(?:{quoted}[^{sign}\n]*+|(?!")[^{sign}\n]*+)'
        record = f"{field}(?:{sign}{field})*+"
        return re.compile(rf"{record}\n".encode()), re.compile(rf"{record}(?:\n|\Z)".encode())

    def _records(self, file: Any, left: int | None, line: int, check: Callable[[], None]) -> Iterator[_Record]:
        """All records, blank ones too, of the next `left` bytes; what is in memory is a block and a record.

        Raises NoContainer where a quote is open at the end: nobody knows where that record should have ended.
        """
        rest, place, is_first = b"", 0, line == 0
        within, last = self._patterns()
        while True:
            block = file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
            left = None if left is None else left - len(block)
            check()
            data, at = rest + block, 0
            if is_first and data.startswith(BYTE_ORDER_MARK):
                at, place = len(BYTE_ORDER_MARK), place + len(BYTE_ORDER_MARK)
            is_first = False
            pattern = within if block else last
            while at < len(data) and (found := pattern.match(data, at)):
                record = self._record(found[0], line, place + found.end() - at)
                yield record
                place, at, line = record.end, found.end(), record.next_line
            rest = data[at:]
            if not block:
                if rest:
                    raise NoContainer("UNREADABLE", f"a quote in the record of line {line + 1} is not closed")
                return
            if len(rest) > self.most_bytes + _SLACK:
                beginning = rest[:CUT_BYTES]
                ended = _Ending(rest, self.separator, self.escape)
                while ended.rest is None:
                    block = file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
                    left = None if left is None else left - len(block)
                    check()
                    if not block:
                        if ended.is_open:
                            raise NoContainer("UNREADABLE", f"a quote in the record of line {line + 1} is not closed")
                        break
                    ended.go_on(block)
                place += ended.length
                yield _Record(beginning, line, place, line + ended.lines, is_large=True)
                line, rest = line + ended.lines, ended.rest or b""

    def _record(self, found: bytes, line: int, end: int) -> _Record:
        text = found.removesuffix(b"\n").removesuffix(b"\r")
        if len(text) > self.most_bytes:
            return _Record(text[:CUT_BYTES], line, end, line + found.count(b"\n"), is_large=True)
        return _Record(text, line, end, line + found.count(b"\n"))


class _Ending:
    """Finds the end of a record that is too large, without keeping it.

    `rest` are the bytes behind it, None until it ends. `length` are its bytes and `lines` its line breaks so far.
    """

    def __init__(self, data: bytes, separator: str, escape: str | None) -> None:
        self.rest: bytes | None = None
        self.length = self.lines = 0
        self._separator, self._escape = ord(separator), None if escape is None else ord(escape)
        self._state = "begin"
        self.go_on(data)

    @property
    def is_open(self) -> bool:
        return self._state in ("quoted", "escaped")

    def go_on(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._state == "escaped":
                self._state, at = "quoted", at + 1
                continue
            if self._state == "quoted":
                at = self._next(data, at, 0x22, self._escape)
                if at < len(data):
                    self._state, at = ("closed" if data[at] == 0x22 else "escaped"), at + 1
                continue
            byte = data[at]
            # A doubled quote opens the text again, where none has an escape.
            if byte == 0x22 and (self._state == "begin" or (self._state == "closed" and self._escape is None)):
                self._state, at = "quoted", at + 1
            elif byte == self._separator:
                self._state, at = "begin", at + 1
            elif byte == 0x0A:
                self.length, self.lines = self.length + at + 1, self.lines + data.count(b"\n", 0, at + 1)
                self.rest = data[at + 1 :]
                return
            else:
                self._state, at = "plain", self._next(data, at, self._separator, 0x0A)
        self.length, self.lines = self.length + len(data), self.lines + data.count(b"\n")

    @staticmethod
    def _next(data: bytes, at: int, *signs: int | None) -> int:
        """The place of the next of some bytes, or the end."""
        found = (data.find(sign, at) for sign in signs if sign is not None)
        return min((place for place in found if place >= 0), default=len(data))


def _batch(texts: list[bytes], lines: list[int], verdicts: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({VALUE: texts, PLACE: lines, LINE: lines, VERDICT: verdicts}, schema=ROWS)
