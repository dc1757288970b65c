"""From the JSON of one Debezium record to one event: pure, and sent to the processes of Spark as it is.

The declared type of a column decides how its value is read. A decimal may come as base64, as `{scale, value}`, as a
number or as a text, a time in three units or as ISO text, and each gives the same value. A value that the declared type
cannot have is never stored as another one. This module uses nothing of freshline, because the machines of a cluster may
not have it.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

NOT_ENVELOPE, NOT_UTF8, TIME_UNIT, VALUE_CHANGED = "NOT_ENVELOPE", "NOT_UTF8", "TIME_UNIT", "VALUE_CHANGED"
# A record that says nothing: left out, and no poison.
TOMBSTONE = "TOMBSTONE"
# The message's key has other members than PRIMARY KEY: what names a row is not what was declared.
MESSAGE_KEY = "MESSAGE_KEY"
# Databases that check a key at each row, or write deletes first: no row has the key of another for a moment.
_IN_ORDER_OF_KEYS = ("mysql", "mariadb", "sqlserver", "mongodb")
# So many bytes of a key may be one; what is larger is not read.
_MOST_KEY_BYTES = 1 << 20

_MICROSECONDS = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}
_UNITS_BY_NAME = {
    "io.debezium.time.Timestamp": "milliseconds",
    "org.apache.kafka.connect.data.Timestamp": "milliseconds",
    "io.debezium.time.MicroTimestamp": "microseconds",
    "io.debezium.time.NanoTimestamp": "nanoseconds",
}
_DECIMAL_NAMES = ("org.apache.kafka.connect.data.Decimal", "io.debezium.data.VariableScaleDecimal")
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, as everywhere in freshline
_DAY_MICROSECONDS = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})Z?")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
_WHOLE = re.compile(r"-?[0-9]{1,40}")
_DECIMAL = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]{1,4}))?")
# Greater scales cannot be of a number that a DECIMAL can have, and would keep a core busy.
_GREATEST_SCALE = 10_000
_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_INTEGER_BITS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_ESCAPED_HALF = re.compile(r"\\u[dD]")
_BYTE_ORDER_MARK = "\ufeff"

# Facts of a source beside the position of an event; the same event may come again with another of these.
_NO_POSITION = frozenset(
    ("version", "connector", "name", "snapshot", "ts_ms", "ts_us", "ts_ns", "db", "schema", "table", "collection")
) | {"sequence", "query", "thread"}

# The member by which a flattened event is recognized, and the facts of a source that it has without `source`.
_DELETED = "__deleted"
_OF_SOURCE = frozenset(("connector", "lsn", "txId", "file", "pos", "row", "gtid"))
_OF_SOURCE |= {"commit_lsn", "change_lsn", "event_serial_no"}

Schema = Mapping[str, Any]
Read = Callable[[Any, Schema], Any]


class Number(str):
    """A number of JSON, as it is written."""


class Rejected(Exception):
    """A record that is no event; the text is its code of quarantine.

    `known` is the part of an event that could be read: the key, and the facts that have a place of their own. A value
    that was rejected with it is not that of an older event.
    """

    def __init__(self, code: str, known: ChangeEvent | None = None) -> None:
        self.known = known
        super().__init__(code)


class _Changed(Exception):
    """A value that the declared type cannot have."""


@dataclass(frozen=True)
class EnvelopeFacts:
    """The declared facts by which records become events.

    `columns` are the declared columns with their types, `keys` those of PRIMARY KEY. `time_unit` is that of numbers
    which no inline schema explains, None where it is not declared. `decimals` is the form of a text that stands for a
    DECIMAL without an inline schema: `base64`, `text`, or None for either where it is clear. `unavailable` is the text
    that stands for a value which was not sent.
    """

    columns: tuple[tuple[str, DataType], ...]
    keys: tuple[str, ...]
    time_unit: str | None = None
    decimals: str | None = None
    unavailable: str = "__debezium_unavailable_value"


@dataclass(frozen=True)
class ChangeEvent:
    """One change of one row.

    `values` are those of the declared columns: of the new image, of the key alone for a delete, none for a TRUNCATE
    (`op` is `t`, and None for a record of which nothing is known but its key). Times are in
    microseconds since 1970, dates in days. `position` names the place in the log of the database, None where that is
    unknown; those of Postgres, MySQL, MariaDB and SQL Server are in order as texts. `changed_at` is in microseconds
    too. `unsent` are the columns whose values were not sent. `before` are the values of the row that was changed, None
    where they were not sent, or nobody asks for them, and empty where they do not fit.
    """

    values: tuple[Any, ...]
    op: str | None
    position: str | None = None
    changed_at: int | None = None
    transaction: str | None = None
    unsent: tuple[str, ...] = ()
    before: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class MessageKey:
    """The members of a message's key, with the values of JSON, and their schemas, which may be empty."""

    values: Mapping[str, Any]
    fields: Mapping[str, Schema]


