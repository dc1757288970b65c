"""From the Avro of one Debezium record to one event: pure, and sent to the processes of Spark as it is.

Debezium's converters write one event as JSON or as Avro. So a record of Avro becomes what its JSON is, with the schema
that the JSON would have inline, and `envelope` reads both by one set of rules.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastavro.read import SchemaResolutionError

from freshline.sources.formats.avro_schema import AvroRecord, NoSchema, kind_of, resolve
from freshline.sources.formats.avro_topics import UNKNOWN_SCHEMA, FramedSchema, read_framed_schema
from freshline.sources.formats.avro_values import NO_RECORD, NOT_AVRO, decoder_of
from freshline.sources.formats.envelope import ChangeEvent, EnvelopeReader, MessageKey, Number, Rejected, message_key
from freshline.sources.formats.framing import FRAME_BYTES, schema_id_of

# The names of logical types at Kafka Connect and Debezium, where the schema does not name them itself.
_NAMES = {
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "timestamp-micros": "io.debezium.time.MicroTimestamp",
    "timestamp-nanos": "io.debezium.time.NanoTimestamp",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
    "local-timestamp-nanos": "io.debezium.time.NanoTimestamp",
}
_TYPES = {"int": "int32", "long": "int64", "float": "float", "double": "double", "boolean": "boolean"}

Convert = Callable[[Any], Any]


@dataclass
class AvroEnvelopes:
    """Reads framed records; `schemas` are those of the registry by their ids, None for one that is none of Avro."""

    reader: EnvelopeReader
    schemas: Mapping[int, FramedSchema | None]
    _known: dict[int, _Schema | None] = field(default_factory=dict)

    def read(self, record: bytes, key: bytes | None = None) -> ChangeEvent:
        """The event that a record is, with the key of its message, None for none. Raises Rejected."""
        named = None if key is None else self._message_key(key)
        try:
            schema = self._schema(record)
            return self.reader.event(schema.payload(record), schema.inline, named)
        except Rejected as rejected:
            if rejected.known is None:
                raise Rejected(str(rejected), self.reader.known_by(named)) from None
            raise

    def _message_key(self, key: bytes) -> MessageKey | None:
        """The key of a message; None for one that names no schema, as other converters write them."""
        try:
            schema = self._schema(key)
            return message_key(schema.payload(key), schema.inline)
        except Rejected:
            return None

    def _schema(self, record: bytes) -> _Schema:
        schema_id = schema_id_of(record)
        if schema_id is None:
            raise Rejected(NOT_AVRO)
        if schema_id not in self.schemas:
            raise Rejected(UNKNOWN_SCHEMA)
        if schema_id not in self._known:
            self._known[schema_id] = _read_schema(self.schemas[schema_id])
        schema = self._known[schema_id]
        if schema is None:
            raise Rejected(NOT_AVRO)
        return schema


class _Schema:
    """A schema of records: what decodes them, and the inline schema that their JSON would have."""

    def __init__(self, written: AvroRecord) -> None:
        self._plain = written.plain
        self._decoder = decoder_of(written)
        self._convert, self.inline = _converter(written.full, written, frozenset())

    def payload(self, record: bytes) -> Any:
        """The values of a record as those of JSON. Raises Rejected for bytes that are none of the schema."""
        source = io.BytesIO(record)
        source.seek(FRAME_BYTES)
        try:
            value = self._decoder(source, self._plain, None)
        except (*NO_RECORD, SchemaResolutionError):
            raise Rejected(NOT_AVRO) from None
        if source.tell() != len(record):
            raise Rejected(NOT_AVRO)
        return self._convert(value)


def _read_schema(schema: FramedSchema | None) -> _Schema | None:
    try:
        return None if schema is None else _Schema(read_framed_schema(schema))
    except NoSchema:
        return None


def _converter(schema: Any, record: AvroRecord, within: frozenset[str]) -> tuple[Convert, dict[str, Any]]:
    """The function from a value of Avro, which is not NULL, to one of JSON, and the schema as Kafka Connect has it.

    Raises NoSchema for a record within itself, which no table of a database has.
    """
    schema = resolve(schema, record)
    kind = kind_of(schema)
    facts = _facts(schema)
    match kind:
        case "union":
            return _union(schema, record, within)
        case "record" | "error":
            return _record(schema, record, within, facts)
        case "array":
            of, items = _converter(schema["items"], record, within)
            return lambda value: [_or_none(of, each) for each in value], {"type": "array", "items": items, **facts}
        case "map":
            of, values = _converter(schema["values"], record, within)
            return (
                lambda value: {name: _or_none(of, each) for name, each in value.items()},
                {"type": "map", "values": values, **facts},
            )
        case "int" | "long":
            return lambda value: Number(value), {"type": _TYPES[kind], **facts}
        case "float" | "double":
            return (_single if kind == "float" else _double), {"type": _TYPES[kind], **facts}
        case "bytes" | "fixed":
            return lambda value: base64.b64encode(value).decode(), {"type": "bytes", **facts}
        case "string" | "enum":
            return lambda value: value, {"type": "string", **facts}
        case _:
            return lambda value: value, {"type": kind, **facts}


def _facts(schema: Any) -> dict[str, Any]:
    """The name and the parameters of a type, as Kafka Connect has them."""
    if not isinstance(schema, dict):
        return {}
    name = schema.get("connect.name") or _NAMES.get(str(schema.get("logicalType")))
    found: dict[str, Any] = {} if name is None else {"name": name}
    if "scale" in schema or schema.get("logicalType") == "decimal":
        found["parameters"] = {"scale": Number(schema.get("scale", 0))}
    return found


def _record(
    schema: Mapping[str, Any], record: AvroRecord, within: frozenset[str], facts: Mapping[str, Any]
) -> tuple[Convert, dict[str, Any]]:
    if schema["name"] in within:
        raise NoSchema("a record has itself within")
    inner = {each["name"]: _converter(each["type"], record, within | {schema["name"]}) for each in schema["fields"]}
    converters = {name: convert for name, (convert, _) in inner.items()}
    fields = [{**of, "field": name} for name, (_, of) in inner.items()]

    def convert(value: Any) -> dict[str, Any]:
        return {name: _or_none(of, value[name]) for name, of in converters.items()}

    return convert, {"type": "struct", "fields": fields, **facts}


def _union(branches: Any, record: AvroRecord, within: frozenset[str]) -> tuple[Convert, dict[str, Any]]:
    """As `_converter`, for one type and NULL. Rows of databases have nothing that distinguishes several types."""
    found = [each for each in branches if kind_of(resolve(each, record)) != "null"]
    if len(found) != 1:
        return lambda value: value, {}
    return _converter(found[0], record, within)


def _or_none(convert: Convert, value: Any) -> Any:
    return None if value is None else convert(value)


def _double(value: float) -> Any:
    if math.isfinite(value):
        return Number(repr(value))
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _single(value: float) -> Any:
    """A number of 32 bits has few digits, and JSON has those."""
    return Number(np.float32(value)) if math.isfinite(value) else _double(value)
