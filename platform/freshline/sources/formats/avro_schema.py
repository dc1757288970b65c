"""Avro schemas: read, and made ready for decoding values without their logical types.

A logical type says what a number or bytes stand for. The decoder leaves them as they are, so that a time that Python
has no value for breaks no file; `avro_files` gives them their meaning, column by column.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

Schema = Any
# The least bytes of a value.
_MOST_VALUES = 100_000
_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}


class NoSchema(Exception):
    """A text that is no schema of records, with a sentence why."""


@dataclass(frozen=True)
class AvroRecord:
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


def read_schema(text: str | bytes, references: Sequence[str] = (), *, column: str | None = None) -> AvroRecord:
    """The schema of a record from its JSON. Raises NoSchema.

    `references` are the schemas of types that it names, each behind those that it names itself. With `column` a schema
    that is none of a record is that of a record with this one field, whose bytes are the same.
    """
    try:
        named: dict[str, Schema] = {}
        plain_named: dict[str, Schema] = {}
        for each in references:
            other = json.loads(each)
            parse_schema(other, named_schemas=named, _write_hint=False)
            parse_schema(_without_logical(other), named_schemas=plain_named, _write_hint=False)
        written = json.loads(text)
        if column is not None and not (isinstance(written, dict) and written.get("type") in ("record", "error")):
            written = {"type": "record", "name": "freshline_key", "fields": [{"name": column, "type": written}]}
        full = parse_schema(written, named_schemas=named, _write_hint=False)
        if not isinstance(full, dict) or full.get("type") not in ("record", "error"):
            raise NoSchema("it is no record")
        record = AvroRecord(parse_schema(_without_logical(written), named_schemas=plain_named), full, named)
        if _values_at_least(full, record, {}) > _MOST_VALUES:
            raise NoSchema(f"a record has more than {_MOST_VALUES} values")
        _refuse_empty_items(full, record, set())
    except (ValueError, TypeError, KeyError, RecursionError, SchemaParseException, UnknownType) as error:
        raise NoSchema(f"{type(error).__name__}: {error}") from error
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


def resolve(schema: Schema, record: AvroRecord) -> Schema:
    """The type that a name stands for; others as they are."""
    return record.named.get(schema, schema) if isinstance(schema, str) else schema


def kind_of(schema: Schema) -> str:
    """The name of a type: `union` for a list."""
    if isinstance(schema, list):
        return "union"
    kind = schema["type"] if isinstance(schema, dict) else schema
    # A primitive type may stand in a type of its own.
    return kind if isinstance(kind, str) else kind_of(kind)


def least_bytes(schema: Schema, record: AvroRecord, known: dict[str, int] | None = None) -> int:
    """The bytes that each value has at least; `known` are those of named types that were asked before."""
    known = {} if known is None else known
    schema = resolve(schema, record)
    kind = kind_of(schema)
    if kind in ("record", "error"):
        name = schema["name"]
        if name not in known:
            # A record within itself is there by way of a union or an array, which may have none.
            known[name] = 0
            known[name] = sum(least_bytes(field["type"], record, known) for field in schema["fields"])
        return known[name]
    if kind == "fixed":
        return int(schema["size"])
    return _LEAST.get(kind, 1)


def _values_at_least(schema: Schema, record: AvroRecord, known: dict[str, int]) -> int:
    """The least number of values within each one: names that stand for each other make many of a short schema."""
    schema = resolve(schema, record)
    if kind_of(schema) not in ("record", "error"):
        return 1
    name = schema["name"]
    if name not in known:
        known[name] = 1
        known[name] = 1 + sum(_values_at_least(field["type"], record, known) for field in schema["fields"])
    return known[name]


def is_recursive(schema: Schema, record: AvroRecord, within: frozenset[str] = frozenset()) -> bool:
    """Whether a named type has values of itself within."""
    return _finds_itself(schema, record, within, set())


def _finds_itself(schema: Schema, record: AvroRecord, within: frozenset[str], clear: set[str]) -> bool:
    schema = resolve(schema, record)
    kind = kind_of(schema)
    if kind == "union":
        return any(_finds_itself(each, record, within, clear) for each in schema)
    if kind in ("array", "map"):
        return _finds_itself(schema["items" if kind == "array" else "values"], record, within, clear)
    if kind not in ("record", "error") or schema["name"] in clear:
        return False
    name = schema["name"]
    if name in within:
        return True
    if any(_finds_itself(field["type"], record, within | {name}, clear) for field in schema["fields"]):
        return True
    clear.add(name)
    return False


def _refuse_empty_items(schema: Schema, record: AvroRecord, seen: set[str]) -> None:
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


# A longer type is not shown to anybody.
_LONGEST_TYPE = 2_000
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


def sql_type(schema: Schema, record: AvroRecord, known: dict[str, str] | None = None) -> str:
    """The type of a column that takes all values of a type, as it is declared; empty where there is none.

    `known` are those of named types that were asked before.
    """
    known = {} if known is None else known
    schema = resolve(schema, record)
    kind = kind_of(schema)
    if kind == "union":
        branches = [each for each in schema if kind_of(resolve(each, record)) != "null"]
        return sql_type(branches[0], record, known) if len(branches) == 1 else ""
    if kind in ("record", "error"):
        if schema["name"] not in known:
            # A record within itself has no type that ends.
            known[schema["name"]] = ""
            inner = [(field["name"], sql_type(field["type"], record, known)) for field in schema["fields"]]
            fields = ", ".join(f"`{name}`: {found}" for name, found in inner)
            is_whole = inner and all(found for _, found in inner) and len(fields) <= _LONGEST_TYPE
            known[schema["name"]] = f"STRUCT<{fields}>" if is_whole else ""
        return known[schema["name"]]
    if kind in ("array", "map"):
        found = sql_type(schema["items" if kind == "array" else "values"], record, known)
        around = "ARRAY<{}>" if kind == "array" else "MAP<STRING, {}>"
        return around.format(found) if found else ""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        return f"DECIMAL({precision},{scale})" if 1 <= precision <= 38 and 0 <= scale <= precision else ""
    return _SQL_OF_LOGICAL.get((kind, str(logical)), _SQL.get(kind, ""))