def message_key(payload: Any, schema: Schema) -> MessageKey | None:
    """The key that a payload is; None for one without members."""
    return MessageKey(payload, _fields(schema)) if isinstance(payload, dict) and payload else None


@dataclass(frozen=True)
class EnvelopeReader:
    """Reads the records of one source. `read` raises Rejected for what is no event."""

    reading: EnvelopeFacts
    _readers: tuple[tuple[str, Read], ...] = field(init=False, repr=False)
    _texts: frozenset[str] = field(init=False, repr=False)
    _others: tuple[Any, ...] = field(init=False, repr=False)
    _decoder: json.JSONDecoder = field(init=False, repr=False)

    def __post_init__(self) -> None:
        readers = tuple((name, _reader_of(kind, self.reading)) for name, kind in self.reading.columns)
        object.__setattr__(self, "_readers", readers)
        marker = self.reading.unavailable
        sent = marker.encode()
        object.__setattr__(self, "_texts", frozenset((marker, base64.b64encode(sent).decode())))
        object.__setattr__(self, "_others", ([marker], [Number(byte) for byte in sent], {marker: marker}))
        decoder = json.JSONDecoder(
            parse_int=Number, parse_float=Number, parse_constant=_refuse, object_pairs_hook=_without_twins
        )
        object.__setattr__(self, "_decoder", decoder)

    def read(self, record: bytes, key: bytes | None = None) -> ChangeEvent:
        """The event that a record is, with the key of its message, None for none.

        Raises Rejected, with TOMBSTONE for a record that says nothing.
        """
        named = None if key is None else self._message_key(key)
        try:
            return self.event(*_unwrapped(_parsed(record, self._decoder)), named)
        except RecursionError:
            # A text that is as deep as this is none of Debezium's.
            raise Rejected(NOT_ENVELOPE, self.known_by(named)) from None
        except Rejected as rejected:
            if rejected.known is None and str(rejected) != TOMBSTONE:
                raise Rejected(str(rejected), self.known_by(named)) from None
            raise

    def _message_key(self, key: bytes) -> MessageKey | None:
        """The key of a message; None for one that is no JSON object, as other converters write them."""
        if len(key) > _MOST_KEY_BYTES:
            return None
        try:
            return message_key(*_unwrapped(_parsed(key, self._decoder)))
        except (Rejected, RecursionError):
            return None

    def known_by(self, named: MessageKey | None) -> ChangeEvent | None:
        """The event of a record that cannot be read: the row that its key names, None without a key."""
        if named is None:
            return None
        return ChangeEvent(self._key(_Found("", {}, None, {}, {}, {}), named), None)

    def event(self, payload: Any, schema: Schema, named: MessageKey | None = None) -> ChangeEvent:
        """The event that a payload is, which has the values of JSON, numbers as Number; raises Rejected as `read`.

        `schema` is that of Kafka Connect, and may be empty. `named` is the key of the message, which has the values
        of columns of PRIMARY KEY that the payload lacks, and no others than these.
        """
        if payload is None:
            raise Rejected(TOMBSTONE)
        if not isinstance(payload, dict):
            raise Rejected(NOT_ENVELOPE)
        found = _flattened(payload, schema) if _DELETED in payload else _enveloped(payload, schema)
        if named is not None and found.op != "t":
            lacks = [name for name in self.reading.keys if name not in found.image and name in named.values]
            if lacks:
                image = {**found.image, **{name: named.values[name] for name in lacks}}
                fields = {**found.fields, **{name: named.fields.get(name, {}) for name in lacks}}
                before = None if found.before is None else {**found.before, **{name: image[name] for name in lacks}}
                found = replace(found, image=image, fields=fields, before=before)
        may_lack = found.op in ("c", "u")
        try:
            values, unsent = self._values(found.image, found.fields, only_key=found.op == "d", may_lack=may_lack)
            if found.op == "u" and found.before is not None:
                self._check_key(found.before, found.fields, values)
        except Rejected as rejected:
            raise Rejected(str(rejected), self._event(found, self._key(found, named), ())) from None
        if named is not None and found.op != "t" and named.values.keys() != set(self.reading.keys):
            members = ", ".join(named.values)
            raise Rejected(f"{MESSAGE_KEY}({members}; PRIMARY KEY is {', '.join(self.reading.keys)})")
        return self._event(found, values, unsent)

    def _event(self, found: _Found, values: tuple[Any, ...], unsent: tuple[str, ...]) -> ChangeEvent:
        source, beside = found.source, found.beside
        before = None
        if found.op in ("u", "d") and source.get("connector") not in _IN_ORDER_OF_KEYS:
            before = self._before(found.image if found.op == "d" else found.before, found.fields)
        facts = _position(source), _changed_at(source, beside), _transaction(source, beside)
        return ChangeEvent(values, found.op, *facts, unsent, before)

    def _before(self, image: Mapping[str, Any] | None, fields: Mapping[str, Schema]) -> tuple[Any, ...] | None:
        """The values of an old image, None where it was not sent, and none where they do not fit their columns."""
        if image is None:
            return None
        try:
            return tuple(
                None if image.get(name) is None else _value(name, read, image[name], fields.get(name, {}))
                for name, read in self._readers
            )
        except Rejected:
            return ()

    def _key(self, found: _Found, named: MessageKey | None) -> tuple[Any, ...]:
        """The values of the key alone, as far as they can be read, of a record that is rejected."""
        values = []
        for name, read in self._readers:
            value = found.image.get(name) if name in self.reading.keys else None
            schema = found.fields.get(name, {})
            if value is None and named is not None and name in self.reading.keys:
                value, schema = named.values.get(name), named.fields.get(name, {})
            try:
                values.append(None if value is None else _value(name, read, value, schema))
            except Rejected:
                values.append(None)
        return tuple(values)

    def _values(
        self, image: Mapping[str, Any], fields: Mapping[str, Schema], *, only_key: bool, may_lack: bool
    ) -> tuple[tuple[Any, ...], tuple[str, ...]]:
        """The values of an image, and the columns that were not sent.

        Inserts and updates alone lack values. In a snapshot the text of the marker is a text that was sent.
        """
        values: list[Any] = []
        unsent = []
        for name, read in self._readers:
            value = image.get(name)
            if value is None or (only_key and name not in self.reading.keys):
                values.append(None)
            elif may_lack and name not in self.reading.keys and self._is_marker(value):
                unsent.append(name)
                values.append(None)
            else:
                values.append(_value(name, read, value, fields.get(name, {})))
        return tuple(values), tuple(unsent)

    def _is_marker(self, value: Any) -> bool:
        if type(value) is str:
            return value in self._texts
        return isinstance(value, list | dict) and value in self._others

    def _check_key(self, before: Mapping[str, Any], fields: Mapping[str, Schema], values: tuple[Any, ...]) -> None:
        """An update keeps its key: Debezium sends a delete and an insert for one that does not. Raises Rejected."""
        for (name, read), value in zip(self._readers, values, strict=True):
            old = before.get(name) if name in self.reading.keys else None
            if old is not None and _value(name, read, old, fields.get(name, {})) != value:
                raise Rejected(NOT_ENVELOPE)


