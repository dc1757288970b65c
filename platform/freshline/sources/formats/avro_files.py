"""The records of Avro object container files, by blocks, with values of the declared columns."""

from __future__ import annotations

import bz2
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, BinaryIO

import pyarrow as pa
from fastavro.read import SchemaResolutionError

from freshline.sources.formats import avro_schema as schema_module
from freshline.sources.formats import avro_values as values_module
from freshline.sources.formats import fit as fit_module
from freshline.sources.formats.avro_schema import AvroRecord, NoSchema, least_bytes, read_schema, sql_type
from freshline.sources.formats.avro_values import (
    NO_RECORD,
    NOT_AVRO,
    Columns,
    decoder_of,
    read_fields,
    rejected,
)
from freshline.sources.formats.container import PART_BYTES, Container, Contents, NoContainer
from freshline.sources.formats.fit import Wanted

MARK = b"Obj\x01"
# A block is in memory as a whole; usual ones have tens of kilobytes.
_MOST_BLOCK_BYTES = 64 << 20
_MOST_HEADER_BYTES = 16 << 20
# Records without bytes may be any number in a block of none.
_MOST_EMPTY = 1 << 20
_SYNC_BYTES = 16
# The records, and their bytes, that are decoded before they become columns.
_MOST_ROWS, _ROWS_BYTES = 4_096, 4 << 20


@dataclass(frozen=True)
class AvroRecords(Container):
    """The records of a file; a place is the offset of a block. `schema` is the one that records are resolved to."""

    wanted: Wanted
    schema: str | None = None

    @property
    def rows(self) -> pa.Schema:
        return self.wanted.rows

    @property
    def modules(self) -> tuple[ModuleType, ...]:
        return (fit_module, schema_module, values_module, sys.modules[__name__])

    def inspect(self, file: BinaryIO, size: int, check: Callable[[], None]) -> Contents:
        header = _read_header(file)
        asked = None if self.schema is None else read_schema(self.schema)
        records, weight, breaks, at = 0, 0, [], file.tell()
        for block in _blocks(file, header, None):
            check()
            if asked is not None and block.count and not records:
                _check_resolution(block, header.written, asked)
            if block.start - at >= PART_BYTES:
                breaks.append((block.start, records))
                at = block.start
            records, weight = records + block.count, weight + len(block.data)
        # A small file of many records costs as much as a larger one.
        read = read_fields(asked or header.written, self.wanted.schema.names)
        fields = tuple(
            (field["name"], sql_type(field["type"], header.written))
            for field in header.written.fields
            if field["name"] not in read
        )
        return Contents(records, weight + 8 * records, tuple(breaks), fields=fields)

    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        header = _read_header(file)
        asked = None if self.schema is None else read_schema(self.schema)
        columns, decoder = Columns(asked or header.written, self.wanted), decoder_of(header.written)
        if start:
            file.seek(start)
        rows: list[dict[str, Any]] = []
        size = 0
        for block in _blocks(file, header, end):
            found = _decoded(decoder, block, header.written, asked)
            if found is None:
                yield from columns.batches(rows, before + 1)
                yield rejected(block.data, block.count, before + len(rows) + 1, self.wanted)
                before, rows, size = before + len(rows) + block.count, [], 0
                continue
            rows += found
            size += len(block.data)
            if len(rows) >= _MOST_ROWS or size >= _ROWS_BYTES:
                yield from columns.batches(rows, before + 1)
                before, rows, size = before + len(rows), [], 0
        yield from columns.batches(rows, before + 1)


# -- the file


@dataclass(frozen=True)
class _Header:
    written: AvroRecord
    codec: str
    sync: bytes


@dataclass(frozen=True)
class _Block:
    """`count` records in `data`, unpacked; `start` is the place of the block in the file."""

    start: int
    count: int
    data: bytes


def _read_header(file: Any) -> _Header:
    if file.read(len(MARK)) != MARK:
        raise NoContainer(NOT_AVRO, "it does not begin with the mark of an object container file")
    metadata: dict[str, bytes] = {}
    left = _MOST_HEADER_BYTES
    while count := _read_long(file):
        if count < 0:
            count, _ = -count, _read_long(file)
        for _ in range(count):
            key, value = _read_bytes(file, left), _read_bytes(file, left)
            left -= len(key) + len(value) + 2
            metadata[key.decode(errors="replace")] = value
    sync = file.read(_SYNC_BYTES)
    if len(sync) != _SYNC_BYTES:
        raise EOFError("it ends within its header")
    codec = metadata.get("avro.codec", b"null").decode(errors="replace")
    if codec not in _UNPACK:
        raise NoContainer("UNREADABLE", f"its codec is {codec[:100]}; read are {', '.join(_UNPACK)}")
    try:
        return _Header(read_schema(metadata.get("avro.schema", b"")), codec, sync)
    except NoSchema as error:
        raise NoContainer("UNREADABLE", f"its schema cannot be read: {error}") from error


