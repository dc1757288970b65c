"""Values of a file's own types become values of the declared ones, or are lost: column by column, without Spark.

A value is stored as it is or not at all. A wider type takes every value of a narrower one, a narrower type those that
fit it. A number is never made of a text, and a text never of a number. A DOUBLE or a FLOAT is meant to be the nearest
to a whole or decimal number. This module uses nothing of freshline, because the machines of a cluster may not have it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Mask = np.ndarray[Any, np.dtype[np.bool_]]
Counts = np.ndarray[Any, np.dtype[np.int64]]

VALUE, PLACE, LINE = "value", "_freshline_record", "_freshline_line"
VERDICT, PARSED = "_freshline_verdict", "_freshline_parsed"
VALUE_CHANGED, TOO_LARGE = "VALUE_CHANGED", "TOO_LARGE"

# Rows are handed on in batches of about this size, and of a rejected row at most so much is kept.
BATCH_BYTES = 4 << 20
CUT_BYTES = 64 << 10
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 to 9999, as everywhere in freshline
_DAY_MICROSECONDS = 86_400_000_000
_EARLIEST, _LATEST = _FIRST_DAY * _DAY_MICROSECONDS, (_LAST_DAY + 1) * _DAY_MICROSECONDS - 1
_PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
DIGITS = Context(prec=80)


@dataclass(frozen=True)
class Wanted:
    """The declared columns with their types, as Arrow has them, and the bytes that a record may have."""

    schema: pa.Schema
    most_bytes: int

    @property
    def rows(self) -> pa.Schema:
        """The schema of the batches of `fitted`: good records have PARSED, others VALUE and VERDICT."""
        return pa.schema(
            [
                (VALUE, pa.binary()),
                (PLACE, pa.int64()),
                (LINE, pa.int64()),
                (VERDICT, pa.string()),
                (PARSED, pa.struct(list(self.schema))),
            ]
        )


def fitted(
    columns: Sequence[pa.Array | None],
    count: int,
    first: int,
    wanted: Wanted,
    lost: Sequence[Mask | None] = (),
) -> Iterator[pa.RecordBatch]:
    """Records as `Wanted.rows` has them, in batches of bounded size.

    `columns` are the values of the declared columns in their order, None for one that the file lacks, each of `count`
    records. `first` is the number of the first record. Texts may be dictionaries, which are unfolded batch by batch.
    `lost` says for each column which values are known to be lost.
    """
    given = [pa.nulls(count) if column is None else column for column in columns]
    sizes = np.zeros(count, np.int64)
    for column in given:
        sizes += row_bytes(column)
    start = 0
    held = np.cumsum(np.minimum(sizes, wanted.most_bytes) + 8)
    while start < count:
        before = 0 if start == 0 else int(held[start - 1])
        end = max(start + 1, int(np.searchsorted(held, before + BATCH_BYTES)))
        part = [column.slice(start, end - start) for column in given]
        known = [None if mask is None else mask[start:end] for mask in lost or [None] * len(given)]
        yield from _fitted_part(part, sizes[start:end], first + start, wanted, known)
        start = end


def _fitted_part(
    columns: Sequence[pa.Array], sizes: Counts, first: int, wanted: Wanted, known: Sequence[Mask | None]
) -> Iterator[pa.RecordBatch]:
    # Few records are rejected, and the others are not checked one by one.
    verdicts = dict.fromkeys(np.flatnonzero(sizes > wanted.most_bytes).tolist(), TOO_LARGE)
    small = columns
    if verdicts:
        # A text that is too large is not unfolded.
        kept = pa.array(sizes <= wanted.most_bytes)
        small = [_only(kept, column) for column in columns]
    values = []
    for field, column, mask in zip(wanted.schema, small, known, strict=True):
        value, lost = fit(column, field.type)
        values.append(value)
        for each in (lost, mask):
            for row in [] if each is None else np.flatnonzero(each).tolist():
                verdicts.setdefault(row, f"{VALUE_CHANGED}({field.name})")
    rejected: Mask = np.zeros(len(sizes), bool)
    rejected[list(verdicts)] = True
    parsed = pa.StructArray.from_arrays(values, fields=list(wanted.schema), mask=pa.array(rejected))
    raw, codes = pa.nulls(len(sizes), pa.binary()), pa.nulls(len(sizes), pa.string())
    if verdicts:
        names = wanted.schema.names
        texts = {row: shown(names, [column[row] for column in columns]) for row in verdicts}
        raw = pa.array([texts.get(row) for row in range(len(sizes))], pa.binary())
        codes = pa.array([verdicts.get(row) for row in range(len(sizes))], pa.string())
    numbers = pa.array(np.arange(first, first + len(sizes), dtype=np.int64))
    yield pa.RecordBatch.from_arrays([raw, numbers, numbers, codes, parsed], schema=wanted.rows)


def _only(kept: pa.Array, column: pa.Array) -> pa.Array:
    """The values that are kept, NULL for others; a union has no value of a declared type anyway."""
    return column if pa.types.is_union(column.type) else pc.if_else(kept, column, pa.scalar(None, column.type))


# -- from the file's types to the declared ones


def fit(values: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    """The values as `kind` has them, NULL where it has none, and which of them are lost; None where no one is.

    Arrays within are sliced and unfolded as needed. Members of a struct are found by their names, a missing one is
    NULL, and others are left out. A key that stands twice in a map is lost with its map.
    """
    values = _storage(values, kind)
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind), None
    if pa.types.is_struct(kind):
        found, lost = _fit_struct(values, kind) if pa.types.is_struct(values.type) else (None, None)
    elif pa.types.is_map(kind):
        found, lost = _fit_map(values, kind) if pa.types.is_map(values.type) else (None, None)
    elif pa.types.is_list(kind):
        values = _as_list(values)
        found, lost = _fit_list(values, kind) if pa.types.is_list(values.type) else (None, None)
    else:
        found, lost = _leaf(values, kind), None
    valid: Mask = np.asarray(values.is_valid())
    if found is None:
        found = pa.nulls(len(values), kind)
    missed: Mask = valid & (~np.asarray(found.is_valid()) if lost is None else lost)
    return found, (missed if bool(np.any(missed)) else None)


def _storage(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Without what Arrow wraps values in."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if isinstance(values.type, pa.BaseExtensionType):
        is_uuid = values.type.extension_name == "arrow.uuid"
        values = values.storage
        if is_uuid and pa.types.is_string(kind):
            texts = [None if value is None else str(UUID(bytes=value)) for value in values.to_pylist()]
            return pa.array(texts, pa.string())
    return values


def _fit_struct(values: pa.StructArray, kind: pa.StructType) -> tuple[pa.Array, Mask]:
    names = [field.name for field in values.type]
    members: list[pa.Array] = []
    lost: Mask = np.zeros(len(values), bool)
    for field in kind:
        member, lost_member = pa.nulls(len(values), field.type), None
        if names.count(field.name) > 1:
            # Nobody knows which of them is meant.
            lost |= True
        elif field.name in names:
            member, lost_member = fit(values.field(names.index(field.name)), field.type)
        members.append(member)
        if lost_member is not None:
            lost |= lost_member
    return pa.StructArray.from_arrays(members, fields=list(kind), mask=values.is_null()), lost


def _as_list(values: pa.Array) -> pa.Array:
    kind = values.type
    if any(
        each(kind)
        for each in (
            pa.types.is_large_list,
            pa.types.is_fixed_size_list,
            pa.types.is_list_view,
            pa.types.is_large_list_view,
        )
    ):
        return values.cast(pa.list_(kind.value_type))
    return values


def _offsets(values: Any) -> tuple[Counts, int, int]:
    """The places where the values of each list begin, from 0 on, and the range of them all."""
    offsets = np.asarray(values.offsets).astype(np.int64)
    begin, end = int(offsets[0]), int(offsets[-1])
    return offsets - begin, begin, end


def _any_within(lost: Mask | None, offsets: Counts) -> Mask:
    """For each list whether one of its values is lost."""
    if lost is None:
        return np.zeros(len(offsets) - 1, bool)
    before = np.concatenate([[0], np.cumsum(lost)])
    return np.asarray(before[offsets[1:]] > before[offsets[:-1]])


def _fit_list(values: pa.ListArray, kind: pa.ListType) -> tuple[pa.Array, Mask]:
    offsets, begin, end = _offsets(values)
    elements, lost = fit(values.values.slice(begin, end - begin), kind.value_type)
    places = pa.array(offsets.astype(np.int32))
    return pa.ListArray.from_arrays(places, elements, type=kind, mask=values.is_null()), _any_within(lost, offsets)


def _fit_map(values: pa.MapArray, kind: pa.MapType) -> tuple[pa.Array, Mask]:
    offsets, begin, end = _offsets(values)
    keys, lost_keys = fit(values.keys.slice(begin, end - begin), kind.key_type)
    items, lost_items = fit(values.items.slice(begin, end - begin), kind.item_type)
    lost = _any_within(lost_keys, offsets) | _any_within(lost_items, offsets)
    lost |= _any_within(np.asarray(keys.is_null()) if keys.null_count else None, offsets) | _twice(keys, offsets)
    # A map has no entry without a key, so those of lost maps are taken out.
    gone = lost | np.asarray(values.is_null())
    if bool(np.any(gone)):
        lengths = np.diff(offsets)
        kept = pa.array(np.repeat(~gone, lengths))
        keys, items = keys.filter(kept), items.filter(kept)
        offsets = np.concatenate([[0], np.cumsum(np.where(gone, 0, lengths))])
    places = pa.array(offsets.astype(np.int32))
    return pa.MapArray.from_arrays(places, keys, items, type=kind, mask=pa.array(gone)), lost


def _twice(keys: pa.Array, offsets: Counts) -> Mask:
    """For each map whether a key stands in it twice."""
    if pa.types.is_nested(keys.type):
        numbers: dict[str, int] = {}
        codes = np.array([numbers.setdefault(repr(key), len(numbers)) for key in keys.to_pylist()], np.int64)
    else:
        codes = np.asarray(keys.dictionary_encode().indices.fill_null(0)).astype(np.int64)
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    found = np.zeros(len(offsets) - 1, bool)
    if len(codes):
        pairs = owner * (int(codes.max()) + 1) + codes
        order = np.argsort(pairs, kind="stable")
        again = order[1:][pairs[order][1:] == pairs[order][:-1]]
        found[owner[again]] = True
    return found


def _leaf(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a type without values within, NULL where one is lost."""
    if pa.types.is_boolean(kind):
        return values if pa.types.is_boolean(values.type) else pa.nulls(len(values), kind)
    convert = next(function for is_kind, function in _LEAVES if is_kind(kind))
    return convert(values, kind)


