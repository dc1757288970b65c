"""Records of CSV files that may go over several lines: a line break inside quotes ends none."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, BinaryIO, ClassVar, Self

import pyarrow as pa

from freshline.sources.formats import fit as fit_module
from freshline.sources.formats import text_files as text_module
from freshline.sources.formats.container import PART_BYTES, Container, Contents, NoContainer
from freshline.sources.formats.fit import CUT_BYTES, LINE, PLACE, TOO_LARGE, VALUE, VERDICT
from freshline.sources.formats.text_files import BLOCK_BYTES, BYTE_ORDER_MARK, ROWS

NOT_CSV = "NOT_CSV"
# A batch of records has about so many bytes.
_BATCH_BYTES = 1 << 20
# A carriage return and a byte order mark do not count in the size of a record.
_SLACK = 4
_FIELD = rb'(?:"(?:[^"]++|"")*+"[^,\n]*+|(?!")[^,\n]*+)'
_RECORD = re.compile(rb"%b(?:,%b)*+\n" % (_FIELD, _FIELD))
_LAST_RECORD = re.compile(rb"%b(?:,%b)*+(?:\n|\Z)" % (_FIELD, _FIELD))
_FIELDS = re.compile(_FIELD)


@dataclass(frozen=True)
class _Record:
    """A record without what ended it; `line` are the lines before it, `end` and `next_line` the place behind it.

    Of one that is too large only the beginning is there.
    """

    text: bytes
    line: int
    end: int
    next_line: int
    is_large: bool = False


@dataclass(frozen=True)
class QuotedRecords(Container):
    """The records of a file; a place is an offset between two of them. `skip` says that the first names the columns.

    A record has at most `most_bytes` and `most_fields`.
    """

    most_bytes: int
    most_fields: int
    skip: bool = False

    is_unpacked: ClassVar[bool] = True
    has_values: ClassVar[bool] = False

    @property
    def rows(self) -> pa.Schema:
        return ROWS

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        return (fit_module, text_module, sys.modules[__name__])

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
            if verdict is None and text.count(b",") >= self.most_fields and self._has_more_fields(text):
                # The parser breaks off at more, and fails the batch.
                text, verdict = text[:CUT_BYTES], NOT_CSV
            texts.append(text)
            lines.append(record.line + 1)
            verdicts.append(verdict)
            held += len(text)
            if held >= _BATCH_BYTES:
                yield _batch(texts, lines, verdicts)
                texts, lines, verdicts, held = [], [], [], 0
        if texts:
            yield _batch(texts, lines, verdicts)

    def _has_more_fields(self, text: bytes) -> bool:
        at = 0
        for _ in range(self.most_fields):
            field = _FIELDS.match(text, at)
            if field is None or field.end() == len(text):
                return False
            at = field.end() + 1
        return True

    def _records(self, file: Any, left: int | None, line: int, check: Callable[[], None]) -> Iterator[_Record]:
        """All records, blank ones too, of the next `left` bytes; what is in memory is a block and a record.

        Raises NoContainer where a quote is open at the end: nobody knows where that record should have ended.
        """
        rest, place, is_first = b"", 0, line == 0
        while True:
            block = file.read(BLOCK_BYTES if left is None else min(BLOCK_BYTES, left))
            left = None if left is None else left - len(block)
            check()
            data, at = rest + block, 0
            if is_first and data.startswith(BYTE_ORDER_MARK):
                at, place = len(BYTE_ORDER_MARK), place + len(BYTE_ORDER_MARK)
            is_first = False
            pattern = _RECORD if block else _LAST_RECORD
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
                ended = _Ending(rest)
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
    """Looks for the end of a record that is too large, without keeping it.

    `rest` is what stands behind it, None until it ends. `length` are its bytes and `lines` its line breaks so far.
    """

    def __init__(self, data: bytes) -> None:
        self.rest: bytes | None = None
        self.length = self.lines = 0
        self._state = "begin"
        self.go_on(data)

    @property
    def is_open(self) -> bool:
        return self._state == "quoted"

    def go_on(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._state == "quoted":
                quote = data.find(b'"', at)
                at = len(data) if quote < 0 else quote + 1
                self._state = "quoted" if quote < 0 else "closed"
                continue
            byte = data[at]
            if byte == 0x22 and self._state in ("begin", "closed"):
                self._state, at = "quoted", at + 1
            elif byte == 0x2C:
                self._state, at = "begin", at + 1
            elif byte == 0x0A:
                self.length, self.lines = self.length + at + 1, self.lines + data.count(b"\n", 0, at + 1)
                self.rest = data[at + 1 :]
                return
            else:
                # To the next byte that means something.
                ends = [place for place in (data.find(b",", at), data.find(b"\n", at)) if place >= 0]
                self._state, at = "plain", min(ends, default=len(data))
        self.length, self.lines = self.length + len(data), self.lines + data.count(b"\n")


def _batch(texts: list[bytes], lines: list[int], verdicts: list[str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({VALUE: texts, PLACE: lines, LINE: lines, VERDICT: verdicts}, schema=ROWS)
