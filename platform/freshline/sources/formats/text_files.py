"""A whole file as one record."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO, ClassVar

import pyarrow as pa

from freshline.sources.formats import fit as fit_module
from freshline.sources.formats.container import Container, Contents
from freshline.sources.formats.fit import CUT_BYTES, LINE, PLACE, TOO_LARGE, VALUE, VERDICT

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
BLOCK_BYTES = 4 << 20
ROWS = pa.schema([(VALUE, pa.binary()), (PLACE, pa.int64()), (LINE, pa.int64()), (VERDICT, pa.string())])


@dataclass(frozen=True)
class WholeFile(Container):
    """One record for each file, of at most so many bytes; of a larger one only the beginning is kept."""

    most_bytes: int

    is_unpacked: ClassVar[bool] = True
    has_values: ClassVar[bool] = False

    @property
    def rows(self) -> pa.Schema:
        return ROWS

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        return (fit_module, sys.modules[__name__])

    def inspect(self, file: BinaryIO, size: int, check: Callable[[], None]) -> Contents:
        held = 0
        while block := file.read(BLOCK_BYTES):
            check()
            held += len(block)
        # One record weighs what is kept of it, however far a packed file goes on.
        return Contents(1, min(held, self.most_bytes))

    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        parts: list[bytes] = []
        held = 0
        while held <= self.most_bytes + len(BYTE_ORDER_MARK) and (block := file.read(BLOCK_BYTES)):
            parts.append(block)
            held += len(block)
        text = b"".join(parts).removeprefix(BYTE_ORDER_MARK)
        verdict = TOO_LARGE if len(text) > self.most_bytes else None
        kept = text if verdict is None else text[:CUT_BYTES]
        yield pa.RecordBatch.from_pydict({VALUE: [kept], PLACE: [1], LINE: [1], VERDICT: [verdict]}, schema=ROWS)
