"""Files whose records are not lines: how many there are, and how a part of them is read.

A container finds its records itself: rows in a Parquet file, blocks in an Avro file, elements in XML. It is sent to the
processes of Spark as it is, so it is a frozen value, and its module uses nothing of freshline but this one and those
that `modules` names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO, ClassVar, Self

import pyarrow as pa

# A file is read in parts of about this size, in as many tasks.
PART_BYTES = 32 << 20


class NoContainer(Exception):
    """The file is none of the format, or cannot be read to its end: `code` of quarantine, and a sentence why."""

    is_expected_of_extensions = True

    def __init__(self, code: str, reason: str) -> None:
        self.code, self.reason = code, reason
        super().__init__(reason)


@dataclass(frozen=True)
class Contents:
    """The contents of a file: the number and bytes of its records, and the places between its parts.

    A place is a number of the container's own (an offset in the file, or a number of a group of rows), and comes with
    the records, or lines, before it. `first` is the first record where it names the columns. `fields` are the columns
    that the file itself has, each with its type in SQL, empty for a type that no column is declared with.
    """

    records: int
    size: int
    breaks: tuple[tuple[int, int], ...] = ()
    first: bytes | None = None
    fields: tuple[tuple[str, str], ...] = ()


class Container(ABC):
    """The reader of files of a format. Subclasses are frozen dataclasses.

    `is_unpacked` says that files whose names end with `.gz` and the like are unpacked before. `has_values` says that
    records have values of the declared types, in the column PARSED; else they are texts, in the column VALUE.
    `may_abort` says that its decoder can end the process at damaged bytes, so that files are inspected in another one.
    """

    is_unpacked: ClassVar[bool] = False
    has_values: ClassVar[bool] = True
    may_abort: ClassVar[bool] = False

    @property
    @abstractmethod
    def rows(self) -> pa.Schema:
        """The columns of what `read` yields: PLACE, LINE, VERDICT, VALUE, and PARSED where records have values."""

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        """The modules that are sent along, without this one."""
        return ()

    def behind_header(self) -> Self:
        """The same for files whose first record names the columns, and is none."""
        return self

    @abstractmethod
    def inspect(self, file: BinaryIO, size: int, check: Callable[[], None]) -> Contents:
        """Read a file to its end; `check` is called now and then, and stops it by what it raises.

        Raises NoContainer, and the errors of reading bytes. A file that it passes `read` reads to its end too.
        """

    @abstractmethod
    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        """The records between two places, None for the end of the file, behind `before` records or lines."""
