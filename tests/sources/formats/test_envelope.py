"""One record of Debezium becomes one event, or a code of quarantine: pure, without Spark and Kafka."""

from __future__ import annotations

import base64
import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
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

from freshline.sources.formats.envelope import EnvelopeFacts, EnvelopeReader, Rejected
from tests.lanes import few_or_many

DECIMAL = "org.apache.kafka.connect.data.Decimal"
MARKER = "__debezium_unavailable_value"
POSTGRES = {"version": "3.6", "connector": "postgresql", "name": "shop", "ts_ms": 1_700_000_000_123, "lsn": 2**32 + 5}
COLUMNS = (("id", IntegerType()), ("v", StringType()))


def reader(*columns, keys=("id",), **options):
    return EnvelopeReader(EnvelopeFacts(columns or COLUMNS, keys, **options))


def envelope(op="c", after=None, before=None, source=POSTGRES, **more):
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_999, **more}


def encoded(value):
    return value if isinstance(value, bytes) else json.dumps(value).encode()


def read(value, *columns, keys=("id",), **options):
    return reader(*columns, keys=keys, **options).read(encoded(value))


def rejection(value, *columns, **options):
    with pytest.raises(Rejected) as caught:
        read(value, *columns, **options)
    return str(caught.value)


def column(kind, value, schema=None, **options):
    """The value of a column of a type, in an event whose inline schema has the field; the code of a rejection."""
    given = value if isinstance(value, bytes) else json.dumps(value).encode()
    body = b'{"op": "c", "source": null, "before": null, "after": {"id": 1, "v": ' + given + b"}}"
    if schema is not None:
        after = {
            "field": "after",
            "type": "struct",
            "fields": [{"field": "id", "type": "int32"}, {"field": "v", **schema}],
        }
        body = (
            b'{"schema": ' + json.dumps({"type": "struct", "fields": [after]}).encode() + b', "payload": ' + body + b"}"
        )
    try:
        return read(body, ("id", IntegerType()), ("v", kind), **options).values[1]
    except Rejected as rejected:
        return str(rejected)