def _value(name: str, read: Read, value: Any, schema: Schema) -> Any:
    try:
        return read(value, schema)
    except _Changed:
        raise Rejected(f"{VALUE_CHANGED}({name})") from None


# -- the record


def _parsed(record: bytes, decoder: json.JSONDecoder) -> Any:
    """The JSON of a record, with numbers as they are written. Raises Rejected, also where a name stands twice."""
    try:
        text = record.decode().removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError:
        raise Rejected(NOT_UTF8) from None
    try:
        value = decoder.decode(text)
    except ValueError:
        raise Rejected(NOT_ENVELOPE) from None
    if _ESCAPED_HALF.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Rejected(NOT_UTF8) from None
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _unwrapped(value: Any) -> tuple[Any, Schema]:
    """The payload of a record and its schema, which is empty where it comes without one."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        schema = value["schema"]
        return value["payload"], schema if isinstance(schema, dict) else {}
    return value, {}


def _fields(schema: Schema) -> dict[str, Schema]:
    """The schemas of a struct's fields by their names; empty where there are none."""
    listed = schema.get("fields")
    if not isinstance(listed, list):
        return {}
    return {each["field"]: each for each in listed if isinstance(each, dict) and isinstance(each.get("field"), str)}


@dataclass(frozen=True)
class _Found:
    """The parts of a record: the image to store, that before an update, facts of the source and of the connector."""

    op: str
    image: Mapping[str, Any]
    before: Mapping[str, Any] | None
    fields: Mapping[str, Schema]
    source: Mapping[str, Any]
    beside: Mapping[str, Any]


