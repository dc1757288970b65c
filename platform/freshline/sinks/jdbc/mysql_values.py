"""Values of Arrow as literals of MySQL and MariaDB, and their texts as values: exactly, or not at all. Pure.

The session has to be in UTC, with strict values and backslashes as escapes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshline.values.sink import JSON

# The bytes of an index of InnoDB, of which a key of fixed size takes at most so many, and the most of one character.
_INDEX_BYTES, _FIXED_KEY_BYTES, _CHARACTER_BYTES = 3072, 24, 4
_FIRST_TIME, _LAST_TIME = -62_135_596_800_000_000, 253_402_300_799_999_999
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_ESCAPED = ((b"\\", b"\\\\"), (b"'", b"\\'"), (b"\x00", b"\\0"))
_TYPES = (
    (pa.types.is_boolean, "tinyint(1)"),
    (pa.types.is_int8, "tinyint"),
    (pa.types.is_int16, "smallint"),
    (pa.types.is_int32, "int"),
    (pa.types.is_int64, "bigint"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_date32, "date"),
    (pa.types.is_timestamp, "datetime(6)"),
)


def is_json(field: pa.Field) -> bool:
    """Whether the texts of a column are JSON."""
    return bool(field.metadata and JSON in field.metadata)


def column_type(field: pa.Field, keys: Sequence[pa.Field]) -> str | None:
    """The type of a column as it is created, without a collation; None where there is none.

    Texts and bytes of a key share what an index of InnoDB has.

    >>> column_type(pa.field("k", pa.string()), [pa.field("k", pa.string())])
    'varchar(768)'
    >>> column_type(pa.field("k", pa.string()), [pa.field("k", pa.string()), pa.field("n", pa.int64())])
    'varchar(762)'
    """
    kind = field.type
    is_key = any(field.name == key.name for key in keys)
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        is_text = pa.types.is_string(kind)
        if not is_key:
            return "longtext" if is_text else "longblob"
        long = [key for key in keys if pa.types.is_string(key.type) or pa.types.is_binary(key.type)]
        share = (_INDEX_BYTES - _FIXED_KEY_BYTES * (len(keys) - len(long))) // len(long)
        return f"varchar({share // _CHARACTER_BYTES})" if is_text else f"varbinary({share})"
    return next((name for matches, name in _TYPES if matches(kind)), None)


def quoted_name(name: str) -> str:
    """A name as statements have it."""
    return "`" + name.replace("`", "``") + "`"


def text_literal(text: str) -> str:
    """A text as statements have it."""
    for plain, escaped in _ESCAPED:
        text = text.replace(plain.decode(), escaped.decode())
    return f"'{text}'"


def row_literals(batch: pa.RecordBatch, limits: Mapping[str, tuple[int, bool]]) -> list[bytes]:
    """Each row as `(.., ..)` for VALUES.

    `limits` are the lengths of columns of texts by name, each with whether they are of characters. Blanks at the end
    that are beyond it are cut in silence by the database, so such a text gets more than blanks.
    """
    columns = [
        _literals(batch.column(index), field, limits.get(field.name)) for index, field in enumerate(batch.schema)
    ]
    joined = pc.binary_join_element_wise(*columns, pa.scalar(b",", pa.binary()))
    return [b"(" + row + b")" for row in joined.to_pylist()]


def _literals(column: pa.Array, field: pa.Field, limit: tuple[int, bool] | None) -> pa.Array:
    kind = field.type
    if pa.types.is_binary(kind):
        found: list[bytes | None] = [
            None if value is None else b"X'" + value.hex().encode() + b"'" for value in column.to_pylist()
        ]
        return pc.fill_null(pa.array(found, pa.binary()), b"NULL")
    if pa.types.is_string(kind):
        texts = _with_blanks_refused(column.cast(pa.binary()), limit)
        for plain, escaped in _ESCAPED:
            texts = pc.replace_substring(texts, plain, escaped)
    else:
        texts = _texts(column, kind)
    quote = pa.scalar(b"'", pa.binary())
    return pc.fill_null(pc.binary_join_element_wise(quote, texts, quote, pa.scalar(b"", pa.binary())), b"NULL")


def _texts(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_float32(kind):
        # The nearest double has the digits by which the database finds it again.
        column = column.cast(pa.float64())
    elif pa.types.is_timestamp(kind):
        moments = column.cast(pa.int64())
        texts = column.cast(pa.timestamp("us")).cast(pa.string()).cast(pa.binary())
        return _within(moments, texts, _FIRST_TIME, _LAST_TIME)
    elif pa.types.is_date32(kind):
        return _within(column.cast(pa.int32()), column.cast(pa.string()).cast(pa.binary()), _FIRST_DAY, _LAST_DAY)
    return column.cast(pa.string()).cast(pa.binary())


def _within(values: pa.Array, texts: pa.Array, first: int, last: int) -> pa.Array:
    """The texts; those of other years than 1 to 9999 as ones that are refused, else another year is read of them."""
    is_within = pc.and_(pc.greater_equal(values, first), pc.less_equal(values, last))
    refused = pc.binary_join_element_wise(pa.scalar(b"year of ", pa.binary()), texts, pa.scalar(b"", pa.binary()))
    return pc.if_else(is_within, texts, refused)


def _with_blanks_refused(texts: pa.Array, limit: tuple[int, bool] | None) -> pa.Array:
    if limit is None:
        return texts
    most, is_of_characters = limit
    may_be_cut = pc.and_(pc.ends_with(texts, pattern=b" "), pc.greater(pc.binary_length(texts), most))
    if not pc.any(may_be_cut).as_py():
        return texts

    def refused(text: bytes | None) -> bytes | None:
        if text is None or not text.endswith(b" "):
            return text
        length = len(text.decode("utf-8", "replace")) if is_of_characters else len(text)
        return text if length <= most else text + b"x" * (most + 1)

    return pa.array([refused(text) for text in texts.to_pylist()], pa.binary())


def read_expression(field: pa.Field, name: str) -> str:
    """The expression whose text `column_of` reads; `name` is the column, quoted."""
    if pa.types.is_float32(field.type):
        # The text of a FLOAT has six digits only.
        return f"{name} + 0e0"
    if pa.types.is_decimal(field.type):
        return f"CAST({name} AS DECIMAL({field.type.precision},{field.type.scale}))"
    return name


def column_of(texts: Sequence[bytes | None], field: pa.Field) -> pa.Array:
    """The values of a column by their texts."""
    kind = field.type
    column: Any = pa.array(texts, pa.binary())
    if pa.types.is_binary(kind):
        return column
    if pa.types.is_boolean(kind):
        return pc.not_equal(column, b"0")
    # Whatever the bytes are: MariaDB takes some that are no text elsewhere.
    column = column.view(pa.string())
    if pa.types.is_float32(kind):
        return column.cast(pa.float64()).cast(kind)
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us"))
        return column.cast(kind) if kind.tz is None else pc.assume_timezone(column, "UTC").cast(kind)
    return column if pa.types.is_string(kind) else column.cast(kind)
