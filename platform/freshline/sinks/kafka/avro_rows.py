"""Rows as records of Avro, and back: schemas that follow from columns, and values by their Arrow types.

The bytes of a row are always the same for the same values, so rows are compared by their bytes. Each field may be NULL,
because no column of a table says that it never is. Times and days stay the numbers that they are, since Arrow has years
that Python has not.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import pyarrow as pa
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from fastavro.schema import SchemaParseException

from freshline.sources.formats.avro_schema import AvroRecord, NoSchema, read_schema

_SIMPLE: tuple[tuple[Callable[[pa.DataType], bool], Any], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "bytes"),
    (pa.types.is_date, {"type": "int", "logicalType": "date"}),
)


def row_schema(columns: pa.Schema, name: str) -> dict[str, Any]:
    """The schema of a record with these columns, as JSON has it; `name` has a namespace or none.

    Raises ValueError for a column that Avro has no type or no name for.
    """
    names = _Names(name)
    return _record(columns, name, names)


def change_schema(columns: pa.Schema, name: str) -> dict[str, Any]:
    """The schema of a change: the row before and the row after it, and `op`."""
    row = row_schema(columns, name)
    return {
        "type": "record",
        "name": f"{name}_change",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", name], "default": None},
            {"name": "op", "type": "string"},
        ],
    }


class RowEncoder:
    """Encodes rows with these columns. Raises ValueError where there is no schema for them."""

    def __init__(self, columns: pa.Schema, name: str) -> None:
        self.schema = row_schema(columns, name)
        self._columns = columns
        try:
            self._parsed = parse_schema(self.schema, named_schemas={})
        except (SchemaParseException, ValueError) as error:
            raise ValueError(str(error)) from error

    def encode(self, rows: pa.RecordBatch, wanted: Sequence[bool] | None = None) -> list[bytes]:
        """The records of rows, without a frame; empty where one is not `wanted`."""
        columns = [
            _plain_values(rows.column(field.name), field.type) for field in self._columns
        ]  # column by column, which Arrow does quickly
        found = []
        for at, values in enumerate(zip(*columns, strict=True)):
            found.append(b"" if wanted is not None and not wanted[at] else self._written(values))
        return found

    def encode_values(self, row: dict[str, Any]) -> bytes:
        """The record of values as they were decoded; a missing one is NULL."""
        return self._written([_again(row.get(field.name), field.type) for field in self._columns])

    def _written(self, values: Sequence[Any]) -> bytes:
        out = io.BytesIO()
        schemaless_writer(out, self._parsed, dict(zip(self._columns.names, values, strict=True)))
        return out.getvalue()


class RecordDecoder:
    """Decodes records of one schema. Raises ValueError for a text that is none of a record."""

    def __init__(self, text: str) -> None:
        try:
            self._record: AvroRecord = read_schema(text)
        except NoSchema as error:
            raise ValueError(f"its schema is none of a record: {error}") from error

    def decode(self, record: bytes) -> dict[str, Any]:
        """The values by their names: of logical types the numbers and bytes that stand for them. Raises ValueError."""
        source = io.BytesIO(record)
        try:
            row = schemaless_reader(source, self._record.plain, None)
        except (EOFError, IndexError, KeyError, TypeError, OverflowError, MemoryError, RecursionError) as error:
            raise ValueError(f"its bytes are no record of its schema ({type(error).__name__})") from error
        if source.tell() != len(record) or not isinstance(row, dict):
            raise ValueError("its bytes are no record of its schema")
        return row


def decoded_rows(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Decoded records in the columns and types of `schema`; a field that is missing is NULL. Raises ValueError."""
    try:
        columns = [_decoded([row.get(field.name) for row in rows], field.type) for field in schema]
    except (TypeError, AttributeError, pa.ArrowException) as error:
        raise ValueError(f"a value does not fit its column: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def broken_rows(rows: pa.RecordBatch) -> list[int]:
    """The places of rows with a text that is no UTF-8, also within values that hold others."""
    found: set[int] = set()
    for column in rows.columns:
        if not _has_texts(column.type):
            continue
        values = column.cast(_plain(column.type))
        try:
            values.to_pylist()
        except UnicodeDecodeError:
            found.update(at for at in range(len(values)) if not _is_readable(values, at))
    return sorted(found)


# -- schemas


class _Names:
    """Names of the records within a record, each once."""

    def __init__(self, first: str) -> None:
        self._taken = {first}

    def new(self, wanted: str) -> str:
        found, number = wanted, 2
        while found in self._taken:
            found, number = f"{wanted}{number}", number + 1
        self._taken.add(found)
        return found


def _record(fields: Iterator[pa.Field] | pa.Schema, name: str, names: _Names) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": field.name, "type": _nullable(field.type, f"{name}_{field.name}", names), "default": None}
            for field in fields
        ],
    }