def _enveloped(payload: Mapping[str, Any], schema: Schema) -> _Found:
    op, source, before = payload.get("op"), payload.get("source"), payload.get("before")
    if op == "t":
        return _Found("t", {}, None, {}, source if isinstance(source, dict) else {}, payload)
    if op not in ("c", "u", "d", "r") or not ("before" in payload or "after" in payload):
        raise Rejected(NOT_ENVELOPE)
    side = "before" if op == "d" else "after"
    image = payload.get(side)
    if not isinstance(image, dict) or not (before is None or isinstance(before, dict)):
        raise Rejected(NOT_ENVELOPE)
    fields = _fields(_fields(schema).get(side, {}))
    return _Found(op, image, before, fields, source if isinstance(source, dict) else {}, payload)


def _flattened(payload: Mapping[str, Any], schema: Schema) -> _Found:
    """A row with facts beside its columns, as Debezium's ExtractNewRecordState writes it."""
    deleted = payload[_DELETED]
    if deleted not in (True, False, "true", "false") or isinstance(deleted, Number):
        raise Rejected(NOT_ENVELOPE)
    op = payload.get("__op", "u")
    if op not in ("c", "u", "d", "r"):
        raise Rejected(NOT_ENVELOPE)
    beside = {name[2:]: value for name, value in payload.items() if name.startswith("__")}
    # Times without `source` are those of the connector.
    source = {name: value for name, value in beside.items() if name in _OF_SOURCE}
    source |= {name[7:]: value for name, value in beside.items() if name.startswith("source_")}
    for name, connector in (("lsn", "postgresql"), ("commit_lsn", "sqlserver"), ("file", "mysql")):
        if source.get(name) is not None:
            source.setdefault("connector", connector)
    beside["transaction"] = {"id": beside.get("transaction_id")}
    return _Found("d" if deleted in (True, "true") else op, payload, None, _fields(schema), source, beside)


# -- facts of an event


