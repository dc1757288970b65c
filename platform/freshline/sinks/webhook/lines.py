"""Rows as lines of JSON, as a webhook is sent them. Pure.

DECIMAL is a text, so that no digit gets lost, binary values are base64, times ISO 8601, and NaN and infinity texts.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from freshline.values.sink import JSON


class UnreadableRowError(ValueError):
    """A row that no line can have, because a text of it is not UTF-8."""


def row_lines(batch: pa.RecordBatch, operation: str) -> Iterator[bytes | UnreadableRowError]:
    """A line for each row, or the error that says why it has none.

    >>> list(row_lines(pa.record_batch({"id": [1], "note": ["a"]}), "upsert"))
    [b'{"op": "upsert", "row": {"id": 1, "note": "a"}}']
    """
    columns = [list(_values(batch.column(index), field)) for index, field in enumerate(batch.schema)]
    names = [json.dumps(name, ensure_ascii=False) for name in batch.schema.names]
    for values in zip(*columns, strict=True):
        wrong = next((value for value in values if isinstance(value, UnreadableRowError)), None)
        if wrong is not None:
            yield wrong
            continue
        row = ", ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
        yield f'{{"op": "{operation}", "row": {{{row}}}}}'.encode()


def marker(operation: str, facts: dict[str, Any]) -> bytes:
    """A line at the begin or the end of a delivery."""
    return json.dumps({"op": operation, **facts}).encode()


def bodies(lines: Iterable[bytes], most_lines: int, most_bytes: int) -> Iterator[list[bytes]]:
    """The lines of each post: as many as are allowed, one at least.

    >>> list(bodies([b"a", b"b", b"c"], 2, 100))
    [[b'a', b'b'], [b'c']]
    """
    held: list[bytes] = []
    size = 0
    for line in lines:
        if held and (len(held) == most_lines or size + len(line) > most_bytes):
            yield held
            held, size = [], 0
        held.append(line)
        size += len(line) + 1
    if held:
        yield held


def _values(column: pa.Array, field: pa.Field) -> Iterator[str | UnreadableRowError]:
    """The values of a column as they stand in a line."""
    kind = field.type
    if pa.types.is_string(kind):
        is_json = bool(field.metadata and JSON in field.metadata)
        for value in column.cast(pa.binary()).to_pylist():
            yield _text(value, field.name, is_json=is_json)
        return
    if pa.types.is_timestamp(kind):
        end = "" if kind.tz is None else "Z"
        for text in column.cast(pa.timestamp("us")).cast(pa.string()).to_pylist():
            yield "null" if text is None else json.dumps(text.replace(" ", "T") + end)
        return
    if pa.types.is_date32(kind) or pa.types.is_decimal(kind):
        # Of days, whatever the years are that Python has.
        texts = column.cast(pa.string()) if pa.types.is_date32(kind) else column
        for value in texts.to_pylist():
            yield "null" if value is None else json.dumps(value if isinstance(value, str) else format(value, "f"))
        return
    if pa.types.is_float32(kind):
        # The digits of the number itself, and not of the double next to it.
        column = column.cast(pa.string()).cast(pa.float64())
    for value in column.to_pylist():
        yield _plain(value)


def _plain(value: Any) -> str:
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, float) and not math.isfinite(value):
        return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
    return json.dumps(value)


def _text(value: bytes | None, name: str, *, is_json: bool) -> str | UnreadableRowError:
    if value is None:
        return "null"
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return UnreadableRowError(f"column {name} has a text that is not UTF-8")
    return text if is_json else json.dumps(text, ensure_ascii=False)
