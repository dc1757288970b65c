"""Rows as ClickHouse has them: its types, the rows that fit them, and rows again out of its answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from freshline.sinks.clickhouse.sink import DELETED, VERSION
from freshline.sinks.writer import RejectedRow

# One insert makes one part, of which a table must not have many.
_MOST_ROWS = 200_000
_MOST_BYTES = 32 << 20
_MICROSECONDS = pa.timestamp("us", tz="UTC")
# The days that Date32 and DateTime64 have; others would be changed to the nearest one.
_FIRST, _END = datetime(1900, 1, 1, tzinfo=UTC), datetime(2299, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def type_of(field: pa.Field) -> str | None:
    """The type of a column, None for one that there is none for."""
    kind = field.type
    if pa.types.is_decimal(kind):
        return f"Decimal({kind.precision}, {kind.scale})"
    for matches, name in (
        (pa.types.is_boolean, "Bool"),
        (pa.types.is_int8, "Int8"),
        (pa.types.is_int16, "Int16"),
        (pa.types.is_int32, "Int32"),
        (pa.types.is_int64, "Int64"),
        (pa.types.is_float32, "Float32"),
        (pa.types.is_float64, "Float64"),
        (pa.types.is_string, "String"),
        (pa.types.is_binary, "String"),
        (pa.types.is_date32, "Date32"),
        (pa.types.is_timestamp, "DateTime64(6, 'UTC')"),
    ):
        if matches(kind):
            return name
    return None


def split_by_range(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows whose times all fit, and the others."""
    fits: Any = None
    for column in batch.columns:
        first, end = _bounds(column.type)
        if first is None:
            continue
        inside = pc.fill_null(pc.and_(pc.greater_equal(column, first), pc.less_equal(column, end)), True)
        fits = inside if fits is None else pc.and_(fits, inside)
    if fits is None or pc.all(fits).as_py() in (True, None):
        return batch, batch.slice(0, 0)
    return batch.filter(fits), batch.filter(pc.invert(fits))


def rejected_rows(outside: pa.RecordBatch) -> list[RejectedRow]:
    """The rows of `split_by_range` that do not fit, as they are set aside."""
    message = "ClickHouse has times of the years 1900 to 2299"
    return [
        RejectedRow(json.dumps(row, ensure_ascii=False, default=str), "OUT_OF_RANGE", message)
        for row in texts_of(outside)
    ]


def texts_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows for people; bytes that are no text are shown as such."""
    columns = {
        name: (column.cast(pa.binary()) if pa.types.is_string(column.type) else column).to_pylist()
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }
    for number in range(batch.num_rows):
        row = {name: values[number] for name, values in columns.items()}
        yield {name: each.decode(errors="replace") if isinstance(each, bytes) else each for name, each in row.items()}


def inserts(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str], version: int, *, deleted: bool
) -> Iterator[tuple[list[str], bytes, int]]:
    """The columns, the bytes in the format ArrowStream and the number of rows of each insert."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(_versioned(batch, keys, version, deleted=deleted))
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _MOST_ROWS or size >= _MOST_BYTES:
            yield _stream(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield _stream(waiting)


def read_rows(body: bytes, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of an answer in the format ArrowStream, in the types of `schema`."""
    if not body:
        return
    with pa.ipc.open_stream(body) as stream:
        for batch in stream:
            columns = [_as_type(batch.column(index), field.type) for index, field in enumerate(schema)]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _versioned(batch: pa.RecordBatch, keys: Sequence[str], version: int, *, deleted: bool) -> pa.RecordBatch:
    names, columns = list(batch.schema.names), []
    for name, column in zip(names, batch.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            # A time without a zone is the same reading of the clock there, in a column of UTC.
            columns.append(column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64()).cast(_MICROSECONDS))
        elif pa.types.is_string(column.type):
            # Bytes, because a text may be none.
            columns.append(column.cast(pa.binary()))
        elif pa.types.is_floating(column.type) and name in keys:
            # Keys are equal for zeros of either sign.
            columns.append(pc.add(column, pa.scalar(0, column.type)))
        else:
            columns.append(column)
    columns.append(pa.array([version] * batch.num_rows, pa.uint64()))
    columns.append(pa.array([int(deleted)] * batch.num_rows, pa.uint8()))
    return pa.RecordBatch.from_arrays(columns, names=[*names, VERSION, DELETED])


def _stream(batches: Sequence[pa.RecordBatch]) -> tuple[list[str], bytes, int]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
    return batches[0].schema.names, sink.getvalue().to_pybytes(), sum(batch.num_rows for batch in batches)


def _as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        plain = column.cast(pa.binary())
        return plain.view(pa.string()) if pa.types.is_string(kind) else plain
    if pa.types.is_timestamp(kind):
        return column.cast(pa.int64()).cast(pa.timestamp("us", tz=kind.tz)).cast(kind)
    return column.cast(kind)


def _bounds(kind: pa.DataType) -> tuple[Any, Any]:
    if pa.types.is_date(kind):
        return pa.scalar(date(1900, 1, 1), kind), pa.scalar(date(2299, 12, 31), kind)
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            return pa.scalar(_FIRST.replace(tzinfo=None), kind), pa.scalar(_END.replace(tzinfo=None), kind)
        return pa.scalar(_FIRST, kind), pa.scalar(_END, kind)
    return None, None