def _position(source: Mapping[str, Any]) -> str | None:
    connector = source.get("connector")
    match connector:
        case "postgresql":
            lsn = _whole(source.get("lsn"))
            return None if lsn is None else f"postgresql:{lsn >> 32:08X}/{lsn & 0xFFFFFFFF:08X}"
        case "mysql" | "mariadb":
            file, at, row = source.get("file"), _whole(source.get("pos")), _whole(source.get("row"))
            base, _, number = file.rpartition(".") if isinstance(file, str) else ("", "", "")
            if at is None or not (number.isascii() and number.isdigit()):
                return None
            return f"{connector}:{base}.{number.zfill(12)}/{at:020d}/{row or 0:010d}"
        case "sqlserver":
            commit, change = source.get("commit_lsn"), source.get("change_lsn")
            if not isinstance(commit, str):
                return None
            serial = _whole(source.get("event_serial_no")) or 0
            return f"sqlserver:{commit}/{change if isinstance(change, str) else ''}/{serial:010d}"
        case str():
            rest = {name: value for name, value in source.items() if name not in _NO_POSITION and value is not None}
            return f"{connector}:{_json_text(dict(sorted(rest.items())))}" if rest else None
        case _:
            return None


def _whole(value: Any) -> int | None:
    """A whole number that is not negative, which some converters write as a text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 20:
        return int(value)
    return None


def _changed_at(source: Mapping[str, Any], payload: Mapping[str, Any]) -> int | None:
    for facts in (source, payload):
        for name, (times, divided) in (("ts_us", (1, 1)), ("ts_ns", (1, 1000)), ("ts_ms", (1000, 1))):
            value = _whole(facts.get(name))
            if value is not None and value > 0:
                found = value * times // divided
                return found if found < (_LAST_DAY + 1) * _DAY_MICROSECONDS else None
    return None


def _transaction(source: Mapping[str, Any], payload: Mapping[str, Any]) -> str | None:
    known = payload.get("transaction")
    found = known.get("id") if isinstance(known, dict) else None
    for name in ("txId", "gtid", "transaction_id"):
        found = source.get(name) if found is None else found
    return str(found) if isinstance(found, str) else None


# -- values by their declared types


def _reader_of(kind: DataType, reading: EnvelopeFacts) -> Read:
    """The reader of values of a type: a function of the value, which is not NULL, and its schema, which may be empty.

    It raises Rejected for a value that is none of the type, and _Changed for one that the type cannot have.
    """
    match kind:
        case StringType():
            return _text
        case BooleanType():
            return _boolean
        case ByteType() | ShortType() | IntegerType() | LongType():
            return _integer_reader(_INTEGER_BITS[type(kind)])
        case DecimalType():
            return _decimal_reader(kind.precision, kind.scale, reading.decimals)
        case DoubleType() | FloatType():
            return _float_reader(single=isinstance(kind, FloatType))
        case BinaryType():
            return _binary
        case DateType():
            return _date
        case TimestampType() | TimestampNTZType():
            return _time_reader(reading.time_unit, local=isinstance(kind, TimestampNTZType))
        case ArrayType():
            return _array_reader(_reader_of(kind.elementType, reading))
        case StructType():
            return _struct_reader({each.name: _reader_of(each.dataType, reading) for each in kind.fields})
        case MapType():
            return _map_reader(kind, _reader_of(kind.valueType, reading))
        case _:
            raise TypeError(f"{kind.simpleString()} is no type of a declared column")


def _text(value: Any, schema: Schema) -> str:
    if schema.get("name") in _DECIMAL_NAMES:
        unscaled, scale = _unscaled(value, schema, 0, None)
        return format(_as_decimal(unscaled, scale), "f")
    if isinstance(value, str):
        return str(value)
    return _json_text(value)


def _json_text(value: Any) -> str:
    """JSON with numbers as they were written."""
    match value:
        case Number():
            return str(value)
        case dict():
            return "{" + ",".join(f"{_json_text(name)}:{_json_text(each)}" for name, each in value.items()) + "}"
        case list():
            return "[" + ",".join(map(_json_text, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)


def _boolean(value: Any, _: Schema) -> bool:
    if isinstance(value, bool):
        return value
    # MySQL's BOOLEAN is a number.
    if isinstance(value, Number) and value in ("0", "1"):
        return value == "1"
    raise Rejected(NOT_ENVELOPE)


def _number(value: Any) -> int:
    if not isinstance(value, Number):
        raise Rejected(NOT_ENVELOPE)
    if not _WHOLE.fullmatch(value):
        raise _Changed
    return int(value)


def _integer_reader(bits: int) -> Read:
    least, greatest = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def read(value: Any, _: Schema) -> int:
        number = _number(value)
        if not least <= number <= greatest:
            raise _Changed
        return number

    return read


def _float_reader(*, single: bool) -> Read:
    def read(value: Any, _: Schema) -> float:
        if not isinstance(value, Number):
            if isinstance(value, str) and value in _NO_NUMBERS:
                return _NO_NUMBERS[value]
            raise Rejected(NOT_ENVELOPE)
        number = float(value)
        if number in (_NO_NUMBERS["Infinity"], _NO_NUMBERS["-Infinity"]):
            raise _Changed
        if single:
            try:
                struct.pack("<f", number)
            except OverflowError:
                raise _Changed from None
        return number

    return read


def _binary(value: Any, _: Schema) -> bytes:
    if not isinstance(value, str) or isinstance(value, Number):
        raise Rejected(NOT_ENVELOPE)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise Rejected(NOT_ENVELOPE) from None


def _decimal_reader(precision: int, scale: int, decimals: str | None) -> Read:
    bound = 10**precision

    def read(value: Any, schema: Schema) -> Decimal:
        unscaled, found = _unscaled(value, schema, scale, decimals)
        if found > scale:
            unscaled, rest = divmod(unscaled, 10 ** (found - scale))
            if rest:
                raise _Changed
        else:
            unscaled *= 10 ** (scale - found)
        if abs(unscaled) >= bound:
            raise _Changed
        return _as_decimal(unscaled, scale)

    return read


def _as_decimal(unscaled: int, scale: int) -> Decimal:
    """Without a context, which would round."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _unscaled(value: Any, schema: Schema, declared: int, decimals: str | None) -> tuple[int, int]:
    """A decimal as a whole number and its scale."""
    if isinstance(value, Number):
        return _from_text(value)
    if isinstance(value, dict):
        found = value.get("scale"), value.get("value")
        if not isinstance(found[0], Number) or not isinstance(found[1], str) or isinstance(found[1], Number):
            raise Rejected(NOT_ENVELOPE)
        return _from_bytes(found[1]), _scale(found[0])
    if not isinstance(value, str):
        raise Rejected(NOT_ENVELOPE)
    if schema.get("name") in _DECIMAL_NAMES:
        parameters = schema.get("parameters")
        given = parameters.get("scale") if isinstance(parameters, dict) else None
        return _from_bytes(value), declared if given is None else _scale(given)
    if schema.get("type") == "string" or decimals == "text":
        return _from_text(value)
    if decimals == "base64":
        return _from_bytes(value), declared
    is_number = _DECIMAL.fullmatch(value) is not None
    if is_number and _is_base64(value):
        # Four digits may be a number, or three bytes of another one.
        raise Rejected(NOT_ENVELOPE)
    return _from_text(value) if is_number else (_from_bytes(value), declared)


