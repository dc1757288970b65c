"""The properties of a message of AMQP 0.9.1, read from their bytes.

pika's own reading cuts fractions off, and ends a connection at values that Python has no number or time for. Here every
value becomes a text or bytes, and bytes that are no properties are said to be broken, so that no message stops a
source.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import blake2b
from typing import Any

# The broker adds these to what was published; they differ from one delivery to the next.
OFFSET_HEADER = "x-stream-offset"
COUNT_HEADER = "x-delivery-count"
_OF_BROKER = frozenset({OFFSET_HEADER, COUNT_HEADER, "x-acquired-count"})

_HEADERS, _DELIVERY_MODE, _PRIORITY, _MESSAGE_ID, _TIMESTAMP, _APP_ID = 13, 12, 11, 7, 6, 3
# By bits from the first: content type, encoding, headers, mode, priority, correlation id, reply to, expiration,
# message id, timestamp, type, user id, app id, cluster id.
_BITS = range(15, 1, -1)
_NUMBERS: Mapping[int, struct.Struct] = {
    ord(kind): struct.Struct(f">{code}")
    for kind, code in {
        "b": "b", "B": "B", "s": "h", "U": "h", "u": "H", "I": "i", "i": "I", "l": "q", "L": "q", "f": "f", "d": "d",
    }.items()
}  # fmt: skip
_SHORT, _LONG, _TIME = struct.Struct(">H"), struct.Struct(">I"), struct.Struct(">Q")
# The last second that a TIMESTAMP of Spark can have.
_LAST_SECOND = 253_402_300_799
# Tables within tables: more of them than any program means.
_MOST_DEPTH = 50

Header = tuple[str, bytes | None]


@dataclass(slots=True)
class Properties:
    """The facts of a message beside its body.

    `headers` are those that were published, each with its value as a text in UTF-8 (tables and arrays as JSON) or as
    bytes, None where the message has none. `offset` is that in a stream, None for a message of a queue, `deliveries`
    how often a quorum queue has delivered it before. With `is_broken` the bytes are no properties.
    """

    headers: list[Header] | None = None
    message_id: str | None = None
    app_id: str | None = None
    timestamp: datetime | None = None
    offset: int | None = None
    deliveries: int = 0
    others: tuple[str, ...] = ()
    is_broken: bool = False


def read_properties(data: bytes) -> Properties:
    """The properties in the bytes behind the size of a content header. Never raises an error."""
    found = Properties()
    try:
        _read(data, found)
    except (struct.error, IndexError, ValueError, OverflowError, RecursionError):
        found.is_broken = True
        found.others = (data.hex(),)
    return found


def digest_of(body: bytes, exchange: str, routing_key: str, properties: Properties) -> bytes:
    """16 bytes over all that was published, which are the same at each delivery of the message."""
    said = (
        exchange,
        routing_key,
        # The broker sorts them when it adds one of its own.
        sorted((name, repr(value)) for name, value in properties.headers or ()),
        properties.message_id,
        properties.app_id,
        None if properties.timestamp is None else properties.timestamp.timestamp(),
        properties.others,
    )
    made = blake2b(repr(said).encode("utf-8", "surrogatepass"), digest_size=16)
    made.update(body)
    return made.digest()


def as_text(data: bytes | str) -> str:
    """A text that should be UTF-8; other bytes are shown by their numbers.

    >>> as_text(b"a\\xffb")
    'a\\\\xffb'
    """
    return data if isinstance(data, str) else data.decode("utf-8", "backslashreplace")


def _read(data: bytes, found: Properties) -> None:
    flags, at = _SHORT.unpack_from(data)[0], 2
    if flags & 1:
        raise ValueError("AMQP 0.9.1 has no further flags")
    others = []
    for bit in _BITS:
        if not flags >> bit & 1:
            continue
        if bit == _HEADERS:
            at = _read_headers(data, at, found)
        elif bit in (_DELIVERY_MODE, _PRIORITY):
            others.append(f"{bit}:{data[at]}")
            at += 1
        elif bit == _TIMESTAMP:
            seconds = _TIME.unpack_from(data, at)[0]
            at += 8
            if seconds <= _LAST_SECOND:
                found.timestamp = datetime.fromtimestamp(seconds, UTC)
            else:
                others.append(f"{bit}:{seconds}")
        else:
            value, at = _short_text(data, at)
            if bit == _MESSAGE_ID:
                found.message_id = value
            elif bit == _APP_ID:
                found.app_id = value
            else:
                others.append(f"{bit}:{value}")
    found.others = tuple(others)


def _read_headers(data: bytes, at: int, found: Properties) -> int:
    size, at = _LONG.unpack_from(data, at)[0], at + 4
    end = at + size
    if end > len(data):
        raise ValueError("the table ends behind the bytes")
    headers: list[Header] = []
    while at < end:
        name, at = _short_text(data, at)
        value, at = _value(data, at, 0)
        if name not in _OF_BROKER:
            headers.append((name, _as_bytes(value)))
        elif isinstance(value, int) and name == OFFSET_HEADER:
            found.offset = value
        elif isinstance(value, int) and name == COUNT_HEADER:
            found.deliveries = value
    found.headers = headers or None
    return at


def _short_text(data: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + data[at]
    if end > len(data):
        raise ValueError("the text ends behind the bytes")
    return as_text(data[at + 1 : end]), end


def _value(data: bytes, at: int, depth: int) -> tuple[Any, int]:
    """A value and where it ends: None, bool, int, float, Decimal, datetime, bytes, a list or a table as pairs."""
    kind, at = data[at], at + 1
    number = _NUMBERS.get(kind)
    if number is not None:
        return number.unpack_from(data, at)[0], at + number.size
    if kind == ord("t"):
        return data[at] != 0, at + 1
    if kind == ord("V"):
        return None, at
    if kind == ord("T"):
        seconds = _TIME.unpack_from(data, at)[0]
        return datetime.fromtimestamp(seconds, UTC) if seconds <= _LAST_SECOND else seconds, at + 8
    if kind == ord("D"):
        scale, unscaled = struct.unpack_from(">Bi", data, at)
        return Decimal(unscaled).scaleb(-scale), at + 5
    size, at = _LONG.unpack_from(data, at)[0], at + 4
    end = at + size
    if end > len(data) or depth > _MOST_DEPTH:
        raise ValueError("the value ends behind the bytes, or is too deep")
    if kind in (ord("S"), ord("x")):
        return data[at:end], end
    values: list[Any] = []
    if kind == ord("A"):
        while at < end:
            value, at = _value(data, at, depth + 1)
            values.append(value)
        return values, end
    if kind == ord("F"):
        while at < end:
            name, at = _short_text(data, at)
            value, at = _value(data, at, depth + 1)
            values.append((name, value))
        return tuple(values), end
    raise ValueError(f"there is no value of kind {kind}")


def _as_bytes(value: Any) -> bytes | None:
    """The value of a header: bytes and texts as they are, other values as a text."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, list | tuple):
        return json.dumps(_plain(value), ensure_ascii=False).encode()
    plain = _plain(value)
    return (plain if isinstance(plain, str) else json.dumps(plain)).encode()


def _plain(value: Any) -> Any:
    """A value as JSON has it; what JSON has no value for is a text."""
    if isinstance(value, tuple):
        return {name: _plain(each) for name, each in value}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return as_text(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float) and not (abs(value) < float("inf")):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value
