"""The records of Avro object container files, by blocks, with values of the declared columns."""

from __future__ import annotations

import bz2
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import _read_py, schemaless_reader
from fastavro.read import SchemaResolutionError

from freshline.sources.formats import avro_schema as schema_module
from freshline.sources.formats import fit as fit_module
from freshline.sources.formats.avro_schema import (
    NoSchema,
    Record,
    Schema,
    is_recursive,
    kind_of,
    least_bytes,
    read_schema,
    resolve,
    sql_type,
)
from freshline.sources.formats.container import PART_BYTES, Container, Contents, NoContainer
from freshline.sources.formats.fit import CUT_BYTES, Mask, Wanted, fit, fitted

MARK = b"Obj\x01"
NOT_AVRO = "NOT_AVRO"
# A block is in memory as a whole; usual ones have tens of kilobytes.
_MOST_BLOCK_BYTES = 64 << 20
_MOST_HEADER_BYTES = 16 << 20
# Records without bytes may be any number in a block of none.
_MOST_EMPTY = 1 << 20
_SYNC_BYTES = 16
# What is decoded before it becomes columns.
_MOST_ROWS, _ROWS_BYTES = 4_096, 4 << 20
_NO_RECORD = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, RecursionError)
_LAST = 2**31 - 1
_TOO_GREAT = Decimal(10**76 - 1)
_TIMES = {
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "timestamp-nanos": pa.timestamp("ns", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_ARROW = {
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "enum": pa.string(),
}
_PYTHON = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "string": str,
    "enum": str,
    "bytes": bytes,
    "fixed": bytes,
    "array": list,
    "map": dict,
    "record": dict,
    "error": dict,
}


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
        return (fit_module, schema_module, sys.modules[__name__])

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
        read = self._read_as_columns(asked or header.written)
        fields = tuple(
            (field["name"], sql_type(field["type"], header.written))
            for field in header.written.fields
            if field["name"] not in read
        )
        return Contents(records, weight + 8 * records, tuple(breaks), fields=fields)

    def _read_as_columns(self, record: Record) -> set[str]:
        """The names of fields that columns take, of which some have another name."""
        found = [_find_field(record.fields, name) for name in self.wanted.schema.names]
        return {name for field in found if field is not None for name in (field["name"], *field.get("aliases", ()))}

    def read(self, file: Any, start: int, end: int | None, before: int) -> Iterator[pa.RecordBatch]:
        header = _read_header(file)
        asked = None if self.schema is None else read_schema(self.schema)
        columns, decoder = _Columns(asked or header.written, self.wanted), _decoder(header.written)
        if start:
            file.seek(start)
        rows: list[dict[str, Any]] = []
        size = 0
        for block in _blocks(file, header, end):
            found = _decoded(decoder, block, header.written, asked)
            if found is None:
                yield from columns.batches(rows, before + 1)
                yield _broken(block, before + len(rows) + 1, self.wanted)
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
    written: Record
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


def _decoder(written: Record) -> Callable[..., Any]:
    """What decodes records. Those within each other may be so to any depth, which only the slower one takes."""
    slower: Callable[..., Any] = _read_py.schemaless_reader
    return slower if is_recursive(written.full, written) else schemaless_reader


def _decoded(
    decoder: Callable[..., Any], block: _Block, written: Record, asked: Record | None
) -> list[dict[str, Any]] | None:
    """The records of a block; None where its bytes are not exactly as many records as it says.

    Nothing of such a block can be trusted: a byte that is missing moves all values behind it.
    """
    source = io.BytesIO(block.data)
    plain, resolved = written.plain, None if asked is None else asked.plain
    try:
        records: list[Any] = [decoder(source, plain, resolved) for _ in range(block.count)]
    except _NO_RECORD:
        return None
    return records if source.tell() == len(block.data) else None


def _check_resolution(block: _Block, written: Record, asked: Record) -> None:
    try:
        _decoder(written)(io.BytesIO(block.data), written.plain, asked.plain)
    except SchemaResolutionError as error:
        reason = str(error).partition("\n")[0][:300]
        raise NoContainer("UNREADABLE", f"its schema cannot be resolved to avro.schema: {reason}") from error
    except _NO_RECORD:
        # The block is looked at again when it is read.
        return


def _broken(block: _Block, first: int, wanted: Wanted) -> pa.RecordBatch:
    """The records of a block that cannot be decoded: the first has the bytes of the block."""
    numbers = pa.array(np.arange(first, first + block.count, dtype=np.int64))
    raw = pa.array([block.data[:CUT_BYTES], *[b""] * (block.count - 1)], pa.binary())
    codes = pa.array([NOT_AVRO] * block.count, pa.string())
    parsed = pa.nulls(block.count, wanted.rows.field("_freshline_parsed").type)
    return pa.RecordBatch.from_arrays([raw, numbers, numbers, codes, parsed], schema=wanted.rows)


class _Columns:
    """Records become columns, with the declared columns' values."""

    def __init__(self, record: Record, wanted: Wanted) -> None:
        self._record = record
        self._wanted = wanted
        self._fields = [_find_field(record.fields, name) for name in wanted.schema.names]

    def batches(self, rows: Sequence[dict[str, Any]], first: int) -> Iterator[pa.RecordBatch]:
        """The rows in batches. One with a value that no type of Arrow's holds, such as 2^70, is no Avro."""
        if not rows:
            return
        try:
            found = list(self._batches(rows, first))
        except (*_NO_RECORD, pa.ArrowException):
            if len(rows) > 1:
                for number, row in enumerate(rows):
                    yield from self.batches([row], first + number)
                return
            found = [_broken(_Block(0, 1, repr(rows[0]).encode(errors="replace")), first, self._wanted)]
        yield from found

    def _batches(self, rows: Sequence[dict[str, Any]], first: int) -> Iterator[pa.RecordBatch]:
        columns: list[pa.Array | None] = []
        lost: list[Mask | None] = []
        owners = list(range(len(rows)))
        for field, kind in zip(self._fields, self._wanted.schema.types, strict=True):
            if field is None:
                columns.append(None)
                lost.append(None)
                continue
            name = field["name"]
            builder = _Builder(self._record, len(rows))
            columns.append(builder.build([row[name] for row in rows], owners, field["type"], kind))
            lost.append(builder.lost if builder.lost.any() else None)
        yield from fitted(columns, len(rows), first, self._wanted, lost)


def _find_field(fields: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The field of a column: that of its name, else the one field that had the name before."""
    named = next((field for field in fields if field["name"] == name), None)
    if named is not None:
        return named
    before = [field for field in fields if name in field.get("aliases", ())]
    return before[0] if len(before) == 1 else None


class _Builder:
    """Values of one column as Arrow has them, with the meaning of logical types.

    `lost` are the records with a value that is of no branch of a union which the declared type takes.
    """

    def __init__(self, record: Record, count: int) -> None:
        self._record = record
        self.lost: Mask = np.zeros(count, bool)

    def build(self, values: list[Any], owners: list[int], schema: Schema, kind: pa.DataType) -> pa.Array:
        """The values of a type for a declared one; `owners` are the numbers of the records that they are of.

        What the declared type has no use for is not built. Such values are there and of a type that fits nothing.
        """
        schema = resolve(schema, self._record)
        of = kind_of(schema)
        match of:
            case "null":
                return pa.nulls(len(values))
            case "union":
                return self._union(values, owners, schema, kind)
            case "record" | "error":
                return self._record_values(values, owners, schema, kind)
            case "array":
                return self._array(values, owners, schema, kind)
            case "map":
                return self._map(values, owners, schema, kind)
            case _:
                return _single(values, of, schema if isinstance(schema, dict) else {})

    def _record_values(self, values: list[Any], owners: list[int], schema: Schema, kind: pa.DataType) -> pa.Array:
        missing = pa.array([value is None for value in values], pa.bool_())
        members, fields = [], []
        for field in kind if pa.types.is_struct(kind) else ():
            found = _find_field(schema["fields"], field.name)
            if found is None:
                continue
            name = found["name"]
            inner = [None if value is None else value[name] for value in values]
            member = self.build(inner, owners, found["type"], field.type)
            members.append(member)
            fields.append(pa.field(field.name, member.type))
        if not members:
            # A struct without members is no array of Arrow's.
            members, fields = [pa.nulls(len(values))], [pa.field("", pa.null())]
        return pa.StructArray.from_arrays(members, fields=fields, mask=missing)

    def _array(self, values: list[Any], owners: list[int], schema: Schema, kind: pa.DataType) -> pa.Array:
        inner = kind.value_type if pa.types.is_list(kind) else pa.null()
        elements = [element for value in values for element in value or ()]
        of = [owner for value, owner in zip(values, owners, strict=True) for _ in value or ()]
        built = self.build(elements, of, schema["items"], inner)
        return pa.ListArray.from_arrays(_offsets(values), built, mask=_missing(values))

    def _map(self, values: list[Any], owners: list[int], schema: Schema, kind: pa.DataType) -> pa.Array:
        inner = kind.item_type if pa.types.is_map(kind) else pa.null()
        keys = [key for value in values for key in value or ()]
        items = [item for value in values for item in (value or {}).values()]
        of = [owner for value, owner in zip(values, owners, strict=True) for _ in value or ()]
        built = self.build(items, of, schema["values"], inner)
        return pa.MapArray.from_arrays(_offsets(values), pa.array(keys, pa.string()), built, mask=_missing(values))

    def _union(self, values: list[Any], owners: list[int], branches: Schema, kind: pa.DataType) -> pa.Array:
        branches = [each for each in (resolve(each, self._record) for each in branches) if kind_of(each) != "null"]
        if not branches:
            return pa.nulls(len(values))
        if len(branches) == 1:
            return self.build(values, owners, branches[0], kind)
        found = pa.nulls(len(values), kind)
        for python, of_python in _by_python(branches).items():
            inner = [value if type(value) is python else None for value in values]
            schema = of_python[0] if len(of_python) == 1 else _widest(of_python)
            if schema is not None:
                part, _ = fit(self.build(inner, owners, schema, kind), kind)
                found = pc.coalesce(found, part)
        for value, owner, is_there in zip(values, owners, found.is_valid().to_pylist(), strict=True):
            if value is not None and not is_there:
                self.lost[owner] = True
        return found


def _by_python(branches: Sequence[Schema]) -> dict[type, list[Schema]]:
    found: dict[type, list[Schema]] = {}
    for branch in branches:
        found.setdefault(_PYTHON[kind_of(branch)], []).append(branch)
    return found


def _widest(branches: Sequence[Schema]) -> Schema | None:
    """One type for values of several that look alike once they are decoded; None where they cannot be told apart."""
    kinds = {kind_of(branch) for branch in branches}
    if any(isinstance(branch, dict) and "logicalType" in branch for branch in branches):
        return None
    for among, widest in (
        ({"int", "long"}, "long"),
        ({"float", "double"}, "double"),
        ({"string", "enum"}, "string"),
        ({"bytes", "fixed"}, "bytes"),
    ):
        if kinds <= among:
            return widest
    return None


def _offsets(values: Sequence[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    return pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))


def _missing(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _single(values: list[Any], of: str, schema: dict[str, Any]) -> pa.Array:
    """Values of a type without values within."""
    logical = schema.get("logicalType")
    if of in ("int", "long"):
        numbers = pa.array(values, pa.int64())
        if logical == "date" and of == "int":
            # A day beyond is of no year that a column has, and so is the last one.
            bounded = pc.max_element_wise(
                pc.min_element_wise(numbers, _LAST, skip_nulls=False), -_LAST, skip_nulls=False
            )
            return bounded.cast(pa.int32()).cast(pa.date32())
        return numbers.cast(_TIMES[logical]) if logical in _TIMES and of == "long" else numbers
    if of in _ARROW:
        return pa.array(values, _ARROW[of])
    scale = schema.get("scale", 0)
    if logical == "decimal" and isinstance(scale, int) and 0 <= scale <= 76:
        return pa.array(
            [None if value is None else _decimal(value, scale) for value in values], pa.decimal256(76, scale)
        )
    if of == "fixed" and logical == "uuid" and schema["size"] == 16:
        return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(values, pa.binary(16)))
    return pa.array(values, pa.binary())


def _decimal(value: bytes, scale: int) -> Decimal:
    unscaled = Decimal(int.from_bytes(value, "big", signed=True))
    # Of more digits than Arrow has it fits no declared type, as the greatest of Arrow's does.
    return (unscaled if abs(unscaled) <= _TOO_GREAT else _TOO_GREAT).scaleb(-scale, fit_module.DIGITS)