def _is_base64(text: str) -> bool:
    return len(text) % 4 == 0 and re.fullmatch(r"[0-9A-Za-z+/]*={0,2}", text) is not None


def _scale(text: str) -> int:
    if not _WHOLE.fullmatch(text) or abs(int(text)) > _GREATEST_SCALE:
        raise Rejected(NOT_ENVELOPE)
    return int(text)


def _from_bytes(text: str) -> int:
    content = _binary(text, {})
    if not content:
        raise Rejected(NOT_ENVELOPE)
    return int.from_bytes(content, "big", signed=True)


def _from_text(text: str) -> tuple[int, int]:
    found = _DECIMAL.fullmatch(text)
    if found is None:
        raise Rejected(NOT_ENVELOPE)
    sign, whole, fraction, exponent = found.groups()
    digits = whole + (fraction or "")
    # More digits than Python reads are more than any DECIMAL has.
    if len(digits.lstrip("0")) > 1000 or len(digits) > 4000:
        raise _Changed
    return int(sign + digits), len(fraction or "") - int(exponent or 0)


def _date(value: Any, schema: Schema) -> int:
    if isinstance(value, Number):
        days = _number(value)
        unit = _UNITS_BY_NAME.get(str(schema.get("name")))
        if unit is not None:
            # Oracle's DATE has a time, and is one of these.
            days, rest = divmod(_microseconds(days, unit), _DAY_MICROSECONDS)
            if rest:
                raise _Changed
        if not _FIRST_DAY <= days <= _LAST_DAY:
            raise _Changed
        return days
    found = _DATE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise Rejected(NOT_ENVELOPE)
    try:
        return _days(*map(int, found.groups()))
    except ValueError:
        raise Rejected(NOT_ENVELOPE) from None