def unscaled(number, size=None):
    size = size or (number.bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def micros(year, month, day, hour, minute, second):
    return (
        datetime(year, month, day, hour, minute, second, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    ) // timedelta(microseconds=1)


# -- envelopes


@pytest.mark.parametrize("op", ["c", "u", "r"])
def test_an_insert_an_update_and_a_snapshot_have_the_new_image(op):
    event = read(envelope(op, {"id": 1, "v": "x", "more": 5}))

    assert (event.values, event.op, event.unsent) == ((1, "x"), op, ())
    assert (event.position, event.changed_at) == ("postgresql:00000001/00000005", 1_700_000_000_123_000)


def test_a_delete_has_the_key_alone():
    assert read(envelope("d", None, {"id": 1, "v": "x"})).values == (1, None)


def test_a_truncate_has_no_row():
    event = read(envelope("t"))

    assert (event.values, event.op, event.position) == ((None, None), "t", "postgresql:00000001/00000005")
    assert read({"op": "t", "source": None}).op == "t"


def test_an_envelope_with_its_schema_is_the_same():
    assert read({"schema": {"type": "struct"}, "payload": envelope("c", {"id": 1, "v": "x"})}).values == (1, "x")
    assert read({"schema": None, "payload": envelope("c", {"id": 1, "v": "x"})}).values == (1, "x")


def test_a_payload_without_a_value_says_nothing():
    assert rejection({"schema": None, "payload": None}) == "TOMBSTONE"


def test_a_field_that_is_missing_is_null():
    assert read(envelope("c", {"id": 1})).values == (1, None)


@pytest.mark.parametrize(
    "value",
    [
        b"", b"{", b"[]", b"1", b'"op"', b"null x", b"NaN", b"{}", b'{"op": "c"}', b'{"id": 1, "v": "x"}',
        b'{"op": "m", "before": null, "after": null}', b'{"op": "c", "before": null, "after": null}',
        b'{"op": "d", "before": null, "after": {"id": 1}}', b'{"op": "c", "after": [1]}',
        b'{"op": 5, "after": {"id": 1}}', b'{"op": ["c"], "after": {"id": 1}}', b'{"op": "c", "after": {"id": NaN}}',
        b'{"op": "c", "after": {"id": 1}} {}',
        b"[" * 100_000, b'{"op": "c", "after": ' + b'{"a":' * 50_000,
    ],
)  # fmt: skip
def test_a_value_that_is_no_envelope_is_rejected(value):
    assert rejection(value) == "NOT_ENVELOPE"


def test_a_value_that_nests_too_deep_is_rejected():
    deep = b"[" * 2_000 + b"]" * 2_000

    assert rejection(b'{"op": "c", "after": {"id": 1, "v": ' + deep + b"}}") == "NOT_ENVELOPE"


@pytest.mark.parametrize("value", [b"\xff\xfe", b'{"op": "c", "after": {"id": 1, "v": "\\ud800"}}'])
def test_a_text_outside_utf8_is_rejected(value):
    assert rejection(value) == "NOT_UTF8"


def test_a_character_of_two_escapes_is_one():
    assert read(b'{"op": "c", "after": {"id": 1, "v": "\\ud83d\\ude00"}}').values == (1, "\U0001f600")


@pytest.mark.parametrize(
    "value",
    [b'{"op": "c", "after": {"id": 1, "id": 2}}', b'{"op": "c", "op": "d", "before": {"id": 1}, "after": {"id": 1}}'],
)
def test_a_name_that_stands_twice_has_no_one_value(value):
    assert rejection(value) == "NOT_ENVELOPE"


def test_a_byte_order_mark_is_passed_over():
    assert read(b"\xef\xbb\xbf" + encoded(envelope("c", {"id": 1, "v": "x"}))).values == (1, "x")


def test_an_update_that_changes_the_key_is_none_of_debezium():
    assert rejection(envelope("u", {"id": 2, "v": "x"}, {"id": 1, "v": "x"})) == "NOT_ENVELOPE"
    assert read(envelope("u", {"id": 1, "v": "y"}, {"id": 1, "v": "x"})).values == (1, "y")
    # Without a full image of before nothing is known of the key.
    assert read(envelope("u", {"id": 1, "v": "y"}, {"v": "x"})).values == (1, "y")


def test_a_null_key_is_left_to_the_judge():
    assert read(envelope("c", {"id": None, "v": "x"})).values == (None, "x")


# -- flattened events


@pytest.mark.parametrize("deleted", [False, "false"])
def test_a_flattened_row_is_an_event(deleted):
    row = {"id": 1, "v": "x", "__deleted": deleted}

    assert (read(row).values, read(row).op, read(row).position) == ((1, "x"), "u", None)
    assert read({**row, "__op": "r"}).op == "r"
    assert read({"schema": None, "payload": {**row, "__op": "c"}}).op == "c"


@pytest.mark.parametrize("deleted", [True, "true"])
def test_a_flattened_row_that_is_deleted_has_its_key_alone(deleted):
    event = read({"id": 1, "v": "x", "__deleted": deleted, "__op": "d"})

    assert (event.values, event.op) == ((1, None), "d")
    assert read({"id": 1, "v": "x", "__deleted": deleted}).op == "d"


@pytest.mark.parametrize(
    ("more", "position", "transaction", "changed_at"),
    [
        ({"__lsn": 5, "__txId": 3, "__ts_ms": 7}, "postgresql:00000000/00000005", "3", 7000),
        ({"__source_lsn": 5, "__source_ts_ms": 6, "__ts_ms": 7}, "postgresql:00000000/00000005", None, 6000),
        ({"__source_file": "b.1", "__source_pos": 4, "__source_row": 2, "__source_connector": "mariadb"},
         "mariadb:b.000000000001/00000000000000000004/0000000002", None, None),
        ({"__file": "b.1", "__pos": 4}, "mysql:b.000000000001/00000000000000000004/0000000000", None, None),
        ({"__commit_lsn": "a", "__change_lsn": "b"}, "sqlserver:a/b/0000000000", None, None),
        ({"__transaction_id": "9:1"}, None, "9:1", None),
    ],
)  # fmt: skip
def test_facts_of_a_flattened_row_stand_beside_its_columns(more, position, transaction, changed_at):
    event = read({"id": 1, "v": "x", "__deleted": "false", **more})

    assert (event.position, event.transaction, event.changed_at) == (position, transaction, changed_at)


def test_a_flattened_row_may_lack_values_and_has_a_schema_of_its_own():
    schema = {"type": "struct", "fields": [{"field": "v", "name": "io.debezium.time.MicroTimestamp"}]}
    kind = (("id", IntegerType()), ("v", TimestampType()))

    assert read({"id": 1, "v": MARKER, "__deleted": "false"}).unsent == ("v",)
    assert read({"schema": schema, "payload": {"id": 1, "v": -7, "__deleted": "false"}}, *kind).values == (1, -7)


def test_a_table_with_columns_of_an_envelope_may_be_flattened():
    columns = ("id", IntegerType()), ("op", StringType()), ("before", StringType()), ("after", StringType())

    assert read({"id": 1, "op": "x", "before": "b", "after": "a", "__deleted": "false"}, *columns).values == (
        1, "x", "b", "a",
    )  # fmt: skip


@pytest.mark.parametrize("row", [{"__op": "c"}, {"__deleted": None}, {"__deleted": 1}, {"__deleted": "no"},
                                 {"__deleted": "false", "__op": "t"}])  # fmt: skip
def test_a_row_of_which_nobody_knows_whether_it_was_deleted_is_no_event(row):
    assert rejection({"id": 1, "v": "x", **row}) == "NOT_ENVELOPE"


# -- facts


@pytest.mark.parametrize(
    ("source", "position"),
    [
        (POSTGRES, "postgresql:00000001/00000005"),
        ({"connector": "postgresql", "lsn": None}, None),
        ({"connector": "mysql", "file": "mysql-bin.000003", "pos": 154, "row": 2},
         "mysql:mysql-bin.000000000003/00000000000000000154/0000000002"),
        ({"connector": "mariadb", "file": "b.x.10", "pos": 4, "row": 0},
         "mariadb:b.x.000000000010/00000000000000000004/0000000000"),
        ({"connector": "mysql", "file": "", "pos": 0}, None),
        ({"connector": "sqlserver", "commit_lsn": "0000:01:0003", "change_lsn": "0000:01:0002", "event_serial_no": 2},
         "sqlserver:0000:01:0003/0000:01:0002/0000000002"),
        ({"connector": "oracle", "scn": "12", "ts_ms": 5, "db": "x", "ssn": 1}, 'oracle:{"scn":"12","ssn":1}'),
        ({"connector": "other", "ts_ms": 5}, None),
        ({"lsn": 5}, None), (None, None), ("x", None),
    ],
)  # fmt: skip
def test_the_position_names_the_place_in_the_database(source, position):
    assert read(envelope("c", {"id": 1}, source=source)).position == position


def test_positions_of_one_database_are_in_order_as_texts():
    lsns = sorted(random.Random(1).sample(range(2**40), 50))
    places = [read(envelope("c", {"id": 1}, source={"connector": "postgresql", "lsn": lsn})).position for lsn in lsns]
    files = [(9, 900), (10, 4), (10, 1000), (99, 4), (100, 4), (1_000_000, 4)]
    binlog = [
        read(envelope("c", {"id": 1}, source={"connector": "mysql", "file": f"b.{file:06}", "pos": at})).position
        for file, at in files
    ]

    assert places == sorted(places)
    assert binlog == sorted(binlog)


@pytest.mark.parametrize(
    ("source", "more", "transaction"),
    [
        ({"txId": 7}, {}, "7"),
        ({"gtid": "a:1"}, {}, "a:1"),
        ({"txId": 7}, {"transaction": {"id": "7:9", "total_order": 1}}, "7:9"),
        ({}, {"transaction": None}, None),
    ],
)
def test_the_transaction_is_that_of_the_database(source, more, transaction):
    assert read(envelope("c", {"id": 1}, source=source, **more)).transaction == transaction


# -- values by the declared type


@pytest.mark.parametrize(
    ("value", "schema", "options"),
    [
        (unscaled(-12345), {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, {}),
        (unscaled(-12345, 9), {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}, {}),
        (unscaled(-1234500), {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "4"}}, {}),
        (unscaled(-12345), None, {}),
        (unscaled(-12345), None, {"decimals": "base64"}),
        ({"scale": 3, "value": unscaled(-123450)}, {"name": "io.debezium.data.VariableScaleDecimal"}, {}),
        ({"scale": 2, "value": unscaled(-12345)}, None, {}),
        (b"-123.45", None, {}),
        (b"-1.2345e2", None, {}),
        ("-123.45", None, {}),
        ("-123.450", None, {"decimals": "text"}),
        ("-123.45", {"type": "string"}, {}),
    ],
)  # fmt: skip
def test_a_decimal_is_the_same_however_it_is_written(value, schema, options):
    assert column(DecimalType(10, 2), value, schema, **options) == Decimal("-123.45")


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ({"scale": -2, "value": unscaled(5)}, DecimalType(10, 2), Decimal("500.00")),
        ({"scale": -2, "value": unscaled(5)}, DecimalType(2, 0), "VALUE_CHANGED(v)"),
        (b"0.005", DecimalType(10, 2), "VALUE_CHANGED(v)"),
        (b"-0.005", DecimalType(10, 2), "VALUE_CHANGED(v)"),
        (b"100000000.00", DecimalType(10, 2), "VALUE_CHANGED(v)"),
        (b"-99999999.99", DecimalType(10, 2), Decimal("-99999999.99")),
        (b"1e400", DecimalType(38, 0), "VALUE_CHANGED(v)"),
        (b"9" * 38, DecimalType(38, 0), Decimal("9" * 38)),
        (b"9" * 5000, DecimalType(38, 0), "VALUE_CHANGED(v)"),
        ({"scale": -1_000_000_000, "value": unscaled(5)}, DecimalType(10, 2), "NOT_ENVELOPE"),
        ({"scale": 2}, DecimalType(10, 2), "NOT_ENVELOPE"),
        # Three bytes of another number, or a thousand.
        ("1234", DecimalType(10, 2), "NOT_ENVELOPE"),
        ("x y", DecimalType(10, 2), "NOT_ENVELOPE"),
        ("", DecimalType(10, 2), "NOT_ENVELOPE"),
        ("NaN", DecimalType(10, 2), "NOT_ENVELOPE"),
        (b"true", DecimalType(10, 2), "NOT_ENVELOPE"),
    ],
)
def test_a_decimal_is_exact_or_rejected(value, kind, expected):
    assert column(kind, value) == expected


