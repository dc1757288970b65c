"""Framed records of Avro become values of the declared columns, exactly or not at all; without Spark."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from freshline.sources.formats.avro_topics import UNKNOWN_SCHEMA, FramedAvro, FramedReading, FramedSchema
from freshline.sources.formats.fit import Wanted
from tests.registry import framed
from tests.typed_rows import avro_record

UTC_TIME, LOCAL_TIME = pa.timestamp("us", "UTC"), pa.timestamp("us")
NOT_AVRO = "NOT_AVRO"


def encoded(schema, value, *named):
    types: dict[str, dict[Any, Any]] = {}
    for each in named:
        fastavro.parse_schema(each, named_schemas=types)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(schema, named_schemas=types), value)
    return file.getvalue()


def read(schemas, records, *, most_bytes=1 << 20, schema=None, is_key=False, **columns):
    known = {
        number: each if each is None or isinstance(each, FramedSchema) else FramedSchema(json.dumps(each))
        for number, each in schemas.items()
    }
    wanted = Wanted(pa.schema(list(columns.items())), most_bytes)
    found = FramedAvro(FramedReading(known, wanted, schema, is_key)).read(records)
    assert len(found.parsed) == len(found.codes) == len(found.ids) == len(records)
    return found


def rows(found):
    return found.parsed.to_pylist()


def one(kind, value, declared):
    """The value that a column has for a value of a type, and the code of its record."""
    schema = avro_record(v=kind)
    found = read({1: schema}, [framed(1, encoded(schema, {"v": value}))], v=declared)
    (row,) = rows(found)
    return (None if row is None else row["v"]), found.codes[0].as_py()


def logical(of, name, **more):
    return {"type": of, "logicalType": name, **more}


DECIMAL = logical("bytes", "decimal", precision=10, scale=2)
UUID = "6f1e3b6c-0000-4000-8000-000000000001"


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("kind", "value", "declared", "expected"),
    [
        ("boolean", True, pa.bool_(), True),
        ("int", -(2**31), pa.int32(), -(2**31)),
        ("int", 7, pa.int64(), 7),
        ("long", 2**63 - 1, pa.int64(), 2**63 - 1),
        ("long", 127, pa.int8(), 127),
        ("float", 0.5, pa.float64(), 0.5),
        ("double", -0.0, pa.float64(), -0.0),
        ("double", float("inf"), pa.float64(), float("inf")),
        ("string", "é😀\x00", pa.string(), "é😀\x00"),
        ("bytes", b"\xff\x00", pa.binary(), b"\xff\x00"),
        ({"type": "fixed", "name": "f", "size": 3}, b"abc", pa.binary(), b"abc"),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", pa.string(), "B"),
        (DECIMAL, Decimal("-12.30"), pa.decimal128(10, 2), Decimal("-12.30")),
        (DECIMAL, Decimal("1.50"), pa.decimal128(5, 1), Decimal("1.5")),
        (
            {"type": "fixed", "name": "f", "size": 16, "logicalType": "decimal", "precision": 38, "scale": 10},
            Decimal("-9999999999999999999999999999.9999999999"),
            pa.decimal128(38, 10),
            Decimal("-9999999999999999999999999999.9999999999"),
        ),
        (logical("int", "date"), date(1, 1, 1), pa.date32(), date(1, 1, 1)),
        (logical("int", "date"), date(9999, 12, 31), pa.date32(), date(9999, 12, 31)),
        (logical("long", "timestamp-millis"), 1_500, UTC_TIME, datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        (logical("long", "timestamp-micros"), -1, UTC_TIME, datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (logical("long", "timestamp-nanos"), 2_000, UTC_TIME, datetime(1970, 1, 1, 0, 0, 0, 2, UTC)),
        (logical("long", "local-timestamp-millis"), 1, LOCAL_TIME, datetime(1970, 1, 1, 0, 0, 0, 1_000)),  # noqa: DTZ001
        (logical("long", "local-timestamp-micros"), 1, LOCAL_TIME, datetime(1970, 1, 1, 0, 0, 0, 1)),  # noqa: DTZ001
        (logical("string", "uuid"), UUID, pa.string(), UUID),
        ({"type": "array", "items": ["null", "int"]}, [1, None], pa.list_(pa.int32()), [1, None]),
        ({"type": "map", "values": "long"}, {"k": 1}, pa.map_(pa.string(), pa.int64()), [("k", 1)]),
        (["null", "string"], None, pa.string(), None),
        (["null", "int", "string"], "x", pa.string(), "x"),
    ],
)  # fmt: skip
def test_a_value_is_what_it_was(kind, value, declared, expected):
    found, code = one(kind, value, declared)

    assert (found, code, str(found)) == (expected, None, str(expected))


@pytest.mark.parametrize(
    ("kind", "value", "declared"),
    [
        ("long", 2**31, pa.int32()),
        ("string", "1", pa.int32()),
        ("int", 1, pa.string()),
        ("double", 0.1, pa.float32()),
        (logical("bytes", "decimal", precision=10, scale=3), Decimal("1.005"), pa.decimal128(10, 2)),
        (logical("long", "timestamp-nanos"), 1, UTC_TIME),
        (logical("long", "timestamp-millis"), 2**62, UTC_TIME),
        (logical("long", "timestamp-micros"), 0, LOCAL_TIME),
        ("long", 0, UTC_TIME),
        (["null", "int", "string"], 5, pa.string()),
    ],
)
def test_a_value_that_does_not_fit_the_column_is_not_stored_as_another(kind, value, declared):
    assert one(kind, value, declared) == (None, "VALUE_CHANGED(v)")


def test_records_of_several_schemas_stay_in_their_order():
    old = avro_record(id="int")
    new = avro_record(id="long", a=["null", "string"], more="int")
    records = [
        framed(2, encoded(new, {"id": 0, "a": "x", "more": 1})),
        framed(1, encoded(old, {"id": 1})),
        None,
        framed(2, encoded(new, {"id": 2**40, "a": "x", "more": 1})),
        framed(2, encoded(new, {"id": 3, "a": None, "more": 1})),
        framed(1, encoded(old, {"id": 4})),
    ]
    found = read({1: old, 2: new}, records, a=pa.string(), id=pa.int32())

    assert rows(found) == [
        {"a": "x", "id": 0}, {"a": None, "id": 1}, None, None, {"a": None, "id": 3}, {"a": None, "id": 4},
    ]  # fmt: skip
    assert found.codes.to_pylist() == [None, None, None, "VALUE_CHANGED(id)", None, None]
    assert found.ids.to_pylist() == [2, 1, None, 2, 2, 1]


def test_a_value_that_is_no_record_of_its_schema_is_none_to_the_last_byte():
    schema = avro_record(id="int", a="string", f="double")
    whole = framed(1, encoded(schema, {"id": 1, "a": "hello", "f": 0.5}))
    damaged = [
        whole[:-1],
        whole + b"\x00",
        whole[:5],
        whole[:4],
        b"",
        b"\x01" + whole[1:],
        b"{}",
        b"\x00\xff" + whole[2:],
    ]
    not_text = framed(1, b"\x02\x02\xff" + b"\x00" * 8)
    # Lengths that no record has: 2^62 bytes, and fewer than none.
    hostile = [framed(1, b"\x02" + size + b"x") for size in (b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", b"\x01")]
    records = [whole, *damaged, not_text, *hostile, whole]
    found = read({1: schema}, records, id=pa.int32())

    assert rows(found) == [{"id": 1}, *[None] * (len(records) - 2), {"id": 1}]
    assert found.codes.to_pylist() == [None, *[NOT_AVRO] * (len(records) - 2), None]
    assert found.ids.to_pylist()[1:9] == [1, 1, 1, None, None, None, None, None]


def test_arrays_cannot_be_larger_than_their_bytes():
    items = avro_record(v={"type": "array", "items": "int"})
    huge = framed(1, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\x02" * 100)
    nothing = framed(2, b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f\x00")
    empty = avro_record(v={"type": "array", "items": "null"})
    found = read({1: items, 2: empty}, [huge, nothing], v=pa.list_(pa.int32()))

    assert found.codes.to_pylist() == [NOT_AVRO, NOT_AVRO]


def test_a_record_within_itself_may_be_as_deep_as_it_likes():
    tree = {
        "type": "record",
        "name": "t",
        "fields": [{"name": "v", "type": "int"}, {"name": "t", "type": ["null", "t"]}],
    }
    flat, deep = framed(1, b"\x02\x00"), framed(1, b"\x02\x02" * 100_000 + b"\x02\x00")
    found = read({1: tree}, [flat, deep], v=pa.int32())

    assert (rows(found), found.codes.to_pylist()) == ([{"v": 1}, None], [None, NOT_AVRO])


@pytest.mark.parametrize(
    "schema",
    [
        None,
        FramedSchema("{"),
        FramedSchema('"string"'),
        FramedSchema(json.dumps([avro_record(v="int"), "null"])),
        FramedSchema(json.dumps(avro_record(v="none.such"))),
    ],
)
def test_a_schema_that_is_none_of_a_record_of_avro_has_no_records(schema):
    assert read({1: schema}, [framed(1, b"\x02")], v=pa.int32()).codes.to_pylist() == [NOT_AVRO]


def test_a_schema_that_the_registry_does_not_know():
    found = read({}, [framed(9, b"\x02")], v=pa.int32())

    assert (found.codes.to_pylist(), found.ids.to_pylist()) == ([UNKNOWN_SCHEMA], [9])


def test_types_of_other_schemas_are_known():
    currency = {"type": "enum", "name": "shop.currency", "symbols": ["EUR", "USD"]}
    money = {
        "type": "record", "name": "money", "namespace": "shop",
        "fields": [
            {"name": "cents", "type": logical("bytes", "decimal", precision=5, scale=2)},
            {"name": "currency", "type": "currency"},
        ],
    }  # fmt: skip
    order = avro_record(price="shop.money", before=["null", "shop.money"])
    value = {"price": {"cents": Decimal("1.50"), "currency": "USD"}, "before": None}
    record = framed(1, encoded(order, value, currency, money))
    schema = FramedSchema(json.dumps(order), (json.dumps(currency), json.dumps(money)))
    kind = pa.struct([("cents", pa.decimal128(10, 2)), ("currency", pa.string())])
    found = read({1: schema}, [record], price=kind, before=kind)

    assert rows(found) == [value]
    assert (
        read({1: FramedSchema(json.dumps(order), (json.dumps(money),))}, [record], price=kind).codes[0].as_py()
        == NOT_AVRO
    )


def test_a_schema_of_the_declaration_has_aliases_and_defaults():
    written = avro_record(id="int", old="string")
    asked = {
        "type": "record", "name": "r",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "name", "type": "string", "aliases": ["old"]},
            {"name": "country", "type": "string", "default": "FR"},
        ],
    }  # fmt: skip
    other = avro_record(id="string", old="string")
    records = [framed(1, encoded(written, {"id": 1, "old": "a"})), framed(2, encoded(other, {"id": "x", "old": "a"}))]
    columns = {"id": pa.int64(), "name": pa.string(), "country": pa.string()}
    found = read({1: written, 2: other}, records, schema=json.dumps(asked), **columns)

    assert rows(found) == [{"id": 1, "name": "a", "country": "FR"}, None]
    assert found.codes.to_pylist() == [None, NOT_AVRO]


def test_a_field_that_had_the_name_before_gives_the_column():
    schema = {"type": "record", "name": "r", "fields": [{"name": "new", "type": "int", "aliases": ["v"]}]}

    assert rows(read({1: schema}, [framed(1, b"\x02")], v=pa.int32())) == [{"v": 1}]


def test_a_key_may_be_a_value_alone():
    assert rows(read({1: "string"}, [framed(1, encoded("string", "k"))], is_key=True, id=pa.string())) == [{"id": "k"}]
    long = logical("long", "timestamp-millis")
    found = read({1: long}, [framed(1, encoded("long", 0))], is_key=True, at=UTC_TIME)
    assert rows(found) == [{"at": datetime(1970, 1, 1, tzinfo=UTC)}]
    two = read({1: "string"}, [framed(1, encoded("string", "k"))], is_key=True, a=pa.string(), b=pa.string())
    assert two.codes.to_pylist() == [NOT_AVRO]


def test_a_record_that_is_too_large_is_not_decoded_and_a_small_one_may_have_many_values():
    schema = avro_record(v={"type": "array", "items": "int"})
    many = framed(1, encoded(schema, {"v": [0] * 1_000}))
    found = read({1: schema}, [many], most_bytes=len(many), v=pa.list_(pa.int64()))
    assert (len(rows(found)[0]["v"]), found.codes[0].as_py()) == (1_000, None)

    found = read({1: schema}, [many], most_bytes=len(many) - 1, v=pa.list_(pa.int64()))
    # The reader of the records reports that one is too large.
    assert (rows(found), found.codes.to_pylist()) == ([None], [None])


def test_damage_is_found_or_is_another_record_of_the_schema():
    chance = Random(5)
    schema = avro_record(
        id="long", a=["null", "string"], l={"type": "array", "items": "string"}, m={"type": "map", "values": "int"}
    )
    whole = encoded(schema, {"id": 5, "a": "abc", "l": ["x", "yy"], "m": {"k": 1}})
    records = []
    for _ in range(3_000):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        cut = damaged[: chance.randrange(len(damaged) + 1)] if chance.random() < 0.3 else damaged
        records.append(framed(1, bytes(cut)))
    found = read({1: schema}, records, id=pa.int64(), a=pa.string(), l=pa.list_(pa.string()))

    for record, row, code in zip(records, rows(found), found.codes.to_pylist(), strict=True):
        file = io.BytesIO(record[5:])
        try:
            value: object = fastavro.schemaless_reader(file, schema, None)
        except Exception:  # noqa: BLE001 - the oracle is the decoder itself
            value = None
        if isinstance(value, dict) and file.read() == b"":
            assert (row, code) == ({name: value[name] for name in ("id", "a", "l")}, None)
        else:
            assert (row, code) == (None, NOT_AVRO)