def _integer(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(values.type) and values.type.scale == 0:
        least, most = _range(kind)
        return _one_by_one(values, kind, lambda value: int(value) if least <= value <= most else None)
    if not pa.types.is_integer(values.type):
        return pa.nulls(len(values), kind)
    least, most = _range(kind)
    lowest, highest = _range(values.type)
    if lowest < least:
        values = pc.if_else(pc.greater_equal(values, pa.scalar(least, values.type)), values, None)
    if highest > most:
        values = pc.if_else(pc.less_equal(values, pa.scalar(most, values.type)), values, None)
    return values.cast(kind)


def _range(kind: pa.DataType) -> tuple[int, int]:
    limits = np.iinfo(kind.to_pandas_dtype())
    return int(limits.min), int(limits.max)


def _decimal(values: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    if pa.types.is_integer(values.type):
        values = values.cast(pa.decimal128(20, 0) if pa.types.is_uint64(values.type) else pa.decimal128(19, 0))
    if not pa.types.is_decimal(values.type):
        return pa.nulls(len(values), kind)
    try:
        return values.cast(pa.decimal256(76, max(values.type.scale, kind.scale, 0))).cast(kind)
    except pa.ArrowInvalid:
        whole, step = Decimal(10) ** (kind.precision - kind.scale), Decimal(1).scaleb(-kind.scale)

        def exact(value: Decimal) -> Decimal | None:
            rounded = value.quantize(step, context=DIGITS) if abs(value) < whole else None
            return rounded if rounded == value else None

        return _one_by_one(values, kind, exact)


def _floating(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_integer(values.type):
        return values.cast(kind, safe=False)
    if pa.types.is_decimal(values.type):
        # By way of the text, because that is rounded once and to the nearest.
        number = values.cast(pa.string()).cast(kind)
        return pc.if_else(pc.is_finite(number), number, None)
    if not pa.types.is_floating(values.type):
        return pa.nulls(len(values), kind)
    if values.type.bit_width <= kind.bit_width:
        return values.cast(kind)
    narrow = values.cast(kind, safe=False)
    same = pc.or_(pc.equal(narrow.cast(values.type), values), pc.is_nan(values))
    return pc.if_else(same, narrow, None)


def _string(values: pa.Array, kind: pa.DataType) -> pa.Array:
    is_text = any(each(values.type) for each in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
    is_bytes = any(
        each(values.type) for each in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    )
    if not (is_text or is_bytes):
        return pa.nulls(len(values), kind)
    try:
        # Readers of files take bytes for texts that are none, and only this checks them.
        return values.cast(pa.binary()).cast(kind)
    except pa.ArrowInvalid:
        return _one_by_one(values.cast(pa.binary()), kind, _decoded)


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _binary(values: pa.Array, kind: pa.DataType) -> pa.Array:
    of = values.type
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    if pa.types.is_decimal(of) or not any(each(of) for each in kinds):
        return pa.nulls(len(values), kind)
    return values.cast(kind)


def _date(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_date64(values.type):
        try:
            values = values.cast(kind)
        except pa.ArrowInvalid:
            return pa.nulls(len(values), kind)
    if not pa.types.is_date32(values.type):
        return pa.nulls(len(values), kind)
    days = values.cast(pa.int32())
    inside = pc.and_(pc.greater_equal(days, _FIRST_DAY), pc.less_equal(days, _LAST_DAY))
    return pc.if_else(inside, values, None)


def _timestamp(values: pa.Array, kind: pa.TimestampType) -> pa.Array:
    """A time without a zone is one of UTC, and a date its first moment. A moment is no time without a zone."""
    if pa.types.is_date(values.type):
        days = _date(values, pa.date32())
        numbers, factor, divisor = days.cast(pa.int32()).cast(pa.int64()), _DAY_MICROSECONDS, 1
    elif pa.types.is_timestamp(values.type) and (kind.tz is not None or values.type.tz is None):
        numbers = values.cast(pa.int64())
        factor, divisor = _PER_MICROSECOND[values.type.unit]
    else:
        return pa.nulls(len(values), kind)
    lost = np.asarray(numbers.is_null())
    given = np.asarray(numbers.fill_null(0))
    if divisor == 1:
        lost = lost | (given < _EARLIEST // factor) | (given > _LATEST // factor)
    else:
        # All that 64 bits of nanoseconds reach is within the years.
        lost = lost | (given % divisor != 0)
    microseconds = np.where(lost, 0, given) * factor // divisor
    return pa.array(microseconds, pa.int64(), mask=lost).cast(kind)


def _one_by_one(values: pa.Array, kind: pa.DataType, convert: Callable[[Any], Any]) -> pa.Array:
    return pa.array([None if value is None else convert(value) for value in values.to_pylist()], kind)


_LEAVES: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, Any], pa.Array]], ...] = (
    (pa.types.is_integer, _integer),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_floating, _floating),
    (pa.types.is_string, _string),
    (pa.types.is_binary, _binary),
    (pa.types.is_date, _date),
    (pa.types.is_timestamp, _timestamp),
)


def cut_off(coarse: pa.Array, fine: pa.Array) -> Mask | None:
    """The mask of values that have a time with digits behind the microsecond; None for a type without times.

    `coarse` are the values with times in microseconds, and `fine` the same ones in nanoseconds. Nanoseconds of years
    that 64 bits do not reach are right but for a multiple of 2^64, and so are the ones that they are compared with.
    """
    coarse, fine = _as_list(coarse), _as_list(fine)
    kind = coarse.type
    if pa.types.is_timestamp(kind):
        micro, nano = (np.asarray(each.cast(pa.int64()).fill_null(0)) for each in (coarse, fine))
        return np.asarray(micro * 1_000 != nano)
    if pa.types.is_struct(kind):
        found = [cut_off(coarse.field(number), fine.field(number)) for number in range(kind.num_fields)]
        masks = [mask for mask in found if mask is not None]
        return np.logical_or.reduce(masks) if masks else None
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets, begin, end = _offsets(coarse)
        inner = []
        for part in ("keys", "items") if pa.types.is_map(kind) else ("values",):
            values = [getattr(each, part) for each in (coarse, fine)]
            starts = (begin, int(np.asarray(fine.offsets)[0]))
            inner.append(cut_off(*(each.slice(at, end - begin) for each, at in zip(values, starts, strict=True))))
        masks = [_any_within(mask, offsets) for mask in inner if mask is not None]
        return np.logical_or.reduce(masks) if masks else None
    return None


# -- what a column of the file would be declared as


_SQL = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT", pa.int64(): "BIGINT",
    pa.uint8(): "SMALLINT", pa.uint16(): "INT", pa.uint32(): "BIGINT", pa.uint64(): "DECIMAL(20,0)",
    pa.float16(): "FLOAT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "STRING",
    pa.large_string(): "STRING", pa.string_view(): "STRING", pa.binary(): "BINARY", pa.large_binary(): "BINARY",
    pa.binary_view(): "BINARY", pa.date32(): "DATE", pa.date64(): "DATE",
}  # fmt: skip