def test_the_meaning_of_a_text_of_digits_may_be_declared():
    assert column(DecimalType(10, 2), "1234", decimals="text") == Decimal("1234.00")
    assert column(DecimalType(10, 2), "1234", decimals="base64") == Decimal(
        int.from_bytes(base64.b64decode("1234"), "big", signed=True)
    ).scaleb(-2)
    assert column(DecimalType(10, 2), "1234", {"type": "string"}) == Decimal("1234.00")


@pytest.mark.parametrize(
    ("value", "schema", "options"),
    [
        (1_700_000_000_123, {"type": "int64", "name": "io.debezium.time.Timestamp"}, {}),
        (1_700_000_000_123, {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, {}),
        (1_700_000_000_123_000, {"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, {}),
        (1_700_000_000_123_000_000, {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, {}),
        (1_700_000_000_123, None, {"time_unit": "milliseconds"}),
        (1_700_000_000_123_000, {"type": "int64"}, {"time_unit": "microseconds"}),
        (1_700_000_000_123_000_000, None, {"time_unit": "nanoseconds"}),
        # The schema knows better.
        (1_700_000_000_123, {"type": "int64", "name": "io.debezium.time.Timestamp"}, {"time_unit": "nanoseconds"}),
        ("2023-11-14T22:13:20.123Z", None, {}),
        ("2023-11-14T22:13:20.123", None, {}),
        ("2023-11-14 22:13:20.123000000", None, {}),
    ],
)
@pytest.mark.parametrize("kind", [TimestampType(), TimestampNTZType()])
def test_a_time_is_the_same_however_it_is_written(kind, value, schema, options):
    assert column(kind, value, schema, **options) == 1_700_000_000_123_000


@pytest.mark.parametrize(
    ("kind", "value", "options", "expected"),
    [
        (TimestampType(), 1_700_000_000_123, {}, "TIME_UNIT"),
        (TimestampType(), -1, {"time_unit": "milliseconds"}, -1000),
        (TimestampType(), -1, {"time_unit": "nanoseconds"}, "VALUE_CHANGED(v)"),
        (TimestampType(), 2**62, {"time_unit": "milliseconds"}, "VALUE_CHANGED(v)"),
        (TimestampType(), b"1.5", {"time_unit": "milliseconds"}, "VALUE_CHANGED(v)"),
        (TimestampType(), "2023-11-14T22:13:20+01:30", {}, micros(2023, 11, 14, 20, 43, 20)),
        (TimestampType(), "1969-12-31T23:59:59.999999-00:00", {}, -1),
        (TimestampType(), "2023-11-14T22:13:20.1234567Z", {}, "VALUE_CHANGED(v)"),
        (TimestampType(), "2023-02-30T00:00:00Z", {}, "NOT_ENVELOPE"),
        (TimestampType(), "2023-11-14T24:00:00Z", {}, "NOT_ENVELOPE"),
        (TimestampType(), "0001-01-01T00:00:00+01:00", {}, "VALUE_CHANGED(v)"),
        (TimestampType(), "yesterday", {}, "NOT_ENVELOPE"),
        (TimestampNTZType(), "2023-11-14T22:13:20+01:00", {}, "NOT_ENVELOPE"),
        (DateType(), 19_675, {}, (date(2023, 11, 14) - date(1970, 1, 1)).days),
        (DateType(), -25_567, {}, (date(1900, 1, 1) - date(1970, 1, 1)).days),
        (DateType(), -719_162, {}, (date(1, 1, 1) - date(1970, 1, 1)).days),
        (DateType(), -719_163, {}, "VALUE_CHANGED(v)"),
        (DateType(), 2**31 - 1, {}, "VALUE_CHANGED(v)"),
        (DateType(), "1582-10-10", {}, (date(1582, 10, 10) - date(1970, 1, 1)).days),
        (DateType(), "2023-11-14Z", {}, 19_675),
        (DateType(), "2023-02-30", {}, "NOT_ENVELOPE"),
        (DateType(), True, {}, "NOT_ENVELOPE"),
    ],
)
def test_times_and_dates_at_their_bounds(kind, value, options, expected):
    assert column(kind, value, **options) == expected


def test_a_time_of_oracle_is_a_date_at_midnight_only():
    schema = {"type": "int64", "name": "io.debezium.time.Timestamp"}

    assert column(DateType(), 86_400_000 * 3, schema) == 3
    assert column(DateType(), -86_400_000, schema) == -1
    assert column(DateType(), 86_400_001, schema) == "VALUE_CHANGED(v)"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (LongType(), b"9007199254740993", 2**53 + 1),
        (LongType(), b"-9223372036854775808", -(2**63)),
        (LongType(), b"9223372036854775808", "VALUE_CHANGED(v)"),
        (ByteType(), b"200", "VALUE_CHANGED(v)"),
        (IntegerType(), b"1.0", "VALUE_CHANGED(v)"),
        (IntegerType(), b"1" * 5000, "VALUE_CHANGED(v)"),
        (IntegerType(), '"5"', "NOT_ENVELOPE"),
        (IntegerType(), True, "NOT_ENVELOPE"),
        (BooleanType(), True, True),
        (BooleanType(), 0, False),
        (BooleanType(), 2, "NOT_ENVELOPE"),
        (BooleanType(), "true", "NOT_ENVELOPE"),
        (DoubleType(), b"0.1", 0.1),
        (DoubleType(), b"1e400", "VALUE_CHANGED(v)"),
        (DoubleType(), "-Infinity", float("-inf")),
        (FloatType(), b"1e39", "VALUE_CHANGED(v)"),
        (DoubleType(), "x", "NOT_ENVELOPE"),
        (StringType(), b"9007199254740993", "9007199254740993"),
        (StringType(), b"-0.10", "-0.10"),
        (StringType(), b'{"b": [1.50, null, "x"], "a": true}', '{"b":[1.50,null,"x"],"a":true}'),
        (StringType(), "", ""),
        (BinaryType(), "AAEC", b"\x00\x01\x02"),
        (BinaryType(), "", b""),
        (BinaryType(), "A", "NOT_ENVELOPE"),
        (BinaryType(), b"12", "NOT_ENVELOPE"),
        (ArrayType(IntegerType()), b"[1, null, 3]", [1, None, 3]),
        (ArrayType(IntegerType()), b"[1, 3000000000]", "VALUE_CHANGED(v)"),
        (ArrayType(IntegerType()), b"{}", "NOT_ENVELOPE"),
        (StructType([StructField("x", DecimalType(5, 1))]), b'{"x": 1.5, "y": 2}', {"x": Decimal("1.5")}),
        (MapType(StringType(), LongType()), b'{"b": 1, "a": null}', [("b", 1), ("a", None)]),
        (MapType(LongType(), LongType()), b'{"1": 1}', "NOT_ENVELOPE"),
    ],
)  # fmt: skip
def test_values_of_the_other_types(kind, value, expected):
    assert column(kind, value) == expected


def test_a_decimal_in_a_text_column_is_its_digits():
    schema = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": "2"}}

    assert column(StringType(), unscaled(-5), schema) == "-0.05"


# -- values that were not sent


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (StringType(), MARKER),
        (BinaryType(), base64.b64encode(MARKER.encode()).decode()),
        (ArrayType(StringType()), [MARKER]),
        (ArrayType(IntegerType()), list(MARKER.encode())),
        (MapType(StringType(), StringType()), {MARKER: MARKER}),
        (DecimalType(10, 2), MARKER),
    ],
)
@pytest.mark.parametrize("op", ["c", "u"])
def test_a_value_that_was_not_sent_is_named(op, kind, value):
    event = read(envelope(op, {"id": 1, "v": value}), ("id", IntegerType()), ("v", kind))

    assert (event.values, event.unsent) == ((1, None), ("v",))


