"""Framed records of Protobuf become values of the declared columns, exactly or not at all; without Spark."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool

from freshline.sources.formats.avro_topics import UNKNOWN_SCHEMA
from freshline.sources.formats.fit import Wanted
from freshline.sources.formats.protobuf_topics import (
    FramedProtobuf,
    ProtobufReading,
    ProtobufSchema,
    read_file,
    undeclared_fields,
)
from tests.protobuf import file_of, message_of, money_file, schema_of, whole_file
from tests.registry import framed

UTC_TIME = pa.timestamp("us", "UTC")
NOT_PROTOBUF = "NOT_PROTOBUF"
TIMESTAMP, DECIMAL = ".google.protobuf.Timestamp", ".confluent.type.Decimal"
TIME, DATE = "google/protobuf/timestamp.proto", "google/type/date.proto"
WRAPPERS, DECIMALS = "google/protobuf/wrappers.proto", "confluent/type/decimal.proto"


def record(message: Any, number: int = 1, indexes: bytes = b"\x00") -> bytes:
    return framed(number, indexes + message.SerializeToString())


def read(schemas: Any, records: Any, *, most_bytes: int = 1 << 20, **columns: Any) -> Any:
    wanted = Wanted(pa.schema(list(columns.items())), most_bytes)
    found = FramedProtobuf(ProtobufReading(schemas, wanted)).read(records)
    assert len(found.parsed) == len(found.codes) == len(found.ids) == len(records)
    return found


def one(kind: str, value: Any, declared: pa.DataType, *imports: str) -> Any:
    """The value that a column has for a value of a field, and the code of its record."""
    schema = schema_of(file_of(*imports, v=kind))
    message = message_of(schema)(v=value) if not callable(value) else message_of(schema)()
    if callable(value):
        value(message)
    found = read({1: schema}, [record(message)], v=declared)
    (row,) = found.parsed.to_pylist()
    return (None if row is None else row["v"]), found.codes[0].as_py()


@pytest.mark.parametrize(
    ("kind", "value", "declared", "expected"),
    [
        ("int32", -(2**31), pa.int32(), -(2**31)),
        ("sint64", -(2**63), pa.int64(), -(2**63)),
        ("uint32", 2**32 - 1, pa.int64(), 2**32 - 1),
        ("uint64", 2**64 - 1, pa.decimal128(20, 0), Decimal(2**64 - 1)),
        ("fixed64", 5, pa.int8(), 5),
        ("float", 0.1, pa.float32(), 0.10000000149011612),
        ("double", -0.0, pa.float64(), -0.0),
        ("double", float("-inf"), pa.float64(), float("-inf")),
        ("bool", True, pa.bool_(), True),
        ("string", "é😀\x00", pa.string(), "é😀\x00"),
        ("bytes", b"\xff\x00", pa.binary(), b"\xff\x00"),
        ("repeated int32", [1, 2], pa.list_(pa.int64()), [1, 2]),
        ("repeated string", [], pa.list_(pa.string()), []),
        # A field without presence has its default, one with presence is NULL.
        ("int32", None, pa.int32(), 0),
        ("string", None, pa.string(), ""),
        ("optional int32", None, pa.int32(), None),
        ("optional int32", 0, pa.int32(), 0),
    ],
)
def test_a_value_is_what_it_was(kind, value, declared, expected):
    found, code = one(kind, value, declared)

    assert (found, code, str(found)) == (expected, None, str(expected))


def at(seconds: int, nanos: int = 0) -> Any:
    def fill(message: Any) -> None:
        message.v.seconds, message.v.nanos = seconds, nanos

    return fill


@pytest.mark.parametrize(
    ("kind", "value", "declared", "imported", "expected"),
    [
        (TIMESTAMP, at(-1, 999_999_000), UTC_TIME, TIME, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (TIMESTAMP, at(253_402_300_799), UTC_TIME, TIME, datetime(9999, 12, 31, 23, 59, 59, 0, UTC)),
        (TIMESTAMP, None, UTC_TIME, TIME, None),
        (".google.protobuf.Int64Value", {"value": 0}, pa.int64(), WRAPPERS, 0),
        (".google.protobuf.StringValue", None, pa.string(), WRAPPERS, None),
        (".google.type.Date", {"year": 2026, "month": 2, "day": 28}, pa.date32(), DATE, date(2026, 2, 28)),
        (DECIMAL, {"value": b"\xff\x6a", "scale": 2, "precision": 5}, pa.decimal128(10, 3),
         DECIMALS, Decimal("-1.500")),
        (TIMESTAMP, at(1, 1), pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]), TIME,
         {"seconds": 1, "nanos": 1}),
    ],
)  # fmt: skip
def test_known_messages_have_their_meaning(kind, value, declared, imported, expected):
    assert one(kind, value, declared, imported) == (expected, None)


@pytest.mark.parametrize(
    ("kind", "value", "declared", "imported"),
    [
        ("int64", 2**31, pa.int32(), ()),
        ("uint64", 2**63, pa.int64(), ()),
        ("string", "1", pa.int32(), ()),
        ("int32", 1, pa.string(), ()),
        (TIMESTAMP, at(0, 1), UTC_TIME, (TIME,)),
        (TIMESTAMP, at(0, -1_000), UTC_TIME, (TIME,)),
        (TIMESTAMP, at(2**62), UTC_TIME, (TIME,)),
        (TIMESTAMP, at(253_402_300_800), UTC_TIME, (TIME,)),
        (TIMESTAMP, at(0), pa.timestamp("us"), (TIME,)),
        (".google.type.Date", {"year": 2026, "month": 2}, pa.date32(), (DATE,)),
        (DECIMAL, {"value": b"\x01", "scale": 3}, pa.decimal128(10, 2), (DECIMALS,)),
        (DECIMAL, {"value": b"\x01", "scale": -2**31}, pa.decimal128(10, 2), (DECIMALS,)),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_the_column_is_not_stored_as_another(kind, value, declared, imported):
    assert one(kind, value, declared, *imported) == (None, "VALUE_CHANGED(v)")


MONEY = pa.struct([("cents", pa.int64())])


def test_messages_maps_enums_and_choices():
    schema = schema_of(whole_file(), money=money_file())
    order = message_of(schema)
    full = order(id=1, price={"cents": 150}, e=1, child={"id": 2}, b=0)
    full.m["k"].cents = 7
    columns = {
        "id": pa.int64(),
        "price": MONEY,
        "e": pa.string(),
        "m": pa.map_(pa.string(), MONEY),
        "a": pa.string(),
        "b": pa.int64(),
    }
    columns["child"] = pa.struct([("id", pa.int64()), ("price", MONEY), ("none", pa.string())])
    unknown = order(id=3)
    unknown.e = 9
    found = read({1: schema}, [record(full), record(order()), record(unknown)], **columns)

    assert found.parsed.to_pylist() == [
        {
            "id": 1, "price": {"cents": 150}, "e": "BLUE", "m": [("k", {"cents": 7})], "a": None, "b": 0,
            "child": {"id": 2, "price": None, "none": None},
        },
        {"id": 0, "price": None, "e": "RED", "m": [], "a": None, "b": None, "child": None},
        None,
    ]  # fmt: skip
    assert found.codes.to_pylist() == [None, None, "VALUE_CHANGED(e)"]
    numbers = read({1: schema}, [record(unknown)], e=pa.int32())
    assert numbers.parsed.to_pylist() == [{"e": 9}]


def test_numbers_behind_the_frame_lead_to_the_message():
    schema = schema_of(whole_file(), money=money_file())
    body = b"\x08\x05"
    records = [
        framed(1, begin + body) for begin in (b"\x00", b"\x02\x00", b"\x02\x02", b"\x04\x00\x02", b"\x04\x00\x00")
    ]
    wrong = [framed(1, begin + body) for begin in (b"\x02\x04", b"\x02\x01", b"\x02", b"\xfe\xff\xff\xff\x7f", b"\x03")]
    found = read({1: schema}, [*records, *wrong, framed(1, b"")], id=pa.int64())

    # Order, Order again, Other, Order.Inner; the first within Order is the entry of its map, which has no `id`.
    assert found.parsed.to_pylist()[:4] == [{"id": 5}] * 4
    assert found.codes.to_pylist()[4:] == [NOT_PROTOBUF] * 7


def test_damage_is_not_protobuf_or_other_values_and_breaks_nothing():
    schema = schema_of(whole_file(), money=money_file())
    order = message_of(schema)
    whole = order(id=1, price={"cents": 150}, a="text")
    chance = Random(3)
    records = []
    for _ in range(2_000):
        damaged = bytearray(record(whole))
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(5, len(damaged))] = chance.randrange(256)
        records.append(bytes(damaged[: chance.randrange(5, len(damaged) + 1)]))
    found = read({1: schema}, [record(whole), *records], id=pa.int64(), a=pa.string(), price=MONEY)

    assert found.parsed[0].as_py() == {"id": 1, "a": "text", "price": {"cents": 150}}
    assert found.codes.to_pylist().count(NOT_PROTOBUF) > 200
    assert all(
        (row is None) == (code is not None)
        for row, code in zip(found.parsed.to_pylist(), found.codes.to_pylist(), strict=True)
    )


def test_a_text_that_is_none_is_no_record():
    new, old = (schema_of(file_of(syntax=syntax, v="string")) for syntax in ("proto3", "proto2"))
    bad, good = b"\x00\x0a\x01\xff", b"\x00\x0a\x01x"
    found = read({1: new, 2: old}, [framed(1, bad), framed(2, bad), framed(2, good)], v=pa.string())

    assert found.codes.to_pylist() == [NOT_PROTOBUF, NOT_PROTOBUF, None]
    assert found.parsed.to_pylist() == [None, None, {"v": "x"}]


@pytest.mark.parametrize(
    "schema",
    [
        None,
        ProtobufSchema(b"\xff"),
        ProtobufSchema(b""),
        schema_of(file_of("none.proto", v="int32")),
        schema_of(file_of(v=".shop.None")),
        schema_of(
            file_of("a.proto", v="int32"), a=descriptor_pb2.FileDescriptorProto(name="a", dependency=["a.proto"])
        ),
    ],
)
def test_a_file_that_cannot_be_read_has_no_records(schema):
    found = read({1: schema}, [framed(1, b"\x00\x08\x01"), framed(9, b"\x00"), b"text", None], v=pa.int32())

    assert found.codes.to_pylist() == [NOT_PROTOBUF, UNKNOWN_SCHEMA, NOT_PROTOBUF, None]


def test_a_message_within_itself_has_a_depth():
    schema = schema_of(file_of(v="int32", child=".shop.Order"))
    body = b"\x08\x01"
    for _ in range(5_000):
        size = len(body)
        length = b""
        while size > 0x7F:
            length += bytes((size & 0x7F | 0x80,))
            size >>= 7
        body = b"\x12" + length + bytes((size,)) + body

    assert read({1: schema}, [framed(1, b"\x00" + body)], v=pa.int32()).codes.to_pylist() == [NOT_PROTOBUF]


def test_new_fields_have_a_type_to_declare_them_with():
    single = file_of(
        TIME, "money.proto", id="int64", t=TIMESTAMP, l="repeated uint64", p=".shop.Money", o=".shop.Order", b="bytes",
        e="enum:.shop.Color",
    )  # fmt: skip
    single.enum_type.add(name="Color").value.add(name="RED", number=0)

    assert undeclared_fields(schema_of(single, money=money_file()), ["id"]) == {
        "t": "TIMESTAMP", "l": "ARRAY<DECIMAL(20,0)>", "p": "STRUCT<`cents`: BIGINT>", "o": "", "b": "BINARY",
        "e": "STRING",
    }  # fmt: skip
    assert undeclared_fields(schema_of(whole_file(), money=money_file()), []) == {}


def test_the_pool_of_the_process_stays_as_it_was():
    schema = schema_of(file_of(v="int32"))
    read_file(schema)

    with pytest.raises(KeyError):
        descriptor_pool.Default().FindFileByName("freshline/schema.proto")
