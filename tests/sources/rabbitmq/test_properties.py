"""Properties of messages, from their bytes."""

from __future__ import annotations

import random
import struct
from datetime import UTC, datetime

import pytest
from pika import BasicProperties

from freshline.sources.rabbitmq.properties import Properties, digest_of, read_properties


def table(*pairs):
    body = b"".join(bytes([len(name)]) + name + value for name, value in pairs)
    return struct.pack(">I", len(body)) + body


def with_headers(*pairs):
    """The bytes of properties that have headers alone, each with its value as AMQP has it."""
    return struct.pack(">H", 1 << 13) + table(*pairs)


def test_all_properties_are_read_as_pika_writes_them():
    given = BasicProperties(
        content_type="text/plain", content_encoding="gzip", headers={"a": 1, "b": "x"}, delivery_mode=2, priority=7,
        correlation_id="c", reply_to="r", expiration="500", message_id="m", timestamp=5, type="t", user_id="u",
        app_id="shop", cluster_id="k",
    )  # fmt: skip
    found = read_properties(b"".join(given.encode()))

    assert (found.message_id, found.app_id, found.headers) == ("m", "shop", [("a", b"1"), ("b", b"x")])
    assert (found.timestamp, found.is_broken) == (datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC), False)
    assert len(found.others) == 10


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"d" + struct.pack(">d", 1.25), b"1.25"),
        (b"d" + struct.pack(">d", -0.0), b"-0.0"),
        (b"d" + struct.pack(">d", float("nan")), b"NaN"),
        (b"d" + struct.pack(">d", float("-inf")), b"-Infinity"),
        (b"f" + struct.pack(">f", 0.5), b"0.5"),
        (b"l" + struct.pack(">q", -(2**63)), b"-9223372036854775808"),
        (b"B\xff", b"255"),
        (b"b\xff", b"-1"),
        (b"T" + struct.pack(">Q", 2**63), b"9223372036854775808"),
        (b"T" + struct.pack(">Q", 0), b"1970-01-01T00:00:00+00:00"),
        (b"D\xff" + struct.pack(">i", 5), b"0." + b"0" * 254 + b"5"),
        (b"S" + struct.pack(">I", 2) + b"\xff\x00", b"\xff\x00"),
        (b"A" + struct.pack(">I", 9) + b"d" + struct.pack(">d", float("inf")), b'["Infinity"]'),
        (b"F" + table((b"k", b"V"), (b"k", b"t\x01")), b'{"k": true}'),
        (b"V", None),
    ],
)
def test_each_value_of_a_header_is_a_text_or_bytes(value, text):
    assert read_properties(with_headers((b"h", value))).headers == [("h", text)]


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x00", b"\x00\x01", with_headers((b"h", b"?")), with_headers((b"h", b"S\xff\xff\xff\xff")),
        with_headers((b"h", b"l\x00")), with_headers((b"h", b"V"))[:-1], b"\x80\x00\xff",
        with_headers((b"h", b"A" + struct.pack(">I", 5) + b"F" + b"\xff" * 4)),
    ],
)  # fmt: skip
def test_bytes_that_are_no_properties_are_said_to_be_broken(data):
    assert read_properties(data).is_broken


def test_tables_may_be_deep_and_never_too_deep_to_say_so():
    value = b"V"
    for _ in range(2_000):
        value = b"A" + struct.pack(">I", len(value)) + value

    assert read_properties(with_headers((b"h", value))).is_broken


def test_no_bytes_raise_an_error():
    chance = random.Random(1)
    good = b"".join(BasicProperties(headers={"a": [1, {"b": "x"}], "c": 2**40}, message_id="m").encode())
    for _ in range(20_000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        read_properties(bytes(data[: chance.randint(0, len(data))]))


def test_a_field_that_the_broker_adds_is_no_header_of_the_message():
    data = with_headers((b"x-stream-offset", b"l" + struct.pack(">q", 5)), (b"x-delivery-count", b"I\x00\x00\x00\x03"))
    found = read_properties(data)

    assert (found.headers, found.offset, found.deliveries) == (None, 5, 3)


def test_digests_differ_by_every_part_and_not_by_the_order_of_headers():
    base = Properties(headers=[("a", b"1"), ("b", None)], message_id="m")
    one = digest_of(b"x", "e", "k", base)
    others = [
        digest_of(b"y", "e", "k", base),
        digest_of(b"x", "k", "e", base),
        digest_of(b"x", "e", "k", Properties(headers=base.headers, message_id="n")),
        digest_of(b"x", "e", "k", Properties(headers=base.headers, app_id="m")),
        digest_of(b"x", "e", "k", Properties(headers=[("a", b"1"), ("b", b"None")], message_id="m")),
    ]

    assert len({one, *others}) == 6
    assert (
        digest_of(b"x", "e", "k", Properties(headers=[("b", None), ("a", b"1")], message_id="m", deliveries=4)) == one
    )
