"""Rows as CSV and back, as RFC 4180 has it: records end with CRLF, and a quote inside quotes stands twice.

NULL is an empty field without quotes, an empty text one with quotes. Binary values are base64, times ISO 8601, those of
a moment in UTC. A source of freshline with `multi-line` reads the same rows, and base64 as STRING.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

_QUOTE = b'"'


def csv_header(schema: pa.Schema) -> bytes:
    """The line of the names."""
    return b",".join(_quoted(pa.array([name], pa.binary()))[0].as_py() for name in schema.names) + b"\r\n"


def csv_lines(batch: pa.RecordBatch) -> bytes:
    r"""The lines of rows; at least two columns, because a NULL alone would be no line.

    >>> csv_lines(pa.record_batch({"a": ['x"y', None, ""], "n": [1, None, 3]}))
    b'"x""y",1\r\n,\r\n"",3\r\n'
    """
    if batch.num_rows == 0:
        return b""
    fields = [pc.fill_null(_texts(column), b"") for column in batch.columns]
    lines = pc.binary_join_element_wise(*fields, pa.scalar(b",", pa.binary()))
    return b"\r\n".join(lines.to_pylist()) + b"\r\n"


def _texts(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return _quoted(column.cast(pa.binary()))
    if pa.types.is_binary(kind):
        return _of(base64.b64encode(value) if value else value for value in column.to_pylist())
    if pa.types.is_decimal(kind):
        return _of(None if value is None else format(value, "f").encode() for value in column.to_pylist())
    if pa.types.is_timestamp(kind):
        # Of the one without a zone, whatever the machine's is.
        texts = pc.replace_substring(column.cast(pa.timestamp("us")).cast(pa.string()), " ", "T")
        return _ending(texts, b"" if kind.tz is None else b"Z")
    texts = column.cast(pa.string()).cast(pa.binary())
    if pa.types.is_floating(kind):
        for said, meant in ((b"nan", b"NaN"), (b"inf", b"Infinity")):
            texts = pc.replace_substring(texts, said, meant)
    return texts


def _ending(texts: pa.Array, end: bytes) -> pa.Array:
    return pc.binary_join_element_wise(texts.cast(pa.binary()), pa.scalar(end), pa.scalar(b"", pa.binary()))


def _of(values: Any) -> pa.Array:
    """Texts without quotes, but for empty ones, which are no NULL."""
    return pa.array([b'""' if value == b"" else value for value in values], pa.binary())


def _quoted(texts: pa.Array) -> pa.Array:
    doubled = pc.replace_substring(texts, _QUOTE, _QUOTE * 2)
    quote = pa.scalar(_QUOTE, pa.binary())
    return pc.binary_join_element_wise(quote, doubled, quote, pa.scalar(b"", pa.binary()))


def read_csv(stream: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a file in the columns and types of `schema`."""
    reader = csv.open_csv(
        stream,
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=pa.schema([pa.field(name, pa.binary()) for name in schema.names]),
            include_columns=schema.names,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for batch in reader:
        columns = [_value(batch.column(index), field.type) for index, field in enumerate(schema)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _value(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_binary(kind):
        values = [None if value is None else base64.b64decode(value, validate=True) for value in column.to_pylist()]
        return pa.array(values, kind)
    if pa.types.is_string(kind):
        # Whatever the bytes are: they are those of the table.
        return column.view(pa.string())
    texts = column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is None:
        return texts.cast(pa.timestamp("us")).cast(kind)
    return texts.cast(kind)
