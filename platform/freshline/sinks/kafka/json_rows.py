"""Rows as JSON objects, and back: column by column, in Arrow.

The text of a row is always the same for the same values, so rows are compared by their texts. Numbers have all of their
digits, times are ISO 8601 with microseconds (of TIMESTAMP in UTC with a Z), bytes are base64, and values that hold
others stand as the JSON that they are.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshline.values.sink import JSON

_TEXT = pa.large_string()
_ESCAPED = r'[\x00-\x1f"\\]'
_NO_NUMBERS = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


class Number(str):
    """A number of JSON, as it is written."""


_DECODER = json.JSONDecoder(parse_int=Number, parse_float=Number)


def encode_rows(rows: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.Array:
    """The rows as JSON objects, texts of Arrow; `names` are the columns that they have, by default all of them."""
    parts: list[Any] = []
    for position, name in enumerate(rows.schema.names if names is None else names):
        parts.append(("{" if position == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":")
        parts.append(_encoded(rows.column(name), rows.schema.field(name)))
    return joined([*parts, "}"])


def joined(parts: Sequence[Any]) -> pa.Array:
    """Texts and columns of texts, one behind the other."""
    scalars = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar("", _TEXT))


def broken_texts(rows: pa.RecordBatch) -> list[int]:
    """The places of rows with a text that is no UTF-8."""
    found: set[int] = set()
    for column in rows.columns:
        if not pa.types.is_string(column.type):
            continue
        # Arrow looks at the texts only where they change their type.
        content = column.view(pa.binary())
        try:
            content.cast(pa.string())
        except pa.ArrowInvalid:
            found.update(
                at for at, value in enumerate(content.to_pylist()) if value is not None and not _is_text(value)
            )
    return sorted(found)


def decode_object(text: bytes) -> dict[str, Any]:
    """A JSON object, with numbers as they are written. Raises ValueError for another text."""
    found = _DECODER.decode(text.decode())
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def decode_rows(texts: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
    """The rows that JSON objects are, in the columns and types of `schema`; a member that is missing is NULL.

    Raises ValueError for what is no such row.
    """
    rows = [decode_object(text) for text in texts]
    try:
        columns = [_decoded([row.get(field.name) for row in rows], field) for field in schema]
    except (TypeError, AttributeError, pa.ArrowException) as error:
        raise ValueError(f"a value does not fit its column: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- one column


def _encoded(column: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if field.metadata and field.metadata.get(JSON) is not None:
        text = column.cast(_TEXT)
    elif pa.types.is_string(kind):
        text = _quoted(column)
    elif pa.types.is_binary(kind):
        found = [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in column.to_pylist()]
        text = pa.array(found, _TEXT)
    elif pa.types.is_floating(kind):
        text = _of_floats(column)
    elif pa.types.is_date(kind):
        text = joined(['"', column.cast(_TEXT), '"'])
    elif pa.types.is_timestamp(kind):
        plain = column.cast(pa.timestamp("us", kind.tz)).cast(pa.timestamp("us")).cast(_TEXT)
        text = joined(['"', pc.replace_substring(plain, " ", "T"), '"' if kind.tz is None else 'Z"'])
    elif pa.types.is_decimal(kind):
        text = _of_decimals(column)
    else:
        # Whole numbers and truth values are in JSON what they are in Arrow.
        text = column.cast(_TEXT)
    return pc.fill_null(text, "null")


def _quoted(column: pa.Array) -> pa.Array:
    text = column.cast(_TEXT)
    escaped = pc.fill_null(pc.match_substring_regex(text, _ESCAPED), False)
    if not pc.any(escaped).as_py():
        return joined(['"', text, '"'])
    found = [None if value is None else json.dumps(value, ensure_ascii=False) for value in text.to_pylist()]
    return pa.array(found, _TEXT)


def _of_floats(column: pa.Array) -> pa.Array:
    text = column.cast(_TEXT)
    # A whole number would lose the sign of zero where it is read.
    text = pc.replace_substring_regex(text, r"^(-?[0-9]+)$", r"\1.0")
    for written, quoted in _NO_NUMBERS.items():
        text = pc.if_else(pc.equal(text, written), pa.scalar(quoted, _TEXT), text)
    return text


def _of_decimals(column: pa.Array) -> pa.Array:
    text = column.cast(_TEXT)
    if column.type.scale >= 0 and not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    return pa.array([None if value is None else format(value, "f") for value in column.to_pylist()], _TEXT)


def _decoded(values: list[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    if field.metadata and field.metadata.get(JSON) is not None:
        return pa.array([None if value is None else json_text(value) for value in values], kind)
    if pa.types.is_binary(kind):
        found = [None if value is None else base64.b64decode(value, validate=True) for value in values]
        return pa.array(found, kind)
    if pa.types.is_boolean(kind):
        return pa.array(values, kind)
    texts = pa.array([None if value is None else str(value) for value in values], pa.string())
    if pa.types.is_string(kind):
        return texts.cast(kind)
    if pa.types.is_timestamp(kind):
        plain = pc.utf8_rtrim(texts, "Z").cast(pa.timestamp("us"))
        return plain.cast(kind) if kind.tz is None else pc.assume_timezone(plain, "UTC").cast(kind)
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in values], kind)
    return texts.cast(kind)


def json_text(value: Any) -> str:
    """JSON with numbers as they were written."""
    match value:
        case Number():
            return str(value)
        case dict():
            members = (f"{json.dumps(name, ensure_ascii=False)}:{json_text(each)}" for name, each in value.items())
            return "{" + ",".join(members) + "}"
        case list():
            return "[" + ",".join(map(json_text, value)) + "]"
        case _:
            return json.dumps(value, ensure_ascii=False)