def test_the_marker_is_a_text_that_was_sent_in_a_snapshot_or_within_another_text():
    assert read(envelope("r", {"id": 1, "v": MARKER})).values == (1, MARKER)
    assert read(envelope("u", {"id": 1, "v": f"{MARKER} "})).values == (1, f"{MARKER} ")
    assert read(envelope("u", {"id": 1, "v": MARKER}), unavailable="other").values == (1, MARKER)


def test_a_key_is_always_sent():
    event = read(envelope("u", {"id": MARKER, "v": "x"}), ("id", StringType()), ("v", StringType()))

    assert (event.values, event.unsent) == ((MARKER, "x"), ())


# -- random


@pytest.mark.parametrize("cases", few_or_many(300, 100_000))
def test_random_decimals_are_equal_in_each_form(cases):
    chance = random.Random(7)
    for _ in range(cases):
        precision = chance.randint(1, 38)
        scale = chance.randint(0, precision)
        number = chance.randrange(-(10**precision) + 1, 10**precision)
        text = format(Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale)), "f")
        name = {"type": "bytes", "name": DECIMAL, "parameters": {"scale": str(scale)}}
        kind = DecimalType(precision, scale)
        found = {
            column(kind, unscaled(number), name),
            column(kind, unscaled(number), decimals="base64"),
            column(kind, {"scale": scale, "value": unscaled(number)}),
            column(kind, text.encode()),
            column(kind, text, decimals="text"),
        }

        assert found == {Decimal(text)}, text


