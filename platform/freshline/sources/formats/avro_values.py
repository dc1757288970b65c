"""Decoded records of Avro become columns with the values of the declared types, of files and of topics alike.

The decoder leaves logical types as they are (see `avro_schema`), and they get their meaning here, column by column.
This module uses nothing of freshline but `avro_schema` and `fit`, because the machines of a cluster may not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastavro import _read_py, schemaless_reader

from freshline.sources.formats.avro_schema import AvroRecord, Schema, is_recursive, kind_of, resolve
from freshline.sources.formats.fit import CUT_BYTES, DIGITS, Mask, Wanted, fit, fitted

NOT_AVRO = "NOT_AVRO"
# The errors that decoding raises for bytes that are no record of the schema.
NO_RECORD = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, RecursionError)
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


def decoder_of(written: AvroRecord) -> Callable[..., Any]:
    """The decoder of records. Those within each other may be so to any depth, which only the slower one takes."""
    slower: Callable[..., Any] = _read_py.schemaless_reader
    return slower if is_recursive(written.full, written) else schemaless_reader


def rejected(raw: bytes, count: int, first: int, wanted: Wanted, code: str = NOT_AVRO) -> pa.RecordBatch:
    """Records that cannot be decoded: the first has their bytes."""
    numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
    kept = pa.array([raw[:CUT_BYTES], *[b""] * (count - 1)], pa.binary())
    codes = pa.array([code] * count, pa.string())
    parsed = pa.nulls(count, wanted.rows.field("_freshline_parsed").type)
    return pa.RecordBatch.from_arrays([kept, numbers, numbers, codes, parsed], schema=wanted.rows)


def read_fields(record: AvroRecord, names: Sequence[str]) -> set[str]:
    """The names, old ones too, of the fields that columns of these names take their values from."""
    found = [find_field(record.fields, name) for name in names]
    return {name for field in found if field is not None for name in (field["name"], *field.get("aliases", ()))}


class Columns:
    """Records become columns, with the declared columns' values."""

    def __init__(self, record: AvroRecord, wanted: Wanted) -> None:
        self._record = record
        self._wanted = wanted
        self._fields = [find_field(record.fields, name) for name in wanted.schema.names]

    def batches(self, rows: Sequence[dict[str, Any]], first: int) -> Iterator[pa.RecordBatch]:
        """The rows in batches. One with a value that no type of Arrow can have, such as 2^70, is no Avro."""
        if not rows:
            return
        try:
            found = list(self._batches(rows, first))
        except (*NO_RECORD, pa.ArrowException):
            if len(rows) > 1:
                for number, row in enumerate(rows):
                    yield from self.batches([row], first + number)
                return
            found = [rejected(repr(rows[0]).encode(errors="replace"), 1, first, self._wanted)]
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


def find_field(fields: Sequence[dict[str, Any]], name: str) -> dict[str, Any] | None:
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

    def __init__(self, record: AvroRecord, count: int) -> None:
        self._record = record
        self.lost: Mask = np.zeros(count, bool)

    def build(self, values: list[Any], owners: list[int], schema: Schema, kind: pa.DataType) -> pa.Array:
        """The values of a type for a declared one; `owners` are the numbers of the records that they are of.

        Values that the declared type has no use for are not built. They are there and of a type that fits nothing.
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
            found = find_field(schema["fields"], field.name)
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
    """One type for values of several that are alike once decoded; None where no one type fits all of them."""
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
    # A number with more digits than Arrow has fits no declared type, and neither does the greatest of Arrow's.
    return (unscaled if abs(unscaled) <= _TOO_GREAT else _TOO_GREAT).scaleb(-scale, DIGITS)
