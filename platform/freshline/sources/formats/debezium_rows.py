"""Debezium's records as columns: each is read once, by Python in the processes of Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, IntegerType, StringType, StructField, StructType, TimestampType

from freshline.declare.change import CHANGED_AT, OP, POSITION, TRANSACTION, UNSENT
from freshline.declare.format import PARSED, VALUE, Decoded
from freshline.declare.spec import SourceSpec
from freshline.sources.formats import envelope as envelope_module
from freshline.sources.formats import envelope_avro as envelope_avro_module
from freshline.sources.formats.avro_schema import Record, kind_of, resolve
from freshline.sources.formats.envelope import TOMBSTONE, EnvelopeReader, Event, Reading, Rejected
from freshline.sources.formats.envelope_avro import AvroEnvelopes
from freshline.sources.formats.framed_rows import (
    AVRO_MODULES,
    BROKEN,
    Schemas,
    avro_schemas,
    decode_in_tasks,
    undeclared_fields,
)
from freshline.sources.formats.framing import schema_id_of
from freshline.sources.formats.registry import SCHEMA_ID
from freshline.sources.records import DROPPED, record_schema

if TYPE_CHECKING:
    from freshline.sources.formats.debezium import DebeziumJson
    from freshline.sources.formats.debezium_avro import DebeziumAvro


def decode_debezium(records: DataFrame, spec: SourceSpec, declared: DebeziumJson) -> Decoded:
    """The records with the struct PARSED and the facts of their events."""
    if "PYSPARK_PYTHON" not in os.environ:
        # Spark would take the first `python3` of the path, which may lack pyarrow.
        records.sparkSession.sparkContext.pythonExec = sys.executable
    schema = record_schema(spec)
    reading = _reading(spec, declared.time_unit, declared.decimals, declared.unavailable)
    made = StructType(
        [
            StructField(PARSED, schema),
            StructField(OP, StringType()),
            StructField(POSITION, StringType()),
            StructField(CHANGED_AT, TimestampType()),
            StructField(TRANSACTION, StringType()),
            StructField(UNSENT, ArrayType(StringType())),
            StructField(BROKEN, StringType()),
        ]
    )
    # Arrow has texts of UTF-8 only, and a record may be anything.
    given = records.withColumn(VALUE, F.col(VALUE).cast("binary"))
    rows = given.mapInArrow(
        _in_batches(reading, to_arrow_schema(made, timezone="UTC")), StructType([*given.schema.fields, *made.fields])
    )
    return Decoded(rows.withColumn(VALUE, F.col(VALUE).cast("string")), F.col(BROKEN))


def decode_debezium_avro(records: DataFrame, spec: SourceSpec, declared: DebeziumAvro) -> Decoded:
    """The records with the struct PARSED, the facts of their events, and the ids of their schemas."""
    reading = _reading(spec, declared.time_unit, None, declared.unavailable)
    schemas, most_bytes = avro_schemas(declared.schemas), spec.max_record_bytes
    facts = [
        StructField(OP, StringType()),
        StructField(POSITION, StringType()),
        StructField(CHANGED_AT, TimestampType()),
        StructField(TRANSACTION, StringType()),
        StructField(UNSENT, ArrayType(StringType())),
        StructField(SCHEMA_ID, IntegerType()),
    ]
    made = to_arrow_schema(
        StructType([StructField(PARSED, record_schema(spec)), *facts, StructField(BROKEN, StringType())]),
        timezone="UTC",
    )
    names, nothing = tuple(name for name, _ in reading.columns), (None,) * 6

    def begin() -> Callable[[list[bytes | None]], list[pa.Array]]:
        reader = AvroEnvelopes(EnvelopeReader(reading), schemas)

        def row(record: bytes | None) -> tuple[Any, ...]:
            if record is None or len(record) > most_bytes:
                return (*nothing, None, None)
            schema_id = schema_id_of(record)
            try:
                event: Event = reader.read(record)
            except Rejected as rejected:
                return (*nothing, schema_id, str(rejected))
            values = dict(zip(names, event.values, strict=True))
            facts = (event.op, event.position, event.changed_at, event.transaction, list(event.unsent))
            return (values, *facts, schema_id, None)

        def read(records: list[bytes | None]) -> list[pa.Array]:
            columns = zip(*map(row, records), strict=True)
            return [pa.array(values, type=field.type) for values, field in zip(columns, made, strict=True)]

        return read

    modules = (*AVRO_MODULES, envelope_module, envelope_avro_module)
    return decode_in_tasks(records, spec, facts, begin, modules)


def undeclared_columns(schemas: Schemas, spec: SourceSpec) -> dict[str, str]:
    """The columns of tables whose changes records are, and which are not declared; each with its type in SQL."""
    return undeclared_fields(schemas, spec, _image_of)


def _image_of(envelope: Record) -> Record | None:
    """The record of the image within an envelope; None for flattened ones, whose columns stand beside other facts."""
    field = next((each for each in envelope.fields if each["name"] == "after"), None)
    branches = [] if field is None else field["type"] if isinstance(field["type"], list) else [field["type"]]
    images = [found for each in branches if kind_of(found := resolve(each, envelope)) == "record"]
    return replace(envelope, full=images[0]) if len(images) == 1 else None


def _reading(spec: SourceSpec, time_unit: str | None, decimals: str | None, unavailable: str) -> Reading:
    columns = tuple((each.name, each.dataType) for each in record_schema(spec).fields)
    return Reading(columns, spec.primary_key, time_unit, decimals, unavailable)


def _in_batches(reading: Reading, made: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    # What tasks are sent holds the code itself: the machines of a cluster need pyarrow, and not freshline.
    cloudpickle.register_pickle_by_value(envelope_module)  # type: ignore[no-untyped-call]
    names, value_column, dropped, tombstone = reading.columns, VALUE, DROPPED, TOMBSTONE

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader = EnvelopeReader(reading)

        def row(record: bytes | None) -> tuple[Any, ...]:
            if record is None:
                return (None, None, None, None, None, None, dropped)
            try:
                event: Event = reader.read(record)
            except Rejected as rejected:
                code = str(rejected)
                return (None, None, None, None, None, None, dropped if code == tombstone else code)
            values = {name: value for (name, _), value in zip(names, event.values, strict=True)}
            facts = (event.op, event.position, event.changed_at, event.transaction, list(event.unsent))
            return (values, *facts, None)

        for batch in batches:
            rows = [row(record) for record in batch.column(value_column).to_pylist()]
            columns = list(zip(*rows, strict=True)) or [()] * len(made)
            arrays = [pa.array(values, type=field.type) for values, field in zip(columns, made, strict=True)]
            fields = [*batch.schema, *made]
            yield pa.RecordBatch.from_arrays([*batch.columns, *arrays], schema=pa.schema(fields))

    return read