def sql_type(kind: pa.DataType) -> str:
    """The type of a column that takes all values of a type, as it is declared; empty where there is none."""
    if pa.types.is_dictionary(kind):
        return sql_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP_NTZ" if kind.tz is None else "TIMESTAMP"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})" if kind.precision <= 38 and kind.scale >= 0 else ""
    if pa.types.is_fixed_size_binary(kind):
        return "BINARY"
    if pa.types.is_struct(kind):
        inner = [(field.name, sql_type(field.type)) for field in kind]
        fields = ", ".join(f"`{name}`: {found}" for name, found in inner)
        return f"STRUCT<{fields}>" if inner and all(found for _, found in inner) else ""
    if pa.types.is_map(kind):
        key, item = sql_type(kind.key_type), sql_type(kind.item_type)
        return f"MAP<{key}, {item}>" if key and item else ""
    if hasattr(kind, "value_type"):
        element = sql_type(kind.value_type)
        return f"ARRAY<{element}>" if element else ""
    return _SQL.get(kind, "")


# -- how much a record has, and how a rejected one is shown


def row_bytes(values: pa.Array) -> Counts:
    """The bytes of each value; texts are not unfolded for it."""
    kind = values.type
    if isinstance(kind, pa.BaseExtensionType):
        return row_bytes(values.storage)
    if pa.types.is_dictionary(kind):
        sizes = np.append(row_bytes(values.dictionary), 0)
        return np.asarray(sizes[np.asarray(values.indices.fill_null(len(sizes) - 1))])
    if pa.types.is_struct(kind):
        sizes = np.zeros(len(values), np.int64)
        for number in range(kind.num_fields):
            sizes += row_bytes(values.field(number))
        return sizes
    values = _as_list(values)
    if pa.types.is_list(values.type) or pa.types.is_map(values.type):
        offsets, begin, end = _offsets(values)
        parts = [values.keys, values.items] if pa.types.is_map(values.type) else [values.values]
        within = np.zeros(end - begin, np.int64)
        for part in parts:
            within += row_bytes(part.slice(begin, end - begin))
        before = np.concatenate([[0], np.cumsum(within)])
        return np.asarray(before[offsets[1:]] - before[offsets[:-1]])
    if pa.types.is_null(kind) or pa.types.is_union(kind):
        return np.zeros(len(values), np.int64)
    try:
        width = kind.bit_width
    except ValueError:
        return np.asarray(pc.binary_length(values).fill_null(0)).astype(np.int64)
    return np.full(len(values), max(1, width // 8), np.int64)


def shown(names: Sequence[str], values: Sequence[pa.Scalar]) -> bytes:
    """A record as JSON, for the quarantine: of its texts and of the whole at most CUT_BYTES."""
    pairs = {name: _shown(value) for name, value in zip(names, values, strict=True)}
    return json.dumps(pairs, ensure_ascii=False).encode(errors="replace")[:CUT_BYTES]


def _shown(scalar: Any) -> Any:
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.DictionaryScalar):
        return _shown(scalar.value)
    if isinstance(scalar, pa.ExtensionScalar):
        return _shown(scalar.value)
    if pa.types.is_struct(kind):
        return {kind.field(number).name: _shown(scalar[number]) for number in range(kind.num_fields)}
    if pa.types.is_map(kind):
        entries = scalar.values
        return {str(_shown(entry[0])): _shown(entry[1]) for entry in entries}
    if isinstance(scalar, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return [_shown(value) for value in scalar.values]
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return scalar.as_py()
    if pa.types.is_temporal(kind):
        return _shown_time(scalar)
    if any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        # Readers of files take bytes for texts that are none.
        return scalar.cast(pa.binary()).as_py()[:CUT_BYTES].decode(errors="backslashreplace")
    value = scalar.as_py()
    if isinstance(value, bytes):
        return base64.b64encode(value[:CUT_BYTES]).decode()
    return str(value)[:CUT_BYTES]


def _shown_time(scalar: Any) -> str:
    try:
        return str(scalar.cast(pa.string()).as_py())
    except pa.ArrowException:
        # An interval, or a moment that no calendar of Arrow's has.
        return str(scalar.cast(pa.int64()).as_py()) if pa.types.is_timestamp(scalar.type) else str(scalar)