def _nullable(kind: pa.DataType, name: str, names: _Names) -> list[Any]:
    return ["null", _type(kind, name, names)]


def _type(kind: pa.DataType, name: str, names: _Names) -> Any:
    for is_one, found in _SIMPLE:
        if is_one(kind):
            return found
    if pa.types.is_timestamp(kind):
        logical = "local-timestamp-micros" if kind.tz is None else "timestamp-micros"
        return {"type": "long", "logicalType": logical}
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_struct(kind):
        return _record(iter(kind), names.new(name), names)
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": _nullable(kind.item_type, f"{name}_value", names)}
    if pa.types.is_list(kind):
        return {"type": "array", "items": _nullable(kind.value_type, f"{name}_item", names)}
    raise ValueError(f"Avro has no type for {kind}")


# -- values


@cache
def _plain(kind: pa.DataType) -> pa.DataType:
    """The type whose values Python has: numbers in the place of times and days."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    if pa.types.is_date(kind):
        return pa.int32()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _plain(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _plain(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    return kind


def _plain_values(column: pa.Array, kind: pa.DataType) -> list[Any]:
    values: list[Any] = column.cast(_plain(kind)).to_pylist()
    return [_with_maps(value, kind) for value in values] if _has_maps(kind) else values


@cache
def _has_maps(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_maps(kind.field(at).type) for at in range(kind.num_fields))


@cache
def _has_texts(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or any(_has_texts(kind.field(at).type) for at in range(kind.num_fields))


def _with_maps(value: Any, kind: pa.DataType) -> Any:
    """A value whose maps are dictionaries in the order of their keys: equal maps have the same bytes."""
    if value is None or not _has_maps(kind):
        return value
    if pa.types.is_map(kind):
        return {key: _with_maps(item, kind.item_type) for key, item in sorted(value)}
    if pa.types.is_list(kind):
        return [_with_maps(each, kind.value_type) for each in value]
    return {field.name: _with_maps(value[field.name], field.type) for field in kind}


def _decoded(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    return pa.array([_from_plain(value, kind) for value in values], _plain(kind)).cast(kind)


def _from_plain(value: Any, kind: pa.DataType) -> Any:
    """A decoded value as Arrow takes it for the plain type: decimals of their bytes, maps as pairs."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-kind.scale)
    if pa.types.is_map(kind):
        return [(key, _from_plain(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind):
        return [_from_plain(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: _from_plain(value.get(field.name), field.type) for field in kind}
    return value


def _again(value: Any, kind: pa.DataType) -> Any:
    """A decoded value as it is encoded: decimals of their bytes, and members of records that are missing NULL."""
    if value is None:
        return None
    if pa.types.is_decimal(kind):
        return _from_plain(value, kind)
    if pa.types.is_map(kind):
        return {key: _again(item, kind.item_type) for key, item in sorted(value.items())}
    if pa.types.is_list(kind):
        return [_again(each, kind.value_type) for each in value]
    if pa.types.is_struct(kind):
        return {field.name: _again(value.get(field.name), field.type) for field in kind}
    return value


def _is_readable(column: pa.Array, at: int) -> bool:
    try:
        column.slice(at, 1).to_pylist()
    except UnicodeDecodeError:
        return False
    return True


def schema_text(schema: dict[str, Any]) -> str:
    """The schema as a registry keeps it."""
    return json.dumps(schema, separators=(",", ":"))
