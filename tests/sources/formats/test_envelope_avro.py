"""One event of Debezium as Avro is the event that its JSON is; pure, without Spark and Kafka."""

from __future__ import annotations

import base64
import io
import json
import random
from decimal import Decimal
from functools import cache
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from freshline.sources.formats.avro_topics import FramedSchema
from freshline.sources.formats.envelope import EnvelopeFacts, EnvelopeReader, Rejected
from freshline.sources.formats.envelope_avro import AvroEnvelopes
from tests.lanes import few_or_many
from tests.registry import framed

MARKER = "__debezium_unavailable_value"
CONNECT, TIME = "org.apache.kafka.connect.data", "io.debezium.time"


def named(of: str, name: str, **parameters: object) -> dict[str, Any]:
    """A type as Confluent's converter writes one of Kafka Connect."""
    found: dict[str, Any] = {"type": of, "connect.version": 1, "connect.name": name}
    if parameters:
        found["connect.parameters"] = {key: str(value) for key, value in parameters.items()}
    return found


DECIMAL = {**named("bytes", f"{CONNECT}.Decimal", scale=2), "logicalType": "decimal", "precision": 10, "scale": 2}
VARIABLE: dict[str, Any] = {
    "type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "connect.version": 1,
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}  # fmt: skip
POINT: dict[str, Any] = {
    "type": "record", "name": "Point", "namespace": "shop",
    "fields": [
        {"name": "x", "type": "double"},
        {"name": "at", "type": named("long", f"{TIME}.MicroTimestamp")},
    ],
}  # fmt: skip
SOURCE: dict[str, Any] = {
    "type": "record", "name": "Source", "namespace": "io.debezium.connector.postgresql",
    "fields": [
        {"name": "connector", "type": "string"},
        {"name": "ts_ms", "type": "long"},
        {"name": "lsn", "type": ["null", "long"], "default": None},
        {"name": "txId", "type": ["null", "long"], "default": None},
        {"name": "snapshot", "type": [{"type": "string", "connect.parameters": {"allowed": "true"}}, "null"]},
    ],
}  # fmt: skip
# A column of each kind: how Avro and Kafka Connect have it, what it is declared as, and some values.
KINDS: dict[str, tuple[Any, Any, Any, list[Any]]] = {
    "i": ("int", {"type": "int32"}, LongType(), [0, -1, 2**31 - 1]),
    "l": ("long", {"type": "int64"}, DecimalType(20, 0), [2**63 - 1, -(2**63)]),
    "b": ("boolean", {"type": "boolean"}, BooleanType(), [True, False]),
    "s": ("string", {"type": "string"}, StringType(), ["é😀", "", MARKER, "1234"]),
    "y": ("bytes", {"type": "bytes"}, BinaryType(), [b"\x00\xff", b"", MARKER.encode()]),
    "f": ("float", {"type": "float"}, FloatType(), [0.5, -0.0, 3.4028235e38, 0.1]),
    "d": ("double", {"type": "double"}, DoubleType(), [0.1, 5e-324, 1e300]),
    "n": (DECIMAL, {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}}, DecimalType(12, 3),
          [Decimal("-1.50"), Decimal("12345678.99")]),
    "nt": (DECIMAL, {"type": "bytes", "name": f"{CONNECT}.Decimal", "parameters": {"scale": "2"}}, StringType(),
           [Decimal("-1.50"), Decimal("0.00")]),
    "v": (VARIABLE, {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}, DecimalType(10, 2),
          [{"scale": 1, "value": b"\x7b"}, {"scale": 0, "value": b"\xff"}]),
    "nd": ("string", {"type": "string"}, DecimalType(10, 2), ["1.5", "1234"]),
    "da": (named("int", f"{TIME}.Date"), {"type": "int32", "name": f"{TIME}.Date"}, DateType(), [0, -719_162]),
    "tm": (named("long", f"{TIME}.Timestamp"), {"type": "int64", "name": f"{TIME}.Timestamp"},
           TimestampType(), [0, 1_700_000_000_123]),
    "tu": (named("long", f"{TIME}.MicroTimestamp"), {"type": "int64", "name": f"{TIME}.MicroTimestamp"},
           TimestampNTZType(), [-1, 1_700_000_000_123_456]),
    "tn": (named("long", f"{TIME}.NanoTimestamp"), {"type": "int64", "name": f"{TIME}.NanoTimestamp"},
           TimestampType(), [1_000, 1]),
    "tc": ({**named("long", f"{CONNECT}.Timestamp"), "logicalType": "timestamp-millis"},
           {"type": "int64", "name": f"{CONNECT}.Timestamp"}, TimestampType(), [5, -5]),
    "tz": (named("string", f"{TIME}.ZonedTimestamp"), {"type": "string", "name": f"{TIME}.ZonedTimestamp"},
           TimestampType(), ["2026-11-26T12:00:00.5Z", "2026-11-26T12:00:00+02:00", "none"]),
    "a": ({"type": "array", "items": ["null", "long"]}, {"type": "array", "items": {"type": "int64"}},
          ArrayType(LongType()), [[1, None], []]),
    "ta": ({"type": "array", "items": "string"}, {"type": "array", "items": {"type": "string"}},
           ArrayType(StringType()), [["x"], [MARKER]]),
    "m": ({"type": "map", "values": "string"}, {"type": "map", "values": {"type": "string"}},
          MapType(StringType(), StringType()), [{"k": "v"}, {MARKER: MARKER}, {}]),
    "p": (POINT, {"type": "struct", "fields": [
            {"field": "x", "type": "double"},
            {"field": "at", "type": "int64", "name": f"{TIME}.MicroTimestamp"}]},
          StructType([StructField("x", DoubleType()), StructField("at", TimestampType())]), [{"x": 1.5, "at": 7}]),
}  # fmt: skip
COLUMNS = (("id", IntegerType()), *((name, kind) for name, (_, _, kind, _) in KINDS.items()))


