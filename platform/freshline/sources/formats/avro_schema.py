"""Avro schemas: read, and made ready for decoding values without their logical types.

A logical type says what a number or bytes stand for. The decoder leaves them as they are, so that a time that Python
has no value for breaks no file; `avro_files` gives them their meaning, column by column.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

Schema = Any
_PRIMITIVE = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
# The least bytes of a value.
_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


class NoSchema(Exception):
    """A text that is no schema of records, with a sentence why."""


@dataclass(frozen=True)
class Record:
    """The schema of a record.

    `plain` is the one to decode with, `full` has the logical types, and `named` the named types within, by their full
    names.
    """

    plain: Schema
    full: Schema
    named: dict[str, Schema]

    @property
    def fields(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.full["fields"]
        return found


def read_schema(text: str | bytes) -> Record:
    """The schema of a record from its JSON. Raises NoSchema."""
    try:
        written = json.loads(text)
        named: dict[str, Schema] = {}
        full = parse_schema(written, named_schemas=named, _write_hint=False)
        if not isinstance(full, dict) or full.get("type") not in ("record", "error"):
            raise NoSchema("it is no record")
        plain = parse_schema(_without_logical(written))
    except (ValueError, TypeError, KeyError, RecursionError, SchemaParseException, UnknownType) as error:
        raise NoSchema(f"{type(error).__name__}: {error}") from error
    record = Record(plain, full, named)
    _refuse_empty_items(full, record, set())
    return record


def _without_logical(schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_without_logical(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name not in ("logicalType", "default", "symbols")}
    found = {
        name: _without_logical(value) if name in ("type", "items", "values", "fields") else value
        for name, value in kept.items()
    }
    return found | {name: schema[name] for name in ("default", "symbols") if name in schema}


def resolve(schema: Schema, record: Record) -> Schema:
    """The type that a name stands for; others as they are."""
    return record.named.get(schema, schema) if isinstance(schema, str) else schema


def kind_of(schema: Schema) -> str:
    """The name of a type: `union` for a list."""
    if isinstance(schema, list):
        return "union"
    kind = schema["type"] if isinstance(schema, dict) else schema
    # A primitive type may stand in a type of its own.
    return kind if isinstance(kind, str) else kind_of(kind)


def least_bytes(schema: Schema, record: Record, within: frozenset[str] = frozenset()) -> int:
    """The bytes that each value has at least."""
    schema = resolve(schema, record)
    kind = kind_of(schema)
    if kind in ("record", "error"):
        name = schema["name"]
        if name in within:
            return 0
        return sum(least_bytes(field["type"], record, within | {name}) for field in schema["fields"])
    if kind == "fixed":
        return int(schema["size"])
    return _LEAST.get(kind, 1)


def _refuse_empty_items(schema: Schema, record: Record, seen: set[str]) -> None:
    """An array of values without bytes has any number of them in a few bytes, so it is refused."""
    schema = resolve(schema, record)
    kind = kind_of(schema)
    if kind == "union":
        for each in schema:
            _refuse_empty_items(each, record, seen)
    elif kind in ("record", "error"):
        if schema["name"] not in seen:
            seen.add(schema["name"])
            for field in schema["fields"]:
                _refuse_empty_items(field["type"], record, seen)
    elif kind == "array":
        if least_bytes(schema["items"], record) == 0:
            raise NoSchema("an array of values without bytes may be of any size")
        _refuse_empty_items(schema["items"], record, seen)
    elif kind == "map":
        _refuse_empty_items(schema["values"], record, seen)


_SQL = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "STRING",
    "enum": "STRING",
    "bytes": "BINARY",
    "fixed": "BINARY",
}
_SQL_OF_LOGICAL = {
    ("int", "date"): "DATE",
    **{("long", f"timestamp-{unit}"): "TIMESTAMP" for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): "TIMESTAMP_NTZ" for unit in ("millis", "micros", "nanos")},
    ("fixed", "uuid"): "STRING",
}


def sql_type(schema: Schema, record: Record, within: frozenset[str] = frozenset()) -> str:
    """The type of a column that takes all values of a type, as it is declared; empty where there is none."""
    schema = resolve(schema, record)
    kind = kind_of(schema)
    if kind == "union":
        branches = [each for each in schema if kind_of(resolve(each, record)) != "null"]
        return sql_type(branches[0], record, within) if len(branches) == 1 else ""
    if kind in ("record", "error"):
        if schema["name"] in within or not schema["fields"]:
            return ""
        known = within | {schema["name"]}
        inner = [(field["name"], sql_type(field["type"], record, known)) for field in schema["fields"]]
        fields = ", ".join(f"`{name}`: {found}" for name, found in inner)
        return f"STRUCT<{fields}>" if all(found for _, found in inner) else ""
    if kind in ("array", "map"):
        found = sql_type(schema["items" if kind == "array" else "values"], record, within)
        around = "ARRAY<{}>" if kind == "array" else "MAP<STRING, {}>"
        return around.format(found) if found else ""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        return f"DECIMAL({precision},{scale})" if 1 <= precision <= 38 and 0 <= scale <= precision else ""
    return _SQL_OF_LOGICAL.get((kind, str(logical)), _SQL.get(kind, ""))