def _read_long(file: Any, first: bytes = b"") -> int:
    found, shift = 0, 0
    while True:
        byte = first or file.read(1)
        first = b""
        if not byte:
            raise EOFError("it ends within a number")
        found |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            break
        shift += 7
        if shift > 63:
            raise NoContainer("UNREADABLE", "a number in it has too many bytes")
    return (found >> 1) ^ -(found & 1)


def _read_bytes(file: Any, most: int) -> bytes:
    size = _read_long(file)
    if not 0 <= size <= most:
        raise NoContainer("UNREADABLE", "its header is too large")
    data: bytes = file.read(size)
    if len(data) != size:
        raise EOFError("it ends within its header")
    return data


def _blocks(file: Any, header: _Header, end: int | None) -> Iterator[_Block]:
    """The blocks from here to a place. Raises NoContainer where one is damaged."""
    least = least_bytes(header.written.full, header.written)
    while True:
        start = file.tell()
        first = file.read(1) if end is None or start < end else b""
        if not first:
            return
        count, size = _read_long(file, first), _read_long(file)
        if count < 0 or not 0 <= size <= _MOST_BLOCK_BYTES:
            raise NoContainer("UNREADABLE", f"the block at byte {start} is damaged, or larger than {_MOST_BLOCK_BYTES}")
        packed = file.read(size)
        sync = file.read(_SYNC_BYTES)
        if len(packed) != size or len(sync) != _SYNC_BYTES:
            raise EOFError(f"it ends within the block at byte {start}")
        if sync != header.sync:
            raise NoContainer("UNREADABLE", f"the block at byte {start} does not end where it should")
        data = _UNPACK[header.codec](packed)
        if len(data) > _MOST_BLOCK_BYTES:
            raise NoContainer("UNREADABLE", f"the block at byte {start} has more than {_MOST_BLOCK_BYTES} bytes")
        if count * least > len(data) or count > max(len(data), _MOST_EMPTY):
            raise NoContainer("UNREADABLE", f"the block at byte {start} has fewer bytes than its {count} records")
        yield _Block(start, count, data)


def _inflated(unpacker: Any, packed: bytes) -> bytes:
    data: bytes = unpacker.decompress(packed, _MOST_BLOCK_BYTES + 1)
    if len(data) <= _MOST_BLOCK_BYTES and not unpacker.eof:
        raise EOFError("a block ends too early")
    return data


def _snappy(packed: bytes) -> bytes:
    body, checksum = packed[:-4], packed[-4:]
    size = shift = 0
    for byte in body[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > _MOST_BLOCK_BYTES:
        return bytes(_MOST_BLOCK_BYTES + 1)
    data: bytes = pa.decompress(body, size, "snappy", asbytes=True)
    if zlib.crc32(data).to_bytes(4, "big") != checksum:
        raise NoContainer("UNREADABLE", "the checksum of a block is wrong")
    return data


def _zstandard(packed: bytes) -> bytes:
    stream = pa.CompressedInputStream(pa.BufferReader(packed), "zstd")
    return bytes(stream.read(_MOST_BLOCK_BYTES + 1))


_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda packed: packed,
    "deflate": lambda packed: _inflated(zlib.decompressobj(-15), packed),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": lambda packed: _inflated(bz2.BZ2Decompressor(), packed),
    "xz": lambda packed: _inflated(lzma.LZMADecompressor(memlimit=256 << 20), packed),
}


# -- records


def _decoded(
    decoder: Callable[..., Any], block: _Block, written: AvroRecord, asked: AvroRecord | None
) -> list[dict[str, Any]] | None:
    """The records of a block; None where its bytes are not exactly as many records as it says.

    Nothing of such a block can be trusted: a byte that is missing moves all values behind it.
    """
    source = io.BytesIO(block.data)
    plain, resolved = written.plain, None if asked is None else asked.plain
    try:
        records: list[Any] = [decoder(source, plain, resolved) for _ in range(block.count)]
    except NO_RECORD:
        return None
    return records if source.tell() == len(block.data) else None


def _check_resolution(block: _Block, written: AvroRecord, asked: AvroRecord) -> None:
    try:
        decoder_of(written)(io.BytesIO(block.data), written.plain, asked.plain)
    except SchemaResolutionError as error:
        reason = str(error).partition("\n")[0][:300]
        raise NoContainer("UNREADABLE", f"its schema cannot be resolved to avro.schema: {reason}") from error
    except NO_RECORD:
        # The block is checked again when it is read.
        return
