"""Framed records of Avro become columns with the values of the declared types, grouped by their schemas.

Pure, and sent to the processes of Spark as it is. A record is its schema's to the last byte or it is none: of bytes
that are damaged nothing can be trusted.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from fastavro.read import SchemaResolutionError

from freshline.sources.formats.avro_schema import AvroRecord, NoSchema, read_schema
from freshline.sources.formats.avro_values import NO_RECORD, NOT_AVRO, Columns, decoder_of
from freshline.sources.formats.fit import PARSED, VERDICT, Wanted
from freshline.sources.formats.framing import FRAME_BYTES, schema_id_of

# The code of a record whose schema the registry does not know, where that goes to quarantine.
UNKNOWN_SCHEMA = "UNKNOWN_SCHEMA"
# A record has its size in bytes, which was judged before; that of its values is not judged again.
_ANY_SIZE = 2**62


@dataclass(frozen=True)
class FramedSchema:
    """A schema of Avro, with those that it names before it."""

    text: str
    references: tuple[str, ...] = ()


@dataclass(frozen=True)
class FramedReading:
    """The schemas and types by which framed records are read.

    `schemas` are those of the registry by their ids, None for one that is none of Avro. An id that is not among them is
    unknown to the registry. `schema` is the one that records are resolved to. `is_key` says that a value which is no
    record is that of the one column.
    """

    schemas: Mapping[int, FramedSchema | None]
    wanted: Wanted
    schema: str | None = None
    is_key: bool = False


@dataclass(frozen=True)
class Framed:
    """Decoded records: their values, codes of quarantine, and the ids of their schemas, NULL where there is none."""

    parsed: pa.Array
    codes: pa.Array
    ids: pa.Array


def in_order(
    parts: Sequence[tuple[Sequence[int], Sequence[pa.RecordBatch]]],
    codes: list[str | None],
    ids: Sequence[int | None],
    wanted: Wanted,
) -> Framed:
    """Records that were decoded in parts, in their order: `parts` have the places of records, and their values.

    `codes` are those of records that could not be decoded, and are completed.
    """
    kind = wanted.rows.field(PARSED).type
    arrays = [batch.column(PARSED) for _, batches in parts for batch in batches]
    # Where in the arrays, one behind the other, the values of a record are.
    taken: list[int | None] = [None] * len(codes)
    count = 0
    for places, batches in parts:
        verdicts = [code for batch in batches for code in batch.column(VERDICT).to_pylist()]
        for place, code in zip(places, verdicts, strict=True):
            codes[place], taken[place] = code, count
            count += 1
    values = pa.concat_arrays(arrays).take(pa.array(taken, pa.int64())) if arrays else pa.nulls(len(codes), kind)
    return Framed(values, pa.array(codes, pa.string()), pa.array(ids, pa.int32()))


def read_framed_schema(schema: FramedSchema, column: str | None = None) -> AvroRecord:
    """Raises NoSchema for one that is none of a record; `column` as for `read_schema`."""
    return read_schema(schema.text, schema.references, column=column)


@dataclass
class FramedAvro:
    """Decodes records; schemas are read once."""

    reading: FramedReading
    _schemas: dict[int, _Schema | None] = field(default_factory=dict)

    def read(self, records: Sequence[bytes | None]) -> Framed:
        """The values of records, NULL for None and for one that is larger than a record may be: both without a code."""
        most = self.reading.wanted.most_bytes
        ids = [None if record is None else schema_id_of(record) for record in records]
        codes: list[str | None] = [None] * len(records)
        places: dict[int, list[int]] = {}
        for place, (record, schema_id) in enumerate(zip(records, ids, strict=True)):
            if record is None or len(record) > most:
                continue
            if schema_id is None:
                codes[place] = NOT_AVRO
            else:
                places.setdefault(schema_id, []).append(place)
        parts: list[tuple[list[int], list[pa.RecordBatch]]] = []
        for schema_id, of_schema in places.items():
            if schema_id not in self.reading.schemas:
                for place in of_schema:
                    codes[place] = UNKNOWN_SCHEMA
                continue
            schema = self._schema(schema_id)
            rows: list[Any] = []
            good: list[int] = []
            for place in of_schema:
                row = None if schema is None else schema.decode(records[place] or b"")
                if row is None:
                    codes[place] = NOT_AVRO
                else:
                    rows.append(row)
                    good.append(place)
            if schema is None or not rows:
                continue
            parts.append((good, list(schema.columns.batches(rows, 0))))
        return in_order(parts, codes, ids, self.reading.wanted)

    def _schema(self, schema_id: int) -> _Schema | None:
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._read_schema(self.reading.schemas[schema_id])
        return self._schemas[schema_id]

    def _read_schema(self, schema: FramedSchema | None) -> _Schema | None:
        if schema is None:
            return None
        names = self.reading.wanted.schema.names
        column = names[0] if self.reading.is_key and len(names) == 1 else None
        try:
            written = read_framed_schema(schema, column)
        except NoSchema:
            return None
        asked = None if self.reading.schema is None else read_schema(self.reading.schema)
        return _Schema(written, asked, replace(self.reading.wanted, most_bytes=_ANY_SIZE))


class _Schema:
    """The decoder and the columns for records of one schema."""

    def __init__(self, written: AvroRecord, asked: AvroRecord | None, wanted: Wanted) -> None:
        self.columns = Columns(asked or written, wanted)
        self._decoder = decoder_of(written)
        self._written = written.plain
        self._asked = None if asked is None else asked.plain

    def decode(self, record: bytes) -> dict[str, Any] | None:
        """The values of a record by their names; None for bytes that are no record of this schema."""
        source = io.BytesIO(record)
        source.seek(FRAME_BYTES)
        try:
            row: dict[str, Any] = self._decoder(source, self._written, self._asked)
        except (*NO_RECORD, SchemaResolutionError):
            return None
        return row if source.tell() == len(record) else None