@pytest.mark.parametrize("cases", few_or_many(500, 200_000))
def test_random_bytes_are_an_event_or_have_a_code(cases):
    chance = random.Random(11)
    good = encoded(envelope("u", {"id": 1, "v": "x", "d": [1, {"a": None}]}, {"id": 1}))
    decode = reader(("id", LongType()), ("v", StringType()), ("d", ArrayType(StringType())))
    codes = set()
    for _ in range(cases):
        value = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(value))
            if chance.random() < 0.5:
                value[at] = chance.choice(b'{}[]",:0129-eE\\ux \xff')
            else:
                del value[at : at + chance.randint(1, 9)]
        try:
            decode.read(bytes(value))
        except Rejected as rejected:
            codes.add(str(rejected))

    assert codes <= {"NOT_ENVELOPE", "NOT_UTF8", "VALUE_CHANGED(id)"}


# -- the key of the message

SHARD = (("id", IntegerType()), ("shard", StringType()), ("v", StringType()))


def with_key(value, key, *columns, keys=("id", "shard")):
    return reader(*(columns or SHARD), keys=keys).read(encoded(value), encoded(key))


@pytest.mark.parametrize("op", ["c", "u", "d", "r"])
def test_a_column_of_the_key_that_the_row_lacks_is_that_of_the_message(op):
    row = {"id": 5, "v": "a"}
    value = envelope(op, None if op == "d" else row, row if op in "ud" else None)
    schema = {"type": "struct", "fields": [{"field": "id", "type": "int32"}, {"field": "shard", "type": "string"}]}
    for key in ({"id": 5, "shard": "s1"}, {"schema": schema, "payload": {"id": 5, "shard": "s1"}}):
        assert with_key(value, key).values == (5, "s1", None if op == "d" else "a")
    flattened = {**row, "__deleted": "true" if op == "d" else "false"}
    assert with_key(flattened, {"id": 5, "shard": "s1"}).values[:2] == (5, "s1")


