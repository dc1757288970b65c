"""Rows as documents: their ids, their JSON, the mapping of their columns, and rows again out of documents.

Texts are made column by column, because a row of Python values costs several times as much. A column without a value is
left out of its document. JSON texts, of values that hold others, stand in it as they are.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshline.values.sink import JSON

# The longest id that the system takes.
LONGEST_ID = 512
# As a keyword, a longer text may have more bytes than a term may. It is stored, and not found by its whole text.
_LONGEST_KEYWORD = 8_191
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": _LONGEST_KEYWORD}}}
_TIME = {"type": "date", "format": "strict_date_optional_time"}
# Of values that hold others, any may be in it: nothing of it is searched, and nothing can be in conflict.
_ANY = {"type": "object", "enabled": False}


@dataclass(frozen=True)
class Document:
    """A row as a document. `problem` is a code and a sentence where no document can be made of it.

    `id` is None for a row that can have none.
    """

    id: str | None
    source: str
    problem: tuple[str, str] | None = None


def mapping_of(field: pa.Field) -> Mapping[str, Any] | None:
    """The mapping of a column, None for a type that there is none for."""
    kind = field.type
    if _is_json(field):
        return _ANY
    for matches, mapping in (
        (pa.types.is_boolean, {"type": "boolean"}),
        (pa.types.is_int8, {"type": "byte"}),
        (pa.types.is_int16, {"type": "short"}),
        (pa.types.is_int32, {"type": "integer"}),
        (pa.types.is_int64, {"type": "long"}),
        (pa.types.is_float32, {"type": "float"}),
        (pa.types.is_float64, {"type": "double"}),
        (pa.types.is_decimal, {"type": "double"}),
        (pa.types.is_binary, {"type": "binary"}),
        (pa.types.is_date32, {"type": "date", "format": "strict_date"}),
        (pa.types.is_timestamp, _TIME),
        (pa.types.is_string, _TEXT),
    ):
        if matches(kind):
            return mapping
    return None


def documents(batch: pa.RecordBatch, schema: pa.Schema, keys: Sequence[str]) -> Iterator[Document]:
    """The documents of rows; `schema` says which columns have JSON texts, as batches do not."""
    names = [encode_basestring(name) for name in schema.names]
    columns = [_texts(batch[field.name], field) for field in schema]
    ids = _ids(batch, keys)
    for key, values in zip(ids, zip(*columns, strict=True), strict=True):
        found = [f"{name}:{value}" for name, value in zip(names, values, strict=True) if value is not None]
        broken = [name for name, value in zip(names, values, strict=True) if isinstance(value, _BrokenText)]
        problem = None
        if broken:
            problem = ("NOT_UTF8", f"the text of {broken[0]} is not UTF-8")
        elif key is None:
            problem = ("KEY_TOO_LONG", f"its key has more than the {LONGEST_ID} bytes of an id")
        yield Document(key, f"{{{','.join(found)}}}", problem)


def document_ids(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterator[str]:
    """The ids of rows that may be documents."""
    return (key for key in _ids(batch, keys) if key is not None)


def _ids(batch: pa.RecordBatch, keys: Sequence[str]) -> list[str | None]:
    """A text of each key, another one for another key: the value itself, or a JSON array of several.

    A text that could be taken for an array is one too, and so is the empty one, which is no id. None for a text that is
    not UTF-8, or too long.
    """
    columns = [_texts(_one_zero(batch[key]), batch.schema.field(key)) for key in keys]
    return [_id_of_key(values) for values in zip(*columns, strict=True)]


def _id_of_key(values: Sequence[str | None]) -> str | None:
    if any(isinstance(value, _BrokenText) for value in values):
        return None
    key = _id_of(values[0]) if len(values) == 1 else f"[{','.join(value or 'null' for value in values)}]"
    return key if len(key.encode()) <= LONGEST_ID else None


def _id_of(text: str | None) -> str:
    """The id of the JSON text of one value.

    >>> [_id_of(text) for text in ('"a"', "5", '""', '"[1]"', None)]
    ['a', '5', '[""]', '["[1]"]', '[null]']
    """
    if text is None:
        return "[null]"
    if not text.startswith('"'):
        return text
    plain: str = json.loads(text)
    return f"[{text}]" if not plain or plain.startswith("[") else plain


def _one_zero(column: pa.Array) -> pa.Array:
    """Keys are equal for zeros of either sign."""
    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column


class _BrokenText(str):
    """The JSON of a text whose bytes are not UTF-8."""

    __slots__ = ()


def _is_json(field: pa.Field) -> bool:
    return bool(field.metadata) and field.metadata.get(JSON) is not None


def _texts(column: pa.Array, field: pa.Field) -> list[str | None]:
    """The JSON text of each value, None where there is none."""
    kind = field.type
    if pa.types.is_string(kind):
        plain = _decoded(column)
        if _is_json(field):
            return plain
        return [
            value if value is None or isinstance(value, _BrokenText) else encode_basestring(value) for value in plain
        ]
    if pa.types.is_binary(kind):
        return [None if value is None else f'"{base64.b64encode(value).decode()}"' for value in column.to_pylist()]
    if pa.types.is_floating(kind):
        return [None if value is None else _FLOATS.get(value, value) for value in column.cast(pa.string()).to_pylist()]
    if pa.types.is_timestamp(kind):
        plain_times = column.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        zone = "" if kind.tz is None else "Z"
        return [None if value is None else f'"{value.replace(" ", "T")}{zone}"' for value in plain_times]
    if pa.types.is_date(kind):
        return [None if value is None else f'"{value}"' for value in column.cast(pa.string()).to_pylist()]
    found: list[str | None] = column.cast(pa.string()).to_pylist()
    return found


# JSON has no such numbers: the system is given their names, and refuses the row. Without its point, the zero would be
# read as a whole number, which has no sign.
_FLOATS = {"-0": "-0.0", "nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def _decoded(column: pa.Array) -> list[str | None]:
    try:
        found: list[str | None] = column.to_pylist()
    except UnicodeDecodeError:
        return [_text_of(value) for value in column.cast(pa.binary()).to_pylist()]
    return found


def _text_of(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _BrokenText(encode_basestring(value.decode(errors="replace")))


# -- back


def read_source(text: bytes) -> Any:
    """JSON whose numbers are exact."""
    return json.loads(text, parse_float=Decimal)


def rows_of(sources: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of documents that `read_source` has read. Raises ValueError for a value that is none of its column."""
    try:
        columns = [_column([source.get(field.name, _NOTHING) for source in sources], field) for field in schema]
    except (ValueError, TypeError, ArithmeticError, AttributeError, pa.ArrowException) as error:
        raise ValueError(f"a document has a value of another type than its column: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


_NOTHING = object()


def _column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    kind = field.type
    if _is_json(field):
        return pa.array([None if value is _NOTHING else json_text(value) for value in values], kind)
    plain = [None if value is _NOTHING else value for value in values]
    if pa.types.is_binary(kind):
        return pa.array([None if value is None else base64.b64decode(value) for value in plain], kind)
    if pa.types.is_floating(kind):
        return pa.array([None if value is None else float(value) for value in plain], pa.float64()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in plain], kind)
    if pa.types.is_timestamp(kind):
        # A text with a zone is read by a type with one only.
        return pa.array(plain, pa.string()).cast(pa.timestamp("us", tz=kind.tz and "UTC")).cast(kind)
    if pa.types.is_date(kind):
        return pa.array(plain, pa.string()).cast(kind)
    return pa.array(plain, kind)


def json_text(value: Any) -> str:
    """The JSON of a value with exact numbers."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{encode_basestring(key)}:{json_text(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{','.join(map(json_text, value))}]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