def envelope_schema():
    fields: list[dict[str, Any]] = [{"name": "id", "type": "int"}]
    fields += [{"name": name, "type": ["null", of], "default": None} for name, (of, *_) in KINDS.items()]
    row = {"type": "record", "name": "Value", "fields": fields}
    return {
        "type": "record", "name": "Envelope", "namespace": "shop.public.customer",
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": SOURCE},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }  # fmt: skip


def inline_schema():
    row: list[dict[str, Any]] = [{"field": "id", "type": "int32"}]
    row += [{"field": name, **of} for name, (_, of, *_) in KINDS.items()]
    sides = [{"field": side, "type": "struct", "fields": row} for side in ("before", "after")]
    return {"type": "struct", "fields": sides}


def as_json(value):
    """A value as JsonConverter writes it."""
    match value:
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            unscaled = int(value.scaleb(2))
            return base64.b64encode(unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)).decode()
        case dict():
            return {name: as_json(each) for name, each in value.items()}
        case list():
            return [as_json(each) for each in value]
        case _:
            return value


def encoded(schema, value):
    file = io.BytesIO()
    fastavro.schemaless_writer(file, _parsed(json.dumps(schema)), value)
    return file.getvalue()


@cache
def _parsed(schema):
    return fastavro.parse_schema(json.loads(schema))


def reader(schemas, *columns, **options):
    reading = EnvelopeFacts(columns or COLUMNS, ("id",), **options)
    return AvroEnvelopes(EnvelopeReader(reading), {n: FramedSchema(json.dumps(each)) for n, each in schemas.items()})


def outcome(read, record):
    try:
        return read(record)
    except Rejected as rejected:
        return str(rejected)


def random_event(chance):
    def row(key):
        values = {name: chance.choice([None, *values]) for name, (_, _, _, values) in KINDS.items()}
        # For a text that is no time only its rejection is compared, which is of its column alone.
        return {"id": key, **values, "tz": chance.choice([values["tz"], None, "2026-11-26T12:00:00Z"])}

    op, key = chance.choice("crud"), chance.choice([1, 2])
    before = row(key) if op in "ud" else None
    after = None if op == "d" else row(key if chance.random() < 0.9 else 3)
    lsn = chance.choice([None, chance.randrange(2**40)])
    source = {
        "connector": "postgresql", "ts_ms": 1_700_000_000_000 + chance.randrange(1_000), "lsn": lsn,
        "txId": chance.choice([None, 7]), "snapshot": chance.choice([None, "false"]),
    }  # fmt: skip
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_800_000_000_000}


