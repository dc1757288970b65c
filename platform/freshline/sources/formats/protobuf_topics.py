"""Framed records of Protobuf become columns with the values of the declared types.

Pure, and sent to the processes of Spark as it is. Behind the frame stand the numbers that lead to the message among
those of its file. A field without presence has its default where a record lacks it; one that has presence is NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError

from freshline.sources.formats.avro_topics import UNKNOWN_SCHEMA, Framed, in_order
from freshline.sources.formats.avro_values import rejected
from freshline.sources.formats.fit import DIGITS, Mask, Wanted, fitted
from freshline.sources.formats.framing import FRAME_BYTES, schema_id_of

NOT_PROTOBUF = "NOT_PROTOBUF"
_ANY_SIZE = 2**62
# Messages within messages are as deep at most.
_MOST_INDEXES = 100
# Files that every registry knows without having them, and the modules that have them here.
_KNOWN = {
    **{
        f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
        for name in ("any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct")
    },
    **{f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2" for name in ("timestamp", "type", "wrappers")},
    **{
        f"google/type/{name}.proto": f"google.type.{name}_pb2"
        for name in ("date", "datetime", "dayofweek", "latlng", "money", "month", "timeofday")
    },
}
_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_TIMESTAMP, _DATE, _DECIMAL = "google.protobuf.Timestamp", "google.type.Date", "confluent.type.Decimal"
_ARROW = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.uint32(),
    FieldDescriptor.CPPTYPE_UINT64: pa.uint64(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
}
_SQL = {
    FieldDescriptor.CPPTYPE_INT32: "INT",
    FieldDescriptor.CPPTYPE_INT64: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT32: "BIGINT",
    FieldDescriptor.CPPTYPE_UINT64: "DECIMAL(20,0)",
    FieldDescriptor.CPPTYPE_DOUBLE: "DOUBLE",
    FieldDescriptor.CPPTYPE_FLOAT: "FLOAT",
    FieldDescriptor.CPPTYPE_BOOL: "BOOLEAN",
    FieldDescriptor.CPPTYPE_ENUM: "STRING",
}


class NoFile(Exception):
    """Bytes that are no file of Protobuf, or one that names a file which is not there."""


@dataclass(frozen=True)
class ProtobufSchema:
    """A file of Protobuf as serialized FileDescriptorProto, and those that it names, each with its name."""

    file: bytes
    references: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class ProtobufReading:
    """The schemas and types by which framed records are read; a schema is None for one that is none of Protobuf."""

    schemas: Mapping[int, ProtobufSchema | None]
    wanted: Wanted


@dataclass
class FramedProtobuf:
    """Decodes records; schemas are read once."""

    reading: ProtobufReading
    _files: dict[int, Any] = field(default_factory=dict)
    _messages: dict[tuple[int, tuple[int, ...]], _Message | None] = field(default_factory=dict)

    def read(self, records: Sequence[bytes | None]) -> Framed:
        """The values of records, NULL for None and for one that is larger than a record may be: both without a code."""
        most = self.reading.wanted.most_bytes
        ids = [None if record is None else schema_id_of(record) for record in records]
        codes: list[str | None] = [None] * len(records)
        groups: dict[tuple[int, tuple[int, ...]], tuple[list[int], list[Any]]] = {}
        for place, (record, schema_id) in enumerate(zip(records, ids, strict=True)):
            if record is None or len(record) > most:
                continue
            if schema_id is not None and schema_id not in self.reading.schemas:
                codes[place] = UNKNOWN_SCHEMA
                continue
            found = None if schema_id is None else self._decode(schema_id, record)
            if found is None:
                codes[place] = NOT_PROTOBUF
                continue
            places, messages = groups.setdefault(found[0], ([], []))
            places.append(place)
            messages.append(found[1])
        parts = []
        for key, (places, messages) in groups.items():
            reader = self._messages[key]
            assert reader is not None
            parts.append((places, list(reader.batches(messages))))
        return in_order(parts, codes, ids, self.reading.wanted)

    def _decode(self, schema_id: int, record: bytes) -> tuple[tuple[int, tuple[int, ...]], Any] | None:
        """The message that a record is, with what it is of; None for bytes that are none of the schema."""
        found = _indexes(record)
        if found is None:
            return None
        indexes, begin = found
        key = (schema_id, indexes)
        if key not in self._messages:
            self._messages[key] = self._message(schema_id, indexes)
        reader = self._messages[key]
        try:
            return None if reader is None else (key, reader.parse(record[begin:]))
        except (DecodeError, RecursionError, ValueError):
            return None

    def _message(self, schema_id: int, indexes: tuple[int, ...]) -> _Message | None:
        if schema_id not in self._files:
            schema = self.reading.schemas[schema_id]
            try:
                self._files[schema_id] = None if schema is None else read_file(schema)
            except NoFile:
                self._files[schema_id] = None
        file = self._files[schema_id]
        descriptor = None if file is None else _find_message(file, indexes)
        return None if descriptor is None else _Message(descriptor, replace(self.reading.wanted, most_bytes=_ANY_SIZE))


# -- files


def read_file(schema: ProtobufSchema) -> Any:
    """The descriptor of a file. Raises NoFile."""
    pool = descriptor_pool.DescriptorPool()
    given = dict(schema.references)
    try:
        main = descriptor_pb2.FileDescriptorProto.FromString(schema.file)
        # No other file names it, and one of them may have its name.
        main.name = "freshline/schema.proto"
        _add_files(pool, main.dependency, given, frozenset())
        pool.Add(main)
        return pool.FindFileByName(main.name)
    except (DecodeError, KeyError, TypeError, ValueError, RecursionError, ImportError) as error:
        raise NoFile(str(error)) from error


def _add_files(
    pool: descriptor_pool.DescriptorPool, names: Sequence[str], given: Mapping[str, bytes], within: frozenset[str]
) -> None:
    """Add files of these names, those that they name before them. Raises KeyError for one that is missing."""
    for name in names:
        if name in within:
            raise ValueError(f"{name} names itself")
        try:
            pool.FindFileByName(name)
            continue
        except KeyError:
            file = _file_of(name, given)
        _add_files(pool, file.dependency, given, within | {name})
        pool.Add(file)


def _file_of(name: str, given: Mapping[str, bytes]) -> descriptor_pb2.FileDescriptorProto:
    if name in given:
        file = descriptor_pb2.FileDescriptorProto.FromString(given[name])
    elif name in _KNOWN:
        file = descriptor_pb2.FileDescriptorProto.FromString(import_module(_KNOWN[name]).DESCRIPTOR.serialized_pb)
    elif name == "confluent/meta.proto":
        # It has options alone, of which nothing is read.
        file = descriptor_pb2.FileDescriptorProto(package="confluent", syntax="proto3")
    elif name == "confluent/type/decimal.proto":
        file = _confluent_decimal()
    else:
        raise KeyError(name)
    file.name = name
    return file


def _confluent_decimal() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(package="confluent.type", syntax="proto3")
    message = file.message_type.add(name="Decimal")
    of = descriptor_pb2.FieldDescriptorProto
    for number, (name, kind) in enumerate(
        (("value", of.TYPE_BYTES), ("precision", of.TYPE_UINT32), ("scale", of.TYPE_INT32))
    ):
        message.field.add(name=name, number=number + 1, type=kind, label=of.LABEL_OPTIONAL)
    return file


def _find_message(file: Any, indexes: tuple[int, ...]) -> Descriptor | None:
    """The message that numbers lead to: of the file, and then of the message before."""
    messages = list(file.message_types_by_name.values())
    found: Descriptor | None = None
    for index in indexes:
        if not 0 <= index < len(messages):
            return None
        found = messages[index]
        messages = list(found.nested_types)
    # The entries of maps are messages among those of a message, and no record is one.
    return None if found is None or found.GetOptions().map_entry else found


def _indexes(record: bytes) -> tuple[tuple[int, ...], int] | None:
    """The numbers behind the frame, and where the message begins; None where there are none.

    The first message of a file, the usual one, is a zero alone.
    """
    found = _varint(record, FRAME_BYTES)
    if found is None or not 0 <= found[0] <= _MOST_INDEXES:
        return None
    count, place = found
    if count == 0:
        return (0,), place
    indexes = []
    for _ in range(count):
        found = _varint(record, place)
        if found is None:
            return None
        index, place = found
        indexes.append(index)
    return tuple(indexes), place


def _varint(record: bytes, place: int) -> tuple[int, int] | None:
    """A number with its sign in the last bit, and the place behind it."""
    number = 0
    for shift in range(0, 35, 7):
        if place >= len(record):
            return None
        byte = record[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), place
    return None


# -- values


class _Message:
    """The decoder and the columns for records of one message."""

    def __init__(self, descriptor: Descriptor, wanted: Wanted) -> None:
        self.parse: Callable[[bytes], Any] = message_factory.GetMessageClass(descriptor).FromString
        self._wanted = wanted
        self._fields = [descriptor.fields_by_name.get(name) for name in wanted.schema.names]

    def batches(self, messages: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        """The values of messages; one with a text that is none, which older files may have, is none of the schema."""
        try:
            found = list(self._batches(messages))
        except (ValueError, OverflowError, pa.ArrowException):
            if len(messages) > 1:
                for message in messages:
                    yield from self.batches([message])
                return
            found = [rejected(b"", 1, 0, self._wanted, NOT_PROTOBUF)]
        yield from found

    def _batches(self, messages: Sequence[Any]) -> Iterator[pa.RecordBatch]:
        columns: list[pa.Array | None] = []
        lost: list[Mask | None] = []
        for of, kind in zip(self._fields, self._wanted.schema.types, strict=True):
            if of is None:
                columns.append(None)
                lost.append(None)
                continue
            builder = _Builder(len(messages))
            columns.append(builder.field(list(messages), list(range(len(messages))), of, kind))
            lost.append(builder.lost if builder.lost.any() else None)
        return fitted(columns, len(messages), 0, self._wanted, lost)


class _Builder:
    """Values of one column as Arrow has them; `lost` are the records with a value that Arrow cannot have.

    Values that the declared type has no use for are not built. They are there and of a type that fits nothing.
    """

    def __init__(self, count: int) -> None:
        self.lost: Mask = np.zeros(count, bool)

    def field(self, messages: list[Any], owners: list[int], of: FieldDescriptor, kind: pa.DataType) -> pa.Array:
        """The values of a field of messages, None for a message that is not there."""
        name = of.name
        if _is_map(of):
            return self._map([None if each is None else getattr(each, name) for each in messages], owners, of, kind)
        if of.is_repeated:
            return self._list([None if each is None else getattr(each, name) for each in messages], owners, of, kind)
        if of.has_presence:
            values = [getattr(each, name) if each is not None and each.HasField(name) else None for each in messages]
        else:
            values = [None if each is None else getattr(each, name) for each in messages]
        return self._values(values, owners, of, kind)

    def _values(self, values: list[Any], owners: list[int], of: FieldDescriptor, kind: pa.DataType) -> pa.Array:
        if of.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
            return self._messages(values, owners, of.message_type, kind)
        if of.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
            if pa.types.is_integer(kind):
                return pa.array(values, pa.int32())
            names = {number: each.name for number, each in of.enum_type.values_by_number.items()}
            return self._converted(values, owners, pa.string(), names.get)
        if of.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return pa.array(values, pa.binary() if of.type == FieldDescriptor.TYPE_BYTES else pa.string())
        return pa.array(values, _ARROW[of.cpp_type])

    def _messages(self, values: list[Any], owners: list[int], of: Descriptor, kind: pa.DataType) -> pa.Array:
        if of.full_name in _WRAPPERS:
            inner = [None if value is None else value.value for value in values]
            return self._values(inner, owners, of.fields_by_name["value"], kind)
        if not pa.types.is_struct(kind):
            if of.full_name == _TIMESTAMP:
                return self._converted(values, owners, pa.int64(), _microseconds).cast(pa.timestamp("us", "UTC"))
            if of.full_name == _DATE:
                return self._converted(values, owners, pa.date32(), _date)
            if of.full_name == _DECIMAL and pa.types.is_decimal(kind):
                return self._converted(values, owners, kind, lambda value: _decimal(value, kind.precision, kind.scale))
        members, fields = [], []
        for each in kind if pa.types.is_struct(kind) else ():
            inner_field = of.fields_by_name.get(each.name)
            if inner_field is not None:
                members.append(self.field(values, owners, inner_field, each.type))
                fields.append(pa.field(each.name, members[-1].type))
        if not members:
            # A struct without members is no array of Arrow's.
            members, fields = [pa.nulls(len(values))], [pa.field("", pa.null())]
        missing = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(members, fields=fields, mask=missing)

    def _list(self, values: list[Any], owners: list[int], of: FieldDescriptor, kind: pa.DataType) -> pa.Array:
        inner = kind.value_type if pa.types.is_list(kind) else pa.null()
        elements = [each for value in values for each in value or ()]
        whose = [owner for value, owner in zip(values, owners, strict=True) for _ in value or ()]
        built = self._values(elements, whose, of, inner)
        return pa.ListArray.from_arrays(_offsets(values), built, mask=_missing(values))

    def _map(self, values: list[Any], owners: list[int], of: FieldDescriptor, kind: pa.DataType) -> pa.Array:
        inner = kind.item_type if pa.types.is_map(kind) else pa.null()
        entry = of.message_type.fields_by_name
        keys = [key for value in values for key in value or ()]
        items = [value[key] for value in values for key in value or ()]
        whose = [owner for value, owner in zip(values, owners, strict=True) for _ in value or ()]
        built = self._values(items, whose, entry["value"], inner)
        names = self._values(keys, whose, entry["key"], kind.key_type if pa.types.is_map(kind) else pa.null())
        return pa.MapArray.from_arrays(_offsets(values), names, built, mask=_missing(values))

    def _converted(
        self, values: list[Any], owners: list[int], kind: pa.DataType, convert: Callable[[Any], Any]
    ) -> pa.Array:
        found = [None if value is None else convert(value) for value in values]
        for value, made, owner in zip(values, found, owners, strict=True):
            if value is not None and made is None:
                self.lost[owner] = True
        return pa.array(found, kind)


def _is_map(of: FieldDescriptor) -> bool:
    return of.message_type is not None and bool(of.message_type.GetOptions().map_entry)


def _offsets(values: Sequence[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    return pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))


def _missing(values: Sequence[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _microseconds(value: Any) -> int | None:
    """A Timestamp; None where it has digits behind the microsecond, or is none at all."""
    micro, rest = divmod(value.nanos, 1_000)
    found: int = value.seconds * 1_000_000 + micro
    return found if not rest and 0 <= value.nanos < 1_000_000_000 and abs(found) < 2**62 else None


def _date(value: Any) -> date | None:
    """A Date; None for one without a year, a month or a day, which stands for other things than a date."""
    try:
        return date(value.year, value.month, value.day)
    except ValueError:
        return None


def _decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    unscaled = int.from_bytes(value.value, "big", signed=True)
    if len(value.value) > 64 or abs(value.scale) > 1_000:
        return None
    shift = scale - value.scale
    number, rest = (unscaled * 10**shift, 0) if shift >= 0 else divmod(unscaled, 10**-shift)
    return None if rest or abs(number) >= 10**precision else Decimal(number).scaleb(-scale, DIGITS)


def undeclared_fields(schema: ProtobufSchema, names: Sequence[str]) -> dict[str, str]:
    """The fields of the only message of a file that no column takes, each with its type in SQL, empty for none.

    Nothing of a file with several messages, because records may be of any of them.
    """
    try:
        messages = list(read_file(schema).message_types_by_name.values())
    except NoFile:
        return {}
    fields = messages[0].fields if len(messages) == 1 else ()
    return {each.name: _sql_type(each, frozenset()) for each in fields if each.name not in names}


def _sql_type(of: FieldDescriptor, within: frozenset[str]) -> str:
    if _is_map(of):
        key, value = (_sql_type(of.message_type.fields_by_name[name], within) for name in ("key", "value"))
        return f"MAP<{key}, {value}>" if key and value else ""
    single = _single_type(of, within)
    return f"ARRAY<{single}>" if of.is_repeated and single else single


def _single_type(of: FieldDescriptor, within: frozenset[str]) -> str:
    if of.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return "BINARY" if of.type == FieldDescriptor.TYPE_BYTES else "STRING"
    if of.cpp_type != FieldDescriptor.CPPTYPE_MESSAGE:
        return _SQL[of.cpp_type]
    message = of.message_type
    if message.full_name in _WRAPPERS:
        return _single_type(message.fields_by_name["value"], within)
    if message.full_name in (_TIMESTAMP, _DATE):
        return "TIMESTAMP" if message.full_name == _TIMESTAMP else "DATE"
    if message.full_name in within:
        return ""
    inner = [(each.name, _sql_type(each, within | {message.full_name})) for each in message.fields]
    fields = ", ".join(f"`{name}`: {found}" for name, found in inner)
    return f"STRUCT<{fields}>" if inner and all(found for _, found in inner) and len(fields) <= 2_000 else ""
