"""Debezium's records as columns: each is read once, by Python in the processes of Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StringType, StructField, StructType, TimestampType

from freshline.declare.change import CHANGED_AT, OP, POSITION, TRANSACTION, UNSENT
from freshline.declare.format import PARSED, VALUE, Decoded
from freshline.declare.spec import SourceSpec
from freshline.sources.formats import envelope as envelope_module
from freshline.sources.formats.envelope import TOMBSTONE, EnvelopeReader, Event, Reading, Rejected
from freshline.sources.records import DROPPED, record_schema

if TYPE_CHECKING:
    from freshline.sources.formats.debezium import DebeziumJson

BROKEN = "_freshline_broken"


def decode_debezium(records: DataFrame, spec: SourceSpec, declared: DebeziumJson) -> Decoded:
    """The records with the struct PARSED and the facts of their events."""
    if "PYSPARK_PYTHON" not in os.environ:
        # Spark would take the first `python3` of the path, which may lack pyarrow.
        records.sparkSession.sparkContext.pythonExec = sys.executable
    schema = record_schema(spec)
    reading = Reading(
        tuple((each.name, each.dataType) for each in schema.fields),
        spec.primary_key,
        declared.time_unit,
        declared.decimals,
        declared.unavailable,
    )
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