@pytest.mark.parametrize("count", few_or_many(400, 20_000))
def test_an_event_is_the_same_as_avro_and_as_json(count):
    schema, inline = envelope_schema(), inline_schema()
    of_avro = reader({7: schema})
    of_json = EnvelopeReader(EnvelopeFacts(COLUMNS, ("id",)))
    chance = random.Random(20)
    kinds = set()
    for _ in range(count):
        event = random_event(chance)
        found = outcome(of_avro.read, framed(7, encoded(schema, event)))
        expected = outcome(of_json.read, json.dumps({"schema": inline, "payload": as_json(event)}).encode())
        assert (found, repr(found)) == (expected, repr(expected))
        kinds.add(found if isinstance(found, str) else "event")

    assert {"event", "NOT_ENVELOPE", "VALUE_CHANGED(tn)"} <= kinds


def small(**fields):
    row = {"type": "record", "name": "Value", "fields": [{"name": n, "type": of} for n, of in fields.items()]}
    return {
        "type": "record", "name": "Envelope",
        "fields": [{"name": "after", "type": ["null", row]}, {"name": "op", "type": "string"}],
    }  # fmt: skip


def test_no_envelope_and_no_avro_have_codes_of_their_own():
    schema, other = small(id="int"), {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
    tree = small(id="int", t=["null", "Envelope"])
    read = reader({1: schema, 2: other, 3: tree, 4: "string"}, ("id", IntegerType())).read
    whole = framed(1, encoded(schema, {"after": {"id": 1}, "op": "c"}))

    assert read(whole).values == (1,)
    assert outcome(read, whole[:-1]) == "NOT_AVRO"
    assert outcome(read, whole + b"\x00") == "NOT_AVRO"
    assert outcome(read, b"{}") == "NOT_AVRO"
    assert outcome(read, framed(2, b"\x02")) == "NOT_ENVELOPE"
    assert outcome(read, framed(3, b"\x00\x02c")) == "NOT_AVRO"
    assert outcome(read, framed(4, b"\x02c")) == "NOT_AVRO"
    assert outcome(read, framed(5, b"\x02c")) == "UNKNOWN_SCHEMA"
    assert outcome(read, framed(1, encoded(schema, {"after": {"id": 1}, "op": "x"}))) == "NOT_ENVELOPE"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 0.1, 1e-45, -0.0])
@pytest.mark.parametrize(
    ("of", "declared"), [("float", FloatType()), ("double", DoubleType()), ("float", DoubleType())]
)
def test_numbers_with_a_point_are_what_they_were(of, declared, value):
    schema = small(id="int", v=of)
    read = reader({1: schema}, ("id", IntegerType()), ("v", declared)).read
    found = read(framed(1, encoded(schema, {"after": {"id": 1, "v": value}, "op": "c"}))).values[1]

    # Of a number of 32 bits JSON has the shortest text, and a wider column the number nearest to that.
    assert str(found) == str(value)


def test_a_number_for_a_time_needs_a_unit():
    schema = small(id="int", v="long")
    record = framed(1, encoded(schema, {"after": {"id": 1, "v": 5}, "op": "c"}))
    columns = (("id", IntegerType()), ("v", TimestampType()))

    assert outcome(reader({1: schema}, *columns).read, record) == "TIME_UNIT"
    assert reader({1: schema}, *columns, time_unit="milliseconds").read(record).values == (1, 5_000)


def test_logical_types_alone_have_their_meaning_too():
    kinds = {
        "n": {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
        "t": {"type": "long", "logicalType": "timestamp-micros"},
        "l": {"type": "long", "logicalType": "local-timestamp-millis"},
        "d": {"type": "int", "logicalType": "date"},
        "e": {"type": "enum", "name": "e", "symbols": ["A"]},
        "f": {"type": "fixed", "name": "f", "size": 2},
    }
    schema = small(id="int", **kinds)
    columns = [("n", DecimalType(10, 2)), ("t", TimestampType()), ("l", TimestampNTZType()), ("d", DateType())]
    columns += [("e", StringType()), ("f", BinaryType())]
    after = {"id": 1, "n": Decimal("1.5"), "t": 5, "l": 6, "d": 7, "e": "A", "f": b"xy"}
    read = reader({1: schema}, ("id", IntegerType()), *columns).read

    assert read(framed(1, encoded(schema, {"after": after, "op": "c"}))).values == (
        1, Decimal("1.50"), 5, 6_000, 7, "A", b"xy",
    )  # fmt: skip