@pytest.mark.parametrize("key", [{"id": 5}, {"id": 5, "shard": "s", "more": 1}, {"other": 5}])
def test_a_key_with_other_members_than_the_declared_one_stops_the_reading(key):
    with pytest.raises(Rejected, match="MESSAGE_KEY") as raised:
        with_key(envelope("c", {"id": 5, "shard": "s", "v": "a"}), key)
    assert str(raised.value) == f"MESSAGE_KEY({', '.join(key)}; PRIMARY KEY is id, shard)"


@pytest.mark.parametrize("key", [b"5", b"Struct{id=5}", b"\xff", b"[5]", b"{}", b'"5"', b"[" * 100_000, b"null"])
def test_a_key_that_is_no_object_says_nothing(key):
    assert with_key(envelope("c", {"id": 5, "shard": "s", "v": "a"}), key).values == (5, "s", "a")


def test_a_value_that_is_no_event_does_not_ask_for_its_key():
    with pytest.raises(Rejected, match="NOT_ENVELOPE"):
        with_key({"heartbeat": 1}, {"serverName": "x"})
    assert with_key(envelope("t"), {"other": 5}).op == "t"
    with pytest.raises(Rejected, match="TOMBSTONE"):
        with_key(b"null", {"other": 5})


def test_a_rejected_record_is_of_the_row_that_its_key_or_its_image_names():
    def known(value, key=None):
        with pytest.raises(Rejected) as raised:
            reader(("id", IntegerType()), ("v", IntegerType())).read(encoded(value), key)
        found = raised.value.known
        return None if found is None else (found.values, found.op, found.position is not None)

    assert known(envelope("u", {"id": 5, "v": 2**40})) == ((5, None), "u", True)
    assert known(envelope("u", {"id": 2**40, "v": 1})) == ((None, None), "u", True)
    assert known(envelope("u", {"id": 2**40, "v": 1}), b'{"id": 5}') == ((None, None), "u", True)
    assert known(b"\xff", b'{"id": 5}') == ((5, None), None, False)
    assert known({"after": 1}, b'{"id": "5"}') == ((None, None), None, False)
    assert known(b"\xff", b"5") is None


# -- the row before


def test_the_row_before_a_change_is_known_where_keys_may_change_places():
    row, old = {"id": 1, "v": "b"}, {"id": 1, "v": "a"}
    assert read(envelope("u", row, old)).before == (1, "a")
    assert read(envelope("d", None, old)).before == (1, "a")
    assert read({**old, "__deleted": "true", "__lsn": 5}).before == (1, "a")
    assert [read(envelope(op, row)).before for op in "cru"] == [None] * 3
    # Nobody else checks the row before: a value of it that does not fit rejects no event.
    columns = (("id", IntegerType()), ("v", IntegerType()))
    assert read(envelope("u", {"id": 1, "v": 1}, {"id": 1, "v": "x"}), *columns).before == ()
    for connector in ("mysql", "mariadb", "sqlserver"):
        assert read(envelope("u", row, old, source={"connector": connector})).before is None
