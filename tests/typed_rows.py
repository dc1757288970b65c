"""Files whose values have types, and random rows for them, whose oracle are Python's own values."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

UTC_TIME, LOCAL_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")
# All types of columns, as Arrow has them and as they are declared.
TYPES = {
    "a": (pa.bool_(), "BOOLEAN"),
    "b": (pa.int8(), "TINYINT"),
    "c": (pa.int16(), "SMALLINT"),
    "d": (pa.int32(), "INT"),
    "e": (pa.int64(), "BIGINT"),
    "f": (pa.float32(), "FLOAT"),
    "g": (pa.float64(), "DOUBLE"),
    "h": (pa.decimal128(10, 2), "DECIMAL(10,2)"),
    "i": (pa.decimal128(38, 10), "DECIMAL(38,10)"),
    "j": (pa.string(), "STRING"),
    "k": (pa.binary(), "BINARY"),
    "l": (pa.date32(), "DATE"),
    "m": (UTC_TIME, "TIMESTAMP"),
    "n": (LOCAL_TIME, "TIMESTAMP_NTZ"),
    "o": (pa.list_(pa.int32()), "ARRAY<INT>"),
    "p": (pa.map_(pa.string(), pa.decimal128(5, 1)), "MAP<STRING, DECIMAL(5,1)>"),
    "q": (
        pa.struct([("x", pa.list_(pa.string())), ("y", pa.struct([("z", UTC_TIME)]))]),
        "STRUCT<x: ARRAY<STRING>, y: STRUCT<z: TIMESTAMP>>",
    ),
}
FIRST = datetime(1, 1, 1, tzinfo=UTC)


def random_value(chance: Random, kind: pa.DataType) -> Any:
    """A value of a type, often one at its ends; None now and then."""
    if chance.random() < 0.15:
        return None
    make = next(make for is_kind, make in _VALUES if is_kind(kind))
    return make(chance, kind)


def random_rows(chance: Random, kinds: Mapping[str, pa.DataType], count: int) -> list[dict[str, Any]]:
    return [{name: random_value(chance, kind) for name, kind in kinds.items()} for _ in range(count)]


def _whole(chance: Random, kind: pa.DataType) -> int:
    most: int = 2 ** (kind.bit_width - 1)
    return chance.choice([0, 1, -1, most - 1, -most, chance.randrange(-most, most)])


def _time(chance: Random, kind: pa.DataType) -> datetime:
    moment = FIRST + timedelta(microseconds=chance.randrange(315_537_897_599_999_999))
    return moment if kind.tz is not None else moment.replace(tzinfo=None)


_VALUES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Random, Any], Any]], ...] = (
    (pa.types.is_struct, lambda chance, kind: {each.name: random_value(chance, each.type) for each in kind}),
    (
        pa.types.is_map,
        lambda chance, kind: [(f"k{n}", random_value(chance, kind.item_type)) for n in range(chance.randrange(3))],
    ),
    (
        pa.types.is_list,
        lambda chance, kind: [random_value(chance, kind.value_type) for _ in range(chance.randrange(4))],
    ),
    (pa.types.is_boolean, lambda chance, _: chance.random() < 0.5),
    (pa.types.is_integer, _whole),
    (pa.types.is_float32, lambda chance, _: chance.choice([0.0, 1.5, -2.25, float("inf"), 2.0**100])),
    (pa.types.is_float64, lambda chance, _: chance.choice([0.1, -1e300, 5e-324, float("-inf"), chance.random()])),
    (
        pa.types.is_decimal,
        lambda chance, kind: Decimal(chance.randrange(1 - 10**kind.precision, 10**kind.precision)).scaleb(-kind.scale),
    ),
    (pa.types.is_string, lambda chance, _: chance.choice(["", "a", "é€😀", "\x00\n", "x" * chance.randrange(50)])),
    (pa.types.is_binary, lambda chance, _: chance.randbytes(chance.randrange(8))),
    (pa.types.is_date, lambda chance, _: date.fromordinal(chance.randrange(1, date.max.toordinal()))),
    (pa.types.is_timestamp, _time),
)


def parquet_file(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


def orc_file(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    orc.write_table(table, file, **options)
    return file.getvalue()


def aborting_orc_file() -> bytes:
    """One whose footer has a DECIMAL of 77 digits, at which Arrow ends its process."""
    whole = bytearray(orc_file(pa.table({"a": pa.array([Decimal("1.5")], pa.decimal128(38, 10)), "id": [1]})))
    # The precision and the scale of the type, as the footer has them.
    place = whole.index(bytes((0x28, 38, 0x30, 10)))
    whole[place + 1] = 77
    return bytes(whole)


def avro_record(**fields: Any) -> dict[str, Any]:
    """The schema of a record with these fields."""
    return {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def avro_file(
    schema: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], codec: str = "null", **options: Any
) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, fastavro.parse_schema(dict(schema)), rows, codec=codec, **options)
    return file.getvalue()


def avro_schema(kinds: Mapping[str, pa.DataType]) -> dict[str, Any]:
    """The schema of records with values of these types, each of which may be null."""
    return avro_record(**{name: ["null", _avro_type(kind, name)] for name, kind in kinds.items()})


def _avro_type(kind: pa.DataType, name: str) -> Any:
    simple = {
        pa.bool_(): "boolean",
        pa.float32(): "float",
        pa.float64(): "double",
        pa.string(): "string",
        pa.binary(): "bytes",
        pa.date32(): {"type": "int", "logicalType": "date"},
        UTC_TIME: {"type": "long", "logicalType": "timestamp-micros"},
        LOCAL_TIME: {"type": "long", "logicalType": "local-timestamp-micros"},
    }
    if kind in simple:
        return simple[kind]
    if pa.types.is_integer(kind):
        return "long" if kind == pa.int64() else "int"
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_map(kind):
        return {"type": "map", "values": ["null", _avro_type(kind.item_type, f"{name}_v")]}
    if pa.types.is_list(kind):
        return {"type": "array", "items": ["null", _avro_type(kind.value_type, f"{name}_e")]}
    fields = [{"name": each.name, "type": ["null", _avro_type(each.type, f"{name}_{each.name}")]} for each in kind]
    return {"type": "record", "name": f"r_{name}", "fields": fields}


def avro_rows(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, pa.DataType]) -> list[dict[str, Any]]:
    """The rows as Avro's writer takes them: maps as dictionaries."""
    maps = [name for name, kind in kinds.items() if pa.types.is_map(kind)]
    return [{**row, **{name: None if row[name] is None else dict(row[name]) for name in maps}} for row in rows]