def _days(year: int, month: int, day: int) -> int:
    return (datetime(year, month, day, tzinfo=UTC) - _EPOCH).days


def _microseconds(number: int, unit: str) -> int:
    times, divided = _MICROSECONDS[unit]
    found, rest = divmod(number * times, divided)
    if rest:
        raise _Changed
    return found


def _time_reader(declared: str | None, *, local: bool) -> Read:
    def read(value: Any, schema: Schema) -> int:
        if isinstance(value, Number):
            number = _number(value)
            unit = _UNITS_BY_NAME.get(str(schema.get("name")), declared)
            if unit is None:
                raise Rejected(TIME_UNIT)
            found = _microseconds(number, unit)
            if not _FIRST_DAY * _DAY_MICROSECONDS <= found < (_LAST_DAY + 1) * _DAY_MICROSECONDS:
                raise _Changed
            return found
        return _from_iso(value, local=local)

    return read


def _from_iso(value: Any, *, local: bool) -> int:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise Rejected(NOT_ENVELOPE)
    *whole, fraction, zone = found.groups()
    if local and zone not in (None, "Z"):
        raise Rejected(NOT_ENVELOPE)
    digits = (fraction or "").ljust(9, "0")
    if digits[6:] != "000":
        raise _Changed
    offset = timedelta()
    if zone not in (None, "Z"):
        minutes = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
        offset = timedelta(minutes=minutes if zone[0] == "+" else -minutes)
    try:
        year, month, day, hour, minute, second = (int(part or 0) for part in whole)
        moment = datetime(year, month, day, hour, minute, second, int(digits[:6]), UTC) - offset
    except ValueError:
        raise Rejected(NOT_ENVELOPE) from None
    except OverflowError:
        raise _Changed from None
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _array_reader(element: Read) -> Read:
    def read(value: Any, schema: Schema) -> list[Any]:
        if not isinstance(value, list):
            raise Rejected(NOT_ENVELOPE)
        items = schema.get("items")
        of = items if isinstance(items, dict) else {}
        return [None if each is None else element(each, of) for each in value]

    return read


def _struct_reader(fields: Mapping[str, Read]) -> Read:
    def read(value: Any, schema: Schema) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Rejected(NOT_ENVELOPE)
        of = _fields(schema)
        return {
            name: None if value.get(name) is None else inner(value[name], of.get(name, {}))
            for name, inner in fields.items()
        }

    return read


def _map_reader(kind: MapType, inner: Read) -> Read:
    def read(value: Any, schema: Schema) -> list[tuple[str, Any]]:
        if not isinstance(value, dict) or not isinstance(kind.keyType, StringType):
            raise Rejected(NOT_ENVELOPE)
        values = schema.get("values")
        of = values if isinstance(values, dict) else {}
        return [(name, None if each is None else inner(each, of)) for name, each in value.items()]

    return read
