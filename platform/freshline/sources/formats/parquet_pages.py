"""The columns of a Parquet file in its groups of rows, and the sizes of their pages, as the file itself says.

Arrow trusts a file in two ways, so both are checked here before it is asked. It makes room for as many bytes as the
header of a page says, so one damaged byte would cost gigabytes. And asked for the metadata of a damaged column, it ends
the process, because pyarrow does not catch that exception of C++. Both are structs of Thrift in its compact form. This
module uses nothing of freshline, because the machines of a cluster may not have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

_END = 8  # the bytes of the footer, and the mark
# A header has tens of bytes, but for statistics with long texts; Arrow reads none of more.
_HEADER_BYTES, _MOST_HEADER_BYTES = 256, 16 << 20
# Some writers leave the header of the dictionary out of the size of a column, and Arrow reads so much more.
_SLACK = 100
_DEEPEST = 16
_TRUE, _FALSE = 1, 2
_INT96, _BYTE_ARRAY = 3, 6
# The numbers of fields, as parquet.thrift has them.
_ROW_GROUPS, _COLUMNS, _META_DATA = 4, 1, 3
_TYPE, _VALUES, _UNPACKED_SIZE, _PACKED_SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 1, 5, 6, 7, 9, 11
_PAGE_UNPACKED, _PAGE_PACKED = 2, 3


class DamagedParquet(ValueError):
    """The footer or the header of a page cannot be read, or says what cannot be so."""


@dataclass(frozen=True)
class ColumnChunk:
    """A column in a group of rows: where its pages begin, their bytes, and how many those are unpacked."""

    start: int
    size: int
    unpacked: int
    has_dictionary: bool
    is_bytes: bool
    is_int96: bool


def read_chunks(file: BinaryIO) -> list[list[ColumnChunk]]:
    """The columns of each group of rows, in the order of the schema's leaves. Raises DamagedParquet."""
    length = file.seek(0, 2)
    file.seek(max(0, length - _END))
    size = int.from_bytes(file.read(_END)[:4], "little")
    if size + _END > length:
        raise DamagedParquet("its footer is longer than the file")
    file.seek(length - _END - size)
    try:
        footer = _Reader(file.read(size)).struct(0)
        return [[_chunk(column[_META_DATA]) for column in group[_COLUMNS]] for group in footer[_ROW_GROUPS]]
    except (IndexError, KeyError, TypeError) as error:
        raise DamagedParquet("its footer cannot be read") from error


def _chunk(column: dict[int, Any]) -> ColumnChunk:
    starts = [column[_DATA_PAGE]]
    # A dictionary is before the values. Some writers say 0 where they have none.
    if 0 < column.get(_DICTIONARY_PAGE, 0) < starts[0]:
        starts.append(column[_DICTIONARY_PAGE])
    size, unpacked = column[_PACKED_SIZE], column[_UNPACKED_SIZE]
    if min(*starts, size, unpacked, 0) < 0:
        raise DamagedParquet("a column has a damaged place or size in its footer")
    # A column without values has no pages that are read, and a place that says nothing.
    size = size if column[_VALUES] else 0
    kind = column[_TYPE]
    return ColumnChunk(min(starts), size, unpacked, _DICTIONARY_PAGE in column, kind == _BYTE_ARRAY, kind == _INT96)


def page_sizes(file: BinaryIO, chunk: ColumnChunk) -> Iterator[tuple[int, int]]:
    """The place where each page begins, and its bytes unpacked. Raises DamagedParquet."""
    at, end = chunk.start, chunk.start + chunk.size
    while at < end:
        length, header = _read_header(file, at, min(_MOST_HEADER_BYTES, end + _SLACK - at))
        packed, unpacked = header.get(_PAGE_PACKED, -1), header.get(_PAGE_UNPACKED, -1)
        is_whole = isinstance(packed, int) and isinstance(unpacked, int) and min(packed, unpacked) >= 0
        if not is_whole or at + length + packed > end + _SLACK:
            raise DamagedParquet(f"the page at byte {at} has a damaged header")
        yield at, unpacked
        at += length + packed


def _read_header(file: BinaryIO, at: int, most: int) -> tuple[int, dict[int, Any]]:
    size = _HEADER_BYTES
    while True:
        file.seek(at)
        reader = _Reader(file.read(min(size, most)))
        try:
            header = reader.struct(0)
            return reader.at, header
        except IndexError:
            if size >= most:
                raise DamagedParquet(f"the page at byte {at} has a damaged header") from None
            size *= 16


class _Reader:
    """Values of Thrift from the beginning of some bytes on. Raises IndexError where they do not end in them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, depth: int) -> dict[int, Any]:
        """The values of a struct by the numbers of their fields. If a number is there twice, the greater counts."""
        if depth > _DEEPEST:
            raise DamagedParquet("values are in each other without an end")
        found: dict[int, Any] = {}
        field = 0
        while first := self._byte():
            kind, step = first & 15, first >> 4
            field = field + step if step else self._number()
            value = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth)
            before = found.get(field)
            found[field] = max(value, before) if isinstance(value, int) and isinstance(before, int) else value
        return found

    def _value(self, kind: int, depth: int) -> Any:
        """A value in a struct or a list; a boolean is a byte in a list."""
        match kind:
            case 4 | 5 | 6:  # whole numbers
                return self._number()
            case 8:  # texts
                return self._bytes(self._length())
            case 12:
                return self.struct(depth + 1)
            case 9 | 10:  # lists and sets
                first = self._byte()
                count = first >> 4 if first >> 4 < 15 else self._length()
                return self._values(count, [first & 15], depth)
            case 11:  # maps
                count = self._length()
                kinds = self._byte() if count else 0
                return self._values(count, [kinds >> 4, kinds & 15], depth)
            case 1 | 2 | 3:
                return self._byte()
            case 7:  # doubles
                return self._bytes(8)
            case _:
                raise DamagedParquet("it has a value of no type")

    def _values(self, count: int, kinds: list[int], depth: int) -> list[Any]:
        if depth > _DEEPEST:
            raise DamagedParquet("values are in each other without an end")
        return [self._value(kind, depth + 1) for _ in range(min(count, len(self._data) + 1)) for kind in kinds]

    def _bytes(self, size: int) -> bytes:
        if size > len(self._data) - self.at:
            raise IndexError
        self.at += size
        return self._data[self.at - size : self.at]

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _length(self) -> int:
        found = shift = 0
        while (byte := self._byte()) >= 0x80:
            found |= (byte & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise DamagedParquet("a number has too many bytes")
        return found | byte << shift

    def _number(self) -> int:
        found = self._length()
        return (found >> 1) ^ -(found & 1)
